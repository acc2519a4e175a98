//! `cargo xtask packages`, and what `cargo xtask test` says of packages that are missing: before, what will be skipped; after, what was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, bail};
use larix_packages::{Command, PACKAGES, Package, SKIPS_VARIABLE};

/// In the environment: a test that is skipped for want of a package, or of something else of the machine, is an error. CI sets it, where
/// all packages are installed.
pub(crate) const REQUIRED_VARIABLE: &str = "LARIX_PACKAGES_REQUIRED";
/// Tests of one package that are named; more are counted.
const NAMED_MAX: usize = 6;

/// Every package, and whether it is installed.
pub(crate) fn list() {
    for package in PACKAGES {
        let state = if package.is_installed() { "installed" } else { "missing" };
        println!("{:<28} {state:<10} {}", package.name, package.tests);
    }
    if let Some(line) = apt_line(&missing(|_| true)) {
        println!("\n{line}");
    }
}

/// The names of the missing packages, one a line: for scripts.
pub(crate) fn list_missing() {
    missing(|_| true).iter().for_each(|package| println!("{}", package.name));
}

/// What `cargo xtask test` says at its start.
pub(crate) fn announce() {
    eprint!("{}", announcement(&missing(|package| package.wanted_by == Command::Test)));
}

fn missing(filter: impl Fn(&Package) -> bool) -> Vec<&'static Package> {
    PACKAGES.into_iter().filter(|package| filter(package) && !package.is_installed()).collect()
}

fn announcement(missing: &[&Package]) -> String {
    let Some(line) = apt_line(missing) else {
        return "packages: everything that tests want is installed\n".to_owned();
    };
    let mut text =
        "packages: these are not installed, and the tests that need them are skipped:\n".to_owned();
    for package in missing {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:<18} {}", package.name, package.tests);
    }
    text + "  to run them, too:  " + &line + "\n"
}

fn apt_line(missing: &[&Package]) -> Option<String> {
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    (!names.is_empty()).then(|| format!("apt-get install --no-install-recommends {}", names.join(" ")))
}

/// What tests wrote to the file of skips, by package.
fn skips(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut by_package = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (package, test) in text.lines().filter_map(|line| line.split_once('\t')) {
        by_package.entry(package).or_default().insert(test);
    }
    by_package
}

/// What was skipped, in a line for each package.
fn summary(text: &str) -> String {
    let mut out = String::new();
    for (package, tests) in skips(text) {
        let named: Vec<&str> = tests.iter().copied().take(NAMED_MAX).collect();
        let more = tests.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "skipped in {} test(s) for want of {package}: {}{more}",
            tests.len(),
            named.join(", ")
        );
    }
    out
}

/// Runs tests by cargo, and says at the end what they skipped.
pub(crate) fn with_skips(
    root: &Path,
    run: impl FnOnce(&mut process::Command) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (done, skipped) = recorded(root, |file| run(crate::cargo_command().env(SKIPS_VARIABLE, file)))?;
    eprint!("{}", summary(&skipped));
    done?;
    if !skipped.is_empty() && std::env::var_os(REQUIRED_VARIABLE).is_some() {
        bail!("tests were skipped, as said above, and {REQUIRED_VARIABLE} is set");
    }
    Ok(())
}

/// Runs something with a file to which tests write what they skip, and answers what they wrote.
fn recorded(
    root: &Path,
    run: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<(anyhow::Result<()>, String)> {
    let file = root.join("target/skipped-tests");
    std::fs::create_dir_all(root.join("target")).context("cannot create target")?;
    std::fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
    let done = run(&file);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok((done, text))
}

/// A few tests that want packages, one at least for each, and some that must not: the test's program, and the test.
const WANTING: [(&str, &str); 17] = [
    ("tools", "slappasswd::values_of_either_bind_at_both"),
    ("replication", "slow::ldapsearch_follows_as_it_follows_slapd"),
    ("server", "sasl::cyrus_clients_are_let_in_as_slapd_lets_them"),
    ("server", "pass_through::saslauthd_is_asked"),
    ("tools", "killed_tools::a_killed_load_leaves_the_old_database_or_the_new_one"),
    ("replication", "ring::clocks_that_are_wrong_and_set_back_lose_nothing"),
    ("server", "tls::clients_of_all_libraries"),
    ("tools", "load_run::tls_and_local_sockets_on_slapd"),
    ("tools", "mail::the_mail_directory"),
    ("tools", "load_compare::both_log_levels_and_redis"),
    ("admin", "browser::the_first_quarter_of_an_hour_takes_a_minute"),
    ("replication", "provider::abandon_cancel_and_the_end_of_the_server_end_a_search"),
    ("binary", "slapds_names_are_its_tools"),
    ("postgresql", "keeps_the_contract"),
    ("etcd", "keeps_the_contract"),
    ("rpm", "an_rpm_is_made_and_read"),
    ("server", "principals::a_password_set_by_ldap_gets_tickets"),
];

/// Hides files behind an empty one, folders behind one with `.d` at its end, and goes on with the rest of the arguments: `sh -c THIS sh EMPTY COUNT FILE... COMMAND...`.
const HIDE: &str = r#"
empty=$1; count=$2; shift 2
while [ "$count" -gt 0 ]; do
    if [ -d "$1" ]; then mount --bind "$empty.d" "$1"; else mount --bind "$empty" "$1"; fi || exit 1
    shift; count=$((count - 1))
done
exec "$@"
"#;

/// Runs some tests, or all, where the packages are hidden, in a mount namespace of their own, and checks that they skip what
/// needs them and fail for no want of one. Where the system permits no such namespace, that is said and nothing is run; in CI it is
/// an error.
pub(crate) fn without(root: &Path, all: bool) -> anyhow::Result<()> {
    let Some(unshare) = namespaces() else {
        if std::env::var_os(REQUIRED_VARIABLE).is_some() {
            bail!("this system permits no mount namespace, and {REQUIRED_VARIABLE} is set");
        }
        println!("without-packages: this system permits no mount namespace: skipped");
        return Ok(());
    };
    crate::binary()?;
    let packages = PACKAGES.into_iter().filter(|package| package.wanted_by == Command::Test);
    let packages: Vec<&Package> = packages.collect();
    let hidden: Vec<PathBuf> = packages.iter().flat_map(|package| package.paths()).collect();
    let empty = root.join("target/empty");
    std::fs::write(&empty, "").with_context(|| format!("cannot write {}", empty.display()))?;
    let folder = root.join("target/empty.d");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut cargo = vec!["cargo"];
    cargo.extend(crate::test_arguments());
    cargo.push("--quiet");
    if all {
        cargo.push("--no-fail-fast");
    } else {
        let programs: BTreeSet<&str> = WANTING.iter().map(|(program, _)| *program).collect();
        programs.into_iter().for_each(|program| cargo.extend(["--test", program]));
        cargo.extend(["--", "--exact"]);
        cargo.extend(WANTING.iter().map(|(_, test)| *test));
    }
    let (done, skipped) = recorded(root, |file| {
        let mut command = process::Command::new("unshare");
        command.args(unshare).args(["sh", "-c", HIDE, "sh"]).arg(&empty).arg(hidden.len().to_string());
        command.args(&hidden).args(&cargo).env(SKIPS_VARIABLE, file);
        crate::run(crate::for_cargo(&mut command))
    })?;
    done.context("tests failed for want of packages")?;
    let skipped = skips(&skipped);
    let silent: Vec<&str> =
        packages.iter().map(|package| package.name).filter(|name| !skipped.contains_key(name)).collect();
    if !silent.is_empty() {
        bail!("no test said that it skips what needs {}", silent.join(", "));
    }
    println!("without-packages: {} packages hidden, and nothing failed for want of one", packages.len());
    Ok(())
}

/// The arguments with which `unshare` gives a namespace of mounts here: as root, or as a user who becomes root in it.
fn namespaces() -> Option<&'static [&'static str]> {
    let works = |arguments: &&[&str]| {
        let mut command = process::Command::new("unshare");
        let mounts = ["sh", "-c", "mount --bind /dev/null /etc/hostname"];
        let output = command.args(*arguments).args(mounts).stdin(process::Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    [&["--mount"][..], &["--map-root-user", "--mount"]].into_iter().find(works)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_announced_with_one_line_for_apt() {
        let text = announcement(&[&larix_packages::SLAPD, &larix_packages::FAKETIME]);
        for part in [
            "slapd ",
            "faketime ",
            "clocks are wrong",
            "apt-get install --no-install-recommends slapd faketime\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(announcement(&[]), "packages: everything that tests want is installed\n");
    }

    #[test]
    fn skips_are_counted_once_a_test() {
        let mut text = "slapd\ta::one\nslapd\ta::one\nfaketime\tring::x\n".to_owned();
        assert_eq!(
            summary(&text),
            "skipped in 1 test(s) for want of faketime: ring::x\nskipped in 1 test(s) for want of slapd: a::one\n"
        );
        (0..NAMED_MAX).for_each(|number| text += &format!("slapd\tb::{number}\n"));
        assert!(summary(&text).contains("skipped in 7 test(s) for want of slapd: a::one, b::0"));
        assert!(summary(&text).ends_with(" and 1 more\n"));
        assert_eq!(summary(""), "");
    }
}

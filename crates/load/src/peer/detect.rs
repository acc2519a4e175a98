//! Finding slapd: where it is, which version, and whether its store is built in or a module.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

use super::{Access, Peer, Program, installed};

/// Where distributions and hand-made installations put it, Debian's first.
const PLACES: [&str; 6] = [
    "/usr/sbin/slapd",
    "/usr/libexec/slapd",
    "/usr/lib/openldap/slapd",
    "/usr/local/libexec/slapd",
    "/opt/openldap/libexec/slapd",
    "/opt/symas/lib/slapd",
];

/// Where `back_mdb` lies when it is a module; the program's own installation is tried as well.
const MODULES: [&str; 6] = [
    "/usr/lib/ldap",
    "/usr/lib64/openldap",
    "/usr/lib/openldap",
    "/usr/libexec/openldap",
    "/usr/local/libexec/openldap",
    "/opt/symas/lib/openldap",
];

const PACKAGES: &str = "Debian and Ubuntu have it in the package slapd, Fedora and RHEL in openldap-servers, \
                        openSUSE in openldap2; --slapd PATH names another one";

impl Peer {
    /// A slapd with back-mdb: at `path`, or where it usually is. It is asked for its version and, with a configuration
    /// in `scratch`, whether it has its store built in.
    ///
    /// # Errors
    /// No slapd is there, or the one there has no back-mdb.
    pub fn slapd(path: Option<&Path>, scratch: &Path) -> anyhow::Result<Self> {
        let path = installed("slapd", path, &PLACES, PACKAGES)?;
        let (number, version) = version(&path)?;
        let preamble = preamble(&path, scratch)?;
        let name = format!("slapd {number}");
        let program = Program { path, serve: &[], add: &["-Tadd"], preamble };
        Ok(Self { name, version, access: Access::Program(program) })
    }
}

fn run(command: &mut Command) -> anyhow::Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))
}

fn printed(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// `@(#) $OpenLDAP: slapd 2.5.13+dfsg-5 (Feb  8 2023 01:56:12) $` is 2.5.13, and OpenLDAP 2.5.13+dfsg-5.
fn version(path: &Path) -> anyhow::Result<(String, String)> {
    let text = printed(&run(Command::new(path).arg("-VV"))?);
    parse_version(&text)
        .with_context(|| format!("{} -VV printed no version of slapd: {text:?}", path.display()))
}

fn parse_version(text: &str) -> Option<(String, String)> {
    let (_, rest) = text.split_once("OpenLDAP: slapd ")?;
    let word = rest.split_whitespace().next()?;
    let digits: String = word.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let number = if digits.is_empty() { word.to_owned() } else { digits };
    Some((number, format!("OpenLDAP {word}")))
}

/// The lines that make `database mdb` known, found by testing a configuration with and without them.
fn preamble(path: &Path, scratch: &Path) -> anyhow::Result<String> {
    let data = scratch.join("detect");
    std::fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;
    let mut tries = vec![String::new()];
    let own = path
        .parent()
        .and_then(Path::parent)
        .map(|prefix| ["libexec/openldap", "lib/openldap", "lib/ldap"].map(|folder| prefix.join(folder)));
    let places = own.into_iter().flatten().chain(MODULES.iter().map(PathBuf::from));
    for place in places.filter(|place| place.is_dir()) {
        tries.push(format!("modulepath {}\nmoduleload back_mdb\n", place.display()));
    }
    let mut last = String::new();
    for preamble in &tries {
        let file = data.join("slapd.conf");
        let text = format!("{preamble}database mdb\nsuffix cn=detect\ndirectory {}\n", data.display());
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let output = run(Command::new(path).args(["-Ttest", "-u", "-f"]).arg(&file))?;
        if output.status.success() {
            return Ok(preamble.clone());
        }
        last = printed(&output);
    }
    bail!("{} has no back-mdb, neither built in nor as a module: {last}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            (
                "@(#) $OpenLDAP: slapd 2.5.13+dfsg-5 (Feb  8 2023 01:56:12) $",
                Some(("2.5.13", "OpenLDAP 2.5.13+dfsg-5")),
            ),
            (
                "@(#) $OpenLDAP: slapd 2.7.0 (Nov 21 2026) $\n\tbuilder@host",
                Some(("2.7.0", "OpenLDAP 2.7.0")),
            ),
            ("@(#) $OpenLDAP: slapd X (date) $", Some(("X", "OpenLDAP X"))),
            ("something else", None),
            ("", None),
        ] {
            let found = parse_version(text);
            let found = found.as_ref().map(|(number, version)| (number.as_str(), version.as_str()));
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn a_slapd_that_is_not_there_names_the_package() {
        let error = Peer::slapd(Some(Path::new("/nowhere/slapd")), Path::new("/")).unwrap_err().to_string();
        for part in ["/nowhere/slapd", "package slapd", "--slapd PATH"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_program_that_is_no_slapd_is_refused() {
        let error = Peer::slapd(Some(Path::new("/bin/true")), Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("no version of slapd"), "{error}");
    }
}

//! The developers' front door: `cargo xtask COMMAND`.

mod ahead;
mod chart;
mod dependencies;
mod documents;
mod image;
mod instructions;
mod kind_names;
mod layers;
mod memory_folder;
mod overlay_names;
mod package;
mod package_rpm;
mod package_slapd;
mod package_test;
mod packages;
mod progress;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::time::Instant;

use ahead::Ahead;
use anyhow::{Context, bail};
use memory_folder::MemoryFolder;

const HELP: &str = "\
cargo xtask COMMAND

  test            every test: unit, contract, model, conformance, end to end, tidy, dependencies
                  it says which packages are missing, skips what needs them, and tells how long it will still take
  packages [--missing]
                  the packages that tests want beside a toolchain and a C compiler; or the names of the missing ones
  without-packages [all]
                  some of the tests, or all, where the packages are hidden (a mount namespace): they skip and say so
  check           formatting and clippy, warnings as errors
  tidy            what review forgets: lengths, banned words, dead files, a map that points to nothing, layers, links and
                  words of documents
  site            the documents as a site with search, target/site (mdbook 0.5.4); every link of it is looked up
  layers [CRATE [FROM TO]]
                  circles of top-level modules; the arrows between the modules of CRATE; the places where FROM names TO
  dependencies    licences and known-bad crates, offline
  fuzz [RUNS]     every fuzz target for RUNS executions (default 20000)
  instructions [update]
                  instructions a request under valgrind, against the baseline; or write the baseline anew
  kerberos        the build feature gssapi, with MIT's KDC
  ci              check, test with the build feature gssapi, the package, instructions, a short fuzz run, and every scenario of the
                  load generator in smoke size; it says how long each took
  engines [OPTIONS]
                  the store's workloads on LMDB beside other engines; --help lists the options
  bench [ENTRIES] [FLAGS]
                  the mail directory beside slapd on this machine, in a minute once it is built; flags go to
                  `larix load compare`: --long takes an hour
  package [test] [BINARY]
                  the Debian packages larix and larix-slapd of target/dist/larix or of BINARY, in target/package; with test also
                  what lintian says, and installed, upgraded and purged in a Debian of its own, and in one where slapd serves
                  (root, lintian, mmdebstrap)
  package rpm [BINARY]
                  the same files as an rpm (rpmbuild)
  image [BINARY]  a container image of the package, target/package/larix-image.tar (root, mmdebstrap, buildah)
  chart           helm lints and renders the Helm chart dist/helm/larix (helm, or the program that HELM names)
  dist [--static] the binary that is installed and measured, target/dist/larix, and its symbols in larix.debug beside it; with
                  --static one that runs without the system's C library, in target/TARGET/dist (needs rustup's musl target and musl-gcc)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test", rest @ ..] => test(rest),
        ["packages"] => {
            packages::list();
            Ok(())
        }
        ["packages", "--missing"] => {
            packages::list_missing();
            Ok(())
        }
        ["without-packages"] => packages::without(&root(), false),
        ["without-packages", "all"] => packages::without(&root(), true),
        ["check"] => check(),
        ["kerberos"] => kerberos(),
        ["tidy"] => tidy::run(&root()),
        ["site"] => tidy::tracked(&root()).and_then(|files| documents::site::build(&root(), &files)),
        ["layers", rest @ ..] => layers::run(&root(), rest),
        ["dependencies"] => dependencies::run(&root()),
        ["instructions"] => instructions::run(&root(), false),
        ["instructions", "update"] => instructions::run(&root(), true),
        ["fuzz", rest @ ..] => fuzz(rest.first().copied().unwrap_or("20000")),
        ["engines", rest @ ..] => engines(rest),
        ["bench", rest @ ..] => bench(rest),
        ["dist"] => dist(Libc::System),
        ["dist", "--static"] => dist(Libc::Static),
        ["package", "test", rest @ ..] => {
            package(rest).and_then(|binary| package_test::test(&root(), &binary))
        }
        ["image", rest @ ..] => package(rest).and_then(|binary| image::make(&root(), &binary)),
        ["chart"] => chart::check(&root()),
        ["package", "rpm", rest @ ..] => package(rest).and_then(|binary| {
            let root = root();
            let package = package::Package { root: &root, binary: &binary, suffix: "", compression: "xz" };
            println!("{}", package.make_rpm()?.display());
            Ok(())
        }),
        ["package", rest @ ..] => package(rest).and_then(|binary| {
            let root = root();
            let package = package::Package { root: &root, binary: &binary, suffix: "", compression: "xz" };
            println!("{}\n{}", package.make()?.display(), package.make_slapd()?.display());
            Ok(())
        }),
        ["ci"] => ci(),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [unknown, ..] => Err(anyhow::anyhow!("no command is called {unknown:?}\n\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all tests are built and run with the system's Kerberos library: never set is no.
static WITH_KERBEROS: OnceLock<()> = OnceLock::new();
/// How many tests of a program run at once.
const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";
/// Makes tests of Kerberos that cannot run fail.
const KERBEROS_VARIABLE: &str = "LARIX_KERBEROS";

/// The stages, one after the other, with the seconds that each took at the end, whichever of them failed.
#[expect(clippy::disallowed_methods, reason = "stages take as long as they take")]
fn ci() -> anyhow::Result<()> {
    // One build for all: crates that know the feature would be compiled twice otherwise.
    let _ = WITH_KERBEROS.set(());
    let mut ahead = None;
    let mut build = || {
        build_tests()?;
        ahead = Some(Ahead::begin(&root())?);
        Ok(())
    };
    let stages: [(&str, &mut dyn FnMut() -> anyhow::Result<()>); 8] = [
        ("check", &mut check),
        ("build", &mut build),
        ("test", &mut || test(&[])),
        ("without packages", &mut || packages::without(&root(), false)),
        ("package", &mut package_of_tests),
        ("instructions", &mut || instructions::run(&root(), false)),
        ("fuzz", &mut || fuzz("20000")),
        ("smoke", &mut smoke),
    ];
    let mut took = Vec::new();
    let done = stages.into_iter().try_for_each(|(name, stage)| {
        let began = Instant::now();
        let done = stage();
        took.push(format!("{name} {} s", began.elapsed().as_secs()));
        done
    });
    println!("ci: {}", took.join(", "));
    done
}

/// Cargo's arguments for whatever builds or runs tests. All calls have the same: with other features, cargo compiles everything twice.
fn test_arguments() -> Vec<&'static str> {
    let mut arguments = vec!["test", "--workspace"];
    if WITH_KERBEROS.get().is_some() {
        arguments.extend(["--features", "larix/gssapi"]);
    }
    arguments
}

/// The workspace's root folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    run(cargo_command().args(arguments))
}

/// Cargo in the workspace's root, as it is called by hand. What cargo has told this program of its own package would reach build
/// scripts: ring's runs again for it, and half of the workspace would be compiled anew after each call by hand.
fn cargo_command() -> Command {
    let mut command = Command::new("cargo");
    for_cargo(&mut command);
    command
}

/// The same of a command that calls cargo.
fn for_cargo(command: &mut Command) -> &mut Command {
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    eprintln!("+ {command:?}");
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

fn check() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--", "--check"])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
}

fn test(rest: &[&str]) -> anyhow::Result<()> {
    packages::announce();
    tidy::run(&root())?;
    dependencies::run(&root())?;
    binary()?;
    let mut arguments = test_arguments();
    arguments.extend(rest);
    let what = if rest.is_empty() { progress::What::All } else { progress::What::Chosen };
    let folder = MemoryFolder::make();
    packages::with_skips(&root(), |command| {
        folder.iter().for_each(|folder| folder.give(command));
        if WITH_KERBEROS.get().is_some() {
            command.env(KERBEROS_VARIABLE, "required");
        }
        if std::env::var_os(THREADS_VARIABLE).is_none() {
            // Most tests wait for servers, disks and timers.
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            command.env(THREADS_VARIABLE, (2 * processors).to_string());
        }
        progress::run(&root(), command.args(&arguments), what)
    })
}

/// Builds the binary that the end-to-end tests start, and tries how it can be called. It is optimized and tests are not, so the profiles
/// differ; the parts of others are shared. By itself cargo would pick other features of what both are made of, and compile everything twice.
fn binary() -> anyhow::Result<()> {
    let mut arguments = test_arguments();
    arguments.extend(["--profile", "dev", "--test", "binary"]);
    cargo(&arguments)
}

/// Builds all tests, and runs none.
fn build_tests() -> anyhow::Result<()> {
    binary()?;
    let mut arguments = test_arguments();
    arguments.push("--no-run");
    cargo(&arguments)
}

/// The build feature that needs the system's Kerberos library, with a KDC. What is missing is an error here.
fn kerberos() -> anyhow::Result<()> {
    let _ = WITH_KERBEROS.set(());
    binary()?;
    let mut arguments = test_arguments();
    arguments.extend(["--test", "server", "gssapi"]);
    run(cargo_command().args(arguments).env(KERBEROS_VARIABLE, "required"))
}

fn fuzz(runs: &str) -> anyhow::Result<()> {
    runs.parse::<u64>().with_context(|| format!("{runs:?} is not a number of executions"))?;
    run(Command::new("bash").arg("fuzz/run.sh").arg(runs).current_dir(root()))
}

/// Built from its own lock file, for no other build compiles these engines.
fn engines(options: &[&str]) -> anyhow::Result<()> {
    let mut arguments =
        vec!["run", "--release", "--locked", "--manifest-path", "bench-engines/Cargo.toml", "--"];
    arguments.extend(options);
    cargo(&arguments)
}

/// Where slapd is, for what is measured beside it; without one, Larix is measured alone.
const SLAPD: &str = "/usr/sbin/slapd";

fn bench(rest: &[&str]) -> anyhow::Result<()> {
    let (entries, flags) = match rest.split_first() {
        Some((first, flags)) if !first.starts_with('-') => (Some(*first), flags),
        _ => (None, rest),
    };
    let mut arguments = vec!["mail"];
    if let Some(entries) = entries {
        entries.parse::<u64>().with_context(|| format!("{entries:?} is not a number of entries"))?;
        arguments.extend(["--entries", entries]);
    }
    arguments.extend(flags);
    dist(Libc::System)?;
    compare("dist", &arguments)
}

/// Where a binary has its C library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Libc {
    System,
    /// musl, in the binary.
    Static,
}

/// The binary as it is installed, without symbols; they lie in a file beside it, where debuggers and profilers find them.
fn dist(libc: Libc) -> anyhow::Result<()> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut build = vec!["build", "--profile", "dist", "--package", "larix", "--features", "postgresql,etcd"];
    let folder = match libc {
        Libc::System => root().join("target/dist"),
        Libc::Static => {
            build.extend(["--target", &target]);
            root().join("target").join(&target).join("dist")
        }
    };
    cargo(&build)?;
    let symbols = folder.join("larix.debug");
    let built = folder.join("larix");
    // What cargo built may be the file that this made of an earlier build: that has its link already.
    let sections = Command::new("objdump").arg("--section-headers").arg(&built).output();
    let sections = sections.context("cannot start objdump, which comes with the C compiler")?;
    if !String::from_utf8_lossy(&sections.stdout).contains(".debug_line") {
        return Ok(());
    }
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&built).arg(&symbols))?;
    let stripped = folder.join("larix.stripped");
    run(Command::new("objcopy")
        .args(["--strip-all", "--add-gnu-debuglink=larix.debug", "larix", "larix.stripped"])
        .current_dir(&folder))?;
    std::fs::rename(&stripped, &built).with_context(|| format!("cannot replace {}", built.display()))
}

/// The binary that is packaged: the one that is named, or one as it is installed.
fn package(rest: &[&str]) -> anyhow::Result<PathBuf> {
    match rest {
        [] => {
            dist(Libc::System)?;
            Ok(root().join("target/dist/larix"))
        }
        [binary] => std::fs::canonicalize(binary).with_context(|| format!("there is no binary {binary}")),
        [_, more, ..] => bail!("cargo xtask package takes one binary: what is {more:?}?"),
    }
}

/// The package of the binary that the tests start: that it can be made.
fn package_of_tests() -> anyhow::Result<()> {
    binary()?;
    let (built, stripped) = (root().join("target/debug/larix"), root().join("target/larix-without-symbols"));
    run(Command::new("objcopy").arg("--strip-all").args([&built, &stripped]))?;
    let root = root();
    let package = package::Package { root: &root, binary: &stripped, suffix: "", compression: "none" };
    println!("{}\n{}", package.make()?.display(), package.make_slapd()?.display());
    Ok(())
}

/// Every scenario, small: that it runs and that every answer is right, not how fast.
fn smoke() -> anyhow::Result<()> {
    binary()?;
    ["mail", "frontend", "grid", "subscribers", "sizing"]
        .iter()
        .try_for_each(|scenario| compare("debug", &[*scenario, "--smoke"]))
}

fn compare(profile: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(root().join("target").join(profile).join("larix"));
    command.args(["load", "compare"]).args(arguments);
    if Path::new(SLAPD).exists() && !arguments.contains(&"--with") {
        command.args(["--with", "slapd"]);
    }
    run(&mut command)
}

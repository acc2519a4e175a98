//! `cargo xtask package test`: the package made twice and compared, looked at by lintian, and installed in a Debian of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::package::Package;
use crate::run;

/// What lintian would have otherwise. The binary is built outside of Debian's tool chain, nobody has reported a bug for the package, and
/// its maintainer is who builds it.
const SUPPRESSED: &str =
    "initial-upload-closes-no-bugs,embedded-library,bogus-mail-host,bogus-mail-host-in-debian-changelog";

/// # Errors
/// What the package lacks, or a program that is missing: lintian and mmdebstrap come from Debian's packages of these names.
pub(crate) fn test(root: &Path, binary: &Path) -> anyhow::Result<()> {
    let first = Package { root, binary, suffix: "", compression: "xz" };
    let first = [reproducible(|| first.make())?, reproducible(|| first.make_slapd())?];
    run(Command::new("lintian").args(["--fail-on", "error", "--suppress-tags", SUPPRESSED]).args(&first))?;
    let second = Package { root, binary, suffix: "+next", compression: "xz" };
    let second = [second.make()?, second.make_slapd()?];
    let [larix, larix_slapd] = &first;
    let [next, next_slapd] = &second;
    let plain = debian(root, "debian", &[])?;
    tried(&plain, &root.join("dist/debian/try"), &[larix, next])?;
    // With the file of slapd's package, which is put back without a network.
    let fetch = "--customize-hook=chroot \"$1\" sh -c 'cd / && apt-get --quiet download slapd'";
    let served = debian(root, "debian-slapd", &["--include=slapd", fetch])?;
    tried(&served, &root.join("dist/debian/slapd/try"), &[larix, larix_slapd, next, next_slapd])
}

/// A Debian of its own in a folder of target/package.
fn debian(root: &Path, name: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
    let debian = root.join("target/package").join(name);
    if debian.exists() {
        fs::remove_dir_all(&debian).with_context(|| format!("cannot remove {}", debian.display()))?;
    }
    run(Command::new("mmdebstrap")
        .args(["--variant=minbase", "--quiet"])
        .args(options)
        .arg(release()?)
        .arg(&debian))?;
    Ok(debian)
}

/// Runs a script there with packages.
fn tried(debian: &Path, script: &Path, packages: &[&PathBuf]) -> anyhow::Result<()> {
    let mut names = Vec::new();
    for package in packages {
        let name = package.file_name().context("a package without a name")?;
        fs::copy(package, debian.join(name)).context("cannot copy the package")?;
        names.push(format!("/{}", name.to_string_lossy()));
    }
    fs::copy(script, debian.join("try")).with_context(|| format!("cannot copy {}", script.display()))?;
    // A network, processes and mounts of its own: nothing of it is left behind.
    let start = "ip link set lo up && mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /try \"$@\"";
    run(Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", start])
        .arg(debian)
        .args(names))
}

/// Makes a package twice, and compares.
fn reproducible(make: impl Fn() -> anyhow::Result<PathBuf>) -> anyhow::Result<PathBuf> {
    let read =
        |package: &Path| fs::read(package).with_context(|| format!("cannot read {}", package.display()));
    let first = read(&make()?)?;
    let package = make()?;
    if read(&package)? != first {
        bail!("{} made a second time from the same binary has other bytes", package.display());
    }
    Ok(package)
}

/// The name of this machine's release of Debian.
pub(crate) fn release() -> anyhow::Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release names no release of Debian")?.to_owned())
}

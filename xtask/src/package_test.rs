//! `cargo xtask package test`: the package made twice and compared, looked at by lintian, and installed in a Debian of its own.

use std::fs;
use std::path::Path;
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
    is_reproducible(root, binary)?;
    let first = Package { root, binary, suffix: "", compression: "xz" }.make()?;
    run(Command::new("lintian").args(["--fail-on", "error", "--suppress-tags", SUPPRESSED]).arg(&first))?;
    let second = Package { root, binary, suffix: "+next", compression: "xz" }.make()?;
    let debian = root.join("target/package/debian");
    if debian.exists() {
        fs::remove_dir_all(&debian).with_context(|| format!("cannot remove {}", debian.display()))?;
    }
    run(Command::new("mmdebstrap").args(["--variant=minbase", "--quiet", &release()?]).arg(&debian))?;
    for package in [&first, &second] {
        let name = package.file_name().context("a package without a name")?;
        fs::copy(package, debian.join(name)).context("cannot copy the package")?;
    }
    fs::copy(root.join("dist/debian/try"), debian.join("try")).context("cannot copy dist/debian/try")?;
    let name = |path: &Path| format!("/{}", path.file_name().unwrap_or_default().to_string_lossy());
    // A network, processes and mounts of its own: nothing of it is left behind.
    let start =
        "ip link set lo up && mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /try \"$1\" \"$2\"";
    run(Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", start])
        .arg(&debian)
        .args([name(&first), name(&second)]))
}

fn is_reproducible(root: &Path, binary: &Path) -> anyhow::Result<()> {
    let made = || -> anyhow::Result<Vec<u8>> {
        let package = Package { root, binary, suffix: "", compression: "xz" }.make()?;
        fs::read(&package).with_context(|| format!("cannot read {}", package.display()))
    };
    if made()? != made()? {
        bail!("the package made a second time from the same binary has other bytes");
    }
    Ok(())
}

/// The name of this machine's release of Debian.
pub(crate) fn release() -> anyhow::Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release names no release of Debian")?.to_owned())
}

//! `cargo xtask image`: a container image of the Debian package, made without a registry: a few of Debian's packages, ours, and what starts it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::package::Package;
use crate::package_test::release;
use crate::run;

/// What the program needs of Debian: the C library, authorities that certificates are checked with, and a shell for what starts it.
const OF_DEBIAN: &str = "base-files,busybox-static,ca-certificates,libc6,libgcc-s1,tzdata";
/// Commands that the scripts use.
const COMMANDS: [&str; 7] = ["sh", "cat", "date", "mv", "printf", "rm", "sed"];
/// What is started in a container, of dist/container: the server, and the export of its entries.
const SCRIPTS: [&str; 2] = ["start", "export"];
/// Not one of the machine's users.
const USER: u32 = 10_001;
const NAME: &str = "larix";

/// Makes the image, as an archive in the format of the Open Container Initiative, in target/package.
///
/// # Errors
/// A program that is missing (`mmdebstrap`, `dpkg-deb`, `buildah`) or fails.
pub(crate) fn make(root: &Path, binary: &Path) -> anyhow::Result<()> {
    let package = Package { root, binary, suffix: "", compression: "none" }.make()?;
    let tree = root.join("target/package/image");
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    run(Command::new("mmdebstrap")
        .args(["--variant=extract", "--quiet", "--include", OF_DEBIAN, &release()?])
        .arg(&tree))?;
    run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&tree))?;
    for unwanted in ["usr/share/doc", "usr/share/man", "var/lib/apt", "var/cache", "usr/lib/systemd"] {
        let path = tree.join(unwanted);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    for name in COMMANDS {
        let link = tree.join("bin").join(name);
        if !link.exists() {
            std::os::unix::fs::symlink("busybox", &link)
                .with_context(|| format!("cannot make {}", link.display()))?;
        }
    }
    for name in SCRIPTS {
        let script = tree.join("usr/lib/larix").join(name);
        fs::copy(root.join("dist/container").join(name), &script)
            .with_context(|| format!("cannot copy dist/container/{name}"))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).context("cannot set a mode")?;
    }
    let authorities = "cat $(find \"$0\"/usr/share/ca-certificates -name '*.crt' | sort) > \"$0\"/etc/ssl/certs/ca-certificates.crt";
    run(Command::new("sh").args(["-c", authorities]).arg(&tree))?;
    let data = root.join("target/package/image-data");
    fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let archive = root.join("target/package/larix-image.tar");
    let user = format!("{USER}:{USER}");
    let script = "set -e
        container=$(buildah from scratch)
        trap 'buildah rm \"$container\" >/dev/null' EXIT
        buildah add --quiet \"$container\" \"$1\" / >/dev/null
        buildah add --quiet --chown \"$2\" \"$container\" \"$6\" /var/lib/larix >/dev/null
        buildah config --user \"$2\" --entrypoint '[\"/usr/lib/larix/start\"]' --cmd '' --volume /var/lib/larix \\
            --port 3890 --port 6360 --stop-signal SIGTERM --label org.opencontainers.image.title=Larix \"$container\"
        buildah commit --quiet --timestamp \"$4\" \"$container\" \"$5:latest\"
        rm -f \"$3\"
        buildah push --quiet \"$5:latest\" \"oci-archive:$3:$5:latest\"";
    let time = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
    let time = String::from_utf8_lossy(&time.context("cannot start git")?.stdout).trim().to_owned();
    run(Command::new("sh")
        .args(["-c", script, "image"])
        .arg(&tree)
        .arg(&user)
        .arg(&archive)
        .args([&time, NAME])
        .arg(&data)
        .env("BUILDAH_ISOLATION", "chroot"))?;
    println!("{}", archive.display());
    Ok(())
}

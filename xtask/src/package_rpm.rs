//! `cargo xtask package rpm`: the same files as an rpm. `rpmbuild`, of Debian's package `rpm`, packs them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::package::{MAINTAINER, Package, Stage, files, output, place_service};
use crate::run;

/// What only Debian has: its name of the changes, and a profile for AppArmor.
const OF_DEBIAN: [&str; 2] = ["usr/share/doc/larix/changelog.Debian.gz", "etc/apparmor.d/larix-serve"];
/// Where zsh looks on systems with rpm.
const ZSH: [&str; 2] = ["usr/share/zsh/vendor-completions/_larix", "usr/share/zsh/site-functions/_larix"];
/// Folders that the package owns, beside its files.
const FOLDERS: [&str; 4] = ["etc/larix", "usr/lib/larix", "usr/share/larix", "usr/share/doc/larix"];

impl Package<'_> {
    /// Makes the rpm and answers where it is.
    ///
    /// # Errors
    /// A program that is missing (`rpmbuild`, `gzip`, `git`) or fails, a file that cannot be read or written.
    pub(crate) fn make_rpm(&self) -> anyhow::Result<PathBuf> {
        let stage = self.stage("larix-rpm")?;
        stage.place(self.binary, "usr/bin/larix", 0o755)?;
        self.place_documentation(&stage)?;
        place_service(&stage)?;
        for file in OF_DEBIAN {
            let path = stage.tree.join(file);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        fs::remove_dir(stage.tree.join("etc/apparmor.d")).context("cannot remove etc/apparmor.d")?;
        let [from, to] = ZSH.map(|path| stage.tree.join(path));
        fs::create_dir_all(to.parent().context("a file without a folder")?)
            .context("cannot make a folder for zsh")?;
        fs::rename(&from, &to).with_context(|| format!("cannot move {}", from.display()))?;
        fs::remove_dir(from.parent().context("a file without a folder")?)
            .context("cannot remove a folder of zsh")?;
        let top = self.root.join("target/package/rpm");
        if top.exists() {
            fs::remove_dir_all(&top).with_context(|| format!("cannot remove {}", top.display()))?;
        }
        fs::create_dir_all(&top).with_context(|| format!("cannot make {}", top.display()))?;
        let file = top.join("larix.spec");
        fs::write(&file, self.specification(&stage)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(self.root))?;
        let architecture = std::env::consts::ARCH;
        run(Command::new("rpmbuild")
            .args(["-bb", "--quiet", "--target", architecture, "--define"])
            .arg(format!("_topdir {}", top.display()))
            .arg(&file)
            .env("SOURCE_DATE_EPOCH", time))?;
        let name = format!("larix-{}-{}.{architecture}.rpm", env!("CARGO_PKG_VERSION"), self.release());
        let package = self.root.join("target/package").join(&name);
        let built = top.join("RPMS").join(architecture).join(&name);
        fs::rename(&built, &package).with_context(|| format!("cannot move {}", built.display()))?;
        Ok(package)
    }

    /// dist/rpm/larix.spec with this package's words.
    fn specification(&self, stage: &Stage) -> anyhow::Result<String> {
        let payload = if self.compression == "none" { "w0.ufdio" } else { "w6.xzdio" };
        let text = stage.read("rpm/larix.spec")?;
        Ok(text
            .replace("@PAYLOAD@", payload)
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
            .replace("@RELEASE@", &self.release())
            .replace("@PACKAGER@", MAINTAINER)
            .replace("@TREE@", &stage.tree.display().to_string())
            .replace("@FILES@", listed(&stage.tree)?.trim_end()))
    }
}

/// The lines of `%files`: settings are kept when the package is replaced.
fn listed(tree: &Path) -> anyhow::Result<String> {
    let mut names = Vec::new();
    for file in files(tree)? {
        names.push(file.strip_prefix(tree).context("a file outside of the tree")?.display().to_string());
    }
    names.sort_unstable();
    let mut lines = String::new();
    for folder in FOLDERS {
        // Writing to a string cannot fail.
        let owner = if folder == "etc/larix" { "%attr(0750,root,larix) " } else { "" };
        let _ = writeln!(lines, "%dir {owner}/{folder}");
    }
    for name in names {
        let kind = match name.as_str() {
            name if name.starts_with("etc/") => "%config(noreplace) ",
            name if name.starts_with("usr/share/doc/") || name.starts_with("usr/share/man/") => "%doc ",
            _ => "",
        };
        let _ = writeln!(lines, "{kind}/{name}");
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_kept_and_texts_are_documentation() {
        let tree = tempfile::tempdir().unwrap();
        for file in ["usr/bin/larix", "etc/logrotate.d/larix", "usr/share/doc/larix/copyright"] {
            let path = tree.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let lines = listed(tree.path()).unwrap();
        let lines: Vec<&str> = lines.lines().filter(|line| !line.starts_with("%dir ")).collect();
        assert_eq!(
            lines,
            [
                "%config(noreplace) /etc/logrotate.d/larix",
                "/usr/bin/larix",
                "%doc /usr/share/doc/larix/copyright"
            ]
        );
    }
}

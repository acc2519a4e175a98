//! `cargo xtask package`: the Debian package, from a binary and the files in `dist/debian`. The same commit makes the same bytes.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::run;

/// Of the package, behind the version of the program.
const REVISION: &str = "1";
pub(crate) const MAINTAINER: &str = "Larix <packages@larix.example>";
/// What the maintainer scripts and the unit call, beside the C library.
const DEPENDS: &str = "init-system-helpers (>= 1.54), passwd";
/// Where a unit of systemd finds the program.
const UNIT_START: &str = "ExecStart=/usr/lib/larix/serve";

/// What is packaged.
#[derive(Debug)]
pub(crate) struct Package<'a> {
    /// The repository.
    pub(crate) root: &'a Path,
    pub(crate) binary: &'a Path,
    /// Behind the revision, where one package is to be newer than another.
    pub(crate) suffix: &'a str,
    /// As dpkg-deb names it: `xz`, or `none` for a package that nobody keeps.
    pub(crate) compression: &'a str,
}

impl Package<'_> {
    /// Makes the package `larix` and answers where it is.
    ///
    /// # Errors
    /// A program that is missing (`dpkg-deb`, `gzip`, `objdump`, `git`) or fails, a file that cannot be read or written.
    pub(crate) fn make(&self) -> anyhow::Result<PathBuf> {
        let stage = self.stage("larix")?;
        stage.place(self.binary, "usr/bin/larix", 0o755)?;
        self.place_documentation(&stage)?;
        place_service(&stage)?;
        let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
        self.place_control(&stage, &self.version(), &architecture)?;
        self.pack(&stage, "larix", &architecture)
    }

    /// Man pages, completions, licence and changes.
    pub(crate) fn place_documentation(&self, stage: &Stage) -> anyhow::Result<()> {
        let manual = stage.tree.join("usr/share/man");
        self.write_manual(&manual)?;
        // These come with the names, in larix-slapd: slapd's package has files of the same names.
        for page in slapd_pages(&manual)? {
            fs::remove_file(&page).with_context(|| format!("cannot remove {}", page.display()))?;
        }
        for (shell, file) in [
            ("bash", "usr/share/bash-completion/completions/larix"),
            ("zsh", "usr/share/zsh/vendor-completions/_larix"),
            ("fish", "usr/share/fish/vendor_completions.d/larix.fish"),
        ] {
            let script = output(Command::new(self.binary).args(["completions", shell]))?;
            stage.write(file, &(script + "\n"), 0o644)?;
        }
        let mut texts = files(&manual)?;
        texts.extend(self.place_changes(stage, "larix")?);
        compress(&texts)
    }

    pub(crate) fn write_manual(&self, to: &Path) -> anyhow::Result<()> {
        run(Command::new(self.binary).arg("manual").arg(to).stdout(std::process::Stdio::null()))
    }

    /// Licence and changes. Answers what is to be compressed.
    pub(crate) fn place_changes(&self, stage: &Stage, name: &str) -> anyhow::Result<[PathBuf; 2]> {
        let folder = format!("usr/share/doc/{name}");
        stage.copy("debian/copyright", &format!("{folder}/copyright"))?;
        stage.place(&self.root.join("CHANGELOG.md"), &format!("{folder}/changelog"), 0o644)?;
        let of_package = format!(
            "{name} ({}) unstable; urgency=medium\n\n  * The changes are in changelog.gz.\n\n -- {MAINTAINER}  {}\n",
            self.version(),
            output(Command::new("git").args(["log", "-1", "--format=%aD"]).current_dir(self.root))?
        );
        stage.write(&format!("{folder}/changelog.Debian"), &of_package, 0o644)?;
        Ok(["changelog", "changelog.Debian"].map(|file| stage.tree.join(&folder).join(file)))
    }

    pub(crate) fn version(&self) -> String {
        format!("{}-{}", env!("CARGO_PKG_VERSION"), self.release())
    }

    /// What is behind the version of the program.
    pub(crate) fn release(&self) -> String {
        format!("{REVISION}{}", self.suffix)
    }

    /// An empty tree for the package `name`.
    pub(crate) fn stage(&self, name: &str) -> anyhow::Result<Stage> {
        let tree = self.root.join("target/package").join(name);
        if tree.exists() {
            fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
        }
        Ok(Stage { from: self.root.join("dist"), tree })
    }

    /// The package of a tree, with the time of the last commit.
    pub(crate) fn pack(&self, stage: &Stage, name: &str, architecture: &str) -> anyhow::Result<PathBuf> {
        let file = format!("{name}_{}_{architecture}.deb", self.version());
        let package = self.root.join("target/package").join(file);
        let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(self.root))?;
        run(Command::new("dpkg-deb")
            .args(["--root-owner-group", &format!("-Z{}", self.compression), "--build"])
            .args([&stage.tree, &package])
            .env("SOURCE_DATE_EPOCH", time))?;
        Ok(package)
    }

    fn place_control(&self, stage: &Stage, version: &str, architecture: &str) -> anyhow::Result<()> {
        let kilobytes = size(&stage.tree)?.div_ceil(1024);
        let library = c_library(self.binary)?;
        let control = format!(
            "Package: larix\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {kilobytes}\nDepends: {library}, {DEPENDS}\nSection: net\nPriority: optional\n\
             Description: LDAP directory server that takes OpenLDAP's place\n \
             Larix answers the same protocol as OpenLDAP's slapd, reads its\n \
             configuration, comes with its tools, and replicates with it.\n .\n \
             The first start makes a directory for the domain of this machine.\n \
             Its administrator's password is in /etc/larix/admin-password.\n"
        );
        stage.write("DEBIAN/control", &control, 0o644)?;
        let files = ["etc/apparmor.d/larix-serve", "etc/logrotate.d/larix"];
        let mut listed = String::new();
        for file in files {
            // Writing to a string cannot fail.
            let _ = writeln!(listed, "/{file}");
        }
        stage.write("DEBIAN/conffiles", &listed, 0o644)?;
        for script in ["postinst", "prerm", "postrm"] {
            let text = stage.read(&format!("debian/larix.{script}"))?;
            stage.write(&format!("DEBIAN/{script}"), &text, 0o755)?;
        }
        stage.sums()
    }
}

/// The unit, what it starts, and what stands beside it.
pub(crate) fn place_service(stage: &Stage) -> anyhow::Result<()> {
    let unit = stage.read("larix.service")?;
    stage.write("usr/lib/systemd/system/larix.service", &packaged_unit(&unit)?, 0o644)?;
    stage.write("usr/lib/larix/serve", &stage.read("debian/serve")?, 0o755)?;
    stage.copy("debian/default", "usr/share/larix/default")?;
    stage.copy("debian/logrotate", "etc/logrotate.d/larix")?;
    stage.copy("debian/apparmor", "etc/apparmor.d/larix-serve")?;
    fs::create_dir_all(stage.tree.join("etc/larix")).context("cannot make etc/larix")
}

/// The unit of those who install by hand, without what it tells them, and started by what reads /etc/default/larix.
fn packaged_unit(unit: &str) -> anyhow::Result<String> {
    let Some((_, sections)) = unit.split_once("[Unit]") else { bail!("dist/larix.service has no [Unit]") };
    let mut packaged = String::from(
        "# Larix as a user of its own and with no more than it needs. What it serves: /etc/default/larix\n\n[Unit]",
    );
    let mut starts = 0;
    for line in sections.lines() {
        let is_start = line.starts_with("ExecStart=");
        starts += usize::from(is_start);
        let _ = writeln!(packaged, "{}", if is_start { UNIT_START } else { line });
        if is_start {
            packaged.push_str("AppArmorProfile=-larix-serve\nLogsDirectory=larix\n");
        }
    }
    if starts != 1 {
        bail!("dist/larix.service has {starts} lines ExecStart=, not one");
    }
    Ok(packaged)
}

/// The pages of the names that slapd's package has, too.
pub(crate) fn slapd_pages(manual: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = files(&manual.join("man8"))?;
    pages.retain(|page| {
        page.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("slap"))
    });
    pages.sort_unstable();
    Ok(pages)
}

/// The tree that becomes the package.
pub(crate) struct Stage {
    /// The folder of what is installed beside the binary.
    from: PathBuf,
    pub(crate) tree: PathBuf,
}

impl Stage {
    pub(crate) fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = self.from.join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    pub(crate) fn copy(&self, file: &str, to: &str) -> anyhow::Result<()> {
        self.place(&self.from.join(file), to, 0o644)
    }

    pub(crate) fn place(&self, file: &Path, to: &str, mode: u32) -> anyhow::Result<()> {
        let to = self.with_folder(to)?;
        fs::copy(file, &to).with_context(|| format!("cannot copy {} to {}", file.display(), to.display()))?;
        set_mode(&to, mode)
    }

    pub(crate) fn write(&self, to: &str, text: &str, mode: u32) -> anyhow::Result<()> {
        let to = self.with_folder(to)?;
        fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
        set_mode(&to, mode)
    }

    /// The path below the tree, its folder made.
    pub(crate) fn with_folder(&self, to: &str) -> anyhow::Result<PathBuf> {
        let path = self.tree.join(to);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(path)
    }

    /// DEBIAN/md5sums, which dpkg --verify reads.
    pub(crate) fn sums(&self) -> anyhow::Result<()> {
        let mut files: Vec<PathBuf> = files(&self.tree)?;
        files.retain(|file| !file.starts_with(self.tree.join("DEBIAN")));
        let mut names: Vec<_> = files.iter().filter_map(|file| file.strip_prefix(&self.tree).ok()).collect();
        names.sort_unstable();
        let sums = output(Command::new("md5sum").args(names).current_dir(&self.tree))?;
        self.write("DEBIAN/md5sums", &(sums + "\n"), 0o644)
    }
}

fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

/// Every file below a folder, without links.
pub(crate) fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

pub(crate) fn size(folder: &Path) -> anyhow::Result<u64> {
    files(folder)?.iter().map(|file| Ok(fs::metadata(file)?.len())).sum()
}

/// Without the names and the times of the files.
pub(crate) fn compress(files: &[PathBuf]) -> anyhow::Result<()> {
    files.iter().try_for_each(|file| set_mode(file, 0o644))?;
    run(Command::new("gzip").args(["-9", "-n", "--force"]).args(files))
}

/// The C library that the binary wants, as a dependency: `libc6 (>= 2.34)`.
fn c_library(binary: &Path) -> anyhow::Result<String> {
    let symbols = output(Command::new("objdump").arg("--private-headers").arg(binary))?;
    let newest = newest_version(&symbols).context("the binary names no version of the C library")?;
    let compiler = if symbols.contains("libgcc_s.so.1") { ", libgcc-s1" } else { "" };
    Ok(format!("libc6 (>= {}.{}){compiler}", newest.0, newest.1))
}

/// The newest `GLIBC_a.b` in what objdump prints.
fn newest_version(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split_ascii_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    let numbers = versions.filter_map(|version| {
        let mut parts = version.split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    numbers.max()
}

/// What a program prints, without the last line's end.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)
        .with_context(|| format!("{name} printed no text"))?
        .trim_end()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_c_library_counts() {
        let text = "0x09691a75 0x00 02 GLIBC_2.2.5\n 0x069691b4 0x00 10 GLIBC_2.34\n 0x0 0x00 11 GLIBC_2.4\n GCC_3.0";
        assert_eq!(newest_version(text), Some((2, 34)));
        assert_eq!(newest_version("GCC_3.0"), None);
    }

    #[test]
    fn the_packaged_unit_is_the_other_one_but_for_its_start() {
        let unit = fs::read_to_string(crate::root().join("dist/larix.service")).unwrap();
        let packaged = packaged_unit(&unit).unwrap();
        assert!(
            packaged.contains("\nExecStart=/usr/lib/larix/serve\nAppArmorProfile=-larix-serve\n"),
            "{packaged}"
        );
        assert!(!packaged.contains("useradd") && packaged.contains("\nProtectSystem=strict\n"), "{packaged}");
        assert!(packaged_unit("[Unit]\n").is_err());
    }

    /// Without `sched_setattr` and `setpriority` a backup and a long search would compete with the threads that answer clients, and
    /// nothing would say so.
    #[test]
    fn the_sandbox_lets_threads_give_way() {
        for name in ["dist/larix.service", "dist/debian/slapd/slapd.service"] {
            let unit = fs::read_to_string(crate::root().join(name)).unwrap();
            let filters: Vec<&str> =
                unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
            // `@system-service` has these calls, and lines that begin with `~` take `@resources` away again.
            let denied =
                filters.iter().rposition(|line| line.starts_with('~') && line.contains("@resources"));
            let Some(denied) = denied else { continue };
            for call in ["prlimit64", "sched_setattr", "setpriority", "setrlimit"] {
                let mut later = filters.iter().skip(denied + 1).flat_map(|line| line.split_whitespace());
                assert!(later.any(|word| word == call), "{name} refuses {call}");
            }
        }
    }
}

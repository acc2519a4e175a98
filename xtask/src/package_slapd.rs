//! The Debian package `larix-slapd`: slapd's names and place for the program of the package `larix`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::package::{MAINTAINER, Package, Stage, compress, size, slapd_pages};

/// Where scripts get the lines that they share.
const COMMON: &str = "@COMMON@\n";

impl Package<'_> {
    /// Makes the package `larix-slapd` and answers where it is.
    ///
    /// # Errors
    /// As those of [`Package::make`].
    pub(crate) fn make_slapd(&self) -> anyhow::Result<PathBuf> {
        let stage = self.stage("larix-slapd")?;
        self.place_names(&stage)?;
        stage.copy("debian/slapd/slapd.service", "usr/lib/systemd/system/slapd.service")?;
        stage.copy("debian/slapd/default", "usr/share/larix-slapd/default")?;
        let common = stage.read("debian/slapd/common")?;
        let script = |name: &str| whole(&stage.read(&format!("debian/slapd/{name}"))?, &common);
        stage.write("usr/lib/larix-slapd/serve", &script("serve")?, 0o755)?;
        compress(&self.place_changes(&stage, "larix-slapd")?)?;
        let version = self.version();
        let control = format!(
            "Package: larix-slapd\nVersion: {version}\nArchitecture: all\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {}\nPre-Depends: larix\n\
             Depends: larix (>= {version}), init-system-helpers (>= 1.54), passwd\n\
             Provides: slapd\nConflicts: slapd\nReplaces: slapd\n\
             Section: net\nPriority: optional\n\
             Description: Larix in the place of OpenLDAP's slapd\n \
             slapd and its tools under their own names, served by Larix. The package\n \
             loads what slapd's databases hold, and leaves these as they are.\n",
            size(&stage.tree)?.div_ceil(1024)
        );
        stage.write("DEBIAN/control", &control, 0o644)?;
        for name in ["preinst", "postinst", "prerm"] {
            stage.write(&format!("DEBIAN/{name}"), &script(name)?, 0o755)?;
        }
        stage.write("DEBIAN/postrm", &stage.read("debian/slapd/postrm")?, 0o755)?;
        stage.sums()?;
        self.pack(&stage, "larix-slapd", "all")
    }

    /// A link and a page of the manual for each name of slapd's that the program answers to.
    fn place_names(&self, stage: &Stage) -> anyhow::Result<()> {
        let manual = self.root.join("target/package/manual");
        if manual.exists() {
            fs::remove_dir_all(&manual).with_context(|| format!("cannot remove {}", manual.display()))?;
        }
        self.write_manual(&manual)?;
        let folder = stage.with_folder("usr/sbin/slapd")?;
        let mut pages = Vec::new();
        for page in slapd_pages(&manual)? {
            let name = page.file_stem().and_then(|name| name.to_str()).context("a page without a name")?;
            let link = folder.with_file_name(name);
            std::os::unix::fs::symlink("../bin/larix", &link)
                .with_context(|| format!("cannot make {}", link.display()))?;
            let to = format!("usr/share/man/man8/{name}.8");
            stage.place(&page, &to, 0o644)?;
            pages.push(stage.tree.join(to));
        }
        compress(&pages)
    }
}

/// A script with the lines that all share.
fn whole(script: &str, common: &str) -> anyhow::Result<String> {
    if script.matches(COMMON).count() != 1 {
        bail!("a script of dist/debian/slapd has not one line {COMMON:?}");
    }
    Ok(script.replacen(COMMON, common, 1))
}

//! What later stages build, built while the tests run: those leave processors idle now and then.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// Builds that go on beside tests, one after the other, and give way to them. They end with this value at the latest. A stage that needs
/// what is not built yet waits for cargo's lock of the folder.
pub(crate) struct Ahead(Child);

impl Ahead {
    /// What fails here fails again in the stage that needs it, which reports it.
    pub(crate) fn begin(root: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new("nice");
        command
            .args(["-n", "19", "sh", "-c"])
            .arg(format!("cargo {}; sh fuzz/run.sh 0", crate::instructions::BUILD.join(" ")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        Ok(Self(crate::for_cargo(&mut command).current_dir(root).spawn().context("cannot start nice")?))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // All of its group: cargo has compilers of its own.
            let group = format!("-{}", self.0.id());
            let _ = Command::new("kill").args(["--", &group]).stderr(Stdio::null()).status();
            let _ = self.0.wait();
        }
    }
}

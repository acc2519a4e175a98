//! The directives of `overlay auditlog`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay};

use super::AuditLog;
use super::file::{AuditFile, Rotation};

/// As many names as a number of two digits has.
const KEEP_MAX: u8 = 99;
const MEGABYTES_MAX: u64 = 1 << 20;

pub(super) fn build(settings: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let words: Vec<&str> = settings.words("olcLarixAuditlogRotate").collect();
    let rotation = match words.as_slice() {
        [] => None,
        [keep, megabytes] => Some(rotation(keep, megabytes)?),
        other => return Err(not_a_rotation(&other.join(" "))),
    };
    let file = settings.text("olcAuditlogFile").map(|path| AuditFile {
        path: PathBuf::from(path),
        non_blocking: settings.is_on("olcAuditlogNonBlocking"),
        rotation,
    });
    let hides_passwords = match settings.text("olcLarixAuditlogPasswords") {
        None => false,
        Some(text) if text.eq_ignore_ascii_case("show") => false,
        Some(text) if text.eq_ignore_ascii_case("hide") => true,
        Some(text) => {
            return Err(SettingError::new(format!("auditlog-passwords \"{text}\": neither show nor hide")));
        }
    };
    Ok(Arc::new(AuditLog { file, hides_passwords, is_stuck: AtomicBool::new(false) }))
}

fn rotation(keep: &str, megabytes: &str) -> Result<Rotation, SettingError> {
    let kept = keep.parse().ok().filter(|keep| (1..=KEEP_MAX).contains(keep));
    let size = megabytes.parse().ok().filter(|size| (1..=MEGABYTES_MAX).contains(size));
    match kept.zip(size) {
        Some((keep, megabytes)) => Ok(Rotation { keep, bytes: megabytes << 20 }),
        None => Err(not_a_rotation(&format!("{keep} {megabytes}"))),
    }
}

fn not_a_rotation(text: &str) -> SettingError {
    SettingError::new(format!("auditlog-rotate \"{text}\": not a number of files and a size")).with_help(
        format!("write the files to keep, 1 to {KEEP_MAX}, and megabytes, as in `auditlog-rotate 10 100`"),
    )
}

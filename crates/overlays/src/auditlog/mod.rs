//! `overlay auditlog`: changes as LDIF in a file (slapo-auditlog(5)). They are read from the change log once they are durable, on a
//! thread of the overlay's own: no answer waits for the file, and none is missing while the disk is full.

mod config;
mod file;
mod text;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use larix_engine::overlay::committed::{Committed, CommittedBatch, NotTaken};
use larix_engine::overlay::{
    Descriptor, InGluedDatabases, InSharedEngine, Interests, Overlay, OverlayDirective,
};
use larix_schema::Schema;

use file::AuditFile;

pub static DESCRIPTOR: Descriptor = Descriptor::new("auditlog", "olcAuditlogConfig", config::build)
    .over_glue(InGluedDatabases::Refused("it follows the changes of one database"))
    .once()
    .in_shared_engine(InSharedEngine::OfEachServer)
    .directives(&[
        OverlayDirective::whole("auditlog", "olcAuditlogFile"),
        OverlayDirective::switch("auditlognonblocking", "olcAuditlogNonBlocking"),
        OverlayDirective::words("auditlog-rotate", "olcLarixAuditlogRotate").arguments(2, 2),
        OverlayDirective::whole("auditlog-passwords", "olcLarixAuditlogPasswords"),
    ]);

/// The overlay of one database.
#[derive(Debug)]
struct AuditLog {
    /// None: nothing is written.
    file: Option<AuditFile>,
    hides_passwords: bool,
    /// It was reported that the file cannot be put aside.
    is_stuck: AtomicBool,
}

impl Overlay for AuditLog {
    fn name(&self) -> &'static str {
        "auditlog"
    }

    fn interests(&self) -> Interests {
        if self.file.is_some() { Interests::COMMITTED } else { Interests::NONE }
    }

    fn notes(&self, _: &Schema) -> Vec<String> {
        let nothing = "overlay auditlog: nothing is written; name a file with `auditlog <file>`";
        if self.file.is_none() { vec![nothing.to_owned()] } else { Vec::new() }
    }

    fn committed(&self) -> Option<&dyn Committed> {
        Some(self)
    }
}

impl Committed for AuditLog {
    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut out = Vec::new();
        if let Some(gap) = batch.gap {
            text::missing(&mut out, gap);
        }
        for change in batch.changes {
            text::change(&mut out, change, batch, self.hides_passwords);
        }
        let trouble = file.append(&out)?;
        let was_stuck = self.is_stuck.swap(trouble.is_some(), Ordering::Relaxed);
        if let Some(trouble) = trouble.filter(|_| !was_stuck) {
            batch.report(trouble);
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), String> {
        self.file.as_ref().map_or(Ok(()), AuditFile::sync)
    }

    fn asks_origin(&self) -> bool {
        self.file.is_some()
    }
}

//! What the log says of work on indexes.

use larix_engine::write::{IndexNotice, IndexWatch};

use crate::log::Log;

/// Writes to the log what a database's writer does to its indexes.
#[derive(Debug)]
pub(super) struct IndexLog {
    pub(super) log: Log,
    /// The database's first suffix.
    pub(super) suffix: String,
}

impl IndexWatch for IndexLog {
    fn notice(&self, notice: IndexNotice) {
        let Self { log, suffix } = self;
        match notice {
            IndexNotice::Begun { indexes, entries, resumed } => {
                let verb = if resumed { "go on being built" } else { "are built" };
                log.notice(format_args!(
                    "indexes of \"{suffix}\" {verb} while it serves, {entries} entries: {indexes}"
                ));
            }
            IndexNotice::Progress { done, total, per_second, seconds_left } => {
                let left = seconds_left.map(|left| format!(", {left} s left")).unwrap_or_default();
                log.notice(format_args!(
                    "indexes of \"{suffix}\": {done} of {total} entries, {per_second}/s{left}"
                ));
            }
            IndexNotice::Complete { indexes, entries, seconds } => log.notice(format_args!(
                "indexes of \"{suffix}\" are complete and used, {entries} entries in {seconds} s: {indexes}"
            )),
            IndexNotice::Cleared { indexes } => {
                log.notice(format_args!("indexes of \"{suffix}\" that were dropped are gone: {indexes}"));
            }
            IndexNotice::BackLinks { attributes, entries, changed } => log.notice(format_args!(
                "{attributes} of \"{suffix}\": {changed} of {entries} entries did not say which entries name them"
            )),
            IndexNotice::Failed { message } => log.warning(format_args!(
                "indexes of \"{suffix}\" cannot be worked on, which is tried again every few seconds: {message}"
            )),
        }
    }
}

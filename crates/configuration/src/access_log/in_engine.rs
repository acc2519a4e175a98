//! The access log of a `database kv`: another one, in the same engine and of the same nodes. The node that writes the database writes the
//! log.

use larix_engine::audit::Operations;

use super::AccessLogSettings;
use crate::kinds::KvSettings;
use crate::model::{Config, Database};

/// What is wrong, and what to do about it.
type Fault = (String, &'static str);

impl Config {
    /// Why this database in an engine cannot have its log in that one.
    pub(super) fn fault_in_engine(
        &self,
        (database, settings): (&Database, &AccessLogSettings),
        log: &Database,
    ) -> Option<Fault> {
        let own = database.kind.settings::<KvSettings>()?;
        let of_log = log.kind.settings::<KvSettings>()?;
        self.fault_of_log((database, own), (log, of_log))
            .or_else(|| fault_of_operations(settings))
            .or_else(|| self.other_with_log(database, settings))
    }

    fn fault_of_log(
        &self,
        (database, own): (&Database, &KvSettings),
        (log, of_log): (&Database, &KvSettings),
    ) -> Option<Fault> {
        let fault =
            |why: String, help: &'static str| Some((format!("the database at {} {why}", log.origin), help));
        if own.engine != of_log.engine {
            let help = "give both the same line `engine`, and each an `engine-schema` of its own";
            return fault("is in another engine than the one that it records".to_owned(), help);
        }
        if own.node != of_log.node {
            let why = format!("has the node {}, and the one that it records {}", of_log.node, own.node);
            return fault(
                why,
                "give both the same line `node`: the node that writes the one writes the other",
            );
        }
        let ids = [database, log].map(|database| self.server_id_of(database));
        if ids[0] != ids[1] {
            let why = format!("has the server id {}, and the one that it records {}", ids[1], ids[0]);
            return fault(why, "give both the same `server-id`: the records have the CSNs of the changes");
        }
        if log.records_operations() {
            let help = "take `overlay accesslog` out of it";
            return fault("has an access log itself".to_owned(), help);
        }
        if !log.sync_replication.is_empty() {
            let help = "take `syncrepl` out of it: the records are made of the changes of the database";
            return fault("follows a provider".to_owned(), help);
        }
        None
    }

    /// Another database that has the same log: it may be written by another node.
    fn other_with_log(&self, database: &Database, settings: &AccessLogSettings) -> Option<Fault> {
        let has_it = |other: &&Database| {
            let is_other = !std::ptr::eq(*other, database) && !other.disabled;
            is_other && other.kind.is_in_shared_engine() && {
                let overlay = self.access_log_overlay(other).ok().flatten();
                let logs = overlay.and_then(|(overlay, _)| self.access_log_of(overlay).ok());
                logs.is_some_and(|logs| logs.database.normal == settings.database.normal)
            }
        };
        let other = self.databases.iter().find(has_it)?;
        let message =
            format!("the database at {} has the same log, and another node may write it", other.origin);
        Some((message, "give each its own: one more `database kv` in the same engine"))
    }
}

/// Operations that change nothing are carried out at any node, and each would know its own part alone.
fn fault_of_operations(settings: &AccessLogSettings) -> Option<Fault> {
    let is_of_changes = |operations: &Operations| operations.is_within(Operations::WRITES);
    let mut all = settings.bases.iter().map(|(operations, _)| operations).chain([&settings.operations]);
    if !all.all(is_of_changes) {
        return Some((
            "the access log of a kv database has changes alone: the others are carried out at any node, which does not write the log"
                .to_owned(),
            "let `logops` and `logbase` name `writes`, or some of add, delete, modify and modrdn; `loglevel stats` has the others",
        ));
    }
    if !settings.success_only {
        return Some((
            "the access log of a kv database has no operations that failed: each node refuses some, and one writes the log".to_owned(),
            "add `logsuccess TRUE`",
        ));
    }
    None
}

//! `overlay accesslog` and its directives.

#[cfg(feature = "kv")]
mod in_engine;

use larix_engine::audit::{Operation, Operations};
use larix_engine::database::OldValues;
use larix_proto::FilterBuf;
use larix_schema::NormalDn;

use super::diagnostic::ConfigError;
use super::line;
use super::model::{Config, Database, Overlay};
use super::values::ConfigDn;

/// What becomes of operations on a database that has the overlay.
#[derive(Clone, Debug)]
pub struct AccessLogSettings {
    /// `logdb`: the suffix of the database that takes the records.
    pub database: ConfigDn,
    /// `logops`
    pub operations: Operations,
    /// `logbase`: more operations at and below a name.
    pub bases: Vec<(Operations, NormalDn)>,
    /// `logsuccess`: nothing of operations that failed.
    pub success_only: bool,
    /// `logold`, `logoldattr`
    pub old: Option<OldValues>,
    /// `logpurge`
    pub purge: Option<Purge>,
}

/// When records go.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Seconds: older ones.
    pub age: u64,
    /// Seconds between two looks.
    pub interval: u64,
    /// Records removed in one commit (`logpurgebatch`).
    pub batch: usize,
}

/// Records removed in one commit where `logpurgebatch` says nothing.
const BATCH: usize = 1_000;
const BATCH_MAX: usize = 10_000;

impl AccessLogSettings {
    /// Whether to record an operation on this name.
    pub fn wants(&self, operation: Operation, dn: Option<&NormalDn>) -> bool {
        let at = |base: &NormalDn| dn.is_some_and(|dn| dn.is_within(base));
        self.operations.contains(operation)
            || self.bases.iter().any(|(operations, base)| operations.contains(operation) && at(base))
    }
}

impl Config {
    /// The access log of a database, if it has one, or of all.
    ///
    /// # Errors
    /// A directive that cannot be understood, a second overlay of the kind, or a log database that is not there.
    pub fn access_log(&self, database: &Database) -> Result<Option<AccessLogSettings>, ConfigError> {
        let Some((overlay, is_own)) = self.access_log_overlay(database)? else { return Ok(None) };
        if !database.kind.is_recorded() {
            if !is_own {
                return Ok(None);
            }
            let message = "operations on this kind of database cannot be recorded";
            return Err(ConfigError::new(overlay.origin.clone(), message)
                .with_help("put `overlay accesslog` into a `database mdb`, `ldif`, `kv` or `config`"));
        }
        if database.kind.is_in_shared_engine() && !is_own {
            // An overlay for all databases is refused beside one in an engine.
            return Ok(None);
        }
        let settings = self.access_log_of(overlay)?;
        let holds = |other: &&Database| {
            other.kind.holds_access_logs()
                && other.suffixes.iter().any(|suffix| suffix.normal == settings.database.normal)
        };
        let text = &settings.database.text;
        let fault = |message: String, help: &str| {
            Err(ConfigError::new(overlay.origin.clone(), message).with_help(help.to_owned()))
        };
        match self.databases.iter().find(holds) {
            None => fault(
                format!("logdb \"{text}\": no database has this suffix"),
                match database.kind.is_in_shared_engine() {
                    false => "add a `database mdb` with this suffix and a directory of its own",
                    true => {
                        "add a `database kv` with this suffix, the same `engine` and `node`, and an `engine-schema` of its own"
                    }
                },
            ),
            Some(log) if std::ptr::eq(log, database) && !is_own => Ok(None),
            Some(log) if std::ptr::eq(log, database) => {
                fault(format!("logdb \"{text}\": a database cannot log to itself"), "name another database")
            }
            Some(log) => match self.fault_of_place((database, &settings), log) {
                None => Ok(Some(settings)),
                Some((why, help)) => fault(format!("logdb \"{text}\": {why}"), help),
            },
        }
    }

    /// Why the records of a database cannot be kept in that one, and what to do about it.
    fn fault_of_place(
        &self,
        (database, settings): (&Database, &AccessLogSettings),
        log: &Database,
    ) -> Option<(String, &'static str)> {
        let place = &log.origin;
        match (database.kind.is_in_shared_engine(), log.kind.is_in_shared_engine()) {
            (false, false) => None,
            (true, false) => Some((
                format!(
                    "the database at {place} is on this machine, and each node would have a part of the log"
                ),
                "make it a `database kv` with the same `engine` and `node`, and an `engine-schema` of its own",
            )),
            (false, true) => Some((
                format!(
                    "the database at {place} is in an engine that several servers share, and this one is not"
                ),
                "name a `database mdb`: the log of each server is its own",
            )),
            #[cfg(feature = "kv")]
            (true, true) => self.fault_in_engine((database, settings), log),
            #[cfg(not(feature = "kv"))]
            (true, true) => {
                let _ = settings;
                None
            }
        }
    }

    /// The overlay that records a database, its own or else the frontend's, which is for all; whether it is its own.
    fn access_log_overlay<'c>(
        &'c self,
        database: &'c Database,
    ) -> Result<Option<(&'c Overlay, bool)>, ConfigError> {
        for (overlays, is_own) in [(&database.overlays, true), (&self.frontend.overlays, false)] {
            let is_it = |overlay: &&Overlay| {
                !overlay.disabled
                    && overlay.descriptor().is_some_and(|descriptor| descriptor.records_operations)
            };
            let mut overlays = overlays.iter().filter(is_it);
            let Some(overlay) = overlays.next() else { continue };
            if let Some(second) = overlays.next() {
                return Err(ConfigError::new(second.origin.clone(), "there is an access log here already")
                    .with_help("let one `overlay accesslog` record all that is wanted"));
            }
            return Ok(Some((overlay, is_own)));
        }
        Ok(None)
    }

    fn access_log_of(&self, overlay: &Overlay) -> Result<AccessLogSettings, ConfigError> {
        let fault = |message: String| overlay.fault(message);
        let values = |attribute: &str| -> Vec<Vec<String>> {
            let values = overlay.settings.get(attribute).iter();
            let words = |value: &Vec<u8>| {
                let text = String::from_utf8_lossy(value).into_owned();
                line::value_words(&text).into_iter().map(|word| word.text).collect()
            };
            values.map(words).collect()
        };
        let first = |attribute: &str| {
            overlay.settings.get(attribute).first().map(|v| String::from_utf8_lossy(v).into_owned())
        };
        let Some(suffix) = first("olcAccessLogDB") else {
            return Err(fault("an access log needs a database to be kept in".to_owned())
                .with_help("add `logdb <suffix>`, the suffix of another database"));
        };
        let database = ConfigDn::parse_relaxed(&self.schema, suffix.trim_matches('"'))
            .map_err(|error| fault(format!("logdb \"{suffix}\" is not a DN: {error}")))?;
        let mut operations = Operations::default();
        for word in values("olcAccessLogOps").iter().flatten() {
            let set: Operations = word.parse().map_err(|error| fault(format!("logops: {error}")))?;
            operations = operations.union(set);
        }
        let mut bases = Vec::new();
        for words in values("olcAccessLogBase") {
            let [set, base] = words.as_slice() else {
                return Err(fault("logbase takes operations and a DN".to_owned()));
            };
            let set = set.parse().map_err(|error| fault(format!("logbase: {error}")))?;
            let base = ConfigDn::parse_relaxed(&self.schema, base)
                .map_err(|error| fault(format!("logbase: \"{base}\" is not a DN: {error}")))?;
            bases.push((set, base.normal));
        }
        let batch = batch(first("olcAccessLogPurgeBatch").as_deref()).map_err(fault)?;
        let purge = values("olcAccessLogPurge").first().map(|words| purge(words, batch)).transpose();
        let purge = purge.map_err(fault)?;
        Ok(AccessLogSettings {
            database,
            operations,
            bases,
            success_only: first("olcAccessLogSuccess").is_some_and(|v| v.eq_ignore_ascii_case("TRUE")),
            old: self.old_values(first("olcAccessLogOld"), &values("olcAccessLogOldAttr")).map_err(fault)?,
            purge,
        })
    }

    fn old_values(&self, filter: Option<String>, names: &[Vec<String>]) -> Result<Option<OldValues>, String> {
        let mut attributes = Vec::new();
        // A name that the schema does not have yet is one that no entry has.
        let schema_comes = self.read_entries.is_some() && self.schema_sections.is_empty();
        for name in names.iter().flatten() {
            match self.schema.describe(name) {
                Ok(description) => attributes.push(description),
                Err(_) if schema_comes => {}
                Err(error) => return Err(format!("logoldattr {name}: {error}")),
            }
        }
        let Some(text) = filter else { return Ok(None) };
        let text = text.trim().trim_matches('"');
        let filter =
            FilterBuf::parse(text).map_err(|error| format!("logold `{text}` is not a filter: {error}"))?;
        Ok(Some(OldValues { filter: self.schema.bind_filter(filter.as_filter()), attributes }))
    }
}

fn batch(text: Option<&str>) -> Result<usize, String> {
    let Some(text) = text else { return Ok(BATCH) };
    match text.trim().parse() {
        // 0 is the same as none in OpenLDAP.
        Ok(0) => Ok(BATCH),
        Ok(number) => Ok(BATCH_MAX.min(number)),
        Err(_) => Err(format!("logpurgebatch `{text}` is not a number")),
    }
}

fn purge(words: &[String], batch: usize) -> Result<Purge, String> {
    let [age, interval] = words else {
        return Err("logpurge takes an age and an interval, such as `7+00:00 1+00:00`".to_owned());
    };
    Ok(Purge { age: duration(age)?, interval: duration(interval)?, batch })
}

/// Reads `[days+]hh:mm[:ss]`, in seconds.
fn duration(text: &str) -> Result<u64, String> {
    let parse = || {
        let (days, clock) = match text.split_once('+') {
            Some((days, clock)) => (days.parse::<u64>().ok().filter(|days| *days <= 25_000)?, clock),
            None => (0, text),
        };
        let mut seconds = 0;
        let parts: Vec<&str> = clock.split(':').collect();
        for (part, unit) in parts.iter().zip([3_600, 60, 1]) {
            if part.len() != 2 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            seconds += part.parse::<u64>().ok()? * unit;
        }
        (2..=3).contains(&parts.len()).then_some(days * 86_400 + seconds)
    };
    match parse() {
        Some(0) => Err(format!("logpurge `{text}`: must be longer than nothing")),
        Some(seconds) => Ok(seconds),
        None => Err(format!("logpurge `{text}` is not [days+]hh:mm[:ss]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_logpurge() {
        for (text, seconds) in [
            ("07:00", Some(25_200)),
            ("7+00:00", Some(604_800)),
            ("01+00:00:05", Some(86_405)),
            ("00:00:10", Some(10)),
            ("00:00", None),
            ("7", None),
            ("1:00", None),
            ("7+1", None),
            ("30000+00:00", None),
        ] {
            assert_eq!(duration(text).ok(), seconds, "{text}");
        }
    }

    #[test]
    fn a_batch_is_checked_without_a_purge() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slapd.conf");
        let log = "database mdb\nsuffix o=log\ndirectory /var/lib/log\n";
        let overlay = "overlay accesslog\nlogdb o=log\nlogpurgebatch many\n";
        let text = format!("schema core\n{log}database mdb\nsuffix o=x\ndirectory /var/lib/x\n{overlay}");
        std::fs::write(&path, text).unwrap();
        let error = Config::from_slapd_conf(&path).unwrap_err().to_string();
        assert!(error.contains("logpurgebatch `many` is not a number"), "{error}");
    }

    #[test]
    fn a_purge_has_an_age_and_an_interval() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let all = |age, interval, batch| Ok(Purge { age, interval, batch });
        assert_eq!(purge(&words("1+00:00 00:10"), BATCH), all(86_400, 600, BATCH));
        assert_eq!(purge(&words("00:01 00:02"), 7), all(60, 120, 7));
        assert!(purge(&words("00:01"), BATCH).is_err());
        let batches = [None, Some("0"), Some("7"), Some("20000"), Some("many")];
        assert_eq!(
            batches.map(|text| batch(text).ok()),
            [Some(BATCH), Some(BATCH), Some(7), Some(BATCH_MAX), None]
        );
    }
}

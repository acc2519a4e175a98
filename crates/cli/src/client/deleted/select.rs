//! Which deleted entries a command is about, and the search for their records.

use std::collections::HashSet;

use clap::Args;
use larix_client::{ClientError, Session};
use larix_engine::time::{Clock as _, Timestamp};
use larix_proto::filter::escaped;
use larix_proto::{Dn, FilterBuf, ResultCode, Scope};
use larix_server::clock::SystemClock;
use uuid::Uuid;

use super::super::options::CommonArgs;
use super::super::replica::entries::{self, EntryQuery, Kind};
use super::record::{ATTRIBUTES, Deleted};

#[derive(Args, Debug)]
pub(super) struct Selection {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// The access log: the suffix of its database [what the server's databases name as their auditContext]
    #[arg(short = 'b', value_name = "DN")]
    log: Option<String>,
    /// Entries that were at or below this name
    #[arg(long, value_name = "DN")]
    pub(super) below: Option<String>,
    /// Deleted since then: 30m, 2h or 7d ago, or a time such as 20261126023207Z
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<String>,
    /// Deleted until then
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Deleted by this identity
    #[arg(long, value_name = "DN")]
    by: Option<String>,
    /// Entries: DNs, entryUUIDs, or values of reqStart as `larix deleted list` shows them
    #[arg(value_name = "ENTRY")]
    pub(super) entries: Vec<String>,
}

/// Why a record may be missing, and where the entry may still be.
const NO_RECORD: &str = "it came before the log, `logpurge` has taken it away, or you may not read it. `larix deleted list` shows \
                         what there is for you; a backup may have the entry (`larix restore --to-time`)";

impl Selection {
    /// The deletes that match, of each log in their order.
    pub(super) fn find(&self, session: &mut Session) -> Result<Vec<Deleted>, ClientError> {
        let entry_terms =
            self.entries.iter().map(|entry| entry_terms(entry)).collect::<Result<Vec<_>, _>>()?;
        let entry_terms =
            if entry_terms.is_empty() { String::new() } else { format!("(|{})", entry_terms.concat()) };
        self.search(session, &entry_terms)
    }

    /// The deletes that also match this part of a filter.
    fn search(&self, session: &mut Session, entry_terms: &str) -> Result<Vec<Deleted>, ClientError> {
        let filter = parsed(&self.filter(SystemClock.now(), entry_terms)?)?;
        let mut found = Vec::new();
        for log in self.logs(session)? {
            let query = EntryQuery {
                base: &log,
                scope: Scope::OneLevel,
                filter: &filter,
                attributes: &ATTRIBUTES,
                kind: Kind::Entries,
            };
            let searched = entries::each(session, &query, &mut |_, attributes| {
                found.push(Deleted::of(attributes));
            });
            searched.map_err(|error| unseen(error, &log))?;
        }
        found.sort_by(|one, other| one.start.cmp(&other.start));
        Ok(found)
    }

    /// The same of what was asked for: of each entry the last delete. Each of [`Self::entries`] must be found.
    pub(super) fn find_wanted(&self, session: &mut Session) -> Result<Vec<Deleted>, ClientError> {
        if self.entries.is_empty() && self.below.is_none() {
            return Err(ClientError::Usage(
                "name entries, or all below one with --below DN; `larix deleted list` shows what there is"
                    .to_owned(),
            ));
        }
        let mut found = Vec::new();
        for entry in &self.entries {
            let of_entry = self.search(session, &entry_terms(entry)?)?;
            if of_entry.is_empty() {
                return Err(ClientError::Usage(format!(
                    "no record of a delete of {entry} is in the access log: {NO_RECORD}"
                )));
            }
            found.extend(latest(of_entry));
        }
        if self.entries.is_empty() {
            found = self.search(session, "")?;
        }
        if found.is_empty() {
            return Err(ClientError::Usage(format!(
                "the access log has no record of such a delete: {NO_RECORD}"
            )));
        }
        found.sort_by(|one, other| one.start.cmp(&other.start));
        Ok(latest(found))
    }

    pub(super) fn filter(&self, now: Timestamp, entry_terms: &str) -> Result<String, ClientError> {
        let mut terms = "(objectClass=auditDelete)(reqResult=0)".to_owned();
        for (flag, given) in [("since", &self.since), ("until", &self.until)] {
            let Some(given) = given else { continue };
            let time = moment(given, now).ok_or_else(|| {
                ClientError::Usage(format!(
                    "--{flag} {given}: not a time; write how long ago (30m, 2h, 7d) or 20261126023207Z"
                ))
            })?;
            terms += &if flag == "since" { not_before(time) } else { until(time) };
        }
        if let Some(by) = &self.by {
            terms += &format!("(reqAuthzID={})", escaped(named("--by", by)?));
        }
        if let Some(below) = &self.below {
            terms += &format!("(reqDN:dnSubtreeMatch:={})", escaped(named("--below", below)?));
        }
        Ok(format!("(&{terms}{entry_terms})"))
    }

    /// `-b`, or what the suffix entries name.
    fn logs(&self, session: &mut Session) -> Result<Vec<String>, ClientError> {
        if let Some(log) = &self.log {
            return Ok(vec![named("-b", log)?.to_owned()]);
        }
        let mut logs: Vec<String> = Vec::new();
        for suffix in values_of(session, "", "namingContexts")? {
            // Not every suffix has an entry that the client may see.
            let named = values_of(session, &suffix, "auditContext").unwrap_or_default();
            let new = |log: &String| !logs.iter().any(|known| known.eq_ignore_ascii_case(log));
            let named: Vec<String> = named.into_iter().filter(new).collect();
            logs.extend(named);
        }
        if logs.is_empty() {
            return Err(ClientError::Usage(
                "the server names no access log to you (auditContext of its suffixes): bind as somebody who may read it (-D DN -W), \
                 or name the suffix of its database with -b. Without `overlay accesslog` and `logold` no deleted entry is kept"
                    .to_owned(),
            ));
        }
        Ok(logs)
    }
}

/// The values of one attribute of one entry.
pub(super) fn values_of(
    session: &mut Session,
    base: &str,
    attribute: &str,
) -> Result<Vec<String>, ClientError> {
    let filter = parsed("(objectClass=*)")?;
    let query = EntryQuery {
        base,
        scope: Scope::Base,
        filter: &filter,
        attributes: &[attribute],
        kind: Kind::Entries,
    };
    let mut values = Vec::new();
    entries::each(session, &query, &mut |_, attributes| {
        for attribute in attributes.iter() {
            values.extend(attribute.values.iter().map(|value| String::from_utf8_lossy(value).into_owned()));
        }
    })?;
    Ok(values)
}

pub(super) fn parsed(filter: &str) -> Result<FilterBuf, ClientError> {
    FilterBuf::parse(filter).map_err(|error| ClientError::Usage(format!("filter `{filter}`: {error}")))
}

/// A DN as it was given, for a flag.
fn named<'a>(flag: &str, text: &'a str) -> Result<&'a str, ClientError> {
    match Dn::parse(text) {
        Ok(_) => Ok(text),
        Err(error) => Err(ClientError::Usage(format!("{flag} {text}: {error}"))),
    }
}

fn not_before(time: Timestamp) -> String {
    format!("(reqStart>={})", time.generalized_micros())
}

/// Neither `<=` nor `=`: slapd compares its records' times as they are written with the normal form of an asserted one, which has no
/// zeros at the end, and takes 5.10 for more than 5.1.
fn until(time: Timestamp) -> String {
    format!("(!{})", not_before(Timestamp(time.0.saturating_add(1))))
}

/// The term for one of the arguments.
fn entry_terms(entry: &str) -> Result<String, ClientError> {
    let value = escaped(entry);
    if Uuid::try_parse(entry).is_ok() {
        return Ok(format!("(reqEntryUUID={value})"));
    }
    if let Some(time) = Timestamp::parse_generalized(entry) {
        return Ok(format!("(&{}{})", not_before(time), until(time)));
    }
    match Dn::parse(entry) {
        Ok(dn) if !dn.is_empty() => Ok(format!("(reqDN={value})")),
        _ => Err(ClientError::Usage(format!(
            "{entry}: neither a DN, nor an entryUUID, nor a reqStart as `larix deleted list` shows it"
        ))),
    }
}

/// A name for comparisons: without regard to case and to how it is written.
pub(super) fn folded(name: &str) -> Vec<Vec<(String, Vec<u8>)>> {
    let Ok(dn) = Dn::parse(name) else { return vec![vec![(String::new(), name.as_bytes().to_vec())]] };
    let rdn = |rdn: &larix_proto::Rdn<'_>| {
        let ava = |ava: &larix_proto::RdnAva<'_>| {
            let value = String::from_utf8_lossy(&ava.value).to_lowercase().into_bytes();
            (ava.attribute.to_ascii_lowercase(), value)
        };
        let mut avas: Vec<_> = rdn.avas().iter().map(ava).collect();
        avas.sort();
        avas
    };
    dn.rdns().iter().map(rdn).collect()
}

/// Of each entry, and of each name, the last delete; in the order of time.
pub(super) fn latest(found: Vec<Deleted>) -> Vec<Deleted> {
    let (mut uuids, mut names) = (HashSet::new(), HashSet::new());
    let mut newest: Vec<Deleted> = Vec::new();
    for deleted in found.into_iter().rev() {
        let new_uuid = deleted.uuid.as_ref().is_none_or(|uuid| uuids.insert(uuid.to_ascii_lowercase()));
        if names.insert(folded(&deleted.dn)) && new_uuid {
            newest.push(deleted);
        }
    }
    newest.reverse();
    newest
}

/// A time, or how long ago.
pub(super) fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Some(time) = Timestamp::parse_generalized(text) {
        return Some(time);
    }
    let (number, factor) = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    let number: i64 = number.parse::<u32>().ok()?.into();
    Some(Timestamp::from_seconds(now.seconds().saturating_sub(number.saturating_mul(factor))))
}

/// Says what a log that is not there may mean.
fn unseen(error: ClientError, log: &str) -> ClientError {
    let ClientError::Refused { result, .. } = &error else { return error };
    if result.code != ResultCode::NO_SUCH_OBJECT {
        return error;
    }
    let advice = format!(
        "{log} is not there, or you may not see it: bind as its rootdn, or as somebody whom the access rules of that database let read"
    );
    ClientError::Advised { error: Box::new(error), advice }
}

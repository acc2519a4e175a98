//! The cache in a file, from one run of the server to the next (`pcachePersist`). Passwords are not in it.
//!
//! Times are those of the day in it, and what a setting says that has changed since is not read back: the answers may be others then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larix_engine::time::{Clock, Monotonic};
use larix_proto::ber::{Reader, Tag, write};
use larix_proto::{DecodeError, DerefAliases, Filter, Response, Scope, limits};
use larix_schema::{NormalDn, Schema};
use sha2::{Digest, Sha256};

use super::containment::Region;
use super::store::{Answer, Asker, CachedEntry, Query, Times};
use super::{Cache, Settings};
use crate::job::Owner;
use crate::settings::ProxySettings;

/// What the file begins with; another form has another one.
const FORM: &str = "larix pcache 1";
const ANONYMOUS: i64 = 0;
const ASSERTION: i64 = 1;
const ROOT: i64 = 2;
const USER: i64 = 3;
const SCOPES: [Scope; 4] = [Scope::Base, Scope::OneLevel, Scope::Subtree, Scope::Children];
const DEREF: [DerefAliases; 4] =
    [DerefAliases::Never, DerefAliases::InSearching, DerefAliases::FindingBase, DerefAliases::Always];

/// Why a file is not read back.
#[derive(Debug, PartialEq, Eq)]
pub enum NotRestored {
    /// The remote server, an identity, a template or an attribute set is another one, or the file is another version's.
    Changed,
    Damaged(String),
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("the settings are others than those that it was kept with"),
            Self::Damaged(why) => write!(f, "it is damaged: {why}"),
        }
    }
}

impl From<DecodeError> for NotRestored {
    fn from(error: DecodeError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// What has to be the same for an answer to stay right.
fn fingerprint(settings: &Settings, proxy: &ProxySettings) -> Vec<u8> {
    let templates: Vec<_> = settings.templates.iter().map(|one| (&one.shape, one.set)).collect();
    let text = format!("{:?} {:?} {templates:?} {proxy:?}", settings.shared, settings.sets);
    Sha256::digest(text.as_bytes()).to_vec()
}

impl Cache {
    /// All that is known, as bytes for a file.
    pub fn saved(&self, settings: &Settings, proxy: &ProxySettings, clock: &dyn Clock) -> Vec<u8> {
        let (now, today) = (clock.monotonic(), clock.now().0);
        let at = |moment: Monotonic| {
            let ahead = i64::try_from(moment.0.saturating_sub(now.0) / 1000).unwrap_or(i64::MAX);
            today.saturating_add(ahead)
        };
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            write::string(out, FORM);
            write::octets(out, Tag::OCTET_STRING, &fingerprint(settings, proxy));
            write::constructed(out, Tag::SEQUENCE, |out| {
                for cached in self.all() {
                    let refresh = cached.refresh.map_or(i64::MAX, at);
                    write::constructed(out, Tag::SEQUENCE, |out| {
                        write_query(out, &cached.query);
                        write::integer(out, Tag::INTEGER, at(cached.expires));
                        write::integer(out, Tag::INTEGER, refresh);
                        if let Answer::Entries(entries) = &cached.answer {
                            write::constructed(out, Tag::SEQUENCE, |out| {
                                for entry in entries.iter() {
                                    write::octets(out, Tag::OCTET_STRING, &entry.message);
                                }
                            });
                        }
                    });
                }
            });
        });
        out
    }

    /// Takes back what was saved, but for what has expired; how many queries.
    ///
    /// # Errors
    /// Nothing of it is taken back.
    pub fn restore(
        &self,
        bytes: &[u8],
        schema: &Schema,
        (settings, proxy): (&Settings, &ProxySettings),
        clock: &dyn Clock,
    ) -> Result<usize, NotRestored> {
        let mut file = Reader::new(bytes).sequence("file")?;
        if file.string("form")? != FORM
            || file.octets("fingerprint")? != fingerprint(settings, proxy).as_slice()
        {
            return Err(NotRestored::Changed);
        }
        let mut queries = file.sequence("queries")?;
        let mut read = Vec::new();
        while queries.peek().is_some() {
            read.push(read_query(&mut queries.sequence("query")?, schema, settings)?);
        }
        let (now, today) = (clock.monotonic(), clock.now().0);
        let remaining = |moment: i64| {
            let micros = u64::try_from(moment.saturating_sub(today)).unwrap_or(0);
            Duration::from_micros(micros)
        };
        let mut count = 0;
        for (query, answer, expires, refresh) in read {
            let Some(template) = settings.templates.get(query.template) else { continue };
            let ttl = remaining(expires).min(template.ttl.max(template.negative_ttl).max(template.limit_ttl));
            if ttl.is_zero() {
                continue;
            }
            let refresh = template.refresh.map(|most| remaining(refresh).min(most));
            let changes = self.changes();
            count +=
                usize::from(self.insert(query, answer, Times { ttl, refresh }, (settings, now, changes)));
        }
        Ok(count)
    }
}

fn write_query(out: &mut Vec<u8>, query: &Query) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        if let Some((owner, acting)) = &query.asker {
            let (kind, name) = match owner {
                Owner::Anonymous | Owner::Spare | Owner::Check(_) => (ANONYMOUS, ""),
                Owner::Assertion => (ASSERTION, ""),
                Owner::Root => (ROOT, ""),
                Owner::User(dn) => (USER, dn.as_str()),
            };
            write::integer(out, Tag::INTEGER, kind);
            write::string(out, name);
            write::octets(out, Tag::OCTET_STRING, acting.as_deref().unwrap_or_default().as_bytes());
            write::boolean(out, Tag::BOOLEAN, acting.is_some());
        }
    });
    let place = |found: Option<usize>| found.and_then(|at| i64::try_from(at).ok()).unwrap_or(0);
    write::integer(out, Tag::INTEGER, i64::try_from(query.template).unwrap_or(i64::MAX));
    write::string(out, query.region.base.as_str());
    write::integer(out, Tag::INTEGER, place(SCOPES.iter().position(|one| *one == query.region.scope)));
    write::integer(out, Tag::INTEGER, place(DEREF.iter().position(|one| *one == query.region.deref)));
    write::octets(out, Tag::OCTET_STRING, query.sent.as_ber());
    write::constructed(out, Tag::SEQUENCE, |out| {
        query.unknown.iter().for_each(|name| write::string(out, name));
    });
}

fn read_query(
    reader: &mut Reader<'_>,
    schema: &Schema,
    settings: &Settings,
) -> Result<(Query, Answer, i64, i64), NotRestored> {
    let damaged = |what: &str| NotRestored::Damaged(what.to_owned());
    let asker = read_asker(&mut reader.sequence("asker")?)?;
    if asker.is_none() != settings.shared {
        return Err(damaged("an answer for nobody"));
    }
    let template = usize::try_from(reader.integer("template")?).map_err(|_| damaged("a template"))?;
    let base = reader.string("base")?;
    let base = schema.parse_dn(base).map_err(|error| NotRestored::Damaged(error.to_string()))?;
    let place = |number: i64| usize::try_from(number).ok();
    let scope = place(reader.integer("scope")?).and_then(|at| SCOPES.get(at)).copied();
    let deref = place(reader.integer("deref")?).and_then(|at| DEREF.get(at)).copied();
    let (Some(scope), Some(deref)) = (scope, deref) else { return Err(damaged("a scope")) };
    let sent = Filter::decode(reader.octets("filter")?, limits::FILTER_DEPTH)?.to_owned();
    let mut names = reader.sequence("names")?;
    let mut unknown = Vec::new();
    while names.peek().is_some() {
        unknown.push(names.string("name")?.to_owned());
    }
    let (expires, refresh) = (reader.integer("expires")?, reader.integer("refresh")?);
    let answer = match reader.peek() {
        None => Answer::TooMany,
        Some(_) => {
            let mut messages = reader.sequence("entries")?;
            let mut entries = Vec::new();
            while messages.peek().is_some() {
                let message = messages.octets("entry")?;
                let decoded = Response::decode_message(message)?;
                let Response::Entry(found) = decoded.response else { return Err(damaged("no entry")) };
                let dn =
                    schema.parse_dn(found.dn).map_err(|error| NotRestored::Damaged(error.to_string()))?;
                entries.push(CachedEntry { dn, message: message.into() });
            }
            Answer::Entries(entries.into())
        }
    };
    let filter = schema.bind_filter(sent.as_filter());
    let region = Region { base, scope, deref };
    Ok((
        Query { asker, template, region, filter, sent: Arc::new(sent), unknown, again: None },
        answer,
        expires,
        refresh,
    ))
}

fn read_asker(reader: &mut Reader<'_>) -> Result<Asker, NotRestored> {
    if reader.peek().is_none() {
        return Ok(None);
    }
    let (kind, name) = (reader.integer("kind")?, reader.string("name")?);
    let acting = reader.string("acting")?.to_owned();
    let acting = reader.boolean("acts")?.then_some(acting);
    let owner = match kind {
        ANONYMOUS => Owner::Anonymous,
        ASSERTION => Owner::Assertion,
        ROOT => Owner::Root,
        USER => Owner::User(NormalDn::from_normal(name)),
        _ => return Err(NotRestored::Damaged("an identity".to_owned())),
    };
    Ok(Some((owner, acting)))
}

//! A consumer of an Active Directory (`type=dirsync`): passes from a cookie to the present, one after each interval.
//!
//! **The cookie is stored behind all that it stands for**: what is lost between the two is sent again, and changes nothing then.

use std::collections::HashMap;
use std::sync::Arc;

use larix_client::{ClientError, Session as ClientSession};
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch};
use larix_engine::replica::{ReplicatedChange, UuidSet};
use larix_engine::search::internal;
use larix_engine::time::RandomSource as _;
use larix_engine::write::AttributeValues;
use larix_engine::{Entry, EntryAttribute, Fault, ServedDatabase};
use larix_proto::{FilterBuf, LdapResult, ResultCode, Scope};
use larix_replication::consumer::{BATCH_CHANGES, ConsumerPhase, Massage};
use larix_replication::dirsync::{
    Event, GUID, Known, LeftOut, Merge, Received, Session, set_cookie, suffix_entry,
};
use larix_schema::{BoundFilter, NormalDn, Schema};
use larix_store::Store as _;
use larix_store::lmdb::LmdbStore;
use uuid::Uuid;

use super::batches::Manner;
use super::{Runner, SessionEnd};
use crate::clock::SystemRandom;
use crate::log::LogLevel;
use crate::replication::connect::connect;

/// Places that one line of the log names.
const NAMED_MAX: usize = 5;

/// What one pass has come to.
struct Pass {
    served: Arc<ServedDatabase<LmdbStore>>,
    schema: Arc<Schema>,
    massage: Option<Massage>,
    /// Everything was asked for.
    full: bool,
    /// What was named, of a pass that is to say what is gone.
    present: Option<UuidSet>,
    /// To be stored.
    changes: Vec<ReplicatedChange>,
    /// How entries will be when that is stored.
    pending: HashMap<Uuid, Known>,
    /// Changes of entries that are not here, by the names of these.
    in_part: Vec<String>,
    left: LeftOut,
}

impl Runner {
    /// One pass.
    pub(super) fn follow_directory(&mut self, full: bool) -> Result<SessionEnd, String> {
        let shown = |error: ClientError| error.to_string();
        let stored = self.task.database.as_ref().and_then(|database| database.stored().cloned());
        let served = stored.ok_or("type=dirsync is for a database of kind mdb")?;
        let (mut connection, note) = connect(&self.task.line, &self.task.tls, &self.stop).map_err(shown)?;
        note.iter().for_each(|note| self.tell(note));
        // It may answer nothing else while it puts a page together, however long that takes.
        connection.set_patience(None).map_err(shown)?;
        let schema = self.schema();
        let local_entries = LocalEntries { served: &served, schema: &schema };
        let cookie = if full { Vec::new() } else { self.cookie(&local_entries)? };
        let is_full = cookie.is_empty();
        let had_content = is_full && local_entries.has_entries()?;
        let mut pass = Pass {
            massage: self.task.massage(Arc::clone(&schema)),
            full: is_full,
            present: had_content.then(UuidSet::new),
            changes: Vec::new(),
            pending: HashMap::new(),
            in_part: Vec::new(),
            left: LeftOut::default(),
            served: Arc::clone(&served),
            schema: Arc::clone(&schema),
        };
        let sent = format!("{} bytes", cookie.len());
        self.tell(&format!("starting DirSync at {} (sending a cookie of {sent})", self.task.provider()));
        let local = connection.connection.local_address();
        self.status.change(|status| {
            (status.phase, status.local, status.cookie_sent) = (ConsumerPhase::Refreshing, local, Some(sent));
        });
        let mut session = Session::new(self.task.line(), cookie);
        loop {
            connection.send(|out, id, _| session.request(out, id)).map_err(shown)?;
            let (cookie, more) = match self.page(&mut connection, &mut session, &mut pass)? {
                Ok(page) => page,
                Err(refused) => return self.directory_refused(&refused, is_full),
            };
            if cookie.is_empty() {
                return Err(format!(
                    "{} answers without a DirSync control: is it an Active Directory?",
                    self.task.provider()
                ));
            }
            self.read_entries(&mut connection, &mut session, &mut pass)?;
            if !more {
                self.delete_gone(&mut pass)?;
            }
            self.store(&mut pass)?;
            // A pass that is to say what is gone begins anew if it does not come to its end.
            if !more || pass.present.is_none() {
                self.store_cookie(&mut pass, &cookie)?;
            }
            if !more {
                break;
            }
        }
        self.tell_left_out(&pass.left);
        self.refreshed();
        Ok(SessionEnd::Poll)
    }

    /// Takes the answers to one search; then what it ended with.
    fn page(
        &mut self,
        connection: &mut ClientSession,
        session: &mut Session,
        pass: &mut Pass,
    ) -> Result<Result<(Vec<u8>, bool), LdapResult>, String> {
        loop {
            let message = connection.connection.receive().map_err(|error| error.to_string())?;
            let event = session.receive(&message)?;
            let now = self.server.now();
            self.status.change(|status| status.heard(now));
            match event {
                None => {}
                Some(Event::Refused(result)) => return Ok(Err(result)),
                Some(Event::Page { cookie, more }) => return Ok(Ok((cookie, more))),
                Some(Event::Entry(received)) => self.changed(pass, received)?,
                Some(Event::Gone(uuid)) => pass.gone(uuid)?,
            }
            if pass.changes.len() >= BATCH_CHANGES {
                self.store(pass)?;
            }
        }
    }

    /// Reads what came in part and is not here: a filter takes an entry that it did not take before.
    fn read_entries(
        &mut self,
        connection: &mut ClientSession,
        session: &mut Session,
        pass: &mut Pass,
    ) -> Result<(), String> {
        for dn in std::mem::take(&mut pass.in_part) {
            connection.send(|out, id, _| session.read(out, id, &dn)).map_err(|error| error.to_string())?;
            match self.page(connection, session, pass)? {
                // It has gone meanwhile, or is none of ours: the next pass says so.
                Err(result) if result.code != ResultCode::NO_SUCH_OBJECT => {
                    return Err(format!("entry \"{dn}\" could not be read: {result}"));
                }
                _ => {}
            }
        }
        pass.in_part.clear();
        Ok(())
    }

    fn changed(&self, pass: &mut Pass, received: Received) -> Result<(), String> {
        let now = self.server.now().generalized();
        let schema = Arc::clone(&pass.schema);
        let merge = Merge {
            schema: &schema,
            massage: pass.massage.as_ref(),
            except: &self.task.line.except_attributes,
            base: &self.task.line.base.normal,
            now: &now,
        };
        let Some(dn) = merge.dn(&received.dn)? else { return Ok(()) };
        let found = pass.find(received.uuid)?;
        // An entry of the suffix that was here before becomes that of the other directory.
        let found = match found {
            None => pass.suffix_at(&dn)?,
            found => found,
        };
        let uuid = found.as_ref().map_or(received.uuid, |local| local.uuid);
        if let Some(present) = &mut pass.present {
            present.insert(uuid);
        }
        if found.is_none() && !received.is_whole() {
            pass.in_part.push(received.dn);
            return Ok(());
        }
        let local = found.map(|local| local.entry);
        if let Some(entry) = merge.merged(local.as_ref(), &dn, received, &mut pass.left)? {
            pass.put(Known { uuid, entry });
        }
        Ok(())
    }

    /// Deletes what a pass over everything did not name.
    fn delete_gone(&mut self, pass: &mut Pass) -> Result<(), String> {
        let Some(mut present) = pass.present.take() else { return Ok(()) };
        present.settle();
        let local_entries = LocalEntries { served: &pass.served, schema: &pass.schema };
        let (mut entries, mut absent) = (0_u64, Vec::new());
        local_entries.search(&format!("({GUID}=*)"), &mut |local| {
            entries += 1;
            if !present.contains(&local.uuid) {
                absent.push(local.uuid);
            }
            true
        })?;
        let (_, limit) = self.task.line().share(&[]);
        let count = absent.len() as u64;
        if limit.is_exceeded(count, entries) {
            return Err(format!(
                "{} has {count} of our {entries} entries no longer: nothing was deleted, as that is more than \
                 maxdelete={}% allows. If it is right, let maxdelete=100 stand in the syncrepl line once",
                self.task.provider(),
                self.task.line.delete_percent
            ));
        }
        if count > 0 {
            self.tell(&format!("deleting {count} entries that the other directory does not have"));
        }
        for chunk in absent.chunks(BATCH_CHANGES) {
            let deletes = chunk.iter().map(|uuid| ReplicatedChange::Delete { entry_uuid: *uuid, csn: None });
            pass.changes.extend(deletes);
            self.store(pass)?;
        }
        self.status.change(|status| status.counts.absent += count);
        Ok(())
    }

    /// Stores what has come.
    fn store(&mut self, pass: &mut Pass) -> Result<(), String> {
        let changes = std::mem::take(&mut pass.changes);
        pass.pending.clear();
        if changes.is_empty() {
            return Ok(());
        }
        let manner =
            Manner { refreshing: true, full: pass.full, by_content: false, provider: None, elsewhere: false };
        self.apply(changes, Vec::new(), manner)?;
        self.settle()
    }

    /// Where the next pass begins.
    fn cookie(&self, local_entries: &LocalEntries<'_>) -> Result<Vec<u8>, String> {
        let local = local_entries.suffix(&self.task.suffix)?;
        let Ok(description) = local_entries.schema.describe(larix_replication::dirsync::COOKIE) else {
            return Ok(Vec::new());
        };
        let attribute = local.as_ref().and_then(|local| local.entry.attribute(&description));
        Ok(attribute.and_then(|attribute| attribute.values.first().cloned()).unwrap_or_default())
    }

    fn store_cookie(&mut self, pass: &mut Pass, cookie: &[u8]) -> Result<(), String> {
        let local_entries = LocalEntries { served: &pass.served, schema: &pass.schema };
        let local = match local_entries.suffix(&self.task.suffix)? {
            Some(local) => local,
            None => {
                let entry = suffix_entry(&pass.schema, &self.task.suffix).ok_or_else(|| {
                    format!(
                        "there is no entry \"{}\" to keep the cookie of DirSync, and none was sent: add it with slapadd",
                        self.task.suffix
                    )
                })?;
                let mut bytes = [0; 16];
                SystemRandom.fill(&mut bytes);
                Known { uuid: uuid::Builder::from_random_bytes(bytes).into_uuid(), entry }
            }
        };
        let mut updated = local.clone();
        set_cookie(&pass.schema, &mut updated.entry, cookie);
        if updated.entry.attributes.len() == local.entry.attributes.len()
            && updated
                .entry
                .attributes
                .iter()
                .zip(&local.entry.attributes)
                .all(|(new, old)| new.values == old.values)
        {
            return Ok(());
        }
        pass.put(updated);
        self.store(pass)?;
        self.status.change(|status| status.cookie_received = Some(format!("{} bytes", cookie.len())));
        Ok(())
    }

    /// A cookie that is not taken is forgotten: everything is asked for, and what is here and was not named goes.
    fn directory_refused(&self, result: &LdapResult, is_full: bool) -> Result<SessionEnd, String> {
        let of_cookie = [
            ResultCode::PROTOCOL_ERROR,
            ResultCode::UNAVAILABLE_CRITICAL_EXTENSION,
            ResultCode::UNWILLING_TO_PERFORM,
        ];
        let provider = self.task.provider();
        if !is_full && of_cookie.contains(&result.code) {
            self.tell(&format!("{provider} does not take our cookie: {result}"));
            return Ok(SessionEnd::FullRefresh);
        }
        let mend = match result.code {
            ResultCode::INSUFFICIENT_ACCESS_RIGHTS => {
                "; searchbase= has to be the domain itself, and the bind DN needs the right Replicating Directory Changes there"
            }
            ResultCode::UNAVAILABLE_CRITICAL_EXTENSION => "; is it an Active Directory?",
            _ => "",
        };
        Err(format!("{provider} refuses DirSync: {result}{mend}"))
    }

    /// Says what of the other directory is not kept.
    fn tell_left_out(&self, left: &LeftOut) {
        let rid = self.task.line.rid;
        let list = |names: &mut dyn ExactSizeIterator<Item = &String>| {
            let more = names.len().saturating_sub(NAMED_MAX);
            let named: Vec<&str> = names.take(NAMED_MAX).map(String::as_str).collect();
            match more {
                0 => named.join(", "),
                more => format!("{} and {more} more", named.join(", ")),
            }
        };
        if !left.unknown.is_empty() {
            let names: Vec<&str> = left.unknown.iter().map(String::as_str).collect();
            let line = format_args!(
                "syncrepl rid={rid:03}: not in the schema here, and left out: {}",
                names.join(", ")
            );
            self.server.log.line(LogLevel::SYNC, line);
        }
        if !left.invalid.is_empty() {
            self.server.log.warning(format_args!(
                "syncrepl rid={rid:03}: values against their syntax were left out: {}",
                list(&mut left.invalid.iter())
            ));
        }
    }
}

impl Pass {
    fn find(&self, uuid: Uuid) -> Result<Option<Known>, String> {
        if let Some(local) = self.pending.get(&uuid) {
            return Ok(Some(local.clone()));
        }
        LocalEntries { served: &self.served, schema: &self.schema }.find(uuid)
    }

    /// The entry of a suffix, if that is what is named.
    fn suffix_at(&self, dn: &str) -> Result<Option<Known>, String> {
        let settings = self.served.database().current_settings();
        let normal = self.schema.parse_dn(dn).map_err(|error| format!("\"{dn}\": {error}"))?;
        match settings.suffixes.iter().any(|suffix| suffix.normal == normal) {
            true => LocalEntries { served: &self.served, schema: &self.schema }.suffix(dn),
            false => Ok(None),
        }
    }

    fn put(&mut self, local: Known) {
        let attributes = local.entry.attributes.iter().map(|attribute| AttributeValues {
            description: attribute.description.to_text(&self.schema),
            values: attribute.values.clone(),
        });
        self.changes.push(ReplicatedChange::Put {
            entry_uuid: local.uuid,
            dn: local.entry.dn.clone(),
            attributes: attributes.collect(),
            state: None,
            place: None,
        });
        self.pending.insert(local.uuid, local);
    }

    fn gone(&mut self, uuid: Uuid) -> Result<(), String> {
        if self.find(uuid)?.is_some() {
            self.pending.remove(&uuid);
            self.changes.push(ReplicatedChange::Delete { entry_uuid: uuid, csn: None });
        }
        Ok(())
    }
}

/// Where entries are looked for: what is stored.
struct LocalEntries<'a> {
    served: &'a Arc<ServedDatabase<LmdbStore>>,
    schema: &'a Schema,
}

impl LocalEntries<'_> {
    fn find(&self, uuid: Uuid) -> Result<Option<Known>, String> {
        let mut found = None;
        self.search(&format!("(entryUUID={uuid})"), &mut |local| {
            found = Some(local);
            false
        })?;
        Ok(found)
    }

    /// The entry with this name; glue is none.
    fn suffix(&self, dn: &str) -> Result<Option<Known>, String> {
        let base = self.schema.parse_dn(dn).map_err(|error| format!("\"{dn}\": {error}"))?;
        let mut found = None;
        self.look((&base, Scope::Base), "(!(objectClass=glue))", &mut |local| {
            found = Some(local);
            false
        })?;
        Ok(found)
    }

    /// Whether there are entries of another directory.
    fn has_entries(&self) -> Result<bool, String> {
        let mut any = false;
        self.search(&format!("({GUID}=*)"), &mut |_| {
            any = true;
            false
        })?;
        Ok(any)
    }

    /// Hands what is found to `found`, until that wants no more.
    fn search(&self, filter: &str, found: &mut dyn FnMut(Known) -> bool) -> Result<(), String> {
        self.look((&NormalDn::root(), Scope::Subtree), filter, found)
    }

    fn look(
        &self,
        (base, scope): (&NormalDn, Scope),
        filter: &str,
        found: &mut dyn FnMut(Known) -> bool,
    ) -> Result<(), String> {
        let filter = FilterBuf::parse(filter)
            .map_or(BoundFilter::Undefined, |filter| self.schema.bind_filter(filter.as_filter()));
        let mut read = || -> Result<(), Fault> {
            let database = self.served.database();
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot)?;
            let query = InternalSearch::new(base, scope, &filter).of_what_is_stored();
            internal::search(&view, &query, &mut |entry| {
                Ok(self.local_entry(entry)?.is_none_or(&mut *found))
            })?;
            Ok(())
        };
        read().map_err(|fault| format!("entries cannot be looked for: {fault}"))
    }

    fn local_entry(&self, found: &dyn FoundEntry) -> Result<Option<Known>, Fault> {
        let Entry { dn, attributes } = found.owned()?;
        let mut entry = Entry::new(dn);
        for EntryAttribute { description, mut values, .. } in attributes {
            // Values of a large set stand elsewhere.
            if values.is_empty() {
                found.source().visit_exact(&description, &mut |value| {
                    values.push(value.to_vec());
                    true
                })?;
            }
            entry.attributes.push(EntryAttribute::new(description, values));
        }
        let description = self.schema.describe("entryUUID").ok();
        let uuid = description.and_then(|description| {
            Uuid::try_parse_ascii(entry.attribute(&description)?.values.first()?).ok()
        });
        Ok(uuid.map(|uuid| Known { uuid, entry }))
    }
}

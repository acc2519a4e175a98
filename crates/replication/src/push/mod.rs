//! Replication into another server's directory (slapd-ldap(5)): what a consumer receives is written there by requests, without
//! I/O of its own.
//!
//! The target keeps all there is to know: the entries with their entryUUID and entryCSN, and on the entry of the suffix the
//! contextCSN, which is written behind everything that it stands for. Nothing is kept here.
//!
//! **The provider is right.** An entry gets exactly what the provider sends of it, whatever the target has.

mod difference;
mod glue;

use larix_engine::csn::Csn;
use larix_engine::log::CsnVector;
use larix_engine::replica::{
    ApplyOutcome, DeleteLimit, DeleteOutcome, ReplicaRules, ReplicatedBatch, ReplicatedChange,
    ReplicatedOutcome, Share, UuidSet,
};
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::{Dn, FilterBuf, LdapResult, ModifyOperation, ResultCode, Scope};
use larix_schema::{NormalDn, Schema};
use uuid::Uuid;

use difference::{difference, is_written};

const CONTEXT_CSN: &str = "contextCSN";
const ENTRY_UUID: &str = "entryUUID";
const ENTRY_CSN: &str = "entryCSN";
/// What an entry has that is asked for to be compared.
const WHOLE: [&str; 2] = ["*", "+"];

/// An entry of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetEntry {
    pub dn: String,
    pub attributes: Vec<AttributeValues>,
}

impl TargetEntry {
    /// The values of an attribute.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.attributes.iter().filter(move |a| a.description.eq_ignore_ascii_case(name));
        named.flat_map(|a| &a.values).filter_map(|value| std::str::from_utf8(value).ok())
    }

    fn uuid(&self) -> Option<Uuid> {
        self.values(ENTRY_UUID).next().and_then(|text| Uuid::try_parse(text).ok())
    }
}

/// A search of the target. Referral entries are asked for as what they are.
#[derive(Debug)]
pub struct TargetSearch<'a> {
    pub base: &'a str,
    pub scope: Scope,
    pub filter: &'a FilterBuf,
    pub attributes: &'a [&'a str],
}

/// The directory that is written to.
pub trait Target {
    /// Hands every entry that is found to `found`.
    ///
    /// # Errors
    /// The result of a search that failed; noSuchObject if there is no base.
    fn search(
        &mut self,
        search: &TargetSearch<'_>,
        found: &mut dyn FnMut(TargetEntry),
    ) -> Result<(), LdapResult>;

    /// Carries out a change, with referral entries as what they are.
    ///
    /// # Errors
    /// A result that is not success.
    fn write(&mut self, operation: &WriteOperation) -> Result<(), LdapResult>;
}

/// Writes what a consumer receives.
pub struct Push<'a> {
    pub target: &'a mut dyn Target,
    pub schema: &'a Schema,
    /// The suffix of the database, whose entry has the contextCSN.
    pub suffix: &'a str,
}

impl std::fmt::Debug for Push<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Push").field("suffix", &self.suffix).finish_non_exhaustive()
    }
}

impl Push<'_> {
    /// How far the target has come.
    ///
    /// # Errors
    /// A target that does not say it.
    pub fn context_csns(&mut self) -> Result<Vec<Csn>, LdapResult> {
        let entry = self.read(self.suffix, &[CONTEXT_CSN])?;
        let known: CsnVector = entry
            .iter()
            .flat_map(|entry| entry.values(CONTEXT_CSN))
            .filter_map(|csn| csn.parse().ok())
            .collect();
        Ok(known.as_slice().to_vec())
    }

    /// Writes the changes of a batch one by one, then the contextCSN. It ends with the first change that the target refuses: it is
    /// asked for again.
    pub fn apply(&mut self, batch: &ReplicatedBatch) -> ReplicatedOutcome {
        let mut changes = Vec::with_capacity(batch.changes.len());
        for change in &batch.changes {
            match self.change(change, &batch.rules) {
                Ok(()) => changes.push(ApplyOutcome::Done),
                Err(refused) => {
                    changes.push(ApplyOutcome::Refused(refused));
                    return ReplicatedOutcome { changes, result: LdapResult::success() };
                }
            }
        }
        let raised = if batch.context_csns.is_empty() { Ok(()) } else { self.raise(&batch.context_csns) };
        let result = raised.err().unwrap_or_else(LdapResult::success);
        ReplicatedOutcome { changes, result }
    }

    fn change(&mut self, change: &ReplicatedChange, rules: &ReplicaRules) -> Result<(), LdapResult> {
        match change {
            ReplicatedChange::Put { entry_uuid, dn, attributes, .. } => {
                self.put(*entry_uuid, dn, attributes, rules)
            }
            ReplicatedChange::Delete { entry_uuid, .. } => match self.find(*entry_uuid)? {
                Some(entry) => self.delete(&entry),
                None => Ok(()),
            },
            ReplicatedChange::Delta { .. } => {
                let text =
                    "records of an access log are not pushed to other servers: follow the entries themselves";
                Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text))
            }
        }
    }

    /// Gives the entry exactly this content.
    fn put(
        &mut self,
        uuid: Uuid,
        dn: &str,
        attributes: &[AttributeValues],
        rules: &ReplicaRules,
    ) -> Result<(), LdapResult> {
        let mut wanted: Vec<AttributeValues> =
            attributes.iter().filter(|one| is_written(&one.description)).cloned().collect();
        wanted.retain(|one| !one.description.eq_ignore_ascii_case(ENTRY_UUID));
        wanted.push(AttributeValues {
            description: ENTRY_UUID.to_owned(),
            values: vec![uuid.to_string().into_bytes()],
        });
        let known = match self.find(uuid)? {
            Some(known) if self.normal(&known.dn)? == self.normal(dn)? => known,
            Some(known) => self.rename(&known, dn, &wanted)?,
            None => {
                let add = WriteOperation::Add { entry: dn.to_owned(), attributes: wanted.clone() };
                match self.below_glue(dn, &add) {
                    Err(there) if there.code == ResultCode::ENTRY_ALREADY_EXISTS => {
                        // Another entry had the name, or nothing but what is below it is there.
                        self.read(dn, &WHOLE)?.ok_or(there)?
                    }
                    done => return done,
                }
            }
        };
        let changes = difference(self.schema, &known.attributes, &wanted, &rules.attributes);
        if changes.is_empty() {
            return Ok(());
        }
        self.target.write(&WriteOperation::Modify { object: known.dn, changes })
    }

    /// Gives the entry this name. Answers what it has then.
    fn rename(
        &mut self,
        known: &TargetEntry,
        dn: &str,
        wanted: &[AttributeValues],
    ) -> Result<TargetEntry, LdapResult> {
        let (new_rdn, superior) = parted(dn)?;
        let (old_rdn, old_superior) = parted(&known.dn)?;
        let moves = self.normal(superior)? != self.normal(old_superior)?;
        let rename = WriteOperation::ModifyDn {
            entry: known.dn.clone(),
            new_rdn: new_rdn.to_owned(),
            delete_old_rdn: !has_all(old_rdn, wanted),
            new_superior: moves.then(|| superior.to_owned()),
        };
        match self.below_glue(dn, &rename) {
            Err(taken) if taken.code == ResultCode::ENTRY_ALREADY_EXISTS => {
                // Who has the name has another one at the provider, or is gone there: it comes again if it is wanted.
                let delete = WriteOperation::Delete { entry: dn.to_owned() };
                self.target.write(&delete).map_err(|why| {
                    let text = format!(
                        "the name \"{dn}\" is taken at the target, by an entry that cannot be deleted: {why}"
                    );
                    LdapResult::with(ResultCode::ENTRY_ALREADY_EXISTS, text)
                })?;
                self.target.write(&rename)?;
            }
            done => done?,
        }
        let renamed = self.read(dn, &WHOLE)?;
        renamed.ok_or_else(|| LdapResult::with(ResultCode::NO_SUCH_OBJECT, "it is gone after it was renamed"))
    }

    /// Deletes the entry; one with others below it stays as a name for these.
    fn delete(&mut self, entry: &TargetEntry) -> Result<(), LdapResult> {
        match self.target.write(&WriteOperation::Delete { entry: entry.dn.clone() }) {
            Err(gone) if gone.code == ResultCode::NO_SUCH_OBJECT => Ok(()),
            Err(held) if held.code == ResultCode::NOT_ALLOWED_ON_NON_LEAF => self.make_glue(entry),
            done => done,
        }
    }

    /// Deletes the entries of the share that a refresh did not name as present.
    pub fn delete_absent(&mut self, share: &Share, present: &UuidSet, limit: DeleteLimit) -> DeleteOutcome {
        let failed = |deleted, result| DeleteOutcome::Failed { deleted, result };
        let every = FilterBuf::every_entry();
        let search = TargetSearch {
            base: &share.base,
            scope: share.scope,
            filter: share.filter.as_ref().unwrap_or(&every),
            attributes: &[ENTRY_UUID, ENTRY_CSN, "objectClass"],
        };
        let (mut entries, mut absent) = (0_u64, Vec::new());
        let looked = self.target.search(&search, &mut |entry| {
            let is_glue = entry.values("objectClass").any(|class| class.eq_ignore_ascii_case("glue"));
            let Some(uuid) = entry.uuid().filter(|_| !is_glue) else { return };
            entries += 1;
            let csn = entry.values(ENTRY_CSN).next().and_then(|text| text.parse::<Csn>().ok());
            if !present.contains(&uuid) && csn.is_none_or(|csn| share.has_seen(&csn)) {
                absent.push(TargetEntry { dn: entry.dn, attributes: Vec::new() });
            }
        });
        match looked {
            Err(none) if none.code == ResultCode::NO_SUCH_OBJECT => return DeleteOutcome::Deleted(0),
            Err(result) => return failed(0, result),
            Ok(()) => {}
        }
        let count = absent.len() as u64;
        if limit.is_exceeded(count, entries) {
            return DeleteOutcome::TooMany { absent: count, entries };
        }
        // Subordinates first.
        let depth = |entry: &TargetEntry| self.schema.parse_dn(&entry.dn).map_or(0, |dn| dn.depth());
        absent.sort_by_cached_key(|entry| std::cmp::Reverse(depth(entry)));
        let mut deleted = 0;
        for entry in &absent {
            match self.delete(entry) {
                Ok(()) => deleted += 1,
                Err(result) => return failed(deleted, result),
            }
        }
        DeleteOutcome::Deleted(deleted)
    }

    /// Raises the target's contextCSN to these. Where there is no entry of the suffix nothing can say how far it has come.
    fn raise(&mut self, csns: &[Csn]) -> Result<(), LdapResult> {
        let mut raised: CsnVector = self.context_csns()?.into_iter().collect();
        raised.extend(csns.iter().copied());
        let values = raised.as_slice().iter().map(|csn| csn.text().into_bytes()).collect();
        let change = Modification {
            operation: ModifyOperation::Replace,
            attribute: AttributeValues { description: CONTEXT_CSN.to_owned(), values },
        };
        let raise = WriteOperation::Modify { object: self.suffix.to_owned(), changes: vec![change] };
        match self.target.write(&raise) {
            Err(none) if none.code == ResultCode::NO_SUCH_OBJECT => Ok(()),
            done => done,
        }
    }

    /// The entry with this entryUUID.
    fn find(&mut self, uuid: Uuid) -> Result<Option<TargetEntry>, LdapResult> {
        let filter =
            FilterBuf::parse(&format!("({ENTRY_UUID}={uuid})")).unwrap_or_else(|_| FilterBuf::every_entry());
        self.first(&TargetSearch {
            base: self.suffix,
            scope: Scope::Subtree,
            filter: &filter,
            attributes: &WHOLE,
        })
    }

    /// The entry with this name.
    fn read(&mut self, dn: &str, attributes: &[&str]) -> Result<Option<TargetEntry>, LdapResult> {
        let every = FilterBuf::every_entry();
        self.first(&TargetSearch { base: dn, scope: Scope::Base, filter: &every, attributes })
    }

    fn first(&mut self, search: &TargetSearch<'_>) -> Result<Option<TargetEntry>, LdapResult> {
        let mut first = None;
        match self.target.search(search, &mut |entry| {
            first.get_or_insert(entry);
        }) {
            Err(none) if none.code == ResultCode::NO_SUCH_OBJECT => Ok(None),
            searched => searched.map(|()| first),
        }
    }

    fn normal(&self, dn: &str) -> Result<NormalDn, LdapResult> {
        self.schema
            .parse_dn(dn)
            .map_err(|error| LdapResult::with(ResultCode::INVALID_DN_SYNTAX, format!("\"{dn}\": {error}")))
    }
}

/// The leaf RDN of a name, and what is above it.
fn parted(dn: &str) -> Result<(&str, &str), LdapResult> {
    let (rdn, superior) = larix_engine::entry::split_rdn(dn);
    match rdn.is_empty() {
        true => Err(LdapResult::with(ResultCode::INVALID_DN_SYNTAX, format!("\"{dn}\" has no RDN"))),
        false => Ok((rdn, superior.trim_start())),
    }
}

/// Whether an entry with these attributes has all that an RDN names.
fn has_all(rdn: &str, attributes: &[AttributeValues]) -> bool {
    let Ok(parsed) = Dn::parse(rdn) else { return false };
    let Some(rdn) = parsed.rdns().first() else { return false };
    rdn.avas().iter().all(|ava| {
        let named = attributes.iter().filter(|one| one.description.eq_ignore_ascii_case(ava.attribute));
        named.flat_map(|one| &one.values).any(|value| value.eq_ignore_ascii_case(&ava.value))
    })
}

#[cfg(test)]
mod tests;

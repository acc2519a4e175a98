//! An identity's rights to each entry that is answered: the Get Effective Rights control
//! (draft-ietf-ldapext-acl-model, in the shape that Sun's directory server and OpenDJ gave it).
//!
//! An entry is answered with `aclRights;entryLevel` and, for each attribute, `aclRights;attributeLevel;NAME`. Each lists
//! rights with 1 or 0. Every client may ask for its own rights; those of another identity need `manage` on the entry.

use larix_proto::encode::EntryEncoder;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, Schema};
use larix_store::Snapshot;

use super::entry::GuardedEntry;
use super::gate::Gate;
use super::selection::Selection;
use crate::access::{Privilege, Subject};
use crate::controls::EffectiveRights;
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::filter::charge;

/// Attributes that a request may name.
pub const ATTRIBUTES_MAX: usize = 256;

/// What it costs to ask the rules for every right to an attribute.
const ATTRIBUTE_STEPS: u64 = 64;

/// The syntax of values that can be the requester's own name.
const DN_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.12";

/// Whose rights are asked for, and to what.
#[derive(Clone, Debug)]
pub struct Rights {
    subject: Subject,
    /// Whether that is the requester.
    own: bool,
    /// Named in the control: answered whether the entry has them or not.
    named: Vec<AttributeDescription>,
}

impl Rights {
    /// # Errors
    /// An authorization identity that is no DN, an attribute that is not defined, or too many of them.
    pub fn new(schema: &Schema, requester: &Subject, control: &EffectiveRights) -> Result<Self, LdapResult> {
        let fail = |code, text: String| LdapResult::with(code, format!("effective rights control: {text}"));
        if control.attributes.len() > ATTRIBUTES_MAX {
            let text = format!("at most {ATTRIBUTES_MAX} attributes, not {}", control.attributes.len());
            return Err(fail(ResultCode::ADMIN_LIMIT_EXCEEDED, text));
        }
        let describe = |name: &String| {
            let unknown = |error| fail(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, format!("{name}: {error}"));
            schema.describe(name).map_err(unknown)
        };
        let named = control.attributes.iter().map(describe).collect::<Result<_, _>>()?;
        let Some(authzid) = &control.authzid else {
            return Ok(Self { subject: requester.clone(), own: true, named });
        };
        let text = match authzid.as_str() {
            "" => "",
            other => other.strip_prefix("dn:").map(str::trim_start).ok_or_else(|| {
                fail(ResultCode::UNWILLING_TO_PERFORM, format!("{other:?}: whom by dn:DN, or nobody"))
            })?,
        };
        let dn = schema
            .parse_dn(text)
            .map_err(|error| fail(ResultCode::INVALID_DN_SYNTAX, format!("{text:?}: {error}")))?;
        let subject = Subject::anonymous(requester.peer.clone(), requester.strength).bound_as(dn, text);
        let own = subject.dn == requester.dn;
        Ok(Self { subject, own, named })
    }

    /// Appends the rights to an entry.
    pub(super) fn append<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        selection: &Selection,
        encoder: &mut EntryEncoder<'_>,
    ) -> Result<(), Fault> {
        if !self.own && !seen.allows_entry(Privilege::Manage)? {
            return Ok(());
        }
        let mut gate = Gate::new(seen.policy(), &self.subject);
        gate.steps = seen.meter().remaining();
        let theirs = GuardedEntry::new(seen.view, seen.reader, gate);
        let mut rights = List::default();
        rights.add("add", theirs.allows_children(Privilege::Add)?);
        rights
            .add("delete", theirs.allows_entry(Privilege::Delete)? && self.may_take_from_superior(&theirs)?);
        rights.add("read", theirs.allows_entry(Privilege::Read)?);
        rights.add("write", theirs.allows_entry(Privilege::Write)?);
        rights.add("proxy", false);
        rights.append("aclRights;entryLevel", encoder);
        for attribute in seen.reader.view.attributes() {
            let (number, _) = attribute?;
            let Some(row) = seen.view.catalog.row(number) else { continue };
            let Some(description) = &row.description else { continue };
            // The requester learns of no attribute that a search would not show.
            if selection.has(number, row.operational)
                && !self.named.contains(description)
                && seen.allows(description, None, Privilege::Read)?
            {
                self.attribute(&theirs, description, encoder)?;
            }
        }
        self.named.iter().try_for_each(|description| self.attribute(&theirs, description, encoder))?;
        charge(Some(seen.meter()), theirs.steps())
    }

    /// Deleting needs the superior's leave, too. Above a suffix there is nothing that could give it but the root's.
    fn may_take_from_superior<N: Snapshot>(&self, theirs: &GuardedEntry<'_, N>) -> Result<bool, Fault> {
        let (view, id) = (theirs.view, theirs.reader.view.parent());
        if id == EntryId::ROOT {
            return Ok(theirs.policy().is_root(&self.subject));
        }
        let Some(record) = view.record(id)? else { return Ok(false) };
        let mut gate = Gate::new(theirs.policy(), &self.subject);
        gate.steps = theirs.meter().remaining();
        let superior = GuardedEntry::new(view, view.reader(id, &record)?, gate);
        let may = superior.allows_children(Privilege::Delete)?;
        charge(Some(theirs.meter()), superior.steps())?;
        Ok(may)
    }

    fn attribute<N: Snapshot>(
        &self,
        theirs: &GuardedEntry<'_, N>,
        description: &AttributeDescription,
        encoder: &mut EntryEncoder<'_>,
    ) -> Result<(), Fault> {
        charge(Some(theirs.meter()), ATTRIBUTE_STEPS)?;
        let schema = &theirs.view.schema;
        let may = |privilege| theirs.allows(description, None, privilege);
        let (add, delete) = (may(Privilege::Add)?, may(Privilege::Delete)?);
        let has_dns = schema
            .get_attribute(description.attribute)
            .is_some_and(|attribute| attribute.syntax.oid == DN_SYNTAX);
        let own_name = self.subject.dn.as_ref().filter(|_| has_dns);
        let own = |whole: bool, privilege| match own_name {
            Some(dn) if !whole => theirs.allows(description, Some(dn.as_str().as_bytes()), privilege),
            _ => Ok(whole && own_name.is_some()),
        };
        let mut rights = List::default();
        rights.add("search", may(Privilege::Search)?);
        rights.add("read", may(Privilege::Read)?);
        rights.add("compare", may(Privilege::Compare)?);
        rights.add("write", add && delete);
        rights.add("selfwrite_add", own(add, Privilege::Add)?);
        rights.add("selfwrite_delete", own(delete, Privilege::Delete)?);
        rights.add("proxy", false);
        rights.append(&format!("aclRights;attributeLevel;{}", description.to_text(schema)), encoder);
        Ok(())
    }
}

/// `read:1,write:0`
#[derive(Default)]
struct List(String);

impl List {
    fn add(&mut self, right: &str, granted: bool) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(right);
        self.0.push_str(if granted { ":1" } else { ":0" });
    }

    fn append(&self, name: &str, encoder: &mut EntryEncoder<'_>) {
        encoder.begin_attribute(name);
        encoder.value(self.0.as_bytes());
        encoder.end_attribute();
    }
}

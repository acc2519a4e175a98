//! `overlay usn`: update sequence numbers as Active Directory has them (OpenLDAP's contrib): each change of a database gets the next
//! number, which the entry that it has changed keeps. The entry of the suffix has the highest that was given.
//!
//! The writer hands the numbers out in the transaction of the change. A number is above all that entries have, those included that came
//! by replication, and above the highest that was given, so that one is not given twice after its entry is gone.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::index::Kinds;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{
    Additions, AroundChange, BuildContext, Change, ChangeKind, Consequence, Descriptor, Entries, Failure,
    FollowUp, Interests, Overlay, PendingChange, PreparedChange, Refusal, internal_change,
};
use larix_engine::{Entry, EntryAttribute};
use larix_proto::{FilterBuf, LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, NormalDn, Schema, Usage};

const CREATED: &str = "uSNCreated";
const CHANGED: &str = "uSNChanged";

pub static DESCRIPTOR: Descriptor = Descriptor::new("usn", "olcOverlayConfig", build)
    .once()
    .schema(
        "attributetype ( 1.2.840.113556.1.2.19 NAME 'uSNCreated' EQUALITY integerMatch \
         ORDERING integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE \
         NO-USER-MODIFICATION USAGE dSAOperation )\n\
         attributetype ( 1.2.840.113556.1.2.120 NAME 'uSNChanged' EQUALITY integerMatch \
         ORDERING integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE \
         NO-USER-MODIFICATION USAGE dSAOperation )",
    )
    .local(&[CREATED, CHANGED]);

/// The overlay on one database.
#[derive(Debug)]
struct SequenceNumbers {
    created: AttributeDescription,
    changed: AttributeDescription,
    suffixes: Vec<NormalDn>,
}

fn build(_: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let suffixes = context.suffixes.to_vec();
    let (created, changed) = (operational(context.schema, CREATED)?, operational(context.schema, CHANGED)?);
    Ok(Arc::new(SequenceNumbers { created, changed, suffixes }))
}

/// An attribute that each entry may have. A schema of Active Directory has these as attributes of its classes, so that no change could be
/// stored.
fn operational(schema: &Schema, name: &str) -> Result<AttributeDescription, SettingError> {
    let described = described(schema, "overlay usn", name)?;
    if schema.attribute(described.attribute).usage == Usage::UserApplications {
        let error =
            SettingError::new(format!("overlay usn <{name}>: the schema lets some classes alone have it"));
        return Err(error.with_help("take out `schema msuser` or `schema active-directory`, or the overlay"));
    }
    Ok(described)
}

impl Overlay for SequenceNumbers {
    fn name(&self) -> &'static str {
        "usn"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        vec![(self.changed.clone(), Kinds::EQUALITY)]
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let has = |mods: &[Change]| mods.iter().any(|one| one.description == self.changed);
        let dn = match change.operation {
            PreparedChange::Add { entry, .. } if entry.attribute(&self.changed).is_some() => None,
            PreparedChange::Modify { mods, .. } if mods.is_empty() || has(mods) => None,
            PreparedChange::Add { dn, .. }
            | PreparedChange::Modify { dn, .. }
            | PreparedChange::Delete { dn } => Some(dn),
            PreparedChange::ModifyDn(rename) => Some(&rename.dn),
            _ => None,
        };
        let suffix = dn.and_then(|dn| self.suffixes.iter().find(|suffix| dn.is_within(suffix)));
        let (Some(dn), Some(suffix)) = (dn, suffix) else { return Ok(Additions::default()) };
        let number = self.next(change, suffix)?;
        let altered = self.with(change.operation, change.schema, number)?;
        let highest = Highest { suffix: suffix.clone(), changed: self.changed.clone(), number };
        let follow_up = (dn != suffix).then(|| Box::new(highest) as Box<dyn FollowUp>);
        Ok(Additions { altered, follow_up, ..Additions::default() })
    }
}

impl SequenceNumbers {
    fn next(&self, change: &PendingChange<'_>, suffix: &NormalDn) -> Result<u64, Refusal> {
        let mut highest = highest_of(change.entries, suffix, &self.changed)?;
        // Entries that have more, as those have that came by replication: an index knows, and there are none as a rule.
        let filter = FilterBuf::parse(&format!("({CHANGED}>={})", highest.saturating_add(1)))
            .map_err(|error| Refusal::from(LdapResult::with(ResultCode::OTHER, error.to_string())))?;
        let filter = change.schema.bind_filter(filter.as_filter());
        let root = NormalDn::root();
        change.entries.search(&InternalSearch::new(&root, Scope::Subtree, &filter), &mut |found| {
            found.source().visit_exact(&self.changed, &mut |value| {
                highest = highest.max(number_of(value));
                true
            })?;
            Ok(true)
        })?;
        Ok(highest.saturating_add(1))
    }

    /// The change with its number; `None`: nothing is left that could have it.
    fn with(
        &self,
        operation: &PreparedChange,
        schema: &Schema,
        number: u64,
    ) -> Result<Option<PreparedChange>, Refusal> {
        let value = || vec![number.to_string().into_bytes()];
        let mut altered = operation.clone();
        match &mut altered {
            PreparedChange::Add { entry, .. } => {
                for attribute in [&self.created, &self.changed] {
                    entry.remove(attribute);
                    entry.attributes.push(EntryAttribute::new(attribute.clone(), value()));
                }
            }
            PreparedChange::Modify { mods, .. } => {
                mods.push(internal_change(schema, ChangeKind::Replace, CHANGED, value())?);
            }
            PreparedChange::ModifyDn(rename) => {
                rename.mods.push(internal_change(schema, ChangeKind::Replace, CHANGED, value())?);
            }
            _ => return Ok(None),
        }
        Ok(Some(altered))
    }
}

/// The highest number that was given, as the entry of the suffix says.
fn highest_of(
    entries: &dyn Entries,
    suffix: &NormalDn,
    changed: &AttributeDescription,
) -> Result<u64, Failure> {
    let entry: Option<Entry> = entries.entry(suffix)?;
    let own = entry.as_ref().and_then(|entry| entry.attribute(changed));
    Ok(own.and_then(|own| own.values.first()).map_or(0, |value| number_of(value)))
}

fn number_of(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Has the entry of the suffix say the number once the change is made.
#[derive(Debug)]
struct Highest {
    suffix: NormalDn,
    changed: AttributeDescription,
    number: u64,
}

impl FollowUp for Highest {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        // What followed from the same change may have got a higher one.
        if highest_of(around.after, &self.suffix, &self.changed)? >= self.number {
            return Ok(Vec::new());
        }
        let value = vec![self.number.to_string().into_bytes()];
        let mods = vec![internal_change(schema, ChangeKind::Replace, CHANGED, value)?];
        // Nobody has modified the suffix, and each server counts by itself.
        let operation = PreparedChange::Modify { dn: self.suffix, mods };
        Ok(vec![Consequence { operation, local: true, permissive: false }])
    }
}

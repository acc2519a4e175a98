//! `overlay rdnval`: rdnValue, the values that an entry is named by, as Samba 4 wants them. No two entries below one have the same.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::EntryAttribute;
use larix_engine::index::Kinds;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{
    Additions, AroundChange, BuildContext, ChangeKind, Consequence, Descriptor, FollowUp, InGluedDatabases,
    Interests, Overlay, PendingChange, PreparedChange, Refusal, internal_change,
};
use larix_proto::{Dn, FilterBuf, LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, NormalDn, Schema};

const NAME: &str = "rdnValue";
const DIRECTORY_STRING: &str = "1.3.6.1.4.1.1466.115.121.1.15";
const IA5_STRING: &str = "1.3.6.1.4.1.1466.115.121.1.26";

pub static DESCRIPTOR: Descriptor = Descriptor::new("rdnval", "olcOverlayConfig", build).over_glue(InGluedDatabases::Each).once().schema(
    "attributetype ( 1.3.6.1.4.1.4203.666.1.58 NAME 'rdnValue' EQUALITY caseIgnoreMatch \
     SUBSTR caseIgnoreSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 NO-USER-MODIFICATION USAGE dSAOperation )",
);

/// The overlay on one database.
#[derive(Debug)]
struct RdnValue {
    attribute: AttributeDescription,
    suffixes: Vec<NormalDn>,
}

fn build(_: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let attribute = described(context.schema, "overlay rdnval", NAME)?;
    Ok(Arc::new(RdnValue { attribute, suffixes: context.suffixes.to_vec() }))
}

impl Overlay for RdnValue {
    fn name(&self) -> &'static str {
        "rdnval"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        // Siblings are looked up with each name that is given.
        vec![(self.attribute.clone(), Kinds::EQUALITY)]
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let schema = change.schema;
        let (altered, dn, values) = match change.operation {
            PreparedChange::Add { dn, entry, mods } => {
                let values = naming_values(schema, &entry.dn);
                let mut entry = entry.clone();
                entry.remove(&self.attribute);
                if !values.is_empty() {
                    let own = internal_change(schema, ChangeKind::Add, NAME, values.clone())?;
                    entry.attributes.push(EntryAttribute::new(self.attribute.clone(), own.values));
                }
                (PreparedChange::Add { dn: dn.clone(), entry, mods: mods.clone() }, dn.clone(), values)
            }
            PreparedChange::ModifyDn(rename) => {
                let values = naming_values(schema, &rename.new_rdn);
                let mut altered = rename.clone();
                altered.mods.push(internal_change(schema, ChangeKind::Replace, NAME, values.clone())?);
                (PreparedChange::ModifyDn(altered), rename.target(), values)
            }
            _ => return Ok(Additions::default()),
        };
        let is_looked_at = !values.is_empty() && !self.suffixes.contains(&dn);
        let follow_up = is_looked_at.then(|| Box::new(Unlike { dn, values }) as Box<dyn FollowUp>);
        Ok(Additions { altered: Some(altered), follow_up, ..Additions::default() })
    }
}

/// The values of the first RDN whose types are strings, each once.
fn naming_values(schema: &Schema, dn: &str) -> Vec<Vec<u8>> {
    let Ok(dn) = Dn::parse(dn) else { return Vec::new() };
    let mut values: Vec<Vec<u8>> = Vec::new();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for ava in dn.rdns().first().into_iter().flat_map(|rdn| rdn.avas()) {
        let Ok(description) = schema.describe(ava.attribute) else { continue };
        let syntax = &schema.attribute(description.attribute).syntax.oid;
        if syntax != DIRECTORY_STRING && syntax != IA5_STRING || ava.value.is_empty() {
            continue;
        }
        // The equality of rdnValue is what counts.
        let Ok(change) = internal_change(schema, ChangeKind::Add, NAME, vec![ava.value.to_vec()]) else {
            continue;
        };
        if change.keys.iter().all(|key| !keys.contains(key)) {
            keys.extend(change.keys);
            values.push(ava.value.to_vec());
        }
    }
    values
}

/// An entry that has got a name: no other one below the same superior has all its values.
#[derive(Debug)]
struct Unlike {
    dn: NormalDn,
    values: Vec<Vec<u8>>,
}

impl FollowUp for Unlike {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let Some(parent) = self.dn.parent() else { return Ok(Vec::new()) };
        let mut filter = "(&".to_owned();
        for value in &self.values {
            filter += "(rdnValue=";
            value.iter().for_each(|byte| filter += &format!("\\{byte:02x}"));
            filter.push(')');
        }
        let filter = FilterBuf::parse(&(filter + ")"))
            .map_err(|error| LdapResult::with(ResultCode::OTHER, error.to_string()))?;
        let filter = schema.bind_filter(filter.as_filter());
        let mut is_taken = false;
        around.after.search(&InternalSearch::new(&parent, Scope::OneLevel, &filter), &mut |found| {
            is_taken = *found.dn()? != self.dn;
            Ok(!is_taken)
        })?;
        match is_taken {
            true => {
                let text = "rdnValue not unique within siblings";
                Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text).into())
            }
            false => Ok(Vec::new()),
        }
    }
}

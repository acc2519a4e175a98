//! `overlay vernum`: msDS-KeyVersionNumber counts the changes of unicodePwd, as Samba 4 wants it.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::EntryAttribute;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{
    Additions, BuildContext, ChangeKind, Descriptor, InGluedDatabases, Interests, Overlay, PendingChange,
    PreparedChange, Refusal, internal_change,
};
use larix_schema::AttributeDescription;

const COUNTED: &str = "unicodePwd";
const COUNTER: &str = "msDS-KeyVersionNumber";

pub static DESCRIPTOR: Descriptor =
    Descriptor::new("vernum", "olcOverlayConfig", build).over_glue(InGluedDatabases::Each).once().schema(
        "attributetype ( 1.2.840.113556.1.4.1782 NAME 'msDS-KeyVersionNumber' EQUALITY integerMatch \
     SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE NO-USER-MODIFICATION USAGE dSAOperation )",
    );

/// The overlay on one database.
#[derive(Debug)]
struct VersionNumber {
    counted: AttributeDescription,
    counter: AttributeDescription,
}

fn build(_: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let described = |name| {
        let described = described(context.schema, "overlay vernum", name);
        described
            .map_err(|error| error.with_help("write `schema msuser` before it, which defines unicodePwd"))
    };
    Ok(Arc::new(VersionNumber { counted: described(COUNTED)?, counter: described(COUNTER)? }))
}

impl Overlay for VersionNumber {
    fn name(&self) -> &'static str {
        "vernum"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let altered = match change.operation {
            PreparedChange::Add { dn, entry, mods } => {
                if entry.attribute(&self.counted).is_none() || entry.attribute(&self.counter).is_some() {
                    return Ok(Additions::default());
                }
                let mut entry = entry.clone();
                entry.attributes.push(EntryAttribute::new(self.counter.clone(), vec![b"0".to_vec()]));
                PreparedChange::Add { dn: dn.clone(), entry, mods: mods.clone() }
            }
            PreparedChange::Modify { dn, mods } => {
                let has =
                    |attribute: &AttributeDescription| mods.iter().any(|one| one.description == *attribute);
                if !has(&self.counted) || has(&self.counter) {
                    return Ok(Additions::default());
                }
                let Some(entry) = change.entries.entry(dn)? else { return Ok(Additions::default()) };
                let counted = entry.attribute(&self.counter).and_then(|counter| counter.values.first());
                let counted = counted.and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
                let next = counted.unwrap_or(0).saturating_add(1).to_string().into_bytes();
                let mut mods = mods.clone();
                mods.push(internal_change(change.schema, ChangeKind::Replace, COUNTER, vec![next])?);
                PreparedChange::Modify { dn: dn.clone(), mods }
            }
            _ => return Ok(Additions::default()),
        };
        Ok(Additions { altered: Some(altered), ..Additions::default() })
    }
}

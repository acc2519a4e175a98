//! A change as the audit log shows it: a comment with its circumstances, LDIF, and a comment behind it.

use larix_engine::log::{LogRecord, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification};
use larix_engine::overlay::committed::{CommittedBatch, CommittedChange, Gap};
use larix_proto::ldif::Writer;
use larix_schema::{Schema, is_secret_in};

const MICROSECONDS: i64 = 1_000_000;

/// Says that changes are missing here.
pub(super) fn missing(out: &mut Vec<u8>, gap: Gap) {
    out.extend_from_slice(format!("# {gap} are missing here\n\n").as_bytes());
}

/// Appends one change.
pub(super) fn change(
    out: &mut Vec<u8>,
    committed: &CommittedChange,
    batch: &CommittedBatch<'_>,
    hides_passwords: bool,
) {
    let record = &committed.record;
    let kind = match &record.change {
        LoggedChange::Add(_) => "add",
        LoggedChange::Modify(_) => "modify",
        LoggedChange::Delete => "delete",
        LoggedChange::ModifyDn { .. } => "modrdn",
    };
    let seconds = record.csn.time.0.div_euclid(MICROSECONDS);
    let suffix = if batch.suffix.is_empty() { "global" } else { batch.suffix };
    let who = modifier(record);
    let (peer, connection) = match &committed.origin {
        Some(origin) => (origin.peer.as_str(), origin.connection.to_string()),
        None => ("", "-1".to_owned()),
    };
    comment(out, &format!("{kind} {seconds} {suffix} {who} {peer} conn={connection}"));
    if let Some(origin) = &committed.origin
        && !origin.bound.is_empty()
        && !is_same(batch.schema, &origin.bound, &who)
    {
        comment(out, &format!("realdn: {}", origin.bound));
    }
    let writer = Values { ldif: Writer::default(), schema: batch.schema, hides_passwords };
    writer.ldif.value(out, "dn", record.dn.as_bytes());
    writer.ldif.value(out, "changetype", kind.as_bytes());
    match &record.change {
        LoggedChange::Add(attributes) => attributes.iter().for_each(|a| writer.attribute(out, a)),
        LoggedChange::Modify(modifications) => {
            modifications.iter().for_each(|modification| writer.modification(out, modification));
        }
        LoggedChange::Delete => {}
        LoggedChange::ModifyDn { new_rdn, delete_old_rdn, new_superior, .. } => {
            writer.ldif.value(out, "newrdn", new_rdn.as_bytes());
            writer.ldif.value(out, "deleteoldrdn", if *delete_old_rdn { b"1" } else { b"0" });
            if let Some(superior) = new_superior {
                writer.ldif.value(out, "newsuperior", superior.as_bytes());
            }
        }
    }
    comment(out, &format!("end {kind} {seconds}"));
    out.push(b'\n');
}

/// On one line, whatever names have in them: what reads the log goes by lines.
fn comment(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"# ");
    out.extend(text.bytes().map(|byte| if byte == b'\n' || byte == b'\r' { b' ' } else { byte }));
    out.push(b'\n');
}

/// The modifiersName that goes with the change, or else who asked for it.
fn modifier(record: &LogRecord) -> String {
    let is_it = |attribute: &&LoggedAttribute| attribute.description.eq_ignore_ascii_case("modifiersName");
    let attribute = match &record.change {
        LoggedChange::Add(attributes) => attributes.iter().find(is_it),
        LoggedChange::Modify(modifications) => {
            let sets = |m: &&LoggedModification| m.kind != LoggedKind::Delete;
            modifications.iter().filter(sets).map(|m| &m.attribute).find(is_it)
        }
        LoggedChange::Delete | LoggedChange::ModifyDn { .. } => None,
    };
    match attribute.and_then(|attribute| attribute.values.first()) {
        Some(value) => String::from_utf8_lossy(value).into_owned(),
        None => record.requester.clone(),
    }
}

fn is_same(schema: &Schema, one: &str, other: &str) -> bool {
    one == other || schema.parse_dn(one).is_ok_and(|one| schema.parse_dn(other).is_ok_and(|o| o == one))
}

struct Values<'s> {
    ldif: Writer,
    schema: &'s Schema,
    hides_passwords: bool,
}

impl Values<'_> {
    fn modification(&self, out: &mut Vec<u8>, modification: &LoggedModification) {
        let kind = match modification.kind {
            LoggedKind::Add | LoggedKind::SoftAdd => "add",
            LoggedKind::Delete => "delete",
            LoggedKind::Replace => "replace",
            LoggedKind::Increment => "increment",
        };
        self.ldif.value(out, kind, modification.attribute.description.as_bytes());
        self.attribute(out, &modification.attribute);
        out.extend_from_slice(b"-\n");
    }

    fn attribute(&self, out: &mut Vec<u8>, attribute: &LoggedAttribute) {
        let LoggedAttribute { description, values } = attribute;
        if self.hides_passwords && is_secret_in(self.schema, description) {
            comment(out, &format!("{description}: {} values withheld", values.len()));
            return;
        }
        // As OpenLDAP's tools write it.
        let mut ldif = self.ldif.clone();
        if self.is(description, "userPassword") {
            ldif.always_base64(description.as_str());
        }
        values.iter().for_each(|value| ldif.value(out, description, value));
    }

    fn is(&self, description: &str, name: &str) -> bool {
        let of = |text: &str| self.schema.describe(text).ok().map(|description| description.attribute);
        let base = description.split(';').next().unwrap_or_default();
        base.eq_ignore_ascii_case(name) || of(description).is_some_and(|found| of(name) == Some(found))
    }
}

//! Writing LDIF to the byte as `ldapsearch` and `slapcat` write it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Body, Change, LdifAttribute, Modification, Record};
use crate::control::ControlBuf;
use crate::list::ModifyOperation;

/// How LDIF is written: everything is appended to a buffer.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Columns after which lines are folded.
    fold: Option<usize>,
    /// Attributes that are always base64, like userPassword.
    base64_attributes: Vec<String>,
}

impl Default for Writer {
    /// Folds as OpenLDAP's tools do by default.
    fn default() -> Self {
        Self::new(Some(Self::COLUMNS))
    }
}

impl Writer {
    /// The columns of a line in OpenLDAP's output.
    pub const COLUMNS: usize = 78;

    /// Folds lines after this many columns (at least 2), or never.
    pub fn new(fold: Option<usize>) -> Self {
        Self { fold: fold.map(|columns| columns.max(2)), base64_attributes: Vec::new() }
    }

    /// Writes the values of this attribute in base64 whatever they are.
    pub fn always_base64(&mut self, description: impl Into<String>) {
        self.base64_attributes.push(description.into());
    }

    /// A whole record and the empty line after it.
    pub fn record(&self, out: &mut Vec<u8>, record: &Record) {
        self.value(out, "dn", record.dn.as_bytes());
        match &record.body {
            Body::Content(attributes) => self.attributes(out, attributes),
            Body::Change { controls, change } => {
                controls.iter().for_each(|control| self.control(out, control));
                self.change(out, change);
            }
        }
        out.push(b'\n');
    }

    pub fn attributes(&self, out: &mut Vec<u8>, attributes: &[LdifAttribute]) {
        for attribute in attributes {
            attribute.values.iter().for_each(|value| self.value(out, &attribute.description, value));
        }
    }

    /// One `description: value` line: base64 where the value is not printable ASCII, or begins or ends badly.
    pub fn value(&self, out: &mut Vec<u8>, description: &str, value: &[u8]) {
        if value.is_empty() {
            self.line(out, description, ":", b"");
        } else if is_safe(value) && !self.must_be_base64(description) {
            self.line(out, description, ": ", value);
        } else {
            self.line(out, description, ":: ", STANDARD.encode(value).as_bytes());
        }
    }

    /// One `description:< URL` line: the URL leads to the value (RFC 2849).
    pub fn url(&self, out: &mut Vec<u8>, description: &str, url: &str) {
        self.line(out, description, ":< ", url.as_bytes());
    }

    /// Whether LDIF can have a value as it is, and not in base64 alone; not so an empty one.
    pub fn is_plain(value: &[u8]) -> bool {
        is_safe(value)
    }

    /// A comment, one line or more; an empty line is a `#` alone.
    pub fn comment(&self, out: &mut Vec<u8>, text: &str) {
        // OpenLDAP lets comments run one column further than values.
        let columns = self.fold.map(|columns| columns + 1);
        for line in text.split('\n') {
            let start: &[u8] = if line.is_empty() { b"#" } else { b"# " };
            out.extend_from_slice(start);
            fold_after(out, columns, start.len(), line.as_bytes());
        }
    }

    fn change(&self, out: &mut Vec<u8>, change: &Change) {
        let kind: &[u8] = match change {
            Change::Add(_) => b"add",
            Change::Delete => b"delete",
            Change::Modify(_) => b"modify",
            Change::ModifyDn { .. } => b"modrdn",
        };
        self.value(out, "changetype", kind);
        match change {
            Change::Add(attributes) => self.attributes(out, attributes),
            Change::Delete => {}
            Change::Modify(modifications) => {
                modifications.iter().for_each(|modification| self.modification(out, modification));
            }
            Change::ModifyDn { new_rdn, delete_old_rdn, new_superior } => {
                self.value(out, "newrdn", new_rdn.as_bytes());
                self.value(out, "deleteoldrdn", if *delete_old_rdn { b"1" } else { b"0" });
                if let Some(superior) = new_superior {
                    self.value(out, "newsuperior", superior.as_bytes());
                }
            }
        }
    }

    /// One modification and the `-` after it.
    pub fn modification(&self, out: &mut Vec<u8>, modification: &Modification) {
        let operation = match modification.operation {
            ModifyOperation::Add => "add",
            ModifyOperation::Delete => "delete",
            ModifyOperation::Replace => "replace",
            ModifyOperation::Increment => "increment",
        };
        self.value(out, operation, modification.description.as_bytes());
        modification.values.iter().for_each(|value| self.value(out, &modification.description, value));
        out.extend_from_slice(b"-\n");
    }

    fn control(&self, out: &mut Vec<u8>, control: &ControlBuf) {
        let mut text = format!("{} {}", control.oid, control.critical).into_bytes();
        match &control.value {
            Some(value) if value.is_empty() => text.push(b':'),
            Some(value) if is_safe(value) => {
                text.extend_from_slice(b": ");
                text.extend_from_slice(value);
            }
            Some(value) => {
                text.extend_from_slice(b":: ");
                text.extend_from_slice(STANDARD.encode(value).as_bytes());
            }
            None => {}
        }
        self.line(out, "control", ": ", &text);
    }

    fn line(&self, out: &mut Vec<u8>, description: &str, separator: &str, value: &[u8]) {
        let start = out.len();
        out.extend_from_slice(description.as_bytes());
        out.extend_from_slice(separator.as_bytes());
        let used = out.len() - start;
        fold_after(out, self.fold, used, value);
    }

    fn must_be_base64(&self, description: &str) -> bool {
        description.contains(";binary")
            || description.eq_ignore_ascii_case("userPassword")
            || description == "2.5.4.35"
            || self.base64_attributes.iter().any(|known| description.eq_ignore_ascii_case(known))
    }
}

/// Whether a value can stand as it is: printable ASCII, no space at either end, no `:` or `<` at the start.
fn is_safe(value: &[u8]) -> bool {
    let (Some(first), Some(last)) = (value.first(), value.last()) else { return false };
    first.is_ascii_graphic()
        && !matches!(first, b':' | b'<')
        && last.is_ascii_graphic()
        && value.iter().all(|&byte| byte == b' ' || byte.is_ascii_graphic())
}

/// Appends the text, of whose first line `used` columns are taken, folded, and a line end.
fn fold_after(out: &mut Vec<u8>, columns: Option<usize>, used: usize, text: &[u8]) {
    let Some(columns) = columns else {
        out.extend_from_slice(text);
        out.push(b'\n');
        return;
    };
    let (first, rest) = text.split_at_checked(columns.saturating_sub(used)).unwrap_or((text, b""));
    out.extend_from_slice(first);
    for piece in rest.chunks(columns - 1) {
        out.extend_from_slice(b"\n ");
        out.extend_from_slice(piece);
    }
    out.push(b'\n');
}

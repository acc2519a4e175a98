//! The record of a delete in an access log.

use larix_client::ClientError;
use larix_proto::Attributes;
use larix_proto::ldif::LdifAttribute;

/// What is read of a record.
pub(super) const ATTRIBUTES: [&str; 5] = ["reqStart", "reqDN", "reqAuthzID", "reqEntryUUID", "reqOld"];

/// A deleted entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deleted {
    /// `reqStart`: names the record.
    pub(super) start: String,
    pub(super) dn: String,
    /// Empty: anonymous.
    pub(super) by: String,
    pub(super) uuid: Option<String>,
    /// `reqOld`: `attribute: value`.
    old: Vec<Vec<u8>>,
}

impl Deleted {
    pub(super) fn of(attributes: Attributes<'_>) -> Self {
        let mut deleted = Self::default();
        for attribute in attributes.iter() {
            let text = || {
                let value = attribute.values.iter().next().unwrap_or_default();
                String::from_utf8_lossy(value).into_owned()
            };
            match attribute.description.to_ascii_lowercase().as_str() {
                "reqstart" => deleted.start = text(),
                "reqdn" => deleted.dn = text(),
                "reqauthzid" => deleted.by = text(),
                "reqentryuuid" => deleted.uuid = Some(text()),
                "reqold" => deleted.old = attribute.values.iter().map(<[u8]>::to_vec).collect(),
                _ => {}
            }
        }
        deleted
    }

    pub(super) fn has_content(&self) -> bool {
        !self.old.is_empty()
    }

    pub(super) fn by_whom(&self) -> &str {
        if self.by.is_empty() { "anonymous" } else { &self.by }
    }

    /// The entry as it was, attributes in the order of the record.
    ///
    /// # Errors
    /// The record lacks it.
    pub(super) fn entry(&self) -> Result<Vec<LdifAttribute>, ClientError> {
        if !self.has_content() {
            return Err(ClientError::Usage(format!(
                "{}: the record {} has no content (reqOld). Either you may not read reqOld there, or `logold` did not match the \
                 entry: write `logold (objectClass=*)` below `overlay accesslog`",
                self.dn, self.start
            )));
        }
        let mut entry: Vec<LdifAttribute> = Vec::new();
        for line in &self.old {
            let (description, value) = split(line).ok_or_else(|| {
                ClientError::Usage(format!(
                    "{}: a value of reqOld in the record {} is not `attribute: value`",
                    self.dn, self.start
                ))
            })?;
            match entry.last_mut().filter(|last| last.description == description) {
                Some(last) => last.values.push(value.to_vec()),
                None => entry.push(LdifAttribute {
                    description: description.to_owned(),
                    values: vec![value.to_vec()],
                }),
            }
        }
        // Values of an attribute stand together in the record; where they do not, they are put together.
        entry.sort_by(|one, other| one.description.cmp(&other.description));
        entry.dedup_by(|next, kept| {
            let same = next.description == kept.description;
            if same {
                kept.values.append(&mut next.values);
            }
            same
        });
        Ok(entry)
    }
}

fn split(line: &[u8]) -> Option<(&str, &[u8])> {
    let at = line.iter().position(|byte| *byte == b':')?;
    let (description, rest) = line.split_at_checked(at)?;
    let value = rest.strip_prefix(b":")?;
    Some((std::str::from_utf8(description).ok()?, value.strip_prefix(b" ").unwrap_or(value)))
}

//! Requests as they are put to the backend.

use larix_engine::controls::RequestControls;
use larix_engine::write::WriteOperation;
use larix_proto::{CompareRequest, LdapResult, MessageId, ResultCode, SearchRequest, client};

use super::names::parted;
use super::{Mapping, RewriteContext, Surroundings};

/// Attribute selectors that are no names (RFC 4511 section 4.5.1.8, RFC 3673).
const SELECTORS: [&str; 3] = ["*", "+", "1.1"];

/// A compare, owned.
#[derive(Debug)]
pub struct MappedCompare {
    pub entry: String,
    pub attribute: String,
    pub value: Vec<u8>,
}

impl Mapping {
    /// A search as it is put to the backend, as an encoded message: what is asked below `base`.
    ///
    /// # Errors
    /// What rules refuse.
    pub fn search(
        &self,
        base: &str,
        request: &SearchRequest<'_>,
        around: &Surroundings<'_>,
    ) -> Result<Vec<u8>, LdapResult> {
        let base = self.name(RewriteContext::Search, base, around)?;
        let filter = self.search_filter(request.filter, around)?;
        let attributes = self.selection(request.attributes.iter());
        let attributes: Vec<&str> = attributes.iter().map(String::as_str).collect();
        let mut message = Vec::new();
        let search = client::Search {
            base: &base,
            scope: request.scope,
            deref: request.deref,
            size_limit: request.size_limit,
            time_limit: request.time_limit,
            types_only: request.types_only,
            filter: filter.as_filter(),
            attributes: &attributes,
        };
        client::search(&mut message, MessageId(1), &search, &[]);
        Ok(message)
    }

    /// The attributes that are asked for.
    pub(super) fn selection<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<String> {
        let (mut selected, mut any): (Vec<String>, bool) = (Vec::new(), false);
        for name in names {
            any = true;
            if SELECTORS.contains(&name) {
                selected.push(name.to_owned());
            } else if let Some(class) = name.strip_prefix('@') {
                let foreign = self.classes.foreign(&self.schema, class);
                selected.extend(foreign.map(|foreign| format!("@{foreign}")));
            } else {
                selected.extend(self.attributes.foreign(&self.schema, name).map(|name| name.into_owned()));
            }
        }
        if any && selected.is_empty() {
            selected.push("1.1".to_owned());
        }
        selected
    }

    /// # Errors
    /// What rules refuse; an attribute that is not there.
    pub fn compare(
        &self,
        request: &CompareRequest<'_>,
        around: &Surroundings<'_>,
    ) -> Result<MappedCompare, LdapResult> {
        let foreign = self.attributes.foreign(&self.schema, request.attribute);
        let missing = || LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, "attribute is not mapped");
        let value =
            self.foreign_value(request.attribute, request.value, RewriteContext::CompareValue, around)?;
        Ok(MappedCompare {
            entry: self.name(RewriteContext::Compare, request.entry, around)?.into_owned(),
            attribute: foreign.ok_or_else(missing)?.into_owned(),
            // No entry has a class that is not there.
            value: value.ok_or_else(|| LdapResult::new(ResultCode::COMPARE_FALSE))?.into_owned(),
        })
    }

    /// A change as it is put to the backend.
    ///
    /// # Errors
    /// What rules refuse; an attribute or a class that is not there, which would be lost.
    pub fn update(
        &self,
        operation: WriteOperation,
        around: &Surroundings<'_>,
    ) -> Result<WriteOperation, LdapResult> {
        let name = |place: RewriteContext, dn: &str| self.name(place, dn, around).map(|dn| dn.into_owned());
        Ok(match operation {
            WriteOperation::Add { entry, mut attributes } => {
                for attribute in &mut attributes {
                    self.foreign_attribute(attribute, RewriteContext::AddValue, around)?;
                }
                WriteOperation::Add { entry: name(RewriteContext::Add, &entry)?, attributes }
            }
            WriteOperation::Modify { object, mut changes } => {
                for change in &mut changes {
                    self.foreign_attribute(&mut change.attribute, RewriteContext::ModifyValue, around)?;
                }
                WriteOperation::Modify { object: name(RewriteContext::Modify, &object)?, changes }
            }
            WriteOperation::Delete { entry } => {
                WriteOperation::Delete { entry: name(RewriteContext::Delete, &entry)? }
            }
            WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn, new_superior } => {
                WriteOperation::ModifyDn {
                    entry: name(RewriteContext::Rename, &entry)?,
                    new_rdn: name(RewriteContext::NewRdn, &new_rdn)?,
                    delete_old_rdn,
                    new_superior: new_superior
                        .map(|dn| name(RewriteContext::NewSuperior, &dn))
                        .transpose()?,
                }
            }
        })
    }

    fn foreign_attribute(
        &self,
        attribute: &mut larix_engine::write::AttributeValues,
        place: RewriteContext,
        around: &Surroundings<'_>,
    ) -> Result<(), LdapResult> {
        let description = &attribute.description;
        for value in &mut attribute.values {
            let mapped = match self.foreign_value(description, value, place, around)? {
                Some(std::borrow::Cow::Owned(mapped)) => mapped,
                Some(std::borrow::Cow::Borrowed(_)) => continue,
                None => {
                    let class = String::from_utf8_lossy(value);
                    let text = format!("object class \"{class}\" is not mapped");
                    return Err(LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, text));
                }
            };
            *value = mapped;
        }
        let foreign = self.attributes.foreign(&self.schema, description).map(|foreign| foreign.into_owned());
        attribute.description = foreign.ok_or_else(|| {
            let text = format!("attribute \"{}\" is not mapped", parted(description).0);
            LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, text)
        })?;
        Ok(())
    }

    /// The controls of a request as they are put to the backend.
    ///
    /// # Errors
    /// A critical control that cannot be mapped; a name in one that rules refuse.
    pub(crate) fn request_controls(
        &self,
        controls: &RequestControls,
        around: &Surroundings<'_>,
    ) -> Result<RequestControls, LdapResult> {
        self.controls(controls, around)
    }
}

//! Controls (RFC 4511 section 4.1.11): the envelope here, each control's value in a file of its own.

use std::borrow::Cow;
use std::fmt;

use crate::ber::{self, DecodeError, Fault, Reader, Tag, write};
use crate::limits;
use crate::list::list;
use crate::result::ResultCode;

mod account_usability;
mod assertion;
mod authorization_identity;
mod content_sync;
mod dereference;
mod dir_sync;
mod domain_scope;
mod dont_use_copy;
mod manage_dsa_it;
mod matched_values;
mod no_op;
mod paged_results;
mod password_policy;
mod permissive_modify;
mod persistent_search;
mod proxied_authorization;
mod read_entry;
mod relax;
mod search_options;
mod server_side_sort;
mod session_tracking;
mod subentries;
mod transaction_specification;
mod tree_delete;
mod virtual_list_view;

pub use account_usability::{AccountUsability, AccountUsabilityRequest, Unusable};
pub use assertion::Assertion;
pub use authorization_identity::{AuthorizationIdentityRequest, AuthorizationIdentityResponse};
pub use content_sync::{EntryState, SyncDone, SyncMode, SyncRequest, SyncState};
pub use dereference::{DerefRequest, DerefResponse, DerefResult, DerefSpec};
pub use dir_sync::{DirSyncRequest, DirSyncResponse};
pub use domain_scope::DomainScope;
pub use dont_use_copy::DontUseCopy;
pub use manage_dsa_it::ManageDsaIt;
pub use matched_values::MatchedValues;
pub use no_op::NoOp;
pub use paged_results::PagedResults;
pub use password_policy::{PasswordError, PasswordPolicyRequest, PasswordPolicyResponse, PasswordWarning};
pub use permissive_modify::PermissiveModify;
pub use persistent_search::{ChangeType, EntryChangeNotification, PersistentSearch};
pub use proxied_authorization::{ProxiedAuthorization, ProxiedAuthorizationV1};
pub use read_entry::{PostReadRequest, PostReadResponse, PreReadRequest, PreReadResponse};
pub use relax::Relax;
pub use search_options::SearchOptions;
pub use server_side_sort::{SortKey, SortRequest, SortResponse};
pub use session_tracking::SessionTracking;
pub use subentries::Subentries;
pub use transaction_specification::TransactionSpecification;
pub use tree_delete::TreeDelete;
pub use virtual_list_view::{VlvRequest, VlvResponse, VlvTarget};

/// A control of a received message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Control<'a> {
    pub oid: &'a str,
    pub critical: bool,
    pub value: Option<&'a [u8]>,
}

list!(
    /// The controls of a message.
    Controls, ControlsIter, Control<'a>, Control::decode
);

/// A control to be sent, or kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlBuf {
    pub oid: Cow<'static, str>,
    pub critical: bool,
    pub value: Option<Vec<u8>>,
}

/// The value of a known control.
pub trait ControlValue<'a>: Sized {
    const OID: &'static str;

    /// Reads the control's value; `None` is a control without one.
    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError>;

    /// The control's value; `None` where the definition has none.
    fn encode(&self) -> Option<Vec<u8>>;

    fn to_control(&self, critical: bool) -> ControlBuf {
        ControlBuf { oid: Cow::Borrowed(Self::OID), critical, value: self.encode() }
    }
}

impl<'a> Controls<'a> {
    /// Controls one after another, as [`Self::as_ber`] gives them.
    ///
    /// # Errors
    /// Bytes that are no controls.
    pub fn parse(ber: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(ber);
        while !reader.is_empty() {
            Control::decode(&mut reader)?;
        }
        Ok(Self { ber })
    }
}

impl<'a> Control<'a> {
    pub(crate) fn decode(rest: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut control = rest.sequence("control")?;
        let oid = ber::utf8(control.octets("controlType")?, "controlType")?;
        let critical = control.boolean_or_false("criticality")?;
        let value = control.optional(Tag::OCTET_STRING, "controlValue")?;
        control.ignore_rest("control")?;
        Ok(Self { oid, critical, value })
    }

    pub fn to_owned(&self) -> ControlBuf {
        ControlBuf {
            oid: Cow::Owned(self.oid.into()),
            critical: self.critical,
            value: self.value.map(<[u8]>::to_vec),
        }
    }
}

impl<'a> Controls<'a> {
    /// Checks the contents of a message's controls.
    pub fn check(contents: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = Reader::new(contents);
        let mut count = 0;
        while !rest.is_empty() {
            Control::decode(&mut rest)?;
            count += 1;
            if count > limits::CONTROLS {
                return Err(DecodeError::new("controls", Fault::TooMany { limit: limits::CONTROLS }));
            }
        }
        Ok(Self { ber: contents })
    }
}

impl ControlBuf {
    /// Appends the control; a criticality of false is left out, being the default.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write::constructed(out, Tag::SEQUENCE, |out| {
            write::string(out, &self.oid);
            if self.critical {
                write::boolean(out, Tag::BOOLEAN, true);
            }
            if let Some(value) = &self.value {
                write::octets(out, Tag::OCTET_STRING, value);
            }
        });
    }
}

/// Declares a control without a value; one that comes with a value nevertheless is refused.
macro_rules! flag_control {
    ($(#[$doc:meta])* $name:ident, $oid:expr) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
        pub struct $name;

        impl<'a> $crate::control::ControlValue<'a> for $name {
            const OID: &'static str = $oid;

            fn decode(value: Option<&'a [u8]>) -> Result<Self, $crate::ber::DecodeError> {
                $crate::control::absent(value).map(|()| Self)
            }

            fn encode(&self) -> Option<Vec<u8>> {
                None
            }
        }
    };
}

use flag_control;

fn absent(value: Option<&[u8]>) -> Result<(), DecodeError> {
    match value {
        None => Ok(()),
        Some(_) => Err(DecodeError::new("controlValue", Fault::Invalid("present where there must be none"))),
    }
}

/// The value of a control that must have one.
pub(crate) fn required<'a>(value: Option<&'a [u8]>, field: &'static str) -> Result<&'a [u8], DecodeError> {
    value.ok_or_else(|| DecodeError::new(field, Fault::Missing))
}

/// A value that is one constructed element.
pub(crate) fn write_value(tag: Tag, write: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(32);
    write::constructed(&mut out, tag, write);
    Some(out)
}

fn result_code(reader: &mut Reader<'_>, field: &'static str) -> Result<ResultCode, DecodeError> {
    let code = reader.enumerated(field)?;
    u32::try_from(code).map(ResultCode).map_err(|_| {
        DecodeError::new(field, Fault::OutOfRange { value: code, min: 0, max: i64::from(u32::MAX) })
    })
}

#[cfg(test)]
mod tests;

//! Controls that overlays bring: the parser knows them by their definitions and keeps them as they were sent.

use larix_proto::{Control, LdapResult};

use super::{OperationKind, protocol_error};

/// A control that an overlay brings.
#[derive(Debug)]
pub struct OverlayControl {
    pub oid: &'static str,
    /// In diagnostic messages.
    pub name: &'static str,
    /// Whether the root DSE lists it in `supportedControl`.
    pub listed: bool,
    /// Whether it goes with an operation of this kind.
    pub goes_with: fn(OperationKind<'_>) -> bool,
    /// What is wrong with a value, or with there being none; a text for protocolError.
    pub fault: fn(Option<&[u8]>) -> Option<&'static str>,
}

/// A control is the same if its OID is.
impl PartialEq for OverlayControl {
    fn eq(&self, other: &Self) -> bool {
        self.oid == other.oid
    }
}

impl Eq for OverlayControl {}

/// A control of an overlay as a request has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentControl {
    pub control: &'static OverlayControl,
    pub critical: bool,
    pub value: Option<Vec<u8>>,
}

impl OverlayControl {
    /// # Errors
    /// protocolError for one that comes twice, or whose value is malformed.
    pub(super) fn sent(
        &'static self,
        control: &Control<'_>,
        before: &[SentControl],
    ) -> Result<SentControl, LdapResult> {
        if before.iter().any(|other| other.control == self) {
            return Err(protocol_error(format!("{} control specified multiple times", self.name)));
        }
        if let Some(fault) = (self.fault)(control.value) {
            return Err(protocol_error(format!("{} control value {fault}", self.name)));
        }
        Ok(SentControl {
            control: self,
            critical: control.critical,
            value: control.value.map(<[u8]>::to_vec),
        })
    }
}

//! The chaining behavior control (draft-sermersheim-ldap-chaining): whether the client, or the configuration for it, wants referrals
//! followed.

use larix_engine::controls::{OperationKind, OverlayControl, RequestControls};
use larix_proto::ber::{Reader, Tag};
use larix_proto::{LdapResult, ResultCode};

const OID: &str = "1.3.6.1.4.1.4203.666.11.3";

/// `cannotChain`, as OpenLDAP numbers it.
const CANNOT_CHAIN: ResultCode = ResultCode(0x4111);

pub(super) static CONTROLS: [OverlayControl; 1] = [OverlayControl {
    oid: OID,
    name: "chaining behavior",
    listed: true,
    goes_with: |operation| operation != OperationKind::Bind,
    fault: |value| parse(value).is_none().then_some("is not a chaining behavior"),
}];

/// What is wanted of a referral.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    #[default]
    ChainingPreferred,
    /// The answer of the server that is named, or none.
    ChainingRequired,
    ReferralsPreferred,
    ReferralsRequired,
}

impl Wish {
    /// As the configuration names them, in the order of their numbers.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("chainingPreferred", Self::ChainingPreferred),
        ("chainingRequired", Self::ChainingRequired),
        ("referralsPreferred", Self::ReferralsPreferred),
        ("referralsRequired", Self::ReferralsRequired),
    ];

    pub(super) const fn follows(self) -> bool {
        matches!(self, Self::ChainingPreferred | Self::ChainingRequired)
    }

    fn numbered(number: &[u8]) -> Option<Self> {
        let [number] = number else { return None };
        Self::NAMES.get(usize::from(*number)).map(|(_, wish)| *wish)
    }
}

/// What is wanted of referrals that are a result, and of continuation references.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Behavior {
    pub resolve: Wish,
    pub continuation: Wish,
}

impl Behavior {
    /// What the request says, or else the configuration. None: nothing is followed.
    pub(super) fn of(controls: &RequestControls, configured: Option<Self>) -> Option<Self> {
        let sent = controls.of_overlay(OID).and_then(|sent| parse(sent.value.as_deref()));
        let behavior = sent.or(configured).unwrap_or_default();
        (behavior.resolve.follows() || behavior.continuation.follows()).then_some(behavior)
    }
}

/// The controls for the backend and for other servers, which may know nothing of this one: it is not critical there. None: as they are.
pub(super) fn passed_on(controls: &RequestControls) -> Option<RequestControls> {
    controls.of_overlay(OID).filter(|sent| sent.critical).map(|_| controls.optional(OID))
}

/// The answer where chaining is required and cannot be.
pub(super) fn cannot_chain() -> LdapResult {
    LdapResult::with(CANNOT_CHAIN, "operation cannot be completed without chaining")
}

/// `SEQUENCE { resolveBehavior ENUMERATED OPTIONAL, continuationBehavior ENUMERATED OPTIONAL }`; no value asks for the defaults.
fn parse(value: Option<&[u8]>) -> Option<Behavior> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Some(Behavior::default()) };
    let mut reader = Reader::new(value).sequence("ChainingBehavior").ok()?;
    let mut behavior = Behavior::default();
    for wish in [&mut behavior.resolve, &mut behavior.continuation] {
        if reader.is_empty() {
            break;
        }
        let (tag, number) = reader.element("behavior").ok()?;
        if tag != Tag::ENUMERATED {
            return None;
        }
        *wish = Wish::numbered(number)?;
    }
    reader.is_empty().then_some(behavior)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_control() {
        let both = |resolve, continuation| Some(Behavior { resolve, continuation });
        for (value, expected) in [
            (None, Some(Behavior::default())),
            (Some(&b""[..]), Some(Behavior::default())),
            (Some(b"\x30\x00"), Some(Behavior::default())),
            (Some(b"\x30\x03\x0a\x01\x01"), both(Wish::ChainingRequired, Wish::ChainingPreferred)),
            (
                Some(b"\x30\x06\x0a\x01\x02\x0a\x01\x03"),
                both(Wish::ReferralsPreferred, Wish::ReferralsRequired),
            ),
            (Some(b"\x30\x03\x0a\x01\x04"), None),
            (Some(b"\x30\x03\x02\x01\x01"), None),
            (Some(b"\x30\x09\x0a\x01\x00\x0a\x01\x00\x0a\x01\x00"), None),
            (Some(b"\x31\x00"), None),
        ] {
            assert_eq!(parse(value), expected, "{value:?}");
        }
    }
}

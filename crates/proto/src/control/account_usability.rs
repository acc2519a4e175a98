//! Account usability, as Sun's directory server defined it: whether an account could authenticate.

use super::{ControlValue, required};
use crate::ber::{self, DecodeError, Fault, Reader, Tag, write};
use crate::oid;

super::flag_control!(
    /// Asks of each answered entry whether it could authenticate.
    AccountUsabilityRequest,
    oid::ACCOUNT_USABILITY
);

/// Whether an account could authenticate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AccountUsability {
    /// Seconds; -1: it never expires.
    Available {
        seconds_before_expiration: i64,
    },
    NotAvailable(Unusable),
}

/// Why an account cannot authenticate.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Unusable {
    /// Locked.
    pub inactive: bool,
    pub reset: bool,
    pub expired: bool,
    /// -1: not known, or none.
    pub remaining_grace: Option<i64>,
    /// -1: never.
    pub seconds_before_unlock: Option<i64>,
}

const AVAILABLE: Tag = Tag::context(0);
const NOT_AVAILABLE: Tag = Tag::context_constructed(1);

impl<'a> ControlValue<'a> for AccountUsability {
    const OID: &'static str = oid::ACCOUNT_USABILITY;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let what = "ACCOUNT_USABLE_RESPONSE";
        let (tag, contents) = Reader::new(required(value, what)?).element(what)?;
        match tag {
            AVAILABLE => Ok(Self::Available { seconds_before_expiration: ber::integer(contents, what)? }),
            NOT_AVAILABLE => {
                let mut more = Reader::new(contents);
                let mut unusable = Unusable::default();
                for (number, flag) in [&mut unusable.inactive, &mut unusable.reset, &mut unusable.expired]
                    .into_iter()
                    .enumerate()
                {
                    let tag = Tag::context(u8::try_from(number).unwrap_or(0));
                    *flag = more
                        .optional(tag, what)?
                        .is_some_and(|octets| octets.first().is_some_and(|b| *b != 0));
                }
                let mut integer = |tag| match more.optional(Tag::context(tag), what)? {
                    None => Ok(None),
                    Some(contents) => ber::integer(contents, what).map(Some),
                };
                unusable.remaining_grace = integer(3)?;
                unusable.seconds_before_unlock = integer(4)?;
                Ok(Self::NotAvailable(unusable))
            }
            Tag(other) => Err(DecodeError::new(what, Fault::UnknownChoice(i64::from(other)))),
        }
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Self::Available { seconds_before_expiration } => {
                write::integer(&mut out, AVAILABLE, *seconds_before_expiration);
            }
            Self::NotAvailable(unusable) => write::constructed(&mut out, NOT_AVAILABLE, |out| {
                write::boolean(out, Tag::context(0), unusable.inactive);
                write::boolean(out, Tag::context(1), unusable.reset);
                write::boolean(out, Tag::context(2), unusable.expired);
                if let Some(grace) = unusable.remaining_grace {
                    write::integer(out, Tag::context(3), grace);
                }
                if let Some(seconds) = unusable.seconds_before_unlock {
                    write::integer(out, Tag::context(4), seconds);
                }
            }),
        }
        Some(out)
    }
}

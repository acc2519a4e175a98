//! Searches under the domain scope control (1.2.840.113556.1.4.1339): no backend's referrals and references reach the client, as in
//! OpenLDAP.

use larix_proto::ber::Reader;
use larix_proto::{LdapResult, ResultCode};

use crate::cursor::{AnswerFilter, End};

/// The tag of a search reference (RFC 4511 section 4.5.3).
const REFERENCE: u8 = 0x73;

/// Leaves references out, and makes a referral noSuchObject.
#[derive(Debug)]
pub(crate) struct WithoutReferrals;

impl AnswerFilter for WithoutReferrals {
    fn message(&mut self, message: &[u8], out: &mut Vec<u8>) {
        if !is_reference(message) {
            out.extend_from_slice(message);
        }
    }

    fn end(&mut self, (result, controls): End) -> End {
        let result = match result.code {
            ResultCode::REFERRAL => {
                LdapResult { code: ResultCode::NO_SUCH_OBJECT, referrals: Vec::new(), ..result }
            }
            _ => result,
        };
        (result, controls)
    }
}

fn is_reference(message: &[u8]) -> bool {
    let mut reader = Reader::new(message);
    let operation = reader.sequence("LDAPMessage").and_then(|mut message| {
        message.element("messageID")?;
        Ok(message.peek())
    });
    operation.is_ok_and(|tag| tag.is_some_and(|tag| tag.0 == REFERENCE))
}

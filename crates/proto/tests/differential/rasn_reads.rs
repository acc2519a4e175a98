//! The decoder of the `rasn-ldap` crate.

use rasn_ldap::{
    AttributeValueAssertion, AuthenticationChoice, Filter as TheirFilter, LdapMessage, LdapResult,
    LdapString, ProtocolOp, SubstringChoice,
};

use super::neutral::{Bytes, Filter, Message, Op, Outcome};

pub(crate) fn decode(pdu: &[u8]) -> Result<Message, String> {
    let (message, rest) =
        rasn::ber::decode_with_remainder::<LdapMessage>(pdu).map_err(|error| error.kind.to_string())?;
    if !rest.is_empty() {
        return Err("bytes after the message".into());
    }
    let mut controls = Vec::new();
    for control in message.controls.unwrap_or_default() {
        let value = control.control_value.map(|value| value.to_vec());
        controls.push((oid(&control.control_type)?, control.criticality, value));
    }
    Ok(Message { id: in_range(message.message_id)?, op: op(message.protocol_op)?, controls })
}

fn op(op: ProtocolOp) -> Result<Op, String> {
    let owned = |value: Option<rasn::types::OctetString>| value.map(|value| value.to_vec());
    Ok(match op {
        ProtocolOp::BindRequest(bind) => {
            if !(1..128).contains(&bind.version) {
                return Err(format!("version {}", bind.version));
            }
            match bind.authentication {
                AuthenticationChoice::Simple(password) => Op::SimpleBind(bind.name.0, password.to_vec()),
                AuthenticationChoice::Sasl(sasl) => {
                    Op::SaslBind(bind.name.0, sasl.mechanism.0, owned(sasl.credentials))
                }
                other => return Err(format!("{other:?}")),
            }
        }
        ProtocolOp::UnbindRequest(_) => Op::Unbind,
        ProtocolOp::SearchRequest(search) => Op::Search {
            base: search.base_object.0,
            scope: search.scope as i64,
            deref: search.deref_aliases as i64,
            size_limit: in_range(search.size_limit)?,
            time_limit: in_range(search.time_limit)?,
            types_only: search.types_only,
            filter: filter(search.filter)?,
            attributes: search.attributes.into_iter().map(|name| name.0).collect(),
        },
        ProtocolOp::ModifyRequest(modify) => {
            let changes = modify.changes.into_iter().map(|change| {
                let values = change.modification.vals.to_vec().into_iter().map(|value| value.to_vec());
                (change.operation as i64, (change.modification.r#type.0, values.collect()))
            });
            Op::Modify(modify.object.0, changes.collect())
        }
        ProtocolOp::AddRequest(add) => {
            let attributes = add.attributes.into_iter().map(|attribute| {
                let values = attribute.vals.to_vec().into_iter().map(|value| value.to_vec()).collect();
                (attribute.r#type.0, values)
            });
            Op::Add(add.entry.0, attributes.collect())
        }
        ProtocolOp::DelRequest(entry) => Op::Delete(entry.0.0),
        ProtocolOp::ModDnRequest(request) => Op::ModifyDn(
            request.entry.0,
            request.new_rdn.0,
            request.delete_old_rdn,
            request.new_superior.map(|superior| superior.0),
        ),
        ProtocolOp::CompareRequest(compare) => {
            Op::Compare(compare.entry.0, compare.ava.attribute_desc.0, compare.ava.assertion_value.to_vec())
        }
        ProtocolOp::AbandonRequest(id) => Op::Abandon(in_range(id.0)?),
        ProtocolOp::ExtendedReq(request) => {
            Op::Extended(oid(&request.request_name)?, owned(request.request_value))
        }
        ProtocolOp::BindResponse(bind) => {
            let referrals = bind.referral.unwrap_or_default();
            let outcome =
                outcome(bind.result_code as u32, bind.matched_dn, bind.diagnostic_message, referrals);
            Op::BindResult(outcome, owned(bind.server_sasl_creds))
        }
        ProtocolOp::SearchResEntry(entry) => {
            let attributes = entry.attributes.into_iter().map(|attribute| {
                let values = attribute.vals.to_vec().into_iter().map(|value| value.to_vec()).collect();
                (attribute.r#type.0, values)
            });
            Op::Entry(entry.object_name.0, attributes.collect())
        }
        ProtocolOp::SearchResRef(urls) => Op::Reference(urls.0.into_iter().map(|url| url.0).collect()),
        ProtocolOp::SearchResDone(response) => plain(5, response.0),
        ProtocolOp::ModifyResponse(response) => plain(7, response.0),
        ProtocolOp::AddResponse(response) => plain(9, response.0),
        ProtocolOp::DelResponse(response) => plain(11, response.0),
        ProtocolOp::ModDnResponse(response) => plain(13, response.0),
        ProtocolOp::CompareResponse(response) => plain(15, response.0),
        ProtocolOp::ExtendedResp(response) => {
            let referrals = response.referral.unwrap_or_default();
            let (dn, diagnostic) = (response.matched_dn, response.diagnostic_message);
            let outcome = outcome(response.result_code as u32, dn, diagnostic, referrals);
            let name = response.response_name.map(|name| oid(&name)).transpose()?;
            Op::ExtendedResult(outcome, name, owned(response.response_value))
        }
        ProtocolOp::IntermediateResponse(response) => {
            let name = response.response_name.map(|name| oid(&name)).transpose()?;
            Op::Intermediate(name, owned(response.response_value))
        }
        other => return Err(format!("{other:?}")),
    })
}

fn plain(number: u8, result: LdapResult) -> Op {
    let referrals = result.referral.unwrap_or_default();
    Op::Result(
        number,
        outcome(result.result_code as u32, result.matched_dn, result.diagnostic_message, referrals),
    )
}

fn outcome(code: u32, matched_dn: LdapString, diagnostic: LdapString, referrals: Vec<LdapString>) -> Outcome {
    Outcome {
        code,
        matched_dn: matched_dn.0,
        diagnostic: diagnostic.0,
        referrals: referrals.into_iter().map(|url| url.0).collect(),
    }
}

fn filter(filter: TheirFilter) -> Result<Filter, String> {
    let assertion = |number, assertion: AttributeValueAssertion| {
        Filter::Assertion(number, assertion.attribute_desc.0, assertion.assertion_value.to_vec())
    };
    Ok(match filter {
        TheirFilter::And(members) => Filter::And(set(members)?),
        TheirFilter::Or(members) => Filter::Or(set(members)?),
        TheirFilter::Not(inner) => Filter::Not(Box::new(self::filter(*inner)?)),
        TheirFilter::EqualityMatch(ava) => assertion(3, ava),
        TheirFilter::GreaterOrEqual(ava) => assertion(5, ava),
        TheirFilter::LessOrEqual(ava) => assertion(6, ava),
        TheirFilter::ApproxMatch(ava) => assertion(8, ava),
        TheirFilter::Present(name) => Filter::Present(name.0),
        TheirFilter::Substrings(substrings) => {
            let mut pieces: Vec<(u8, Bytes)> = Vec::new();
            for piece in substrings.substrings {
                pieces.push(match piece {
                    SubstringChoice::Initial(value) => (0, value.to_vec()),
                    SubstringChoice::Any(value) => (1, value.to_vec()),
                    SubstringChoice::Final(value) => (2, value.to_vec()),
                    other => return Err(format!("{other:?}")),
                });
            }
            Filter::Substrings(substrings.r#type.0, pieces)
        }
        TheirFilter::ExtensibleMatch(assertion) => Filter::Extensible(
            assertion.matching_rule.map(|rule| rule.0),
            assertion.r#type.map(|name| name.0),
            assertion.match_value.to_vec(),
            assertion.dn_attributes,
        ),
        other => return Err(format!("{other:?}")),
    })
}

fn set(members: rasn::types::SetOf<TheirFilter>) -> Result<Vec<Filter>, String> {
    members.to_vec().into_iter().map(|member| filter(member.clone())).collect()
}

/// It takes OIDs as octets; RFC 4511 section 4.1.2 has them in UTF-8.
fn oid(octets: &[u8]) -> Result<String, String> {
    String::from_utf8(octets.to_vec()).map_err(|error| error.to_string())
}

/// It leaves the range of RFC 4511 section 4.1.1 (0 .. maxInt) unchecked.
fn in_range(number: u32) -> Result<u32, String> {
    if number <= 0x7fff_ffff { Ok(number) } else { Err(format!("{number} is more than maxInt")) }
}

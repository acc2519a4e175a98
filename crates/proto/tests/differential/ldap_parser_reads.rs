//! The decoder of the `ldap-parser` crate.

use ldap_parser::FromBer;
use ldap_parser::filter::{AttributeValueAssertion, Filter as TheirFilter, Substring};
use ldap_parser::ldap::{AuthenticationChoice, LdapMessage, LdapResult, ProtocolOp};

use super::neutral::{Filter, Message, Op, Outcome};

pub(crate) fn decode(pdu: &[u8]) -> Result<Message, String> {
    let (rest, message) = LdapMessage::from_ber(pdu).map_err(|error| format!("{error:?}"))?;
    if !rest.is_empty() {
        return Err("bytes after the message".into());
    }
    let controls = message.controls.unwrap_or_default();
    Ok(Message {
        id: message.message_id.0,
        op: op(message.protocol_op)?,
        controls: controls
            .into_iter()
            .map(|control| {
                let value = control.control_value.map(|value| value.into_owned());
                (control.control_type.0.into_owned(), control.criticality, value)
            })
            .collect(),
    })
}

fn op(op: ProtocolOp<'_>) -> Result<Op, String> {
    Ok(match op {
        ProtocolOp::BindRequest(bind) => {
            if !(1..128).contains(&bind.version) {
                return Err(format!("version {}", bind.version));
            }
            let name = bind.name.0.into_owned();
            match bind.authentication {
                AuthenticationChoice::Simple(password) => Op::SimpleBind(name, password.into_owned()),
                AuthenticationChoice::Sasl(sasl) => {
                    let credentials = sasl.credentials.map(|credentials| credentials.into_owned());
                    Op::SaslBind(name, sasl.mechanism.0.into_owned(), credentials)
                }
            }
        }
        ProtocolOp::UnbindRequest => Op::Unbind,
        ProtocolOp::SearchRequest(search) => Op::Search {
            base: search.base_object.0.into_owned(),
            scope: known(search.scope.0, 4)?,
            deref: known(search.deref_aliases.0, 4)?,
            size_limit: in_range(search.size_limit)?,
            time_limit: in_range(search.time_limit)?,
            types_only: search.types_only,
            filter: filter(search.filter)?,
            attributes: search.attributes.into_iter().map(|name| name.0.into_owned()).collect(),
        },
        ProtocolOp::ModifyRequest(modify) => {
            let mut changes = Vec::new();
            for change in modify.changes {
                let values = change.modification.attr_vals.into_iter().map(|value| value.0.into_owned());
                let description = change.modification.attr_type.0.into_owned();
                changes.push((known(change.operation.0, 4)?, (description, values.collect())));
            }
            Op::Modify(modify.object.0.into_owned(), changes)
        }
        ProtocolOp::AddRequest(add) => {
            let attributes = add.attributes.into_iter().map(|attribute| {
                let values = attribute.attr_vals.into_iter().map(|value| value.0.into_owned());
                (attribute.attr_type.0.into_owned(), values.collect())
            });
            Op::Add(add.entry.0.into_owned(), attributes.collect())
        }
        ProtocolOp::DelRequest(entry) => Op::Delete(entry.0.into_owned()),
        ProtocolOp::ModDnRequest(request) => Op::ModifyDn(
            request.entry.0.into_owned(),
            request.newrdn.0.into_owned(),
            request.deleteoldrdn,
            request.newsuperior.map(|superior| superior.0.into_owned()),
        ),
        ProtocolOp::CompareRequest(compare) => Op::Compare(
            compare.entry.0.into_owned(),
            compare.ava.attribute_desc.0.into_owned(),
            compare.ava.assertion_value.into_owned(),
        ),
        ProtocolOp::AbandonRequest(id) => Op::Abandon(in_range(id.0)?),
        ProtocolOp::ExtendedRequest(request) => Op::Extended(
            request.request_name.0.into_owned(),
            request.request_value.map(|value| value.into_owned()),
        ),
        response => self::response(response),
    })
}

fn response(response: ProtocolOp<'_>) -> Op {
    match response {
        ProtocolOp::BindResponse(bind) => {
            let sasl = bind.server_sasl_creds.map(|credentials| credentials.into_owned());
            Op::BindResult(outcome(bind.result), sasl)
        }
        ProtocolOp::SearchResultEntry(entry) => {
            let attributes = entry.attributes.into_iter().map(|attribute| {
                let values = attribute.attr_vals.into_iter().map(|value| value.0.into_owned());
                (attribute.attr_type.0.into_owned(), values.collect())
            });
            Op::Entry(entry.object_name.0.into_owned(), attributes.collect())
        }
        ProtocolOp::SearchResultReference(urls) => {
            Op::Reference(urls.into_iter().map(|url| url.0.into_owned()).collect())
        }
        ProtocolOp::SearchResultDone(result) => Op::Result(5, outcome(result)),
        ProtocolOp::ModifyResponse(response) => Op::Result(7, outcome(response.result)),
        ProtocolOp::AddResponse(result) => Op::Result(9, outcome(result)),
        ProtocolOp::DelResponse(result) => Op::Result(11, outcome(result)),
        ProtocolOp::ModDnResponse(result) => Op::Result(13, outcome(result)),
        ProtocolOp::CompareResponse(result) => Op::Result(15, outcome(result)),
        ProtocolOp::ExtendedResponse(response) => Op::ExtendedResult(
            outcome(response.result),
            response.response_name.map(|name| name.0.into_owned()),
            response.response_value.map(|value| value.into_owned()),
        ),
        ProtocolOp::IntermediateResponse(response) => Op::Intermediate(
            response.response_name.map(|name| name.0.into_owned()),
            response.response_value.map(|value| value.into_owned()),
        ),
        request => unreachable!("{request:?} is a request"),
    }
}

fn outcome(result: LdapResult<'_>) -> Outcome {
    Outcome {
        code: result.result_code.0,
        matched_dn: result.matched_dn.0.into_owned(),
        diagnostic: result.diagnostic_message.0.into_owned(),
        referrals: Vec::new(),
    }
}

fn filter(filter: TheirFilter<'_>) -> Result<Filter, String> {
    let assertion = |number, assertion: AttributeValueAssertion<'_>| {
        let name = assertion.attribute_desc.0.into_owned();
        Filter::Assertion(number, name, assertion.assertion_value.into_owned())
    };
    Ok(match filter {
        TheirFilter::And(members) => {
            Filter::And(members.into_iter().map(self::filter).collect::<Result<_, _>>()?)
        }
        TheirFilter::Or(members) => {
            Filter::Or(members.into_iter().map(self::filter).collect::<Result<_, _>>()?)
        }
        TheirFilter::Not(inner) => Filter::Not(Box::new(self::filter(*inner)?)),
        TheirFilter::EqualityMatch(ava) => assertion(3, ava),
        TheirFilter::GreaterOrEqual(ava) => assertion(5, ava),
        TheirFilter::LessOrEqual(ava) => assertion(6, ava),
        TheirFilter::ApproxMatch(ava) => assertion(8, ava),
        TheirFilter::Present(name) => Filter::Present(name.0.into_owned()),
        TheirFilter::Substrings(substrings) => {
            let pieces = substrings.substrings.into_iter().map(|piece| match piece {
                Substring::Initial(value) => (0, value.0.into_owned()),
                Substring::Any(value) => (1, value.0.into_owned()),
                Substring::Final(value) => (2, value.0.into_owned()),
            });
            Filter::Substrings(substrings.filter_type.0.into_owned(), pieces.collect())
        }
        TheirFilter::ExtensibleMatch(assertion) => Filter::Extensible(
            assertion.matching_rule.map(|rule| rule.0.into_owned()),
            assertion.rule_type.map(|name| name.0.into_owned()),
            assertion.assertion_value.0.into_owned(),
            assertion.dn_attributes.unwrap_or(false),
        ),
    })
}

/// It leaves enumerations open; values without a meaning count as refused.
fn known(number: u32, count: u32) -> Result<i64, String> {
    if number < count { Ok(i64::from(number)) } else { Err(format!("unknown choice {number}")) }
}

/// It leaves the range of RFC 4511 section 4.1.1 (0 .. maxInt) unchecked.
fn in_range(number: u32) -> Result<u32, String> {
    if number <= 0x7fff_ffff { Ok(number) } else { Err(format!("{number} is more than maxInt")) }
}

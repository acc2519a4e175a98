//! Our own decoders.

use larix_proto::{
    Attributes, Authentication, Controls, Filter as BerFilter, FilterNode, Message as Ours, Request,
    Response, ResultView,
};

use super::neutral::{Attribute, Filter, Message, Op, Outcome};

pub(crate) fn decode(pdu: &[u8]) -> Result<Message, String> {
    match Ours::decode(pdu) {
        Ok(message) => {
            let op = request(message.request)?;
            Ok(Message { id: message.id.0, op, controls: controls(message.controls) })
        }
        Err(no_request) => match Response::decode_message(pdu) {
            Ok(message) => Ok(Message {
                id: message.id.0,
                op: response(message.response),
                controls: controls(message.controls),
            }),
            // The message is the other one's: its error is about the tag only.
            Err(no_response) if no_response.field != "protocolOp" => Err(no_response.to_string()),
            Err(_) => Err(no_request.error.to_string()),
        },
    }
}

fn request(request: Request<'_>) -> Result<Op, String> {
    Ok(match request {
        Request::Bind(bind) => {
            if bind.version == 0 {
                return Err("version 0".into());
            }
            let name = bind.name.to_owned();
            match bind.authentication {
                Authentication::Simple(password) => Op::SimpleBind(name, password.into()),
                Authentication::Sasl { mechanism, credentials } => {
                    Op::SaslBind(name, mechanism.into(), credentials.map(Into::into))
                }
                Authentication::Other(number) => return Err(format!("authentication choice {number}")),
            }
        }
        Request::Unbind => Op::Unbind,
        Request::Search(search) => Op::Search {
            base: search.base.into(),
            scope: search.scope as i64,
            deref: search.deref as i64,
            size_limit: search.size_limit,
            time_limit: search.time_limit,
            types_only: search.types_only,
            filter: filter(search.filter)?,
            attributes: search.attributes.iter().map(str::to_owned).collect(),
        },
        Request::Modify(modify) => {
            let changes = modify.changes.iter().map(|change| {
                let values = change.attribute.values.iter().map(<[u8]>::to_vec).collect();
                (change.operation as i64, (change.attribute.description.into(), values))
            });
            Op::Modify(modify.object.into(), changes.collect())
        }
        Request::Add(add) => Op::Add(add.entry.into(), attributes(add.attributes)),
        Request::Delete(entry) => Op::Delete(entry.into()),
        Request::ModifyDn(request) => Op::ModifyDn(
            request.entry.into(),
            request.new_rdn.into(),
            request.delete_old_rdn,
            request.new_superior.map(Into::into),
        ),
        Request::Compare(compare) => {
            Op::Compare(compare.entry.into(), compare.attribute.into(), compare.value.into())
        }
        Request::Abandon(id) => Op::Abandon(id.0),
        Request::Extended(extended) => Op::Extended(extended.name.into(), extended.value.map(Into::into)),
    })
}

fn response(response: Response<'_>) -> Op {
    let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
    match response {
        Response::Bind { result, server_sasl } => Op::BindResult(outcome(result), owned(server_sasl)),
        Response::Entry(entry) => Op::Entry(entry.dn.into(), attributes(entry.attributes)),
        Response::Reference(urls) => Op::Reference(urls.iter().map(str::to_owned).collect()),
        Response::SearchDone(result) => Op::Result(5, outcome(result)),
        Response::Modify(result) => Op::Result(7, outcome(result)),
        Response::Add(result) => Op::Result(9, outcome(result)),
        Response::Delete(result) => Op::Result(11, outcome(result)),
        Response::ModifyDn(result) => Op::Result(13, outcome(result)),
        Response::Compare(result) => Op::Result(15, outcome(result)),
        Response::Extended { result, name, value } => {
            Op::ExtendedResult(outcome(result), name.map(Into::into), owned(value))
        }
        Response::Intermediate { name, value } => Op::Intermediate(name.map(Into::into), owned(value)),
    }
}

fn outcome(result: ResultView<'_>) -> Outcome {
    let result = result.to_owned();
    Outcome {
        code: result.code.0,
        matched_dn: result.matched_dn,
        diagnostic: result.diagnostic,
        referrals: result.referrals,
    }
}

fn attributes(attributes: Attributes<'_>) -> Vec<Attribute> {
    attributes
        .iter()
        .map(|attribute| {
            (attribute.description.into(), attribute.values.iter().map(<[u8]>::to_vec).collect())
        })
        .collect()
}

fn controls(controls: Controls<'_>) -> Vec<(String, bool, Option<Vec<u8>>)> {
    controls
        .iter()
        .map(|control| (control.oid.into(), control.critical, control.value.map(<[u8]>::to_vec)))
        .collect()
}

fn filter(filter: BerFilter<'_>) -> Result<Filter, String> {
    let assertion = |number, assertion: larix_proto::AttributeValueAssertion<'_>| {
        Filter::Assertion(number, assertion.attribute.into(), assertion.value.into())
    };
    Ok(match filter.node() {
        FilterNode::And(set) => Filter::And(set.iter().map(self::filter).collect::<Result<_, _>>()?),
        FilterNode::Or(set) => Filter::Or(set.iter().map(self::filter).collect::<Result<_, _>>()?),
        FilterNode::Not(inner) => Filter::Not(Box::new(self::filter(inner)?)),
        FilterNode::Equality(ava) => assertion(3, ava),
        FilterNode::GreaterOrEqual(ava) => assertion(5, ava),
        FilterNode::LessOrEqual(ava) => assertion(6, ava),
        FilterNode::Approx(ava) => assertion(8, ava),
        FilterNode::Present(name) => Filter::Present(name.into()),
        FilterNode::Substrings(substrings) => {
            let initial = substrings.initial.map(|piece| (0, piece.to_vec()));
            let any = substrings.any.iter().map(|piece| (1, piece.to_vec()));
            let last = substrings.final_.map(|piece| (2, piece.to_vec()));
            Filter::Substrings(
                substrings.attribute.into(),
                initial.into_iter().chain(any).chain(last).collect(),
            )
        }
        FilterNode::Extensible(assertion) => Filter::Extensible(
            assertion.rule.map(Into::into),
            assertion.attribute.map(Into::into),
            assertion.value.into(),
            assertion.dn_attributes,
        ),
        FilterNode::Unknown(tag) => return Err(format!("filter choice {tag}")),
    })
}

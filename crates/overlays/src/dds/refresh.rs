//! The refresh operation (RFC 2589 section 4): a modify of entryTtl in the name of the requester, who needs `manage` there.

use std::sync::Arc;

use larix_backend::{
    Changes, Context, ExtendedAnswer, ExtendedOperation, Interceptor, Later, Next, Operations,
    OverlayOperation, Reply,
};
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::write::{
    AttributeValues, Modification, Origin, WriteOperation, WriteOutcome, WriteRequest,
};
use larix_proto::ber::{DecodeError, Reader, Tag, write};
use larix_proto::{LdapResult, ModifyOperation, ResultCode, oid};

use super::config::TTL_MAX;
use super::{Lifetimes, rules};

static OPERATIONS: [OverlayOperation; 1] =
    [OverlayOperation { oid: oid::REFRESH, target: |value| Ok(decode_request(value)?.0.to_owned()) }];

/// The overlay in front of one database.
#[derive(Debug)]
pub(super) struct Refresh(pub(super) Lifetimes);

/// Name and time to live of a request.
fn decode_request(value: Option<&[u8]>) -> Result<(&str, i64), LdapResult> {
    let fault = |text: &str| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
    let value = value
        .filter(|value| !value.is_empty())
        .ok_or_else(|| fault("empty request data field in refresh exop"))?;
    let decode = || -> Result<(&[u8], &[u8]), DecodeError> {
        let mut outer = Reader::new(value);
        let mut reader = outer.sequence("refresh")?;
        let name = reader.expect(Tag::context(0), "entryName")?;
        let ttl = reader.expect(Tag::context(1), "requestTtl")?;
        reader.finish("refresh")?;
        outer.finish("refresh")?;
        Ok((name, ttl))
    };
    let decoded = decode().ok().and_then(|(name, ttl)| Some((std::str::from_utf8(name).ok()?, number(ttl)?)));
    decoded.ok_or_else(|| fault("data decoding error"))
}

/// The contents of an INTEGER.
fn number(contents: &[u8]) -> Option<i64> {
    let first = i64::from(i8::from_be_bytes([*contents.first()?]));
    let rest = contents.get(1..8.min(contents.len())).filter(|rest| rest.len() + 1 == contents.len())?;
    Some(rest.iter().fold(first, |number, byte| number << 8 | i64::from(*byte)))
}

impl Interceptor for Refresh {
    fn requests(&self) -> Operations {
        if self.0.on { Operations::EXTENDED } else { Operations::NONE }
    }

    fn operations(&self) -> &'static [OverlayOperation] {
        if self.0.on { &OPERATIONS } else { &[] }
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        if request.oid != oid::REFRESH {
            return next.extended(context, request, later);
        }
        match self.granted(request.value) {
            Ok((name, ttl)) => {
                let done = later();
                let outcome = Box::new(move |outcome: WriteOutcome| done(answer(outcome, ttl)));
                let change = change(context, name.to_owned(), ttl);
                Reply::Later(next.update(context, Changes::One(change, Some(request.dn.clone())), outcome))
            }
            Err(refused) => Reply::Now(refused.into()),
        }
    }
}

impl Refresh {
    /// The name, and the seconds that it is given.
    fn granted<'v>(&self, value: Option<&'v [u8]>) -> Result<(&'v str, u64), LdapResult> {
        let (name, ttl) = decode_request(value)?;
        let ttl = u64::try_from(ttl).unwrap_or(0);
        rules::check_ttl(ttl, &self.0, "time-to-live for dynamicObject exceeds limit")?;
        debug_assert!(ttl <= TTL_MAX);
        Ok((name, ttl.max(self.0.least)))
    }
}

/// The modify that a refresh is.
fn change(context: &Context<'_>, object: String, ttl: u64) -> WriteRequest {
    let attribute =
        AttributeValues { description: "entryTtl".to_owned(), values: vec![ttl.to_string().into_bytes()] };
    let changes = vec![Modification { operation: ModifyOperation::Replace, attribute }];
    WriteRequest {
        operation: WriteOperation::Modify { object, changes },
        subject: Arc::clone(context.subject),
        // Operational attributes may be changed then, by who may manage them.
        controls: RequestControls::from(ControlValues { relax: true, ..ControlValues::default() }),
        origin: Origin::Client,
        passwords: None,
    }
}

fn answer(outcome: WriteOutcome, ttl: u64) -> ExtendedAnswer {
    let value = outcome.result.is_success().then(|| {
        let mut value = Vec::new();
        write::constructed(&mut value, Tag::SEQUENCE, |out| {
            write::integer(out, Tag::context(1), i64::try_from(ttl).unwrap_or(i64::MAX));
        });
        value
    });
    // Which of the entries above exist is not told here.
    let result = LdapResult { matched_dn: String::new(), ..outcome.result };
    ExtendedAnswer { result, value, controls: outcome.controls }
}

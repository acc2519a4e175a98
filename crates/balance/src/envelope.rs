//! Messages under another id: operation and controls stay as they are, byte for byte.

use larix_proto::ber::{Reader, Tag, write};
use larix_proto::extended::{ExtendedValue as _, VerifyCredentials};
use larix_proto::{BindRequest, ControlBuf, Controls, DecodeError, MessageId, client, oid};

/// Proxies that a request may have come through.
pub(crate) const HOPS_MAX: u8 = 8;
/// Bytes that an envelope has at most beside what is in it: the message id, and the control that counts proxies.
const ENVELOPE_BYTES: usize = 80;

/// A request behind its message id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The whole element.
    operation: &'a [u8],
    controls: Controls<'a>,
    /// Proxies that it has come through.
    pub(crate) hops: u8,
    /// Whether a control says so.
    is_counted: bool,
}

impl<'a> Request<'a> {
    /// Of a message that was decoded, with these controls.
    ///
    /// # Errors
    /// Bytes that are no message.
    pub(crate) fn of(pdu: &'a [u8], controls: Controls<'a>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(pdu).sequence("LDAPMessage")?;
        reader.unsigned("messageID")?;
        let operation = reader.raw("protocolOp")?;
        let mut counted = Self { operation, controls, hops: 0, is_counted: false };
        for control in controls.iter().filter(|control| control.oid == oid::PROXY_HOPS) {
            let hops = control.value.and_then(|value| value.first().copied()).unwrap_or(0);
            counted.hops = counted.hops.max(hops);
            counted.is_counted = true;
        }
        Ok(counted)
    }

    /// How large a message with it can be, with so many bytes more: content bytes.
    pub(crate) fn bytes_max(&self, extra: usize) -> usize {
        self.operation.len() + self.controls.as_ber().len() + extra + ENVELOPE_BYTES
    }

    /// Appends it under another id, one proxy further, with one more control if there is one, encoded.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, id: MessageId, extra: &[u8]) {
        let mut own = Vec::new();
        let hops = ControlBuf {
            oid: oid::PROXY_HOPS.into(),
            critical: false,
            value: Some(vec![self.hops.saturating_add(1)]),
        };
        hops.encode(&mut own);
        write::constructed(out, Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, i64::from(id.0));
            out.extend_from_slice(self.operation);
            write::constructed(out, Tag::context_constructed(0), |out| {
                out.extend_from_slice(extra);
                out.extend_from_slice(&own);
                if !self.is_counted {
                    out.extend_from_slice(self.controls.as_ber());
                } else {
                    let others = self.controls.iter().filter(|control| control.oid != oid::PROXY_HOPS);
                    others.for_each(|control| control.to_owned().encode(out));
                }
            });
        });
    }
}

impl Request<'_> {
    /// Appends a message that asks to verify the credentials of this bind, with the controls that the bind has.
    pub(crate) fn verification(&self, out: &mut Vec<u8>, id: MessageId, bind: &BindRequest<'_>) {
        let mut own = Vec::new();
        let others = self.controls.iter().filter(|control| control.oid != oid::PROXY_HOPS);
        others.for_each(|control| control.to_owned().encode(&mut own));
        // They were decoded once.
        let controls = Controls::check(&own).unwrap_or_default();
        let (name, authentication) = (bind.name, bind.authentication);
        let value = VerifyCredentials { cookie: None, name, authentication, controls }.encode();
        let hops = ControlBuf { oid: oid::PROXY_HOPS.into(), critical: false, value: Some(vec![self.hops]) };
        let hops = if self.is_counted { &[hops][..] } else { &[] };
        client::extended(out, id, oid::VERIFY_CREDENTIALS, value.as_deref(), hops);
    }
}

/// An answer behind its message id.
pub(crate) fn behind_id(pdu: &[u8]) -> &[u8] {
    let rest = || {
        let mut reader = Reader::new(pdu).sequence("LDAPMessage").ok()?;
        reader.unsigned("messageID").ok()?;
        let mut rest = reader;
        let first = rest.raw("protocolOp").ok()?;
        // Both are parts of the message.
        let start = first.as_ptr() as usize - pdu.as_ptr() as usize;
        pdu.get(start..)
    };
    rest().unwrap_or_default()
}

/// Appends an answer under another id.
pub(crate) fn answer(out: &mut Vec<u8>, id: u32, behind_id: &[u8]) {
    let id = i64::from(id);
    let octets = match id {
        0..0x80 => 1,
        0x80..0x8000 => 2,
        0x8000..0x80_0000 => 3,
        _ => 4,
    };
    write::header(out, Tag::SEQUENCE, 2 + octets + behind_id.len());
    write::integer(out, Tag::INTEGER, id);
    out.extend_from_slice(behind_id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use larix_proto::Message;

    #[test]
    fn answers_have_the_lengths_that_their_ids_need() {
        let body = b"\x65\x07\x0a\x01\x00\x04\x00\x04\x00";
        for id in [1, 127, 128, 255, 256, 32_767, 32_768, 65_536, 8_388_607, 8_388_608, 0x7fff_ffff] {
            let mut expected = Vec::new();
            write::constructed(&mut expected, Tag::SEQUENCE, |out| {
                write::integer(out, Tag::INTEGER, i64::from(id));
                out.extend_from_slice(body);
            });
            let mut found = Vec::new();
            answer(&mut found, id, body);
            assert_eq!(found, expected, "{id}");
            assert_eq!(behind_id(&found), body, "{id}");
        }
    }

    #[test]
    fn controls_stay_and_hops_are_counted() {
        let control = |oid: &'static str, value: &[u8]| ControlBuf {
            oid: oid.into(),
            critical: true,
            value: Some(value.to_vec()),
        };
        let extra = control("1.2.3", b"x");
        let mut extra_ber = Vec::new();
        extra.encode(&mut extra_ber);
        for (sent, hops) in [
            (vec![], 1),
            (vec![control("9.9", b"a"), control("8.8", b"")], 1),
            (vec![control("9.9", b"a"), control(oid::PROXY_HOPS, &[4])], 5),
            (vec![control(oid::PROXY_HOPS, &[255])], 255),
            (vec![control(oid::PROXY_HOPS, &[0])], 1),
        ] {
            let mut pdu = Vec::new();
            client::delete(&mut pdu, MessageId(3), "dc=x", &sent);
            let message = Message::decode(&pdu).unwrap();
            let request = Request::of(&pdu, message.controls).unwrap();
            let mut out = Vec::new();
            request.encode(&mut out, MessageId(0x7fff_ffff), &extra_ber);
            assert!(out.len() <= request.bytes_max(extra_ber.len()));
            let again = Message::decode(&out).unwrap();
            assert_eq!((again.id, again.request), (MessageId(0x7fff_ffff), message.request));
            let mut found: Vec<ControlBuf> =
                again.controls.iter().map(|control| control.to_owned()).collect();
            let counted = found.iter().position(|control| control.oid == oid::PROXY_HOPS).unwrap();
            assert_eq!(found.remove(counted).value, Some(vec![hops]));
            let kept = sent.into_iter().filter(|control| control.oid != oid::PROXY_HOPS);
            assert_eq!(found, [extra.clone()].into_iter().chain(kept).collect::<Vec<_>>());
            assert_eq!(found.len() + 1, again.controls.iter().count());
        }
    }
}

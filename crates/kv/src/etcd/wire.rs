//! The messages of etcd's API version 3 that are used here, in the bytes of protocol buffers. The numbers of the fields are those of
//! etcd's rpc.proto and kv.proto.

/// Writes a message. Fields with the value 0, and empty ones, are left out, as proto3 has it.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn number(mut self, field: u32, value: u64) -> Self {
        if value != 0 {
            varint(&mut self.0, u64::from(field << 3));
            varint(&mut self.0, value);
        }
        self
    }

    pub(super) fn bytes(self, field: u32, value: &[u8]) -> Self {
        if value.is_empty() { self } else { self.message(field, value) }
    }

    /// The same for a message within: one without fields counts.
    pub(super) fn message(mut self, field: u32, value: &[u8]) -> Self {
        varint(&mut self.0, u64::from(field << 3 | 2));
        varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers; `None` if it is none.
pub(super) fn fields(mut bytes: &[u8]) -> Option<Vec<(u32, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = take_varint(&mut bytes)?;
        let field = u32::try_from(tag >> 3).ok()?;
        match tag & 7 {
            0 => fields.push((field, Field::Number(take_varint(&mut bytes)?))),
            2 => {
                let length = usize::try_from(take_varint(&mut bytes)?).ok()?;
                let (value, rest) = bytes.split_at_checked(length)?;
                fields.push((field, Field::Bytes(value)));
                bytes = rest;
            }
            // Of fixed lengths, which nothing here has: passed over.
            1 => bytes = bytes.get(8..)?,
            5 => bytes = bytes.get(4..)?,
            _ => return None,
        }
    }
    Some(fields)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The last value of a field, as a number; 0 if there is none.
pub(super) fn number(fields: &[(u32, Field<'_>)], field: u32) -> u64 {
    let found = fields.iter().rev().find_map(|(own, value)| match value {
        Field::Number(value) if *own == field => Some(*value),
        _ => None,
    });
    found.unwrap_or(0)
}

/// The last value of a field, as bytes; none of them if there is none.
pub(super) fn bytes<'a>(fields: &[(u32, Field<'a>)], field: u32) -> &'a [u8] {
    let found = fields.iter().rev().find_map(|(own, value)| match value {
        Field::Bytes(value) if *own == field => Some(*value),
        _ => None,
    });
    found.unwrap_or(&[])
}

fn all<'a>(fields: &[(u32, Field<'a>)], field: u32) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter_map(move |(own, value)| match value {
        Field::Bytes(value) if *own == field => Some(*value),
        _ => None,
    })
}

/// What a transaction does.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Range(Range),
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        lease: i64,
    },
    /// Without an end it is one key.
    Delete {
        key: Vec<u8>,
        end: Vec<u8>,
    },
}

/// A question for keys: without an end for one.
#[derive(Clone, Debug, Default)]
pub(super) struct Range {
    pub(super) key: Vec<u8>,
    pub(super) end: Vec<u8>,
    pub(super) limit: u32,
    /// 0: the newest.
    pub(super) revision: i64,
    pub(super) backward: bool,
    pub(super) keys_only: bool,
    pub(super) count_only: bool,
}

impl Op {
    pub(super) fn get(key: Vec<u8>) -> Self {
        Self::Range(Range { key, ..Range::default() })
    }

    pub(super) fn all((key, end): (Vec<u8>, Vec<u8>)) -> Self {
        Self::Range(Range { key, end, ..Range::default() })
    }

    pub(super) fn put(key: Vec<u8>, value: impl Into<Vec<u8>>) -> Self {
        Self::Put { key, value: value.into(), lease: 0 }
    }

    pub(super) fn delete(key: Vec<u8>) -> Self {
        Self::Delete { key, end: Vec::new() }
    }

    /// About what it takes of a request.
    pub(super) fn size(&self) -> usize {
        const OVERHEAD: usize = 32;
        OVERHEAD
            + match self {
                Self::Range(range) => range.key.len() + range.end.len(),
                Self::Put { key, value, .. } => key.len() + value.len(),
                Self::Delete { key, end } => key.len() + end.len(),
            }
    }

    fn encode(&self) -> Vec<u8> {
        let (field, message) = match self {
            Self::Range(range) => {
                const DESCENDING: u64 = 2;
                let order = if range.backward { DESCENDING } else { 0 };
                let message = Writer::default()
                    .bytes(1, &range.key)
                    .bytes(2, &range.end)
                    .number(3, u64::from(range.limit))
                    .number(4, range.revision.cast_unsigned())
                    .number(5, order)
                    .number(8, u64::from(range.keys_only))
                    .number(9, u64::from(range.count_only));
                (1, message)
            }
            Self::Put { key, value, lease } => {
                (2, Writer::default().bytes(1, key).bytes(2, value).number(3, lease.cast_unsigned()))
            }
            Self::Delete { key, end } => (3, Writer::default().bytes(1, key).bytes(2, end)),
        };
        Writer::default().message(field, &message.done()).done()
    }
}

/// What has to hold for a transaction to succeed.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    Absent,
    Value(Vec<u8>),
    /// In the order of bytes.
    ValueBelow(Vec<u8>),
    Revision(i64),
}

/// A transaction: `success` if all conditions hold, else `failure`.
#[derive(Clone, Debug, Default)]
pub(super) struct Txn {
    pub(super) conditions: Vec<(Vec<u8>, Condition)>,
    pub(super) success: Vec<Op>,
    pub(super) failure: Vec<Op>,
}

impl Txn {
    /// Questions only.
    pub(super) fn of(success: Vec<Op>) -> Self {
        Self { success, ..Self::default() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        const LESS: u64 = 2;
        let mut out = Writer::default();
        for (key, test) in &self.conditions {
            let compare = Writer::default();
            let compare = match test {
                // The first fields are the comparison, 0 being "equal", and what is compared.
                Condition::Absent => compare.number(2, 1).bytes(3, key),
                Condition::Value(value) => compare.number(2, 3).bytes(3, key).message(7, value),
                Condition::ValueBelow(value) => {
                    compare.number(1, LESS).number(2, 3).bytes(3, key).message(7, value)
                }
                Condition::Revision(revision) => {
                    compare.number(2, 2).bytes(3, key).number(6, revision.cast_unsigned())
                }
            };
            out = out.message(1, &compare.done());
        }
        for op in &self.success {
            out = out.message(2, &op.encode());
        }
        for op in &self.failure {
            out = out.message(3, &op.encode());
        }
        out.done()
    }
}

/// A key as etcd has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyValue {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) created: i64,
    pub(super) changed: i64,
    pub(super) lease: i64,
}

/// What became of an operation.
#[derive(Clone, Debug)]
pub(super) enum OpResponse {
    Range { found: Vec<KeyValue>, count: u64 },
    Put,
    Deleted(u64),
}

impl OpResponse {
    /// What a question found.
    pub(super) fn found(self) -> Vec<KeyValue> {
        match self {
            Self::Range { found, .. } => found,
            Self::Put | Self::Deleted(_) => Vec::new(),
        }
    }
}

/// What became of a transaction.
#[derive(Clone, Debug)]
pub(super) struct TxnResponse {
    pub(super) revision: i64,
    pub(super) succeeded: bool,
    pub(super) done: Vec<OpResponse>,
}

impl TxnResponse {
    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let outer = fields(message)?;
        let header = fields(bytes(&outer, 1))?;
        let done = all(&outer, 3).map(decode_op).collect::<Option<_>>()?;
        Some(Self { revision: number(&header, 3).cast_signed(), succeeded: number(&outer, 2) != 0, done })
    }
}

fn decode_op(message: &[u8]) -> Option<OpResponse> {
    let op = fields(message)?;
    Some(match op.as_slice() {
        [(1, Field::Bytes(range))] => {
            let range = fields(range)?;
            let found = all(&range, 2).map(decode_key_value).collect::<Option<_>>()?;
            OpResponse::Range { found, count: number(&range, 4) }
        }
        [(2, Field::Bytes(_))] => OpResponse::Put,
        [(3, Field::Bytes(delete))] => OpResponse::Deleted(number(&fields(delete)?, 2)),
        _ => return None,
    })
}

fn decode_key_value(message: &[u8]) -> Option<KeyValue> {
    let all = fields(message)?;
    Some(KeyValue {
        key: bytes(&all, 1).to_vec(),
        value: bytes(&all, 5).to_vec(),
        created: number(&all, 2).cast_signed(),
        changed: number(&all, 3).cast_signed(),
        lease: number(&all, 6).cast_signed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_garbage_does_not() {
        let message = Writer::default()
            .number(1, 300)
            .number(2, 0)
            .bytes(3, b"abc")
            .bytes(4, b"")
            .message(5, b"")
            .number(6, u64::MAX)
            .done();
        let read = fields(&message).expect("a message");
        assert_eq!(
            read,
            [
                (1, Field::Number(300)),
                (3, Field::Bytes(b"abc")),
                (5, Field::Bytes(b"")),
                (6, Field::Number(u64::MAX))
            ]
        );
        assert_eq!((number(&read, 1), number(&read, 9), bytes(&read, 3)), (300, 0, &b"abc"[..]));
        for (bytes, what) in [
            (&[0x08][..], "no number"),
            (&[0x1a, 5, 1], "too short"),
            (&[0x0b], "a group"),
            (&[0x09, 1, 2], "a short fixed one"),
            (&[0xff; 12], "a number without end"),
        ] {
            assert_eq!(fields(bytes), None, "{what}");
        }
    }

    /// The bytes that etcdctl sends for the same.
    #[test]
    fn transactions_are_those_of_etcd() {
        let txn = Txn {
            conditions: vec![(b"a".to_vec(), Condition::Absent)],
            success: vec![Op::put(b"a".to_vec(), *b"1")],
            failure: vec![Op::get(b"a".to_vec())],
        };
        assert_eq!(
            txn.encode(),
            [
                &[0x0a, 5, 0x10, 1, 0x1a, 1, b'a'][..],
                &[0x12, 8, 0x12, 6, 0x0a, 1, b'a', 0x12, 1, b'1'],
                &[0x1a, 5, 0x0a, 3, 0x0a, 1, b'a'],
            ]
            .concat()
        );
    }
}

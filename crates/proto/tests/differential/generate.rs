//! Messages and damages, at random.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::neutral::{Attribute, Bytes, Filter, Message, Op, Outcome};

pub(crate) fn message() -> impl Strategy<Value = Message> {
    (0..0x8000_0000_u32, prop_oneof![request(), response()], vec(control(), 0..3)).prop_map(
        |(id, op, controls)| {
            let controls = if op == Op::Unbind { Vec::new() } else { controls };
            Message { id, op, controls }
        },
    )
}

fn control() -> impl Strategy<Value = (String, bool, Option<Bytes>)> {
    (oid(), any::<bool>(), option::of(bytes()))
}

fn request() -> impl Strategy<Value = Op> {
    let search = (text(), 0..4_i64, 0..4_i64, limit(), limit(), any::<bool>(), filter(), vec(name(), 0..4));
    prop_oneof![
        (text(), bytes()).prop_map(|(name, password)| Op::SimpleBind(name, password)),
        (text(), name(), option::of(bytes()))
            .prop_map(|(name, mechanism, credentials)| { Op::SaslBind(name, mechanism, credentials) }),
        Just(Op::Unbind),
        search.prop_map(|(base, scope, deref, size_limit, time_limit, types_only, filter, attributes)| {
            Op::Search { base, scope, deref, size_limit, time_limit, types_only, filter, attributes }
        }),
        (text(), vec((0..4_i64, attribute()), 0..4))
            .prop_map(|(object, changes)| Op::Modify(object, changes)),
        (text(), vec(attribute(), 0..4)).prop_map(|(entry, attributes)| Op::Add(entry, attributes)),
        text().prop_map(Op::Delete),
        (text(), text(), any::<bool>(), option::of(text())).prop_map(|(entry, rdn, delete_old, superior)| {
            Op::ModifyDn(entry, rdn, delete_old, superior)
        }),
        (text(), name(), bytes()).prop_map(|(entry, name, value)| Op::Compare(entry, name, value)),
        limit().prop_map(Op::Abandon),
        (oid(), option::of(bytes())).prop_map(|(name, value)| Op::Extended(name, value)),
    ]
}

fn response() -> impl Strategy<Value = Op> {
    prop_oneof![
        (outcome(), option::of(bytes())).prop_map(|(outcome, sasl)| Op::BindResult(outcome, sasl)),
        (text(), vec(attribute(), 0..5)).prop_map(|(dn, attributes)| Op::Entry(dn, attributes)),
        vec(text(), 1..3).prop_map(Op::Reference),
        (prop::sample::select(vec![5, 7, 9, 11, 13, 15]), outcome())
            .prop_map(|(number, outcome)| Op::Result(number, outcome)),
        (outcome(), option::of(oid()), option::of(bytes()))
            .prop_map(|(outcome, name, value)| Op::ExtendedResult(outcome, name, value)),
        (option::of(oid()), option::of(bytes())).prop_map(|(name, value)| Op::Intermediate(name, value)),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let codes = vec![0, 1, 2, 10, 14, 16, 32, 34, 49, 53, 68, 80, 118, 122, 4096];
    (prop::sample::select(codes), text(), text(), vec(text(), 0..3)).prop_map(
        |(code, matched_dn, diagnostic, referrals)| Outcome { code, matched_dn, diagnostic, referrals },
    )
}

fn filter() -> impl Strategy<Value = Filter> {
    let substrings =
        (option::of(bytes()), vec(bytes(), 0..3), option::of(bytes())).prop_map(|(initial, any, last)| {
            let initial = initial.map(|piece| (0, piece)).into_iter();
            let any = any.into_iter().map(|piece| (1, piece));
            let pieces: Vec<_> = initial.chain(any).chain(last.map(|piece| (2, piece))).collect();
            if pieces.is_empty() { vec![(1, b"x".to_vec())] } else { pieces }
        });
    let item = prop_oneof![
        4 => (prop::sample::select(vec![3, 5, 6, 8]), name(), bytes())
            .prop_map(|(number, name, value)| Filter::Assertion(number, name, value)),
        1 => name().prop_map(Filter::Present),
        2 => (name(), substrings).prop_map(|(name, pieces)| Filter::Substrings(name, pieces)),
        2 => (option::of(name()), option::of(name()), bytes(), any::<bool>()).prop_map(
            |(rule, attribute, value, dn_attributes)| {
                let rule = if attribute.is_none() { rule.or_else(|| Some("r".into())) } else { rule };
                Filter::Extensible(rule, attribute, value, dn_attributes)
            }
        ),
    ];
    item.prop_recursive(5, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Filter::And),
            vec(inner.clone(), 0..3).prop_map(Filter::Or),
            inner.prop_map(|inner| Filter::Not(Box::new(inner))),
        ]
    })
}

fn attribute() -> impl Strategy<Value = Attribute> {
    (name(), vec(bytes(), 0..4))
}

fn name() -> impl Strategy<Value = String> {
    "[a-z]{1,3}(;x)?"
}

fn oid() -> impl Strategy<Value = String> {
    "[0-2](\\.[1-9]){1,3}"
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "([a-z=, é]|\\PC){0,6}", 1 => "x{120,140}"]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![8 => vec(any::<u8>(), 0..6), 1 => vec(any::<u8>(), 125..131), 1 => vec(any::<u8>(), 250..260)]
}

fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 0..300_u32, 0..0x8000_0000_u32]
}

/// One thing done to the bytes of a message. Places are fractions of its length in 1/65536.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    Set(u16, u8),
    /// The byte grows or shrinks by a little: lengths and tags that nearly fit.
    Shift(u16, i8),
    Truncate(u16),
    Insert(u16, u8),
    Remove(u16),
}

pub(crate) fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0, 1, 4, 0x0a, 0x30, 0x31, 0x80, 0x81, 0x84, 0xa0])
    ];
    let damage = prop_oneof![
        3 => (any::<u16>(), byte.clone()).prop_map(|(place, byte)| Damage::Set(place, byte)),
        3 => (any::<u16>(), -2..3_i8).prop_map(|(place, shift)| Damage::Shift(place, shift)),
        1 => any::<u16>().prop_map(Damage::Truncate),
        1 => (any::<u16>(), byte).prop_map(|(place, byte)| Damage::Insert(place, byte)),
        1 => any::<u16>().prop_map(Damage::Remove),
    ];
    vec(damage, 1..4)
}

impl Damage {
    pub(crate) fn apply(&self, pdu: &mut Bytes) {
        let place = |fraction: u16| usize::from(fraction) * pdu.len() / 65_536;
        match *self {
            _ if pdu.is_empty() => {}
            Self::Set(at, byte) => {
                let at = place(at);
                pdu[at] = byte;
            }
            Self::Shift(at, shift) => {
                let at = place(at);
                pdu[at] = pdu[at].wrapping_add_signed(shift);
            }
            Self::Truncate(at) => {
                let at = place(at);
                pdu.truncate(at);
                // The outer length follows, so that what is inside is looked at.
                if pdu.len() > 2 && pdu.len() < 130 {
                    pdu[1] = (pdu.len() - 2) as u8;
                }
            }
            Self::Insert(at, byte) => {
                let at = place(at);
                pdu.insert(at, byte);
            }
            Self::Remove(at) => {
                let at = place(at);
                pdu.remove(at);
            }
        }
    }
}

//! Requests of every kind that the cost fuzzer sends: a shape that can be read and shrunk, and the bytes it stands for.

use larix_load::generate::Random;
use larix_proto::ber::{Tag, write};
use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::extended::{ExtendedValue, PasswordModify};
use larix_proto::{ControlBuf, DerefAliases, FilterBuf, MessageId, ModifyOperation, Scope, oid};

use super::SUFFIX;

/// The identity of the requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Identity {
    #[default]
    Anonymous,
    /// May read, and write itself and what is below `ou=open`.
    User,
}

/// What a list in a request is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// The same word again and again.
    Same,
    /// Another one each time, none of them known.
    Unknown,
    /// A known attribute with another option each time.
    Options,
    /// Known attributes, in turns.
    Known,
    /// Object identifiers, each another.
    Oids,
    /// Object classes as attribute selectors (RFC 4529).
    Classes,
}

/// A list: what it is made of, how many, and how long each is, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) words: Words,
    pub(super) count: usize,
    pub(super) bytes: usize,
}

/// What each term of a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    Equal,
    Present,
    Substrings,
    Greater,
    Approximate,
    /// Any attribute under a matching rule, DNs included.
    AnyAttribute,
    /// Matched along chains of entries.
    InChain,
}

/// A control with the size of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    Sort(List),
    View(List),
    Dereference(List),
    MatchedValues(Term, List),
    Assertion(Term, List),
    PreRead(List),
    PostRead(List),
    Paged(u32),
    Sync,
    EffectiveRights,
    ProxiedAuthorization(usize),
    /// In the name of an entry: whether that may be is for the rules in it to say.
    ActingAs(usize),
    TreeDelete,
    PermissiveModify,
    Relax,
    ManageDsaIt,
    NoOp,
    Unknown(usize),
}

/// The operation with the sizes of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Search {
        base: usize,
        subtree: bool,
        term: Term,
        filter: List,
        nested: bool,
        wanted: List,
    },
    Compare {
        target: usize,
        attribute: List,
        value: usize,
    },
    Add {
        below: usize,
        attributes: List,
        values: List,
    },
    Modify {
        target: usize,
        modifications: List,
        values: List,
        kind: u8,
    },
    Rename {
        target: usize,
        parts: List,
        superior: usize,
    },
    Delete {
        target: usize,
    },
    Bind {
        name: List,
        password: usize,
    },
    /// As an entry that there is.
    BindAs {
        target: usize,
        password: usize,
    },
    /// Updates that are kept, and then carried out together.
    Transaction {
        target: usize,
        updates: usize,
        values: List,
    },
    SaslBind {
        credentials: usize,
    },
    PasswordModify {
        target: usize,
        old: usize,
        new: usize,
    },
    Extended {
        name: usize,
        value: usize,
    },
    LongName {
        parts: List,
    },
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) identity: Identity,
    pub(super) operation: Operation,
    pub(super) extras: Vec<Extra>,
}

const WORDS: [Words; 6] =
    [Words::Same, Words::Unknown, Words::Options, Words::Known, Words::Oids, Words::Classes];
const TERMS: [Term; 7] = [
    Term::Equal,
    Term::Present,
    Term::Substrings,
    Term::Greater,
    Term::Approximate,
    Term::AnyAttribute,
    Term::InChain,
];
const KNOWN: [&str; 8] =
    ["cn", "sn", "description", "member", "objectClass", "telephoneNumber", "seeAlso", "*"];

/// How many names requests are about.
const TARGETS: usize = 10;

/// Names that requests are about: readable, with many values, a large group, writable, hidden, missing, with many passwords and rules for
/// who may act in its name, under an access rule that looks at many entries.
fn target(number: usize) -> String {
    match number % TARGETS {
        0 => SUFFIX.to_owned(),
        1 => format!("cn=user1,{SUFFIX}"),
        2 => format!("cn=wide,{SUFFIX}"),
        3 => format!("cn=group,{SUFFIX}"),
        4 => format!("ou=open,{SUFFIX}"),
        5 => format!("cn=item1,ou=open,{SUFFIX}"),
        6 => format!("cn=user3,ou=hidden,{SUFFIX}"),
        7 => format!("cn=nobody,{SUFFIX}"),
        8 => format!("cn=keys,{SUFFIX}"),
        _ => format!("cn=ruled,{SUFFIX}"),
    }
}

impl List {
    /// Of lengths that differ by orders of magnitude.
    fn random(random: &mut Random, bytes_in_all: u64) -> Self {
        let words = *random.pick(&WORDS);
        let count = 1 << random.below(16);
        let bytes = 1 << random.below(12);
        let each = (bytes_in_all / count).clamp(1, 4_096);
        Self {
            words,
            count: usize::try_from(count).unwrap(),
            bytes: usize::try_from(each.min(bytes)).unwrap(),
        }
    }

    pub(super) fn texts(self) -> Vec<String> {
        (0..self.count)
            .map(|n| {
                let text = match self.words {
                    Words::Same => "cn".to_owned(),
                    Words::Unknown => format!("x{n}"),
                    Words::Options => format!("description;lang-x{n}"),
                    Words::Known => KNOWN[n % KNOWN.len()].to_owned(),
                    Words::Oids => format!("1.3.6.1.4.1.{n}"),
                    Words::Classes => {
                        ["@person", "@top", "@inetOrgPerson", "@extensibleObject"][n % 4].to_owned()
                    }
                };
                let pad = self.bytes.saturating_sub(text.len());
                match self.words {
                    Words::Unknown | Words::Options => text + &"y".repeat(pad),
                    Words::Same | Words::Known | Words::Oids | Words::Classes => text,
                }
            })
            .collect()
    }

    /// Different values of this length each.
    pub(super) fn values(self) -> Vec<String> {
        let same = self.words == Words::Same;
        (0..self.count)
            .map(|n| format!("{:0>width$}", if same { 0 } else { n }, width = self.bytes))
            .collect()
    }

    /// Half as long.
    fn halves(self) -> Vec<Self> {
        let mut less = Vec::new();
        if self.count > 1 {
            less.push(Self { count: self.count / 2, ..self });
        }
        if self.bytes > 8 {
            less.push(Self { bytes: self.bytes / 2, ..self });
        }
        less
    }
}

impl Shape {
    /// Any.
    pub(super) fn random(random: &mut Random) -> Self {
        let identity = if random.below(3) == 0 { Identity::Anonymous } else { Identity::User };
        let room = 1
            << (10
                + random.below(match identity {
                    Identity::Anonymous => 8,
                    Identity::User => 11,
                }));
        let number = |random: &mut Random, below: u64| usize::try_from(random.below(below)).unwrap();
        let size = |random: &mut Random| 1usize << random.below(17);
        let target = |random: &mut Random| number(random, TARGETS as u64);
        let operation = match random.below(17) {
            0..6 => Operation::Search {
                base: target(random),
                subtree: random.below(2) == 0,
                term: *random.pick(&TERMS),
                filter: List::random(random, room / 2),
                nested: random.below(4) == 0,
                wanted: List::random(random, room / 2),
            },
            6 => Operation::Compare {
                target: target(random),
                attribute: List::random(random, 64),
                value: size(random),
            },
            7 | 8 => Operation::Add {
                below: target(random),
                attributes: List::random(random, room / 2),
                values: List::random(random, room / 2),
            },
            9 | 10 => Operation::Modify {
                target: target(random),
                modifications: List::random(random, room / 2),
                values: List::random(random, room / 2),
                kind: u8::try_from(random.below(5)).unwrap(),
            },
            11 => Operation::Rename {
                target: target(random),
                parts: List::random(random, room),
                superior: number(random, TARGETS as u64 + 1),
            },
            12 => Operation::Delete { target: target(random) },
            13 => match random.below(3) {
                0 => Operation::BindAs { target: target(random), password: size(random) },
                1 => Operation::Bind { name: List::random(random, room), password: size(random) },
                _ => Operation::SaslBind { credentials: size(random) },
            },
            14 => Operation::PasswordModify { target: target(random), old: size(random), new: size(random) },
            15 => Operation::Transaction {
                target: target(random),
                updates: 1 << random.below(10),
                values: List::random(random, room),
            },
            _ => match random.below(2) {
                0 => Operation::Extended { name: number(random, 6), value: size(random) },
                _ => Operation::LongName { parts: List::random(random, room) },
            },
        };
        let extras =
            (0..[0, 0, 1, 1, 2, 3][number(random, 6)]).map(|_| Extra::random(random, room)).collect();
        Self { identity, operation, extras }
    }

    /// Its bytes.
    pub(super) fn bytes(&self, id: u32) -> Vec<u8> {
        let controls: Vec<ControlBuf> = self.extras.iter().map(Extra::control).collect();
        let (mut out, id) = (Vec::new(), MessageId(id));
        let out = &mut out;
        match self.operation {
            Operation::Search { base, subtree, term, filter, nested, wanted } => {
                let filter = self::filter(term, filter, nested);
                let wanted = wanted.texts();
                let attributes: Vec<&str> = wanted.iter().map(String::as_str).collect();
                let scope = if subtree { Scope::Subtree } else { Scope::Base };
                let base = target(base);
                let request = client::Search {
                    deref: DerefAliases::Always,
                    attributes: &attributes,
                    ..client::Search::new(&base, scope, filter.as_filter())
                };
                client::search(out, id, &request, &controls);
            }
            Operation::Compare { target: entry, attribute, value } => {
                let name = attribute.texts().concat();
                client::compare(out, id, &target(entry), &name, "v".repeat(value).as_bytes(), &controls);
            }
            Operation::Add { below, attributes, values } => {
                let dn = format!("cn=new{},{}", values.count, target(below));
                add(out, id, &dn, attributes, values, &controls);
            }
            Operation::Modify { target: entry, modifications, values, kind } => {
                modify(out, id, &target(entry), modifications, values, kind, &controls);
            }
            Operation::Rename { target: entry, parts, superior } => {
                let rdn: Vec<String> = parts.values().iter().map(|value| format!("cn={value}")).collect();
                let superior = (superior < TARGETS).then(|| target(superior));
                client::modify_dn(
                    out,
                    id,
                    &target(entry),
                    &rdn.join("+"),
                    true,
                    superior.as_deref(),
                    &controls,
                );
            }
            Operation::Delete { target: entry } => client::delete(out, id, &target(entry), &controls),
            Operation::Bind { name, password } => {
                client::simple_bind(out, id, &long_name(name), "p".repeat(password).as_bytes(), &controls);
            }
            Operation::BindAs { target: entry, password } => {
                client::simple_bind(out, id, &target(entry), "p".repeat(password).as_bytes(), &controls);
            }
            Operation::Transaction { target: entry, updates, values } => {
                transaction(out, id, (&target(entry), updates), values, &controls);
            }
            Operation::SaslBind { credentials } => {
                let token = "n,,n=user1,r=".to_owned() + &"r".repeat(credentials);
                client::sasl_bind(out, id, "", "SCRAM-SHA-256", Some(token.as_bytes()), &controls);
            }
            Operation::PasswordModify { target: entry, old, new } => {
                let (name, old, new) = (target(entry), "o".repeat(old), "n".repeat(new));
                let request = PasswordModify {
                    user: Some(name.as_bytes()),
                    old: Some(old.as_bytes()),
                    new: Some(new.as_bytes()),
                };
                let value = request.encode().unwrap_or_default();
                client::extended(out, id, oid::PASSWORD_MODIFY, Some(&value), &controls);
            }
            Operation::Extended { name, value } => {
                let name =
                    [oid::WHO_AM_I, oid::CANCEL, oid::END_TRANSACTION, oid::START_TRANSACTION, "1.2.3.4"]
                        [name % 5];
                client::extended(out, id, name, Some(&vec![0x30; value]), &controls);
            }
            Operation::LongName { parts } => client::delete(out, id, &long_name(parts), &controls),
        }
        std::mem::take(out)
    }

    /// How many messages it is, each with an answer.
    pub(super) fn messages(&self) -> usize {
        match self.operation {
            // The start and the end.
            Operation::Transaction { updates, .. } => updates + 2,
            _ => 1,
        }
    }

    /// Smaller ones of the same kind, the smallest first.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut less: Vec<Self> = (0..self.extras.len())
            .map(|gone| {
                let mut shape = self.clone();
                shape.extras.remove(gone);
                shape
            })
            .collect();
        for (place, extra) in self.extras.iter().enumerate() {
            for extra in extra.smaller() {
                let mut shape = self.clone();
                shape.extras[place] = extra;
                less.push(shape);
            }
        }
        less.extend(self.operation.smaller().into_iter().map(|operation| Self { operation, ..self.clone() }));
        less
    }
}

impl Operation {
    fn smaller(self) -> Vec<Self> {
        let half = |bytes: usize| (bytes > 8).then_some(bytes / 2);
        let mut less = Vec::new();
        match self {
            Self::Search { base, subtree, term, filter, nested, wanted } => {
                for wanted in wanted.halves() {
                    less.push(Self::Search { base, subtree, term, filter, nested, wanted });
                }
                for filter in filter.halves() {
                    less.push(Self::Search { base, subtree, term, filter, nested, wanted });
                }
            }
            Self::Compare { target, attribute, value } => {
                less.extend(half(value).map(|value| Self::Compare { target, attribute, value }));
                less.extend(attribute.halves().into_iter().map(|attribute| Self::Compare {
                    target,
                    attribute,
                    value,
                }));
            }
            Self::Add { below, attributes, values } => {
                less.extend(values.halves().into_iter().map(|values| Self::Add {
                    below,
                    attributes,
                    values,
                }));
                less.extend(attributes.halves().into_iter().map(|attributes| Self::Add {
                    below,
                    attributes,
                    values,
                }));
            }
            Self::Modify { target, modifications, values, kind } => {
                for values in values.halves() {
                    less.push(Self::Modify { target, modifications, values, kind });
                }
                for modifications in modifications.halves() {
                    less.push(Self::Modify { target, modifications, values, kind });
                }
            }
            Self::Rename { target, parts, superior } => {
                less.extend(parts.halves().into_iter().map(|parts| Self::Rename { target, parts, superior }));
            }
            Self::Bind { name, password } => {
                less.extend(half(password).map(|password| Self::Bind { name, password }));
                less.extend(name.halves().into_iter().map(|name| Self::Bind { name, password }));
            }
            Self::BindAs { target, password } => {
                less.extend(half(password).map(|password| Self::BindAs { target, password }));
            }
            Self::Transaction { target, updates, values } => {
                if updates > 1 {
                    less.push(Self::Transaction { target, updates: updates / 2, values });
                }
                less.extend(values.halves().into_iter().map(|values| Self::Transaction {
                    target,
                    updates,
                    values,
                }));
            }
            Self::SaslBind { credentials } => {
                less.extend(half(credentials).map(|credentials| Self::SaslBind { credentials }));
            }
            Self::PasswordModify { target, old, new } => {
                less.extend(half(old).map(|old| Self::PasswordModify { target, old, new }));
                less.extend(half(new).map(|new| Self::PasswordModify { target, old, new }));
            }
            Self::Extended { name, value } => {
                less.extend(half(value).map(|value| Self::Extended { name, value }))
            }
            Self::LongName { parts } => {
                less.extend(parts.halves().into_iter().map(|parts| Self::LongName { parts }));
            }
            Self::Delete { .. } => {}
        }
        less
    }
}

impl Extra {
    fn random(random: &mut Random, room: u64) -> Self {
        let list = List::random(random, room);
        let term = *random.pick(&TERMS);
        match random.below(18) {
            0 | 1 => Self::Sort(list),
            2 => Self::View(list),
            3 | 4 => Self::Dereference(list),
            5 => Self::MatchedValues(term, list),
            6 => Self::Assertion(term, list),
            7 => Self::PreRead(list),
            8 => Self::PostRead(list),
            9 => Self::Paged(1 << random.below(31)),
            10 => Self::Sync,
            11 => Self::EffectiveRights,
            12 => match random.below(2) {
                0 => Self::ActingAs(usize::try_from(random.below(TARGETS as u64)).unwrap()),
                _ => Self::ProxiedAuthorization(1 << random.below(17)),
            },
            13 => Self::TreeDelete,
            14 => Self::PermissiveModify,
            15 => Self::Relax,
            16 => [Self::ManageDsaIt, Self::NoOp][list.count % 2],
            _ => Self::Unknown(list.bytes * list.count.min(1_000)),
        }
    }

    fn smaller(&self) -> Vec<Self> {
        let over = |make: fn(List) -> Self, list: List| list.halves().into_iter().map(make).collect();
        match *self {
            Self::Sort(list) => over(Self::Sort, list),
            Self::View(list) => over(Self::View, list),
            Self::Dereference(list) => over(Self::Dereference, list),
            Self::PreRead(list) => over(Self::PreRead, list),
            Self::PostRead(list) => over(Self::PostRead, list),
            Self::MatchedValues(term, list) => {
                list.halves().into_iter().map(|list| Self::MatchedValues(term, list)).collect()
            }
            Self::Assertion(term, list) => {
                list.halves().into_iter().map(|list| Self::Assertion(term, list)).collect()
            }
            Self::ProxiedAuthorization(bytes) if bytes > 8 => vec![Self::ProxiedAuthorization(bytes / 2)],
            Self::Unknown(bytes) if bytes > 8 => vec![Self::Unknown(bytes / 2)],
            _ => Vec::new(),
        }
    }

    fn control(&self) -> ControlBuf {
        let (oid, value): (&str, Option<Vec<u8>>) = match *self {
            Self::Sort(list) => (oid::SORT_REQUEST, Some(sort_keys(list))),
            Self::View(_) => (oid::VLV_REQUEST, Some(view())),
            Self::Dereference(list) => (oid::DEREF, Some(dereference(list))),
            Self::MatchedValues(term, list) => (oid::MATCHED_VALUES, Some(items(term, list))),
            Self::Assertion(term, list) => {
                (oid::ASSERTION, Some(filter(term, list, false).as_filter().as_ber().to_vec()))
            }
            Self::PreRead(list) => (oid::PRE_READ, Some(strings(&list.texts()))),
            Self::PostRead(list) => (oid::POST_READ, Some(strings(&list.texts()))),
            Self::Paged(size) => (oid::PAGED_RESULTS, Some(paged(size))),
            Self::Sync => (oid::SYNC_REQUEST, Some(vec![0x30, 3, 0x0a, 1, 1])),
            Self::EffectiveRights => (oid::EFFECTIVE_RIGHTS, None),
            Self::ProxiedAuthorization(bytes) => (
                oid::PROXIED_AUTHORIZATION,
                Some(format!("dn:cn={},{SUFFIX}", "a".repeat(bytes)).into_bytes()),
            ),
            Self::ActingAs(entry) => {
                (oid::PROXIED_AUTHORIZATION, Some(format!("dn:{}", target(entry)).into_bytes()))
            }
            Self::TreeDelete => (oid::TREE_DELETE, None),
            Self::PermissiveModify => (oid::PERMISSIVE_MODIFY, None),
            Self::Relax => (oid::RELAX, None),
            Self::ManageDsaIt => (oid::MANAGE_DSA_IT, None),
            Self::NoOp => (oid::NO_OP, None),
            Self::Unknown(bytes) => ("1.2.3.4.5", Some(vec![0; bytes])),
        };
        ControlBuf { oid: oid.to_owned().into(), critical: false, value }
    }
}

fn long_name(parts: List) -> String {
    let parts: Vec<String> = parts.values().iter().map(|value| format!("cn={value}")).collect();
    format!("{},{SUFFIX}", parts.join(","))
}

/// Starts a transaction, adds the values to the entry in so many updates, each another part of them, and ends it.
fn transaction(
    out: &mut Vec<u8>,
    id: MessageId,
    (dn, updates): (&str, usize),
    values: List,
    controls: &[ControlBuf],
) {
    let of_it =
        ControlBuf { oid: oid::TRANSACTION_SPECIFICATION.into(), critical: true, value: Some(Vec::new()) };
    let controls: Vec<ControlBuf> = controls.iter().cloned().chain([of_it]).collect();
    let next = |number: usize| MessageId(id.0 + u32::try_from(number).unwrap());
    client::extended(out, id, oid::START_TRANSACTION, None, &[]);
    let values = values.values();
    let part = values.len().div_ceil(updates);
    let mut parts = values.chunks(part).cycle();
    for number in 0..updates {
        let values: Vec<&str> = parts.next().into_iter().flatten().map(String::as_str).collect();
        let attribute = ClientAttribute { description: "description", values: &values };
        let change = ClientChange { operation: ModifyOperation::Replace, attribute };
        client::modify(out, next(number + 1), dn, &[change], &controls);
    }
    client::extended(out, next(updates + 1), oid::END_TRANSACTION, Some(&[0x30, 2, 4, 0]), &[]);
}

fn sequence(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write::constructed(&mut out, Tag::SEQUENCE, fill);
    out
}

fn strings(list: &[String]) -> Vec<u8> {
    sequence(|out| list.iter().for_each(|text| write::string(out, text)))
}

fn sort_keys(list: List) -> Vec<u8> {
    sequence(|out| {
        for text in list.texts() {
            write::constructed(out, Tag::SEQUENCE, |out| write::string(out, &text));
        }
    })
}

/// The first hundred of what a sort control orders.
fn view() -> Vec<u8> {
    sequence(|out| {
        write::integer(out, Tag::INTEGER, 0);
        write::integer(out, Tag::INTEGER, 99);
        write::constructed(out, Tag::context_constructed(0), |out| {
            write::integer(out, Tag::INTEGER, 1);
            write::integer(out, Tag::INTEGER, 0);
        });
    })
}

fn dereference(list: List) -> Vec<u8> {
    let wanted = list.texts();
    sequence(|out| {
        for attribute in ["member", "seeAlso"] {
            write::constructed(out, Tag::SEQUENCE, |out| {
                write::string(out, attribute);
                write::constructed(out, Tag::SEQUENCE, |out| {
                    wanted.iter().for_each(|name| write::string(out, name));
                });
            });
        }
    })
}

fn paged(size: u32) -> Vec<u8> {
    sequence(|out| {
        write::integer(out, Tag::INTEGER, i64::from(size >> 1));
        write::octets(out, Tag::OCTET_STRING, b"");
    })
}

fn item(term: Term, name: &str) -> String {
    // A name that no filter can hold has been made for another place.
    let name = if name.starts_with(['@', '*']) { "cn" } else { name };
    match term {
        Term::Equal => format!("({name}=user1)"),
        Term::Present => format!("({name}=*)"),
        Term::Substrings => format!("({name}=*a*b*c*d*)"),
        Term::Greater => format!("({name}>=a)"),
        Term::Approximate => format!("({name}~=user)"),
        Term::AnyAttribute => "(:dn:caseIgnoreMatch:=user1)".to_owned(),
        Term::InChain => format!("(member:1.2.840.113556.1.4.1941:=cn={name},{SUFFIX})"),
    }
}

fn filter(term: Term, list: List, nested: bool) -> FilterBuf {
    let items: Vec<String> = list.texts().iter().map(|name| item(term, name)).collect();
    let text = if nested {
        let depth = items.len().min(900);
        format!("{}{}{}", "(!".repeat(depth), items[0], ")".repeat(depth))
    } else {
        format!("(|{})", items.concat())
    };
    FilterBuf::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Filters of one item each, without the OR around them.
fn items(term: Term, list: List) -> Vec<u8> {
    sequence(|out| {
        for name in list.texts() {
            let term = if term == Term::AnyAttribute { Term::Equal } else { term };
            let filter = FilterBuf::parse(&item(term, &name)).unwrap();
            out.extend_from_slice(filter.as_filter().as_ber());
        }
    })
}

fn add(out: &mut Vec<u8>, id: MessageId, dn: &str, attributes: List, values: List, controls: &[ControlBuf]) {
    let (names, values) = (attributes.texts(), values.values());
    let usual: [(&str, &[&str]); 2] = [("objectClass", &["extensibleObject", "person"]), ("sn", &["x"])];
    let mut list: Vec<ClientAttribute<'_, &str>> =
        usual.into_iter().map(|(description, values)| ClientAttribute { description, values }).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    list.push(ClientAttribute { description: "postalAddress", values: &values });
    list.extend(names.iter().map(|name| ClientAttribute { description: name, values: &values[..1] }));
    client::add(out, id, dn, &list, controls);
}

/// Many modifications of one attribute or of many, the first with all values.
fn modify(
    out: &mut Vec<u8>,
    id: MessageId,
    dn: &str,
    modifications: List,
    values: List,
    kind: u8,
    controls: &[ControlBuf],
) {
    let (names, values) = (modifications.texts(), values.values());
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let names_of_entries: Vec<String>;
    let (attribute, values) = match kind {
        0 => ("description", values),
        1 => ("telephoneNumber", values),
        2 => ("userPassword", values),
        3 => {
            names_of_entries = values.iter().map(|value| format!("cn={value},{SUFFIX}")).collect();
            ("seeAlso", names_of_entries.iter().map(String::as_str).collect())
        }
        _ => ("", values),
    };
    let mut list = vec![ClientChange {
        operation: ModifyOperation::Add,
        attribute: ClientAttribute {
            description: if attribute.is_empty() { "description" } else { attribute },
            values: &values[..],
        },
    }];
    // What is there goes and comes again, so that no modification is refused before the last.
    for (n, name) in names.iter().enumerate() {
        let at = n / 2 % values.len();
        let (description, operation) = match (attribute, n % 2) {
            ("", _) => (name.as_str(), ModifyOperation::Add),
            (attribute, 0) => (attribute, ModifyOperation::Delete),
            (attribute, _) => (attribute, ModifyOperation::Add),
        };
        let attribute = ClientAttribute { description, values: &values[at..=at] };
        list.push(ClientChange { operation, attribute });
    }
    client::modify(out, id, dn, &list, controls);
}

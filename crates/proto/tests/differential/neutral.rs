//! A message as every decoder can tell it.

use larix_proto::ber::{Tag, write};
use larix_proto::client::{self, ClientAttribute, ClientChange, Search};
use larix_proto::encode::{self, EntryEncoder};
use larix_proto::{
    ControlBuf, DerefAliases, Filter as BerFilter, LdapResult, MessageId, ModifyOperation, ResponseOp,
    ResultCode, Scope,
};

pub(crate) type Bytes = Vec<u8>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) id: u32,
    pub(crate) op: Op,
    /// OID, criticality, value.
    pub(crate) controls: Vec<(String, bool, Option<Bytes>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    SimpleBind(String, Bytes),
    SaslBind(String, String, Option<Bytes>),
    Unbind,
    Search {
        base: String,
        scope: i64,
        deref: i64,
        size_limit: u32,
        time_limit: u32,
        types_only: bool,
        filter: Filter,
        attributes: Vec<String>,
    },
    Modify(String, Vec<(i64, Attribute)>),
    Add(String, Vec<Attribute>),
    Delete(String),
    ModifyDn(String, String, bool, Option<String>),
    Compare(String, String, Bytes),
    Abandon(u32),
    Extended(String, Option<Bytes>),
    BindResult(Outcome, Option<Bytes>),
    Entry(String, Vec<Attribute>),
    Reference(Vec<String>),
    /// Any response that is only a result, by its application tag number.
    Result(u8, Outcome),
    ExtendedResult(Outcome, Option<String>, Option<Bytes>),
    Intermediate(Option<String>, Option<Bytes>),
}

pub(crate) type Attribute = (String, Vec<Bytes>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) code: u32,
    pub(crate) matched_dn: String,
    pub(crate) diagnostic: String,
    pub(crate) referrals: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    /// Equality, greater or equal, less or equal, approximate: by its tag number.
    Assertion(u8, String, Bytes),
    Present(String),
    /// Pieces with their tag numbers.
    Substrings(String, Vec<(u8, Bytes)>),
    Extensible(Option<String>, Option<String>, Bytes, bool),
}

impl Message {
    /// Whether the peer's definitions have no place for something in here.
    pub(crate) fn is_beyond(&self, peer: &str) -> bool {
        let older = match &self.op {
            // Nested more than 32 deep; RFC 4526's absolute true and false.
            Op::Search { filter, .. } => filter.depth() > 30 || filter.has_empty_set(),
            // An attribute to add must have values, but that is for the server to say.
            Op::Add(_, attributes) => {
                attributes.is_empty() || attributes.iter().any(|(_, values)| values.is_empty())
            }
            Op::Modify(_, changes) => changes.is_empty(),
            Op::Extended(name, _) => !is_oid(name),
            Op::ExtendedResult(_, Some(name), _) | Op::Intermediate(Some(name), _) => !is_oid(name),
            _ => false,
        };
        // It ends a list of controls at the first that it does not like.
        let older = older || self.controls.iter().any(|(oid, ..)| !is_oid(oid));
        let extensions = match &self.op {
            // The subordinate scope is of a draft, increment of RFC 4525; the codes of RFC 4511 are a closed list.
            Op::Search { scope, .. } => *scope == 3,
            Op::Modify(_, changes) => changes.iter().any(|(operation, _)| *operation == 3),
            Op::BindResult(outcome, _) | Op::Result(_, outcome) | Op::ExtendedResult(outcome, ..) => {
                outcome.code > 80 || matches!(outcome.code, 9 | 35 | 60 | 61 | 70 | 76)
            }
            _ => false,
        };
        let referral = match &self.op {
            Op::BindResult(outcome, _) | Op::ExtendedResult(outcome, ..) => !outcome.referrals.is_empty(),
            _ => false,
        };
        match peer {
            // It takes a referral for the end of the result, and what follows it is lost.
            "ldap-parser" => older || referral,
            _ => extensions,
        }
    }

    /// What the peer can report of it.
    pub(crate) fn as_seen_by(&self, peer: &str) -> Self {
        let mut seen = self.clone();
        if peer == "ldap-parser" {
            // It skips referrals.
            if let Op::Result(_, outcome) = &mut seen.op {
                outcome.referrals.clear();
            }
        }
        seen
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        let out = &mut out;
        let id = MessageId(self.id);
        let controls: Vec<_> = self
            .controls
            .iter()
            .map(|(oid, critical, value)| ControlBuf {
                oid: oid.clone().into(),
                critical: *critical,
                value: value.clone(),
            })
            .collect();
        let controls = &controls[..];
        match &self.op {
            Op::SimpleBind(name, password) => client::simple_bind(out, id, name, password, controls),
            Op::SaslBind(name, mechanism, credentials) => {
                client::sasl_bind(out, id, name, mechanism, credentials.as_deref(), controls);
            }
            Op::Unbind => client::unbind(out, id),
            Op::Search { base, scope, deref, size_limit, time_limit, types_only, filter, attributes } => {
                let mut ber = Vec::new();
                filter.encode(&mut ber);
                let scope = [Scope::Base, Scope::OneLevel, Scope::Subtree, Scope::Children][*scope as usize];
                let attributes: Vec<_> = attributes.iter().map(String::as_str).collect();
                let mut search = Search::new(base, scope, BerFilter::decode(&ber, 1000).expect("a filter"));
                search.deref = [
                    DerefAliases::Never,
                    DerefAliases::InSearching,
                    DerefAliases::FindingBase,
                    DerefAliases::Always,
                ][*deref as usize];
                search.size_limit = *size_limit;
                search.time_limit = *time_limit;
                search.types_only = *types_only;
                search.attributes = &attributes;
                client::search(out, id, &search, controls);
            }
            Op::Modify(object, changes) => {
                let operation = |number: i64| {
                    use ModifyOperation::{Add, Delete, Increment, Replace};
                    [Add, Delete, Replace, Increment][number as usize]
                };
                let changes: Vec<_> = changes
                    .iter()
                    .map(|(number, added)| ClientChange {
                        operation: operation(*number),
                        attribute: attribute(added),
                    })
                    .collect();
                client::modify(out, id, object, &changes, controls);
            }
            Op::Add(entry, attributes) => {
                let attributes: Vec<_> = attributes.iter().map(attribute).collect();
                client::add(out, id, entry, &attributes, controls);
            }
            Op::Delete(entry) => client::delete(out, id, entry, controls),
            Op::ModifyDn(entry, new_rdn, delete_old, new_superior) => {
                client::modify_dn(out, id, entry, new_rdn, *delete_old, new_superior.as_deref(), controls);
            }
            Op::Compare(entry, name, value) => client::compare(out, id, entry, name, value, controls),
            Op::Abandon(abandoned) => client::abandon(out, id, MessageId(*abandoned), controls),
            Op::Extended(name, value) => client::extended(out, id, name, value.as_deref(), controls),
            response => encode_response(out, id, response, controls),
        }
        std::mem::take(out)
    }
}

/// Whether the text is a numericoid of RFC 4512; the code that looks the OID up checks that.
fn is_oid(text: &str) -> bool {
    text.split('.').all(|arc| !arc.is_empty() && arc.bytes().all(|byte| byte.is_ascii_digit()))
}

fn encode_response(out: &mut Bytes, id: MessageId, response: &Op, controls: &[ControlBuf]) {
    match response {
        Op::BindResult(outcome, sasl) => {
            encode::bind_result(out, id, &outcome.to_result(), sasl.as_deref(), controls);
        }
        Op::Entry(dn, attributes) => {
            let mut entry = EntryEncoder::begin(out, id, dn);
            for (number, (name, values)) in attributes.iter().enumerate() {
                // Both ways of adding an attribute.
                if number % 2 == 0 {
                    entry.begin_attribute(name);
                    values.iter().for_each(|value| entry.value(value));
                } else {
                    let mut ber = Vec::new();
                    values.iter().for_each(|value| write::octets(&mut ber, Tag::OCTET_STRING, value));
                    entry.attribute(name, &ber);
                }
            }
            entry.finish(controls);
        }
        Op::Reference(urls) => encode::search_reference(out, id, urls, controls),
        Op::Result(number, outcome) => {
            let op = match number {
                5 => ResponseOp::SearchDone,
                7 => ResponseOp::Modify,
                9 => ResponseOp::Add,
                11 => ResponseOp::Delete,
                13 => ResponseOp::ModifyDn,
                _ => ResponseOp::Compare,
            };
            encode::result(out, id, op, &outcome.to_result(), controls);
        }
        Op::ExtendedResult(outcome, name, value) => {
            let result = outcome.to_result();
            encode::extended_result(out, id, &result, name.as_deref(), value.as_deref(), controls);
        }
        Op::Intermediate(name, value) => {
            encode::intermediate(out, id, name.as_deref(), value.as_deref(), controls);
        }
        request => unreachable!("{request:?} is a request"),
    }
}

fn attribute((description, values): &Attribute) -> ClientAttribute<'_, Bytes> {
    ClientAttribute { description, values }
}

impl Outcome {
    fn to_result(&self) -> LdapResult {
        LdapResult {
            code: ResultCode(self.code),
            matched_dn: self.matched_dn.clone(),
            diagnostic: self.diagnostic.clone(),
            referrals: self.referrals.clone(),
        }
    }
}

impl Filter {
    fn depth(&self) -> usize {
        match self {
            Self::And(members) | Self::Or(members) => 1 + members.iter().map(Self::depth).max().unwrap_or(0),
            Self::Not(inner) => 1 + inner.depth(),
            _ => 0,
        }
    }

    fn has_empty_set(&self) -> bool {
        match self {
            Self::And(members) | Self::Or(members) => {
                members.is_empty() || members.iter().any(Self::has_empty_set)
            }
            Self::Not(inner) => inner.has_empty_set(),
            _ => false,
        }
    }

    fn encode(&self, out: &mut Bytes) {
        let string =
            |out: &mut Bytes, tag, text: &str| write::octets(out, Tag::context(tag), text.as_bytes());
        match self {
            Self::And(members) | Self::Or(members) => {
                let tag = Tag::context_constructed(u8::from(matches!(self, Self::Or(_))));
                write::constructed(out, tag, |out| members.iter().for_each(|member| member.encode(out)));
            }
            Self::Not(inner) => write::constructed(out, Tag::context_constructed(2), |out| inner.encode(out)),
            Self::Assertion(number, name, value) => {
                write::constructed(out, Tag::context_constructed(*number), |out| {
                    write::string(out, name);
                    write::octets(out, Tag::OCTET_STRING, value);
                });
            }
            Self::Present(name) => string(out, 7, name),
            Self::Substrings(name, pieces) => write::constructed(out, Tag::context_constructed(4), |out| {
                write::string(out, name);
                write::constructed(out, Tag::SEQUENCE, |out| {
                    for (number, piece) in pieces {
                        write::octets(out, Tag::context(*number), piece);
                    }
                });
            }),
            Self::Extensible(rule, name, value, dn_attributes) => {
                write::constructed(out, Tag::context_constructed(9), |out| {
                    rule.iter().for_each(|rule| string(out, 1, rule));
                    name.iter().for_each(|name| string(out, 2, name));
                    write::octets(out, Tag::context(3), value);
                    if *dn_attributes {
                        write::boolean(out, Tag::context(4), true);
                    }
                });
            }
        }
    }
}

//! As whom the URLs of a group are evaluated: dgIdentity, for those whom dgAuthz names.

use larix_engine::Fault;
use larix_engine::access::{GroupQuery, Subject, posix_regex, regex_steps};
use larix_engine::entry::EntrySource;
use larix_engine::overlay::Failure;
use larix_engine::overlay::computed::ComputedIn;
use larix_engine::overlay::internal_search::{InternalSearch, Whose};
use larix_proto::Scope;
use larix_proto::url::LdapUrl;
use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::numbers::without_number;

/// What an entry says of it.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// `None`: anonymous.
    dn: Option<(NormalDn, String)>,
    /// Who may use it; nobody in particular where there is no dgAuthz.
    authorized: Option<Vec<String>>,
}

/// Steps that it costs to read a value of dgAuthz.
const VALUE_STEPS: u64 = 4;

/// As whom to search.
#[derive(Debug)]
pub(super) enum As<'a> {
    Whose(Whose<'a>),
    Other(Box<Subject>),
    /// The requester may not use the identity: nothing is found.
    Nobody,
}

impl As<'_> {
    pub(super) fn whose(&self) -> Option<Whose<'_>> {
        match self {
            Self::Whose(whose) => Some(*whose),
            Self::Other(subject) => Some(Whose::Requester(subject)),
            Self::Nobody => None,
        }
    }
}

impl Identity {
    pub(super) fn of(schema: &Schema, entry: &dyn EntrySource) -> Result<Option<Self>, Fault> {
        let texts = |name: &str| -> Result<Vec<String>, Fault> {
            let Ok(description) = schema.describe(name) else { return Ok(Vec::new()) };
            texts(entry, &description)
        };
        let Some(first) = texts("dgIdentity")?.into_iter().next() else { return Ok(None) };
        let dn = match first.as_str() {
            "" => None,
            text => match schema.parse_dn(text) {
                Ok(dn) => Some((dn, first)),
                Err(_) => return Ok(None),
            },
        };
        let values = texts("dgAuthz")?.iter().map(|text| without_number(text).to_owned()).collect::<Vec<_>>();
        let authorized = Some(values).filter(|values| !values.is_empty());
        Ok(Some(Self { dn, authorized }))
    }

    /// As whom the requester's question is answered.
    pub(super) fn of_requester<'a>(
        identity: Option<&Self>,
        within: &ComputedIn<'a>,
    ) -> Result<As<'a>, Failure> {
        let (Some(identity), Some(requester)) = (identity, within.requester) else {
            return Ok(As::Whose(within.whose()));
        };
        let Some((dn, shown)) = &identity.dn else {
            let anonymous = Subject::anonymous(requester.peer.clone(), requester.strength);
            return Ok(As::Other(Box::new(anonymous)));
        };
        if let Some(values) = &identity.authorized
            && !within.entries.is_root(requester)
        {
            let mut may = false;
            for value in values {
                may = may || is_authorized(within, requester, value)?;
            }
            if !may {
                return Ok(As::Nobody);
            }
        }
        let anonymous = Subject::anonymous(requester.peer.clone(), requester.strength);
        Ok(As::Other(Box::new(anonymous.bound_as(dn.clone(), shown))))
    }
}

fn texts(entry: &dyn EntrySource, description: &AttributeDescription) -> Result<Vec<String>, Fault> {
    let mut texts = Vec::new();
    entry.visit_exact(description, &mut |value| {
        texts.extend(std::str::from_utf8(value).ok().map(str::to_owned));
        true
    })?;
    Ok(texts)
}

/// Whether a value of dgAuthz (OpenLDAP's authz syntax) names the requester.
fn is_authorized(within: &ComputedIn<'_>, requester: &Subject, value: &str) -> Result<bool, Failure> {
    let Some(dn) = &requester.dn else { return Ok(false) };
    within.entries.charge(VALUE_STEPS)?;
    if value == "*" || value == "dn:*" {
        return Ok(true);
    }
    let schema = within.schema;
    if value.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("ldap:")) {
        let Ok(url) = LdapUrl::parse(value) else { return Ok(false) };
        let Ok(base) = schema.parse_dn(&url.dn) else { return Ok(false) };
        if !url.host.is_empty() || !dn.is_in_scope(&base, url.scope.unwrap_or(Scope::Base)) {
            return Ok(false);
        }
        let Some(filter) = &url.filter else { return Ok(true) };
        let filter = schema.bind_filter(filter.as_filter());
        let query = InternalSearch::new(dn, Scope::Base, &filter);
        return Ok(within.entries.finds_any(&query)?.entries > 0);
    }
    let (head, rest) = value.split_once(':').unwrap_or(("dn", value));
    let mut words = head.split('/');
    let first = words.next().unwrap_or_default().to_ascii_lowercase();
    let named = || schema.parse_dn(rest.trim_start());
    let within_scope = |scope| named().is_ok_and(|base| dn.is_in_scope(&base, scope));
    Ok(match first.as_str() {
        "dn" | "dn.exact" | "dn.base" => named().is_ok_and(|named| named == *dn),
        "dn.one" | "dn.onelevel" => within_scope(Scope::OneLevel),
        "dn.sub" | "dn.subtree" => within_scope(Scope::Subtree),
        "dn.children" => within_scope(Scope::Children),
        "dn.regex" => {
            within.entries.charge(regex_steps(rest))?;
            posix_regex(rest, true).is_ok_and(|pattern| pattern.is_match(dn.as_str()))
        }
        "group" => {
            let class = words.next().unwrap_or("groupOfNames");
            let attribute = words.next().unwrap_or("member");
            match (schema.object_class_id(class), schema.describe(attribute), named()) {
                (Some(class), Ok(attribute), Ok(group)) => {
                    let query = GroupQuery { group: &group, class, attribute: &attribute };
                    within.entries.is_member(&query, dn)?
                }
                _ => false,
            }
        }
        _ => false,
    })
}

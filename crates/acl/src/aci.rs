//! `aci`: rights that stand in the entries themselves, as values of OpenLDAPaci (`OID#SCOPE#RIGHTS#TYPE#SUBJECT`).
//!
//! The entry's own values with scope `entry` or `subtree` are asked first; if none of them speaks, those of the entries
//! above with scope `children` or `subtree`, from below, as far as the first that does.

use std::cell::Cell;

use larix_schema::{AttributeDescription, NormalDn};

use super::ask::Ask;
use super::expand::{Captures, Template};
use super::facts::value_steps;
use super::item::ItemKind;
use super::lookup::Lookup;
use super::privilege::Privileges;
use super::query::GroupQuery;
use super::sets::Set;

/// What it costs to read an ACI, for each step that looking at the value costs.
const ACI_STEPS: u64 = 8;

/// What entries grant and deny.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) granted: Privileges,
    pub(super) denied: Privileges,
}

impl Rights {
    fn is_empty(self) -> bool {
        self.granted.is_empty() && self.denied.is_empty()
    }

    fn with(self, other: Self) -> Self {
        Self { granted: self.granted.with(other.granted), denied: self.denied.with(other.denied) }
    }
}

/// Evaluates the values of one attribute for one question.
pub(super) struct Aci<'a, 'c, 't> {
    pub(super) ask: &'a Ask<'a>,
    pub(super) lookup: Lookup<'a>,
    pub(super) captures: Option<&'c Captures<'t>>,
}

impl Aci<'_, '_, '_> {
    pub(super) fn rights(&self, attribute: &AttributeDescription) -> Rights {
        let own = self.lookup.target.dn;
        let mut rights = self.of_entry(own, attribute, ["entry", "subtree"]).unwrap_or_default();
        let mut above = own.parent();
        while rights.is_empty()
            && let Some(dn) = above.filter(|dn| !dn.is_root())
        {
            match self.of_entry(&dn, attribute, ["children", "subtree"]) {
                Some(found) => rights = found,
                None => break,
            }
            above = dn.parent();
        }
        rights
    }

    /// What the values of one entry say together; `None` where there is no such entry.
    fn of_entry(&self, dn: &NormalDn, attribute: &AttributeDescription, scopes: [&str; 2]) -> Option<Rights> {
        let mut values = Vec::new();
        let found = self.lookup.with_entry(dn, &mut |entry| {
            entry.visit_exact(attribute, &mut |value| {
                values.extend(std::str::from_utf8(value).ok().map(str::to_owned));
                self.lookup.charge(ACI_STEPS * value_steps(value))
            });
        });
        let rights = values.iter().filter_map(|value| self.of_value(value, scopes));
        found.then(|| rights.fold(Rights::default(), Rights::with))
    }

    fn of_value(&self, value: &str, scopes: [&str; 2]) -> Option<Rights> {
        let mut parts = value.splitn(5, '#');
        let mut part = || parts.next();
        let (_, scope, rights, kind, subject) = (part()?, part()?, part()?, part()?, part()?);
        if !scopes.iter().any(|wanted| wanted.eq_ignore_ascii_case(scope)) {
            return None;
        }
        let rights = self.applicable(rights);
        (!rights.is_empty() && self.is_subject(kind, subject)).then_some(rights)
    }

    /// The rights of all actions that are about the item asked for.
    fn applicable(&self, actions: &str) -> Rights {
        let mut rights = Rights::default();
        for action in actions.split('$') {
            let mut parts = action.split(';');
            let kind = parts.next().unwrap_or_default();
            let mut set = Privileges::NONE;
            while let (Some(permissions), Some(attributes)) = (parts.next(), parts.next()) {
                if self.names_item(attributes) {
                    set = set.with(privileges(permissions));
                }
            }
            match kind {
                "grant" => rights.granted = rights.granted.with(set),
                "deny" => rights.denied = rights.denied.with(set),
                _ => {}
            }
        }
        rights
    }

    fn names_item(&self, attributes: &str) -> bool {
        attributes.split(',').map(str::trim).any(|name| match (name, self.ask.item) {
            ("[all]", _) | ("entry", Some(ItemKind::Entry)) | ("children", Some(ItemKind::Children)) => true,
            (_, Some(ItemKind::Attribute(description))) => self.names_attribute(name, description),
            _ => false,
        })
    }

    /// Options of the attribute asked for do not matter; subtypes are others.
    fn names_attribute(&self, name: &str, description: &AttributeDescription) -> bool {
        let schema = &self.lookup.policy.schema;
        let named = schema.describe(name).ok();
        named.is_some_and(|named| named.attribute == description.attribute && named.options().is_empty())
    }

    fn is_subject(&self, kind: &str, subject: &str) -> bool {
        if kind == "public" {
            return true;
        }
        let Some(own) = &self.ask.subject.dn else { return false };
        let schema = &self.lookup.policy.schema;
        let named = || schema.parse_dn(subject).ok();
        let (kind, options) = kind.split_once('/').unwrap_or((kind, ""));
        match kind {
            "users" => true,
            "access-id" => named().is_some_and(|dn| *own == dn),
            "subtree" => named().is_some_and(|dn| own.is_within(&dn)),
            "children" => named().is_some_and(|dn| own.is_descendant_of(&dn)),
            // The requester is the parent of the named entry: what slapd does, whatever was meant.
            "onelevel" => named().and_then(|dn| dn.parent()).is_some_and(|parent| parent == *own),
            "self" => own == self.lookup.target.dn,
            "dnattr" => schema
                .describe(subject)
                .is_ok_and(|attribute| self.lookup.target.entry.has_dn(schema, &attribute, own)),
            "group" => self.is_in_group(subject, options, ("groupOfNames", "member"), own),
            "role" => self.is_in_group(subject, options, ("organizationalRole", "roleOccupant"), own),
            "set" => self.is_in_set(subject),
            "set-ref" => self.is_in_referred_set(subject),
            _ => false,
        }
    }

    fn is_in_group(&self, group: &str, options: &str, defaults: (&str, &str), own: &NormalDn) -> bool {
        let schema = &self.lookup.policy.schema;
        let mut options = options.split('/').filter(|option| !option.is_empty());
        let class = schema.object_class_id(options.next().unwrap_or(defaults.0));
        let attribute = schema.describe(options.next().unwrap_or(defaults.1));
        let template = Template::parse(group);
        let name = match (template.literal(), self.captures) {
            (Some(name), _) => Some(name.to_owned()),
            (None, Some(captures)) => template.expand(captures, str::to_owned),
            (None, None) => None,
        };
        let (Some(class), Ok(attribute), Some(name)) = (class, attribute, name) else { return false };
        let Ok(group) = schema.parse_dn(&name) else { return false };
        self.lookup.is_member(&GroupQuery { group: &group, class, attribute: &attribute }, own)
    }

    fn is_in_set(&self, text: &str) -> bool {
        let set = Set::parse(&self.lookup.policy.schema, text);
        set.is_ok_and(|set| self.lookup.is_set(&set, self.ask.subject.dn.as_ref()))
    }

    /// `entry` or `entry/attribute`: the set is that attribute's value, of `template` unless said.
    fn is_in_referred_set(&self, subject: &str) -> bool {
        let (entry, attribute) = subject.split_once('/').unwrap_or((subject, "template"));
        let schema = &self.lookup.policy.schema;
        let (Ok(dn), Ok(attribute)) = (schema.parse_dn(entry), schema.describe(attribute)) else {
            return false;
        };
        let text = Cell::new(None);
        self.lookup.with_entry(&dn, &mut |entry| {
            entry.visit_exact(&attribute, &mut |value| {
                text.set(std::str::from_utf8(value).ok().map(str::to_owned));
                false
            });
        });
        text.into_inner().is_some_and(|text| self.is_in_set(&text))
    }
}

fn privileges(permissions: &str) -> Privileges {
    let of = |permission: &str| match permission.trim().as_bytes().first() {
        Some(b'x') => Privileges::AUTH,
        Some(b'd') => Privileges::DISCLOSE,
        Some(b'c') => Privileges::COMPARE,
        Some(b's') => Privileges::SEARCH,
        Some(b'r') => Privileges::READ,
        Some(b'w') => Privileges::WRITE,
        _ => Privileges::NONE,
    };
    permissions.split(',').map(of).fold(Privileges::NONE, Privileges::with)
}

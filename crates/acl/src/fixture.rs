//! A small directory for the tests of access control.

use std::cell::Cell;
use std::sync::Arc;

use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, Schema, SchemaBuilder, Scratch};

use super::*;

pub(super) const BOB: &str = "uid=bob,ou=people,dc=example,dc=com";
pub(super) const ANN: &str = "uid=ann,ou=people,dc=example,dc=com";
pub(super) const STAFF: &str = "cn=staff,dc=example,dc=com";
pub(super) const ADMIN: &str = "cn=admin,dc=example,dc=com";

pub(super) const LDIF: &str = "\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: uid=ann,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: ann
cn: Ann
cn;lang-en: Anne
sn: A
title: engineer
userPassword: secret
manager: uid=bob,ou=people,dc=example,dc=com

dn: uid=bob,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
userPassword: secret

dn: ou=book,uid=ann,ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: book

dn: cn=staff,dc=example,dc=com
objectClass: groupOfNames
cn: staff
member: uid=bob,ou=people,dc=example,dc=com

dn: cn=all,dc=example,dc=com
objectClass: groupOfNames
cn: all
owner: uid=ann,ou=people,dc=example,dc=com
member: cn=staff,dc=example,dc=com
member: cn=all,dc=example,dc=com

dn: cn=found,dc=example,dc=com
objectClass: groupOfURLs
cn: found
memberURL: ldap:///ou=people,dc=example,dc=com??one?(sn=B)
memberURL: ldap:///ou=people,dc=example,dc=com??sub
";

pub(super) fn schema() -> Arc<Schema> {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "dyngroup"] {
        builder.add_bundled(name).expect(name);
    }
    Arc::new(builder.build())
}

#[derive(Debug)]
pub(super) struct Fixture {
    pub(super) schema: Arc<Schema>,
    pub(super) entries: Vec<FixtureEntry>,
    /// What all checks together may still take.
    pub(super) steps: Cell<u64>,
}

#[derive(Debug)]
pub(super) struct FixtureEntry {
    pub(super) dn: NormalDn,
    attributes: Vec<(AttributeDescription, Vec<u8>)>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let schema = schema();
        let entries = LDIF.split("\n\n").map(|record| entry(&schema, record)).collect();
        Self { schema, entries, steps: Cell::new(u64::MAX) }
    }

    pub(super) fn policy(&self, rules: &str) -> AccessPolicy {
        let rules: Vec<AccessRule> = rules
            .lines()
            .map(|line| AccessRule::parse(line).unwrap_or_else(|error| panic!("{line}: {error}")))
            .collect();
        AccessPolicy::new(Arc::clone(&self.schema), Some(self.dn(ADMIN)), &rules, &[])
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn dn(&self, text: &str) -> NormalDn {
        self.schema.parse_dn(text).expect(text)
    }

    pub(super) fn describe(&self, name: &str) -> AttributeDescription {
        self.schema.describe(name).expect(name)
    }

    /// The connection the tests come from.
    pub(super) fn subject(&self, dn: &str) -> Subject {
        let peer = PeerNames {
            peer_name: "IP=192.0.2.7:4711".to_owned(),
            sock_name: "IP=192.0.2.1:389".to_owned(),
            sock_url: "ldap://:389/".to_owned(),
            ..PeerNames::default()
        };
        let strength = Strength { overall: 56, transport: 56, tls: 0, sasl: 0 };
        Subject::anonymous(peer.into(), strength).bound_as(self.dn(dn), dn)
    }

    pub(super) fn find(&self, dn: &NormalDn) -> Option<&FixtureEntry> {
        self.entries.iter().find(|entry| entry.dn == *dn)
    }

    pub(super) fn add_values(&mut self, dn: &str, attribute: &str, values: &[&str]) {
        let (dn, description) = (self.dn(dn), self.describe(attribute));
        let entry = self.entries.iter_mut().find(|entry| entry.dn == dn).expect("an entry");
        let values = values.iter().map(|value| (description.clone(), value.as_bytes().to_vec()));
        entry.attributes.extend(values);
    }

    pub(super) fn facts<'a>(&'a self, entry: &'a FixtureEntry) -> FixtureFacts<'a> {
        FixtureFacts { fixture: self, entry }
    }
}

fn entry(schema: &Schema, record: &str) -> FixtureEntry {
    let mut lines = record.lines().map(|line| line.split_once(": ").expect(line));
    let (_, dn) = lines.next().expect("a DN");
    FixtureEntry {
        dn: schema.parse_dn(dn).expect(dn),
        attributes: lines
            .map(|(name, value)| (schema.describe(name).expect(name), value.as_bytes().to_vec()))
            .collect(),
    }
}

#[derive(Debug)]
pub(super) struct FixtureFacts<'a> {
    fixture: &'a Fixture,
    entry: &'a FixtureEntry,
}

impl EntryFacts for FixtureFacts<'_> {
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        for (description, value) in &self.entry.attributes {
            let covered =
                description == attribute || description.is_subdescription_of(&self.fixture.schema, attribute);
            if covered && !visit(value) {
                return;
            }
        }
    }

    fn matches(&self, filter: &BoundFilter) -> Match {
        let any = |attribute: &AttributeDescription, test: &mut dyn FnMut(&[u8]) -> bool| {
            let mut found = false;
            self.visit(attribute, &mut |value| {
                found |= test(value);
                !found
            });
            if found { Match::True } else { Match::False }
        };
        match filter {
            BoundFilter::True => Match::True,
            BoundFilter::False => Match::False,
            BoundFilter::And(all) => {
                all.iter().fold(Match::True, |so_far, next| so_far.and(self.matches(next)))
            }
            BoundFilter::Or(some) => {
                some.iter().fold(Match::False, |so_far, next| so_far.or(self.matches(next)))
            }
            BoundFilter::Present(attribute) => any(attribute, &mut |_| true),
            BoundFilter::Equality(assertion) => any(&assertion.description, &mut |value| {
                assertion.matches(&self.fixture.schema, value, &mut Scratch::default()) == Match::True
            }),
            _ => Match::Undefined,
        }
    }

    fn charge(&self, steps: u64) -> bool {
        let left = self.steps_left();
        self.fixture.steps.set(left.saturating_sub(steps));
        steps <= left
    }

    fn steps_left(&self) -> u64 {
        self.fixture.steps.get()
    }

    fn with_entry(&self, dn: &NormalDn, read: &mut dyn FnMut(&dyn EntryFacts)) -> Reach {
        match self.fixture.find(dn) {
            Some(entry) => {
                read(&self.fixture.facts(entry));
                Reach::Found
            }
            None => Reach::Absent { suffix_depth: 2 },
        }
    }

    fn search(
        &self,
        search: &EntrySearch<'_>,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Reach {
        let filter = search.filter.map(|filter| self.fixture.schema.bind_filter(filter));
        for entry in self.fixture.entries.iter().filter(|entry| entry.dn.is_within(search.base)) {
            let facts = self.fixture.facts(entry);
            if filter.as_ref().is_some_and(|filter| facts.matches(filter) != Match::True) {
                continue;
            }
            for attribute in search.wanted {
                if attribute.to_text(&self.fixture.schema) == "entryDN" {
                    visit(attribute, entry.dn.as_str().as_bytes());
                }
                facts.visit_exact(attribute, &mut |value| visit(attribute, value));
            }
        }
        Reach::Found
    }

    fn visit_exact(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        for (description, value) in &self.entry.attributes {
            if description == attribute && !visit(value) {
                return;
            }
        }
    }
}

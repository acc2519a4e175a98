//! Random changes of people, containers and groups, beside a model that evaluates every URL for every person.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, SUFFIX, ruled_with};

const CLASSES: &str = "attributetype ( 1.2.3.4.1 NAME 'findsURL' SUP labeledURI )\n\
    objectclass ( 1.2.3.4.2 NAME 'findingGroup' SUP top STRUCTURAL MUST cn MAY ( findsURL $ member $ ou ) )";

/// Changes of each seed.
const CHANGES: usize = 250;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// A container; the second one is below the first.
struct Container {
    name: String,
    above: Option<usize>,
}

struct Person {
    name: String,
    container: usize,
    sn: usize,
    title: bool,
    managers: BTreeSet<usize>,
}

#[derive(Clone)]
struct Url {
    base: String,
    scope: &'static str,
    /// Of `sn`, and whether there has to be a title.
    sn: [usize; 2],
    titled: bool,
    not: bool,
    of_managers: bool,
}

struct Group {
    name: String,
    container: usize,
    urls: Vec<Url>,
}

struct Model {
    random: Random,
    containers: Vec<Container>,
    people: Vec<Person>,
    groups: Vec<Group>,
    next: usize,
}

impl Url {
    fn text(&self) -> String {
        let sn = format!("(|(sn={})(sn={}))", self.sn[0], self.sn[1]);
        let sn = match (self.not, self.sn[0] == self.sn[1]) {
            (true, _) => format!("(!{sn})"),
            (false, true) => format!("(sn={})", self.sn[0]),
            (false, false) => sn,
        };
        let title = if self.titled { "(title=*)" } else { "" };
        let attribute = if self.of_managers { "manager" } else { "" };
        let filter = format!("(&(objectClass=inetOrgPerson){sn}{title})");
        format!("ldap:///{}?{attribute}?{}?{filter}", self.base, self.scope)
    }

    fn finds(&self, dn: &str, person: &Person) -> bool {
        let (dn, base) = (dn.to_lowercase(), self.base.to_lowercase());
        let above = dn.split_once(',').unwrap().1;
        let in_scope = match self.scope {
            "base" => dn == base,
            "one" => above == base,
            _ => dn == base || dn.ends_with(&format!(",{base}")),
        };
        in_scope && self.sn.contains(&person.sn) != self.not && (person.title || !self.titled)
    }
}

impl Model {
    fn container(&self, at: usize) -> String {
        let container = &self.containers[at];
        let above = container.above.map_or_else(|| SUFFIX.to_owned(), |above| self.container(above));
        format!("ou={},{above}", container.name)
    }

    fn dn(&self, person: &Person) -> String {
        format!("cn={},{}", person.name, self.container(person.container))
    }

    fn group_dn(&self, group: &Group) -> String {
        format!("cn={},{}", group.name, self.container(group.container))
    }

    fn name(&mut self, letter: char) -> String {
        self.next += 1;
        format!("{letter}{}", self.next)
    }

    fn url(&mut self) -> Url {
        let of_container = self.random.below(self.containers.len());
        let base = if self.random.chance(2) { SUFFIX.to_owned() } else { self.container(of_container) };
        let scope = ["sub", "sub", "one"][self.random.below(3)];
        let first = self.random.below(4);
        let second = if self.random.chance(2) { first } else { self.random.below(4) };
        let (titled, not) = (self.random.chance(3), self.random.chance(4));
        Url { base, scope, sn: [first, second], titled, not, of_managers: self.random.chance(4) }
    }

    fn urls(&mut self) -> Vec<Url> {
        let mut urls: Vec<Url> = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            let url = self.url();
            if urls.iter().all(|other| other.text() != url.text()) {
                urls.push(url);
            }
        }
        urls
    }

    fn manager(number: usize) -> String {
        format!("cn=m{number},{SUFFIX}")
    }

    /// One change as LDIF, made in the model.
    fn change(&mut self) -> String {
        let kind = self.random.below(12);
        if kind < 2 || self.people.len() < 4 {
            let (sn, container) = (self.random.below(4), self.random.below(self.containers.len()));
            let managers = (0..self.random.below(3)).map(|_| self.random.below(3)).collect();
            let name = self.name('p');
            let person = Person { name, container, sn, title: self.random.chance(2), managers };
            let mut ldif = format!(
                "dn: {}\nchangetype: add\nobjectClass: inetOrgPerson\ncn: {}\nsn: {sn}\n",
                self.dn(&person),
                person.name
            );
            if person.title {
                ldif += "title: t\n";
            }
            for manager in &person.managers {
                writeln!(ldif, "manager: {}", Self::manager(*manager)).unwrap();
            }
            self.people.push(person);
            return ldif;
        }
        let at = self.random.below(self.people.len());
        let dn = self.dn(&self.people[at]);
        match kind {
            2 => {
                self.people.remove(at);
                format!("dn: {dn}\nchangetype: delete\n")
            }
            3 => {
                self.people[at].sn = self.random.below(4);
                format!("dn: {dn}\nchangetype: modify\nreplace: sn\nsn: {}\n", self.people[at].sn)
            }
            4 => {
                self.people[at].title = self.random.chance(2);
                let value = if self.people[at].title { "title: t\n" } else { "" };
                format!("dn: {dn}\nchangetype: modify\nreplace: title\n{value}")
            }
            5 => {
                let managers: BTreeSet<usize> =
                    (0..self.random.below(3)).map(|_| self.random.below(3)).collect();
                let values: String =
                    managers.iter().map(|one| format!("manager: {}\n", Self::manager(*one))).collect();
                self.people[at].managers = managers;
                format!("dn: {dn}\nchangetype: modify\nreplace: manager\n{values}")
            }
            6 => {
                let name = self.name('p');
                let container = self.random.below(self.containers.len());
                (self.people[at].name, self.people[at].container) = (name.clone(), container);
                let above = self.container(container);
                format!(
                    "dn: {dn}\nchangetype: modrdn\nnewrdn: cn={name}\ndeleteoldrdn: 1\nnewsuperior: {above}\n"
                )
            }
            // A container is renamed, with all that is below it.
            7 => {
                let at = self.random.below(self.containers.len());
                let (dn, name) = (self.container(at), self.name('o'));
                self.containers[at].name.clone_from(&name);
                format!("dn: {dn}\nchangetype: modrdn\nnewrdn: ou={name}\ndeleteoldrdn: 1\n")
            }
            8 if self.groups.len() < 8 => {
                let (name, urls) = (self.name('g'), self.urls());
                let group = Group { name, container: self.random.below(self.containers.len()), urls };
                let mut ldif = format!(
                    "dn: {}\nchangetype: add\nobjectClass: findingGroup\ncn: {}\n",
                    self.group_dn(&group),
                    group.name
                );
                group.urls.iter().for_each(|url| writeln!(ldif, "findsURL: {}", url.text()).unwrap());
                self.groups.push(group);
                ldif
            }
            _ if self.groups.is_empty() => {
                format!("dn: {dn}\nchangetype: modify\nreplace: description\ndescription: x\n")
            }
            8 | 9 => {
                let at = self.random.below(self.groups.len());
                let dn = self.group_dn(&self.groups[at]);
                let urls = self.urls();
                let values: String = urls.iter().map(|url| format!("findsURL: {}\n", url.text())).collect();
                self.groups[at].urls = urls;
                format!("dn: {dn}\nchangetype: modify\nreplace: findsURL\n{values}")
            }
            10 => {
                let at = self.random.below(self.groups.len());
                let (dn, name) = (self.group_dn(&self.groups[at]), self.name('g'));
                self.groups[at].name.clone_from(&name);
                format!("dn: {dn}\nchangetype: modrdn\nnewrdn: cn={name}\ndeleteoldrdn: 1\n")
            }
            _ => {
                let group = self.groups.remove(self.random.below(self.groups.len()));
                format!("dn: {}\nchangetype: delete\n", self.group_dn(&group))
            }
        }
    }

    fn members(&self, group: &Group) -> BTreeSet<String> {
        let mut members = BTreeSet::new();
        for person in &self.people {
            let dn = self.dn(person);
            for url in group.urls.iter().filter(|url| url.finds(&dn, person)) {
                match url.of_managers {
                    true => members.extend(person.managers.iter().map(|one| Self::manager(*one))),
                    false => drop(members.insert(dn.clone())),
                }
            }
        }
        members
    }

    fn check(&self, fixture: &Fixture<MemoryStore>, what: &str) {
        let member = fixture.schema.describe("member").unwrap();
        for group in &self.groups {
            let entry = fixture.entry(&self.group_dn(group)).unwrap();
            let values = entry.attribute(&member).map_or(&[][..], |attribute| &attribute.values);
            let found: BTreeSet<String> =
                values.iter().map(|value| String::from_utf8(value.clone()).unwrap()).collect();
            let urls: Vec<String> = group.urls.iter().map(Url::text).collect();
            assert_eq!(found, self.members(group), "{what}: {} {urls:?}", group.name);
        }
    }
}

#[test]
fn members_are_those_of_the_model() {
    let seeds = std::env::var("LARIX_AUTOGROUP_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    for seed in 1..=seeds {
        let fixture =
            ruled_with(CLASSES, &[(&DESCRIPTOR, "autogroup-attrset findingGroup findsURL member")], &[]);
        fixture.apply(&format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n"));
        let mut model = Model {
            random: Random(seed),
            containers: Vec::new(),
            people: Vec::new(),
            groups: Vec::new(),
            next: 0,
        };
        for (name, above) in [("a", None), ("b", Some(0)), ("c", None)] {
            model.containers.push(Container { name: name.to_owned(), above });
            let dn = model.container(model.containers.len() - 1);
            fixture.apply(&format!("dn: {dn}\nobjectClass: organizationalUnit\nou: {name}\n"));
        }
        for number in 0..CHANGES {
            let ldif = model.change();
            let outcome = fixture.change(&ldif);
            assert_eq!(outcome, "0", "seed {seed}, change {number}: {ldif}");
            model.check(&fixture, &format!("seed {seed}, change {number}: {ldif}"));
        }
    }
}

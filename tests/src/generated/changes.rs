//! Random changes of a small tree.

use super::Random;

/// Attributes, each with values to choose from; `@DN@` stands for some entry's name.
pub(super) type Attributes = &'static [(&'static str, &'static [&'static str])];

/// What changes are made of.
pub(super) struct Vocabulary {
    /// What people have beside names.
    pub(super) of_people: Attributes,
    /// Classes of groups, with the attributes that one must have and those that it may have.
    pub(super) groups: &'static [(&'static str, Attributes)],
    /// Controls, each with a space before it.
    pub(super) controls: &'static [&'static str],
}

/// A tree as it is when all changes succeed, near enough to ask for what is there.
pub(super) struct Changes<'r> {
    random: &'r mut Random,
    vocabulary: &'static Vocabulary,
    people: Vec<String>,
    groups: Vec<(String, Attributes)>,
}

const PEOPLE: [&str; 6] = ["cn=a", "cn=b", "cn=c", "cn=d", "cn=e", "cn=f"];
const GROUPS: [&str; 4] = ["cn=g", "cn=h", "cn=i", "cn=j"];
const PLACES: [&str; 3] = ["ou=people,@S@", "ou=other,@S@", "ou=groups,@S@"];

impl<'r> Changes<'r> {
    pub(super) fn new(random: &'r mut Random, vocabulary: &'static Vocabulary) -> Self {
        Self { random, vocabulary, people: Vec::new(), groups: Vec::new() }
    }

    /// First some entries, then `count` steps of all kinds; `read` makes those in a hundred that only ask.
    pub(super) fn steps(
        mut self,
        count: usize,
        reads: usize,
        read: fn(&mut Random) -> String,
    ) -> Vec<String> {
        let mut steps = Vec::new();
        for _ in 0..4 {
            steps.push(self.add_person(15));
        }
        for _ in self.vocabulary.groups {
            steps.push(self.add_group());
        }
        for _ in 0..count {
            if self.people.is_empty() {
                // All were renamed to one name, and that is deleted.
                steps.push(self.add_person(35));
                continue;
            }
            if self.random.percent(reads) {
                let text = read(self.random);
                steps.push(fill(self.random, &text));
                continue;
            }
            if self.random.percent(4) {
                // There and back again, so that the names of what follows exist.
                steps.push("modrdn \"ou=other,@S@\" \"ou=moved\" delete\n".to_owned());
                steps.push("modrdn \"ou=moved,@S@\" \"ou=other\" delete\n".to_owned());
            }
            let step = match self.random.below(100) {
                0..15 => self.add_person(35),
                15..25 if !self.vocabulary.groups.is_empty() => self.add_group(),
                25..70 => self.modify(),
                70..85 => self.rename(),
                _ => self.delete(),
            };
            steps.push(step);
        }
        steps
    }

    fn control(&mut self) -> String {
        match self.random.percent(12) && !self.vocabulary.controls.is_empty() {
            true => format!(" with {}", self.random.pick(self.vocabulary.controls)),
            false => String::new(),
        }
    }

    /// `chance`: how many of a hundred attributes it has.
    fn add_person(&mut self, chance: usize) -> String {
        let rdn = self.random.pick(&PEOPLE);
        let place = if self.random.percent(70) { PLACES[0] } else { PLACES[1] };
        let dn = format!("{rdn},{place}");
        let name = rdn.trim_start_matches("cn=");
        let mut text = format!(
            "add \"{dn}\"{}\n  objectClass: inetOrgPerson\n  cn: {name}\n  sn: {name}\n",
            self.control()
        );
        for (attribute, values) in self.vocabulary.of_people {
            if self.random.percent(chance) {
                text += &self.lines(attribute, values);
            }
        }
        if !self.people.contains(&dn) {
            self.people.push(dn);
        }
        text
    }

    fn add_group(&mut self) -> String {
        let (class, attributes) = self.vocabulary.groups[self.random.below(self.vocabulary.groups.len())];
        let dn = format!("{},{}", self.random.pick(&GROUPS), PLACES[2]);
        let name = dn.get(3..4).unwrap_or_default();
        let mut text = format!("add \"{dn}\"{}\n  objectClass: {class}\n  cn: {name}\n", self.control());
        for (number, (attribute, values)) in attributes.iter().enumerate() {
            if number == 0 || self.random.percent(40) {
                text += &self.lines(attribute, values);
            }
        }
        if self.groups.iter().all(|(known, _)| *known != dn) {
            self.groups.push((dn, attributes));
        }
        text
    }

    /// One or two different values, a line each.
    fn lines(&mut self, attribute: &str, values: &[&str]) -> String {
        let values = self.values(values, 1);
        values.iter().map(|value| format!("  {attribute}: {value}\n")).collect()
    }

    /// Between `least` and two values.
    fn values(&mut self, from: &[&str], least: usize) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        let count = least + self.random.below(3 - least);
        for _ in 0..count {
            let value = self.random.pick(from);
            let value = fill(self.random, value);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    fn modify(&mut self) -> String {
        let groups = self.groups.len();
        let (dn, attributes) = match self.random.below(self.people.len() + groups) {
            number if number < groups => self.groups[number].clone(),
            number => (self.people[number - groups].clone(), self.vocabulary.of_people),
        };
        let mut text = format!("modify \"{dn}\"{}\n", self.control());
        for _ in 0..=self.random.below(2) {
            let (attribute, values) = attributes[self.random.below(attributes.len())];
            let (verb, least) = [("add", 1), ("add", 1), ("replace", 0), ("delete", 0)][self.random.below(4)];
            let values = self.values(values, least);
            text += &match values.as_slice() {
                [] => format!("  {verb} {attribute}\n"),
                values => format!("  {verb} {attribute}: {}\n", values.join(" | ")),
            };
        }
        text
    }

    fn rename(&mut self) -> String {
        let from = self.some_entry();
        let is_group = self.groups.iter().any(|(dn, _)| *dn == from);
        let names = if is_group { &GROUPS[..] } else { &PEOPLE[..] };
        let rdn = match self.random.percent(10) && !is_group {
            true => {
                let (attribute, values) =
                    self.vocabulary.of_people[self.random.below(self.vocabulary.of_people.len())];
                let value = self.random.pick(values);
                format!("{attribute}={}", escaped(&fill(self.random, value)))
            }
            false => self.random.pick(names).to_owned(),
        };
        let old = if self.random.percent(70) { "delete" } else { "keep" };
        let parent = from.split_once(',').map_or("", |(_, parent)| parent).to_owned();
        let superior = self.random.percent(30).then(|| self.random.pick(&PLACES).to_owned());
        let text = match &superior {
            Some(superior) => format!("modrdn \"{from}\" \"{rdn}\" {old} \"{superior}\"\n"),
            None => format!("modrdn \"{from}\" \"{rdn}\" {old}\n"),
        };
        let to = format!("{rdn},{}", superior.unwrap_or(parent));
        for known in self.people.iter_mut().chain(self.groups.iter_mut().map(|(dn, _)| dn)) {
            if *known == from {
                known.clone_from(&to);
            }
        }
        text
    }

    fn delete(&mut self) -> String {
        let dn = self.some_entry();
        if self.people.len() > 2 {
            self.people.retain(|known| *known != dn);
        }
        if self.groups.len() > 1 {
            self.groups.retain(|(known, _)| *known != dn);
        }
        format!("delete \"{dn}\"\n")
    }

    fn some_entry(&mut self) -> String {
        let count = self.people.len() + self.groups.len();
        let number = self.random.below(count);
        match self.people.get(number) {
            Some(dn) => dn.clone(),
            None => self.groups[number - self.people.len()].0.clone(),
        }
    }
}

/// A value as it stands in an RDN.
fn escaped(value: &str) -> String {
    value.replace(',', "\\,").replace('+', "\\+")
}

/// Puts a name in the place of `@DN@`.
pub(super) fn fill(random: &mut Random, text: &str) -> String {
    let mut text = text.to_owned();
    while text.contains("@DN@") {
        let dn = match random.below(10) {
            0..7 => format!("{},{}", random.pick(&PEOPLE), PLACES[random.below(2)]),
            7..9 => format!("{},{}", random.pick(&GROUPS), PLACES[2]),
            _ => PLACES[random.below(3)].to_owned(),
        };
        text = text.replacen("@DN@", &dn, 1);
    }
    text
}

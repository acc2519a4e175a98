//! Writing the entries of a template.

use std::fmt::Write as _;
use std::io::{self, Write};

use larix_proto::dn::write_escaped;
use larix_proto::ldif::Writer;

use super::tag::Segment;
use super::{Below, Line, Template};
use crate::generate::{Random, names};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// What is handed on at once.
const CHUNK: usize = 256 << 10;

impl Template {
    /// Writes the directory as LDIF, parents first; a seed gives the same bytes each time.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_ldif(&self, seed: u64, out: &mut impl Write) -> io::Result<()> {
        let mut run = Run {
            template: self,
            random: Random::new(seed),
            counters: self.starts.clone(),
            ldif: Writer::default(),
            buffer: Vec::with_capacity(CHUNK * 2),
            out,
        };
        debug_assert_eq!(run.counters.len(), self.counters);
        for branch in &self.branches {
            let entry = Entry { dn: branch.dn.clone(), rdn: String::new(), ..Entry::default() };
            run.entry(&branch.lines, &[], entry)?;
            run.below(&branch.below, &branch.dn)?;
        }
        run.flush()
    }
}

/// One writing of a template.
struct Run<'a, W> {
    template: &'a Template,
    random: Random,
    counters: Vec<u64>,
    ldif: Writer,
    buffer: Vec<u8>,
    out: &'a mut W,
}

/// An entry that is being made.
#[derive(Debug, Default)]
struct Entry<'a> {
    dn: String,
    rdn: String,
    parent: &'a str,
    person: Option<(&'static str, String)>,
    values: Vec<(&'a str, String)>,
}

impl<'a, W: Write> Run<'a, W> {
    fn below(&mut self, below: &[Below], parent: &str) -> io::Result<()> {
        let template = self.template;
        for Below { kind: index, count } in below {
            let Some(kind) = template.kinds.get(*index) else { continue };
            for (_, counter) in template.restarting.iter().filter(|(kind, _)| kind == index) {
                if let (Some(counter), Some(start)) =
                    (self.counters.get_mut(*counter), template.starts.get(*counter))
                {
                    *counter = *start;
                }
            }
            for _ in 0..*count {
                let entry = Entry { parent, ..Entry::default() };
                let dn = self.entry(&kind.lines, &kind.rdn, entry)?;
                self.below(&kind.below, &dn)?;
            }
        }
        Ok(())
    }

    /// Makes and writes one entry; gives its DN. `rdn` are the attributes of the RDN where it is not known yet.
    fn entry<'e>(&mut self, lines: &'e [Line], rdn: &[String], mut entry: Entry<'e>) -> io::Result<String> {
        for line in lines {
            if let Some(value) = self.value(line, &mut entry)
                && !value.is_empty()
            {
                entry.values.push((&line.attribute, value));
                if !rdn.is_empty() && entry.dn.is_empty() {
                    name(&mut entry, rdn);
                }
            }
        }
        let start = self.buffer.len();
        self.ldif.value(&mut self.buffer, "dn", entry.dn.as_bytes());
        for (attribute, value) in &entry.values {
            self.ldif.value(&mut self.buffer, attribute, value.as_bytes());
        }
        self.buffer.push(b'\n');
        if entry.dn.is_empty() {
            // Its RDN's attribute was left out: an entry without a name cannot be there.
            self.buffer.truncate(start);
        }
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(entry.dn)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// The value of a line; none where the line is left out.
    fn value(&mut self, line: &Line, entry: &mut Entry<'_>) -> Option<String> {
        let mut text = String::new();
        for part in &line.parts {
            match part {
                Segment::Presence(percent) if self.random.below(100) >= *percent => return None,
                Segment::If { present, attribute, value } => {
                    let is_there = entry.values.iter().any(|(name, known)| {
                        name.eq_ignore_ascii_case(attribute)
                            && value.as_ref().is_none_or(|value| value == known)
                    });
                    if is_there != *present {
                        return None;
                    }
                }
                part => self.part(part, entry, &mut text),
            }
        }
        Some(text)
    }

    fn part(&mut self, part: &Segment, entry: &mut Entry<'_>, text: &mut String) {
        let random = &mut self.random;
        match part {
            Segment::Text(part) => text.push_str(part),
            Segment::Attribute(name, length) => {
                let value = entry.values.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                let value = value.map_or("", |(_, value)| value.as_str());
                text.extend(value.chars().take(length.unwrap_or(usize::MAX)));
            }
            Segment::First => text.push_str(entry.person.get_or_insert_with(|| names::person(random)).0),
            Segment::Last => text.push_str(&entry.person.get_or_insert_with(|| names::person(random)).1),
            Segment::Dn => text.push_str(&entry.dn),
            Segment::ParentDn => text.push_str(entry.parent),
            Segment::Rdn => text.push_str(&entry.rdn),
            Segment::Sequential(counter) => push_number(text, self.count(*counter)),
            Segment::Characters(alphabet, low, high) => {
                let length = low + random.below(high - low + 1);
                text.extend((0..length).map(|_| random.pick(alphabet)));
            }
            Segment::Between(low, high) => {
                push_number(text, low + random.below((high - low).saturating_add(1)))
            }
            Segment::Month(length) => text.extend(random.pick(&MONTHS).chars().take(*length)),
            Segment::Telephone => {
                let _ = write!(text, "+1 {} {} {}", random.digits(3), random.digits(3), random.digits(4));
            }
            Segment::Guid => text.push_str(&random.uuid().to_ascii_lowercase()),
            Segment::List(values) => {
                let sum = values.last().map_or(0, |(sum, _)| *sum);
                let draw = random.below(sum);
                let value = values.iter().find(|(sum, _)| draw < *sum);
                text.push_str(value.map_or("", |(_, value)| value.as_str()));
            }
            Segment::FileRandom(lines) => text.push_str(random.pick::<String>(lines)),
            Segment::FileSequential(lines, counter) => {
                let index = self.count(*counter) as usize % lines.len().max(1);
                text.push_str(lines.get(index).map_or("", String::as_str));
            }
            // They say whether there is a line: `value` has looked at them.
            Segment::Presence(_) | Segment::If { .. } => {}
        }
    }

    /// The counter's number, which then grows.
    fn count(&mut self, counter: usize) -> u64 {
        let Some(counter) = self.counters.get_mut(counter) else { return 0 };
        *counter += 1;
        *counter - 1
    }
}

fn push_number(text: &mut String, number: u64) {
    let _ = write!(text, "{number}");
}

/// Gives the entry its name as soon as all attributes of its RDN are there.
fn name(entry: &mut Entry<'_>, attributes: &[String]) {
    let mut rdn = String::new();
    for attribute in attributes {
        let value = entry.values.iter().find(|(known, _)| known.eq_ignore_ascii_case(attribute));
        let Some((name, value)) = value else { return };
        if !rdn.is_empty() {
            rdn.push('+');
        }
        rdn.push_str(name);
        rdn.push('=');
        let _ = write_escaped(&mut rdn, value.as_bytes());
    }
    entry.dn = if entry.parent.is_empty() { rdn.clone() } else { format!("{rdn},{}", entry.parent) };
    entry.rdn = rdn;
}

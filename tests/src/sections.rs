//! A slapd.conf by its parts: the global lines, and those of each database.

use crate::scenario::words;

/// One `database` with what stands below it.
#[derive(Debug)]
pub(crate) struct Section<'t> {
    pub(crate) lines: Vec<&'t str>,
}

impl Section<'_> {
    /// `mdb`, `relay` and so on.
    pub(crate) fn kind(&self) -> String {
        self.value("database").unwrap_or_default()
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.kind() == "mdb"
    }

    /// The first argument of a directive, without its quotes.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        self.lines.iter().map(|line| words(line)).find_map(|words| {
            let (first, value) = (words.first()?, words.get(1)?);
            first.eq_ignore_ascii_case(name).then(|| value.clone())
        })
    }
}

pub(crate) fn is_one_of(line: &str, names: &[&str]) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    names.iter().any(|name| name.eq_ignore_ascii_case(first))
}

pub(crate) fn sections(text: &str) -> (Vec<&str>, Vec<Section<'_>>) {
    let (mut global, mut sections) = (Vec::new(), Vec::<Section<'_>>::new());
    for line in text.lines() {
        if is_one_of(line, &["database"]) {
            sections.push(Section { lines: vec![line] });
        } else {
            match sections.last_mut() {
                Some(section) => section.lines.push(line),
                None => global.push(line),
            }
        }
    }
    (global, sections)
}

/// The lines, as text, that begin with one of `names`, with those that continue them.
pub(crate) fn those_of(lines: &[&str], names: &[&str]) -> String {
    let mut text = String::new();
    let mut is_wanted = false;
    for line in lines {
        is_wanted = if line.starts_with([' ', '\t']) { is_wanted } else { is_one_of(line, names) };
        if is_wanted {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// Global directives that entries and filters need to be understood.
pub(crate) const OF_SCHEMA: [&str; 9] = [
    "attributetype",
    "ditcontentrule",
    "include",
    "ldapsyntax",
    "moduleload",
    "modulepath",
    "objectclass",
    "objectidentifier",
    "schema",
];

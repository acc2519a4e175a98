//! Directories from a description: LDIF templates in the language of SLAMD's MakeLDIF.
//!
//! ```text
//! define suffix=dc=example,dc=com
//! define count=1000
//!
//! branch: [suffix]
//!
//! branch: ou=People,[suffix]
//! subordinateTemplate: person:[count]
//!
//! template: person
//! rdnAttr: uid
//! objectClass: inetOrgPerson
//! givenName: <first>
//! sn: <last>
//! cn: {givenName} {sn}
//! uid: user.<sequential:1>
//! mail: {uid}@example.com
//! telephoneNumber: <random:telephone>
//! ```
//!
//! Lines belong to the branch or template above them; `#` starts a comment line, a backslash takes the meaning from the
//! character after it. What stands in a value:
//!
//! | text | becomes |
//! |---|---|
//! | `[name]` | what `define name=...` says; anywhere in a line |
//! | `{attr}`, `{attr:N}` | the entry's first value of an attribute that stands above, or its first N characters |
//! | `<first>`, `<last>` | a given name and a surname, the same within an entry |
//! | `<dn>`, `<parentdn>`, `<rdn>` | names of the entry; `<dn>` and `<rdn>` after the RDN's attributes |
//! | `<sequential>`, `<sequential:START>`, `<sequential:START:false>` | a number that grows with each entry; starts anew below each parent unless `false` |
//! | `<random:alpha:N>`, `numeric`, `alphanumeric`, `hex`, `base64` | N random characters; `N:M` is N to M of them, for `numeric` a number from N to M |
//! | `<random:chars:ABC:N>`, `<random:chars:ABC:N:M>` | characters of one's own |
//! | `<random:month>`, `<random:month:3>`, `<random:telephone>` | a month's name, its first characters, a telephone number |
//! | `<guid>` | a UUID |
//! | `<list:a,b,c>`, `<list:a:9,b:1>` | one of these, by weight |
//! | `<file:PATH>`, `<file:PATH:sequential>` | a line of a file, at random or one after the other |
//! | `<presence:P>` | nothing; in P % of the entries, in the others the whole line is left out |
//! | `<ifpresent:attr>`, `<ifpresent:attr:value>` | nothing; the line is left out unless the entry has the attribute (and value) |
//! | `<ifabsent:attr>`, `<ifabsent:attr:value>` | the other way round |
//! | `<static:text>` | the text as it is |
//!
//! `extends: other` puts another template's lines before the template's own; a line for an attribute that `other` has
//! adds values. `rdnAttr: cn+uid` makes an RDN of several attributes. A template may have `subordinateTemplate` lines
//! too, and a branch attributes of its own; the classes of a branch are those of its RDN unless it names some.

mod error;
mod parse;
mod tag;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

pub use error::{TemplateError, TemplateFault};
use tag::Segment;

/// The most entries that one template writes.
pub const ENTRIES_MAX: u64 = 1_000_000_000;
/// How deep templates may stand below each other.
pub const DEPTH_MAX: usize = 32;

/// A description of a directory.
#[derive(Debug)]
pub struct Template {
    branches: Vec<Branch>,
    kinds: Vec<Kind>,
    /// How many counters `<sequential>` and `<file:...:sequential>` have.
    counters: usize,
    /// Counters that start anew below each parent, with the template they belong to and their start.
    restarting: Vec<(usize, usize)>,
    starts: Vec<u64>,
}

/// An entry that is written once.
#[derive(Debug)]
struct Branch {
    dn: String,
    lines: Vec<Line>,
    below: Vec<Below>,
}

/// An entry that is written many times.
#[derive(Debug)]
struct Kind {
    name: String,
    /// The attributes of the RDN.
    rdn: Vec<String>,
    lines: Vec<Line>,
    below: Vec<Below>,
}

/// So many entries of a kind, by its index.
#[derive(Clone, Copy, Debug)]
struct Below {
    kind: usize,
    count: u64,
}

/// One attribute's value, and whether it is there.
#[derive(Clone, Debug)]
struct Line {
    attribute: String,
    parts: Vec<Segment>,
}

impl Template {
    /// Reads a description. Files that it names are relative to `directory`.
    ///
    /// # Errors
    /// The first line that cannot be understood, with its number and the value.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, TemplateError> {
        parse::parse(text, directory)
    }

    /// How many entries it writes, at most [`ENTRIES_MAX`].
    pub fn entries(&self) -> u64 {
        let below = |below: &[Below]| self.entries_of(below);
        self.branches.iter().map(|branch| 1 + below(&branch.below)).fold(0, u64::saturating_add)
    }

    fn entries_of(&self, below: &[Below]) -> u64 {
        let each = below.iter().map(|Below { kind, count }| {
            let inner = self.kinds.get(*kind).map_or(0, |kind| self.entries_of(&kind.below));
            count.saturating_mul(inner.saturating_add(1))
        });
        each.fold(0, u64::saturating_add)
    }
}

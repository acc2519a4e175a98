//! Generated configurations of overlays, and changes that they look at.

use std::collections::BTreeSet;

mod changes;
pub mod overlays;

pub use crate::matrix::Random;

/// Stands for the suffix of the case's database.
pub const SUFFIX: &str = "@S@";

/// One database with an overlay, and what is asked of it in this order.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// Lines of slapd.conf below those of the database.
    pub configuration: Vec<String>,
    /// Requests as in conformance scenarios.
    pub steps: Vec<String>,
}

/// What a step came to on both servers.
#[derive(Debug)]
pub struct Difference<'a> {
    pub case: &'a Case,
    pub step: &'a str,
    /// The answers of slapd and of Larix.
    pub answers: (&'a str, &'a str),
    /// Lines of the tree afterwards that only slapd has, and that only Larix has; each behind its entry.
    pub trees: (&'a str, &'a str),
    /// The tree that Larix has afterwards.
    pub ours: &'a str,
}

impl Difference<'_> {
    /// The result codes of slapd and of Larix.
    pub fn codes(&self) -> (&str, &str) {
        (code(self.answers.0), code(self.answers.1))
    }

    pub fn trees_are_equal(&self) -> bool {
        self.trees == ("", "")
    }

    /// Lines of an entry of Larix's tree.
    pub fn lines_of<'s>(&'s self, dn: &'s str) -> impl Iterator<Item = &'s str> + 's {
        let entries = self.ours.split("-> ").filter(move |entry| entry.lines().next() == Some(dn));
        entries.flat_map(|entry| entry.lines().skip(1)).map(str::trim_start)
    }

    /// The suffix of the tree.
    pub fn suffix(&self) -> String {
        let entries = self.ours.lines().filter_map(|line| line.strip_prefix("-> "));
        entries.min_by_key(|dn| dn.len()).unwrap_or_default().to_owned()
    }

    /// The name of the entry that is changed.
    pub fn target(&self) -> &str {
        self.step.split('"').nth(1).unwrap_or_default()
    }

    /// Whether the trees differ in memberOf alone, and every memberOf of Larix's is what members of
    /// groups say: of those with these classes and attributes.
    pub fn groups_decide(&self, groups: &[(&str, &str)]) -> bool {
        let (theirs, ours) = self.trees;
        let same_answers = without_text(self.answers.0) == without_text(self.answers.1);
        let mut lines = theirs.lines().chain(ours.lines());
        same_answers && lines.all(|line| line.contains(MEMBER_OF)) && links_agree(self.ours, groups)
    }

    pub fn is_configured(&self, what: &str) -> bool {
        self.case.configuration.iter().any(|line| line.contains(what))
    }
}

const MEMBER_OF: &str = "   memberOf: ";

/// Whether the links back of a tree are those of its groups.
fn links_agree(tree: &str, groups: &[(&str, &str)]) -> bool {
    let (mut links, mut back_links) = (BTreeSet::new(), BTreeSet::new());
    let tree = tree.to_lowercase();
    let entries: Vec<(&str, Vec<&str>)> = tree
        .split("-> ")
        .skip(1)
        .map(|entry| {
            (entry.lines().next().unwrap_or_default(), entry.lines().skip(1).map(str::trim_start).collect())
        })
        .collect();
    let names: BTreeSet<&str> = entries.iter().map(|(dn, _)| *dn).collect();
    for (dn, lines) in &entries {
        let values = |name: &str| {
            let start = format!("{}: ", name.to_lowercase());
            lines.iter().filter_map(move |line| line.strip_prefix(&start)).collect::<Vec<_>>()
        };
        for (class, member) in groups {
            if values("objectClass").iter().any(|known| known.eq_ignore_ascii_case(class)) {
                links.extend(values(member).into_iter().filter(|to| names.contains(to)).map(|to| (to, *dn)));
            }
        }
        back_links.extend(values("memberOf").into_iter().map(|group| (*dn, group)));
    }
    links == back_links
}

/// An answer whose result has no text.
pub fn without_text(answer: &str) -> String {
    let lines = answer.lines().map(|line| match line.starts_with("=> ") {
        true => line.split(" text ").next().unwrap_or(line),
        false => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The result code of an answer.
pub fn code(answer: &str) -> &str {
    let result = answer.lines().find_map(|line| line.strip_prefix("=> ")).unwrap_or("");
    result.split(' ').next().unwrap_or("")
}

/// A difference that is meant: why, and how it is recognised.
#[derive(Debug)]
pub struct Known {
    pub reason: &'static str,
    pub is: fn(&Difference<'_>) -> bool,
}

/// Generates cases of one overlay.
#[derive(Debug)]
pub struct Generator {
    pub overlay: &'static str,
    /// Files of schema beside the usual ones.
    pub schema: &'static [&'static str],
    pub case: fn(&mut Random) -> Case,
    /// Attributes of the tree that are compared.
    pub compared: &'static str,
    /// slapd's overlay works behind its answers to deletes and renames.
    pub works_later: bool,
    pub known: &'static [Known],
}

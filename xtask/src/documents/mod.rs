//! The documents of the project, as the checks and the site read them.

pub(crate) mod links;
pub(crate) mod site;
pub(crate) mod words;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The lines of a Markdown text that are prose, with their numbers from 1. Fenced blocks are left out, and the text of inline code
/// is blanked: commands and messages are not prose, and nothing in them is a link.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((number + 1, without_code(line)));
        }
    }
    lines
}

/// A line with `` ` ``s and what is between them blanked. A lone `` ` `` stays.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let closed = !parts.len().is_multiple_of(2);
    let last = if closed { parts.len() } else { parts.len() - 1 };
    let mut out = String::with_capacity(line.len());
    for (place, part) in parts.iter().enumerate() {
        match place % 2 == 1 && place < last {
            true => out.push_str("``"),
            false if place == last && !closed => {
                out.push('`');
                out.push_str(part);
            }
            false => out.push_str(part),
        }
    }
    out
}

/// A relative path with `.` and `..` carried out; `None` where it leads out of the project.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

/// The anchors of a text's headings, as GitHub and mdBook make them: letters and digits in lower case, `-` for a blank, `-` and `_` as
/// they are, nothing else; `-1`, `-2` behind an anchor that was there before.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    headings(text)
        .map(|heading| {
            let anchor = anchor(&heading);
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        })
        .collect()
}

/// The text of each heading outside of fenced blocks.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut fenced = false;
    text.lines().filter_map(move |line| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let title = line.trim_start_matches('#');
        let is_heading = !fenced && title.len() < line.len() && title.starts_with(' ');
        is_heading.then(|| title.trim().to_owned())
    })
}

fn anchor(heading: &str) -> String {
    let mut text = String::new();
    // `[text](target)` counts by its text.
    let mut rest = heading;
    while let Some(place) = rest.find("](") {
        text.push_str(&rest[..place]);
        rest = rest[place..].find(')').map_or("", |end| &rest[place + end + 1..]);
    }
    text.push_str(rest);
    text.chars()
        .filter_map(|c| match c {
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            ' ' => Some('-'),
            _ => None,
        })
        .collect()
}

/// Whether a file is a Markdown document.
fn is_document(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_has_no_code() {
        let text = "a `is told` b\n```sh\nwhoever\n```\nit`s\n";
        assert_eq!(prose(text), [(1, "a `` b".to_owned()), (5, "it`s".to_owned())]);
    }

    #[test]
    fn anchors_of_headings() {
        let text =
            "# Is it `equal`?\n```sh\n# no heading\n```\n## A, B [c](d.md)\n## A, B c\n#no\n## x_y -z\n";
        assert_eq!(anchors(text), ["is-it-equal", "a-b-c", "a-b-c-1", "x_y--z"]);
    }

    #[test]
    fn paths_are_carried_out() {
        for (path, expected) in [
            ("docs/guide/../adr/x.md", Some("docs/adr/x.md")),
            ("docs/./x.md", Some("docs/x.md")),
            ("docs/../../x", None),
            ("/etc/x", None),
        ] {
            assert_eq!(normal(Path::new(path)).as_deref(), expected.map(Path::new), "{path}");
        }
    }
}

//! Words that documents do not use, with what to write instead. `words.toml` counts those that are still there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

use super::{is_document, prose};

const TELL: &str =
    "say who reports what: \"the log reports it\", \"the server answers\", \"the consumer learns\"";

/// What documents do not say, in small letters, with what to write instead.
const REFUSED: [(&str, &str); 5] = [
    ("whoever", "name the actor: \"a client that\", \"the identity that\", \"anyone\""),
    ("is told", TELL),
    ("are told", TELL),
    ("was told", TELL),
    ("were told", TELL),
];

/// `words.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    /// How many are left in the documents of each folder; the project's own is `.`.
    remaining: BTreeMap<String, usize>,
}

/// Adds the refused words of `files`, where their number is not the one that `words.toml` has for the folder.
pub(crate) fn faults(root: &Path, files: &[PathBuf], faults: &mut Vec<String>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(root.join("words.toml")).context("words.toml")?;
    let counts: Counts = toml::from_str(&text).context("words.toml")?;
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_document(file)) {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        let here = found.entry(folder(file)).or_default();
        for (line, word, instead) in refused(&text) {
            here.push(format!("{}:{line}: {word:?}: {instead}", file.display()));
        }
    }
    faults.extend(differences(&counts.remaining, &found));
    Ok(())
}

/// Folders whose number of refused words is not the one that is permitted.
fn differences(permitted: &BTreeMap<String, usize>, found: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for (folder, words) in found {
        let permitted = permitted.get(folder).copied().unwrap_or_default();
        if words.len() > permitted {
            faults.push(format!(
                "{folder}: {} refused words in documents, words.toml permits {permitted}:\n    {}",
                words.len(),
                words.join("\n    ")
            ));
        } else if words.len() < permitted {
            faults.push(format!(
                "{folder}: {} refused words are left: write that number in words.toml, which has {permitted}",
                words.len()
            ));
        }
    }
    for folder in permitted.keys().filter(|folder| !found.contains_key(*folder)) {
        faults.push(format!("words.toml: there are no documents in {folder}: delete the line"));
    }
    faults
}

fn folder(file: &Path) -> String {
    let folder = file.parent().unwrap_or_else(|| Path::new("")).display().to_string();
    if folder.is_empty() { ".".to_owned() } else { folder }
}

/// Line, word and replacement of each refused word. A phrase may go over the end of a line.
fn refused(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut joined = String::new();
    let mut starts = Vec::new();
    for (number, line) in prose(text) {
        starts.push((joined.len(), number));
        joined.push_str(&line.trim().to_ascii_lowercase());
        joined.push(' ');
    }
    let line_of = |place: usize| {
        let following = starts.partition_point(|(start, _)| *start <= place);
        starts[following - 1].1
    };
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut found = Vec::new();
    for (word, instead) in REFUSED {
        for (place, _) in joined.match_indices(word) {
            let inside = is_letter(joined[..place].chars().next_back())
                || is_letter(joined[place + word.len()..].chars().next());
            if !inside {
                found.push((line_of(place), word, instead));
            }
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_words_are_found() {
        let text = "Whoever asks\nis\ntold. This told nothing; `is told`.\n```\nis told\n```\nwere told\n";
        let found: Vec<(usize, &str)> =
            refused(text).into_iter().map(|(line, word, _)| (line, word)).collect();
        assert_eq!(found, [(1, "whoever"), (2, "is told"), (7, "were told")]);
    }

    #[test]
    fn numbers_are_exact() {
        let permitted = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2), ("gone".to_owned(), 1)]);
        let words = |count: usize| vec!["x".to_owned(); count];
        let found = BTreeMap::from([
            ("a".to_owned(), words(1)),
            ("b".to_owned(), words(1)),
            ("c".to_owned(), words(1)),
        ]);
        assert_eq!(
            differences(&permitted, &found),
            [
                "b: 1 refused words are left: write that number in words.toml, which has 2",
                "c: 1 refused words in documents, words.toml permits 0:\n    x",
                "words.toml: there are no documents in gone: delete the line",
            ]
        );
    }
}

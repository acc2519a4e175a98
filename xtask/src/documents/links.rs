//! Links of documents: each relative one leads to a file of the project, and each anchor to a heading.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{anchors, is_document, normal, prose};

/// The contents of the site, by hand but for the ADRs.
pub(super) const SUMMARY: &str = "docs/SUMMARY.md";

/// A link of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) line: usize,
    /// What is written: a path, an anchor or both.
    pub(super) target: String,
}

impl Link {
    /// Path and anchor; both may be empty. `None` for a link that leads out of the project on purpose.
    pub(super) fn parts(&self) -> Option<(&str, &str)> {
        let is_outside = ["http://", "https://", "mailto:", "ldap://"]
            .iter()
            .any(|scheme| self.target.starts_with(scheme));
        (!is_outside).then(|| self.target.split_once('#').unwrap_or((&self.target, "")))
    }
}

/// Adds what is wrong with the links of `files`, and which pages [`SUMMARY`] lacks.
pub(crate) fn faults(root: &Path, files: &[PathBuf], faults: &mut Vec<String>) {
    let mut known: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    let documents = files.iter().filter(|file| is_document(file));
    for file in documents {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        for link in links(&text) {
            if let Some(fault) = fault(root, file, &link, &mut known) {
                faults.push(format!("{}:{}: the link {:?}: {fault}", file.display(), link.line, link.target));
            }
        }
    }
    let summary = std::fs::read_to_string(root.join(SUMMARY)).unwrap_or_default();
    for missing in left_out(&summary, files) {
        faults.push(format!("{}: {SUMMARY} does not name it: add a line there", missing.display()));
    }
}

/// What is wrong with one link.
fn fault(
    root: &Path,
    file: &Path,
    link: &Link,
    known: &mut BTreeMap<PathBuf, Vec<String>>,
) -> Option<String> {
    let (path, anchor) = link.parts()?;
    let target = match path.is_empty() {
        true => file.to_owned(),
        false => match normal(&file.parent()?.join(path)) {
            Some(target) => target,
            None => return Some("it leads out of the project".to_owned()),
        },
    };
    if !root.join(&target).exists() {
        return Some(format!("there is no {}", target.display()));
    }
    if anchor.is_empty() || !is_document(&target) {
        return None;
    }
    let there = known.entry(target.clone()).or_insert_with(|| {
        std::fs::read_to_string(root.join(&target)).map(|text| anchors(&text)).unwrap_or_default()
    });
    let is_there = there.iter().any(|known| known == anchor);
    (!is_there).then(|| format!("{} has no heading whose anchor is {anchor:?}", target.display()))
}

/// The links of a text: `[text](target)` and `[name]: target`.
pub(super) fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        let mut rest = prose.as_str();
        while let Some(place) = rest.find("](") {
            rest = &rest[place + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = rest[..end].split(' ').next().unwrap_or_default().to_owned();
            found.push(Link { line, target });
        }
        if let Some((_, target)) = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push(Link { line, target: target.trim().to_owned() });
        }
    }
    found
}

/// Pages of docs/ that the summary does not name. It names the ADRs by their list alone, which `cargo xtask site` unfolds.
fn left_out<'f>(summary: &str, files: &'f [PathBuf]) -> Vec<&'f PathBuf> {
    let folder = Path::new(SUMMARY).parent().unwrap_or_else(|| Path::new(""));
    let named: Vec<PathBuf> =
        links(summary).iter().filter_map(|link| normal(&folder.join(&link.target))).collect();
    files
        .iter()
        .filter(|file| is_document(file) && file.starts_with(folder) && !file.ends_with(SUMMARY))
        .filter(|file| !file.starts_with("docs/adr") || file.ends_with("README.md"))
        .filter(|file| !named.contains(file))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_text() {
        let text = "[a](b.md) and [c](d.md#e \"title\")\n```\n[no](no.md)\n```\n`[no](no.md)`\n[x]: y.md\n";
        let found: Vec<(usize, String)> =
            links(text).into_iter().map(|link| (link.line, link.target)).collect();
        let expected = [(1, "b.md"), (1, "d.md#e"), (6, "y.md")].map(|(line, to)| (line, to.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn broken_links_are_found() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("docs/guide")).unwrap();
        let text = "[1](b.md#there)\n[2](b.md#gone)\n[3](c.md)\n[4](../../../x)\n[5](#own)\n[6](https://x/#y)\n[7](../../README.md)\n## Own\n";
        for (file, text) in [
            ("docs/guide/a.md", text),
            ("docs/guide/b.md", "# There\n"),
            ("README.md", "x"),
            (SUMMARY, "- [a](guide/a.md)\n"),
        ] {
            std::fs::write(root.path().join(file), text).unwrap();
        }
        let files = ["docs/guide/a.md", "docs/guide/b.md", "README.md", SUMMARY].map(PathBuf::from);
        let mut found = Vec::new();
        faults(root.path(), &files, &mut found);
        assert_eq!(
            found,
            [
                "docs/guide/a.md:2: the link \"b.md#gone\": docs/guide/b.md has no heading whose anchor is \"gone\"",
                "docs/guide/a.md:3: the link \"c.md\": there is no docs/guide/c.md",
                "docs/guide/a.md:4: the link \"../../../x\": it leads out of the project",
                "docs/guide/b.md: docs/SUMMARY.md does not name it: add a line there",
            ]
        );
    }
}

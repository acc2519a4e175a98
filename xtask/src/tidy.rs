//! What review forgets: file and function length, banned words, dead files, maps that point to nothing, layers, links and words of
//! documents.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::documents::{links, words};
use crate::{kind_names, layers, overlay_names};

/// Lines of a source file that holds no tests; tests live beside it in `tests.rs` when it grows.
const FILE_LINES_MAX: usize = 1_200;
/// Lines of a function outside tests.
const FUNCTION_LINES_MAX: usize = 90;
/// Columns of a line in source, the text of a literal apart.
const LINE_COLUMNS_MAX: usize = 140;

/// What may not stand in source, scripts and documents, with what to write instead. Split so that this file is clean.
const BANNED: [(&str, &str); 8] = [
    (concat!("dbg", "!("), "a log line or nothing"),
    (concat!("todo", "!("), "the real thing, or an ignored test with its reason"),
    (concat!("unimplemented", "!("), "an error that says what is missing"),
    (concat!("FIX", "ME"), "the mend"),
    (concat!("XX", "X:"), "the mend"),
    (concat!("/wo", "rk/"), "a path relative to the project"),
    (concat!("/ro", "ot/"), "a path relative to the project"),
    (concat!("crates", ".io/"), "the crate's name"),
];

/// Names of types that say too little by themselves: a reader who knows the field has to guess what they stand for.
const VAGUE_TYPES: [&str; 42] = [
    "Asked",
    "Told",
    "Kept",
    "Ground",
    "Part",
    "Place",
    "Placed",
    "Places",
    "Facts",
    "Errand",
    "Veil",
    "Owed",
    "Proved",
    "Lasting",
    "Showing",
    "Parked",
    "Searched",
    "Sought",
    "Published",
    "Standing",
    "Composed",
    "Identified",
    "Served",
    "Held",
    "Stored",
    "Stepped",
    "Started",
    "Announced",
    "Glued",
    "Intercepted",
    "Exceeded",
    "Judged",
    "Restricted",
    "Resolved",
    "Located",
    "Paid",
    "Found",
    "Filled",
    "Filling",
    "Checked",
    "Connected",
    "Removed",
];

/// Functions that may be longer, each with its reason.
const LONG_FUNCTIONS: [(&str, &str); 0] = [];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let files = tracked(root)?;
    let mut faults = Vec::new();
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        banned_words(file, &text, &mut faults);
        if file.extension().is_some_and(|extension| extension == "rs") {
            lengths(file, &text, &mut faults);
            vague_types(file, &text, &mut faults);
        }
    }
    dead_files(root, &files, &mut faults);
    broken_map(root, &mut faults);
    unmapped_modules(root, &mut faults);
    unknown_tests(root, &files, &mut faults);
    links::faults(root, &files, &mut faults);
    words::faults(root, &files, &mut faults)?;
    layers::faults(root, &mut faults)?;
    let sources = files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs") && !is_test(file));
    let sources: Vec<PathBuf> = sources.cloned().collect();
    overlay_names::faults(root, &sources, &mut faults)?;
    kind_names::faults(root, &sources, &mut faults)?;
    if !faults.is_empty() {
        bail!("tidy:\n  {}", faults.join("\n  "));
    }
    println!("tidy: {} files as they should be", files.len());
    Ok(())
}

/// The files of the source, relative to the root: those that git tracks or would; all of them where the source came without git.
pub(crate) fn tracked(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .stderr(Stdio::null())
        .output();
    let mut files = match listed {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect()
        }
        _ => unpacked(root)?,
    };
    files.retain(|file| root.join(file).is_file() && !file.starts_with("fuzz/corpus"));
    if files.is_empty() {
        bail!("there are no files in {}", root.display());
    }
    Ok(files)
}

/// Every file but what cargo builds, in the order of names.
fn unpacked(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let entries = std::fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", path.display()))?;
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            if kind.is_dir() && name != "target" && name != ".git" {
                folders.push(folder.join(&name));
            } else if kind.is_file() {
                files.push(folder.join(&name));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn banned_words(file: &Path, text: &str, faults: &mut Vec<String>) {
    if file.ends_with("Cargo.lock") {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        for (word, instead) in BANNED {
            if line.contains(word) {
                faults.push(format!("{}:{}: {word:?}: write {instead}", file.display(), number + 1));
            }
        }
        if is_conflict_marker(line) {
            faults.push(format!(
                "{}:{}: a merge left its conflict here: settle it",
                file.display(),
                number + 1
            ));
        }
    }
}

/// What git writes around the two sides of a conflict. The line between them may be the underline of a heading.
fn is_conflict_marker(line: &str) -> bool {
    ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|marker| line.starts_with(marker))
}

fn vague_types(file: &Path, text: &str, faults: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        if let Some(name) = defined_type(line).filter(|name| VAGUE_TYPES.contains(name)) {
            let line = number + 1;
            faults.push(format!("{}:{line}: type {name}: name it in the terms of the field", file.display()));
        }
    }
}

/// The type that a line defines.
fn defined_type(line: &str) -> Option<&str> {
    if line.trim_start().starts_with("//") {
        return None;
    }
    let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let mut words = words.skip_while(|word| ["", "pub", "crate", "super", "in"].contains(word));
    ["struct", "enum", "trait", "type", "union"].contains(&words.next()?).then(|| words.next())?
}

fn is_test(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "testkit")
        || file.file_stem().is_some_and(|stem| stem.to_string_lossy().contains("tests"))
}

fn lengths(file: &Path, text: &str, faults: &mut Vec<String>) {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > LINE_COLUMNS_MAX && !line.contains('"') && !line.contains("//") {
            faults.push(format!("{}:{}: {columns} columns", file.display(), number + 1));
        }
    }
    if is_test(file) {
        return;
    }
    let lines = code.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!("{}: {lines} lines: it has more than one subject", file.display()));
    }
    for (name, line, length) in functions(code) {
        let excused = LONG_FUNCTIONS.iter().any(|(excused, _)| *excused == name);
        if length > FUNCTION_LINES_MAX && !excused {
            faults.push(format!("{}:{line}: fn {name} has {length} lines", file.display()));
        }
    }
}

/// Name, first line and length of every function: from its `fn` to the closing brace at the same indentation, which
/// rustfmt guarantees.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        let Some(name) = function_name(body) else { continue };
        let close = format!("{}}}", " ".repeat(indent));
        let end = lines.iter().skip(start).position(|line| {
            *line == close || line.trim_end().ends_with(';') && line.len() - line.trim_start().len() == indent
        });
        if let Some(end) = end {
            found.push((name.to_owned(), start + 1, end + 1));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line;
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// Source files that no `mod` line names.
fn dead_files(root: &Path, files: &[PathBuf], faults: &mut Vec<String>) {
    let sources: Vec<&PathBuf> =
        files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")).collect();
    let mut named = BTreeSet::new();
    for file in &sources {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        for line in text.lines().map(str::trim) {
            if let Some(place) = line.find("mod ")
                && let Some(name) = line[place + 4..].strip_suffix(';')
            {
                named.insert(name.trim().to_owned());
            }
            if let Some(name) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix(".rs\"]"))
            {
                named.insert(name.rsplit('/').next().unwrap_or(name).to_owned());
            }
        }
    }
    for file in sources {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder =
            file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let entry = ["lib", "main", "build"].contains(&stem.as_str())
            || ["tests", "bin", "examples", "benches", "fuzz_targets"].contains(&folder.as_str());
        let name = if stem == "mod" { folder } else { stem };
        if !entry && !named.contains(&name) {
            faults.push(format!("{}: no `mod {name};` names it", file.display()));
        }
    }
}

/// Paths in backquotes in the maps that do not exist.
fn broken_map(root: &Path, faults: &mut Vec<String>) {
    for map in ["docs/rfc-map.md", "ARCHITECTURE.md"] {
        let Ok(text) = std::fs::read_to_string(root.join(map)) else {
            faults.push(format!("{map}: missing"));
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for path in line.split('`').skip(1).step_by(2).filter(|path| is_path(path)) {
                let file = path.split("::").next().unwrap_or(path);
                if !root.join(file).exists() {
                    faults.push(format!("{map}:{}: {path} does not exist", number + 1));
                }
            }
        }
    }
}

/// Modules of the server that the table of its layers lacks.
fn unmapped_modules(root: &Path, faults: &mut Vec<String>) {
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let (map, server) = (read("ARCHITECTURE.md"), read("crates/server/src/lib.rs"));
    for name in server.lines().filter_map(declared_module).filter(|name| !is_mapped(&map, name)) {
        faults.push(format!("ARCHITECTURE.md: the table of the server's layers lacks {name}"));
    }
}

/// The module that a line declares.
fn declared_module(line: &str) -> Option<&str> {
    let line = line.trim();
    line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
}

/// Whether a text has a module in backquotes, as a folder or a file.
fn is_mapped(text: &str, module: &str) -> bool {
    text.contains(&format!("`{module}`")) || text.contains(&format!("`{module}.rs`"))
}

/// Threats without a test, and tests that SECURITY.md names and nobody wrote.
fn unknown_tests(root: &Path, files: &[PathBuf], faults: &mut Vec<String>) {
    let Ok(text) = std::fs::read_to_string(root.join("SECURITY.md")) else {
        faults.push("SECURITY.md: missing".to_owned());
        return;
    };
    let sources = files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs"));
    let code: Vec<String> =
        sources.filter_map(|file| std::fs::read_to_string(root.join(file)).ok()).collect();
    let is_there = |test: &str| match is_path(test) {
        true => root.join(test).exists(),
        false => code.iter().any(|code| has_test(code, test)),
    };
    for (number, tests) in threats(&text) {
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && tests.trim() != "the same" {
            faults.push(format!("SECURITY.md:{number}: a threat without a test"));
        }
        for test in named.into_iter().filter(|test| !is_there(test)) {
            faults.push(format!("SECURITY.md:{number}: there is no test {test}"));
        }
    }
}

/// Line and third column of each row of the table of threats.
fn threats(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate();
    let table = lines.skip_while(|(_, line)| !line.starts_with("| threat |")).skip(2);
    table
        .take_while(|(_, line)| line.starts_with('|'))
        .map(|(number, line)| (number + 1, line.split('|').nth(3).unwrap_or_default()))
        .collect()
}

fn has_test(code: &str, name: &str) -> bool {
    code.contains(&format!("#[test]\nfn {name}()")) || code.contains(&format!("#[test]\n    fn {name}()"))
}

/// Whether a quoted word is meant as a path of this project.
fn is_path(word: &str) -> bool {
    ["crates/", "tests/", "docs/", "fuzz/", "xtask/"].iter().any(|folder| word.starts_with(folder))
        && !word.contains(['*', '{', ' ', '<'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_lengths() {
        let code = "impl A {\n    pub(crate) fn short(&self) {\n        1\n    }\n}\n\nfn other() -> u8 {\n    2\n}\n";
        let found = functions(code);
        assert_eq!(found, [("short".into(), 2, 3), ("other".into(), 7, 3)]);
    }

    #[test]
    fn modules_are_found_in_a_table() {
        for (line, module) in
            [("mod a;", Some("a")), ("pub mod a;", Some("a")), ("mod a {", None), ("pub use a::B;", None)]
        {
            assert_eq!(declared_module(line), module, "{line}");
        }
        for (text, mapped) in [("| `a.rs`, `b` |", true), ("| `a` |", true), ("| `aa.rs`, a |", false)] {
            assert_eq!(is_mapped(text, "a"), mapped, "{text}");
        }
    }

    #[test]
    fn types_are_found_where_they_are_defined() {
        assert_eq!(defined_type("pub(crate) struct Place<'p> {"), Some("Place"));
        assert_eq!(defined_type("enum Kept {"), Some("Kept"));
        assert_eq!(defined_type("    fn place(&self) -> Place {"), None);
        assert_eq!(defined_type("    // struct Place"), None);
    }

    #[test]
    fn conflicts_are_seen() {
        assert!(is_conflict_marker(&format!("{} HEAD", "<".repeat(7))));
        assert!(is_conflict_marker(&format!("{} 1dd65e3a (a change)", ">".repeat(7))));
        assert!(!is_conflict_marker("======="), "the underline of a heading");
        assert!(!is_conflict_marker("larix modify <<END"));
    }

    #[test]
    fn threats_name_their_tests() {
        let text = "| a |\n\n| threat | defence | test |\n|---|---|---|\n| x | y | `tests/a.rs`: `one` |\n| z | w | |\n\n| no |\n";
        assert_eq!(threats(text), [(5, " `tests/a.rs`: `one` "), (6, " ")]);
        assert!(has_test("#[test]\nfn one() {", "one"));
        assert!(!has_test("fn one() {", "one"));
    }

    #[test]
    fn files_are_listed_without_git() {
        let root = std::env::temp_dir().join(format!("larix-tidy-{}", std::process::id()));
        for file in ["Cargo.toml", "a/b.rs", ".ci/run", "target/debug/larix", "fuzz/target/x"] {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "x").unwrap();
        }
        let files: Vec<String> =
            tracked(&root).unwrap().iter().map(|file| file.display().to_string()).collect();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(files, [".ci/run", "Cargo.toml", "a/b.rs"]);
    }

    #[test]
    fn a_path_has_a_folder_and_no_pattern() {
        for (word, expected) in
            [("crates/proto/src/lib.rs", true), ("larix", false), ("docs/", true), ("crates/*/src", false)]
        {
            assert_eq!(is_path(word), expected, "{word}");
        }
    }
}

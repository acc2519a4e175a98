use std::collections::BTreeMap;
use std::path::Path;

use super::arrows::{Source, modules};
use super::*;

struct Files(BTreeMap<&'static str, &'static str>);

impl Source for Files {
    fn text(&self, file: &Path) -> Option<String> {
        self.0.get(file.to_str()?).map(|text| (*text).to_owned())
    }
}

/// The arrows of a crate of these files, as `from -> to file:line ...`.
fn found(files: &[(&'static str, &'static str)]) -> Vec<String> {
    let modules = modules(&Files(files.iter().copied().collect())).expect("a crate");
    let shown = modules.arrows.iter().map(|((from, to), places)| {
        let places = places.iter().map(|place| format!(" {}:{}", place.file.display(), place.line));
        format!("{from} -> {to}{}", places.collect::<String>())
    });
    shown.collect()
}

#[test]
fn what_a_module_names_is_found() {
    const LIB: &str = "pub mod a; mod b; mod c;\npub use b::{B, inner::{Deep, self as renamed}};\nuse std::fmt;\npub fn own() {}";
    for (text, arrows) in [
        ("use crate::b;", &["a -> b a.rs:1"][..]),
        ("use crate::{\n b::B,\n c::{self, X}};", &["a -> b a.rs:2", "a -> c a.rs:3"]),
        ("use crate::a::x; use self::x; fn f() { self::g() }", &[]),
        ("use super::b::X;", &["a -> b a.rs:1"]),
        ("mod x { use super::super::b::X; use super::y; }", &["a -> b a.rs:1"]),
        ("mod x { fn f() -> super::super::c::C { crate::b::g() } }", &["a -> b a.rs:1", "a -> c a.rs:1"]),
        ("use crate::B;", &["a -> b a.rs:1"]),
        ("use crate::{Deep, renamed};", &["a -> b a.rs:1"]),
        ("use crate::fmt;", &[]),
        ("fn f() { crate::own() }", &["a -> lib a.rs:1"]),
        ("use crate::b::*;", &["a -> b a.rs:1"]),
        ("impl crate::b::T for X { type Y = Vec<super::c::C>; }", &["a -> b a.rs:1", "a -> c a.rs:1"]),
        ("fn f() {\n println!(\"{}\", g(crate::b::X)); }", &["a -> b a.rs:2"]),
        ("macro_rules! m { ($x:expr) => { $crate::c::f($x) }; }", &["a -> c a.rs:1"]),
        ("macro_rules! m { () => { use crate::{b::B, c}; }; }", &["a -> b a.rs:1", "a -> c a.rs:1"]),
        (
            "fn f() { match x { crate::b::X => 1, _ => matches!(y, super::c::Z) } }",
            &["a -> b a.rs:1", "a -> c a.rs:1"],
        ),
        ("pub(in crate::a) fn f() {}\n/// [`crate::b`]\nfn g() {}", &[]),
        ("#[cfg(test)] mod checks { use crate::b; }\n#[cfg(test)] use crate::c;", &[]),
        ("#[cfg(all(test, unix))] use crate::b;\n#[cfg(not(test))] use crate::c;", &["a -> c a.rs:2"]),
        ("mod more_tests;\nimpl X { #[cfg(test)] fn f() { crate::b::g() } fn h() {} }", &[]),
        ("struct S { #[cfg(test)] b: crate::b::B, c: crate::c::C }", &["a -> c a.rs:1"]),
        ("struct S { b: b::B }", &[]),
    ] {
        assert_eq!(
            found(&[("lib.rs", LIB), ("a.rs", text), ("b.rs", ""), ("c/mod.rs", "")]),
            arrows,
            "{text}"
        );
    }
}

#[test]
fn modules_in_files_below_and_the_root_itself() {
    let arrows = found(&[
        ("main.rs", "mod a; mod b;\nuse a::X;\nfn main() {\n  b::run() }"),
        ("a/mod.rs", "mod x; mod tests;"),
        ("a/x.rs", "mod y;\nuse super::super::b;"),
        ("a/x/y.rs", "fn f() {\n\n super::super::super::b::g() }"),
        ("b.rs", "mod inline { mod z; }"),
        ("b/inline/z.rs", "use crate::a::X;"),
    ]);
    assert_eq!(arrows, ["a -> b a/x/y.rs:3 a/x.rs:2", "b -> a b/inline/z.rs:1", "lib -> b main.rs:4"]);
}

#[test]
fn a_name_from_nowhere_is_an_error() {
    for (text, part) in [
        ("use crate::nowhere;", "a.rs:1: crate::nowhere comes from no module"),
        ("fn f( {}", "a.rs:1"),
        ("mod gone;", "no file for mod gone"),
    ] {
        let files = Files(BTreeMap::from([("lib.rs", "mod a;"), ("a.rs", text)]));
        let error = format!("{:#}", modules(&files).expect_err(text));
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// What is said of four modules, a -> b -> c -> a and d -> a.
fn judged(rows: &str) -> Vec<String> {
    let files = Files(BTreeMap::from([
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::c;"),
        ("c.rs", "\nuse crate::a;"),
        ("d.rs", "use crate::a;"),
    ]));
    let modules = modules(&files).expect("a crate");
    let mut faults = Vec::new();
    module_faults("x", &modules, Some(&toml::from_str(rows).expect("rows")), &mut faults);
    faults
}

#[test]
fn rows_exceptions_and_circles_are_exact() {
    const ROWS: &str = "rows = [[\"c\"], [\"b\"], [\"a\"], [\"d\"]]\n";
    for (rows, parts) in [
        (format!("largest-circle = 3\n{ROWS}exceptions = [\"c -> a\"]"), &[][..]),
        (format!("largest-circle = 3\n{ROWS}"), &["x: c -> a leads upwards: crates/x/src/c.rs:2"]),
        (
            format!("largest-circle = 2\n{ROWS}exceptions = [\"c -> a\"]"),
            &["3 modules name each other in a circle, 2 are permitted: a b c"],
        ),
        (format!("largest-circle = 4\n{ROWS}exceptions = [\"c -> a\"]"), &["lower largest-circle"]),
        (
            format!("largest-circle = 3\n{ROWS}exceptions = [\"c -> a\", \"b -> a\"]"),
            &["no arrow upwards \"b -> a\" is left"],
        ),
        // A downward arrow is no exception.
        (
            format!("largest-circle = 3\n{ROWS}exceptions = [\"c -> a\", \"a -> b\"]"),
            &["no arrow upwards \"a -> b\" is left"],
        ),
        ("largest-circle = 3\nrows = [[\"a\", \"b\", \"c\"]]".to_owned(), &["d stands in no row"]),
        (
            "largest-circle = 3\nrows = [[\"a\", \"b\", \"c\"], [\"d\", \"e\"]]".to_owned(),
            &["no module is called e"],
        ),
        (
            "largest-circle = 3\nrows = [[\"a\", \"b\", \"c\"], [\"d\", \"a\"]]".to_owned(),
            &["a module stands in two rows"],
        ),
        ("largest-circle = 3".to_owned(), &[]),
    ] {
        let faults = judged(&rows);
        let as_expected = faults.len() >= parts.len().min(1)
            && faults.is_empty() == parts.is_empty()
            && parts.iter().all(|part| faults.iter().any(|fault| fault.contains(part)));
        assert!(as_expected, "{rows}: {faults:#?}");
    }
}

#[test]
fn dependencies_against_their_row() {
    let permitted: Permitted =
        toml::from_str("for-tests = [\"testkit\"]\n[crates]\nb = [\"a\"]\nc = []").expect("permitted");
    for (name, manifest, parts) in [
        (
            "b",
            "[dependencies]\nlarix-a.workspace = true\nanyhow = \"1\"\n[dev-dependencies]\nlarix-testkit = \"1\"",
            &[][..],
        ),
        ("b", "[dependencies]\nanyhow = \"1\"", &["b does not depend on a any more"]),
        ("c", "[dependencies]\nlarix-a = \"1\"", &["c depends on a, which"]),
        ("c", "[build-dependencies]\nlarix-a = \"1\"", &["c depends on a, which"]),
        ("c", "[target.'cfg(unix)'.dependencies]\nlarix-a = \"1\"", &["c depends on a, which"]),
        ("c", "[dependencies]\nlarix-testkit = \"1\"", &["c depends on testkit, which"]),
        ("c", "[dev-dependencies]\nlarix-a = \"1\"", &["tests of c depend on a, which"]),
        ("d", "", &["no row for d"]),
    ] {
        let mut faults = Vec::new();
        dependency_faults(name, &toml::from_str(manifest).expect("a manifest"), &permitted, &mut faults);
        assert!(
            faults.len() == parts.len() && faults.iter().zip(parts).all(|(fault, part)| fault.contains(part)),
            "{name} {manifest}: {faults:#?}"
        );
    }
}

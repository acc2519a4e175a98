//! Kinds of databases are known by their descriptors: no other source asks for the name of one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary, ExprMatch, ExprStruct, ItemConst, ItemMod, Lit, Member};

use crate::overlay_names::{Literals, is_for_tests, is_watched};

/// The table of kinds, and the folder with a file for each.
const TABLE: &str = "crates/configuration/src/kinds.rs";
const FOLDER: &str = "crates/configuration/src/kinds";

/// The exceptions: a file, and why it names kinds. An exception that is not needed is a fault.
const NAMED_ELSEWHERE: &[(&str, &str)] = &[
    ("crates/configuration/src/directives/structure.rs", "an error names the kind that a build leaves out"),
    ("crates/configuration/src/quick_start.rs", "it writes the lines of a configuration"),
    ("crates/server/src/databases/mounting.rs", "the table of backends"),
];

/// Kinds whose names are words for other things, too. The check finds them only where code compares the name of a kind with them.
const WORDS: &[(&str, &str)] = &[
    ("changelog", "a word of syncrepl, and an attribute of the root DSE"),
    ("config", "the suffix cn=config"),
    ("ldap", "a scheme of URLs"),
    ("ldif", "a form of files"),
    ("meta", "a table of the store"),
    ("monitor", "a file of definitions"),
    ("passwd", "a tool"),
    ("sock", "an overlay, too"),
];

/// The names that descriptors have.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    fn add(&mut self, names: &Expr) {
        let mut found = Literals::default();
        found.visit_expr(names);
        self.0.extend(found.all.into_iter().map(|(name, _)| name).filter(|name| !name.is_empty()));
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'a ItemConst) {
        if item.ident == "NAME" {
            self.add(&item.expr);
        }
    }

    fn visit_expr_struct(&mut self, made: &'a ExprStruct) {
        if made.path.segments.last().is_some_and(|segment| segment.ident == "Descriptor") {
            for field in &made.fields {
                if matches!(&field.member, Member::Named(name) if name == "name" || name == "formerly") {
                    self.add(&field.expr);
                }
            }
        }
        visit::visit_expr_struct(self, made);
    }
}

/// Texts that code compares the name of a kind with, outside of tests, with their lines.
#[derive(Default)]
struct Comparisons(Vec<(String, usize)>);

impl<'a> Visit<'a> for Comparisons {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'a ExprBinary) {
        if matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)) {
            for (one, other) in [(&binary.left, &binary.right), (&binary.right, &binary.left)] {
                if is_name_of_kind(one)
                    && let Expr::Lit(literal) = &**other
                    && let Lit::Str(text) = &literal.lit
                {
                    self.0.push((text.value(), text.span().start().line));
                }
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_match(&mut self, matched: &'a ExprMatch) {
        if is_name_of_kind(&matched.expr) {
            let mut found = Literals::default();
            for arm in &matched.arms {
                found.visit_pat(&arm.pat);
            }
            self.0.extend(found.all);
        }
        visit::visit_expr_match(self, matched);
    }
}

/// Whether this is `kind.name()`, or `database.kind.name()`.
fn is_name_of_kind(expression: &Expr) -> bool {
    let Expr::MethodCall(call) = expression else { return false };
    call.method == "name"
        && match &*call.receiver {
            Expr::Field(field) => matches!(&field.member, Member::Named(name) if name == "kind"),
            Expr::Path(path) => path.path.is_ident("kind"),
            _ => false,
        }
}

fn parsed(root: &Path, file: &Path) -> anyhow::Result<syn::File> {
    let text = std::fs::read_to_string(root.join(file)).with_context(|| file.display().to_string())?;
    syn::parse_file(&text).with_context(|| file.display().to_string())
}

fn is_of_table(file: &Path) -> bool {
    file == Path::new(TABLE) || file.starts_with(FOLDER)
}

/// What the check of `tidy` finds wrong. `sources`: those without tests.
pub(crate) fn faults(root: &Path, sources: &[PathBuf], faults: &mut Vec<String>) -> anyhow::Result<()> {
    let mut names = Names::default();
    for file in sources.iter().filter(|file| is_of_table(file)) {
        names.visit_file(&parsed(root, file)?);
    }
    let Names(names) = names;
    for (word, _) in WORDS.iter().filter(|(word, _)| !names.contains(*word)) {
        faults.push(format!("WORDS: no kind of database has the name {word:?}"));
    }
    let mut needed = BTreeSet::new();
    for file in sources.iter().filter(|file| is_watched(file) && !is_of_table(file)) {
        let content = parsed(root, file)?;
        let (mut literals, mut comparisons) = (Literals::default(), Comparisons::default());
        literals.visit_file(&content);
        comparisons.visit_file(&content);
        literals.all.retain(|(text, _)| WORDS.iter().all(|(word, _)| word != text));
        let found: BTreeSet<(String, usize)> = literals.all.into_iter().chain(comparisons.0).collect();
        for (text, line) in found.into_iter().filter(|(text, _)| names.contains(text)) {
            match NAMED_ELSEWHERE.iter().position(|(excused, _)| file == Path::new(excused)) {
                Some(excuse) => drop(needed.insert(excuse)),
                None => faults.push(format!(
                    "{}:{line}: {text:?} is a kind of database: ask its descriptor for what it can do",
                    file.display()
                )),
            }
        }
    }
    for (number, (file, _)) in NAMED_ELSEWHERE.iter().enumerate() {
        if !needed.contains(&number) {
            faults.push(format!("NAMED_ELSEWHERE: {file} does not name a kind of database any more"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> syn::File {
        syn::parse_file(text).expect("Rust")
    }

    #[test]
    fn names_are_those_of_descriptors() {
        let mut names = Names::default();
        names.visit_file(&file(
            "const NAME: &str = \"a\"; static D: Descriptor = Descriptor { name: NAME, formerly: &[\"b\"], class: Some(\"C\"), ..NO };\
             static E: Descriptor = Descriptor { name: \"c\", ..NO }; const NO: Descriptor = Descriptor { name: \"\" };",
        ));
        assert_eq!(names.0, BTreeSet::from(["a", "b", "c"].map(str::to_owned)));
    }

    #[test]
    fn comparisons_are_found() {
        for (text, expected) in [
            ("database.kind.name() == \"a\"", &["a"][..]),
            ("x && \"a\" != kind.name()", &["a"]),
            ("kind.name() == other.kind.name()", &[]),
            ("match database.kind.name() { \"a\" | \"b\" => x, _ => \"c\" == y }", &["a", "b"]),
            ("overlay.name() == \"a\"", &[]),
            ("match overlay.name() { \"a\" => x, _ => y }", &[]),
        ] {
            let mut found = Comparisons::default();
            found.visit_file(&file(&format!("fn f() -> bool {{ {text} }}")));
            let found: Vec<String> = found.0.into_iter().map(|(text, _)| text).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}

//! Overlays are known by their folders: no other source names one, its directives or its attributes under cn=config.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ItemMod, LitStr};

const FOLDER: &str = "crates/overlays/src";

/// The exceptions: a file, the beginning of the names that it may use, and why. An exception that is not needed is a fault.
const NAMED_ELSEWHERE: &[(&str, &str, &str)] = &[
    ("crates/cli/src/client/controls.rs", "ppolicy", "a control's name after -e"),
    ("crates/cli/src/client/deleted/restore.rs", "memberof", "an attribute of entries"),
    (
        "crates/configuration/src/access_log.rs",
        "olcaccesslog",
        "the server makes access logs, from its settings",
    ),
    ("crates/configuration/src/directives/database.rs", "lastbind", "a directive of databases, too"),
    ("crates/configuration/src/directives/database.rs", "lastmod", "a directive of databases, too"),
    ("crates/configuration/src/directives/database.rs", "olclastbind", "a directive of databases, too"),
    (
        "crates/configuration/src/directives/global.rs",
        "olctls",
        "the server's settings, which autoca changes",
    ),
    ("crates/configuration/src/quick_start.rs", "syncprov", "servers of a list follow each other"),
    ("crates/configuration/src/values/sync_replication.rs", "accesslog", "a word of syncrepl"),
    ("crates/configuration/src/values/sync_replication.rs", "logbase", "a word of syncrepl"),
    ("crates/proto/src/oid.rs", "ppolicy", "a control's name"),
    ("crates/schema/src/bundled.rs", "ppolicy", "a file of definitions"),
];

/// Overlays whose names are words of standards and of OpenLDAP's, too.
const WORDS: &[(&str, &str)] = &[
    ("allowed", "what slapacl says"),
    ("authzid", "a field of SASL's messages and of controls"),
    ("collective", "a keyword of RFC 4512 and a file of definitions"),
    ("deref", "a control"),
    ("dyngroup", "a file of definitions"),
    ("trace", "a level of the log"),
    ("valsort", "a control"),
];

/// String literals of a file, tests left out, with their lines.
#[derive(Default)]
pub(crate) struct Literals {
    pub(crate) all: Vec<(String, usize)>,
    /// First arguments of `OverlayDirective::...`: keywords.
    keywords: Vec<String>,
}

impl Literals {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let mut found = Self::default();
        found.visit_file(&syn::parse_file(&text)?);
        Ok(found)
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<LitStr>(&literal.to_string()) {
                        self.all.push((text.value(), literal.span().start().line));
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'a> Visit<'a> for Literals {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_lit_str(&mut self, literal: &'a LitStr) {
        self.all.push((literal.value(), literal.span().start().line));
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        self.tokens(called.tokens.clone());
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        let is_directive = matches!(&*call.func, Expr::Path(function)
            if function.path.segments.first().is_some_and(|segment| segment.ident == "OverlayDirective"));
        if is_directive
            && let Some(Expr::Lit(literal)) = call.args.first()
            && let syn::Lit::Str(keyword) = &literal.lit
        {
            self.keywords.push(keyword.value());
        }
        visit::visit_expr_call(self, call);
    }
}

pub(crate) fn is_for_tests(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
}

/// What overlays are called, their keywords and their attributes under cn=config, in lower case.
fn names(root: &Path, files: &[PathBuf]) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in files {
        let Ok(within) = file.strip_prefix(FOLDER) else { continue };
        let mut parts = within.components();
        let Some(overlay) = parts.next().filter(|_| parts.next().is_some()) else { continue };
        let overlay = overlay.as_os_str().to_string_lossy().into_owned();
        if overlay == "testing" {
            continue;
        }
        let literals = Literals::of(&root.join(file)).with_context(|| file.display().to_string())?;
        let attributes = literals.all.into_iter().map(|(text, _)| text);
        let attributes = attributes.filter(|text| text.starts_with("olc") && !text.contains([' ', '\n']));
        let keywords = literals.keywords.into_iter().filter(|keyword| !keyword.is_empty());
        names.extend(attributes.chain(keywords).chain([overlay]).map(|name| name.to_ascii_lowercase()));
    }
    // What every overlay and every entry of cn=config has.
    for common in ["olcoverlay", "olcoverlayconfig"] {
        names.remove(common);
    }
    for (word, _) in WORDS {
        names.remove(*word);
    }
    Ok(names)
}

/// What the check of `tidy` finds wrong. `sources`: those without tests.
pub(crate) fn faults(root: &Path, sources: &[PathBuf], faults: &mut Vec<String>) -> anyhow::Result<()> {
    let names = names(root, sources)?;
    let mut needed = BTreeSet::new();
    for file in sources.iter().filter(|file| is_watched(file)) {
        let literals = Literals::of(&root.join(file)).with_context(|| file.display().to_string())?;
        for (text, line) in literals.all {
            let name = text.to_ascii_lowercase();
            if !names.contains(&name) {
                continue;
            }
            let excuse = NAMED_ELSEWHERE
                .iter()
                .position(|(excused, head, _)| file == Path::new(excused) && name.starts_with(head));
            match excuse {
                Some(excuse) => drop(needed.insert(excuse)),
                None => faults.push(format!(
                    "{}:{line}: {text:?} is an overlay's: let its descriptor say what it is for",
                    file.display()
                )),
            }
        }
    }
    for (number, (file, name, _)) in NAMED_ELSEWHERE.iter().enumerate() {
        if !needed.contains(&number) {
            faults.push(format!("NAMED_ELSEWHERE: {file} does not name {name:?} any more"));
        }
    }
    Ok(())
}

/// Crates of tests and of load name what they like: they write configurations for servers.
pub(crate) fn is_watched(file: &Path) -> bool {
    let is_source = file.components().nth(2).is_some_and(|folder| folder.as_os_str() == "src");
    let apart = ["overlays", "load", "testkit", "packages"];
    file.starts_with("crates")
        && is_source
        && !apart.iter().any(|name| file.starts_with(Path::new("crates").join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(text: &str) -> Literals {
        let mut found = Literals::default();
        found.visit_file(&syn::parse_file(text).expect("Rust"));
        found
    }

    #[test]
    fn literals_are_found_wherever_they_stand() {
        for (text, expected) in [
            ("fn f() { g(\"a\") }", &["a"][..]),
            ("fn f() { assert!(x == \"a\", \"b {}\", [\"c\"]) }", &["a", "b {}", "c"]),
            ("static S: &[&str] = &[\"a\"];", &["a"]),
            ("#[cfg(test)] mod tests { const A: &str = \"a\"; }", &[]),
        ] {
            let found: Vec<String> = literals(text).all.into_iter().map(|(text, _)| text).collect();
            assert_eq!(found, expected, "{text}");
        }
        let directive = "static D: X = OverlayDirective::whole(\"a-b\", \"olcAB\").many();";
        assert_eq!(literals(directive).keywords, ["a-b"]);
    }
}

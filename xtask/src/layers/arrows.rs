//! What a module of the source names of other modules: found in the syntax tree, and in the tokens of macros.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// What `lib.rs` or `main.rs` holds beside `mod` and `use`: functions and types of the root.
pub(super) const ROOT: &str = "lib";

/// From a top-level module to another one, with the places in the source that name it.
pub(super) type Arrows = BTreeMap<(String, String), Vec<SourceLocation>>;

/// A file and a line, from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceLocation {
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

/// The top-level modules of a crate and the arrows between them, without tests.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) names: BTreeSet<String>,
    pub(super) arrows: Arrows,
}

/// The source of a crate: a folder, or strings in a test.
pub(super) trait Source {
    /// The text of a file, by its path relative to `src`; `None` where there is no such file.
    fn text(&self, file: &Path) -> Option<String>;
}

impl Source for PathBuf {
    fn text(&self, file: &Path) -> Option<String> {
        std::fs::read_to_string(self.join(file)).ok()
    }
}

/// Reads a crate from its root file, `lib.rs` or `main.rs`, and the modules that it declares.
///
/// # Errors
///
/// A file that is not Rust, a module without a file, and a name of the root that comes from no module.
pub(super) fn modules(source: &impl Source) -> anyhow::Result<Modules> {
    let root = ["lib.rs", "main.rs"].into_iter().find_map(|name| Some((name, source.text(Path::new(name))?)));
    let Some((name, text)) = root else { bail!("neither lib.rs nor main.rs") };
    let mut reader = Reader { source, named: Vec::new(), exported_macros: BTreeMap::new() };
    let items = reader.file(Path::new(name), &text, &[], Path::new(""))?;
    let root = Root::new(&items, std::mem::take(&mut reader.exported_macros));
    let mut found = Modules { names: root.modules.clone(), arrows: Arrows::new() };
    for Named { from, segments, place } in reader.named {
        let target = root.module_of(&segments).with_context(|| {
            format!(
                "{}:{}: crate::{} comes from no module",
                place.file.display(),
                place.line,
                segments.join("::")
            )
        })?;
        let Some(to) = target else { continue };
        let from = from.unwrap_or_else(|| ROOT.to_owned());
        if from == ROOT || to == ROOT {
            found.names.insert(ROOT.to_owned());
        }
        if from != to {
            found.arrows.entry((from, to)).or_default().push(place);
        }
    }
    for places in found.arrows.values_mut() {
        places.sort();
        places.dedup();
    }
    Ok(found)
}

/// A path from the crate's root that is named somewhere.
struct Named {
    /// The top-level module that names it; `None`: the root.
    from: Option<String>,
    /// At least one segment.
    segments: Vec<String>,
    place: SourceLocation,
}

/// What the root's names stand for.
struct Root {
    modules: BTreeSet<String>,
    /// Names brought in by `use`, with the top-level module that they come from; `None`: another crate.
    imported: BTreeMap<String, Option<String>>,
    /// Items of the root itself.
    own: BTreeSet<String>,
    exported_macros: BTreeMap<String, String>,
}

impl Root {
    fn new(items: &[Item], exported_macros: BTreeMap<String, String>) -> Self {
        let mut root = Self {
            modules: BTreeSet::new(),
            imported: BTreeMap::new(),
            own: BTreeSet::new(),
            exported_macros,
        };
        for item in items {
            if let Item::Mod(module) = item {
                root.modules.insert(module.ident.to_string());
            }
        }
        for item in items {
            match item {
                Item::Use(item) => {
                    for leaf in leaves(&item.tree) {
                        let mut path =
                            leaf.segments.iter().skip_while(|name| *name == "crate" || *name == "self");
                        let from = path.next().filter(|name| root.modules.contains(*name)).cloned();
                        root.imported.insert(leaf.name, from);
                    }
                }
                Item::Fn(item) => drop(root.own.insert(item.sig.ident.to_string())),
                Item::Struct(item) => drop(root.own.insert(item.ident.to_string())),
                Item::Enum(item) => drop(root.own.insert(item.ident.to_string())),
                Item::Const(item) => drop(root.own.insert(item.ident.to_string())),
                Item::Static(item) => drop(root.own.insert(item.ident.to_string())),
                Item::Type(item) => drop(root.own.insert(item.ident.to_string())),
                Item::Trait(item) => drop(root.own.insert(item.ident.to_string())),
                Item::Macro(item) => drop(item.ident.as_ref().map(|name| root.own.insert(name.to_string()))),
                _ => {}
            }
        }
        root
    }

    /// The top-level module that a path from the root leads to; `None` for another crate's.
    fn module_of(&self, segments: &[String]) -> Option<Option<String>> {
        let first = segments.first()?;
        if self.modules.contains(first) {
            Some(Some(first.clone()))
        } else if let Some(from) = self.imported.get(first) {
            Some(from.clone())
        } else if self.own.contains(first) {
            Some(Some(ROOT.to_owned()))
        } else {
            self.exported_macros.get(first).cloned().map(Some)
        }
    }
}

/// A path that a `use` brings in, and the name that it has here (`*` for all names of a module).
struct Leaf {
    segments: Vec<String>,
    name: String,
    span: Span,
}

fn leaves(tree: &UseTree) -> Vec<Leaf> {
    fn walk(tree: &UseTree, before: &[String], found: &mut Vec<Leaf>) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => walk(&path.tree, &with(path.ident.to_string()), found),
            UseTree::Group(group) => group.items.iter().for_each(|item| walk(item, before, found)),
            UseTree::Name(name) if name.ident == "self" && !before.is_empty() => found.push(Leaf {
                segments: before.to_vec(),
                name: before.last().cloned().unwrap_or_default(),
                span: name.ident.span(),
            }),
            UseTree::Name(name) => found.push(Leaf {
                segments: with(name.ident.to_string()),
                name: name.ident.to_string(),
                span: name.ident.span(),
            }),
            UseTree::Rename(rename) => found.push(Leaf {
                segments: if rename.ident == "self" {
                    before.to_vec()
                } else {
                    with(rename.ident.to_string())
                },
                name: rename.rename.to_string(),
                span: rename.ident.span(),
            }),
            UseTree::Glob(glob) => found.push(Leaf {
                segments: before.to_vec(),
                name: "*".to_owned(),
                span: glob.star_token.spans.first().copied().unwrap_or_else(Span::call_site),
            }),
        }
    }
    let mut found = Vec::new();
    walk(tree, &[], &mut found);
    found
}

struct Reader<'a, S> {
    source: &'a S,
    named: Vec<Named>,
    exported_macros: BTreeMap<String, String>,
}

impl<S: Source> Reader<'_, S> {
    /// Reads a file and the files of its modules; gives its items without tests. `folder` is where files of its modules lie.
    fn file(
        &mut self,
        file: &Path,
        text: &str,
        module: &[String],
        folder: &Path,
    ) -> anyhow::Result<Vec<Item>> {
        let parsed = syn::parse_file(text)
            .map_err(|error| anyhow::anyhow!("{}:{}: {error}", file.display(), error.span().start().line))?;
        let items: Vec<Item> = parsed.items.into_iter().filter(|item| !is_test_item(item)).collect();
        let mut visitor = Visitor {
            file,
            module: module.to_vec(),
            siblings: BTreeSet::new(),
            named: &mut self.named,
            exported_macros: &mut self.exported_macros,
        };
        if module.is_empty() {
            visitor.siblings = items.iter().filter_map(declared).collect();
        }
        for item in &items {
            // The root's `use` says what its names stand for: no arrow of its own.
            if !(module.is_empty() && matches!(item, Item::Use(_))) {
                visitor.visit_item(item);
            }
        }
        for item in &items {
            self.declared_file(file, item, module, folder)?;
        }
        Ok(items)
    }

    /// The file of `mod name;`, in inline modules too.
    fn declared_file(
        &mut self,
        from: &Path,
        item: &Item,
        module: &[String],
        folder: &Path,
    ) -> anyhow::Result<()> {
        let Item::Mod(declaration) = item else { return Ok(()) };
        let name = declaration.ident.to_string();
        let inside = [module, std::slice::from_ref(&name)].concat();
        if let Some((_, items)) = &declaration.content {
            return items
                .iter()
                .filter(|item| !is_test_item(item))
                .try_for_each(|item| self.declared_file(from, item, &inside, &folder.join(&name)));
        }
        let candidates = [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
        for candidate in candidates {
            if let Some(text) = self.source.text(&candidate) {
                return self.file(&candidate, &text, &inside, &folder.join(&name)).map(drop);
            }
        }
        bail!("{}: no file for mod {name}", from.display())
    }
}

fn declared(item: &Item) -> Option<String> {
    match item {
        Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    }
}

struct Visitor<'a> {
    file: &'a Path,
    /// The module that the visitor is in, from the root.
    module: Vec<String>,
    /// In the root: the top-level modules, which it names without `crate`.
    siblings: BTreeSet<String>,
    named: &'a mut Vec<Named>,
    exported_macros: &'a mut BTreeMap<String, String>,
}

impl Visitor<'_> {
    /// Notes a path where it leads out of this top-level module.
    fn path(&mut self, segments: &[String], span: Span) {
        let Some(absolute) = self.absolute(segments) else { return };
        let from = self.module.first();
        if absolute.is_empty() || absolute.first() == from {
            return;
        }
        let place = SourceLocation { file: self.file.to_owned(), line: span.start().line };
        self.named.push(Named { from: from.cloned(), segments: absolute, place });
    }

    /// The path from the root; `None` where it begins with neither `crate` nor `super` and is no module in the root.
    fn absolute(&self, segments: &[String]) -> Option<Vec<String>> {
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" | "super" => {
                let mut module = self.module.clone();
                let mut segments = segments.iter().peekable();
                segments.next_if(|name| *name == "self");
                while segments.next_if(|name| *name == "super").is_some() {
                    module.pop();
                }
                module.extend(segments.cloned());
                Some(module)
            }
            first if self.module.is_empty() && self.siblings.contains(first) => Some(segments.to_vec()),
            _ => None,
        }
    }

    /// Paths in a macro's tokens: names joined by `::`.
    fn tokens(&mut self, tokens: &TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut begin = Span::call_site();
        let mut colons = 0;
        for token in tokens.clone() {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.path(&std::mem::take(&mut path), begin);
                        begin = name.span();
                    }
                    path.push(name.to_string());
                    colons = 0;
                    continue;
                }
                // `crate::{a, b}`: taken as paths that go on in the group.
                TokenTree::Group(group) if colons == 2 => {
                    let before = std::mem::take(&mut path);
                    if let Ok(tree) =
                        syn::parse2::<UseTree>(TokenStream::from(TokenTree::Group(group.clone())))
                    {
                        for leaf in leaves(&tree) {
                            self.path(&[before.clone(), leaf.segments].concat(), leaf.span);
                        }
                    }
                }
                TokenTree::Group(group) => {
                    self.path(&std::mem::take(&mut path), begin);
                    self.tokens(&group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.path(&std::mem::take(&mut path), begin),
            }
            colons = 0;
            path.clear();
        }
        self.path(&path, begin);
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test_item(item) {
            return;
        }
        if let Item::Macro(definition) = item
            && definition.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"))
            && let (Some(name), Some(module)) = (&definition.ident, self.module.first())
        {
            self.exported_macros.insert(name.to_string(), module.clone());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for leaf in leaves(&item.tree) {
            self.path(&leaf.segments, leaf.span);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(item) => item.attrs.as_slice(),
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_test(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_test(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_test(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let attributes = match statement {
            syn::Stmt::Local(local) => local.attrs.as_slice(),
            syn::Stmt::Expr(syn::Expr::Block(block), _) => &block.attrs,
            syn::Stmt::Macro(statement) => &statement.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.path(&segments, first.ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.tokens(&called.tokens);
    }

    // `pub(in crate::a)` is no use of a, and an attribute names nothing that runs.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// Whether the item is a test's: by its attribute, or a module by its name.
fn is_test_item(item: &Item) -> bool {
    let attributes = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => {
            let name = item.ident.to_string();
            if name.ends_with("tests") || name.starts_with("fixture") {
                return true;
            }
            &item.attrs
        }
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    is_test(attributes)
}

/// `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, ...))]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string();
        list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all (test"))
    })
}

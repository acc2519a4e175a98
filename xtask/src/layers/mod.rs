//! The layers of the source, as `layers.toml` permits them: arrows between crates, rows of top-level modules in a crate,
//! and the size of the largest circle among them. The numbers and the exceptions are exact, so that they can only shrink.

mod arrows;
mod circles;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

use arrows::{Modules, SourceLocation};

const FILE: &str = "layers.toml";
/// A crate with more top-level modules has to arrange them in rows.
const MODULES_WITHOUT_ROWS_MAX: usize = 6;
/// Places of one arrow that a refusal shows.
const PLACES_SHOWN_MAX: usize = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Permitted {
    /// By package (without `larix-`): the packages of the workspace that it depends on.
    crates: BTreeMap<String, BTreeSet<String>>,
    /// Packages that every package may use in its tests, beside what its own row permits.
    for_tests: BTreeSet<String>,
    #[serde(default)]
    modules: BTreeMap<String, Rows>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Rows {
    /// Modules of the largest circle; 1: there is none.
    largest_circle: usize,
    /// The modules are of one kind, a folder each: any number of them needs no rows.
    #[serde(default)]
    peers: bool,
    /// From bottom to top.
    #[serde(default)]
    rows: Vec<Vec<String>>,
    /// `a -> b`: arrows upwards that are still there.
    #[serde(default)]
    exceptions: BTreeSet<String>,
}

/// What the check of `tidy` finds wrong.
pub(crate) fn faults(root: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let permitted = permitted(root)?;
    crate_faults(root, &permitted, faults)?;
    for (name, path) in crates(root)? {
        let modules = arrows::modules(&path.join("src")).with_context(|| path.display().to_string())?;
        module_faults(&name, &modules, permitted.modules.get(&name), faults);
    }
    for name in permitted.modules.keys().filter(|name| !root.join("crates").join(name).is_dir()) {
        faults.push(format!("{FILE}: modules.{name}: no such crate"));
    }
    Ok(())
}

/// `cargo xtask layers`: circles of all crates; of one crate its arrows; of two modules the places.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let (only, ends) = match arguments {
        [] => (None, None),
        [name] => (Some(*name), None),
        [name, from, to] => (Some(*name), Some((*from, *to))),
        _ => anyhow::bail!("cargo xtask layers [CRATE [FROM TO]]"),
    };
    let permitted = permitted(root)?;
    for (name, path) in crates(root)? {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let modules = arrows::modules(&path.join("src")).with_context(|| path.display().to_string())?;
        if let Some((from, to)) = ends {
            for place in modules.arrows.get(&(from.to_owned(), to.to_owned())).into_iter().flatten() {
                println!("crates/{name}/src/{}:{}", place.file.display(), place.line);
            }
            continue;
        }
        let circles = circles::circles(&modules.names, &modules.arrows);
        let largest = circles.first().map_or(1, Vec::len);
        println!("{name}: {} modules, largest circle {largest}", modules.names.len());
        for circle in &circles {
            println!("  circle of {}: {}", circle.len(), circle.join(" "));
        }
        if only.is_some() {
            let rows = permitted.modules.get(&name).map(row_numbers).unwrap_or_default();
            for ((from, to), places) in &modules.arrows {
                let up = if rows.get(from.as_str()) < rows.get(to.as_str()) { "  upwards" } else { "" };
                println!("  {from} -> {to}  {}{up}", places.len());
            }
        }
    }
    Ok(())
}

fn permitted(root: &Path) -> anyhow::Result<Permitted> {
    let text = std::fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    toml::from_str(&text).with_context(|| FILE.to_owned())
}

/// The crates under `crates/`, by the names of their folders.
fn crates(root: &Path) -> anyhow::Result<BTreeMap<String, std::path::PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root.join("crates")).context("cannot list crates")? {
        let path = entry?.path();
        if path.join("Cargo.toml").is_file()
            && let Some(name) = path.file_name().and_then(|name| name.to_str())
        {
            found.insert(name.to_owned(), path.clone());
        }
    }
    Ok(found)
}

/// The dependencies of each package against its row.
fn crate_faults(root: &Path, permitted: &Permitted, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let mut packages = crates(root)?;
    for name in ["tests", "xtask"] {
        packages.insert(name.to_owned(), root.join(name));
    }
    for (name, path) in &packages {
        let manifest = path.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest)
            .with_context(|| format!("cannot read {}", manifest.display()))?;
        let manifest: toml::Table = toml::from_str(&text).with_context(|| manifest.display().to_string())?;
        dependency_faults(name, &manifest, permitted, faults);
    }
    for name in permitted.crates.keys().filter(|name| !packages.contains_key(*name)) {
        faults.push(format!("{FILE}: crates.{name}: no such package"));
    }
    Ok(())
}

fn dependency_faults(name: &str, manifest: &toml::Table, permitted: &Permitted, faults: &mut Vec<String>) {
    let Some(row) = permitted.crates.get(name) else {
        faults.push(format!("{FILE}: crates has no row for {name}"));
        return;
    };
    let normal = dependencies(manifest, &["dependencies", "build-dependencies"]);
    for other in normal.difference(row) {
        faults.push(format!("{FILE}: {name} depends on {other}, which its row in [crates] does not permit"));
    }
    for other in row.difference(&normal) {
        faults.push(format!(
            "{FILE}: {name} does not depend on {other} any more: take it from its row in [crates]"
        ));
    }
    for other in dependencies(manifest, &["dev-dependencies"]) {
        if !row.contains(&other) && !permitted.for_tests.contains(&other) {
            faults.push(format!(
                "{FILE}: tests of {name} depend on {other}, which stands neither in its row nor in for-tests"
            ));
        }
    }
}

/// The workspace's packages in these sections of a manifest, those of one platform too, without `larix-`.
fn dependencies(manifest: &toml::Table, sections: &[&str]) -> BTreeSet<String> {
    let platforms = manifest.get("target").and_then(toml::Value::as_table);
    let platforms = platforms.into_iter().flat_map(|all| all.values()).filter_map(toml::Value::as_table);
    std::iter::once(manifest)
        .chain(platforms)
        .flat_map(|table| sections.iter().filter_map(|section| table.get(*section)?.as_table()))
        .flat_map(toml::Table::keys)
        .filter_map(|name| if name == "larix" { Some("cli") } else { name.strip_prefix("larix-") })
        .map(str::to_owned)
        .collect()
}

fn row_numbers(rows: &Rows) -> BTreeMap<&str, usize> {
    let numbered = rows.rows.iter().enumerate();
    numbered.flat_map(|(number, row)| row.iter().map(move |name| (name.as_str(), number))).collect()
}

/// The modules of one crate against its rows, its exceptions and its largest circle.
fn module_faults(name: &str, modules: &Modules, rows: Option<&Rows>, faults: &mut Vec<String>) {
    let circles = circles::circles(&modules.names, &modules.arrows);
    let largest = circles.first().map_or(1, Vec::len);
    let none = Rows { largest_circle: 1, peers: false, rows: Vec::new(), exceptions: BTreeSet::new() };
    let rows = rows.unwrap_or(&none);
    if largest > rows.largest_circle {
        let circle = circles.first().map(|circle| circle.join(" ")).unwrap_or_default();
        faults.push(format!(
            "{name}: {largest} modules name each other in a circle, {} are permitted: {circle} (`cargo xtask layers {name}` lists the arrows)",
            rows.largest_circle
        ));
    } else if largest < rows.largest_circle {
        faults.push(format!(
            "{FILE}: modules.{name}: the largest circle has {largest} modules now: lower largest-circle"
        ));
    }
    if rows.rows.is_empty() {
        if modules.names.len() > MODULES_WITHOUT_ROWS_MAX && !rows.peers {
            faults.push(format!(
                "{FILE}: modules.{name} has no rows, and the crate {} modules",
                modules.names.len()
            ));
        }
        return;
    }
    let numbers = row_numbers(rows);
    if numbers.len() < rows.rows.iter().map(Vec::len).sum() {
        faults.push(format!("{FILE}: modules.{name}: a module stands in two rows"));
    }
    for module in modules.names.iter().filter(|module| !numbers.contains_key(module.as_str())) {
        faults.push(format!("{FILE}: modules.{name}: {module} stands in no row"));
    }
    for module in numbers.keys().filter(|module| !modules.names.contains(**module)) {
        faults.push(format!("{FILE}: modules.{name}: no module is called {module}"));
    }
    let mut upwards = BTreeSet::new();
    for ((from, to), places) in &modules.arrows {
        if numbers.get(from.as_str()) < numbers.get(to.as_str()) {
            let arrow = format!("{from} -> {to}");
            if !rows.exceptions.contains(&arrow) {
                faults.push(format!("{name}: {arrow} leads upwards: {}", shown(name, places)));
            }
            upwards.insert(arrow);
        }
    }
    for exception in rows.exceptions.difference(&upwards) {
        faults.push(format!(
            "{FILE}: modules.{name}: no arrow upwards {exception:?} is left: take it from the exceptions"
        ));
    }
}

fn shown(name: &str, places: &[SourceLocation]) -> String {
    let shown = places.iter().take(PLACES_SHOWN_MAX);
    let mut shown: Vec<String> =
        shown.map(|place| format!("crates/{name}/src/{}:{}", place.file.display(), place.line)).collect();
    if places.len() > PLACES_SHOWN_MAX {
        shown.push(format!("and {} more", places.len() - PLACES_SHOWN_MAX));
    }
    shown.join(", ")
}

//! `cargo xtask site`: the documents as a site with search, by mdBook, which asks no network.
//!
//! The pages are copied to `target/site-source` in the layout of the project, so that the links among them hold; mdBook's name for a
//! README.md is index.md. A link to a file that is no page (source code, a licence) becomes plain text there. Afterwards every link of the finished pages is looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::links::{Link, SUMMARY, links};
use super::{is_document, normal};

/// The release that the configuration is written for.
const MDBOOK: &str = "0.5.4";

/// Builds `target/site` from `files`, and says where its first page is.
pub(crate) fn build(root: &Path, files: &[PathBuf]) -> anyhow::Result<()> {
    let mdbook = program()?;
    let (source, site) = (root.join("target/site-source"), root.join("target/site"));
    for folder in [&source, &site] {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    stage(root, files, &source)?;
    let status = Command::new(&mdbook)
        .arg("build")
        .arg(&source)
        .arg("--dest-dir")
        .arg(&site)
        .status()
        .with_context(|| format!("cannot start {}", mdbook.display()))?;
    if !status.success() {
        bail!("mdbook ended with {status}");
    }
    let pages = pages(&site)?;
    let faults = broken(&site, &pages);
    if !faults.is_empty() {
        bail!("links of the site:\n  {}", faults.join("\n  "));
    }
    println!("{} pages, every link leads somewhere: {}", pages.len(), site.join("index.html").display());
    Ok(())
}

/// mdBook from the path or from where cargo installs.
fn program() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for program in [PathBuf::from("mdbook"), home.join(".cargo/bin/mdbook")] {
        if Command::new(&program).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return Ok(program);
        }
    }
    bail!("mdbook is not installed: `cargo install mdbook --version {MDBOOK} --locked` gets it")
}

/// Copies the book's configuration, its pages and the files that they show.
fn stage(root: &Path, files: &[PathBuf], to: &Path) -> anyhow::Result<()> {
    let read = |file: &Path| {
        fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {}", file.display()))
    };
    let decisions = files.iter().filter(|file| file.starts_with("docs/adr") && !file.ends_with("README.md"));
    let mut titled = Vec::new();
    for file in decisions {
        let text = read(file)?;
        titled.push((text.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned(), file));
    }
    let summary = summary(&read(Path::new(SUMMARY))?, &titled);
    let pages: BTreeSet<PathBuf> =
        links(&summary).into_iter().map(|link| PathBuf::from(link.target)).collect();
    let write = |name: &Path, text: &[u8]| {
        let path = to.join(name);
        let folder = path.parent().unwrap_or(to);
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(Path::new("book.toml"), read(Path::new("docs/book.toml"))?.as_bytes())?;
    write(Path::new("src/SUMMARY.md"), summary.as_bytes())?;
    let is_shown = |file: &Path| {
        pages.contains(file) || file.starts_with("docs") && !is_document(file) && !file.ends_with("book.toml")
    };
    for page in &pages {
        let text = with_links(&read(page)?, |target| {
            let link = Link { line: 0, target: target.to_owned() };
            let Some((path, _)) = link.parts() else { return Some(target.to_owned()) };
            let file = page.parent().and_then(|folder| normal(&folder.join(path)));
            let is_there =
                path.is_empty() || file.is_some_and(|file| is_shown(&file) && root.join(&file).is_file());
            is_there.then(|| target.replace("README.md", "index.md"))
        });
        write(&Path::new("src").join(page), text.as_bytes())?;
    }
    for file in files.iter().filter(|file| is_shown(file) && !is_document(file)) {
        let bytes = fs::read(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        write(&Path::new("src").join(file), &bytes)?;
    }
    Ok(())
}

/// The summary with its paths from the project's root, and the decisions below their list.
fn summary(text: &str, decisions: &[(String, &PathBuf)]) -> String {
    let folder = Path::new(SUMMARY).parent().unwrap_or_else(|| Path::new(""));
    let mut out = String::new();
    for line in text.lines() {
        let target = links(line).pop().map(|link| link.target);
        let Some(target) = target else {
            let _ = writeln!(out, "{line}");
            continue;
        };
        let page = normal(&folder.join(&target)).unwrap_or_default().display().to_string();
        let _ = writeln!(out, "{}", line.replace(&format!("]({target})"), &format!("]({page})")));
        if page == "docs/adr/README.md" {
            for (title, file) in decisions {
                let _ = writeln!(out, "  - [{title}]({})", file.display());
            }
        }
    }
    out
}

/// The text with each link's target as `target` has it, or with the link's text alone.
fn with_links(text: &str, target: impl Fn(&str) -> Option<String>) -> String {
    let mut fenced = false;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let mut rest = line;
        let mut kept = String::new();
        while let Some(place) = rest.find("](").filter(|_| !fenced) {
            let end = rest[place..].find(')').map_or(rest.len(), |end| place + end + 1);
            let written = rest[place + 2..end].trim_end_matches(')').split(' ').next().unwrap_or_default();
            kept.push_str(&rest[..place]);
            match (target(written), kept.rfind('[')) {
                (Some(target), _) => kept.push_str(&rest[place..end].replacen(written, &target, 1)),
                (None, Some(open)) => drop(kept.remove(open)),
                (None, None) => kept.push_str(&rest[place..end]),
            }
            rest = &rest[end..];
        }
        out.push_str(&kept);
        out.push_str(rest);
        out.push('\n');
    }
    out
}

/// What a finished page has and names.
struct Page {
    anchors: BTreeSet<String>,
    targets: Vec<String>,
}

/// The finished pages.
fn pages(site: &Path) -> anyhow::Result<BTreeMap<PathBuf, Page>> {
    let (mut pages, mut folders) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let path = site.join(&folder);
        for entry in fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
            let entry = entry.with_context(|| format!("cannot read {}", path.display()))?;
            let name = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(name);
            } else if name.extension().is_some_and(|extension| extension == "html")
                && !name.ends_with("404.html")
            {
                let text = fs::read_to_string(site.join(&name))
                    .with_context(|| format!("cannot read {}", name.display()))?;
                let targets = [values(&text, " href=\""), values(&text, " src=\"")].concat();
                let anchors = values(&text, " id=\"").into_iter().collect();
                pages.insert(name, Page { anchors, targets });
            }
        }
    }
    Ok(pages)
}

/// What stands between each `start` and the next quote.
fn values(text: &str, start: &str) -> Vec<String> {
    let values = text.split(start).skip(1).filter_map(|rest| rest.split('"').next());
    values.map(|value| value.replace("&amp;", "&")).collect()
}

/// Links of the pages that lead nowhere.
fn broken(site: &Path, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut faults = Vec::new();
    for (page, Page { targets, .. }) in pages {
        for target in targets {
            let link = Link { line: 0, target: target.clone() };
            let Some((path, anchor)) = link.parts() else { continue };
            let file = match path.is_empty() {
                true => Some(page.clone()),
                false => page.parent().and_then(|folder| normal(&folder.join(path))),
            };
            let is_there = file.is_some_and(|file| match pages.get(&file) {
                Some(Page { anchors, .. }) => anchor.is_empty() || anchors.contains(anchor),
                None => site.join(&file).is_file(),
            });
            if !is_there {
                faults.push(format!("{}: {target}", page.display()));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_summary() {
        let adr = PathBuf::from("docs/adr/0001-x.md");
        let text =
            "# Summary\n\n[Larix](../README.md)\n- [Guide](guide/README.md)\n- [Decisions](adr/README.md)\n";
        assert_eq!(
            summary(text, &[("First".to_owned(), &adr)]),
            "# Summary\n\n[Larix](README.md)\n- [Guide](docs/guide/README.md)\n- [Decisions](docs/adr/README.md)\n  - [First](docs/adr/0001-x.md)\n"
        );
    }

    #[test]
    fn links_to_other_files_become_text() {
        let text = "a [b](c.md), [`d`](../d.rs) [e](f.md#g)\n```\n[x](../d.rs)\n```\n";
        let found =
            with_links(text, |target| (!target.contains("d.rs")).then(|| target.replace("c.md", "i.md")));
        assert_eq!(found, "a [b](i.md), `d` [e](f.md#g)\n```\n[x](../d.rs)\n```\n");
    }

    #[test]
    fn broken_links_of_pages_are_found() {
        let site = tempfile::tempdir().unwrap();
        fs::create_dir(site.path().join("a")).unwrap();
        let page = "<p id=\"here\"><a class=\"x\" href=\"../b.html#there\"><a href=\"../b.html#no\"><a href=\"#here\"><a href=\"c.html\"><a href=\"https://x\">";
        fs::write(site.path().join("a/a.html"), page).unwrap();
        fs::write(site.path().join("b.html"), "<h1 id=\"there\">").unwrap();
        let pages = pages(site.path()).unwrap();
        assert_eq!(broken(site.path(), &pages), ["a/a.html: ../b.html#no", "a/a.html: c.html"]);
    }
}

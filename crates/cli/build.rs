//! Tells the binary which commit it is built from: that of the checkout; else what `LARIX_COMMIT` says, for builds from a
//! tarball; else "unknown". It runs again, and the command line is compiled again, when another commit is checked out.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The variable that gives the commit to a build outside a checkout.
const VARIABLE: &str = "LARIX_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let given = env::var(VARIABLE).ok().filter(|commit| !commit.is_empty());
    let commit = commit().or(given).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=LARIX_BUILT_FROM={commit}");
}

/// The commit that is checked out, from git's own files: git itself need not be installed.
fn commit() -> Option<String> {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    // Of the workspace alone: a source tree without one may lie in somebody else's checkout.
    let git = git_directory(&package.join("../../.git"))?;
    let head = git.join("HEAD");
    watch(&head);
    let text = fs::read_to_string(&head).ok()?;
    let Some(reference) = text.trim().strip_prefix("ref: ") else { return hash(&text) };
    // A further work tree has its references in the first one's directory.
    let common = fs::read_to_string(git.join("commondir")).ok();
    let common = common.map_or_else(|| git.clone(), |path| git.join(path.trim()));
    let loose = common.join(reference);
    let packed = common.join("packed-refs");
    // Each commit is logged, also the first one after which a packed reference gets a file.
    for file in [&loose, &packed, &git.join("logs/HEAD")] {
        watch(file);
    }
    if let Ok(text) = fs::read_to_string(&loose) {
        return hash(&text);
    }
    let packed = fs::read_to_string(packed).ok()?;
    let line = packed.lines().find_map(|line| line.strip_suffix(reference)?.strip_suffix(' '))?;
    hash(line)
}

/// `.git` is a directory, or in a further work tree a file that names it.
fn git_directory(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let text = fs::read_to_string(path).ok()?;
    Some(path.parent()?.join(text.trim().strip_prefix("gitdir: ")?))
}

/// A file that is not there would have the script run each time.
fn watch(file: &Path) {
    if file.exists() {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}

/// Its first twelve digits, which name a commit here.
fn hash(text: &str) -> Option<String> {
    let text = text.trim();
    let is_hash = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.chars().take(12).collect())
}

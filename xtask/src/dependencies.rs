//! Licences and known-bad crates, from `cargo metadata` alone: no network, no database to download.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

/// Licences that may be linked into a binary under `Apache-2.0 OR MIT`.
const ALLOWED: [&str; 15] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "OLDAP-2.8", // LMDB
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Crates that are unmaintained or have an unmended advisory, with the reason.
const BANNED: [(&str, &str); 5] = [
    ("bincode", "RUSTSEC-2025-0141: unmaintained"),
    ("atty", "RUSTSEC-2021-0145: unsound and unmaintained"),
    ("instant", "RUSTSEC-2024-0384: unmaintained"),
    ("serde_yaml", "deprecated by its author"),
    ("openssl-sys", "TLS here is rustls"),
];

/// Crates outside the workspace whose dependencies are nevertheless downloaded and run here: looked at where the
/// registry's index has been fetched for them, for an ordinary build needs neither.
const APART: [&str; 1] = ["bench-engines/Cargo.toml"];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    look(root, &[])?;
    // What another platform would need is never downloaded here.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    for manifest in APART {
        match look(root, &["--offline", "--filter-platform", &platform, "--manifest-path", manifest]) {
            Err(error) if error.is::<NotFetched>() => {
                println!("dependencies: {manifest}: not fetched, not looked at")
            }
            done => done?,
        }
    }
    Ok(())
}

/// Cargo could not resolve offline.
#[derive(Debug)]
struct NotFetched(String);

impl std::fmt::Display for NotFetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cargo metadata: {}", self.0)
    }
}

impl std::error::Error for NotFetched {}

fn look(root: &Path, which: &[&str]) -> anyhow::Result<()> {
    let output = crate::cargo_command()
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(which)
        .current_dir(root)
        .output()
        .context("cannot start cargo metadata")?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        if which.contains(&"--offline") && message.contains("--offline") {
            return Err(NotFetched(message).into());
        }
        bail!("cargo metadata: {message}");
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let faults: Vec<String> = packages.iter().filter_map(fault).collect();
    if !faults.is_empty() {
        bail!("dependencies:\n  {}", faults.join("\n  "));
    }
    println!("dependencies: {} packages, licences and advisories as they should be", packages.len());
    Ok(())
}

/// What is wrong with one package, if anything.
fn fault(package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("?");
    let version = package["version"].as_str().unwrap_or("?");
    if let Some((_, why)) = BANNED.iter().find(|(banned, _)| *banned == name) {
        return Some(format!("{name} {version}: {why}"));
    }
    let licence = package["license"].as_str().unwrap_or("");
    let allowed = permits(licence) || (licence.is_empty() && !package["license_file"].is_null());
    (!allowed).then(|| format!("{name} {version}: licence {licence:?} is not on the list in xtask"))
}

/// Whether an SPDX expression can be satisfied from [`ALLOWED`]; `/` is crates' old way to write OR.
fn permits(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    expression.split(" OR ").any(|choice| choice.split(" AND ").all(|term| ALLOWED.contains(&term.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_permitted_if_one_choice_is() {
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0-only", false),
            ("Apache-2.0/MIT", true),
            ("MIT AND GPL-2.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("", false),
        ] {
            assert_eq!(permits(expression), expected, "{expression}");
        }
    }
}

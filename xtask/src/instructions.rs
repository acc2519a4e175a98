//! `cargo xtask instructions`: what each kind of request costs, counted under callgrind, against a baseline in the tree.
//! Counts do not depend on what else the machine does, so that a few percent show.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::packages::REQUIRED_VARIABLE;

/// Requests of each kind that are counted.
const OPERATIONS: u64 = 200;
/// Percent above the baseline that fail, and below it that ask for a new one.
const TOLERANCE: u64 = 5;
/// Cargo's arguments for the benchmark.
pub(crate) const BUILD: [&str; 7] =
    ["build", "--profile", "fast", "--package", "larix-server", "--bench", "instructions"];
const BASELINE: &str = "crates/server/benches/instructions/baseline.toml";

/// Counts and compares; with `update` writes the baseline anew.
///
/// Without valgrind nothing is counted, and that is said; in CI it is an error.
pub(crate) fn run(root: &Path, update: bool) -> anyhow::Result<()> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        if std::env::var_os(REQUIRED_VARIABLE).is_some() {
            bail!("valgrind is not installed, and {REQUIRED_VARIABLE} is set");
        }
        println!("instructions: valgrind is not installed: nothing was counted");
        return Ok(());
    }
    let bench = build(root)?;
    let folder = root.join("target/instructions");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let counts = count(&bench, &folder)?;
    let baseline_file = root.join(BASELINE);
    if update {
        let mut text =
            String::from("# Instructions a request, as `cargo xtask instructions update` wrote them.\n");
        for (kind, count) in &counts {
            text += &format!("{kind} = {count}\n");
        }
        std::fs::write(&baseline_file, text).context("cannot write the baseline")?;
    }
    let text = std::fs::read_to_string(&baseline_file).context("cannot read the baseline")?;
    compare(&counts, &parse_baseline(&text)?)
}

/// Builds the benchmark and answers where it is.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let output = crate::cargo_command()
        .args(BUILD)
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the benchmark does not build");
    }
    let text = String::from_utf8(output.stdout).context("cargo's messages")?;
    let executable = text.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = message.get("executable")?.as_str()?;
        (message.get("target")?.get("name")?.as_str()? == "instructions").then(|| PathBuf::from(path))
    });
    executable.context("cargo names no benchmark")
}

/// Instructions a request, by kind.
fn count(bench: &Path, folder: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let out = folder.join("callgrind.out");
    let kinds = Command::new(bench).arg("kinds").output().context("cannot start the benchmark")?;
    if !kinds.status.success() {
        bail!("the benchmark says no kinds: {}", kinds.status);
    }
    let kinds = String::from_utf8(kinds.stdout).context("the benchmark's kinds")?;
    crate::run(Command::new(bench).arg("prepare").arg(folder))?;
    crate::run(
        Command::new("valgrind")
            .args(["--quiet", "--tool=callgrind", "--dump-before=*phase_ends*"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(bench)
            .arg("run")
            .arg(folder)
            .arg(OPERATIONS.to_string()),
    )?;
    let mut counts = BTreeMap::new();
    for (index, kind) in kinds.lines().enumerate() {
        // Before each kind's own part stands one with its preparation.
        let part = folder.join(format!("callgrind.out.{}", 2 * (index + 1)));
        let text =
            std::fs::read_to_string(&part).with_context(|| format!("cannot read {}", part.display()))?;
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let totals: u64 = totals.context("a profile without totals")?.trim().parse()?;
        counts.insert(kind.to_owned(), totals / OPERATIONS);
    }
    Ok(counts)
}

fn parse_baseline(text: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (kind, count) = line.split_once('=').with_context(|| format!("baseline: {line:?}"))?;
            Ok((kind.trim().to_owned(), count.trim().parse()?))
        })
        .collect()
}

fn compare(counts: &BTreeMap<String, u64>, baseline: &BTreeMap<String, u64>) -> anyhow::Result<()> {
    let mut faults = Vec::new();
    println!("{:<18} {:>12} {:>12} {:>8}", "a request", "instructions", "baseline", "");
    for (kind, count) in counts {
        let before = baseline.get(kind).copied().unwrap_or(0);
        let percent = (*count as f64 / before.max(1) as f64 - 1.0) * 100.0;
        println!("{kind:<18} {count:>12} {before:>12} {percent:>+7.1}%");
        if before == 0 {
            faults.push(format!("{kind}: no baseline"));
        } else if count * 100 > before * (100 + TOLERANCE) {
            faults.push(format!("{kind}: {percent:+.1}%"));
        } else if count * 100 < before * (100 - TOLERANCE) {
            println!("  {kind} is cheaper: `cargo xtask instructions update` lowers the baseline");
        }
    }
    for kind in baseline.keys().filter(|kind| !counts.contains_key(*kind)) {
        faults.push(format!("{kind}: in the baseline, and not counted"));
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("not what the baseline has, or more than {TOLERANCE}% above it: {}", faults.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_compared() {
        let of = |kinds: &[(&str, u64)]| -> BTreeMap<String, u64> {
            kinds.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
        };
        let baseline = of(&[("add", 100), ("read", 100)]);
        assert!(compare(&of(&[("add", 105), ("read", 50)]), &baseline).is_ok());
        for counts in [
            &[("add", 106), ("read", 100)][..],
            &[("add", 100)],
            &[("add", 100), ("read", 100), ("search", 100)],
            &[],
        ] {
            assert!(compare(&of(counts), &baseline).is_err(), "{counts:?}");
        }
    }
}

//! `larix load report`: shows a report that was kept as JSON.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use larix_load::report::{Document, TextOptions};

/// The largest file that is read: a report with every sample of a long run has a few megabytes.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Args, Debug)]
pub(super) struct ReportArgs {
    /// The JSON of an earlier measurement; `-` is standard input
    file: PathBuf,
    /// Write one self-contained HTML file instead of the table
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Write the JSON anew, with its ratios, instead of the table; `-` is standard output
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Say which ratios Larix aims at, and whether they were reached
    #[arg(long)]
    goals: bool,
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let document = read(&args.file)?;
    let shown = if args.goals { document.clone() } else { document.without_goals() };
    if let Some(out) = &args.html {
        write(out, &shown.to_html())?;
    }
    if let Some(out) = &args.json {
        write(out, &format!("{:#}\n", document.to_json()))?;
    }
    if args.html.is_none() && args.json.is_none() {
        write(Path::new("-"), &shown.to_text(&TextOptions::of_stdout()))?;
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Document> {
    let name = if file == Path::new("-") { "standard input".into() } else { file.display().to_string() };
    let input: Box<dyn Read> = match name.as_str() {
        "standard input" => Box::new(std::io::stdin().lock()),
        _ => Box::new(std::fs::File::open(file).with_context(|| format!("cannot open {name}"))?),
    };
    let mut text = String::new();
    input
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {name}"))?;
    anyhow::ensure!(text.len() as u64 <= FILE_BYTES_MAX, "{name} is larger than {FILE_BYTES_MAX} bytes");
    Document::from_json(&text).with_context(|| name)
}

/// Writes `text` to the file, or to standard output for `-`. A reader that has gone away is no failure.
pub(super) fn write(out: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    if out != Path::new("-") {
        return std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()));
    }
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("standard output"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        for (text, expected) in
            [(None, "cannot open"), (Some("{"), "no report"), (Some("{\"format\": 9}"), "format 9")]
        {
            let file = folder.path().join("r.json");
            match text {
                Some(text) => std::fs::write(&file, text).unwrap(),
                None => drop(std::fs::remove_file(&file)),
            }
            let error = format!("{:#}", read(&file).unwrap_err());
            assert!(error.contains("r.json") && error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_report_is_rendered_into_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("in.json"), "{\"format\": 1, \"title\": \"A & B\"}").unwrap();
        let args = ReportArgs {
            file: at("in.json"),
            html: Some(at("o.html")),
            json: Some(at("o.json")),
            goals: false,
        };
        run(&args).unwrap();
        assert!(std::fs::read_to_string(at("o.html")).unwrap().contains("<h1>A &amp; B</h1>"));
        assert_eq!(read(&at("o.json")).unwrap(), read(&at("in.json")).unwrap());
    }
}

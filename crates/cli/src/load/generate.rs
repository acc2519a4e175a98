//! `larix load generate`: directories made from a seed, or from a template.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use larix_load::generate::{self, Kind};
use larix_load::template::Template;

#[derive(Args, Debug)]
pub(super) struct GenerateArgs {
    /// mail: accounts of 2 KB with 29 indexes; people: persons and groups; subscribers: 11 attributes, 325 bytes;
    /// template: what FILE describes
    #[arg(value_parser = what)]
    what: What,
    /// A template in MakeLDIF's language
    file: Option<PathBuf>,
    /// How many leaf entries
    #[arg(long, default_value_t = 1_000)]
    entries: u64,
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the files go; created when missing. Of a template: the LDIF file, - for standard output
    #[arg(long, default_value = ".")]
    out: PathBuf,
    /// Where core.schema and its kin lie, for the include lines of slapd.conf; without it the bundled ones are written
    #[arg(long)]
    schema_directory: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Kind(Kind),
    Template,
}

fn what(text: &str) -> Result<What, String> {
    if text == "template" {
        return Ok(What::Template);
    }
    kind(text).map(What::Kind).map_err(|error| format!("{error}, or template"))
}

pub(crate) fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        format!("no directory is called {text:?}: one of {}", names.join(", "))
    })
}

pub(super) fn run(args: &GenerateArgs) -> anyhow::Result<()> {
    match (args.what, &args.file) {
        (What::Kind(kind), None) => directory(args, kind),
        (What::Template, Some(file)) => template(args, file),
        (What::Template, None) => {
            bail!("give the template's file: larix load generate template FILE --out LDIF")
        }
        (What::Kind(kind), Some(file)) => {
            bail!("{}: {} needs no file", file.display(), kind.name())
        }
    }
}

fn directory(args: &GenerateArgs, kind: Kind) -> anyhow::Result<()> {
    let schema = match &args.schema_directory {
        Some(directory) => directory.clone(),
        None => crate::demo::write_bundled_schema(&args.out.join("schema"))?,
    };
    let made = generate::write_directory(kind, args.entries, args.seed, &args.out, &schema)?;
    eprintln!("{} entries, {} bytes", args.entries, made.ldif_bytes);
    println!("{}", made.ldif.display());
    println!("{}", made.configuration.display());
    Ok(())
}

fn template(args: &GenerateArgs, file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let beside = file.parent().unwrap_or_else(|| Path::new(""));
    let template = Template::parse(&text, beside).with_context(|| file.display().to_string())?;
    if args.out.as_os_str() == "-" {
        template.write_ldif(args.seed, &mut std::io::stdout().lock()).context("cannot write")?;
    } else {
        let out = if args.out.is_dir() { args.out.join(ldif_name(file)) } else { args.out.clone() };
        let written = std::fs::File::create(&out).and_then(|created| {
            let mut created = BufWriter::new(created);
            template.write_ldif(args.seed, &mut created)?;
            created.flush()
        });
        written.with_context(|| format!("cannot write {}", out.display()))?;
        println!("{}", out.display());
    }
    eprintln!("{} entries", template.entries());
    Ok(())
}

/// The template's name with `.ldif` at its end.
fn ldif_name(file: &Path) -> PathBuf {
    file.file_stem().map_or_else(|| "template.ldif".into(), |stem| PathBuf::from(stem).with_extension("ldif"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_named() {
        let error = what("persons").unwrap_err();
        assert_eq!(
            error,
            "no directory is called \"persons\": one of mail, people, subscribers, or template"
        );
    }
}

//! `larix load generate`: directories made from a seed.

use std::path::PathBuf;

use clap::Args;
use larix_load::generate::{self, Kind};

#[derive(Args, Debug)]
pub(super) struct GenerateArgs {
    /// mail: accounts of 2 KB with 29 indexes; people: persons and groups; subscribers: 11 attributes, 325 bytes
    #[arg(value_parser = kind)]
    kind: Kind,
    /// How many leaf entries
    #[arg(long, default_value_t = 1_000)]
    entries: u64,
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the files go; created when missing
    #[arg(long, default_value = ".")]
    out: PathBuf,
    /// Where core.schema and its kin lie, for the include lines of slapd.conf; without it the bundled ones are written
    #[arg(long)]
    schema_directory: Option<PathBuf>,
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        format!("no directory is called {text:?}: one of {}", names.join(", "))
    })
}

pub(super) fn run(args: &GenerateArgs) -> anyhow::Result<()> {
    let schema = match &args.schema_directory {
        Some(directory) => directory.clone(),
        None => crate::demo::write_bundled_schema(&args.out.join("schema"))?,
    };
    let made = generate::write_directory(args.kind, args.entries, args.seed, &args.out, &schema)?;
    eprintln!("{} entries, {} bytes", args.entries, made.ldif_bytes);
    println!("{}", made.ldif.display());
    println!("{}", made.configuration.display());
    Ok(())
}

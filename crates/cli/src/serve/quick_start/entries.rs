//! The entries that a first start loads: `--ldif` and `--sample`.

use std::fs::File;
use std::io::{BufRead, BufReader};

use anyhow::{Context, bail};
use larix_configuration::Config;
use larix_engine::load::{self, LoadContext, LoadOptions, Unobserved};
use larix_server::clock::{SystemClock, SystemRandom};
use larix_store::lmdb::LmdbOptions;

use super::{QuickStartArgs, base_entry};

/// A dozen people and three groups of them, below `@SUFFIX@`, whose own entry is `@BASE@`.
const SAMPLE: &str = include_str!("sample.ldif");

/// Loads what the flags name into the database that is not there yet, and answers how many entries that were.
///
/// # Errors
/// A file that cannot be read, an entry that is refused with its line, or entries that are there already. Nothing is loaded then.
pub(super) fn load(
    arguments: &QuickStartArgs,
    config: &Config,
    suffix: &str,
    clock: &SystemClock,
) -> anyhow::Result<u64> {
    if arguments.sample {
        return load_text(config, &mut sample(suffix)?.as_bytes(), clock).context("cannot load the sample");
    }
    let Some(file) = &arguments.ldif else { return Ok(0) };
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let loaded = load_text(config, &mut BufReader::new(opened), clock);
    loaded.with_context(|| format!("cannot load {}", file.display()))
}

fn sample(suffix: &str) -> anyhow::Result<String> {
    let Some(base) = base_entry(suffix) else {
        bail!("--sample makes an entry for a suffix that begins with dc=, o=, ou= or c=, not for {suffix}");
    };
    Ok(SAMPLE.replace("@BASE@", &base.join("\n")).replace("@SUFFIX@", suffix))
}

fn load_text(config: &Config, ldif: &mut (impl BufRead + Send), clock: &SystemClock) -> anyhow::Result<u64> {
    let found = config.databases.iter().find_map(|section| Some((section, section.kind.mdb()?)));
    let Some((section, mdb)) = found else { bail!("the configuration has no database") };
    let settings = config.engine_settings(section).map_err(|error| anyhow::anyhow!("{error}"))?;
    let context = LoadContext { schema: &config.schema, settings: &settings, clock, random: &SystemRandom };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let options = LoadOptions { threads, value_check: true, ..LoadOptions::default() };
    let report = load::load_directory(
        &mdb.directory,
        &LmdbOptions::default(),
        ldif,
        context,
        &options,
        &mut Unobserved,
    )?;
    Ok(report.entries)
}

#[cfg(test)]
mod tests {
    use larix_proto::ldif::Reader;

    use super::*;

    #[test]
    fn the_sample_is_below_the_suffix() {
        let text = sample("dc=site,dc=org").unwrap();
        let records: Vec<_> = Reader::new(text.as_bytes()).collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 18);
        assert!(records.iter().all(|record| record.dn.ends_with("dc=site,dc=org")));
        assert!(
            !text.contains('@') || text.lines().all(|line| !line.contains('@') || line.starts_with("mail:"))
        );
        assert!(sample("cn=odd").is_err());
    }
}

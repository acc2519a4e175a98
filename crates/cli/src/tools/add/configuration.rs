//! `slapadd -n 0`: entries of cn=config added to a slapd.d.

use std::path::Path;

use anyhow::bail;
use larix_configuration::slapd_d::{self, InUse, Stamp};
use larix_configuration::{ConfigEntry, ConfigError};
use larix_proto::ldif::{self, Body, Change, LocalFiles};
use larix_server::clock::{SystemClock, SystemRandom};

use super::AddArgs;

/// An entry, and the line of the LDIF that it starts on.
type Numbered = (u64, ConfigEntry);

/// Fills a slapd.d: entries are added to what is there, the whole is checked, then it is written. With `-c` those are left out that keep
/// it from being a configuration. Answers how many were not added.
pub(super) fn add(name: &str, args: &AddArgs) -> anyhow::Result<u64> {
    if let (Some(file), None) = (&args.config.file, &args.config.directory) {
        // The default directory may be that of another server.
        bail!(
            "cn=config is filled in a slapd.d alone, and -f {} is a file: name the directory (-F)",
            file.display()
        );
    }
    let directory = args.config.location().directory_to_write();
    // As with slapadd: entries may be added for the next start of the server.
    let server = slapd_d::server_of(&directory).filter(|_| !args.input.dry_run);
    if let Some(server) = &server {
        eprintln!(
            "{name}: a server runs with `{}` ({}): it knows of the new entries at its next start; `larix modify` adds them at once",
            directory.display(),
            server.process()
        );
    }
    // No other tool changes it from the look at what is there until the entries are.
    let _in_use = if args.input.dry_run || server.is_some() {
        None
    } else {
        Some(InUse::by_tool(&directory).map_err(|error| anyhow::anyhow!("{error}"))?)
    };
    let (new, mut failed) = read(name, args)?;
    let mut count = new.len();
    let (clock, random) = (SystemClock, SystemRandom);
    let stamp = Stamp { clock: &clock, random: &random };
    let written = match merge(&directory, &new, &stamp) {
        Err(_) if args.input.go_on => {
            let (written, refused) = merge_one_by_one(name, &directory, new, &stamp);
            failed += refused;
            count = count.saturating_sub(refused as usize);
            written
        }
        merged => merged.map_err(|error| anyhow::anyhow!("{error}"))?,
    };
    if !args.input.dry_run && !written.is_empty() {
        slapd_d::write_entries(&directory, &written, &stamp).map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    if args.config.verbose > 0 {
        eprintln!("{name}: {count} entries added to {}", directory.display());
    }
    Ok(failed)
}

/// The entries of the LDIF, and with `-c` how many records are none.
fn read(name: &str, args: &AddArgs) -> anyhow::Result<(Vec<Numbered>, u64)> {
    let (mut new, mut failed) = (Vec::new(), 0);
    let mut pass_over = |fault: String| -> anyhow::Result<()> {
        if !args.input.go_on {
            bail!("{fault}");
        }
        eprintln!("{name}: {fault}");
        failed += 1;
        Ok(())
    };
    for record in ldif::Reader::new(args.input.open()?).with_files(LocalFiles) {
        let record = match record {
            Ok(record) if record.line < args.input.from_line => continue,
            Ok(record) => record,
            Err(error) if !error.is_recoverable() => bail!("{error}"),
            Err(error) if error.line < args.input.from_line => continue,
            Err(error) => {
                pass_over(error.to_string())?;
                continue;
            }
        };
        match record.body {
            Body::Content(attributes) | Body::Change { change: Change::Add(attributes), .. } => {
                new.push((record.line, ConfigEntry::from_ldif(record.dn, attributes)));
            }
            Body::Change { .. } => {
                let fault = format!("line {}: {:?}: only whole entries can be added", record.line, record.dn);
                pass_over(fault)?;
            }
        }
    }
    Ok((new, failed))
}

/// What is to be written if all these entries are added.
fn merge(directory: &Path, new: &[Numbered], stamp: &Stamp<'_>) -> Result<Vec<ConfigEntry>, ConfigError> {
    let entries = new.iter().map(|(_, entry)| entry.clone()).collect();
    slapd_d::merge_entries(directory, entries, stamp).map(|(_, written)| written)
}

/// The same of those that can be added behind the ones before them. Says of the others why not, and answers how many they are.
fn merge_one_by_one(
    name: &str,
    directory: &Path,
    new: Vec<Numbered>,
    stamp: &Stamp<'_>,
) -> (Vec<ConfigEntry>, u64) {
    let (mut taken, mut written, mut refused) = (Vec::new(), Vec::new(), 0);
    for (line, entry) in new {
        taken.push((line, entry));
        match merge(directory, &taken, stamp) {
            Ok(merged) => written = merged,
            Err(error) => {
                eprintln!("{name}: line {line}: {error}");
                refused += 1;
                taken.pop();
            }
        }
    }
    (written, refused)
}

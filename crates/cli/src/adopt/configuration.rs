//! slapd's configuration with other directories: for Larix, and for slapd's own tools on the way back.

use std::path::Path;

use larix_configuration::slapd_d::{self, Stamp};
use larix_configuration::{Config, ConfigEntry, quoted, unquoted};
use larix_proto::ldif::LdifAttribute;
use larix_server::clock::{SystemClock, SystemRandom};

/// Where slapd looks for a database whose configuration names no directory.
const DEFAULT_DATA: &str = "/var/lib/ldap";
const DIRECTORY: &str = "olcDbDirectory";
const PASSWORD_HASH: &str = "olcPasswordHash";
/// What names places of slapd's own.
const OWN_PLACES: [&str; 4] = ["olcPidFile", "olcArgsFile", "olcConfigDir", "olcConfigFile"];

/// Writes Larix's slapd.d, in which `directory_of` says where a directory of slapd's has its counterpart.
pub(super) fn write_for_larix(
    from: &Path,
    to: &Path,
    directory_of: &dyn Fn(&Path) -> Option<String>,
) -> anyhow::Result<()> {
    let read = if from.is_dir() { Config::from_slapd_d(from) } else { Config::from_slapd_conf(from) };
    let mut entries = read.map_err(|error| anyhow::anyhow!("{error}"))?.entries();
    name_password_hash(&mut entries);
    write(entries, to, directory_of)
}

/// Passwords that are set from now on are stored as slapd stores them, where its configuration leaves that to slapd. Larix would make
/// Argon2 of them, and a slapd without that module could not check them after the way back.
fn name_password_hash(entries: &mut [ConfigEntry]) {
    if entries.iter().any(|entry| !entry.values(PASSWORD_HASH).is_empty()) {
        return;
    }
    let is_frontend = |entry: &ConfigEntry| {
        entry.values("objectClass").iter().any(|class| class.eq_ignore_ascii_case(b"olcFrontendConfig"))
    };
    // cn=config comes first, and may have it, too.
    let at = entries.iter().position(is_frontend).unwrap_or(0);
    if let Some(entry) = entries.get_mut(at) {
        let values = vec![b"{SSHA}".to_vec()];
        entry.attributes.push(LdifAttribute { description: PASSWORD_HASH.to_owned(), values }.into());
    }
}

/// The same of a slapd.d as slapd wrote it, for slapd's tools. Without overlays: slapadd asks none, and slapd does not read all that its
/// slaptest writes of them (`unique_uri "strict ignore ldap:..."`, say). What they define comes with their modules.
pub(super) fn write_for_slapd(
    from: &Path,
    to: &Path,
    directory_of: &dyn Fn(&Path) -> Option<String>,
) -> anyhow::Result<()> {
    let (mut entries, _) = slapd_d::read_entries(from).map_err(|error| anyhow::anyhow!("{error}"))?;
    entries.retain(|entry| !is_of_overlay(&entry.dn));
    write(entries, to, directory_of)
}

/// Whether the entry is an overlay, or below one.
fn is_of_overlay(dn: &str) -> bool {
    dn.split(',').any(|rdn| {
        rdn.split_once('=').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("olcOverlay"))
    })
}

fn write(
    entries: Vec<ConfigEntry>,
    to: &Path,
    directory_of: &dyn Fn(&Path) -> Option<String>,
) -> anyhow::Result<()> {
    let entries: Vec<ConfigEntry> = entries.into_iter().map(|entry| moved(entry, directory_of)).collect();
    let (clock, random) = (SystemClock, SystemRandom);
    slapd_d::write_entries(to, &entries, &Stamp { clock: &clock, random: &random })
        .map_err(|error| anyhow::anyhow!("{error}"))
}

fn moved(entry: ConfigEntry, directory_of: &dyn Fn(&Path) -> Option<String>) -> ConfigEntry {
    let has_class =
        |name: &[u8]| entry.values("objectClass").iter().any(|class| class.eq_ignore_ascii_case(name));
    let is_mdb = has_class(b"olcMdbConfig");
    // slapd takes that of a database ldif whole, quotes and all.
    let is_word = !has_class(b"olcLdifConfig");
    let directory = entry.values(DIRECTORY).first().map(|value| {
        let value = String::from_utf8_lossy(value);
        if is_word { unquoted(&value) } else { value.into_owned() }
    });
    let dn = entry.dn.clone();
    let mut attributes = entry.into_ldif();
    attributes
        .retain(|attribute| !OWN_PLACES.iter().any(|own| attribute.description.eq_ignore_ascii_case(own)));
    let directory = directory.or_else(|| is_mdb.then(|| DEFAULT_DATA.to_owned()));
    if let Some(new) = directory.and_then(|directory| {
        let path = Path::new(&directory);
        directory_of(&path.canonicalize().unwrap_or_else(|_| path.to_owned()))
    }) {
        attributes.retain(|attribute| !attribute.description.eq_ignore_ascii_case(DIRECTORY));
        let new = if is_word { quoted(&new) } else { new };
        let values = vec![new.into_bytes()];
        attributes.push(LdifAttribute { description: DIRECTORY.to_owned(), values });
    }
    ConfigEntry::from_ldif(dn, attributes)
}

/// Entries under cn=config that are not the same in two slapd.d, by their DNs.
pub(super) fn changed(old: &Path, new: &Path) -> anyhow::Result<Vec<String>> {
    let read = |path: &Path| -> anyhow::Result<std::collections::BTreeMap<String, Vec<String>>> {
        let (entries, _) = slapd_d::read_entries(path).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(entries.into_iter().map(|entry| (entry.dn.clone(), lines(entry))).collect())
    };
    let (old, new) = (read(old)?, read(new)?);
    let mut changed: Vec<String> =
        old.iter().filter(|(dn, lines)| new.get(*dn) != Some(lines)).map(|(dn, _)| dn.clone()).collect();
    changed.extend(new.keys().filter(|dn| !old.contains_key(*dn)).cloned());
    Ok(changed)
}

fn lines(entry: ConfigEntry) -> Vec<String> {
    let stamps = [
        "contextCSN",
        "entryCSN",
        "modifyTimestamp",
        "modifiersName",
        "createTimestamp",
        "creatorsName",
        "entryUUID",
    ];
    let own = entry
        .into_ldif()
        .into_iter()
        .filter(|attribute| !stamps.iter().any(|stamp| attribute.description.eq_ignore_ascii_case(stamp)));
    let mut lines: Vec<String> = own
        .flat_map(|attribute| {
            let name = attribute.description.to_ascii_lowercase();
            attribute
                .values
                .into_iter()
                .map(move |value| format!("{name}: {}", String::from_utf8_lossy(&value)))
        })
        .collect();
    lines.sort_unstable();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(name: &str, value: &str) -> LdifAttribute {
        LdifAttribute { description: name.to_owned(), values: vec![value.as_bytes().to_vec()] }
    }

    #[test]
    fn a_directory_with_a_blank_is_moved() {
        let shown = |class: &str, directory: &str| {
            let attributes = vec![attribute("objectClass", class), attribute(DIRECTORY, directory)];
            let entry = ConfigEntry::from_ldif("olcDatabase={1}x,cn=config".to_owned(), attributes);
            let directory_of = |path: &Path| (path == Path::new("/no where")).then(|| "/to here".to_owned());
            let now = moved(entry, &directory_of).values(DIRECTORY).to_vec();
            now.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(shown("olcMdbConfig", "\"/no where\""), ["\"/to here\""]);
        assert_eq!(shown("olcLdifConfig", "/no where"), ["/to here"]);
        assert_eq!(shown("olcMdbConfig", "\"/else where\""), ["\"/else where\""]);
    }

    #[test]
    fn overlays_are_known_by_their_names() {
        for (dn, expected) in [
            ("olcOverlay={0}unique,olcDatabase={1}mdb,cn=config", true),
            ("olcDatabase={0}ldap,olcoverlay={0}chain,olcDatabase={-1}frontend,cn=config", true),
            ("olcDatabase={1}mdb,cn=config", false),
            ("cn=olcOverlay,cn=schema,cn=config", false),
        ] {
            assert_eq!(is_of_overlay(dn), expected, "{dn}");
        }
    }

    #[test]
    fn passwords_are_stored_as_slapd_stores_them() {
        let entry = |dn: &str, attributes: &[(&str, &str)]| {
            let attributes = attributes.iter().map(|(name, value)| attribute(name, value));
            ConfigEntry::from_ldif(dn.to_owned(), attributes.collect())
        };
        let top = entry("cn=config", &[("objectClass", "olcGlobal")]);
        let frontend = entry("olcDatabase={-1}frontend,cn=config", &[("objectClass", "olcFrontendConfig")]);
        let named = entry("olcDatabase={-1}frontend,cn=config", &[("olcPasswordHash", "{CRYPT}")]);
        for (mut entries, expected) in [
            (vec![top.clone(), frontend], ["", "{SSHA}"]),
            (vec![top.clone(), named], ["", "{CRYPT}"]),
            (vec![top, entry("olcDatabase={0}config,cn=config", &[])], ["{SSHA}", ""]),
        ] {
            name_password_hash(&mut entries);
            let hash = |entry: &ConfigEntry| {
                entry
                    .values(PASSWORD_HASH)
                    .first()
                    .map_or_else(String::new, |value| String::from_utf8_lossy(value).into_owned())
            };
            assert_eq!(entries.iter().map(hash).collect::<Vec<_>>(), expected);
        }
    }
}

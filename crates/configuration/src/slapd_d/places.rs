//! Where the files of entries belong, and those that stand elsewhere.
//!
//! slapd calls a file like the RDN in normal form: `cn={4}eduperson.ldif` holds `cn={4}eduPerson`. A file that an earlier version wrote, that
//! was renamed by hand, or whose `dn:` line was edited, may stand elsewhere. It is read there. It goes to its place before the first change,
//! which would otherwise make a second file of the same entry.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use larix_proto::dn::Dn;
use larix_proto::ldif::Reader;

use super::super::diagnostic::{ConfigError, Origin};
use super::super::kinds::target_attributes;
use super::commit::{FileChanges, read_files};
use super::disk::Disk;
use super::journal::{self, RefusedJournal};
use super::{MAX_DEPTH, TOP, io_error};

/// Attributes that name entries, as slapd writes them in the names of files; targets of databases have theirs.
const NAMING: [&str; 4] = ["cn", "olcDatabase", "olcOverlay", "olcBackend"];

/// The file where an entry belongs, below the directory, and its RDN as written.
pub(super) fn file_of(dn: &str) -> Result<(PathBuf, String), ConfigError> {
    let bad =
        |why: String| ConfigError::new(Origin::BuiltIn, format!("`{dn}` has no place in a slapd.d: {why}"));
    let parsed = Dn::parse(dn).map_err(|error| bad(error.to_string()))?;
    let mut file = PathBuf::new();
    let mut rdns = Vec::new();
    for rdn in parsed.rdns().iter().rev() {
        let text = rdn.to_string();
        if text.contains(['/', '\0']) {
            return Err(bad("an RDN cannot be a file name".to_owned()));
        }
        file.push(file_name(&text));
        rdns.push(text);
    }
    let rdn = rdns.pop().ok_or_else(|| bad("it is empty".to_owned()))?;
    file.set_file_name(format!("{}.ldif", file_name(&rdn)));
    Ok((file, rdn))
}

/// An RDN as the name of its file, which has no capital letters in the value. One with escapes, which are hexadecimal digits, stays.
fn file_name(rdn: &str) -> String {
    let Some((attribute, value)) = rdn.split_once('=').filter(|_| !rdn.contains('\\')) else {
        return rdn.to_owned();
    };
    let mut known = NAMING.into_iter().chain(target_attributes());
    let attribute = known.find(|known| known.eq_ignore_ascii_case(attribute)).unwrap_or(attribute);
    format!("{attribute}={}", value.to_lowercase())
}

/// The DN of the superior of the entry in a file, by the folders whose entries are known; empty for the topmost entry. `None`: the file
/// belongs to nothing.
pub(super) fn superior_of<'d>(file: &Path, dns: &'d BTreeMap<PathBuf, String>) -> Option<&'d str> {
    match file.parent().filter(|above| !above.as_os_str().is_empty()) {
        None if file == Path::new(TOP) => Some(""),
        None => None,
        Some(above) => dns.get(above).map(String::as_str),
    }
}

/// The DN of an entry by its RDN and the DN of its superior.
pub(super) fn dn_of(rdn: String, superior: &str) -> String {
    if superior.is_empty() { rdn } else { format!("{rdn},{superior}") }
}

/// The error about two files of one entry.
pub(super) fn held_twice(directory: &Path, dn: &str, files: [&Path; 2]) -> ConfigError {
    let [one, other] = files.map(|file| directory.join(file));
    let message = format!("`{}` and `{}` hold the same entry, {dn}", one.display(), other.display());
    ConfigError::new(Origin::BuiltIn, message).with_help(
        "take one of them out, or correct its `dn:` line; a copy may stay under a name that does not end in .ldif",
    )
}

/// Moves files to the places where their entries belong, all or none. No other process works in the directory.
///
/// # Errors
/// Names the file or directory that cannot be read or written. What was under way is in the journal then.
pub(super) fn put_in_place(disk: &mut dyn Disk, directory: &Path) -> Result<(), ConfigError> {
    let moves = moves(&read_files(directory, MAX_DEPTH)?);
    if moves.is_empty() {
        return Ok(());
    }
    let changes = FileChanges::of(directory, moves);
    // What stays of it after a failure moves files once more, and changes no entry.
    journal::begin(disk, directory, &journal::whole(&changes), &mut RefusedJournal::default())?;
    changes.carry_out_and_end(disk).map_err(|error| io_error("write", directory, &error))
}

/// What comes, and what goes, so that files stand in their places. Nothing if that would write over what holds no entry.
fn moves(files: &BTreeMap<PathBuf, Vec<u8>>) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut by_depth: Vec<(&PathBuf, &Vec<u8>)> = files.iter().collect();
    by_depth.sort_by_key(|(file, _)| file.components().count());
    let mut dns: BTreeMap<PathBuf, String> = BTreeMap::new();
    // By the place of each entry the file that holds it; if several do, the one that stands there already.
    let mut held: BTreeMap<PathBuf, &PathBuf> = BTreeMap::new();
    for (file, bytes) in by_depth {
        let Some(superior) = superior_of(file, &dns) else { continue };
        let Ok(Some(record)) = Reader::new(bytes.as_slice()).read_record() else { continue };
        let dn = dn_of(record.dn, superior);
        let place = file_of(&dn).map(|(place, _)| place);
        dns.insert(file.with_extension(""), dn);
        let Ok(place) = place else { continue };
        if place == *file || !held.contains_key(&place) {
            held.insert(place, file);
        }
    }
    let moving: Vec<(&PathBuf, &PathBuf)> =
        held.iter().filter(|(place, file)| *place != **file).map(|(place, file)| (place, *file)).collect();
    let leaving: BTreeSet<&PathBuf> = moving.iter().map(|(_, file)| *file).collect();
    if moving.iter().any(|(place, _)| files.contains_key(*place) && !leaving.contains(place)) {
        return BTreeMap::new();
    }
    let mut moves: BTreeMap<PathBuf, Option<Vec<u8>>> =
        leaving.into_iter().map(|file| (file.clone(), None)).collect();
    moves.extend(moving.iter().map(|(place, file)| ((*place).clone(), files.get(*file).cloned())));
    moves
}

#[cfg(test)]
mod tests {
    use std::fs;

    use larix_engine::controls::RequestControls;

    use super::super::super::change::fixture::{TestSources, operations};
    use super::super::super::entry::ConfigEntry;
    use super::super::super::model::{Config, Source};
    use super::super::commit_tests::{Failing, contents, entries, names, write};
    use super::super::journal::Keeper;
    use super::super::read_entries;
    use super::*;

    /// Where files of [`all`] stand that belong elsewhere, and where they belong: one that an earlier version wrote, one that was renamed with
    /// its folder, and one of a client that writes attributes in capitals.
    const ELSEWHERE: [(&str, &str); 4] = [
        ("cn=schema/cn={3}eduPerson.ldif", "cn=schema/cn={3}eduperson.ldif"),
        ("olcDatabase={4}mdb.ldif", "olcDatabase={2}mdb.ldif"),
        ("olcDatabase={4}mdb", "olcDatabase={2}mdb"),
        ("olcDatabase={1}mdb/OLCOVERLAY={1}ppolicy.ldif", "olcDatabase={1}mdb/olcOverlay={1}ppolicy.ldif"),
    ];

    /// The entries of the fixture, and a section whose name has a capital letter.
    fn all() -> Vec<ConfigEntry> {
        let mut section = ConfigEntry::new("cn={3}eduPerson,cn=schema,cn=config", &["olcSchemaConfig"]);
        section.text("cn", "{3}eduPerson");
        section.text("olcAttributeTypes", "{0}( 1.3.9999.40 NAME 'edu' SUP larch )");
        TestSources::new().stamp().complete(&mut section);
        let mut all = entries();
        all.push(section);
        all
    }

    fn sorted(mut all: Vec<ConfigEntry>) -> Vec<ConfigEntry> {
        all.sort_by(|one, other| one.dn.cmp(&other.dn));
        all
    }

    /// A change of an entry whose file stands elsewhere, with a fault at each of its steps.
    fn check(ldif: &str, ends: bool) {
        let start = all();
        let old = Config::from_entries(start.clone(), Source::QuickStart).unwrap();
        let changed =
            TestSources::new().change(&old, operations(ldif).remove(0), RequestControls::default()).unwrap();
        let files = FileChanges::between(Path::new("."), &old, &changed.config).unwrap();
        let (before, wanted) = (sorted(start.clone()), sorted(changed.config.entries()));
        for step in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            write(path, &start);
            for (elsewhere, place) in ELSEWHERE {
                let top = path.join("cn=config");
                fs::rename(top.join(place), top.join(elsewhere)).unwrap();
            }
            assert!(contents(path) == before, "{ldif} step {step}");
            let mut disk = Failing { left: step, ends, failed: false };
            let mut keeper = Keeper::default();
            let done = keeper.commit_on(&files.in_directory(path), &mut disk);
            let after = contents(path);
            match done {
                Ok(()) => assert!(after == wanted, "{ldif} step {step}"),
                Err(_) if ends => assert!(after == before || after == wanted, "{ldif} step {step}"),
                Err(_) => assert!(after == before, "{ldif} step {step}"),
            }
            if disk.failed {
                continue;
            }
            keeper.settle().unwrap();
            let clean = tempfile::tempdir().unwrap();
            write(clean.path(), &wanted);
            assert_eq!(names(path), names(clean.path()), "{ldif}");
            return;
        }
    }

    #[test]
    fn a_change_finds_files_that_stand_elsewhere() {
        for ldif in [
            "dn: cn={3}eduPerson,cn=schema,cn=config\nchangetype: modify\nadd: olcAttributeTypes\n\
             olcAttributeTypes: ( 1.3.9999.41 NAME 'edu2' SUP larch )\n",
            "dn: cn={3}eduPerson,cn=schema,cn=config\nchangetype: delete\n",
            "dn: olcDatabase={2}mdb,cn=config\nchangetype: modify\nreplace: olcReadOnly\nolcReadOnly: TRUE\n",
            "dn: olcOverlay={0}seqmod,olcDatabase={2}mdb,cn=config\nchangetype: delete\n",
            "dn: olcOverlay={1}ppolicy,olcDatabase={1}mdb,cn=config\nchangetype: modify\n\
             replace: olcPPolicyUseLockout\nolcPPolicyUseLockout: TRUE\n",
        ] {
            check(ldif, false);
            check(ldif, true);
        }
    }

    /// Two databases whose files have changed names.
    #[test]
    fn files_in_the_places_of_each_other_are_exchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        write(path, &all());
        let expected = contents(path);
        let file = |number| path.join(format!("cn=config/olcDatabase={{{number}}}mdb.ldif"));
        let (one, two) = (fs::read(file(1)).unwrap(), fs::read(file(2)).unwrap());
        let folder = |number: i32| path.join(format!("cn=config/olcDatabase={{{number}}}mdb"));
        for (from, to) in [(1, 3), (2, 1), (3, 2)] {
            fs::rename(file(from), file(to)).unwrap();
            fs::rename(folder(from), folder(to)).unwrap();
        }
        assert!(contents(path) == expected);
        write(path, &expected[..1]);
        assert!(contents(path) == expected);
        assert!(fs::read(file(1)).unwrap() == one && fs::read(file(2)).unwrap() == two);
    }

    #[test]
    fn two_files_of_one_entry_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        write(path, &all());
        let file = |name: &str| path.join("cn=config").join(name);
        fs::copy(file("olcDatabase={1}mdb.ldif"), file("olcDatabase={1}mdb.ldif~")).unwrap();
        assert_eq!(contents(path).len(), all().len());
        fs::copy(file("olcDatabase={1}mdb.ldif"), file("olcDatabase={1}mdb.old.ldif")).unwrap();
        let error = read_entries(path).unwrap_err().to_string();
        for part in [
            "olcDatabase={1}mdb.ldif` ",
            "olcDatabase={1}mdb.old.ldif` ",
            "hold the same entry, olcDatabase={1}mdb,cn=config",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}

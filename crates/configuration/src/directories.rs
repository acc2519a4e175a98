//! Whether the directories of the databases are there, and what became of those that are not.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::diagnostic::{ConfigError, Origin};
use super::model::{Config, Database, Source};
use super::validate::shared_directory;

impl Config {
    /// Whether every database's directory is there and can be written to.
    ///
    /// # Errors
    /// Names the directory, and how to make it.
    pub fn check_directories(&self) -> Result<(), ConfigError> {
        // By device and number: a directory may have several names.
        let mut seen: Vec<((u64, u64), &Origin)> = Vec::new();
        for database in self.databases.iter().filter(|database| !database.disabled) {
            let Some(directory) = database.kind.directory() else { continue };
            let found = self.check_directory(database, directory)?;
            let identity = (found.dev(), found.ino());
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == identity) {
                return Err(shared_directory(database, directory, first));
            }
            seen.push((identity, &database.origin));
        }
        Ok(())
    }

    /// What is at the path of one database's directory, whatever is at those of the others.
    ///
    /// # Errors
    /// Names the directory, and how to make it.
    pub fn check_directory(&self, database: &Database, directory: &Path) -> Result<Metadata, ConfigError> {
        let path = directory.display();
        let error = |message: String, help: String| {
            Err(ConfigError::new(database.origin.clone(), message).with_help(help))
        };
        match fs::metadata(directory) {
            Ok(found) if found.is_dir() => Ok(found),
            Ok(_) => error(format!("`{path}` is not a directory"), "name a directory".to_owned()),
            Err(why) if why.kind() == ErrorKind::NotFound => {
                let message = format!("the database directory `{path}` does not exist");
                let help =
                    self.moved_to(database).unwrap_or_else(|| format!("make it: mkdir -p -m 700 {path}"));
                error(message, help)
            }
            Err(why) => error(
                format!("the database directory `{path}` cannot be used: {why}"),
                "check its owner and mode".to_owned(),
            ),
        }
    }

    /// What to do about a directory of `larix serve --suffix` that has another name now: its slapd.d stands beside the data.
    fn moved_to(&self, database: &Database) -> Option<String> {
        let Source::Directory(directory) = &self.source else { return None };
        let beside = directory.parent()?;
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        let found = fs::canonicalize(beside).ok()?;
        let earlier = self.earlier_place();
        // Directories below the one that the slapd.d was in moved along with it.
        let in_it = |other: &&Database| other.kind.mdb().is_some_and(|mdb| Some(&*mdb.directory) == earlier);
        let moved = self.databases.iter().find(in_it).unwrap_or(database);
        let (suffix, was) = (moved.suffixes.first()?, &moved.kind.mdb()?.directory);
        let has_moved = earlier != Some(found.as_path())
            && beside.join("data.mdb").is_file()
            && !was.exists()
            && database.kind.directory()?.starts_with(was);
        let mut others = self.databases.iter().filter_map(|other| other.kind.directory());
        let is_another_ones = others.any(|used| fs::canonicalize(used).is_ok_and(|used| used == found));
        (has_moved && !is_another_ones).then(|| {
            format!(
                "was it moved? `larix serve --suffix \"{suffix}\" --data {}` writes the new paths into the configuration",
                beside.display()
            )
        })
    }

    /// The directory in which the slapd.d of this configuration was made, by its own word (`olcConfigDir`), if it has one.
    pub fn earlier_place(&self) -> Option<&Path> {
        let top = self.read_entries.as_ref()?.first()?;
        let place = top.values("olcConfigDir").first()?;
        Path::new(std::str::from_utf8(place).ok()?).parent()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn a_data_directory_that_was_moved_is_recognised_by_its_file() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("slapd.d");
        create_dir_all(place.join("cn=config")).unwrap();
        let top = "dn: cn=config\nobjectClass: olcGlobal\ncn: config\n";
        write(place.join("cn=config.ldif"), top).unwrap();
        let database = |number: u32, directory: &Path| {
            let text = format!(
                "dn: olcDatabase={{{number}}}mdb\nobjectClass: olcDatabaseConfig\nobjectClass: olcMdbConfig\n\
                 olcDatabase: {{{number}}}mdb\nolcSuffix: cn=s{number}\nolcDbDirectory: {}\n",
                directory.display()
            );
            write(place.join(format!("cn=config/olcDatabase={{{number}}}mdb.ldif")), text).unwrap();
        };
        let help = || Config::from_slapd_d(&place).unwrap().check_directories().unwrap_err().to_string();
        let moved =
            |suffix: &str| format!("larix serve --suffix \"{suffix}\" --data {}`", root.path().display());
        database(1, &root.path().join("gone"));
        assert!(help().contains("make it: mkdir"), "{}", help());
        write(root.path().join("data.mdb"), "").unwrap();
        assert!(help().contains(&moved("cn=s1")), "{}", help());
        // It is another database's.
        database(2, root.path());
        assert!(help().contains("make it: mkdir"), "{}", help());
        // The slapd.d was in the directory of the second one. The first one was below that, or elsewhere.
        let old = root.path().join("old");
        write(place.join("cn=config.ldif"), format!("{top}olcConfigDir: {}/slapd.d\n", old.display()))
            .unwrap();
        database(2, &old);
        assert!(help().contains("make it: mkdir"), "{}", help());
        database(1, &old.join("log"));
        assert!(help().contains(&moved("cn=s2")), "{}", help());
        // It is where it was.
        let here = fs::canonicalize(root.path()).unwrap().join("slapd.d");
        write(place.join("cn=config.ldif"), format!("{top}olcConfigDir: {}\n", here.display())).unwrap();
        assert!(help().contains("make it: mkdir"), "{}", help());
    }
}

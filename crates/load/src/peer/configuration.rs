//! One slapd.conf for all: what a peer gets differs in the folder of its data and in the module it has to load.

use std::fmt::Write as _;
use std::path::Path;

use super::LogLevel;
use crate::generate::ROOT_PASSWORD;

/// A map that no scenario fills: slapd refuses writes at its end, and an unused map costs nothing.
const MAP_BYTES: u64 = 1 << 40;
/// The same on a machine whose addresses do not reach that far.
const SMALL_MAP_BYTES: u64 = 1 << 30;

/// A database of a scenario.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Database {
    pub suffix: String,
    pub root_dn: String,
    /// `index` lines without their keyword.
    pub index_lines: Vec<String>,
}

/// Where the files lie that a configuration names.
#[derive(Debug)]
pub(crate) struct Paths<'a> {
    /// The folder of `core.schema` and its kin.
    pub(crate) schema: &'a Path,
    /// Schema files of the scenario itself.
    pub(crate) own_schemas: &'a [std::path::PathBuf],
    /// The folder in which each database gets one of its own, by position.
    pub(crate) data: &'a Path,
}

/// The configuration of `databases`. Whatever changes durability or speed is left as both servers have it by default:
/// every commit is synced, threads are as many as they like, and there are no access rules. What they log is said: without a
/// `loglevel` line slapd sends a line for every operation to syslog.
pub(crate) fn configuration(
    preamble: &str,
    databases: &[Database],
    (online, log_level): (bool, LogLevel),
    paths: &Paths<'_>,
) -> String {
    let mut text = String::from(preamble);
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        line(format_args!("include {}", paths.schema.join(format!("{name}.schema")).display()));
    }
    for file in paths.own_schemas {
        line(format_args!("include {}", file.display()));
    }
    line(format_args!("loglevel {}", log_level.word()));
    line(format_args!("sizelimit 500\ntimelimit unlimited"));
    if online {
        line(format_args!("database config\nrootpw {ROOT_PASSWORD}"));
    }
    let map = if usize::BITS >= 64 { MAP_BYTES } else { SMALL_MAP_BYTES };
    for (position, database) in databases.iter().enumerate() {
        line(format_args!("\ndatabase mdb\nsuffix \"{}\"\nrootdn \"{}\"", database.suffix, database.root_dn));
        line(format_args!("rootpw {ROOT_PASSWORD}\nmaxsize {map}"));
        line(format_args!("directory {}", paths.data.join(position.to_string()).display()));
        for index in &database.index_lines {
            line(format_args!("index {index}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_differ_in_preamble_and_folder_alone() {
        let database = Database {
            suffix: "dc=a".into(),
            root_dn: "cn=admin,dc=a".into(),
            index_lines: vec!["cn eq".into()],
        };
        let text = |preamble: &str, data: &str| {
            let paths = Paths { schema: Path::new("/s"), own_schemas: &[], data: Path::new(data) };
            configuration(preamble, &[database.clone(), database.clone()], (false, LogLevel::Nothing), &paths)
        };
        let one = text("", "/one");
        assert_eq!(one.matches("database mdb").count(), 2);
        for part in ["include /s/core.schema\n", "directory /one/1\n", "index cn eq\n", "loglevel 0\n"] {
            assert!(one.contains(part), "{one}");
        }
        assert!(!one.contains("dbnosync"), "{one}");
        let two = text("moduleload back_mdb\n", "/two");
        assert_eq!(two.replace("moduleload back_mdb\n", "").replace("/two", "/one"), one);
    }
}

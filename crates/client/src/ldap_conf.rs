//! The settings of LDAP clients that stand in files and in the environment, as ldap.conf(5) of OpenLDAP has them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The settings of TLS, and the channel binding, which is of TLS, too.
pub(crate) const TLS: &[&str] = &[
    "TLS_CACERT",
    "TLS_CACERTDIR",
    "TLS_CERT",
    "TLS_KEY",
    "TLS_REQCERT",
    "TLS_REQSAN",
    "TLS_PROTOCOL_MIN",
    "TLS_CIPHER_SUITE",
    "TLS_ECNAME",
    "TLS_CRLCHECK",
    "TLS_CRLFILE",
    "SASL_CBINDING",
];
/// The other settings that are read. HOST stands before URI: of both in the environment, URI holds.
const OTHERS: &[&str] = &[
    "HOST",
    "PORT",
    "URI",
    "BASE",
    "BINDDN",
    "DEREF",
    "NETWORK_TIMEOUT",
    "SASL_AUTHCID",
    "SASL_AUTHZID",
    "SASL_MECH",
    "SIZELIMIT",
    "TIMELIMIT",
];
/// Those that only a user's own file, or the environment, may give.
const OWN: &[&str] = &["BINDDN", "SASL_AUTHCID", "SASL_AUTHZID", "TLS_CERT", "TLS_KEY"];
/// Each of these takes the place of the other.
const SERVERS: [&str; 2] = ["HOST", "URI"];
/// The system's files; where there are several, the last one counts more.
const SYSTEM_FILES: &[&str] = &["/etc/openldap/ldap.conf", "/etc/ldap/ldap.conf"];
/// A user's files, below `$HOME` as `ldaprc` and `.ldaprc`, and as `ldaprc` in the working directory.
const USER_FILE: &str = "ldaprc";
/// What stands behind that in a file is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The line counts from 1.
    File { path: PathBuf, line: usize },
    /// The variable `LDAP` and the setting's name.
    Environment,
}

/// A setting, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// In upper case.
    pub name: &'static str,
    pub value: String,
    pub origin: Origin,
}

impl Setting {
    /// A part of the value, with the place: `FILE line 3: URI PART`, or `LDAPURI=PART`.
    #[must_use]
    pub fn with(&self, part: &str) -> String {
        match &self.origin {
            Origin::File { .. } => format!("{} {part}", self.place()),
            Origin::Environment => format!("{}={part}", self.place()),
        }
    }

    /// The place with the name: `FILE line 3: URI`, or `LDAPURI`.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.origin {
            Origin::File { path, line } => format!("{} line {line}: {}", path.display(), self.name),
            Origin::Environment => format!("LDAP{}", self.name),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with(&self.value))
    }
}

/// What the files and the environment say, each setting once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LdapConf(HashMap<&'static str, Setting>);

impl LdapConf {
    /// Reads the files and the environment of this process. Files that are not there, or that this user may not read, say nothing, as for
    /// OpenLDAP's clients.
    #[must_use]
    pub fn gather() -> Self {
        Self::read(&|name| std::env::var_os(name), Path::new(""), SYSTEM_FILES)
    }

    /// The same with the variables of an environment, a working directory, and the system's files.
    fn read(
        variable: &dyn Fn(&str) -> Option<OsString>,
        directory: &Path,
        system_files: &[impl AsRef<Path>],
    ) -> Self {
        let mut conf = Self::default();
        if variable("LDAPNOINIT").is_some() {
            return conf;
        }
        let home = variable("HOME").map(PathBuf::from);
        let own = |name: &OsStr| {
            let mut hidden = OsString::from(".");
            hidden.push(name);
            let below = home.iter().flat_map(|home| [home.join(name), home.join(&hidden)]);
            below.chain([directory.join(name)]).collect::<Vec<_>>()
        };
        for path in system_files {
            conf.add_file(path.as_ref(), false);
        }
        for path in own(OsStr::new(USER_FILE)) {
            conf.add_file(&path, true);
        }
        if let Some(path) = variable("LDAPCONF") {
            conf.add_file(&directory.join(path), false);
        }
        if let Some(name) = variable("LDAPRC") {
            for path in own(&name) {
                conf.add_file(&path, true);
            }
        }
        for name in TLS.iter().chain(OTHERS).copied() {
            match variable(&format!("LDAP{name}")) {
                // It takes back what a file says.
                Some(value) if value.is_empty() => {
                    conf.0.remove(name);
                }
                Some(value) => {
                    let value = value.to_string_lossy().into_owned();
                    conf.set(Setting { name, value, origin: Origin::Environment });
                }
                None => {}
            }
        }
        conf
    }

    /// What variables of an environment say, by the names of the settings; names that are none are left out.
    #[must_use]
    pub fn of(settings: &[(&str, &str)]) -> Self {
        let mut conf = Self::default();
        for (name, value) in settings {
            if let Some(name) = known(name) {
                conf.set(Setting { name, value: (*value).to_owned(), origin: Origin::Environment });
            }
        }
        conf
    }

    /// Takes what a file says: in place of what was said before.
    fn add_file(&mut self, path: &Path, is_own: bool) {
        let Ok(bytes) = beginning_of(path) else { return };
        for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            if line.starts_with('#') {
                continue;
            }
            // The value is all of the rest: it may have blanks in it.
            let is_blank = |letter: char| letter.is_ascii_whitespace();
            let Some((name, value)) = line.trim_matches(is_blank).split_once(is_blank) else { continue };
            let Some(name) = known(name).filter(|name| is_own || !OWN.contains(name)) else { continue };
            let origin = Origin::File { path: path.to_owned(), line: number + 1 };
            self.set(Setting { name, value: value.trim_start_matches(is_blank).to_owned(), origin });
        }
    }

    fn set(&mut self, setting: Setting) {
        if SERVERS.contains(&setting.name) {
            for name in SERVERS {
                self.0.remove(name);
            }
        }
        self.0.insert(setting.name, setting);
    }

    /// A setting by its name in upper case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.0.get(name)
    }

    /// The value of a setting.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.get(name).map(|setting| setting.value.as_str())
    }
}

fn known(name: &str) -> Option<&'static str> {
    TLS.iter().chain(OTHERS).copied().find(|known| known.eq_ignore_ascii_case(name))
}

fn beginning_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The settings of a folder with files (`system`, `home/...`, `work/...`) and of variables, by name.
    fn read(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["home", "work"] {
            fs::create_dir(path(name)).unwrap();
        }
        for (name, text) in files {
            fs::write(path(name), text).unwrap();
        }
        let variable = |wanted: &str| match variables.iter().find(|(name, _)| *name == wanted) {
            Some((_, value)) => Some(OsString::from(value)),
            None => (wanted == "HOME").then(|| path("home").into_os_string()),
        };
        let conf = LdapConf::read(&variable, &path("work"), &[path("system")]);
        let root = format!("{}/", folder.path().display());
        let mut shown: Vec<String> =
            conf.0.values().map(|setting| setting.to_string().replace(&root, "")).collect();
        shown.sort_unstable();
        shown
    }

    #[test]
    fn later_settings_override_earlier_ones() {
        let files = [
            ("system", "BASE o=1\n"),
            ("home/ldaprc", "BASE o=2\n"),
            ("home/.ldaprc", "BASE o=3\n"),
            ("work/ldaprc", "BASE o=4\n"),
            ("work/conf", "BASE o=5\n"),
            ("home/rc", "BASE o=6\n"),
            ("home/.rc", "BASE o=7\n"),
            ("work/rc", "BASE o=8\n"),
        ];
        let names = [("LDAPCONF", "conf"), ("LDAPRC", "rc")];
        for (count, expected) in [
            (1, "system line 1: BASE o=1"),
            (2, "home/ldaprc line 1: BASE o=2"),
            (3, "home/.ldaprc line 1: BASE o=3"),
            (4, "work/ldaprc line 1: BASE o=4"),
            (5, "work/conf line 1: BASE o=5"),
            (6, "home/rc line 1: BASE o=6"),
            (7, "home/.rc line 1: BASE o=7"),
            (8, "work/rc line 1: BASE o=8"),
        ] {
            assert_eq!(read(&files[..count], &names), [expected]);
        }
        assert_eq!(read(&files, &[]), ["work/ldaprc line 1: BASE o=4"], "nobody names the others");
        assert_eq!(read(&files, &[("LDAPBASE", "o=9")]), ["LDAPBASE=o=9"]);
        let none: [&str; 0] = [];
        assert_eq!(read(&files, &[("LDAPBASE", "")]), none, "an empty variable takes the setting back");
        assert_eq!(read(&files, &[("LDAPBASE", "o=9"), ("LDAPNOINIT", "")]), none);
    }

    #[test]
    fn lines_of_a_file() {
        for (text, expected) in [
            ("", &[][..]),
            ("# BASE o=x\n#BASE o=y\n\n  \nBASE\nBASE \n", &[]),
            ("base  o=A B ,c=d \t\n", &["work/ldaprc line 1: BASE o=A B ,c=d"]),
            ("\n  BASE\to=x # y\r\n", &["work/ldaprc line 2: BASE o=x # y"]),
            ("BASE o=x\nsudoers_base o=s\nREFERRALS off\nBASE o=y", &["work/ldaprc line 4: BASE o=y"]),
            (
                "HOST a\nPORT 7\nURI ldap://b\n",
                &["work/ldaprc line 2: PORT 7", "work/ldaprc line 3: URI ldap://b"],
            ),
            ("URI ldap://b\nHOST a\n", &["work/ldaprc line 2: HOST a"]),
            (
                "BASE o=\u{e9}\nTLS_CACERT /a b",
                &["work/ldaprc line 1: BASE o=\u{e9}", "work/ldaprc line 2: TLS_CACERT /a b"],
            ),
        ] {
            assert_eq!(read(&[("work/ldaprc", text)], &[]), expected, "{text:?}");
        }
        let both = [("LDAPURI", "ldap://b"), ("LDAPHOST", "a")];
        assert_eq!(read(&[], &both), ["LDAPURI=ldap://b"]);
    }

    #[test]
    fn what_is_a_users_own_is_in_no_file_of_the_system() {
        let text =
            "BINDDN cn=a\nSASL_AUTHCID a\nSASL_AUTHZID u:a\nTLS_CERT /c\nTLS_KEY /k\nSASL_MECH PLAIN\n";
        let common = ["system line 6: SASL_MECH PLAIN"];
        assert_eq!(read(&[("system", text)], &[]), common);
        let named = read(&[("work/conf", text)], &[("LDAPCONF", "conf")]);
        assert_eq!(named, ["work/conf line 6: SASL_MECH PLAIN"]);
        assert_eq!(read(&[("home/.ldaprc", text)], &[]).len(), 6);
        assert_eq!(read(&[], &[("LDAPBINDDN", "cn=a")]), ["LDAPBINDDN=cn=a"]);
    }
}

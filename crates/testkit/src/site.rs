//! A configuration with its own folder, the same for every kind of server.

use std::path::{Path, PathBuf};

use crate::process::{Kind, Server, StartError};

/// A temporary folder with a slapd.conf and a database directory.
#[derive(Debug)]
pub struct Site {
    folder: tempfile::TempDir,
    kind: Kind,
}

impl Site {
    /// Writes `body` as slapd.conf for `kind`: below the schema includes, and for slapd with the module of its store.
    /// `@DATA@` in it becomes the database directory, `@SCHEMA@` that of schema files; folders that `directory` lines name are created.
    ///
    /// # Panics
    /// When the temporary folder cannot be written.
    pub fn new(kind: Kind, body: &str) -> Self {
        Self::new_in(tempfile::tempdir().expect("a temporary folder"), kind, body)
    }

    /// The same in a folder on the disk, where that of temporary files may be in memory: for tests that meet a moment between two steps.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn on_disk(kind: Kind, body: &str) -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir());
        Self::new_in(folder.expect("a temporary folder"), kind, body)
    }

    fn new_in(folder: tempfile::TempDir, kind: Kind, body: &str) -> Self {
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("a folder for the database");
        let mut text = String::new();
        if kind == Kind::Slapd {
            text += &slapd_modules();
        }
        for name in ["core", "cosine", "inetorgperson", "nis"] {
            text += &format!("include {}/{name}.schema\n", schema_directory().display());
        }
        let body = body.replace("@DATA@", &data.display().to_string());
        let body = body.replace("@SCHEMA@", &schema_directory().display().to_string());
        for directory in body.lines().filter_map(|line| line.strip_prefix("directory ")) {
            std::fs::create_dir_all(directory).expect("a folder for the database");
        }
        text += &body;
        std::fs::write(folder.path().join("slapd.conf"), text).expect("a slapd.conf");
        Self { folder, kind }
    }

    /// The usual database: `dc=example,dc=com`, `cn=admin` with the password `secret`.
    pub fn example(kind: Kind) -> Self {
        Self::new(
            kind,
            "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
             directory @DATA@\nindex objectClass,uid,uidNumber eq\nindex cn,sn,mail pres,eq,sub\n",
        )
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("slapd.conf")
    }

    /// Starts the server.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start(&self) -> Result<Server, StartError> {
        Server::start(self.kind, &self.configuration())
    }

    /// Loads LDIF text offline.
    ///
    /// # Panics
    /// When the tool fails; its output is shown.
    pub fn load(&self, ldif: &str) {
        self.load_into(None, ldif);
    }

    /// As [`Site::load`], into the database of `suffix`.
    ///
    /// # Panics
    /// As [`Site::load`].
    pub fn load_into(&self, suffix: Option<&str>, ldif: &str) {
        self.try_load(suffix, ldif).unwrap_or_else(|refused| panic!("{:?} add: {refused}", self.kind));
    }

    /// The same; or what the tool says where it refuses the LDIF.
    ///
    /// # Panics
    /// The tool cannot be started.
    pub fn try_load(&self, suffix: Option<&str>, ldif: &str) -> Result<(), String> {
        let file = self.folder.path().join("load.ldif");
        std::fs::write(&file, ldif).expect("an LDIF file");
        let mut command = self.kind.tool("add");
        command.arg("-f").arg(self.configuration()).arg("-l").arg(&file);
        if let Some(suffix) = suffix {
            command.args(["-b", suffix]);
        }
        let output = command.output().expect("the tool starts");
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The lines that load slapd's modules from Debian's place, or from `SLAPD_MODULES`; none when that is empty, for a slapd
/// that has all it needs built in.
fn slapd_modules() -> String {
    match std::env::var("SLAPD_MODULES").as_deref() {
        Ok("") => String::new(),
        Ok(folder) => format!("modulepath {folder}\nmoduleload back_mdb\n"),
        Err(_) => "modulepath /usr/lib/ldap\nmoduleload back_mdb\n".to_owned(),
    }
}

/// Where schema files lie: `SCHEMA_DIRECTORY`; where slapd is installed, OpenLDAP's; else those that are bundled, from this tree.
pub fn schema_directory() -> PathBuf {
    if let Some(own) = std::env::var_os("SCHEMA_DIRECTORY") {
        return PathBuf::from(own);
    }
    let installed = PathBuf::from("/etc/ldap/schema");
    if installed.join("core.schema").is_file() {
        return installed;
    }
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../schema/schema"))
}

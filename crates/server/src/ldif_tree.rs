//! `database ldif`: one LDIF file an entry, in directories that follow the tree, as OpenLDAP's back-ldif keeps them.
//!
//! The files are the truth. When the database is opened they are read into a store of the usual kind in a temporary
//! directory, which searches and changes work on; the writer shows each group of changes to the [`LdifTree`], which
//! writes the files through a journal, all of them or none, before the group is committed and answered.
//!
//! A file is called like the entry's RDN in normal form, that of the topmost entry like the whole suffix; `/` and `:`
//! are `\2F` and `\3A` there. Its content is that of a file in slapd.d.

mod image;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use larix_configuration::slapd_d::{
    FileChanges, InUse, RefusedJournal, checksum_fits, file_bytes, files_of_entries,
};
use larix_configuration::{Config, ConfigError};
use larix_engine::Database as EngineDatabase;
use larix_engine::DatabaseSettings;
use larix_engine::load::{self, LoadContext, LoadError, LoadOptions, RecordFault, Unobserved};
use larix_engine::mirror::{self, Mirror, Mirrored, MirroredEntry};
use larix_engine::tables::TABLES;
use larix_proto::Dn;
use larix_proto::ldif::{Body, Reader, Record, Writer};
use larix_schema::{NormalDn, Schema};
use larix_store::lmdb::{LmdbOptions, LmdbStore};

use crate::clock::{SystemClock, SystemRandom};

use image::Image;
pub(crate) use image::remove_left as remove_left_images;

/// Deeper trees are not read.
const DEPTH_MAX: usize = 64;
/// Bytes of a file name that file systems take, without those of the name it is written under first.
const NAME_BYTES_MAX: usize = 255 - ".new".len();
/// Address space for the image of a plain small database.
const IMAGE_BYTES_MAX: usize = 16 << 30;

/// What cannot be read, stored or written.
#[derive(Debug)]
pub struct LdifTreeError {
    /// The file, or the directory of the database.
    pub path: PathBuf,
    pub fault: String,
}

impl fmt::Display for LdifTreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.fault)
    }
}

impl std::error::Error for LdifTreeError {}

impl From<ConfigError> for LdifTreeError {
    fn from(error: ConfigError) -> Self {
        Self { path: PathBuf::from("LDIF files"), fault: error.to_string() }
    }
}

/// What files are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// Beside a server, too.
    Read,
    /// To serve or change them: one process at a time.
    Change,
}

/// A database of LDIF files as it is opened.
#[derive(Debug)]
pub struct Opened {
    pub database: EngineDatabase<LmdbStore>,
    /// What is odd about the files and no reason to refuse them.
    pub warnings: Vec<String>,
}

/// Where the files of a database are, and the names of those that are not called as they would be here.
#[derive(Debug)]
pub struct LdifTree {
    directory: PathBuf,
    suffix: NormalDn,
    /// Files under names of their own, below the directory.
    unusual: Mutex<HashMap<NormalDn, PathBuf>>,
    /// What a change has left that was refused.
    refused: Mutex<RefusedJournal>,
    /// Where the image is kept; removed with this.
    _image: Option<Image>,
    /// Of files that are served or changed.
    _in_use: Option<InUse>,
}

/// Reads the files and makes their image. From then on the files follow the changes of the database.
///
/// # Errors
/// Names the file that cannot be read or whose entry cannot be stored, or the other process that works on the files.
pub fn open(
    config: &Config,
    settings: DatabaseSettings,
    directory: &Path,
    file_use: FileUse,
) -> Result<Opened, LdifTreeError> {
    let whole = |fault: String| LdifTreeError { path: directory.to_owned(), fault };
    let in_use = match file_use {
        FileUse::Read => None,
        // Before they are read: what another process changes afterwards would be overwritten.
        FileUse::Change => Some(InUse::of_entries(directory).map_err(|error| whole(error.to_string()))?),
    };
    let suffix = settings.suffixes.first().ok_or_else(|| whole("the database has no suffix".to_owned()))?;
    let suffix = (suffix.normal.clone(), suffix.text.clone());
    let read = Files::read(directory, &config.schema, &suffix)?;
    let image =
        Image::create().map_err(|error| whole(format!("no temporary directory for its image: {error}")))?;
    let options = LmdbOptions { map_size: IMAGE_BYTES_MAX, ..LmdbOptions::default() };
    let clock = SystemClock;
    let context =
        LoadContext { schema: &config.schema, settings: &settings, clock: &clock, random: &SystemRandom };
    let loading = LoadOptions {
        schema_check: false,
        write_context_csn: true,
        threads: 1,
        server_id: config.global.server_ids.iter().find(|id| id.url.is_none()).map_or(0, |id| id.number),
        ..LoadOptions::default()
    };
    let input = Cursor::new(&read.ldif);
    load::load_directory(image.path(), &options, input, context, &loading, &mut Unobserved)
        .map_err(|error| read.fault(directory, error))?;
    let store = LmdbStore::open(image.path(), &TABLES, &options).map_err(|error| whole(error.to_string()))?;
    let database = EngineDatabase::open(store, config.schema.clone(), settings, &SystemRandom)
        .map_err(|error| whole(error.to_string()))?;
    let tree = LdifTree {
        directory: directory.to_owned(),
        suffix: suffix.0,
        unusual: Mutex::new(read.unusual),
        refused: Mutex::default(),
        _image: Some(image),
        _in_use: in_use,
    };
    database.set_mirror(Box::new(tree));
    Ok(Opened { database, warnings: read.warnings })
}

/// Writes what the files lack of the database: what a load brought, or the operational attributes of entries that were
/// written by hand.
///
/// # Errors
/// Names the file that cannot be written; then none was.
pub fn write_back(database: &EngineDatabase<LmdbStore>) -> Result<(), String> {
    let Some(mirror) = database.mirror() else { return Ok(()) };
    let all = mirror::whole(database).map_err(|fault| fault.to_string())?;
    mirror.write(&all.into_iter().map(Mirrored::Put).collect::<Vec<_>>())
}

impl Mirror for LdifTree {
    fn write(&self, changes: &[Mirrored]) -> Result<(), String> {
        let mut unusual = self.unusual.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files: BTreeMap<PathBuf, Option<Vec<u8>>> = BTreeMap::new();
        for change in changes {
            match change {
                Mirrored::Gone(name) => {
                    files.insert(self.file(&unusual, name)?, None);
                }
                Mirrored::Put(entry) => {
                    let file = self.file(&unusual, &entry.name)?;
                    let bytes = self.content(entry);
                    if fs::read(self.directory.join(&file)).is_ok_and(|now| now == bytes) {
                        files.remove(&file);
                    } else {
                        files.insert(file, Some(bytes));
                    }
                }
            }
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        FileChanges::of(&self.directory, files)
            .commit_entries(&mut refused)
            .map_err(|error| error.to_string())?;
        for change in changes {
            if let Mirrored::Gone(name) = change {
                unusual.remove(name);
            }
        }
        Ok(())
    }
}

impl LdifTree {
    fn content(&self, entry: &MirroredEntry) -> Vec<u8> {
        file_bytes(&entry.rdn, &entry.attributes)
    }

    /// The file of an entry, below the directory.
    fn file(&self, unusual: &HashMap<NormalDn, PathBuf>, name: &NormalDn) -> Result<PathBuf, String> {
        if let Some(file) = unusual.get(name) {
            return Ok(file.clone());
        }
        let leaf = if *name == self.suffix {
            file_name(name.as_str())
        } else {
            let rdn = name.rdn().ok_or_else(|| format!("\"{}\" has no file", name.as_str()))?;
            file_name(rdn.as_str())
        };
        if leaf.len() + ".ldif".len() > NAME_BYTES_MAX {
            return Err(format!("the RDN of \"{}\" is too long for the name of a file", name.as_str()));
        }
        let above = match name.parent().filter(|_| *name != self.suffix) {
            Some(parent) => self.file(unusual, &parent)?.with_extension(""),
            None => PathBuf::new(),
        };
        Ok(above.join(leaf + ".ldif"))
    }
}

/// An RDN, or the suffix, as the name of a file without `.ldif`.
fn file_name(normal: &str) -> String {
    let mut name = String::with_capacity(normal.len());
    for c in normal.chars() {
        match c {
            '/' | ':' => name.push_str(&format!("\\{:02X}", c as u32)),
            '.' => name.push_str("\\2E"),
            // The journal names files by lines.
            '\n' => name.push_str("\\0A"),
            c => name.push(c),
        }
    }
    name
}

/// What the files hold.
struct Files {
    /// All entries with their whole DNs, superiors first.
    ldif: Vec<u8>,
    /// The line that each file's entry begins on.
    lines: Vec<(u64, PathBuf)>,
    unusual: HashMap<NormalDn, PathBuf>,
    warnings: Vec<String>,
}

impl Files {
    fn read(directory: &Path, schema: &Schema, suffix: &(NormalDn, String)) -> Result<Self, LdifTreeError> {
        let found = files_of_entries(directory, DEPTH_MAX)?;
        let mut below: BTreeMap<&Path, Vec<(&Path, &[u8])>> = BTreeMap::new();
        for (path, bytes) in &found {
            below.entry(path.parent().unwrap_or_else(|| Path::new(""))).or_default().push((path, bytes));
        }
        let tree = LdifTree {
            directory: directory.to_owned(),
            suffix: suffix.0.clone(),
            unusual: Mutex::default(),
            refused: Mutex::default(),
            _image: None,
            _in_use: None,
        };
        let mut files =
            Self { ldif: Vec::new(), lines: Vec::new(), unusual: HashMap::new(), warnings: Vec::new() };
        let mut line = 1;
        let top = PathBuf::from(file_name(suffix.0.as_str()) + ".ldif");
        let superior = Dn::parse(&suffix.1).map_or_else(
            |_| String::new(),
            |dn| dn.rdns().iter().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(","),
        );
        let mut waiting: Vec<(&Path, &[u8], String)> = match found.get_key_value(&top) {
            Some((path, bytes)) => vec![(path, bytes, superior)],
            None => Vec::new(),
        };
        if waiting.is_empty() && !found.is_empty() {
            let text = format!(
                "{}: holds LDIF files, but no {} for the suffix: none of them is served",
                directory.display(),
                top.display()
            );
            files.warnings.push(text);
        }
        while let Some((path, bytes, superior)) = waiting.pop() {
            let dn = files.entry(directory, (path, bytes), &superior, &mut line)?;
            let name = schema.parse_dn(&dn).map_err(|error| LdifTreeError {
                path: directory.join(path),
                fault: format!("\"{dn}\": {error}"),
            })?;
            if tree.file(&files.unusual, &name).is_ok_and(|usual| usual != path) {
                files.unusual.insert(name, path.to_owned());
            }
            let children = below.remove(path.with_extension("").as_path()).unwrap_or_default();
            waiting.extend(children.into_iter().rev().map(|(path, bytes)| (path, bytes, dn.clone())));
        }
        let orphans = below.into_iter().filter(|(above, _)| !above.as_os_str().is_empty());
        for (above, _) in orphans.filter(|(above, _)| above.starts_with(top.with_extension(""))) {
            let above = directory.join(above);
            files.warnings.push(format!(
                "{}: there is no entry {}.ldif for the files in it: they are not served",
                above.display(),
                above.display()
            ));
        }
        Ok(files)
    }

    /// Adds the entry of one file, below `superior`, and answers its DN.
    fn entry(
        &mut self,
        directory: &Path,
        (path, bytes): (&Path, &[u8]),
        superior: &str,
        line: &mut u64,
    ) -> Result<String, LdifTreeError> {
        let path = directory.join(path);
        let fail = |fault: String| LdifTreeError { path: path.clone(), fault };
        if !checksum_fits(bytes) {
            self.warnings.push(format!("{}: was edited by hand: its checksum does not fit", path.display()));
        }
        let record = Reader::new(bytes).read_record().map_err(|error| fail(error.to_string()))?;
        let Some(Record { dn: rdn, body: Body::Content(attributes), .. }) = record else {
            return Err(fail("holds no entry".to_owned()));
        };
        let dn = if superior.is_empty() { rdn } else { format!("{rdn},{superior}") };
        let from = self.ldif.len();
        let record = Record { line: 0, dn: dn.clone(), body: Body::Content(attributes) };
        Writer::new(None).record(&mut self.ldif, &record);
        self.lines.push((*line, path));
        let new = self.ldif.get(from..).unwrap_or_default();
        *line += new.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(dn)
    }

    /// The file that is at fault.
    fn fault(&self, directory: &Path, error: LoadError) -> LdifTreeError {
        let LoadError::Record(record) = error else {
            return LdifTreeError { path: directory.to_owned(), fault: error.to_string() };
        };
        let file_of = |wanted: u64| {
            let at = self.lines.partition_point(|(line, _)| *line <= wanted);
            let file = at.checked_sub(1).and_then(|at| self.lines.get(at));
            file.map_or_else(|| directory.to_owned(), |(_, path)| path.clone())
        };
        let path = file_of(record.line);
        if let RecordFault::SameUuid { uuid, line } = record.fault {
            let other = file_of(line);
            let fault = format!(
                "has the entryUUID {uuid}, as {} has: take the line out of the copy, and the entry gets one of its own",
                other.display()
            );
            return LdifTreeError { path, fault };
        }
        let text = record.to_string();
        let fault = text.strip_prefix(&format!("line {}: ", record.line)).unwrap_or(&text).to_owned();
        LdifTreeError { path, fault }
    }
}

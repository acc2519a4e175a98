//! `database mdb`, and tuning of engines that are gone.

use std::path::{Path, PathBuf};

use larix_engine::index::{IndexConfig, IndexConfigError};
use larix_proto::{FilterBuf, Scope as SearchScope};
use larix_schema::Schema;

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::builder::directive::{Directive, Form, MANY, Scope};
use super::super::diagnostic::ConfigError;
use super::super::line;
use super::super::line::c_integer;
use super::super::model::Database;
use super::super::settings::Settings;
use super::super::undefined::remedy;
use super::super::values::{ChangeLog, EnvFlags, IndexLine, SyncData};
use super::{Descriptor, KindSettings, NOTHING, Storage, StoredSettings};

/// Where a `database mdb` without `directory` has its files: where Debian's slapd has them.
pub const DEFAULT_DATABASE_DIRECTORY: &str = "/var/lib/ldap";

/// The name of the kind.
pub(super) const NAME: &str = "mdb";

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: NAME,
    formerly: &["bdb", "hdb"],
    storage: Storage::Lmdb,
    class: Some("olcMdbConfig"),
    backend_class: Some("olcMdbBkConfig"),
    defaults: &[("olcMonitoring", "TRUE")],
    is_recorded: true,
    follows: true,
    settings: || Box::new(MdbSettings::default()),
    directives: TABLE,
    ..NOTHING
};

/// Settings of `database mdb`.
#[derive(Debug, Clone, Default)]
pub struct MdbSettings {
    pub directory: PathBuf,
    /// The index lines as written, and what they come to.
    pub index: Vec<IndexLine>,
    pub index_config: IndexConfig,
    /// `dbnosync`: commits without waiting for the disk.
    pub no_sync: bool,
    /// File mode of the database's files; default 0600.
    pub mode: Option<u32>,
    /// `maxentrysize`; `None` for 0: no limit.
    pub entry_bytes_max: Option<u64>,
    pub env_flags: EnvFlags,
    /// `change-log`: how long changes stay in the change log; default: by their number.
    pub change_log: ChangeLog,
    /// `conflict-mode value`: conflicts of replication are settled value by value. Default: by entries.
    pub value_conflicts: bool,
}

impl KindSettings for MdbSettings {
    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn stored(&self) -> StoredSettings {
        StoredSettings {
            change_log: self.change_log,
            index: self.index_config.clone(),
            relaxed: self.no_sync || self.env_flags.no_sync || self.env_flags.no_meta_sync,
            entry_bytes_max: self.entry_bytes_max,
            value_conflicts: self.value_conflicts,
        }
    }

    /// A slapd.conf may leave the directory out. An entry of cn=config may not.
    fn complete(&mut self, settings: &mut Settings) {
        if self.directory.as_os_str().is_empty() {
            self.directory = DEFAULT_DATABASE_DIRECTORY.into();
            settings.set("olcDbDirectory", DEFAULT_DATABASE_DIRECTORY.as_bytes().to_vec());
        }
    }

    fn check(&self, database: &Database) -> Result<(), ConfigError> {
        if self.value_conflicts { value_conflicts(database) } else { Ok(()) }
    }
}

/// Merging value by value takes whole entries, with who changed them when.
fn value_conflicts(database: &Database) -> Result<(), ConfigError> {
    let refused = |what: &str, help: &str| {
        let message = format!("`conflict-mode value` {what}");
        Err(ConfigError::new(database.origin.clone(), message).with_help(help.to_owned()))
    };
    if !database.last_mod {
        return refused("needs the entryCSN of entries", "take `lastmod off` out");
    }
    for line in &database.sync_replication {
        let rid = line.rid;
        let partial = [
            ("attrs", !line.attributes.is_empty()),
            ("exattrs", !line.except_attributes.is_empty()),
            ("filter", line.filter != FilterBuf::every_entry()),
            ("scope", line.scope != SearchScope::Subtree),
            ("suffixmassage", line.suffix_massage.is_some()),
            ("syncdata", line.data != SyncData::Entries),
            ("type=dirsync", line.dir_sync),
            ("schemachecking", line.schema_checking),
        ];
        if let Some((key, _)) = partial.iter().find(|(_, is_partial)| *is_partial) {
            let what = format!("takes whole entries, as they are: not with `{key}` (syncrepl rid={rid:03})");
            return refused(
                &what,
                "take it out, or settle conflicts by entries (`conflict-mode entry`, on all members)",
            );
        }
    }
    Ok(())
}

const NO_TUNING: &str = "the store needs no tuning";
const UNENCRYPTED: &str = "encrypt the file system below the database, and take the line out";
const RETIRED: &str = "a setting of the retired Berkeley DB engine";

static TABLE: &[Directive] = &[
    Directive::new("directory", "olcDbDirectory", Scope::Kind("mdb"), Form::Whole, |b, c| {
        b.mdb()?.directory = c.path(0)?;
        Ok(())
    }),
    Directive::new("index", "olcDbIndex", Scope::Kind("mdb"), Form::Own, index).arguments(1, 2).many(),
    Directive::new("checkpoint", "olcDbCheckpoint", Scope::Kind("mdb"), Form::Words, |b, c| {
        // Nothing waits for one: without `dbnosync` every commit is durable, with it the system writes sooner than asked.
        let _: (u32, u32) = (c.number(0)?, c.number(1)?);
        b.mdb().map(|_| ())
    })
    .arguments(2, 2),
    Directive::new("dbnosync", "olcDbNoSync", Scope::Kind("mdb"), Form::Switch, |b, c| {
        b.mdb()?.no_sync = c.switch()?;
        Ok(())
    })
    .arguments(0, 1),
    Directive::new("envflags", "olcDbEnvFlags", Scope::Kind("mdb"), Form::Each, env_flags).many(),
    Directive::new("mode", "olcDbMode", Scope::Kind("mdb"), Form::Whole, mode),
    Directive::new("maxentrysize", "olcDbMaxEntrySize", Scope::Kind("mdb"), Form::Whole, |b, c| {
        b.mdb()?.entry_bytes_max = Some(c.number(0)?).filter(|bytes| *bytes > 0);
        Ok(())
    }),
    Directive::new("maxsize", "olcDbMaxSize", Scope::Kind("mdb"), Form::Whole, |b, c| {
        let _: u64 = c.number(0)?;
        b.mdb().map(|_| ())
    })
    .noted("the database may grow until the disk is full"),
    Directive::new("maxreaders", "olcDbMaxReaders", Scope::Kind("mdb"), Form::Whole, |b, c| {
        let _: u32 = c.number(0)?;
        b.mdb().map(|_| ())
    })
    .noted(NO_TUNING),
    Directive::new("searchstack", "olcDbSearchStack", Scope::Kind("mdb"), Form::Whole, |b, c| {
        c.int_from_zero(0)?;
        b.mdb().map(|_| ())
    })
    .noted(NO_TUNING),
    Directive::new("rtxnsize", "olcDbRtxnSize", Scope::Kind("mdb"), Form::Whole, |b, c| {
        let _: u32 = c.number(0)?;
        b.mdb().map(|_| ())
    })
    .noted("a search never holds a snapshot for long"),
    Directive::kept("multival", "olcDbMultival", Scope::Kind("mdb"), Form::Words)
        .arguments(2, 2)
        .many()
        .noted("large sets of values are kept apart by themselves"),
    Directive::kept("dbpagesize", "olcDbPageSize", Scope::Kind("mdb"), Form::Whole).noted(NO_TUNING),
    Directive::kept("crypto", "olcDbCryptoModule", Scope::Kind("mdb"), Form::Whole).refused(UNENCRYPTED),
    Directive::kept("passphrase", "olcDbPassphrase", Scope::Kind("mdb"), Form::Secret).refused(UNENCRYPTED),
    Directive::kept("idlexp", "olcBkMdbIdlExp", Scope::Backend, Form::Whole).noted("indexes are exact"),
    Directive::new("change-log", "olcLarixChangeLog", Scope::Kind("mdb"), Form::Words, |b, c| {
        let log = ChangeLog::parse(c.arguments.iter().map(String::as_str));
        b.mdb()?.change_log =
            log.map_err(|(word, message)| Fault::argument(word, message).with_help(ChangeLog::WORDS))?;
        Ok(())
    }),
    Directive::new("conflict-mode", "olcLarixConflictMode", Scope::Kind("mdb"), Form::Whole, |b, c| {
        b.mdb()?.value_conflicts = c.choice(0, &[("entry", false), ("value", true)])?;
        Ok(())
    }),
    retired("cachesize", "olcDbCacheSize"),
    retired("cachefree", "olcDbCacheFree"),
    retired("idlcachesize", "olcDbIDLcacheSize"),
    retired("dncachesize", "olcDbDNcacheSize"),
    retired("checksum", "olcDbChecksum"),
    retired("dbconfig", "olcDbConfig").ordered(),
    retired("dbcachesize", ""),
    retired("dirtyread", "olcDbDirtyRead"),
    retired("linearindex", "olcDbLinearIndex"),
    retired("lockdetect", "olcDbLockDetect"),
    retired("shm_key", "olcDbShmKey"),
    Directive::kept("cryptfile", "olcDbCryptFile", Scope::Kind("mdb"), Form::Whole).refused(UNENCRYPTED),
    Directive::kept("cryptkey", "olcDbCryptKey", Scope::Kind("mdb"), Form::Secret).refused(UNENCRYPTED),
];

const fn retired(keyword: &'static str, attribute: &'static str) -> Directive {
    Directive::kept(keyword, attribute, Scope::Kind("mdb"), Form::Words).arguments(0, MANY).noted(RETIRED)
}

fn index(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let schema = builder.schema();
    let mdb = builder.mdb()?;
    let line = indexed(&mut mdb.index_config, &schema, call)?;
    mdb.index.push(line.clone());
    show_index(builder, call, &line);
    Ok(())
}

/// Takes an `index` line in.
///
/// # Errors
/// An attribute or a kind that is not known, and what contradicts an earlier line.
pub(super) fn indexed(
    indexes: &mut IndexConfig,
    schema: &Schema,
    call: &Call<'_>,
) -> Result<IndexLine, Fault> {
    let (attributes, kinds) = (call.argument(0)?, call.arguments.get(1));
    indexes.add_line(schema, attributes, kinds.map(String::as_str)).map_err(|error| {
        let (at, help) = match &error {
            IndexConfigError::UnknownKind(_) => {
                (1, Some("some of pres, eq, sub, approx, subinitial, subany, subfinal, nolang, nosubtypes"))
            }
            IndexConfigError::NoKinds(_) => {
                (0, Some("name the kinds, such as `eq`, or put `index default eq` before it"))
            }
            IndexConfigError::Duplicate(_) => (0, Some("put all kinds into one line")),
            _ => (0, None),
        };
        let fault = Fault::argument(at, error.to_string());
        match (help, error) {
            (Some(help), _) => fault.with_help(help),
            (None, IndexConfigError::UnknownAttribute(name)) => fault.with_help(remedy(schema, &name)),
            (None, _) => fault,
        }
    })?;
    let split =
        |list: &str| list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    Ok(IndexLine { attributes: split(attributes), kinds: kinds.map(|list| split(list)).unwrap_or_default() })
}

/// Shows it as OpenLDAP does: one value an attribute.
pub(super) fn show_index(builder: &mut Builder, call: &Call<'_>, line: &IndexLine) {
    let kinds = call.arguments.get(1);
    let values: Vec<String> = line
        .attributes
        .iter()
        .map(|attribute| line::join([attribute.as_str()].into_iter().chain(kinds.map(String::as_str))))
        .collect();
    let settings = builder.settings(call.directive);
    for value in values {
        settings.add(call.directive.attribute, value.into_bytes());
    }
}

fn env_flags(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let flags: &mut EnvFlags = &mut builder.mdb()?.env_flags;
    let mut without = Vec::new();
    for (number, word) in call.arguments.iter().enumerate() {
        match word.to_ascii_lowercase().as_str() {
            "nosync" => flags.no_sync = true,
            "nometasync" => flags.no_meta_sync = true,
            "writemap" => (flags.write_map, _) = (true, without.push("writemap")),
            "mapasync" => (flags.map_async, _) = (true, without.push("mapasync")),
            "nordahead" => flags.no_read_ahead = true,
            _ => {
                return Err(Fault::argument(number, format!("no environment flag `{word}`"))
                    .with_help("some of nosync, nometasync, writemap, mapasync, nordahead"));
            }
        }
    }
    for flag in without {
        builder.notes.push(call.origin.clone(), format!("`envflags {flag}` has no effect: {NO_TUNING}"));
    }
    Ok(())
}

fn mode(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let text = call.argument(0)?;
    // As where words are cut, a quote at the end does not count.
    let text = text.strip_suffix('"').unwrap_or(text);
    let symbolic = |text: &str| {
        // -rw-r-----: ten characters, each on or off.
        let bits = text.strip_prefix('-').filter(|bits| bits.len() == 9)?;
        bits.chars().zip("rwxrwxrwx".chars()).try_fold(0u32, |mode, (c, letter)| match c {
            '-' => Some(mode << 1),
            c if c == letter => Some((mode << 1) | 1),
            _ => None,
        })
    };
    let number = c_integer(text).and_then(|mode| u32::try_from(mode).ok());
    let mode = number.or_else(|| symbolic(text)).ok_or_else(|| {
        Fault::argument(0, format!("`{text}` is not a file mode")).with_help("such as 0600 or -rw-------")
    })?;
    if mode > 0o777 {
        // slapd takes any number. Most lack the 0 that makes them octal.
        builder.mdb()?.mode = None;
        let why = format!("{text} is 0{mode:o} in octal, which is no file mode; write 0600 or -rw-------");
        builder.note_without_effect(call, "mode", &why);
        return Ok(());
    }
    builder.mdb()?.mode = Some(mode);
    Ok(())
}

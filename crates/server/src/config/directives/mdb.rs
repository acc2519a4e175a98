//! Directives of mdb, ldif and null databases, and tuning of engines that are gone.

use larix_engine::index::IndexConfigError;

use super::super::builder::Builder;
use super::super::call::{Call, Fault, c_integer};
use super::super::line;
use super::super::model::DatabaseKind;
use super::super::values::{ChangeLog, EnvFlags, IndexLine};
use super::{Directive, Form, MANY, Scope, keep};

const NO_TUNING: &str = "the store needs no tuning";
const RETIRED: &str = "a setting of the retired Berkeley DB engine";

pub(super) static TABLE: &[Directive] = &[
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
    Directive::new("mode", "olcDbMode", Scope::Kind("mdb"), Form::Words, mode),
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
        let _: u32 = c.number(0)?;
        b.mdb().map(|_| ())
    })
    .noted(NO_TUNING),
    Directive::new("rtxnsize", "olcDbRtxnSize", Scope::Kind("mdb"), Form::Whole, |b, c| {
        let _: u32 = c.number(0)?;
        b.mdb().map(|_| ())
    })
    .noted("a search never holds a snapshot for long"),
    Directive::new("multival", "olcDbMultival", Scope::Kind("mdb"), Form::Words, keep)
        .arguments(2, 2)
        .many()
        .noted("large sets of values are kept apart by themselves"),
    Directive::new("dbpagesize", "olcDbPageSize", Scope::Kind("mdb"), Form::Whole, keep).noted(NO_TUNING),
    Directive::new("crypto", "olcDbCryptoModule", Scope::Kind("mdb"), Form::Whole, keep)
        .refused("encrypt the file system below the database"),
    Directive::new("passphrase", "olcDbPassphrase", Scope::Kind("mdb"), Form::Secret, keep)
        .refused("encrypt the file system below the database"),
    Directive::new("idlexp", "olcBkMdbIdlExp", Scope::Backend, Form::Whole, keep).noted("indexes are exact"),
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
    retired("dbconfig", "olcDbConfig").many(),
    retired("dbcachesize", ""),
    retired("dirtyread", "olcDbDirtyRead"),
    retired("linearindex", "olcDbLinearIndex"),
    retired("lockdetect", "olcDbLockDetect"),
    retired("shm_key", "olcDbShmKey"),
    retired("cryptfile", "olcDbCryptFile"),
    retired("cryptkey", "olcDbCryptKey"),
    Directive::new("directory", "olcDbDirectory", Scope::Kind("ldif"), Form::Whole, |b, c| {
        let path = c.path(0)?;
        if let DatabaseKind::Ldif { directory } = &mut b.open_database()?.kind {
            *directory = path;
        }
        Ok(())
    }),
    Directive::new("bind", "olcDbBindAllowed", Scope::Kind("null"), Form::Switch, |b, c| {
        let on = c.switch()?;
        if let DatabaseKind::Null { bind_allowed, .. } = &mut b.open_database()?.kind {
            *bind_allowed = on;
        }
        Ok(())
    }),
    Directive::new("dosearch", "olcDbDoSearch", Scope::Kind("null"), Form::Switch, |b, c| {
        let on = c.switch()?;
        if let DatabaseKind::Null { search_answers, .. } = &mut b.open_database()?.kind {
            *search_answers = on;
        }
        Ok(())
    }),
];

const fn retired(keyword: &'static str, attribute: &'static str) -> Directive {
    Directive::new(keyword, attribute, Scope::Kind("mdb"), Form::Words, keep)
        .arguments(0, MANY)
        .noted(RETIRED)
}

fn index(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let schema = builder.schema();
    let mdb = builder.mdb()?;
    let (attributes, kinds) = (call.argument(0)?, call.arguments.get(1));
    mdb.index_config.add_line(&schema, attributes, kinds.map(String::as_str)).map_err(|error| {
        let (at, help) = match &error {
            IndexConfigError::UnknownKind(_) => {
                (1, Some("some of pres, eq, sub, approx, subinitial, subany, subfinal, nolang, nosubtypes"))
            }
            IndexConfigError::NoKinds(_) => {
                (0, Some("name the kinds, such as `eq`, or put `index default eq` before it"))
            }
            IndexConfigError::UnknownAttribute(_) => (0, Some("include the schema that defines it")),
            IndexConfigError::Duplicate(_) => (0, Some("put all kinds into one line")),
            _ => (0, None),
        };
        let fault = Fault::argument(at, error.to_string());
        match help {
            Some(help) => fault.with_help(help),
            None => fault,
        }
    })?;
    let split =
        |list: &str| list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let line =
        IndexLine { attributes: split(attributes), kinds: kinds.map(|list| split(list)).unwrap_or_default() };
    // OpenLDAP shows one value an attribute.
    let values: Vec<String> = line
        .attributes
        .iter()
        .map(|attribute| line::join([attribute.as_str()].into_iter().chain(kinds.map(String::as_str))))
        .collect();
    mdb.index.push(line);
    let settings = builder.settings(call.directive);
    for value in values {
        settings.add(call.directive.attribute, value.into_bytes());
    }
    Ok(())
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
    let mode = number.or_else(|| symbolic(text)).filter(|mode| *mode <= 0o777).ok_or_else(|| {
        Fault::argument(0, format!("`{text}` is not a file mode")).with_help("such as 0600 or -rw-------")
    })?;
    builder.mdb()?.mode = Some(mode);
    Ok(())
}

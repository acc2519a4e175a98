//! The tables of a store in LMDB's file, and the number of its format.

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, DatabaseOpener, Env, IntegerComparator, RoTxn, RwTxn, WithTls, WithoutTls};

use super::Records;
use super::errors::{NOT_OURS, lmdb_error};
use super::options::LmdbOptions;
use crate::error::OpenError;
use crate::table::{Catalog, TableKind, TableSpec};

/// The version of the store's own format: tables, posting blocks. Another one is refused.
pub const FORMAT: u64 = 1;

/// The store's own table and the key of its format number in it.
pub(super) const STORE_TABLE: &str = "_store";
const FORMAT_KEY: &[u8] = b"format";

pub(super) fn open_tables(
    env: &Env<WithTls>,
    path: &Path,
    catalog: &Catalog,
    options: &LmdbOptions,
) -> Result<Vec<Option<Records>>, OpenError> {
    let failed = |error| Failure::Lmdb(error);
    let opened = if options.read_only {
        let txn = env.read_txn().map_err(|error| lmdb_error(path, error))?;
        env.open_databases_and_commit(txn, |opener, txn| {
            check_format(opener, txn)?;
            let tables: Result<Vec<_>, Failure> =
                catalog.specs().iter().map(|spec| open_table(opener, txn, spec).map_err(failed)).collect();
            Ok::<_, Failure>(CommitOrAbort::<_, ()>::Commit(Opened(tables?)))
        })
    } else {
        let txn = env.write_txn().map_err(|error| lmdb_error(path, error))?;
        env.create_databases_and_commit(txn, |opener, txn| {
            create_format(opener, txn)?;
            let mut tables = Vec::with_capacity(catalog.specs().len());
            for spec in catalog.specs() {
                tables.push(Some(create_table(opener, txn, spec).map_err(failed)?));
            }
            Ok::<_, Failure>(CommitOrAbort::<_, ()>::Commit(Opened(tables)))
        })
    };
    match opened {
        Ok(opened) => Ok(opened.commit().unwrap_or_default()),
        Err(Failure::Lmdb(error)) => Err(lmdb_error(path, error)),
        Err(Failure::Format(found)) => {
            Err(OpenError::Format { path: path.to_owned(), found, supported: FORMAT })
        }
        Err(Failure::NotOurs) => Err(OpenError::Corrupt { path: path.to_owned(), what: NOT_OURS.to_owned() }),
    }
}

/// Handles that become valid with the commit of the transaction that opened them.
struct Opened<'e>(Vec<Option<heed::Database<'e, Bytes, Bytes>>>);

impl heed::OnCommit for Opened<'_> {
    type Committed = Vec<Option<Records>>;

    fn on_commit(self, token: &heed::CommitToken) -> Self::Committed {
        self.0.into_iter().map(|table| table.map(|table| table.on_commit(token))).collect()
    }
}

enum Failure {
    Lmdb(heed::Error),
    Format(u64),
    NotOurs,
}

impl From<heed::Error> for Failure {
    fn from(error: heed::Error) -> Self {
        Self::Lmdb(error)
    }
}

fn check_format<'e>(opener: &DatabaseOpener<'e, WithTls>, txn: &RoTxn<'e, WithTls>) -> Result<(), Failure> {
    let own = opener.open_database::<Bytes, Bytes>(txn, Some(STORE_TABLE))?.ok_or(Failure::NotOurs)?;
    verify(own.get(txn, FORMAT_KEY)?)
}

fn create_format<'e>(opener: &DatabaseOpener<'e, WithTls>, txn: &mut RwTxn<'e>) -> Result<(), Failure> {
    let main = opener.open_database::<Bytes, Bytes>(txn, None)?.ok_or(Failure::NotOurs)?;
    let is_new = main.is_empty(txn)?;
    if !is_new {
        let own = {
            let txn: &RoTxn<'_, WithoutTls> = txn;
            opener.open_database::<Bytes, Bytes>(txn, Some(STORE_TABLE))?
        };
        return verify(own.ok_or(Failure::NotOurs)?.get(txn, FORMAT_KEY)?);
    }
    let own = opener.create_database::<Bytes, Bytes>(txn, Some(STORE_TABLE))?;
    own.put(txn, FORMAT_KEY, &FORMAT.to_be_bytes())?;
    Ok(())
}

fn verify(format: Option<&[u8]>) -> Result<(), Failure> {
    match format.and_then(super::be_id) {
        Some(FORMAT) => Ok(()),
        Some(found) => Err(Failure::Format(found)),
        None => Err(Failure::NotOurs),
    }
}

fn open_table<'e>(
    opener: &DatabaseOpener<'e, WithTls>,
    txn: &RoTxn<'e, WithTls>,
    spec: &TableSpec,
) -> heed::Result<Option<heed::Database<'e, Bytes, Bytes>>> {
    if spec.kind == TableKind::Integer {
        // Opened with the comparator for its flag; the handle used afterwards takes the same flag from the file.
        let integers =
            opener.database_options().types::<Bytes, Bytes>().key_comparator::<IntegerComparator>();
        let mut integers = integers;
        if integers.name(spec.name).open(txn)?.is_none() {
            return Ok(None);
        }
    }
    opener.open_database(txn, Some(spec.name))
}

fn create_table<'e>(
    opener: &DatabaseOpener<'e, WithTls>,
    txn: &mut RwTxn<'e>,
    spec: &TableSpec,
) -> heed::Result<heed::Database<'e, Bytes, Bytes>> {
    if spec.kind == TableKind::Integer {
        let mut integers =
            opener.database_options().types::<Bytes, Bytes>().key_comparator::<IntegerComparator>();
        integers.name(spec.name).create(txn)?;
    }
    opener.create_database(txn, Some(spec.name))
}

/// The size of a page: that of the file, which may have been made on another machine.
pub(super) fn page_bytes(env: &Env<WithTls>, tables: &[Option<Records>]) -> heed::Result<u64> {
    let txn = env.read_txn()?;
    let sizes = tables.iter().flatten().map(|table| table.stat(&txn).map(|stat| u64::from(stat.page_size)));
    sizes.take(1).sum()
}

//! States of entries that come beside them into a database that is being filled: kept aside until the entries are stored, for
//! their rows stand in another order, and among each other in none that is known before the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larix_proto::ldif::{Body, LdifAttribute, Record};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::Schema;
use larix_store::WriteSet;
use uuid::Uuid;

use super::error::{LoadError, RecordError, RecordFault};
use super::runs::unnamed_file;
use crate::csn::Csn;
use crate::database::DatabaseSettings;
use crate::replica_state::rows::{put_row, rows_of};
use crate::replica_state::wire::{Received, state_that_came};

/// Bytes of rows that are kept in memory, and that one commit takes, about.
const GROUP_BYTES: usize = if cfg!(test) { 1 << 10 } else { 16 << 20 };
/// The log's first record: values that were removed before are remembered as long as that is.
const FIRST_SEQUENCE: u64 = 1;

/// An entry as it came.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) uuid: Uuid,
    pub(crate) record: Record<Arc<str>>,
    /// What came beside it.
    pub(crate) state: Option<Vec<u8>>,
}

impl Arrived {
    fn attributes(&self) -> &[LdifAttribute<Arc<str>>] {
        match &self.record.body {
            Body::Content(attributes) => attributes,
            _ => &[],
        }
    }

    fn csn(&self) -> Option<Csn> {
        let is_csn =
            |attribute: &&LdifAttribute<Arc<str>>| attribute.description.eq_ignore_ascii_case("entryCSN");
        let value = self.attributes().iter().find(is_csn)?.values.first()?;
        std::str::from_utf8(value).ok()?.parse().ok()
    }

    /// The number of values of each attribute.
    fn counted(&self) -> BTreeMap<String, usize> {
        let attributes = self.attributes().iter();
        attributes.map(|attribute| (attribute.description.to_string(), attribute.values.len())).collect()
    }

    fn refused(&self, result: LdapResult) -> LoadError {
        let dn = self.record.dn.clone();
        RecordError { line: 0, dn, fault: RecordFault::Refused(result) }.into()
    }
}

/// A row: its key, and its value.
type Row = (Vec<u8>, Vec<u8>);

/// The rows of all that came, in memory up to a limit and then in a file without a name.
#[derive(Debug)]
pub(crate) struct StateRows {
    scratch: PathBuf,
    rows: Vec<Row>,
    bytes: usize,
    file: Option<BufWriter<File>>,
}

impl StateRows {
    /// `scratch`: where the file goes.
    pub(super) fn new(scratch: &Path) -> Self {
        Self { scratch: scratch.to_owned(), rows: Vec::new(), bytes: 0, file: None }
    }

    /// Takes the state that came beside an entry, if the database keeps states.
    ///
    /// # Errors
    /// It is not one that this database takes, or a file cannot be written.
    pub(super) fn take(
        &mut self,
        schema: &Schema,
        settings: &DatabaseSettings,
        arrived: &Arrived,
    ) -> Result<(), LoadError> {
        let dn = &arrived.record.dn;
        let received = Received::whole(schema, dn, arrived.state.as_deref(), || arrived.counted());
        let received = received.map_err(|refused| arrived.refused(refused))?;
        let state = state_that_came(settings, arrived.csn(), received.as_deref());
        let state = state.map_err(|text| {
            let text = format!("\"{dn}\": {text}");
            arrived.refused(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text))
        })?;
        let rows = state.iter().flat_map(|state| rows_of(schema, &arrived.uuid, state));
        rows.into_iter().try_for_each(|row| self.put(row)).map_err(LoadError::Io)
    }

    fn put(&mut self, row: Row) -> io::Result<()> {
        self.bytes += row.0.len() + row.1.len();
        self.rows.push(row);
        if self.bytes >= GROUP_BYTES { self.spill() } else { Ok(()) }
    }

    /// Rows that go into the store together lie near each other there.
    fn spill(&mut self) -> io::Result<()> {
        self.rows.sort_unstable();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::new(unnamed_file(&self.scratch)?)),
        };
        for bytes in self.rows.drain(..).flat_map(|(key, row)| [key, row]) {
            let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
            file.write_all(&length.to_be_bytes())?;
            file.write_all(&bytes)?;
        }
        self.bytes = 0;
        Ok(())
    }

    /// Hands out what one commit takes, until that was all.
    ///
    /// # Errors
    /// Those of `commit`, or a file that cannot be read.
    pub(crate) fn store(
        mut self,
        commit: &mut dyn FnMut(&WriteSet) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let mut group = Group::default();
        if let Some(file) = self.file.take() {
            let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.seek(SeekFrom::Start(0))?;
            let mut file = BufReader::new(file);
            while let Some(key) = read_bytes(&mut file)? {
                let row =
                    read_bytes(&mut file)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
                group.put((key, row), commit)?;
            }
        }
        self.rows.sort_unstable();
        self.rows.drain(..).try_for_each(|row| group.put(row, commit))?;
        group.end(commit)
    }
}

/// `None`: the end of the file.
fn read_bytes(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match file.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    file.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

#[derive(Default)]
struct Group {
    set: WriteSet,
    bytes: usize,
}

impl Group {
    fn put(
        &mut self,
        (key, row): Row,
        commit: &mut dyn FnMut(&WriteSet) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        self.bytes += key.len() + row.len();
        put_row(&mut self.set, &key, row, FIRST_SEQUENCE);
        if self.bytes >= GROUP_BYTES { self.end(commit) } else { Ok(()) }
    }

    fn end(&mut self, commit: &mut dyn FnMut(&WriteSet) -> Result<(), LoadError>) -> Result<(), LoadError> {
        let Self { set, bytes } = std::mem::take(self);
        if bytes > 0 { commit(&set) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What is in memory at the end, and what went through a file.
    #[test]
    fn all_rows_are_handed_out_in_groups() {
        let directory = tempfile::tempdir().unwrap();
        for count in [0_u32, 1, 40, 1_000] {
            let mut states = StateRows::new(directory.path());
            let mut want = BTreeMap::new();
            for number in 0..count {
                let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
                let row = (key.to_vec(), vec![7; (number % 50) as usize]);
                want.insert(row.0.clone(), row.1.clone());
                states.put(row).unwrap();
            }
            let (mut got, mut groups) = (BTreeMap::new(), 0);
            let mut commit = |set: &WriteSet| -> Result<(), LoadError> {
                groups += 1;
                for (key, value) in set.records(crate::tables::REPLICA) {
                    got.insert(key.to_vec(), value.unwrap_or_default().to_vec());
                }
                Ok(())
            };
            states.store(&mut commit).unwrap();
            assert_eq!(got, want);
            assert_eq!(
                groups,
                want.iter().map(|(key, row)| key.len() + row.len()).sum::<usize>().div_ceil(GROUP_BYTES)
            );
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

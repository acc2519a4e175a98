//! The dictionary of a load: made of a sample of its first records, which wait for it.

use std::sync::{Arc, OnceLock};

use larix_store::Loader;

use super::error::LoadError;
use crate::codec::{Dictionaries, train};
use crate::entry::EntryId;
use crate::tables::ENTRIES;

/// The first records, which wait: as many as this, or as many bytes.
const FIRST_RECORDS: usize = 4_096;
const FIRST_BYTES: usize = 16 << 20;

/// What the threads of a load pack records with, as soon as there is something.
#[derive(Debug, Default)]
pub(super) struct Packing {
    made: OnceLock<Made>,
}

/// What there is to pack with.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) dictionaries: Dictionaries,
    /// The last of the entries that the load made a dictionary of, if it made one.
    pub(super) sampled: Option<EntryId>,
}

impl Packing {
    /// With the dictionaries that there are already, if any.
    pub(super) fn new(dictionaries: &Dictionaries) -> Self {
        let packing = Self::default();
        if !dictionaries.is_empty() {
            packing.made.get_or_init(|| Made { dictionaries: dictionaries.clone(), sampled: None });
        }
        packing
    }

    /// The record as it is to be stored, or plain as it is given while there is no dictionary. The same record gives the
    /// same bytes whichever thread packs it, and one that is packed stays so.
    pub(super) fn packed(&self, record: Vec<u8>) -> Vec<u8> {
        match self.made.get() {
            Some(made) => made.dictionaries.packed(record),
            None => record,
        }
    }

    /// What records were packed with so far.
    pub(super) fn dictionaries(&self) -> Dictionaries {
        self.made.get().map(|made| made.dictionaries.clone()).unwrap_or_default()
    }

    /// What the load has to store with its catalog.
    pub(super) fn into_made(self) -> Made {
        self.made.into_inner().unwrap_or_default()
    }
}

/// Appends records; the first ones wait until they have made a dictionary.
#[derive(Debug)]
pub(super) struct Records<'a> {
    packing: &'a Packing,
    waiting: Vec<(EntryId, Vec<u8>)>,
    bytes: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(packing: &'a Packing) -> Self {
        Self { packing, waiting: Vec::new(), bytes: 0 }
    }

    pub(super) fn append(
        &mut self,
        loader: &mut impl Loader,
        id: EntryId,
        record: Vec<u8>,
    ) -> Result<(), LoadError> {
        if self.packing.made.get().is_some() {
            return Ok(loader.append(ENTRIES, &id.to_bytes(), &self.packing.packed(record))?);
        }
        self.bytes += record.len();
        self.waiting.push((id, record));
        if self.waiting.len() >= FIRST_RECORDS || self.bytes >= FIRST_BYTES {
            self.finish(loader)
        } else {
            Ok(())
        }
    }

    /// No more records wait.
    pub(super) fn finish(&mut self, loader: &mut impl Loader) -> Result<(), LoadError> {
        self.packing.made.get_or_init(|| {
            let mut dictionaries = Dictionaries::default();
            let sample: Vec<&[u8]> = self.waiting.iter().map(|(_, record)| record.as_slice()).collect();
            let dictionary = train(&sample);
            let sampled = self.waiting.last().filter(|_| dictionary.is_some()).map(|(id, _)| *id);
            dictionary.into_iter().for_each(|dictionary| dictionaries.add(Arc::new(dictionary)));
            Made { dictionaries, sampled }
        });
        for (id, record) in std::mem::take(&mut self.waiting) {
            loader.append(ENTRIES, &id.to_bytes(), &self.packing.packed(record))?;
        }
        Ok(())
    }
}

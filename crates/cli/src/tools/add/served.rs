//! A load into a database that a server has open: the server adds the entries as they stand.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::BufRead;

use larix_configuration::Config;
use larix_engine::controls::Import;
use larix_engine::csn::{Csn, CsnGenerator};
use larix_engine::load::{
    self, LoadError, LoadObserver, LoadOptions, LoadReport, Progress, RecordError, RecordFault,
};
use larix_engine::time::Clock;
use larix_engine::write::AttributeValues;
use larix_proto::ldif::{Body, LdifAttribute, LocalFiles, Reader, Record};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_server::tool_socket::{IMPORT_ENTRIES_MAX, ImportRequest, NewEntry, ToolClient};

/// Bytes of values that are handed over at once, about.
const BATCH_BYTES: usize = 1 << 20;

/// A record on its way.
#[derive(Debug)]
struct Sent {
    line: u64,
    dn: NormalDn,
    entry: NewEntry,
    bytes: usize,
    /// With `-w`: what it raises the contextCSN to.
    csns: Vec<Csn>,
}

impl Sent {
    fn fails(self, fault: RecordFault) -> RecordError {
        RecordError { line: self.line, dn: self.entry.dn, fault }
    }

    /// The server's answer, with the value that it numbers.
    fn with_value(&self, result: LdapResult) -> LdapResult {
        let named = result.invalid_value().and_then(|(name, _)| {
            self.entry.attributes.iter().find(|attribute| attribute.description.eq_ignore_ascii_case(name))
        });
        let values = named.map(|attribute| attribute.values.as_slice()).unwrap_or_default();
        load::with_value(result, values)
    }
}

/// One load.
pub(super) struct Load<'l> {
    pub(super) config: &'l Config,
    pub(super) section: &'l larix_configuration::Database,
    pub(super) options: &'l LoadOptions,
    /// `-S`: whose CSNs entries get that have none. Without it the server's own.
    pub(super) server_id: Option<u16>,
    /// `-v`
    pub(super) verbose: bool,
    pub(super) clock: &'l dyn Clock,
}

/// How far it is.
struct Run<'r> {
    load: &'r Load<'r>,
    client: &'r mut ToolClient,
    observer: &'r mut dyn LoadObserver,
    progress: Progress,
    /// In the order in which they go.
    ready: VecDeque<Sent>,
    ready_bytes: usize,
    /// Those whose superiors have not come yet.
    waiting: HashMap<NormalDn, Vec<Sent>>,
    waiting_bytes: usize,
    csns: BTreeMap<u16, Csn>,
    generator: Option<CsnGenerator>,
}

impl Load<'_> {
    /// Hands the records over. What is stored before an error stays.
    pub(super) fn run(
        &self,
        client: &mut ToolClient,
        ldif: impl BufRead,
        observer: &mut dyn LoadObserver,
    ) -> anyhow::Result<LoadReport> {
        let mut run = Run {
            load: self,
            client,
            observer,
            progress: Progress::default(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            waiting: HashMap::new(),
            waiting_bytes: 0,
            csns: BTreeMap::new(),
            generator: self.server_id.map(CsnGenerator::new),
        };
        let read = run.read(ldif);
        // What came before an error is stored, as slapadd stores it.
        let sent = run.send_all();
        read.and(sent)?;
        run.refuse_waiting()?;
        run.raise()?;
        let Progress { entries, failed, bytes, .. } = run.progress;
        Ok(LoadReport { entries, failed, bytes })
    }
}

impl Run<'_> {
    fn read(&mut self, ldif: impl BufRead) -> anyhow::Result<()> {
        let mut reader = Reader::new(ldif).with_files(LocalFiles);
        let start_line = self.load.options.start_line;
        loop {
            match reader.read_record() {
                Ok(Some(record)) if record.line < start_line => {}
                Ok(Some(record)) => match self.entry(record) {
                    Ok(sent) => self.push(sent),
                    Err(error) => {
                        // Errors come in the order of the records.
                        self.send_all()?;
                        self.failed(error)?;
                    }
                },
                Ok(None) => return Ok(()),
                Err(error) if error.line < start_line && error.is_recoverable() => {}
                Err(error) => {
                    let ends = !error.is_recoverable();
                    let line = error.line;
                    self.send_all()?;
                    self.failed(RecordError { line, dn: String::new(), fault: RecordFault::Ldif(error) })?;
                    if ends {
                        return Ok(());
                    }
                }
            }
            if self.ready.len() >= IMPORT_ENTRIES_MAX || self.ready_bytes >= BATCH_BYTES {
                self.send_all()?;
            }
        }
    }

    fn push(&mut self, sent: Sent) {
        self.progress.bytes += sent.bytes as u64;
        self.ready_bytes += sent.bytes;
        self.ready.push_back(sent);
    }

    /// What is handed over for a record.
    fn entry(&self, record: Record) -> Result<Sent, RecordError> {
        let Record { line, dn, body } = record;
        match self.checked(&dn, body) {
            Ok((normal, attributes, csns)) => {
                let values = attributes.iter().flat_map(|attribute| &attribute.values);
                let bytes = dn.len() + values.map(Vec::len).sum::<usize>();
                Ok(Sent { line, dn: normal, entry: NewEntry { dn, attributes }, bytes, csns })
            }
            Err(fault) => Err(RecordError { line, dn, fault }),
        }
    }

    fn checked(
        &self,
        dn: &str,
        body: Body,
    ) -> Result<(NormalDn, Vec<AttributeValues>, Vec<Csn>), RecordFault> {
        let Body::Content(attributes) = body else { return Err(RecordFault::NotAnEntry) };
        let normal = self.load.config.schema.parse_dn(dn).map_err(RecordFault::Dn)?;
        if !self.load.section.suffixes.iter().any(|suffix| normal.is_within(&suffix.normal)) {
            return Err(RecordFault::OutsideSuffixes);
        }
        let mut csns = Vec::new();
        let mut stored = Vec::with_capacity(attributes.len() + 1);
        let mut own = None;
        for LdifAttribute { description, values } in attributes {
            if description.eq_ignore_ascii_case("contextCSN") {
                // It is the database's, and not stored with the entry that shows it.
                for value in &values {
                    csns.push(parse_csn(value)?);
                }
                continue;
            }
            if description.eq_ignore_ascii_case("entryCSN") {
                own = values.first().and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
            }
            stored.push(AttributeValues { description, values });
        }
        let has_csn = stored.iter().any(|attribute| attribute.description.eq_ignore_ascii_case("entryCSN"));
        if let (false, Some(generator)) = (has_csn, &self.generator) {
            let csn = generator.next(self.load.clock.now());
            let values = vec![csn.text().into_bytes()];
            stored.push(AttributeValues { description: "entryCSN".to_owned(), values });
            own = Some(csn);
        }
        csns.extend(own.filter(|_| self.load.options.write_context_csn));
        Ok((normal, stored, csns))
    }

    /// Hands over what is ready.
    fn send_all(&mut self) -> anyhow::Result<()> {
        while !self.ready.is_empty() {
            let count = self.ready.len().min(IMPORT_ENTRIES_MAX);
            let batch: Vec<Sent> = self.ready.drain(..count).collect();
            let options = self.load.options;
            let import = Import { schema_check: options.schema_check, value_check: options.value_check };
            let request = ImportRequest {
                import,
                go_on: options.continue_on_error,
                entries: batch.iter().map(|sent| sent.entry.clone()).collect(),
            };
            let results = self.client.import(&request)?;
            let all = results.len() == batch.len();
            let mut batch = batch.into_iter();
            for (sent, result) in batch.by_ref().zip(results) {
                self.answered(sent, result)?;
            }
            if !all {
                // The server ended with an error that belongs to no record; it was reported with the last one answered.
                anyhow::bail!(
                    "the load ends there, before the end of the LDIF: {} entries were added",
                    self.progress.entries
                );
            }
        }
        self.ready_bytes = 0;
        self.observer.progress(&self.progress);
        Ok(())
    }

    fn answered(&mut self, sent: Sent, result: LdapResult) -> anyhow::Result<()> {
        if result.is_success() {
            self.progress.entries += 1;
            for csn in &sent.csns {
                let known = self.csns.entry(csn.server_id).or_insert(*csn);
                *known = (*known).max(*csn);
            }
            for waited in self.waiting.remove(&sent.dn).into_iter().flatten() {
                self.waiting_bytes = self.waiting_bytes.saturating_sub(waited.bytes);
                self.ready.push_back(waited);
            }
            return Ok(());
        }
        if result.code == ResultCode::NO_SUCH_OBJECT
            && let Some(superior) = sent.dn.parent()
        {
            self.waiting_bytes += sent.bytes;
            if self.waiting_bytes > self.load.options.memory_bytes {
                return self.failed(sent.fails(RecordFault::TooManyWait));
            }
            self.waiting.entry(superior).or_default().push(sent);
            return Ok(());
        }
        let fault = match result.code {
            ResultCode::ENTRY_ALREADY_EXISTS => RecordFault::Exists,
            _ => RecordFault::Refused(sent.with_value(result)),
        };
        self.failed(sent.fails(fault))
    }

    /// # Errors
    /// The record's, where it ends the load.
    fn failed(&mut self, error: RecordError) -> anyhow::Result<()> {
        if !self.load.options.continue_on_error {
            return Err(LoadError::Record(error).into());
        }
        self.progress.failed += 1;
        self.observer.record_failed(&error);
        Ok(())
    }

    /// Superiors that never came.
    fn refuse_waiting(&mut self) -> anyhow::Result<()> {
        let mut unwritten: Vec<Sent> = std::mem::take(&mut self.waiting).into_values().flatten().collect();
        unwritten.sort_unstable_by_key(|sent| sent.line);
        unwritten.into_iter().try_for_each(|sent| self.failed(sent.fails(RecordFault::NoSuperior)))
    }

    fn raise(&mut self) -> anyhow::Result<()> {
        if self.csns.is_empty() {
            return Ok(());
        }
        let csns: Vec<String> = self.csns.values().map(Csn::text).collect();
        let result = self.client.raise(&csns)?;
        anyhow::ensure!(
            result.is_success(),
            "the entries are stored, but contextCSN is not written: {result}"
        );
        Ok(())
    }
}

fn parse_csn(value: &[u8]) -> Result<Csn, RecordFault> {
    let text = String::from_utf8_lossy(value);
    text.parse().map_err(|error| {
        let text = format!("contextCSN: {error}");
        RecordFault::Refused(LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text))
    })
}

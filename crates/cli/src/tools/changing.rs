//! Changes of stored databases: carried out by the tool, or by the server that has the databases open.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use larix_configuration::Config;
use larix_engine::Directory;
use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::order::CommitOrder;
use larix_engine::write::{Origin, WriteOperation, WriteOutcome, WriteRequest};
use larix_proto::control::{ControlValue as _, ManageDsaIt, Relax, TreeDelete};
use larix_proto::{ControlBuf, LdapResult, ResultCode};
use larix_schema::{NearestSuffix, NormalDn};
use larix_server::cluster::{ToolStore, ToolWriter};
use larix_server::tool_socket::ToolClient;
use larix_store::lmdb::LmdbStore;
use larix_store::{OpenError, Store};

use super::opening::{self, Access};

/// Who carries out changes.
pub(super) enum Changing {
    /// This process: no server runs.
    Here(Box<Directory<LmdbStore>>),
    /// The same, in an engine that servers share: while it is there, no node writes.
    Shared { directory: Box<Directory<ToolStore>>, _writers: Vec<ToolWriter> },
    /// The server that serves them: a connection for each database, by its suffixes.
    Served(Vec<(Vec<NormalDn>, ToolClient)>),
}

/// How databases are opened for changes.
#[derive(Clone, Copy)]
pub(super) struct Writes {
    /// Whether those that are not there are made.
    pub(super) access: Access,
    /// Whose CSNs the changes get; none: the configuration's.
    pub(super) server_id: Option<u16>,
}

impl Changing {
    /// Opens the databases, or finds who serves them. `verbose`: says when it waits for a server. `name` is the tool's.
    pub(super) fn open(
        name: &str,
        config: &Config,
        databases: &[&larix_configuration::Database],
        writes: Writes,
        verbose: bool,
    ) -> anyhow::Result<Self> {
        if databases.iter().any(|section| section.kind.is_in_shared_engine()) {
            return Self::open_shared(name, config, databases, writes);
        }
        let error = match opening::open_directory(config, databases, writes.access, writes.server_id) {
            Ok(directory) => return Ok(Self::Here(Box::new(directory))),
            Err(error) => error,
        };
        if !is_in_use(&error) {
            return Err(error);
        }
        let mut served = Vec::new();
        for section in databases {
            let Some(client) = server_of(section, verbose)? else { return Err(error) };
            let suffixes = section.suffixes.iter().map(|suffix| suffix.normal.clone()).collect();
            served.push((suffixes, client));
        }
        Ok(Self::Served(served))
    }

    fn open_shared(
        name: &str,
        config: &Config,
        sections: &[&larix_configuration::Database],
        writes: Writes,
    ) -> anyhow::Result<Self> {
        if !sections.iter().all(|section| section.kind.is_in_shared_engine()) {
            bail!(
                "of the databases that are glued, some are in a shared engine and some are not: -g takes the one that is named alone"
            );
        }
        if writes.access == Access::Change {
            for section in sections {
                demand_made(config, section)?;
            }
        }
        let writers = sections.iter().map(|section| ToolWriter::open(config, section, name));
        let writers = writers.collect::<Result<Vec<_>, _>>().map_err(anyhow::Error::msg)?;
        writers.iter().try_for_each(ToolWriter::end_history).map_err(anyhow::Error::msg)?;
        // All nodes of an engine have one server id, each engine another one.
        let order = |section: &larix_configuration::Database| {
            Arc::new(CommitOrder::new(writes.server_id.unwrap_or_else(|| config.server_id_of(section))))
        };
        let opened = writers.iter().zip(sections);
        let opened = opened.map(|(writer, section)| (Arc::clone(writer.database()), order(section)));
        let directory = opening::start_writers(config, opened.collect())?;
        Ok(Self::Shared { directory: Box::new(directory), _writers: writers })
    }

    /// Carries out one change and waits until it is durable.
    ///
    /// # Errors
    /// A server that did not answer.
    pub(super) fn change(
        &mut self,
        config: &Config,
        operation: WriteOperation,
        controls: RequestControls,
    ) -> anyhow::Result<LdapResult> {
        let served = match self {
            Self::Here(directory) => return Ok(change_here(directory, operation, controls)),
            Self::Shared { directory, .. } => return Ok(change_here(directory, operation, controls)),
            Self::Served(served) => served,
        };
        // A name that cannot be read is refused by whichever server.
        let dn = config.schema.parse_dn(operation.target()).unwrap_or_else(|_| NormalDn::root());
        let nearest = NearestSuffix::of(&dn);
        let (_, client) = served
            .iter_mut()
            .max_by_key(|(suffixes, _)| nearest.depth(suffixes))
            .context("no database was chosen")?;
        Ok(client.change(&operation, &wire_controls(&controls))?)
    }
}

/// Who changes what is there makes no database where the engine has none.
fn demand_made(config: &Config, section: &larix_configuration::Database) -> anyhow::Result<()> {
    if ToolWriter::look(config, section).map_err(anyhow::Error::msg)?.is_some() {
        return Ok(());
    }
    let suffix = section.suffixes.first().map(|suffix| suffix.text.as_str()).unwrap_or_default();
    bail!("the engine of {suffix:?} has no entries of it: `slapadd` fills it")
}

/// What a tool asks for beside a change, as it is sent.
fn wire_controls(controls: &RequestControls) -> Vec<ControlBuf> {
    let all = [
        (controls.relax, Relax.to_control(true)),
        (controls.manage_dsa_it, ManageDsaIt.to_control(true)),
        (controls.tree_delete, TreeDelete.to_control(true)),
    ];
    all.into_iter().filter_map(|(wanted, control)| wanted.then_some(control)).collect()
}

/// Whether another process has the database open.
pub(super) fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<OpenError>(), Some(OpenError::InUse { .. }))
}

/// A server that starts opens its databases first and takes work from tools then: it is given three seconds.
const START_LOOKS: u32 = 60;
const START_LOOK: Duration = Duration::from_millis(50);

/// The server that serves a database which is in use; none when the process that has it open takes no work. `verbose`: standard
/// error says when this waits.
///
/// # Errors
/// A server that takes work, but not from this user.
pub(super) fn server_of(
    section: &larix_configuration::Database,
    verbose: bool,
) -> anyhow::Result<Option<ToolClient>> {
    let Some(mdb) = section.kind.mdb() else { return Ok(None) };
    let is_absent = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    };
    let mut connected = ToolClient::connect(&mdb.directory);
    for look in 0..START_LOOKS {
        if !connected.as_ref().is_err_and(is_absent) {
            break;
        }
        if verbose && look == 0 {
            eprintln!("{}: in use; waits for the server that starts", mdb.directory.display());
        }
        thread::park_timeout(START_LOOK);
        connected = ToolClient::connect(&mdb.directory);
    }
    match connected {
        Ok(client) => Ok(Some(client)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).with_context(|| {
            format!(
                "{}: a server has it open, and takes work from its own user and from root",
                mdb.directory.display()
            )
        }),
    }
}

/// Carries out one change as the root of its database and waits until it is durable.
fn change_here<S: Store>(
    directory: &Directory<S>,
    operation: WriteOperation,
    controls: RequestControls,
) -> LdapResult {
    let root = directory
        .schema()
        .parse_dn(operation.target())
        .ok()
        .and_then(|dn| directory.select(&dn).map(|served| served.database().settings()))
        .and_then(|settings| Some((settings.root_dn.clone()?, settings.root_dn_text.clone())));
    let subject = match root {
        Some((dn, text)) => Subject::default().bound_as(dn, &text),
        None => Subject::default(),
    };
    let (send, receive) = mpsc::channel();
    let request = WriteRequest {
        operation,
        subject: Arc::new(subject),
        controls,
        origin: Origin::Client,
        passwords: None,
    };
    directory.submit(
        request,
        Box::new(move |outcome: WriteOutcome| {
            // The receiver waits below: it is gone only with this thread.
            let _ = send.send(outcome.result);
        }),
    );
    receive
        .recv()
        .unwrap_or_else(|_| LdapResult::with(ResultCode::OTHER, "the writer ended without an answer"))
}

//! From one configuration to the next: what that needs is made ready beside what is in force, then published.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use larix_configuration::slapd_d::Keeper;
use larix_configuration::values::AdminAddress;
use larix_configuration::{ChangedConfig, Config, ConfigRefusal, Global, overlay_that_defines};
use larix_engine::ServedDatabase;
use larix_engine::time::Clock as _;
use larix_engine::write::RetiringDefinitions;
use larix_proto::{LdapResult, ResultCode};
use larix_store::lmdb::{LmdbOptions, LmdbStore};

use super::{Endpoints, Maker, failed, not_opened};
use crate::admin::{self, AdminChange, AdminListener};
use crate::balancer::{self, ServerTls};
use crate::databases::{Databases, PreparedDatabases};
use crate::generation::Generation;
use crate::http::{HttpChange, HttpListenError, HttpListener};
use crate::log::LogSettings;
use crate::replication;
use crate::server::Server;
use crate::tls::{Loaded, TlsState};

/// All that the next configuration needs, ready beside what is in force. Dropping it takes back what was made.
pub(super) struct Transition<'s> {
    server: &'s Arc<Server>,
    endpoints: &'s Endpoints,
    earlier: &'s Generation,
    config: Arc<Config>,
    databases: PreparedDatabases,
    tls: Option<Loaded>,
    log: Option<LogSettings>,
    http: Vec<(SocketAddr, HttpListener)>,
    admin: Vec<(AdminAddress, AdminListener)>,
    balancer: balancer::Prepared,
}

impl<'s> Transition<'s> {
    /// # Errors
    /// What cannot be had: a file, an address, a database.
    pub(super) fn prepare(
        (server, endpoints): (&'s Arc<Server>, &'s Endpoints),
        earlier: &'s Generation,
        config: Config,
        out_of_service: &[PathBuf],
    ) -> Result<Self, LdapResult> {
        let config = Arc::new(config);
        let (before, after) = (&earlier.config.global, &config.global);
        let tls = if before.tls == after.tls {
            None
        } else {
            Some(TlsState::load(&after.tls, server.clock.now()).map_err(failed)?)
        };
        let log = match logs_alike(before, after) {
            true => None,
            false => Some(LogSettings::open(&after.log_directives()).map_err(failed)?),
        };
        let not_bound =
            |wanted: SocketAddr| move |error: HttpListenError| not_listening(&error, wanted, [before, after]);
        let new = after.http_listeners.iter().filter(|address| !before.http_listeners.contains(address));
        let http = new
            .map(|address| Ok((*address, HttpListener::bind(*address).map_err(not_bound(*address))?)))
            .collect::<Result<_, LdapResult>>()?;
        let new = after.admin_listeners.iter().filter(|address| !before.admin_listeners.contains(address));
        let admin = new
            .map(|own| Ok((own.clone(), AdminListener::bind(own).map_err(not_bound(own.address))?)))
            .collect::<Result<_, LdapResult>>()?;
        let has_tls = match &tls {
            Some(loaded) => loaded.state.is_some(),
            None => server.tls.is_available(),
        };
        if !has_tls && after.admin_listeners.iter().any(|address| address.tls) {
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, admin::NEEDS_TLS));
        }
        let state = match &tls {
            Some(loaded) => loaded.state.clone(),
            None => server.tls.current(),
        };
        let next_tls = ServerTls { settings: &after.tls, state };
        let is_shared = tls.is_some() && after.balancer.as_ref().is_some_and(|own| own.shares_tls);
        let balancer = if before.balancer == after.balancer && !is_shared {
            balancer::Prepared::default()
        } else {
            let balancers = (before.balancer.as_ref(), after.balancer.as_ref());
            server.balancer.prepare(balancers, next_tls, (&server.log, server.now())).map_err(failed)?
        };
        let databases =
            Databases::prepare(&config, server.services(), Some(&earlier.databases), out_of_service)
                .map_err(not_opened)?;
        Ok(Self { server, endpoints, earlier, config, databases, tls, log, http, admin, balancer })
    }

    /// Answers the sequences of its records for the access log.
    ///
    /// # Errors
    /// What cannot be written, or what entries still use: then nothing has changed.
    pub(super) fn carry_out(
        self,
        changed: &ChangedConfig,
        keeper: &mut Keeper,
        maker: Maker,
    ) -> Result<Range<u64>, LdapResult> {
        self.free_schema()
            .and_then(|()| self.forget_indexes())
            .and_then(|()| self.set_file_modes(&self.config))
            .and_then(|()| self.publish_to_nodes(maker))
            .and_then(|()| changed.commit_by(keeper).map_err(|error| ConfigRefusal::from(error).0))
            .inspect_err(|_| {
                self.keep_schema();
                // As it was: what could be changed can be changed back.
                let _ = self.set_file_modes(&self.earlier.config);
            })?;
        let (server, before, after) =
            (Arc::clone(self.server), Arc::clone(&self.earlier.config), Arc::clone(&self.config));
        // What takes the log away is recorded still, what brings it is not.
        let logged = server.access_logs.configuration_changed(&before, &after);
        self.publish();
        Ok(logged)
    }

    /// Other nodes of databases in shared engines get to know what a client changes before it is so here: what has been published stays, and
    /// this node follows it.
    #[cfg(feature = "kv")]
    fn publish_to_nodes(&self, maker: Maker) -> Result<(), LdapResult> {
        match maker {
            // The nodes that have been until now: a change may make others.
            Maker::Client => {
                let (earlier, next) = (&self.earlier.config, &self.config);
                let mut nodes =
                    earlier.databases.iter().filter_map(|own| self.earlier.databases.node_of(own));
                nodes.try_for_each(|node| node.publish_change(earlier, next))
            }
            Maker::Server => Ok(()),
        }
    }

    #[cfg(not(feature = "kv"))]
    fn publish_to_nodes(&self, _: Maker) -> Result<(), LdapResult> {
        Ok(())
    }

    fn staying_databases(&self) -> impl Iterator<Item = &Arc<ServedDatabase<LmdbStore>>> {
        self.databases.staying().map(|(served, _)| served)
    }

    /// Whether no entry uses what leaves the schema. From here on no change brings it into one.
    fn free_schema(&self) -> Result<(), LdapResult> {
        let (earlier, next) = (&self.earlier.config.schema, &self.config.schema);
        if Arc::ptr_eq(earlier, next) {
            return Ok(());
        }
        let (attributes, classes) = next.broken_since(earlier);
        let options = (next.options() != earlier.options()).then(|| next.options().clone());
        let retiring = RetiringDefinitions { attributes, classes, options };
        if retiring.is_empty() {
            return Ok(());
        }
        for served in self.staying_databases() {
            served.retire_elements(retiring.clone());
            if let Some(found) = served.database().schema_use(&retiring).map_err(failed)? {
                let mut text = format!(
                    "\"{}\" is in use: the entry \"{}\" has it, and would not do without it or with what it becomes",
                    found.element, found.dn
                );
                let is_gone = next.attribute_type_id(&found.element).is_none()
                    && next.object_class_id(&found.element).is_none();
                if let Some(overlay) = overlay_that_defines(&found.element).filter(|_| is_gone) {
                    text += &format!(
                        "; it comes with overlay {overlay}: olcModuleLoad: {overlay} in an entry cn=module,cn=config keeps it"
                    );
                }
                return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
            }
        }
        Ok(())
    }

    /// Gives files of databases that stay open the mode that this one of the two configurations wants, where they differ.
    fn set_file_modes(&self, wanted: &Config) -> Result<(), LdapResult> {
        for served in self.staying_databases() {
            let store = served.database().store();
            let mode = |config: &Config| {
                let mut kinds = config.databases.iter().map(|database| &database.kind);
                kinds.find_map(|kind| {
                    kind.mdb().filter(|mdb| mdb.directory == store.path()).map(|mdb| mdb.mode)
                })
            };
            if mode(&self.earlier.config) != mode(&self.config) {
                let bits = mode(wanted).flatten().unwrap_or_else(|| LmdbOptions::default().file_mode);
                store.set_file_mode(bits).map_err(|error| failed(format_args!("olcDbMode: {error}")))?;
            }
        }
        Ok(())
    }

    fn keep_schema(&self) {
        self.staying_databases().for_each(|served| served.retire_elements(RetiringDefinitions::default()));
    }

    fn forget_indexes(&self) -> Result<(), LdapResult> {
        for (served, next) in self.databases.staying() {
            served.forget_indexes(next.schema.clone(), next.settings.index.clone()).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn publish(self) {
        let Self { server, endpoints, earlier, config, databases, tls, log, http, admin, balancer } = self;
        let (databases, left) = databases.publish();
        let before = &earlier.config.global;
        server.publish(Generation { config: config.clone(), databases });
        if let Err(error) = server.follow_access_logs() {
            server.log.warning(format_args!("access log: no thread to be had, nothing is recorded: {error}"));
        }
        if let Err(error) = server.follow_overlays() {
            server.log.warning(format_args!("overlays: no thread to be had for one of them: {error}"));
        }
        server.traces.follow(config.global.trace_export.as_ref(), &server.log);
        server.admission.set_limits(config.global.client_limits.clone());
        if let Some(Loaded { state, notes }) = tls {
            server.tls.replace(state);
            notes.iter().for_each(|note| server.log.notice(format_args!("TLS: {note}")));
        }
        if let Some(log) = log {
            server.log.publish(log);
        }
        server.balancer.publish(balancer);
        if let Some(changes) = endpoints.listeners.http.get() {
            let gone = before.http_listeners.iter().filter(|a| !config.global.http_listeners.contains(a));
            let opened = http.into_iter().map(|(address, listener)| HttpChange::Open(address, listener));
            for change in opened.chain(gone.map(|address| HttpChange::Close(*address))) {
                // The loop that has them ends with the server.
                let _ = changes.send(change);
            }
        }
        if let Some(changes) = endpoints.listeners.admin.get() {
            let gone = before.admin_listeners.iter().filter(|a| !config.global.admin_listeners.contains(a));
            let opened = admin.into_iter().map(|(address, listener)| AdminChange::Open(address, listener));
            for change in opened.chain(gone.cloned().map(AdminChange::Close)) {
                // The thread that has them ends with the server.
                let _ = changes.send(change);
            }
        }
        for setting in at_next_start(&earlier.config, &config) {
            server.log.notice(format_args!("{setting} was changed: that takes effect at the next start"));
        }
        for note in config.notes.iter().filter(|note| !earlier.config.notes.iter().any(|n| n == *note)) {
            server.log.configuration_note(note);
        }
        replication::follow(server);
        endpoints.tools.follow(server, &server.generation_in_force());
        // Their searches end at the next slice; their changes that wait are carried out.
        left.iter().for_each(|served| served.retire());
    }
}

/// Why an address of these configurations is not to be had. The system does not say who has it: it may be the server itself, which gives
/// up what a change takes away only once the change is made.
fn not_listening(error: &HttpListenError, wanted: SocketAddr, configurations: [&Global; 2]) -> LdapResult {
    let overlaps = |own: &SocketAddr| {
        let is_any = own.ip().is_unspecified() || wanted.ip().is_unspecified();
        own.port() == wanted.port() && *own != wanted && is_any
    };
    let own = |global: &Global| -> Option<SocketAddr> {
        let admin = global.admin_listeners.iter().map(|listener| listener.address);
        global.http_listeners.iter().copied().chain(admin).find(overlaps)
    };
    match configurations.into_iter().find_map(own) {
        Some(own) if error.source.kind() == io::ErrorKind::AddrInUse => failed(format_args!(
            "{}: this server has the port itself, at {own}: delete that listener in a change of its own, \
             then add this one",
            error.directive
        )),
        _ => failed(error),
    }
}

/// Settings that differ and are looked at only when the server starts.
fn at_next_start(before: &Config, after: &Config) -> Vec<String> {
    let (old, new) = (&before.global, &after.global);
    let global = [
        ("olcPidFile", old.pid_file != new.pid_file),
        ("olcArgsFile", old.args_file != new.args_file),
        ("olcLarixCoreDumps", old.core_dumps != new.core_dumps),
        ("olcTCPBuffer", old.tcp_buffers != new.tcp_buffers),
    ];
    let mut settings: Vec<String> =
        global.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned()).collect();
    for database in &after.databases {
        let Some(new) = database.kind.mdb() else { continue };
        let mut earlier = before.databases.iter().filter_map(|other| other.kind.mdb());
        let same = earlier.find(|old| old.directory == new.directory);
        if same.is_some_and(|old| old.env_flags != new.env_flags) {
            settings.push(format!("olcDbEnvFlags of {}", new.directory.display()));
        }
    }
    settings
}

/// Whether two configurations say the same of the log.
fn logs_alike(a: &Global, b: &Global) -> bool {
    a.log_level.0 == b.log_level.0
        && (a.log_rotation, a.log_format, a.log_prefix) == (b.log_rotation, b.log_format, b.log_prefix)
        && (&a.log_file, a.log_file_only) == (&b.log_file, b.log_file_only)
        && (a.log_journal, a.slow_operation) == (b.log_journal, b.slow_operation)
}

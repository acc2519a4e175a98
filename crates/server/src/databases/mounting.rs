//! From open databases to backends under their suffixes.

use std::sync::Arc;

use larix_configuration::{
    ChangelogSettings, Config, ConfigError, Database, DnssrvSettings, MetaSettings, NullSettings, Overlay,
    PasswdSettings, RelaySettings, SockSettings,
};
use larix_engine::access::AccessPolicy;
use larix_engine::{Frontend, ServedDatabase};
use larix_proto::ldif::{self, Body};
use larix_schema::NormalDn;
use larix_store::lmdb::LmdbStore;
use zeroize::Zeroizing;

use super::OpenError;
use crate::backends::{
    Changelog, Common, Configuration, Content, DnsReferrals, MonitorTree, Nowhere, Null, OutOfService,
    Passwd, ProxiedBackend, RootDseTree, Shadow, StoredBackend, SubschemaTree, Tree, caching, chained,
    chasing, connections, connections_of_targets, pbind, remote_auth, translucent,
};
use crate::log::printable;
use larix_backend::meta::{KnownNames, Target};
use larix_backend::{
    Backend, InterceptedBackend, Interceptor, Meta, Mount, OverGlue, Relay, RenamesWithin, Router,
    RulesInFront, Special, Stack, TellsChanges,
};
use larix_proxy::ProxyBackend;
use larix_proxy::sock::{ProgramContext, ProgramInFront, SocketBackend};
use larix_rewrite::NamesInFront;

/// A database, opened if it stores anything, and who may do what to it.
pub(super) type OpenedDatabase<'c> =
    (&'c Database, Option<Arc<ServedDatabase<LmdbStore>>>, Arc<AccessPolicy>);

/// Makes the backend of one kind of database; it may put something in front of its overlays.
type Make = fn(&Arc<Common>, OpenedDatabase<'_>, &mut Stack) -> Result<Option<Arc<dyn Backend>>, OpenError>;

/// The backend of each kind of database that is served.
const BACKENDS: &[(&str, Make)] = &[
    ("mdb", stored),
    ("ldif", stored),
    #[cfg(feature = "kv")]
    ("kv", |common, opened, _| Ok(crate::backends::clustered(common, opened.0))),
    ("ldap", proxied),
    ("meta", of_targets),
    ("asyncmeta", of_targets),
    ("relay", relayed),
    ("changelog", changelog),
    ("passwd", passwd),
    ("sock", sock),
    ("dnssrv", dnssrv),
    ("config", |common, opened, _| Ok(Some(tree(common, opened, Configuration)))),
    ("monitor", |common, opened, _| {
        let owner = opened.0.root_dn.as_ref().map(ToString::to_string).unwrap_or_default();
        Ok(Some(tree(common, opened, MonitorTree { owner })))
    }),
    ("null", null),
];

/// What the server puts in front of a database or, without one, of all; none: the overlay has nothing to do there.
type MakeInFront = fn(
    &Arc<Common>,
    Option<&OpenedDatabase<'_>>,
    &Overlay,
) -> Result<Option<Arc<dyn Interceptor>>, ConfigError>;

/// The overlays that need the server's connections or its stored entries. All others are in `larix_overlays::INTERCEPTORS`.
const INTERCEPTORS: &[(&str, MakeInFront)] = &[
    ("chain", |common, opened, overlay| chained(common, opened.map(|opened| opened.0), overlay)),
    ("pbind", |common, opened, overlay| {
        let Some((database, served, _)) = opened else { return Ok(None) };
        pbind(common, (database, served.as_ref()), overlay)
    }),
    ("remoteauth", |common, opened, overlay| {
        let Some((database, served, _)) = opened else { return Ok(None) };
        remote_auth(common, (database, served.as_ref()), overlay)
    }),
    ("sock", |common, opened, overlay| {
        let Some((database, _, policy)) = opened else { return Ok(None) };
        let Some(settings) = overlay.program()? else { return Ok(None) };
        let context = program_context(common, (database, policy), "overlay sock");
        Ok(Some(Arc::new(ProgramInFront::new(settings, context))))
    }),
    ("translucent", |common, opened, overlay| {
        let Some((database, served, policy)) = opened else { return Ok(None) };
        translucent(common, (database, served.as_ref(), policy), overlay)
    }),
];

/// Mounts a database under its suffixes; with it what it has in front of those glued below.
///
/// # Errors
/// A kind of database that is not served; a setting of an overlay in front of it that cannot be understood.
fn mount(common: &Arc<Common>, opened: OpenedDatabase<'_>) -> Result<(Mount, Option<OverGlue>), OpenError> {
    let database = opened.0;
    let name = database.kind.name();
    let make = BACKENDS.iter().find(|(kind, _)| *kind == name);
    let overlays = common
        .config
        .interceptors(Some(database), &mut |overlay| in_front_of(common, Some(&opened), overlay))?;
    let mut in_front = overlays.stack();
    let backend = make
        .map(|(_, make)| make(common, opened, &mut in_front))
        .transpose()?
        .flatten()
        .ok_or_else(|| OpenError::Kind { origin: database.origin.clone(), kind: name.to_owned() })?;
    if database.kind.is_kept_elsewhere() {
        in_front = in_front.behind(Arc::new(RenamesWithin::new(Arc::clone(&common.config.schema))));
    }
    if common.config.is_provided_above(database) {
        let teller = common.services.change_tellers.of(place(database));
        in_front = in_front.behind(Arc::new(TellsChanges::new(Arc::clone(&common.config.schema), teller)));
    }
    let is_over_glue = !overlays.over_glue.is_empty() && database.may_have_overlays_over_glue();
    let over_glue = is_over_glue.then(|| OverGlue {
        stack: Stack::new(overlays.over_glue.clone()),
        inner: InterceptedBackend::with(Stack::new(overlays.own.clone()), Arc::clone(&backend)),
    });
    let backend = InterceptedBackend::with(in_front, backend);
    let suffixes = match database.kind.own_suffix() {
        Some(dn) => common.config.schema.parse_dn(dn).into_iter().collect(),
        None => database.suffixes.iter().map(|dn| dn.normal.clone()).collect::<Vec<NormalDn>>(),
    };
    let mount =
        Mount { suffixes, subordinate: database.subordinate.is_some(), hidden: database.hidden, backend };
    Ok((mount, over_glue))
}

/// Mounts databases behind the overlays that are in front of all.
///
/// # Errors
/// As [`mount`].
pub(super) fn router(
    common: &Arc<Common>,
    opened: Vec<OpenedDatabase<'_>>,
    (frontend, special): (Frontend, Special),
) -> Result<Router, OpenError> {
    let mounted = opened.into_iter().map(|opened| mount(common, opened));
    let (mounts, over_glue): (Vec<_>, Vec<_>) = mounted.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let overlays = common.config.interceptors(None, &mut |overlay| in_front_of(common, None, overlay))?;
    let mut router = Router::new(frontend, mounts, special, overlays.stack());
    let over_glue = over_glue.into_iter().enumerate();
    router.put_over_glue(over_glue.filter_map(|(number, over)| Some((number, over?))).collect());
    Ok(router)
}

/// The backends of names that no database holds; `policy` is the frontend's.
///
/// # Errors
/// A `rootDSE` file that cannot be read.
pub(super) fn special(common: &Arc<Common>, policy: &Arc<AccessPolicy>) -> Result<Special, OpenError> {
    let extra = root_dse_files(&common.config)?;
    Ok(Special {
        root_dse: alone(common, policy, RootDseTree { extra }),
        subschema: alone(common, policy, SubschemaTree),
        nowhere: Arc::new(Nowhere { common: Arc::clone(common) }),
    })
}

/// What an overlay of [`INTERCEPTORS`] has in front of a database or, without one, of all.
fn in_front_of(
    common: &Arc<Common>,
    opened: Option<&OpenedDatabase<'_>>,
    overlay: &Overlay,
) -> Result<Option<Arc<dyn Interceptor>>, ConfigError> {
    let known = INTERCEPTORS.iter().find(|(name, _)| *name == overlay.name);
    known.map_or(Ok(None), |(_, make)| make(common, opened, overlay))
}

fn stored(
    common: &Arc<Common>,
    (database, served, policy): OpenedDatabase<'_>,
    in_front: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    // Entries are whole in front of the overlay alone.
    if database.is_translucent() {
        judge_in_front(common, &policy, in_front);
    }
    let (common, limits) = (Arc::clone(common), database.shared.limits.clone());
    Ok(Some(match served {
        Some(served) => Arc::new(StoredBackend { served, common, limits }),
        None => Arc::new(OutOfService { naming_contexts: naming_contexts(database) }),
    }))
}

/// Its first suffix: part of the names of its connections.
fn place(database: &Database) -> &str {
    database.suffixes.first().map(|suffix| suffix.normal.as_str()).unwrap_or_default()
}

/// What the root DSE lists of a database.
fn naming_contexts(database: &Database) -> Vec<String> {
    let is_listed = !database.hidden && database.subordinate.is_none();
    database.suffixes.iter().filter(|_| is_listed).map(ToString::to_string).collect()
}

fn proxied(
    common: &Arc<Common>,
    (database, _, policy): OpenedDatabase<'_>,
    in_front: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    let fault = |why: String| OpenError::Config(ConfigError::new(database.origin.clone(), why));
    let Some(proxy) = connections(&common.services, database).map_err(fault)? else { return Ok(None) };
    let schema = Arc::clone(&common.config.schema);
    // Where an overlay gives entries other names, the rules are about these.
    let open_policy = || Arc::new(AccessPolicy::open(Arc::clone(&schema), None));
    let entry_policy = if in_front.maps_names() || database.caching_overlay().is_some() {
        judge_in_front(common, &policy, in_front);
        open_policy()
    } else {
        Arc::clone(&policy)
    };
    let suffixes = database.suffixes.iter().map(ToString::to_string).collect();
    let open = open_policy();
    let chasing = chasing(common, &proxy, place(database), &entry_policy);
    let proxy = ProxyBackend { proxy, schema, policy: Arc::clone(&policy), entry_policy, suffixes };
    let backend: Arc<dyn Backend> = match caching(common, database, &proxy, &open)? {
        Some(caching) => Arc::new(caching),
        None => InterceptedBackend::with(Stack::new(chasing.into_iter().collect()), Arc::new(proxy)),
    };
    Ok(Some(with_root_and_limits(common, (database, policy), backend)))
}

fn relayed(
    common: &Arc<Common>,
    (database, _, policy): OpenedDatabase<'_>,
    in_front: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    let Some(settings) = database.kind.settings::<RelaySettings>() else { return Ok(None) };
    judge_in_front(common, &policy, in_front);
    let real = settings.real.as_ref().map(|dn| dn.normal.clone());
    let suffixes = database.suffixes.iter().map(ToString::to_string).collect();
    let relay = Relay { real, policy: Arc::clone(&policy), suffixes };
    Ok(Some(with_root_and_limits(common, (database, policy), Arc::new(relay))))
}

/// The backend of a database of several targets: each is a proxy, behind the mapping of its names.
fn of_targets(
    common: &Arc<Common>,
    (database, _, policy): OpenedDatabase<'_>,
    in_front: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    let Some(settings) = database.kind.settings::<MetaSettings>() else { return Ok(None) };
    let fault = |why: String| OpenError::Config(ConfigError::new(database.origin.clone(), why));
    let connections = connections_of_targets(&common.services, database, &settings.targets).map_err(fault)?;
    let schema = &common.config.schema;
    // The rules are about entries as they are seen here.
    judge_in_front(common, &policy, in_front);
    let open_policy = Arc::new(AccessPolicy::open(Arc::clone(schema), None));
    let mut targets = Vec::with_capacity(settings.targets.len());
    for (target, proxy) in settings.targets.iter().zip(connections) {
        let suffix = target.suffix.normal.clone();
        let chasing = chasing(common, &proxy, suffix.as_str(), &open_policy);
        let backend = Arc::new(ProxyBackend {
            proxy,
            schema: Arc::clone(schema),
            policy: Arc::clone(&policy),
            entry_policy: Arc::clone(&open_policy),
            suffixes: vec![target.suffix.to_string()],
        });
        let mapping = target.mapping(schema).map_err(|why| fault(why.to_string()))?;
        let names = mapping.map(|mapping| {
            Arc::new(
                NamesInFront::new(mapping, Arc::clone(schema), vec![suffix.clone()]).showing_outer_names(),
            ) as _
        });
        let backend =
            InterceptedBackend::with(Stack::new(names.into_iter().chain(chasing).collect()), backend);
        let (subtrees, filters) = (target.subtrees.clone(), target.filters.clone());
        targets.push(Target { backend, suffix, subtrees, filters });
    }
    let meta = Meta {
        targets,
        on_error: settings.on_error,
        default_target: settings.default_target,
        known: settings
            .known_names
            .map(|lifetime| Arc::new(KnownNames::new(lifetime, Arc::clone(&common.services.clock) as _))),
        schema: Arc::clone(schema),
        policy: Arc::clone(&policy),
        suffixes: database.suffixes.iter().map(ToString::to_string).collect(),
    };
    Ok(Some(with_root_and_limits(common, (database, policy), Arc::new(meta))))
}

fn changelog(
    common: &Arc<Common>,
    opened: OpenedDatabase<'_>,
    _: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    let database = opened.0;
    let Some(settings) = database.kind.settings::<ChangelogSettings>() else { return Ok(None) };
    let shown = settings.shown(&common.config, database)?;
    let has = |served: &&Arc<ServedDatabase<LmdbStore>>| {
        let own = &served.database().settings().suffixes;
        shown.suffixes.first().is_some_and(|suffix| own.iter().any(|own| own.normal == suffix.normal))
    };
    let Some(served) = common.directory.databases().iter().find(has) else { return Ok(None) };
    // Its rules may ask for groups and sets among stored entries.
    common.directory.let_see(&opened.2);
    let rules = database.shared.limits.clone();
    let limits = database.shared.search_limits.into();
    let content = Changelog { served: Arc::clone(served), rules, limits };
    Ok(Some(tree(common, opened, content)))
}

fn passwd(
    common: &Arc<Common>,
    opened: OpenedDatabase<'_>,
    _: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    let database = opened.0;
    let Some(settings) = database.kind.settings::<PasswdSettings>() else { return Ok(None) };
    // Without a suffix nothing reaches it, as a note says.
    let suffix = database.suffixes.first();
    let normal = suffix.map_or_else(NormalDn::root, |suffix| suffix.normal.clone());
    let shown = suffix.map(ToString::to_string).unwrap_or_default();
    // Its rules may ask for groups and sets among stored entries.
    common.directory.let_see(&opened.2);
    let limits = (database.shared.limits.clone(), database.shared.search_limits.into());
    let suffix = (normal, shown, naming_contexts(database));
    Ok(Some(tree(common, opened, Passwd::new(settings.file(), suffix, limits))))
}

fn sock(
    common: &Arc<Common>,
    (database, _, policy): OpenedDatabase<'_>,
    _: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    let Some(SockSettings { socket }) = database.kind.settings() else { return Ok(None) };
    let context = program_context(common, (database, &policy), "database sock");
    let backend = SocketBackend::new(socket, context, naming_contexts(database));
    Ok(Some(with_root_and_limits(common, (database, policy), Arc::new(backend))))
}

fn dnssrv(
    common: &Arc<Common>,
    (database, _, policy): OpenedDatabase<'_>,
    _: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    let Some(DnssrvSettings { servers }) = database.kind.settings() else { return Ok(None) };
    // Its rules may ask for groups and sets among stored entries.
    common.directory.let_see(&policy);
    let backend = DnsReferrals {
        common: Arc::clone(common),
        policy: Arc::clone(&policy),
        servers: servers.clone().into(),
        naming_contexts: naming_contexts(database),
    };
    Ok(Some(with_root_and_limits(common, (database, policy), Arc::new(backend))))
}

/// What requests of a database to a program are made with.
fn program_context(
    common: &Arc<Common>,
    (database, policy): (&Database, &Arc<AccessPolicy>),
    name: &'static str,
) -> ProgramContext {
    // Its rules may ask for groups and sets among stored entries.
    common.directory.let_see(policy);
    let services = &common.services;
    let teller = Arc::downgrade(services);
    ProgramContext {
        schema: Arc::clone(&common.config.schema),
        policy: Arc::clone(policy),
        limits: common.config.global.request_limits,
        suffixes: database.suffixes.iter().map(ToString::to_string).collect(),
        clock: Arc::clone(&services.clock) as _,
        tell: Arc::new(move |text| {
            if let Some(services) = teller.upgrade() {
                // Words of the program stand in it.
                services.log.notice(format_args!("{name}: {}", printable(text)));
            }
        }),
    }
}

fn judge_in_front(common: &Arc<Common>, policy: &Arc<AccessPolicy>, in_front: &mut Stack) {
    let (schema, policy) = (Arc::clone(&common.config.schema), Arc::clone(policy));
    *in_front = in_front.behind_rules(Arc::new(RulesInFront { schema, policy }));
}

fn with_root_and_limits(
    common: &Arc<Common>,
    (database, policy): (&Database, Arc<AccessPolicy>),
    backend: Arc<dyn Backend>,
) -> Arc<dyn Backend> {
    let follows = !database.sync_replication.is_empty() && !database.multi_provider;
    let update_dn = database.update_dn.as_ref().map(|dn| dn.normal.clone());
    let referrals = match database.update_refs.is_empty() {
        true => common.config.global.referrals.clone(),
        false => database.update_refs.clone(),
    };
    Arc::new(ProxiedBackend {
        backend,
        policy,
        common: Arc::clone(common),
        root_dn: database.effective_root(),
        root_password: database.root_password.clone().map(Zeroizing::new),
        rules: database.shared.limits.clone(),
        limits: database.shared.search_limits.into(),
        shadow: follows.then(|| Shadow { update_dn, referrals }),
    })
}

fn tree<C: Content>(common: &Arc<Common>, opened: OpenedDatabase<'_>, content: C) -> Arc<dyn Backend> {
    let (database, _, policy) = opened;
    Arc::new(Tree {
        content,
        common: Arc::clone(common),
        policy,
        root_dn: database.effective_root(),
        root_password: database.root_password.clone().map(Zeroizing::new),
    })
}

fn null(
    common: &Arc<Common>,
    opened: OpenedDatabase<'_>,
    _: &mut Stack,
) -> Result<Option<Arc<dyn Backend>>, OpenError> {
    let database = opened.0;
    let Some(settings) = database.kind.settings::<NullSettings>() else { return Ok(None) };
    let suffix = database.suffixes.first().filter(|_| settings.search_answers);
    let content = Null {
        bind_allowed: settings.bind_allowed,
        answer: suffix.map(|suffix| (suffix.normal.clone(), suffix.to_string())),
        naming_contexts: naming_contexts(database),
    };
    Ok(Some(tree(common, opened, content)))
}

/// An entry that is part of no database.
fn alone<C: Content>(common: &Arc<Common>, policy: &Arc<AccessPolicy>, content: C) -> Arc<dyn Backend> {
    let (common, policy) = (Arc::clone(common), Arc::clone(policy));
    Arc::new(Tree { content, common, policy, root_dn: None, root_password: None })
}

/// Attributes by name.
type NamedValues = Vec<(String, Vec<Vec<u8>>)>;

/// The attributes of the `rootDSE` files.
fn root_dse_files(config: &Config) -> Result<NamedValues, OpenError> {
    let mut extra = Vec::new();
    for path in &config.global.root_dse_files {
        let fail = |message: String| OpenError::RootDse { path: path.clone(), message };
        let file = larix_files::open(path).map_err(|error| fail(error.to_string()))?;
        for record in ldif::Reader::new(std::io::BufReader::new(file)) {
            let record = record.map_err(|error| fail(error.to_string()))?;
            if !record.dn.is_empty() {
                return Err(fail(format!(
                    "line {}: the root DSE's DN is empty, not \"{}\"",
                    record.line, record.dn
                )));
            }
            if let Body::Content(attributes) = record.body {
                extra.extend(attributes.into_iter().map(|a| (a.description, a.values)));
            }
        }
    }
    Ok(extra)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BACKENDS, INTERCEPTORS};

    #[test]
    fn every_kind_has_one_backend() {
        let kinds: BTreeSet<&str> = larix_configuration::served_kinds().into_iter().collect();
        let backends: BTreeSet<&str> = BACKENDS.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(backends, kinds);
        assert_eq!(backends.len(), BACKENDS.len(), "a kind has two");
    }

    #[test]
    fn every_overlay_without_a_descriptor_is_built_in_one_place() {
        // These two are part of mounting itself.
        let elsewhere = ["glue", "pcache"];
        let overlays: BTreeSet<&str> = larix_configuration::overlays_without_descriptors().collect();
        let built = INTERCEPTORS.iter().map(|(name, _)| *name).chain(elsewhere);
        assert_eq!(built.clone().collect::<BTreeSet<&str>>(), overlays);
        assert_eq!(built.count(), overlays.len(), "an overlay is built in two places");
    }
}

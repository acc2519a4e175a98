//! The configuration as a whole: what no single directive can see.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larix_engine::access::{
    AccessPolicy, AccessPolicyFault, AccessRule, Because, ItemKind, Privilege, Subject, Verdict, Who,
};
use larix_proxy::ProxySettings;
use larix_schema::{AttributeDescription, DescriptionError, NormalDn, SECRET_ATTRIBUTES};

use super::diagnostic::{ConfigError, Origin};
use super::directives::overlay_that_defines;
use super::kinds::{LdapSettings, MetaSettings, relay};
use super::model::{AccessLine, Config, Database, Earlier, Overlay};
use super::remote_auth::Realm;
use super::undefined::{dn_remedy, remedy};
use super::values::{ChangeLog, ConfigDn};
use super::{balancer, overlays, pbind, pcache, remote_auth, sock, translucent};

/// Checks a configuration before anyone sees it.
///
/// # Errors
/// All faults of databases, or else all of overlays, or else the first one of the rest.
pub(super) fn complete(config: Config) -> Result<Config, ConfigError> {
    complete_after(config, Earlier::Nothing)
}

/// The same of one that follows another, or stands already.
///
/// # Errors
/// As [`complete`].
pub(super) fn complete_after(mut config: Config, earlier: Earlier<'_>) -> Result<Config, ConfigError> {
    let mut served: Vec<(NormalDn, usize)> = Vec::new();
    let mut useless: Vec<(Origin, String)> = Vec::new();
    let mut directories: Vec<(PathBuf, Origin)> = Vec::new();
    let mut found = Vec::new();
    for (number, database) in config.databases.iter().enumerate() {
        match suffixes(database, number, &config, earlier, &mut served) {
            Ok(texts) => useless.extend(texts.into_iter().map(|text| (database.origin.clone(), text))),
            Err(fault) => found.push(fault),
        }
        match root(database, earlier) {
            Ok(text) => useless.extend(text.map(|text| (database.origin.clone(), text))),
            Err(fault) => found.push(fault),
        }
        if let Some(path) = database.kind.directory() {
            found.extend(directory(database, path, &mut directories).err());
        }
        found.extend(database.kind.check(database).err());
    }
    found.extend(config.databases.iter().filter_map(|database| superior(database, &config).err()));
    ConfigError::together(found)?;
    relay::check(&config)?;
    ConfigError::together(
        config.databases.iter().filter_map(|database| overlays_of(&config, database).err()),
    )?;
    config.interceptors(None, &mut |_| Ok(None))?;
    config.frontend.overlays.iter().try_for_each(Overlay::check_below)?;
    judged_elsewhere(&config)?;
    translucent::complete(&mut config)?;
    pcache::complete(&mut config)?;
    sock::complete(&mut config)?;
    balance(&mut config)?;
    access(&config)?;
    access_notes(&mut config);
    overruled_limits(&mut config);
    useless.into_iter().for_each(|(origin, text)| config.notes.warn(origin, &text));
    for database in &config.databases {
        if database.kind.is_stored() && database.suffixes.is_empty() {
            config.notes.push(database.origin.clone(), "this database has no suffix, so nothing reaches it");
        }
        if database.multi_provider && database.sync_replication.is_empty() {
            let text =
                "`multiprovider` is on without a `syncrepl` line: this server takes no changes from others";
            config.notes.push(database.origin.clone(), text);
        }
    }
    Ok(config)
}

/// A limit of cn=config itself has no effect where the frontend sets it, too. In a slapd the one that was set last counts, until its next start.
fn overruled_limits(config: &mut Config) {
    for attribute in ["olcSizeLimit", "olcTimeLimit"] {
        let (own, common) = (config.global.settings.get(attribute), config.frontend.settings.get(attribute));
        if !own.is_empty() && !common.is_empty() && own != common {
            let origin = Origin::Value { dn: Arc::from("cn=config"), attribute: attribute.to_owned() };
            let text = "olcDatabase={-1}frontend,cn=config sets it, too, and that counts: change it there";
            config.notes.warn(origin, text);
        }
    }
}

/// The overlays of a database can be built.
fn overlays_of(config: &Config, database: &Database) -> Result<(), ConfigError> {
    config.access_log(database)?;
    config.build_overlays(database)?;
    config.interceptors(Some(database), &mut |_| Ok(None))?;
    database.overlays.iter().try_for_each(Overlay::check_below)?;
    database.overlays.iter().try_for_each(|overlay| overlay.remote_auth(&config.schema).map(|_| ()))?;
    database.overlays.iter().try_for_each(|overlay| overlay.bind_server().map(|_| ()))
}

/// Overlays that let another server judge binds stand on databases with entries of their own, not in front of all databases.
fn judged_elsewhere(config: &Config) -> Result<(), ConfigError> {
    let strange = config.databases.iter().filter(|database| !database.kind.is_in_lmdb());
    let overlays = strange.flat_map(|database| &database.overlays).chain(&config.frontend.overlays);
    let judging = |overlay: &&Overlay| [remote_auth::NAME, pbind::NAME].contains(&overlay.name.as_str());
    match overlays.into_iter().filter(judging).find(|overlay| !overlay.disabled) {
        None => Ok(()),
        Some(overlay) => {
            let text = format!(
                "overlay {} is for entries that are stored here: put it behind a `database mdb` line",
                overlay.name
            );
            Err(ConfigError::new(overlay.origin.clone(), text))
        }
    }
}

/// The settings of the balancer go together.
fn balance(config: &mut Config) -> Result<(), ConfigError> {
    let Some(settings) = &config.global.balancer else { return Ok(()) };
    let notes = balancer::check(settings).map_err(|wrong| {
        let message = format!("`backend {}` {}", balancer::MODULE, wrong.message);
        ConfigError::new(Origin::BuiltIn, message).with_help(wrong.help)
    })?;
    let own_notes = settings.notes.clone();
    for note in own_notes.into_iter().chain(notes) {
        config.notes.push(Origin::BuiltIn, format!("`backend {}`: {note}", balancer::MODULE));
    }
    Ok(())
}

/// Names in access rules are defined.
fn access(config: &Config) -> Result<(), ConfigError> {
    let check = |lines: &[AccessLine]| -> Vec<ConfigError> {
        let checked = lines.iter().map(|line| {
            AccessPolicy::new(Arc::clone(&config.schema), None, std::slice::from_ref(&line.rule), &[])
                .map(|_| ())
                .map_err(|error| {
                    let refused =
                        ConfigError::new(line.origin.clone(), format!("access rule: {}", error.fault));
                    match access_remedy(config, &error.fault) {
                        Some(remedy) => refused.with_help(remedy),
                        None => refused,
                    }
                })
        });
        checked.filter_map(Result::err).collect()
    };
    if config.read_entries.is_some() && config.schema_sections.is_empty() {
        // The schema comes later; rules are checked then.
        return Ok(());
    }
    let mut found = check(&config.frontend.access);
    found.extend(config.databases.iter().flat_map(|database| check(&database.access)));
    ConfigError::together(found)
}

/// What to do about the names in an access rule that are wrong.
fn access_remedy(config: &Config, fault: &AccessPolicyFault) -> Option<String> {
    match fault {
        AccessPolicyFault::UnknownAttribute { name, .. } => {
            let described = config.schema.describe(name);
            (described == Err(DescriptionError::UnknownType)).then(|| remedy_of(config, name))
        }
        AccessPolicyFault::UnknownClass(name) => Some(remedy_of(config, name)),
        AccessPolicyFault::BadDn { dn, .. } => {
            config.schema.parse_dn(dn).err().and_then(|why| dn_remedy(dn, &why))
        }
        _ => None,
    }
}

/// What to do about a name in an access rule that is not defined.
fn remedy_of(config: &Config, name: &str) -> String {
    match overlay_that_defines(name) {
        Some(overlay) => format!("`overlay {overlay}` brings it"),
        None => remedy(&config.schema, name),
    }
}

/// What the access rules say without effect, and passwords that they leave open.
fn access_notes(config: &mut Config) {
    if config.read_entries.is_some() && config.schema_sections.is_empty() {
        return;
    }
    let mut notes = Vec::new();
    never_matching(config, &config.frontend.access, &[], &mut notes);
    for database in config.databases.iter().filter(|database| !database.disabled) {
        let keeps_entries = database.kind.keeps_entries();
        let own = database.suffixes.iter().filter(|_| keeps_entries).map(|suffix| suffix.normal.clone());
        let suffixes: Vec<NormalDn> = own.collect();
        never_matching(config, &database.access, &suffixes, &mut notes);
        if keeps_entries {
            open_passwords(config, database, &suffixes, &mut notes);
        }
        overlays::notes(config, database, &mut notes);
        notes.extend(database.kind.note().map(|text| (database.origin.clone(), text.to_owned())));
    }
    notes.into_iter().for_each(|(origin, text)| config.notes.push(origin, text));
}

fn never_matching(
    config: &Config,
    lines: &[AccessLine],
    suffixes: &[NormalDn],
    notes: &mut Vec<(Origin, String)>,
) {
    let rules: Vec<AccessRule> = lines.iter().map(|line| line.rule.clone()).collect();
    let Ok(policy) = AccessPolicy::new(Arc::clone(&config.schema), None, &rules, &[]) else { return };
    if policy.asks_about_domain()
        && !config.global.reverse_lookup
        && let Some(line) = lines.iter().find(|line| asks_about_domain(&line.rule))
    {
        let text = "this access rule asks for host names, which are not looked up: every client is `unknown`; \
                    add `reverse-lookup on`";
        notes.push((line.origin.clone(), text.to_owned()));
    }
    for never in policy.never_matching(suffixes) {
        let Some(line) = lines.get(never.rule) else { continue };
        let clause = never.clause.and_then(|clause| line.rule.by.get(clause));
        let what = match clause {
            Some(clause) => format!("`{clause}` of this access rule never applies"),
            None => "this access rule never applies".to_owned(),
        };
        let why = match never.because {
            Because::CoveredByRule(by) => match lines.get(by) {
                Some(by) => format!("the one at {} speaks about all of it and comes first", by.origin),
                None => continue,
            },
            Because::CoveredByClause(_, by) => format!("`{by}` is for the same requesters and comes first"),
            Because::NoAttributes => "its list selects no attribute".to_owned(),
            Because::OutsideOfDatabase => "no entry of this database is there".to_owned(),
            Because::NoNormalForm => {
                "its pattern has spaces or hyphens that no normal form of a value has: leave them out"
                    .to_owned()
            }
            Because::BadSet(why) => format!("its set is not understood, {why}"),
        };
        notes.push((line.origin.clone(), format!("{what}: {why}")));
    }
}

fn asks_about_domain(rule: &AccessRule) -> bool {
    rule.by.iter().flat_map(|clause| &clause.who).any(|who| matches!(who, Who::Domain(_)))
}

fn open_passwords(
    config: &Config,
    database: &Database,
    suffixes: &[NormalDn],
    notes: &mut Vec<(Origin, String)>,
) {
    let Ok(policy) = config.access_policy(Some(database)) else { return };
    let nobody = Subject::default();
    let user = nobody.bound_as(NormalDn::from_normal("cn=some other user"), "cn=some other user");
    let readers = [("everybody, also without a bind,", &nobody), ("every user", &user)];
    for (reader, subject) in readers {
        let readable = |description: &AttributeDescription| {
            suffixes.iter().any(|suffix| {
                let item = ItemKind::Attribute(description);
                policy.verdict(subject, Some(suffix), item, Privilege::Read) == Verdict::Granted
            })
        };
        let overlays = config.overlays_of(database).filter_map(Overlay::descriptor);
        let of_overlays: Vec<&str> = overlays.flat_map(|descriptor| descriptor.secrets).copied().collect();
        let known = SECRET_ATTRIBUTES.iter().filter_map(|name| {
            let description = config.schema.describe(name).ok()?;
            // An operational attribute is only there with its overlay.
            let is_there = !config.schema.attribute(description.attribute).is_operational();
            let is_there = is_there || of_overlays.contains(name);
            is_there.then_some((*name, description))
        });
        let open: Vec<&str> =
            known.filter(|(_, description)| readable(description)).map(|(name, _)| name).collect();
        if !open.is_empty() {
            let text = format!(
                "warning: {reader} may read {}; put a rule first: \
                 access to attrs={} by self =xw by anonymous auth by * none",
                open.join(", "),
                open.join(",")
            );
            return notes.push((database.origin.clone(), text));
        }
    }
}

impl Earlier<'_> {
    /// Whether a database has this suffix, which lies within that of another kind.
    fn has_unreached(self, suffix: &NormalDn) -> bool {
        let config = match self {
            Self::Nothing => return false,
            Self::Kept => return true,
            Self::Before(config) => config,
        };
        let databases = config.databases.iter().filter(|database| !database.hidden);
        databases.flat_map(|database| &database.suffixes).any(|own| own.normal == *suffix)
            && kind_above(suffix, config).is_some()
    }

    /// Whether a database has this rootpw.
    fn has_root_password(self, password: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Kept => true,
            Self::Before(config) => {
                config.databases.iter().any(|database| database.root_password.as_deref() == Some(password))
            }
        }
    }
}

/// Whether requests reach the database by its suffixes. Answers what is to be said of those that stand already, and that none does.
fn suffixes(
    database: &Database,
    number: usize,
    config: &Config,
    earlier: Earlier<'_>,
    served: &mut Vec<(NormalDn, usize)>,
) -> Result<Vec<String>, ConfigError> {
    let mut unreached = Vec::new();
    if database.hidden {
        return Ok(unreached);
    }
    for suffix in &database.suffixes {
        let own = suffix.normal.clone();
        if let Some((kind, above)) = kind_above(&own, config) {
            let message =
                format!("suffix \"{suffix}\" lies within \"{above}\", which the {kind} database serves");
            if !earlier.has_unreached(&own) {
                let refused = ConfigError::new(database.origin.clone(), message);
                return Err(refused.with_help("choose another suffix"));
            }
            unreached.push(format!("{message}: nothing reaches the entries there; choose another olcSuffix"));
        }
        if let Some((_, first)) = served.iter().find(|(other, _)| own.is_within(other)) {
            let at = config.databases.get(*first).map_or_else(String::new, |first| first.origin.to_string());
            let twice = served.iter().any(|(other, _)| *other == own);
            let (message, help) = if *first == number {
                (
                    format!("suffix \"{suffix}\" is already served by this database"),
                    "take one of the lines out".to_owned(),
                )
            } else if twice {
                (
                    format!("suffix \"{suffix}\" is already served by the database at {at}"),
                    "give each database its own suffix".to_owned(),
                )
            } else {
                (
                    format!(
                        "suffix \"{suffix}\" lies within that of the database at {at}, which comes first"
                    ),
                    "put the database with the longer suffix first".to_owned(),
                )
            };
            return Err(ConfigError::new(database.origin.clone(), message).with_help(help));
        }
        served.push((own, number));
    }
    Ok(unreached)
}

/// The suffixes of a database that lie within that of another kind: nothing reaches the entries there.
pub(super) fn unreached<'d>(
    database: &'d Database,
    config: &'d Config,
) -> impl Iterator<Item = &'d ConfigDn> {
    let own = database.suffixes.iter().filter(move |_| !database.hidden);
    own.filter(move |suffix| kind_above(&suffix.normal, config).is_some())
}

/// The database whose suffix comes with its kind, if that has this name: its kind, and the suffix as shown. Requests go there, whatever
/// other databases say.
fn kind_above(name: &NormalDn, config: &Config) -> Option<(&'static str, &'static str)> {
    config.databases.iter().map(|database| &database.kind).find_map(|kind| {
        let is_above = kind.own_suffix_normal().is_some_and(|own| name.is_within(&own));
        kind.own_suffix().filter(|_| is_above).map(|shown| (kind.name(), shown))
    })
}

/// The rootdn of a database that is below none of these suffixes, so that no bind with the rootpw reaches it.
pub(super) fn stray_root<'d>(database: &'d Database, suffixes: &[&NormalDn]) -> Option<&'d ConfigDn> {
    let root = database.root_dn.as_ref().filter(|_| !database.hidden);
    root.filter(|root| !suffixes.iter().any(|suffix| root.normal.is_within(suffix)))
}

/// Whether binds with the rootpw reach the database. Answers what is to be said where they no longer do: who gives a database another
/// suffix and another rootdn in two steps goes through that. What `slapcat -n0` writes between them can be loaded, too.
fn root(database: &Database, earlier: Earlier<'_>) -> Result<Option<String>, ConfigError> {
    let Some(password) = &database.root_password else { return Ok(None) };
    let error =
        |message: String, help: &str| Err(ConfigError::new(database.origin.clone(), message).with_help(help));
    if database.root_dn.is_none() {
        if database.effective_root().is_some() {
            return Ok(None);
        }
        return error(
            "there is a rootpw, but no rootdn to use it".to_owned(),
            "add `rootdn` before it, or take it out",
        );
    }
    let by_kind = database.kind.own_suffix_normal();
    let own: Vec<&NormalDn> = match &by_kind {
        Some(suffix) => vec![suffix],
        None => database.suffixes.iter().map(|suffix| &suffix.normal).collect(),
    };
    let Some(root) = stray_root(database, &own) else { return Ok(None) };
    if own.is_empty() {
        return error(
            "rootpw is of no use: this database has no suffix that the rootdn could be below".to_owned(),
            "add a line such as `suffix dc=example,dc=com`",
        );
    }
    let names: Vec<&str> = own.iter().map(|suffix| suffix.as_str()).collect();
    let message = format!(
        "rootpw is of no use: the rootdn \"{root}\" is not below a suffix of this database (\"{}\")",
        names.join("\", \"")
    );
    let is_loaded = matches!((earlier, &database.origin), (Earlier::Nothing, Origin::Value { .. }));
    match is_loaded || earlier.has_root_password(password) {
        true => Ok(Some(format!("{message}; give it another olcRootDN"))),
        false => error(message, "correct the one or the other, or give the entry itself a userPassword"),
    }
}

fn directory(
    database: &Database,
    path: &Path,
    others: &mut Vec<(PathBuf, Origin)>,
) -> Result<(), ConfigError> {
    if path.as_os_str().is_empty() {
        let message = format!("this {} database has no directory", database.kind.name());
        return Err(ConfigError::new(database.origin.clone(), message)
            .with_help("add a line such as `directory /var/lib/ldap`"));
    }
    if let Some((_, first)) = others.iter().find(|(other, _)| other == path) {
        return Err(shared_directory(database, path, first));
    }
    others.push((path.to_owned(), database.origin.clone()));
    Ok(())
}

pub(super) fn shared_directory(database: &Database, path: &Path, first: &Origin) -> ConfigError {
    let message = format!("its directory `{}` is that of the database at {first}", path.display());
    ConfigError::new(database.origin.clone(), message).with_help("give each database a directory of its own")
}

/// A subordinate database needs one above it to be glued to.
fn superior(database: &Database, config: &Config) -> Result<(), ConfigError> {
    if database.subordinate.is_none() {
        return Ok(());
    }
    for suffix in &database.suffixes {
        let above = config
            .databases
            .iter()
            .any(|other| other.suffixes.iter().any(|other| suffix.normal.is_descendant_of(&other.normal)));
        if !above {
            let message = format!("subordinate \"{suffix}\" has no database above it");
            return Err(ConfigError::new(database.origin.clone(), message)
                .with_help("add a database whose suffix is above, or take `subordinate` out"));
        }
    }
    Ok(())
}

impl Config {
    /// What the server cannot do although the configuration asks for it, and must not pretend to: it does not start.
    pub fn refusals(&self) -> Vec<ConfigError> {
        let mut found = Vec::new();
        for database in self.databases.iter().filter(|database| !database.disabled) {
            if !database.kind.is_served() {
                let message = format!("databases of kind {} are not supported", database.kind.name());
                found.push(ConfigError::new(database.origin.clone(), message));
            }
            let follows = !database.sync_replication.is_empty();
            if follows && !database.kind.follows() {
                let message =
                    format!("a database of kind {} cannot follow a provider yet", database.kind.name());
                found.push(ConfigError::new(database.origin.clone(), message));
            }
            found.extend(refuse_directory_synchronization(database));
            found.extend(refuse_without_change_log(database));
            self.refuse_over_glue(database, &mut found);
            self.refuse_over_engines(database, &mut found);
            database.kind.refusals(self, database, &mut found);
        }
        found
    }

    /// Whether the files of the `rootDSE` lines are there. What is in them is read when the server starts.
    ///
    /// # Errors
    /// Names the file, and why it cannot be opened.
    pub fn check_root_dse_files(&self) -> Result<(), ConfigError> {
        for path in &self.global.root_dse_files {
            if let Err(why) = larix_files::open(path) {
                let message = format!("rootDSE file `{}`: {why}", path.display());
                return Err(ConfigError::new(Origin::BuiltIn, message)
                    .with_help("make it, or take the `rootDSE` line out"));
            }
        }
        Ok(())
    }

    /// What keeps the server from starting of databases and overlays that ask other servers: settings and files of TLS that cannot be
    /// used, and lists of hosts that cannot be read.
    pub fn unusable_targets(&self) -> Vec<ConfigError> {
        let databases = self.databases.iter().filter(|database| !database.disabled);
        let overlays = databases.clone().flat_map(|database| &database.overlays);
        let overlays = overlays.chain(&self.frontend.overlays).filter(|overlay| !overlay.disabled);
        let asking = databases.chain(overlays.clone().flat_map(|overlay| &overlay.below));
        let mut found: Vec<ConfigError> = asking.flat_map(unusable_targets_of).collect();
        found.extend(overlays.filter_map(|overlay| self.unusable_judge(overlay)));
        found
    }

    /// The same of a server that judges binds.
    fn unusable_judge(&self, overlay: &Overlay) -> Option<ConfigError> {
        // Other faults of theirs are refused.
        if let Ok(Some(server)) = overlay.bind_server() {
            return unusable(&overlay.origin, &server);
        }
        let settings = overlay.remote_auth(&self.schema).ok().flatten()?;
        settings.dn_attribute.as_ref().zip(settings.domain_attribute.as_ref())?;
        let mut realms = settings.mappings.iter().map(|(_, realm)| realm).chain(&settings.default_realm);
        let unusable_realm = |realm: &Realm| match realm.read() {
            Err(why) => Some(ConfigError::new(overlay.origin.clone(), why)),
            Ok(targets) => {
                let tls = settings.tls.clone();
                unusable(&overlay.origin, &ProxySettings { targets, tls, ..ProxySettings::default() })
            }
        };
        realms.find_map(unusable_realm)
    }
}

fn unusable_targets_of(database: &Database) -> Vec<ConfigError> {
    let ldap = database.kind.settings::<LdapSettings>().map(|own| &own.proxy);
    let meta = database.kind.settings::<MetaSettings>().into_iter().flat_map(|own| &own.targets);
    let all = ldap.into_iter().chain(meta.map(|target| &target.proxy));
    all.filter_map(|settings| unusable(&database.origin, settings)).collect()
}

fn unusable(origin: &Origin, settings: &ProxySettings) -> Option<ConfigError> {
    // Servers that referrals name are asked later, and the server starts without them.
    settings.targets.first()?;
    settings.tls_client().err().map(|error| ConfigError::new(origin.clone(), error.to_string()))
}

/// An overlay that shows what a change log has, in a database without one.
fn refuse_without_change_log(database: &Database) -> Option<ConfigError> {
    if database.kind.is_stored() && !matches!(database.kind.stored().change_log, ChangeLog::Off) {
        return None;
    }
    let reads = |overlay: &&Overlay| {
        !overlay.disabled && overlay.descriptor().is_some_and(|descriptor| descriptor.reads_change_log)
    };
    let overlay = database.overlays.iter().find(reads)?;
    let (why, mend) = match database.kind.is_stored() {
        true => ("this database has `change-log off`".to_owned(), "take `change-log off` out"),
        false => (
            format!("a database of kind {} keeps none", database.kind.name()),
            "put the overlay into a database of kind mdb or ldif, or leave it out",
        ),
    };
    let message = format!("the overlay {} shows what the change log has, and {why}", overlay.name);
    Some(ConfigError::new(overlay.origin.clone(), message).with_help(mend.to_owned()))
}

/// What follows an Active Directory follows nothing else: its changes get CSNs of this server, and there is one cookie.
fn refuse_directory_synchronization(database: &Database) -> Option<ConfigError> {
    let lines = &database.sync_replication;
    let line = lines.iter().find(|line| line.dir_sync)?;
    let (what, mend) = if !database.kind.is_in_lmdb() {
        ("is for a database of kind mdb", "put the line into one")
    } else if lines.len() > 1 {
        ("stands alone in a database", "put the other syncrepl lines into databases of their own")
    } else if database.multi_provider {
        ("is for a database that takes changes from there alone", "take `multiprovider` out")
    } else {
        return None;
    };
    let message = format!("syncrepl rid={:03}: type=dirsync {what}", line.rid);
    Some(ConfigError::new(database.origin.clone(), message).with_help(mend.to_owned()))
}

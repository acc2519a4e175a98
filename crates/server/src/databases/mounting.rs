//! From open databases to backends under their suffixes.

use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_engine::{Directory, Served};
use larix_proto::ldif::{self, Body};
use larix_schema::NormalDn;
use larix_store::lmdb::LmdbStore;

use super::OpenError;
use crate::backend::{Backend, Mount, Special};
use crate::backends::{Configuration, MonitorTree, Nowhere, Null, RootDseTree, Stored, SubschemaTree, Tree};
use crate::config::{Config, Database};
use crate::services::Services;

/// A database, opened if it stores anything, and who may do what to it.
pub(super) type Opened<'c> = (&'c Database, Option<Arc<Served<LmdbStore>>>, Arc<AccessPolicy>);

/// What backends are made from.
pub(super) struct Mounting<'a> {
    pub(super) config: &'a Arc<Config>,
    pub(super) services: &'a Arc<Services>,
    /// All stored databases.
    pub(super) directory: &'a Arc<Directory<LmdbStore>>,
    /// As it is shown.
    pub(super) subschema_dn: &'a str,
}

/// Makes the backend of one kind of database.
type Make = fn(&Mounting<'_>, Opened<'_>) -> Option<Arc<dyn Backend>>;

/// The backend of each kind of database that is served.
const BACKENDS: [(&str, Make); 5] = [
    ("mdb", |it, opened| it.stored(opened)),
    ("ldif", |it, opened| it.stored(opened)),
    ("config", |it, (_, _, policy)| {
        Some(it.tree(
            policy,
            Configuration {
                config: Arc::clone(it.config),
                services: Arc::clone(it.services),
                subschema_dn: it.subschema_dn.to_owned(),
            },
        ))
    }),
    ("monitor", |it, (database, _, policy)| {
        Some(it.tree(
            policy,
            MonitorTree {
                config: Arc::clone(it.config),
                services: Arc::clone(it.services),
                subschema_dn: it.subschema_dn.to_owned(),
                owner: database.root_dn.as_ref().map(ToString::to_string).unwrap_or_default(),
            },
        ))
    }),
    ("null", |it, (_, _, policy)| Some(it.tree(policy, Null))),
];

impl Mounting<'_> {
    /// # Errors
    /// A kind of database that is not served.
    pub(super) fn mount(&self, opened: Opened<'_>) -> Result<Mount, OpenError> {
        let database = opened.0;
        let name = database.kind.name();
        let make = BACKENDS.iter().find(|(kind, _)| *kind == name);
        let backend = make
            .and_then(|(_, make)| make(self, opened))
            .ok_or_else(|| OpenError::Kind { origin: database.origin.clone(), kind: name.to_owned() })?;
        let suffixes = match database.kind.own_suffix() {
            Some(dn) => self.config.schema.parse_dn(dn).into_iter().collect(),
            None => database.suffixes.iter().map(|dn| dn.normal.clone()).collect::<Vec<NormalDn>>(),
        };
        Ok(Mount { suffixes, subordinate: database.subordinate.is_some(), hidden: database.hidden, backend })
    }

    /// # Errors
    /// A `rootDSE` file that cannot be read.
    pub(super) fn special(&self, policy: &Arc<AccessPolicy>) -> Result<Special, OpenError> {
        let (config, services) = (self.config, self.services);
        let root_dse = RootDseTree {
            config: Arc::clone(config),
            services: Arc::clone(services),
            subschema_dn: self.subschema_dn.to_owned(),
            extra: root_dse_files(config)?,
        };
        let subschema = SubschemaTree {
            config: Arc::clone(config),
            services: Arc::clone(services),
            dn: self.subschema_dn.to_owned(),
        };
        Ok(Special {
            root_dse: self.tree(Arc::clone(policy), root_dse),
            subschema: self.tree(Arc::clone(policy), subschema),
            nowhere: Arc::new(Nowhere { directory: Arc::clone(self.directory) }),
        })
    }

    fn stored(&self, (database, served, _): Opened<'_>) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Stored {
            served: served?,
            directory: Arc::clone(self.directory),
            services: Arc::clone(self.services),
            limits: database.shared.limits.clone(),
            default_referrals: self.config.global.referrals.clone().into(),
        }))
    }

    fn tree<C: crate::backends::Content>(&self, policy: Arc<AccessPolicy>, content: C) -> Arc<dyn Backend> {
        Arc::new(Tree {
            content,
            schema: Arc::clone(&self.config.schema),
            policy,
            request_limits: self.config.global.request_limits,
        })
    }
}

/// Attributes by name.
type NamedValues = Vec<(String, Vec<Vec<u8>>)>;

/// The attributes of the `rootDSE` files.
fn root_dse_files(config: &Config) -> Result<NamedValues, OpenError> {
    let mut extra = Vec::new();
    for path in &config.global.root_dse_files {
        let fail = |message: String| OpenError::RootDse { path: path.clone(), message };
        let file = std::fs::File::open(path).map_err(|error| fail(error.to_string()))?;
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

//! The backends: one for each kind of served database, and one for names outside every database.

mod bind_judge;
mod caching;
mod chained;
mod changelog;
#[cfg(feature = "kv")]
mod clustered;
mod consumer_search;
mod digests;
mod dnssrv;
mod engine_database;
mod engine_search;
mod identities;
mod memory;
mod out_of_service;
mod passwd;
mod password_replacement;
mod passwords;
mod proxied;
mod remote_auth;
mod search_limits;
mod sliced;
mod stored;
mod translucent;

use std::sync::Arc;

use larix_configuration::Config;
use larix_engine::Directory;
use larix_store::lmdb::LmdbStore;

#[cfg(feature = "kv")]
use crate::cluster::Clusters;
use crate::services::Services;

pub(crate) use caching::caching;
pub(crate) use chained::{chained, chasing};
pub(crate) use changelog::Changelog;
#[cfg(feature = "kv")]
pub(crate) use clustered::{clustered, instance_of as instance_of_shared};
pub(crate) use dnssrv::DnsReferrals;
pub use memory::config_entries_matching;
pub(crate) use memory::{Configuration, Content, MonitorTree, Null, RootDseTree, SubschemaTree, Tree};
pub(crate) use out_of_service::OutOfService;
pub(crate) use passwd::Passwd;
pub(crate) use proxied::{ProxiedBackend, Shadow, connections, connections_of_targets};
pub(crate) use remote_auth::{pbind, remote_auth};
pub(crate) use stored::{Nowhere, StoredBackend, figures, refusal, suffix_of};
pub(crate) use translucent::translucent;

/// What the backends of a generation share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: Arc<Config>,
    pub(crate) services: Arc<Services>,
    /// The databases in shared engines.
    #[cfg(feature = "kv")]
    pub(crate) clusters: Clusters,
    /// All stored databases.
    pub(crate) directory: Arc<Directory<LmdbStore>>,
    /// URLs of the `referral` directive.
    pub(crate) default_referrals: Arc<[String]>,
    /// The subschema subentry's DN as it is shown.
    pub(crate) subschema_dn: String,
}

#[cfg(test)]
mod tests;

//! Configuration: one typed model, read from slapd.conf, from slapd.d or from flags.
//!
//! A slapd.conf line and a value of an olc attribute are the same directive with the same arguments: both go through
//! the one table in [`directives`] and its handlers.

mod access_log;
pub mod balancer;
mod builder;
mod chain;
mod change;
mod conf_file;
mod context_csns;
mod defaults;
mod definition;
mod diagnostic;
mod difference;
mod directives;
mod directories;
mod engine;
mod entries;
mod entry;
mod export;
#[cfg(test)]
mod fixture;
mod interceptors;
mod kinds;
mod line;
mod listing;
mod load;
mod model;
mod overlays;
mod own_urls;
mod passwords;
mod pbind;
mod pcache;
mod quick_start;
mod remote_auth;
mod settings;
#[cfg(feature = "kv")]
mod sharing;
mod slapd_conf;
pub mod slapd_d;
mod sock;
mod spelling;
#[cfg(test)]
mod tests;
mod text;
mod translucent;
mod undefined;
mod validate;
mod value_list;
pub mod values;

pub use access_log::{AccessLogSettings, Purge};
pub use chain::ChainSettings;
pub use change::{ChangedConfig, ConfigChange, ConfigRefusal, Present, ReplicatedConfig, Requester};
pub use conf_file::{ConfLine, conf_lines};
pub use diagnostic::{ConfigError, ConfigFault, Excerpt, Note, Notes, Origin};
pub use difference::{Difference, Step};
pub use directives::{is_secret_setting, overlay_that_defines, overlays_without_descriptors};
pub use entries::entries;
pub use entry::{ConfigAttribute, ConfigEntry};
pub use export::Exported;
pub use interceptors::{InFront, MakeInterceptor};
pub use kinds::{
    ChangelogSettings, DEFAULT_DATABASE_DIRECTORY, DatabaseKind, Descriptor, DnssrvSettings, KindSettings,
    LdapSettings, MdbSettings, MetaSettings, MetaTarget, NullSettings, PasswdSettings, RelaySettings,
    SockSettings, Storage, StoredSettings, indexed_classes, served_kinds,
};
#[cfg(feature = "kv")]
pub use kinds::{Consistency, KvSettings, check_node};
pub use line::{quoted, unquoted};
pub use listing::{ListedDirective, ListedEffect, ListedScope, listed_directives};
pub use load::{DEFAULT_DIRECTORY, DEFAULT_FILE, Location, convert};
pub use model::{
    AccessLine, Backend, CommonSettings, Config, Database, Frontend, Global, HarnessSettings, ModuleList,
    Overlay, QuickReplicas, QuickStart, SchemaSection, Source,
};
pub use overlays::local_attributes;
pub use remote_auth::{Realm, RemoteAuthSettings};
pub use settings::{Setting, Settings};
#[cfg(feature = "kv")]
pub use sharing::{FollowedConfig, OwnLines, SharedLines};
pub use translucent::TranslucentSettings;
pub use value_list::ValueList;
pub use values::PasswordCosts;

//! Translates a `syncrepl` line into the types of [`larix_replication::consumer`].

use std::sync::Arc;

use larix_configuration::values::SyncData;
use larix_engine::replica::{AttributeShare, ReplicaRules};
use larix_proto::control::{ControlValue as _, ProxiedAuthorization, SyncMode};
use larix_proto::{ControlBuf, FilterBuf, Scope};
use larix_replication::consumer::{Line, Massage, Request};
use larix_replication::delta;
use larix_schema::Schema;

use crate::consumer_database::ConsumerDatabase;
use crate::consumers::Task;

impl Task {
    /// Whether the line follows an access log.
    pub(super) fn follows_log(&self) -> bool {
        self.line.data == SyncData::AccessLog
    }

    /// Whether it is this server that follows now, not another node of the database.
    pub(super) fn is_ours(&self) -> bool {
        self.database.as_ref().is_none_or(ConsumerDatabase::is_ours)
    }

    /// Whether several nodes may follow, one at a time.
    pub(super) fn is_shared(&self) -> bool {
        self.database.as_ref().is_some_and(ConsumerDatabase::is_shared)
    }

    /// What the configuration says of what is replicated.
    pub(super) fn line(&self) -> Line {
        let line = &self.line;
        let local = line.local_base();
        let identity = line.bind.authorization.as_deref().filter(|_| !line.bind.sasl);
        let controls: Vec<ControlBuf> = identity
            .map(|identity| ProxiedAuthorization { authorization_id: identity }.to_control(true))
            .into_iter()
            .collect();
        let mut asked = Line {
            rid: line.rid,
            sid: self.sid,
            // Behind it comes what the log has.
            mode: if self.follows_log() { SyncMode::RefreshOnly } else { line.mode },
            base: line.base.text.clone(),
            local_base: (local.text.clone(), local.normal.clone()),
            scope: line.scope,
            filter: line.filter.clone(),
            is_part: self.is_part,
            attributes: line.attributes.clone(),
            except_attributes: line.except_attributes.clone(),
            size_limit: line.size_limit,
            time_limit: line.time_limit,
            schema_checking: line.schema_checking,
            lazy: line.lazy_commit,
            delete_percent: line.delete_percent,
            values: self.settles_values(),
            states: self.merges_records(),
            controls,
        };
        // States are kept here once the provider sends some. Of a part they say nothing, nor of other names.
        let takes = |database: &ConsumerDatabase| {
            let settings = database.settings();
            settings.can_keep_states() && asked.is_whole(&settings)
        };
        asked.states |= line.suffix_massage.is_none() && self.database.as_ref().is_some_and(takes);
        asked
    }

    /// Asks for the records of the provider's access log.
    pub(super) fn log_request(&self) -> Request {
        let line = &self.line;
        let filter = line.log_filter.clone().or_else(|| FilterBuf::parse(delta::FILTER).ok());
        let base = line.log_base.as_ref().map_or_else(String::new, |base| base.text.clone());
        Request {
            base,
            scope: Scope::Subtree,
            filter: filter.unwrap_or_else(FilterBuf::every_entry),
            attributes: vec!["*".to_owned(), "+".to_owned()],
            logged: true,
            values: false,
            mode: line.mode,
            ..self.line().request()
        }
    }

    /// By which rules changes are written; see [`Line::rules`].
    pub(super) fn rules(&self, schema: &Schema, refresh: bool) -> ReplicaRules {
        if self.target.is_some() {
            let line = &self.line;
            let share = AttributeShare::new(schema, &line.attributes, &line.except_attributes);
            return ReplicaRules {
                multi_provider: false,
                attributes: Arc::new(share),
                ..ReplicaRules::default()
            };
        }
        let Some(database) = &self.database else { return ReplicaRules::default() };
        if self.line.dir_sync {
            return ReplicaRules {
                schema_checking: self.line.schema_checking,
                lazy: self.line.lazy_commit,
                drop_covered: false,
                multi_provider: false,
                places: false,
                own_csns: true,
                ..ReplicaRules::default()
            };
        }
        self.line().rules(schema, &database.settings(), refresh)
    }

    /// Whether all of a suffix is asked for.
    pub(super) fn is_whole(&self) -> bool {
        self.database.as_ref().is_some_and(|database| self.line().is_whole(&database.settings()))
    }

    /// Whether conflicts are settled value by value here.
    pub(super) fn settles_values(&self) -> bool {
        self.database.as_ref().is_some_and(|database| database.settings().value_conflicts)
    }

    /// Whether states of entries are kept here.
    pub(super) fn keeps_states(&self) -> bool {
        self.database.as_ref().is_some_and(|database| database.settings().keeps_states())
    }

    /// Whether changes are merged one by one here.
    pub(super) fn merges_records(&self) -> bool {
        self.database.as_ref().is_some_and(|database| database.settings().merges_records)
    }

    pub(super) fn massage(&self, schema: Arc<Schema>) -> Option<Massage> {
        let to = self.line.suffix_massage.as_ref()?;
        Some(Massage::new(schema, self.line.base.normal.clone(), &to.text))
    }

    /// The provider, as messages name it.
    pub(super) fn provider(&self) -> String {
        let urls: Vec<String> = self.line.providers.iter().map(ToString::to_string).collect();
        urls.join(" ")
    }
}

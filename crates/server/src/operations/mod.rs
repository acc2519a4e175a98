//! Requests carried out over the databases: searches, compares and changes, of what is stored and of the trees that nobody
//! stores.

mod config_sync;
mod glued_pages;
mod limits;
mod search;
mod sync;
mod trees;

use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::access::Subject;
use larix_engine::compare::{self, CompareContext};
use larix_engine::controls::RequestControls;
use larix_engine::time::Monotonic;
use larix_engine::write::{Completion, WriteOperation, WriteRequest};
use larix_proto::{CompareRequest, LdapResult, ResultCode, Scope, SearchRequest, url::LdapUrl};
use larix_schema::NormalDn;
use larix_store::Store;

use crate::databases::{Databases, Section, SectionKind};
use crate::server::Server;
use crate::statistics::latency::in_database;
use crate::virtual_entries::monitor::change::{self, Wanted};

pub use search::{Effort, First, Search};
pub use sync::Slice;

impl Databases {
    /// Starts a search and runs its first slice. `at` is the message and when it came.
    pub fn search(
        &self,
        server: &Server,
        subject: &Arc<Subject>,
        controls: RequestControls,
        request: &SearchRequest<'_>,
        at: (larix_proto::MessageId, Monotonic),
        out: &mut Vec<u8>,
    ) -> First {
        search::start(self, server, subject, controls, request, at, out)
    }

    pub fn compare(
        &self,
        server: &Server,
        subject: &Arc<Subject>,
        controls: &RequestControls,
        request: &CompareRequest<'_>,
    ) -> LdapResult {
        let Ok(dn) = self.schema().parse_dn(request.entry) else {
            return LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid DN");
        };
        if let Some(tree) = self.tree(server, subject, &dn, true) {
            return tree.compare(&dn, request, controls);
        }
        self.compare_stored(server, subject, controls, request, &dn)
    }

    /// Hands a change to the writer of its database, or to whoever changes the configuration. `done` is called once, here
    /// or on their thread.
    pub(crate) fn submit_request(&self, server: &Server, request: WriteRequest, done: Completion) {
        let target = self.schema().parse_dn(request.operation.target()).ok();
        let section = target.as_ref().and_then(|dn| self.section(dn));
        target.iter().for_each(|dn| self.note_database(dn));
        if section.is_some_and(|section| section.kind == SectionKind::Config) {
            return server.configuration.submit(vec![request], done);
        }
        match section.and_then(Section::refuses_changes) {
            Some(refused) => done(refused.into()),
            None => self.directory().submit_at(request, target, done),
        }
    }

    /// Hands changes that belong together to the writer of their database, or to whoever changes the configuration: all or
    /// none.
    pub(crate) fn submit_all(&self, server: &Server, requests: Vec<WriteRequest>, done: Completion) {
        let targets = requests.iter().filter_map(|r| self.schema().parse_dn(r.operation.target()).ok());
        let sections: Vec<Option<&Section>> = targets.map(|dn| self.section(&dn)).collect();
        let is_config = |section: &Option<&Section>| section.is_some_and(|s| s.kind == SectionKind::Config);
        if sections.len() == requests.len() && sections.iter().all(is_config) {
            return server.configuration.submit(requests, done);
        }
        let refused = match sections.iter().position(is_config) {
            Some(_) => {
                let text = "a transaction changes cn=config or a database, not both";
                Some(LdapResult::with(ResultCode::AFFECTS_MULTIPLE_DSAS, text))
            }
            None => sections.into_iter().flatten().find_map(Section::refuses_changes),
        };
        match refused {
            Some(refused) => done(refused.into()),
            None => self.directory().submit_all(requests, done),
        }
    }

    /// Up to `limit` entries that an LDAP URL finds, with the `auth` privilege on what its filter asks for.
    pub fn identities(
        &self,
        server: &Server,
        subject: &Arc<Subject>,
        url: &LdapUrl,
        limit: u32,
    ) -> Vec<NormalDn> {
        search::identities(self, server, subject, url, limit)
    }

    /// Whether this entry is among those that an LDAP URL finds.
    pub fn identity_among(
        &self,
        server: &Server,
        subject: &Arc<Subject>,
        url: &LdapUrl,
        entry: &NormalDn,
    ) -> bool {
        let Ok(base) = self.schema().parse_dn(&url.dn) else { return false };
        let in_scope = entry.is_in_scope(&base, url.scope.unwrap_or(Scope::Base));
        let only = LdapUrl { dn: entry.as_str().to_owned(), scope: Some(Scope::Base), ..url.clone() };
        in_scope && !search::identities(self, server, subject, &only, 1).is_empty()
    }

    /// Carries out a change of cn=Monitor; none when it is not about that.
    pub(crate) fn change_monitor(
        &self,
        server: &Server,
        subject: &Arc<Subject>,
        operation: &WriteOperation,
    ) -> Option<LdapResult> {
        // Where there is none, no name has to be understood.
        self.sections.iter().find(|section| section.kind == SectionKind::Monitor)?;
        let dn = self.schema().parse_dn(operation.target()).ok()?;
        self.section(&dn).filter(|section| section.kind == SectionKind::Monitor)?;
        let tree = self.tree(server, subject, &dn, true)?;
        let judged = change::judge(&tree, server.log.configured_levels(), operation);
        Some(match judged {
            Err(refused) => refused,
            Ok(Wanted::Levels(levels)) => {
                server.log.set_levels(levels);
                LdapResult::success()
            }
            Ok(Wanted::ReadOnly(number, value)) => self.make_read_only(number, value),
        })
    }

    fn compare_stored(
        &self,
        server: &Server,
        subject: &Arc<Subject>,
        controls: &RequestControls,
        request: &CompareRequest<'_>,
        dn: &NormalDn,
    ) -> LdapResult {
        let Some(served) = self.directory().select(dn) else {
            return self.directory().elsewhere(
                request.entry,
                None,
                LdapResult::new(ResultCode::NO_SUCH_OBJECT),
            );
        };
        let database = served.database();
        in_database(database.instance());
        let policy = database.current_policy();
        let default_referrals = &self.default_referrals;
        let context = CompareContext { controls, subject, policy: &policy, default_referrals };
        let compared = || -> Result<LdapResult, Fault> {
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot)?;
            Ok(compare::compare(&view, &context, dn, request))
        };
        compared().unwrap_or_else(|fault| search::failure(server, &fault))
    }
}

impl Section {
    /// Trees that cannot be changed say so.
    fn refuses_changes(&self) -> Option<LdapResult> {
        let text = match self.kind {
            SectionKind::Stored => return None,
            SectionKind::Null { .. } => return Some(LdapResult::success()),
            SectionKind::Config => "cn=config cannot be changed in a transaction",
            SectionKind::Monitor => "operation not supported within namingContext",
        };
        Some(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text))
    }
}

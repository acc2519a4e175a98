//! Binds that other servers judge: of entries without a userPassword, which say their name there and their domain, whose servers are known
//! (`overlay remoteauth`, slapo-remoteauth(5)); or of all entries of a database, each under its own name (`overlay pbind`, slapo-pbind(5)).

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larix_backend::{
    Bind, Context, Done, Interceptor, Later, Next, Operations, PendingAnswer, Proof, Reply, Secret, Verdict,
};
use larix_engine::Fault;
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch};
use larix_engine::time::{Clock, Monotonic};
use larix_proto::{LdapResult, ResultCode, Scope, client};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn};
use zeroize::Zeroizing;

use crate::job::{ANY, Binds, Job, Outcome, Owner, Sink};
use crate::proxy::Proxy;
use crate::request::{encoded, hops, in_circles};
use crate::settings::Kind;
use crate::shared::Command;

/// How long a bind may take, with all attempts.
const BIND_MAX: Duration = Duration::from_secs(10);
/// The server's own end of it comes so much later than the one of the connection's thread.
const LATER: Duration = Duration::from_secs(2);
/// How long a connection that nobody uses stays open.
pub const IDLE: Duration = Duration::from_secs(60);
/// Attempts after the first, at most (`remoteauth_retry_count`).
pub const RETRIES_MAX: u32 = 10;

/// A bind that another server has judged.
pub struct RemoteVerdict {
    /// The local entry.
    pub dn: NormalDn,
    /// Its name as it is shown.
    pub shown: String,
    /// Whether the other server took the password.
    pub matched: bool,
    pub password: Secret,
    /// The password policy control was sent.
    pub policy_control: bool,
    /// Where the client is, as access rules name it.
    pub peer_name: String,
}

impl Debug for RemoteVerdict {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteVerdict")
            .field("dn", &self.dn)
            .field("matched", &self.matched)
            .finish_non_exhaustive()
    }
}

/// Ends a bind here: the database's overlays judge it, and the password may be stored.
pub trait Conclude: Debug + Send + Sync {
    /// Calls `done` once, on any thread.
    fn conclude(&self, judged: RemoteVerdict, done: Done<Verdict>);
}

/// The overlay in front of one database.
#[derive(Debug)]
pub struct RemoteAuth {
    pub accounts: Accounts,
    /// Attempts after the first.
    pub retries: u32,
    pub root: Option<NormalDn>,
    pub clock: Arc<dyn Clock>,
    pub concluding: Arc<dyn Conclude>,
}

/// Which binds are judged elsewhere, where, and under what name.
#[derive(Debug)]
pub enum Accounts {
    Named(Named),
    /// All of the database's entries, under their own names.
    Own(Arc<Proxy>),
}

/// Those of entries that say where.
#[derive(Debug)]
pub struct Named {
    pub password: AttributeDescription,
    /// Has the name that the entry has on the other server.
    pub dn: AttributeDescription,
    pub domain: AttributeDescription,
    pub default_domain: Option<String>,
    /// Domains, without regard to case, and their servers.
    pub mappings: Vec<(String, Arc<Proxy>)>,
    /// The servers of all other domains.
    pub default_realm: Option<Arc<Proxy>>,
}

/// What the entry of a bind says.
struct Account {
    shown: String,
    /// Its name on the other server: a DN, or whatever that server takes for one.
    remote: String,
    proxy: Arc<Proxy>,
}

impl Accounts {
    fn account(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        dn: &NormalDn,
    ) -> Result<Option<Account>, Fault> {
        let mut account = None;
        let query = InternalSearch::new(dn, Scope::Base, &BoundFilter::True).of_what_is_stored();
        next.find(context, &query, &mut |found| {
            account = match self {
                Self::Named(named) => named.account(found)?,
                Self::Own(proxy) => {
                    let shown = found.shown_dn()?;
                    Some(Account { remote: shown.clone(), shown, proxy: Arc::clone(proxy) })
                }
            };
            Ok(false)
        })?;
        Ok(account)
    }
}

impl Named {
    /// The account that another server judges; none of an entry with a password, and of one without a name or a domain there.
    fn account(&self, found: &dyn FoundEntry) -> Result<Option<Account>, Fault> {
        let first = |description: &AttributeDescription| -> Result<Option<Vec<u8>>, Fault> {
            let mut value = None;
            found.source().visit_exact(description, &mut |bytes| {
                value = Some(bytes.to_vec());
                false
            })?;
            Ok(value)
        };
        if first(&self.password)?.is_some() {
            return Ok(None);
        }
        let text = |value: Option<Vec<u8>>| value.and_then(|value| String::from_utf8(value).ok());
        let domain = text(first(&self.domain)?).or_else(|| self.default_domain.clone());
        // A bind with a password and without a name is an anonymous one to some servers: it proves nothing.
        let remote = text(first(&self.dn)?).filter(|name| !name.trim().is_empty());
        let (Some(domain), Some(remote)) = (domain, remote) else { return Ok(None) };
        let Some(proxy) = self.servers(&domain) else { return Ok(None) };
        Ok(Some(Account { shown: found.shown_dn()?, remote, proxy: Arc::clone(proxy) }))
    }

    /// The servers of a domain: of `NT-DOMAIN\user` and `domain:user` the part before counts.
    fn servers(&self, domain: &str) -> Option<&Arc<Proxy>> {
        let bare = match domain.split_once('\\') {
            Some((bare, _)) => bare,
            None => domain.split_once(':').map_or(domain, |(bare, _)| bare),
        };
        // As in OpenLDAP, the last line about a domain holds.
        let mapped = self.mappings.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(bare));
        mapped.map(|(_, proxy)| proxy).or(self.default_realm.as_ref())
    }
}

impl Interceptor for RemoteAuth {
    fn requests(&self) -> Operations {
        Operations::BIND
    }

    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let password = match bind.proof {
            Proof::Password(password) if !bind.by_mechanism && !password.is_empty() => password,
            _ => return next.bind(context, bind, later),
        };
        if self.root.as_ref() == Some(bind.dn) {
            return next.bind(context, bind, later);
        }
        let account = match self.accounts.account(next, context, bind.dn) {
            Ok(Some(account)) => account,
            Ok(None) => return next.bind(context, bind, later),
            Err(fault) => return Reply::Now(fault.to_result().into()),
        };
        if bind.controls.hops >= crate::request::HOPS_MAX {
            return Reply::Now(in_circles().into());
        }
        let until = Duration::from_nanos(context.began.0).saturating_add(BIND_MAX);
        let judged = RemoteVerdict {
            dn: bind.dn.clone(),
            shown: account.shown,
            matched: false,
            password: Zeroizing::new(password.to_vec()),
            policy_control: bind.policy_control,
            peer_name: context.subject.peer.peer_name.clone(),
        };
        let attempt = Attempt {
            proxy: account.proxy,
            remote: account.remote,
            hops: bind.controls.hops,
            until,
            retries: self.retries,
            clock: Arc::clone(&self.clock),
            concluding: Arc::clone(&self.concluding),
            judged,
            tells: matches!(self.accounts, Accounts::Own(_)),
            done: later(),
            current: Arc::default(),
        };
        Reply::Later(attempt.begin())
    }
}

/// What it takes to give up the request that a server has now.
type Current = Arc<Mutex<Option<(Arc<Proxy>, u64)>>>;

/// A bind on its way to another server.
struct Attempt {
    proxy: Arc<Proxy>,
    remote: String,
    hops: u8,
    /// On the monotonic clock.
    until: Duration,
    retries: u32,
    clock: Arc<dyn Clock>,
    concluding: Arc<dyn Conclude>,
    judged: RemoteVerdict,
    /// The client gets the other server's answer as it is.
    tells: bool,
    done: Done<Verdict>,
    current: Current,
}

impl Attempt {
    fn begin(self) -> PendingAnswer {
        let (current, end) = (Arc::clone(&self.current), self.until.saturating_add(LATER));
        let end = Monotonic(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX));
        self.ask();
        let give_up = move || {
            let current = current.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((proxy, number)) = current {
                proxy.shared.command(Command::GiveUp(number));
            }
        };
        PendingAnswer { deadline: Some(end), give_up: Some(Box::new(give_up)) }
    }

    fn ask(self) {
        let controls = [hops(self.hops)];
        let body = encoded(|out| {
            client::simple_bind(out, ANY, &self.remote, &self.judged.password, &controls);
        });
        let (proxy, current, until) = (Arc::clone(&self.proxy), Arc::clone(&self.current), self.until);
        // Nobody gets the connection for himself: it serves the next bind.
        let binds = Binds { dn: self.judged.dn.clone(), client: None, password: None };
        let sink = Sink::Once(Box::new(move |outcome| self.answered(outcome)));
        let job = Job {
            deadline: Some(until),
            is_repeatable: true,
            binds: Some(binds),
            ..Job::new(Owner::Spare, Kind::Bind, body.into(), sink)
        };
        // Locked so that giving it up, and the answer, come behind the number.
        let mut place = current.lock().unwrap_or_else(PoisonError::into_inner);
        match proxy.shared.submit(job) {
            Ok(number) => *place = Some((Arc::clone(&proxy), number)),
            Err(not_taken) => {
                drop(place);
                not_taken.end();
            }
        }
    }

    fn answered(mut self, outcome: Outcome) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        let code = outcome.result.code;
        if outcome.is_of_target && matches!(code, ResultCode::SUCCESS | ResultCode::INVALID_CREDENTIALS) {
            self.judged.matched = code == ResultCode::SUCCESS;
            return self.concluding.conclude(self.judged, self.done);
        }
        // What a server has said for good is not asked again: it may count.
        let may_change = match outcome.is_of_target {
            true => matches!(code, ResultCode::BUSY | ResultCode::UNAVAILABLE),
            false => !outcome.is_unsent,
        };
        let now = Duration::from_nanos(self.clock.monotonic().0);
        if may_change && self.retries > 0 && now < self.until {
            self.retries -= 1;
            return self.ask();
        }
        let result = match outcome.is_of_target {
            true if self.tells => LdapResult::with(code, outcome.result.diagnostic),
            false if self.tells => {
                LdapResult::with(ResultCode::UNAVAILABLE, "no server that judges binds answers")
            }
            true => LdapResult::with(code, "remoteauth_bind failed"),
            false => LdapResult::with(ResultCode::OPERATIONS_ERROR, "remoteauth_bind operations error"),
        };
        (self.done)(result.into());
    }
}

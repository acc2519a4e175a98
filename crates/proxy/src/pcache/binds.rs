//! Binds with passwords that the cache keeps (`pcacheBind`).

use std::sync::Arc;
use std::time::Duration;

use larix_backend::{
    Backend, Bind, Context, Later, PasswordChange, PasswordChangeOutcome, Proof, Reply, Verdict,
};
use larix_engine::controls::RequestControls;
use larix_engine::time::{Clock, Monotonic};
use larix_proto::{FilterBuf, LdapResult, Response};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use super::{BindTemplate, Cache, CachingBackend, PATIENCE, Settings, Tell, giving_up};
use crate::identity::Asker;
use crate::lookup;
use crate::search::{Judge, OutgoingSearch, TargetCursor};

impl CachingBackend {
    /// Lets in who is known to the cache; asks the remote server about all others, and keeps the passwords that it takes.
    pub(super) fn bind_or_cached(
        &self,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let (Some(template), Proof::Password(password)) = (self.bind_template(bind.dn), bind.proof) else {
            return self.inner.bind(context, bind, later);
        };
        // A client that sends controls wants the remote server's answer to them.
        let is_plain = !bind.policy_control && bind.controls.sent.is_empty();
        if password.is_empty() || !is_plain {
            return self.inner.bind(context, bind, later);
        }
        if let Some(shown) = self.cache.binds.lets_in(bind.dn, password, self.now(), self.settings.offline) {
            self.tell(format_args!("CACHED BIND for {shown}"));
            let proxy = &self.inner.proxy;
            if let Some(client) = context.client.lifetime().filter(|_| proxy.settings.rebind_as_user) {
                let password = Some(Zeroizing::new(password.to_vec()));
                proxy.shared.note_bound(client, bind.dn.clone(), password);
            }
            return Reply::Now(LdapResult::success().into());
        }
        // Its entry is asked for.
        self.tell(format_args!("QUERY NOT ANSWERABLE"));
        let keeper = Keeper { changes: Some(self.cache.changes()), ..self.keeper(bind.dn, template) };
        let following =
            self.ask_for(&self.inner.asker(context), bind.dn, &template.filter, bind.controls.hops);
        let (password, clock) = (Zeroizing::new(password.to_vec()), Arc::clone(&self.clock));
        let mut given = Some((keeper, following, password));
        self.inner.bind(context, bind, &mut || {
            let (done, given, clock) = (later(), given.take(), Arc::clone(&clock));
            Box::new(move |verdict: Verdict| {
                let Some((keeper, Some(following), password)) = given.filter(|_| verdict.result.is_success())
                else {
                    return done(verdict);
                };
                let then: lookup::Then = Box::new(move |found| {
                    let shown = found.ok().flatten().as_deref().and_then(entry_name);
                    if let Some(shown) = shown {
                        keeper.keep(&shown, &password);
                    }
                    done(verdict);
                });
                // Nobody gives it up: it ends by its own patience.
                drop(lookup::read(Box::new(following), clock, then));
            })
        })
    }

    /// Has the remote server replace a password, and keeps the new one where it kept the old one.
    pub(super) fn change_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        let dn = change.dn.clone();
        let shown = self.cache.binds.shown(&dn);
        let keeper = self.bind_template(&dn).map(|template| self.keeper(&dn, template)).zip(shown);
        let mut given = Some((keeper, change.new.clone()));
        let lost = self.forgetting(vec![dn.clone()]);
        let reply = self.inner.modify_password(context, change, &mut || {
            let (done, given, forget) = (later(), given.take(), self.forgetting(vec![dn.clone()]));
            Box::new(move |changed: PasswordChangeOutcome| {
                forget();
                if let Some((Some((keeper, shown)), Some(new))) =
                    given.filter(|_| changed.result.is_success())
                {
                    keeper.keep(&shown, &new);
                }
                done(changed);
            })
        });
        match reply {
            Reply::Later(pending) => Reply::Later(giving_up(pending, lost)),
            now @ Reply::Now(_) => now,
        }
    }

    fn bind_template(&self, dn: &NormalDn) -> Option<&BindTemplate> {
        self.settings.binds.iter().find(|template| dn.is_in_scope(&template.base, template.scope))
    }

    /// A search for the entry of a bind, by the template's filter, as the database's root.
    fn ask_for(&self, asker: &Asker, dn: &NormalDn, filter: &FilterBuf, hops: u8) -> Option<TargetCursor> {
        let asker = Asker { is_root: true, ..asker.clone() };
        let controls = RequestControls::default().with(|values| values.hops = hops);
        let outgoing = OutgoingSearch::own((dn.as_str(), dn), filter.as_filter(), &["1.1"], &controls);
        let judge =
            Judge::new(&self.inner.proxy, (&self.inner.schema, &self.inner.entry_policy), &asker, &outgoing);
        let mut cursor = TargetCursor::new(&self.inner.proxy, &asker, &outgoing, judge).ok()?;
        cursor.be_patient_at_most(PATIENCE);
        Some(cursor)
    }

    fn keeper(&self, dn: &NormalDn, template: &BindTemplate) -> Keeper {
        Keeper {
            cache: Arc::clone(&self.cache),
            settings: Arc::clone(&self.settings),
            clock: Arc::clone(&self.clock),
            log: Arc::clone(&self.log),
            dn: dn.clone(),
            ttl: template.ttl,
            refresh: template.refresh,
            changes: None,
        }
    }
}

/// What it takes to keep the password of somebody.
struct Keeper {
    cache: Arc<Cache>,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    log: Arc<dyn Tell>,
    dn: NormalDn,
    ttl: Duration,
    refresh: Duration,
    /// Changes that had gone through when the bind began: a password that was right before one of them may be wrong now.
    changes: Option<u64>,
}

impl Keeper {
    fn keep(&self, shown: &Arc<str>, password: &[u8]) {
        let now = self.clock.monotonic();
        let at = |time: Duration| {
            Monotonic(now.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
        };
        let times = (at(self.refresh), at(self.ttl));
        let most = self.settings.queries_max;
        let name = (&self.dn, shown);
        if self.cache.keep_password(name, password, times, most, self.changes) && self.log.is_heard() {
            self.log.tell(format_args!("CACHING BIND for {shown}"));
        }
    }
}

/// The name of the entry that a message has.
fn entry_name(message: &[u8]) -> Option<Arc<str>> {
    match Response::decode_message(message).ok()?.response {
        Response::Entry(found) => Some(found.dn.into()),
        _ => None,
    }
}

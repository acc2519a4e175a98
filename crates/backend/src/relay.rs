//! A database that another database of this server has (`database relay`, slapd-relay(5)): requests go to it as they are, with the
//! identity of the client. What has other names there is for an overlay in front to map.

use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_engine::controls::RequestControls;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;

use crate::backend::{Announcement, Backend, Below, Context};
use crate::cursor::{Cursor, End};
use crate::glue;
use crate::operation::{
    Bind, Changes, Compare, ExtendedAnswer, ExtendedOperation, Later, PasswordChange, PasswordChangeOutcome,
    PendingAnswer, Reply, Search, Verdict, answer_now,
};

/// Relays and proxies that a request may have come through.
const HOPS_MAX: u8 = 8;

/// The names of one database under those of another.
#[derive(Debug)]
pub struct Relay {
    /// An entry of the database that is asked; none: the one that the request's own name belongs to.
    pub real: Option<NormalDn>,
    pub policy: Arc<AccessPolicy>,
    /// As shown.
    pub suffixes: Vec<String>,
}

fn in_circles() -> LdapResult {
    let text = format!(
        "the request has come through {HOPS_MAX} relays, the most there may be: does one of them lead to itself, or back to another?"
    );
    LdapResult::with(ResultCode::LOOP_DETECT, text)
}

fn nowhere() -> LdapResult {
    LdapResult::with(ResultCode::NO_SUCH_OBJECT, "no database of this server holds the real name")
}

/// The controls of the request that goes on.
fn further(controls: &RequestControls) -> RequestControls {
    controls.with(|values| values.hops = values.hops.saturating_add(1))
}

impl Relay {
    /// The database that a request on this name goes to.
    ///
    /// # Errors
    /// A request that goes round in circles; a name that no database has.
    fn to<'a>(&self, context: &Context<'a>, dn: &NormalDn, hops: u8) -> Result<&'a dyn Backend, LdapResult> {
        if hops >= HOPS_MAX {
            return Err(in_circles());
        }
        let router = context.router;
        let Some(real) = &self.real else { return router.backend(dn).ok_or_else(nowhere) };
        // The name may be in a database that is glued below that one.
        let below = router.glued_below(real, Scope::Subtree).into_iter();
        let holders = below.filter(|(_, suffix, _)| dn.is_in_scope(suffix, Scope::Subtree));
        let holder = holders.max_by_key(|(_, suffix, _)| suffix.depth()).map(|(backend, ..)| backend);
        holder.or_else(|| router.backend(real)).ok_or_else(nowhere)
    }

    /// The controls of a request go with an overlay in front of the real database only if that heeds them.
    fn check_heeded(backend: &dyn Backend, controls: &RequestControls) -> Result<(), LdapResult> {
        let mut critical = controls.overlays.iter().filter(|sent| sent.critical);
        match critical.all(|sent| backend.heeds(sent.control.oid)) {
            true => Ok(()),
            false => Err(LdapResult::with(
                ResultCode::UNAVAILABLE_CRITICAL_EXTENSION,
                "critical control unavailable in context",
            )),
        }
    }
}

impl Backend for Relay {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result: LdapResult| Box::new((result, Vec::new()));
        let backend = self.to(context, search.base, search.controls.hops).map_err(refused)?;
        Self::check_heeded(backend, &search.controls).map_err(refused)?;
        let controls = further(&search.controls);
        let below: Vec<Below<'_>> = match search.request.scope {
            Scope::Base => Vec::new(),
            scope => context.router.glued_below(search.base, scope),
        };
        let search = Search { controls, ..search };
        if below.is_empty() {
            return backend.open(context, search);
        }
        glue::open(backend, &below, context, search)
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        let backend = self.to(context, compare.dn, compare.controls.hops);
        let backend = backend.and_then(|backend| {
            Self::check_heeded(backend, compare.controls)?;
            Ok(backend)
        });
        match backend {
            Ok(backend) => {
                let controls = further(compare.controls);
                backend.compare(context, &Compare { controls: &controls, ..*compare }, later)
            }
            Err(refused) => Reply::Now((refused, Vec::new())),
        }
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        match self.to(context, bind.dn, bind.controls.hops) {
            Ok(backend) => {
                let controls = further(bind.controls);
                backend.bind(context, &Bind { controls: &controls, ..*bind }, later)
            }
            // Which names are held is not told to who binds.
            Err(refused) if refused.code == ResultCode::NO_SUCH_OBJECT => {
                Reply::Now(LdapResult::new(ResultCode::INVALID_CREDENTIALS).into())
            }
            Err(refused) => Reply::Now(refused.into()),
        }
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        match self.to(context, change.dn, change.hops) {
            Ok(backend) => {
                let hops = change.hops.saturating_add(1);
                backend.modify_password(context, PasswordChange { hops, ..change }, later)
            }
            Err(refused) => Reply::Now(refused.into()),
        }
    }

    fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let backend = self.to(context, request.dn, request.controls.hops);
        let backend = backend.and_then(|backend| {
            Self::check_heeded(backend, request.controls)?;
            Ok(backend)
        });
        match backend {
            Ok(backend) => {
                let controls = further(request.controls);
                backend.extended(context, &ExtendedOperation { controls: &controls, ..*request }, later)
            }
            Err(refused) => Reply::Now(refused.into()),
        }
    }

    fn update(&self, context: &Context<'_>, changes: Changes, completion: Completion) -> PendingAnswer {
        let (request, target) = match changes {
            Changes::One(request, Some(target)) => (request, target),
            Changes::One(..) => {
                return answer_now(completion, LdapResult::invalid_dn());
            }
            Changes::Together(_) => {
                let text = "a relayed database takes no transactions; name the entries in the real one";
                return answer_now(completion, LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
            }
        };
        let backend = self.to(context, &target, request.controls.hops);
        let backend = backend.and_then(|backend| {
            Self::check_heeded(backend, &request.controls)?;
            Ok(backend)
        });
        match backend {
            Ok(backend) => {
                let request = WriteRequest { controls: further(&request.controls), ..request };
                backend.update(context, Changes::One(request, Some(target)), completion)
            }
            Err(refused) => answer_now(completion, refused),
        }
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(Arc::clone(&self.policy))
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.extend(self.suffixes.iter().cloned());
    }
}

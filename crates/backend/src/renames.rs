//! In front of a database whose entries another server or another database keeps: a rename leaves an entry in it. Databases that are stored
//! here see to that themselves.

use std::sync::Arc;

use larix_engine::write::{Completion, WriteOperation};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{NormalDn, Schema};

use crate::backend::{Backend, Context};
use crate::intercept::{Interceptor, Next, Operations};
use crate::operation::{Changes, PendingAnswer, answer_now};

/// Stands in front of all overlays of the database: names are those that clients see.
#[derive(Debug)]
pub struct RenamesWithin {
    schema: Arc<Schema>,
}

impl RenamesWithin {
    pub fn new(schema: Arc<Schema>) -> Self {
        Self { schema }
    }

    /// Why a change is refused: it gives an entry a name that another database holds, or none.
    fn refusal(
        &self,
        context: &Context<'_>,
        operation: &WriteOperation,
        dn: &NormalDn,
    ) -> Option<LdapResult> {
        let WriteOperation::ModifyDn { new_rdn, new_superior, .. } = operation else { return None };
        // Who keeps the entry may know attributes that are unknown here, and names outside of the database with them.
        let invalid = |text: &str| Some(LdapResult::with(ResultCode::INVALID_DN_SYNTAX, text));
        if new_superior.as_deref().is_some_and(|superior| self.schema.parse_dn(superior).is_err()) {
            return invalid("invalid newSuperior");
        }
        let Some(renamed) = renamed(&self.schema, dn, new_rdn, new_superior.as_deref()) else {
            return invalid("invalid new RDN");
        };
        let own = context.router.backend(dn)?;
        let is_own = |other: &dyn Backend| std::ptr::addr_eq(own, other);
        if context.router.backend(&renamed).is_some_and(is_own) {
            return None;
        }
        Some(LdapResult::with(ResultCode::AFFECTS_MULTIPLE_DSAS, "cannot rename between DSAs"))
    }
}

impl Interceptor for RenamesWithin {
    fn requests(&self) -> Operations {
        Operations::UPDATE
    }

    fn only_listens(&self) -> bool {
        true
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        completion: Completion,
    ) -> PendingAnswer {
        if let Changes::One(request, Some(dn)) = &changes
            && let Some(refused) = self.refusal(context, &request.operation, dn)
        {
            return answer_now(completion, refused);
        }
        next.update(context, changes, completion)
    }
}

/// What a rename calls an entry; `None`: a name that cannot be read.
pub(crate) fn renamed(
    schema: &Schema,
    dn: &NormalDn,
    new_rdn: &str,
    new_superior: Option<&str>,
) -> Option<NormalDn> {
    let superior = match new_superior {
        Some(superior) => schema.parse_dn(superior).ok()?,
        None => dn.parent()?,
    };
    match superior.is_root() {
        true => schema.parse_dn(new_rdn).ok(),
        false => schema.parse_dn(&format!("{new_rdn},{superior}")).ok(),
    }
}

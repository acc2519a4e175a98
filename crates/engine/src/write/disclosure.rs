//! What the answer to a refused change discloses. An entry that the requester may not know of looks as if it were not there:
//! OpenLDAP asks for `disclose` when it reads, and discloses everything to those who try to write.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Snapshot;

use super::operator::Operator;
use super::{add, modify_dn};
use crate::access::Privilege;
use crate::budget::{LimitExceeded, RequestLimit};
use crate::change::prepare::{PreparedChange, PreparedModifyDn};
use crate::entry::EntryId;
use crate::failure::Failure;
use crate::fault::Fault;
use crate::search::hidden;

/// The answer to a refused change.
pub(crate) fn disclosed<V: Snapshot>(
    operator: &Operator<'_, V>,
    operation: &PreparedChange,
    refused: LdapResult,
) -> Result<LdapResult, Fault> {
    let dn = operation.dn();
    let telling = [
        ResultCode::INSUFFICIENT_ACCESS_RIGHTS,
        ResultCode::NO_SUCH_OBJECT,
        ResultCode::ENTRY_ALREADY_EXISTS,
        // An assertion is looked at before the rights, and so is a referral object.
        ResultCode::ASSERTION_FAILED,
        ResultCode::REFERRAL,
        // What the rules and an assertion take grows with the entry.
        ResultCode::ADMIN_LIMIT_EXCEEDED,
    ];
    if operator.is_root() || !telling.contains(&refused.code) {
        return Ok(refused);
    }
    let resolved = operator.resolve(dn)?;
    if refused.code == ResultCode::ENTRY_ALREADY_EXISTS {
        return taken(operator, operation, refused);
    }
    let nearest = resolved.id.unwrap_or(resolved.nearest);
    if nearest == EntryId::ROOT {
        return Ok(refused);
    }
    let mut name = dn.clone();
    for _ in 0..resolved.missing {
        name = name.parent().unwrap_or_else(NormalDn::root);
    }
    if matched(operator, &name, nearest)?.is_some() {
        return Ok(refused);
    }
    match operation {
        PreparedChange::ModifyDn(rename) => renamed(operator, rename),
        _ => absent(operator, nearest),
    }
}

/// The answer about an entry that the requester may not know of, and about a name below it.
fn absent<V: Snapshot>(operator: &Operator<'_, V>, hidden: EntryId) -> Result<LdapResult, Fault> {
    hidden::missing_with(&operator.view, hidden, &[], |id| {
        let current = operator.current_entry(id)?;
        matched(operator, &operator.view.names.normal_dn(&current.view()?)?, id)
    })
}

/// The answer to the rename of an entry that the requester may not know of: the rights to its superior come first, as where no such
/// entry is.
fn renamed<V: Snapshot>(operator: &Operator<'_, V>, rename: &PreparedModifyDn) -> Result<LdapResult, Fault> {
    let dn = rename.dn.parent().unwrap_or_else(NormalDn::root);
    let superior = match operator.resolve(&dn)?.id {
        Some(id) => matched(operator, &dn, id)?,
        None => None,
    };
    let Some(superior) = superior else { return Ok(modify_dn::missing_parent(operator)) };
    match modify_dn::check_old_parent(operator, rename) {
        Ok(_) => Ok(LdapResult::new(ResultCode::NO_SUCH_OBJECT).matched(superior)),
        Err(Failure::Refused(refused)) => Ok(refused),
        Err(Failure::Storage(Fault::StepsSpent)) => Ok(steps_spent(operator)),
        Err(Failure::Storage(fault)) => Err(fault),
    }
}

/// The answer where rules take more than a request has.
fn steps_spent<V: Snapshot>(operator: &Operator<'_, V>) -> LdapResult {
    let most = operator.context.settings.request_limits.most(RequestLimit::Steps);
    LimitExceeded { limit: RequestLimit::Steps, most }.into()
}

/// The answer to the adding of an entry that is there. A requester that may neither add one of the name nor know of it is
/// answered as if it did not exist.
fn taken<V: Snapshot>(
    operator: &Operator<'_, V>,
    operation: &PreparedChange,
    refused: LdapResult,
) -> Result<LdapResult, Fault> {
    let dn = operation.dn();
    let Some(superior) = dn.parent().filter(|_| !operator.is_suffix(dn)) else { return Ok(refused) };
    let resolved = (operator.resolve(dn)?.id, operator.resolve(&superior)?.id);
    let (Some(id), Some(superior_id)) = resolved else { return Ok(refused) };
    let current = operator.current_entry(superior_id)?;
    // What is answered where no such entry is.
    let otherwise = match operator.may_change_children(&superior, Some(&current), Privilege::Add) {
        Ok(true) => match added(operator, operation) {
            Ok(()) => return Ok(refused),
            Err(Failure::Refused(otherwise)) => otherwise,
            Err(Failure::Storage(Fault::StepsSpent)) => steps_spent(operator),
            Err(Failure::Storage(fault)) => return Err(fault),
        },
        Ok(false) => LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, "no write access to parent"),
        Err(Fault::StepsSpent) => steps_spent(operator),
        Err(fault) => return Err(fault),
    };
    if matched(operator, dn, id)?.is_some() {
        return Ok(refused);
    }
    Ok(match matched(operator, &superior, superior_id)? {
        Some(_) => otherwise,
        None => absent(operator, superior_id)?,
    })
}

/// What rights to the new entry itself an add takes; a rename to a name takes none there.
fn added<V: Snapshot>(operator: &Operator<'_, V>, operation: &PreparedChange) -> Result<(), Failure> {
    match operation {
        PreparedChange::Add { dn, entry, mods } => add::check_access(operator, dn, entry, mods),
        _ => Ok(()),
    }
}

/// The DN of an entry as it is shown, if the requester may know of it.
pub(crate) fn matched<V: Snapshot>(
    operator: &Operator<'_, V>,
    dn: &NormalDn,
    id: EntryId,
) -> Result<Option<String>, Fault> {
    let current = operator.current_entry(id)?;
    let may = match operator.may_change_entry(dn, &operator.reader(&current)?, Privilege::Disclose) {
        // Rules that take too much deny.
        Err(Fault::StepsSpent) => false,
        may => may?,
    };
    if !may {
        return Ok(None);
    }
    operator.view.dn(&current.view()?).map(Some)
}

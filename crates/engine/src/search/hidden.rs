//! Entries that the requester may not know of: they are answered as if they were not there.
//!
//! A name that no entry has, and one of a hidden entry, are answered with the nearest superior that the requester may know of, unless rules
//! hide an entry of that name whatever else it has: then no superior is named, as in OpenLDAP. Either way it does not matter whether there is one.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Snapshot;

use super::entry::GuardedEntry;
use super::gate::Gate;
use super::scope::{self, FollowedAlias};
use crate::access::Privilege;
use crate::database::View;
use crate::entry::{EntryId, EntryView};
use crate::fault::Fault;

/// The DN of an entry, if the requester may know that it exists.
pub(crate) fn disclosed<N: Snapshot>(
    view: &View<'_, N>,
    gate: &Gate<'_>,
    id: EntryId,
) -> Result<Option<String>, Fault> {
    let Some(record) = view.record(id)? else { return Ok(None) };
    let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate.clone());
    let may = seen.granted(seen.allows_entry(Privilege::Disclose))?;
    if may { view.dn(&seen.reader.view).map(Some) } else { Ok(None) }
}

/// The answer about a hidden entry, or about a name below it: noSuchObject with the nearest superior that the requester may know of, as
/// about a name that no entry has. If an alias led to the entry, the alias is answered as one whose entry is not there.
///
/// `asked`: the name that was asked for. `followed`: the aliases on the way to the entry, in their order.
pub(crate) fn missing<N: Snapshot>(
    view: &View<'_, N>,
    gate: &Gate<'_>,
    (hidden, asked): (EntryId, &NormalDn),
    followed: &[FollowedAlias],
) -> Result<LdapResult, Fault> {
    let answer = missing_with(view, hidden, followed, |id| disclosed(view, gate, id))?;
    unless_hidden_by_name(view, gate, (hidden, asked), answer)
}

/// The answer about a name that is not there, or that is to look so: without a superior if rules hide any entry of that name. `at`: an entry
/// at or above the name.
pub(crate) fn unless_hidden_by_name<N: Snapshot>(
    view: &View<'_, N>,
    gate: &Gate<'_>,
    (at, asked): (EntryId, &NormalDn),
    answer: LdapResult,
) -> Result<LdapResult, Fault> {
    if answer.matched_dn.is_empty() {
        return Ok(answer);
    }
    let Some(record) = view.record(at)? else { return Ok(answer) };
    let seen = GuardedEntry::new(view, view.reader(at, &record)?, gate.clone());
    match seen.granted(seen.discloses_name(asked))? {
        true => Ok(answer),
        false => Ok(LdapResult { matched_dn: String::new(), ..answer }),
    }
}

/// The same where `disclosed` says what the requester may know of.
pub(crate) fn missing_with<N: Snapshot>(
    view: &View<'_, N>,
    hidden: EntryId,
    followed: &[FollowedAlias],
    disclosed: impl Fn(EntryId) -> Result<Option<String>, Fault>,
) -> Result<LdapResult, Fault> {
    let absent = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
    let (mut at, mut followed) = (hidden, followed);
    loop {
        let led_here = followed.split_last().filter(|(last, _)| last.target == at);
        if let Some((last, before)) = led_here {
            (at, followed) = (last.alias, before);
            if let Some(dn) = disclosed(at)? {
                return Ok(scope::target_not_found().matched(dn));
            }
            continue;
        }
        let Some(record) = view.record(at)? else { return Ok(absent) };
        at = EntryView::parse(at, &record)?.parent();
        if at == EntryId::ROOT {
            return Ok(absent);
        }
        if let Some(dn) = disclosed(at)? {
            return Ok(absent.matched(dn));
        }
    }
}

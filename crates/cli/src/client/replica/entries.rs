//! Searches through all pages, and entries as they are compared.

use std::collections::{BTreeMap, BTreeSet};

use larix_client::{ClientError, Session};
use larix_configuration::local_attributes;
use larix_engine::csn::Csn;
use larix_proto::control::{ControlValue, PagedResults, Subentries};
use larix_proto::{Attributes, ControlBuf, FilterBuf, Response, ResultCode, Scope, Values, client, oid};
use larix_replication::digest::{EntryDigest, Row, is_local};
use uuid::Uuid;

/// Entries in a page.
const PAGE: u32 = 1_000;
/// Entries asked for by their entryUUIDs in one search.
const TOGETHER: usize = 50;
/// Of a UUID (RFC 9562). Who makes one sets some of these bits.
const VERSION_AND_VARIANT: u128 = 0xf000_c000_0000_0000_0000;
/// Users' attributes and operational ones.
pub(super) const ALL_ATTRIBUTES: [&str; 2] = ["*", "+"];

/// What is searched for.
pub(in crate::client) struct EntryQuery<'a> {
    pub(in crate::client) base: &'a str,
    pub(in crate::client) scope: Scope,
    pub(in crate::client) filter: &'a FilterBuf,
    pub(in crate::client) attributes: &'a [&'a str],
    pub(in crate::client) kind: Kind,
}

/// Searches below a base see one kind of entries or the other (RFC 3672).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Kind {
    Entries,
    /// None where the server does not know the control.
    Subentries,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Entries, Self::Subentries];
}

/// Calls `visit` with each entry's DN and attributes, page by page; entries that are referrals are entries.
pub(in crate::client) fn each(
    session: &mut Session,
    query: &EntryQuery<'_>,
    visit: &mut dyn FnMut(&str, Attributes<'_>),
) -> Result<(), ClientError> {
    let mut cookie = Vec::new();
    loop {
        let page = PagedResults { size: PAGE, cookie: &cookie }.encode();
        let control = |oid: &'static str, value| ControlBuf { oid: oid.into(), critical: false, value };
        let mut own = Vec::new();
        // Also asked for by the caller (`-M`), it would stand there twice.
        if !session.controls.iter().any(|common| common.oid == oid::MANAGE_DSA_IT) {
            own.push(control(oid::MANAGE_DSA_IT, None));
        }
        if query.scope != Scope::Base {
            own.push(control(oid::PAGED_RESULTS, page));
        }
        if query.kind == Kind::Subentries {
            // Critical: who passes it over would answer with all entries once more.
            let value = Subentries { visible: true }.encode();
            own.push(ControlBuf { oid: oid::SUBENTRIES.into(), critical: true, value });
        }
        let mut request = client::Search::new(query.base, query.scope, query.filter.as_filter());
        request.attributes = query.attributes;
        let id =
            session.send(|out, id, common| client::search(out, id, &request, &[common, &own].concat()))?;
        cookie = loop {
            let message = session.connection.receive()?;
            if message.id != id {
                continue;
            }
            if let Response::Entry(entry) = message.response {
                visit(entry.dn, entry.attributes);
                continue;
            }
            let Some((_, result)) = message.response.result() else { continue };
            if query.kind == Kind::Subentries && result.code == ResultCode::UNAVAILABLE_CRITICAL_EXTENSION {
                return Ok(());
            }
            if result.code != ResultCode::SUCCESS {
                return Err(ClientError::Refused { step: "search", result: result.to_owned() });
            }
            let page = message.controls.iter().find(|control| control.oid == oid::PAGED_RESULTS);
            break page
                .and_then(|control| PagedResults::decode(control.value).ok().map(|page| page.cookie.to_vec()))
                .unwrap_or_default();
        };
        if cookie.is_empty() {
            return Ok(());
        }
    }
}

/// What was found; nothing where the server has what is above the base, and not the base itself.
///
/// # Errors
/// All others.
pub(super) fn or_nothing<T: Default>(found: Result<T, ClientError>) -> Result<T, ClientError> {
    match found {
        Err(ClientError::Refused { result, .. })
            if result.code == ResultCode::NO_SUCH_OBJECT && !result.matched_dn.is_empty() =>
        {
            Ok(T::default())
        }
        found => found,
    }
}

/// An entry as a server shows it, without what each server keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) dn: String,
    pub(super) csn: Option<Csn>,
    /// By description in lower case.
    pub(super) attributes: BTreeMap<String, BTreeSet<Vec<u8>>>,
}

impl Shown {
    /// Whether the other server shows the same; names without regard to case.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.csn == other.csn
            && self.dn.to_lowercase() == other.dn.to_lowercase()
            && self.attributes == other.attributes
    }
}

/// What of an entry is compared: each attribute that is not a server's own and not to be left out, by its description in
/// lower case.
pub(super) fn compared<'a>(
    attributes: Attributes<'a>,
    without: &[String],
    visit: &mut dyn FnMut(String, Values<'a>),
) {
    for attribute in attributes.iter() {
        let name = attribute.description.to_ascii_lowercase();
        let kind = name.split(';').next().unwrap_or_default();
        let of_overlays = || local_attributes().iter().any(|local| local.eq_ignore_ascii_case(kind));
        let left_out = || without.iter().any(|left_out| left_out.eq_ignore_ascii_case(kind));
        if !is_local(kind) && !of_overlays() && !left_out() {
            visit(name, attribute.values);
        }
    }
}

/// An entry as it is compared by a search: by entryUUID, entryCSN and DN, names without regard to case, and by its values, too,
/// where it is said which attributes are left out of that.
pub(super) fn row(dn: &str, attributes: Attributes<'_>, values_without: Option<&Vec<String>>) -> Row {
    let (uuid, csn) = identity(dn, attributes);
    let mut digest = EntryDigest::new(&uuid, None, dn.to_lowercase().as_bytes(), csn.as_ref());
    if let Some(without) = values_without {
        compared(attributes, without, &mut |name, values| {
            values.iter().for_each(|value| digest.value(&name, value));
        });
    }
    Row { uuid, csn, digest: digest.finish() }
}

/// The entries of these entryUUIDs, or [made up](is_made_up) ones, as far as they are there.
pub(super) fn by_uuid(
    session: &mut Session,
    base: &str,
    uuids: &[Uuid],
    without: &[String],
) -> Result<BTreeMap<Uuid, Shown>, ClientError> {
    let mut found = BTreeMap::new();
    let mut filters = Vec::new();
    for some in uuids.chunks(TOGETHER) {
        let terms: String = some.iter().map(|uuid| format!("(entryUUID={uuid})")).collect();
        filters.push(super::filter(&format!("(|{terms})"))?);
    }
    if uuids.iter().any(is_made_up) {
        filters.push(super::filter("(!(entryUUID=*))")?);
    }
    for filter in &filters {
        for kind in Kind::ALL {
            let query = EntryQuery { base, scope: Scope::Subtree, filter, attributes: &ALL_ATTRIBUTES, kind };
            each(session, &query, &mut |dn, attributes| {
                let (uuid, csn) = identity(dn, attributes);
                if !uuids.contains(&uuid) {
                    return;
                }
                let mut shown = Shown { dn: dn.to_owned(), csn, ..Shown::default() };
                compared(attributes, without, &mut |name, values| {
                    shown.attributes.insert(name, values.iter().map(<[u8]>::to_vec).collect());
                });
                found.insert(uuid, shown);
            })?;
        }
    }
    Ok(found)
}

/// entryUUID and entryCSN. Where no entryUUID is shown one is made up of the name, so that such entries are not taken for one
/// another.
fn identity(dn: &str, attributes: Attributes<'_>) -> (Uuid, Option<Csn>) {
    let (mut uuid, mut csn) = (None, None);
    for attribute in attributes.iter() {
        let first = attribute.values.iter().next().and_then(|value| std::str::from_utf8(value).ok());
        let Some(first) = first else { continue };
        if attribute.description.eq_ignore_ascii_case("entryUUID") {
            uuid = Uuid::parse_str(first).ok();
        } else if attribute.description.eq_ignore_ascii_case("entryCSN") {
            csn = first.parse().ok();
        }
    }
    let made_up = || {
        let name = dn.to_lowercase();
        let digest = EntryDigest::new(&Uuid::nil(), None, name.as_bytes(), None).finish();
        Uuid::from_u128(digest & !VERSION_AND_VARIANT)
    };
    (uuid.unwrap_or_else(made_up), csn)
}

/// Whether this stands for the missing entryUUID of an entry.
pub(super) fn is_made_up(uuid: &Uuid) -> bool {
    uuid.as_u128() & VERSION_AND_VARIANT == 0
}

/// What the suffix entry says of how far the server is with the changes of each.
pub(super) fn context_csns(session: &mut Session, base: &str) -> Result<Vec<Csn>, ClientError> {
    let mut csns = Vec::new();
    let filter = super::all()?;
    let query = EntryQuery {
        base,
        scope: Scope::Base,
        filter: &filter,
        attributes: &["contextCSN"],
        kind: Kind::Entries,
    };
    each(session, &query, &mut |_, attributes| {
        for attribute in attributes.iter().filter(|a| a.description.eq_ignore_ascii_case("contextCSN")) {
            let texts = attribute.values.iter().filter_map(|value| std::str::from_utf8(value).ok());
            csns.extend(texts.filter_map(|text| text.parse::<Csn>().ok()));
        }
    })?;
    csns.sort_by_key(|csn| csn.server_id);
    Ok(csns)
}

//! Searches through all pages, and entries as they are compared.

use std::collections::{BTreeMap, BTreeSet};

use larix_client::{ClientError, Session};
use larix_engine::csn::Csn;
use larix_proto::control::{ControlValue, PagedResults};
use larix_proto::{Attributes, ControlBuf, FilterBuf, Response, ResultCode, Scope, client, oid};
use larix_replication::digest::is_local;
use uuid::Uuid;

/// Entries in a page.
const PAGE: u32 = 1_000;
/// Entries asked for by their entryUUIDs in one search.
const TOGETHER: usize = 50;

/// What is searched for.
pub(super) struct Asked<'a> {
    pub(super) base: &'a str,
    pub(super) scope: Scope,
    pub(super) filter: &'a FilterBuf,
    pub(super) attributes: &'a [&'a str],
}

/// Calls `visit` with each entry's DN and attributes, page by page; entries that are referrals are entries.
pub(super) fn each(
    session: &mut Session,
    asked: &Asked<'_>,
    visit: &mut dyn FnMut(&str, Attributes<'_>),
) -> Result<(), ClientError> {
    let mut cookie = Vec::new();
    loop {
        let page = PagedResults { size: PAGE, cookie: &cookie }.encode();
        let control = |oid: &'static str, value| ControlBuf { oid: oid.into(), critical: false, value };
        let mut own = vec![control(oid::MANAGE_DSA_IT, None)];
        if asked.scope != Scope::Base {
            own.push(control(oid::PAGED_RESULTS, page));
        }
        let mut request = client::Search::new(asked.base, asked.scope, asked.filter.as_filter());
        request.attributes = asked.attributes;
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

/// An entry as a server shows it, without what each server keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) dn: String,
    pub(super) csn: Option<Csn>,
    /// By description in lower case.
    pub(super) attributes: BTreeMap<String, BTreeSet<Vec<u8>>>,
}

/// The entries of these entryUUIDs, as far as they are there.
pub(super) fn by_uuid(
    session: &mut Session,
    base: &str,
    uuids: &[Uuid],
    without: &[String],
) -> Result<BTreeMap<Uuid, Shown>, ClientError> {
    let mut found = BTreeMap::new();
    for some in uuids.chunks(TOGETHER) {
        let terms: String = some.iter().map(|uuid| format!("(entryUUID={uuid})")).collect();
        let filter = super::filter(&format!("(|{terms})"))?;
        let asked = Asked { base, scope: Scope::Subtree, filter: &filter, attributes: &["*", "+"] };
        each(session, &asked, &mut |dn, attributes| {
            let (uuid, csn) = identity(attributes);
            let mut shown = Shown { dn: dn.to_owned(), csn, ..Shown::default() };
            for attribute in attributes.iter() {
                let name = attribute.description.to_ascii_lowercase();
                let kind = name.split(';').next().unwrap_or_default();
                if !is_local(kind) && !without.iter().any(|left_out| left_out.eq_ignore_ascii_case(kind)) {
                    let values = attribute.values.iter().map(<[u8]>::to_vec);
                    shown.attributes.insert(name, values.collect());
                }
            }
            found.insert(uuid, shown);
        })?;
    }
    Ok(found)
}

/// entryUUID and entryCSN; nil and none where there is none.
pub(super) fn identity(attributes: Attributes<'_>) -> (Uuid, Option<Csn>) {
    let mut identity = (Uuid::nil(), None);
    for attribute in attributes.iter() {
        let first = attribute.values.iter().next().and_then(|value| std::str::from_utf8(value).ok());
        let Some(first) = first else { continue };
        if attribute.description.eq_ignore_ascii_case("entryUUID") {
            identity.0 = Uuid::parse_str(first).unwrap_or_default();
        } else if attribute.description.eq_ignore_ascii_case("entryCSN") {
            identity.1 = first.parse().ok();
        }
    }
    identity
}

/// What the suffix entry says of how far the server is with the changes of each.
pub(super) fn context_csns(session: &mut Session, base: &str) -> Result<Vec<Csn>, ClientError> {
    let mut csns = Vec::new();
    let filter = super::all()?;
    let asked = Asked { base, scope: Scope::Base, filter: &filter, attributes: &["contextCSN"] };
    each(session, &asked, &mut |_, attributes| {
        for attribute in attributes.iter().filter(|a| a.description.eq_ignore_ascii_case("contextCSN")) {
            let texts = attribute.values.iter().filter_map(|value| std::str::from_utf8(value).ok());
            csns.extend(texts.filter_map(|text| text.parse::<Csn>().ok()));
        }
    })?;
    csns.sort_by_key(|csn| csn.server_id);
    Ok(csns)
}

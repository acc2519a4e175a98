//! Referral objects (RFC 3296): the URLs of an entry, rewritten to what was asked for.

use larix_proto::url::{LdapUrl, UrlError};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{NormalDn, Schema};
use larix_store::Snapshot;

use crate::entry::{EntryReader, EntrySource};
use crate::fault::Fault;

/// The `ref` values of an entry without their labels.
pub fn urls<S: Snapshot>(entry: &EntryReader<'_, S>) -> Result<Vec<String>, Fault> {
    let mut urls = Vec::new();
    let Ok(description) = entry.schema.describe("ref") else { return Ok(urls) };
    entry.visit_exact(&description, &mut |value| {
        let url = String::from_utf8_lossy(value);
        if let Some(url) = url.split_ascii_whitespace().next() {
            urls.push(url.to_owned());
        }
        true
    })?;
    Ok(urls)
}

/// The answer that sends a client to these URLs: noSuchObject without one, as in OpenLDAP, because a referral has to name one (RFC 4511
/// section 4.1.9).
pub(crate) fn answer(referrals: Vec<String>, matched: String) -> LdapResult {
    if referrals.is_empty() {
        return LdapResult::with(ResultCode::NO_SUCH_OBJECT, "bad_referral object").matched(matched);
    }
    LdapResult { matched_dn: matched, referrals, ..LdapResult::new(ResultCode::REFERRAL) }
}

/// Rewrites URLs of the referral object `base` for a request on `target`, an entry at or below it. Without a target it
/// is a continuation reference to the object itself. The scope is given to URLs that have none.
pub fn rewrite(
    schema: &Schema,
    urls: &[String],
    base: Option<&str>,
    target: Option<&str>,
    scope: Option<Scope>,
) -> Vec<String> {
    urls.iter().filter_map(|url| rewrite_one(schema, url, base, target, scope)).collect()
}

fn rewrite_one(
    schema: &Schema,
    text: &str,
    base: Option<&str>,
    target: Option<&str>,
    scope: Option<Scope>,
) -> Option<String> {
    let mut url = match LdapUrl::parse(text) {
        Ok(url) => url,
        // Another scheme is handed on as it is.
        Err(UrlError::Scheme(_)) => return Some(text.to_owned()),
        Err(_) => return None,
    };
    url.dn = rewritten_dn(schema, &url.dn, base, target);
    url.scope = url.scope.or(scope);
    Some(url.to_string())
}

fn rewritten_dn(schema: &Schema, given: &str, base: Option<&str>, target: Option<&str>) -> String {
    let Some(target) = target else {
        return if given.is_empty() { base.unwrap_or_default().to_owned() } else { given.to_owned() };
    };
    let Some(base) = base else { return target.to_owned() };
    if given.is_empty() {
        return target.to_owned();
    }
    let normal = |dn: &str| schema.parse_dn(dn).ok();
    let (Some(normal_base), Some(normal_target)) = (normal(base), normal(target)) else {
        return target.to_owned();
    };
    if normal(given).as_ref() == Some(&normal_base) || !normal_target.is_within(&normal_base) {
        return target.to_owned();
    }
    match head(target, &normal_target, &normal_base) {
        "" => given.to_owned(),
        head => format!("{head},{given}"),
    }
}

/// The RDNs of `target` that are below `base`, as they are shown.
fn head<'t>(target: &'t str, normal_target: &NormalDn, normal_base: &NormalDn) -> &'t str {
    let mut below = normal_target.depth() - normal_base.depth();
    let mut escaped = false;
    let mut quoted = false;
    if below == 0 {
        return "";
    }
    for (at, byte) in target.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b';' if !quoted => {
                below -= 1;
                if below == 0 {
                    return target.get(..at).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    target
}

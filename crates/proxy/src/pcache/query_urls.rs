//! The answers of a cache as URLs, for cn=Monitor: OpenLDAP's form.

use std::fmt::Write as _;

use larix_engine::time::{Clock, Monotonic};
use larix_proto::Scope;
use larix_proto::url::percent_encode;

use super::store::{Answer, CachedAnswer, QueryId};
use super::{Cache, Settings};

/// So many are listed, those last used.
const LISTED_MAX: usize = 1_000;
const MICROS: i64 = 1_000_000;

impl Cache {
    /// `ldap:///BASE??SCOPE?FILTER?x-attrset=...`, the last used first.
    pub fn listed(&self, settings: &Settings, clock: &dyn Clock) -> Vec<String> {
        let (now, today) = (clock.monotonic(), clock.now().0);
        let at = |moment: Monotonic| {
            let ahead = i64::try_from(moment.0.saturating_sub(now.0) / 1_000).unwrap_or(i64::MAX);
            today.saturating_add(ahead) / MICROS
        };
        self.all().iter().rev().take(LISTED_MAX).map(|cached| url(cached, settings, &at)).collect()
    }
}

fn url(cached: &CachedAnswer, settings: &Settings, at: &dyn Fn(Monotonic) -> i64) -> String {
    let region = &cached.query.region;
    let mut url = "ldap:///".to_owned();
    percent_encode(region.base.as_str(), &mut url);
    url.push_str(match region.scope {
        Scope::Base => "??base?",
        Scope::OneLevel => "??one?",
        Scope::Subtree => "??sub?",
        Scope::Children => "??subordinate?",
    });
    percent_encode(&cached.query.sent.to_string(), &mut url);
    let set = settings.templates.get(cached.query.template).map_or(0, |template| template.set);
    let is_whole = if matches!(cached.answer, Answer::Entries(_)) { "TRUE" } else { "FALSE" };
    // Writing to a text does not fail.
    let _ = write!(
        url,
        "?x-template={},x-attrset={set},x-expiry={},x-answerable={is_whole}",
        cached.query.template,
        at(cached.expires)
    );
    if let Some(refresh) = cached.refresh {
        let _ = write!(url, ",x-refresh={}", at(refresh));
    }
    url.push_str(",x-uuid=");
    url.push_str(&query_id_text(&cached.id));
    url
}

/// A UUID as text (RFC 9562 section 4).
pub(super) fn query_id_text(id: &QueryId) -> String {
    let mut text = String::new();
    for (at, byte) in id.iter().enumerate() {
        let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
        // Writing to a text does not fail.
        let _ = write!(text, "{dash}{byte:02x}");
    }
    text
}

//! Whether the requester meets one condition of a clause.

use std::cell::RefCell;
use std::collections::HashMap;

use larix_schema::{AttributeDescription, NormalDn, ObjectClassId};
use regex::Regex;

use super::ask::{Among, Holds, Missing};
use super::compile::{
    self, CompiledCondition, CompiledDomain, CompiledPeer, CompiledSet, CompiledText, CompiledWho, GroupName,
};
use super::evaluate::{Evaluation, in_scope};
use super::expand::{Captures, Template};
use super::facts::value_steps;
use super::item::{ItemKind, Value};
use super::posix;
use super::query::GroupQuery;
use super::rule::{Identity, PeerPattern, StrengthLayer};
use super::subject::PeerNames;

impl<'a> Evaluation<'a> {
    fn dn_of(&self, identity: Identity) -> Option<&'a NormalDn> {
        match identity {
            Identity::Authorization => self.ask.subject.dn.as_ref(),
            Identity::Authentication => self.ask.subject.authentication_dn(),
        }
    }

    /// Whether the value is the requester's own name.
    pub(super) fn is_own_value(&self, identity: Identity) -> Holds {
        let Some(own) = self.dn_of(identity) else { return Holds::No };
        match self.ask.item {
            Some(ItemKind::Attribute(description)) if compile::has_dn_syntax(self.schema(), description) => {}
            Some(_) => return Holds::No,
            None => return Holds::Unknown(Missing::Value),
        }
        match self.ask.value {
            Value::Unknown => Holds::Unknown(Missing::Value),
            Value::Whole => Holds::No,
            Value::Is(value) => Holds::of(self.value_dn(value).is_some_and(|value| value == *own)),
        }
    }

    /// Whether the requester meets one condition.
    pub(super) fn is(
        &self,
        condition: &CompiledCondition,
        captures: Option<&Captures<'_>>,
        own_value: Option<Identity>,
    ) -> Holds {
        let memo = condition.memo.and_then(|number| Some((number, self.ask.target?.entry.memo()?)));
        if let Some((number, memo)) = memo
            && let Some(holds) = memo.condition(number)
        {
            return Holds::of(holds);
        }
        let holds = self.meets(&condition.who, captures, own_value);
        if let Some((number, memo)) = memo
            && !matches!(holds, Holds::Unknown(_))
            && !self.has_failed()
        {
            memo.note_condition(number, holds == Holds::Yes);
        }
        holds
    }

    fn meets(
        &self,
        who: &CompiledWho,
        captures: Option<&Captures<'_>>,
        own_value: Option<Identity>,
    ) -> Holds {
        let subject = self.ask.subject;
        match who {
            CompiledWho::Anyone => Holds::Yes,
            CompiledWho::Anonymous(identity) => Holds::of(self.dn_of(*identity).is_none()),
            CompiledWho::Users(identity) => Holds::of(self.dn_of(*identity).is_some()),
            CompiledWho::SelfEntry { identity, level } => self.is_self(*identity, *level),
            CompiledWho::Dn { identity, scope, dn } => Holds::of(match self.dn_of(*identity) {
                Some(own) => in_scope(own, *scope, dn),
                None => in_scope(&NormalDn::root(), *scope, dn),
            }),
            CompiledWho::DnExpanded { identity, scope, dn } => {
                self.expanded(captures, dn, str::to_owned, |text| {
                    let own = self.dn_of(*identity).cloned().unwrap_or_else(NormalDn::root);
                    self.schema().parse_dn(text).is_ok_and(|dn| in_scope(&own, *scope, &dn))
                })
            }
            CompiledWho::DnRegex { identity, regex } => Holds::of(regex.is_match(self.text_of(*identity))),
            CompiledWho::DnRegexExpanded { identity, regex } => {
                self.expanded(captures, regex, regex::escape, |pattern| {
                    self.charge(PATTERN_STEPS * value_steps(pattern.as_bytes()))
                        && matches(pattern, self.text_of(*identity))
                })
            }
            CompiledWho::DnAttribute { identity, attribute } => {
                let Some(own) = self.dn_of(*identity) else { return Holds::No };
                // With `self`, being the value is enough: to be it by the same of the two names.
                if own_value == Some(*identity) {
                    return Holds::Yes;
                }
                let Some(target) = self.ask.target else { return Holds::Unknown(Missing::Entry) };
                let mut found = false;
                target.entry.visit(attribute, &mut |value| {
                    found = self.value_dn(value).is_some_and(|value| value == *own);
                    !found && self.charge(value_steps(value))
                });
                Holds::of(found)
            }
            CompiledWho::Group { group, class, attribute } => {
                self.is_in_group((group, *class, attribute), captures)
            }
            CompiledWho::Set(set) => self.is_in_set(set, captures),
            CompiledWho::Domain(domain) => self.is_in_domain(domain, captures),
            // Who it is for, and what it grants, is said in the entries.
            CompiledWho::Aci => Holds::Yes,
            CompiledWho::PeerName(CompiledPeer::Parsed(pattern)) => {
                Holds::of(is_peer(pattern, &subject.peer))
            }
            CompiledWho::PeerName(CompiledPeer::Text(text)) => {
                self.is_text(text, &subject.peer.peer_name, captures)
            }
            CompiledWho::SockName(text) => self.is_text(text, &subject.peer.sock_name, captures),
            CompiledWho::SockUrl(text) => self.is_text(text, &subject.peer.sock_url, captures),
            CompiledWho::StrengthFactor { layer, minimum } => Holds::of(
                *minimum
                    <= match layer {
                        StrengthLayer::Overall => subject.strength.overall,
                        StrengthLayer::Transport => subject.strength.transport,
                        StrengthLayer::Tls => subject.strength.tls,
                        StrengthLayer::Sasl => subject.strength.sasl,
                    },
            ),
        }
    }

    fn is_in_group(
        &self,
        (group, class, attribute): (&GroupName, ObjectClassId, &AttributeDescription),
        captures: Option<&Captures<'_>>,
    ) -> Holds {
        let Some(member) = self.dn_of(Identity::Authorization) else { return Holds::No };
        let Some(lookup) = self.lookup() else { return Holds::Unknown(Missing::Entry) };
        match group {
            GroupName::Fixed(group) => {
                Holds::of(lookup.is_member(&GroupQuery { group, class, attribute }, member))
            }
            GroupName::Expanded(template) => self.expanded(captures, template, str::to_owned, |text| {
                let Ok(group) = self.schema().parse_dn(text) else { return false };
                let query = GroupQuery { group: &group, class, attribute };
                let memo = lookup.target.entry.memo();
                if let Some(known) = memo.and_then(|memo| memo.group(&query)) {
                    return known;
                }
                let found = lookup.is_member(&query, member);
                if let (Some(memo), false) = (memo, self.has_failed()) {
                    memo.note_group(&query, found);
                }
                found
            }),
        }
    }

    fn is_in_set(&self, set: &CompiledSet, captures: Option<&Captures<'_>>) -> Holds {
        let requester = self.dn_of(Identity::Authorization);
        match set {
            CompiledSet::Never => Holds::No,
            CompiledSet::Fixed(set) if set.mentions_requester() && requester.is_none() => Holds::No,
            CompiledSet::Fixed(set) => match self.lookup() {
                Some(lookup) => Holds::of(lookup.is_set(set, requester)),
                None => Holds::Unknown(Missing::Entry),
            },
            CompiledSet::Expanded(set) if set.mentions_requester() && requester.is_none() => Holds::No,
            CompiledSet::Expanded(set) => match (self.lookup(), captures) {
                (Some(_), Some(captures)) if captures.value_is_unknown && set.refers_to_value() => {
                    Holds::Unknown(Missing::Value)
                }
                (Some(lookup), Some(captures)) => {
                    Holds::of(set.filled(captures).is_some_and(|set| lookup.is_set(&set, requester)))
                }
                _ => Holds::Unknown(Missing::Entry),
            },
        }
    }

    fn is_in_domain(&self, domain: &CompiledDomain, captures: Option<&Captures<'_>>) -> Holds {
        let peer = &self.ask.subject.peer;
        // Until the name is there, nothing that is remembered may rest on it.
        if self.ask.target.is_none() && peer.domain.get().is_none() {
            return Holds::Unknown(Missing::Entry);
        }
        match domain {
            CompiledDomain::Text(text) => self.is_text(text, peer.domain(), captures),
            CompiledDomain::Subtree(domain) => Holds::of(is_subdomain(peer.domain(), domain)),
            CompiledDomain::SubtreeExpanded(template) => {
                self.expanded(captures, template, str::to_owned, |domain| is_subdomain(peer.domain(), domain))
            }
        }
    }

    fn text_of(&self, identity: Identity) -> &'a str {
        self.dn_of(identity).map_or("", NormalDn::as_str)
    }

    fn is_self(&self, identity: Identity, level: i32) -> Holds {
        let Some(own) = self.dn_of(identity) else { return Holds::No };
        let levels = level.unsigned_abs() as usize;
        let Some(target) = self.ask.target else {
            return match self.ask.among {
                // An entry outside a subtree is no entry of it.
                Among::Within(within) if level == 0 && !own.is_within(within) => Holds::No,
                Among::Others if level == 0 => Holds::No,
                _ => Holds::Unknown(Missing::Entry),
            };
        };
        let (lower, upper) = if level < 0 { (target.dn, own) } else { (own, target.dn) };
        Holds::of(lower.ancestor(levels).is_some_and(|ancestor| !ancestor.is_root() && ancestor == *upper))
    }

    fn is_text(&self, pattern: &CompiledText, name: &str, captures: Option<&Captures<'_>>) -> Holds {
        match pattern {
            CompiledText::Any => Holds::of(!name.is_empty()),
            CompiledText::Exact(text) => Holds::of(text.eq_ignore_ascii_case(name)),
            CompiledText::Regex(regex) => Holds::of(!name.is_empty() && regex.is_match(name)),
            CompiledText::Expanded(template) => {
                self.expanded(captures, template, str::to_owned, |text| text.eq_ignore_ascii_case(name))
            }
            CompiledText::RegexExpanded(template) => {
                self.expanded(captures, template, regex::escape, |pattern| {
                    self.charge(PATTERN_STEPS * value_steps(pattern.as_bytes())) && matches(pattern, name)
                })
            }
        }
    }

    /// Fills a template in and asks about the result. What was captured stands for itself, also in a regular expression.
    fn expanded(
        &self,
        captures: Option<&Captures<'_>>,
        template: &Template,
        quote: fn(&str) -> String,
        test: impl FnOnce(&str) -> bool,
    ) -> Holds {
        match captures {
            Some(captures) if captures.value_is_unknown && template.refers_to_value() => {
                Holds::Unknown(Missing::Value)
            }
            Some(captures) => Holds::of(template.expand(captures, quote).is_some_and(|text| test(&text))),
            None => Holds::Unknown(Missing::Entry),
        }
    }
}

/// Whether a host name is the domain or below it.
fn is_subdomain(host: &str, domain: &str) -> bool {
    let Some(offset) = host.len().checked_sub(domain.len()) else { return false };
    let Some((above, same)) = host.split_at_checked(offset) else { return false };
    same.eq_ignore_ascii_case(domain) && (above.is_empty() || (above.len() > 1 && above.ends_with('.')))
}

fn is_peer(pattern: &PeerPattern, peer: &PeerNames) -> bool {
    let name = peer.peer_name.as_str();
    match pattern {
        PeerPattern::Text(_) => false,
        PeerPattern::Path(path) => name.strip_prefix("PATH=") == Some(path),
        PeerPattern::Ipv4 { address, mask, port } => {
            let Some(rest) = name.strip_prefix("IP=") else { return false };
            let (own, own_port) = rest.rsplit_once(':').unwrap_or((rest, ""));
            port_fits(*port, own_port)
                && own
                    .parse::<std::net::Ipv4Addr>()
                    .is_ok_and(|own| own.to_bits() & mask.to_bits() == address.to_bits())
        }
        PeerPattern::Ipv6 { address, mask, port } => {
            let Some((own, own_port)) = name.strip_prefix("IP=[").and_then(|rest| rest.rsplit_once(']'))
            else {
                return false;
            };
            port_fits(*port, own_port.strip_prefix(':').unwrap_or_default())
                && own
                    .parse::<std::net::Ipv6Addr>()
                    .is_ok_and(|own| own.to_bits() & mask.to_bits() == address.to_bits())
        }
    }
}

fn port_fits(wanted: Option<u16>, port: &str) -> bool {
    wanted.is_none_or(|wanted| port.parse() == Ok(wanted))
}

thread_local! {
    /// Expressions whose references were filled in: compiling costs far more than matching.
    static EXPANDED: RefCell<HashMap<String, Option<Regex>>> = RefCell::default();
}
const EXPANDED_MAX: usize = 256;
/// What it costs to compile an expression, for each step that looking at it costs. It is reckoned as if it never were there already.
const PATTERN_STEPS: u64 = 64;

fn matches(pattern: &str, text: &str) -> bool {
    EXPANDED.with_borrow_mut(|cache| {
        if let Some(known) = cache.get(pattern) {
            return known.as_ref().is_some_and(|regex| regex.is_match(text));
        }
        if cache.len() >= EXPANDED_MAX {
            cache.clear();
        }
        let compiled = posix::compile(pattern).ok();
        let found = compiled.as_ref().is_some_and(|regex| regex.is_match(text));
        cache.insert(pattern.to_owned(), compiled);
        found
    })
}

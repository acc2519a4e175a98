//! Reading one condition on the requester: `users`, `dn.subtree="..."`, `peername.ip=...`.

use super::error::AccessFault;
use super::posix;
use super::rule::{
    DnPattern, DnScope, DomainPattern, Identity, PeerPattern, StrengthLayer, TextPattern, Who,
};

/// `keyword[.style][=value]`
pub(super) struct Pieces<'t> {
    pub(super) keyword: &'t str,
    pub(super) style: Option<&'t str>,
    pub(super) value: Option<&'t str>,
}

impl<'t> Pieces<'t> {
    pub(super) fn of(word: &'t str) -> Self {
        let (left, value) = match word.split_once('=') {
            Some((left, value)) => (left, Some(value)),
            None => (word, None),
        };
        let (keyword, style) = match left.split_once('.') {
            Some((keyword, style)) => (keyword, Some(style).filter(|style| !style.is_empty())),
            None => (left, None),
        };
        Self { keyword, style, value }
    }

    fn required_value(&self) -> Result<&'t str, AccessFault> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(AccessFault::MissingValue(self.keyword.to_owned())),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StyleName {
    Scope(DnScope),
    Level(i32),
    Regex,
    Expand,
    Ip,
    Ipv6,
    Path,
}

struct Style<'t> {
    name: StyleName,
    expand: bool,
    text: &'t str,
}

impl<'t> Style<'t> {
    fn of(style: Option<&'t str>) -> Result<Self, AccessFault> {
        let text = style.unwrap_or_default();
        let (name, modifier) = match text.split_once(',') {
            Some((name, modifier)) => (name, Some(modifier)),
            None => (text, None),
        };
        let lower = name.to_ascii_lowercase();
        let name = match lower.as_str() {
            "" | "exact" | "base" | "baseobject" => StyleName::Scope(DnScope::Base),
            "one" | "onelevel" => StyleName::Scope(DnScope::OneLevel),
            "sub" | "subtree" => StyleName::Scope(DnScope::Subtree),
            "children" => StyleName::Scope(DnScope::Children),
            "regex" => StyleName::Regex,
            "expand" => StyleName::Expand,
            "ip" => StyleName::Ip,
            "ipv6" => StyleName::Ipv6,
            "path" => StyleName::Path,
            _ => match lower.strip_prefix("level") {
                Some(level) => StyleName::Level(level_number(level)?),
                None => return Err(AccessFault::UnknownStyle(text.to_owned())),
            },
        };
        let expand = match modifier {
            None => false,
            Some(modifier) if modifier.eq_ignore_ascii_case("expand") => true,
            Some(_) => return Err(AccessFault::UnknownStyle(text.to_owned())),
        };
        if expand && name == StyleName::Regex {
            return Err(AccessFault::ExpandWithRegex);
        }
        Ok(Self { name, expand, text })
    }

    fn not_here(&self, keyword: &'static str) -> AccessFault {
        AccessFault::StyleNotHere { style: self.text.to_owned(), keyword }
    }
}

/// The `{n}` of `level{n}`.
fn level_number(text: &str) -> Result<i32, AccessFault> {
    text.strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| AccessFault::BadLevel(format!("level{text}")))
}

/// Reads a condition; `None` if the word is none, but the access or what follows.
pub(super) fn condition(word: &str) -> Result<Option<Who>, AccessFault> {
    let pieces = Pieces::of(word);
    let lower = pieces.keyword.to_ascii_lowercase();
    if let Some(identified) = identity_condition(&lower, &pieces)? {
        return Ok(Some(identified));
    }
    Ok(Some(match lower.as_str() {
        "*" => Who::Anyone,
        "peername" => Who::PeerName(peer_name(&pieces)?),
        "sockname" => Who::SockName(text_pattern(&pieces, "sockname")?),
        "sockurl" => Who::SockUrl(text_pattern(&pieces, "sockurl")?),
        "domain" => Who::Domain(domain(&pieces)?),
        "set" => set(&pieces)?,
        "ssf" => strength(StrengthLayer::Overall, &pieces)?,
        "transport_ssf" => strength(StrengthLayer::Transport, &pieces)?,
        "tls_ssf" => strength(StrengthLayer::Tls, &pieces)?,
        "sasl_ssf" => strength(StrengthLayer::Sasl, &pieces)?,
        "aci" => {
            Who::Dynamic { name: "aci".to_owned(), options: None, pattern: pieces.value.map(str::to_owned) }
        }
        "group" => group(&pieces)?,
        _ if lower.starts_with("group/") => group(&pieces)?,
        _ => match lower.strip_prefix("dynacl/") {
            Some(name) => {
                let (name, options) = match name.split_once('/') {
                    Some((name, options)) => (name, Some(options.to_owned())),
                    None => (name, None),
                };
                Who::Dynamic { name: name.to_owned(), options, pattern: pieces.value.map(str::to_owned) }
            }
            None => return Ok(None),
        },
    }))
}

/// The forms that also exist with `real` in front.
fn identity_condition(lower: &str, pieces: &Pieces<'_>) -> Result<Option<Who>, AccessFault> {
    let (identity, keyword) = match lower.strip_prefix("real") {
        Some(keyword) => (Identity::Authentication, keyword),
        None => (Identity::Authorization, lower),
    };
    Ok(Some(match keyword {
        "anonymous" => {
            Style::of(pieces.style)?;
            Who::Anonymous(identity)
        }
        "users" => {
            Style::of(pieces.style)?;
            Who::Users(identity)
        }
        // `self=az` is an access.
        "self" if pieces.value.is_some() => return Ok(None),
        "self" => match Style::of(pieces.style)?.name {
            StyleName::Level(level) => Who::SelfEntry { identity, level },
            _ => Who::SelfEntry { identity, level: 0 },
        },
        "dn" => dn(identity, pieces)?,
        "dnattr" => Who::DnAttribute { identity, attribute: pieces.required_value()?.to_owned() },
        _ => return Ok(None),
    }))
}

fn dn(identity: Identity, pieces: &Pieces<'_>) -> Result<Who, AccessFault> {
    let style = Style::of(pieces.style)?;
    let scope = match style.name {
        StyleName::Regex => return dn_regex(identity, pieces.value),
        StyleName::Scope(scope) => scope,
        StyleName::Level(level) => {
            DnScope::Level(u32::try_from(level).map_err(|_| AccessFault::NegativeLevel(level))?)
        }
        _ => return Err(style.not_here("dn")),
    };
    let value = pieces.required_value()?;
    if style.expand && !has_expansion(value) {
        return Err(AccessFault::ExpandWithoutDollar);
    }
    Ok(Who::Dn { identity, pattern: DnPattern::Scoped { scope, dn: value.to_owned(), expand: style.expand } })
}

fn dn_regex(identity: Identity, value: Option<&str>) -> Result<Who, AccessFault> {
    let pattern = match value {
        None | Some("*") => return Ok(Who::Users(identity)),
        Some("") => return Ok(Who::Anonymous(identity)),
        Some(pattern) => pattern,
    };
    if matches_everything(pattern) {
        return Ok(Who::Anyone);
    }
    if [".+", "^.+", ".+$", "^.+$", ".+$$", "^.+$$"].contains(&pattern) {
        return Ok(Who::Users(identity));
    }
    let pattern = posix::without_spaces_after_commas(pattern);
    check_expandable(&pattern)?;
    Ok(Who::Dn { identity, pattern: DnPattern::Regex(pattern) })
}

/// The ways to write "any DN, also none" as a regular expression.
pub(super) fn matches_everything(pattern: &str) -> bool {
    [".*", "^.*", ".*$", "^.*$", ".*$$", "^.*$$"].contains(&pattern)
}

/// Whether a pattern refers to a submatch: `$1`, `${12}`, `${v1}`.
fn has_expansion(pattern: &str) -> bool {
    pattern.as_bytes().windows(2).any(|pair| matches!(pair, [b'$', b'{' | b'0'..=b'9']))
}

/// Tries a regular expression with its `$n` taken out, as they are filled in when a request comes.
fn check_expandable(pattern: &str) -> Result<(), AccessFault> {
    let mut trial = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '$' {
            trial.push(c);
            continue;
        }
        match rest.next() {
            None | Some('$') => trial.push('$'),
            Some('{') => while rest.next().is_some_and(|c| c != '}') {},
            Some(digit) if digit.is_ascii_digit() => {}
            // `$` before anything else: an anchor inside the pattern, as in `(a$|b)`.
            Some(other) => trial.extend(['$', other]),
        }
    }
    match posix::compile(&trial) {
        Ok(_) => Ok(()),
        Err(why) => Err(AccessFault::BadRegex { pattern: pattern.to_owned(), why }),
    }
}

fn group(pieces: &Pieces<'_>) -> Result<Who, AccessFault> {
    let style = Style::of(pieces.style)?;
    let expand = match style.name {
        StyleName::Scope(DnScope::Base) => style.expand,
        // The old name of `expand` here.
        StyleName::Regex | StyleName::Expand => true,
        _ => return Err(style.not_here("group")),
    };
    let value = pieces.required_value()?;
    let mut parts = pieces.keyword.splitn(3, '/').skip(1);
    let mut part = |default: &str| parts.next().filter(|part| !part.is_empty()).unwrap_or(default).to_owned();
    Ok(Who::Group { class: part("groupOfNames"), attribute: part("member"), expand, group: value.to_owned() })
}

fn text_pattern(pieces: &Pieces<'_>, keyword: &'static str) -> Result<TextPattern, AccessFault> {
    let style = Style::of(pieces.style)?;
    let value = pieces.required_value()?;
    text_of_style(&style, value)?.ok_or_else(|| style.not_here(keyword))
}

/// A text pattern, if the style is one for texts.
fn text_of_style(style: &Style<'_>, value: &str) -> Result<Option<TextPattern>, AccessFault> {
    let expand = match style.name {
        StyleName::Regex if value == "*" => return Ok(Some(TextPattern::Any)),
        StyleName::Regex => {
            let pattern = posix::without_spaces_after_commas(value);
            check_expandable(&pattern)?;
            return Ok(Some(TextPattern::Regex(pattern)));
        }
        StyleName::Scope(DnScope::Base) => style.expand,
        StyleName::Expand => true,
        _ => return Ok(None),
    };
    Ok(Some(match (value, expand) {
        ("*", _) => TextPattern::Any,
        (_, true) => TextPattern::Expand(value.to_owned()),
        (_, false) => TextPattern::Exact(value.to_owned()),
    }))
}

fn peer_name(pieces: &Pieces<'_>) -> Result<PeerPattern, AccessFault> {
    let style = Style::of(pieces.style)?;
    let value = pieces.required_value()?;
    match style.name {
        StyleName::Ip => {
            let (address, mask, port) = address_parts(value)?;
            Ok(PeerPattern::Ipv4 {
                address: address.parse().map_err(|_| AccessFault::BadAddress(address.to_owned()))?,
                mask: match mask {
                    Some(mask) => mask.parse().map_err(|_| AccessFault::BadMask(mask.to_owned()))?,
                    None => std::net::Ipv4Addr::BROADCAST,
                },
                port,
            })
        }
        StyleName::Ipv6 => {
            let (address, mask, port) = address_parts(value)?;
            Ok(PeerPattern::Ipv6 {
                address: address.parse().map_err(|_| AccessFault::BadAddress(address.to_owned()))?,
                mask: match mask {
                    Some(mask) => mask.parse().map_err(|_| AccessFault::BadMask(mask.to_owned()))?,
                    None => std::net::Ipv6Addr::from_bits(u128::MAX),
                },
                port,
            })
        }
        StyleName::Path => Ok(PeerPattern::Path(value.to_owned())),
        _ => text_of_style(&style, value)?.map(PeerPattern::Text).ok_or_else(|| style.not_here("peername")),
    }
}

/// `<address>[%<mask>][{<port>}]`
fn address_parts(value: &str) -> Result<(&str, Option<&str>, Option<u16>), AccessFault> {
    let (rest, port) = match value.split_once('{') {
        Some((rest, port)) => {
            let number = port.strip_suffix('}').and_then(|digits| digits.parse().ok());
            (rest, Some(number.ok_or_else(|| AccessFault::BadPort(format!("{{{port}")))?))
        }
        None => (value, None),
    };
    Ok(match rest.split_once('%') {
        Some((address, mask)) => (address, Some(mask), port),
        None => (rest, None, port),
    })
}

fn domain(pieces: &Pieces<'_>) -> Result<DomainPattern, AccessFault> {
    let style = Style::of(pieces.style)?;
    let value = pieces.required_value()?;
    if style.name == StyleName::Scope(DnScope::Subtree) {
        return Ok(DomainPattern::Subtree { domain: value.to_owned(), expand: style.expand });
    }
    text_of_style(&style, value)?.map(DomainPattern::Text).ok_or_else(|| style.not_here("domain"))
}

fn set(pieces: &Pieces<'_>) -> Result<Who, AccessFault> {
    let style = Style::of(pieces.style)?;
    let expand = match style.name {
        StyleName::Scope(DnScope::Base) => style.expand,
        StyleName::Regex | StyleName::Expand => true,
        _ => return Err(style.not_here("set")),
    };
    Ok(Who::Set { expand, pattern: pieces.required_value()?.to_owned() })
}

fn strength(layer: StrengthLayer, pieces: &Pieces<'_>) -> Result<Who, AccessFault> {
    let style = Style::of(pieces.style)?;
    if !matches!(style.name, StyleName::Regex | StyleName::Scope(DnScope::Base)) {
        return Err(style.not_here(layer.keyword()));
    }
    let value = pieces.required_value()?;
    match value.parse() {
        Ok(minimum) if minimum > 0 => Ok(Who::StrengthFactor { layer, minimum }),
        _ => Err(AccessFault::BadStrengthFactor(value.to_owned())),
    }
}

/// The fault of giving a condition of the same kind twice in one clause.
pub(super) fn repeated(given: &[Who], next: &Who) -> Option<AccessFault> {
    let kind = kind(next);
    given.iter().any(|who| self::kind(who) == kind).then_some(match next {
        Who::Anyone | Who::Anonymous(_) | Who::Users(_) | Who::SelfEntry { .. } | Who::Dn { .. } => {
            AccessFault::DnTwice
        }
        _ => AccessFault::ConditionTwice(kind.0),
    })
}

fn kind(who: &Who) -> (&'static str, Identity) {
    use Identity::Authorization;
    match who {
        Who::Anyone => ("dn", Authorization),
        Who::Anonymous(identity) | Who::Users(identity) => ("dn", *identity),
        Who::SelfEntry { identity, .. } | Who::Dn { identity, .. } => ("dn", *identity),
        Who::DnAttribute { identity, .. } => ("dnattr", *identity),
        Who::Group { .. } => ("group", Authorization),
        Who::PeerName(_) => ("peername", Authorization),
        Who::SockName(_) => ("sockname", Authorization),
        Who::SockUrl(_) => ("sockurl", Authorization),
        Who::Domain(_) => ("domain", Authorization),
        Who::Set { .. } => ("set", Authorization),
        Who::StrengthFactor { layer, .. } => (layer.keyword(), Authorization),
        Who::Dynamic { .. } => ("dynacl", Authorization),
    }
}

//! Writing a rule back: the canonical text, as olcAccess shows it, on one line.

use std::fmt::{self, Display, Formatter};

use super::privilege::Grant;
use super::rule::{
    AccessRule, AttributeSelector, ByClause, DnPattern, DnScope, DomainPattern, FlowControl, Identity,
    PeerPattern, TargetDn, TextPattern, ValueStyle, What, Who,
};

impl Display for AccessRule {
    /// `to <what> by <who> <access> ...`, without `access` and without `{n}`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "to {}", self.what)?;
        self.by.iter().try_for_each(|clause| write!(f, " {clause}"))
    }
}

impl Display for What {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match &self.dn {
            TargetDn::Any => {}
            TargetDn::Scoped { scope, dn } => parts.push(format!("dn.{scope}=\"{dn}\"")),
            TargetDn::Regex(pattern) => parts.push(format!("dn.regex=\"{pattern}\"")),
        }
        if let Some(filter) = &self.filter {
            parts.push(format!("filter=\"{filter}\""));
        }
        if !self.attributes.is_empty() {
            let names: Vec<String> = self.attributes.iter().map(ToString::to_string).collect();
            parts.push(format!("attrs={}", names.join(",")));
        }
        if let Some(value) = &self.value {
            let rule = value.matching_rule.as_ref().map(|rule| format!("/{rule}")).unwrap_or_default();
            let style = match value.style {
                ValueStyle::Exact => "exact".to_owned(),
                ValueStyle::Regex => "regex".to_owned(),
                ValueStyle::Scope(scope) => scope.to_string(),
            };
            parts.push(format!("val{rule}.{style}=\"{}\"", value.text));
        }
        if let Some(operation) = &self.operation {
            parts.push(format!("op={}", operation.text()));
        }
        if let Some(control) = &self.control {
            parts.push(format!("control={control}"));
        }
        if parts.is_empty() {
            parts.push("*".to_owned());
        }
        f.write_str(&parts.join(" "))
    }
}

impl Display for DnScope {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::OneLevel => f.write_str("one"),
            Self::Subtree => f.write_str("subtree"),
            Self::Children => f.write_str("children"),
            Self::Level(level) => write!(f, "level{{{level}}}"),
        }
    }
}

impl Display for AttributeSelector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Exactly(name) => write!(f, "-{name}"),
            Self::Class(name) => write!(f, "@{name}"),
            Self::NotClass(name) => write!(f, "!{name}"),
        }
    }
}

impl Display for ByClause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("by")?;
        self.who.iter().try_for_each(|who| write!(f, " {who}"))?;
        let own = match self.own_value {
            None => "",
            Some(Identity::Authorization) => "self",
            Some(Identity::Authentication) => "realself",
        };
        write!(f, " {own}{}", self.grant)?;
        match self.control {
            FlowControl::Stop if self.grant == Grant::UNCHANGED => f.write_str(" stop"),
            FlowControl::Stop => Ok(()),
            FlowControl::Continue => f.write_str(" continue"),
            FlowControl::Break => f.write_str(" break"),
        }
    }
}

impl Display for Who {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("*"),
            Self::Anonymous(identity) => write!(f, "{}anonymous", prefix(*identity)),
            Self::Users(identity) => write!(f, "{}users", prefix(*identity)),
            Self::SelfEntry { identity, level: 0 } => write!(f, "{}self", prefix(*identity)),
            Self::SelfEntry { identity, level } => write!(f, "{}self.level{{{level}}}", prefix(*identity)),
            Self::Dn { identity, pattern: DnPattern::Scoped { scope, dn, expand } } => {
                write!(f, "{}dn.{scope}{}=\"{dn}\"", prefix(*identity), if *expand { ",expand" } else { "" })
            }
            Self::Dn { identity, pattern: DnPattern::Regex(pattern) } => {
                write!(f, "{}dn.regex=\"{pattern}\"", prefix(*identity))
            }
            Self::DnAttribute { identity, attribute } => write!(f, "{}dnattr={attribute}", prefix(*identity)),
            Self::Group { class, attribute, expand, group } => {
                write!(f, "group/{class}/{attribute}.{}=\"{group}\"", if *expand { "expand" } else { "base" })
            }
            Self::PeerName(pattern) => peer(f, pattern),
            Self::SockName(pattern) => text(f, "sockname", pattern),
            Self::SockUrl(pattern) => text(f, "sockurl", pattern),
            Self::Domain(DomainPattern::Text(pattern)) => text(f, "domain", pattern),
            Self::Domain(DomainPattern::Subtree { domain, expand }) => {
                write!(f, "domain.subtree{}={domain}", if *expand { ",expand" } else { "" })
            }
            Self::Set { expand, pattern } => {
                write!(f, "set.{}=\"{pattern}\"", if *expand { "expand" } else { "base" })
            }
            Self::StrengthFactor { layer, minimum } => write!(f, "{}={minimum}", layer.keyword()),
            Self::Dynamic { name, options, pattern } => {
                write!(f, "dynacl/{name}")?;
                if let Some(options) = options {
                    write!(f, "/{options}")?;
                }
                pattern.as_ref().map_or(Ok(()), |pattern| write!(f, "={pattern}"))
            }
        }
    }
}

const fn prefix(identity: Identity) -> &'static str {
    match identity {
        Identity::Authorization => "",
        Identity::Authentication => "real",
    }
}

fn text(f: &mut Formatter<'_>, keyword: &str, pattern: &TextPattern) -> fmt::Result {
    match pattern {
        TextPattern::Any => write!(f, "{keyword}=\"*\""),
        TextPattern::Exact(value) => write!(f, "{keyword}.base=\"{value}\""),
        TextPattern::Expand(value) => write!(f, "{keyword}.expand=\"{value}\""),
        TextPattern::Regex(value) => write!(f, "{keyword}.regex=\"{value}\""),
    }
}

fn peer(f: &mut Formatter<'_>, pattern: &PeerPattern) -> fmt::Result {
    let tail = |f: &mut Formatter<'_>, mask: Option<String>, port: &Option<u16>| {
        if let Some(mask) = mask {
            write!(f, "%{mask}")?;
        }
        if let Some(port) = port {
            write!(f, "{{{port}}}")?;
        }
        f.write_str("\"")
    };
    match pattern {
        PeerPattern::Text(pattern) => text(f, "peername", pattern),
        PeerPattern::Path(path) => write!(f, "peername.path=\"{path}\""),
        PeerPattern::Ipv4 { address, mask, port } => {
            write!(f, "peername.ip=\"{address}")?;
            tail(f, (!mask.is_broadcast()).then(|| mask.to_string()), port)
        }
        PeerPattern::Ipv6 { address, mask, port } => {
            write!(f, "peername.ipv6=\"{address}")?;
            tail(f, (mask.to_bits() != u128::MAX).then(|| mask.to_string()), port)
        }
    }
}

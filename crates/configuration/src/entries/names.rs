//! What an entry under cn=config is, by its DN.

use larix_proto::dn::Dn;

use super::super::balancer;

/// The part an entry plays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    Global,
    Module,
    /// cn=schema itself, which lists what is built in.
    SchemaRoot,
    Schema(String),
    Backend(String),
    /// A tier of the balancer.
    BalancerTier(String),
    /// A server of such a tier.
    BalancerBackend(String),
    Database(String),
    Overlay(String),
    /// Below an overlay or a database: belongs to it.
    Detail,
}

impl Role {
    /// The number of an entry whose number is not its place among its siblings: -1 of the frontend, 0 of cn=config itself.
    pub(crate) fn fixed_number(&self) -> Option<i32> {
        match self {
            Self::Database(kind) if kind == "frontend" => Some(-1),
            Self::Database(kind) if kind == "config" => Some(0),
            _ => None,
        }
    }
}

/// A DN under cn=config, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryName {
    /// From cn=config down; attribute and value in lower case, without `{n}`'s influence on equality removed.
    pub(crate) path: Vec<(String, String)>,
    pub(crate) role: Role,
    /// The `{n}` of the RDN.
    pub(crate) number: Option<i32>,
}

impl EntryName {
    /// Takes a DN apart; the error says what is wrong with it.
    pub(crate) fn parse(dn: &str) -> Result<Self, String> {
        let parsed = Dn::parse(dn).map_err(|error| error.to_string())?;
        let mut path = Vec::new();
        for rdn in parsed.rdns().iter().rev() {
            let [ava] = rdn.avas() else { return Err("an RDN has several parts".to_owned()) };
            let value = String::from_utf8_lossy(&ava.value);
            path.push((ava.attribute.to_ascii_lowercase(), value.to_ascii_lowercase()));
        }
        if path.first().is_none_or(|(attribute, value)| attribute != "cn" || value != "config") {
            return Err("it is not below cn=config".to_owned());
        }
        let leaf = parsed
            .rdns()
            .first()
            .and_then(|rdn| rdn.avas().first())
            .map(|ava| String::from_utf8_lossy(&ava.value));
        let leaf = leaf.unwrap_or_default();
        let (number, name) = split_number(&leaf);
        let kinds: Vec<&str> = path.iter().map(|(attribute, _)| attribute.as_str()).collect();
        let below_schema = path.get(1).is_some_and(|(_, value)| value == "schema");
        let below_balancer = path.get(1).is_some_and(|(_, value)| split_number(value).1 == balancer::MODULE);
        let role = match kinds.as_slice() {
            ["cn"] => Role::Global,
            ["cn", "cn"] if below_schema => Role::SchemaRoot,
            ["cn", "cn"] if leaf.to_ascii_lowercase().starts_with("module") => Role::Module,
            ["cn", "cn", "cn"] if below_schema => Role::Schema(name.to_owned()),
            ["cn", "olcbackend"] => Role::Backend(name.to_ascii_lowercase()),
            ["cn", "olcbackend", "cn"] if below_balancer => Role::BalancerTier(name.to_owned()),
            ["cn", "olcbackend", "cn", "cn"] if below_balancer => Role::BalancerBackend(name.to_owned()),
            ["cn", "olcdatabase"] => Role::Database(name.to_ascii_lowercase()),
            ["cn", "olcdatabase", "olcoverlay"] => Role::Overlay(name.to_ascii_lowercase()),
            ["cn", "olcdatabase", _, ..] => Role::Detail,
            ["cn", "cn"] if leaf.to_ascii_lowercase().starts_with("include") => Role::Detail,
            _ => return Err("entries of this kind are not known under cn=config".to_owned()),
        };
        let number = match role {
            // cn=module{0}: the number stands behind.
            Role::Module => leaf.find('{').and_then(|at| split_number(leaf.get(at..)?).0),
            _ => number,
        };
        Ok(Self { path, role, number })
    }

    /// Whether this is the parent of `other`.
    pub(crate) fn is_parent_of(&self, other: &Self) -> bool {
        other.path.len() == self.path.len() + 1 && other.path.starts_with(&self.path)
    }

    /// Entries in the order in which they take effect and are shown.
    pub(crate) fn order(&self) -> (u8, Vec<(i32, String)>) {
        let kind = match (self.path.get(1).map(|(attribute, _)| attribute.as_str()), &self.role) {
            (None, _) => 0,
            (Some("cn"), Role::Module) => 1,
            (Some("cn"), Role::Detail) => 2,
            (Some("cn"), _) => 3,
            (Some("olcbackend"), _) => 4,
            _ => 5,
        };
        let path = self.path.iter().skip(1).map(|(_, value)| {
            let at = value.find('{').unwrap_or(0);
            let (number, name) = split_number(value.get(at..).unwrap_or_default());
            (number.unwrap_or(i32::MAX), name.to_owned())
        });
        (kind, path.collect())
    }
}

/// `{3}mdb` is (3, mdb).
pub(crate) fn split_number(value: &str) -> (Option<i32>, &str) {
    let inner = value.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    match inner.and_then(|(number, name)| Some((number.parse().ok()?, name))) {
        Some((number, name)) => (Some(number), name),
        None => (None, value),
    }
}

//! From an authentication or authorization identity to the directory's name for it: `u:` names become
//! `uid=NAME,cn=REALM,cn=MECHANISM,cn=auth`, and `authz-regexp` or `authid-rewrite` leads from there to an entry.

use larix_configuration::values::AuthzRegexp;
use larix_engine::budget::Meter;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{Dn, ResultCode, Scope, dn::write_escaped};
use larix_schema::{NormalDn, Schema};

use larix_rewrite::Rewrite;

/// What identities are looked up in. Searches need the `auth` privilege on what they ask for, no more.
pub trait Lookups {
    fn schema(&self) -> &Schema;
    /// The one entry that a search of `who` finds; none if there are several.
    fn find_one(&self, who: Option<&NormalDn>, url: &LdapUrl) -> Option<NormalDn>;
    /// Whether a search of `who` finds this entry, at the cost of the meter.
    fn finds(&self, who: Option<&NormalDn>, url: &LdapUrl, entry: &NormalDn, meter: &Meter) -> bool;
    /// What a map of `authid-rewrite` says: the DN of the one entry that the search of the database's own root DN finds, or
    /// the first value of an attribute there.
    fn expand(&self, url: &LdapUrl, attribute: Option<&str>) -> Option<String>;
    /// Values of an attribute that may be used for authentication.
    fn values(&self, entry: &NormalDn, attribute: &str) -> Vec<Vec<u8>>;
    /// Whether `who` is the root DN of the database that holds `entry`; of databases that are glued together, the uppermost one's.
    fn is_root_over(&self, who: &NormalDn, entry: &NormalDn) -> bool;
}

/// Why an identity means nothing here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IdentityFault {
    /// Neither `dn:` nor `u:`.
    Form,
    /// What should be a DN is none.
    Dn,
}

impl IdentityFault {
    /// OpenLDAP's code for it.
    pub const fn code(self) -> ResultCode {
        match self {
            Self::Form => ResultCode::INAPPROPRIATE_AUTHENTICATION,
            Self::Dn => ResultCode::INVALID_ATTRIBUTE_SYNTAX,
        }
    }

    /// OpenLDAP's words for it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Form => "Inappropriate authentication",
            Self::Dn => "Invalid syntax",
        }
    }
}

/// How identities are mapped.
pub struct Mapper<'a> {
    pub lookups: &'a dyn Lookups,
    pub rules: &'a [AuthzRegexp],
    /// For names that no rule matches.
    pub rewrite: &'a Rewrite,
    /// Who searches.
    pub who: Option<&'a NormalDn>,
}

impl std::fmt::Debug for Mapper<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapper").field("rules", &self.rules).field("who", &self.who).finish_non_exhaustive()
    }
}

impl Mapper<'_> {
    /// The DN of an authorization identity (RFC 4513 section 5.2.1.8): `dn:DN`, or `u:NAME` of this realm under this
    /// mechanism. The empty DN for `anonymous`.
    ///
    /// # Errors
    /// If it has neither form, or is not a DN.
    pub fn authorization(
        &self,
        identity: &str,
        realm: &str,
        mechanism: &str,
    ) -> Result<NormalDn, IdentityFault> {
        if identity.eq_ignore_ascii_case("anonymous") {
            return Ok(NormalDn::root());
        }
        match identity.split_at_checked(identity.find(':').map_or(0, |at| at + 1)) {
            Some((prefix, name)) if prefix.eq_ignore_ascii_case("u:") => {
                self.name(&user_name(name, realm, mechanism)).ok_or(IdentityFault::Dn)
            }
            Some((prefix, dn)) if prefix.eq_ignore_ascii_case("dn:") => {
                let normal = self.lookups.schema().parse_dn(dn).map_err(|_| IdentityFault::Dn)?;
                Ok(self.mapped(normal.as_str()).unwrap_or(normal))
            }
            _ => Err(IdentityFault::Form),
        }
    }

    /// The DN of an identity that is a DN already: a mechanism's name of a user, or a certificate's subject. None if it
    /// is not a DN.
    pub fn name(&self, identity: &str) -> Option<NormalDn> {
        let normal = self.lookups.schema().parse_dn(identity).ok();
        let text = normal.as_ref().map_or(identity, NormalDn::as_str);
        self.mapped(text).or(normal)
    }

    /// Where the rules lead; none if none matches, or the one that does leads nowhere.
    fn mapped(&self, name: &str) -> Option<NormalDn> {
        let mapped = self.rules.iter().find_map(|rule| rule.map(name));
        let target = mapped.or_else(|| {
            let searches = |url: &LdapUrl, attribute: Option<&str>| self.lookups.expand(url, attribute);
            self.rewrite.apply(name, !self.rules.is_empty(), &searches)
        })?;
        if let Ok(url) = LdapUrl::parse(&target) {
            return self.search(&url);
        }
        let dn = match target.get(..3) {
            Some(prefix) if prefix.eq_ignore_ascii_case("dn:") => target.get(3..).unwrap_or_default(),
            _ => &target,
        };
        self.lookups.schema().parse_dn(dn).ok()
    }

    fn search(&self, url: &LdapUrl) -> Option<NormalDn> {
        // A host would be another server's affair.
        if url.scheme != UrlScheme::Ldap || !url.host.is_empty() {
            return None;
        }
        if url.filter.is_none() {
            let base = matches!(url.scope, None | Some(Scope::Base));
            return base.then(|| self.lookups.schema().parse_dn(&url.dn).ok()).flatten();
        }
        self.lookups.find_one(self.who, url)
    }
}

/// `uid=NAME,cn=REALM,cn=MECHANISM,cn=auth`; without what is empty.
pub fn user_name(user: &str, realm: &str, mechanism: &str) -> String {
    let mut name = String::from("uid=");
    // Writing to a string cannot fail.
    let _ = write_escaped(&mut name, user.as_bytes());
    for part in [realm, mechanism].into_iter().filter(|part| !part.is_empty()) {
        name.push_str(",cn=");
        let _ = write_escaped(&mut name, part.as_bytes());
    }
    name.push_str(",cn=auth");
    name
}

/// A search of this server, with nothing that rules cannot use.
pub(super) fn is_plain_search(url: &LdapUrl) -> bool {
    url.scheme == UrlScheme::Ldap
        && url.host.is_empty()
        && url.attributes.is_empty()
        && url.extensions.is_empty()
}

/// As normal as it can be: for names that only serve to tell users apart.
pub(crate) fn normal_text(schema: &Schema, name: &str) -> String {
    let normal = Dn::parse(name).ok().and_then(|dn| schema.normalize_dn(&dn).ok());
    normal.map_or_else(|| name.to_lowercase(), |dn| dn.as_str().to_owned())
}

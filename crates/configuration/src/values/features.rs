//! Sets of named features: allow, disallow, require, restrict, security.

/// `allow`: what is refused unless listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    pub bind_v2: bool,
    pub bind_anon_cred: bool,
    pub bind_anon_dn: bool,
    pub update_anon: bool,
    pub proxy_authz_anon: bool,
}

/// `disallow`: what works unless listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disallowed {
    pub bind_anon: bool,
    pub bind_simple: bool,
    pub tls_2_anon: bool,
    pub tls_authc: bool,
    pub proxy_authz_non_critical: bool,
    pub dont_use_copy_non_critical: bool,
}

/// `require`: conditions before an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requirements {
    pub bind: bool,
    pub ldap_v3: bool,
    pub authc: bool,
    pub sasl: bool,
    pub strong: bool,
}

/// `restrict`: operations that are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restrictions {
    pub bind: bool,
    pub search: bool,
    pub compare: bool,
    pub add: bool,
    pub delete: bool,
    pub modify: bool,
    pub rename: bool,
    /// Every extended operation.
    pub extended: bool,
    /// Extended operations by OID.
    pub extended_oids: Vec<String>,
}

impl Restrictions {
    /// What either refuses.
    pub fn join(&mut self, other: &Self) {
        self.bind |= other.bind;
        self.search |= other.search;
        self.compare |= other.compare;
        self.add |= other.add;
        self.delete |= other.delete;
        self.modify |= other.modify;
        self.rename |= other.rename;
        self.extended |= other.extended;
        self.extended_oids.extend(other.extended_oids.iter().cloned());
    }

    /// Reading is refused, and nothing else (but extended operations by OID).
    pub fn is_reads(&self) -> bool {
        let others = self.bind || self.add || self.delete || self.modify || self.rename || self.extended;
        self.search && self.compare && !others
    }
}

/// `security`: least security strength factors, 0 = none asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SecurityFactors {
    pub ssf: u32,
    pub transport: u32,
    pub tls: u32,
    pub sasl: u32,
    pub update_ssf: u32,
    pub update_transport: u32,
    pub update_tls: u32,
    pub update_sasl: u32,
    pub simple_bind: u32,
}

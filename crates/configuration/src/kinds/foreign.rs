//! Database kinds that are not served here: their directives are known, so that a file which has them can be read, and
//! the server refuses to start.

use super::super::builder::directive::{Directive, Form, MANY, Scope};
use super::{Descriptor, NOTHING};

const fn kind(name: &'static str, class: Option<&'static str>) -> Descriptor {
    Descriptor { name, class, is_served: false, ..NOTHING }
}

pub(super) static DESCRIPTORS: &[Descriptor] = &[
    kind("perl", Some("olcPerlConfig")),
    kind("sql", Some("olcSqlConfig")),
    kind("ndb", None),
    kind("wt", Some("olcWtConfig")),
    kind("shell", None),
];

const fn kept(keyword: &'static str, attribute: &'static str, scope: Scope, form: Form) -> Directive {
    Directive::kept(keyword, attribute, scope, form).arguments(0, MANY)
}

/// A keyword of a kind that has no olc attribute of its own.
const fn legacy(keyword: &'static str) -> Directive {
    kept(keyword, "", Scope::Foreign, Form::Words)
}

pub(super) const TABLE: &[Directive] = &[
    kept("uri", "olcDbURI", Scope::Foreign, Form::Words).many(),
    kept("tls", "olcDbStartTLS", Scope::Foreign, Form::Words),
    kept("idassert-bind", "olcDbIDAssertBind", Scope::Foreign, Form::Words),
    kept("idassert-authzFrom", "olcDbIDAssertAuthzFrom", Scope::Foreign, Form::Words).ordered(),
    kept("rebind-as-user", "olcDbRebindAsUser", Scope::Foreign, Form::Words),
    kept("chase-referrals", "olcDbChaseReferrals", Scope::Foreign, Form::Words),
    kept("t-f-support", "olcDbTFSupport", Scope::Foreign, Form::Words),
    kept("timeout", "olcDbTimeout", Scope::Foreign, Form::Words),
    kept("idle-timeout", "olcDbIdleTimeout", Scope::Foreign, Form::Words),
    kept("conn-ttl", "olcDbConnTtl", Scope::Foreign, Form::Words),
    kept("network-timeout", "olcDbNetworkTimeout", Scope::Foreign, Form::Words),
    kept("protocol-version", "olcDbProtocolVersion", Scope::Foreign, Form::Words),
    kept("cancel", "olcDbCancel", Scope::Foreign, Form::Words),
    kept("quarantine", "olcDbQuarantine", Scope::Foreign, Form::Words),
    kept("conn-pool-max", "olcDbConnectionPoolMax", Scope::Foreign, Form::Words),
    kept("session-tracking-request", "olcDbSessionTrackingRequest", Scope::Foreign, Form::Words),
    kept("norefs", "olcDbNoRefs", Scope::Foreign, Form::Words),
    kept("noundeffilter", "olcDbNoUndefFilter", Scope::Foreign, Form::Words),
    kept("onerr", "olcDbOnErr", Scope::Foreign, Form::Words),
    kept("keepalive", "olcDbKeepalive", Scope::Foreign, Form::Words),
    kept("tcp-user-timeout", "olcDbTcpUserTimeout", Scope::Foreign, Form::Words),
    kept("acl-bind", "olcDbACLBind", Scope::Foreign, Form::Words),
    kept("proxy-whoami", "olcDbProxyWhoAmI", Scope::Foreign, Form::Words),
    kept("single-conn", "olcDbSingleConn", Scope::Foreign, Form::Words),
    kept("use-temporary-conn", "olcDbUseTemporaryConn", Scope::Foreign, Form::Words),
    kept("idassert-passThru", "olcDbIDAssertPassThru", Scope::Foreign, Form::Words).ordered(),
    kept("omit-unknown-schema", "olcDbRemoveUnknownSchema", Scope::Foreign, Form::Words),
    kept("directory", "olcDbDirectory", Scope::Foreign, Form::Words),
    kept("index", "olcDbIndex", Scope::Foreign, Form::Words).many(),
    kept("mode", "olcDbMode", Scope::Foreign, Form::Words),
    kept("wtconfig", "olcWtConfig", Scope::Foreign, Form::Words),
    kept("idlcache", "olcIDLcache", Scope::Foreign, Form::Words),
    legacy("acl-authcDN"),
    legacy("acl-passwd"),
    legacy("binddn"),
    legacy("bindpw"),
    legacy("rewriteEngine"),
    legacy("rewriteContext"),
    legacy("rewriteRule"),
    legacy("rewriteMap"),
    legacy("pseudorootdn"),
    legacy("pseudorootpw"),
    legacy("lastmod-source"),
    legacy("perlModulePath"),
    legacy("perlModule"),
    legacy("filterSearchResults"),
    legacy("dbname"),
    legacy("dbuser"),
    legacy("dbpasswd"),
    legacy("dbhost"),
    legacy("subtree_cond"),
    legacy("children_cond"),
    legacy("insentry_stmt"),
    legacy("create_needs_select"),
    legacy("upper_func"),
    legacy("upper_needs_cast"),
    legacy("strcast_func"),
    legacy("concat_pattern"),
    legacy("has_ldapinfo_dn_ru"),
    legacy("fail_if_no_mapping"),
    legacy("allow_orphans"),
    legacy("baseObject"),
    legacy("sqllayer"),
];

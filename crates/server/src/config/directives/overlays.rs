//! Overlays: what becomes of each, and their directives.

use super::{Directive, Form, Scope, keep};

/// An overlay that OpenLDAP has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverlayKind {
    pub(crate) name: &'static str,
    /// Structural class of its entry under cn=config.
    pub(crate) class: &'static str,
    pub(crate) handling: OverlayHandling,
}

/// What becomes of an `overlay` line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OverlayHandling {
    /// Part of the server.
    BuiltIn,
    /// Accepted: nothing that was asked for goes wrong without it. What it means.
    Noted(&'static str),
    /// The server does not start: without it data or rights would differ. What would be missing.
    Refused(&'static str),
}

use OverlayHandling::{BuiltIn, Noted, Refused};

const OVERLAYS: &[OverlayKind] = &[
    overlay("accesslog", "olcAccessLogConfig", BuiltIn),
    overlay("auditlog", "olcAuditlogConfig", Refused("no audit log would be written")),
    overlay("autoca", "olcAutoCAConfig", Refused("no certificates would be made")),
    overlay("chain", "olcChainConfig", Refused("clients would get referrals instead of answers")),
    overlay("collect", "olcCollectConfig", Refused("collective attributes would be missing from answers")),
    overlay("constraint", "olcConstraintConfig", BuiltIn),
    overlay("dds", "olcDDSConfig", Refused("entries would not expire")),
    overlay("deref", "olcOverlayConfig", Noted("dereferencing is built in")),
    overlay("dyngroup", "olcDynGroupConfig", Refused("compares would not see dynamic members")),
    overlay("dynlist", "olcDynListConfig", Refused("dynamic members would be missing from answers")),
    overlay("glue", "olcOverlayConfig", BuiltIn),
    overlay("homedir", "olcHomedirConfig", Refused("home directories would not be made")),
    overlay("memberof", "olcMemberOfConfig", BuiltIn),
    overlay("nestgroup", "olcNestGroupConfig", Refused("nested members would be missing from answers")),
    overlay("otp", "olcOverlayConfig", Refused("one-time passwords would not be checked")),
    overlay("pbind", "olcPBindConfig", Refused("binds would not be forwarded")),
    overlay("pcache", "olcPcacheConfig", Refused("nothing would be cached")),
    overlay("ppolicy", "olcPPolicyConfig", BuiltIn),
    overlay("refint", "olcRefintConfig", BuiltIn),
    overlay("remoteauth", "olcRemoteAuthCfg", Refused("binds would not be forwarded")),
    overlay("retcode", "olcRetcodeConfig", Refused("no result codes would be put in")),
    overlay("rwm", "olcRwmConfig", Refused("names would not be rewritten")),
    overlay("seqmod", "olcOverlayConfig", BuiltIn),
    overlay(
        "sssvlv",
        "olcSssVlvConfig",
        Noted("server-side sorting and virtual list views are built in, with limits of their own"),
    ),
    overlay("syncprov", "olcSyncProvConfig", BuiltIn),
    overlay("translucent", "olcTranslucentConfig", Refused("remote entries would be missing")),
    overlay("unique", "olcUniqueConfig", BuiltIn),
    overlay("valsort", "olcValSortConfig", BuiltIn),
];

const fn overlay(name: &'static str, class: &'static str, handling: OverlayHandling) -> OverlayKind {
    OverlayKind { name, class, handling }
}

/// Overlays that a database has once at most.
const SINGLE: [&str; 16] = [
    "auditlog",
    "autoca",
    "collect",
    "constraint",
    "dds",
    "deref",
    "dyngroup",
    "dynlist",
    "ppolicy",
    "remoteauth",
    "rwm",
    "seqmod",
    "sssvlv",
    "syncprov",
    "unique",
    "valsort",
];

impl OverlayKind {
    /// Whether a second one on the same database is refused, as slapd refuses it.
    pub(crate) fn is_single(&self) -> bool {
        SINGLE.contains(&self.name)
    }

    /// What there is to say when it is accepted.
    pub(crate) fn noted(&self) -> Option<&'static str> {
        match self.handling {
            Noted(text) => Some(text),
            BuiltIn | Refused(_) => None,
        }
    }
}

/// The overlay of this name.
pub(crate) fn overlay_kind(name: &str) -> Option<&'static OverlayKind> {
    OVERLAYS.iter().find(|kind| kind.name.eq_ignore_ascii_case(name))
}

/// A directive whose values are kept for the overlay to read.
const fn kept(keyword: &'static str, attribute: &'static str, scope: Scope, form: Form) -> Directive {
    let directive = Directive::new(keyword, attribute, scope, form, keep);
    match form {
        Form::Switch => directive.arguments(0, 1),
        _ => directive,
    }
}

pub(super) static TABLE: &[Directive] = &[
    kept("syncprov-checkpoint", "olcSpCheckpoint", Scope::Overlay("syncprov"), Form::Words),
    kept("syncprov-sessionlog", "olcSpSessionlog", Scope::Overlay("syncprov"), Form::Whole),
    kept("syncprov-nopresent", "olcSpNoPresent", Scope::Overlay("syncprov"), Form::Switch),
    kept("syncprov-reloadhint", "olcSpReloadHint", Scope::Overlay("syncprov"), Form::Switch),
    kept("syncprov-sessionlog-source", "olcSpSessionlogSource", Scope::Overlay("syncprov"), Form::Whole),
    kept("logdb", "olcAccessLogDB", Scope::Overlay("accesslog"), Form::Whole),
    kept("logops", "olcAccessLogOps", Scope::Overlay("accesslog"), Form::Words).many(),
    kept("logpurge", "olcAccessLogPurge", Scope::Overlay("accesslog"), Form::Words),
    kept("logsuccess", "olcAccessLogSuccess", Scope::Overlay("accesslog"), Form::Switch),
    kept("logold", "olcAccessLogOld", Scope::Overlay("accesslog"), Form::Words),
    kept("logoldattr", "olcAccessLogOldAttr", Scope::Overlay("accesslog"), Form::Words).many(),
    kept("logbase", "olcAccessLogBase", Scope::Overlay("accesslog"), Form::Words).many(),
    kept("logpurgebatch", "olcAccessLogPurgeBatch", Scope::Overlay("accesslog"), Form::Whole),
    kept("ppolicy_default", "olcPPolicyDefault", Scope::Overlay("ppolicy"), Form::Whole),
    kept("ppolicy_hash_cleartext", "olcPPolicyHashCleartext", Scope::Overlay("ppolicy"), Form::Switch),
    kept("ppolicy_forward_updates", "olcPPolicyForwardUpdates", Scope::Overlay("ppolicy"), Form::Switch)
        .noted("a replica keeps the failures and last logins of its own binds, and forwards none"),
    kept("ppolicy_use_lockout", "olcPPolicyUseLockout", Scope::Overlay("ppolicy"), Form::Switch),
    kept("ppolicy_disable_write", "olcPPolicyDisableWrite", Scope::Overlay("ppolicy"), Form::Switch),
    kept(
        "ppolicy_send_netscape_controls",
        "olcPPolicySendNetscapeControls",
        Scope::Overlay("ppolicy"),
        Form::Switch,
    ),
    kept("ppolicy_rules", "olcLarixPPolicyRules", Scope::Overlay("ppolicy"), Form::Words).ordered(),
    kept("ppolicy_check_module", "olcPPolicyCheckModule", Scope::Overlay("ppolicy"), Form::Whole).noted(
        "modules are not loaded; where a policy asks for one and has pwdCheckQuality, no password in the clear passes",
    ),
    kept("", "olcPPolicyRuleObject", Scope::Overlay("ppolicy"), Form::Whole),
    kept("", "olcPPolicyRuleScope", Scope::Overlay("ppolicy"), Form::Whole),
    kept("", "olcPPolicyRuleRequirePassword", Scope::Overlay("ppolicy"), Form::Switch),
    kept("", "olcPPolicyRuleFilter", Scope::Overlay("ppolicy"), Form::Whole),
    kept("", "olcPPolicyRuleGroup", Scope::Overlay("ppolicy"), Form::Whole),
    kept("", "olcPPolicyRuleGroupOC", Scope::Overlay("ppolicy"), Form::Whole),
    kept("", "olcPPolicyRuleGroupAttr", Scope::Overlay("ppolicy"), Form::Whole),
    kept("", "olcPPolicyRulePolicy", Scope::Overlay("ppolicy"), Form::Whole),
    kept("", "olcPPolicyRuleAction", Scope::Overlay("ppolicy"), Form::Whole),
    kept("memberof-dn", "olcMemberOfDN", Scope::Overlay("memberof"), Form::Whole),
    kept("memberof-dangling", "olcMemberOfDangling", Scope::Overlay("memberof"), Form::Words),
    kept("memberof-refint", "olcMemberOfRefInt", Scope::Overlay("memberof"), Form::Switch),
    kept("memberof-group-oc", "olcMemberOfGroupOC", Scope::Overlay("memberof"), Form::Words),
    kept("memberof-member-ad", "olcMemberOfMemberAD", Scope::Overlay("memberof"), Form::Whole),
    kept("memberof-memberof-ad", "olcMemberOfMemberOfAD", Scope::Overlay("memberof"), Form::Whole),
    kept("memberof-reverse", "olcMemberOfReverse", Scope::Overlay("memberof"), Form::Switch)
        .noted("who is a member of what follows from the groups alone"),
    kept("memberof-dangling-error", "olcMemberOfDanglingError", Scope::Overlay("memberof"), Form::Words),
    kept("memberof-addcheck", "olcMemberOfAddCheck", Scope::Overlay("memberof"), Form::Switch)
        .noted("an entry that is added says which groups name it already, always"),
    kept("refint_attributes", "olcRefintAttribute", Scope::Overlay("refint"), Form::Words).many(),
    kept("refint_nothing", "olcRefintNothing", Scope::Overlay("refint"), Form::Whole),
    kept("refint_modifiersName", "olcRefintModifiersName", Scope::Overlay("refint"), Form::Whole),
    kept("unique_base", "olcUniqueBase", Scope::Overlay("unique"), Form::Whole),
    kept("unique_ignore", "olcUniqueIgnore", Scope::Overlay("unique"), Form::Each).many(),
    kept("unique_attributes", "olcUniqueAttribute", Scope::Overlay("unique"), Form::Each).many(),
    kept("unique_strict", "olcUniqueStrict", Scope::Overlay("unique"), Form::Switch),
    kept("unique_uri", "olcUniqueURI", Scope::Overlay("unique"), Form::Words).many(),
    kept("dynlist-attrset", "olcDynListAttrSet", Scope::Overlay("dynlist"), Form::Words)
        .ordered()
        .attribute_alias(&["olcDlAttrSet"]),
    kept("dynlist-simple", "olcDynListSimple", Scope::Overlay("dynlist"), Form::Switch),
    kept("constraint_attribute", "olcConstraintAttribute", Scope::Overlay("constraint"), Form::Words).many(),
    kept("constraint_allowempty", "olcConstraintAllowEmpty", Scope::Overlay("constraint"), Form::Switch),
    kept("sssvlv-max", "olcSssVlvMax", Scope::Overlay("sssvlv"), Form::Whole),
    kept("sssvlv-maxkeys", "olcSssVlvMaxKeys", Scope::Overlay("sssvlv"), Form::Whole),
    kept("sssvlv-maxperconn", "olcSssVlvMaxPerConn", Scope::Overlay("sssvlv"), Form::Whole),
    kept("auditlog", "olcAuditlogFile", Scope::Overlay("auditlog"), Form::Whole),
    kept("auditlognonblocking", "olcAuditlogNonBlocking", Scope::Overlay("auditlog"), Form::Switch),
    kept("valsort-attr", "olcValSortAttr", Scope::Overlay("valsort"), Form::Words).many(),
    kept("nestgroup-member", "olcNestGroupMember", Scope::Overlay("nestgroup"), Form::Whole),
    kept("nestgroup-memberof", "olcNestGroupMemberOf", Scope::Overlay("nestgroup"), Form::Whole),
    kept("nestgroup-base", "olcNestGroupBase", Scope::Overlay("nestgroup"), Form::Whole).many(),
    kept("nestgroup-flags", "olcNestGroupFlags", Scope::Overlay("nestgroup"), Form::Words).many(),
    kept("dds-state", "olcDDSstate", Scope::Overlay("dds"), Form::Switch),
    kept("dds-max-ttl", "olcDDSmaxTtl", Scope::Overlay("dds"), Form::Words),
    kept("dds-min-ttl", "olcDDSminTtl", Scope::Overlay("dds"), Form::Words),
    kept("dds-default-ttl", "olcDDSdefaultTtl", Scope::Overlay("dds"), Form::Words),
    kept("dds-interval", "olcDDSinterval", Scope::Overlay("dds"), Form::Words),
    kept("dds-tolerance", "olcDDStolerance", Scope::Overlay("dds"), Form::Words),
    kept("dds-max-dynamicObjects", "olcDDSmaxDynamicObjects", Scope::Overlay("dds"), Form::Whole),
    kept("collectinfo", "olcCollectInfo", Scope::Overlay("collect"), Form::Words).many(),
    kept("homedir-skeleton-path", "olcSkeletonPath", Scope::Overlay("homedir"), Form::Whole),
    kept("homedir-min-uidnumber", "olcMinimumUidNumber", Scope::Overlay("homedir"), Form::Whole),
    kept("homedir-regexp", "olcHomedirRegexp", Scope::Overlay("homedir"), Form::Words).ordered(),
    kept("homedir-delete-style", "olcHomedirDeleteStyle", Scope::Overlay("homedir"), Form::Words),
    kept("homedir-archive-path", "olcHomedirArchivePath", Scope::Overlay("homedir"), Form::Whole),
    kept("remoteauth_mapping", "olcRemoteAuthMapping", Scope::Overlay("remoteauth"), Form::Words).many(),
    kept("remoteauth_dn_attribute", "olcRemoteAuthDNAttribute", Scope::Overlay("remoteauth"), Form::Words),
    kept(
        "remoteauth_domain_attribute",
        "olcRemoteAuthDomainAttribute",
        Scope::Overlay("remoteauth"),
        Form::Words,
    ),
    kept(
        "remoteauth_default_domain",
        "olcRemoteAuthDefaultDomain",
        Scope::Overlay("remoteauth"),
        Form::Words,
    ),
    kept("remoteauth_default_realm", "olcRemoteAuthDefaultRealm", Scope::Overlay("remoteauth"), Form::Words),
    kept("remoteauth_store", "olcRemoteAuthStore", Scope::Overlay("remoteauth"), Form::Switch),
    kept("remoteauth_retry_count", "olcRemoteAuthRetryCount", Scope::Overlay("remoteauth"), Form::Whole),
    kept("remoteauth_tls", "olcRemoteAuthTLS", Scope::Overlay("remoteauth"), Form::Words),
    kept(
        "remoteauth_tls_peerkey_hash",
        "olcRemoteAuthTLSPeerkeyHash",
        Scope::Overlay("remoteauth"),
        Form::Words,
    )
    .many(),
    kept("rwm-rewrite", "olcRwmRewrite", Scope::Overlay("rwm"), Form::Words).ordered(),
    kept("rwm-t-f-support", "olcRwmTFSupport", Scope::Overlay("rwm"), Form::Words),
    kept("rwm-map", "olcRwmMap", Scope::Overlay("rwm"), Form::Words).ordered(),
    kept("rwm-normalize-mapped-attrs", "olcRwmNormalizeMapped", Scope::Overlay("rwm"), Form::Switch),
    kept("rwm-drop-unrequested-attrs", "olcRwmDropUnrequested", Scope::Overlay("rwm"), Form::Switch),
    kept("translucent_strict", "olcTranslucentStrict", Scope::Overlay("translucent"), Form::Switch),
    kept("translucent_no_glue", "olcTranslucentNoGlue", Scope::Overlay("translucent"), Form::Switch),
    kept("translucent_local", "olcTranslucentLocal", Scope::Overlay("translucent"), Form::Words).many(),
    kept("translucent_remote", "olcTranslucentRemote", Scope::Overlay("translucent"), Form::Words).many(),
    kept("translucent_bind_local", "olcTranslucentBindLocal", Scope::Overlay("translucent"), Form::Switch),
    kept("translucent_pwmod_local", "olcTranslucentPwModLocal", Scope::Overlay("translucent"), Form::Switch),
    kept("pcache", "olcPcache", Scope::Overlay("pcache"), Form::Words).attribute_alias(&["olcProxyCache"]),
    kept("pcacheAttrset", "olcPcacheAttrset", Scope::Overlay("pcache"), Form::Words)
        .many()
        .attribute_alias(&["olcProxyAttrset"]),
    kept("pcacheTemplate", "olcPcacheTemplate", Scope::Overlay("pcache"), Form::Words)
        .many()
        .attribute_alias(&["olcProxyCacheTemplate"]),
    kept("pcachePosition", "olcPcachePosition", Scope::Overlay("pcache"), Form::Words),
    kept("pcacheMaxQueries", "olcPcacheMaxQueries", Scope::Overlay("pcache"), Form::Whole)
        .attribute_alias(&["olcProxyCacheQueries"]),
    kept("pcachePersist", "olcPcachePersist", Scope::Overlay("pcache"), Form::Switch)
        .attribute_alias(&["olcProxySaveQueries"]),
    kept("pcacheValidate", "olcPcacheValidate", Scope::Overlay("pcache"), Form::Switch)
        .attribute_alias(&["olcProxyCheckCacheability"]),
    kept("pcacheOffline", "olcPcacheOffline", Scope::Overlay("pcache"), Form::Switch),
    kept("pcacheBind", "olcPcacheBind", Scope::Overlay("pcache"), Form::Words).many(),
    kept("retcode-parent", "olcRetcodeParent", Scope::Overlay("retcode"), Form::Whole),
    kept("retcode-item", "olcRetcodeItem", Scope::Overlay("retcode"), Form::Words).ordered(),
    kept("retcode-indir", "olcRetcodeInDir", Scope::Overlay("retcode"), Form::Switch),
    kept("retcode-sleep", "olcRetcodeSleep", Scope::Overlay("retcode"), Form::Whole),
    kept("userClass", "olcAutoCAuserClass", Scope::Overlay("autoca"), Form::Whole),
    kept("serverClass", "olcAutoCAserverClass", Scope::Overlay("autoca"), Form::Whole),
    kept("userKeybits", "olcAutoCAuserKeybits", Scope::Overlay("autoca"), Form::Whole),
    kept("serverKeybits", "olcAutoCAserverKeybits", Scope::Overlay("autoca"), Form::Whole),
    kept("caKeybits", "olcAutoCAKeybits", Scope::Overlay("autoca"), Form::Whole),
    kept("userDays", "olcAutoCAuserDays", Scope::Overlay("autoca"), Form::Whole),
    kept("serverDays", "olcAutoCAserverDays", Scope::Overlay("autoca"), Form::Whole),
    kept("caDays", "olcAutoCADays", Scope::Overlay("autoca"), Form::Whole),
    kept("localdn", "olcAutoCAlocalDN", Scope::Overlay("autoca"), Form::Whole),
    kept("attrpair", "olcDynGroupAttrPair", Scope::Overlay("dyngroup"), Form::Words)
        .many()
        .attribute_alias(&["olcDGAttrPair"]),
    kept("chain-chaining", "olcChainingBehavior", Scope::Overlay("chain"), Form::Words),
    kept("chain-cache-uri", "olcChainCacheURI", Scope::Overlay("chain"), Form::Words),
    kept("chain-max-depth", "olcChainMaxReferralDepth", Scope::Overlay("chain"), Form::Words),
    kept("chain-return-error", "olcChainReturnError", Scope::Overlay("chain"), Form::Words), // Anything a back-ldap database takes, with `chain-` before it.
    kept("chain-uri", "olcDbURI", Scope::Overlay("chain"), Form::Words).prefix(6).many(),
    kept("rwm-suffixmassage", "", Scope::Overlay("rwm"), Form::Words).prefix(4),
    kept("dynlist-attrpair", "", Scope::Overlay("dynlist"), Form::Words),
    kept("otp", "", Scope::Overlay("otp"), Form::Words),
];

//! The table against the list of what OpenLDAP knows.

use super::Cardinality::{self, Many, One, Ordered};
use super::*;

/// Keyword (empty: none), attribute and number of values of everything outside of overlays and foreign databases.
const KNOWN: &[(&str, &str, Cardinality)] = &[
    ("", "olcConfigFile", One),
    ("", "olcConfigDir", One),
    ("argsfile", "olcArgsFile", One),
    ("pidfile", "olcPidFile", One),
    ("loglevel", "olcLogLevel", Many),
    ("logfile", "olcLogFile", One),
    ("logfile-format", "olcLogFileFormat", One),
    ("logfile-only", "olcLogFileOnly", One),
    ("logfile-rotate", "olcLogFileRotate", One),
    ("serverID", "olcServerID", Many),
    ("allows", "olcAllows", Many),
    ("disallows", "olcDisallows", Many),
    ("require", "olcRequires", Many),
    ("restrict", "olcRestrict", Many),
    ("restrictop", "olcRestrictOp", Ordered),
    ("security", "olcSecurity", Many),
    ("authz-policy", "olcAuthzPolicy", One),
    ("authz-regexp", "olcAuthzRegexp", Ordered),
    ("authid-rewrite", "olcAuthIDRewrite", Ordered),
    ("sasl-host", "olcSaslHost", One),
    ("sasl-realm", "olcSaslRealm", One),
    ("sasl-secprops", "olcSaslSecProps", One),
    ("sasl-auxprops", "olcSaslAuxprops", One),
    ("sasl-cbinding", "olcSaslCBinding", One),
    ("localSSF", "olcLocalSSF", One),
    ("TLSCACertificateFile", "olcTLSCACertificateFile", One),
    ("TLSCACertificatePath", "olcTLSCACertificatePath", One),
    ("TLSCertificateFile", "olcTLSCertificateFile", One),
    ("TLSCertificateKeyFile", "olcTLSCertificateKeyFile", One),
    ("TLSCipherSuite", "olcTLSCipherSuite", One),
    ("TLSProtocolMin", "olcTLSProtocolMin", One),
    ("TLSVerifyClient", "olcTLSVerifyClient", One),
    ("TLSCRLCheck", "olcTLSCRLCheck", One),
    ("TLSCRLFile", "olcTLSCRLFile", One),
    ("TLSDHParamFile", "olcTLSDHParamFile", One),
    ("TLSECName", "olcTLSECName", One),
    ("TLSRandFile", "olcTLSRandFile", One),
    ("TLSCACertificate", "olcTLSCACertificate", One),
    ("TLSCertificate", "olcTLSCertificate", One),
    ("TLSCertificateKey", "olcTLSCertificateKey", One),
    ("idletimeout", "olcIdleTimeout", One),
    ("writetimeout", "olcWriteTimeout", One),
    ("conn_max_pending", "olcConnMaxPending", One),
    ("conn_max_pending_auth", "olcConnMaxPendingAuth", One),
    ("sockbuf_max_incoming", "olcSockbufMaxIncoming", One),
    ("sockbuf_max_incoming_auth", "olcSockbufMaxIncomingAuth", One),
    ("maxFilterDepth", "olcMaxFilterDepth", One),
    ("sizelimit", "olcSizeLimit", One),
    ("timelimit", "olcTimeLimit", One),
    ("threads", "olcThreads", One),
    ("threadqueues", "olcThreadQueues", One),
    ("listener-threads", "olcListenerThreads", One),
    ("tool-threads", "olcToolThreads", One),
    ("concurrency", "olcConcurrency", One),
    ("gentlehup", "olcGentleHUP", One),
    ("readonly", "olcReadOnly", One),
    ("referral", "olcReferral", Many), // slapd.conf may repeat it
    ("reverse-lookup", "olcReverseLookup", One),
    ("rootDSE", "olcRootDSE", Many),
    ("password-crypt-salt-format", "olcPasswordCryptSaltFormat", One),
    ("attributeoptions", "olcAttributeOptions", Many),
    ("index_substr_if_minlen", "olcIndexSubstrIfMinLen", One),
    ("index_substr_if_maxlen", "olcIndexSubstrIfMaxLen", One),
    ("index_substr_any_len", "olcIndexSubstrAnyLen", One),
    ("index_substr_any_step", "olcIndexSubstrAnyStep", One),
    ("index_intlen", "olcIndexIntLen", One),
    ("index_hash64", "olcIndexHash64", One),
    ("tcp-buffer", "olcTCPBuffer", Many),
    ("pluginlog", "olcPluginLogFile", One),
    ("sasl-auxprops-dontusecopy", "olcSaslAuxpropsDontUseCopy", Many),
    ("sasl-auxprops-dontusecopy-ignore", "olcSaslAuxpropsDontUseCopyIgnore", One),
    ("objectidentifier", "olcObjectIdentifier", Ordered),
    ("attribute", "olcAttributeTypes", Ordered),
    ("objectclass", "olcObjectClasses", Ordered),
    ("ldapsyntax", "olcLdapSyntaxes", Ordered),
    ("ditcontentrule", "olcDitContentRules", Ordered),
    ("defaultSearchBase", "olcDefaultSearchBase", One),
    ("password-hash", "olcPasswordHash", Many),
    ("sortvals", "olcSortVals", Many),
    ("schemadn", "olcSchemaDN", One),
    ("database", "olcDatabase", One),
    ("suffix", "olcSuffix", Many),
    ("rootdn", "olcRootDN", One),
    ("rootpw", "olcRootPW", One),
    ("access", "olcAccess", Ordered),
    ("add_content_acl", "olcAddContentAcl", One),
    ("limits", "olcLimits", Ordered),
    ("lastmod", "olcLastMod", One),
    ("lastbind", "olcLastBind", One),
    ("lastbind-precision", "olcLastBindPrecision", One),
    ("lastbind-send-assert", "olcLastBindSendAssert", One),
    ("maxDerefDepth", "olcMaxDerefDepth", One),
    ("monitoring", "olcMonitoring", One),
    ("multiprovider", "olcMultiProvider", One),
    ("syncrepl", "olcSyncrepl", Ordered),
    ("sync_use_subentry", "olcSyncUseSubentry", One),
    ("updatedn", "olcUpdateDN", One),
    ("updateref", "olcUpdateRef", Many),
    ("subordinate", "olcSubordinate", One),
    ("hidden", "olcHidden", One),
    ("disabled", "olcDisabled", One),
    ("extra_attrs", "olcExtraAttrs", Many),
    ("replica", "olcReplica", Ordered),
    ("replogfile", "olcReplogFile", One),
    ("replica-argsfile", "olcReplicaArgsFile", One),
    ("replica-pidfile", "olcReplicaPidFile", One),
    ("replicationInterval", "olcReplicationInterval", One),
    ("plugin", "olcPlugin", Ordered),
    ("idlexp", "olcBkMdbIdlExp", One),
    ("directory", "olcDbDirectory", One),
    ("checkpoint", "olcDbCheckpoint", One),
    ("dbnosync", "olcDbNoSync", One),
    ("dbpagesize", "olcDbPageSize", One),
    ("envflags", "olcDbEnvFlags", Many),
    ("index", "olcDbIndex", Many),
    ("maxentrysize", "olcDbMaxEntrySize", One),
    ("maxreaders", "olcDbMaxReaders", One),
    ("maxsize", "olcDbMaxSize", One),
    ("mode", "olcDbMode", One),
    ("multival", "olcDbMultival", Many),
    ("rtxnsize", "olcDbRtxnSize", One),
    ("searchstack", "olcDbSearchStack", One),
    ("crypto", "olcDbCryptoModule", One),
    ("passphrase", "olcDbPassphrase", One),
    ("modulepath", "olcModulePath", One),
    ("moduleload", "olcModuleLoad", Ordered),
    ("backend", "olcBackend", One),
    ("overlay", "olcOverlay", One),
    ("include", "olcInclude", Many),
];

#[test]
fn every_keyword_is_in_the_table() {
    for (keyword, attribute, cardinality) in KNOWN {
        if keyword.is_empty() {
            continue;
        }
        let found = all().find(|directive| directive.is_attribute(attribute));
        let found = found.unwrap_or_else(|| panic!("{attribute} is not in the table"));
        assert!(found.is_keyword(keyword) || found.is_prefixed(keyword), "{keyword} is {}", found.keyword);
        assert_eq!(found.cardinality, *cardinality, "{keyword}");
    }
}

#[test]
fn slips_find_their_keyword() {
    for (slip, known) in [
        ("sufix", "suffix"),
        ("indx", "index"),
        ("rootwp", "rootpw"),
        ("accss", "access"),
        ("xyzzyplugh", ""),
    ] {
        assert_eq!(suggestion(slip, false).unwrap_or_default(), known, "{slip}");
    }
}

/// Certificates are bytes, too, and anyone may see them.
#[test]
fn passwords_and_keys_are_secret() {
    for secret in [
        "olcRootPW",
        "olcDbPassphrase",
        "olcTLSCertificateKey;binary",
        "olctlscertificatekey",
        "olcRootPW;x-a",
    ] {
        assert!(is_secret_setting(secret), "{secret}");
    }
    #[cfg(feature = "kv")]
    assert!(is_secret_setting("olcLarixKvEngine"));
    let shown =
        ["olcTLSCertificate;binary", "olcTLSCACertificate", "olcTLSCertificateKeyFile", "olcRootDN", ""];
    for shown in shown {
        assert!(!is_secret_setting(shown), "{shown}");
    }
}

/// What is set in slapd.conf can be set under cn=config, too, with the same number of values.
#[test]
fn the_schema_defines_every_attribute() {
    let mut builder = larix_schema::SchemaBuilder::system();
    builder.add_bundled("core").unwrap();
    for overlay in larix_overlays::all() {
        builder.add_schema_text(overlay.schema, overlay.name).unwrap();
    }
    let schema = builder.build();
    let mut faults = Vec::new();
    for directive in all().filter(|directive| !directive.attribute.is_empty()) {
        let name = directive.attribute.split(';').next().unwrap_or_default();
        let Some(kind) = schema.attribute_type(name) else {
            faults.push(format!("{}: not defined", directive.attribute));
            continue;
        };
        let own = directive.attribute.starts_with("olcLarix");
        if own && kind.single_value != (directive.cardinality == One) {
            faults.push(format!("{}: {:?}", directive.attribute, directive.cardinality));
        }
        if kind.is_ordered_values() != (directive.cardinality == Ordered) {
            faults.push(format!("{}: {:?}, ordered", directive.attribute, directive.cardinality));
        }
    }
    assert!(
        faults.is_empty(),
        "{faults:#?}\nown attributes are defined in larix.schema, or by their overlay"
    );
}

//! Values that say what holds anyway.

/// Attributes with the values that are their defaults. OpenLDAP writes many of them into every slapd.d without a
/// line that asks for them; a missing one means the same.
const DEFAULTS: &[(&str, &[&str])] = &[
    ("olcAddContentAcl", &["FALSE"]),
    ("olcAttributeOptions", &["lang-"]),
    ("olcAuthzPolicy", &["none"]),
    ("olcBkLloadClientMaxPending", &["0"]),
    ("olcBkLloadIdleTimeout", &["0"]),
    ("olcBkLloadIOThreads", &["1"]),
    ("olcBkLloadIOTimeout", &["10000"]),
    ("olcBkLloadMaxPDUPerCycle", &["10"]),
    ("olcBkLloadSockbufMaxClient", &["262143"]),
    ("olcBkLloadSockbufMaxPendingClient", &["0"]),
    ("olcBkLloadSockbufMaxUpstream", &["4194303"]),
    ("olcBkLloadTLSShareSlapdCTX", &["FALSE"]),
    ("olcBkLloadWriteCoherence", &["0"]),
    ("olcBkMdbIdlExp", &["16"]),
    ("olcConcurrency", &["0"]),
    ("olcConnMaxPending", &["100"]),
    ("olcConnMaxPendingAuth", &["1000"]),
    ("olcDbMaxEntrySize", &["0"]),
    ("olcDbMaxReaders", &["0"]),
    ("olcDbMaxSize", &["10485760", "1073741824"]),
    ("olcDbMode", &["0600"]),
    ("olcDbNoSync", &["FALSE"]),
    ("olcDbRtxnSize", &["10000"]),
    ("olcDbSearchStack", &["16"]),
    ("olcGentleHUP", &["FALSE"]),
    ("olcHidden", &["FALSE"]),
    ("olcIdleTimeout", &["0"]),
    ("olcIndexHash64", &["FALSE", "TRUE"]),
    ("olcIndexIntLen", &["4"]),
    ("olcIndexSubstrAnyLen", &["4"]),
    ("olcIndexSubstrAnyStep", &["2"]),
    ("olcIndexSubstrIfMaxLen", &["4"]),
    ("olcIndexSubstrIfMinLen", &["2"]),
    ("olcLastBind", &["FALSE"]),
    ("olcLastMod", &["TRUE"]),
    ("olcListenerThreads", &["1"]),
    ("olcLocalSSF", &["71"]),
    ("olcMaxDerefDepth", &["15"]),
    ("olcMaxFilterDepth", &["1000"]),
    ("olcMultiProvider", &["FALSE"]),
    ("olcReadOnly", &["FALSE"]),
    ("olcRemoteAuthRetryCount", &["3"]),
    ("olcRemoteAuthStore", &["FALSE"]),
    ("olcRemoteAuthTLS", &["starttls=no"]),
    ("olcReverseLookup", &["FALSE"]),
    ("olcSaslAuxpropsDontUseCopyIgnore", &["FALSE"]),
    ("olcSaslSecProps", &["noplain,noanonymous"]),
    ("olcSchemaDN", &["cn=Subschema"]),
    ("olcSockbufMaxIncoming", &["262143"]),
    ("olcSockbufMaxIncomingAuth", &["16777215"]),
    ("olcSyncUseSubentry", &["FALSE"]),
    ("olcThreadQueues", &["1"]),
    ("olcThreads", &["16"]),
    ("olcTLSProtocolMin", &["0.0"]),
    ("olcTLSVerifyClient", &["never"]),
    ("olcToolThreads", &["1"]),
    ("olcWriteTimeout", &["0"]),
];

/// Whether a value is the default of its attribute.
pub(super) fn is_default(attribute: &str, value: &[u8]) -> bool {
    let of_overlay = || larix_overlays::all().flat_map(|overlay| overlay.directives);
    DEFAULTS.iter().any(|(name, values)| {
        name.eq_ignore_ascii_case(attribute) && values.iter().any(|known| known.as_bytes() == value)
    }) || of_overlay().any(|directive| {
        directive.attribute.eq_ignore_ascii_case(attribute)
            && directive.default.is_some_and(|known| known.as_bytes() == value)
    })
}

//! Object identifiers of the protocol: controls, extended operations, messages and features.

macro_rules! oids {
    ($($(#[$doc:meta])* $name:ident = $oid:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $oid;)*
    };
}

// Controls.
oids! {
    /// RFC 2696.
    PAGED_RESULTS = "1.2.840.113556.1.4.319";
    /// RFC 2891, request.
    SORT_REQUEST = "1.2.840.113556.1.4.473";
    /// RFC 2891, response.
    SORT_RESPONSE = "1.2.840.113556.1.4.474";
    /// draft-ietf-ldapext-ldapv3-vlv, request.
    VLV_REQUEST = "2.16.840.1.113730.3.4.9";
    /// draft-ietf-ldapext-ldapv3-vlv, response.
    VLV_RESPONSE = "2.16.840.1.113730.3.4.10";
    /// RFC 3296.
    MANAGE_DSA_IT = "2.16.840.1.113730.3.4.2";
    /// RFC 4528.
    ASSERTION = "1.3.6.1.1.12";
    /// RFC 4527.
    PRE_READ = "1.3.6.1.1.13.1";
    /// RFC 4527.
    POST_READ = "1.3.6.1.1.13.2";
    /// RFC 3672.
    SUBENTRIES = "1.3.6.1.4.1.4203.1.10.1";
    /// RFC 4370.
    PROXIED_AUTHORIZATION = "2.16.840.1.113730.3.4.18";
    /// draft-weltman-ldapv3-auth-proxy-04: its first version.
    PROXIED_AUTHORIZATION_V1 = "2.16.840.1.113730.3.4.12";
    /// RFC 3829, request.
    AUTHORIZATION_IDENTITY_REQUEST = "2.16.840.1.113730.3.4.16";
    /// RFC 3829, response.
    AUTHORIZATION_IDENTITY_RESPONSE = "2.16.840.1.113730.3.4.15";
    /// draft-zeilenga-ldap-relax.
    RELAX = "1.3.6.1.4.1.4203.666.5.12";
    /// draft-zeilenga-ldap-noop.
    NO_OP = "1.3.6.1.4.1.4203.666.5.2";
    /// Microsoft's; documented in its protocol specification MS-ADTS.
    PERMISSIVE_MODIFY = "1.2.840.113556.1.4.1413";
    /// draft-armijo-ldap-treedelete.
    TREE_DELETE = "1.2.840.113556.1.4.805";
    /// RFC 3876.
    MATCHED_VALUES = "1.2.826.0.1.3344810.2.3";
    /// RFC 6171.
    DONT_USE_COPY = "1.3.6.1.1.22";
    /// Microsoft's; documented in its protocol specification MS-ADTS.
    DOMAIN_SCOPE = "1.2.840.113556.1.4.1339";
    /// Microsoft's; documented in its protocol specification MS-ADTS.
    SEARCH_OPTIONS = "1.2.840.113556.1.4.1340";
    /// draft-wahl-ldap-session.
    SESSION_TRACKING = "1.3.6.1.4.1.21008.108.63.1";
    /// Active Directory: what changed since a cookie, both ways.
    DIR_SYNC = "1.2.840.113556.1.4.841";
    /// Active Directory: a search that finds deleted entries, too.
    SHOW_DELETED = "1.2.840.113556.1.4.417";
    /// RFC 4533, on the request.
    SYNC_REQUEST = "1.3.6.1.4.1.4203.1.9.1.1";
    /// RFC 4533, on an entry.
    SYNC_STATE = "1.3.6.1.4.1.4203.1.9.1.2";
    /// RFC 4533, on the done message.
    SYNC_DONE = "1.3.6.1.4.1.4203.1.9.1.3";
    /// Larix's own: a consumer says that it settles conflicts as Larix does; on an entry, the entryUUID of its superior.
    SYNC_PEER = "2.25.87610412117718157885716886434399491440.2.4";
    /// Larix's own: how many proxies a request has come through.
    PROXY_HOPS = "2.25.87610412117718157885716886434399491440.2.8";
    /// draft-behera-ldap-password-policy, both ways.
    PASSWORD_POLICY = "1.3.6.1.4.1.42.2.27.8.5.1";
    /// draft-vchu-ldap-pwd-policy: the password has expired.
    PASSWORD_EXPIRED = "2.16.840.1.113730.3.4.4";
    /// draft-vchu-ldap-pwd-policy: the password is about to expire.
    PASSWORD_EXPIRING = "2.16.840.1.113730.3.4.5";
    /// Sun's account usability, both ways.
    ACCOUNT_USABILITY = "1.3.6.1.4.1.42.2.27.9.5.8";
    /// draft-ietf-ldapext-acl-model, as Sun's server, OpenDJ and 389 Directory Server have it.
    EFFECTIVE_RIGHTS = "1.3.6.1.4.1.42.2.27.9.5.2";
    /// RFC 5805.
    TRANSACTION_SPECIFICATION = "1.3.6.1.1.21.2";
    /// OpenLDAP's value sort override.
    VALUE_SORT = "1.3.6.1.4.1.4203.666.5.14";
    /// draft-masarati-ldap-deref, both ways.
    DEREF = "1.3.6.1.4.1.4203.666.5.16";
    /// OpenLDAP's lazy commit.
    LAZY_COMMIT = "1.2.840.113556.1.4.619";
    /// Larix: a consumer that settles conflicts value by value (ADR 0036).
    VALUE_CONFLICTS = "2.25.87610412117718157885716886434399491440.3.1";
    /// draft-sermersheim-ldap-chaining.
    CHAINING_BEHAVIOR = "1.3.6.1.4.1.4203.666.11.3";
    /// draft-ietf-ldapext-psearch, request.
    PERSISTENT_SEARCH = "2.16.840.1.113730.3.4.3";
    /// draft-ietf-ldapext-psearch, response.
    ENTRY_CHANGE_NOTIFICATION = "2.16.840.1.113730.3.4.7";
}

// Extended operations, and unsolicited or intermediate messages.
oids! {
    /// RFC 4511 section 4.4.1.
    NOTICE_OF_DISCONNECTION = "1.3.6.1.4.1.1466.20036";
    /// RFC 4511 section 4.14.
    START_TLS = "1.3.6.1.4.1.1466.20037";
    /// RFC 3062.
    PASSWORD_MODIFY = "1.3.6.1.4.1.4203.1.11.1";
    /// RFC 4532.
    WHO_AM_I = "1.3.6.1.4.1.4203.1.11.3";
    /// OpenLDAP's contributed module vc.
    VERIFY_CREDENTIALS = "1.3.6.1.4.1.4203.666.6.5";
    /// RFC 3909.
    CANCEL = "1.3.6.1.1.8";
    /// RFC 5805.
    START_TRANSACTION = "1.3.6.1.1.21.1";
    /// RFC 5805.
    END_TRANSACTION = "1.3.6.1.1.21.3";
    /// RFC 5805.
    ABORTED_TRANSACTION_NOTICE = "1.3.6.1.1.21.4";
    /// RFC 2589.
    REFRESH = "1.3.6.1.4.1.1466.101.119.1";
    /// RFC 4531.
    TURN = "1.3.6.1.1.19";
    /// RFC 4533's sync info message.
    SYNC_INFO = "1.3.6.1.4.1.4203.1.9.1.4";
}

// Features, as the root DSE lists them.
oids! {
    /// RFC 4525.
    MODIFY_INCREMENT = "1.3.6.1.1.14";
    /// RFC 3673: `+`.
    ALL_OPERATIONAL_ATTRIBUTES = "1.3.6.1.4.1.4203.1.5.1";
    /// RFC 4529: `@class`.
    OBJECT_CLASS_ATTRIBUTES = "1.3.6.1.4.1.4203.1.5.2";
    /// RFC 4526: `(&)` and `(|)`.
    ABSOLUTE_FILTERS = "1.3.6.1.4.1.4203.1.5.3";
    /// RFC 3866.
    LANGUAGE_TAG_OPTIONS = "1.3.6.1.4.1.4203.1.5.4";
    /// RFC 3866.
    LANGUAGE_RANGE_OPTIONS = "1.3.6.1.4.1.4203.1.5.5";
    /// draft-sermersheim-ldap-subordinate-scope.
    SUBORDINATE_SCOPE = "1.3.6.1.4.1.4203.666.8.1";
}

/// Names of controls and extended operations as OpenLDAP 2.7's core schema has them, for `op=`, `control=` and `restrict`.
const REQUESTS: [(&str, &str); 47] = [
    ("manageDSAiT", "2.16.840.1.113730.3.4.2"),
    ("proxyAuthz", "2.16.840.1.113730.3.4.18"),
    ("subentries", "1.3.6.1.4.1.4203.1.10.1"),
    ("valuesReturnFilter", "1.2.826.0.1.3344810.2.3"),
    ("assert", "1.3.6.1.1.12"),
    ("preread", "1.3.6.1.1.13.1"),
    ("postread", "1.3.6.1.1.13.2"),
    ("sort", "1.2.840.113556.1.4.473"),
    ("pagedResults", "1.2.840.113556.1.4.319"),
    ("authzId", "2.16.840.1.113730.3.4.16"),
    ("sync", "1.3.6.1.4.1.4203.1.9.1.1"),
    ("dontUseCopy", "1.3.6.1.1.22"),
    ("ppolicy", "1.3.6.1.4.1.42.2.27.8.5.1"),
    ("noop", "1.3.6.1.4.1.4203.666.5.2"),
    ("nosubordinates", "1.3.6.1.4.1.4203.666.5.11"),
    ("relax", "1.3.6.1.4.1.4203.666.5.12"),
    ("slurp", "1.3.6.1.4.1.4203.666.5.13"),
    ("valsort", "1.3.6.1.4.1.4203.666.5.14"),
    ("x-deref", "1.3.6.1.4.1.4203.666.5.16"),
    ("x-whatfailed", "1.3.6.1.4.1.4203.666.5.17"),
    ("x-chainingBehaviour", "1.3.6.1.4.1.4203.666.11.3"),
    ("x-lazyCommit", "1.2.840.113556.1.4.619"),
    ("x-domainScope", "1.2.840.113556.1.4.1339"),
    ("x-permissiveModify", "1.2.840.113556.1.4.1413"),
    ("x-searchOptions", "1.2.840.113556.1.4.1340"),
    ("x-treeDelete", "1.2.840.113556.1.4.805"),
    ("x-serverNotification", "1.2.840.113556.1.4.528"),
    ("x-extendedDN", "1.2.840.113556.1.4.529"),
    ("x-showDeleted", "1.2.840.113556.1.4.417"),
    ("x-dirSync", "1.2.840.113556.1.4.841"),
    ("sessionTracking", "1.3.6.1.4.1.21008.108.63.1"),
    ("dupent", "2.16.840.1.113719.1.27.101.1"),
    ("persist", "2.16.840.1.113730.3.4.3"),
    ("vlv", "2.16.840.1.113730.3.4.9"),
    ("x-accountUsability", "1.3.6.1.4.1.42.2.27.9.5.8"),
    ("x-returnContinuationReference", "1.3.6.1.4.1.4203.666.11.6.3"),
    ("txnSpecification", "1.3.6.1.1.21.2"),
    ("startTLS", "1.3.6.1.4.1.1466.20037"),
    ("modifyPassword", "1.3.6.1.4.1.4203.1.11.1"),
    ("cancel", "1.3.6.1.1.8"),
    ("refresh", "1.3.6.1.4.1.1466.101.119.1"),
    ("verifyCredentials", "1.3.6.1.4.1.4203.666.6.5"),
    ("whoAmI", "1.3.6.1.4.1.4203.1.11.3"),
    ("turn", "1.3.6.1.1.19"),
    ("x-chainedRequest", "1.3.6.1.4.1.4203.666.11.6.1"),
    ("txnStart", "1.3.6.1.1.21.1"),
    ("txnEnd", "1.3.6.1.1.21.3"),
];

/// The OID of a control or an extended operation by its name, whose letters may be of either case.
pub fn of_request(name: &str) -> Option<&'static str> {
    REQUESTS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, oid)| *oid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_by_name() {
        for (name, expected) in [
            ("pagedResults", Some(PAGED_RESULTS)),
            ("PAGEDRESULTS", Some(PAGED_RESULTS)),
            ("vlv", Some(VLV_REQUEST)),
            ("assert", Some(ASSERTION)),
            ("startTLS", Some(START_TLS)),
            ("txnStart", Some(START_TRANSACTION)),
            ("x-", None),
            ("", None),
        ] {
            assert_eq!(of_request(name), expected, "{name}");
        }
    }
}

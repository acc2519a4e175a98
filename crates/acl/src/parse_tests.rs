//! Lines in, canonical text or fault out.

use super::*;

#[track_caller]
fn check(line: &str, canonical: &str) {
    let rule = AccessRule::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(rule.to_string(), canonical, "{line}");
    let again = AccessRule::parse_quoted(&rule.to_string(), Quoting::Ldif)
        .unwrap_or_else(|error| panic!("{rule}: {error}"));
    assert_eq!((&again.what, &again.by), (&rule.what, &rule.by), "canonical text reads back: {rule}");
}

#[test]
fn what_clauses() {
    check("access to * by * read", "to * by * read");
    check("ACCESS TO * BY * READ", "to * by * read");
    check("to * by * read", "to * by * read");
    check("{3}to * by * read", "to * by * read");
    check("access to dn=\"cn=a,dc=b\" by * none", "to dn.base=\"cn=a,dc=b\" by * none");
    check("access to dn.exact=\"\" by * none", "to dn.base=\"\" by * none");
    check("access to dn.baseObject=\"dc=b\" by * none", "to dn.base=\"dc=b\" by * none");
    check("access to dn.one=dc=b by * none", "to dn.one=\"dc=b\" by * none");
    check("access to dn.onelevel=dc=b by * none", "to dn.one=\"dc=b\" by * none");
    check("access to dn.sub=dc=b by * none", "to dn.subtree=\"dc=b\" by * none");
    check("access to dn.subtree= by * none", "to * by * none");
    check("access to dn.children=dc=b by * none", "to dn.children=\"dc=b\" by * none");
    check("access to dn=* by * none", "to * by * none");
    check("access to dn.regex=.* by * none", "to * by * none");
    check("access to dn.regex= by * none", "to dn.base=\"\" by * none");
    check(
        "access to dn.regex=\"^(.+,)?uid=([^,]+), dc=b$\" by * none",
        "to dn.regex=\"^(.+,)?uid=([^,]+),dc=b$\" by * none",
    );
    check(
        "access to filter=(&(objectClass=person)(cn=a)) by * none",
        "to filter=\"(&(objectClass=person)(cn=a))\" by * none",
    );
    check("access to attrs=cn,sn attrs=mail by * none", "to attrs=cn,sn,mail by * none");
    check("access to attr=entry,children by * none", "to attrs=entry,children by * none");
    check(
        "access to attrs=@person,!device,-name,+account by * none",
        "to attrs=@person,!device,-name,@account by * none",
    );
    check("access to op=search by * none", "to op=search by * none");
    check("access to op=ModRDN attrs=cn by * none", "to attrs=cn op=rename by * none");
    check("access to op=1.3.6.1.4.1.4203.1.11.1 by * none", "to op=1.3.6.1.4.1.4203.1.11.1 by * none");
    check(
        "access to dn.base=\"dc=b\" control=1.3.6.1.1.12 by * none",
        "to dn.base=\"dc=b\" control=1.3.6.1.1.12 by * none",
    );
    check("access to attrs=cn val=x by * none", "to attrs=cn val.exact=\"x\" by * none");
    check(
        "access to attrs=cn val/caseExactMatch.exact=\"x y\" by * none",
        "to attrs=cn val/caseExactMatch.exact=\"x y\" by * none",
    );
    check(
        "access to attrs=member val.children=dc=b by * none",
        "to attrs=member val.children=\"dc=b\" by * none",
    );
    check("access to attrs=cn val.regex=\"^a\" by * none", "to attrs=cn val.regex=\"^a\" by * none");
    check(
        "access to dn.subtree=\"dc=b\" filter=(cn=a) attrs=cn by * none",
        "to dn.subtree=\"dc=b\" filter=\"(cn=a)\" attrs=cn by * none",
    );
}

#[test]
fn who_clauses() {
    let who = |text: &str, canonical: &str| {
        check(&format!("access to * by {text} read"), &format!("to * by {canonical} read"));
    };
    who("anonymous", "anonymous");
    who("users", "users");
    who("self", "self");
    who("self.level{1}", "self.level{1}");
    who("self.level{-2}", "self.level{-2}");
    who("realself", "realself");
    who("realusers", "realusers");
    who("realdn.exact=cn=a", "realdn.base=\"cn=a\"");
    who("dn=cn=a", "dn.base=\"cn=a\"");
    who("dn.subtree=\"ou=x y\"", "dn.subtree=\"ou=x y\"");
    who("dn.level{2}=dc=b", "dn.level{2}=\"dc=b\"");
    who("dn.exact,expand=\"uid=$1,dc=b\"", "dn.base,expand=\"uid=$1,dc=b\"");
    who("dn.regex=\"^uid=$2,dc=[^,]+,dc=com$$\"", "dn.regex=\"^uid=$2,dc=[^,]+,dc=com$$\"");
    who("dn.regex=.+", "users");
    who("dn.regex=.*", "*");
    who("dn.regex=", "anonymous");
    who("dnattr=member", "dnattr=member");
    who("realdnattr=member", "realdnattr=member");
    who("group=cn=g", "group/groupOfNames/member.base=\"cn=g\"");
    who("group/groupOfUniqueNames/uniqueMember=cn=g", "group/groupOfUniqueNames/uniqueMember.base=\"cn=g\"");
    who(
        "group/organizationalRole/roleOccupant.exact=cn=g",
        "group/organizationalRole/roleOccupant.base=\"cn=g\"",
    );
    who("group.expand=\"cn=$1,dc=b\"", "group/groupOfNames/member.expand=\"cn=$1,dc=b\"");
    who("peername.ip=127.0.0.1", "peername.ip=\"127.0.0.1\"");
    who(
        "peername.ip=192.168.1.16%255.255.255.240{9009}",
        "peername.ip=\"192.168.1.16%255.255.255.240{9009}\"",
    );
    who("peername.ipv6=::1", "peername.ipv6=\"::1\"");
    who("peername.ipv6=2001:db8::%ffff:ffff::", "peername.ipv6=\"2001:db8::%ffff:ffff::\"");
    who("peername.path=/run/x", "peername.path=\"/run/x\"");
    who("peername.regex=IP=10\\\\..+", "peername.regex=\"IP=10\\..+\"");
    who("peername=*", "peername=\"*\"");
    who("sockname=IP=0.0.0.0:389", "sockname.base=\"IP=0.0.0.0:389\"");
    who("sockurl=\"ldapi:///\"", "sockurl.base=\"ldapi:///\"");
    who("domain.subtree=example.com", "domain.subtree=example.com");
    who("set=\"this/manager & user\"", "set.base=\"this/manager & user\"");
    who("set.expand=\"[$1]/member & user\"", "set.expand=\"[$1]/member & user\"");
    who("ssf=128 users", "ssf=128 users");
    who("transport_ssf=1 tls_ssf=2 sasl_ssf=3", "transport_ssf=1 tls_ssf=2 sasl_ssf=3");
    who("aci", "dynacl/aci");
    who("dynacl/aci=myACI", "dynacl/aci=myACI");
}

#[test]
fn access_and_control() {
    check("access to * by users", "to * by users +0 stop");
    check("access to * by users stop", "to * by users +0 stop");
    check("access to * by users continue by * read", "to * by users +0 continue by * read");
    check("access to * by users by * read", "to * by users +0 stop by * read");
    check("access to * by users =rscx break", "to * by users =rscx break");
    check("access to * by * break", "to * by * +0 break");
    check("access to * by users +r continue by * -w stop", "to * by users +r continue by * -w");
    check("access to * by users selfwrite", "to * by users selfwrite");
    check(
        "access to * by users self=az by realusers realselfread",
        "to * by users self=w by realusers realselfread",
    );
    check("access to attrs=member by dnattr=member selfwrite", "to attrs=member by dnattr=member selfwrite");
}

#[test]
fn faults_name_the_column() {
    let check = |line: &str, column: usize, shown: &str| {
        let error = AccessRule::parse(line).expect_err(line);
        assert_eq!((error.column, error.fault.to_string().as_str()), (column, shown), "{line}");
    };
    check("access", 1, "an access rule begins with `to`");
    let keyword = AccessRule::parse_quoted("{0}access to * by * read", Quoting::Ldif)
        .expect_err("no keyword in olcAccess");
    assert_eq!((keyword.column, keyword.fault.to_string().as_str()), (4, "an access rule begins with `to`"));
    let twice = AccessRule::parse_quoted("access to * by * read", Quoting::Configuration)
        .expect_err("the keyword is given twice");
    assert_eq!((twice.column, twice.fault.to_string().as_str()), (1, "an access rule begins with `to`"));
    check("access access to * by * read", 8, "an access rule begins with `to`");
    check("access from", 8, "an access rule begins with `to`");
    check("access to *", 12, "the rule grants nothing to anyone");
    check("access to * by", 15, "`by` without a requester");
    check("access to * by read", 16, "`read` is neither a requester nor an access");
    check("access to * by * raed", 18, "`raed` is not an access");
    check("access to * by * read foo", 23, "expected `by`, found `foo`");
    check("access to * to * by * read", 13, "a second `to` in one rule");
    check("access to dn.foo=x by * read", 11, "unknown style `foo`");
    check("access to foo by * read", 11, "`=` is missing after `foo`");
    check("access to foo=x by * read", 11, "`foo` names nothing that access can be granted to");
    check("access to dn=a dn=b by * read", 16, "a DN pattern is given twice");
    check("access to * * by * read", 13, "a DN pattern is given twice");
    check("access to * dn=a by * read", 13, "a DN pattern is given twice");
    check("access to dn=a * by * read", 16, "a DN pattern is given twice");
    check("access to filter=(a=b) filter=(a=c) by * read", 24, "a filter is given twice");
    check("access to val=x by * read", 11, "`val` needs exactly one attribute");
    check("access to attrs=a,b val=x by * read", 21, "`val` needs exactly one attribute");
    check("access to dn.regex=\"a(\" by * read", 11, "bad regular expression `a(`: unclosed group");
    check("access to * by dn.exact= read", 16, "`dn` needs a value");
    check("access to * by dn.exact,expand=cn=a read", 16, "`expand` on a pattern without `$`");
    check("access to * by dn.regex,expand=cn=$1 read", 16, "`expand` with style `regex`");
    check("access to * by dn.ip=x read", 16, "style `ip` does not go with `dn`");
    check("access to * by dn.level{-1}=x read", 16, "level -1 is negative");
    check("access to * by self.level{x} read", 16, "`level{x}` is not a level");
    check("access to * by users self read", 22, "a DN pattern is given twice");
    check("access to * by peername.ip=300.1.1.1 read", 16, "`300.1.1.1` is not an address");
    check("access to * by peername.ip=1.1.1.1%x read", 16, "`x` is not an address mask");
    check("access to * by peername.ip=1.1.1.1{x} read", 16, "`{x}` is not a port in braces");
    check("access to * by ssf=0 read", 16, "`0` is not a strength factor");
    check("access to dn=\"a by * read", 11, "a quotation mark is not closed");
    check("{0}to * by * raed", 14, "`raed` is not an access");
}

//! `slapauth`, `slapdn` and `slapschema`: they print what OpenLDAP's print.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use larix_testkit::{Kind, Site};

const BODY: &str = "authz-policy to\n\
    authz-regexp \"^uid=([^,]+),cn=[^,]+,cn=auth$\" \"ldap:///dc=example,dc=com??sub?(uid=$1)\"\n\
    database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\ndirectory @DATA@\n";
const ENTRIES: &str = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
    dn: uid=ann,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: ann\ncn: Ann\nsn: A\n\
    authzTo: dn.exact:uid=bob,dc=example,dc=com\n\n\
    dn: uid=bob,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: bob\ncn: Bob\nsn: B\n";
/// What the schema does not permit.
const WRONG: &str = "dn: cn=short,dc=example,dc=com\nobjectClass: person\nstructuralObjectClass: person\ncn: short\n\n\
    dn: cn=other,dc=example,dc=com\nobjectClass: person\nstructuralObjectClass: person\ncn: other\nsn: o\nmail: o@x\n";

fn kinds() -> impl Iterator<Item = Kind> {
    [Kind::Larix, Kind::Slapd].into_iter().filter(|kind| !kind.is_lacking())
}

/// Whether a tool succeeds, and its two outputs.
fn run(kind: Kind, tool: &str, site: &Site, arguments: &[&str]) -> (bool, String, String) {
    let output = kind.tool(tool).arg("-f").arg(site.configuration()).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn identities_and_names_are_shown_as_openldap_shows_them() {
    let acts = |who: &str, whom: &str, may: &str| {
        format!(
            "ID:      <{who}>\nauthcDN: <uid={who},dc=example,dc=com>\nauthzDN: <uid={whom},dc=example,dc=com>\n\
             authorization {may}\n"
        )
    };
    let is = |who: &str, dn: &str| format!("ID: <{who}> check succeeded\nauthcID:     <{dn}>\n");
    let name = "CN = Ann  Lee, DC=Example,dc=COM";
    let (normal, pretty) = ("cn=ann lee,dc=example,dc=com", "cn=Ann  Lee,dc=Example,dc=COM");
    let digest = ["-M", "DIGEST-MD5"];
    for kind in kinds() {
        let site = Site::new(kind, BODY);
        site.load(ENTRIES);
        for (tool, arguments, expected) in [
            ("auth", &["ann"][..], is("ann", "uid=ann,dc=example,dc=com")),
            ("auth", &["nobody"], is("nobody", "uid=nobody,cn=digest-md5,cn=auth")),
            (
                "auth",
                &["-R", "example.com", "ann"],
                is("ann", "uid=ann,cn=example.com,cn=digest-md5,cn=auth"),
            ),
            ("auth", &["-U", "ann", "u:bob"], acts("ann", "bob", "OK")),
            ("auth", &["-U", "ann", "-X", "u:bob"], acts("ann", "bob", "OK")),
            ("auth", &["-U", "ann", "dn:uid=bob,dc=example,dc=com"], acts("ann", "bob", "OK")),
            ("auth", &["-U", "bob", "u:ann"], acts("bob", "ann", "failed")),
            (
                "dn",
                &[name],
                format!("DN: <{name}> check succeeded\nnormalized: <{normal}>\npretty:     <{pretty}>\n"),
            ),
            ("dn", &["-N", name], format!("{normal}\n")),
            ("dn", &["-P", name], format!("{pretty}\n")),
        ] {
            let common = if tool == "auth" { &digest[..] } else { &[] };
            let (succeeds, out, errors) = run(kind, tool, &site, &[common, arguments].concat());
            assert_eq!((succeeds, out + &errors), (true, expected), "{kind:?} {tool} {arguments:?}");
        }
        let (succeeds, out, errors) = run(kind, "dn", &site, &["nonsense", "cn=a"]);
        assert!(!succeeds, "{kind:?}: {out}");
        assert!((out + &errors).contains("DN: <nonsense> check failed"), "{kind:?}: {errors}");
    }
}

/// The status of each tool is that of OpenLDAP's: scripts look at it.
#[test]
fn what_is_wrong_has_openldap_s_status() {
    let ann = "uid=ann,dc=example,dc=com";
    for kind in kinds() {
        let site = Site::new(kind, BODY);
        site.load(ENTRIES);
        for (tool, arguments, expected) in [
            ("dn", &["dc=x"][..], 0),
            ("dn", &["nonsense"], 255),
            ("dn", &["dc=x", "nonsense"], 255),
            ("dn", &[], 1),
            ("auth", &[""], 1),
            ("auth", &["-U", "ann", "bob"], 255),
            ("auth", &["-U", "bob", "u:ann"], 0),
            ("auth", &["-X", "dn:nonsense", "ann"], 1),
            ("acl", &["-b", ann, "sn/read"], 0),
            ("acl", &["-b", ann, "sn/write"], 0),
            ("acl", &["-b", ann, "nothing/read"], 17),
            ("acl", &["-b", "nonsense", "sn/read"], 1),
            ("acl", &["-b", ann, "-D", "nonsense", "sn/read"], 1),
            ("acl", &["-b", "cn=none,dc=example,dc=com", "sn/read"], 1),
            ("cat", &["-d", "stats,acl"], 0),
            ("cat", &["-d", "0x100"], 0),
            ("cat", &["-d", "nonsense"], 1),
            ("cat", &["-d", "stats,nonsense"], 1),
            ("schema", &["-d", "12x"], 1),
        ] {
            // By slapd's name, as scripts call it: `larix` has another status for a command line that it cannot read.
            let mut command = Command::new(kind.program().unwrap());
            command.arg0("slapd").arg(format!("-T{tool}")).arg("-f").arg(site.configuration());
            let output = command.args(arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(expected), "{kind:?} {tool} {arguments:?}: {output:?}");
        }
    }
}

#[test]
fn entries_that_the_schema_does_not_permit_are_found() {
    let short = "# (65) Object class violation: object class 'person' requires attribute 'sn'\n\
                 dn: cn=short,dc=example,dc=com\n\n";
    let other =
        "# (65) Object class violation: attribute 'mail' not allowed\ndn: cn=other,dc=example,dc=com\n\n";
    let both = format!("{short}{other}");
    for kind in kinds() {
        let site = Site::new(kind, BODY);
        site.load(ENTRIES);
        let (succeeds, out, errors) = run(kind, "schema", &site, &[]);
        assert_eq!((succeeds, out.as_str()), (true, ""), "{kind:?}: {errors}");
        let wrong = site.path().join("wrong.ldif").display().to_string();
        std::fs::write(&wrong, WRONG).unwrap();
        let (succeeds, _, errors) = run(kind, "add", &site, &["-s", "-l", &wrong]);
        assert!(succeeds, "{kind:?}: {errors}");
        for (arguments, expected) in [(&[][..], both.as_str()), (&["-a", "(cn=other)"], other)] {
            let (succeeds, out, errors) = run(kind, "schema", &site, arguments);
            assert_eq!((succeeds, out.as_str()), (false, expected), "{kind:?} {arguments:?}: {errors}");
        }
        let file = site.path().join("found").display().to_string();
        let (succeeds, out, errors) = run(kind, "schema", &site, &["-l", &file]);
        assert_eq!((succeeds, out.as_str()), (false, ""), "{kind:?}: {errors}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), both, "{kind:?}");
    }
}

/// A full disk under the report is not taken for an entry that cannot be read.
/// A schema file was edited while no server ran: what names are equal by is another rule now.
#[test]
fn names_that_the_schema_reads_otherwise_are_found() {
    let body = format!(
        "attributetype ( 1.3.6.1.4.1.99999.1.1 NAME 'label' EQUALITY caseExactMatch \
         SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )\n\
         objectclass ( 1.3.6.1.4.1.99999.2.1 NAME 'labelled' SUP top STRUCTURAL MUST label )\n{BODY}"
    );
    let site = Site::new(Kind::Larix, &body);
    site.load(&format!(
        "{ENTRIES}\ndn: label=Big,dc=example,dc=com\nobjectClass: labelled\n\n\
         dn: label=small,dc=example,dc=com\nobjectClass: labelled\n"
    ));
    let (fits, out, errors) = run(Kind::Larix, "check", &site, &[]);
    assert!(fits, "{out}{errors}");
    let path = site.configuration();
    let configuration = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, configuration.replace("caseExactMatch", "caseIgnoreMatch")).unwrap();
    let (fits, out, errors) = run(Kind::Larix, "check", &site, &[]);
    let text = out + &errors;
    assert!(!fits && text.contains("is not found by its name \"label=Big\""), "{text}");
    assert!(!text.contains("label=small") && text.contains("1 finding"), "{text}");
}

#[test]
fn a_report_that_cannot_be_written_is_no_damaged_entry() {
    let site = Site::new(Kind::Larix, BODY);
    site.load(ENTRIES);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut schema = Kind::Larix.tool("schema");
    let output = schema.arg("-f").arg(site.configuration()).arg("-v").stdout(full).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("cannot write what was found: No space left"), "{errors}");
    assert!(!errors.contains("cannot be read"), "{errors}");
}

#[test]
fn a_url_without_a_dn_counts_from_the_suffix() {
    let (top, people) = ("dc=example,dc=com", ["uid=ann,dc=example,dc=com", "uid=bob,dc=example,dc=com"]);
    for kind in kinds() {
        let site = Site::new(kind, BODY);
        site.load(ENTRIES);
        for (url, expected) in [
            ("ldap:///??base", &[top][..]),
            ("ldap:///??one", &people),
            ("ldap:///??one?(uid=b*)", &people[1..]),
        ] {
            let (succeeds, out, errors) = run(kind, "cat", &site, &["-H", url]);
            let found: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("dn: ")).collect();
            assert_eq!((succeeds, found.as_slice()), (true, expected), "{kind:?} {url}: {errors}");
        }
    }
}

/// With the overlay that allows them, dynamic objects (RFC 2589) follow the schema; only they have a time to live.
#[test]
fn a_time_to_live_is_for_dynamic_objects() {
    const DYNAMIC: &str = "dn: cn=meeting,dc=example,dc=com\nobjectClass: person\nobjectClass: dynamicObject\n\
        structuralObjectClass: person\ncn: meeting\nsn: m\nentryTtl: 86400\n\
        entryExpireTimestamp: 20990101000000Z\n";
    const STATIC: &str = "dn: cn=static,dc=example,dc=com\nobjectClass: person\nstructuralObjectClass: person\n\
        cn: static\nsn: s\nentryTtl: 86400\n";
    let only = "attribute \"entryTtl\" only allowed in dynamic object";
    for kind in kinds() {
        let site = Site::new(kind, &format!("moduleload dds\n{BODY}overlay dds\n"));
        site.load(ENTRIES);
        site.load(DYNAMIC);
        let (succeeds, out, errors) = run(kind, "schema", &site, &[]);
        assert_eq!((succeeds, out.as_str()), (true, ""), "{kind:?}: {errors}");
        let file = site.path().join("static.ldif").display().to_string();
        std::fs::write(&file, STATIC).unwrap();
        let (succeeds, _, errors) = run(kind, "add", &site, &["-l", &file]);
        assert!(!succeeds && errors.contains(only), "{kind:?}: {errors}");
        let (succeeds, _, errors) = run(kind, "add", &site, &["-s", "-l", &file]);
        assert!(succeeds, "{kind:?}: {errors}");
        let (_, out, errors) = run(kind, "schema", &site, &[]);
        let expected = format!("# (65) Object class violation: {only}\ndn: cn=static,dc=example,dc=com\n\n");
        assert_eq!(out, expected, "{kind:?}: {errors}");
    }
}

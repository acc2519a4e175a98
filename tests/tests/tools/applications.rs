//! What applications send that RFC 4511 does not, and what they configure: beside a real slapd where one is installed.

use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation};
use larix_testkit::{Kind, Server, Site};
use larix_tests::raw::Raw;

const ADMIN: &str = "cn=admin,dc=example,dc=com";
const BASE: &str = "dn: dc=example,dc=com\nobjectClass: domain\nobjectClass: pkiUser\nobjectClass: pkiCA\ndc: example\n\n\
    dn: ou=a,dc=example,dc=com\nobjectClass: organizationalUnit\n\n\
    dn: ou=b,ou=a,dc=example,dc=com\nobjectClass: organizationalUnit\n\n";

fn kinds() -> impl Iterator<Item = Kind> {
    [Kind::Larix, Kind::Slapd].into_iter().filter(|kind| !kind.is_lacking())
}

/// A served directory, and a connection of its root DN.
fn serve(kind: Kind) -> (Site, Server, Raw) {
    let site = Site::example(kind);
    site.load(BASE);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut connection = Raw::connect(server.address).unwrap();
    let mut bind = Vec::new();
    client::simple_bind(&mut bind, MessageId(1), ADMIN, b"secret", &[]);
    assert!(connection.send(&bind));
    assert_eq!(connection.answer().unwrap().code, 0);
    (site, server, connection)
}

/// DER of one element.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag, 0x82];
    out.extend_from_slice(&u16::try_from(content.len()).unwrap().to_be_bytes());
    out.extend_from_slice(content);
    out
}

/// `cn=NAME` as X.501 has it.
fn name(value: &str) -> Vec<u8> {
    let attribute = [der(0x06, &[0x55, 4, 3]), der(0x0c, value.as_bytes())].concat();
    der(0x30, &der(0x31, &der(0x30, &attribute)))
}

const ALGORITHM: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0b];

fn signed(body: &[u8]) -> Vec<u8> {
    let algorithm = der(0x30, &der(0x06, &ALGORITHM));
    der(0x30, &[der(0x30, body), algorithm, der(0x03, b"\0signature")].concat())
}

fn certificate() -> Vec<u8> {
    let algorithm = der(0x30, &der(0x06, &ALGORITHM));
    let validity = der(0x30, &[der(0x17, b"200101000000Z"), der(0x17, b"400101000000Z")].concat());
    let key = der(0x30, &[algorithm.clone(), der(0x03, b"\0key")].concat());
    let version = der(0xa0, &der(0x02, &[2]));
    signed(&[version, der(0x02, &[7]), algorithm, name("ca"), validity, name("ann"), key].concat())
}

fn revocation_list() -> Vec<u8> {
    let algorithm = der(0x30, &der(0x06, &ALGORITHM));
    signed(&[der(0x02, &[1]), algorithm, name("ca"), der(0x17, b"200101000000Z")].concat())
}

/// Files that a text tool saved end with a newline.
#[test]
fn certificates_with_something_behind_their_der() {
    let tails: [&[u8]; 6] = [b"", b"\n", b"\0", b"\r\n", b"\n\n\n", b"\x05\x00"];
    for kind in kinds() {
        let (_site, server, mut connection) = serve(kind);
        let mut number = 1;
        let mut replace = |attribute: &str, value: Vec<u8>| {
            number += 1;
            let change = ClientChange {
                operation: ModifyOperation::Replace,
                attribute: ClientAttribute { description: attribute, values: &[value] },
            };
            let mut out = Vec::new();
            client::modify(&mut out, MessageId(number), "dc=example,dc=com", &[change], &[]);
            assert!(connection.send(&out));
            connection.answer().unwrap().code
        };
        for tail in tails {
            for attribute in ["userCertificate;binary", "cACertificate;binary"] {
                let expected = if tail.len() < 2 { 0 } else { 21 };
                let code = replace(attribute, [&certificate(), tail].concat());
                assert_eq!(code, expected, "{kind:?} {attribute} {tail:02x?}");
            }
            let code = replace("certificateRevocationList;binary", [&revocation_list(), tail].concat());
            assert_eq!(code, 0, "{kind:?} {tail:02x?}");
        }
        // Not what a text tool does.
        let mut cut = certificate();
        cut.pop();
        assert_eq!(replace("userCertificate;binary", cut), 21, "{kind:?}");
        drop(server);
    }
}

/// The tree delete of Ruby's net-ldap, byte by byte: its controls are tagged as a SEQUENCE.
#[test]
fn controls_tagged_as_a_sequence_are_read() {
    const OID: &[u8] = b"1.2.840.113556.1.4.805";
    let control = der(0x30, &[der(0x04, OID), der(0x01, &[0xff])].concat());
    for (kind, code) in kinds().map(|kind| (kind, if kind == Kind::Larix { 0 } else { 66 })) {
        let (_site, _server, mut connection) = serve(kind);
        let delete =
            [&[0x02, 1, 2][..], &der(0x4a, b"ou=a,dc=example,dc=com"), &der(0x30, &control)].concat();
        assert!(connection.send(&der(0x30, &delete)));
        // slapd passes over what it does not know there, as RFC 4511 has it: the subordinates are in the way.
        assert_eq!(connection.answer().unwrap().code, code, "{kind:?}");
    }
}

/// `slaptest -u` is run before a restart: what the start refuses it must refuse, for the same reason.
#[test]
fn a_dry_run_refuses_what_the_start_refuses() {
    let database = "database mdb\nsuffix dc=example,dc=com\ndirectory @DATA@\n";
    let mut cases = vec![
        format!("database sql\nsuffix dc=m\n{database}"),
        format!("database ldap\nsuffix dc=l\nuri ldap://127.0.0.1:1/\n{database}"),
        format!("backend lload\n{database}"),
        format!("overlay memberof\n{database}database mdb\nsuffix dc=b\ndirectory @DATA@/b\n"),
        format!("overlay syncprov\n{database}database mdb\nsuffix dc=b\ndirectory @DATA@/b\n"),
        format!("{database}overlay syncprov\nsyncprov-checkpoint 0 0\n"),
    ];
    cases.extend(["dynlist", "unique", "rwm", "pcache"].map(|name| format!("{database}overlay {name}\n")));
    let mut refused = 0;
    for body in cases {
        let site = Site::new(Kind::Larix, &body);
        let start = site.start();
        for flags in [&["-u"][..], &[], &["-u", "-n", "0"]] {
            let mut test = Kind::Larix.tool("test");
            let output = test.args(flags).arg("-f").arg(site.configuration()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), start.is_ok(), "{flags:?} {body}: {text}");
            assert_eq!(
                text.contains("config file testing succeeded"),
                start.is_ok(),
                "{flags:?} {body}: {text}"
            );
        }
        refused += usize::from(start.is_err());
    }
    // Should the server learn one of them, the others still say what this is about.
    assert!(refused >= 4, "{refused}");
    // A directory that is not there yet is no fault of the configuration.
    let site = Site::new(Kind::Larix, &database.replace("@DATA@", "@DATA@/gone"));
    std::fs::remove_dir(site.path().join("data/gone")).unwrap();
    for (flags, expected) in [(&["-u"][..], true), (&[], false)] {
        let mut test = Kind::Larix.tool("test");
        let output = test.args(flags).arg("-f").arg(site.configuration()).output().unwrap();
        assert_eq!(output.status.success(), expected, "{flags:?}");
    }
}

/// slapd's default.
#[test]
fn a_database_without_a_directory_has_the_usual_one() {
    for kind in kinds() {
        let site = Site::new(kind, "database mdb\nsuffix dc=example,dc=com\n");
        let file = site.configuration();
        let folder = site.path().join("slapd.d");
        std::fs::create_dir(&folder).unwrap();
        let mut convert = kind.tool("test");
        let output = convert.arg("-f").arg(&file).arg("-F").arg(&folder).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let mut cat = kind.tool("cat");
        let output = cat.arg("-F").arg(&folder).args(["-n", "0"]).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains("olcDbDirectory: /var/lib/ldap\n"), "{kind:?}: {text}{shown}");
    }
    // Not two of them.
    let site = Site::new(Kind::Larix, "database mdb\nsuffix dc=a\ndatabase mdb\nsuffix dc=b\n");
    let mut test = Kind::Larix.tool("test");
    let output = test.arg("-u").arg("-f").arg(site.configuration()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("/var/lib/ldap"), "{text}");
}

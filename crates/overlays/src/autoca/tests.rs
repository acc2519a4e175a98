//! The authority, and settings that cannot be.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_engine::time::Timestamp;

use super::DESCRIPTOR;
use super::authority::{Authority, CertificateRequest};
use super::certificate::{Purpose, ReadCertificate};
use crate::testing::{TREE, build, directory, found, schema};

#[test]
fn mistakes_are_named() {
    let schema = schema(DESCRIPTOR.schema);
    for (lines, fault) in [
        ("userClass nobody", "userClass \"nobody\": the schema has no such object class"),
        ("userDays 0", "userDays \"0\": `0` cannot be; 1 to 36525 days"),
        ("caDays 40000", "caDays \"40000\""),
        ("serverDays many", "serverDays \"many\": not a number"),
        ("localdn nobody", "localDN \"nobody\" is not a DN"),
        ("localdn cn=a,dc=elsewhere", "localDN \"cn=a,dc=elsewhere\" is not in this database"),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault), "{lines}: {error}");
    }
}

#[test]
fn the_authority_is_made_once() {
    let fixture = directory(&[(&DESCRIPTOR, "")]);
    let served = &fixture.directory.databases()[0];
    let turn = || {
        let settings = served.database().settings();
        let overlay = settings.overlays.iter().next().unwrap();
        let outcome = served.tick(overlay.tick().unwrap()).unwrap().unwrap();
        (outcome.done, outcome.refused)
    };
    // There is no suffix entry yet.
    assert_eq!(turn(), (0, Vec::new()));
    fixture.apply(TREE);
    assert_eq!(turn(), (1, Vec::new()));
    assert_eq!(turn(), (0, Vec::new()));
    let with = |filter| found(&fixture, filter, &["1.1"]);
    assert_eq!(
        with("(&(objectClass=autoCA)(cACertificate=*)(cAPrivateKey=*))"),
        with("(objectClass=autoCA)")
    );
    assert!(!with("(objectClass=autoCA)").is_empty());
}

#[test]
fn certificates_and_keys_are_told_from_others() {
    let schema = schema(DESCRIPTOR.schema);
    let now = Timestamp::from_seconds(1_800_000_000);
    let request = |dn, purpose, days| CertificateRequest { dn, purpose, now, days };
    let (authority, own) = Authority::make(&schema, &request("dc=a,dc=b", &Purpose::Authority, 10)).unwrap();
    let user = Purpose::User(Vec::new());
    let issued = authority.issue(&schema, &request("cn=\\23 x+sn=y,dc=a,dc=b", &user, 5)).unwrap();
    let read = ReadCertificate::read(&issued.certificate).unwrap();
    assert_eq!(read.not_after.seconds(), now.seconds() + 5 * 86_400);
    assert_ne!(read.subject, ReadCertificate::read(&own.certificate).unwrap().subject);
    assert_eq!(ReadCertificate::read(&issued.certificate[1..]), None);
    let late = Timestamp::from_seconds(now.seconds() + 11 * 86_400);
    let (own_certificate, own_key) = (&own.certificate[..], &own.key[..]);
    for (certificate, key, at, fault) in [
        (own_certificate, own_key, now, ""),
        (own_certificate, &issued.key[..], now, "do not belong together"),
        (own_certificate, own_key, late, "was valid until"),
        (own_certificate, own_certificate, now, "is no key"),
        (own_key, own_key, now, "is no certificate"),
    ] {
        let told = Authority::read(certificate, key, at).map(|_| ()).err().unwrap_or_default();
        assert!(told.contains(fault) && told.is_empty() == fault.is_empty(), "{fault}: {told}");
    }
    assert!(
        authority.issue(&schema, &request("cn=#04ff,dc=b", &user, 5)).unwrap_err().contains("is no text")
    );
}

//! Telephony subscribers: one flat list, 11 attributes and about 325 bytes of LDIF an entry.

use std::io::{self, Write};

use super::names;
use super::random::Random;

pub(super) const SUFFIX: &str = "dc=subscribers,dc=com";

pub(super) const INDEX_LINES: [&str; 3] = ["objectClass eq", "uid eq", "telephoneNumber eq"];

pub(super) fn write_ldif(entries: u64, random: &mut Random, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: subscribers\no: subscribers\n"
    )?;
    for number in 1..=entries {
        let (given, surname) = names::person(random);
        let (account, digits) = (random.digits(8), random.digits(6));
        writeln!(
            out,
            "dn: uid={number:09},{SUFFIX}\nobjectClass: person\nobjectClass: organizationalPerson\n\
             objectClass: inetOrgPerson\nuid: {number:09}\ncn: {given} {surname}\n\
             sn: {surname}\ngivenName: {given}\ntelephoneNumber: +49{number:09}\nmobile: +4915{digits}\n\
             employeeNumber: {account}\nemployeeType: prepaid\nroomNumber: {digits}\npreferredLanguage: en\n"
        )?;
    }
    Ok(())
}

//! People and groups of the standard schema: what a newcomer expects to find in a directory.

use std::io::{self, Write};

use super::names;
use super::random::Random;

pub(super) const SUFFIX: &str = "dc=example,dc=com";

pub(super) const INDEX_LINES: [&str; 7] = [
    "objectClass eq",
    "cn,sn,givenName pres,eq,sub",
    "mail eq,sub",
    "uid eq",
    "member eq",
    "uidNumber,gidNumber eq",
    "departmentNumber eq",
];

const DEPARTMENTS: [(&str, &str); 6] = [
    ("engineering", "100"),
    ("operations", "200"),
    ("sales", "300"),
    ("finance", "400"),
    ("people", "500"),
    ("research", "600"),
];

pub(super) fn write_ldif(entries: u64, random: &mut Random, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example Organization\n"
    )?;
    for unit in ["people", "groups"] {
        writeln!(out, "dn: ou={unit},{SUFFIX}\nobjectClass: organizationalUnit\nou: {unit}\n")?;
    }
    let mut members: [Vec<u64>; DEPARTMENTS.len()] = Default::default();
    for number in 1..=entries {
        let department = random.below(DEPARTMENTS.len() as u64) as usize;
        members[department].push(number);
        write_person(number, DEPARTMENTS[department].1, random, out)?;
    }
    for ((name, number), members) in
        DEPARTMENTS.iter().zip(&members).filter(|(_, members)| !members.is_empty())
    {
        writeln!(
            out,
            "dn: cn={name},ou=groups,{SUFFIX}\nobjectClass: groupOfNames\ncn: {name}\ndescription: department {number}"
        )?;
        for member in members {
            writeln!(out, "member: uid=user.{member},ou=people,{SUFFIX}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_person(number: u64, department: &str, random: &mut Random, out: &mut impl Write) -> io::Result<()> {
    let (given, surname) = names::person(random);
    let (office, home) = (random.digits(7), random.digits(7));
    writeln!(
        out,
        "dn: uid=user.{number},ou=people,{SUFFIX}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\n\
         uid: user.{number}\ncn: {given} {surname}\nsn: {surname}\ngivenName: {given}\n\
         mail: {}.{}.{number}@example.com\ndepartmentNumber: {department}\nemployeeNumber: {number}\n\
         telephoneNumber: +1 555 {office}\nhomePhone: +1 555 {home}\nuidNumber: {}\ngidNumber: {department}\n\
         homeDirectory: /home/user.{number}\nloginShell: /bin/bash\n",
        given.to_lowercase(),
        surname.to_lowercase(),
        10_000 + number
    )
}

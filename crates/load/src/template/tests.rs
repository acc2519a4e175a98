use std::collections::BTreeSet;
use std::path::Path;

use larix_proto::Dn;

use super::{Template, TemplateFault};

fn ldif(text: &str) -> String {
    let template = Template::parse(text, Path::new(".")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut out = Vec::new();
    template.write_ldif(1, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches("dn: ").count() as u64, template.entries(), "{text}");
    text.replace("\n ", "")
}

const SITE: &str = "\
# A comment
define suffix=dc=example,dc=com
define domain=example.com
define count=20

branch: [suffix]
description: the top

branch: ou=People,[suffix]
subordinateTemplate: employee:[count]

template: person
rdnAttr: uid
objectClass: top
objectClass: inetOrgPerson
givenName: <first>
sn: <last>
cn: {givenName} {sn}
initials: {givenName:1}<random:chars:XYZ:1>{sn:1}
uid: user.<sequential:1>
mail: {uid}@[domain]
telephoneNumber: <random:telephone>
postalAddress: {cn}$<random:numeric:5> Street$<list:Bonn:1,Ulm:3>
description: {uid} is <dn> below <parentdn>

template: employee
extends: person
employeeNumber: <random:numeric:1000:1999>
";

#[test]
fn a_site() {
    let text = ldif(SITE);
    let start = "dn: dc=example,dc=com\nobjectClass: top\nobjectClass: domain\ndc: example\ndescription: the top\n\n\
                 dn: ou=People,dc=example,dc=com\nobjectClass: top\nobjectClass: organizationalUnit\nou: People\n\n\
                 dn: uid=user.1,ou=People,dc=example,dc=com\nobjectClass: top\nobjectClass: inetOrgPerson\n";
    assert!(text.starts_with(start), "{text}");
    assert_eq!(text.matches("\nemployeeNumber: 1").count(), 20, "{text}");
    let last = text.split("\n\n").nth(21).unwrap();
    let value = |name: &str| {
        let prefix = format!("{name}: ");
        last.lines()
            .find_map(|line| line.strip_prefix(prefix.as_str()))
            .unwrap_or_else(|| panic!("{name} in {last}"))
    };
    assert_eq!((value("uid"), value("mail")), ("user.20", "user.20@example.com"));
    assert_eq!(value("cn"), format!("{} {}", value("givenName"), value("sn")));
    assert_eq!(value("initials").len(), 3);
    assert!(value("postalAddress").ends_with("Ulm") || value("postalAddress").ends_with("Bonn"), "{last}");
    let named = "user.20 is uid=user.20,ou=People,dc=example,dc=com below ou=People,dc=example,dc=com";
    assert_eq!(value("description"), named);
}

#[test]
fn a_seed_gives_the_same_bytes() {
    assert_eq!(ldif(SITE), ldif(SITE));
    let template = Template::parse(SITE, Path::new(".")).unwrap();
    let mut other = Vec::new();
    template.write_ldif(2, &mut other).unwrap();
    assert_ne!(ldif(SITE).as_bytes(), other);
}

/// The values of the attribute `a` in ten entries of a template with these lines.
fn values(lines: &str) -> Vec<String> {
    let text = ldif(&format!(
        "branch: o=x\nsubordinateTemplate: t:10\ntemplate: t\nrdnAttr: n\nn: <sequential>\n{lines}\n"
    ));
    text.lines().filter_map(|line| line.strip_prefix("a: ")).map(str::to_owned).collect()
}

#[test]
fn tags() {
    let all = |lines: &str, count: usize, test: fn(&str) -> bool| {
        let values = values(lines);
        assert_eq!(values.len(), count, "{lines}: {values:?}");
        assert!(values.iter().all(|value| test(value)), "{lines}: {values:?}");
    };
    all("a: <random:alpha:5>", 10, |value| value.len() == 5 && value.bytes().all(|b| b.is_ascii_lowercase()));
    all("a: <random:hex:3:6>", 10, |value| (3..=6).contains(&value.len()));
    all("a: <random:alphanumeric:8>", 10, |value| value.len() == 8);
    all("a: <random:base64:8>", 10, |value| value.len() == 8);
    all("a: <random:numeric:10:12>", 10, |value| ["10", "11", "12"].contains(&value));
    all("a: <random:chars:ab:2>", 10, |value| value.bytes().all(|b| b == b'a' || b == b'b'));
    all("a: <random:month:3>", 10, |value| value.len() == 3);
    all("a: <random:telephone>", 10, |value| value.starts_with("+1 ") && value.len() == 15);
    all("a: <guid>", 10, |value| value.len() == 36);
    all("a: <list:x,y>", 10, |value| value == "x" || value == "y");
    all("a: <list:x;0,y;5>", 10, |value| value == "y");
    all("a: <static:a:b>", 10, |value| value == "a:b");
    all("a: x \\<first\\> \\{n} \\\\", 10, |value| value == "x <first> {n} \\");
    all("a: <rdn> <parentDN>", 10, |value| value.starts_with("n=") && value.ends_with(" o=x"));
    all("a: <presence:100>x", 10, |value| value == "x");
    all("a: <presence:0>x", 0, |_| false);
    all("b: <presence:0>x\na: <ifpresent:b>x", 0, |_| false);
    all("b: <presence:0>x\na: <ifabsent:b>{b}x", 10, |value| value == "x");
    all("a: <ifpresent:n:3>x{n}", 1, |value| value == "x3");
    all("a: <ifabsent:n:3>x{n}", 9, |value| value != "x3");
    assert_eq!(values("a: <sequential:7>").first().map(String::as_str), Some("7"));
    assert_eq!(values("a: <guid>").into_iter().collect::<BTreeSet<_>>().len(), 10);
}

#[test]
fn counters_start_anew_below_each_parent_or_go_on() {
    let site = |restarts: &str| {
        ldif(&format!(
            "branch: o=x\nsubordinateTemplate: unit:2\ntemplate: unit\nrdnAttr: ou\nou: u<sequential>\n\
             subordinateTemplate: leaf:2\ntemplate: leaf\nrdnAttr: cn\ncn: c<sequential:0:{restarts}>\n"
        ))
    };
    let names = |text: &str| {
        text.lines().filter_map(|line| line.strip_prefix("dn: ").map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(
        names(&site("true")),
        [
            "o=x",
            "ou=u0,o=x",
            "cn=c0,ou=u0,o=x",
            "cn=c1,ou=u0,o=x",
            "ou=u1,o=x",
            "cn=c0,ou=u1,o=x",
            "cn=c1,ou=u1,o=x"
        ]
    );
    assert_eq!(names(&site("false")).last().unwrap(), "cn=c3,ou=u1,o=x");
}

#[test]
fn names_are_escaped_and_may_have_several_attributes() {
    let text = ldif("branch: o=x\nsubordinateTemplate: t:1\ntemplate: t\nrdnAttr: cn+uid\ncn: a,b\nuid: 7\n");
    let dn = text.lines().filter_map(|line| line.strip_prefix("dn: ")).nth(1).unwrap();
    let parsed = Dn::parse(dn).unwrap();
    assert_eq!((parsed.rdns().len(), parsed.rdns()[0].avas().len()), (2, 2), "{dn}");
}

#[test]
fn files_give_lines() {
    let folder = std::env::temp_dir().join(format!("larix-template-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("cities"), "Bonn\n\nUlm\n").unwrap();
    std::fs::write(folder.join("empty"), "\n").unwrap();
    let write = |tag: &str| {
        let text =
            format!("branch: o=x\nsubordinateTemplate: t:3\ntemplate: t\ncn: <sequential>\nl: {tag}\n");
        let mut out = Vec::new();
        Template::parse(&text, &folder).map(|template| {
            template.write_ldif(1, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            text.lines().filter_map(|line| line.strip_prefix("l: ").map(str::to_owned)).collect::<Vec<_>>()
        })
    };
    assert_eq!(write("<file:cities:sequential>").unwrap(), ["Bonn", "Ulm", "Bonn"]);
    assert!(write("<file:cities>").unwrap().iter().all(|city| city == "Bonn" || city == "Ulm"));
    for (tag, expected) in [("<file:empty>", "it has no lines"), ("<file:none>", "\"none\"")] {
        let error = write(tag).unwrap_err().to_string();
        assert!(error.contains("line 5") && error.contains(expected), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn faults_are_named_with_their_line() {
    let check = |text: &str, line: usize, expected: &str| {
        let error = Template::parse(text, Path::new(".")).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.to_string().contains(expected), "{text}: {error}");
    };
    check("nothing", 1, "\"nothing\" is neither");
    check("define x", 1, "\"define x\"");
    check("define x=1\ndefine x=2", 2, "\"x\" is there already");
    check("cn: x", 1, "before the first branch");
    check("branch: [suffix]", 1, "[suffix] is not defined");
    check("branch: o=[suffix", 1, "opens '['");
    check("branch: nonsense", 1, "\"nonsense\" is no DN");
    check("branch: o=x\nbranch: o=x", 2, "\"o=x\" is there already");
    check("branch: o=x\nrdnAttr: cn", 2, "a branch has no rdnAttr");
    check("branch: o=x\nsubordinateTemplate: t", 2, "\"t\" is not TEMPLATE:COUNT");
    check("branch: o=x\nsubordinateTemplate: t:many", 2, "\"t:many\"");
    check("branch: o=x\nsubordinateTemplate: t:1", 2, "no template \"t\"");
    check("branch: o=x\ndescription: <frist>", 2, "<frist> is unknown");
    check("branch: o=x\ndescription: <first", 2, "opens '<'");
    check("branch: o=x\ndescription: {cn}", 2, "no attribute \"cn\"");
    check("branch: o=x\ndescription: <random:alpha>", 2, "<random:alpha> needs a number");
    check("branch: o=x\ndescription: <random:numeric:9:1>", 2, "the first is not greater");
    check("branch: o=x\ndescription: <presence:101>", 2, "from 0 to 100");
    check("branch: o=x\ndescription: <list:a:0>", 2, "<list:a:0> needs values");
    check("branch: o=x\ndescription: {o:x}", 2, "a number of characters");
    check("branch: o=x\ntemplate: t\nrdnAttr: uid\ncn: x", 2, "no line for its RDN's attribute \"uid\"");
    check("branch: o=x\ntemplate: t\nextends: u\ncn: x", 3, "no template \"u\"");
    check("branch: o=x\ntemplate: t\nextends: t\ncn: x", 3, "\"t\" leads to itself");
    check("branch: o=x\ntemplate: t\ncn: x\nsubordinateTemplate: t:1", 2, "\"t\" leads to itself");
    check("template: t\ncn: x", 2, "no branch");
    let many = "branch: o=x\nsubordinateTemplate: t:2000000000\ntemplate: t\ncn: x";
    check(many, 4, "more than 1000000000 entries");
    let fault = Template::parse("", Path::new(".")).unwrap_err().fault;
    assert_eq!(fault, TemplateFault::Empty);
}

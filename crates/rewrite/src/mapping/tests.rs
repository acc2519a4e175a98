//! Names, attributes, classes and filters through a mapping and back.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::Arc;

use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::write::WriteOperation;
use larix_proto::client::{self, Search};
use larix_proto::control::{self, ControlValue};
use larix_proto::encode::EntryEncoder;
use larix_proto::ldif::Reader;
use larix_proto::{
    CompareRequest, ControlBuf, FilterBuf, LdapResult, Message, MessageId, Request, Response, ResultCode,
    Scope, encode, oid,
};
use larix_schema::{Schema, SchemaBuilder};

use super::answer::nothing;
use super::*;

fn schema() -> Arc<Schema> {
    let mut builder = SchemaBuilder::system();
    ["core", "cosine", "inetorgperson"].iter().for_each(|name| builder.add_bundled(name).unwrap());
    Arc::new(builder.build())
}

/// Lines of rules and maps; `massage HERE THERE` is what `rwm-suffixmassage` is.
fn mapping(lines: &str) -> Mapping {
    let (mut rules, mut maps) = (Rewrite::with_sessions(), Vec::new());
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["massage", virtual_name, real_name] => rules.massage(virtual_name, real_name).unwrap(),
            ["massage", virtual_name] => rules.massage(virtual_name, "").unwrap(),
            ["map", map @ ..] => maps.push(map.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()),
            command => rules.command(command).unwrap_or_else(|error| panic!("{line}: {error}")),
        }
    }
    let mut mapping = Mapping::new(schema()).with_rules(rules).unwrap();
    for map in &maps {
        mapping.map(&map.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    }
    mapping
}

const AROUND: Surroundings<'static> = Surroundings { searches: &nothing, session: None };

const MASSAGE: &str = "massage dc=here dc=there";

fn name(mapping: &Mapping, place: RewriteContext, name: &str) -> String {
    match mapping.name(place, name, &AROUND) {
        Ok(name) => name.into_owned(),
        Err(refused) => format!("{} {}", refused.code.0, refused.diagnostic),
    }
}

#[test]
fn suffixes_are_massaged_both_ways() {
    let both = |lines: &str, real_name: &str, virtual_name: &str| {
        let mapping = mapping(lines);
        assert_eq!(
            name(&mapping, RewriteContext::Search, virtual_name),
            real_name,
            "{lines}: {virtual_name}"
        );
        assert_eq!(name(&mapping, RewriteContext::Entry, real_name), virtual_name, "{lines}: {real_name}");
        assert_eq!(
            name(&mapping, RewriteContext::EntryValue, real_name),
            virtual_name,
            "{lines}: {real_name}"
        );
        assert_eq!(name(&mapping, RewriteContext::Matched, real_name), virtual_name, "{lines}: {real_name}");
    };
    both(MASSAGE, "dc=there", "dc=here");
    both(MASSAGE, "ou=a,dc=there", "ou=a,dc=here");
    both(MASSAGE, "cn=b+sn=c,ou=a,dc=there", "cn=b+sn=c,ou=a,dc=here");
    both(MASSAGE, r"cn=a\2Cdc\3Dhere,dc=there", r"cn=a\2Cdc\3Dhere,dc=here");
    both(MASSAGE, "cn=a\nb,ou=c\r\nd,dc=there", "cn=a\nb,ou=c\r\nd,dc=here");
    both(MASSAGE, "dc=elsewhere", "dc=elsewhere");
    both(MASSAGE, "dc=a,dc=nothere", "dc=a,dc=nothere");
    both("massage o=x.y,c=de dc=there", "cn=a,dc=there", "cn=a,o=x.y,c=de");
    both("massage o=x.y,c=de dc=there", "cn=a,o=xzy,c=de", "cn=a,o=xzy,c=de");
    both("massage o=$1 o=%2", "cn=a,o=%2", "cn=a,o=$1");
    let mapping = mapping(MASSAGE);
    for (place, given, made) in [
        (RewriteContext::Search, "OU=a, domainComponent=HERE", "ou=a,dc=there"),
        (RewriteContext::Search, "", ""),
        (RewriteContext::Search, "foreign=a,dc=here", "foreign=a,dc=there"),
        (RewriteContext::Search, "foreign=a, dc=here", "foreign=a,dc=there"),
        // What is no name of an entry, and what slapd does not touch by itself.
        (RewriteContext::NewRdn, "dc=here", "dc=here"),
        (RewriteContext::Referral, "dc=there", "dc=there"),
        (RewriteContext::ReferralValue, "dc=here", "dc=here"),
        (RewriteContext::SearchFilter, "dc=here", "dc=here"),
    ] {
        assert_eq!(name(&mapping, place, given), made, "{place:?} {given}");
    }
}

/// The root as the one suffix or the other.
#[test]
fn the_empty_suffix_is_one_too() {
    let below = mapping("massage dc=here ");
    assert_eq!(name(&below, RewriteContext::Search, "ou=a,dc=here"), "ou=a");
    assert_eq!(name(&below, RewriteContext::Search, "dc=here"), "");
    assert_eq!(name(&below, RewriteContext::Entry, "ou=a"), "ou=a,dc=here");
    assert_eq!(name(&below, RewriteContext::Entry, ""), "dc=here");
}

/// What stands behind `rwm-suffixmassage` goes on from what that has made, and for values and matched names as for entries.
#[test]
fn rules_follow_a_massage() {
    for (between, hides_values) in [
        ("", true),
        ("rewriteContext searchEntryDN", true),
        ("rewriteContext searchAttrDN", true),
        ("rewriteContext matchedDN", true),
        ("rewriteContext default", false),
    ] {
        for suffixes in ["massage dc=here dc=there", "massage dc=here "] {
            let lines = format!("{suffixes}\n{between}\nrewriteRule ^cn=secret,(.*) x #");
            let mapping = mapping(&lines);
            let real_suffix = if suffixes.ends_with("there") { ",dc=there" } else { "" };
            for place in [RewriteContext::Entry, RewriteContext::EntryValue, RewriteContext::Matched] {
                let shown = name(&mapping, place, &format!("cn=secret{real_suffix}"));
                assert_eq!(shown.starts_with("53 "), hides_values, "{lines}: {place:?} {shown}");
                let shown = name(&mapping, place, &format!("cn=a{real_suffix}"));
                assert_eq!(shown, "cn=a,dc=here", "{lines}: {place:?}");
            }
            let asked = name(&mapping, RewriteContext::Search, "cn=secret,ou=x,dc=here");
            assert_eq!(asked.starts_with("53 "), !hides_values, "{lines}: {asked}");
        }
    }
    // A context of one's own for values is no other for entries.
    let lines = "massage dc=here dc=there
        rewriteContext other
        rewriteRule .* dc=other :
        rewriteContext searchAttrDN alias other";
    let mapping = mapping(lines);
    assert_eq!(name(&mapping, RewriteContext::EntryValue, "cn=a,dc=there"), "dc=other");
    assert_eq!(name(&mapping, RewriteContext::Entry, "cn=a,dc=there"), "cn=a,dc=here");
}

/// Rules make whatever they say of a name: what is no DN is not answered as one.
#[test]
fn what_is_no_dn_is_no_name() {
    let rules = "massage dc=here dc=there
        rewriteRule ^cn=odd,(.*) odd :
        rewriteContext referralDN alias searchEntryDN
        rewriteContext searchFilterAttrDN
        rewriteRule ^cn=odd,(.*) odd :@
        rewriteRule ^cn=secret,(.*) x #
        rewriteRule ^cn=failed,(.*) ${**nobody} :";
    let values: &[(&str, &[&str])] =
        &[("member", &["cn=odd,dc=there", "cn=a,dc=there"]), ("ref", &["ldap://h/cn=odd,dc=there"])];
    let shown = "cn=g,dc=here; member=cn=odd,dc=there|cn=a,dc=here; ref=ldap://h/cn=odd,dc=there";
    assert_eq!(seen(mapping(rules), &[], "cn=g,dc=there", values), shown);
    assert_eq!(seen(mapping(rules), &[], "cn=odd,dc=there", &[]), "nothing");
    let mut result = LdapResult {
        matched_dn: "cn=odd,dc=there".to_owned(),
        referrals: vec!["ldap://h/cn=odd,dc=there".to_owned()],
        ..LdapResult::new(ResultCode::REFERRAL)
    };
    Answers::new(Arc::new(mapping(rules)), None).result(&mut result);
    assert_eq!((result.matched_dn.as_str(), result.referrals.len()), ("", 1));
    assert_eq!(result.referrals, ["ldap://h/cn=odd,dc=there"]);
    // A part of a filter that rules refuse, or fail on, is neither true nor false.
    for (given, made) in [
        ("(member=cn=odd,dc=x)", "(member=cn=odd,dc=x)"),
        ("(|(cn=a)(member=cn=secret,dc=x))", "(|(cn=a)(!(objectClass=*)))"),
        ("(!(member=cn=secret,dc=x))", "(!(objectClass=*))"),
        ("(member=cn=failed,dc=x)", "(!(objectClass=*))"),
        ("(member:distinguishedNameMatch:=cn=failed,dc=x)", "(!(objectClass=*))"),
    ] {
        let filter = FilterBuf::parse(given).unwrap();
        assert_eq!(mapping(rules).search_filter(filter.as_filter(), &AROUND).unwrap().to_string(), made);
    }
}

#[test]
fn contexts_hold_where_they_are_defined() {
    let rules = "rewriteEngine on
        rewriteRule ^(.*)dc=here$ $1dc=default :
        rewriteContext addDN
        rewriteRule ^(.*)dc=here$ $1dc=add :
        rewriteContext deleteDN
        rewriteContext compareDN alias addDN
        rewriteContext renameDN
        rewriteRule .* x #
        rewriteContext modifyDN
        rewriteRule .* x :U{32}
        rewriteContext newSuperiorDN
        rewriteRule .* ${**nobody} :
        rewriteContext newRDN
        rewriteRule ^cn= sn= :";
    let mapping = mapping(rules);
    for (place, made) in [
        (RewriteContext::Search, "cn=a,dc=default"),
        (RewriteContext::Bind, "cn=a,dc=default"),
        (RewriteContext::AddValue, "cn=a,dc=default"),
        (RewriteContext::Add, "cn=a,dc=add"),
        (RewriteContext::Compare, "cn=a,dc=add"),
        (RewriteContext::Delete, "cn=a,dc=here"),
        (RewriteContext::Rename, "53 renameDN massage error"),
        (RewriteContext::Modify, "32 modifyDN massage error"),
        (RewriteContext::NewSuperior, "80 newSuperiorDN massage error"),
        (RewriteContext::NewRdn, "sn="),
        // Answers have no default.
        (RewriteContext::Entry, "cn=a,dc=here"),
        (RewriteContext::EntryValue, "cn=a,dc=here"),
        (RewriteContext::Matched, "cn=a,dc=here"),
        (RewriteContext::Referral, "cn=a,dc=here"),
    ] {
        assert_eq!(name(&mapping, place, "cn=a,dc=here"), made, "{place:?}");
    }
    let off = rules.replace("rewriteEngine on", "rewriteEngine off");
    assert_eq!(name(&self::mapping(&off), RewriteContext::Add, "cn=a,dc=here"), "cn=a,dc=here");
}

#[test]
fn variables_live_as_long_as_the_session() {
    let mapping = mapping(
        "rewriteEngine on
        rewriteContext bindDN
        rewriteRule .+ ${&&who($0)}$0 :
        rewriteContext searchDN
        rewriteRule .* ${**who} :",
    );
    assert!(mapping.uses_session() && !self::mapping(MASSAGE).uses_session());
    let (one, other) = (Session::default(), Session::default());
    let of = |session| Surroundings { searches: &nothing, session: Some(session) };
    assert_eq!(mapping.name(RewriteContext::Bind, "cn=a", &of(&one)).unwrap(), "cn=a");
    assert_eq!(mapping.name(RewriteContext::Search, "dc=x", &of(&one)).unwrap(), "cn=a");
    assert_eq!(
        mapping.name(RewriteContext::Search, "dc=x", &of(&other)).unwrap_err().code,
        ResultCode::OTHER
    );
    let long = format!("cn={}", "x".repeat(16_380));
    assert_eq!(mapping.name(RewriteContext::Bind, &long, &of(&one)).unwrap_err().code, ResultCode::OTHER);
    assert_eq!(mapping.name(RewriteContext::Search, "dc=x", &of(&one)).unwrap(), "cn=a");
}

#[test]
fn answers_have_no_maps() {
    let mut rules = Rewrite::with_sessions();
    for command in [
        &["rewriteEngine", "on"][..],
        &["rewriteMap", "slapd", "find", "ldap:///dc=x?dn?sub"],
        &["rewriteContext", "inner"],
        &["rewriteRule", ".*", "${find((cn=$0))}", ":"],
        &["rewriteContext", "searchDN"],
        &["rewriteRule", ".*", "${>inner($0)}", ":"],
    ] {
        rules.command(command).unwrap();
    }
    assert!(Mapping::new(schema()).with_rules(rules.clone()).is_ok());
    rules.command(&["rewriteContext", "searchEntryDN"]).unwrap();
    rules.command(&["rewriteRule", ".*", "${&x(${>inner($0)})}", ":"]).unwrap();
    assert_eq!(Mapping::new(schema()).with_rules(rules).unwrap_err(), "searchEntryDN");
}

const MAPS: &str = "massage dc=here dc=there
    map attribute cn commonTitle
    map attribute member uniqueMember
    map attribute sn *
    map attribute hidden
    map objectclass groupOfNames groupOfUniqueNames
    map objectclass secretThing";

#[test]
fn filters_are_mapped() {
    let with = |lines: &str, given: &str| {
        let filter = FilterBuf::parse(given).unwrap();
        match mapping(lines).search_filter(filter.as_filter(), &AROUND) {
            Ok(filter) => filter.to_string(),
            Err(refused) => refused.code.0.to_string(),
        }
    };
    for (given, made) in [
        ("(cn=a)", "(commonTitle=a)"),
        ("(commonName;lang-en=a*b*c)", "(commonTitle;lang-en=a*b*c)"),
        ("(2.5.4.3=*)", "(commonTitle=*)"),
        (
            "(&(cn>=a)(!(cn<=b))(|(cn~=c)(sn=d)))",
            "(&(commonTitle>=a)(!(commonTitle<=b))(|(commonTitle~=c)(sn=d)))",
        ),
        ("(cn:dn:2.5.13.5:=a)", "(commonTitle:dn:2.5.13.5:=a)"),
        // What is hidden is not found by its own name, nor by a rule for all attributes.
        ("(:caseExactMatch:=a)", "(!(objectClass=*))"),
        ("(!(hidden=a))", "(!(objectClass=*))"),
        ("(objectClass=secretThing)", "(!(objectClass=*))"),
        ("(member=cn=a,dc=here)", "(uniqueMember=cn=a,dc=there)"),
        (
            "(member:distinguishedNameMatch:=cn=a,dc=here)",
            "(uniqueMember:distinguishedNameMatch:=cn=a,dc=there)",
        ),
        ("(seeAlso=cn=a,dc=here)", "(seeAlso=cn=a,dc=there)"),
        ("(member=cn=a,dc=here#'01'B)", "(uniqueMember=cn=a,dc=there#'01'B)"),
        // Of DN syntax neither here nor there.
        ("(uniqueMember=cn=a,dc=here#'01'B)", "(uniqueMember=cn=a,dc=here#'01'B)"),
        ("(description=cn=a,dc=here)", "(description=cn=a,dc=here)"),
        ("(objectClass=GROUPOFNAMES)", "(objectClass=groupOfUniqueNames)"),
        ("(objectClass=*)", "(objectClass=*)"),
        ("(&)", "(objectClass=*)"),
        ("(|)", "(!(objectClass=*))"),
    ] {
        assert_eq!(with(MAPS, given), made, "{given}");
    }
    // What is not there is neither true nor false: a negation does not find all entries.
    let few = "map attribute cn commonTitle\nmap attribute *\nmap objectclass person *\nmap objectclass *";
    for (given, made) in [
        ("(mail=a)", "(!(objectClass=*))"),
        ("(!(mail=a))", "(!(objectClass=*))"),
        ("(&(cn=a)(mail=b))", "(&(commonTitle=a)(!(objectClass=*)))"),
        ("(!(&(cn=a)(mail=b)))", "(|(!(commonTitle=a))(!(objectClass=*)))"),
        ("(!(|(!(cn=a))(mail=b)))", "(&(commonTitle=a)(!(objectClass=*)))"),
        ("(|(objectClass=person)(objectClass=device))", "(|(objectClass=person)(!(objectClass=*)))"),
        ("(!(objectClass=device))", "(!(objectClass=*))"),
        ("(!(objectClass=person))", "(!(objectClass=person))"),
    ] {
        assert_eq!(with(few, given), made, "{given}");
    }
    let rules = "rewriteEngine on
        rewriteContext searchFilter
        rewriteRule (.*)uid=([a-z]+)(.*) $1|(uid=$2)(mail=$2)$3 :@
        rewriteRule bad (((( :@
        rewriteRule no x #";
    for (given, made) in
        [("(uid=ann)", "(|(uid=ann)(mail=ann))"), ("(cn=bad)", "80"), ("(cn=no)", "53"), ("(cn=a)", "(cn=a)")]
    {
        assert_eq!(with(rules, given), made, "{given}");
    }
    let absolute = mapping("").with_absolute_filters(true);
    for given in ["(&)", "(|)"] {
        let filter = FilterBuf::parse(given).unwrap();
        assert_eq!(absolute.search_filter(filter.as_filter(), &AROUND).unwrap().to_string(), given);
    }
}

#[test]
fn searches_are_mapped_as_a_whole() {
    let filter = FilterBuf::parse("(cn=a)").unwrap();
    for (asked, mapped) in [
        (&["cn", "member;x-a", "+", "*"][..], &["commonTitle", "uniqueMember;x-a", "+", "*"][..]),
        (&["@groupOfNames"], &["@groupOfUniqueNames"]),
        (&["1.1"], &["1.1"]),
        (&[], &[]),
    ] {
        let mut message = Vec::new();
        let search =
            Search { attributes: asked, ..Search::new("ou=a,dc=here", Scope::OneLevel, filter.as_filter()) };
        client::search(&mut message, MessageId(1), &search, &[]);
        let Request::Search(request) = Message::decode(&message).unwrap().request else { panic!() };
        let made = mapping(MAPS).search(request.base, &request, &AROUND).unwrap();
        let Request::Search(made) = Message::decode(&made).unwrap().request else { panic!() };
        assert_eq!((made.base, made.scope), ("ou=a,dc=there", Scope::OneLevel));
        assert_eq!(made.attributes.iter().collect::<Vec<_>>(), mapped);
        assert_eq!(made.filter.to_string(), "(commonTitle=a)");
    }
    let few = mapping("map attribute cn *\nmap attribute *");
    assert_eq!(few.selection(["mail"].into_iter()), ["1.1"]);
    assert_eq!(few.selection(["mail", "cn"].into_iter()), ["cn"]);
}

#[test]
fn changes_are_mapped() {
    let show = |operation: &WriteOperation| format!("{operation:?}");
    let change = |lines: &str, ldif: &str| {
        let operation: WriteOperation = Reader::new(ldif.as_bytes()).next().unwrap().unwrap().into();
        mapping(lines).update(operation, &AROUND)
    };
    for (given, made) in [
        (
            "dn: cn=g,dc=here\nobjectClass: groupOfNames\ncn: g\nmember: cn=a,dc=here\nmember: cn=b,dc=x\n",
            "dn: cn=g,dc=there\nobjectClass: groupOfUniqueNames\ncommonTitle: g\nuniqueMember: cn=a,dc=there\n\
             uniqueMember: cn=b,dc=x\n",
        ),
        (
            "dn: cn=g,dc=here\nchangetype: modify\ndelete: cn;lang-en\n-\nadd: seeAlso\nseeAlso: cn=a,dc=here\n",
            "dn: cn=g,dc=there\nchangetype: modify\ndelete: commonTitle;lang-en\n-\nadd: seeAlso\nseeAlso: cn=a,dc=there\n",
        ),
        ("dn: cn=g,dc=here\nchangetype: delete\n", "dn: cn=g,dc=there\nchangetype: delete\n"),
        (
            "dn: cn=g,dc=here\nchangetype: modrdn\nnewrdn: cn=h\ndeleteoldrdn: 1\nnewsuperior: ou=n,dc=here\n",
            "dn: cn=g,dc=there\nchangetype: modrdn\nnewrdn: cn=h\ndeleteoldrdn: 1\nnewsuperior: ou=n,dc=there\n",
        ),
    ] {
        let expected: WriteOperation = Reader::new(made.as_bytes()).next().unwrap().unwrap().into();
        assert_eq!(show(&change(MAPS, given).unwrap()), show(&expected));
    }
    // What would be lost is refused.
    let few = "map attribute cn *\nmap attribute *\nmap objectclass person *\nmap objectclass *";
    for (given, code) in [
        ("dn: cn=g\nobjectClass: person\nmail: x\n", 17),
        ("dn: cn=g\nobjectClass: device\n", 65),
        ("dn: cn=g\nchangetype: modify\nreplace: mail\n", 17),
    ] {
        assert_eq!(change(few, given).unwrap_err().code.0, code, "{given}");
    }
    assert!(change(few, "dn: cn=g\nobjectClass: person\ncn: g\n").is_ok());
}

#[test]
fn compares_are_mapped() {
    for (attribute, value, made) in [
        ("cn", "a", "commonTitle=a"),
        ("member", "cn=a,dc=here", "uniqueMember=cn=a,dc=there"),
        ("objectClass", "groupOfNames", "objectClass=groupOfUniqueNames"),
    ] {
        let request = CompareRequest { entry: "cn=g,dc=here", attribute, value: value.as_bytes() };
        let mapped = mapping(MAPS).compare(&request, &AROUND).unwrap();
        assert_eq!(mapped.entry, "cn=g,dc=there");
        assert_eq!(format!("{}={}", mapped.attribute, String::from_utf8(mapped.value).unwrap()), made);
    }
    let few = mapping("map attribute cn *\nmap attribute *\nmap objectclass *");
    let hidden = CompareRequest { entry: "cn=g", attribute: "hidden", value: b"x" };
    assert!(mapping(MAPS).compare(&hidden, &AROUND).is_err());
    for (attribute, value, code) in
        [("mail", "a", ResultCode::UNDEFINED_ATTRIBUTE_TYPE), ("objectClass", "x", ResultCode::COMPARE_FALSE)]
    {
        let request = CompareRequest { entry: "cn=g", attribute, value: value.as_bytes() };
        assert_eq!(few.compare(&request, &AROUND).unwrap_err().code, code);
    }
}

/// An entry through a mapping: `dn; attribute=value|value; ...`, and whatever else the message was.
fn seen(mapping: Mapping, asked: &[&str], dn: &str, attributes: &[(&str, &[&str])]) -> String {
    let filter = FilterBuf::every_entry();
    let mut message = Vec::new();
    let search = Search { attributes: asked, ..Search::new("", Scope::Subtree, filter.as_filter()) };
    client::search(&mut message, MessageId(1), &search, &[]);
    let Request::Search(request) = Message::decode(&message).unwrap().request else { panic!() };
    let answers = Answers::new(Arc::new(mapping), None).of_search(request.attributes);
    let mut found = Vec::new();
    let mut encoder = EntryEncoder::begin(&mut found, MessageId(7), dn);
    for (description, values) in attributes {
        encoder.begin_attribute(description);
        values.iter().for_each(|value| encoder.value(value.as_bytes()));
        encoder.end_attribute();
    }
    encoder.finish(&[]);
    let mut out = Vec::new();
    answers.message(&found, &mut out);
    if out.is_empty() {
        return "nothing".to_owned();
    }
    let decoded = Response::decode_message(&out).unwrap();
    assert_eq!(decoded.id, MessageId(7));
    let Response::Entry(entry) = decoded.response else { panic!() };
    let mut text = entry.dn.to_owned();
    for attribute in entry.attributes.iter() {
        let values: Vec<_> = attribute.values.iter().map(String::from_utf8_lossy).collect();
        text += &format!("; {}={}", attribute.description, values.join("|"));
    }
    text
}

#[test]
fn entries_are_mapped_back() {
    let group: &[(&str, &[&str])] = &[
        ("objectClass", &["top", "groupOfUniqueNames", "secretThing"]),
        ("commonTitle;lang-en", &["g"]),
        ("cn;lang-en", &["g", "h"]),
        ("uniqueMember", &["cn=a,dc=there", "cn=b,dc=x", "cn=c,dc=there#'1'B"]),
        ("hidden", &["x"]),
        ("seeAlso", &["cn=a,dc=there"]),
        ("ref", &["ldap://host/cn=a,dc=there??sub"]),
    ];
    let all = "cn=g,dc=here; objectClass=top|groupOfNames; cn;lang-en=g|h; \
               member=cn=a,dc=here|cn=b,dc=x|cn=c,dc=here#'1'B; seeAlso=cn=a,dc=here; \
               ref=ldap://host/cn=a,dc=here??sub";
    assert_eq!(seen(mapping(MAPS), &[], "cn=g,dc=there", group), all);
    assert_eq!(seen(mapping(MAPS), &["*"], "cn=g,dc=there", group), all);
    assert_eq!(seen(mapping(MAPS), &["cn"], "cn=g,dc=there", group), "cn=g,dc=here; cn;lang-en=g|h");
    assert_eq!(seen(mapping(MAPS), &["1.1"], "cn=g,dc=there", group), "cn=g,dc=here");
    let keeps = mapping("").dropping_unrequested(false);
    assert_eq!(seen(keeps, &["cn"], "cn=g", &[("sn", &["x"])]), "cn=g; sn=x");
    assert_eq!(seen(mapping(""), &["name"], "cn=g", &[("sn", &["x"]), ("mail", &["y"])]), "cn=g; sn=x");
    // Types alone.
    assert_eq!(seen(mapping(MAPS), &[], "cn=g", &[("uniqueMember", &[])]), "cn=g; member=");
    let few = mapping("map attribute cn *\nmap attribute *");
    assert_eq!(
        seen(few, &[], "cn=g", &[("objectClass", &["x"]), ("sn", &["x"]), ("cn", &["g"])]),
        "cn=g; objectClass=x; cn=g"
    );
    // Rules hide entries and values.
    let rules = "rewriteEngine on
        rewriteContext searchEntryDN
        rewriteRule dc=secret$ x #
        rewriteContext searchAttrDN
        rewriteRule dc=people$ $0 :@
        rewriteRule .* x #";
    assert_eq!(seen(mapping(rules), &[], "cn=g,dc=secret", &[]), "nothing");
    let members: &[(&str, &[&str])] =
        &[("member", &["dc=people", "dc=x"]), ("owner", &["dc=x"]), ("cn", &["dc=x"])];
    assert_eq!(seen(mapping(rules), &[], "cn=g", members), "cn=g; member=dc=people; cn=dc=x");
}

/// A server may send an attribute as often as a message has room for it: each time costs what is new.
#[test]
fn attributes_that_come_very_often_are_merged_in_one_go() {
    const TIMES: usize = 200_000;
    let (sender, ended) = std::sync::mpsc::channel();
    // A thread of its own: what takes hours is a failure, not a test that never ends.
    std::thread::spawn(move || {
        let values: Vec<String> = (0..TIMES).map(|number| (number / 2).to_string()).collect();
        let values: Vec<[&str; 1]> = values.iter().map(|value| [value.as_str()]).collect();
        let attributes: Vec<(&str, &[&str])> = values.iter().map(|value| ("sn", value.as_slice())).collect();
        sender.send(seen(mapping("map attribute cn sn"), &[], "cn=g", &attributes)).unwrap();
    });
    let entry = ended.recv_timeout(std::time::Duration::from_secs(120)).unwrap();
    assert!(entry.starts_with("cn=g; cn=0|1|2|3|"), "{}", entry.get(..40).unwrap_or_default());
    assert_eq!(entry.split('|').count(), TIMES / 2);
}

#[test]
fn results_and_references_are_mapped_back() {
    let answers = |lines: &str| Answers::new(Arc::new(mapping(lines)), None);
    let result = || LdapResult {
        matched_dn: "ou=a,dc=there".to_owned(),
        referrals: vec!["ldap://h/cn=a,dc=there??one".to_owned(), "ldap://h".to_owned(), "x".to_owned()],
        ..LdapResult::new(ResultCode::REFERRAL)
    };
    let mut massaged = result();
    answers(MASSAGE).result(&mut massaged);
    assert_eq!(massaged, LdapResult { matched_dn: "ou=a,dc=here".to_owned(), ..result() });
    let rules = "rewriteEngine on
        rewriteContext referralDN
        rewriteRule ^(.*)dc=there$ $1dc=ref :
        rewriteContext matchedDN
        rewriteRule .* x #";
    let mut ruled = result();
    answers(rules).result(&mut ruled);
    assert_eq!(ruled.matched_dn, "");
    assert_eq!(ruled.referrals, ["ldap://h/cn=a,dc=ref??one", "ldap://h", "x"]);
    let (mut reference, mut out) = (Vec::new(), Vec::new());
    encode::search_reference(&mut reference, MessageId(3), &result().referrals, &[]);
    answers(rules).message(&reference, &mut out);
    let Response::Reference(urls) = Response::decode_message(&out).unwrap().response else { panic!() };
    assert_eq!(urls.iter().collect::<Vec<_>>(), ruled.referrals);
}

#[test]
fn controls_are_mapped_or_refused() {
    let sent = |oid: &'static str, critical| {
        let mut sent = Vec::new();
        ControlBuf { oid: oid.into(), critical, value: Some(vec![4, 0]) }.encode(&mut sent);
        sent
    };
    let through = |values: ControlValues| mapping(MAPS).request_controls(&values.into(), &AROUND);
    let oids = |controls: &RequestControls| -> Vec<(String, Option<Vec<u8>>)> {
        let sent = larix_proto::Controls::parse(&controls.sent).unwrap();
        sent.iter().map(|control| (control.oid.to_owned(), control.value.map(<[u8]>::to_vec))).collect()
    };
    let filter = FilterBuf::parse("(cn=a)").unwrap();
    let asserted = through(ControlValues {
        assertion: Some(filter),
        sent: sent(oid::ASSERTION, true),
        ..ControlValues::default()
    });
    let asserted = asserted.unwrap();
    let mapped = FilterBuf::parse("(commonTitle=a)").unwrap();
    assert_eq!(asserted.assertion.as_ref(), Some(&mapped));
    assert_eq!(oids(&asserted), [(oid::ASSERTION.to_owned(), Some(mapped.as_ber().to_vec()))]);
    let read = larix_engine::controls::ReadAttributes {
        critical: true,
        attributes: vec!["cn".to_owned(), "*".to_owned()],
    };
    let read = through(ControlValues {
        post_read: Some(read),
        sent: sent(oid::POST_READ, true),
        ..ControlValues::default()
    });
    let read = read.unwrap();
    assert_eq!(read.post_read.as_ref().unwrap().attributes, ["commonTitle", "*"]);
    let (_, value) = oids(&read).remove(0);
    let decoded = control::PostReadRequest::decode(value.as_deref()).unwrap();
    assert_eq!(decoded.attributes.iter().collect::<Vec<_>>(), ["commonTitle", "*"]);
    // Nothing is sorted by what is not seen.
    for (attribute, critical, expected) in
        [("cn", true, Ok(Some("commonTitle"))), ("hidden", false, Ok(None)), ("hidden", true, Err(16))]
    {
        let key =
            larix_engine::controls::SortKey { attribute: attribute.to_owned(), rule: None, reverse: false };
        let sort = larix_engine::controls::SortRequest { critical, keys: vec![key] };
        let sent = sent(oid::SORT_REQUEST, critical);
        let found = through(ControlValues { sort: Some(sort), sent, ..ControlValues::default() });
        let found = found.map(|controls| {
            let key = controls.sort.as_ref().map(|sort| sort.keys[0].attribute.clone());
            assert_eq!(oids(&controls).len(), usize::from(key.is_some()));
            key
        });
        let found = found.map_err(|error| error.code.0);
        assert_eq!(found, expected.map(|key: Option<&str>| key.map(str::to_owned)), "{attribute} {critical}");
    }
    // What says nothing of names goes through, what is not known does not.
    for (oid, critical, expected) in [
        (oid::PAGED_RESULTS, true, Ok(1)),
        (oid::MANAGE_DSA_IT, true, Ok(1)),
        (oid::DEREF, false, Ok(0)),
        (oid::DEREF, true, Err(12)),
        ("1.2.3.4", false, Ok(0)),
        ("1.2.3.4", true, Err(12)),
    ] {
        let values = ControlValues { sent: sent(oid, critical), ..ControlValues::default() };
        let found = through(values).map(|controls| oids(&controls).len()).map_err(|error| error.code.0);
        assert_eq!(found, expected, "{oid} {critical}");
    }
    assert_eq!(
        through(ControlValues { value_conflicts: true, ..ControlValues::default() }).unwrap_err().code.0,
        12
    );
}

#[test]
fn controls_of_answers_are_mapped_back() {
    let mut value = Vec::new();
    let mut encoder = EntryEncoder::begin_value(&mut value, "cn=g,dc=there");
    encoder.begin_attribute("commonTitle");
    encoder.value(b"g");
    encoder.finish(&[]);
    let previous = control::EntryChangeNotification {
        change_type: control::ChangeType::ModDn,
        previous_dn: Some("cn=f,dc=there"),
    };
    let sorted = control::SortResponse { code: ResultCode::SUCCESS, attribute: Some("commonTitle") };
    let mut controls = vec![
        ControlBuf { oid: oid::POST_READ.into(), critical: false, value: Some(value) },
        previous.to_control(false),
        sorted.to_control(false),
        ControlBuf { oid: "1.2.3".into(), critical: false, value: None },
    ];
    let identities = ["dn:cn=a,dc=there", "u:a", "dn:", ""];
    controls.extend(identities.map(|authorization_id| {
        control::AuthorizationIdentityResponse { authorization_id }.to_control(false)
    }));
    Answers::new(Arc::new(mapping(MAPS)), None).controls(&mut controls);
    let [read, change, sort, other, identities @ ..] = controls.as_slice() else { panic!("{controls:?}") };
    let read = control::PostReadResponse::decode(read.value.as_deref()).unwrap();
    assert_eq!((read.dn, read.attributes.iter().next().unwrap().description), ("cn=g,dc=here", "cn"));
    let change = control::EntryChangeNotification::decode(change.value.as_deref()).unwrap();
    assert_eq!(change.previous_dn, Some("cn=f,dc=here"));
    assert_eq!(control::SortResponse::decode(sort.value.as_deref()).unwrap().attribute, Some("cn"));
    assert_eq!(&*other.oid, "1.2.3");
    let identities: Vec<_> = identities.iter().map(|control| control.value.as_deref().unwrap()).collect();
    assert_eq!(identities, [&b"dn:cn=a,dc=here"[..], b"u:a", b"dn:", b""]);
    // The empty DN is nobody's, though a rule makes a name of it.
    let rules = "rewriteEngine on
        rewriteContext searchEntryDN
        rewriteRule ^$ dc=here :";
    let nobody = control::AuthorizationIdentityResponse { authorization_id: "dn:" }.to_control(false);
    let mut controls = vec![nobody.clone()];
    Answers::new(Arc::new(mapping(rules)), None).controls(&mut controls);
    assert_eq!(controls, [nobody]);
}

#[test]
fn lines_of_maps_that_are_none() {
    for (words, text, at) in [
        (&[][..], "needs a kind", 0),
        (&["attribute"], "needs a kind", 0),
        (&["syntax", "a"], "`syntax` is neither", 0),
        (&["attribute", "a", "b", "c"], "`c` is one word too many", 3),
        (&["attribute", "objectClass", "x"], "objectClass cannot", 1),
        (&["attribute", "x", "2.5.4.0"], "objectClass cannot", 1),
        (&["attribute", "commonName", "y"], "`commonName` is mapped already", 1),
        (&["attribute", "sn", "a"], "`a` is mapped already", 1),
        (&["attribute", "a b", "c"], "`a b` is no name", 1),
        (&["attribute", "c", "(x"], "`(x` is no name", 2),
    ] {
        let mut mapping = mapping("map attribute cn a");
        let error = mapping.map(words).unwrap_err();
        assert!(error.to_string().contains(text), "{words:?}: {error}");
        assert_eq!(error.word(), at, "{words:?}");
    }
}

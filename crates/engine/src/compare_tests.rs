//! Compare by table.

use larix_proto::{CompareRequest, FilterBuf, ResultCode};
use larix_store::Store;

use crate::budget::{RequestLimit, RequestLimits};
use crate::compare::{CompareContext, compare};
use crate::controls::RequestControls;
use crate::database::DatabaseSettings;
use crate::fixture::{Fixture, SUFFIX, schema};

const LDIF: &str = "\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: cn=Ann,dc=example,dc=com
objectClass: inetOrgPerson
cn: Ann
cn;lang-de: Anna
sn: Smith
userPassword: secret

dn: ou=Elsewhere,dc=example,dc=com
objectClass: referral
objectClass: extensibleObject
ou: Elsewhere
ref: ldap://other.example.com/
";

fn code(
    fixture: &Fixture<impl Store>,
    controls: &RequestControls,
    entry: &str,
    attribute: &str,
    value: &str,
) -> u32 {
    let snapshot = fixture.database.store().snapshot().unwrap();
    let view = fixture.database.view(&snapshot).unwrap();
    let context = CompareContext { controls, subject: &fixture.subject, default_referrals: &[] };
    let request = CompareRequest { entry, attribute, value: value.as_bytes() };
    let dn = schema().parse_dn(entry).unwrap();
    let first = compare(&view, &context, &dn, &request);
    // Where the entry is may be known from the second time on, and its superior.
    for _ in 0..3 {
        assert_eq!(compare(&view, &context, &dn, &request), first, "{entry} {attribute}");
    }
    // What has controls goes the long way, to the same answer.
    let controls = controls.with(|_| {});
    let context = CompareContext { controls: &controls, ..context };
    assert_eq!(compare(&view, &context, &dn, &request), first, "{entry} {attribute}");
    first.code.0
}

#[test]
fn compares_end_with_the_codes_of_slapd() {
    let fixture = Fixture::memory(&[], LDIF);
    let plain = RequestControls::default();
    let ann = "CN=ann,dc=example,dc=com";
    for (entry, attribute, value, expected) in [
        (ann, "cn", "ANN", ResultCode::COMPARE_TRUE),
        (ann, "cn", "anna", ResultCode::COMPARE_TRUE),
        (ann, "cn;lang-de", "Ann", ResultCode::COMPARE_FALSE),
        (ann, "name", "smith", ResultCode::COMPARE_TRUE),
        (ann, "sn", "Jones", ResultCode::COMPARE_FALSE),
        (ann, "objectClass", "person", ResultCode::COMPARE_TRUE),
        (ann, "mail", "x", ResultCode::NO_SUCH_ATTRIBUTE),
        (ann, "nonsense", "x", ResultCode::UNDEFINED_ATTRIBUTE_TYPE),
        (ann, "uidNumber", "x", ResultCode::INVALID_ATTRIBUTE_SYNTAX),
        (ann, "jpegPhoto", "x", ResultCode::INAPPROPRIATE_MATCHING),
        (ann, "hasSubordinates", "FALSE", ResultCode::COMPARE_TRUE),
        (SUFFIX, "hasSubordinates", "FALSE", ResultCode::COMPARE_FALSE),
        (ann, "hasSubordinates", "x", ResultCode::INVALID_ATTRIBUTE_SYNTAX),
        (ann, "hasSubordinates", "false", ResultCode::INVALID_ATTRIBUTE_SYNTAX),
        (SUFFIX, "numSubordinates", "2", ResultCode::COMPARE_TRUE),
        (SUFFIX, "numSubordinates", "x", ResultCode::INVALID_ATTRIBUTE_SYNTAX),
        (ann, "entryDN", ann, ResultCode::UNWILLING_TO_PERFORM),
        ("cn=no,dc=example,dc=com", "cn", "no", ResultCode::NO_SUCH_OBJECT),
        ("ou=elsewhere,dc=example,dc=com", "ou", "x", ResultCode::REFERRAL),
        ("cn=a,ou=elsewhere,dc=example,dc=com", "ou", "x", ResultCode::REFERRAL),
    ] {
        assert_eq!(
            code(&fixture, &plain, entry, attribute, value),
            expected.0,
            "{entry} {attribute} {value}"
        );
    }
    let manage = plain.with(|values| values.manage_dsa_it = true);
    let elsewhere = "ou=elsewhere,dc=example,dc=com";
    assert_eq!(code(&fixture, &manage, elsewhere, "ou", "elsewhere"), ResultCode::COMPARE_TRUE.0);
    for (filter, expected) in
        [("(sn=smith)", ResultCode::COMPARE_TRUE), ("(sn=x)", ResultCode::ASSERTION_FAILED)]
    {
        let assertion = Some(FilterBuf::parse(filter).unwrap());
        let controls = plain.with(|values| values.assertion = assertion);
        assert_eq!(code(&fixture, &controls, ann, "cn", "ann"), expected.0, "{filter}");
    }
}

#[test]
fn what_takes_too_much_tells_of_no_hidden_entry() {
    let bo = "cn=bo,dc=example,dc=com";
    let mut ldif = format!("{LDIF}\ndn: {bo}\nobjectClass: inetOrgPerson\ncn: Bo\nsn: Bo\n");
    (0..200).for_each(|n| ldif.push_str(&format!("seeAlso: cn=somebody {n},dc=example,dc=com\n")));
    let fixture = Fixture::memory(&[], &ldif);
    let settings = DatabaseSettings::clone(&fixture.database.settings());
    let request_limits = RequestLimits::default().with(RequestLimit::Steps, 1_000);
    fixture.reconfigure(DatabaseSettings { request_limits, ..settings });
    let set = "set=\"this/seeAlso/cn & [none]\"";
    let costly = format!("to dn.base=\"{bo}\" attrs=cn by {set} compare by * none");
    for (level, expected) in
        [("none", ResultCode::NO_SUCH_OBJECT), ("disclose", ResultCode::ADMIN_LIMIT_EXCEEDED)]
    {
        let rest = format!("to dn.base=\"{bo}\" by * {level}");
        fixture.restrict(&[&costly, &rest, "to * by * compare"]);
        assert_eq!(code(&fixture, &RequestControls::default(), bo, "cn", "x"), expected.0, "{level}");
    }
}

#[test]
fn compares_need_the_privilege() {
    let fixture = Fixture::memory(&[], LDIF);
    fixture.restrict(&["to attrs=userPassword by * auth", "to attrs=sn by * none", "to * by * compare"]);
    let plain = RequestControls::default();
    let ann = "cn=ann,dc=example,dc=com";
    for (attribute, expected) in [
        ("userPassword", ResultCode::INSUFFICIENT_ACCESS_RIGHTS),
        ("sn", ResultCode::INSUFFICIENT_ACCESS_RIGHTS),
        ("cn", ResultCode::COMPARE_FALSE),
    ] {
        assert_eq!(code(&fixture, &plain, ann, attribute, "x"), expected.0, "{attribute}");
    }
    fixture.restrict(&["to * by * none"]);
    assert_eq!(code(&fixture, &plain, ann, "cn", "ann"), ResultCode::NO_SUCH_OBJECT.0);
}

use std::collections::HashMap;

use larix_proto::Scope;
use larix_schema::Schema;

use super::*;

/// A directory of a few names: attributes by entry, and what searches find.
#[derive(Default)]
struct Names {
    values: HashMap<(String, &'static str), Vec<Vec<u8>>>,
    found: Vec<(&'static str, &'static str)>,
}

impl Names {
    fn schema() -> &'static Schema {
        static SCHEMA: std::sync::OnceLock<Schema> = std::sync::OnceLock::new();
        SCHEMA.get_or_init(|| {
            let mut builder = larix_schema::SchemaBuilder::system();
            builder.add_bundled("core").unwrap();
            builder.build()
        })
    }
}

fn dn(text: &str) -> NormalDn {
    Names::schema().parse_dn(text).unwrap()
}

impl Lookups for Names {
    fn schema(&self) -> &Schema {
        Self::schema()
    }

    fn find_one(&self, _: Option<&NormalDn>, url: &LdapUrl) -> Option<NormalDn> {
        let filter = url.filter.as_ref()?.to_string();
        let mut found = self.found.iter().filter(|(known, _)| *known == filter);
        let (_, name) = found.next()?;
        found.next().is_none().then(|| dn(name))
    }

    fn finds(&self, _: Option<&NormalDn>, url: &LdapUrl, entry: &NormalDn, meter: &Meter) -> bool {
        if !meter.take(50) {
            return false;
        }
        let Some(filter) = url.filter.as_ref().map(ToString::to_string) else { return false };
        let in_scope = url.scope == Some(Scope::Subtree) || dn(&url.dn) == *entry;
        in_scope && self.found.iter().any(|(known, name)| *known == filter && dn(name) == *entry)
    }

    fn expand(&self, url: &LdapUrl, _: Option<&str>) -> Option<String> {
        self.find_one(None, url).map(|entry| entry.as_str().to_owned())
    }

    fn values(&self, entry: &NormalDn, attribute: &str) -> Vec<Vec<u8>> {
        let key = |known: &&(String, &'static str)| known.0 == entry.as_str() && known.1 == attribute;
        self.values.iter().find(|(known, _)| key(known)).map(|(_, values)| values.clone()).unwrap_or_default()
    }

    fn is_root_over(&self, who: &NormalDn, entry: &NormalDn) -> bool {
        *who == dn("cn=root,dc=x") && entry.is_within(&dn("dc=x"))
    }
}

const BOB: &str = "uid=bob,ou=people,dc=x";
const ANN: &str = "uid=ann,ou=people,dc=x";

fn check(policy: AuthzPolicy, to: &str, from: &str, expected: bool) {
    let value = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.as_bytes().to_vec()] };
    let names = Names {
        values: HashMap::from([
            ((dn(BOB).as_str().to_owned(), "authzTo"), value(to)),
            ((dn(ANN).as_str().to_owned(), "authzFrom"), value(from)),
        ]),
        found: vec![
            ("(uid=ann)", ANN),
            ("(&(objectClass=groupOfNames)(member=uid=ann,ou=people,dc=x))", "cn=g,dc=x"),
            ("(&(objectClass=team)(owner=uid=ann,ou=people,dc=x))", "cn=g,dc=x"),
        ],
    };
    let regexp = |pattern: &str, target: &str| AuthzRegexp::new(pattern, target).unwrap();
    let rules = [
        regexp("^uid=([^,]+),cn=realm,cn=m,cn=auth$", "uid=$1,ou=people,dc=x"),
        regexp("^uid=([^,]+),cn=authz,cn=auth$", "ldap:///dc=x??sub?(uid=$1)"),
    ];
    let (rewrite, meter) = (Rewrite::default(), Meter::new(RULE_STEPS));
    let authorizer = Authorizer { lookups: &names, policy, rules: &rules, rewrite: &rewrite, meter: &meter };
    assert_eq!(authorizer.allows(Some(&dn(BOB)), &dn(ANN)), expected, "{policy:?} to {to:?} from {from:?}");
}

#[test]
fn a_policy_says_which_rules_count() {
    for (policy, to, from, expected) in [
        (AuthzPolicy::None, ANN, BOB, false),
        (AuthzPolicy::To, ANN, "", true),
        (AuthzPolicy::To, "", BOB, false),
        (AuthzPolicy::From, "", BOB, true),
        (AuthzPolicy::From, ANN, "", false),
        (AuthzPolicy::Any, ANN, "", true),
        (AuthzPolicy::Any, "", BOB, true),
        (AuthzPolicy::Any, "", "", false),
        (AuthzPolicy::All, ANN, BOB, true),
        (AuthzPolicy::All, ANN, "", false),
        (AuthzPolicy::All, "", BOB, false),
    ] {
        check(policy, to, from, expected);
    }
}

#[test]
fn a_rule_names_who_may_act() {
    for (rule, expected) in [
        ("uid=ANN, ou=people, dc=x", true),
        ("dn:uid=ann,ou=people,dc=x", true),
        ("{3}dn:uid=ann,ou=people,dc=x", true),
        ("dn.exact: uid=ann,ou=people,dc=x", true),
        ("DN.Exact:uid=other,ou=people,dc=x", false),
        ("dn.children:ou=people,dc=x", true),
        ("dn.children:uid=ann,ou=people,dc=x", false),
        ("dn.subtree:uid=ann,ou=people,dc=x", true),
        ("dn.subtree:dc=y", false),
        ("dn.onelevel:ou=people,dc=x", true),
        ("dn.onelevel:dc=x", false),
        ("dn.children:", false),
        ("dn.subtree: ", false),
        ("dn.onelevel:", false),
        ("dn.regex:^uid=[^,]+,OU=people,dc=x$", true),
        ("dn.regex:^uid=[a-n\\]+,ou=people,dc=x$", true),
        ("dn.regex:^cn=", false),
        ("dn.regex:(", false),
        ("dn:*", true),
        ("*", true),
        ("dn.nosuch:*", true),
        ("dn.nosuch:dc=x", false),
        ("dn", false),
        ("u:ann", true),
        ("u:bob", false),
        ("u.m/realm:ann", true),
        ("u.m:ann", false),
        ("u/x:ann", false),
        ("u:", false),
        ("u.m/realm:", false),
        ("group:cn=g,dc=x", true),
        ("group.exact:cn=g,dc=x", true),
        ("group:cn=other,dc=x", false),
        ("group/team/owner:cn=g,dc=x", true),
        ("group/team:cn=g,dc=x", false),
        ("ldap:///dc=x??sub?(uid=ann)", true),
        ("ldap:///dc=x??sub?(uid=bob)", false),
        ("ldap:///dc=x??sub", false),
        ("ldap://host/dc=x??sub?(uid=ann)", false),
        ("ldap:///dc=x?cn?sub?(uid=ann)", false),
        ("ldaps:///dc=x??sub?(uid=ann)", false),
        ("http://x", false),
        ("nonsense", false),
    ] {
        check(AuthzPolicy::To, rule, "", expected);
    }
}

#[test]
fn who_needs_no_rule() {
    let names = Names::default();
    let (rewrite, meter) = (Rewrite::default(), Meter::new(RULE_STEPS));
    let policy = AuthzPolicy::None;
    let authorizer = Authorizer { lookups: &names, policy, rules: &[], rewrite: &rewrite, meter: &meter };
    for (who, whom, expected) in [
        (Some(BOB), BOB, true),
        (Some(BOB), "", true),
        (None, "", true),
        (None, BOB, false),
        (Some("cn=root,dc=x"), ANN, true),
        (Some("cn=root,dc=x"), "dc=y", false),
        (Some(BOB), ANN, false),
    ] {
        let who = who.map(dn);
        assert_eq!(authorizer.allows(who.as_ref(), &dn(whom)), expected, "{who:?} {whom}");
    }
}

#[test]
fn rules_take_so_many_steps() {
    for (other, most) in [
        ("dn.exact:cn=nobody,dc=x", 10_000),
        ("dn.regex:^cn=nobody,.*$", 90),
        ("dn.regex:^cn=n{1,9}obody$", 9),
        ("u:nobody", 90),
        ("group:cn=g,dc=y", 500),
        ("ldap:///dc=x??sub?(uid=nobody)", 500),
    ] {
        for (count, expected) in [(most, true), (most * 15, false)] {
            let mut values = vec![other.as_bytes().to_vec(); count];
            values.push(ANN.as_bytes().to_vec());
            let names = Names {
                values: HashMap::from([((dn(BOB).as_str().to_owned(), "authzTo"), values)]),
                ..Names::default()
            };
            let (rewrite, meter) = (Rewrite::default(), Meter::new(RULE_STEPS));
            let policy = AuthzPolicy::To;
            let authorizer =
                Authorizer { lookups: &names, policy, rules: &[], rewrite: &rewrite, meter: &meter };
            assert_eq!(authorizer.allows(Some(&dn(BOB)), &dn(ANN)), expected, "{count} times {other}");
            assert_eq!(meter.is_overdrawn(), !expected, "{count} times {other}");
        }
    }
}

#[test]
fn a_name_that_finds_one_entry_is_that_entry() {
    use super::super::identity::IdentityFault;
    let names =
        Names { found: vec![("(uid=ann)", ANN), ("(uid=two)", ANN), ("(uid=two)", BOB)], ..Names::default() };
    let rules = [
        AuthzRegexp::new("^uid=([^,]+),cn=plain,cn=auth$", "ldap:///dc=x??sub?(uid=$1)").unwrap(),
        AuthzRegexp::new("^uid=([^,]+),cn=fixed,cn=auth$", "dn:uid=$1,dc=x").unwrap(),
        AuthzRegexp::new("^uid=([^,]+),cn=base,cn=auth$", "ldap:///uid=$1,dc=x").unwrap(),
        AuthzRegexp::new("^uid=([^,]+),cn=bad,cn=auth$", "no dn").unwrap(),
    ];
    let mapper = Mapper { lookups: &names, rules: &rules, rewrite: &Rewrite::default(), who: None };
    for (identity, mechanism, expected) in [
        ("u:ann", "PLAIN", Ok(ANN)),
        // Found by none or by several: the name stays what it is.
        ("u:nobody", "PLAIN", Ok("uid=nobody,cn=plain,cn=auth")),
        ("u:two", "PLAIN", Ok("uid=two,cn=plain,cn=auth")),
        ("U:Ann", "FIXED", Ok("uid=ann,dc=x")),
        ("u:ann", "BASE", Ok("uid=ann,dc=x")),
        ("u:ann", "BAD", Ok("uid=ann,cn=bad,cn=auth")),
        ("u:ann", "", Ok("uid=ann,cn=auth")),
        ("u:a,b+c", "", Ok("uid=a\\2Cb\\2Bc,cn=auth")),
        ("dn:UID=Ann,DC=x", "", Ok("uid=ann,dc=x")),
        ("anonymous", "", Ok("")),
        ("dn:no", "", Err(IdentityFault::Dn)),
        ("ann", "", Err(IdentityFault::Form)),
        ("x:ann", "", Err(IdentityFault::Form)),
    ] {
        assert_eq!(mapper.authorization(identity, "", mechanism), expected.map(dn), "{identity} {mechanism}");
    }
    let of_realm = mapper.authorization("u:ann", "REALM", "PLAIN");
    assert_eq!(of_realm, Ok(dn("uid=ann,cn=realm,cn=plain,cn=auth")));
}

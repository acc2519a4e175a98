//! Rules as written -> what they say to a request.

use larix_configuration::Config;
use larix_engine::access::Subject;
use larix_proto::{ControlBuf, Controls, oid};
use larix_schema::NormalDn;

use super::{OperationRules, RestrictedOperation};

fn read(lines: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("slapd.conf");
    let core = "objectidentifier manageDSAiT 2.16.840.1.113730.3.4.2\n";
    std::fs::write(&file, format!("{core}{lines}\n")).unwrap();
    Config::from_slapd_conf(&file).map_err(|error| error.to_string())
}

fn rules(lines: &str) -> OperationRules {
    let section = "database null\nsuffix cn=x\nrootdn cn=root,cn=x\n";
    let config = read(&format!("{section}{lines}")).unwrap_or_else(|error| panic!("{error}"));
    let database = config.databases.iter().find(|database| !database.suffixes.is_empty());
    OperationRules::in_force(&config, database).unwrap().unwrap()
}

/// "" is anonymous. A control is named by its OID, with `!` before it if critical.
fn check(
    rules: &OperationRules,
    who: &str,
    operation: RestrictedOperation<'_>,
    sent: &[&'static str],
    expected: Option<&[&str]>,
) {
    let mut ber = Vec::new();
    for name in sent {
        let (critical, oid) = name.strip_prefix('!').map_or((false, *name), |oid| (true, oid));
        ControlBuf { oid: oid.into(), critical, value: None }.encode(&mut ber);
    }
    let nobody = Subject::default();
    let subject = if who.is_empty() { nobody } else { nobody.bound_as(NormalDn::from_normal(who), who) };
    let found = rules.check(&subject, operation, Controls::check(&ber).unwrap());
    let found = found.map_err(|refused| (refused.code.0, refused.diagnostic));
    let expected = expected
        .map(|dropped| dropped.iter().map(|oid| (*oid).to_owned()).collect::<Vec<_>>())
        .ok_or((53, String::new()));
    assert_eq!(found, expected, "{operation:?} of `{who}` with {sent:?}");
}

const DSA: &str = "2.16.840.1.113730.3.4.2";
const CRITICAL_DSA: &str = "!2.16.840.1.113730.3.4.2";
const ASSERT: &str = "1.3.6.1.1.12";
const CRITICAL_ASSERT: &str = "!1.3.6.1.1.12";

/// What OpenLDAP 2.7 answers under the same rules.
#[test]
fn rules_in_order() {
    let rules = rules(
        "restrictop extended=1.3.6.1.4.1.4203.1.11.1 by * reject
restrictop search control=manageDSAiT by users break by anonymous drop control=manageDSAiT break by * reject
restrictop read control=1.3.6.1.1.12 control=manageDSAiT by * reject
restrictop search control=1.3.6.1.1.12 by * drop control=1.3.6.1.1.12
restrictop write by users allow
restrictop bind read by * allow",
    );
    let (user, root) = ("cn=u,cn=x", "cn=root,cn=x");
    let allowed: Option<&[&str]> = Some(&[]);
    check(&rules, "", RestrictedOperation::Search, &[], allowed);
    check(&rules, "", RestrictedOperation::Search, &[DSA], Some(&[DSA]));
    check(&rules, "", RestrictedOperation::Search, &[CRITICAL_DSA], None);
    check(&rules, user, RestrictedOperation::Search, &[CRITICAL_DSA], allowed);
    check(&rules, user, RestrictedOperation::Search, &[DSA, ASSERT], None);
    // The control that was dropped is not there for the rules that follow.
    check(&rules, "", RestrictedOperation::Search, &[DSA, ASSERT], Some(&[DSA, ASSERT]));
    check(&rules, "", RestrictedOperation::Search, &[ASSERT], Some(&[ASSERT]));
    check(&rules, "", RestrictedOperation::Search, &[CRITICAL_ASSERT], None);
    check(&rules, root, RestrictedOperation::Search, &[CRITICAL_ASSERT], allowed);
    check(&rules, "", RestrictedOperation::Compare, &[ASSERT], allowed);
    check(&rules, "", RestrictedOperation::Compare, &[ASSERT, DSA], None);
    check(&rules, "", RestrictedOperation::Delete, &[], None);
    check(&rules, user, RestrictedOperation::Delete, &[], allowed);
    check(&rules, "", RestrictedOperation::SimpleBind, &[], allowed);
    check(&rules, "", RestrictedOperation::AnonymousBind, &[], allowed);
    // No rule is about it.
    check(&rules, user, RestrictedOperation::Extended(oid::WHO_AM_I), &[], None);
    check(&rules, user, RestrictedOperation::Extended(oid::PASSWORD_MODIFY), &[], None);
    check(&rules, root, RestrictedOperation::Extended(oid::PASSWORD_MODIFY), &[], allowed);
}

#[test]
fn a_rule_without_a_clause_for_the_requester_refuses() {
    let allowed: Option<&[&str]> = Some(&[]);
    // A rule that is about the request and has no clause for the requester refuses it.
    let implicit = rules("restrictop search by users allow\nrestrictop all by * allow");
    check(&implicit, "", RestrictedOperation::Search, &[], None);
    check(&implicit, "", RestrictedOperation::Compare, &[], allowed);
    // Nothing to drop decides nothing, and a clause stops unless it says otherwise.
    let stop = rules("restrictop search by * drop control=manageDSAiT\nrestrictop all by * allow");
    check(&stop, "", RestrictedOperation::Search, &[], None);
    check(&stop, "", RestrictedOperation::Search, &[DSA], Some(&[DSA]));
    let go_on = rules("restrictop search by * drop control=manageDSAiT continue by users allow");
    check(&go_on, "cn=u", RestrictedOperation::Search, &[], allowed);
    check(&go_on, "", RestrictedOperation::Search, &[DSA], Some(&[DSA]));
    check(&go_on, "", RestrictedOperation::Search, &[], None);
    let of_one = rules("restrictop all by dn.exact=\"cn=a b,cn=x\" reject by * allow");
    check(&of_one, "cn=a b,cn=x", RestrictedOperation::Search, &[], None);
    check(&of_one, "cn=c,cn=x", RestrictedOperation::Search, &[], allowed);
}

#[test]
fn a_databases_own_stand_in() {
    let config = read(
        "restrictop all by * reject\ndatabase null\nsuffix cn=x\nrestrictop all by * allow\ndatabase null\nsuffix cn=y",
    );
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    for database in config.databases.iter().filter(|database| !database.suffixes.is_empty()) {
        let rules = OperationRules::in_force(&config, Some(database)).unwrap().unwrap();
        let expected: Option<&[&str]> = (database.suffixes[0].text == "cn=x").then_some(&[]);
        check(&rules, "", RestrictedOperation::Search, &[], expected);
    }
}

#[test]
fn faults_name_the_word() {
    let check = |line: &str, expected: &[&str]| {
        let error = read(&format!("restrictop {line}")).expect_err(line);
        for part in expected {
            assert!(error.contains(part), "{line}: {error}");
        }
    };
    check("serch by * allow", &["no operation `serch`", "some of bind,"]);
    check("control=manageDSAiT by * allow", &["names no operation", "some of bind,"]);
    check("read search by * allow", &["`search` names an operation for the second time"]);
    check("extended extended=1.2.3 by * allow", &["`extended=1.2.3` names an operation for"]);
    check(
        "extended=none by * allow",
        &["`none` is not the OID of an extended operation", "objectidentifier"],
    );
    check("all control=none by * allow", &["`none` is not the OID of a control", "supportedControl"]);
    check("all control=1.2.3 by * allow", &["no control `1.2.3` is served"]);
    check("all", &["no `by` clause", "by * reject"]);
    check("all by", &["does not say whom"]);
    check("all by allow", &["does not say whom"]);
    check("all by *", &["does nothing", "allow, reject, drop"]);
    check("all by * permit", &["permit", "allow, reject, drop"]);
    check("all by * allow then", &["`then` where the next `by` was expected", "stop|continue|break"]);
    check("all by * drop", &["`drop` does not say what", "drop control=<OID>"]);
    check("all by * drop control=1.2.3", &["no control `1.2.3` is served"]);
    check("all by self allow", &["asks for an entry"]);
    check("all by dnattr=member allow", &["asks for an entry"]);
    check("all by set=this allow", &["asks for an entry"]);
    check("all by dn.exact=nonsense allow", &["nonsense"]);
}

//! Groups in other databases.

use larix_engine::Suffix;
use larix_engine::overlay::OtherDatabase;

use super::*;
use crate::memberof::DESCRIPTOR;
use crate::refint;
use crate::testing::{self, Followed, ROOT, compared, found, suffix};

const TEAMS: &str = "dc=teams";

/// The tree of the tests, and a database of groups; one overlay for both.
fn fixture_with(lines: &str, rules: &[&str]) -> Memory {
    let schema = schema("");
    let suffixes: [Suffix; 2] = [suffix(&schema, common::SUFFIX), suffix(&schema, TEAMS)];
    let given = testing::settings_of(&DESCRIPTOR, lines);
    let of = |own: usize| {
        let others = [OtherDatabase {
            suffix: suffixes[1 - own].normal.clone(),
            last_modified: true,
            receives: false,
        }];
        let overlay = testing::with_context(&schema, |context| {
            let context = larix_engine::overlay::BuildContext { others: &others, ..testing::copied(context) };
            (DESCRIPTOR.build.unwrap())(&given, &context).unwrap()
        });
        let mut settings = DatabaseSettings { suffixes: vec![suffixes[own].clone()], ..settings(&schema) };
        let mut index = IndexConfig::default();
        overlay.indexes().into_iter().for_each(|(attribute, kinds)| index.also(attribute, kinds));
        settings.index = index;
        settings.overlays.push(overlay);
        if !rules.is_empty() {
            settings.policy = Some(common::policy(&schema, rules));
        }
        settings
    };
    let databases = vec![(memory(), of(0)), (memory(), of(1))];
    let fixture = Fixture::of(Arc::clone(&schema), databases);
    fixture.apply(TREE);
    fixture.apply("dn: dc=teams\nobjectClass: domain\ndc: teams\n");
    fixture
}

fn team(name: &str, members: &[&str]) -> String {
    let mut group = format!("dn: cn={name},{TEAMS}\nobjectClass: groupOfNames\ncn: {name}\n");
    members.iter().for_each(|member| writeln!(group, "member: {member}").unwrap());
    group
}

#[test]
fn groups_of_another_database_are_seen_wherever_ones_own_are() {
    let fixture = fixture_with("", &[]);
    fixture.apply(&group("one", &[ANN]));
    fixture.apply(&team("red", &[ANN, BO]));
    fixture.apply(&team("blue", &[BO]));
    let all = |filter: &str| found(&fixture, filter, &["memberOf"]);
    let ann = "Ann Lee: memberOf=cn=red,dc=teams|one";
    let bo = "Bo: memberOf=cn=blue,dc=teams|cn=red,dc=teams";
    assert_eq!(all("(objectClass=person)"), format!("{ann}; {bo}"));
    assert_eq!(all("(memberOf=cn=RED, dc=teams)"), format!("{ann}; {bo}"));
    assert_eq!(all("(memberOf=cn=blue,dc=teams)"), bo);
    assert_eq!(all("(&(memberOf=cn=red,dc=teams)(memberOf=cn=one,ou=Groups,dc=example,dc=com))"), ann);
    assert_eq!(all("(&(objectClass=person)(!(memberOf=cn=blue,dc=teams)))"), ann);
    assert_eq!(all("(&(objectClass=person)(memberOf=*))"), format!("{ann}; {bo}"));
    for nobody in ["(memberOf=cn=none,dc=teams)", "(memberOf=dc=teams)", "(memberOf=cn=red,dc=elsewhere)"] {
        assert_eq!(all(nobody), "", "{nobody}");
    }
    // Nothing of it is stored, and not told unless it is asked for.
    assert_eq!(memberships(&fixture, ANN), ["cn=one,ou=Groups,dc=example,dc=com"]);
    assert_eq!(found(&fixture, "(cn=Bo)", &["sn"]), "Bo: sn=Bo");
    for (dn, group, code) in
        [(ANN, "cn=red,dc=teams", 6), (ANN, "cn=blue,dc=teams", 5), (BO, "cn=blue,dc=teams", 6)]
    {
        assert_eq!(compared(&fixture, dn, "memberOf", group), code, "{dn} {group}");
    }
    // It is a function of the groups that there are.
    fixture.apply("dn: cn=red,dc=teams\nchangetype: modrdn\nnewrdn: cn=Rouge\ndeleteoldrdn: 1\n");
    assert_eq!(all("(cn=Ann Lee)"), "Ann Lee: memberOf=cn=Rouge,dc=teams|one");
    fixture.apply(&format!("dn: cn=Rouge,dc=teams\nchangetype: modify\ndelete: member\nmember: {ANN}\n"));
    fixture.apply("dn: cn=blue,dc=teams\nchangetype: delete\n");
    assert_eq!(all("(cn=Ann Lee)"), "Ann Lee: memberOf=one");
    assert_eq!(all("(cn=Bo)"), "Bo: memberOf=cn=Rouge,dc=teams");
}

#[test]
fn large_groups_of_another_database() {
    let fixture = fixture_with("", &[]);
    let others: Vec<String> = (0..MANY).map(|number| format!("cn=p{number},dc=example,dc=com")).collect();
    let mut members: Vec<&str> = others.iter().map(String::as_str).collect();
    members.push(BO);
    fixture.apply(&team("many", &members));
    assert_eq!(
        found(&fixture, "(memberOf=cn=many,dc=teams)", &["memberOf"]),
        "Bo: memberOf=cn=many,dc=teams"
    );
    assert_eq!(compared(&fixture, BO, "memberOf", "cn=many,dc=teams"), 6);
    assert_eq!(compared(&fixture, ANN, "memberOf", "cn=many,dc=teams"), 16);
}

#[test]
fn what_has_no_class_of_groups_is_none() {
    let fixture = fixture_with("", &[]);
    fixture.apply(&format!(
        "dn: cn=role,{TEAMS}\nobjectClass: organizationalRole\nobjectClass: extensibleObject\ncn: role\nmember: {ANN}\n"
    ));
    assert_eq!(found(&fixture, "(cn=Ann Lee)", &["memberOf"]), "Ann Lee");
    assert_eq!(found(&fixture, "(memberOf=cn=role,dc=teams)", &["cn"]), "");
}

#[test]
fn access_rules_see_groups_of_another_database() {
    let rules = [
        "to filter=(memberOf=cn=red,dc=teams) attrs=sn by * none",
        "to attrs=memberOf by dn=cn=clerk read by * none",
        "to * by * read",
    ];
    let mut fixture = fixture_with("", &rules);
    fixture.apply(&team("red", &[ANN]));
    fixture.bind("cn=clerk");
    let people = |fixture: &Memory| found(fixture, "(objectClass=person)", &["sn", "memberOf"]);
    assert_eq!(people(&fixture), "Ann Lee: memberOf=cn=red,dc=teams; Bo: sn=Bo");
    fixture.bind("cn=somebody");
    assert_eq!(people(&fixture), "Ann Lee; Bo: sn=Bo");
    assert_eq!(found(&fixture, "(memberOf=cn=red,dc=teams)", &["cn"]), "");
}

#[test]
fn members_in_another_database_are_there_and_groups_follow_them() {
    let fixture = fixture_with("memberof-dangling error\nmemberof-refint TRUE\n", &[]);
    let nobody = "cn=nobody,ou=People,dc=example,dc=com";
    assert_eq!(fixture.change(&team("red", &[nobody])), "19 adding non-existing object as group member");
    fixture.apply(&team("red", &[ANN, BO]));
    let mut follower = Followed::of_database(&fixture, 0, "memberof");
    fixture.apply(&format!("dn: {ANN}\nchangetype: modrdn\nnewrdn: cn=Anna\ndeleteoldrdn: 1\n"));
    fixture.apply(&format!("dn: {BO}\nchangetype: delete\n"));
    follower.catch_up(None);
    let red = format!("cn=red,{TEAMS}");
    assert!(fixture.show(&red).ends_with("\nmember: cn=Anna,ou=People,dc=example,dc=com\n"));
    assert_eq!(fixture.value(&red, "modifiersName").as_deref(), Some(ROOT));
    assert_eq!(found(&fixture, "(cn=Anna)", &["memberOf"]), "Anna: memberOf=cn=red,dc=teams");
    let settings = fixture.database().settings();
    assert!(settings.overlays.iter().all(|overlay| overlay.name() != refint::DESCRIPTOR.name));
}

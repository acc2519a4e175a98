//! What requests give away about entries that the requester may not know or change: every operation against an entry that is
//! missing, hidden, visible and writable, under every overlay that looks at changes.

use larix_proto::client::{self, ClientAttribute, ClientChange, Search};
use larix_proto::extended::{ExtendedValue, PasswordModify};
use larix_proto::{ControlBuf, DerefAliases, FilterBuf, MessageId, ModifyOperation, ResultCode, Scope, oid};
use larix_testkit::{Kind, Server, Site};
use larix_tests::raw::{Answer, Raw, bind};

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";
const USER: &str = "cn=user1,dc=example,dc=com";

/// Overlays that see changes before they are carried out, and none.
const OVERLAYS: [&str; 4] = [
    "",
    "overlay ppolicy\nppolicy_default \"cn=policy,dc=example,dc=com\"\n",
    "overlay memberof\n",
    "overlay refint\nrefint_attributes member seeAlso\n",
];
const POLICY: &str = OVERLAYS[1];

fn directory(global: &str, overlay: &str) -> (Site, Server) {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "{global}database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\nindex objectClass eq\n\
             access to dn.subtree=\"ou=hidden,{SUFFIX}\" by * none\n\
             access to dn.regex=\"(^|,)cn=leaf,ou=[^,]+,{SUFFIX}$\" by * none\n\
             access to dn.subtree=\"ou=open,{SUFFIX}\" by users write by * read\n\
             access to attrs=userPassword by self write by * auth\n\
             access to * by self write by users read\n\
             {overlay}"
        ),
    );
    let mut ldif = format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: cn=policy,{SUFFIX}\nobjectClass: person\nobjectClass: pwdPolicy\ncn: policy\nsn: x\npwdAttribute: userPassword\n\
         pwdMaxFailure: 3\npwdLockout: TRUE\npwdInHistory: 5\npwdMustChange: TRUE\n\n"
    );
    for unit in ["hidden", "seen", "open"] {
        ldif += &format!("dn: ou={unit},{SUFFIX}\nobjectClass: organizationalUnit\nou: {unit}\n\n");
        ldif += &person(&format!("cn=user,ou={unit},{SUFFIX}"), "user");
        ldif += &person(&format!("cn=leaf,ou={unit},{SUFFIX}"), "leaf");
        ldif += &person(&format!("cn=inner,cn=leaf,ou={unit},{SUFFIX}"), "inner");
        ldif += &format!(
            "dn: cn=referral,ou={unit},{SUFFIX}\nobjectClass: referral\nobjectClass: extensibleObject\ncn: referral\n\
             ref: ldap://elsewhere.example/cn=there\n\n\
             dn: cn=alias,ou={unit},{SUFFIX}\nobjectClass: alias\nobjectClass: extensibleObject\ncn: alias\n\
             aliasedObjectName: cn=user,ou={unit},{SUFFIX}\n\n"
        );
        for (alias, target) in [("door", "leaf"), ("deep", "inner,cn=leaf"), ("nowhere", "nobody")] {
            ldif += &format!(
                "dn: cn={alias},ou={unit},{SUFFIX}\nobjectClass: alias\nobjectClass: extensibleObject\ncn: {alias}\n\
                 aliasedObjectName: cn={target},ou={unit},{SUFFIX}\n\n"
            );
        }
    }
    ldif += &format!("dn: ou=bare,{SUFFIX}\nobjectClass: organizationalUnit\nou: bare\n\n");
    for n in 1..4 {
        ldif += &person(&format!("cn=user{n},{SUFFIX}"), &format!("user{n}"));
    }
    site.load(&ldif);
    let server = site.start().unwrap();
    (site, server)
}

fn person(dn: &str, name: &str) -> String {
    format!("dn: {dn}\nobjectClass: person\ncn: {name}\nsn: x\nuserPassword: right\ndescription: d\n\n")
}

fn user(server: &Server) -> Raw {
    let mut client = Raw::connect(server.address).unwrap();
    assert_eq!(client.ask(&bind(1, USER, "right")).unwrap().code, 0);
    client
}

fn control(oid: &str, value: Option<Vec<u8>>) -> ControlBuf {
    ControlBuf { oid: oid.to_owned().into(), critical: true, value }
}

fn assertion(filter: &str) -> ControlBuf {
    control(oid::ASSERTION, Some(FilterBuf::parse(filter).unwrap().as_filter().as_ber().to_vec()))
}

fn modify(dn: &str, changes: &[(ModifyOperation, &str, &[&str])], controls: &[ControlBuf]) -> Vec<u8> {
    let changes: Vec<ClientChange<'_, &str>> = changes
        .iter()
        .map(|(operation, description, values)| ClientChange {
            operation: *operation,
            attribute: ClientAttribute { description, values },
        })
        .collect();
    let mut out = Vec::new();
    client::modify(&mut out, MessageId(2), dn, &changes, controls);
    out
}

/// An old password by value and a new one.
fn replace_old(dn: &str, old: &str) -> Vec<u8> {
    let changes: [(ModifyOperation, &str, &[&str]); 2] = [
        (ModifyOperation::Delete, "userPassword", &[old]),
        (ModifyOperation::Add, "userPassword", &["brand new"]),
    ];
    modify(dn, &changes, &[])
}

fn password_modify(dn: &str, old: Option<&str>) -> Vec<u8> {
    let request =
        PasswordModify { user: Some(dn.as_bytes()), old: old.map(str::as_bytes), new: Some(b"brand new") };
    let mut out = Vec::new();
    client::extended(
        &mut out,
        MessageId(2),
        oid::PASSWORD_MODIFY,
        request.encode().as_deref(),
        &[control(oid::PASSWORD_POLICY, None)],
    );
    out
}

fn search(dn: &str, scope: Scope, deref: DerefAliases) -> Vec<u8> {
    let filter = FilterBuf::parse("(objectClass=*)").unwrap();
    let mut out = Vec::new();
    let search = Search { deref, ..Search::new(dn, scope, filter.as_filter()) };
    client::search(&mut out, MessageId(2), &search, &[]);
    out
}

/// Everything that can be asked of a name, by a name for it.
fn requests(dn: &str) -> Vec<(String, Vec<u8>)> {
    use ModifyOperation::{Add, Delete, Increment, Replace};
    let mut list: Vec<(String, Vec<u8>)> = Vec::new();
    for scope in [Scope::Base, Scope::OneLevel, Scope::Subtree] {
        for deref in [DerefAliases::Never, DerefAliases::FindingBase, DerefAliases::Always] {
            list.push((format!("search {scope:?} {deref:?}"), search(dn, scope, deref)));
        }
    }
    let mut push = |name: &str, fill: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        fill(&mut out);
        list.push((name.to_owned(), out));
    };
    let id = MessageId(2);
    let read = || control(oid::PRE_READ, Some(vec![0x30, 0]));
    for (case, controls) in [
        ("", vec![]),
        (", pre-read", vec![read()]),
        (", manageDSAit", vec![control(oid::MANAGE_DSA_IT, None)]),
        (", assertion that holds", vec![assertion("(objectClass=*)")]),
        (", assertion that fails", vec![assertion("(cn=nobody at all)")]),
    ] {
        push(&format!("delete{case}"), &|out| client::delete(out, id, dn, &controls));
        push(&format!("rename{case}"), &|out| client::modify_dn(out, id, dn, "cn=z", true, None, &controls));
        push(&format!("move{case}"), &|out| {
            client::modify_dn(out, id, dn, "cn=z", true, Some(SUFFIX), &controls);
        });
        for (name, operation, attribute, values) in [
            ("add a value", Add, "description", &["x"][..]),
            ("delete a value", Delete, "description", &["d"]),
            ("delete an attribute", Delete, "description", &[]),
            ("replace", Replace, "description", &["x"]),
            ("increment", Increment, "uidNumber", &["1"]),
            ("replace the password", Replace, "userPassword", &["brand new"]),
            ("repeat the password", Replace, "userPassword", &["right"]),
            ("delete the password", Delete, "userPassword", &[]),
        ] {
            push(&format!("{name}{case}"), &|out| {
                *out = modify(dn, &[(operation, attribute, values)], &controls)
            });
        }
    }
    push("tree delete", &|out| client::delete(out, id, dn, &[control(oid::TREE_DELETE, None)]));
    push("compare", &|out| client::compare(out, id, dn, "sn", b"x", &[]));
    push("add below", &|out| {
        let list = [
            ClientAttribute { description: "objectClass", values: &["person"] },
            ClientAttribute { description: "sn", values: &["x"] },
        ];
        client::add(out, id, &format!("cn=below,{dn}"), &list, &[]);
    });
    push("bind", &|out| client::simple_bind(out, id, dn, b"wrong", &[]));
    push("move below it", &|out| client::modify_dn(out, id, USER, "cn=user1", true, Some(dn), &[]));
    for old in ["right", "wrong"] {
        push(&format!("{old} old password, modify"), &|out| *out = replace_old(dn, old));
        push(&format!("{old} old password, password modify"), &|out| *out = password_modify(dn, Some(old)));
    }
    push("password modify", &|out| *out = password_modify(dn, None));
    list
}

fn ask(server: &Server, request: &[u8]) -> Answer {
    user(server).ask(request).unwrap()
}

#[test]
fn what_is_hidden_looks_missing_to_every_operation() {
    for overlay in OVERLAYS {
        let (_site, server) = directory("", overlay);
        for kind in ["user", "referral", "alias"] {
            let hidden = requests(&format!("cn={kind},ou=hidden,{SUFFIX}"));
            let missing = requests(&format!("cn=nobody,ou=hidden,{SUFFIX}"));
            for ((name, hidden), (_, missing)) in hidden.iter().zip(&missing) {
                let (hidden, missing) = (ask(&server, hidden), ask(&server, missing));
                assert_eq!(hidden.what_is_told(), missing.what_is_told(), "{overlay}{kind}: {name}");
            }
        }
    }
}

/// The names of superiors tell nothing either: what is hidden stands here beside what is seen, and in another unit it does not.
#[test]
fn what_is_hidden_beside_what_is_seen_looks_missing_to_every_operation() {
    for overlay in OVERLAYS {
        let (_site, server) = directory("", overlay);
        for name in ["cn=leaf", "cn=inner,cn=leaf", "cn=no,cn=inner,cn=leaf"] {
            let of = |unit: &str| requests(&format!("{name},ou={unit},{SUFFIX}"));
            for ((what, hidden), (_, missing)) in of("seen").iter().zip(&of("bare")) {
                let (hidden, mut missing) = (ask(&server, hidden), ask(&server, missing));
                missing.matched = missing.matched.replace("ou=bare", "ou=seen");
                assert_eq!(hidden.what_is_told(), missing.what_is_told(), "{overlay}{name}: {what}");
            }
        }
    }
}

/// The rules forbid the name, though not what stands beside it: an add does not tell whether an entry has it.
#[test]
fn a_name_that_may_not_be_added_is_refused_whether_it_is_there_or_not() {
    let (_site, server) = directory("", "");
    let (leaf, mut add) = (format!("cn=leaf,ou=open,{SUFFIX}"), Vec::new());
    let list = [
        ClientAttribute { description: "objectClass", values: &["person"] },
        ClientAttribute { description: "sn", values: &["x"] },
    ];
    client::add(&mut add, MessageId(2), &leaf, &list, &[]);
    let there = ask(&server, &add);
    let mut admin = Raw::connect(server.address).unwrap();
    assert_eq!(admin.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let mut rename = Vec::new();
    client::modify_dn(&mut rename, MessageId(2), &leaf, "cn=away", true, None, &[]);
    assert_eq!(admin.ask(&rename).unwrap().code, 0);
    let missing = ask(&server, &add);
    assert_eq!((missing.code, missing.text.as_str()), (50, "no write access to entry"));
    assert_eq!(there.what_is_told(), missing.what_is_told());
}

#[test]
fn an_alias_of_what_is_hidden_looks_like_one_of_what_is_missing() {
    let (_site, server) = directory("", "");
    for below in ["", "cn=below,"] {
        for alias in ["door", "deep", "nowhere"] {
            let dn = format!("cn={alias},ou=seen,{SUFFIX}");
            let request = search(&format!("{below}{dn}"), Scope::Base, DerefAliases::FindingBase);
            let answer = ask(&server, &request);
            let told = (answer.code, answer.matched.as_str(), answer.text.as_str());
            assert_eq!(told, (33, dn.as_str(), "aliasedObject not found"), "{below}{alias}");
        }
    }
}

/// An assertion is looked at before the rights, and takes the more the more values the entry has.
#[test]
fn an_assertion_that_takes_too_much_tells_nothing_of_a_hidden_entry() {
    let (_site, server) = directory("request-limits steps=200\n", "");
    let terms = "(:caseIgnoreMatch:=no such value)".repeat(100);
    let controls = [assertion(&format!("(|{terms})"))];
    let requests = |dn: &str| {
        let (mut delete, mut rename) = (Vec::new(), Vec::new());
        client::delete(&mut delete, MessageId(2), dn, &controls);
        client::modify_dn(&mut rename, MessageId(2), dn, "cn=z", true, None, &controls);
        let replace = modify(dn, &[(ModifyOperation::Replace, "description", &["x"])], &controls);
        [replace, delete, rename]
    };
    let of = |dn: &str| requests(&format!("{dn},{SUFFIX}")).map(|request| ask(&server, &request));
    let (hidden, missing) = (of("cn=user,ou=hidden"), of("cn=nobody,ou=hidden"));
    assert_eq!(hidden.each_ref().map(Answer::what_is_told), missing.each_ref().map(Answer::what_is_told));
    assert_eq!(of("cn=user,ou=open").map(|answer| answer.code), [11, 11, 11]);
}

/// Requests that may be made of what is writable are refused of what is only visible, with the same words whatever the entry
/// holds, and do happen where they are allowed.
#[test]
fn who_may_not_change_an_entry_learns_nothing_of_its_values() {
    for overlay in OVERLAYS {
        let (_site, server) = directory("", overlay);
        let dn = format!("cn=user,ou=seen,{SUFFIX}");
        for (right, wrong) in [
            (replace_old(&dn, "right"), replace_old(&dn, "wrong")),
            (password_modify(&dn, Some("right")), password_modify(&dn, Some("wrong"))),
            (
                modify(&dn, &[(ModifyOperation::Replace, "userPassword", &["right"])], &[]),
                modify(&dn, &[(ModifyOperation::Replace, "userPassword", &["wrong"])], &[]),
            ),
            (
                modify(&dn, &[(ModifyOperation::Delete, "description", &["d"])], &[]),
                modify(&dn, &[(ModifyOperation::Delete, "description", &["e"])], &[]),
            ),
        ] {
            let (right, wrong) = (ask(&server, &right), ask(&server, &wrong));
            assert_eq!(right.what_is_told(), wrong.what_is_told(), "{overlay}");
            assert!([50, 53].contains(&right.code), "{overlay}: {right:?}");
        }
        let writable = format!("cn=user,ou=open,{SUFFIX}");
        for (request, expected) in [
            (modify(&writable, &[(ModifyOperation::Replace, "description", &["x"])], &[]), 0),
            (modify(&writable, &[(ModifyOperation::Delete, "description", &["nothing"])], &[]), 16),
            (
                modify(
                    &writable,
                    &[(ModifyOperation::Replace, "description", &["y"])],
                    &[assertion("(cn=no)")],
                ),
                122,
            ),
            (password_modify(&writable, None), 0),
        ] {
            assert_eq!(ask(&server, &request).code, expected, "{overlay}");
        }
        let mut delete = Vec::new();
        client::delete(&mut delete, MessageId(2), &writable, &[]);
        assert_eq!(ask(&server, &delete).code, 0, "{overlay}");
    }
}

#[test]
fn the_root_s_passwords_cannot_be_guessed() {
    for overlay in OVERLAYS {
        let (_site, server) = directory("database config\nrootpw secret\n", overlay);
        for root in [ADMIN, "cn=config"] {
            let [right, wrong] =
                ["secret", "wrong"].map(|guess| ask(&server, &password_modify(root, Some(guess))));
            assert_eq!(right.what_is_told(), wrong.what_is_told(), "{overlay}{root}");
        }
    }
}

/// Wrong old passwords count where failed binds do.
#[test]
fn wrong_old_passwords_lock_the_account() {
    for request in [(|old: &str| replace_old(USER, old)) as fn(&str) -> Vec<u8>, |old: &str| {
        password_modify(USER, Some(old))
    }] {
        let (_site, server) = directory("", POLICY);
        let mut client = user(&server);
        for _ in 0..3 {
            assert_eq!(client.ask(&request("wrong")).unwrap().code, 53);
        }
        let mut other = Raw::connect(server.address).unwrap();
        assert_eq!(other.ask(&bind(1, USER, "right")).unwrap().code, 49, "it is locked");
        let [right, wrong] = ["right", "wrong"].map(|old| client.ask(&request(old)).unwrap());
        assert_eq!(
            (right.code, &right.text),
            (wrong.code, &wrong.text),
            "a locked account tells no password"
        );
        let mut other = Raw::connect(server.address).unwrap();
        assert_eq!(other.ask(&bind(1, USER, "right")).unwrap().code, 49, "and was not changed");
    }
}

#[test]
fn wrong_old_passwords_count_for_their_address() {
    let (_site, server) = directory("client-limits failures.address=4/h\n", "");
    let mut client = user(&server);
    let codes: Vec<u32> =
        (0..6).map(|_| client.ask(&password_modify(USER, Some("wrong"))).unwrap().code).collect();
    assert_eq!(codes, [53, 53, 53, 53, 51, 51]);
    let replace_wrong = |client: &mut Raw| client.ask(&replace_old(USER, "wrong")).unwrap().code;
    for (overlay, expected) in [("", [16, 16, 51]), (POLICY, [53, 53, 51])] {
        let (_site, server) = directory("client-limits failures.address=2/h\n", overlay);
        let mut client = user(&server);
        assert_eq!([(); 3].map(|()| replace_wrong(&mut client)), expected, "{overlay}");
        let other = modify(USER, &[(ModifyOperation::Replace, "description", &["x"])], &[]);
        assert_eq!(client.ask(&other).unwrap().code, 0, "a change of something else");
    }
}

/// One transaction may have many of them.
#[test]
fn old_passwords_in_transactions_count_for_their_address() {
    let (_site, server) = directory("client-limits failures.address=2/h\n", "");
    let mut client = user(&server);
    let mut transaction = |old: &str, commits: bool| {
        let mut start = Vec::new();
        client::extended(&mut start, MessageId(2), oid::START_TRANSACTION, None, &[]);
        assert_eq!(client.ask(&start).unwrap().code, 0);
        let part = control(oid::TRANSACTION_SPECIFICATION, Some(Vec::new()));
        let delete = modify(USER, &[(ModifyOperation::Delete, "userPassword", &[old])], &[part]);
        let kept = client.ask(&delete).unwrap().code;
        let mut end = Vec::new();
        let value: &[u8] = if commits { &[0x30, 2, 4, 0] } else { &[0x30, 5, 1, 1, 0, 4, 0] };
        client::extended(&mut end, MessageId(3), oid::END_TRANSACTION, Some(value), &[]);
        (kept, client.ask(&end).unwrap().code)
    };
    assert_eq!(transaction("wrong", true), (0, 16));
    // Nobody looks at this one.
    assert_eq!(transaction("wrong", false), (0, 0));
    assert_eq!(transaction("wrong", true), (0, 16));
    assert_eq!(transaction("right", true), (51, 1));
}

/// A copy without an `updateref`, and updates of a transaction that there is not.
#[test]
fn a_change_that_is_refused_for_another_reason_counts_as_no_failure() {
    let copy = format!(
        "syncrepl rid=1 provider=ldap://127.0.0.1:1 searchbase={SUFFIX} bindmethod=simple retry=\"60 +\"\n"
    );
    let (_site, server) = directory("client-limits failures.address=2/h\n", &copy);
    let mut client = user(&server);
    for _ in 0..3 {
        let answer = client.ask(&replace_old(USER, "right")).unwrap();
        assert_eq!((answer.code, &*answer.text), (53, "shadow context; no update referral"));
    }
    let part = control(oid::TRANSACTION_SPECIFICATION, Some(b"none".to_vec()));
    let delete = modify(USER, &[(ModifyOperation::Delete, "userPassword", &["right"])], &[part]);
    for _ in 0..3 {
        assert_eq!(client.ask(&delete).unwrap().code, ResultCode::TXN_ID_INVALID.0);
    }
    // Binds are looked at.
    user(&server);
}

#[test]
fn a_bind_that_is_not_looked_at_leaves_no_identity() {
    let (_site, server) = directory("client-limits failures.address=1/h\n", "");
    let (mut limited, mut unread) = (user(&server), user(&server));
    let mut other = Raw::connect(server.address).unwrap();
    assert_eq!(other.ask(&bind(1, USER, "wrong")).unwrap().code, 49);
    assert_eq!(limited.ask(&bind(5, USER, "right")).unwrap().code, 51);
    // Its name is no UTF-8.
    let bad = b"\x30\x10\x02\x01\x05\x60\x0b\x02\x01\x03\x04\x03c=\xff\x80\x01x";
    assert_eq!(unread.ask(bad).unwrap().code, 2);
    for client in [&mut limited, &mut unread] {
        let answer = client.ask(&password_modify(USER, None)).unwrap();
        assert_eq!(answer.code, 8, "only authenticated users may change passwords: {answer:?}");
    }
}

#[test]
fn a_right_old_password_counts_as_no_failure() {
    for request in [(|old: &str| replace_old(USER, old)) as fn(&str) -> Vec<u8>, |old: &str| {
        password_modify(USER, Some(old))
    }] {
        let (_site, server) = directory("client-limits failures.address=2/h\n", "");
        let mut client = user(&server);
        // The new password is the same each time, and the old one of the next request.
        for old in ["right", "brand new", "brand new"] {
            let answer = client.ask(&request(old)).unwrap();
            assert_eq!(answer.code, 0, "{answer:?}");
        }
    }
}

#[test]
fn a_password_that_has_to_be_changed_comes_before_transactions() {
    let (_site, server) = directory("", POLICY);
    let mut admin = Raw::connect(server.address).unwrap();
    assert_eq!(admin.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let reset = modify(USER, &[(ModifyOperation::Replace, "pwdReset", &["TRUE"])], &[]);
    assert_eq!(admin.ask(&reset).unwrap().code, 0);
    let mut client = user(&server);
    let mut start = Vec::new();
    client::extended(&mut start, MessageId(2), oid::START_TRANSACTION, None, &[]);
    let answer = client.ask(&start).unwrap();
    assert_eq!(answer.code, 50, "{answer:?}");
    let transaction = control(oid::TRANSACTION_SPECIFICATION, Some(Vec::new()));
    let update = modify(USER, &[(ModifyOperation::Replace, "description", &["x"])], &[transaction]);
    assert_eq!(client.ask(&update).unwrap().code, 50);
    let mut end = Vec::new();
    client::extended(&mut end, MessageId(3), oid::END_TRANSACTION, Some(&[0x30, 2, 4, 0]), &[]);
    assert_eq!(client.ask(&end).unwrap().code, 50);
    // The way out is open.
    assert_eq!(client.ask(&password_modify(USER, Some("right"))).unwrap().code, 0);
    assert_eq!(client.ask(&start).unwrap().code, 0);
}

#[test]
fn a_password_that_has_to_be_changed_is_changed_by_a_new_one_alone() {
    use ModifyOperation::{Add, Delete, Replace};
    let (_site, server) = directory("", POLICY);
    let mut admin = Raw::connect(server.address).unwrap();
    assert_eq!(admin.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    assert_eq!(admin.ask(&modify(USER, &[(Replace, "pwdReset", &["TRUE"])], &[])).unwrap().code, 0);
    let mut client = user(&server);
    let mut check = |what: &str, changes: &[(ModifyOperation, &str, &[&str])], code: u32, then: u32| {
        assert_eq!(client.ask(&modify(USER, changes, &[])).unwrap().code, code, "{what}");
        let look = search(USER, Scope::Base, DerefAliases::Never);
        assert_eq!(client.ask(&look).unwrap().code, then, "a search behind {what}");
    };
    // As a slapd has it.
    check("a change of nothing", &[], 0, 50);
    check("another attribute", &[(Replace, "description", &["x"])], 50, 50);
    check("a value that is no password", &[(Add, "userPassword;lang-en", &["brand new"])], 50, 50);
    check("a password that is taken away", &[(Delete, "userPassword", &["right"])], 0, 50);
    check("a new password", &[(Add, "userPassword", &["brand new"])], 0, 0);
}

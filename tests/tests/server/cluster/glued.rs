//! Databases in a shared engine that are glued together, and the empty suffix.

use larix_testkit::postgresql::Engine;
use larix_testkit::process::free_port;
use larix_testkit::{Kind, Site, until};
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, SUFFIX, ask};
use larix_tests::running::Running;

/// Sections of a slapd.conf: the lower one has the people, and is glued to the upper one.
fn sections(upper: &str, lower: &str) -> String {
    let place = |kind: &str, name: &str| match kind {
        "mdb" => format!("database mdb\ndirectory @DATA@/{name}\n"),
        engine => format!(
            "database kv\nengine {engine}\nengine-schema {name}\nnode ldap://127.0.0.1:{}\n",
            free_port()
        ),
    };
    format!(
        "{}suffix ou=people,{SUFFIX}\nrootdn {ADMIN}\nsubordinate\n{}suffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\n",
        place(lower, "lower"),
        place(upper, "upper")
    )
}

/// Whichever of the two is in the engine, clients see one tree.
#[test]
fn glued_databases_are_one_tree() {
    let Some(engine) = Engine::start() else { return };
    for which in 0..3 {
        let address = engine.database().1;
        let (upper, lower) = [(&*address, &*address), (&address, "mdb"), ("mdb", &address)][which];
        let site = Site::new(Kind::Larix, &sections(upper, lower));
        let of = |suffix: &str, ldif: &str| site.load_into(Some(suffix), ldif);
        let people = (0..300).map(|n| {
            format!("dn: cn=p{n},ou=people,{SUFFIX}\nobjectClass: person\ncn: p{n}\nsn: {:03}\n\n", 299 - n)
        });
        let head = format!(
            "dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\ndn: ou=rooms,{SUFFIX}\nobjectClass: organizationalUnit\nou: rooms\n\n"
        );
        let lower = format!("dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n\n");
        // One LDIF for both.
        of(SUFFIX, &(head + &lower + &people.collect::<String>()));
        let server = Running::of(site);
        let mut client = Client::connect(server.address());
        assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
        let found = |client: &mut Client, search: &str| {
            let answer = ask(client, search);
            assert!(answer.ends_with("=> 0\n"), "{search}: {answer}");
            answer.matches("-> ").count()
        };
        assert_eq!(found(&mut client, &format!("search {SUFFIX} sub (objectClass=*) 1.1")), 303, "{which}");
        assert_eq!(found(&mut client, &format!("search {SUFFIX} one (objectClass=*) 1.1")), 2, "{which}");
        assert_eq!(found(&mut client, &format!("search ou=people,{SUFFIX} sub (cn=p7) 1.1")), 1, "{which}");
        // Either database may be the one that has yet to come to write.
        let mut changed = |change: &str| until("a change", || ask(&mut client, change) == "=> 0\n");
        changed(&format!("modify cn=p7,ou=people,{SUFFIX}\n  replace sn: new"));
        changed(&format!("delete ou=rooms,{SUFFIX}"));
        assert_eq!(found(&mut client, &format!("search {SUFFIX} sub (sn=new) sn")), 1, "{which}");
        assert_eq!(found(&mut client, &format!("search {SUFFIX} sub (objectClass=*) 1.1")), 302, "{which}");
    }
}

/// What is in the engine is numbered alike at all nodes, and what each server has by its own id.
#[test]
fn glued_databases_have_server_ids_of_their_own() {
    let Some(engine) = Engine::start() else { return };
    for which in 0..2 {
        let in_engine = format!("{}\nserver-id 7", engine.database().1);
        let (upper, lower) = [("mdb", &*in_engine), (&in_engine, "mdb")][which];
        let site = Site::new(Kind::Larix, &format!("serverID 1\n{}", sections(upper, lower)));
        let server = Running::of(site);
        let mut client = Client::connect(server.address());
        assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
        let people = format!("ou=people,{SUFFIX}");
        for (dn, id, entry) in [
            (SUFFIX, ["#001#", "#007#"][which], "objectClass: domain\n  dc: example"),
            (&people, ["#007#", "#001#"][which], "objectClass: organizationalUnit\n  ou: people"),
        ] {
            until("a change", || ask(&mut client, &format!("add {dn}\n  {entry}")) == "=> 0\n");
            let csn = client.value(dn, "entryCSN").expect("a CSN");
            assert!(csn.contains(id), "{which}: {dn}: {csn}");
        }
    }
}

#[test]
fn the_empty_suffix_is_one_as_any_other() {
    let Some(engine) = Engine::start() else { return };
    let body = format!(
        "database kv\nengine {}\nnode ldap://127.0.0.1:{}\nsuffix \"\"\nrootdn cn=admin\nrootpw secret\n",
        engine.database().1,
        free_port()
    );
    let site = Site::new(Kind::Larix, &body);
    site.load("dn: dc=org\nobjectClass: domain\ndc: org\n\ndn: o=x\nobjectClass: organization\no: x\n");
    let server = Running::of(site);
    let mut client = Client::connect(server.address());
    assert_eq!(ask(&mut client, "as cn=admin secret"), "=> 0\n");
    until("a change", || {
        ask(&mut client, "add ou=y,dc=org\n  objectClass: organizationalUnit\n  ou: y") == "=> 0\n"
    });
    let all = ask(&mut client, "search \"\" sub (objectClass=*) 1.1");
    assert_eq!(all.matches("-> ").count(), 3, "{all}");
    let one = ask(&mut client, "search \"\" one (objectClass=*) 1.1");
    assert_eq!(one.matches("-> ").count(), 2, "{one}");
    assert!(ask(&mut client, "search \"\" base (objectClass=*) namingContexts").contains("namingContexts"));
}

/// Rules for operations know the groups of a database in an engine.
#[test]
fn rules_for_operations_ask_for_groups_there() {
    let Some(engine) = Engine::start() else { return };
    let body = format!(
        "database kv\nengine {}\nnode ldap://127.0.0.1:{}\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\n\
         restrictop compare by group/groupOfNames/member.exact=\"cn=staff,{SUFFIX}\" allow by * reject\nrestrictop all by * allow\n",
        engine.database().1,
        free_port()
    );
    let site = Site::new(Kind::Larix, &body);
    let person = |name: &str| {
        format!("dn: cn={name},{SUFFIX}\nobjectClass: person\ncn: {name}\nsn: x\nuserPassword: secret\n\n")
    };
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n{}{}dn: cn=staff,{SUFFIX}\nobjectClass: groupOfNames\ncn: staff\nmember: cn=ann,{SUFFIX}\n",
        person("ann"),
        person("bob")
    ));
    let server = Running::of(site);
    let mut client = Client::connect(server.address());
    for (who, expected) in [("ann", "=> 6\n"), ("bob", "=> 53\n")] {
        assert_eq!(ask(&mut client, &format!("as cn={who},{SUFFIX} secret")), "=> 0\n");
        assert_eq!(ask(&mut client, &format!("compare cn=bob,{SUFFIX} sn:x")), expected, "{who}");
        let found = ask(&mut client, &format!("search {SUFFIX} sub (cn=ann) sn"));
        assert!(found.contains("sn: x") && found.ends_with("=> 0\n"), "{found}");
    }
    // An identity that cannot be looked up is neither let in nor kept out.
    engine.hang();
    let answer = ask(&mut client, &format!("compare cn=bob,{SUFFIX} sn:x"));
    assert!(answer.starts_with("=> 52") && answer.contains("restrictop"), "{answer}");
    engine.go_on();
    until("the engine answers", || ask(&mut client, &format!("compare cn=bob,{SUFFIX} sn:x")) == "=> 53\n");
}

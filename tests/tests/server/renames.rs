//! Renames in databases that other servers or databases keep: the new name is one of the same database, as in slapd.

use larix_testkit::Kind;
use larix_tests::client::run;
use larix_tests::running::Running;

fn entries(top: &str) -> String {
    let unit = |name: &str| format!("dn: ou={name},{top}\nobjectClass: organizationalUnit\nou: {name}\n\n");
    let person = |name: &str| {
        format!("dn: uid={name},ou=p,{top}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: s\n\n")
    };
    let organization = &top[2..];
    let all = [unit("p"), unit("g"), person("ann"), person("bob")].concat();
    format!("dn: {top}\nobjectClass: organization\no: {organization}\n\n{all}")
}

#[test]
fn a_rename_leaves_an_entry_in_its_database() {
    let stored = |top: &str| {
        format!(
            "database mdb\nsuffix {top}\nrootdn cn=admin,{top}\nrootpw secret\ndirectory @DATA@\n\
             access to * by users write by * read\n"
        )
    };
    for kind in [Kind::Larix, Kind::Slapd] {
        let modules = ["back_ldap", "back_relay", "rwm"];
        if modules.iter().any(|name| kind.is_lacking_module(name)) {
            continue;
        }
        // It has a class of entries that the server in front does not know.
        let zones = "attributetype ( 1.3.6.1.4.1.55555.1 NAME 'zone' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )\n\
                     objectclass ( 1.3.6.1.4.1.55555.2 NAME 'zoned' SUP top STRUCTURAL MUST zone )\n";
        let zone = "dn: zone=g,o=x\nobjectClass: zoned\nzone: g\n\n";
        let remote = Running::start(
            Kind::Larix,
            &format!("{zones}{}", stored("o=x")),
            &format!("{}{zone}", entries("o=x")),
        );
        let loaded = if kind == Kind::Slapd {
            modules.map(|name| format!("moduleload {name}\n")).concat()
        } else {
            String::new()
        };
        let body = format!(
            "{loaded}{}\
             database ldap\nsuffix ou=p,o=x\nuri ldap://{}\nrootdn cn=root,ou=p,o=x\nrootpw secret\n\
             idassert-bind bindmethod=simple binddn=cn=admin,o=x credentials=secret mode=none\nidassert-authzFrom \"*\"\n\
             access to * by * write\n\
             database relay\nsuffix ou=v\nrelay o=y\noverlay rwm\nrwm-suffixmassage ou=v ou=p,o=y\naccess to * by * write\n",
            stored("o=y"),
            remote.server.address
        );
        let front = Running::start(kind, &body, &entries("o=y"));
        let mut client = front.client();
        for (request, expected) in [
            ("as cn=root,ou=p,o=x secret", "=> 0"),
            ("modrdn uid=ann,ou=p,o=x uid=ann keep ou=g,o=x", "=> 71"),
            ("modrdn uid=ann,ou=p,o=x uid=ann keep o=y", "=> 71"),
            ("modrdn ou=p,o=x ou=q delete", "=> 71"),
            ("modrdn uid=ann,ou=p,o=x uid=ann keep zone=g,o=x", "=> 34"),
            ("modrdn ou=p,o=x zone=q keep", "=> 34"),
            ("modrdn uid=ann,ou=p,o=x uid=anna delete", "=> 0"),
            ("modrdn uid=anna,ou=p,o=x uid=anna keep uid=bob,ou=p,o=x", "=> 0"),
            ("as cn=admin,o=y secret", "=> 0"),
            ("modrdn uid=ann,ou=v uid=ann keep ou=p,o=y", "=> 71"),
            ("modrdn uid=ann,ou=v uid=anna delete", "=> 0"),
            ("modrdn uid=anna,ou=v uid=anna keep uid=bob,ou=v", "=> 0"),
        ] {
            let answer = run(&mut client, request);
            assert!(answer.starts_with(expected), "{kind:?} {request}: {answer}");
        }
    }
}

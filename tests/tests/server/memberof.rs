//! `overlay memberof` in a server: taken in while it serves, and on several servers.

use larix_testkit::Kind;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Content, Member, SUFFIX, ask, people};

/// Groups as they come from a dump that has no memberOf.
fn groups() -> String {
    let group = |name: &str, members: &[u32]| {
        let members: String =
            members.iter().map(|number| format!("member: uid=u{number},ou=people,{SUFFIX}\n")).collect();
        format!("dn: cn={name},ou=groups,{SUFFIX}\nobjectClass: groupOfNames\ncn: {name}\n{members}\n")
    };
    format!("{}{}{}", people(20), group("one", &[1, 2, 3]), group("two", &[3, 4, 99]))
}

/// The memberOf values of each entry, in short.
fn memberships(content: &Content) -> String {
    let short = |dn: &str| dn.split(['=', ',']).nth(1).unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for (dn, entry) in content {
        if let Some(values) = entry.get("memberof") {
            let mut groups: Vec<String> =
                values.iter().map(|value| short(&String::from_utf8_lossy(value))).collect();
            groups.sort();
            lines.push(format!("{}:{}", short(dn), groups.join("+")));
        }
    }
    lines.sort();
    lines.join(" ")
}

fn has(member: &Member, wanted: &str) {
    member.wait_for(wanted, |content| memberships(content) == wanted);
}

const OVERLAY: &str = "overlay memberof\nmemberof-refint TRUE\n";

const CHANGES: &str = r#"
modify "cn=one,ou=groups,dc=example,dc=com"
  add member: uid=u5,ou=people,dc=example,dc=com
  delete member: uid=u1,ou=people,dc=example,dc=com

modify "uid=u2,ou=people,dc=example,dc=com"
  replace title: Boss

modrdn "uid=u3,ou=people,dc=example,dc=com" uid=u3b delete

modrdn "cn=two,ou=groups,dc=example,dc=com" cn=zwei delete

delete "uid=u4,ou=people,dc=example,dc=com"

add "cn=three,ou=groups,dc=example,dc=com"
  objectClass: groupOfNames
  cn: three
  member: uid=u6,ou=people,dc=example,dc=com
  member: uid=u7,ou=people,dc=example,dc=com

add "cn=four,ou=groups,dc=example,dc=com"
  objectClass: groupOfNames
  cn: four
  member: uid=u7,ou=people,dc=example,dc=com

delete "cn=four,ou=groups,dc=example,dc=com"
"#;

#[test]
fn every_server_finds_out_by_itself() {
    let provider = Member::new(Kind::Larix, "", &format!("{OVERLAY}overlay syncprov"));
    provider.site.load_into(Some(SUFFIX), &groups());
    let provider = provider.started();
    has(&provider, "u1:one u2:one u3:one+two u4:two");
    let line = format!(
        "syncrepl rid=001 provider={} bindmethod=simple binddn={ADMIN} credentials=secret searchbase={SUFFIX} \
         retry=\"1 +\" type=refreshAndPersist",
        provider.url()
    );
    let mut consumers = vec![Member::new(Kind::Larix, "", &format!("{line}\n{OVERLAY}")).started()];
    if !Kind::Slapd.is_lacking() {
        let database = format!("{line} exattrs=memberOf\n{OVERLAY}");
        consumers.push(Member::new(Kind::Slapd, "moduleload memberof\n", &database).started());
    }
    // The first fill brings no memberOf.
    has(&consumers[0], "u1:one u2:one u3:one+two u4:two");
    consumers[0].wait_until_like(&provider);
    provider.change(CHANGES);
    let wanted = "u2:one u3b:one+zwei u5:one u6:three u7:three";
    has(&provider, wanted);
    for consumer in &mut consumers {
        consumer.wait_until_like(&provider);
        consumer.stop();
    }
    provider.change(&format!(
        "modify \"cn=one,ou=groups,{SUFFIX}\"\n  add member: uid=new,ou=people,{SUFFIX}\n\n\
         add \"uid=new,ou=people,{SUFFIX}\"\n  objectClass: inetOrgPerson\n  uid: new\n  cn: New\n  sn: New"
    ));
    has(&provider, &format!("new:one {wanted}"));
    consumers[0].start();
    consumers[0].wait_until_like(&provider);
}

fn configurator(member: &Member) -> Client {
    let mut client = Client::connect(member.address());
    assert_eq!(ask(&mut client, "as cn=config secret"), "=> 0\n");
    client
}

#[test]
fn the_overlay_comes_changes_and_goes_while_the_server_serves() {
    let server = Member::new(Kind::Larix, "", "");
    server.site.load_into(Some(SUFFIX), &groups());
    let server = server.started();
    let mut config = configurator(&server);
    let listed = |client: &mut Client| {
        ask(client, "search \"cn=Subschema\" base (attributeTypes=1.2.840.113556.1.2.102) 1.1")
            .starts_with("-> ")
    };
    assert!(!listed(&mut config));
    let overlay = "olcOverlay={0}memberof,olcDatabase={1}mdb,cn=config";
    let added = "add \"olcOverlay=memberof,olcDatabase={1}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  \
                 objectClass: olcMemberOf\n  olcOverlay: memberof";
    assert_eq!(ask(&mut config, added), "=> 0\n");
    assert!(listed(&mut config));
    has(&server, "u1:one u2:one u3:one+two u4:two");
    let index = "modify \"olcDatabase={1}mdb,cn=config\"\n  add olcDbIndex: memberOf eq";
    assert_eq!(ask(&mut config, index), "=> 0\n");
    let mut client = server.client();
    let found =
        ask(&mut client, &format!("search \"{SUFFIX}\" sub (memberOf=CN=Two,ou=groups,{SUFFIX}) 1.1"));
    assert_eq!(found, format!("-> uid=u3,ou=people,{SUFFIX}\n-> uid=u4,ou=people,{SUFFIX}\n=> 0\n"));
    // Other groups.
    let refused = format!("modify \"{overlay}\"\n  add olcMemberOfMemberAD: cn");
    let answer = ask(&mut config, &refused);
    assert!(!answer.starts_with("=> 0") && answer.contains("must either have DN"), "{answer}");
    let unique = format!(
        "modify \"{overlay}\"\n  add olcMemberOfGroupOC: groupOfUniqueNames\n  add olcMemberOfMemberAD: uniqueMember"
    );
    assert_eq!(ask(&mut config, &unique), "=> 0\n");
    has(&server, "");
    let other = format!(
        "add \"cn=unique,ou=groups,{SUFFIX}\"\n  objectClass: groupOfUniqueNames\n  cn: unique\n  \
         uniqueMember: uid=u8,ou=people,{SUFFIX}"
    );
    assert_eq!(ask(&mut client, &other), "=> 0\n");
    has(&server, "u8:unique");
    // Without the overlay nothing follows.
    assert_eq!(ask(&mut config, &format!("delete \"{overlay}\"")), "=> 0\n");
    assert_eq!(ask(&mut client, &format!("delete \"cn=unique,ou=groups,{SUFFIX}\"")), "=> 0\n");
    has(&server, "u8:unique");
    assert!(!listed(&mut config));
    assert_eq!(ask(&mut config, added), "=> 0\n");
    has(&server, "u1:one u2:one u3:one+two u4:two");
}

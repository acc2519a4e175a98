//! Databases that follow a provider: of a real slapd, of Larix, and of both in a ring; contents are compared entry by entry.
//!
//! What needs a slapd is not tested where none is installed, and says so.

use std::net::SocketAddr;

use larix_proto::Scope;
use larix_proto::extended::SyncInfo;
use larix_testkit::process::{free_port, free_ports};
use larix_testkit::{Authority, Kind, until, until_some};
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask, people};
use larix_tests::scripted::ScriptedProvider;
use larix_tests::sync::{Consumer, SyncSearch, read};

/// The kinds of server that are here.
pub(crate) fn kinds() -> Vec<Kind> {
    [Kind::Larix, Kind::Slapd].into_iter().filter(|kind| !kind.is_lacking()).collect()
}

pub(crate) fn provider(kind: Kind, count: usize) -> Member {
    let member = Member::new(kind, "", "overlay syncprov");
    member.site.load_into(Some(SUFFIX), &people(count));
    member.started()
}

/// A line of a consumer.
pub(crate) fn line(rid: u16, provider: &Member, more: &str) -> String {
    format!(
        "syncrepl rid={rid:03} provider={} bindmethod=simple binddn={ADMIN} credentials=secret \
         searchbase={SUFFIX} retry=\"1 +\" {more}\n",
        provider.url()
    )
}

fn consumer(provider: &Member, more: &str) -> Member {
    Member::new(Kind::Larix, "", &line(1, provider, more)).arguments(&["-d", "16384"]).started()
}

const PERSIST: &str = "type=refreshAndPersist";

/// Every kind of change.
pub(crate) const CHANGES: &str = r#"
add "uid=new,ou=people,dc=example,dc=com"
  objectClass: inetOrgPerson
  uid: new
  cn: New
  sn: New
  userPassword: secret

modify "uid=u1,ou=people,dc=example,dc=com"
  replace mail: one@example.com
  add title: Boss
  delete description

delete "uid=u2,ou=people,dc=example,dc=com"

modrdn "uid=u3,ou=people,dc=example,dc=com" uid=u3b delete

modrdn "uid=u4,ou=people,dc=example,dc=com" uid=u4b delete ou=groups,dc=example,dc=com

add "ou=tree,dc=example,dc=com"
  objectClass: organizationalUnit
  ou: tree

add "ou=branch,ou=tree,dc=example,dc=com"
  objectClass: organizationalUnit
  ou: branch

add "cn=leaf,ou=branch,ou=tree,dc=example,dc=com"
  objectClass: device
  cn: leaf

modrdn "ou=branch,ou=tree,dc=example,dc=com" ou=bough delete ou=groups,dc=example,dc=com
"#;

/// More, for while somebody is away.
pub(crate) const LATER: &str = r#"
delete "cn=leaf,ou=bough,ou=groups,dc=example,dc=com"

delete "uid=u5,ou=people,dc=example,dc=com"

modify "uid=u1,ou=people,dc=example,dc=com"
  replace title: Chief

add "cn=other,ou=groups,dc=example,dc=com"
  objectClass: device
  cn: other

modrdn "ou=tree,dc=example,dc=com" ou=wood delete
"#;

fn follows(kind: Kind, more: &str) {
    let mut provider = provider(kind, 300);
    let mut consumer = consumer(&provider, more);
    consumer.wait_until_like(&provider);
    provider.change(CHANGES);
    consumer.wait_until_like(&provider);
    // The consumer is away.
    consumer.stop();
    provider.change(LATER);
    consumer.start();
    consumer.wait_until_like(&provider);
    consumer.wait_for_log("starting refresh at ");
    consumer.wait_for_log("(sending cookie=rid=001,csn=");
    // The provider is away, and the consumer is killed meanwhile.
    provider.stop();
    consumer.kill();
    consumer.start();
    provider.start();
    provider.change("modify \"uid=u7,ou=people,dc=example,dc=com\"\n  replace title: Seventh");
    consumer.wait_until_like(&provider);
}

#[test]
fn every_change_arrives_one_by_one() {
    kinds().into_iter().for_each(|kind| follows(kind, PERSIST));
}

#[test]
fn every_change_arrives_by_polling() {
    kinds().into_iter().for_each(|kind| follows(kind, "type=refreshOnly interval=00:00:00:01"));
}

#[test]
fn kills_in_the_middle_of_writes_lose_nothing() {
    for kind in kinds() {
        let provider = provider(kind, 50);
        let mut consumer = consumer(&provider, PERSIST);
        consumer.wait_until_like(&provider);
        for round in 0..4 {
            for number in 0..25 {
                provider.change(&format!(
                    "add \"uid=k{round}-{number},ou=people,{SUFFIX}\"\n  objectClass: inetOrgPerson\n  \
                     uid: k{round}-{number}\n  cn: K\n  sn: K\n\n\
                     modify \"uid=u{number},ou=people,{SUFFIX}\"\n  replace title: {round}"
                ));
                if number == 12 {
                    consumer.kill();
                    consumer.start();
                }
            }
        }
        consumer.wait_until_like(&provider);
    }
}

#[test]
fn a_part_of_the_provider() {
    for kind in kinds() {
        let provider = provider(kind, 40);
        let filter = "filter=\"(|(description=even)(objectClass=organization)(objectClass=organizationalUnit))\" \
                      attrs=objectClass,uid,cn,sn,dc,o,ou,description,entryUUID,entryCSN";
        let consumer = consumer(&provider, &format!("{PERSIST} {filter}"));
        let part = || {
            let mut content = provider.content(SUFFIX).unwrap_or_default();
            content.retain(|_, entry| {
                entry.get("description").is_none_or(|values| values.contains(&b"even".to_vec()))
            });
            for entry in content.values_mut() {
                entry.retain(|name, _| {
                    [
                        "objectclass",
                        "uid",
                        "cn",
                        "sn",
                        "dc",
                        "o",
                        "ou",
                        "description",
                        "entryuuid",
                        "entrycsn",
                    ]
                    .contains(&name.as_str())
                });
            }
            content
        };
        let waits = || {
            consumer.wait_until_part(SUFFIX, part);
        };
        waits();
        // One leaves the part, another one comes into it.
        provider.change(&format!(
            "modify \"uid=u2,ou=people,{SUFFIX}\"\n  replace description: odd\n\n\
             modify \"uid=u3,ou=people,{SUFFIX}\"\n  replace description: even\n\n\
             modify \"uid=u4,ou=people,{SUFFIX}\"\n  replace mail: four@example.com"
        ));
        waits();
    }
}

#[test]
fn under_another_suffix() {
    for kind in kinds() {
        let provider = provider(kind, 20);
        provider.change(&format!(
            "add \"cn=all,ou=groups,{SUFFIX}\"\n  objectClass: groupOfNames\n  cn: all\n  \
             member: uid=u1,ou=people,{SUFFIX}\n  member: cn=elsewhere,dc=other"
        ));
        let body = format!(
            "database mdb\nsuffix o=copy\nrootdn cn=admin,o=copy\nrootpw secret\ndirectory @DATA@\n{}\
             database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@/second\n",
            line(1, &provider, &format!("{PERSIST} suffixmassage=o=copy"))
        );
        let consumer = Member::with(Kind::Larix, free_port(), &body).started();
        let massaged = || {
            let content = provider.content(&format!("ou=groups,{SUFFIX}")).unwrap_or_default();
            // Names are rewritten, too: those below the suffix, and the entry's creator.
            let names = ["member", "creatorsname", "modifiersname"];
            let moved =
                |value: &Vec<u8>| String::from_utf8_lossy(value).replace(SUFFIX, "o=copy").into_bytes();
            let renamed = content.into_iter().map(|(dn, mut entry)| {
                for name in names {
                    if let Some(values) = entry.get_mut(name) {
                        *values = values.iter().map(moved).collect();
                    }
                }
                (dn.replace(SUFFIX, "o=copy"), entry)
            });
            renamed.collect()
        };
        consumer.wait_until_as("cn=admin,o=copy", "ou=groups,o=copy", massaged);
    }
}

#[test]
fn consumers_bind_by_digest_md5() {
    for kind in kinds() {
        let mechanisms = if kind == Kind::Larix { "sasl-mechanisms DIGEST-MD5\n" } else { "" };
        let global = format!(
            "{mechanisms}sasl-host localhost\nsasl-realm example\nsasl-secprops none\n\
             authz-regexp \"uid=([^,]*),.*\" \"uid=$1,ou=people,{SUFFIX}\"\n"
        );
        let provider = Member::new(kind, &global, "overlay syncprov");
        provider.site.load_into(Some(SUFFIX), &people(5));
        let provider = provider.started();
        provider.change(&format!(
            "add uid=repl,ou=people,{SUFFIX}\n  objectClass: inetOrgPerson\n  uid: repl\n  cn: r\n  sn: r\n  userPassword: pw"
        ));
        let line = |bind: &str| {
            format!(
                "syncrepl rid=1 provider=ldap://localhost:{} bindmethod=sasl saslmech=DIGEST-MD5 authcid=repl {bind} \
                 searchbase={SUFFIX} retry=\"1 +\" {PERSIST} lazycommit",
                provider.port
            )
        };
        let consumer =
            Member::new(Kind::Larix, "", &line("credentials=pw realm=example secprops=noplain")).started();
        consumer.wait_until_like(&provider);
        provider.change(&format!("modify \"uid=u1,ou=people,{SUFFIX}\"\n  replace title: t"));
        consumer.wait_until_like(&provider);
        for (bind, why) in
            [("credentials=wrong", "(49)"), ("credentials=pw secprops=noactive", "secprops: noactive")]
        {
            let stranger = Member::new(Kind::Larix, "", &line(bind)).arguments(&["-d", "16384"]).started();
            stranger.wait_for_log(why);
        }
    }
}

#[test]
fn over_tls_and_with_sasl() {
    for kind in kinds() {
        let authority = Authority::new("Root");
        let folder = tempfile::tempdir().unwrap();
        authority.server().write(folder.path(), "server");
        std::fs::write(folder.path().join("ca.pem"), authority.certificate()).unwrap();
        let path = folder.path().display();
        let global = format!(
            "TLSCertificateFile {path}/server.pem\nTLSCertificateKeyFile {path}/server.key\n\
             TLSCACertificateFile {path}/ca.pem\n\
             authz-regexp \"gidNumber=.*,cn=peercred,cn=external,cn=auth\" \"{ADMIN}\"\n"
        );
        let local = format!("ldapi://{}", format!("{path}/ldapi").replace('/', "%2F"));
        let mut provider = Member::new(kind, &global, "overlay syncprov");
        provider.site.load_into(Some(SUFFIX), &people(5));
        let ports = provider.start_on(&["ldap://127.0.0.1:0/", "ldaps://127.0.0.1:0/", &local]);
        let (port, secure) = (ports[0], ports[1]);
        let simple = format!("bindmethod=simple binddn={ADMIN} credentials=secret");
        for (number, (url, bind, tls)) in [
            (
                format!("ldap://localhost:{port}"),
                simple.clone(),
                format!("starttls=critical tls_cacert={path}/ca.pem"),
            ),
            (
                format!("ldaps://localhost:{secure}"),
                simple.clone(),
                format!("tls_cacert={path}/ca.pem tls_reqsan=demand"),
            ),
            (format!("ldaps://localhost:{secure}"), simple.clone(), "tls_reqcert=never".to_owned()),
            (local.clone(), "bindmethod=sasl saslmech=EXTERNAL".to_owned(), String::new()),
        ]
        .into_iter()
        .enumerate()
        {
            let line = format!(
                "syncrepl rid=1 provider={url} {bind} searchbase={SUFFIX} retry=\"1 +\" {PERSIST} {tls}"
            );
            let consumer = Member::new(Kind::Larix, "", &line).started();
            consumer.wait_until_like(&provider);
            provider.change(&format!("modify \"uid=u1,ou=people,{SUFFIX}\"\n  replace title: {number}"));
            consumer.wait_until_like(&provider);
        }
        // A provider that is not who it should be is not followed.
        let line = format!(
            "syncrepl rid=1 provider=ldaps://localhost:{secure} {simple} searchbase={SUFFIX} retry=\"1 +\" {PERSIST} \
             tls_cacert={path}/other.pem"
        );
        std::fs::write(folder.path().join("other.pem"), Authority::new("Other").certificate()).unwrap();
        let stranger = Member::new(Kind::Larix, "", &line).arguments(&["-d", "16384"]).started();
        stranger.wait_for_log("no TLS with localhost");
        assert_eq!(stranger.content(SUFFIX), None);
    }
}

#[test]
fn a_chain_of_replicas() {
    for kind in kinds() {
        let first = provider(kind, 30);
        let middle =
            Member::new(Kind::Larix, "", &format!("{}overlay syncprov", line(1, &first, PERSIST))).started();
        let mut lasts: Vec<Member> = kinds()
            .into_iter()
            .map(|kind| Member::new(kind, "", &line(2, &middle, PERSIST)).started())
            .collect();
        lasts.iter().for_each(|last| last.wait_until_like(&first));
        first.change(CHANGES);
        lasts.iter().for_each(|last| last.wait_until_like(&first));
        lasts.iter_mut().for_each(Member::stop);
        first.change(LATER);
        lasts.iter_mut().for_each(Member::start);
        lasts.iter().for_each(|last| last.wait_until_like(&first));
    }
}

#[test]
fn a_ring_of_three_that_all_take_writes() {
    let ports = free_ports(3);
    let has_slapd = kinds().contains(&Kind::Slapd);
    let first = if has_slapd { Kind::Slapd } else { Kind::Larix };
    let ids: String = ports
        .iter()
        .enumerate()
        .map(|(number, port)| format!("serverID {} ldap://127.0.0.1:{port}/\n", number + 1))
        .collect();
    let lines: String = ports
        .iter()
        .enumerate()
        .map(|(number, port)| {
            format!(
                "syncrepl rid={:03} provider=ldap://127.0.0.1:{port}/ bindmethod=simple binddn={ADMIN} \
                 credentials=secret searchbase={SUFFIX} retry=\"1 +\" {PERSIST}\n",
                number + 1
            )
        })
        .collect();
    let database = format!("{lines}multiprovider on\noverlay syncprov\n");
    let mut ring: Vec<Member> = [first, Kind::Larix, Kind::Larix]
        .into_iter()
        .zip(&ports)
        .map(|(kind, port)| Member::at(kind, *port, &ids, &database).started())
        .collect();
    let alike = |ring: &[Member]| {
        ring[1].wait_until_like(&ring[0]);
        ring[2].wait_until_like(&ring[0]);
        ring[1].wait_until_like(&ring[2]);
    };
    ring[1].change(&format!(
        "add \"{SUFFIX}\"\n  objectClass: dcObject\n  objectClass: organization\n  dc: example\n  o: Example\n\n\
         add \"ou=people,{SUFFIX}\"\n  objectClass: organizationalUnit\n  ou: people"
    ));
    ring.iter().for_each(|member| member.wait_for("the first entries", |content| content.len() == 2));
    for round in 0..5 {
        for (number, member) in ring.iter().enumerate() {
            member.change(&format!(
                "add \"uid=r{round}-{number},ou=people,{SUFFIX}\"\n  objectClass: inetOrgPerson\n  \
                 uid: r{round}-{number}\n  cn: R\n  sn: R"
            ));
        }
    }
    ring.iter().for_each(|member| member.wait_for("all entries", |content| content.len() == 17));
    alike(&ring);
    // One is away while the others write; what it wrote last is not lost either.
    ring[2].change(&format!("modify \"uid=r0-0,ou=people,{SUFFIX}\"\n  replace title: by the third"));
    ring[2].kill();
    ring[0].change(&format!("modify \"uid=r1-0,ou=people,{SUFFIX}\"\n  replace title: by the first"));
    ring[1].change(&format!("delete \"uid=r2-0,ou=people,{SUFFIX}\""));
    ring[2].start();
    ring.iter().for_each(|member| {
        member.wait_for("all changes", |content| {
            let title = |uid: &str, title: &str| {
                content
                    .get(&format!("uid={uid},ou=people,{SUFFIX}"))
                    .and_then(|entry| entry.get("title"))
                    .is_some_and(|values| values == &[title.as_bytes().to_vec()])
            };
            content.len() == 16 && title("r0-0", "by the third") && title("r1-0", "by the first")
        });
    });
    alike(&ring);
}

/// A delete that two servers made is sent once, also after both were started again.
#[test]
fn a_delete_on_two_servers_is_told_once() {
    let ports: [u16; 2] = free_ports(2).try_into().unwrap();
    let url = |port: u16| format!("ldap://127.0.0.1:{port}/");
    let ids: String = (1..).zip(ports).map(|(id, port)| format!("serverID {id} {}\n", url(port))).collect();
    let line = |(rid, port): (u16, u16)| {
        format!(
            "syncrepl rid={rid:03} provider={} bindmethod=simple binddn={ADMIN} credentials=secret \
             searchbase={SUFFIX} retry=\"1 +\" {PERSIST}\n",
            url(port)
        )
    };
    let lines: String = (1..).zip(ports).map(line).collect();
    let database = format!("{lines}multiprovider on\noverlay syncprov\n");
    let [mut first, mut second] = ports.map(|port| Member::at(Kind::Larix, port, &ids, &database).started());
    first.change(&format!(
        "add \"{SUFFIX}\"\n  objectClass: dcObject\n  objectClass: organization\n  dc: example\n  o: Example\n\n\
         add \"ou=gone,{SUFFIX}\"\n  objectClass: organizationalUnit\n  ou: gone"
    ));
    second.wait_until_like(&first);
    let poll = SyncSearch { persist: false, ..SyncSearch::default() };
    let mut reader = Consumer::default();
    reader.ask(([127, 0, 0, 1], first.port).into(), &poll);
    reader.refresh();
    let cookie = reader.cookie.clone();
    first.stop();
    second.change(&format!("delete \"ou=gone,{SUFFIX}\""));
    second.stop();
    first.start();
    first.change(&format!("delete \"ou=gone,{SUFFIX}\""));
    second.start();
    // Each has heard of the other's delete when it has a change that was made after it.
    for (writer, other) in [(&first, &second), (&second, &first)] {
        writer.change(&format!("modify \"{SUFFIX}\"\n  replace description: from {}", writer.port));
        other.wait_until_like(writer);
    }
    for member in [&first, &second] {
        reader.cookie.clone_from(&cookie);
        reader.ask(([127, 0, 0, 1], member.port).into(), &poll);
        reader.refresh();
        assert_eq!(reader.messages, ["gone 1", "add dc=example,dc=com", "done 0"]);
    }
}

#[test]
fn a_shadow_sends_writers_elsewhere() {
    let provider = provider(Kind::Larix, 3);
    let check = |more: &str, expected: &str| {
        let consumer =
            Member::new(Kind::Larix, "", &format!("{}{more}", line(1, &provider, PERSIST))).started();
        consumer.wait_until_like(&provider);
        let mut client = consumer.client();
        let answer = ask(&mut client, &format!("modify \"uid=u1,ou=people,{SUFFIX}\"\n  replace title: x"));
        assert_eq!(answer, expected);
    };
    check("", "=> 53 text \"shadow context; no update referral\"\n");
    check(
        "updateref ldap://provider.example.com",
        "=> 10 referral ldap://provider.example.com/uid=u1,ou=people,dc=example,dc=com\n",
    );
    check(&format!("updatedn {ADMIN}"), "=> 0\n");
}

#[test]
fn lines_come_and_go_while_the_server_serves() {
    let provider = provider(Kind::Larix, 10);
    let consumer = Member::new(Kind::Larix, "", "").started();
    let mut config = larix_tests::client::Client::connect(([127, 0, 0, 1], consumer.port).into());
    assert_eq!(ask(&mut config, "as cn=config secret"), "=> 0\n");
    let value = line(1, &provider, PERSIST).trim().trim_start_matches("syncrepl ").to_owned();
    let add = format!("modify \"olcDatabase={{1}}mdb,cn=config\"\n  add olcSyncrepl: {value}");
    let delete = "modify \"olcDatabase={1}mdb,cn=config\"\n  delete olcSyncrepl";
    assert_eq!(ask(&mut config, &add), "=> 0\n");
    consumer.wait_until_like(&provider);
    provider.change(&format!("modify \"uid=u1,ou=people,{SUFFIX}\"\n  replace title: x"));
    consumer.wait_until_like(&provider);
    // Without the line it is nobody's shadow.
    assert_eq!(ask(&mut config, delete), "=> 0\n");
    consumer.change(&format!("modify \"uid=u2,ou=people,{SUFFIX}\"\n  replace title: own"));
    assert_eq!(ask(&mut config, &add), "=> 0\n");
    provider.change(&format!("modify \"uid=u3,ou=people,{SUFFIX}\"\n  replace title: y"));
    consumer.wait_for("the last change", |content| {
        content.get(&format!("uid=u3,ou=people,{SUFFIX}")).is_some_and(|entry| entry.contains_key("title"))
    });
}

/// Lines that bring parts of one provider's tree: what comes by one is not passed over because another one has come further, and an
/// entry that moves from one part to another stays.
#[test]
fn parts_of_a_tree_come_by_lines_of_their_own() {
    let provider = provider(Kind::Larix, 3);
    let part = |rid: u16, unit: &str| {
        let whole = line(rid, &provider, PERSIST);
        whole.replace(&format!("searchbase={SUFFIX}"), &format!("searchbase=ou={unit},{SUFFIX}"))
    };
    let lines = [part(1, "people"), part(2, "groups")].concat();
    let consumer = Member::new(Kind::Larix, "", &lines).arguments(&["-d", "16384"]).started();
    let name = |number: usize, unit: &str| format!("uid=u{number},ou={unit},{SUFFIX}");
    let groups = format!("ou=groups,{SUFFIX}");
    consumer.wait_for("the first content", |content| {
        content.contains_key(&groups) && (0..3).all(|number| content.contains_key(&name(number, "people")))
    });
    for number in 0..3 {
        provider.change(&format!("modrdn \"{}\" uid=u{number} delete {groups}", name(number, "people")));
    }
    let device = |name: &str, unit: &str| {
        provider
            .change(&format!("add \"cn={name},ou={unit},{SUFFIX}\"\n  objectClass: device\n  cn: {name}"));
    };
    for number in 0..20 {
        device(&format!("p{number}"), "people");
        device(&format!("g{number}"), "groups");
    }
    consumer.wait_for("all that has come into both parts", |content| {
        let has = |name: String, unit: &str| content.contains_key(&format!("cn={name},ou={unit},{SUFFIX}"));
        (0..20).all(|number| has(format!("p{number}"), "people") && has(format!("g{number}"), "groups"))
            && (0..3).all(|number| content.contains_key(&name(number, "groups")))
    });
}

/// What is below a renamed entry comes into a part of the tree with it, and leaves it, though the consumer knows its CSN: a second
/// time, too.
#[test]
fn a_renamed_subtree_comes_into_a_part_and_leaves_it() {
    let provider = provider(Kind::Larix, 3);
    let groups = format!("ou=groups,{SUFFIX}");
    let part =
        line(1, &provider, PERSIST).replace(&format!("searchbase={SUFFIX}"), &format!("searchbase={groups}"));
    let consumer = Member::new(Kind::Larix, "", &part).started();
    consumer.wait_for("the first content", |content| content.contains_key(&groups));
    provider.change(&format!(
        "add \"ou=tree,{SUFFIX}\"\n  objectClass: organizationalUnit\n  ou: tree\n\n\
         add \"cn=leaf,ou=tree,{SUFFIX}\"\n  objectClass: device\n  cn: leaf"
    ));
    for _ in 0..2 {
        provider.change(&format!("modrdn \"ou=tree,{SUFFIX}\" ou=tree delete {groups}"));
        let (tree, leaf) = (format!("ou=tree,{groups}"), format!("cn=leaf,ou=tree,{groups}"));
        consumer
            .wait_for("what has come", |content| content.contains_key(&tree) && content.contains_key(&leaf));
        provider.change(&format!("modrdn \"{tree}\" ou=tree delete {SUFFIX}"));
        consumer.wait_for("the rest", |content| !content.contains_key(&tree) && !content.contains_key(&leaf));
    }
}

/// The keepalive of a consumer's socket, as the kernel counts it: seconds until the first probe.
fn seconds_to_probe(consumer: SocketAddr) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let port = format!(":{:04X}", consumer.port());
    let row = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>()).find(|row| {
        row.get(1).is_some_and(|local| local.ends_with(&port))
            && row.get(3).is_some_and(|state| *state == "01")
    })?;
    // Timer 02 is that of the keepalive; its time is in hundredths of a second.
    let when = row.get(5)?.strip_prefix("02:")?;
    u64::from_str_radix(when, 16).ok().map(|ticks| ticks / 100)
}

#[test]
fn a_provider_that_falls_silent_is_noticed() {
    let other = ScriptedProvider::start();
    let start = |more: &str| {
        let line = format!(
            "syncrepl rid=001 provider=ldap://{} searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\" {more}\n",
            other.address
        );
        Member::new(Kind::Larix, "", &line).started()
    };
    let check = |more: &str, seconds: std::ops::Range<u64>| {
        let mut consumer = start(&format!("bindmethod=simple {more}"));
        let mut search = other.accept();
        search.inform(&SyncInfo::RefreshDelete { cookie: None, done: true });
        let probes = until_some("a time to the next probe", || seconds_to_probe(search.consumer()));
        assert!(seconds.contains(&probes), "{more}: {probes:?}");
        drop(search);
        consumer.kill();
    };
    check("", 1..61);
    check("keepalive=1000:3:10", 900..1_001);
    check("keepalive=0:0:0", 1_001..u64::MAX);
    // One that takes the connection and answers no bind is left after so many seconds, and asked again.
    let bind = format!("bindmethod=simple binddn={ADMIN} credentials=secret");
    for patience in ["timeout=1", "network-timeout=1"] {
        let mut consumer = start(&format!("{bind} {patience}"));
        let kept = [other.accept_silently(), other.accept_silently()];
        drop(kept);
        consumer.kill();
    }
}

/// Its kernel answers probes; it answers nothing: behind the refresh, in the middle of it, at its beginning, or to the bind.
#[test]
fn a_provider_that_stands_still_is_left() {
    let other = ScriptedProvider::start();
    let check = |more: &str, stands_still: &dyn Fn(), why: &str| {
        let line = format!(
            "syncrepl rid=001 provider=ldap://{} searchbase={SUFFIX} retry=\"1 +\" bindmethod=simple \
             keepalive=3:1:1 {more}\n",
            other.address
        );
        let mut consumer = Member::new(Kind::Larix, "", &line).arguments(&["-d", "16384"]).started();
        stands_still();
        consumer.wait_for_log(why);
        consumer.kill();
    };
    let (silent, bind) = ("is silent, and does not answer", format!("binddn={ADMIN} credentials=secret"));
    check(
        PERSIST,
        &|| {
            let mut search = other.accept();
            search.inform(&SyncInfo::RefreshDelete { cookie: None, done: true });
            drop((other.accept(), search));
        },
        silent,
    );
    for more in [PERSIST, "type=refreshOnly"] {
        let nothing = || drop((other.accept(), other.accept()));
        check(more, &nothing, silent);
        let half = || {
            let mut search = other.accept();
            let attributes = [
                ("objectClass", "domain"),
                ("structuralObjectClass", "domain"),
                ("dc", "example"),
                ("entryUUID", "01010101-0101-0101-0101-010101010101"),
                ("entryCSN", "20260101000000.000000Z#000000#003#000000"),
            ];
            search.add(SUFFIX, [1; 16], &attributes);
            drop((other.accept(), search));
        };
        check(more, &half, silent);
    }
    let no_bind = || drop((other.accept_silently(), other.accept_silently()));
    check(&format!("{PERSIST} {bind}"), &no_bind, "did not answer in time");
}

#[test]
fn a_provider_that_answers_nothing_gives_way_to_the_next() {
    for bind in [format!("binddn={ADMIN} credentials=secret"), String::new()] {
        let (silent, other) = (ScriptedProvider::start(), ScriptedProvider::start());
        let line = format!(
            "syncrepl rid=001 provider=\"ldap://{} ldap://{}\" searchbase={SUFFIX} type=refreshAndPersist \
             retry=\"3600 +\" bindmethod=simple {bind} timeout=5\n",
            silent.address, other.address
        );
        let mut consumer = Member::new(Kind::Larix, "", &line).started();
        let held = silent.accept_silently();
        drop((other.accept(), held));
        consumer.kill();
    }
}

/// The next one may have TLS, or be a local socket.
#[test]
fn a_provider_whose_connection_shows_the_password_gives_way_to_the_next() {
    let (first, next) = (ScriptedProvider::start(), ScriptedProvider::start());
    let line = format!(
        "syncrepl rid=001 provider=\"ldap://{} ldap://{}\" searchbase={SUFFIX} type=refreshAndPersist retry=\"3600 +\" \
         bindmethod=sasl saslmech=PLAIN authcid=admin credentials=secret secprops=noplain\n",
        first.address, next.address
    );
    let mut consumer = Member::new(Kind::Larix, "", &line).started();
    drop((first.accept_silently(), next.accept_silently()));
    consumer.kill();
}

#[test]
fn a_provider_that_has_nothing_to_tell_is_kept() {
    for kind in kinds() {
        let provider = Member::new(kind, "", "overlay syncprov").arguments(&["-d", "256"]);
        provider.site.load_into(Some(SUFFIX), &people(2));
        let provider = provider.started();
        let consumer = consumer(&provider, "type=refreshAndPersist keepalive=1:1:60");
        consumer.wait_until_like(&provider);
        // Behind the bind and the search, on the same connection.
        provider.wait_for_log("op=4 WHOAMI");
        provider.change(&format!("modify \"uid=u1,ou=people,{SUFFIX}\"\n  replace title: x"));
        consumer.wait_until_like(&provider);
        assert!(!consumer.log().contains("again in"), "{kind:?}: {}", consumer.log());
    }
}

/// Neither would send the other what it changed itself.
#[test]
fn a_provider_with_our_server_id_is_told_of() {
    let other = ScriptedProvider::start();
    let line = format!(
        "syncrepl rid=001 provider=ldap://{} searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\"\nmultiprovider on\n\
         overlay syncprov\n",
        other.address
    );
    let consumer = Member::new(Kind::Larix, "serverID 3", &line).arguments(&["-d", "16384"]).started();
    let mut search = other.accept();
    for (sid, is_told) in [(4, false), (3, true)] {
        let cookie = format!("rid=001,sid={sid:03x},csn=20260101000000.00000{sid}Z#000000#{sid:03x}#000000");
        search.inform(&SyncInfo::RefreshDelete { cookie: Some(cookie.as_bytes()), done: true });
        if is_told {
            consumer.wait_for_log("has the server ID 3 of this server");
        }
        drop(search);
        search = other.accept();
        assert_eq!(consumer.log().contains("of this server"), is_told, "{}", consumer.log());
    }
}

/// Changes of clocks that are ahead are taken, told of and followed; beyond a day ours follows only where what they changed
/// is changed here.
#[test]
fn clocks_that_are_ahead_are_told_of() {
    let other = ScriptedProvider::start();
    let line = format!(
        "syncrepl rid=003 provider=ldap://{} searchbase={SUFFIX} bindmethod=simple type=refreshAndPersist \
         retry=\"1 +\"\nmultiprovider on\noverlay syncprov\ndatabase monitor\n",
        other.address
    );
    let consumer = Member::new(Kind::Larix, "serverID 1\nloglevel sync", &line);
    consumer.site.load_into(Some(SUFFIX), &people(2));
    let consumer = consumer.arguments(&["-d", "16384"]).started();
    let mut search = other.accept();
    let mut client = consumer.client();
    let csn_of = |dn: &str| {
        let request =
            SyncSearch { base: dn, scope: Scope::Base, attributes: &["entryCSN"], ..SyncSearch::default() };
        let entries = read(consumer.address(), &request)?;
        let value = entries.values().next()?.get("entrycsn")?.first()?.clone();
        String::from_utf8(value).ok()
    };
    let in_seconds = |seconds: u64| {
        let output = std::process::Command::new("date")
            .args(["-u", "-d", &format!("+{seconds} seconds"), "+%Y%m%d%H%M%S.000000Z#000000#003#000000"])
            .output()
            .expect("date runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    // An hour, and ten days.
    for (number, seconds, followed) in [(1_u32, 3_600, true), (2, 864_000, false)] {
        let (csn, name) = (in_seconds(seconds), format!("ahead{number}"));
        let dn = format!("uid={name},ou=people,{SUFFIX}");
        let uuid = format!("00000000-0000-0000-0000-{number:012}");
        let attributes = [
            ("objectClass", "inetOrgPerson"),
            ("structuralObjectClass", "inetOrgPerson"),
            ("uid", &name),
            ("cn", &name),
            ("sn", &name),
            ("entryUUID", &uuid),
            ("entryCSN", &csn),
        ];
        search.add(&dn, u128::from(number).to_be_bytes(), &attributes);
        let cookie = format!("rid=003,sid=003,csn={csn}");
        if number == 1 {
            search.inform(&SyncInfo::RefreshDelete { cookie: Some(cookie.as_bytes()), done: true });
        } else {
            search.inform(&SyncInfo::NewCookie(cookie.as_bytes()));
        }
        until("the entry is there, and a line of the log", || {
            csn_of(&dn).is_some() && consumer.log().contains("s ahead of our clock")
        });
        let elsewhere = format!("uid=u1,ou=people,{SUFFIX}");
        let describe = |dn: &str| format!("modify \"{dn}\"\n  replace description: {number}");
        assert_eq!(ask(&mut client, &describe(&elsewhere)), "=> 0\n");
        assert_eq!(csn_of(&elsewhere) > Some(csn.clone()), followed, "{csn}");
        // What is changed here afterwards wins everywhere, however far that is ahead.
        assert_eq!(ask(&mut client, &describe(&dn)), "=> 0\n");
        assert!(csn_of(&dn) > Some(csn.clone()), "{csn}");
    }
    // Once an hour for each server.
    assert_eq!(consumer.log().matches("s ahead of our clock").count(), 1, "{}", consumer.log());
    let monitor =
        "search \"cn=Consumer 003,cn=Replication,cn=Larix,cn=Monitor\" base (objectClass=*) monitoredInfo";
    let figures = until_some("both are counted", || {
        Some(ask(&mut client, monitor)).filter(|figures| figures.contains("ahead=2"))
    });
    assert!(figures.contains("clock_ahead_us=863") && figures.contains("sid=003"), "{figures}");
    // What bears our own ID counts as ours, as behind a restore: all know it, and what comes next is to be news to them.
    let own = in_seconds(864_000).replace("#003#", "#001#");
    search.inform(&SyncInfo::NewCookie(format!("rid=003,sid=003,csn={own}").as_bytes()));
    consumer.wait_for_log("it is our own id, so our next changes come behind them");
    let dn = format!("uid=u1,ou=people,{SUFFIX}");
    let changes = || {
        assert_eq!(ask(&mut client, &format!("modify \"{dn}\"\n  replace description: own")), "=> 0\n");
        csn_of(&dn) > Some(own.clone())
    };
    until("our own changes come behind it", changes);
}

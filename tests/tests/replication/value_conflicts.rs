//! Servers whose conflict mode is `value`: what several change of one entry at the same time is merged, by written rules, in
//! whatever order it arrives; and who is not in that mode is refused.

use std::fmt::Write as _;
use std::process::Command;

use larix_load::generate::Random;
use larix_testkit::process::free_ports;
use larix_testkit::{Kind, until};
use larix_tests::relay::{Passage, Relay};
use larix_tests::replicas::{ADMIN, Content, Member, SUFFIX, ask, people};
use larix_tests::sync::{Consumer, SyncSearch};

const PERSIST: &str = "type=refreshAndPersist";
const PEOPLE: &str = "ou=people,dc=example,dc=com";

fn line(rid: usize, url: &str) -> String {
    format!(
        "syncrepl rid={rid:03} provider={url} bindmethod=simple binddn={ADMIN} credentials=secret \
         searchbase={SUFFIX} retry=\"1 +\" {PERSIST}\n"
    )
}

/// Servers that all take writes, with relays between them.
struct Mesh {
    members: Vec<Member>,
    /// From, to.
    relays: Vec<(usize, usize, Relay)>,
}

impl Mesh {
    /// `mode`: the line that says how conflicts are settled.
    fn start(count: usize, mode: &str, ldif: &str) -> Self {
        let ports = free_ports(count);
        let mut relays = Vec::new();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let relay = Relay::start();
                relay.lead_to(([127, 0, 0, 1], ports[to]).into());
                relays.push((from, to, relay));
            }
        }
        let member = |number: usize| {
            let own = relays.iter().filter(|(from, ..)| *from == number);
            let lines = own.map(|(_, to, relay)| line(to + 1, &format!("ldap://{}", relay.address)));
            let database = format!("{}multiprovider on\noverlay syncprov", lines.collect::<String>());
            Member::at(
                Kind::Larix,
                ports[number],
                &format!("serverID {}", number + 1),
                &format!("{mode}\n{database}"),
            )
            .arguments(&["-d", "16384"])
        };
        let mut members: Vec<Member> = (0..count).map(member).collect();
        members[0].site.load_into(Some(SUFFIX), ldif);
        members.iter_mut().for_each(Member::start);
        let mesh = Self { members, relays };
        mesh.settle();
        mesh
    }

    fn set(&self, passage: Passage) {
        self.relays.iter().for_each(|(_, _, relay)| relay.set(passage));
    }

    /// All hold the same, and it stays so when everything was heard by all.
    fn settle(&self) {
        // The last to be compared may send something yet to the first.
        for _ in 0..2 {
            for member in &self.members[1..] {
                member.wait_until_like(&self.members[0]);
            }
        }
    }

    fn content(&self) -> Content {
        self.members[0].content(SUFFIX).unwrap()
    }
}

/// `attribute: value | value` of an entry; `name: gone` of one that is not there.
fn shown(content: &Content, dn: &str, attributes: &[&str]) -> String {
    let Some(entry) = content.get(dn) else { return "gone".to_owned() };
    let mut text = String::new();
    for attribute in attributes {
        let values = entry.get(&attribute.to_lowercase()).into_iter().flatten();
        let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value)).collect();
        let _ = write!(text, "{attribute}: {}; ", values.join(" | "));
    }
    text.trim_end_matches("; ").to_owned()
}

/// What is done at one server and then at another that does not hear of it, to an entry `uid=N`; and what is left.
struct Rule {
    first: &'static str,
    second: &'static str,
    /// The RDN of the entry then.
    rdn: &'static str,
    attributes: &'static [&'static str],
    left: &'static str,
}

const fn rule(
    first: &'static str,
    second: &'static str,
    (rdn, attributes): (&'static str, &'static [&'static str]),
    left: &'static str,
) -> Rule {
    Rule { first, second, rdn, attributes, left }
}

/// `@` is the entry's RDN, `@@` its DN. Every entry has `description: even` or `odd`, here replaced by `begin`.
const RULES: &[Rule] = &[
    // Different attributes.
    rule(
        "modify \"@@\"\n  replace title: Boss",
        "modify \"@@\"\n  replace ou: sales",
        ("@", &["title", "ou"]),
        "title: Boss; ou: sales",
    ),
    // Different values.
    rule(
        "modify \"@@\"\n  add telephoneNumber: 1",
        "modify \"@@\"\n  add telephoneNumber: 2",
        ("@", &["telephoneNumber"]),
        "telephoneNumber: 1 | 2",
    ),
    rule(
        "modify \"@@\"\n  delete description: begin",
        "modify \"@@\"\n  add description: more",
        ("@", &["description"]),
        "description: more",
    ),
    // The whole attribute, before and after.
    rule(
        "modify \"@@\"\n  add description: more",
        "modify \"@@\"\n  replace description: all",
        ("@", &["description"]),
        "description: all",
    ),
    rule(
        "modify \"@@\"\n  replace description: all",
        "modify \"@@\"\n  add description: more",
        ("@", &["description"]),
        "description: all | more",
    ),
    rule(
        "modify \"@@\"\n  add description: more",
        "modify \"@@\"\n  delete description",
        ("@", &["description"]),
        "description: ",
    ),
    // A single value.
    rule(
        "modify \"@@\"\n  replace displayName: one",
        "modify \"@@\"\n  replace displayName: two",
        ("@", &["displayName"]),
        "displayName: two",
    ),
    // A name and an attribute; two names.
    rule(
        "modrdn \"@@\" uid=renamed delete",
        "modify \"@@\"\n  replace title: Boss",
        ("uid=renamed", &["uid", "title"]),
        "uid: renamed; title: Boss",
    ),
    rule(
        "modify \"@@\"\n  replace title: Boss",
        "modrdn \"@@\" uid=later delete",
        ("uid=later", &["uid", "title"]),
        "uid: later; title: Boss",
    ),
    rule(
        "modrdn \"@@\" uid=left delete",
        "modrdn \"@@\" uid=right delete",
        ("uid=right", &["uid"]),
        "uid: left | right",
    ),
    // A value goes while another server gives the entry that name.
    rule(
        "modrdn \"@@\" description=begin keep",
        "modify \"@@\"\n  delete description: begin",
        ("description=begin", &["description"]),
        "description: begin",
    ),
    // Deletes.
    rule("delete \"@@\"", "modify \"@@\"\n  replace title: Boss", ("@", &["title"]), "gone"),
    rule("modify \"@@\"\n  replace title: Boss", "delete \"@@\"", ("@", &["title"]), "gone"),
    // A class goes while an attribute that needs it is changed.
    rule(
        "modify \"@@\"\n  delete objectClass: domainRelatedObject\n  delete associatedDomain",
        "modify \"@@\"\n  replace associatedDomain: b",
        ("@", &["objectClass", "associatedDomain"]),
        "objectClass: domainRelatedObject | inetOrgPerson; associatedDomain: b",
    ),
    // Classes are changed one by one, also where all of them are sent.
    rule(
        "modify \"@@\"\n  replace objectClass: inetOrgPerson | domainRelatedObject | pkiUser",
        "modify \"@@\"\n  replace objectClass: inetOrgPerson | domainRelatedObject | simpleSecurityObject\n  replace userPassword: x",
        ("@", &["objectClass"]),
        "objectClass: domainRelatedObject | inetOrgPerson | pkiUser | simpleSecurityObject",
    ),
];

#[test]
fn what_two_servers_change_at_once_is_merged_by_written_rules() {
    let mut ldif = people(0);
    for number in 0..RULES.len() {
        let _ = write!(
            ldif,
            "dn: uid={number},{PEOPLE}\nobjectClass: inetOrgPerson\nobjectClass: domainRelatedObject\nuid: {number}\n\
             cn: C\nsn: S\ndescription: begin\nassociatedDomain: a\n\n"
        );
    }
    let mesh = Mesh::start(3, "conflict-mode value", &ldif);
    mesh.set(Passage::Cut);
    for side in 0..2 {
        for (number, rule) in RULES.iter().enumerate() {
            let request = [rule.first, rule.second][side].replace("@@", &format!("uid={number},{PEOPLE}"));
            let request = request.replace("=renamed", &format!("=renamed{number}"));
            mesh.members[side].change(&request);
        }
    }
    // And a third has something to say of each that is there in the end.
    for (number, _) in RULES.iter().enumerate().filter(|(_, rule)| rule.left != "gone") {
        mesh.members[2].change(&format!("modify \"uid={number},{PEOPLE}\"\n  add seeAlso: cn=third"));
    }
    mesh.set(Passage::Open);
    mesh.settle();
    for member in &mesh.members {
        // What is left does not depend on who is asked, and all have heard of the third.
        member.wait_for("the third's", |content| {
            let third = content.values().filter(|entry| entry.contains_key("seealso")).count();
            third == RULES.iter().filter(|rule| rule.left != "gone").count()
        });
    }
    mesh.settle();
    let content = mesh.content();
    for (number, rule) in RULES.iter().enumerate() {
        let rdn = rule.rdn.replace('@', &format!("uid={number}"));
        let rdn = rdn.replace("=renamed", &format!("=renamed{number}"));
        let left = rule.left.replace(": renamed", &format!(": renamed{number}"));
        let found = shown(&content, &format!("{rdn},{PEOPLE}"), rule.attributes);
        assert_eq!(found, left, "{} | {}", rule.first, rule.second);
    }
    // The server that merged a value reports what gave way, and only that.
    let conflicts = |member: &Member| {
        let mut command = Command::new(Kind::Larix.program().unwrap());
        command.args(["replica", "conflicts", "-x", "-D", ADMIN, "-w", "secret", &member.url()]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let conflicts: String = mesh.members.iter().map(conflicts).collect();
    for lost in ["lost: displayName: one", "lost: description: more", "lost: entryDN: uid=left"] {
        assert!(conflicts.contains(lost), "{lost}: {conflicts}");
    }
    assert!(!conflicts.contains("lost: telephoneNumber"), "{conflicts}");
}

/// Any changes at three servers, which hear of each other only in some rounds and over some ways; one is killed.
#[test]
fn random_changes_end_alike() {
    let seed = std::env::var("LARIX_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut mesh = Mesh::start(3, "conflict-mode value", &people(4));
    for round in 0..4 {
        for (from, to, relay) in &mesh.relays {
            let passage = *random.pick(&[Passage::Open, Passage::Cut, Passage::Cut, Passage::Silent]);
            println!("{round}: {from} -> {to}: {passage:?}");
            relay.set(passage);
        }
        for number in 0..40 {
            let at = random.below(3) as usize;
            let entry = random.below(4);
            let value = format!("{round}-{number}");
            let change = match random.below(6) {
                0 => format!("add telephoneNumber: 1{round}{number}"),
                1 => format!("add description: {value}"),
                2 => format!("replace description: {value}"),
                3 => format!("replace displayName: {value}"),
                4 => "replace telephoneNumber: 0".to_owned(),
                _ => format!("replace title: {value}"),
            };
            mesh.members[at].change(&format!("modify \"uid=u{entry},{PEOPLE}\"\n  {change}"));
        }
        let killed = random.below(3) as usize;
        mesh.members[killed].kill();
        mesh.members[killed].start();
        mesh.set(Passage::Open);
        // The last word of each has arrived everywhere.
        for (number, member) in mesh.members.iter().enumerate() {
            member.change(&format!(
                "add \"cn={round}-{number},{SUFFIX}\"\n  objectClass: device\n  cn: {round}-{number}"
            ));
        }
        for member in &mesh.members {
            member.wait_for("the last words", |content| {
                (0..3).all(|number| content.contains_key(&format!("cn={round}-{number},{SUFFIX}")))
            });
        }
        mesh.settle();
    }
}

/// The mode is switched on while the servers run, with content that they have.
#[test]
fn switched_on_while_servers_run() {
    let mesh = Mesh::start(2, "conflict-mode entry", &people(2));
    let change = |side: usize, change: &str| {
        mesh.members[side].change(&format!("modify \"uid=u1,{PEOPLE}\"\n  {change}"));
    };
    change(0, "replace title: before");
    mesh.settle();
    for member in &mesh.members {
        let mut client = member.client();
        assert_eq!(ask(&mut client, "as cn=config secret"), "=> 0\n");
        let request = "modify \"olcDatabase={1}mdb,cn=config\"\n  replace olcLarixConflictMode: value";
        assert_eq!(ask(&mut client, request), "=> 0\n");
    }
    // Both have found each other again.
    change(0, "replace ou: switched");
    mesh.settle();
    change(1, "add ou: again");
    mesh.settle();
    mesh.set(Passage::Cut);
    change(0, "replace title: after");
    change(1, "replace displayName: U");
    mesh.set(Passage::Open);
    mesh.members[0].wait_for("both", |content| {
        shown(content, &format!("uid=u1,{PEOPLE}"), &["title", "displayName", "ou"])
            == "title: after; displayName: U; ou: again | switched"
    });
    mesh.settle();
}

#[test]
fn who_is_in_another_mode_is_refused() {
    const MINE: &str = "overlay syncprov\nconflict-mode value";
    let provider = Member::new(Kind::Larix, "", MINE).arguments(&["-d", "256"]);
    provider.site.load_into(Some(SUFFIX), &people(2));
    let provider = provider.started();
    let address = provider.url().trim_start_matches("ldap://").parse().unwrap();
    let mut plain = Consumer::default();
    plain.ask(address, &SyncSearch { base: SUFFIX, dn: ADMIN, password: "secret", ..SyncSearch::default() });
    let end = format!("{:?}", plain.refresh().unwrap());
    assert!(end.contains("53") && end.contains("only Larix servers in that mode"), "{end}");

    let follower = |kind: Kind, provider: &Member, mode: &str| {
        let database = format!("{mode}\n{}", line(1, &provider.url()));
        Member::new(kind, "", &database).arguments(&["-d", "16384"]).started()
    };
    follower(Kind::Larix, &provider, "").wait_for_log("only Larix servers in that mode can be members");
    let entries = Member::new(Kind::Larix, "", "overlay syncprov");
    entries.site.load_into(Some(SUFFIX), &people(2));
    let entries = entries.started();
    follower(Kind::Larix, &entries, "conflict-mode value")
        .wait_for_log("the conflict mode of the content is `entry`, that of the consumer `value`");
    if Kind::Slapd.is_lacking() {
        return;
    }
    let slapd = Member::new(Kind::Slapd, "", "overlay syncprov");
    slapd.site.load_into(Some(SUFFIX), &people(2));
    let slapd = slapd.started();
    let consumer = follower(Kind::Larix, &slapd, "conflict-mode value");
    consumer.wait_for_log("the conflict mode here is `value`, which the provider does not know");
    assert_eq!(consumer.content(SUFFIX), None);
    // Others were refused before.
    let refusals = || provider.log().matches("err=53").count();
    let before = refusals();
    let refused = follower(Kind::Slapd, &provider, "");
    until("it is refused", || refusals() > before);
    assert_eq!(refused.content(SUFFIX), None);
}

/// What the mode cannot do is said when the server starts.
#[test]
fn what_does_not_go_with_the_mode_is_refused() {
    let check = |lines: &str, expected: &str| {
        let database =
            format!("conflict-mode value\n{}", lines.replace("LINE", line(7, "ldap://127.0.0.1:1").trim()));
        let refused = Member::new(Kind::Larix, "", &database).site.start().map(drop);
        let text = refused.map_or_else(|error| error.to_string(), |()| "started".to_owned());
        assert!(text.contains(expected), "{lines}: {text}");
    };
    let partial =
        |key: &str| format!("takes whole entries, as they are: not with `{key}` (syncrepl rid=007)");
    check("lastmod off", "`conflict-mode value` needs the entryCSN of entries");
    check("LINE attrs=cn,sn", &partial("attrs"));
    check("LINE exattrs=sn", &partial("exattrs"));
    check("LINE filter=(cn=a)", &partial("filter"));
    check("LINE scope=one", &partial("scope"));
    check("LINE schemachecking=on", &partial("schemachecking"));
    check("LINE syncdata=accesslog logbase=cn=log", &partial("syncdata"));
    check("conflict-mode newest", "newest");
}

//! Replication with each of the overlays that change what is stored, or what is shown of it, on both sides: Larix beside Larix, and
//! beside slapd where that has the overlay.

use std::cell::RefCell;

use larix_testkit::{Kind, until};
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Content, Member, SUFFIX, ask, differences, people};

/// What stands in the configuration of slapd alone.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Slapd {
    /// It has no such overlay.
    No,
    /// It is a consumer of ours.
    Consumer,
    /// It is a provider: its overlay starts on no consumer.
    Provider,
    /// It is a consumer of ours, and a provider.
    Both,
}

struct Row {
    overlay: &'static str,
    /// The lines behind `overlay` and its name.
    lines: &'static str,
    /// Before the database: definitions of the schema.
    global: &'static str,
    slapd: Slapd,
    /// What each server has of its own: not compared.
    own: &'static [&'static str],
    /// What is there before consumers begin.
    before: &'static str,
    /// What they follow.
    changes: &'static str,
    /// Binds at the provider, with their codes.
    binds: &'static [(&'static str, &'static str, u32)],
    /// A change that the provider does not let happen, and its code.
    refused: Option<(&'static str, u32)>,
    /// What shows that the overlay was at work: a name, an attribute and a value in the provider's content.
    shows: Option<(&'static str, &'static str, &'static str)>,
}

const ROW: Row = Row {
    overlay: "",
    lines: "",
    global: "",
    slapd: Slapd::No,
    own: &[],
    before: "",
    changes: "",
    binds: &[],
    refused: None,
    shows: None,
};

const FINDING_GROUP: &str = "attributetype ( 1.2.3.4.1 NAME 'findsURL' SUP labeledURI )\n\
     objectclass ( 1.2.3.4.2 NAME 'findingGroup' SUP top STRUCTURAL MUST cn MAY ( findsURL $ member ) )";

/// `PEOPLE` and `GROUPS` stand for the names of the two units.
const ROWS: &[Row] = &[
    Row {
        overlay: "unique",
        lines: "unique_uri ldap:///?mail?sub",
        slapd: Slapd::Both,
        changes: "modify \"uid=u1,PEOPLE\"\n  replace mail: other@example.com",
        refused: Some(("modify \"uid=u2,PEOPLE\"\n  replace mail: OTHER@example.com", 19)),
        shows: Some(("uid=u1,PEOPLE", "mail", "other@example.com")),
        ..ROW
    },
    Row {
        overlay: "constraint",
        lines: "constraint_attribute title regex ^[A-Z][a-z]*$",
        slapd: Slapd::Both,
        changes: "modify \"uid=u1,PEOPLE\"\n  add title: Boss",
        refused: Some(("modify \"uid=u2,PEOPLE\"\n  add title: boss", 19)),
        shows: Some(("uid=u1,PEOPLE", "title", "Boss")),
        ..ROW
    },
    Row {
        overlay: "memberof",
        slapd: Slapd::Consumer,
        before: "modify \"cn=staff,GROUPS\"\n  add member: uid=u1,PEOPLE",
        changes: "modify \"cn=staff,GROUPS\"\n  add member: uid=u2,PEOPLE\n  delete member: uid=u1,PEOPLE",
        shows: Some(("uid=u2,PEOPLE", "memberof", "cn=staff,GROUPS")),
        ..ROW
    },
    Row {
        overlay: "refint",
        lines: "refint_attributes member manager",
        // What a slapd's own changes by itself it does not tell consumers.
        slapd: Slapd::Consumer,
        before: "modify \"cn=staff,GROUPS\"\n  add member: uid=u1,PEOPLE\n\n\
                 modify \"uid=u3,PEOPLE\"\n  add manager: uid=u1,PEOPLE",
        changes: "modrdn \"uid=u1,PEOPLE\" uid=u1b delete",
        shows: Some(("uid=u3,PEOPLE", "manager", "uid=u1b,PEOPLE")),
        ..ROW
    },
    Row {
        overlay: "dds",
        lines: "dds-default-ttl 1d",
        slapd: Slapd::Provider,
        // The time that is left.
        own: &["entryttl"],
        before: "add \"uid=guest,PEOPLE\"\n  objectClass: inetOrgPerson\n  objectClass: dynamicObject\n  uid: guest\n  cn: G\n  sn: G",
        changes: "add \"uid=late,PEOPLE\"\n  objectClass: inetOrgPerson\n  objectClass: dynamicObject\n  uid: late\n  cn: G\n  sn: G\n\n\
                  delete \"uid=guest,PEOPLE\"",
        shows: Some(("uid=late,PEOPLE", "uid", "late")),
        ..ROW
    },
    Row {
        overlay: "valsort",
        lines: "valsort-attr description PEOPLE alpha-ascend",
        slapd: Slapd::Both,
        changes: "modify \"uid=u1,PEOPLE\"\n  replace description: b\n\nmodify \"uid=u1,PEOPLE\"\n  add description: a",
        shows: Some(("uid=u1,PEOPLE", "description", "a")),
        ..ROW
    },
    Row {
        overlay: "collect",
        lines: "collectinfo PEOPLE telephoneNumber",
        // A slapd that follows another server takes its own collected values for stored ones, and gets no further.
        slapd: Slapd::Provider,
        // With manageDsaIT slapd shows what it collects, and Larix what is stored.
        own: &["telephonenumber"],
        changes: "modify \"PEOPLE\"\n  add telephoneNumber: 555\n\nmodify \"uid=u1,PEOPLE\"\n  add title: Boss",
        refused: Some(("modify \"uid=u2,PEOPLE\"\n  add telephoneNumber: 5", 53)),
        shows: Some(("PEOPLE", "telephonenumber", "555")),
        ..ROW
    },
    Row {
        overlay: "ppolicy",
        lines: "ppolicy_default cn=policy,SUFFIX",
        slapd: Slapd::Both,
        before: "add \"cn=policy,SUFFIX\"\n  objectClass: device\n  objectClass: pwdPolicy\n  cn: policy\n  \
                 pwdAttribute: userPassword\n  pwdInHistory: 3\n  pwdMinLength: 4\n  pwdCheckQuality: 2\n\n\
                 modify \"uid=u1,PEOPLE\"\n  replace userPassword: first",
        changes: "modify \"uid=u1,PEOPLE\"\n  replace userPassword: second\n\n\
                  modify \"uid=u2,PEOPLE\"\n  replace userPassword: third",
        binds: &[("uid=u1,PEOPLE", "second", 0)],
        shows: Some(("uid=u1,PEOPLE", "userpassword", "second")),
        ..ROW
    },
    Row {
        overlay: "otp",
        slapd: Slapd::Consumer,
        before: "add \"cn=parameters,SUFFIX\"\n  objectClass: device\n  objectClass: oathHOTPParams\n  cn: parameters\n  \
                 oathOTPLength: 6\n  oathHMACAlgorithm: 1.2.840.113549.2.7\n  oathHOTPLookAhead: 3\n\n\
                 add \"cn=token,SUFFIX\"\n  objectClass: device\n  objectClass: oathHOTPToken\n  cn: token\n  \
                 oathHOTPParams: cn=parameters,SUFFIX\n  oathSecret: 12345678901234567890\n  oathHOTPCounter: 0\n\n\
                 modify \"uid=u1,PEOPLE\"\n  add objectClass: oathHOTPUser\n  add oathHOTPToken: cn=token,SUFFIX\n  \
                 add userPassword: secret",
        changes: "modify \"uid=u2,PEOPLE\"\n  add title: Boss",
        // The codes of RFC 4226, appendix D: one that was used is refused.
        binds: &[("uid=u1,PEOPLE", "secret287082", 0), ("uid=u1,PEOPLE", "secret287082", 49)],
        shows: Some(("cn=token,SUFFIX", "oathhotpcounter", "1")),
        ..ROW
    },
    Row {
        overlay: "autogroup",
        lines: "autogroup-attrset findingGroup findsURL member",
        global: FINDING_GROUP,
        before: "add \"cn=bosses,GROUPS\"\n  objectClass: findingGroup\n  cn: bosses\n  findsURL: ldap:///PEOPLE??sub?(title=Boss)",
        changes: "modify \"uid=u1,PEOPLE\"\n  add title: Boss",
        shows: Some(("cn=bosses,GROUPS", "member", "uid=u1,PEOPLE")),
        ..ROW
    },
    Row {
        overlay: "dynlist",
        lines: "dynlist-attrset findingGroup findsURL member",
        global: FINDING_GROUP,
        before: "add \"cn=bosses,GROUPS\"\n  objectClass: findingGroup\n  cn: bosses\n  findsURL: ldap:///PEOPLE??sub?(title=Boss)",
        changes: "modify \"uid=u1,PEOPLE\"\n  add title: Boss",
        shows: Some(("cn=bosses,GROUPS", "findsurl", "ldap:///PEOPLE??sub?(title=Boss)")),
        ..ROW
    },
    Row {
        overlay: "nestgroup",
        lines: "nestgroup-base GROUPS\nnestgroup-flags member-filter member-values",
        before: "add \"cn=all,GROUPS\"\n  objectClass: groupOfNames\n  cn: all\n  member: cn=staff,GROUPS",
        changes: "modify \"cn=staff,GROUPS\"\n  add member: uid=u2,PEOPLE",
        shows: Some(("cn=staff,GROUPS", "member", "uid=u2,PEOPLE")),
        ..ROW
    },
    Row {
        overlay: "usn",
        // The entry of the suffix has the highest number of its server.
        own: &["usnchanged"],
        before: "modify \"uid=u1,PEOPLE\"\n  add title: Boss",
        changes: "modify \"uid=u2,PEOPLE\"\n  add title: Boss\n\ndelete \"uid=u3,PEOPLE\"",
        shows: Some(("uid=u2,PEOPLE", "title", "Boss")),
        ..ROW
    },
    Row {
        overlay: "automember",
        lines: "automember-definition all PEOPLE (objectClass=person) member:dn cn=staff,GROUPS",
        before: "add \"uid=one,PEOPLE\"\n  objectClass: inetOrgPerson\n  uid: one\n  cn: G\n  sn: G",
        changes: "add \"uid=two,PEOPLE\"\n  objectClass: inetOrgPerson\n  uid: two\n  cn: G\n  sn: G",
        shows: Some(("cn=staff,GROUPS", "member", "uid=two,PEOPLE")),
        ..ROW
    },
    Row {
        overlay: "dna",
        lines: "dna-range employeeNumber 1000-1999 PEOPLE (objectClass=inetOrgPerson)",
        before: "add \"uid=one,PEOPLE\"\n  objectClass: inetOrgPerson\n  uid: one\n  cn: G\n  sn: G",
        changes: "add \"uid=two,PEOPLE\"\n  objectClass: inetOrgPerson\n  uid: two\n  cn: G\n  sn: G",
        shows: Some(("uid=two,PEOPLE", "employeenumber", "1001")),
        ..ROW
    },
    Row {
        overlay: "mep",
        lines: "mep-definition groups PEOPLE (objectClass=posixAccount) GROUPS cn=template,SUFFIX",
        before: "add \"cn=template,SUFFIX\"\n  objectClass: device\n  objectClass: mepTemplateEntry\n  cn: template\n  \
                 mepRDNAttr: cn\n  mepStaticAttr: objectClass: posixGroup\n  mepMappedAttr: cn: $uid\n  \
                 mepMappedAttr: gidNumber: $gidNumber\n\n\
                 add \"uid=one,PEOPLE\"\n  objectClass: account\n  objectClass: posixAccount\n  uid: one\n  cn: one\n  \
                 uidNumber: 7\n  gidNumber: 7\n  homeDirectory: /home/one",
        changes: "add \"uid=two,PEOPLE\"\n  objectClass: account\n  objectClass: posixAccount\n  uid: two\n  cn: two\n  \
                  uidNumber: 8\n  gidNumber: 8\n  homeDirectory: /home/two\n\n\
                  modify \"uid=one,PEOPLE\"\n  replace gidNumber: 9\n\ndelete \"uid=two,PEOPLE\"",
        shows: Some(("cn=one,GROUPS", "gidnumber", "9")),
        ..ROW
    },
    Row {
        overlay: "smbk5pwd",
        lines: "smbk5pwd-enable shadow",
        before: "modify \"uid=u1,PEOPLE\"\n  add objectClass: shadowAccount\n  replace userPassword: first",
        changes: "modify \"uid=u1,PEOPLE\"\n  replace shadowLastChange: 1\n\n\
                  modify \"uid=u1,PEOPLE\"\n  replace userPassword: second",
        binds: &[("uid=u1,PEOPLE", "second", 0)],
        shows: Some(("uid=u1,PEOPLE", "userpassword", "second")),
        ..ROW
    },
];

fn named(text: &str) -> String {
    let (people, groups) = (format!("ou=people,{SUFFIX}"), format!("ou=groups,{SUFFIX}"));
    text.replace("PEOPLE", &people).replace("GROUPS", &groups).replace("SUFFIX", SUFFIX)
}

/// A server with the overlay, and what else it is.
fn member(kind: Kind, row: &Row, before: &str, after: &str) -> Member {
    let module = match kind {
        Kind::Slapd => format!("moduleload {}\n", row.overlay),
        Kind::Larix => String::new(),
    };
    let overlay = format!("overlay {}\n{}", row.overlay, named(row.lines));
    Member::new(kind, &format!("{}{module}", row.global_lines()), &format!("{before}\n{overlay}\n{after}"))
}

impl Row {
    fn global_lines(&self) -> String {
        if self.global.is_empty() { String::new() } else { format!("{}\n", self.global) }
    }

    fn compared(&self, mut content: Content) -> Content {
        content.values_mut().for_each(|entry| entry.retain(|name, _| !self.own.contains(&name.as_str())));
        content
    }

    fn wait_until_like(&self, consumer: &Member, provider: &Member) {
        let last = RefCell::new(String::new());
        consumer.wait_for(&format!("what the provider has, with overlay {}", self.overlay), |own| {
            let wanted = provider.content(SUFFIX).unwrap_or_default();
            let text = differences(&self.compared(own.clone()), &self.compared(wanted));
            // A test that fails shows it.
            if *last.borrow() != text {
                eprintln!("{}:\n{text}", self.overlay);
                last.borrow_mut().clone_from(&text);
            }
            text.is_empty()
        });
    }

    /// One provider with its consumers.
    fn check(&self, provider: Kind, consumers: &[Kind]) {
        let provider = member(provider, self, "", "overlay syncprov");
        let staff = format!(
            "dn: cn=staff,ou=groups,{SUFFIX}\nobjectClass: groupOfNames\ncn: staff\nmember: uid=u0,ou=people,{SUFFIX}\n\n"
        );
        provider.site.load_into(Some(SUFFIX), &format!("{}{staff}", people(4)));
        let provider = provider.started();
        provider.change(&named(self.before));
        // memberOf is each server's own to derive: a slapd is not to take it from elsewhere, too.
        let consumer = |kind: &Kind| {
            let except =
                if *kind == Kind::Slapd && self.overlay == "memberof" { "exattrs=memberOf" } else { "" };
            let line = format!(
                "syncrepl rid=001 provider={} bindmethod=simple binddn={ADMIN} credentials=secret \
                 searchbase={SUFFIX} retry=\"1 +\" type=refreshAndPersist {except}",
                provider.url()
            );
            member(*kind, self, &line, "").started()
        };
        let consumers: Vec<Member> = consumers.iter().map(consumer).collect();
        consumers.iter().for_each(|consumer| self.wait_until_like(consumer, &provider));
        provider.change(&named(self.changes));
        if let Some((request, code)) = self.refused {
            let answer = ask(&mut provider.client(), &named(request));
            assert!(answer.starts_with(&format!("=> {code} ")), "{}: {answer}", self.overlay);
        }
        for (dn, password, code) in self.binds {
            let mut client = Client::connect(provider.address());
            let answer = ask(&mut client, &format!("as {} {password}", named(dn)));
            assert!(answer.trim_end().starts_with(&format!("=> {code}")), "{}: {answer}", self.overlay);
        }
        consumers.iter().for_each(|consumer| self.wait_until_like(consumer, &provider));
        if let Some((dn, attribute, value)) = self.shows {
            let content = provider.content(SUFFIX).unwrap();
            let entry = content.get(&named(dn)).unwrap_or_else(|| panic!("{}: no {dn}", self.overlay));
            let value = named(value).into_bytes();
            assert!(
                entry.get(attribute).is_some_and(|values| values.contains(&value)),
                "{}: {entry:?}",
                self.overlay
            );
        }
    }
}

/// Every row is tried: one that fails does not hide those behind it.
fn try_all(check: impl Fn(&Row) + std::panic::RefUnwindSafe) {
    let fails = |row: &&Row| std::panic::catch_unwind(|| check(row)).is_err();
    let failed: Vec<&str> = ROWS.iter().filter(fails).map(|row| row.overlay).collect();
    assert_eq!(failed, [""; 0]);
}

#[test]
fn each_overlay_is_replicated_to_both() {
    try_all(|row| match matches!(row.slapd, Slapd::Consumer | Slapd::Both) && !Kind::Slapd.is_lacking() {
        true => row.check(Kind::Larix, &[Kind::Larix, Kind::Slapd]),
        false => row.check(Kind::Larix, &[Kind::Larix]),
    });
}

#[test]
fn each_overlay_of_a_slapd_is_replicated_to_us() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    try_all(|row| {
        if matches!(row.slapd, Slapd::Provider | Slapd::Both) {
            row.check(Kind::Slapd, &[Kind::Larix]);
        }
    });
}

/// `overlay homedir` on a replica alone: directories follow what its provider sends.
#[test]
fn a_replica_has_home_directories() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for name in ["home", "skel"] {
        std::fs::create_dir(path.join(name)).unwrap();
    }
    std::fs::write(path.join("skel/.profile"), "umask 77\n").unwrap();
    let provider = Member::new(Kind::Larix, "", "overlay syncprov");
    provider.site.load_into(Some(SUFFIX), &people(1));
    let provider = provider.started();
    let lines = format!(
        "syncrepl rid=001 provider={} bindmethod=simple binddn={ADMIN} credentials=secret searchbase={SUFFIX} \
         retry=\"1 +\" type=refreshAndPersist\noverlay homedir\nhomedir-regexp ^/home/([a-z]+)$ {path}/home/$1\n\
         homedir-skeleton-path {path}/skel\nhomedir-min-uidnumber 0\nhomedir-delete-style DELETE\n",
        provider.url(),
        path = path.display()
    );
    let consumer = Member::new(Kind::Larix, "", &lines).started();
    let wait = |name: &str, is_there: bool| {
        let path = path.join("home").join(name);
        until(&format!("{name} {is_there}"), || path.exists() == is_there);
    };
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).unwrap());
    let group = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(path).unwrap());
    consumer.wait_for("what the provider has", |own| own.contains_key(&named("uid=u0,PEOPLE")));
    provider.change(&named(&format!(
        "modify \"uid=u0,PEOPLE\"\n  add objectClass: posixAccount\n  add uidNumber: {owner}\n  add gidNumber: {group}\n  \
         add homeDirectory: /home/ann"
    )));
    wait("ann/.profile", true);
    provider.change(&named("modify \"uid=u0,PEOPLE\"\n  replace homeDirectory: /home/anna"));
    wait("anna/.profile", true);
    wait("ann", false);
    provider.change(&named("delete \"uid=u0,PEOPLE\""));
    wait("anna", false);
}

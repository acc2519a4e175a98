//! `larix deleted`: what an access log keeps of deleted entries, and the way back, from Larix and from slapd.

use std::process::{Command, Output};

use larix_testkit::process::{free_port, free_ports};
use larix_testkit::{Kind, until};
use larix_tests::replicas::{ADMIN, Content, Member, SUFFIX, ask, differences};

const LOG: &str = "cn=deleted";

/// A server that keeps what is deleted; `overlays`: more lines of the database.
fn member(kind: Kind, overlays: &str) -> Member {
    let number = if overlays.contains("syncrepl") { 2 } else { 1 };
    member_at(kind, free_port(), number, overlays)
}

/// The same with this server ID, at a port that others know.
fn member_at(kind: Kind, port: u16, number: usize, overlays: &str) -> Member {
    let modules = if kind == Kind::Slapd { "moduleload accesslog\n" } else { "" };
    let body = format!(
        "{modules}serverID {number}\ndatabase config\nrootpw secret\n\
         database mdb\nsuffix {LOG}\nrootdn {ADMIN}\ndirectory @DATA@/log\n\
         index reqStart,reqDN,reqEntryUUID,objectClass eq\n\
         access to * by dn.exact=\"cn=auditor,{SUFFIX}\" read by * none\n\
         database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@/main\n\
         index objectClass,uid,entryUUID,member eq\naccess to attrs=userPassword by * auth\naccess to * by * read\n\
         overlay accesslog\nlogdb {LOG}\nlogops delete\nlogsuccess TRUE\nlogold (objectClass=*)\n{overlays}\n"
    );
    Member::with(kind, port, &body).started()
}

const TREE: &str = "add dc=example,dc=com\nobjectClass: domain\ndc: example

add ou=sales,dc=example,dc=com\nobjectClass: organizationalUnit\nou: sales

add uid=ann,ou=sales,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: ann\ncn: Ann\nsn: Archer\nuserPassword: pw\nmail: ann@example.com

add ou=north,ou=sales,dc=example,dc=com\nobjectClass: organizationalUnit\nou: north

add uid=bo,ou=north,ou=sales,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: bo\ncn: Bo\nsn: Baker

add uid=old,ou=sales,dc=example,dc=com\nobjectClass: account\nuid: old";

fn as_somebody(member: &Member, dn: &str, password: &str, words: &[&str]) -> Output {
    let mut command = Command::new(Kind::Larix.program().unwrap());
    command.arg("deleted").args(words);
    command.args(["-H", &member.url(), "-D", dn, "-w", password]).env_remove("LDAPURI");
    command.output().unwrap()
}

fn deleted(member: &Member, words: &[&str]) -> Output {
    as_somebody(member, ADMIN, "secret", words)
}

/// What a command that must succeed writes.
fn done(member: &Member, words: &[&str]) -> String {
    let output = deleted(member, words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} {words:?}: {errors}\n{}", member.kind, member.log());
    String::from_utf8(output.stdout).unwrap()
}

/// What a command says that must fail.
fn refused(member: &Member, words: &[&str]) -> String {
    let output = deleted(member, words);
    assert!(!output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The content without what the restore itself is recorded in.
fn content(member: &Member) -> Content {
    let mut content = member.content(SUFFIX).unwrap();
    for entry in content.values_mut() {
        for name in ["entrycsn", "modifiersname", "modifytimestamp", "contextcsn", "auditcontext"] {
            entry.remove(name);
        }
    }
    content
}

fn assert_same(member: &Member, before: &Content) {
    assert_eq!(differences(&content(member), before), "", "{:?}", member.kind);
}

#[test]
fn deleted_entries_come_back_as_they_were() {
    for kind in [Kind::Larix, Kind::Slapd] {
        if kind.is_lacking() {
            continue;
        }
        let member = member(kind, "");
        member.change(TREE);
        member.change("delete uid=old,ou=sales,dc=example,dc=com");
        let before = content(&member);
        let ann = "uid=ann,ou=sales,dc=example,dc=com";
        member.change(&format!("delete {ann}"));

        let list = done(&member, &["list"]);
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.len(), 2, "{list}");
        assert!(lines[1].ends_with(&format!(" {ann} by {ADMIN}")), "{list}");
        let shown = done(&member, &["show", ann]);
        assert!(
            shown.contains(&format!("dn: {ann}\n")) && shown.contains("mail: ann@example.com\n"),
            "{shown}"
        );
        // Nothing is done for the asking.
        assert_eq!(done(&member, &["restore", "-n", ann]), format!("would be restored {ann}\n"));
        assert!(!content(&member).contains_key(ann));

        assert_eq!(done(&member, &["restore", ann]), format!("restored {ann}\n"));
        assert_same(&member, &before);
        assert_eq!(ask(&mut member.client(), &format!("as {ann} pw")), "=> 0\n");
        assert!(refused(&member, &["restore", ann]).contains("is there again: it is left as it is"));

        // The last delete counts, whichever name it is asked for by.
        member.change(&format!("modify {ann}\nreplace sn: Other\n\ndelete {ann}"));
        let json = done(&member, &["list", "--json", ann]);
        let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
        assert_eq!(json.lines().count(), 2, "{json}");
        let uuid = last["entryUUID"].as_str().unwrap();
        assert!(done(&member, &["show", uuid]).contains("sn: Other\n"));
        let first = json.lines().next().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let first = first.unwrap()["reqStart"].as_str().unwrap().to_owned();
        done(&member, &["restore", &first]);
        assert_same(&member, &before);
    }
}

#[test]
fn a_database_that_does_not_answer_stops_no_restore() {
    let orders = "database sock\nsuffix ou=orders,dc=example,dc=net\nsocketpath @DATA@/none.sock";
    let member = member(Kind::Larix, orders);
    member.change(TREE);
    let before = content(&member);
    let ann = "uid=ann,ou=sales,dc=example,dc=com";
    member.change(&format!("delete {ann}"));
    assert_eq!(done(&member, &["restore", ann]), format!("restored {ann}\n"));
    assert_same(&member, &before);
}

#[test]
fn a_tree_comes_back_at_once() {
    for kind in [Kind::Larix, Kind::Slapd] {
        if kind.is_lacking() {
            continue;
        }
        let member = member(kind, "");
        member.change(TREE);
        // What was deleted before is not part of it.
        member.change("delete uid=old,ou=sales,dc=example,dc=com");
        let before = content(&member);
        let sales = "ou=sales,dc=example,dc=com";
        let deletes: Vec<String> = match kind {
            Kind::Larix => vec![format!("delete {sales} with !treeDelete")],
            Kind::Slapd => ["uid=bo,ou=north,", "ou=north,", "uid=ann,", ""]
                .iter()
                .map(|name| format!("delete {name}{sales}"))
                .collect(),
        };
        member.change(&deletes.join("\n\n"));
        assert_eq!(content(&member).len(), 1);

        let json = done(&member, &["list", "--json", "--below", sales]);
        let found: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let names: Vec<&str> = found.iter().map(|one| one["dn"].as_str().unwrap()).collect();
        assert_eq!(
            (names.len(), names[0], names[4]),
            (5, "uid=old,ou=sales,dc=example,dc=com", sales),
            "{json}"
        );
        let since = found[1]["reqStart"].as_str().unwrap();

        // One by one a subordinate finds no superior, and is told of it.
        let error = refused(&member, &["restore", "uid=bo,ou=north,ou=sales,dc=example,dc=com"]);
        assert!(error.contains("the entry above it is missing: restore that, too"), "{error}");
        assert!(refused(&member, &["restore", "--below", sales]).contains("say since when"));
        // All or nothing: a name that is taken. slapd 2.5 ends now and then in a transaction.
        if kind == Kind::Larix {
            member.change("add ou=sales,dc=example,dc=com\nobjectClass: organizationalUnit\nou: sales");
            let error = refused(&member, &["restore", "--below", sales, "--since", since]);
            assert!(
                error.contains("nothing was restored") && error.contains("another entry has the name"),
                "{error}"
            );
            assert_eq!(content(&member).len(), 2);
            member.change(&format!("delete {sales}"));
        }

        // What was made there since is the last of its name: the four of the tree are left.
        let until = found[4]["reqStart"].as_str().unwrap();
        let mut words = vec!["restore", "--below", sales, "--since", since, "--until", until];
        words.extend((kind == Kind::Slapd).then_some("--one-by-one"));
        let restored = done(&member, &words);
        assert_eq!(restored.lines().count(), 4, "{restored}");
        assert_eq!(restored.lines().next(), Some("restored ou=sales,dc=example,dc=com"));
        assert_same(&member, &before);
    }
}

#[test]
fn memberships_come_back_when_asked_for() {
    let member = member(Kind::Larix, "overlay memberof\noverlay refint\nrefint_attributes member");
    member.change(TREE);
    let (ann, group) = ("uid=ann,ou=sales,dc=example,dc=com", "cn=staff,dc=example,dc=com");
    member.change(&format!(
        "add {group}\nobjectClass: groupOfNames\ncn: staff\nmember: {ann}\nmember: uid=old,ou=sales,{SUFFIX}"
    ));
    let before = content(&member);
    assert!(before[ann].contains_key("memberof"));
    member.change(&format!("delete {ann}"));
    assert_eq!(content(&member)[group]["member"].len(), 1);
    // One record for one delete: what followed from it in the group is another entry's.
    assert_eq!(done(&member, &["list"]).lines().count(), 1);
    let report = done(&member, &["restore", ann, "--memberships", "member"]);
    assert_eq!(report, format!("restored {ann}\nadded {ann} to {group}\n"));
    assert_same(&member, &before);

    member.change(&format!("delete {ann}\n\ndelete {group}"));
    let error = refused(&member, &["restore", ann, "--memberships", "member"]);
    assert!(error.contains("the group is gone"), "{error}");
    assert!(!content(&member).contains_key(ann), "nothing of it is done");
    done(&member, &["restore", group, ann, "--memberships", "member"]);
    assert_same(&member, &before);
}

#[test]
fn managed_entries_come_back_with_their_origins() {
    let people = "ou=sales,dc=example,dc=com";
    let member = member(
        Kind::Larix,
        &format!("overlay mep\nmep-definition g {people} (objectClass=posixAccount) {SUFFIX} cn=t,{SUFFIX}"),
    );
    member.change(TREE);
    let (ann, group) = (format!("uid=a,{people}"), format!("cn=a,{SUFFIX}"));
    member.change(&format!(
        "add cn=t,{SUFFIX}\nobjectClass: device\nobjectClass: mepTemplateEntry\ncn: t\nmepRDNAttr: cn\n\
         mepStaticAttr: objectClass: posixGroup\nmepMappedAttr: cn: $uid\nmepMappedAttr: gidNumber: $gidNumber\n\n\
         add {ann}\nobjectClass: account\nobjectClass: posixAccount\nuid: a\ncn: A\nuidNumber: 1\ngidNumber: 2\nhomeDirectory: /"
    ));
    let before = content(&member);
    assert!(before.contains_key(&group));
    member.change(&format!("delete {ann}"));
    assert!(!content(&member).contains_key(&group));
    // Both have records, and both are themselves again.
    let report = done(&member, &["restore", &ann, &group]);
    assert_eq!(report, format!("restored {group}\nrestored {ann}\n"));
    assert_same(&member, &before);
    // Without its own record the managed entry is made anew.
    member.change(&format!("delete {ann}"));
    done(&member, &["restore", &ann]);
    let content = content(&member);
    assert_ne!(content[&group]["entryuuid"], before[&group]["entryuuid"]);
    assert_eq!(content[&group]["gidnumber"], before[&group]["gidnumber"]);
}

#[test]
fn rights_are_those_of_the_log_and_of_the_directory() {
    let member = member(Kind::Larix, "");
    member.change(TREE);
    let (auditor, ann) = ("cn=auditor,dc=example,dc=com", "uid=ann,ou=sales,dc=example,dc=com");
    member.change(&format!(
        "add {auditor}\nobjectClass: person\ncn: auditor\nsn: x\nuserPassword: pw\n\ndelete {ann}"
    ));
    let stderr = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    // Who may read the log sees what was deleted, and cannot bring it back by that.
    let output = as_somebody(&member, auditor, "pw", &["list"]);
    assert!(output.status.success() && !output.stdout.is_empty(), "{}", stderr(&output));
    let output = as_somebody(&member, auditor, "pw", &["restore", ann]);
    assert!(stderr(&output).contains("restoring takes the rights to add the entry"), "{}", stderr(&output));
    assert!(!content(&member).contains_key(ann));
    // Others see nothing.
    member.change(&format!("add cn=x,{SUFFIX}\nobjectClass: person\ncn: x\nsn: x\nuserPassword: pw"));
    let output = as_somebody(&member, "cn=x,dc=example,dc=com", "pw", &["list", "-b", LOG]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(stderr(&output).contains("is not there, or you may not see it"), "{}", stderr(&output));

    // A new entry in its place, and another name.
    let (uuid, new) = ("entryuuid", "uid=ann2,ou=sales,dc=example,dc=com");
    done(&member, &["restore", "--plain", "--without", "mail", ann]);
    let entry = content(&member)[ann].clone();
    assert!(!entry.contains_key("mail") && entry.contains_key("userpassword"));
    let shown = done(&member, &["show", ann]);
    assert!(!shown.contains(&String::from_utf8_lossy(&entry[uuid][0]).into_owned()), "{shown}");
    let error = refused(&member, &["restore", ann]);
    assert!(error.contains("another entry has the name"), "{error}");
    assert_eq!(done(&member, &["restore", ann, "--as", new]), format!("restored {new}\n"));
    let entry = &content(&member)[new];
    assert!(shown.contains(&String::from_utf8_lossy(&entry[uuid][0]).into_owned()), "{shown}");
    assert_eq!(entry["uid"].len(), 2);
}

#[test]
fn a_server_without_a_log_is_told_of() {
    let member = Member::new(Kind::Larix, "", "").started();
    member.change(TREE);
    let error = refused(&member, &["list"]);
    assert!(error.contains("the server names no access log to you"), "{error}");
    for (words, expected) in [
        (&["restore"][..], "name entries, or all below one with --below"),
        (&["show", "nothing"], "nothing: neither a DN, nor an entryUUID, nor a reqStart"),
        (&["list", "--since", "soon", "-b", SUFFIX], "--since soon: not a time"),
        (&["show", "uid=ann,dc=x", "-b", "dc=example,dc=com"], "no record of a delete of uid=ann,dc=x"),
        (&["show", "uid=ann,dc=x", "-b", "dc=example,dc=com"], "`logpurge` has taken it away"),
    ] {
        let error = refused(&member, words);
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[test]
fn every_replica_keeps_what_is_deleted() {
    let replica = |provider: Option<&Member>| {
        let follow = provider.map(|provider| {
            format!(
                "syncrepl rid=001 provider={} bindmethod=simple binddn={ADMIN} credentials=secret searchbase={SUFFIX} \
                 type=refreshAndPersist retry=\"1 +\"",
                provider.url()
            )
        });
        member(Kind::Larix, &follow.unwrap_or_else(|| "overlay syncprov".to_owned()))
    };
    let provider = replica(None);
    provider.change(TREE);
    let consumer = replica(Some(&provider));
    consumer.wait_until_like(&provider);
    let before = content(&provider);
    let ann = "uid=ann,ou=sales,dc=example,dc=com";
    provider.change(&format!("delete {ann}"));
    consumer.wait_until_like(&provider);
    let shown = done(&consumer, &["show", ann]);
    assert!(shown.contains("mail: ann@example.com\n") && shown.contains("userPassword"), "{shown}");
    done(&provider, &["restore", ann]);
    consumer.wait_until_like(&provider);
    assert_same(&consumer, &before);
}

/// The other members know of the delete: they have to tell the entry that comes back from a change of the deleted one.
#[test]
fn what_is_restored_stays_where_several_servers_take_changes() {
    for mode in ["entry", "value"] {
        let ports = free_ports(2);
        let [one, two] = [0, 1].map(|own: usize| {
            let other = ports[1 - own];
            let lines = format!(
                "syncrepl rid=001 provider=ldap://127.0.0.1:{other} bindmethod=simple binddn={ADMIN} credentials=secret \
                 searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\"\nmultiprovider on\nconflict-mode {mode}\n\
                 overlay syncprov"
            );
            member_at(Kind::Larix, ports[own], own + 1, &lines)
        });
        one.change(TREE);
        two.wait_until_like(&one);
        let sales = "ou=sales,dc=example,dc=com";
        one.change(&format!(
            "delete uid=bo,ou=north,{sales}\n\ndelete ou=north,{sales}\n\ndelete uid=old,{sales}\n\ndelete uid=ann,{sales}\n\n\
             delete {sales}"
        ));
        two.wait_until_like(&one);
        // The log follows the changes.
        until("all are listed", || done(&two, &["list"]).lines().count() == 5);
        done(&two, &["restore", "--below", sales, "--since", "1h"]);
        one.wait_for("what was restored", |content| content.len() == 6);
        // The delete does not come back from there either.
        two.change("modify uid=ann,ou=sales,dc=example,dc=com\nreplace sn: Other");
        one.wait_until_like(&two);
        assert_eq!(content(&two).len(), 6, "{mode}");
    }
}

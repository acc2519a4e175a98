//! `database changelog`: cn=changelog shows the change log of a database.

use larix_testkit::{Kind, Server, Site, until_some};
use larix_tests::client::Client;
use larix_tests::replicas::ask;

const SUFFIX: &str = "dc=example,dc=com";

/// A server with three people, more lines for their database, and rules of cn=changelog.
fn site(database: &str, changelog: &str) -> Site {
    let text = format!(
        "database mdb\nsuffix {SUFFIX}\nrootdn cn=root,{SUFFIX}\nrootpw secret\ndirectory @DATA@\n{database}\
         access to attrs=userPassword by dn.exact=cn=sync,{SUFFIX} read by anonymous auth by * none\n\
         access to * by * read\n\n\
         database changelog\nrootdn cn=root,{SUFFIX}\n{changelog}"
    );
    let site = Site::new(Kind::Larix, &text);
    let person = |name: &str| {
        format!("dn: cn={name},{SUFFIX}\nobjectClass: person\ncn: {name}\nsn: x\nuserPassword: pw\n\n")
    };
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n{}{}{}",
        person("sync"),
        person("reader"),
        person("other"),
    ));
    site
}

fn bound(server: &Server, name: &str) -> Client {
    let mut client = Client::connect(server.address);
    let password = if name == "root" { "secret" } else { "pw" };
    assert_eq!(ask(&mut client, &format!("as cn={name},{SUFFIX} {password}")), "=> 0\n");
    client
}

/// The numbers of the first and the last change, as the root DSE has them.
fn numbers(client: &mut Client) -> (u64, u64) {
    let shown = ask(client, "search \"\" base (objectClass=*) firstChangeNumber lastChangeNumber");
    let number = |name: &str| {
        let line = shown.lines().find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|text| text.trim_start_matches(':').trim().parse().ok())
            .unwrap_or_else(|| panic!("{shown}"))
    };
    (number("firstChangeNumber"), number("lastChangeNumber"))
}

const RULES: &str =
    "access to * by dn.exact=cn=sync,dc=example,dc=com read by dn.exact=cn=reader,dc=example,dc=com read\n";

const NEW: &str = r#"add "cn=new,dc=example,dc=com"
  objectClass: person
  cn: new
  sn: n
  userPassword: geheim"#;
const ENTRY: &str = "cn=new,dc=example,dc=com";

/// One change of each kind, and one of a password.
fn change(client: &mut Client) {
    for request in [
        NEW.to_owned(),
        format!("modify \"{ENTRY}\"\n  replace sn: m\n  add telephoneNumber: 1\n  delete telephoneNumber"),
        format!("modify \"{ENTRY}\"\n  replace userPassword: anders"),
        format!("modrdn \"{ENTRY}\" cn=newer delete"),
        format!("delete \"cn=newer,{SUFFIX}\""),
    ] {
        assert_eq!(ask(client, &request), "=> 0\n", "{request}");
    }
}

/// The entries that a search finds, by their numbers, and its result.
fn found(client: &mut Client, base: &str, scope: &str, filter: &str, rest: &str) -> String {
    let shown = ask(client, &format!("search \"{base}\" {scope} {filter} 1.1 inorder {rest}"));
    let short = |line: &str| {
        let line = line.trim().trim_start_matches("-> ").trim_end_matches(",cn=changelog");
        line.trim_start_matches("changeNumber=").to_owned()
    };
    shown.lines().map(short).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The LDIF of one change.
fn changes(client: &mut Client, number: u64) -> String {
    let shown =
        ask(client, &format!("search \"changeNumber={number},cn=changelog\" base (objectClass=*) changes"));
    let value = shown.lines().find_map(|line| line.trim().strip_prefix("changes: ")).unwrap_or_default();
    // The client shows values that are no single line in hexadecimal.
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap_or_else(|_| panic!("{value}"));
    String::from_utf8(value.split('\\').filter(|hex| !hex.is_empty()).map(byte).collect()).unwrap()
}

#[test]
fn changes_appear_with_their_ldif() {
    let site = site("", RULES);
    let server = site.start().unwrap();
    let mut root = bound(&server, "root");
    assert_eq!(numbers(&mut root), (0, 0));
    change(&mut root);
    assert_eq!(numbers(&mut root), (1, 5));
    let mut shown = |number: u64, names: &str| {
        ask(&mut root, &format!("search \"changeNumber={number},cn=changelog\" base (objectClass=*) {names}"))
    };
    let entry = |number: u64, lines: &[&str]| {
        let lines: String = lines.iter().map(|line| format!("   {line}\n")).collect();
        format!("-> changeNumber={number},cn=changelog\n{lines}=> 0\n")
    };
    let names =
        "objectClass changeNumber targetDN changeType newRDN deleteOldRDN newSuperior changeInitiatorsName";
    for (number, kind, target, more) in [
        (1, "add", "new", &[][..]),
        (2, "modify", "new", &[]),
        (3, "modify", "new", &[]),
        (4, "modrdn", "new", &["deleteOldRDN: TRUE", "newRDN: cn=newer"]),
        (5, "delete", "newer", &[]),
    ] {
        let (number_line, kind) = (format!("changeNumber: {number}"), format!("changeType: {kind}"));
        let target = format!("targetDN: cn={target},{SUFFIX}");
        let mut lines = vec!["changeInitiatorsName: cn=root,dc=example,dc=com", &number_line, &kind];
        lines.extend(more);
        lines.extend(["objectClass: top", "objectClass: changeLogEntry", &target]);
        lines.sort_by_key(|line| line.split(':').next().map(str::to_ascii_lowercase));
        assert_eq!(shown(number, names), entry(number, &lines), "{number}");
    }
    let (first, second) = (shown(1, "targetUniqueId"), shown(5, "targetUniqueId"));
    assert!(first.contains("targetUniqueId: "), "{first}");
    assert_eq!(first.replace("=1,", "=5,"), second);
    let added = changes(&mut root, 1);
    assert!(added.starts_with("objectClass: person\ncn: new\nsn: n\nuserPassword:: Z2VoZWlt\n"), "{added}");
    assert!(added.contains("\ncreatorsName: cn=root,dc=example,dc=com\n"), "{added}");
    let modified = changes(&mut root, 2);
    let expected =
        "replace: sn\nsn: m\n-\nadd: telephoneNumber\ntelephoneNumber: 1\n-\ndelete: telephoneNumber\n-\n";
    assert!(modified.starts_with(expected), "{modified}");
    assert_eq!(changes(&mut root, 5), "");
    // What comes now has the next number.
    assert_eq!(ask(&mut root, NEW), "=> 0\n");
    assert_eq!(found(&mut root, "cn=changelog", "one", "(changeNumber>=6)", ""), "6 => 0");
    let refused = ask(&mut root, "delete \"changeNumber=2,cn=changelog\"");
    assert!(refused.starts_with("=> 53 "), "{refused}");
}

#[test]
fn ranges_pages_and_limits() {
    let site = site("", RULES);
    let server = site.start().unwrap();
    change(&mut bound(&server, "root"));
    let mut reader = bound(&server, "reader");
    let top = "cn=changelog";
    for (base, scope, filter, rest, expected) in [
        (top, "sub", "(objectClass=*)", "", "cn=changelog 1 2 3 4 5 => 0"),
        (top, "one", "(objectClass=*)", "", "1 2 3 4 5 => 0"),
        (top, "children", "(objectClass=*)", "", "1 2 3 4 5 => 0"),
        (top, "base", "(objectClass=*)", "", "cn=changelog => 0"),
        (top, "base", "(hasSubordinates=TRUE)", "", "cn=changelog => 0"),
        (top, "sub", "(cn=changelog)", "", "cn=changelog => 0"),
        (top, "one", "(changeNumber>=4)", "", "4 5 => 0"),
        (top, "one", "(changeNumber<=2)", "", "1 2 => 0"),
        (top, "one", "(changeNumber=3)", "", "3 => 0"),
        (top, "one", "(changeNumber=9)", "", "=> 0"),
        (top, "one", "(changeNumber>=-5)", "", "1 2 3 4 5 => 0"),
        (top, "one", "(changeNumber>=99999999999999999999999999)", "", "=> 0"),
        (top, "one", "(changeNumber<=99999999999999999999999999)", "", "1 2 3 4 5 => 0"),
        (top, "one", "(changeNumber<=-1)", "", "=> 0"),
        (top, "one", "(changeNumber>=x)", "", "=> 0"),
        (top, "one", "(&(changeNumber>=2)(changeNumber<=3))", "", "2 3 => 0"),
        (top, "one", "(|(changeNumber=1)(changeNumber>=5)(changeNumber=x))", "", "1 5 => 0"),
        (top, "one", "(!(changeNumber>=3))", "", "1 2 => 0"),
        (top, "one", "(&(changeNumber>=2)(changeType=modify))", "", "2 3 => 0"),
        (top, "one", "(targetDN=cn=newer,dc=example,dc=com)", "", "5 => 0"),
        (top, "one", "(changeNumber>=2)", "size=2", "2 3 => 4"),
        ("changeNumber=3,cn=changelog", "sub", "(objectClass=*)", "", "3 => 0"),
        ("changeNumber=3,cn=changelog", "one", "(objectClass=*)", "", "=> 0"),
        ("changeNumber=9,cn=changelog", "base", "(objectClass=*)", "", "=> 32 matched \"cn=changelog\""),
        ("cn=x,changeNumber=3,cn=changelog", "base", "(objectClass=*)", "", "=> 32 matched \"changeNumber=3"),
        (top, "one", "(changeNumber>=2)", "with page=2", "2 3 => 0 page: more"),
        (top, "one", "(changeNumber>=2)", "with next=2", "4 5 => 0 page: the last"),
    ] {
        let answer = found(&mut reader, base, scope, filter, rest);
        assert!(
            answer == expected || (expected.contains("matched") && answer.starts_with(expected)),
            "{base} {scope} {filter} {rest}: {answer}"
        );
    }
    for (value, expected) in [("modify", "=> 6\n"), ("add", "=> 5\n")] {
        let request = format!("compare \"changeNumber=2,cn=changelog\" changeType:{value}");
        assert_eq!(ask(&mut reader, &request), expected, "{value}");
    }
}

#[test]
fn who_may_see_what() {
    let opened = site("", RULES);
    let server = opened.start().unwrap();
    change(&mut bound(&server, "root"));
    // Both may read cn=changelog; sync may read passwords in the directory, too.
    let (mut sync, mut reader) = (bound(&server, "sync"), bound(&server, "reader"));
    assert!(changes(&mut sync, 1).contains("userPassword:: Z2VoZWlt\n"));
    assert!(changes(&mut sync, 3).contains("replace: userPassword\nuserPassword:: YW5kZXJz\n-\n"));
    let (added, modified) = (changes(&mut reader, 1), changes(&mut reader, 3));
    assert!(added.contains("sn: n\n") && !added.contains("userPassword"), "{added}");
    assert!(
        modified.contains("replace: modifiersName\n") && !modified.contains("userPassword"),
        "{modified}"
    );
    // No rule names them.
    let (mut other, mut nobody) = (bound(&server, "other"), Client::connect(server.address));
    for client in [&mut other, &mut nobody] {
        for (base, scope) in [
            ("cn=changelog", "sub"),
            ("cn=changelog", "base"),
            ("changeNumber=1,cn=changelog", "base"),
            ("changeNumber=99,cn=changelog", "base"),
        ] {
            assert_eq!(found(client, base, scope, "(objectClass=*)", ""), "=> 32", "{base} {scope}");
        }
        assert_eq!(ask(client, "compare \"changeNumber=1,cn=changelog\" changeType:add"), "=> 32\n");
    }
    drop(server);
    // Without rules nobody but the root DN.
    let closed = site("", "");
    let server = closed.start().unwrap();
    change(&mut bound(&server, "root"));
    assert_eq!(found(&mut bound(&server, "sync"), "cn=changelog", "sub", "(objectClass=*)", ""), "=> 32");
    let root = found(&mut bound(&server, "root"), "cn=changelog", "one", "(objectClass=*)", "");
    assert_eq!(root, "1 2 3 4 5 => 0");
}

#[test]
fn trimming_moves_the_first_number() {
    let site = site("change-log size=1m\n", "");
    let server = site.start().unwrap();
    let mut root = bound(&server, "root");
    assert_eq!(ask(&mut root, NEW), "=> 0\n");
    let long = "x".repeat(4000);
    for number in 0..600 {
        let request = format!("modify \"{ENTRY}\"\n  replace sn: {number}{long}");
        assert_eq!(ask(&mut root, &request), "=> 0\n");
    }
    // The server may remove more when it has nothing else to do, so it must not have done so meanwhile.
    let ((first, last), shown, gone, all) = until_some("a look while nothing is removed", || {
        let before = numbers(&mut root);
        let (first, last) = before;
        assert!(first > 1 && last == 601, "{first} {last}");
        let mut find = |base: &str, scope, filter: &str| found(&mut root, base, scope, filter, "");
        let shown = find("cn=changelog", "one", &format!("(changeNumber<={})", first + 1));
        let gone = find(&format!("changeNumber={},cn=changelog", first - 1), "base", "(objectClass=*)");
        // Several slices.
        let all = find("cn=changelog", "one", "(objectClass=*)");
        (numbers(&mut root) == before).then_some((before, shown, gone, all))
    });
    assert_eq!(shown, format!("{first} {} => 0", first + 1));
    assert_eq!(gone, "=> 32 matched \"cn=changelog\"");
    let expected: Vec<String> = (first..=last).map(|number| number.to_string()).collect();
    assert_eq!(all, format!("{} => 0", expected.join(" ")));
}

/// The database comes and goes under cn=config while the server serves, and so does an overlay whose changes are its change log's.
#[test]
fn it_is_configured_while_the_server_serves() {
    let text = format!(
        "database config\nrootdn cn=root,{SUFFIX}\n\
         database mdb\nsuffix {SUFFIX}\nrootdn cn=root,{SUFFIX}\nrootpw secret\ndirectory @DATA@\n"
    );
    let site = Site::new(Kind::Larix, &text);
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: ou=groups,{SUFFIX}\nobjectClass: organizationalUnit\nou: groups\n"
    ));
    let server = site.start().unwrap();
    let mut root = bound(&server, "root");
    assert!(found(&mut root, "cn=changelog", "base", "(objectClass=*)", "").ends_with("=> 32"));
    let mut ask = |request: &str| assert_eq!(ask(&mut root, request), "=> 0\n", "{request}");
    ask(&format!(
        "add \"olcDatabase=changelog,cn=config\"\n  objectClass: olcDatabaseConfig\n  objectClass: olcLarixChangelogConfig\n  \
         olcDatabase: changelog\n  olcRootDN: cn=root,{SUFFIX}"
    ));
    // Managed entries, configured the same way, are changes as any other.
    ask(&format!(
        "add \"cn=template,{SUFFIX}\"\n  objectClass: device\n  objectClass: extensibleObject\n  cn: template"
    ));
    ask(&format!(
        "add \"olcOverlay=mep,olcDatabase={{1}}mdb,cn=config\"\n  objectClass: olcOverlayConfig\n  objectClass: olcLarixMepConfig\n  \
         olcOverlay: mep\n  \
         olcLarixMepDefinition: groups ou=people,{SUFFIX} (objectClass=posixAccount) ou=groups,{SUFFIX} cn=template,{SUFFIX}"
    ));
    ask(&format!(
        "modify \"cn=template,{SUFFIX}\"\n  replace objectClass: device | mepTemplateEntry\n  add mepRDNAttr: cn\n  \
         add mepStaticAttr: objectClass: posixGroup\n  add mepMappedAttr: cn: $uid | gidNumber: $gidNumber"
    ));
    ask(&format!(
        "add \"uid=ann,ou=people,{SUFFIX}\"\n  objectClass: account\n  objectClass: posixAccount\n  uid: ann\n  cn: ann\n  \
         uidNumber: 7\n  gidNumber: 7\n  homeDirectory: /home/ann"
    ));
    let group = found(&mut root, &format!("cn=ann,ou=groups,{SUFFIX}"), "base", "(gidNumber=7)", "");
    assert_eq!(group, format!("cn=ann,ou=groups,{SUFFIX} => 0"));
    let managed = format!("(targetDN=cn=ann,ou=groups,{SUFFIX})");
    let added = found(&mut root, "cn=changelog", "one", &managed, "");
    assert!(added.ends_with(" => 0") && !added.starts_with("=>"), "{added}");

    // Entries have its definitions. A module keeps those.
    let overlay = "delete \"olcOverlay={0}mep,olcDatabase={1}mdb,cn=config\"";
    let refused = larix_tests::replicas::ask(&mut root, overlay);
    assert!(refused.starts_with("=> 53") && refused.contains("it comes with overlay mep"), "{refused}");
    // Without either the entries stay, and nobody keeps them in step.
    let mut ask =
        |request: &str| assert_eq!(larix_tests::replicas::ask(&mut root, request), "=> 0\n", "{request}");
    ask("add \"cn=module,cn=config\"\n  objectClass: olcModuleList\n  cn: module\n  olcModuleLoad: mep");
    ask(overlay);
    ask("delete \"olcDatabase={2}changelog,cn=config\"");
    ask(&format!("delete \"uid=ann,ou=people,{SUFFIX}\""));
    let group = found(&mut root, &format!("cn=ann,ou=groups,{SUFFIX}"), "base", "(gidNumber=7)", "");
    assert_eq!(group, format!("cn=ann,ou=groups,{SUFFIX} => 0"));
    assert!(found(&mut root, "cn=changelog", "base", "(objectClass=*)", "").ends_with("=> 32"));
    assert!(server.stop());
}

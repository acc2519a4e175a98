//! `overlay lastmod`: an entry that tells the last change of its database.

use larix_testkit::{Kind, Site};
use larix_tests::client::{Client, run};

const SUFFIX: &str = "dc=example,dc=com";
const OWN: &str = "cn=Last Modification,dc=example,dc=com";

const BODY: &str = "database mdb\nsuffix dc=example,dc=com\nrootdn cn=root,dc=example,dc=com\nrootpw secret\ndirectory @DATA@\n\
    overlay usn\noverlay lastmod\nlastmod-rdnvalue \"Last Modification\"\n\
    access to attrs=userPassword by anonymous auth by * none\n\
    access to dn.regex=\"^(.+,)?cn=(last modification|none),dc=example,dc=com$\" by dn.exact=cn=cid,dc=example,dc=com none by * break\n\
    access to attrs=lastmodEnabled by dn.exact=cn=ann,dc=example,dc=com write by * read\n\
    access to * by dn.exact=cn=ann,dc=example,dc=com write by * read\n";

const ENTRIES: &str = "dn: dc=example,dc=com\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
    dn: cn=ann,dc=example,dc=com\nobjectClass: person\ncn: ann\nsn: a\nuserPassword: pw\n\n\
    dn: cn=bob,dc=example,dc=com\nobjectClass: person\ncn: bob\nsn: b\nuserPassword: pw\n\n\
    dn: cn=cid,dc=example,dc=com\nobjectClass: person\ncn: cid\nsn: c\nuserPassword: pw\n";

/// What the entry tells: type, DN, and who changed it.
fn last_change(client: &mut Client) -> String {
    let answer = run(
        client,
        &format!("search \"{OWN}\" base (objectClass=lastmod) lastmodType lastmodDN modifiersName"),
    );
    let value = |name: &str| {
        let lines = answer.lines().map(str::trim);
        lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect::<String>()
    };
    format!("{} {} {}", value("lastmodType"), value("lastmodDN"), value("modifiersName"))
}

#[test]
fn the_last_change_is_told() {
    let site = Site::new(Kind::Larix, BODY);
    site.load(ENTRIES);
    let server = site.start().unwrap();
    let mut client = Client::connect(server.address);
    let ask = |client: &mut Client, request: &str| run(client, request);
    assert_eq!(last_change(&mut client), format!("add {OWN} "), "nothing was changed");
    assert!(ask(&mut client, "as cn=ann,dc=example,dc=com pw").starts_with("=> 0"));
    // Each: a change, and what is told behind it.
    let ann = "cn=ann,dc=example,dc=com";
    for (request, expected) in [
        (
            "add cn=new,dc=example,dc=com\n  objectClass: person\n  cn: new\n  sn: n",
            format!("add cn=new,{SUFFIX} {ann}"),
        ),
        ("modify cn=new,dc=example,dc=com\n  replace sn: m", format!("modify cn=new,{SUFFIX} {ann}")),
        ("modrdn cn=new,dc=example,dc=com cn=old delete", format!("modrdn cn=old,{SUFFIX} {ann}")),
        ("delete cn=old,dc=example,dc=com", format!("delete cn=old,{SUFFIX} {ann}")),
        // What fails is no change.
        ("delete cn=old,dc=example,dc=com", format!("delete cn=old,{SUFFIX} {ann}")),
    ] {
        let answer = ask(&mut client, request);
        assert_eq!(last_change(&mut client), expected, "{request}: {answer}");
    }
    let before = last_change(&mut client);
    let set = |value: &str| format!("modify \"{OWN}\"\n  replace lastmodEnabled: {value}");
    let touch = "modify cn=ann,dc=example,dc=com\n  replace sn: b";
    for (request, code) in [(set("maybe"), "=> 21"), (set("FALSE"), "=> 0"), (touch.to_owned(), "=> 0")] {
        assert!(ask(&mut client, &request).contains(code), "{request}");
        assert_eq!(last_change(&mut client), before, "{request}");
    }
    // Enabled again it tells the next change.
    assert!(ask(&mut client, &set("TRUE")).starts_with("=> 0"));
    assert_eq!(last_change(&mut client), before);
    ask(&mut client, touch);
    assert_eq!(last_change(&mut client), format!("modify {ann} {ann}"));

    for (request, expected) in [
        (format!("compare \"{OWN}\" lastmodType:modify"), "=> 6"),
        (format!("compare \"{OWN}\" lastmodType:add"), "=> 5"),
        (format!("search \"{OWN}\" base (lastmodType=delete)"), "=> 0"),
        (format!("search \"{OWN}\" sub (objectClass=*)"), "=> 53"),
        (format!("delete \"{OWN}\""), "=> 53"),
        (format!("modify \"{OWN}\"\n  replace description: mine"), "=> 53"),
        // Searches of the tree do not find it.
        (format!("search {SUFFIX} sub (objectClass=lastmod)"), "=> 0"),
    ] {
        let answer = ask(&mut client, &request);
        assert!(answer.starts_with(expected), "{request}: {answer}");
    }
    let mut other = Client::connect(server.address);
    assert!(ask(&mut other, "as cn=bob,dc=example,dc=com pw").starts_with("=> 0"));
    assert!(ask(&mut other, &set("FALSE")).starts_with("=> 50"), "not everybody may");

    // To a client that may not see it, it is as a name that is not there, and that the same rule hides.
    assert!(ask(&mut other, "as cn=cid,dc=example,dc=com pw").starts_with("=> 0"));
    let none = "cn=none,dc=example,dc=com";
    for request in [
        "search \"@\" base (objectClass=*)",
        "search \"@\" sub (objectClass=*)",
        "search \"cn=x,@\" base (objectClass=*)",
        "compare \"@\" lastmodType:modify",
        "modify \"@\"\n  replace lastmodEnabled: FALSE",
        "modify \"@\"\n  replace description: mine",
        "delete \"@\"",
        "modrdn \"@\" cn=b delete",
        "add \"@\"\n  objectClass: person\n  cn: new\n  sn: n",
    ] {
        let [own, none] = [OWN, none].map(|name| ask(&mut other, &request.replace('@', name)));
        assert_eq!(own.replace(OWN, "@"), none.replace("cn=none,dc=example,dc=com", "@"), "{request}");
        assert!(own.starts_with("=> 32") || own.starts_with("=> 50"), "{request}: {own}");
    }

    // A restart does not make it forget.
    assert!(server.stop());
    let server = site.start().unwrap();
    assert_eq!(last_change(&mut Client::connect(server.address)), format!("modify {ann} {ann}"));
}

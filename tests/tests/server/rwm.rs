//! `overlay rwm` and `database relay`: another server's or another database's names under names of one's own, beside slapd's overlay.

use std::net::SocketAddr;

use larix_testkit::{Kind, Site};
use larix_tests::client::{Client, run};
use larix_tests::running::Running;
use larix_tests::scenario;

const ENTRIES: &str = "dn: dc=real,dc=com
objectClass: organization
objectClass: dcObject
o: Real
dc: real

dn: ou=people,dc=real,dc=com
objectClass: organizationalUnit
ou: people

dn: uid=ann,ou=people,dc=real,dc=com
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: Archer
mail: ann@example.com
description: first
userPassword: annpw

dn: uid=bob,ou=people,dc=real,dc=com
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: Brewer
manager: uid=ann,ou=people,dc=real,dc=com
userPassword: bobpw

dn: cn=team,dc=real,dc=com
objectClass: groupOfNames
cn: team
member: uid=ann,ou=people,dc=real,dc=com

dn: ou=elsewhere,dc=real,dc=com
objectClass: referral
objectClass: extensibleObject
ou: elsewhere
ref: ldap://other.example.com/ou=elsewhere,dc=real,dc=com
";

const REAL: &str = "database mdb\nsuffix dc=real,dc=com\nrootdn cn=admin,dc=real,dc=com\nrootpw secret\ndirectory @DATA@\nindex uid eq\n\
    access to attrs=userPassword by self =xw by anonymous auth by * none\naccess to * by self write by * read\n";

/// A server that has the entries below `dc=real,dc=com`.
fn loaded(body: &str) -> Running {
    let site = Site::new(Kind::Larix, body);
    site.load_into(Some("dc=real,dc=com"), ENTRIES);
    Running::of(site)
}

/// The server that has the entries.
fn remote() -> Running {
    loaded(&format!("authz-policy to\n{REAL}"))
}

/// A database that a server has, under `o=view`.
fn over_ldap(kind: Kind, target: SocketAddr, more: &str) -> String {
    let modules = if kind == Kind::Slapd { "moduleload back_ldap\nmoduleload rwm\n" } else { "" };
    format!(
        "{modules}database ldap\nsuffix o=view\nuri ldap://{target}\nchase-referrals no\n{more}\noverlay rwm\n\
         rwm-suffixmassage o=view dc=real,dc=com\nrwm-map attribute title description\nrwm-map attribute uniqueMember member\n\
         rwm-map objectclass groupOfUniqueNames groupOfNames\n"
    )
}

/// Requests in the text of scenarios.
const REQUESTS: &str = "anonymous
search o=view sub (objectClass=*) 1.1 with manageDSAit
search o=view one (objectClass=*) 1.1
search uid=bob,ou=people,o=view base (objectClass=*) cn manager
search cn=team,o=view base (objectClass=*)
search uid=nobody,ou=people,o=view base (objectClass=*)
search o=view sub (title=first) title sn
search o=view sub (manager=uid=ann,ou=people,o=view) uid
search o=view sub (&(objectClass=groupOfUniqueNames)(uniqueMember=uid=ann,ou=people,o=view)) cn
search o=view sub (uid=*) uid with sort=-uid
compare uid=bob,ou=people,o=view manager:uid=ann,ou=people,o=view
compare uid=ann,ou=people,o=view title:second
compare uid=nobody,ou=people,o=view title:second
modify uid=ann,ou=people,o=view
  replace title: stolen
as uid=ann,ou=people,o=view wrong
as uid=ann,ou=people,o=view annpw
whoami
modify uid=ann,ou=people,o=view
  replace title: changed
  replace manager: uid=bob,ou=people,o=view
search uid=ann,ou=people,o=view base (objectClass=*) title manager
modify uid=bob,ou=people,o=view
  replace title: stolen
as cn=admin,o=view secret
add cn=crew,o=view
  objectClass: groupOfUniqueNames
  cn: crew
  uniqueMember: uid=bob,ou=people,o=view
search cn=crew,o=view base (objectClass=*)
modrdn cn=crew,o=view cn=staff delete ou=people,o=view
search o=view sub (cn=staff) uniqueMember
delete cn=staff,ou=people,o=view
delete cn=staff,ou=people,o=view
";

fn answers(front: SocketAddr) -> Vec<String> {
    let mut client = Client::connect(front);
    let steps = scenario::parse(REQUESTS);
    steps.iter().map(|step| format!("{}\n{}", step.request, client.run(step))).collect()
}

/// The same answers as those of slapd with its overlay in front of the same server.
#[test]
fn a_proxy_gives_other_names() {
    let ours = {
        let remote = remote();
        let front = Running::start(Kind::Larix, &over_ldap(Kind::Larix, remote.server.address, ""), "");
        let answers = answers(front.server.address);
        // slapd leaves controls as they are.
        let mut client = front.client();
        assert!(run(&mut client, "as cn=admin,o=view secret").contains("=> 0"));
        let changed = "modify cn=team,o=view with postread=uniqueMember,title\n  add title: x";
        let shown =
            "=> 0\n   after: cn=team,o=view\n   title: x\n   uniqueMember: uid=ann,ou=people,o=view\n";
        assert_eq!(run(&mut client, changed), shown);
        assert_eq!(run(&mut client, "delete cn=team,o=view with assert=(title=y)"), "=> 122\n");
        // The other server knows an identity that was bound here by the mapped name.
        let by = remote.client().value("uid=ann,ou=people,dc=real,dc=com", "modifiersName");
        assert_eq!(by.as_deref(), Some("uid=ann,ou=people,dc=real,dc=com"));
        let manager = remote.client().value("uid=ann,ou=people,dc=real,dc=com", "manager");
        assert_eq!(manager.as_deref(), Some("uid=bob,ou=people,dc=real,dc=com"));
        answers
    };
    if Kind::Slapd.is_lacking_module("back_ldap") {
        return;
    }
    let theirs = {
        let remote = remote();
        let front = Running::start(Kind::Slapd, &over_ldap(Kind::Slapd, remote.server.address, ""), "");
        answers(front.server.address)
    };
    // There a client that has bound is known by the name that the other server has for it, which may be somebody else's here.
    let is_whoami = |answer: &&String| answer.starts_with("whoami");
    assert!(ours.iter().find(is_whoami).is_some_and(|answer| answer.contains("dn:uid=ann,ou=people,o=view")));
    let differences: Vec<_> =
        ours.iter().zip(&theirs).filter(|(one, other)| !is_whoami(one) && one != other).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Access rules, limits and identities of a mapped database are about the names that clients see.
#[test]
fn rules_hold_for_the_names_in_front() {
    let remote = remote();
    let more = "idassert-bind bindmethod=simple binddn=cn=admin,dc=real,dc=com credentials=secret mode=none\nrootdn cn=root,o=view\n\
                rootpw secret\naccess to dn.base=uid=bob,ou=people,o=view by * none\naccess to attrs=mail \
                by dn.exact=uid=ann,ou=people,o=view read by * none\naccess to attrs=title by * none\naccess to * by * read";
    let front = Running::start(Kind::Larix, &over_ldap(Kind::Larix, remote.server.address, more), "");
    let mut client = front.client();
    let all = "search o=view sub (uid=*) uid mail title description";
    let found = run(&mut client, all);
    assert!(found.contains("uid=ann") && !found.contains("bob"), "{found}");
    assert!(!found.contains("mail") && !found.contains("first"), "{found}");
    assert!(run(&mut client, "as uid=ann,ou=people,o=view annpw").contains("=> 0"));
    assert!(run(&mut client, all).contains("ann@example.com"));
    assert!(run(&mut client, "as cn=root,o=view secret").contains("=> 0"));
    let found = run(&mut client, all);
    assert!(found.contains("uid=bob") && found.contains("title: first"), "{found}");
}

/// Names in front of all databases, before one is chosen.
#[test]
fn before_all_databases() {
    let body = format!("overlay rwm\nrwm-suffixmassage o=view dc=real,dc=com\n{REAL}");
    let server = loaded(&body);
    let mut client = server.client();
    let found = run(&mut client, "search o=view sub (manager=uid=ann,ou=people,o=view) manager");
    assert!(found.contains("-> uid=bob,ou=people,o=view\n   manager: uid=ann,ou=people,o=view"), "{found}");
    let dse = run(&mut client, "search \"\" base (objectClass=*) namingContexts");
    assert!(dse.contains("=> 0"), "{dse}");
    assert!(run(&mut client, "as uid=ann,ou=people,o=view annpw").contains("=> 0"));
    assert!(run(&mut client, "whoami").contains("dn:uid=ann,ou=people,dc=real,dc=com"));
    assert!(run(&mut client, "modify uid=ann,ou=people,o=view\n  replace sn: New").starts_with("=> 0"));
}

/// A view has rules of its own; those of the database behind hold, too.
#[test]
fn a_relay_has_rules_of_its_own() {
    let relay = "database relay\nsuffix o=View\nrelay dc=real,dc=com\noverlay rwm\nrwm-suffixmassage dc=real,dc=com\n\
                 access to dn.base=uid=bob,ou=people,o=View by * none\n\
                 access to attrs=sn by dn.exact=uid=ann,ou=people,dc=real,dc=com read by * none\naccess to * by * read\n";
    let server = loaded(&format!("{REAL}{relay}"));
    let mut client = server.client();
    let all = "search o=view sub (uid=*) sn userPassword";
    let found = run(&mut client, all);
    // The suffix is shown as it is configured.
    assert!(found.contains("uid=ann,ou=people,o=View") && !found.contains("uid=bob"), "{found}");
    assert!(!found.contains("Archer") && !found.contains("userPassword"), "{found}");
    assert!(run(&mut client, "as uid=ann,ou=people,o=view annpw").contains("=> 0"));
    assert!(run(&mut client, "whoami").contains("dn:uid=ann,ou=people,dc=real,dc=com"));
    let found = run(&mut client, all);
    assert!(found.contains("sn: Archer") && !found.contains("annpw"), "{found}");
    // A change is the database's affair: it judges who asks.
    assert!(run(&mut client, "modify uid=ann,ou=people,o=view\n  replace sn: New").starts_with("=> 0"));
    assert!(run(&mut client, "modify uid=bob,ou=people,o=view\n  replace sn: New").starts_with("=> 50"));
    // A transaction is refused, and nothing of it made.
    let found = run(&mut client, "search uid=ann,ou=people,dc=real,dc=com base (objectClass=*) sn");
    assert!(found.contains("sn: New"), "{found}");
}

/// What the rules of a view hide is not counted either, wherever the overlay that counts is written.
#[test]
fn a_view_counts_what_its_rules_show() {
    let rules = "access to dn.base=uid=bob,ou=people,o=view by * none\naccess to * by * read\n";
    for overlays in [
        "overlay rwm\nrwm-suffixmassage dc=real,dc=com\noverlay noopsrch\n",
        "overlay noopsrch\noverlay rwm\nrwm-suffixmassage dc=real,dc=com\n",
    ] {
        let relay = format!("database relay\nsuffix o=view\nrelay dc=real,dc=com\n{rules}{overlays}");
        let server = loaded(&format!("{REAL}{relay}"));
        let mut client = server.client();
        for (filter, count) in [("(uid=*)", 1), ("(uid=bob)", 0), ("(uid=ann)", 1)] {
            let request = format!("search o=view sub {filter} 1.1 with !1.3.6.1.4.1.4203.666.5.18");
            let found = run(&mut client, &request);
            // The reference comes with every answer.
            assert!(found.contains(&format!("counted: 0 {count} 1\n")), "{overlays}{filter}: {found}");
        }
    }
}

/// Two views that lead to each other end; a name that no database has is not found.
#[test]
fn relays_in_circles_end() {
    let circle = |suffix: &str, other: &str| {
        format!("database relay\nsuffix {suffix}\nrelay {other}\noverlay rwm\nrwm-suffixmassage {other}\n")
    };
    let nowhere = "database relay\nsuffix o=nowhere\noverlay rwm\nrwm-suffixmassage o=gone\n";
    let body = format!("{}{}{nowhere}{REAL}", circle("o=one", "o=two"), circle("o=two", "o=one"));
    let server = loaded(&body);
    let mut client = server.client();
    assert!(run(&mut client, "as cn=admin,dc=real,dc=com secret").contains("=> 0"));
    for (request, code) in [
        ("delete cn=x,o=nowhere", 32),
        ("search o=one sub (objectClass=*)", 54),
        ("compare cn=x,o=one cn:x", 54),
        ("delete cn=x,o=two", 54),
        ("as cn=x,o=one secret", 54),
        ("search o=nowhere sub (objectClass=*)", 32),
        ("as cn=x,o=nowhere secret", 49),
    ] {
        let answer = run(&mut client, request);
        assert!(answer.starts_with(&format!("=> {code}")), "{request}: {answer}");
    }
}

/// The view of a view, and of a database with another one glued below it.
#[test]
fn views_of_views() {
    let body = "database mdb\nsuffix ou=glued,dc=real,dc=com\nsubordinate\nrootdn cn=admin,dc=real,dc=com\ndirectory @DATA@/glued\n\
         database mdb\nsuffix dc=real,dc=com\nrootdn cn=admin,dc=real,dc=com\nrootpw secret\ndirectory @DATA@/real\n\
         database relay\nsuffix o=one\nrelay dc=real,dc=com\noverlay rwm\nrwm-suffixmassage dc=real,dc=com\n\
         database relay\nsuffix o=two\nrelay o=one\noverlay rwm\nrwm-suffixmassage o=one\nrwm-map attribute title description\n";
    let server = loaded(body);
    let mut client = server.client();
    assert!(run(&mut client, "as cn=admin,dc=real,dc=com secret").contains("=> 0"));
    let add =
        "add ou=glued,dc=real,dc=com\n  objectClass: organizationalUnit\n  ou: glued\n  description: below";
    assert!(run(&mut client, add).starts_with("=> 0"));
    let found = run(&mut client, "search o=two sub (|(title=first)(title=below)) title");
    assert!(found.contains("-> uid=ann,ou=people,o=two") && found.contains("-> ou=glued,o=two"), "{found}");
    assert!(found.contains("title: first") && found.contains("=> 0"), "{found}");
}

/// cn=config changes the mapping while the server runs; what cannot be is refused.
#[test]
fn cn_config_changes_the_mapping() {
    let relay = "database relay\nsuffix o=view\nrelay dc=real,dc=com\noverlay rwm\nrwm-suffixmassage dc=real,dc=com\n";
    let server = loaded(&format!("database config\nrootpw secret\n{REAL}{relay}"));
    let (mut client, mut config) = (server.client(), server.client());
    assert!(run(&mut config, "as cn=config secret").starts_with("=> 0"));
    let overlay = "olcOverlay={0}rwm,olcDatabase={2}relay,cn=config";
    let shown = run(&mut config, &format!("search {overlay} base (objectClass=olcRwmConfig) olcRwmRewrite"));
    assert!(shown.contains("{0}rwm-suffixmassage \"dc=real,dc=com\""), "{shown}");
    let ask = "search o=view sub (title=first) title";
    assert!(!run(&mut client, ask).contains("first"));
    let changed =
        run(&mut config, &format!("modify {overlay}\n  add olcRwmMap: attribute title description"));
    assert!(changed.starts_with("=> 0"), "{changed}");
    assert!(run(&mut client, ask).contains("title: first"));
    for (change, text) in [
        ("add olcRwmMap: attribute title cn", "mapped already"),
        ("add olcRwmMap: syntax title cn", "neither attribute nor objectclass"),
        ("add olcRwmRewrite: rwm-rewriteMap ldap x ldap://h/", "kind `ldap`"),
        ("add olcRwmRewrite: rwm-rewriteRule ( x", "regular expression"),
        ("add olcRwmRewrite: rwm-rewriteRule a \"\\${>gone(x)}\"", "no context or map `gone`"),
        ("replace olcRwmTFSupport: discover", "not asked of it"),
    ] {
        let refused = run(&mut config, &format!("modify {overlay}\n  {change}"));
        assert!(!refused.starts_with("=> 0") && refused.contains(text), "{change}: {refused}");
    }
    let database = "olcDatabase={2}relay,cn=config";
    let refused = run(&mut config, &format!("modify {database}\n  replace olcRelay: o=nowhere"));
    assert!(refused.contains("no database of this server has that name"), "{refused}");
    let refused = run(&mut config, &format!("modify {database}\n  replace olcRelay: cn=x,o=view"));
    assert!(refused.contains("would ask itself"), "{refused}");
}

/// A map searches this server, and variables last as long as the connection.
#[test]
fn rules_with_maps_and_sessions() {
    let rules = "database relay\nsuffix o=view\noverlay rwm\nrwm-rewriteEngine on\n\
                 rwm-rewriteMap slapd byuid \"ldap:///dc=real,dc=com?entryDN?sub?(uid=\"\n\
                 rwm-rewriteContext bindDN\nrwm-rewriteRule \"^mail=([^,@]+)@[^,]*,o=view$\" \"${&&who($1)}${byuid($1))}\" \":@\"\n\
                 rwm-rewriteContext searchDN\nrwm-rewriteRule \"^cn=me,o=view$\" \"uid=${**who},ou=people,dc=real,dc=com\" \":@\"\n\
                 rwm-rewriteRule \"(.*)o=view$\" \"$1dc=real,dc=com\" \":@\"\n";
    let server = loaded(&format!("{REAL}{rules}"));
    let mut client = server.client();
    let me = "search cn=me,o=view base (objectClass=*) uid";
    assert!(run(&mut client, me).starts_with("=> 80"));
    assert!(run(&mut client, "as mail=ann@x,o=view wrong").starts_with("=> 49"));
    assert!(run(&mut client, "as mail=ann@x,o=view annpw").contains("=> 0"));
    assert!(run(&mut client, "whoami").contains("dn:uid=ann,ou=people,dc=real,dc=com"));
    let found = run(&mut client, me);
    assert!(found.contains("uid: ann"), "{found}");
    assert!(run(&mut server.client(), me).starts_with("=> 80"));
    assert!(run(&mut client, "as mail=nobody@x,o=view annpw").starts_with("=> 80"));
}

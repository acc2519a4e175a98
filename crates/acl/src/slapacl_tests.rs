//! The same rules, requesters and entries put to Debian's `slapacl`, where it is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::fixture::{ADMIN, ANN, BOB, Fixture, LDIF, STAFF};

use super::*;

const SLAPACL: &str = "/usr/sbin/slapacl";
const SLAPADD: &str = "/usr/sbin/slapadd";

const RULES: &[&str] = &[
    "",
    "access to * by * read",
    "access to attrs=userPassword by self write by anonymous auth by * none\naccess to * by self write by * read",
    "access to dn.subtree=ou=people,dc=example,dc=com by users read\naccess to * by dn.children=ou=people,dc=example,dc=com search",
    "access to dn.one=ou=people,dc=example,dc=com by self write by * compare\naccess to dn.base=ou=people,dc=example,dc=com by * read",
    "access to dn.children=ou=people,dc=example,dc=com attrs=entry,children by users write\naccess to dn.exact=\"\" by * read",
    "access to dn.regex=\"^(.+,)?uid=([^,]+),ou=people,dc=example,dc=com$\" by dn.regex=\"^uid=$2,ou=people,dc=example,dc=com$$\" write by * search",
    "access to dn.regex=\"^(.+,)?uid=([^,]+),ou=people,dc=example,dc=com$\" by dn.exact,expand=\"uid=$2,ou=people,dc=example,dc=com\" write by * search",
    "access to dn.subtree=ou=people,dc=example,dc=com by dn.subtree,expand=\"$1\" write by * none",
    "access to filter=(&(objectClass=inetOrgPerson)(uid=ann)) by users read\naccess to filter=(|(cn=staff)(uid=zoe)) attrs=cn by * read\naccess to * by * disclose",
    "access to attrs=@person by users read\naccess to attrs=!inetOrgPerson by * search",
    "access to attrs=-cn by * none\naccess to attrs=name by * read",
    "access to attrs=cn;lang-en by * compare\naccess to attrs=cn by * read",
    "access to attrs=@extensibleObject by users write",
    "access to attrs=title val=Engineer by users write\naccess to attrs=title val.regex=\"^en\" by * search\naccess to attrs=title by * read",
    "access to attrs=member val.children=ou=people,dc=example,dc=com by users write\naccess to * by * read",
    "access to attrs=member val.one=dc=example,dc=com by users write\naccess to attrs=member val.subtree=dc=example,dc=com by * search",
    "access to attrs=member by dnattr=member selfwrite by * read",
    "access to * by dnattr=manager write by dnattr=member read",
    "access to * by group.exact=\"cn=staff,dc=example,dc=com\" write by group/groupOfUniqueNames/uniqueMember=cn=staff,dc=example,dc=com read",
    "access to dn.regex=\"^[^,]+,(.*)$\" by group.expand=\"cn=staff,dc=example,dc=com\" write",
    "access to * by self.level{1} read by self.level{-1} write by * disclose",
    "access to * by dn.level{2}=dc=example,dc=com write by dn.one=ou=people,dc=example,dc=com read",
    "access to * by * =cs continue by users +r",
    "access to attrs=cn by * =cs break\naccess to dn.subtree=ou=people,dc=example,dc=com by * +r\naccess to * by * =x",
    "access to * by * =rscxd continue by users -rs continue by anonymous +w",
    "access to * by users +0 break by * read\naccess to attrs=cn by * write",
    "access to * by * read break",
    "access to * by users",
    "access to * by dn.exact=uid=bob,ou=people,dc=example,dc=com add by anonymous delete by * manage",
    "access to * by dn.exact=uid=bob,ou=people,dc=example,dc=com =a by anonymous =zr by * =m",
    "access to * by peername.ip=192.0.2.0%255.255.255.0 users read by peername.regex=^IP=192 compare",
    "access to * by peername.ip=192.0.2.7{4711} read by * none",
    "access to * by sockurl=ldap://:389/ sockname=IP=192.0.2.1:389 read",
    "access to * by sockname.regex=389$ search by sockurl.exact=ldapi:/// read",
    "access to * by ssf=56 users write by transport_ssf=57 read by ssf=1 search",
    "access to * by tls_ssf=1 read by sasl_ssf=1 write by * auth",
    "access to * by dn.subtree=dc=com write",
    "access to * by group/groupOfURLs/memberURL=\"cn=found,dc=example,dc=com\" write by users read",
    "access to * by set=\"this/manager & user\" write by set=\"this & user\" read by * search",
    "access to * by set=\"[cn=staff,dc=example,dc=com]/member & user\" write by * compare",
    "access to * by set=\"[cn=all,dc=example,dc=com]/member* & user\" write by * compare",
    "access to * by set=\"[cn=all,dc=example,dc=com]/member & user\" write by * auth",
    "access to * by set=\"user/sn & [b]\" write by set=\"user/sn & [B]\" read",
    "access to * by set=\"this/-1 & user/-1\" write by set=\"this/-* & user/-*\" read",
    "access to * by set=\"[uid=] + user/uid + [,ou=people,dc=example,dc=com] & user\" write by * none",
    "access to * by set=\"(this | [x]) & ([x] | user)\" write",
    "access to * by set=\"this/name\" write by set=\"this->cn\" read",
    "access to * by set=\"this/nosuch\" write by set=\"(this\" read by * search",
    "access to dn.regex=\"^(.*,)?uid=([^,]+),(.*)$\" by set.expand=\"[uid=$2,$3]/manager & user\" write by * read",
    "access to * by set=\"this/objectClass & [person]\" write by set=\"[y]\" read",
    "access to dn.subtree=\"\" by anonymous read by dn.regex=\"^uid=[ab]\" write",
];

const REQUESTERS: &[&str] = &["", ANN, BOB, ADMIN, STAFF];

const QUESTIONS: &[(&str, &[&str])] = &[
    (
        ANN,
        &[
            "entry/read",
            "entry/write",
            "children/add",
            "cn/search",
            "cn;lang-en/read",
            "sn/read",
            "uid/read",
            "title/write",
            "title/write=engineer",
            "title/search=engineer",
            "title/read=boss",
            "userPassword/auth",
            "userPassword/write",
            "cn/compare",
            "cn/disclose",
            "cn/manage",
            "entryUUID/write",
            "entryUUID/read",
            "objectClass/search",
        ],
    ),
    (BOB, &["entry/delete", "cn/read", "cn/write", "sn/compare", "userPassword/read", "manager/add"]),
    (
        STAFF,
        &[
            "entry/search",
            "children/write",
            "cn/read",
            "member/read",
            "member/write",
            "member/add=uid=ann,ou=people,dc=example,dc=com",
            "member/delete=uid=bob,ou=people,dc=example,dc=com",
            "member/add=cn=x,dc=example,dc=com",
        ],
    ),
    (
        "ou=book,uid=ann,ou=people,dc=example,dc=com",
        &["entry/read", "children/write", "ou/read", "ou/disclose"],
    ),
    ("ou=people,dc=example,dc=com", &["entry/read", "children/write", "ou/compare"]),
    ("dc=example,dc=com", &["entry/search", "children/add", "dc/read"]),
];

#[test]
fn answers_are_those_of_slapacl() {
    if larix_packages::SLAPD.is_lacking() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let base = configuration(directory.path());
    load(directory.path(), &base);
    let fixture = Fixture::new();
    let (mut compared, mut differences) = (0, Vec::new());
    for (number, rules) in RULES.iter().enumerate() {
        let path = directory.path().join("rules.conf");
        fs::write(&path, format!("{base}{rules}\n")).expect("written");
        let policy = fixture.policy(rules);
        for who in requesters(number) {
            for (entry, questions) in questions(number) {
                let theirs = ask(&path, who, entry, questions);
                for (question, theirs) in questions.iter().zip(theirs) {
                    let ours = answer(&fixture, &policy, who, entry, question);
                    compared += 1;
                    if ours != theirs {
                        differences.push(format!(
                            "{rules}\n  {who:?} {question} of {entry}: slapacl {theirs}, here {ours}"
                        ));
                    }
                }
            }
        }
    }
    eprintln!("{compared} answers compared with slapacl, {} differ", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn configuration(directory: &Path) -> String {
    let path = directory.display();
    fs::create_dir(directory.join("db")).expect("a directory for the database");
    ["core", "cosine", "inetorgperson", "dyngroup"]
        .map(|schema| format!("include /etc/ldap/schema/{schema}.schema\n"))
        .concat()
        + &format!(
            "modulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\ndirectory {path}/db\n"
        )
}

fn load(directory: &Path, base: &str) {
    let (conf, ldif) = (directory.join("base.conf"), directory.join("data.ldif"));
    fs::write(&conf, base).expect("written");
    fs::write(&ldif, LDIF).expect("written");
    let output =
        Command::new(SLAPADD).arg("-q").arg("-f").arg(&conf).arg("-l").arg(&ldif).output().expect("runs");
    assert!(output.status.success(), "slapadd: {}", String::from_utf8_lossy(&output.stderr));
}

/// Every requester asks about some of the rules, three about all.
fn requesters(number: usize) -> impl Iterator<Item = &'static &'static str> {
    REQUESTERS.iter().take(if number.is_multiple_of(4) { REQUESTERS.len() } else { 3 })
}

/// The last two entries are asked about under every third list of rules.
fn questions(number: usize) -> &'static [(&'static str, &'static [&'static str])] {
    let count = if number.is_multiple_of(3) { QUESTIONS.len() } else { QUESTIONS.len() - 2 };
    QUESTIONS.get(..count).unwrap_or(QUESTIONS)
}

/// What slapacl says: first whether it allows each, then what it grants for each.
fn ask(configuration: &Path, who: &str, entry: &str, questions: &[&str]) -> Vec<String> {
    let mut command = Command::new(SLAPACL);
    command.arg("-f").arg(configuration).args(["-b", entry]);
    for option in ["peername=IP=192.0.2.7:4711", "sockname=IP=192.0.2.1:389", "sockurl=ldap://:389/"] {
        command.args(["-o", option]);
    }
    for option in ["ssf=56", "transport_ssf=56", "tls_ssf=0", "sasl_ssf=0"] {
        command.args(["-o", option]);
    }
    if !who.is_empty() {
        command.args(["-D", who]);
    }
    command.args(questions.iter().map(|question| question.replacen('=', ":", 1)));
    command.args(questions.iter().map(|question| {
        let (name, rest) = question.split_once('/').expect(question);
        rest.split_once('=').map_or_else(|| name.to_owned(), |(_, value)| format!("{name}:{value}"))
    }));
    let output = command.output().expect("runs");
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let answers: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("authcDN: "))
        .filter_map(|line| line.rsplit_once(": "))
        .map(|(_, answer)| answer)
        .collect();
    assert_eq!(answers.len(), 2 * questions.len(), "{text}");
    let (allowed, granted) = answers.split_at(questions.len());
    allowed.iter().zip(granted).map(|(allowed, granted)| format!("{allowed} {granted}")).collect()
}

fn answer(fixture: &Fixture, policy: &AccessPolicy, who: &str, entry: &str, question: &str) -> String {
    let allowed =
        if policy_tests::check(fixture, policy, who, entry, question) { "ALLOWED" } else { "DENIED" };
    let subject = fixture.subject(who);
    let entry = fixture.find(&fixture.dn(entry)).expect(entry);
    let facts = fixture.facts(entry);
    let target = AccessTarget { dn: &entry.dn, entry: &facts };
    let (name, rest) = question.split_once('/').expect(question);
    let description = (!["entry", "children"].contains(&name)).then(|| fixture.describe(name));
    let item = match &description {
        None if name == "entry" => Item::Entry,
        None => Item::Children,
        Some(description) => {
            Item::Attribute { description, value: rest.split_once('=').map(|(_, value)| value.as_bytes()) }
        }
    };
    format!("{allowed} {}", policy.collected(&subject, &target, item))
}

//! The identities and requests of the matrix.

use super::random::Random;
use super::tree::Tree;

/// Whom a request is made as.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Identity {
    /// The scenario's request that binds.
    pub bind: String,
    /// The proxied authorization control's value, for a request made for somebody else.
    pub proxied: Option<String>,
}

impl Identity {
    pub fn bound(dn: &str, password: &str) -> Self {
        Self { bind: format!("as \"{dn}\" {password}"), proxied: None }
    }

    pub fn root(tree: &Tree) -> Self {
        Self::bound(&format!("cn=root,{}", tree.suffix), "secret")
    }

    /// One of those that matter here; `other` is the suffix of another database.
    pub fn random(random: &mut Random, tree: &Tree, other: &str) -> Self {
        let suffix = &tree.suffix;
        let proxied = |dn: String| Self { proxied: Some(format!("dn:{dn}")), ..Self::root(tree) };
        match random.below(20) {
            0..=3 => Self { bind: "anonymous".to_owned(), proxied: None },
            4..=8 => Self::bound(&format!("uid=ann,ou=people,{suffix}"), "annpw"),
            9..=12 => Self::bound(&format!("uid=bob,ou=people,{suffix}"), "bobpw"),
            13..=14 => proxied(format!("uid=cho,ou=people,{suffix}")),
            15 => proxied(format!("uid=bob,ou=people,{suffix}")),
            16 => proxied(String::new()),
            17 => Self::bound(&format!("uid=ann,ou=people,{other}"), "annpw"),
            18 => proxied(format!("ou=people,{suffix}")),
            _ => Self::root(tree),
        }
    }
}

/// A request of an identity.
#[derive(Clone, Debug)]
pub struct Case {
    pub identity: Identity,
    /// As in a scenario, with the control of the identity.
    pub request: String,
    /// The requests that undo it; none for one that changes nothing.
    pub undo: Vec<String>,
}

const ATTRIBUTES: [&str; 20] = [
    "cn",
    "sn",
    "mail",
    "description",
    "manager",
    "member",
    "userPassword",
    "uidNumber",
    "telephoneNumber",
    "seeAlso",
    "employeeType",
    "secretary",
    "owner",
    "homeDirectory",
    "cn;lang-de",
    "uid",
    "ou",
    "serialNumber",
    "roleOccupant",
    "title",
];

const FILTERS: [&str; 33] = [
    "(entryDN=*)",
    "(!(subschemaSubentry=*))",
    "(:dn:caseIgnoreMatch:=people)",
    "(:caseExactMatch:=Ann Archer)",
    "(name=*)",
    "(!(name=baker))",
    "(distinguishedName=*)",
    "(objectClass=*)",
    "(objectClass=*)",
    "(objectClass=person)",
    "(cn=*)",
    "(sn=archer)",
    "(mail=ann@*)",
    "(mail=*@example.com)",
    "(description=*secret*)",
    "(description=a secret)",
    "(member=uid=ann,ou=people,@S@)",
    "(manager=uid=ann,ou=people,@S@)",
    "(!(mail=*))",
    "(!(description=a secret))",
    "(&(cn=*)(sn=*))",
    "(|(uid=ann)(ou=deep)(cn=staff))",
    "(&(objectClass=person)(!(uid=ann)))",
    "(uidNumber>=1001)",
    "(uidNumber<=1001)",
    "(entryUUID=*)",
    "(hasSubordinates=TRUE)",
    "(cn:caseExactMatch:=Ann Archer)",
    "(ou:dn:=people)",
    "(name=ann archer)",
    "(distinguishedName=uid=bob,ou=people,@S@)",
    "(cn;lang-de=anna bogner)",
    "(userPassword=annpw)",
];

/// Sorting: entries are compared without their order, for slapd sorts by values that may not be read, too.
const SORTS: [&str; 4] =
    ["sort=uidNumber", "sort=-entryUUID", "sort=cn:caseIgnoreOrderingMatch", "!sort=uidNumber"];

/// One request; `existing` are names of the tree, and some are of no entry.
pub fn case(random: &mut Random, tree: &Tree, other: &str) -> Case {
    let identity = Identity::random(random, tree, other);
    let names: Vec<&str> = tree.names().collect();
    let dn = if random.percent(8) {
        let parent = random.pick(&names);
        format!("{},{parent}", random.pick(&["cn=missing", "ou=gone", "uid=x,ou=y"]))
    } else if random.percent(40) {
        format!("uid={},ou=people,{}", random.pick(&["ann", "bob", "cho"]), tree.suffix)
    } else {
        random.pick(&names).to_owned()
    };
    let generated = match random.below(20) {
        0..=7 => search(random, tree, &dn),
        8..=9 => compare(random, &dn),
        10..=14 => modify(random, tree, &dn),
        15..=16 => add(random, tree, &dn),
        17 => delete(random, tree, &dn),
        _ => rename(random, tree, &dn),
    };
    let Generated { line, mut controls, body, undo } = generated;
    if let Some(authorization) = &identity.proxied {
        controls.push(format!("!authzid=\"{authorization}\""));
    }
    let mut request = line;
    if !controls.is_empty() {
        request += &format!(" with {}", controls.join(" "));
    }
    request.push('\n');
    request += &body;
    let fill = |text: String| text.replace("@S@", &tree.suffix);
    Case { identity, request: fill(request), undo: undo.into_iter().map(fill).collect() }
}

#[derive(Default)]
struct Generated {
    line: String,
    controls: Vec<String>,
    body: String,
    undo: Vec<String>,
}

fn search(random: &mut Random, tree: &Tree, dn: &str) -> Generated {
    let base = if random.percent(40) { &tree.suffix } else { dn };
    let scope = random.pick(&["base", "one", "sub", "sub", "children"]);
    let mut line = format!("search \"{base}\" {scope} {}", random.pick(&FILTERS));
    match random.below(10) {
        0..=4 => {}
        5 => line += " 1.1",
        6 => line += " * +",
        7 => line += " +",
        _ => {
            for name in random.some(&ATTRIBUTES, 30) {
                line += &format!(" {name}");
            }
            if random.percent(30) {
                line += &format!(" {}", random.pick(&["name", "@person", "entryDN", "hasSubordinates"]));
            }
        }
    }
    if random.percent(8) {
        line += " typesonly";
    }
    if random.percent(15) {
        line += &format!(" deref={}", random.pick(&["search", "finding", "always"]));
    }
    let mut controls = Vec::new();
    if random.percent(20) {
        controls.push("manageDSAit".to_owned());
    }
    if random.percent(8) {
        controls.push(format!("!assert={}", random.pick(&FILTERS)));
    }
    match random.below(12) {
        0 => controls.push(format!("page={}", random.pick(&["1", "2", "5", "100"]))),
        1 => controls.push(random.pick(&SORTS).to_owned()),
        _ => {}
    }
    if random.percent(8) {
        controls.push(
            random
                .pick(&["mv=(description=*secret*)", "mv=(mail=ann@example.com)", "mv=(objectClass=person)"])
                .to_owned(),
        );
    }
    Generated { line, controls, ..Generated::default() }
}

/// Not hasSubordinates: slapd 2.5 forgets to release an entry that may not be compared, and dies soon after.
fn compare(random: &mut Random, dn: &str) -> Generated {
    let attribute = random.pick(&ATTRIBUTES);
    let attribute = if random.percent(15) {
        random.pick(&["objectClass", "name", "structuralObjectClass"])
    } else {
        attribute
    };
    let value = match attribute {
        "objectClass" | "structuralObjectClass" => "person",
        "name" => "people",
        _ => value(random, attribute),
    };
    let line = format!("compare \"{dn}\" \"{attribute}:{value}\"");
    let mut controls = Vec::new();
    if random.percent(10) {
        controls.push(format!("!assert={}", random.pick(&FILTERS)));
    }
    if random.percent(20) {
        controls.push("manageDSAit".to_owned());
    }
    Generated { line, controls, ..Generated::default() }
}

/// A value of an attribute, one that stands in the tree more often than not.
fn value(random: &mut Random, attribute: &str) -> &'static str {
    match attribute {
        "cn" => random.pick(&["Ann Archer", "Bob Baker", "leaf", "staff", "other"]),
        "cn;lang-de" => random.pick(&["Anna Bogner", "Andere"]),
        "sn" => random.pick(&["Archer", "Baker", "Other"]),
        "mail" => random.pick(&["ann@example.com", "archer@example.org", "new@example.net"]),
        "description" => random.pick(&["a secret", "likes tea", "secret", "something"]),
        "manager" | "member" | "secretary" | "owner" | "roleOccupant" => random.pick(&[
            "uid=ann,ou=people,@S@",
            "uid=bob,ou=people,@S@",
            "uid=cho,ou=people,@S@",
            "cn=staff,ou=groups,@S@",
        ]),
        "seeAlso" => {
            random.pick(&["cn=staff,ou=groups,@S@", "uid=ann,ou=people,@S@", "uid=bob,ou=people,@S@"])
        }
        "userPassword" => random.pick(&["annpw", "bobpw", "newpw"]),
        "uidNumber" => random.pick(&["1001", "1002", "7"]),
        "telephoneNumber" => random.pick(&["+1 555 0100", "+1 555 0199"]),
        "employeeType" => random.pick(&["chief", "staff"]),
        "homeDirectory" => random.pick(&["/home/ann", "/home/other"]),
        "uid" => random.pick(&["ann", "bob", "other"]),
        "ou" => random.pick(&["people", "deep", "other"]),
        "serialNumber" => random.pick(&["17", "18"]),
        _ => random.pick(&["Sir", "Madam"]),
    }
}

/// The pre-read is always critical: where it may not be had otherwise, slapd 2.5 answers success and changes nothing.
fn read_controls(random: &mut Random, controls: &mut Vec<String>) {
    let lists = ["*", "cn,description,mail", "*,member", "userPassword,member", "1.1"];
    if random.percent(12) {
        controls.push(format!("!preread={}", random.pick(&lists)));
    }
    if random.percent(12) {
        controls.push(format!("postread={}", random.pick(&lists)));
    }
    if random.percent(10) {
        controls.push(format!("!assert={}", random.pick(&FILTERS)));
    }
    if random.percent(15) {
        controls.push("manageDSAit".to_owned());
    }
}

fn modify(random: &mut Random, tree: &Tree, dn: &str) -> Generated {
    let mut changed = Vec::new();
    let mut body = String::new();
    for _ in 0..=usize::from(random.percent(25)) {
        let attribute = random.pick(&ATTRIBUTES);
        if changed.contains(&attribute) {
            continue;
        }
        changed.push(attribute);
        let (one, two) = (value(random, attribute), value(random, attribute));
        body += &match random.below(10) {
            0..=2 => format!("  add {attribute}: {one}\n"),
            3 if one != two => format!("  add {attribute}: {one} | {two}\n"),
            4..=5 => format!("  delete {attribute}: {one}\n"),
            6 => format!("  delete {attribute}\n"),
            7 => format!("  replace {attribute}\n"),
            _ if attribute == "uidNumber" => "  increment uidNumber: 1\n".to_owned(),
            8 if one != two => format!("  replace {attribute}: {one} | {two}\n"),
            _ => format!("  replace {attribute}: {one}\n"),
        };
    }
    let restore: String = changed.iter().map(|attribute| tree.replacing(dn, attribute)).collect();
    let undo = vec![format!("modify \"{dn}\" with manageDSAit\n{restore}")];
    let mut controls = Vec::new();
    read_controls(random, &mut controls);
    Generated { line: format!("modify \"{dn}\""), controls, body, undo }
}

fn add(random: &mut Random, tree: &Tree, parent: &str) -> Generated {
    let mut body = "  objectClass: inetOrgPerson\n  cn: fresh\n  sn: Fresh\n".to_owned();
    for attribute in random.some(&["description", "mail", "manager", "userPassword", "employeeType"], 30) {
        body += &format!("  {attribute}: {}\n", value(random, attribute));
    }
    let dn = if random.percent(10) { tree.suffix.clone() } else { format!("cn=fresh,{parent}") };
    let undo = vec![format!("delete \"{dn}\" with manageDSAit\n")];
    let mut controls = Vec::new();
    read_controls(random, &mut controls);
    controls.retain(|control| !control.starts_with("!preread"));
    Generated { line: format!("add \"{dn}\""), controls, body, undo }
}

fn delete(random: &mut Random, tree: &Tree, dn: &str) -> Generated {
    let mut controls = Vec::new();
    read_controls(random, &mut controls);
    controls.retain(|control| !control.starts_with("postread"));
    let undo = tree.adding(dn).into_iter().collect();
    Generated { line: format!("delete \"{dn}\""), controls, undo, ..Generated::default() }
}

fn rename(random: &mut Random, tree: &Tree, dn: &str) -> Generated {
    let (rdn, parent) = dn.split_once(',').unwrap_or((dn, ""));
    let (attribute, _) = rdn.split_once('=').unwrap_or((rdn, ""));
    let new = format!("{attribute}={}", random.pick(&["renamed", "other", "staff"]));
    let old = if random.percent(50) { "delete" } else { "keep" };
    let mut line = format!("modrdn \"{dn}\" \"{new}\" {old}");
    let mut now_below = parent.to_owned();
    let mut back = String::new();
    if random.percent(40) {
        let superior = random.pick(&["ou=people", "ou=groups", "ou=deep", "ou=deeper,ou=deep", "ou=absent"]);
        now_below = format!("{superior},{}", tree.suffix);
        line += &format!(" \"{now_below}\"");
        back = format!(" \"{parent}\"");
    }
    let undo = vec![
        format!("modrdn \"{new},{now_below}\" \"{rdn}\" delete{back} with manageDSAit\n"),
        format!("modify \"{dn}\" with manageDSAit\n{}", tree.replacing(dn, attribute)),
    ];
    let mut controls = Vec::new();
    read_controls(random, &mut controls);
    Generated { line, controls, undo, ..Generated::default() }
}

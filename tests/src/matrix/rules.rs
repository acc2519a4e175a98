//! Access rules from the whole grammar of slapd.access(5). `@S@` stands for the suffix of the tree.

use super::random::Random;

/// What of the grammar is used.
#[derive(Clone, Copy, Debug)]
pub struct Grammar {
    pub sets: bool,
    pub groups_by_url: bool,
    /// `op=` and `control=`, which slapd has since 2.7.
    pub requests: bool,
    /// `dynacl/aci`: rights that stand in the entries ([`super::acis`]).
    pub acis: bool,
}

impl Grammar {
    pub const WHOLE: Self = Self { sets: true, groups_by_url: true, requests: true, acis: true };
}

const NAMES: [&str; 16] = [
    "@S@",
    "ou=people,@S@",
    "uid=ann,ou=people,@S@",
    "uid=bob,ou=people,@S@",
    "uid=cho,ou=people,@S@",
    "cn=phone,uid=ann,ou=people,@S@",
    "ou=groups,@S@",
    "cn=staff,ou=groups,@S@",
    "cn=role,ou=groups,@S@",
    "cn=chiefs,ou=groups,@S@",
    "ou=deep,@S@",
    "ou=deeper,ou=deep,@S@",
    "cn=leaf,ou=deeper,ou=deep,@S@",
    "cn=to ann,ou=deep,@S@",
    "ou=elsewhere,@S@",
    "uid=nobody,ou=people,@S@",
];

const PEOPLE: [&str; 4] =
    ["uid=ann,ou=people,@S@", "uid=bob,ou=people,@S@", "uid=cho,ou=people,@S@", "cn=root,@S@"];

/// Patterns with two groups and a DN made of them last.
const TARGET_PATTERNS: [&str; 10] = [
    "^(.*,)?uid=([^,]+),ou=people,@S@$",
    "^(cn=[^,]+,)?uid=([^,]+),(ou=[^,]+),(dc=[^,]+)$",
    "ou=people,@S@$",
    "^cn=([^,]+),ou=(groups),@S@$",
    "^(.+,)?ou=(deep|groups),@S@$",
    "^cn=([^,]+),(.*)$",
    ".*",
    "^([^,]+),@S@$",
    "^uid=(a|b|c)(nn|ob|ho),.+",
    "UID=ANN",
];

const FILTERS: [&str; 10] = [
    "(objectClass=person)",
    "(uid=ann)",
    "(!(employeeType=*))",
    "(description=*secret*)",
    "(&(objectClass=inetOrgPerson)(manager=uid=ann,ou=people,@S@))",
    "(|(cn=staff)(ou=deep))",
    "(objectClass=*)",
    "(uidNumber>=1002)",
    "(cn:caseExactMatch:=Ann Archer)",
    "(member=uid=bob,ou=people,@S@)",
];

const ITEMS: [&str; 38] = [
    "entry",
    "entry",
    "children",
    "entry,children",
    "cn",
    "sn",
    "name",
    "mail",
    "description",
    "member",
    "manager",
    "userPassword",
    "uidNumber",
    "telephoneNumber",
    "owner",
    "seeAlso",
    "objectClass",
    "@person",
    "@posixAccount",
    "!person",
    "@inetOrgPerson",
    "!inetOrgPerson",
    "cn;lang-de",
    "entryUUID",
    "modifiersName",
    "createTimestamp",
    "structuralObjectClass",
    "hasSubordinates",
    "entryDN",
    "@extensibleObject",
    "distinguishedName",
    "ref",
    "ou",
    "uid",
    "secretary",
    "roleOccupant",
    "employeeType",
    "aliasedObjectName",
];

/// Parts of `<what>` that ask what is requested.
const REQUESTS: [&str; 12] = [
    "op=search",
    "op=search",
    "op=compare",
    "op=modify",
    "op=modify",
    "op=add",
    "op=delete",
    "op=rename",
    "control=2.16.840.1.113730.3.4.2",
    "control=2.16.840.1.113730.3.4.18",
    "control=1.3.6.1.1.12",
    "control=1.3.6.1.1.13.2",
];

/// A part of `<what>` that asks about one value of one attribute.
const VALUES: [&str; 16] = [
    "attrs=description val=\"a secret\"",
    "attrs=description val.exact=\"A Secret\"",
    "attrs=description val/caseExactMatch=\"A Secret\"",
    "attrs=description val.regex=\"secret\"",
    "attrs=mail val.regex=\"^(.+)@example\\.com$\"",
    "attrs=mail val=\"ANN@example.com\"",
    "attrs=cn val.regex=\"^ann\"",
    "attrs=cn val=\"Ann Archer\"",
    "attrs=uidNumber val=1001",
    "attrs=objectClass val=person",
    "attrs=objectClass val.regex=\"^posix\"",
    "attrs=member val.base=\"uid=ann,ou=people,@S@\"",
    "attrs=member val.children=\"ou=people,@S@\"",
    "attrs=manager val.subtree=\"uid=ann,ou=people,@S@\"",
    "attrs=member val.onelevel=\"ou=groups,@S@\"",
    "attrs=manager val.regex=\"^uid=(ann|bob),\"",
];

const SIMPLE_WHO: [&str; 22] = [
    "*",
    "*",
    "*",
    "anonymous",
    "users",
    "users",
    "self",
    "self",
    "self.level{1}",
    "self.level{-1}",
    "self.level{-2}",
    "realself",
    "realusers",
    "realanonymous",
    "dnattr=manager",
    "dnattr=member",
    "dnattr=owner",
    "dnattr=seeAlso",
    "realdnattr=manager",
    "group=\"cn=staff,ou=groups,@S@\"",
    "group.exact=\"cn=nested,ou=groups,@S@\"",
    "group/organizationalRole/roleOccupant=\"cn=role,ou=groups,@S@\"",
];

const CONNECTION_WHO: [&str; 20] = [
    "domain=localhost",
    "domain.regex=\"^local.+$\"",
    "domain.subtree=localhost",
    "domain=elsewhere",
    "domain.regex=\"^elsewhere\"",
    "peername.ip=127.0.0.1",
    "peername.ip=127.0.0.0%255.0.0.0",
    "peername.ip=10.0.0.1",
    "peername.ip=10.0.0.0%255.0.0.0",
    "peername.regex=\"^IP=127\\..+\"",
    "peername.regex=\"^PATH=.+\"",
    "peername.path=\"/run/ldapi\"",
    "sockname.regex=\"^IP=127\\.0\\.0\\.1:.+\"",
    "sockname=\"PATH=/run/ldapi\"",
    "sockurl.regex=\"^ldap://.+\"",
    "sockurl=\"ldapi:///\"",
    "ssf=64",
    "ssf=1",
    "tls_ssf=1",
    "sasl_ssf=1",
];

const SETS: [&str; 14] = [
    "this/manager & user",
    "user & [uid=ann,ou=people,@S@]",
    "[cn=staff,ou=groups,@S@]/member & user",
    "[cn=nested,ou=groups,@S@]/member* & user",
    "user/employeeType & [chief]",
    "user/employeeType & this/employeeType",
    "this/manager/manager & user",
    "this/-1 & [ou=people,@S@]",
    "this & user",
    "(this/owner | this/manager) & user",
    "user/-1 & [ou=people,@S@]",
    "this/-* & [ou=deep,@S@]",
    "[ldap:///ou=people,@S@??sub?(employeeType=chief)] & user",
    "[uid=] + user/uid + [,ou=people,@S@] & user",
];

/// Who-clauses that refer to what `<what>` matched.
const EXPANDED_WHO: [&str; 9] = [
    "dn.exact,expand=\"uid=$2,ou=people,@S@\"",
    "dn.regex=\"^uid=$2,ou=people,@S@$\"",
    "dn.regex=\"^uid=[^,]+,ou=people,@S@$\"",
    "dn.children,expand=\"ou=$2,@S@\"",
    "dn.regex=\"$1\"",
    "group.expand=\"cn=$2,ou=groups,@S@\"",
    "group/groupOfNames/member.expand=\"cn=$1,ou=groups,@S@\"",
    "realdn.exact,expand=\"uid=$2,ou=people,@S@\"",
    "dn.subtree,expand=\"$0\"",
];

const LEVELS: [&str; 14] = [
    "none", "disclose", "auth", "compare", "search", "search", "read", "read", "read", "write", "write",
    "add", "delete", "manage",
];

/// `access to ...` lines.
pub fn rule_set(random: &mut Random, grammar: Grammar) -> Vec<String> {
    let mut rules = Vec::new();
    if random.percent(75) {
        rules.push("access to attrs=userPassword by anonymous auth by * break".to_owned());
    }
    for _ in 0..=random.below(4) {
        rules.push(rule(random, grammar));
    }
    if random.percent(70) {
        let last = [
            "access to * by * read",
            "access to * by users write by * read",
            "access to * by users read by * search",
            "access to * by self write by users read by * disclose",
            "access to * by * write",
            "access to * by * +rscx",
        ];
        rules.push(random.pick(&last).to_owned());
    }
    rules
}

/// Rules for the frontend, behind those of all databases; `@S@` does not stand in them.
pub fn frontend_rules(random: &mut Random, grammar: Grammar) -> Vec<String> {
    let mut rules = Vec::new();
    for _ in 0..random.below(3) {
        let rule = rule(random, grammar);
        // slapd passes the frontend's rules over for the second value of an attribute when one of them is about values.
        if !rule.contains("@S@") && !rule.contains(" val") {
            rules.push(rule);
        }
    }
    rules
}

fn rule(random: &mut Random, grammar: Grammar) -> String {
    let (what, expands) = what(random, grammar);
    let mut rule = format!("access to {what}");
    for _ in 0..=random.below(3) {
        rule += &format!(" by {}", clause(random, grammar, expands));
    }
    match random.below(10) {
        0..=3 => rule += " by * break",
        4..=5 => rule += &format!(" by * {}", random.pick(&LEVELS)),
        6 => rule += " by users +0 break by * +sd break",
        _ => {}
    }
    rule
}

/// `<what>`, and whether its DN pattern has groups.
fn what(random: &mut Random, grammar: Grammar) -> (String, bool) {
    let mut parts = Vec::new();
    let mut expands = false;
    match random.below(10) {
        0..=2 => parts.push("*".to_owned()),
        3..=6 => {
            let style = random.pick(&[
                "dn",
                "dn.base",
                "dn.exact",
                "dn.one",
                "dn.onelevel",
                "dn.sub",
                "dn.subtree",
                "dn.subtree",
                "dn.children",
            ]);
            parts.push(format!("{style}=\"{}\"", random.pick(&NAMES)));
            expands = random.percent(10);
        }
        7..=8 => {
            let pattern = random.pick(&TARGET_PATTERNS);
            parts.push(format!("dn.regex=\"{pattern}\""));
            // slapd captures nothing by this one, not even the name.
            expands = pattern != ".*";
        }
        _ => {}
    }
    if random.percent(12) {
        parts.push(format!("filter=\"{}\"", random.pick(&FILTERS)));
    }
    if grammar.requests && random.percent(20) {
        parts.push(random.pick(&REQUESTS).to_owned());
    }
    match random.below(20) {
        0..=2 => parts.push(random.pick(&VALUES).to_owned()),
        3..=10 => {
            let mut items = vec![random.pick(&ITEMS)];
            while random.percent(40) {
                items.push(random.pick(&ITEMS));
            }
            parts.push(format!("attrs={}", items.join(",")));
        }
        _ if parts.is_empty() => parts.push("*".to_owned()),
        _ => {}
    }
    (parts.join(" "), expands)
}

fn clause(random: &mut Random, grammar: Grammar, expands: bool) -> String {
    let mut clause = who(random, grammar, expands);
    if random.percent(12) {
        let more = random.pick(&CONNECTION_WHO);
        let keyword = |text: &str| text.split(['.', '=']).next().map(str::to_owned);
        if keyword(&clause) != keyword(more) {
            clause += &format!(" {more}");
        }
    }
    if random.percent(95) {
        clause += &format!(" {}", access(random));
    }
    match random.below(10) {
        0 => clause += " continue",
        1 => clause += " break",
        2 => clause += " stop",
        _ => {}
    }
    clause
}

fn who(random: &mut Random, grammar: Grammar, expands: bool) -> String {
    if expands && random.percent(50) {
        return random.pick(&EXPANDED_WHO).to_owned();
    }
    if grammar.acis && random.percent(35) {
        return "dynacl/aci".to_owned();
    }
    match random.below(20) {
        0..=11 => random.pick(&SIMPLE_WHO).to_owned(),
        12..=15 => {
            let style = random.pick(&[
                "dn",
                "dn.base",
                "dn.exact",
                "dn.one",
                "dn.sub",
                "dn.children",
                "dn.level{1}",
                "dn.level{2}",
                "realdn.base",
                "realdn.sub",
            ]);
            let names: &[&str] = if random.percent(60) { &PEOPLE } else { &NAMES };
            format!("{style}=\"{}\"", random.pick(names))
        }
        16 if grammar.sets => format!("set=\"{}\"", random.pick(&SETS)),
        17 if grammar.groups_by_url => "group/groupOfURLs/memberURL=\"cn=chiefs,ou=groups,@S@\"".to_owned(),
        16 | 17 => "dn.regex=\"^uid=(ann|cho),\"".to_owned(),
        _ => random.pick(&CONNECTION_WHO).to_owned(),
    }
}

/// Not `realself` in front: slapd applies such a clause to all values, which is not what it promises.
fn access(random: &mut Random) -> String {
    let own = if random.percent(4) { "self" } else { "" };
    if random.percent(70) {
        return format!("{own}{}", random.pick(&LEVELS));
    }
    // slapd takes `self=w` for another `self`.
    let signs: &[&str] = if own.is_empty() { &["=", "+", "-"] } else { &["+", "-"] };
    let sign = random.pick(signs);
    let mut letters = random.some(&["m", "w", "a", "z", "r", "s", "c", "x", "d"], 40).concat();
    // To slapd 2.7 `az` is less than `w`: incrementing is a privilege of its own there.
    if letters.contains("az") {
        letters = letters.replace("waz", "w").replace("az", "w");
    }
    let letters = if letters.is_empty() { "0" } else { &letters };
    format!("{own}{sign}{letters}")
}

//! Values of OpenLDAPaci: rights that stand in the entries. `@S@` stands for the suffix of the tree.

use super::random::Random;

const SCOPES: [&str; 4] = ["entry", "entry", "subtree", "children"];

const ATTRIBUTES: [&str; 14] = [
    "[all]",
    "[all]",
    "entry",
    "entry",
    "children",
    "cn",
    "sn,mail",
    "description",
    "entry,objectClass",
    "userPassword",
    "member,manager",
    "uidNumber,cn,uid",
    "name",
    "entry,children",
];

const PERMISSIONS: [&str; 10] = ["r", "s", "r,s", "r,s,c", "c", "w", "w,r,s,c,x", "d", "x", "w,r,s,c,x,d"];

/// Without sets that name no one: slapd ends the evaluation at a set that is not understood.
const SUBJECTS: [&str; 24] = [
    "public#",
    "public#",
    "users#",
    "users#",
    "self#",
    "access-id#uid=ann,ou=people,@S@",
    "access-id#uid=bob,ou=people,@S@",
    "access-id#uid=cho,ou=people,@S@",
    "subtree#ou=people,@S@",
    "subtree#@S@",
    "children#uid=ann,ou=people,@S@",
    "children#ou=people,@S@",
    "onelevel#ou=people,@S@",
    "onelevel#cn=phone,uid=ann,ou=people,@S@",
    "dnattr#manager",
    "dnattr#member",
    "dnattr#owner",
    "group#cn=staff,ou=groups,@S@",
    "group/groupOfNames/member#cn=ann,ou=groups,@S@",
    "group/organizationalRole/roleOccupant#cn=role,ou=groups,@S@",
    "role#cn=role,ou=groups,@S@",
    "set#this/manager & user",
    "set#[cn=staff,ou=groups,@S@]/member & user",
    "group#cn=missing,ou=groups,@S@",
];

/// The lines of an entry; most entries have none.
pub fn lines(random: &mut Random) -> Vec<String> {
    let mut lines = Vec::new();
    if random.percent(60) {
        return lines;
    }
    for _ in 0..=random.below(3) {
        let line = format!("OpenLDAPaci: {}", value(random));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn value(random: &mut Random) -> String {
    let scope = random.pick(&SCOPES);
    let mut rights = action(random);
    if random.percent(30) {
        rights += &format!("${}", action(random));
    }
    format!("0#{scope}#{rights}#{}", random.pick(&SUBJECTS))
}

fn action(random: &mut Random) -> String {
    let mut text = (if random.percent(75) { "grant" } else { "deny" }).to_owned();
    for _ in 0..=random.below(3) {
        text += &format!(";{};{}", random.pick(&PERMISSIONS), random.pick(&ATTRIBUTES));
    }
    text
}

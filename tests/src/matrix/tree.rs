//! The tree that every rule set is tried on.

use super::acis;
use super::random::Random;

/// The entries, below the suffix `@S@`. `uid=ann` and `uid=bob` can bind, `uid=cho` has no password.
const ENTRIES: &str = "\
dn: @S@
objectClass: dcObject
objectClass: organization
dc: @DC@
o: Example
description: the suffix

dn: ou=people,@S@
objectClass: organizationalUnit
ou: people
description: secret

dn: uid=ann,ou=people,@S@
objectClass: inetOrgPerson
objectClass: posixAccount
uid: ann
cn: Ann Archer
cn;lang-de: Anna Bogner
sn: Archer
mail: ann@example.com
mail: archer@example.org
telephoneNumber: +1 555 0100
description: likes tea
description: a secret
employeeType: chief
manager: uid=ann,ou=people,@S@
seeAlso: cn=staff,ou=groups,@S@
userPassword: annpw
uidNumber: 1001
gidNumber: 100
homeDirectory: /home/ann

dn: uid=bob,ou=people,@S@
objectClass: inetOrgPerson
objectClass: posixAccount
uid: bob
cn: Bob Baker
sn: Baker
mail: bob@example.com
employeeType: staff
manager: uid=ann,ou=people,@S@
secretary: uid=bob,ou=people,@S@
userPassword: bobpw
uidNumber: 1002
gidNumber: 100
homeDirectory: /home/bob

dn: uid=cho,ou=people,@S@
objectClass: inetOrgPerson
uid: cho
cn: Cho Chang
sn: Chang
description: secret
manager: uid=bob,ou=people,@S@
seeAlso: uid=ann,ou=people,@S@

dn: cn=phone,uid=ann,ou=people,@S@
objectClass: device
cn: phone
serialNumber: 17
owner: uid=ann,ou=people,@S@
description: a secret

dn: ou=groups,@S@
objectClass: organizationalUnit
ou: groups

dn: cn=staff,ou=groups,@S@
objectClass: groupOfNames
cn: staff
member: uid=ann,ou=people,@S@
member: uid=bob,ou=people,@S@
owner: uid=ann,ou=people,@S@

dn: cn=ann,ou=groups,@S@
objectClass: groupOfNames
cn: ann
member: uid=cho,ou=people,@S@

dn: cn=nested,ou=groups,@S@
objectClass: groupOfNames
cn: nested
member: cn=staff,ou=groups,@S@

dn: cn=role,ou=groups,@S@
objectClass: organizationalRole
cn: role
roleOccupant: uid=bob,ou=people,@S@
description: secret

dn: cn=chiefs,ou=groups,@S@
objectClass: groupOfURLs
cn: chiefs
memberURL: ldap:///ou=people,@S@??sub?(employeeType=chief)

dn: ou=deep,@S@
objectClass: organizationalUnit
ou: deep

dn: ou=deeper,ou=deep,@S@
objectClass: organizationalUnit
ou: deeper
description: likes tea
seeAlso: uid=bob,ou=people,@S@

dn: cn=leaf,ou=deeper,ou=deep,@S@
objectClass: person
cn: leaf
sn: Leaf
description: a secret

dn: cn=to ann,ou=deep,@S@
objectClass: alias
objectClass: extensibleObject
cn: to ann
aliasedObjectName: uid=ann,ou=people,@S@

dn: ou=elsewhere,@S@
objectClass: referral
objectClass: extensibleObject
ou: elsewhere
ref: ldap://other.example.net/ou=elsewhere,@S@
";

/// The entries of one database.
#[derive(Clone, Debug)]
pub struct Tree {
    pub suffix: String,
    entries: Vec<TreeEntry>,
}

#[derive(Clone, Debug)]
struct TreeEntry {
    dn: String,
    /// `attribute: value` lines.
    lines: Vec<String>,
}

impl Tree {
    /// The tree under `dc=NAME`.
    pub fn new(name: &str) -> Self {
        let suffix = format!("dc={name}");
        let text = ENTRIES.replace("@S@", &suffix).replace("@DC@", name);
        let entries = text
            .split("\n\n")
            .filter_map(|block| {
                let mut lines = block.lines().map(str::to_owned);
                let dn = lines.next()?.strip_prefix("dn: ")?.to_owned();
                Some(TreeEntry { dn, lines: lines.collect() })
            })
            .collect();
        Self { suffix, entries }
    }

    /// The same, with rights in the entries.
    #[must_use]
    pub fn with_acis(mut self, random: &mut Random) -> Self {
        for entry in &mut self.entries {
            entry.lines.extend(acis::lines(random).iter().map(|line| line.replace("@S@", &self.suffix)));
        }
        self
    }

    /// The rights that stand in entries, with the entry's name.
    pub fn acis(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().flat_map(|entry| {
            let lines = entry.lines.iter().filter_map(|line| line.strip_prefix("OpenLDAPaci: "));
            lines.map(|value| (entry.dn.as_str(), value))
        })
    }

    /// LDIF of all entries.
    pub fn ldif(&self) -> String {
        let entry = |entry: &TreeEntry| format!("dn: {}\n{}\n\n", entry.dn, entry.lines.join("\n"));
        self.entries.iter().map(entry).collect()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.dn.as_str())
    }

    /// The request that adds an entry of the tree; `None` for any other.
    pub fn adding(&self, dn: &str) -> Option<String> {
        let entry = self.entries.iter().find(|entry| entry.dn == dn)?;
        let lines: String = entry.lines.iter().map(|line| format!("  {line}\n")).collect();
        Some(format!("add \"{dn}\" with manageDSAit\n{lines}"))
    }

    /// The line of a modify that gives an attribute the values that it has here.
    pub fn replacing(&self, dn: &str, attribute: &str) -> String {
        let entry = self.entries.iter().find(|entry| entry.dn == dn);
        let prefix = format!("{attribute}: ");
        let values: Vec<&str> = entry
            .iter()
            .flat_map(|entry| &entry.lines)
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect();
        match values.as_slice() {
            [] => format!("  replace {attribute}\n"),
            values => format!("  replace {attribute}: {}\n", values.join(" | ")),
        }
    }
}

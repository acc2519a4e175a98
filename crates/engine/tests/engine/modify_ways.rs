//! A usual modify goes a short way that looks at little of the entry. It must do, and refuse, what the long way does. The
//! relax rules control has a modify go the long way and changes nothing about these.

use larix_engine::time::SeededRandom;
use larix_store::memory::MemoryStore;

use crate::common::{self, Fixture, TREE, assert_sound, describe, logged, memory, records, schema, settings};

const MORE: &str = "
    dn: cn=Bo+sn=Lee,ou=People,dc=example,dc=com
    objectClass: person
    cn: Bo
    sn: Lee

    dn: cn=a\\2cb,ou=People,dc=example,dc=com
    objectClass: inetOrgPerson
    objectClass: posixAccount
    cn: a,b
    sn: b
    uid: ab
    uidNumber: 7
    gidNumber: 7
    homeDirectory: /home/ab

    dn: uidNumber=9,ou=People,dc=example,dc=com
    objectClass: inetOrgPerson
    objectClass: posixAccount
    cn: nine
    sn: nine
    uid: nine
    uidNumber: 9
    gidNumber: 9
    homeDirectory: /home/nine

    dn: cn=crowd,ou=Groups,dc=example,dc=com
    objectClass: groupOfNames
    cn: crowd
    member: cn=first
";

const NAMES: [&str; 7] = [
    "cn=Ann Lee,ou=People,dc=example,dc=com",
    "cn=Bo,ou=People,dc=example,dc=com",
    "cn=Bo+sn=Lee,ou=People,dc=example,dc=com",
    "cn=a\\2cb,ou=People,dc=example,dc=com",
    "uidNumber=9,ou=People,dc=example,dc=com",
    "ou=People,dc=example,dc=com",
    "dc=example,dc=com",
];
const CROWD: &str = "cn=crowd,ou=Groups,dc=example,dc=com";

struct Chooser(SeededRandom);

impl Chooser {
    /// A change record with one to four changes.
    fn modify(&self) -> String {
        if self.0.below(12) == 0 {
            return self.crowd();
        }
        let mut text = format!("dn: {}\nchangetype: modify\n", self.0.one_of(&NAMES));
        for _ in 0..=self.0.below(4) {
            let name = self.0.one_of(&[
                "description",
                "description;lang-en",
                "cn",
                "sn",
                "mail",
                "employeeNumber",
                "displayName",
                "uidNumber",
                "objectClass",
                "userPassword",
                "seeAlso",
                "c",
            ]);
            // Another structural class is what the control allows.
            let kinds: &[&str] = match name {
                "objectClass" => &["add", "delete"],
                _ => &["add", "delete", "replace", "replace", "increment"],
            };
            let kind = self.0.one_of(kinds);
            text += &format!("{kind}: {name}\n");
            for _ in 0..self.0.below(3) {
                text += &format!("{name}: {}\n", self.value(name));
            }
            text += "-\n";
        }
        text
    }

    fn value(&self, name: &str) -> String {
        match name {
            "mail" => self.0.one_of(&["a@example.com", "A@example.com", "b@example.com"]).to_owned(),
            "uidNumber" => self.0.one_of(&["7", "9", "11"]).to_owned(),
            "objectClass" => self.0.one_of(&["posixAccount", "UIDOBJECT", "person"]).to_owned(),
            "seeAlso" => self.0.one_of(&["cn=x", "cn=X", "cn=y,dc=z"]).to_owned(),
            "description" if self.0.below(6) == 0 => "much to be told ".repeat(80),
            _ => self.0.one_of(&["Bo", "bo", "Lee", "Ann Lee", "nine", "x", "Y", "z z"]).to_owned(),
        }
    }

    /// Many members, few, or none.
    fn crowd(&self) -> String {
        let kind = self.0.one_of(&["add", "delete", "replace"]);
        let mut text = format!("dn: {CROWD}\nchangetype: modify\n{kind}: member\n");
        let (from, count) = (self.0.below(300), self.0.one_of(&["1", "3", "260"]).parse::<usize>().unwrap());
        (from..from + count).for_each(|number| text += &format!("member: cn={number}\n"));
        text + "-\nreplace: description\ndescription: x\n-\n"
    }
}

fn fixture() -> Fixture<MemoryStore> {
    let schema = schema("");
    let mut settings = settings(&schema);
    for (attribute, kinds) in
        [("cn,mail", "eq,sub,pres"), ("description", "eq,sub"), ("objectClass,member,seeAlso", "eq")]
    {
        settings.index.add_line(&schema, attribute, Some(kinds)).unwrap();
    }
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture.apply(MORE);
    fixture
}

#[test]
fn both_ways_do_and_refuse_the_same() {
    for seed in 0..6 {
        let (short, long) = (fixture(), fixture());
        let chooser = Chooser(SeededRandom::new(seed));
        let mut done = 0;
        for _ in 0..400 {
            let ldif = chooser.modify();
            let record = records(&ldif).remove(0);
            let (operation, _) = common::operation(record);
            let permissive = chooser.0.below(4) == 0;
            let mut request = short.request(operation, &[]);
            request.controls = request.controls.with(|values| values.permissive_modify = permissive);
            let mut relaxed = request.clone();
            relaxed.controls = relaxed.controls.with(|values| values.relax = true);
            let (short_answer, long_answer) =
                (describe(&short.submit(request)), describe(&long.submit(relaxed)));
            assert_eq!(short_answer, long_answer, "seed {seed}:\n{ldif}");
            done += usize::from(short_answer == "0");
            for name in NAMES.iter().chain(&[CROWD]) {
                let (short, long) = (short.entry(name), long.entry(name));
                assert_eq!(format!("{short:?}"), format!("{long:?}"), "seed {seed}:\n{ldif}");
            }
        }
        assert!(done > 40, "only {done} were carried out");
        assert_eq!(logged(&short), logged(&long), "seed {seed}");
        for fixture in [&short, &long] {
            assert_sound(fixture.database(), &format!("seed {seed}"));
        }
    }
}

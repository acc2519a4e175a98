//! How long dynamic objects live, and who may change that.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::Arc;

use larix_engine::overlay::Overlay;
use larix_proto::oid;
use larix_store::memory::MemoryStore;

use super::{DESCRIPTOR, intercept};
use crate::testing::requests::Requests;
use crate::testing::{Fixture, SUFFIX, TREE, build, directory, found, ruled, schema};

const RELAX: &str = "1.3.6.1.4.1.4203.666.5.12";

/// An entry of this name, dynamic.
fn dynamic(name: &str) -> String {
    format!(
        "dn: cn={name},{SUFFIX}\nchangetype: add\nobjectClass: person\nobjectClass: dynamicObject\ncn: {name}\nsn: x\n"
    )
}

fn replace(name: &str, attribute: &str, value: &str) -> String {
    let head =
        format!("dn: cn={name},{SUFFIX}\ncontrol: {RELAX} true\nchangetype: modify\nreplace: {attribute}\n");
    if value.is_empty() { head } else { format!("{head}{attribute}: {value}\n") }
}

fn pass(fixture: &Fixture<MemoryStore>, seconds: u32) {
    fixture.clock.advance_micros(seconds * 1_000_000);
}

/// Has the overlay its turn: how many deletes were made, and how many were refused.
fn turn(fixture: &Fixture<MemoryStore>) -> (u64, usize) {
    let served = &fixture.directory.databases()[0];
    let settings = served.database().settings();
    let overlay: Arc<dyn Overlay> = Arc::clone(settings.overlays.iter().next().unwrap());
    let outcome = served.tick(overlay.tick().unwrap()).unwrap().unwrap();
    (outcome.done, outcome.refused.len())
}

#[test]
fn answers_tell_the_time_that_is_left() {
    let fixture = directory(&[(&DESCRIPTOR, "dds-default-ttl 100")]);
    fixture.apply(TREE);
    fixture.apply(&dynamic("a"));
    for (seconds, left) in [(0, 100), (30, 70), (69, 1), (1, 0), (5, 0)] {
        pass(&fixture, seconds);
        assert_eq!(found(&fixture, "(cn=a)", &["entryTtl"]), format!("a: entryTtl={left}"), "{seconds}");
    }
    assert_eq!(found(&fixture, "(objectClass=dynamicObject)", &["cn"]), "a: cn=a");
}

#[test]
fn what_has_expired_goes_and_what_is_refreshed_stays() {
    let fixture = directory(&[(&DESCRIPTOR, "dds-default-ttl 100\ndds-tolerance 10")]);
    fixture.apply(TREE);
    fixture.apply(&dynamic("a"));
    fixture.apply(&dynamic("b"));
    fixture.apply(&dynamic("c,cn=a").replace("cn: c,cn=a", "cn: c"));
    let there = |fixture: &Fixture<MemoryStore>| found(fixture, "(objectClass=dynamicObject)", &["1.1"]);
    pass(&fixture, 100);
    assert_eq!((turn(&fixture), there(&fixture).as_str()), ((0, 0), "a; b; c"), "the tolerance");
    fixture.apply(&replace("c,cn=a", "entryTtl", "200"));
    pass(&fixture, 10);
    assert_eq!((turn(&fixture), there(&fixture).as_str()), ((1, 0), "a; c"), "not above one that lives");
    // One that has expired is there until it is deleted, and can be refreshed.
    fixture.apply(&replace("a", "entryTtl", "50"));
    pass(&fixture, 60);
    assert_eq!(there(&fixture), "a; c");
    pass(&fixture, 140);
    assert_eq!((turn(&fixture), there(&fixture).as_str()), ((2, 0), ""), "the lower one first");
    assert_eq!(turn(&fixture), (0, 0));
}

#[test]
fn a_refresh_between_look_and_delete_wins() {
    use larix_engine::overlay::Failure;
    use larix_engine::overlay::committed::{Tick, TickChanges, Turn};

    /// Looks, and then somebody else refreshes before the deletes are asked for.
    #[derive(Debug)]
    struct Slow<'f>(&'f Fixture<MemoryStore>, Arc<dyn Overlay>);

    impl Tick for Slow<'_> {
        fn interval(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }

        fn tick(&self, turn: &Turn<'_>) -> Result<TickChanges, Failure> {
            let ticked = self.1.tick().unwrap().tick(turn)?;
            assert_eq!(ticked.changes.len(), 1);
            self.0.apply(&replace("a", "entryTtl", "100"));
            Ok(ticked)
        }
    }

    let fixture = directory(&[(&DESCRIPTOR, "dds-default-ttl 100")]);
    fixture.apply(TREE);
    fixture.apply(&dynamic("a"));
    pass(&fixture, 101);
    let served = &fixture.directory.databases()[0];
    let settings = served.database().settings();
    let overlay = Arc::clone(settings.overlays.iter().next().unwrap());
    let outcome = served.tick(&Slow(&fixture, overlay)).unwrap().unwrap();
    assert_eq!((outcome.done, outcome.refused.len()), (0, 0));
    assert_eq!(found(&fixture, "(cn=a)", &["entryTtl"]), "a: entryTtl=100");
}

#[test]
fn changes_keep_the_rules() {
    let fixture = directory(&[(&DESCRIPTOR, "dds-max-ttl 1d\ndds-max-dynamicObjects 2")]);
    fixture.apply(TREE);
    fixture.apply(&dynamic("a"));
    let class = |name: &str, kind: &str, classes: &str| {
        let mut text = format!("dn: {name}\nchangetype: modify\n{kind}: objectClass\n");
        classes.split(' ').for_each(|class| text += &format!("objectClass: {class}\n"));
        text
    };
    let a = format!("cn=a,{SUFFIX}");
    let people = format!("ou=People,{SUFFIX}");
    for (change, expected) in [
        (
            dynamic("b,cn=a").replace("cn: b,cn=a", "cn: b").replace("objectClass: dynamicObject\n", ""),
            "19 no static subordinate entries allowed for dynamicObject",
        ),
        (
            class(&a, "delete", "dynamicObject"),
            "65 objectClass modification cannot turn dynamicObject into static entry",
        ),
        // slapd lets this one through.
        (
            class(&a, "replace", "top person"),
            "65 objectClass modification cannot turn dynamicObject into static entry",
        ),
        (
            class(&people, "add", "dynamicObject"),
            "65 objectClass modification cannot turn static entry into dynamicObject",
        ),
        (
            format!(
                "dn: {people}\nchangetype: modrdn\nnewrdn: ou=People\ndeleteoldrdn: 1\nnewsuperior: {a}\n"
            ),
            "19 static entry cannot have dynamicObject as newSuperior",
        ),
        (replace("a", "entryTtl", "0"), "2 invalid time-to-live for dynamicObject"),
        (replace("a", "entryTtl", "31557601"), "2 invalid time-to-live for dynamicObject"),
        (replace("a", "entryTtl", "86401"), "4 time-to-live for dynamicObject exceeds administrative limit"),
        (replace("a", "entryTtl", ""), "65 a dynamicObject has an entryTtl"),
        (
            replace("a", "entryExpireTimestamp", "20991231235959Z"),
            "19 entryExpireTimestamp: no-user-modification attribute not manageable",
        ),
        (replace("Bo,ou=People", "entryTtl", "10"), "65 refresh operation only applies to dynamic objects"),
        (dynamic("b"), "0"),
        (dynamic("c"), "53 too many dynamicObjects in context"),
        (format!("dn: cn=b,{SUFFIX}\nchangetype: delete\n"), "0"),
        (dynamic("c"), "0"),
        (class(&a, "add", "extensibleObject"), "0"),
    ] {
        assert_eq!(fixture.change(&change), expected, "{change}");
    }
}

#[test]
fn a_refresh_takes_manage_access_to_the_time() {
    for (rule, expected) in [
        ("to attrs=entryTtl by * manage", "0"),
        ("to attrs=entryTtl by * write", "50"),
        ("to dn.base=cn=a,dc=example,dc=com by * none", "32 matched \"dc=example,dc=com\""),
    ] {
        let mut fixture = ruled(&[(&DESCRIPTOR, "")], &[rule, "to * by * write"]);
        fixture.apply(TREE);
        fixture.apply(&dynamic("a"));
        fixture.bind("");
        let answer = fixture.change(&replace("a", "entryTtl", "10"));
        assert!(answer.starts_with(expected.split(' ').next().unwrap()), "{rule}: {answer}");
    }
}

#[test]
fn rules_see_who_makes_an_entry() {
    for (creator, expected) in [("creatorsName", "0"), ("member", "50 no write access to entry")] {
        let rule = format!("to dn.onelevel={SUFFIX} by dnattr={creator} write by * read");
        let rules = [rule.as_str(), "to * by users write"];
        let mut fixture = ruled(&[(&DESCRIPTOR, "")], &rules);
        fixture.apply(TREE);
        fixture.bind(&format!("cn=Bo,ou=People,{SUFFIX}"));
        assert_eq!(fixture.change(&dynamic("a")), expected, "{creator}");
    }
}

#[test]
fn off_it_keeps_entries_as_they_are() {
    let fixture = directory(&[(&DESCRIPTOR, "dds-state off")]);
    fixture.apply(TREE);
    fixture.apply(&dynamic("a"));
    assert_eq!(found(&fixture, "(cn=a)", &["entryTtl"]), "a");
}

/// slapd's check of the schema has that rule, whatever `dds-state` is.
#[test]
fn a_static_entry_has_no_time_to_live() {
    let only = "65 attribute \"entryTtl\" only allowed in dynamic object";
    let class = |more: &str| {
        format!(
            "dn: cn=a,{SUFFIX}\ncontrol: {RELAX} true\nchangetype: modify\ndelete: objectClass\n\
             objectClass: dynamicObject\n{more}"
        )
    };
    for (line, refused, made_static, both) in [
        (
            "dds-state on",
            "65 refresh operation only applies to dynamic objects",
            "65 objectClass modification cannot turn dynamicObject into static entry",
            "65 a dynamicObject has an entryTtl",
        ),
        ("dds-state off", only, only, "0"),
    ] {
        let fixture = directory(&[(&DESCRIPTOR, line)]);
        fixture.apply(TREE);
        let relaxed = format!("control: {RELAX} true\nchangetype");
        let add = |name: &str| dynamic(name).replace("changetype", &relaxed);
        let fixed = add("b").replace("objectClass: dynamicObject\n", "");
        assert_eq!(fixture.change(&(fixed.clone() + "entryTtl: 100\n")), only, "{line}");
        assert_eq!(fixture.change(&fixed), "0", "{line}");
        assert_eq!(fixture.change(&(add("a") + "entryTtl: 100\n")), "0", "{line}");
        assert_eq!(fixture.change(&replace("b", "entryTtl", "10")), refused, "{line}");
        assert_eq!(fixture.change(&replace("a", "entryTtl", "10")), "0", "{line}");
        assert_eq!(fixture.change(&class("")), made_static, "{line}");
        assert_eq!(fixture.change(&class("-\ndelete: entryTtl\n")), both, "{line}");
    }
}

#[test]
fn refreshes_are_understood() {
    let requests = Requests::through((&DESCRIPTOR, intercept), "dds-min-ttl 1h").unwrap();
    let dn = format!("cn=a,{SUFFIX}");
    let value = |ttl: &[u8]| {
        let mut value = vec![0x80, u8::try_from(dn.len()).unwrap()];
        value.extend_from_slice(dn.as_bytes());
        value.extend([0x81, u8::try_from(ttl.len()).unwrap()]);
        value.extend_from_slice(ttl);
        let mut whole = vec![0x30, u8::try_from(value.len()).unwrap()];
        whole.extend(value);
        whole
    };
    for (value, expected) in [
        (None, "2 empty request data field in refresh exop"),
        (Some(vec![0x30, 0]), "2 data decoding error"),
        (Some(value(&[])), "2 data decoding error"),
        (Some(value(&[0; 9])), "2 data decoding error"),
        (Some(value(&[0])), "2 invalid time-to-live for dynamicObject"),
        (Some(value(&[0xff])), "2 invalid time-to-live for dynamicObject"),
        (Some(value(&[1, 0x51, 0x81])), "4 time-to-live for dynamicObject exceeds limit"),
        // The least that is given.
        (Some(value(&[1])), "0 reached 30 04 81 02 0e 10"),
        (Some(value(&[1, 0x51, 0x80])), "0 reached 30 05 81 03 01 51 80"),
    ] {
        let answer = requests.extended_with(oid::REFRESH, &dn, value.as_deref());
        let answer = if answer == "later" { requests.late().unwrap() } else { answer };
        assert_eq!(answer, expected, "{value:?}");
    }
    assert_eq!(requests.extended("1.2.3", &dn), "0 reached");
}

#[test]
fn mistakes_are_named() {
    let schema = schema("");
    for (lines, fault) in [
        ("dds-max-ttl 1h", "dds-max-ttl \"1h\": 3600 seconds are not between a day and 31557600 seconds"),
        ("dds-max-ttl 1y", "`1y` is not a time"),
        ("dds-min-ttl 5m1h", "`5m1h` is not a time"),
        ("dds-interval 0", "0 seconds are not between"),
        ("dds-tolerance 400d", "34560000 seconds are more than 31557600"),
        ("dds-default-ttl 2d", "dds-default-ttl is longer than dds-max-ttl"),
        ("dds-default-ttl 1h\ndds-min-ttl 2h", "dds-min-ttl is longer than dds-default-ttl"),
        ("dds-max-dynamicObjects many", "dds-max-dynamicObjects \"many\": not a number"),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault), "{lines}: {error}");
    }
    assert!(build(&DESCRIPTOR, &schema, "dds-max-ttl 1d12h30m10s\ndds-interval 5").is_ok());
}

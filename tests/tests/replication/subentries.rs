//! Subentries (RFC 3672): a search does not show them, and a copy has them.

use larix_testkit::{Kind, until};
use larix_tests::replicas::{Member, SUFFIX, ask};

use crate::consumer::{line, provider};

const PERSIST: &str = "type=refreshAndPersist";

/// The request that adds one.
fn added(name: &str) -> String {
    format!(
        "add \"cn={name},{SUFFIX}\"\n  objectClass: subentry\n  objectClass: extensibleObject\n  cn: {name}\n  \
         subtreeSpecification: {{}}"
    )
}

/// What a server shows of one, by its name.
fn shown(member: &Member, name: &str) -> Vec<String> {
    let request =
        format!("search \"cn={name},{SUFFIX}\" base (objectClass=*) cn description entryUUID entryCSN");
    let answer = ask(&mut member.client(), &request);
    let mut lines: Vec<String> = answer.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn has(member: &Member, name: &str) -> bool {
    shown(member, name).iter().any(|line| line == "=> 0")
}

fn arrives(provider: &Member, consumer: &Member, name: &str) {
    assert!(has(provider, name), "{name}");
    until(name, || shown(consumer, name) == shown(provider, name));
}

#[test]
fn a_copy_has_the_subentries() {
    let provider = provider(Kind::Larix, 10);
    provider.change(&added("first"));
    let mut consumer = Member::new(Kind::Larix, "", &line(1, &provider, PERSIST)).started();
    arrives(&provider, &consumer, "first");
    provider.change(&added("second"));
    arrives(&provider, &consumer, "second");
    provider.change(&format!("modify \"cn=first,{SUFFIX}\"\n  replace description: other"));
    arrives(&provider, &consumer, "first");
    consumer.stop();
    provider.change(&format!("delete \"cn=first,{SUFFIX}\""));
    provider.change(&added("third"));
    consumer.start();
    arrives(&provider, &consumer, "third");
    until("the delete", || !has(&consumer, "first"));
    arrives(&provider, &consumer, "second");
}

/// A slapd sends them when they are changed, and names none when it goes through its content.
#[test]
fn what_a_slapd_does_not_name_stays() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    let mut provider = provider(Kind::Slapd, 10);
    let mut consumer =
        Member::new(Kind::Larix, "", &line(1, &provider, PERSIST)).arguments(&["-d", "16384"]).started();
    consumer.wait_until_like(&provider);
    provider.change(&added("kept"));
    arrives(&provider, &consumer, "kept");
    consumer.stop();
    provider.change("delete \"uid=u2,ou=people,dc=example,dc=com\"");
    provider.stop();
    provider.start();
    consumer.start();
    consumer.wait_for_log("deleted 1 entries that the provider does not have");
    consumer.wait_until_like(&provider);
    arrives(&provider, &consumer, "kept");
}

//! Entries that were deleted and come back under their entryUUIDs, as `larix deleted` brings them back.

use larix_testkit::Kind;
use larix_tests::replicas::{Member, SUFFIX};

use crate::consumer::{kinds, line, provider};

const GONE: &str = "uid=u2,ou=people,dc=example,dc=com";

#[test]
fn they_stay_when_a_consumer_connects_again() {
    for kind in kinds() {
        let provider = provider(Kind::Larix, 10);
        let mut consumer = Member::new(kind, "", &line(1, &provider, "type=refreshAndPersist")).started();
        consumer.wait_until_like(&provider);
        let before = provider.content(SUFFIX).unwrap();
        let uuid = String::from_utf8(before[GONE]["entryuuid"][0].clone()).unwrap();
        provider.change(&format!("delete \"{GONE}\""));
        consumer.wait_until_like(&provider);
        provider.change(&format!(
            "add \"{GONE}\" with !relax\n  objectClass: inetOrgPerson\n  uid: u2\n  cn: Back\n  sn: Back\n  \
             entryUUID: {uuid}"
        ));
        consumer.wait_until_like(&provider);
        consumer.stop();
        provider.change("modify \"uid=u3,ou=people,dc=example,dc=com\"\n  replace title: Third");
        consumer.start();
        consumer.wait_for("the change", |content| {
            content.get("uid=u3,ou=people,dc=example,dc=com").is_some_and(|entry| entry.contains_key("title"))
        });
        consumer.wait_until_like(&provider);
    }
}

use super::*;

const SECOND: u64 = 1_000_000_000;

fn with(words: &[&str]) -> Admission {
    let mut limits = ClientLimits::default();
    for word in words {
        limits.apply_word(word).unwrap();
    }
    Admission::new(limits, 10_000)
}

fn at(nanos: u64) -> Monotonic {
    Monotonic(1_000 * SECOND + nanos)
}

fn from(address: &str) -> Option<IpAddr> {
    Some(address.parse().unwrap())
}

#[test]
fn places_are_freed_when_connections_end() {
    let admission = with(&["connections=3", "connections.address=2"]);
    let first = admission.admit(from("192.0.2.1"), at(0)).unwrap();
    let _second = admission.admit(from("192.0.2.1"), at(0)).unwrap();
    let third = admission.admit(from("192.0.2.1"), at(0)).unwrap_err();
    assert_eq!(third, Refusal::TooManyFromAddress(2));
    let _other = admission.admit(from("192.0.2.2"), at(0)).unwrap();
    assert_eq!(admission.admit(None, at(0)).unwrap_err(), Refusal::TooMany(3));
    drop(first);
    let _again = admission.admit(from("::ffff:192.0.2.1"), at(0)).unwrap();
    assert_eq!(admission.refused().connections.load(Ordering::Relaxed), 2);
}

#[test]
fn open_files_bound_the_connections() {
    for (descriptors, wanted, expected) in
        [(1024, 0, 896), (1024, 2000, 896), (1024, 100, 100), (40, 0, 30), (u64::MAX, 5, 5)]
    {
        let limits = ClientLimits { connections: wanted, ..ClientLimits::default() };
        assert_eq!(Admission::new(limits, descriptors).connections_max(), expected, "{descriptors} {wanted}");
    }
}

#[test]
fn tokens_come_back_evenly() {
    let bucket = Bucket::default();
    let rate = Rate { count: 4, seconds: 1 };
    for (nanos, expected) in [
        (0, true),
        (0, true),
        (0, true),
        (0, true),
        (0, false),
        (SECOND / 4 - 1, false),
        (SECOND / 4, true),
        (SECOND / 4, false),
        (9 * SECOND, true),
        (9 * SECOND, true),
        (9 * SECOND, true),
        (9 * SECOND, true),
        (9 * SECOND, false),
    ] {
        assert_eq!(bucket.take(at(nanos), rate).is_some(), expected, "{nanos}");
    }
}

#[test]
fn connects_and_operations_by_address() {
    let admission = with(&["connects.address=1", "operations.anonymous=2/m", "except=198.51.100.0/24"]);
    let one = admission.admit(from("192.0.2.1"), at(0)).unwrap();
    let text = admission.admit(from("192.0.2.1"), at(0)).unwrap_err().result().diagnostic;
    assert_eq!(text, "more than 1 a second new connections from this address; try again later");
    let two = admission.admit(from("192.0.2.1"), at(SECOND)).unwrap();
    assert!(admission.anonymous_operation(&one, at(SECOND)).is_ok());
    assert!(admission.anonymous_operation(&two, at(SECOND)).is_ok());
    assert_eq!(admission.anonymous_operation(&two, at(SECOND)).unwrap_err().code, ResultCode::BUSY);
    for _ in 0..5 {
        let free = admission.admit(from("198.51.100.7"), at(0)).unwrap();
        assert!((0..5).all(|_| admission.anonymous_operation(&free, at(0)).is_ok()));
    }
}

#[test]
fn only_failed_binds_count_and_those_under_way_do() {
    let admission = with(&["failures.address=3/m"]);
    let client = admission.admit(from("2001:db8::1"), at(0)).unwrap();
    let neighbour = admission.admit(from("2001:db8::2"), at(0)).unwrap();
    let stranger = admission.admit(from("2001:db8:0:1::1"), at(0)).unwrap();
    for _ in 0..10 {
        let paid = admission.bind_begins(&client, at(0)).unwrap().unwrap();
        admission.bind_did_not_fail(&client, paid, at(0));
    }
    for _ in 0..3 {
        admission.bind_begins(&client, at(0)).unwrap();
    }
    assert!(admission.bind_begins(&client, at(0)).is_err());
    assert!(admission.bind_begins(&neighbour, at(0)).is_err());
    assert!(admission.bind_begins(&stranger, at(0)).is_ok());
    assert!(admission.bind_begins(&neighbour, at(20 * SECOND)).is_ok());
}

#[test]
fn no_more_is_given_back_than_was_paid() {
    let admission = with(&["failures.address=3/m"]);
    let client = admission.admit(from("192.0.2.1"), at(0)).unwrap();
    let slow = admission.bind_begins(&client, at(0)).unwrap().unwrap();
    for _ in 0..3 {
        admission.bind_begins(&client, at(60 * SECOND)).unwrap();
    }
    admission.bind_did_not_fail(&client, slow, at(60 * SECOND));
    assert!(admission.bind_begins(&client, at(60 * SECOND)).is_err(), "that token had come back by itself");

    let admission = with(&["failures.address=1000/s"]);
    let client = admission.admit(from("192.0.2.1"), at(0)).unwrap();
    let begun: Vec<_> = (0..2).map(|_| admission.bind_begins(&client, at(0)).unwrap().unwrap()).collect();
    let mut limits = ClientLimits::default();
    limits.apply_word("failures.address=3/h").unwrap();
    admission.set_limits(limits);
    for _ in 0..2 {
        admission.bind_begins(&client, at(0)).unwrap();
    }
    begun.into_iter().for_each(|paid| admission.bind_did_not_fail(&client, paid, at(0)));
    admission.bind_begins(&client, at(0)).unwrap();
    assert!(admission.bind_begins(&client, at(0)).is_err(), "they had paid a thousandth of a second each");
}

#[test]
fn memory_is_bounded() {
    let admission = with(&["failures.address=1/h"]);
    for n in 0..u32::try_from(ADDRESSES_MAX).unwrap() + 100 {
        let client = admission.admit(Some(IpAddr::from(n.to_be_bytes())), at(0)).unwrap();
        // Those beyond share an account, which is empty after the first of them.
        let _ = admission.bind_begins(&client, at(0));
    }
    assert_eq!(admission.addresses().known.len(), ADDRESSES_MAX);
    // If there is no room, the table is looked through once a second at most.
    for (nanos, expected) in
        [(SECOND, SECOND), (SECOND + 1, SECOND), (2 * SECOND - 1, SECOND), (2 * SECOND, 2 * SECOND)]
    {
        admission.admit(from("203.0.113.1"), at(nanos)).unwrap();
        assert_eq!(admission.addresses().swept, at(expected), "{nanos}");
    }
    // An hour later nothing is worth remembering.
    admission.admit(from("203.0.113.1"), at(3601 * SECOND)).unwrap();
    assert_eq!(admission.addresses().known.len(), 1);
}

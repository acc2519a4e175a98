use larix_engine::csn::Csn;
use uuid::Uuid;

use super::*;

fn csn(text: &str) -> Csn {
    text.parse().unwrap()
}

/// A server that holds these rows.
fn answer(rows: &[Row], request: &DigestRequest) -> DigestResponse {
    request.check().unwrap();
    let mut ranges = Vec::new();
    for (range, split) in &request.ranges {
        let inside: Vec<Row> = rows.iter().filter(|row| range.holds(hash_of(&row.uuid))).copied().collect();
        if inside.len() <= LIST_MAX {
            ranges.push(Content::Listed(inside));
            continue;
        }
        let mut cells = vec![Cell::default(); 1 << split];
        for row in &inside {
            cells[range.part_of(hash_of(&row.uuid), *split)].add(row.digest);
        }
        ranges.push(Content::Split(cells));
    }
    DigestResponse { entries: rows.len() as u64, context: [Vec::new(), Vec::new()], ranges }
}

fn rows(count: u128) -> Vec<Row> {
    let row = |number: u128| Row {
        // As v7 UUIDs made within one second: their first bytes are alike.
        uuid: Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + number),
        csn: Some(csn("20260101000000.000000Z#000000#001#000000")),
        digest: number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
    };
    (1..=count).map(row).collect()
}

/// How many questions it takes to find what differs, and that it is what was made to differ.
fn check(here: &[Row], there: &[Row], mut expected: Vec<Uuid>, questions_max: usize) {
    let mut difference = Difference::new(1_000);
    let mut questions = 0;
    while let Some(question) = difference.question() {
        questions += 1;
        let request = question.request("dc=example", &[]);
        let request = DigestRequest::decode(&request.encode()).unwrap();
        let [here, there] = [here, there].map(|rows| {
            let answer = answer(rows, &request);
            let read = DigestResponse::decode(&answer.encode()).unwrap();
            assert_eq!(read, answer);
            read
        });
        difference.answers(&here.ranges, &there.ranges).unwrap();
    }
    let mut found: Vec<Uuid> = difference.different().iter().map(|entry| entry.uuid).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(questions <= questions_max, "{questions} questions");
}

#[test]
fn few_questions_find_what_differs() {
    let all = rows(10_000);
    check(&all, &all, vec![], 1);
    let mut changed = all.clone();
    changed[4_321].digest ^= 1;
    check(&all, &changed, vec![all[4_321].uuid], 2);
    let mut fewer = all.clone();
    let gone = fewer.swap_remove(77);
    check(&fewer, &all, vec![gone.uuid], 2);
    check(&all, &fewer, vec![gone.uuid], 2);
    check(&[], &all[..300], all[..300].iter().map(|row| row.uuid).collect(), 3);
    check(&all[..5], &all[..6], vec![all[5].uuid], 1);
}

#[test]
fn ranges_and_their_parts() {
    for (range, split) in [(Range::ALL, 12), (Range::ALL.part(0xabc, 12), 8), (Range::ALL.part(1, 1), 31)] {
        for hash in [0u32, 1, 0xabcd_ef01, 0xffff_ffff, 0x8000_0000] {
            if range.holds(hash) {
                let part = range.part(range.part_of(hash, split), split);
                assert!(part.holds(hash), "{range:?} {hash:x} {part:?}");
            }
        }
    }
    let whole = Range { prefix: 7, bits: 32 };
    assert!(whole.holds(7) && !whole.holds(6));
    assert_eq!(whole.part_of(7, 0), 0);
}

#[test]
fn what_a_digest_depends_on() {
    type Values<'a> = &'a [(&'a str, &'a str)];
    let digest = |superior: u128, rdn: &str, csn: &Csn, values: Values<'_>| {
        let mut digest = EntryDigest::new(
            &Uuid::from_u128(1),
            Some(&Uuid::from_u128(superior)),
            rdn.as_bytes(),
            Some(csn),
        );
        values.iter().for_each(|(name, value)| digest.value(name, value.as_bytes()));
        digest.finish()
    };
    let first = csn("20260101000000.000000Z#000000#001#000000");
    let later = csn("20260101000000.000001Z#000000#001#000000");
    let one = digest(2, "cn=a", &first, &[("cn", "a"), ("sn", "b"), ("sn", "c")]);
    assert_eq!(one, digest(2, "cn=a", &first, &[("sn", "c"), ("cn", "a"), ("sn", "b")]), "order");
    for (what, other) in [
        ("superior", digest(3, "cn=a", &first, &[("cn", "a"), ("sn", "b"), ("sn", "c")])),
        ("rdn", digest(2, "cn=b", &first, &[("cn", "a"), ("sn", "b"), ("sn", "c")])),
        ("csn", digest(2, "cn=a", &later, &[("cn", "a"), ("sn", "b"), ("sn", "c")])),
        ("value", digest(2, "cn=a", &first, &[("cn", "a"), ("sn", "b"), ("sn", "d")])),
        ("attribute", digest(2, "cn=a", &first, &[("cn", "a"), ("sn", "b"), ("s", "nc")])),
        ("fewer", digest(2, "cn=a", &first, &[("cn", "a"), ("sn", "b")])),
    ] {
        assert_ne!(one, other, "{what}");
    }
}

#[test]
fn questions_have_limits() {
    let request = |ranges| DigestRequest { base: String::new(), without: Vec::new(), ranges };
    for (ranges, expected) in [
        (vec![(Range::ALL, 16)], true),
        (vec![(Range::ALL, 17)], false),
        (vec![(Range::ALL, 12); 16], true),
        (vec![(Range::ALL, 12); 17], false),
        (vec![(Range::ALL, 0); 257], false),
        (vec![], false),
        (vec![(Range { prefix: 0, bits: 30 }, 3)], false),
        (vec![(Range { prefix: 0, bits: u32::MAX }, 3)], false),
    ] {
        assert_eq!(request(ranges.clone()).check().is_ok(), expected, "{ranges:?}");
    }
}

use super::*;

#[test]
fn integers() {
    let check = |value: i64, expected: &[u8]| {
        let mut out = Vec::new();
        write::integer(&mut out, Tag::INTEGER, value);
        assert_eq!(out, expected, "{value}");
        assert_eq!(Reader::new(&out).integer("n"), Ok(value));
    };
    check(0, b"\x02\x01\x00");
    check(1, b"\x02\x01\x01");
    check(-1, b"\x02\x01\xff");
    check(127, b"\x02\x01\x7f");
    check(128, b"\x02\x02\x00\x80");
    check(-128, b"\x02\x01\x80");
    check(-129, b"\x02\x02\xff\x7f");
    check(0x7fff_ffff, b"\x02\x04\x7f\xff\xff\xff");
    check(0x8000_0000, b"\x02\x05\x00\x80\x00\x00\x00");
    check(i64::MAX, b"\x02\x08\x7f\xff\xff\xff\xff\xff\xff\xff");
    check(i64::MIN, b"\x02\x08\x80\x00\x00\x00\x00\x00\x00\x00");
}

#[test]
fn loose_forms_are_read() {
    let integer = |ber: &[u8]| Reader::new(ber).integer("n");
    let wrong = |fault| Err(DecodeError::new("n", fault));
    // Octets that say nothing, in numbers and lengths.
    assert_eq!(integer(b"\x02\x09\0\0\0\0\0\0\0\0\x05"), Ok(5));
    assert_eq!(integer(b"\x02\x09\xff\xff\xff\xff\xff\xff\xff\xff\x85"), Ok(-123));
    assert_eq!(integer(b"\x02\x84\0\0\0\x01\x05"), Ok(5));
    assert_eq!(integer(b"\x02\x88\0\0\0\0\0\0\0\x01\x05"), Ok(5));
    assert_eq!(integer(b"\x02\x09\x01\0\0\0\0\0\0\0\0"), wrong(Fault::IntegerLength(9)));
    assert_eq!(integer(b"\x02\x00"), wrong(Fault::IntegerLength(0)));
    assert_eq!(integer(b"\x02\x80\x05\0\0"), wrong(Fault::IndefiniteLength));
    assert_eq!(integer(b"\x02\x89\0\0\0\0\0\0\0\0\x01\x05"), wrong(Fault::LengthOfLength(9)));
    assert_eq!(integer(b"\x02\x82\x01"), wrong(Fault::Truncated { needed: 2, left: 1 }));
    assert_eq!(
        integer(b"\x02\x84\xff\xff\xff\xff"),
        wrong(Fault::Truncated { needed: 0xffff_ffff, left: 0 })
    );
    assert_eq!(integer(b"\x02"), wrong(Fault::Truncated { needed: 2, left: 1 }));
    assert_eq!(integer(b""), wrong(Fault::Missing));
    let unsigned = |ber: &[u8]| Reader::new(ber).unsigned("n");
    assert_eq!(unsigned(b"\x02\x05\0\x7f\xff\xff\xff"), Ok(0x7fff_ffff));
    let range = |value| Err(DecodeError::new("n", Fault::OutOfRange { value, min: 0, max: 0x7fff_ffff }));
    assert_eq!(unsigned(b"\x02\x01\xff"), range(-1));
    assert_eq!(unsigned(b"\x02\x05\0\x80\0\0\0"), range(0x8000_0000));
    let boolean = |ber: &[u8]| Reader::new(ber).boolean("b");
    assert_eq!(boolean(b"\x01\x01\0"), Ok(false));
    assert_eq!(boolean(b"\x01\x01\x01"), Ok(true));
    assert_eq!(boolean(b"\x01\x01\xff"), Ok(true));
    assert_eq!(boolean(b"\x01\x02\0\0"), Err(DecodeError::new("b", Fault::BooleanLength(2))));
}

#[test]
fn lengths_are_the_shortest() {
    for length in [0usize, 1, 127, 128, 255, 256, 65_535, 65_536, 70_000, 16_777_216] {
        let contents = vec![7; length];
        let mut primitive = Vec::new();
        write::octets(&mut primitive, Tag::SEQUENCE, &contents);
        assert_eq!(primitive.len(), write::element_len(length), "{length}");
        assert_eq!(Reader::new(&primitive).expect(Tag::SEQUENCE, "s"), Ok(&contents[..]));
        let mut constructed = vec![1, 2, 3];
        write::constructed(&mut constructed, Tag::SEQUENCE, |out| out.extend_from_slice(&contents));
        assert!(constructed[3..] == primitive, "{length}");
        let mut wide = vec![1, 2, 3];
        let open = write::Open::wide(&mut wide, Tag::SEQUENCE);
        wide.extend_from_slice(&contents);
        open.close(&mut wide);
        assert_eq!(Reader::new(&wide[3..]).expect(Tag::SEQUENCE, "s"), Ok(&contents[..]), "{length}");
    }
}

#[test]
fn errors_name_the_field() {
    let check = |error: DecodeError, expected: &str| assert_eq!(error.to_string(), expected);
    let mut reader = Reader::new(b"\x04\x02a\xff");
    check(reader.string("baseObject").unwrap_err(), "baseObject: not UTF-8 at byte 1");
    let mut reader = Reader::new(b"\x04\x80a");
    check(reader.string("name").unwrap_err(), "name: indefinite length, which LDAP does not allow");
    let mut reader = Reader::new(b"\x04\x05a");
    check(reader.octets("vals").unwrap_err(), "vals: 5 bytes announced, 1 left");
    let mut reader = Reader::new(b"\x04\x01a");
    check(reader.set("vals").unwrap_err(), "vals: expected tag 0x31, found 0x04");
}

#[test]
fn text_is_what_the_library_takes_for_text() {
    for length in 0..40_usize {
        let ascii: Vec<u8> = (0..length as u8).map(|at| b'a' + at % 26).collect();
        assert!(is_text(&ascii), "{length}");
        for at in 0..length {
            for byte in [0x7f, 0x80, 0xc3, 0xff] {
                let mut octets = ascii.clone();
                octets[at] = byte;
                assert_eq!(is_text(&octets), std::str::from_utf8(&octets).is_ok(), "{octets:?}");
                if let Some(next) = octets.get_mut(at + 1) {
                    *next = 0xa4;
                    assert_eq!(is_text(&octets), std::str::from_utf8(&octets).is_ok(), "{octets:?}");
                }
            }
        }
    }
}

use super::*;

fn prepared(text: &str, fold_case: bool, position: Position) -> String {
    let mut out = Vec::new();
    prepare(text, fold_case, position, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn steps_of_rfc_4518() {
    let cases = [
        // Insignificant spaces, section 2.6.1.
        ("", ""),
        (" ", " "),
        ("  \t ", " "),
        ("foo", "foo"),
        ("  foo   bar  ", "foo bar"),
        ("foo\u{3000}bar", "foo bar"),
        ("a \u{301}b", "a \u{301}b"),
        ("a  \u{301}b", "a  \u{301}b"),
        // Map, section 2.2.
        ("so\u{ad}ft", "soft"),
        ("zero\u{200b}width", "zerowidth"),
        ("line\r\nfeed", "line feed"),
        ("nul\0x\u{7f}", "nulx"),
        ("\u{ad}", " "),
        ("obj\u{fffc}", "obj"),
        ("va\u{fe0f}r", "var"),
        ("ÄÖÜ", "äöü"),
        ("Straße", "strasse"),
        ("STRAẞE", "strasse"),
        ("İ", "i\u{307}"),
        ("ΜΕΓΑΣ", "μεγασ"),
        ("Ⅳ", "iv"),
        // Letters that Unicode has had only since 3.2.
        ("Ꙁ", "ꙁ"),
        ("🄐", "(a)"),
        // Normalise, section 2.3.
        ("e\u{301}", "é"),
        ("E\u{301}", "é"),
        ("ﬁ", "fi"),
        ("ｆｕｌｌ", "full"),
        ("²", "2"),
        ("한글", "한글"),
        ("한글", "한글"),
        // What the RFC prohibits and OpenLDAP takes.
        ("😀", "😀"),
        ("\u{e000}", "\u{e000}"),
    ];
    for (text, expected) in cases {
        assert_eq!(prepared(text, true, Position::Whole), expected, "{text:?}");
        assert_eq!(prepared(expected, true, Position::Whole), expected, "{text:?}: not a fixed point");
    }
    assert_eq!(prepared("Ä  B", false, Position::Whole), "Ä B");
}

#[test]
fn a_prepared_character_is_prepared() {
    for character in '\0'..='\u{1ffff}' {
        for fold_case in [false, true] {
            let once = prepared(&character.to_string(), fold_case, Position::Whole);
            assert_eq!(prepared(&once, fold_case, Position::Whole), once, "{character:?} {fold_case}");
        }
    }
}

#[test]
fn spaces_at_the_ends_of_pieces() {
    let cases = [
        ("  a  b  ", "a b", "a b ", " a b ", " a b"),
        ("ä  ", "ä", "ä ", "ä ", "ä"),
        ("   ", " ", " ", " ", " "),
        ("a", "a", "a", "a", "a"),
    ];
    for (text, whole, initial, any, final_) in cases {
        assert_eq!(prepared(text, true, Position::Whole), whole, "{text:?}");
        assert_eq!(prepared(text, true, Position::Initial), initial, "{text:?}");
        assert_eq!(prepared(text, true, Position::Any), any, "{text:?}");
        assert_eq!(prepared(text, true, Position::Final), final_, "{text:?}");
    }
}

#[test]
fn quick_comparison() {
    let cases: [(&str, &str, Option<bool>); 14] = [
        ("abc", "ABC", Some(true)),
        ("abc", "abd", Some(false)),
        ("a b", "A B", Some(true)),
        ("a b", "A  B", None),
        ("abc", "ab", Some(false)),
        ("abc", "abc ", None),
        ("abc", "abc\u{301}", None),
        ("abc", "abx\u{301}", None),
        (" ", "x", Some(false)),
        (" ", "  ", None),
        ("é", "e\u{301}", None),
        ("abc", "abcd", Some(false)),
        ("ä", "Ä", None),
        ("ä", "ä", Some(true)),
    ];
    for (key, value, expected) in cases {
        assert_eq!(quick_equal(key.as_bytes(), value.as_bytes(), true), expected, "{key} {value}");
    }
    assert_eq!(quick_equal(b"abc", b"ABC", false), Some(false));
}

/// Byte by byte, what [`prepare_tidy`] tells of eight at once.
#[test]
fn tidy_texts_are_told_from_others_wherever_the_odd_byte_is() {
    let plain = b"Ab cdEfgH~ijk lmnopQ rstuvwXyz-!Z[@`{a b";
    let check = |text: &[u8]| {
        let inside =
            text.iter().all(|byte| matches!(byte, b' '..=b'~')) && !text.windows(2).any(|w| w == b"  ");
        let ends = [text.first(), text.last()].iter().all(|end| end.is_some_and(|end| *end != b' '));
        for fold_case in [false, true] {
            let mut out = b"before".to_vec();
            let tidy = prepare_tidy(text, fold_case, &mut out);
            assert_eq!(tidy, inside && ends, "{text:?}");
            let want = match (tidy, fold_case) {
                (false, _) => Vec::new(),
                (true, false) => text.to_vec(),
                (true, true) => text.to_ascii_lowercase(),
            };
            assert_eq!(out, [b"before", want.as_slice()].concat());
        }
    };
    for length in 0..plain.len() {
        let text = &plain[..length];
        check(text);
        for at in 0..length {
            for byte in
                [b' ', b'~', b'\x7f', b'\x1f', b'\t', 0, 0x80, 0xa0, 0xc3, 0xff, b'A', b'Z', b'@', b'[']
            {
                let mut text = text.to_vec();
                text[at] = byte;
                check(&text);
            }
        }
    }
}

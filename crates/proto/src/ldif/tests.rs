use std::io::{self, BufRead, Cursor};
use std::path::Path;

use super::*;

/// The records of `text`, written again, and the errors.
fn read(text: &str) -> Vec<Result<Record, String>> {
    Reader::new(text.as_bytes()).map(|record| record.map_err(|error| error.to_string())).collect()
}

fn attribute(description: &str, values: &[&str]) -> LdifAttribute {
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    LdifAttribute { description: description.into(), values }
}

fn content(line: u64, dn: &str, attributes: &[(&str, &[&str])]) -> Record {
    let attributes = attributes.iter().map(|(name, values)| attribute(name, values)).collect();
    Record { line, dn: dn.into(), body: Body::Content(attributes) }
}

#[test]
fn content_records() {
    let check = |text: &str, expected: &[Record]| {
        let expected: Vec<_> = expected.iter().cloned().map(Ok).collect();
        assert_eq!(read(text), expected, "{text:?}");
    };
    check("", &[]);
    check("\n\n\n", &[]);
    check("# only a comment", &[]);
    check("version: 1\n", &[]);
    check("version: 1\n\ndn: dc=x\n", &[content(3, "dc=x", &[])]);
    check("version: 1\ndn: dc=x\ndc: x", &[content(2, "dc=x", &[("dc", &["x"])])]);
    check(
        "dn: dc=x\r\ndc: x\r\n\r\n\r\ndn: dc=y\r\n",
        &[content(1, "dc=x", &[("dc", &["x"])]), content(5, "dc=y", &[])],
    );
    check(
        "dn: cn=a,\n dc=x\ncn:a\ncn:   b \nCN: c\n",
        &[content(1, "cn=a,dc=x", &[("cn", &["a", "b ", "c"])])],
    );
    check("dn: dc=x\n# comment\n folded\ndc: x\n y\n", &[content(1, "dc=x", &[("dc", &["xy"])])]);
    check("#c\n folded\ndn: dc=x\n", &[content(3, "dc=x", &[])]);
    check("dn:: ZGM9eA==\ndc::eA==\nsn:\n", &[content(1, "dc=x", &[("dc", &["x"]), ("sn", &[""])])]);
    check("dn:: ZGM9\n eA==\n", &[content(1, "dc=x", &[])]);
    check("dn:\ncn: root\n", &[content(1, "", &[("cn", &["root"])])]);
    check("dn: dc=x\na: 1\nb: 2\na: 3\n", &[content(1, "dc=x", &[("a", &["1", "3"]), ("b", &["2"])])]);
    check("12\ndn: dc=x\n", &[content(2, "dc=x", &[])]);
    check("dn : dc=x\ndc : x\n", &[content(1, "dc=x", &[("dc", &["x"])])]);
}

#[test]
fn many_attributes_stay_together() {
    let mut text = String::from("dn: dc=x\n");
    for round in 0..2 {
        for number in 0..100 {
            text.push_str(&format!("a{number}: {round}\n"));
        }
    }
    let records = read(&text);
    let Some(Ok(Record { body: Body::Content(attributes), .. })) = records.first() else {
        panic!("{records:?}")
    };
    assert_eq!(attributes.len(), 100);
    assert!(attributes.iter().all(|attribute| attribute.values == [b"0".to_vec(), b"1".to_vec()]));
}

#[test]
fn change_records() {
    let check = |text: &str, controls: Vec<ControlBuf>, change: Change| {
        let body = Body::Change { controls, change };
        assert_eq!(read(text), [Ok(Record { line: 1, dn: "cn=a".into(), body })], "{text:?}");
    };
    let modification = |operation, description: &str, values: &[&str]| {
        let LdifAttribute { description, values } = attribute(description, values);
        Modification { operation, description, values }
    };
    check("dn: cn=a\nchangetype: add\ncn: a\n", vec![], Change::Add(vec![attribute("cn", &["a"])]));
    check("dn: cn=a\nchangeType: Delete \n", vec![], Change::Delete);
    check(
        "dn: cn=a\nchangetype: modify\nadd: sn\nsn: x\nsn: y\n-\ndelete: l\n-\nreplace: o\n-\nincrement: n\nn: 1",
        vec![],
        Change::Modify(vec![
            modification(ModifyOperation::Add, "sn", &["x", "y"]),
            modification(ModifyOperation::Delete, "l", &[]),
            modification(ModifyOperation::Replace, "o", &[]),
            modification(ModifyOperation::Increment, "n", &["1"]),
        ]),
    );
    check("dn: cn=a\nchangetype: modify\n", vec![], Change::Modify(vec![]));
    for name in ["modrdn", "moddn"] {
        check(
            &format!("dn: cn=a\nchangetype: {name}\nnewrdn: cn=b\ndeleteoldrdn: 1\nnewsuperior: dc=x\n"),
            vec![],
            Change::ModifyDn {
                new_rdn: "cn=b".into(),
                delete_old_rdn: true,
                new_superior: Some("dc=x".into()),
            },
        );
    }
    let control = |oid: &'static str, critical, value: Option<&[u8]>| ControlBuf {
        oid: oid.into(),
        critical,
        value: value.map(<[u8]>::to_vec),
    };
    check(
        "dn: cn=a\ncontrol: 1.2 true\ncontrol: 1.3\ncontrol: 1.4 false: v\ncontrol: 1.5:: AAE=\ncontrol: 1.6:\nchangetype: delete\n",
        vec![
            control("1.2", true, None),
            control("1.3", false, None),
            control("1.4", false, Some(b"v")),
            control("1.5", false, Some(b"\0\x01")),
            control("1.6", false, Some(b"")),
        ],
        Change::Delete,
    );
}

#[test]
fn records_without_changetype_may_be_modifications() {
    let mut reader = Reader::new(&b"dn: cn=a\nreplace: sn\nsn: x\n-\n\ndn: cn=b\nchangetype: delete\n"[..])
        .assume_modify(true);
    let changes: Vec<_> = reader.by_ref().map(|record| record.expect("a record").body).collect();
    assert!(matches!(&changes[..], [
        Body::Change { change: Change::Modify(modifications), .. },
        Body::Change { change: Change::Delete, .. },
    ] if modifications.len() == 1));
}

#[test]
fn errors_name_their_line() {
    let check = |text: &str, expected: &str| {
        let errors: Vec<_> = read(text).into_iter().filter_map(Result::err).collect();
        assert_eq!(errors, [expected], "{text:?}");
    };
    let no_colon = "line 2: missing ':' (a line that continues the one before it begins with a space)";
    check("dn: dc=x\ndc x\n", no_colon);
    check("dn: dc=x\nphoto:: AAAA\nAAAA\n", &no_colon.replace('2', "3"));
    check("\n\ndn: dc=x\n: x\n", "line 4: nothing before the ':'");
    check("dn: dc=x\n\t#: x\n", "line 2: \"#\" is not an attribute description");
    check("dn: dc=x\nc n: x\n", "line 2: \"c n\" is not an attribute description");
    check("dn: dc=x\nchangetype: modify\nadd: é\n", "line 3: \"é\" is not an attribute description");
    check("cn: a\ndn: dc=x\n", "line 1: a record starts with \"dn:\", not with \"cn:\"");
    check(" x\ndn: dc=x\n", "line 1: continuation line with nothing before it to continue");
    check("version: 2\n", "line 1: LDIF version \"2\" is not 1");
    let not_base64 = |line: u64, name: &str| {
        format!(
            "line {line}: the value of \"{name}\" is not base64, which \"::\" announces (before text stands \":\")"
        )
    };
    check("dn: dc=x\n\ndn: dc=y\ndc:: ?\n\ndn: dc=z\n", &not_base64(4, "dc"));
    check("dn: dc=x\nDC: x\n\ndn: dc=y\nDC:: ?\n", &not_base64(5, "DC"));
    check("dn: dc=x\ncontrol: 1.2:: ?\nchangetype: delete\n", &not_base64(2, "control"));
    check("dn:: /w==\n", "line 1: DN is not UTF-8");
    for before in ["dc: x\n", "changetype: delete\n", "changetype: modify\n", "changetype: modify\nadd: sn\n"]
    {
        let line = before.lines().count() + 2;
        let expected = |line: usize| {
            format!("line {line}: a new record needs an empty line before it (a line of spaces is not empty)")
        };
        check(&format!("dn: dc=x\n{before}DN: dc=y\n"), &expected(line));
        check(&format!("dn: dc=x\n{before}  \nDN: dc=y\n"), &expected(line + 1));
    }
    for first in ["dn: dc=x", "# about", "version: 1"] {
        let expected = "line 1: a byte order mark: save the file as UTF-8 without one";
        check(&format!("\u{feff}{first}\n"), expected);
    }
    for text in [
        &b"\xff\xfed\0n\0:\0 \0d\0c\0=\0x\0\r\0\n\0"[..],
        b"\xfe\xff\0d\0n\0:\0 \0d\0c\0=\0x\0\r\0\n",
        b"d\0n\0:\0 \0d\0c\0=\0x\0\r\0\n\0",
        b"\0d\0n\0:\0 \0d\0c\0=\0x\0\r\0\n",
    ] {
        let error = Reader::new(text).next().expect("a record").expect_err("UTF-16");
        assert_eq!(error.to_string(), "line 1: UTF-16: save the file as UTF-8 without a byte order mark");
    }
    check(
        "dn: dc=x\nchangetype: move\n",
        "line 2: changetype \"move\" is not add, delete, modify, modrdn or moddn",
    );
    check("dn: dc=x\nchangetype: delete\ncn: a\n", "line 3: \"cn\" has no place here");
    check(
        "dn: dc=x\nchangetype: modify\nput: a\n",
        "line 3: \"put\" is not add, delete, replace or increment (an entry to add has a line \"changetype: add\")",
    );
    check(
        "dn: dc=x\nchangetype: modify\nadd: a\nb: 1\n",
        "line 4: value for \"b\" where \"a\" is modified (a line \"-\" ends a modification)",
    );
    check("dn: dc=x\nchangetype: modrdn\n", "line 2: \"newrdn:\" expected");
    check(
        "dn: dc=x\nchangetype: modrdn\nnewrdn: a=b\ndeleteoldrdn: 2\n",
        "line 4: deleteoldrdn \"2\" is not 0 or 1",
    );
    check("dn: dc=x\ncontrol: x\nchangetype: delete\n", "line 2: \"x\" is not a control");
    check("dn: dc=x\ncontrol: 1.2\ncn: x\n", "line 3: \"changetype:\" expected");
    check("dn: dc=x\n-\n", "line 2: \"-\" has no place here");
    check("dn: dc=x\njpegPhoto:< file:///x\n", "line 2: reading \"file:///x\" is not allowed here");
    check("include: file:///x\n", "line 1: reading \"file:///x\" is not allowed here");
}

/// Files that exist only here.
struct Fake;

impl Files for Fake {
    fn open(&mut self, path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
        let text = match path.to_str() {
            Some("/photo") => "bytes",
            Some("/more ldif") => "dn: dc=included\n\ndn: dc=second\ndc second\n",
            Some("/loop") => "include: file:///loop\n",
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(Cursor::new(text)))
    }
}

#[test]
fn values_and_includes_come_from_files() {
    let check = |text: &str, expected: &[Result<Record, &str>]| {
        let read: Vec<_> = Reader::new(text.as_bytes())
            .with_files(Fake)
            .map(|record| record.map_err(|error| error.to_string()))
            .collect();
        let expected: Vec<_> = expected.iter().cloned().map(|record| record.map_err(str::to_owned)).collect();
        assert_eq!(read, expected, "{text:?}");
        for bytes in [1, 30, 1000] {
            assert_eq!(in_chunks(text, bytes), expected, "{text:?} in chunks of {bytes}");
        }
    };
    check("dn: dc=x\nphoto:< file:///photo\n", &[Ok(content(1, "dc=x", &[("photo", &["bytes"])]))]);
    check("dn: dc=x\nphoto:<file://localhost/photo\n", &[Ok(content(1, "dc=x", &[("photo", &["bytes"])]))]);
    check("dn: dc=x\nphoto:< http://x/\n", &[Err("line 2: \"http://x/\" is not a file: URL")]);
    check("dn: dc=x\nphoto:< file:///none\n", &[Err("line 2: cannot read file:///none: entity not found")]);
    check(
        "include: file:///more%20ldif\n\ndn: dc=x\n",
        &[
            Ok(content(1, "dc=included", &[])),
            Err(
                "line 4 of file:///more%20ldif: missing ':' (a line that continues the one before it begins with a space)",
            ),
            Ok(content(3, "dc=x", &[])),
        ],
    );
    check(
        "include: file:///loop\n",
        &[Err("line 1 of file:///loop: more than 16 files included by one another")],
    );
}

/// The records of a text that is cut into chunks of at least so many bytes.
fn in_chunks(text: &str, bytes: usize) -> Vec<Result<Record, String>> {
    let mut chunks = Chunks::new(text.as_bytes()).with_files(Fake);
    let mut records = Vec::new();
    loop {
        match chunks.next_chunk(bytes) {
            Ok(Some(chunk)) => {
                let before = records.len();
                let reader = Reader::of_chunk(&chunk).with_files(Fake);
                records.extend(reader.map(|record| record.map_err(|e| e.to_string())));
                let read = (records.len() - before) as u64;
                assert_eq!(chunk.records.unwrap_or(read), read, "{text:?} in chunks of {bytes}");
            }
            Ok(None) => return records,
            Err(error) => records.push(Err(error.to_string())),
        }
    }
}

#[test]
fn chunks_have_the_records_of_the_whole() {
    for text in [
        "",
        "\n\n",
        "version: 1\n\ndn: cn=a\ncn: a\n\n\n\ndn: cn=b\ncn: b",
        "# comment\n# more\n folded\ndn: cn=a\r\ncn: a\r\n b\r\n\r\n# last\n",
        " stray\ninclude: file:///photo\n\ndn: cn=c\n# include: x\nsn: d\nno colon\n\ndn: cn=e\n",
        "dn: cn=a\ninclude: file:///none\n\ninclude: file:///none\ndn: cn=b\n\nINCLUDE:file:///more%20ldif",
        "dn: cn=a\nx: y\n\nDN:: Y249Yg==\n# in it\nx: y\n\n\ndn: cn=c\nno colon\n\ndn: cn=d\n\n",
        "# about\n what\ninclude: file:///more%20ldif\ndn: cn=behind\n\ninclude: http://x\nx: y\n",
    ] {
        let whole: Vec<_> = Reader::new(text.as_bytes())
            .with_files(Fake)
            .map(|record| record.map_err(|error| error.to_string()))
            .collect();
        for bytes in [1, 20, 40, 1000] {
            assert_eq!(in_chunks(text, bytes), whole, "{text:?} in chunks of {bytes}");
        }
    }
}

/// What a reader has learned from records before changes nothing about a record.
#[test]
fn records_are_read_alike_whatever_came_before() {
    let names = ["cn", "sn", "CN", "mail", "uid", "l", "Mail", "cn;x-a", "o", "ou", "st", "c"];
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut records = Vec::new();
    for number in 0..400 {
        let mut lines = vec![format!("dn: cn={number}\n")];
        // Many records have the same names in the same order, with one missing, one more or one elsewhere.
        let mut order: Vec<usize> = (0..[4, 9][number / 200]).collect();
        match random(4) {
            0 => drop(order.remove(random(order.len()))),
            1 => order.insert(random(order.len()), random(names.len())),
            2 => order.swap(0, 3),
            _ => {}
        }
        for name in order.into_iter().filter_map(|at| names.get(at)) {
            (0..=random(2)).for_each(|value| lines.push(format!("{name}: {value}\n")));
        }
        if random(20) == 0 {
            lines.push("bad name: x\n".to_owned());
        }
        records.push(lines.concat());
    }
    let without_lines = |text: &str| -> Vec<Option<Record>> {
        let readable = read(text).into_iter().map(Result::ok);
        readable.map(|record| record.map(|record| Record { line: 0, ..record })).collect()
    };
    let alone: Vec<_> = records.iter().flat_map(|record| without_lines(record)).collect();
    assert_eq!(without_lines(&records.join("\n")), alone);
    assert!(alone.iter().filter(|record| record.is_none()).count() > 5);
}

#[test]
fn lines_are_written_as_openldap_writes_them() {
    let check = |fold: Option<usize>, description: &str, value: &[u8], expected: &str| {
        let mut out = Vec::new();
        Writer::new(fold).value(&mut out, description, value);
        assert_eq!(String::from_utf8_lossy(&out), expected, "{description} {value:?}");
    };
    check(None, "cn", b"a b", "cn: a b\n");
    check(None, "cn", b"", "cn:\n");
    check(None, "cn", b" a", "cn:: IGE=\n");
    check(None, "cn", b"a ", "cn:: YSA=\n");
    check(None, "cn", b":a", "cn:: OmE=\n");
    check(None, "cn", b"<a", "cn:: PGE=\n");
    check(None, "cn", b"#a", "cn: #a\n");
    check(None, "cn", b"-", "cn: -\n");
    check(None, "cn", b"a\nb", "cn:: YQpi\n");
    check(None, "cn", "é".as_bytes(), "cn:: w6k=\n");
    check(None, "userPassword", b"x", "userPassword:: eA==\n");
    check(None, "userCertificate;binary", b"x", "userCertificate;binary:: eA==\n");
    let long = [b'x'; 200];
    let text = |count: usize| "x".repeat(count);
    check(Some(78), "cn", &long[..74], &format!("cn: {}\n", text(74)));
    check(Some(78), "cn", &long[..75], &format!("cn: {}\n x\n", text(74)));
    check(Some(78), "cn", &long, &format!("cn: {}\n {}\n {}\n", text(74), text(77), text(49)));
    check(None, "cn", &long, &format!("cn: {}\n", text(200)));
}

#[test]
fn what_is_written_is_read_again() {
    let modification = Modification {
        operation: ModifyOperation::Increment,
        description: "n".into(),
        values: vec![b"\xff\0".to_vec(), vec![b'y'; 300]],
    };
    let control = |value: Option<&[u8]>| ControlBuf {
        oid: "1.2.3".into(),
        critical: true,
        value: value.map(<[u8]>::to_vec),
    };
    let change = |change| Body::Change { controls: vec![], change };
    let controls = vec![control(None), control(Some(b"")), control(Some(b" \xff")), control(Some(b"plain"))];
    let bodies = [
        Body::Content(vec![attribute("cn", &["é", "", " ", "-", "dn: x"]), attribute("sn;x-y", &["\r\n"])]),
        change(Change::Add(vec![attribute("cn", &["a"])])),
        Body::Change { controls, change: Change::Delete },
        change(Change::Modify(vec![modification.clone(), modification])),
        change(Change::ModifyDn {
            new_rdn: "a= é".into(),
            delete_old_rdn: false,
            new_superior: Some("".into()),
        }),
    ];
    for fold in [None, Some(2), Some(78)] {
        let writer = Writer::new(fold);
        for body in &bodies {
            let record = Record { line: 1, dn: "cn=ü,dc=x".into(), body: body.clone() };
            let mut out = Vec::new();
            writer.record(&mut out, &record);
            let again: Vec<_> = Reader::new(&out[..]).collect::<Result<_, _>>().expect("readable");
            assert_eq!(again, [record], "{}", String::from_utf8_lossy(&out));
        }
    }
}

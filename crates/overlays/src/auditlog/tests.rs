use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larix_engine::overlay::committed::{
    ChangeOrigin, Committed, CommittedBatch, Gap, NoOtherWriters, NotTaken,
};

use super::DESCRIPTOR;
use super::file::{AuditFile, Rotation};
use crate::testing::{Followed, build, directory, schema};

fn committed(lines: &str) -> Result<Arc<dyn larix_engine::overlay::Overlay>, String> {
    build(&DESCRIPTOR, &schema(""), lines).map_err(|error| error.to_string())
}

#[test]
fn settings_that_cannot_be_honoured_are_refused() {
    for (lines, fault) in [
        ("auditlog /a\nauditlog-rotate 10 100", None),
        ("auditlog /a\nauditlog-passwords hide", None),
        ("auditlog-rotate 0 100", Some("not a number of files and a size")),
        ("auditlog-rotate 100 100", Some("1 to 99")),
        ("auditlog-rotate 10 0", Some("not a number of files and a size")),
        ("auditlog-passwords maybe", Some("neither show nor hide")),
    ] {
        match (committed(lines), fault) {
            (Ok(_), None) => {}
            (Err(error), Some(fault)) => assert!(error.contains(fault), "{lines}: {error}"),
            (built, _) => panic!("{lines}: {built:?}"),
        }
    }
}

/// The log without times and what differs from run to run.
fn normal(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let name = line.split(':').next().unwrap_or_default();
        match (words.as_slice(), name) {
            (["#", "end", kind, _], _) => lines.push(format!("# end {kind} T")),
            (["#", kind @ ("add" | "modify" | "delete" | "modrdn"), _, rest @ ..], _) => {
                lines.push(format!("# {kind} T {}", rest.join(" ")));
            }
            (_, "entryUUID" | "entryCSN" | "createTimestamp" | "modifyTimestamp") => {
                lines.push(format!("{name}: X"));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// What the file has after these changes of a directory with one person.
fn check(settings: &str, ldif: &str, origin: Option<ChangeOrigin>, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let lines = format!("auditlog {}\n{settings}", path.display());
    let directory = directory(&[(&DESCRIPTOR, &lines)]);
    directory.apply(crate::testing::TREE);
    let mut followed = Followed::new(&directory, "auditlog");
    directory.apply(ldif);
    followed.catch_up(origin.map(Arc::new));
    let found = normal(&fs::read_to_string(&path).unwrap());
    assert_eq!(found.trim_end(), expected, "{ldif}");
}

const ROOT_HEADER: &str = "dc=example,dc=com cn=Manager,dc=example,dc=com";

#[test]
fn changes_are_written_as_ldif_with_their_circumstances() {
    let people = "ou=People,dc=example,dc=com";
    let origin = |bound: &str| {
        Some(ChangeOrigin { connection: 1007, peer: "IP=[::1]:5".to_owned(), bound: bound.to_owned() })
    };
    check(
        "",
        &format!("dn: {people}\nchangetype: modify\nreplace: description\ndescription: a\n-\n"),
        origin("CN=manager,dc=example,dc=com"),
        &format!(
            "# modify T {ROOT_HEADER} IP=[::1]:5 conn=1007\ndn: {people}\nchangetype: modify\nreplace: description\n\
             description: a\n-\nreplace: entryCSN\nentryCSN: X\n-\nreplace: modifiersName\n\
             modifiersName: cn=Manager,dc=example,dc=com\n-\nreplace: modifyTimestamp\nmodifyTimestamp: X\n-\n\
             # end modify T"
        ),
    );
    check(
        "",
        &format!("dn: cn=z,{people}\nchangetype: add\nobjectClass: person\nsn: b\ncn: z\nuserPassword: x\n"),
        origin("cn=z,dc=a"),
        &format!(
            "# add T {ROOT_HEADER} IP=[::1]:5 conn=1007\n# realdn: cn=z,dc=a\ndn: cn=z,{people}\nchangetype: add\n\
             objectClass: person\nsn: b\ncn: z\nuserPassword:: eA==\nstructuralObjectClass: person\nentryUUID: X\n\
             creatorsName: cn=Manager,dc=example,dc=com\ncreateTimestamp: X\nentryCSN: X\n\
             modifiersName: cn=Manager,dc=example,dc=com\nmodifyTimestamp: X\n# end add T"
        ),
    );
    check(
        "auditlog-passwords hide",
        &format!("dn: cn=Bo,{people}\nchangetype: delete\n"),
        None,
        &format!("# delete T {ROOT_HEADER}  conn=-1\ndn: cn=Bo,{people}\nchangetype: delete\n# end delete T"),
    );
    check(
        "",
        &format!("dn: {people}\nchangetype: modrdn\nnewrdn: ou=Folk\ndeleteoldrdn: 1\n"),
        None,
        &format!(
            "# modrdn T {ROOT_HEADER}  conn=-1\ndn: {people}\nchangetype: modrdn\nnewrdn: ou=Folk\ndeleteoldrdn: 1\n\
             # end modrdn T"
        ),
    );
}

#[test]
fn passwords_are_withheld_when_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let lines = format!("auditlog {}\nauditlog-passwords hide", path.display());
    let directory = directory(&[(&DESCRIPTOR, &lines)]);
    directory.apply(crate::testing::TREE);
    let mut followed = Followed::new(&directory, "auditlog");
    directory.apply(
        "dn: cn=z,dc=example,dc=com\nchangetype: add\nobjectClass: person\nsn: b\nuserPassword: secret\n",
    );
    followed.catch_up(None);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("# userPassword: 1 values withheld\n"), "{text}");
    assert!(!text.contains("c2VjcmV0") && !text.contains("secret"), "{text}");
}

fn appended(file: &AuditFile, text: &str) -> Result<Option<String>, NotTaken> {
    file.append(text.as_bytes())
}

#[test]
fn a_file_is_put_aside_and_followed_when_it_is_moved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let file = AuditFile {
        path: path.clone(),
        non_blocking: false,
        rotation: Some(Rotation { keep: 2, bytes: 10 }),
    };
    for text in ["one one\n", "two two\n", "three\n", "4\n", "five five\n"] {
        assert_eq!(appended(&file, text), Ok(None));
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(
        [read("audit"), read("audit.01"), read("audit.02")],
        ["five five\n", "three\n4\n", "two two\n"].map(str::to_owned)
    );
    fs::rename(&path, folder.path().join("moved")).unwrap();
    appended(&file, "six\n").unwrap();
    assert_eq!((read("audit"), read("moved")), ("six\n".to_owned(), "five five\n".to_owned()));
}

/// As with a file that is a mount, or can only be appended to (chattr +a).
#[test]
fn a_file_that_stays_in_its_place_takes_none_of_the_others_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    for (name, text) in [("audit.01", "1"), ("audit.02", "2"), ("audit.03", "3")] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let rotation = Rotation { keep: 3, bytes: 10 };
    let file = AuditFile { path: path.clone(), non_blocking: false, rotation: Some(rotation) };
    for _ in 0..4 {
        // It is not there to be renamed.
        assert_eq!(file.put_aside(rotation), Ok(()));
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
    let found = [read("audit.01"), read("audit.02"), read("audit.03")];
    assert_eq!(found, [None, Some("1".to_owned()), Some("2".to_owned())]);
    // A directory stands where the file should go.
    fs::create_dir(folder.path().join("audit.01")).unwrap();
    let file = AuditFile { rotation: Some(Rotation { keep: 1, bytes: 10 }), ..file };
    assert_eq!(appended(&file, "one one\n"), Ok(None));
    let trouble = appended(&file, "two two\n").unwrap().unwrap();
    assert!(
        trouble.contains("audit cannot be renamed to") && trouble.contains("auditlog-rotate"),
        "{trouble}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "one one\ntwo two\n");
}

/// As with an old one that may not be replaced (chattr +i).
#[test]
fn an_old_file_that_stays_in_its_place_takes_no_newer_one_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let (first, second) = (folder.path().join("audit.01"), folder.path().join("audit.02"));
    fs::write(&first, "1").unwrap();
    fs::create_dir(&second).unwrap();
    let file = AuditFile {
        path: path.clone(),
        non_blocking: false,
        rotation: Some(Rotation { keep: 2, bytes: 10 }),
    };
    assert_eq!(appended(&file, "one one\n"), Ok(None));
    let trouble = appended(&file, "two two\n").unwrap().unwrap();
    assert!(trouble.contains("audit.01 cannot be renamed to"), "{trouble}");
    assert_eq!(fs::read_to_string(&first).unwrap(), "1");
    assert_eq!(fs::read_to_string(&path).unwrap(), "one one\ntwo two\n");
    fs::remove_dir(&second).unwrap();
    assert_eq!(appended(&file, "three\n"), Ok(None));
    assert_eq!(fs::read_to_string(&second).unwrap(), "1");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "nothing says that a thread waits for a lock of a file")]
fn audit_logs_of_several_databases_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let file = AuditFile { path: path.clone(), non_blocking: false, rotation: None };
    appended(&file, "one\n").unwrap();
    // Another one is about to put it aside.
    let other = fs::File::open(&path).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| appended(&file, "three\n"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        fs::rename(&path, folder.path().join("audit.01")).unwrap();
        fs::write(&path, "two\n").unwrap();
        drop(other);
        waiting.join().unwrap().unwrap();
    });
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!([read("audit"), read("audit.01")], ["two\nthree\n", "one\n"].map(str::to_owned));
}

#[test]
fn what_cannot_be_written_comes_again_and_a_pipe_without_reader_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = |path: &Path, non_blocking| AuditFile { path: path.to_owned(), non_blocking, rotation: None };
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    for (path, non_blocking, again) in [
        (Path::new("/dev/full"), false, true),
        (&folder.path().join("missing/audit"), false, true),
        (&pipe, true, false),
    ] {
        let error = appended(&file(path, non_blocking), "one\n").unwrap_err();
        assert_eq!(error.again, again, "{error:?}");
        assert!(error.message.contains(&path.display().to_string()), "{error:?}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let overlay = committed(&format!("auditlog {}", path.display())).unwrap();
    let schema = schema("");
    let batch = CommittedBatch {
        changes: &[],
        gap: Some(Gap::Records(7)),
        schema: &schema,
        suffix: "dc=a",
        others: &NoOtherWriters,
        committed: None,
        reports: &std::cell::RefCell::default(),
    };
    let hook: &dyn Committed = overlay.committed().unwrap();
    hook.take(&batch).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "# 7 changes are missing here\n\n");
}

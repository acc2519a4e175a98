//! Restores to a moment, from a full backup and its increments.

use std::collections::{BTreeMap, BTreeSet};

use larix_proto::extended::SyncInfo;
use larix_testkit::{Kind, Site, until};
use larix_tests::client::run as ask;
use larix_tests::scripted::ScriptedProvider;

use super::{SUFFIX, add, administrator, churn, entries, fails_with, passes, text};

/// The state at a moment, and the moment.
struct Moment {
    time: String,
    entries: BTreeMap<String, String>,
}

/// What the directory is now, once no change is under way.
fn moment(site: &Site) -> Moment {
    let entries = entries(site);
    let last =
        entries.values().flat_map(|entry| entry.lines()).filter_map(|line| line.strip_prefix("entryCSN: "));
    let last = last.max().expect("an entry").to_owned();
    let time = last.split('#').next().expect("a time").to_owned();
    Moment { time, entries }
}

#[test]
fn a_restore_goes_back_to_any_moment_since_the_full_backup() {
    let site = Site::example(Kind::Larix);
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    let mut connection = administrator(&server);
    churn(&mut connection, 1);
    let before = moment(&site);
    churn(&mut connection, 2);
    passes("backup", &site, &["--to", &text(&backup)]);
    let mut moments = vec![moment(&site)];
    for round in 3..6 {
        churn(&mut connection, round);
        moments.push(moment(&site));
        if round % 2 == 1 {
            passes("backup", &site, &["--incremental", "--to", &text(&backup)]);
        }
    }
    // The accident, while others write.
    let safe = moment(&site);
    for number in 1_000..1_010 {
        assert_eq!(ask(&mut connection, &format!("delete \"uid={number},dc=example,dc=com\"\n")), "=> 0\n");
        assert_eq!(ask(&mut connection, &add(9_000 + number)), "=> 0\n");
    }
    moments.push(safe);
    passes("backup", &site, &["--incremental", "--to", &text(&backup)]);
    let last = entries(&site);
    assert!(server.stop());

    let verified = passes("backup", &site, &["--verify", &text(&backup), "--load"]);
    assert!(verified.contains(", 0 findings") && verified.matches("whole").count() == 4, "{verified}");
    let restored = |arguments: &[&str]| {
        let other = Site::example(Kind::Larix);
        let from = text(&backup);
        passes("restore", &other, &[&["--from", from.as_str()], arguments].concat());
        passes("check", &other, &[]);
        entries(&other)
    };
    for moment in &moments {
        assert!(restored(&["--to-time", &moment.time]) == moment.entries, "restored to {}", moment.time);
    }
    assert!(restored(&[]) == last);
    let csn = moments[1].entries.values().flat_map(|entry| entry.lines());
    let csn = csn.filter_map(|line| line.strip_prefix("entryCSN: ")).max().expect("an entry");
    assert!(restored(&["--to-csn", csn]) == moments[1].entries);

    let other = Site::example(Kind::Larix);
    let from = text(&backup);
    fails_with("restore", &other, &["--from", &from, "--to-time", &before.time], "take an older full backup");
    fails_with(
        "restore",
        &other,
        &["--from", &from, "--to-time", "2999-01-01T00:00:00Z"],
        "add an increment",
    );
    fails_with("restore", &other, &["--from", &from, "--to-time", "yesterday"], "is not a time");
    assert!(!other.path().join("data/data.mdb").exists());

    // What was restored has a history of its own: the chain of the other one does not go on with it.
    passes("restore", &other, &["--from", &from, "--to-time", &moments[1].time]);
    let server = other.start().unwrap_or_else(|error| panic!("{error}"));
    churn(&mut administrator(&server), 7);
    fails_with("backup", &other, &["--incremental", "--to", &from], "make a full backup");
    assert!(server.stop());
}

/// A change of a server whose clock is ahead does not cut off what was changed here behind it, and before the moment.
#[test]
fn a_restore_to_a_moment_goes_by_the_clock_of_its_server() {
    let other = ScriptedProvider::start();
    let site = Site::new(
        Kind::Larix,
        &format!(
            "serverID 1\ndatabase mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
             directory @DATA@\nsyncrepl rid=001 provider=ldap://{} bindmethod=simple searchbase=dc=example,dc=com \
             type=refreshAndPersist retry=\"1 +\"\nmultiprovider on\n",
            other.address
        ),
    );
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut search = other.accept();
    search.inform(&SyncInfo::RefreshDelete { cookie: None, done: true });
    let mut connection = administrator(&server);
    assert_eq!(ask(&mut connection, &add(0)), "=> 0\n");
    let folder = tempfile::tempdir().expect("a folder");
    let backup = text(&folder.path().join("backup"));
    passes("backup", &site, &["--to", &backup]);
    let ahead = [
        ("objectClass", "account"),
        ("structuralObjectClass", "account"),
        ("uid", "ahead"),
        ("entryCSN", "20990101000000.000000Z#000000#002#000000"),
    ];
    search.add("uid=ahead,dc=example,dc=com", [9; 16], &ahead);
    let find = "search \"uid=ahead,dc=example,dc=com\" base (objectClass=*) 1.1\n";
    until("the entry of the other server is there", || ask(&mut connection, find).contains("=> 0"));
    assert_eq!(ask(&mut connection, &add(1)), "=> 0\n");
    let entry = entries(&site).remove("dn: uid=1,dc=example,dc=com").expect("the entry");
    let csn = entry.lines().find_map(|line| line.strip_prefix("entryCSN: ")).expect("a CSN");
    let time = csn.split('#').next().expect("a time");
    assert_eq!(ask(&mut connection, &add(2)), "=> 0\n");
    passes("backup", &site, &["--incremental", "--to", &backup]);
    let restored = Site::example(Kind::Larix);
    // Nor does it say that the backup has what was changed here until then.
    let later = ["--from", &backup, "--to-time", "2050-01-01T00:00:00Z"];
    fails_with("restore", &restored, &later, "before 20500101000000.000000Z: add an increment");
    passes("restore", &restored, &["--from", &backup, "--to-time", time]);
    passes("check", &restored, &[]);
    let names: Vec<String> = entries(&restored).into_keys().collect();
    let expected = ["", "uid=0,", "uid=1,", "uid=ahead,"].map(|name| format!("dn: {name}dc=example,dc=com"));
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    assert!(server.stop());
}

/// An accident is undone at once, also where another database has had no change for long: that one has nothing to wait for.
#[test]
fn a_database_is_restored_to_a_moment_beside_one_at_rest() {
    let site = Site::new(
        Kind::Larix,
        "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\ndirectory @DATA@\n\
         database mdb\nsuffix dc=other\nrootdn cn=admin,dc=example,dc=com\ndirectory @DATA@-other\n",
    );
    site.load(SUFFIX);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut connection = administrator(&server);
    assert_eq!(ask(&mut connection, "add \"dc=other\"\nobjectClass: domain\ndc: other\n"), "=> 0\n");
    churn(&mut connection, 1);
    let folder = tempfile::tempdir().expect("a folder");
    let backup = text(&folder.path().join("backup"));
    passes("backup", &site, &["--to", &backup]);
    churn(&mut connection, 2);
    let safe = moment(&site);
    for number in 1_000..1_010 {
        assert_eq!(ask(&mut connection, &format!("delete \"uid={number},dc=example,dc=com\"\n")), "=> 0\n");
    }
    passes("backup", &site, &["--incremental", "--to", &backup]);
    assert!(server.stop());
    let restored = Site::example(Kind::Larix);
    let chosen = ["--from", &backup, "-b", "dc=example,dc=com", "--to-time", &safe.time];
    passes("restore", &restored, &chosen);
    passes("check", &restored, &[]);
    assert!(entries(&restored) == safe.entries, "restored to {}", safe.time);
}

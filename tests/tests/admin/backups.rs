//! The page of backups: for whom it is, what it asks the server for, and that its button and the commands that it prints restore.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larix_proto::control::PersistentSearch;
use larix_proto::control::{SyncMode, SyncRequest};
use larix_proto::{ControlBuf, ControlValue, FilterBuf, MessageId, Scope, client};
use larix_testkit::{Kind, Server, SetAtEnd, until_some};
use larix_tests::raw::{Raw, bind, search};

use super::http::{ADMIN, ENTRIES, Http, start, start_with};

/// Looks at a page before a test gives up, and the time between two.
const LOOKS: usize = 3_600;
const BETWEEN: Duration = Duration::from_millis(50);

/// Looks at the page until it has this text.
fn shows(http: &mut Http, text: &str) -> String {
    for _ in 0..LOOKS {
        let body = http.get("/backup").body;
        if body.contains(text) {
            return body;
        }
        std::thread::park_timeout(BETWEEN);
    }
    panic!("the page never had {text:?}: {}", http.get("/backup").body);
}

fn idle(http: &mut Http) -> String {
    shows(http, "nothing is under way")
}

/// Reads what the rename of Ann's `sn` left.
fn name_of_ann(server: &Server) -> String {
    let output = Command::new(Kind::Larix.program().unwrap())
        .args([
            "search",
            "-x",
            "-LLL",
            "-H",
            &format!("ldap://{}", server.address),
            "-D",
            ADMIN,
            "-w",
            "secret",
        ])
        .args(["-b", "uid=ann,ou=people,dc=example,dc=com", "-s", "base", "sn"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("sn: "));
    line.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

fn rename_ann(http: &mut Http, sn: &str) {
    let ann = "uid%3Dann%2Cou%3Dpeople%2Cdc%3Dexample%2Cdc%3Dcom";
    let form = http.get(&format!("/entry/edit?dn={ann}")).body;
    let csn = form.split_once("name=\"csn\" value=\"").and_then(|(_, rest)| rest.split('"').next());
    let fields = [
        ("dn", "uid=ann,ou=people,dc=example,dc=com"),
        ("csn", csn.unwrap_or("")),
        ("v:sn", sn),
        ("step", "save"),
    ];
    let answer = http.post("/entry/edit", &fields);
    assert_eq!(answer.status, 303, "{}", answer.body);
}

/// As a form takes it.
fn now() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%6NZ"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// How many answers of each code searches have while `work` goes on.
fn codes_beside(server: &Server, work: impl FnOnce()) -> BTreeMap<u32, usize> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let searching = scope.spawn(|| {
            let mut codes = BTreeMap::new();
            let mut client = Raw::connect(server.address).unwrap();
            assert_eq!(client.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
            let request = search(2, "uid=ann,ou=people,dc=example,dc=com", Scope::Base, "(uid=ann)");
            while !done.load(Ordering::Relaxed) {
                let answer = client.ask(&request).expect("the connection stays");
                assert_eq!(answer.entries, usize::from(answer.code == 0), "{answer:?}");
                *codes.entry(answer.code).or_default() += 1;
            }
            codes
        });
        let end = SetAtEnd(&done);
        work();
        drop(end);
        searching.join().unwrap()
    })
}

/// Clients have answers all the time, but for the moment in which they hear that the database is not available.
#[test]
fn the_button_restores_while_the_server_serves() {
    const UNAVAILABLE: u32 = 52;
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let fixture = start(&format!("backup-schedule directory={place} full=7d keep=1 throttle=none"));
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    let body = shows(&mut http, "Verify larix-");
    let name = body.split_once("Verify larix-").and_then(|(_, rest)| rest.split('"').next()).unwrap();
    let name = format!("larix-{name}");
    idle(&mut http);
    rename_ann(&mut http, "Before");
    http.get("/backup");
    assert_eq!(http.post("/backup", &[("kind", "increment")]).status, 303);
    shows(&mut http, "<summary>1</summary>");
    idle(&mut http);
    let moment = now();
    rename_ann(&mut http, "After");
    http.get("/backup");
    assert_eq!(http.post("/backup", &[("kind", "increment")]).status, 303);
    shows(&mut http, "<summary>2</summary>");
    idle(&mut http);

    let page = http.get(&format!("/backup/restore?moment={moment}"));
    assert!(page.body.contains("Restore now"), "{}", page.body);
    let fields =
        |moment: &'static str| [("kind", "restore"), ("backup", ""), ("moment", moment), ("sure", "yes")];
    for (fields, why) in [
        (&[("kind", "restore"), ("moment", moment.as_str())][..], "Tick the box"),
        (&fields("yesterday"), "is not a time"),
        (&fields("2001-01-01T00:00:00Z"), "take an older full backup"),
        (&[("kind", "restore"), ("suffix", "dc=other"), ("sure", "yes")], "No backup has the database"),
    ] {
        http.get("/backup");
        let answer = http.post("/backup", fields);
        assert_eq!(answer.status, 400, "{fields:?}: {}", answer.body);
        assert!(answer.body.contains(why), "{fields:?}: {}", answer.body);
    }

    // A backup that was damaged: the database stays as it is, and in service.
    let copy = find(&folder.path().join(&name), ".mdb");
    let whole = std::fs::read(&copy).unwrap();
    let mut damaged = whole.clone();
    damaged[5_000] ^= 1;
    std::fs::write(&copy, &damaged).unwrap();
    let restore = |http: &mut Http| {
        http.get("/backup");
        let answer = http.post("/backup", &[("kind", "restore"), ("moment", &moment), ("sure", "yes")]);
        assert_eq!(answer.status, 303, "{}", answer.body);
    };
    let codes = codes_beside(&fixture.server, || {
        restore(&mut http);
        shows(&mut http, &format!("The restore of {name} failed"));
        idle(&mut http);
    });
    assert!(codes.keys().all(|code| *code == 0), "{codes:?}");
    assert_eq!(name_of_ann(&fixture.server), "After");
    std::fs::write(&copy, &whole).unwrap();

    let codes = codes_beside(&fixture.server, || {
        restore(&mut http);
        shows(&mut http, &format!("{name} was restored"));
        idle(&mut http);
    });
    assert!(codes.keys().all(|code| [0, UNAVAILABLE].contains(code)), "{codes:?}");
    assert_eq!(name_of_ann(&fixture.server), "Before");
    let replaced = find(fixture.site.configuration().parent().unwrap(), "data.mdb.replaced");
    let set_aside = || std::fs::metadata(&replaced).unwrap().ino();
    // It is the only place of what was changed behind the moment, once the next full backup has taken the place of this one.
    let before = set_aside();
    http.get("/backup");
    assert_eq!(http.post("/backup", &[("kind", "restore"), ("moment", ""), ("sure", "yes")]).status, 303);
    idle(&mut http);
    assert_eq!(set_aside(), before);

    // It is written, backed up and started as any other.
    rename_ann(&mut http, "Later");
    assert_eq!(name_of_ann(&fixture.server), "Later");
    idle(&mut http);
    http.get("/backup");
    assert_eq!(http.post("/backup", &[("kind", "increment")]).status, 303);
    idle(&mut http);
    let body = http.get("/backup").body;
    assert!(!body.contains("The last backup failed"), "{body}");
    assert!(fixture.server.stop());
    let server = fixture.site.start().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(name_of_ann(&server), "Later");
    assert!(server.stop());
}

/// Entries of this test, and bytes of each: together more than sockets take.
const LARGE_ENTRIES: usize = 48;
const LARGE_BYTES: usize = 400_000;

/// A search of everything on a connection of its own that is not read.
fn stands_still(server: &Server, controls: &[ControlBuf]) -> Raw {
    let mut client = Raw::connect(server.address).unwrap();
    assert_eq!(client.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let filter = FilterBuf::parse("(objectClass=*)").unwrap();
    let request = client::Search {
        attributes: &["description"],
        ..client::Search::new("dc=example,dc=com", Scope::Subtree, filter.as_filter())
    };
    let mut out = Vec::new();
    client::search(&mut out, MessageId(2), &request, controls);
    assert!(client.send(&out));
    // Its first answers are there.
    assert!(client.socket.peek(&mut [0; 1]).unwrap() > 0);
    client
}

/// Searches, persistent searches and consumers whose clients read nothing: the restore ends them, and they hear so when they read.
#[test]
fn clients_that_do_not_read_hold_up_no_restore() {
    const UNAVAILABLE: u32 = 52;
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let log = folder.path().join("server.log");
    let schedule =
        format!("logfile {}\nbackup-schedule directory={place} full=7d keep=1 throttle=none", log.display());
    let mut entries = ENTRIES.to_owned();
    for number in 0..LARGE_ENTRIES {
        let value = "x".repeat(LARGE_BYTES);
        entries += &format!(
            "\ndn: ou=large {number},dc=example,dc=com\nobjectClass: organizationalUnit\nou: large {number}\ndescription: {value}\n"
        );
    }
    let fixture = start_with(&schedule, "overlay syncprov\noverlay psearch\n", &entries);
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    shows(&mut http, "Verify larix-");
    idle(&mut http);
    let persistent = PersistentSearch { change_types: 15, changes_only: false, return_ecs: false };
    let sync = SyncRequest { mode: SyncMode::RefreshAndPersist, cookie: None, reload_hint: false };
    let mut standing = [vec![], vec![persistent.to_control(true)], vec![sync.to_control(true)]]
        .map(|controls| stands_still(&fixture.server, &controls));
    http.get("/backup");
    let answer = http.post("/backup", &[("kind", "restore"), ("sure", "yes")]);
    assert_eq!(answer.status, 303, "{}", answer.body);
    let body = shows(&mut http, "was restored");
    let (_, rest) = body.split_once("Clients got no answers from the databases for ").unwrap();
    let milliseconds = rest.split_once(" ms").unwrap().0.replace('\u{202f}', "").parse::<u64>().unwrap();
    // What it waits for such clients at most is 30 s.
    assert!(milliseconds < 30_000, "{milliseconds}");
    // The log has a thread of its own.
    let line = until_some("a line of the log", || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().find(|line| line.contains("restored \"dc=example,dc=com\" from")).map(str::to_owned)
    });
    assert!(line.contains(&format!("unavailable for {milliseconds} ms")), "{line}");
    assert_eq!(name_of_ann(&fixture.server), "Example");
    for client in &mut standing {
        let answer = client.answer().unwrap();
        assert_eq!(answer.code, UNAVAILABLE, "{answer:?}");
        assert!(answer.text.contains("is being restored"), "{answer:?}");
        assert!((1..LARGE_ENTRIES).contains(&answer.entries), "{answer:?}");
        // The connection is as good as before.
        let request = search(3, "uid=ann,ou=people,dc=example,dc=com", Scope::Base, "(uid=ann)");
        assert_eq!(client.ask(&request).unwrap().code, 0);
    }
    assert!(fixture.server.stop());
}

/// The file below the folder whose name ends so.
fn find(folder: &Path, end: &str) -> std::path::PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                return path;
            }
        }
    }
    panic!("nothing below {} ends in {end}", folder.display());
}

#[test]
fn the_commands_of_the_page_restore() {
    let folder = tempfile::Builder::new().prefix("larix backup's ").tempdir().unwrap();
    let place = folder.path().display().to_string();
    let fixture = start(&format!("backup-schedule \"directory={place}\" full=7d keep=2 throttle=none"));
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    // The schedule makes the first one.
    shows(&mut http, "Verify larix-");
    idle(&mut http);
    rename_ann(&mut http, "Before");
    assert_eq!(http.post("/backup", &[("kind", "increment")]).status, 303);
    shows(&mut http, "<summary>1</summary>");
    idle(&mut http);
    // Between the two changes.
    let moment = now();
    let answer = http.get(&format!("/backup/restore?moment={moment}"));
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(answer.body.contains("add an increment"), "{}", answer.body);
    rename_ann(&mut http, "After");
    http.get("/backup");
    assert_eq!(http.post("/backup", &[("kind", "increment")]).status, 303);
    let body = shows(&mut http, "<summary>2</summary>");
    let name = body.split_once("Verify larix-").and_then(|(_, rest)| rest.split('"').next()).unwrap();
    let name = format!("larix-{name}");
    idle(&mut http);
    assert_eq!(http.post("/backup", &[("kind", "verify"), ("backup", &name)]).status, 303);
    shows(&mut http, "verified up to");
    for (query, why) in [
        ("moment=2001-01-01T00:00:00Z", "take an older full backup"),
        ("moment=yesterday", "is not a time"),
        ("backup=../../etc", "There is no backup"),
        ("suffix=dc%3Dother", "No backup has the database"),
    ] {
        let answer = http.get(&format!("/backup/restore?{query}"));
        assert_eq!(answer.status, 422, "{query}");
        assert!(answer.body.contains(why), "{query}: {}", answer.body);
    }
    let answer = http.get(&format!("/backup/restore?moment={moment}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let commands = answer.body.split_once("id=\"restore-commands\">").unwrap().1;
    let commands = commands.split_once("</pre>").unwrap().0.replace("&#39;", "'").replace("&quot;", "\"");
    let commands = commands.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    assert_eq!(name_of_ann(&fixture.server), "After");
    assert!(fixture.server.stop());
    let larix = Kind::Larix.program().unwrap();
    let mut ran = 0;
    for line in commands.lines() {
        let Some(arguments) = line.strip_prefix("larix ") else {
            assert!(line.starts_with("systemctl "), "{line}");
            continue;
        };
        let shell = format!("exec \"$0\" {arguments}");
        let output = Command::new("sh").args(["-c", &shell]).arg(&larix).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        ran += 1;
    }
    assert_eq!(ran, 2, "{commands}");
    let server = fixture.site.start().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(name_of_ann(&server), "Before");
    assert!(server.stop());
}

#[test]
fn backups_are_for_who_runs_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let schedule = format!("backup-schedule directory={} full=7d keep=2", folder.path().display());
    let fixture = start(&schedule);
    let mut http = Http::new(fixture.http);
    http.log_in("ann", "annpass");
    assert!(!http.get("/about").body.contains("href=\"/backup\""), "no entry in the menu");
    for path in ["/backup", "/backup/restore"] {
        let body = http.get(path).body;
        assert!(body.contains("Backups are shown to the") && !body.contains("larix-2"), "{body}");
    }
    http.get("/about");
    let answer = http.post("/backup", &[("kind", "full")]);
    assert!(answer.body.contains("Backups are shown to the"), "{}", answer.body);
    // Without the token of the session nothing is asked for, by whomever.
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    http.csrf = "0".repeat(64);
    assert_eq!(http.post("/backup", &[("kind", "full")]).status, 403);
    shows(&mut http, "Verify larix-");
    idle(&mut http);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the schedule's own alone");
    assert_eq!(http.post("/backup", &[("kind", "verify"), ("backup", "..")]).status, 400);
    http.get("/backup");
    assert_eq!(http.post("/backup", &[("kind", "other")]).status, 404);
    assert!(fixture.server.stop());
}

/// Without a schedule the page offers one, as a change that is reviewed.
#[test]
fn a_schedule_is_made_from_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    let body = http.get("/backup").body;
    assert!(body.contains("No backups are configured"), "{body}");
    let csn = body.split_once("name=\"csn\" value=\"").and_then(|(_, rest)| rest.split('"').next());
    let save = |http: &mut Http, directory: &Path| {
        let schedule = format!("directory={} full=7d keep=2", directory.display());
        let fields = [
            ("dn", "cn=config"),
            ("csn", csn.unwrap_or("")),
            ("v:olcLarixBackupSchedule", &schedule),
            ("step", "save"),
        ];
        http.post("/entry/edit", &fields)
    };
    let refused = save(&mut http, &folder.path().join("missing"));
    assert!(
        refused.status != 303 && refused.body.contains("does not exist; make it: mkdir"),
        "{}",
        refused.body
    );
    let answer = save(&mut http, folder.path());
    assert_eq!(answer.status, 303, "{}", answer.body);
    let body = http.get("/backup").body;
    assert!(body.contains("Back up what has changed"), "{body}");
    assert!(fixture.server.stop());
}

//! The figures of the overview: in ranges, across a restart, beside a file that is damaged.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use larix_testkit::{Kind, Site, until, until_some};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::http::{ADMIN, Http, start};

/// The figures of a range, once there are some.
fn figures(http: &mut Http, range: &str) -> Value {
    until_some("there are figures", || {
        let answer = http.get(&format!("/api/figures?range={range}&since=0"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let figures: Value = serde_json::from_str(&answer.body).expect("JSON");
        figures["samples"].as_array().is_some_and(|samples| !samples.is_empty()).then_some(figures)
    })
}

fn binds(figures: &Value) -> u64 {
    let samples = figures["samples"].as_array().into_iter().flatten();
    samples.filter_map(|sample| sample["operations"][2].as_u64()).sum()
}

#[test]
fn without_a_listener_there_are_no_files() {
    let body = "database mdb\nsuffix dc=example,dc=com\ndirectory @DATA@\n";
    let site = Site::new(Kind::Larix, body);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    assert!(server.stop());
    let files = fs::read_dir(site.path().join("data")).expect("a folder");
    let names: Vec<_> = files.flatten().map(|file| file.file_name().into_string().expect("a name")).collect();
    assert!(names.iter().any(|name| name == "data.mdb"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("overview-")), "{names:?}");
}

#[test]
fn figures_outlive_the_server_and_a_damaged_file_does_not_end_it() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    // Binds are counted from the second look on.
    figures(&mut http, "10m");
    for _ in 0..3 {
        Http::new(fixture.http).log_in("admin", "secret");
    }
    until("three binds are counted", || binds(&figures(&mut http, "30d")) >= 3);
    let page = http.get("/?range=7d").body;
    assert!(page.contains("data-range=\"7d\"") && page.contains("Each point covers 30 minutes"), "{page}");
    assert!(http.get("/?range=none").body.contains("data-range=\"10m\""));
    let answer = http.get("/api/figures?range=none");
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("one of 10m, 1h, 6h, 24h, 7d, 30d"), "{}", answer.body);
    let site = fixture.site;
    assert!(fixture.server.stop());

    let folder = site.path().join("data");
    for range in ["10m", "1h", "24h", "30d", "6h", "7d"] {
        assert!(folder.join(format!("overview-{range}")).is_file(), "{range}");
    }
    fs::write(folder.join("overview-7d"), "spoilt").expect("a file");
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut http = Http::new(SocketAddr::from((Ipv4Addr::LOCALHOST, server.ports[1])));
    http.log_in("admin", "secret");
    let kept = figures(&mut http, "30d");
    assert!(binds(&kept) >= 3, "{kept}");
    assert_eq!(kept["seconds"], 7_200);
    assert_eq!(fs::read_to_string(folder.join("overview-7d.damaged")).expect("it was set aside"), "spoilt");
    figures(&mut http, "7d");
    assert!(server.stop());
    assert_eq!(fs::metadata(folder.join("overview-7d")).expect("a new one").len(), 337 * 512);
}

/// A limit on the size of files is a full disk.
#[test]
fn a_database_without_room_is_on_top() {
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    let mut is_told = || http.get("/").body.contains("no room for changes, which are refused");
    assert!(!is_told());
    let limit = |bytes: Option<u64>| {
        let process = Pid::from_raw(i32::try_from(fixture.server.process_id()).unwrap());
        prlimit(process, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    limit(Some(fs::metadata(fixture.site.path().join("data/data.mdb")).unwrap().len()));
    let file = fixture.site.path().join("change.ldif");
    let value = "x".repeat(2 << 20);
    let change = "dn: dc=example,dc=com\nchangetype: modify\nreplace: description\ndescription: ";
    fs::write(&file, format!("{change}{value}\n")).unwrap();
    let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
    command.args(["modify", "-x", "-D", ADMIN, "-w", "secret", "-H"]);
    let url = format!("ldap://{}", fixture.server.address);
    assert_eq!(command.arg(url).arg("-f").arg(&file).output().unwrap().status.code(), Some(80));
    assert!(is_told());
    limit(None);
    assert!(!is_told());
    assert!(fixture.server.stop());
}

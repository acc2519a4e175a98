//! `slapadd`, `slapmodify`, `slapdelete` and `slapindex` beside a running server: it takes the work over, with the result
//! that the tool has offline.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use larix_testkit::process::output_text;
use larix_testkit::{Kind, Running, Server, Site, packages, until};
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

/// Every directory must have an own port in its log line: nothing is shared.
const DATABASE: &str = "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
    directory @DATA@\nindex objectClass,uid eq\naccess to * by * read\n";

struct Bench {
    kind: Kind,
    site: Site,
}

impl Bench {
    fn new(kind: Kind, configuration: &str) -> Self {
        Self { kind, site: Site::new(kind, configuration) }
    }

    fn start(&self) -> Server {
        self.site.start().unwrap_or_else(|error| panic!("{error}"))
    }

    fn command(&self, tool: &str, arguments: &[&str]) -> Command {
        let mut command = self.kind.tool(own_name(self.kind, tool));
        command.arg("-f").arg(self.site.configuration()).args(arguments);
        command
    }

    fn run(&self, tool: &str, arguments: &[&str], input: &str) -> Output {
        fed(&mut self.command(tool, arguments), input)
    }

    /// Runs a tool that must do all it is asked.
    fn done(&self, tool: &str, arguments: &[&str], input: &str) -> String {
        let output = self.run(tool, arguments, input);
        assert!(output.status.success(), "{:?} {tool} {arguments:?}: {}", self.kind, output_text(&output));
        output_text(&output)
    }

    /// What the database holds, without what the server gives to itself.
    fn content(&self) -> Vec<String> {
        let output = self.run("cat", &["-o", "ldif-wrap=no"], "");
        assert!(output.status.success(), "{}", output_text(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let own = |line: &&str| !line.starts_with("contextCSN:");
        let mut entries: Vec<String> = text
            .split("\n\n")
            .map(|entry| {
                let mut lines: Vec<&str> = entry.lines().filter(own).collect();
                lines.sort_unstable();
                lines.join("\n")
            })
            .filter(|entry| !entry.is_empty())
            .collect();
        entries.sort_unstable();
        entries
    }

    fn data(&self) -> PathBuf {
        self.site.path().join("data")
    }
}

/// `larix modify` and `larix delete` are clients.
fn own_name(kind: Kind, tool: &str) -> &str {
    match (kind, tool) {
        (Kind::Larix, "modify") => "offline-modify",
        (Kind::Larix, "delete") => "offline-delete",
        _ => tool,
    }
}

fn fed(command: &mut Command, input: &str) -> Output {
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    // A tool that has nothing to read may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn search(server: &Server, request: &str) -> String {
    ask(&mut Client::connect(server.address), request)
}

/// `-l` names the dump of yesterday as a rule.
#[test]
fn a_dump_that_cannot_begin_leaves_the_one_before() {
    let bench = Bench::new(Kind::Larix, DATABASE);
    bench.site.load(TOP);
    let dump = bench.site.path().join("dump.ldif");
    let file = dump.to_str().unwrap();
    bench.done("cat", &["-l", file], "");
    let whole = std::fs::read_to_string(&dump).unwrap();
    assert!(whole.contains("dn: dc=example,dc=com"), "{whole}");
    let fails = |arguments: &[&str]| {
        let output = bench.run("cat", &[arguments, &["-l", file]].concat(), "");
        assert!(!output.status.success(), "{arguments:?}: {}", output_text(&output));
        assert_eq!(std::fs::read_to_string(&dump).unwrap(), whole, "{arguments:?}");
    };
    for arguments in [&["-b", "cn=nothing"][..], &["-s", "cn=nothing"], &["-n", "7"], &["-a", "(ou=*"]] {
        fails(arguments);
    }
    std::fs::remove_file(bench.data().join("data.mdb")).unwrap();
    fails(&[]);
}

/// What is written of a database while it changes is of one moment: it always loads.
#[test]
fn a_superior_that_is_renamed_meanwhile_has_one_name_in_the_output() {
    // Far more than what a pipe takes, and what the tool reads at once.
    const ENTRIES: usize = 6_000;
    let bench = Bench::new(Kind::Larix, DATABASE);
    let mut ldif = format!("{TOP}dn: ou=a,{SUFFIX}\nobjectClass: organizationalUnit\nou: a\n\n");
    for number in 0..ENTRIES {
        let name = format!("o{number}");
        ldif += &format!("dn: ou={name},ou=a,{SUFFIX}\nobjectClass: organizationalUnit\nou: {name}\n\n");
    }
    bench.site.load(&ldif);
    let _server = bench.start();
    let mut cat = bench.command("cat", &["-o", "ldif-wrap=no"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(cat.stdout.take().unwrap());
    let mut text = String::new();
    // It has begun, and waits for its reader.
    output.read_line(&mut text).unwrap();
    bench.done(
        "modify",
        &[],
        &format!("dn: ou=a,{SUFFIX}\nchangetype: modrdn\nnewrdn: ou=z\ndeleteoldrdn: 1\n"),
    );
    output.read_to_string(&mut text).unwrap();
    assert!(cat.wait().unwrap().success());
    let below = |superior: &str| text.lines().filter(|line| line.ends_with(superior)).count();
    assert_eq!((below(&format!(",ou=a,{SUFFIX}")), below(&format!("ou=z,{SUFFIX}"))), (ENTRIES, 0));
    let copy = Bench::new(Kind::Larix, DATABASE);
    copy.site.load(&text);
}

/// LMDB's lock file has the readers: a server whose own was removed would write to the pages that a tool reads.
#[test]
fn a_tool_does_not_read_where_the_server_would_not_see_it() {
    let bench = Bench::new(Kind::Larix, DATABASE);
    bench.site.load(TOP);
    let server = bench.start();
    let lock_file = bench.data().join("lock.mdb");
    bench.content();
    std::fs::remove_file(&lock_file).unwrap();
    for _ in 0..2 {
        for tool in ["cat", "check"] {
            let output = bench.run(tool, &[], "");
            let text = output_text(&output);
            assert!(!output.status.success() && text.contains("lock.mdb was removed"), "{tool}: {text}");
        }
    }
    // The server has its own, and serves.
    let mut client = Client::connect(server.address);
    assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
    assert!(server.stop());
    assert_eq!(bench.content().len(), 1);
    let _server = bench.start();
    assert_eq!(bench.content().len(), 1);
}

/// A change that is acknowledged is found after a restart: so none is, once another file is in the place of the one that is served.
#[test]
fn a_server_whose_data_file_is_exchanged_takes_no_changes() {
    let bench = Bench::new(Kind::Larix, DATABASE);
    bench.site.load(TOP);
    let server = bench.start();
    let data = bench.data().join("data.mdb");
    let kept = bench.data().join("kept.mdb");
    let mut client = Client::connect(server.address);
    let add = |client: &mut Client, name: &str| {
        ask(client, &format!("add \"ou={name},{SUFFIX}\"\n  objectClass: organizationalUnit\n  ou: {name}"))
    };
    assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
    assert_eq!(add(&mut client, "a"), "=> 0\n");
    // As an administrator does who copies yesterday's file back.
    std::fs::rename(&data, &kept).unwrap();
    std::fs::copy(&kept, &data).unwrap();
    for name in ["b", "c"] {
        let answer = add(&mut client, name);
        assert!(answer.starts_with("=> 53 text \"data.mdb was replaced"), "{answer}");
    }
    assert!(search(&server, &format!("search \"ou=a,{SUFFIX}\" base (objectClass=*) ou")).contains("ou: a"));
    server.kill();
    let _server = bench.start();
    let mut names: Vec<String> = bench
        .content()
        .iter()
        .filter_map(|entry| Some(entry.lines().find(|line| line.starts_with("dn:"))?.to_owned()))
        .collect();
    names.sort_unstable();
    assert_eq!(names, [format!("dn: {SUFFIX}"), format!("dn: ou=a,{SUFFIX}")]);
}

const TOP: &str = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n";

/// Entries with operational attributes of their own.
fn dump() -> String {
    let operational = |number: u32| {
        format!(
            "structuralObjectClass: organizationalUnit\nentryUUID: 01900000-0000-4000-8000-{number:012}\n\
             entryCSN: 20200101000000.{number:06}Z#000000#00a#000000\ncreatorsName: cn=somebody\n\
             createTimestamp: 20190101000000Z\nmodifiersName: cn=somebody else\nmodifyTimestamp: 20200101000000Z\n\n"
        )
    };
    let mut text = TOP.replace("\n\n", "\nstructuralObjectClass: domain\n");
    text += operational(1).split_once('\n').unwrap().1;
    // A superior after what is below it.
    for (number, dn) in [(2, "ou=b,ou=a"), (3, "ou=a"), (4, "ou=c,ou=b,ou=a")] {
        text += &format!("dn: {dn},{SUFFIX}\nobjectClass: organizationalUnit\n{}", operational(number));
    }
    for number in 10..2_000 {
        text += &format!(
            "dn: ou=o{number},ou=a,{SUFFIX}\nobjectClass: organizationalUnit\n{}",
            operational(number)
        );
    }
    text
}

#[test]
fn what_is_added_beside_the_server_is_what_is_added_offline() {
    let offline = Bench::new(Kind::Larix, DATABASE);
    offline.done("add", &[], &dump());
    let beside = Bench::new(Kind::Larix, DATABASE);
    let server = beside.start();
    assert_eq!(beside.done("add", &["-q"], &dump()), "");
    // It is served at once,
    let mut client = Client::connect(server.address);
    let created = client.value(&format!("ou=o1999,ou=a,{SUFFIX}"), "createTimestamp");
    assert_eq!(created.as_deref(), Some("20190101000000Z"));
    // and durable when the tool has ended.
    server.kill();
    assert_eq!(beside.content(), offline.content());
    // The socket of a server that was killed is nobody's.
    assert!(beside.data().join("tools.sock").exists());
    beside.done("add", &[], &format!("dn: ou=after,{SUFFIX}\nobjectClass: organizationalUnit\n"));
    let server = beside.start();
    let mode = std::fs::metadata(beside.data().join("tools.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(
        search(&server, &format!("search \"ou=after,{SUFFIX}\" base (objectClass=*) ou"))
            .contains("ou: after")
    );
    assert!(server.stop());
    assert!(!beside.data().join("tools.sock").exists());
}

/// As applications start it: the server first, then the data.
#[test]
fn an_empty_database_is_filled_while_it_is_served_as_with_slapd() {
    for kind in [Kind::Larix, Kind::Slapd] {
        if kind.is_lacking() {
            continue;
        }
        let bench = Bench::new(kind, DATABASE);
        let server = bench.start();
        bench.done("add", &[], &format!("{TOP}dn: cn=admin,{SUFFIX}\nobjectClass: organizationalRole\n\n"));
        bench.done("add", &[], &format!("dn: ou=x,{SUFFIX}\nobjectClass: organizationalUnit\nentryUUID: 01900000-0000-4000-8000-000000000001\n\n"));
        let found = search(&server, &format!("search {SUFFIX} sub (objectClass=*) 1.1"));
        assert_eq!(found.matches("-> ").count(), 3, "{kind:?}: {found}");
        let uuid = "(entryUUID=01900000-0000-4000-8000-000000000001)";
        let found = search(&server, &format!("search {SUFFIX} sub {uuid} 1.1"));
        assert!(found.contains("-> ou=x"), "{kind:?}: {found}");
        let changes =
            format!("dn: ou=x,{SUFFIX}\nchangetype: modify\nreplace: description\ndescription: new\n");
        bench.done("modify", &[], &changes);
        let found = search(&server, &format!("search \"ou=x,{SUFFIX}\" base (objectClass=*) description"));
        assert!(found.contains("description: new"), "{kind:?}: {found}");
        bench.done("index", &["uid"], "");
        assert!(server.stop(), "{kind:?}");
    }
}

/// A start that comes as far as its databases, and goes on when somebody reads `args`: the files of its process are pipes, which are
/// written between the opening of the databases and of their sockets for tools.
struct HeldStart {
    child: Running,
    args: PathBuf,
}

impl HeldStart {
    fn new(bench: &Bench) -> Self {
        let [pid, args, port] = ["pid", "args", "port"].map(|name| bench.site.path().join(name));
        for pipe in [&pid, &args] {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }
        let mut command = Kind::Larix.tool("serve");
        command.args(["-d", "0", "-h", "ldap://127.0.0.1:0/", "--port-file"]).arg(port);
        let child = command.arg("-f").arg(bench.site.configuration()).stderr(Stdio::null()).spawn().unwrap();
        let daemon = Self { child: Running(child), args };
        assert_eq!(std::fs::read_to_string(pid).unwrap(), format!("{}\n", daemon.child.id()));
        daemon
    }

    fn goes_on(&self) {
        assert!(std::fs::read_to_string(&self.args).unwrap().contains("serve"));
    }
}

/// Applications start a server and load their data right behind it.
#[test]
fn tools_wait_for_a_server_that_is_just_starting() {
    let files = "pidfile @DATA@/../pid\nargsfile @DATA@/../args\n";
    let changes = format!("dn: {SUFFIX}\nchangetype: modify\nreplace: description\ndescription: new\n");
    for (tool, arguments, input) in [
        ("add", &[][..], format!("dn: ou=x,{SUFFIX}\nobjectClass: organizationalUnit\n\n")),
        ("modify", &[], changes),
        ("delete", &[SUFFIX], String::new()),
        ("index", &["uid"], String::new()),
    ] {
        let bench = Bench::new(Kind::Larix, &format!("{files}{DATABASE}"));
        bench.done("add", &[], TOP);
        let start = HeldStart::new(&bench);
        let mut command = bench.command(tool, &[&["-v"], arguments].concat());
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let fault = lines.find(|line| line.contains("in use")).unwrap_or_default();
        assert!(fault.ends_with("waits for the server that starts"), "{tool}: {fault}");
        // It has looked, and there was no server yet.
        start.goes_on();
        let rest: Vec<String> = lines.collect();
        assert!(child.wait().unwrap().success(), "{tool}: {rest:?}");
    }
}

/// What is wrong with an LDIF, beyond [`TOP`], is said in the same words beside a server as offline.
#[test]
fn errors_are_those_of_the_tool_offline() {
    let unit = |dn: &str| format!("dn: {dn}{SUFFIX}\nobjectClass: organizationalUnit\n\n");
    let (good, last) = (unit("ou=good,"), unit("ou=last,"));
    for wrong in [
        unit(""),
        unit("ou=x,ou=nowhere,"),
        "dn: dc=elsewhere\nobjectClass: domain\ndc: elsewhere\n\n".to_owned(),
        "dn: nonsense\nobjectClass: domain\n\n".to_owned(),
        format!("dn: ou=w,{SUFFIX}\nobjectClass: organizationalUnit\nnoSuchType: x\n\n"),
        format!("dn: ou=w,{SUFFIX}\nobjectClass: organizationalUnit\nsn: x\n\n"),
        format!("dn: ou=w,{SUFFIX}\nobjectClass: noSuchClass\n\n"),
        format!("dn: cn=w,{SUFFIX}\nobjectClass: person\ncn: w\n\n"),
        format!("dn: ou=w,{SUFFIX}\nobjectClass: organizationalUnit\ndescription: a\ndescription: A\n\n"),
        format!("dn: ou=w,{SUFFIX}\nchangetype: delete\n\n"),
        format!("dn: ou=w,{SUFFIX}\nobjectClass\n\n"),
        format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\ncontextCSN: nonsense\n\n"),
    ] {
        for flags in [&[][..], &["-c"], &["-u"], &["-c", "-u"], &["-c", "-j", "3"]] {
            let ldif = format!("{good}{wrong}{last}");
            let offline = Bench::new(Kind::Larix, DATABASE);
            offline.done("add", &[], TOP);
            let expected = offline.run("add", flags, &ldif);
            let beside = Bench::new(Kind::Larix, DATABASE);
            beside.done("add", &[], TOP);
            let server = beside.start();
            let output = beside.run("add", flags, &ldif);
            assert_eq!(
                (output.status.code(), output_text(&output)),
                (expected.status.code(), output_text(&expected)),
                "{flags:?} {wrong}"
            );
            assert!(!output.status.success(), "{flags:?} {wrong}");
            let names = |bench: &Bench| -> Vec<String> {
                let names = bench.content();
                names
                    .iter()
                    .flat_map(|e| e.lines().filter(|l| l.starts_with("dn: ")).map(str::to_owned))
                    .collect()
            };
            if flags.contains(&"-c") || flags.contains(&"-u") {
                assert_eq!(names(&beside), names(&offline), "{flags:?} {wrong}");
            } else {
                // What came before the error stays, as it does with slapd.
                assert!(names(&beside).contains(&format!("dn: ou=good,{SUFFIX}")), "{wrong}");
                // One whose superior is missing waits for it until the end.
                let ends_at_once = !wrong.contains("nowhere");
                let has_last = names(&beside).contains(&format!("dn: ou=last,{SUFFIX}"));
                assert_eq!(has_last, !ends_at_once, "{wrong}");
            }
            assert!(server.stop());
        }
    }
}

#[test]
fn flags_of_slapadd_have_their_meaning_beside_a_server() {
    let bench = Bench::new(Kind::Larix, DATABASE);
    let server = bench.start();
    bench.done("add", &["-b", SUFFIX], TOP);
    // -s: data that another server accepted.
    let odd = format!("dn: cn=odd,{SUFFIX}\nobjectClass: person\ncn: odd\nuidNumber: seven\n\n");
    assert!(!bench.run("add", &["-n", "1"], &odd).status.success());
    bench.done("add", &["-n", "1", "-s"], &odd);
    assert!(bench.content().concat().contains("uidNumber: seven"));
    // What nobody can read is refused all the same.
    let latin = format!("dn: cn=latin,{SUFFIX}\nobjectClass: person\ncn: latin\nsn:: TfxsbGVy\n\n");
    let output = bench.run("add", &["-n", "1"], &latin);
    assert!(output_text(&output).contains("sn: value #0 invalid per syntax"), "{}", output_text(&output));
    // Syntaxes are checked when that is asked for.
    let wrong =
        format!("dn: cn=wrong,{SUFFIX}\nobjectClass: person\ncn: wrong\nsn: x\nseeAlso: nonsense\n\n");
    let output = bench.run("add", &["-o", "value-check=yes"], &wrong);
    assert!(output_text(&output).contains("invalid per syntax: \"nonsense\""), "{}", output_text(&output));
    // -S gives the CSNs, -w the contextCSN.
    bench.done(
        "add",
        &["-S", "7", "-w"],
        &format!("dn: ou=seven,{SUFFIX}\nobjectClass: organizationalUnit\n\n"),
    );
    let text = bench.content().concat();
    let csn =
        text.split("entryCSN: ").find(|csn| csn.contains("#007#")).map(|csn| csn.lines().next().unwrap());
    let csn = csn.expect("a CSN of server 7").to_owned();
    let whole = bench.done("cat", &["-o", "ldif-wrap=no"], "");
    assert!(whole.contains(&format!("contextCSN: {csn}")), "{whole}");
    // What the server does later has CSNs of its own, and they rise.
    let mut client = Client::connect(server.address);
    ask(&mut client, &format!("as {ADMIN} secret"));
    let modified = ask(&mut client, &format!("modify \"ou=seven,{SUFFIX}\"\n  replace description: later"));
    assert_eq!(modified, "=> 0\n");
    assert!(server.stop());
    let output = bench.command("check", &[]).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}

#[test]
fn flags_of_slapmodify_have_their_meaning_offline_as_with_slapd() {
    let change = format!("dn: {SUFFIX}\nchangetype: modify\nadd: mail\nmail: m@example.com\n\n");
    let has = |bench: &Bench, what: &str| bench.content().concat().contains(what);
    for kind in [Kind::Larix, Kind::Slapd] {
        if kind.is_lacking() {
            continue;
        }
        let bench = Bench::new(kind, DATABASE);
        bench.site.load(TOP);
        let output = bench.run("modify", &[], &change);
        assert!(!output.status.success() && !has(&bench, "mail:"), "{kind:?}: {}", output_text(&output));
        bench.done("modify", &["-s", "-S", "7"], &change);
        assert!(has(&bench, "mail: m@example.com"), "{kind:?}");
        assert!(has(&bench, "#007#"), "{kind:?}: {:?}", bench.content());
        // That of slapd 2.5 does not take what its manual says.
        if kind == Kind::Larix {
            bench.done("modify", &["-o", "schema-check=no"], &change.replace("mail", "uid"));
            assert!(has(&bench, "uid: m@example.com"));
        }
    }
    // The server checks what it stores, and has a server id of its own.
    let bench = Bench::new(Kind::Larix, DATABASE);
    bench.site.load(TOP);
    let _server = bench.start();
    for flags in [&["-s"][..], &["-S", "7"], &["-o", "schema-check=no"]] {
        let output = bench.run("modify", flags, &change);
        let text = output_text(&output);
        assert!(!output.status.success() && text.contains("stop it first"), "{flags:?}: {text}");
    }
    assert!(!has(&bench, "mail:"));
}

/// The tool has no other place to send the change to.
#[test]
fn referral_objects_are_changed_as_entries_as_with_slapd() {
    let referral = format!(
        "dn: cn=away,{SUFFIX}\nobjectClass: referral\nobjectClass: extensibleObject\nref: ldap://old/\n\n"
    );
    let change =
        |url: &str| format!("dn: cn=away,{SUFFIX}\nchangetype: modify\nreplace: ref\nref: {url}\n\n");
    let has = |bench: &Bench, what: &str| bench.content().concat().contains(what);
    for kind in [Kind::Larix, Kind::Slapd] {
        if kind.is_lacking() {
            continue;
        }
        let bench = Bench::new(kind, DATABASE);
        bench.site.load(&(TOP.to_owned() + &referral));
        bench.done("modify", &[], &change("ldap://new/"));
        assert!(has(&bench, "ref: ldap://new/"), "{kind:?}: {:?}", bench.content());
    }
    let bench = Bench::new(Kind::Larix, DATABASE);
    bench.site.load(&(TOP.to_owned() + &referral));
    let server = bench.start();
    bench.done("modify", &[], &change("ldap://beside/"));
    assert!(has(&bench, "ref: ldap://beside/"), "{:?}", bench.content());
    assert!(server.stop());
}

#[test]
fn changes_deletes_and_indexes_beside_a_server() {
    let bench = Bench::new(Kind::Larix, DATABASE);
    let server = bench.start();
    bench.done("add", &[], &dump());
    let changes = format!(
        "dn: ou=o10,ou=a,{SUFFIX}\nchangetype: modify\nreplace: createTimestamp\ncreateTimestamp: 20010101000000Z\n-\n\
         add: description\ndescription: by the tool\n\n\
         dn: ou=o11,ou=a,{SUFFIX}\nchangetype: modrdn\nnewrdn: ou=moved\ndeleteoldrdn: 1\n\n\
         dn: ou=o12,ou=a,{SUFFIX}\nchangetype: delete\n\n\
         dn: ou=new,{SUFFIX}\nchangetype: add\nobjectClass: organizationalUnit\n\n"
    );
    let report = bench.done("modify", &["-v"], &changes);
    assert_eq!(report.matches("changed").count(), 4, "{report}");
    let wrong = format!("dn: ou=o12,ou=a,{SUFFIX}\nchangetype: delete\n\n");
    let output = bench.run("modify", &[], &wrong);
    assert!(!output.status.success());
    assert!(
        output_text(&output).contains("line 1") && output_text(&output).contains("No such object"),
        "{}",
        output_text(&output)
    );
    let found =
        search(&server, &format!("search \"ou=a,{SUFFIX}\" sub (|(description=by the tool)(ou=moved)) 1.1"));
    assert_eq!(found.matches("-> ").count(), 2, "{found}");
    bench.done("delete", &["-a", "(ou=o1*)"], "");
    bench.done("delete", &["-r", &format!("ou=b,ou=a,{SUFFIX}")], "");
    let found = search(&server, &format!("search {SUFFIX} sub (|(ou=o1*)(ou=b)(ou=c)) 1.1"));
    assert_eq!(found, "=> 0\n");
    for arguments in [&[][..], &["objectClass"], &["--stale"], &["uid", "objectClass"]] {
        bench.done("index", arguments, "");
        let found = search(&server, &format!("search {SUFFIX} sub (objectClass=domain) 1.1"));
        assert_eq!(found.matches("-> ").count(), 1, "{arguments:?}: {found}");
    }
    let refused = |attribute: &str, why: &str| {
        let text = output_text(&bench.run("index", &["uid", attribute], ""));
        assert!(text.contains(why), "{attribute}: {text}");
        assert!(!bench.run("index", &["uid", attribute], "").status.success(), "{attribute}");
    };
    refused("noSuchType", "noSuchType");
    refused("cn", "no index is configured for cn, and none was made");
    assert!(server.stop());
    refused("cn", "no index is configured for cn, and none was made");
    let output = bench.command("check", &[]).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}

/// It makes no database, either, and names what is not there.
#[test]
fn a_dry_run_changes_nothing() {
    let bench = Bench::new(Kind::Larix, DATABASE);
    bench.done("modify", &["-u"], &format!("dn: {SUFFIX}\nchangetype: delete\n"));
    assert!(!bench.data().join("data.mdb").exists());
    bench.site.load(TOP);
    let before = bench.content();
    assert_eq!(bench.done("delete", &["-u", SUFFIX], ""), format!("{SUFFIX}\n"));
    let output = bench.run("delete", &["-u", &format!("ou=none,{SUFFIX}")], "");
    assert!(
        !output.status.success() && output_text(&output).contains("No such object"),
        "{}",
        output_text(&output)
    );
    assert!(bench.content() == before);
}

/// As behind a disk that is not mounted. An empty database would pass for one that has been emptied.
#[test]
fn where_there_is_no_database_none_is_made() {
    let bench = Bench::new(Kind::Larix, DATABASE);
    for (tool, arguments) in
        [("index", &[][..]), ("delete", &[SUFFIX]), ("delete", &["-a", "(objectClass=*)"])]
    {
        let output = bench.run(tool, arguments, "");
        let text = output_text(&output);
        assert!(!output.status.success() && text.contains("no store"), "{tool} {arguments:?}: {text}");
        assert!(!bench.data().join("data.mdb").exists(), "{tool} {arguments:?}");
    }
}

/// Damaged index rows are what slapindex is for.
#[test]
fn another_index_line_is_made_good_by_slapindex_at_once() {
    let bench = Bench::new(Kind::Larix, DATABASE);
    bench.done("add", &[], &dump());
    let text = std::fs::read_to_string(bench.site.configuration()).unwrap();
    std::fs::write(
        bench.site.configuration(),
        text.replace("index objectClass,uid eq", "index objectClass,uid,ou eq"),
    )
    .unwrap();
    let server = bench.start();
    bench.done("index", &[], "");
    let found = search(&server, &format!("search {SUFFIX} sub (ou=o1999) 1.1"));
    assert_eq!(found.matches("-> ").count(), 1, "{found}");
    assert!(server.stop());
    // Nothing is left to do.
    let report = bench.done("index", &["--stale", "-v"], "");
    assert!(report.contains("0 entries indexed") || report.contains(" 0 postings"), "{report}");
}

/// Nobody but the server's user and root.
#[test]
fn other_users_are_refused() {
    if !rustix_is_root() {
        packages::note_lack(packages::ROOT);
        return;
    }
    let bench = Bench::new(Kind::Larix, DATABASE);
    let server = bench.start();
    bench.done("add", &[], TOP);
    // As open as files can be: the kernel says who asks.
    for path in [bench.site.path().to_owned(), bench.data()] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    for file in std::fs::read_dir(bench.data()).unwrap() {
        let path = file.unwrap().path();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    }
    let program = Kind::Larix.program().unwrap();
    let copy = bench.site.path().join("larix");
    std::fs::copy(&program, &copy).unwrap();
    let mut command = Command::new(&copy);
    command.arg("add").arg("-f").arg(bench.site.configuration()).uid(65_534).gid(65_534);
    // Another test's child may hold the copy open for writing until it has become another program.
    until("the copy starts", || Command::new(&copy).arg("--version").output().is_ok());
    let output = fed(&mut command, &format!("dn: ou=x,{SUFFIX}\nobjectClass: organizationalUnit\n"));
    assert!(!output.status.success());
    assert!(output_text(&output).contains("only the server's own user and root"), "{}", output_text(&output));
    let found = search(&server, &format!("search {SUFFIX} sub (ou=x) 1.1"));
    assert_eq!(found, "=> 0\n");
    assert!(server.stop());
}

fn rustix_is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Consumers are sent what a tool brought in, though its entryCSN was old.
#[test]
fn replicas_hear_of_what_tools_do() {
    let provider = Member::new(Kind::Larix, "", "overlay syncprov").started();
    let line = format!(
        "syncrepl rid=001 provider={} bindmethod=simple binddn={ADMIN} credentials=secret searchbase={SUFFIX} \
         type=refreshAndPersist retry=\"1 +\"",
        provider.url()
    );
    let consumer = Member::new(Kind::Larix, "", &line).started();
    let tool = |name: &str, arguments: &[&str], input: &str| {
        let mut command = Kind::Larix.tool(own_name(Kind::Larix, name));
        let output = fed(command.arg("-f").arg(provider.site.configuration()).args(arguments), input);
        assert!(output.status.success(), "{name}: {}", output_text(&output));
    };
    provider.change(&format!("add \"{SUFFIX}\"\n  objectClass: domain\n  dc: example"));
    consumer.wait_until_like(&provider);
    let old = dump();
    tool("add", &[], old.split_once("\n\n").unwrap().1);
    consumer.wait_until_like(&provider);
    assert!(consumer.content(SUFFIX).unwrap().len() > 1_990);
    tool(
        "modify",
        &[],
        &format!("dn: ou=o10,ou=a,{SUFFIX}\nchangetype: modify\nadd: description\ndescription: x\n"),
    );
    tool("delete", &["-r", &format!("ou=b,ou=a,{SUFFIX}")], "");
    consumer.wait_until_like(&provider);
}

/// A path that is too long for a socket's address.
#[test]
fn a_deep_directory_has_its_socket_as_well() {
    let deep = "d/".repeat(60);
    let configuration = DATABASE.replace("directory @DATA@", &format!("directory @DATA@/{deep}"));
    let bench = Bench::new(Kind::Larix, &configuration);
    let server = bench.start();
    bench.done("add", &[], TOP);
    let socket: &Path = &bench.data().join(deep).join("tools.sock");
    assert!(socket.exists());
    assert!(server.stop());
    assert!(!socket.exists());
}

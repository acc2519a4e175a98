//! `restore`, `restore --replace` and `load` are killed before each of their calls of the system that changes files. Then the
//! directory holds the old database or the new one: `check`, `cat` and a server say the same, whichever of them comes first, and
//! with a reader that has the old files open. Killing is strace's doing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use larix_testkit::{Kind, Server, Site, packages};
use larix_tests::client::Client;
use larix_tests::scenario::Step;

/// What can change a directory or a file. `openat` counts where it creates.
const CALLS: &str = "openat,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,chmod,fchmod,fchmodat,\
                     ftruncate,fallocate,fsync,fdatasync,write,pwrite64,writev,pwritev,copy_file_range,sendfile,flock";
/// Those that move names: behind each of them the three kinds of opener come first in turn, and a reader is there.
const MOVES: [&str; 7] = ["rename", "renameat", "renameat2", "unlink", "unlinkat", "link", "linkat"];
/// Entries below the suffix, before and after: so many that a reader whose output is not taken has the files open.
const OLD: usize = 700;
const NEW: usize = 750;

fn ldif(prefix: &str, people: usize) -> String {
    let mut text = "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n".to_owned();
    for number in 0..people {
        text += &format!(
            "dn: uid={prefix}{number},dc=example,dc=com\nobjectClass: account\nuid: {prefix}{number}\n\
             description: {prefix} {}\n\n",
            "x".repeat(100)
        );
    }
    text
}

/// What a directory holds, as anybody may find it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DirectoryState {
    /// No store, and nobody makes one.
    Nothing,
    /// A store without an entry.
    Empty,
    Old,
    New,
}

fn found_in(names: &BTreeSet<String>) -> DirectoryState {
    let all = |prefix: &str, people: usize| -> BTreeSet<String> {
        let people = (0..people).map(|number| format!("uid={prefix}{number},dc=example,dc=com"));
        people.chain(["dc=example,dc=com".to_owned()]).collect()
    };
    match names {
        names if names.is_empty() => DirectoryState::Empty,
        names if *names == all("old", OLD) => DirectoryState::Old,
        names if *names == all("new", NEW) => DirectoryState::New,
        names => panic!("a mixture of {} entries", names.len()),
    }
}

/// Behind what each entry begins with.
fn names(text: &str, mark: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.strip_prefix(mark)).map(str::to_owned).collect()
}

/// Runs a tool to its end; its output, and whether it succeeded.
fn run(site: &Site, tool: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Kind::Larix.tool(tool);
    let output =
        command.arg("-f").arg(site.configuration()).args(arguments).output().expect("the tool starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Who opens a directory that was left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Opener {
    Cat,
    Check,
    Server,
}

impl Opener {
    const ALL: [Self; 3] = [Self::Cat, Self::Check, Self::Server];

    fn look(self, site: &Site) -> DirectoryState {
        match self {
            Self::Cat => match run(site, "cat", &[]) {
                (true, text) => found_in(&names(&text, "dn: ")),
                (false, text) => nothing(&text),
            },
            Self::Check => match run(site, "check", &["--json"]) {
                (true, text) => {
                    assert!(text.contains("\"findings\":0"), "{text}");
                    Self::Cat.look(site)
                }
                (false, text) => nothing(&text),
            },
            Self::Server => {
                let server = match site.start() {
                    Ok(server) => server,
                    Err(error) => return nothing(&error.log),
                };
                let found = served(&server);
                assert!(server.stop());
                found
            }
        }
    }
}

fn nothing(text: &str) -> DirectoryState {
    let known = ["no store in this directory", "no empty database is made here"];
    assert!(known.iter().any(|known| text.contains(known)), "{text}");
    DirectoryState::Nothing
}

fn served(server: &Server) -> DirectoryState {
    let mut connection = Client::connect(server.address);
    let mut ask = |request: &str| connection.run(&Step { request: request.to_owned(), ..Step::default() });
    assert_eq!(ask("as cn=admin,dc=example,dc=com secret\n"), "=> 0\n");
    let answer = ask("search \"dc=example,dc=com\" sub (objectClass=*) 1.1\n");
    found_in(&names(&answer, "-> "))
}

/// A `cat` that has the database open and cannot go on.
struct Reader {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    begun: String,
}

impl Reader {
    fn begin(site: &Site) -> Self {
        let mut command = Kind::Larix.tool("cat");
        command.arg("-f").arg(site.configuration()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the tool starts");
        let mut output = BufReader::with_capacity(512, child.stdout.take().expect("a pipe"));
        let mut begun = String::new();
        output.read_line(&mut begun).expect("its first line");
        Self { child, output, begun }
    }

    /// Lets it go on: it has what it began with.
    fn end(mut self) -> DirectoryState {
        let mut text = std::mem::take(&mut self.begun);
        self.output.read_to_string(&mut text).expect("the rest");
        assert!(self.child.wait().expect("its end").success());
        found_in(&names(&text, "dn: "))
    }
}

/// One way to put a database in the place of another.
struct Case {
    name: &'static str,
    /// What stands there before.
    before: DirectoryState,
    tool: &'static str,
    arguments: Vec<String>,
}

struct Bench {
    /// Databases as they are before: by what they hold.
    templates: BTreeMap<&'static str, PathBuf>,
    folder: tempfile::TempDir,
    strace: PathBuf,
}

impl Bench {
    /// A site with a database as it is before.
    fn site(&self, before: DirectoryState) -> Site {
        let site = Site::example(Kind::Larix);
        let data = site.path().join("data");
        if let Some(template) = self.templates.get(&*format!("{before:?}")) {
            fs::copy(template, data.join("data.mdb")).expect("a copy");
        }
        site
    }

    /// The command under strace, whose own arguments come first.
    fn traced(&self, case: &Case, site: &Site, strace: &[String]) -> bool {
        let mut command = Command::new(&self.strace);
        command.args(["-f", "-qq"]).args(strace).arg(Kind::Larix.program().expect("larix"));
        command.arg(case.tool).arg("-f").arg(site.configuration()).args(&case.arguments);
        let output = command.output().expect("strace starts");
        output.status.success()
    }

    /// The calls that the command makes when nobody kills it: how many of each.
    fn calls(&self, case: &Case) -> Vec<(String, usize)> {
        let site = self.site(case.before);
        let log = self.folder.path().join("calls");
        let strace = [format!("-etrace={CALLS}"), "-o".to_owned(), log.display().to_string()];
        assert!(self.traced(case, &site, &strace), "{}", case.name);
        assert_eq!(Opener::Cat.look(&site), DirectoryState::New, "{}", case.name);
        let mut counts = BTreeMap::<(String, String), usize>::new();
        let mut first_of_interest = BTreeMap::<String, usize>::new();
        let data = site.path().display().to_string();
        for line in fs::read_to_string(&log).expect("strace's log").lines() {
            let Some((thread, rest)) = line.split_once(' ') else { continue };
            let Some((call, arguments)) = rest.trim_start().split_once('(') else { continue };
            let count = counts.entry((thread.to_owned(), call.to_owned())).or_default();
            *count += 1;
            // Libraries and configuration are opened before anything happens.
            if call != "openat" || (arguments.contains(&data) && arguments.contains("O_CREAT")) {
                let first = first_of_interest.entry(call.to_owned()).or_insert(*count);
                *first = (*first).min(*count);
            }
        }
        let mut most = BTreeMap::<String, usize>::new();
        for ((_, call), count) in counts {
            let entry = most.entry(call).or_default();
            *entry = (*entry).max(count);
        }
        let of_interest = |call: &String| first_of_interest.get(call).copied();
        most.into_iter()
            .filter_map(|(call, count)| of_interest(&call).map(|first| (call, first, count)))
            .flat_map(|(call, first, count)| (first..=count).map(move |number| (call.clone(), number)))
            .collect()
    }

    /// Kills the command at one call; what the opener finds then, and the others after it.
    fn kill(&self, case: &Case, call: &str, number: usize, opener: Opener, reads: bool) -> DirectoryState {
        let site = self.site(case.before);
        let reader = (reads && case.before == DirectoryState::Old).then(|| Reader::begin(&site));
        let inject = format!("-einject={call}:signal=KILL:when={number}");
        let strace = [format!("-etrace={call}"), inject, "-o".to_owned(), "/dev/null".to_owned()];
        self.traced(case, &site, &strace);
        if case.before == DirectoryState::Nothing && untouched(&site) {
            // Nothing was begun: a server makes the empty database that it is asked for.
            assert_eq!(Opener::Cat.look(&site), DirectoryState::Nothing);
            return DirectoryState::Nothing;
        }
        let found = opener.look(&site);
        let at = format!("{}: killed at {call} {number}, then {opener:?}, reader {reads}", case.name);
        assert!(found == case.before || found == DirectoryState::New, "{at}: {found:?}");
        for next in Opener::ALL {
            assert_eq!(next.look(&site), found, "{at}, then {next:?}");
        }
        if let Some(reader) = reader {
            assert_eq!(reader.end(), DirectoryState::Old, "{at}: what the reader reads");
        }
        assert!(opened_files_are_one(&site), "{at}");
        found
    }
}

/// Whether the directory holds nothing but a lock.
fn untouched(site: &Site) -> bool {
    let names = fs::read_dir(site.path().join("data")).expect("the directory");
    names.map(|file| file.expect("a file").file_name()).all(|name| name == "larix.lock")
}

/// Nothing is left of the replacement once somebody has opened the directory for writing and succeeded.
fn opened_files_are_one(site: &Site) -> bool {
    let data = site.path().join("data");
    !["data.mdb.next", "data.mdb.next.keep"].iter().any(|name| data.join(name).exists())
}

fn tools_are_killed(make: impl Fn(&Path) -> Vec<Case>) {
    if packages::STRACE.is_lacking() {
        return;
    }
    let strace = packages::STRACE.files().into_iter().next().expect("it was asked for");
    let folder = tempfile::tempdir().expect("a folder");
    let mut templates = BTreeMap::new();
    for (name, text) in [("Old", ldif("old", OLD)), ("New", ldif("new", NEW)), ("Empty", String::new())] {
        let site = Site::example(Kind::Larix);
        if text.is_empty() {
            assert!(site.start().unwrap_or_else(|error| panic!("{error}")).stop());
        } else {
            site.load(&text);
        }
        if name == "New" {
            let backup = folder.path().join("backup").display().to_string();
            let (success, text) = run(&site, "backup", &["--to", &backup]);
            assert!(success, "{text}");
        }
        let template = folder.path().join(name);
        fs::copy(site.path().join("data/data.mdb"), &template).expect("a copy");
        templates.insert(name, template);
    }
    fs::write(folder.path().join("new.ldif"), ldif("new", NEW)).expect("an LDIF file");
    let bench = Bench { templates, strace, folder };
    for case in make(bench.folder.path()) {
        let mut outcomes = BTreeMap::<String, usize>::new();
        let calls = bench.calls(&case);
        for (index, (call, number)) in calls.iter().enumerate() {
            let moves = MOVES.contains(&call.as_str());
            let openers = if moves { &Opener::ALL[..] } else { &Opener::ALL[index % 3..=index % 3] };
            for &opener in openers {
                for reads in if moves { &[false, true][..] } else { &[false][..] } {
                    let found = bench.kill(&case, call, *number, opener, *reads);
                    *outcomes.entry(format!("{found:?}")).or_default() += 1;
                }
            }
        }
        println!("{}: {} calls, {outcomes:?}", case.name, calls.len());
        assert!(outcomes.len() == 2, "{}: killed before and after: {outcomes:?}", case.name);
    }
}

#[test]
fn a_killed_restore_leaves_the_old_database_or_the_new_one() {
    tools_are_killed(|folder| {
        let backup = folder.join("backup").display().to_string();
        let case = |name, before, more: &[&str]| Case {
            name,
            before,
            tool: "restore",
            arguments: ["--from", &backup].iter().chain(more).map(|text| (*text).to_owned()).collect(),
        };
        vec![
            case("restore where nothing was", DirectoryState::Nothing, &[]),
            case("restore --replace", DirectoryState::Old, &["--replace"]),
        ]
    });
}

#[test]
fn a_killed_load_leaves_the_old_database_or_the_new_one() {
    tools_are_killed(|folder| {
        let file = folder.join("new.ldif").display().to_string();
        let case =
            |name, before| Case { name, before, tool: "add", arguments: vec!["-l".to_owned(), file.clone()] };
        vec![
            case("load where nothing was", DirectoryState::Nothing),
            case("load into an empty database", DirectoryState::Empty),
        ]
    });
}

/// Data that another program put there, beside the lock file of what was there before: the same danger from another cause.
#[test]
fn data_of_another_origin_beside_a_reader_is_read_by_its_own_last_commit() {
    // By one commit more or less the lock file of before names the other one of the new file's two roots.
    for (opener, commits) in
        Opener::ALL.into_iter().flat_map(|opener| [(opener, 0), (opener, 1), (opener, 2)])
    {
        let site = Site::example(Kind::Larix);
        site.load(&ldif("old", OLD));
        for commit in 0..commits {
            let change = site.path().join("change.ldif");
            let text = format!(
                "dn: dc=example,dc=com\nchangetype: modify\nreplace: description\ndescription: {commit}\n"
            );
            fs::write(&change, text).expect("a file");
            let (success, text) = run(&site, "offline-modify", &["-l", &change.display().to_string()]);
            assert!(success, "{text}");
        }
        let data = site.path().join("data");
        let other = Site::example(Kind::Larix);
        other.load(&ldif("new", NEW));
        let reader = Reader::begin(&site);
        let inode = || fs::metadata(data.join("data.mdb")).map(|data| data.ino()).expect("the data");
        let before = inode();
        fs::copy(other.path().join("data/data.mdb"), data.join("copied")).expect("a copy");
        fs::rename(data.join("copied"), data.join("data.mdb")).expect("a rename");
        assert_ne!(before, inode());
        assert_eq!(opener.look(&site), DirectoryState::New, "{opener:?}, {commits} commits more");
        assert_eq!(reader.end(), DirectoryState::Old, "{opener:?}");
        assert_eq!(Opener::Server.look(&site), DirectoryState::New);
    }
}

/// Changes between two looks at the file.
const ROUND: usize = 40;
/// Rounds after which it is given up: a reader's place is looked for every ten seconds.
const ROUNDS: usize = 3_000;

#[test]
fn what_a_killed_reader_saw_is_used_again() {
    let site = Site::new(
        Kind::Larix,
        "database monitor\naccess to * by * read\ndatabase mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\n\
         rootpw secret\ndirectory @DATA@\naccess to * by * read\n",
    );
    site.load_into(Some("dc=example,dc=com"), &ldif("old", OLD));
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut connection = Client::connect(server.address);
    let mut ask = |request: &str| connection.run(&Step { request: request.to_owned(), ..Step::default() });
    assert_eq!(ask("as cn=admin,dc=example,dc=com secret\n"), "=> 0\n");
    let mut reader = Reader::begin(&site);
    reader.child.kill().expect("it is killed");
    reader.child.wait().expect("its end");
    let mut pages = || -> u64 {
        let found = ask("search \"cn=Databases,cn=Monitor\" sub (namingContexts=*) olmMDBPagesUsed\n");
        let figure = found.split("olmMDBPagesUsed: ").nth(1).and_then(|rest| rest.lines().next());
        figure.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| panic!("no figure in {found}"))
    };
    let mut changer = Client::connect(server.address);
    let request = "as cn=admin,dc=example,dc=com secret\n".to_owned();
    assert_eq!(changer.run(&Step { request, ..Step::default() }), "=> 0\n");
    let mut change = |number: usize| {
        let request = format!(
            "modify \"uid=old{},dc=example,dc=com\"\n  replace description: {number}\n",
            number % OLD
        );
        assert_eq!(changer.run(&Step { request, ..Step::default() }), "=> 0\n");
    };
    // As long as its place is taken, each change takes new pages.
    let before = pages();
    (0..ROUND).for_each(&mut change);
    let grown = pages();
    assert!(grown > before, "{before} pages before, {grown} behind {ROUND} changes");
    let used_again = (1..ROUNDS).any(|round| {
        let before = pages();
        (0..ROUND).for_each(|number| change(round * ROUND + number));
        pages() == before
    });
    assert!(used_again, "no page was used again");
    assert!(server.stop());
}

/// As at a limit on the threads of a user or of a container.
#[test]
fn tools_that_get_no_thread_say_so_or_do_without() {
    if packages::STRACE.is_lacking() {
        return;
    }
    let strace = packages::STRACE.files().into_iter().next().expect("it was asked for");
    let site = Site::example(Kind::Larix);
    let file = site.path().join("new.ldif");
    fs::write(&file, ldif("new", NEW)).expect("an LDIF file");
    let run_at = |first: &str, tool: &str, arguments: &[&str]| {
        let mut command = Command::new(&strace);
        command.args(["-f", "-qq", "-o", "/dev/null", "-etrace=clone,clone3"]);
        command.arg(format!("-einject=clone,clone3:error=EAGAIN:when={first}"));
        command.arg(Kind::Larix.program().expect("larix")).arg(tool).arg("-f").arg(site.configuration());
        let output = command.args(arguments).output().expect("strace starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let load = ["-l", file.to_str().expect("a path")];
    // The reader of the input, and the first of those that encode.
    for first in ["1+", "2+"] {
        let (code, error) = run_at(first, "add", &load);
        assert!(
            code == Some(1) && error.contains("no thread for the load") && error.contains("TasksMax="),
            "{error}"
        );
        assert!(!site.path().join("data/data.mdb").exists(), "nothing was loaded");
    }
    assert_eq!(run_at("3+", "add", &load), (Some(0), String::new()));
    assert_eq!(Opener::Cat.look(&site), DirectoryState::New);
    let (code, error) = run_at("1+", "index", &[]);
    assert!(code == Some(0) && !error.contains("panicked"), "{error}");
}

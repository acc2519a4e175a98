//! `larix adopt` on real slapds of this machine: forth and back, while somebody writes, and killed at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation, Response, ResultCode};
use larix_testkit::process::{Signal, free_ports, signal};
use larix_testkit::{Kind, Site, packages, until};

const ADMIN: &str = "cn=admin,dc=example,dc=com";
const PATIENCE: Duration = Duration::from_secs(180);
const SUFFIX: &str = "dc=example,dc=com";
const PLAIN: &str = "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
     directory @DATA@\nmaxsize 268435456\nindex objectClass,uid,entryUUID eq\n";
const OVERLAYS: &str = "moduleload memberof\nmoduleload refint\nmoduleload ppolicy\nmoduleload syncprov\n\
     database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
     directory @DATA@\nmaxsize 268435456\nindex objectClass,uid,entryUUID,entryCSN eq\n\
     overlay memberof\noverlay refint\nrefint_attributes member\noverlay ppolicy\n\
     ppolicy_default cn=policy,dc=example,dc=com\noverlay syncprov\nsyncprov-checkpoint 10 1\n";

/// One database records the changes of the other.
const LOGGED: &str = "moduleload accesslog\nmoduleload syncprov\n\
     database mdb\nsuffix cn=log\nrootdn cn=log\ndirectory @DATA@-log\nindex reqStart,objectClass,entryCSN eq\noverlay syncprov\n\
     database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
     directory @DATA@\nmaxsize 268435456\nindex objectClass,uid,entryUUID,entryCSN eq\noverlay syncprov\n\
     overlay accesslog\nlogdb cn=log\nlogops writes\nlogsuccess TRUE\n";

/// Entries of people: 300, or `LARIX_ADOPT_ENTRIES`.
fn people() -> usize {
    std::env::var("LARIX_ADOPT_ENTRIES").map_or(300, |count| count.parse().expect("a number"))
}

fn ldif() -> String {
    let mut text = "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n".to_owned();
    for number in 0..people() {
        text += &format!(
            "dn: uid=p{number},dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: p{number}\ncn: Pérson {number}\nsn: P\n\
             userPassword: secret\ndescription: d{number}\n\n"
        );
    }
    text
}

/// A slapd in the background with its folder, and Larix once it has taken over. The test ends the one that is left.
struct Machine {
    site: Site,
    port: u16,
    urls: String,
    /// A slapd.conf or a slapd.d.
    configuration: PathBuf,
    slapd: PathBuf,
}

impl Machine {
    fn start(body: &str, as_directory: bool) -> Self {
        Self::start_on(body, as_directory, &ldif(), "", None)
    }

    /// `more`: of a further URL, what stands before the port.
    fn start_on(body: &str, as_directory: bool, ldif: &str, more: &str, user: Option<&str>) -> Self {
        let site = Site::on_disk(Kind::Slapd, &format!("pidfile @DATA@/slapd.pid\n{body}"));
        // The others begin empty; slaptest wants them to be there.
        for suffix in body.lines().filter_map(|line| line.strip_prefix("suffix ")) {
            site.load_into(Some(suffix), if suffix == SUFFIX { ldif } else { "" });
        }
        let ports = free_ports(2);
        let mut urls = format!("ldap://127.0.0.1:{}/", ports[0]);
        if !more.is_empty() {
            urls += &format!(" {more}:{}/", ports[1]);
        }
        let mut configuration = site.configuration();
        if as_directory {
            let directory = site.path().join("slapd.d");
            fs::create_dir(&directory).unwrap();
            let mut command = Kind::Slapd.tool("test");
            let done = command.arg("-f").arg(&configuration).arg("-F").arg(&directory).output().unwrap();
            assert!(done.status.success(), "{done:?}");
            configuration = directory;
        }
        let slapd = Kind::Slapd.program().unwrap();
        let machine = Self { site, port: ports[0], urls, configuration, slapd };
        let mut command = Command::new(&machine.slapd);
        command.args(["-h", &machine.urls, machine.flag()]).arg(&machine.configuration);
        if let Some(user) = user {
            command.args(["-u", user, "-g", user]);
            let give = |path: &Path| {
                Command::new("chown").args(["-R", &format!("{user}:{user}")]).arg(path).status()
            };
            give(&machine.site.path().join("data")).unwrap();
            give(&machine.configuration).unwrap();
            // The rest stays root's, as /var/lib and /etc/ldap are.
            fs::set_permissions(machine.site.path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert!(command.stdin(Stdio::null()).status().unwrap().success());
        let end = Deadline::begin();
        while bound(machine.port).is_none() {
            assert!(end.is_ahead(), "slapd does not answer");
        }
        machine
    }

    fn flag(&self) -> &'static str {
        if self.configuration.is_dir() { "-F" } else { "-f" }
    }

    fn place(&self) -> PathBuf {
        self.site.path().join("adopted")
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(Kind::Larix.program().unwrap());
        command.args(["adopt", "--service", "process", "--defaults", "/nonexistent"]);
        command.arg(self.flag()).arg(&self.configuration).arg("--place").arg(self.place()).args(more);
        if !more.contains(&"--slapd") {
            command.arg("--slapd").arg(&self.slapd);
        }
        command.stdin(Stdio::null());
        command
    }

    fn adopt(&self, more: &[&str]) -> Output {
        // Servers inherit standard error until they are in the background.
        self.command(more).output().unwrap()
    }

    fn must(&self, more: &[&str]) -> String {
        let output = self.adopt(more);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{more:?}: {text}");
        text
    }

    /// Which server has a database open; none, or one alone.
    fn serves(&self) -> Option<Kind> {
        let slapd = self.processes("data").iter().any(|(_, name)| name == "slapd");
        let larix = self.processes("adopted/larix").iter().any(|(_, name)| name == "larix");
        assert!(!(slapd && larix), "both servers run");
        slapd.then_some(Kind::Slapd).or_else(|| larix.then_some(Kind::Larix))
    }

    /// Processes with files open in a folder of this machine's, and their names.
    fn processes(&self, folder: &str) -> Vec<(u32, String)> {
        let folder = self.site.path().join(folder);
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| {
            let files = fs::read_dir(entry.path().join("fd")).ok()?;
            let has =
                |file: fs::DirEntry| fs::read_link(file.path()).is_ok_and(|path| path.starts_with(&folder));
            let id = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            files.flatten().any(has).then(|| (id, name.trim().to_owned()))
        })
        .collect()
    }

    /// Lines of all entries, operational attributes and the contextCSN among them, from the files of the one that serves.
    fn content(&self) -> BTreeSet<String> {
        self.content_of(SUFFIX)
    }

    fn content_of(&self, suffix: &str) -> BTreeSet<String> {
        let mut command = match self.serves() {
            Some(Kind::Larix) => {
                let mut command = Kind::Larix.tool("cat");
                command.arg("-F").arg(self.place().join("larix/slapd.d"));
                command
            }
            _ => {
                let mut command = Kind::Slapd.tool("cat");
                command.arg(self.flag()).arg(&self.configuration);
                command
            }
        };
        lines(command.args(["-b", suffix]))
    }

    fn step(&self) -> Option<String> {
        let text = fs::read_to_string(self.place().join("state.json")).ok()?;
        let at = text.split_once("\"step\": \"")?.1;
        Some(at.split_once('"')?.0.to_owned())
    }

    /// Kills `larix adopt` as soon as it is at a step; whether it was met there.
    fn kill_at(&self, more: &[&str], step: &str) -> bool {
        let mut child: Child =
            self.command(more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let end = Deadline::begin();
        loop {
            if self.step().as_deref() == Some(step) {
                let _ = child.kill();
                let _ = child.wait();
                return self.step().as_deref() == Some(step);
            }
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(end.is_ahead(), "never at {step}: {:?}", self.step());
            std::thread::yield_now();
        }
    }

    fn write(&self) -> Load {
        Load::start(self.port)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for (id, name) in self.processes("") {
            if name == "slapd" || name == "larix" {
                signal(id, Signal::KILL);
            }
        }
    }
}

/// What `slapcat` or `larix cat` prints, each line with the entry's name.
fn lines(command: &mut Command) -> BTreeSet<String> {
    let output = command.args(["-o", "ldif-wrap=no"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut dn = String::new();
    let lines = text.lines().filter(|line| !line.is_empty()).map(|line| {
        if line.starts_with("dn:") {
            line.clone_into(&mut dn);
        }
        format!("{dn} | {line}")
    });
    lines.collect()
}

/// Somebody who writes all the time, and remembers what was acknowledged.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Written>,
}

#[derive(Debug, Default)]
struct Written {
    added: BTreeSet<String>,
    /// The last description of each entry that was acknowledged; a later one may be there that was asked for.
    described: BTreeMap<usize, u64>,
    attempted: BTreeMap<usize, u64>,
    /// Connections that were lost.
    lost: u64,
}

/// Changes, adds among them, that are acknowledged before anything else happens.
const CHANGES_MIN: u64 = 6;

impl Load {
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let (began, writes) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut written = Written::default();
            let mut number = 0;
            let mut began = Some(began);
            while !seen.load(Ordering::Relaxed) {
                // Refused while nobody serves.
                if let Some(mut stream) = bound(port) {
                    while !seen.load(Ordering::Relaxed) && written.next(&mut stream, &mut number) {
                        if number >= CHANGES_MIN
                            && let Some(began) = began.take()
                        {
                            began.send(()).unwrap();
                        }
                    }
                    written.lost += 1;
                } else {
                    std::thread::park_timeout(Duration::from_millis(2));
                }
            }
            written
        });
        // A step may be over before the first change: there would be nothing to lose.
        writes.recv().unwrap();
        Self { stop, thread }
    }

    fn end(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

impl Written {
    /// Another change; false when the connection is gone.
    fn next(&mut self, stream: &mut TcpStream, number: &mut u64) -> bool {
        *number += 1;
        let mut request = Vec::new();
        if number.is_multiple_of(3) {
            let (uid, text) = (format!("w{number}"), number.to_string());
            let dn = format!("uid={uid},dc=example,dc=com");
            let values = [("objectClass", "account"), ("uid", &uid), ("description", &text)];
            let values: Vec<(&str, [&str; 1])> =
                values.iter().map(|(name, value)| (*name, [*value])).collect();
            let attributes: Vec<ClientAttribute<'_, &str>> =
                values.iter().map(|(description, values)| ClientAttribute { description, values }).collect();
            client::add(&mut request, MessageId(2), &dn, &attributes, &[]);
            let Some(code) = answer(stream, &request) else { return false };
            assert_eq!(code, ResultCode::SUCCESS, "{dn}");
            self.added.insert(uid);
        } else {
            let person = *number as usize % people();
            let dn = format!("uid=p{person},dc=example,dc=com");
            let text = number.to_string();
            let change = ClientChange {
                operation: ModifyOperation::Replace,
                attribute: ClientAttribute { description: "description", values: &[&text] },
            };
            client::modify(&mut request, MessageId(2), &dn, &[change], &[]);
            self.attempted.insert(person, *number);
            let Some(code) = answer(stream, &request) else { return false };
            assert_eq!(code, ResultCode::SUCCESS, "{dn}");
            self.described.insert(person, *number);
        }
        true
    }

    /// The number of the last change that was acknowledged.
    fn last(&self) -> u64 {
        let added = self.added.iter().filter_map(|uid| uid.strip_prefix('w')?.parse().ok());
        added.chain(self.described.values().copied()).max().unwrap_or_default()
    }

    /// The entries are there.
    fn check_added(&self, content: &BTreeSet<String>, when: &str) {
        for uid in &self.added {
            let line = format!("dn: uid={uid},dc=example,dc=com | uid: {uid}");
            assert!(content.contains(&line), "{when}: {uid} is lost");
        }
    }

    /// All that was acknowledged is there.
    fn check(&self, content: &BTreeSet<String>, when: &str) {
        assert!(!self.added.is_empty() && !self.described.is_empty(), "{when}: nothing was written");
        self.check_added(content, when);
        for (person, last) in &self.described {
            let value = |number: u64| format!("dn: uid=p{person},dc=example,dc=com | description: {number}");
            let attempted = self.attempted.get(person).copied().unwrap_or(*last);
            assert!(
                content.contains(&value(*last)) || content.contains(&value(attempted)),
                "{when}: the change {last} of p{person} is lost"
            );
        }
    }
}

fn bound(port: u16) -> Option<TcpStream> {
    bound_as(port, ADMIN, "secret")
}

fn bound_as(port: u16, dn: &str, password: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let mut request = Vec::new();
    client::simple_bind(&mut request, MessageId(1), dn, password.as_bytes(), &[]);
    (answer(&mut stream, &request)? == ResultCode::SUCCESS).then_some(stream)
}

/// The result, or none where the connection is gone: answers here are shorter than 128 bytes or have a length of two bytes.
fn answer(stream: &mut TcpStream, request: &[u8]) -> Option<ResultCode> {
    stream.write_all(request).ok()?;
    let mut message = vec![0; 2];
    stream.read_exact(&mut message).ok()?;
    let length = match message[1] {
        short @ 0..128 => usize::from(short),
        _ => return None,
    };
    message.resize(2 + length, 0);
    stream.read_exact(&mut message[2..]).ok()?;
    let message = Response::decode_message(&message).ok()?;
    // A server that stops says so (notice of disconnection) or that it is unavailable.
    let result = message.response.result()?.1;
    let code = result.code;
    assert!(code != ResultCode::OTHER, "{result:?}");
    (message.id != MessageId(0) && !matches!(code, ResultCode::UNAVAILABLE | ResultCode::BUSY))
        .then_some(code)
}

/// How long a test waits for what must come.
struct Deadline(Instant);

#[allow(clippy::disallowed_methods, reason = "waits for processes of this machine")]
impl Deadline {
    fn begin() -> Self {
        Self(Instant::now() + PATIENCE)
    }

    fn is_ahead(&self) -> bool {
        Instant::now() < self.0
    }
}

fn can_run() -> bool {
    if Kind::Slapd.is_lacking() {
        return false;
    }
    let sees_processes = fs::read_dir("/proc/1/fd").is_ok();
    if !sees_processes {
        packages::note_lack(packages::ROOT);
    }
    sees_processes
}

/// Nobody has to read what it says of its steps: a reader that goes away leaves no machine without a server.
#[test]
fn news_that_nobody_reads_end_nothing() {
    if !can_run() {
        return;
    }
    let machine = Machine::start(PLAIN, false);
    for (more, server) in [(&[][..], Kind::Larix), (&["--back"], Kind::Slapd)] {
        // Every line to it is an error.
        let nowhere = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = machine.command(more).stdout(nowhere).output().unwrap();
        assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(machine.serves(), Some(server));
    }
}

/// Passwords that were set at Larix are good at slapd, too.
#[test]
fn passwords_come_back() {
    if !can_run() {
        return;
    }
    let person = "uid=p1,dc=example,dc=com";
    let machine = Machine::start(PLAIN, true);
    machine.must(&[]);
    let url = format!("ldap://127.0.0.1:{}", machine.port);
    let words = ["passwd", "-H", url.as_str(), "-D", ADMIN, "-w", "secret", "-s", "another", person];
    let changed = Command::new(Kind::Larix.program().unwrap()).args(words).output().unwrap();
    assert!(changed.status.success(), "{changed:?}");
    for more in [None, Some("--back")] {
        if let Some(more) = more {
            machine.must(&[more]);
        }
        assert!(bound_as(machine.port, person, "another").is_some(), "{:?}", machine.serves());
        assert!(bound_as(machine.port, person, "wrong").is_none(), "{:?}", machine.serves());
    }
}

/// Forth and back without a writer: every line of every entry is the same, twice.
fn forth_and_back(
    body: &str,
    as_directory: bool,
    more_url: &str,
    replace: &[(&str, &Path)],
    user: Option<&str>,
) {
    let mut body = body.to_owned();
    for (name, path) in replace {
        body = body.replace(name, &path.display().to_string());
    }
    let machine = Machine::start_on(&body, as_directory, &ldif(), more_url, user);
    if body.contains("overlay memberof") {
        groups_and_failures(&machine);
    }
    let before = machine.content();
    assert_eq!(body.contains("memberof"), before.iter().any(|line| line.contains("| memberOf: cn=group,")));
    assert_eq!(body.contains("ppolicy"), before.iter().any(|line| line.contains("| pwdFailureTime: ")));
    let plan = machine.must(&["--dry-run"]);
    assert!(plan.contains("3. stop slapd") && !machine.place().exists(), "{plan}");
    println!("{}", machine.must(&[]));
    assert_eq!(machine.serves(), Some(Kind::Larix));
    let (mut before, mut adopted) = (before, machine.content());
    // slapd writes it when it stops, at the latest.
    let is_csn = |line: &&String| line.contains("| contextCSN: ");
    assert!(!body.contains("syncprov") || adopted.iter().any(|line| is_csn(&line)), "the contextCSN is lost");
    before.retain(|line| !is_csn(&line));
    adopted.retain(|line| !is_csn(&line));
    same(&before, &adopted);
    let again = machine.adopt(&[]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("adopted already"), "{again:?}");
    // What is written at Larix comes back with it.
    let load = machine.write();
    let end = Deadline::begin();
    while machine.content().len() <= before.len() + 20 {
        assert!(end.is_ahead(), "nothing is written");
    }
    let written = load.end();
    let after = machine.content();
    written.check(&after, "at Larix");
    println!("{}", machine.must(&["--back"]));
    assert_eq!(machine.serves(), Some(Kind::Slapd));
    assert!(bound(machine.port).is_some() && !machine.place().exists());
    same(&after, &machine.content());
}

/// What overlays keep beside what was written: back links, and the state of a password.
fn groups_and_failures(machine: &Machine) {
    let mut stream = bound(machine.port).unwrap();
    let group = [
        ("objectClass", &["groupOfNames"][..]),
        ("cn", &["group"]),
        ("member", &["uid=p1,dc=example,dc=com"]),
    ];
    let policy = [
        ("objectClass", &["device", "pwdPolicy"][..]),
        ("cn", &["policy"]),
        ("pwdAttribute", &["userPassword"]),
        ("pwdLockout", &["TRUE"]),
        ("pwdMaxFailure", &["9"]),
    ];
    for (dn, values) in [("cn=group,dc=example,dc=com", &group[..]), ("cn=policy,dc=example,dc=com", &policy)]
    {
        let attributes: Vec<ClientAttribute<'_, &str>> =
            values.iter().map(|(description, values)| ClientAttribute { description, values }).collect();
        let mut request = Vec::new();
        client::add(&mut request, MessageId(2), dn, &attributes, &[]);
        assert_eq!(answer(&mut stream, &request), Some(ResultCode::SUCCESS), "{dn}");
    }
    let mut request = Vec::new();
    client::simple_bind(&mut request, MessageId(3), "uid=p1,dc=example,dc=com", b"wrong", &[]);
    assert_eq!(answer(&mut stream, &request), Some(ResultCode::INVALID_CREDENTIALS));
}

#[track_caller]
fn same(first: &BTreeSet<String>, second: &BTreeSet<String>) {
    let differences: Vec<&String> = first.symmetric_difference(second).take(10).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn a_slapd_conf_goes_forth_and_back() {
    if can_run() {
        forth_and_back(PLAIN, false, "", &[], None);
    }
}

/// slapd reads the line, and not what its slaptest makes of it.
#[test]
fn overlays_that_slapd_cannot_read_again_go_forth_and_back() {
    if can_run() {
        let line = "overlay unique\nunique_uri \"strict ignore ldap:///ou=none,dc=example,dc=com?description?sub\"\n";
        forth_and_back(&format!("moduleload unique\n{PLAIN}{line}"), false, "", &[], None);
    }
}

#[test]
fn a_way_back_that_fails_leaves_larix_serving() {
    if !can_run() {
        return;
    }
    let machine = Machine::start(PLAIN, false);
    machine.must(&[]);
    let good = fs::read_to_string(&machine.configuration).unwrap();
    fs::write(&machine.configuration, format!("{good}nosuch on\n")).unwrap();
    let output = machine.adopt(&["--back"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("Larix serves again"), "{stderr}");
    assert_eq!(
        (machine.serves(), machine.step().as_deref()),
        (Some(Kind::Larix), Some("adopted")),
        "{stderr}"
    );
    assert!(bound(machine.port).is_some(), "{stderr}");
    fs::write(&machine.configuration, good).unwrap();
    machine.must(&["--back"]);
    assert_eq!(machine.serves(), Some(Kind::Slapd));
}

#[test]
fn a_slapd_d_with_overlays_goes_forth_and_back() {
    if can_run() {
        let groups = format!("{OVERLAYS}database monitor\n");
        forth_and_back(&groups, true, "", &[], None);
    }
}

/// As Debian runs it: root starts it, and the files are another user's, on both sides.
#[test]
fn the_user_of_slapd_has_the_files_of_both() {
    if !can_run() {
        return;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    if !users.lines().any(|line| line.starts_with("openldap:")) {
        packages::note_lack("the user openldap");
        return;
    }
    forth_and_back(PLAIN, true, "", &[], Some("openldap"));
    forth_and_back(PLAIN, false, "", &[], Some("openldap"));
}

#[test]
fn certificates_and_keys_serve_on() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let authority = larix_testkit::pki::Authority::new("adopt");
    let (certificate, key) = authority.server().write(folder.path(), "server");
    let body = format!("TLSCertificateFile @CERT@\nTLSCertificateKeyFile @KEY@\n{PLAIN}");
    forth_and_back(&body, true, "ldaps://127.0.0.1", &[("@CERT@", &certificate), ("@KEY@", &key)], None);
}

/// The records come along, forth and back, and what is written at Larix is recorded behind them.
#[test]
fn an_access_log_goes_forth_and_back() {
    if !can_run() {
        return;
    }
    let machine = Machine::start(LOGGED, true);
    let written = |count: usize| {
        let load = machine.write();
        let end = Deadline::begin();
        let before = machine.content_of("cn=log").len();
        while machine.content_of("cn=log").len() <= before + count {
            assert!(end.is_ahead(), "nothing is recorded");
        }
        let last = load.end().last();
        // Larix records a change behind its answer, in the order of the changes.
        let is_last = |line: &String| {
            line.ends_with(&format!("| reqMod: description:= {last}"))
                || line.ends_with(&format!("| reqDN: uid=w{last},dc=example,dc=com"))
        };
        loop {
            let content = machine.content_of("cn=log");
            if content.iter().any(is_last) {
                return content;
            }
            assert!(end.is_ahead(), "the change {last} is not recorded");
        }
    };
    let before = written(100);
    assert!(before.iter().any(|line| line.contains("| reqMod: description:= ")), "{before:?}");
    println!("{}", machine.must(&[]));
    // contextCSN is written at a stop, at the latest; slapd's entry of the log has no entryUUID, and Larix's has one.
    let no_csn = |mut lines: BTreeSet<String>| {
        lines.retain(|line| !line.contains("| contextCSN: ") && !line.starts_with("dn: cn=log | "));
        lines
    };
    same(&no_csn(before), &no_csn(machine.content_of("cn=log")));
    empty_of_people(&machine);
    let after = written(100);
    println!("{}", machine.must(&["--back"]));
    assert_eq!(machine.serves(), Some(Kind::Slapd));
    same(&after, &machine.content_of("cn=log"));
    empty_of_people(&machine);
    assert!(written(10).is_superset(&no_csn(after)), "slapd does not record behind them");
}

/// A consumer follows its provider before, meanwhile as Larix, and afterwards; the provider is written all the time.
#[test]
fn a_consumer_goes_forth_and_back() {
    if !can_run() {
        return;
    }
    let provider = Site::new(Kind::Slapd, &format!("moduleload syncprov\n{PLAIN}overlay syncprov\n"));
    provider.load(&ldif());
    let running = provider.start().unwrap_or_else(|error| panic!("{error}"));
    let port = running.address.port();
    let consumer = format!(
        "{PLAIN}syncrepl rid=001 provider=ldap://127.0.0.1:{port} searchbase=\"{SUFFIX}\" type=refreshAndPersist \
         retry=\"1 +\" bindmethod=simple binddn=\"{ADMIN}\" credentials=secret\nupdateref ldap://127.0.0.1:{port}\n"
    );
    let machine = Machine::start_on(&consumer, true, "", "", None);
    let follows = |what: &str| {
        let end = Deadline::begin();
        loop {
            let content = lines(Kind::Slapd.tool("cat").arg("-f").arg(provider.configuration()));
            let own = machine.content();
            // contextCSN may be behind by a checkpoint.
            let differ = content.symmetric_difference(&own).find(|line| !line.contains("| contextCSN: "));
            let Some(line) = differ else { return own };
            assert!(end.is_ahead(), "{what}: {line}");
        }
    };
    follows("slapd");
    let load = Load::start(port);
    println!("{}", machine.must(&[]));
    let meanwhile = load.end();
    assert_eq!(machine.serves(), Some(Kind::Larix));
    let content = follows("Larix");
    meanwhile.check(&content, "as Larix");
    // Somebody else, who adds other entries.
    let mut stream = bound(port).unwrap();
    let mut later = Written::default();
    let mut number = 1_000_000;
    let mut write = || assert!(later.next(&mut stream, &mut number));
    (0..6).for_each(|_| write());
    println!("{}", machine.must(&["--back"]));
    (0..6).for_each(|_| write());
    assert_eq!(machine.serves(), Some(Kind::Slapd));
    let content = follows("slapd again");
    later.check(&content, "after the way back");
    meanwhile.check_added(&content, "after the way back");
    assert!(running.stop());
}

#[test]
fn nothing_acknowledged_is_lost_while_somebody_writes() {
    if !can_run() {
        return;
    }
    for (body, as_directory) in [(PLAIN, false), (OVERLAYS, true)] {
        let machine = Machine::start(body, as_directory);
        let load = machine.write();
        println!("{}", machine.must(&[]));
        println!("{}", machine.must(&["--back"]));
        let written = load.end();
        assert!(written.lost >= 2, "the writer saw no pause: {}", written.lost);
        println!("{} entries added, {} changed", written.added.len(), written.described.len());
        written.check(&machine.content(), "after the way back");
    }
}

#[test]
fn a_kill_at_any_step_is_gone_on_from_or_undone() {
    if !can_run() {
        return;
    }
    let machine = Machine::start(OVERLAYS, true);
    let (mut met, mut tried) = (BTreeSet::new(), BTreeSet::new());
    for step in ["preparing", "copied", "taking", "starting"] {
        for undone in [false, true, false, true, false, true] {
            // On a busy machine the kill may come too late: twice more at most.
            if met.contains(step) && tried.contains(&(step, undone)) {
                continue;
            }
            tried.insert((step, undone));
            let load = machine.write();
            if machine.kill_at(&[], step) {
                met.insert(step);
            }
            if !undone && machine.step().as_deref() != Some("adopted") {
                machine.must(&[]);
                assert_eq!(machine.serves(), Some(Kind::Larix), "{step}");
            }
            machine.must(&["--back"]);
            assert_eq!(machine.serves(), Some(Kind::Slapd), "{step}");
            load.end().check(&machine.content(), step);
            empty_of_people(&machine);
        }
    }
    let back = ["returning", "swapping", "slapd-starting"];
    for step in back.iter().copied().cycle().take(3 * back.len()) {
        if met.contains(step) {
            continue;
        }
        machine.must(&[]);
        let load = machine.write();
        let end = Deadline::begin();
        let before = machine.content().len();
        while machine.content().len() <= before + 20 {
            assert!(end.is_ahead(), "nothing is written");
        }
        if machine.kill_at(&["--back"], step) {
            met.insert(step);
            let refused = machine.adopt(&[]);
            assert!(!refused.status.success(), "{step}: the way forth after the way back was begun");
        }
        // The kill may have met a later step.
        if machine.step().is_some() {
            machine.must(&["--back"]);
        }
        assert_eq!(machine.serves(), Some(Kind::Slapd), "{step}");
        load.end().check(&machine.content(), step);
        empty_of_people(&machine);
    }
    assert!(met.len() >= 6, "killed at {met:?} alone");
    println!("killed at {met:?}");
}

/// `larix adopt` is killed when it has asked slapd to end, and before slapd does.
#[test]
fn the_way_back_waits_for_a_slapd_that_ends() {
    if !can_run() {
        return;
    }
    let machine = Machine::start(OVERLAYS, true);
    let slapd: Vec<u32> = machine.processes("data").into_iter().map(|(id, _)| id).collect();
    // What stands still takes connections, and ends when it goes on.
    assert!(slapd.iter().all(|id| signal(*id, Signal::STOP)));
    let is_asked = |id: &u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        u64::from_str_radix(pending.trim(), 16).unwrap() & (1 << (Signal::TERM.as_raw() - 1)) != 0
    };
    let mut forth = machine.command(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("slapd is asked to end", || slapd.iter().any(is_asked));
    forth.kill().unwrap();
    forth.wait().unwrap();
    assert_eq!(machine.step().as_deref(), Some("taking"));
    let mut back = machine.command(&["--back"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Time to be content with it.
    std::thread::park_timeout(Duration::from_secs(1));
    assert!(slapd.iter().all(|id| signal(*id, Signal::CONT)));
    assert!(back.wait().unwrap().success());
    until("it is another one", || !machine.processes("data").iter().any(|(id, _)| slapd.contains(id)));
    assert_eq!(machine.serves(), Some(Kind::Slapd));
    until("it answers", || bound(machine.port).is_some());
}

/// Takes out what writers added: the next one adds the same.
fn empty_of_people(machine: &Machine) {
    let mut stream = bound(machine.port).unwrap();
    let names: BTreeSet<String> = machine
        .content()
        .iter()
        .filter_map(|line| Some(line.split_once(" | ")?.0.strip_prefix("dn: ")?.to_owned()))
        .filter(|dn| dn.starts_with("uid=w"))
        .collect();
    for dn in names {
        let mut request = Vec::new();
        client::delete(&mut request, MessageId(3), &dn, &[]);
        assert_eq!(answer(&mut stream, &request), Some(ResultCode::SUCCESS));
    }
}

#[test]
fn what_cannot_be_taken_over_is_refused_before_anything_is_done() {
    if !can_run() {
        return;
    }
    let machine = Machine::start(PLAIN, false);
    let good = fs::read_to_string(&machine.configuration).unwrap();
    let check = |text: &str, more: &[&str], expected: &str| {
        fs::write(&machine.configuration, text).unwrap();
        let output = machine.adopt(more);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(expected), "{expected:?}: {stderr}");
        assert!(
            !machine.place().join("state.json").exists() && machine.serves() == Some(Kind::Slapd),
            "{stderr}"
        );
    };
    check(&format!("{good}overlay nosuch\n"), &[], "slapd.conf:");
    check(&format!("{good}overlay nosuch\n"), &[], "nothing was changed");
    check(
        &good
            .replace("database mdb", "database ldif")
            .replace("index", "#index")
            .replace("maxsize", "#maxsize"),
        &[],
        "adopt takes over mdb alone",
    );
    check(&good, &["--back"], "nothing was adopted");
    check(&good, &["--slapd", "/nonexistent"], "there is no /nonexistent");
    // It ends with success and copies nothing, whatever is asked of it.
    check(&good, &["--slapd", "/bin/true"], "/bin/true is not OpenLDAP's slapd");
    check(&good, &["--slapd", "/bin/true", "--dry-run"], "/bin/true is not OpenLDAP's slapd");
    let other = machine.site.path().join("other");
    fs::create_dir(&other).unwrap();
    check(&good.replace("/data\n", "/other\n"), &[], "no slapd has");
    fs::create_dir(machine.place()).unwrap();
    fs::write(machine.place().join("mine"), "").unwrap();
    check(&good, &[], "exists and is not empty");
}

/// The second one waits for the first, and does not begin anew over what serves by then.
#[test]
fn of_two_at_once_one_takes_over() {
    if !can_run() {
        return;
    }
    let machine = Machine::start(PLAIN, true);
    let start = || machine.command(&[]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Both have found that nothing was begun; the lock lets one go on.
    fs::create_dir(machine.place()).unwrap();
    let lock = fs::File::create(machine.place().join("lock")).unwrap();
    lock.lock().unwrap();
    let both = [start(), start()];
    until("both wait for the lock", || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let waits = |child: &Child| {
            let id = child.id().to_string();
            locks.lines().any(|line| line.contains("->") && line.split_whitespace().any(|word| word == id))
        };
        both.iter().all(waits)
    });
    drop(lock);
    let ended = both.map(|child| child.wait_with_output().unwrap());
    assert_eq!(ended.iter().filter(|output| output.status.success()).count(), 1, "{ended:?}");
    let refused = ended.iter().find(|output| !output.status.success()).unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("another one has begun meanwhile"), "{stderr}");
    assert_eq!(machine.serves(), Some(Kind::Larix));
    machine.must(&["--back"]);
    assert_eq!(machine.serves(), Some(Kind::Slapd));
}

/// Killed while the first step was being written: nothing was begun, and the same command begins.
#[test]
fn a_kill_before_the_first_step_leaves_nothing_in_the_way() {
    if !can_run() {
        return;
    }
    let machine = Machine::start(PLAIN, true);
    fs::create_dir(machine.place()).unwrap();
    for name in ["lock", "state.next"] {
        fs::write(machine.place().join(name), "").unwrap();
    }
    machine.must(&[]);
    assert_eq!(machine.serves(), Some(Kind::Larix));
}

//! `larix serve --suffix`: what is changed while it serves is there at the next start, and flags that say otherwise are reported.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use larix_testkit::process::{Signal, signal};
use larix_testkit::{Authority, Kind, until, until_some};

const ADMIN: &str = "cn=admin,dc=example,dc=com";

struct Newcomer {
    folder: tempfile::TempDir,
    data: PathBuf,
}

impl Newcomer {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Self { folder, data }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
        command.current_dir(self.folder.path()).args(["serve", "--data"]).arg(&self.data).args(arguments);
        command
    }

    /// Starts the server with these flags beside `--suffix` and a listener.
    fn start(&self, listen: &str, arguments: &[&str]) -> Running {
        let (ports, shown) = (self.folder.path().join("ports"), self.folder.path().join("shown"));
        let _ = fs::remove_file(&ports);
        let child = self
            .command(&["--suffix", "DC=example, dc=com", "-h", listen, "--port-file", "ports"])
            .args(arguments)
            .stdout(File::create(&shown).unwrap())
            .spawn()
            .unwrap();
        let mut child = larix_testkit::Running(child);
        let port = until_some("it serves", || {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            let port = fs::read_to_string(&ports).ok()?;
            // What it shows comes behind the ports, line by line.
            (port.ends_with('\n') && has_shown(&shown)).then(|| port.trim().to_owned())
        });
        let url = format!("{}127.0.0.1:{port}", listen.strip_suffix("127.0.0.1:0").unwrap());
        Running { child, url, authority: self.data.join("server.pem"), shown }
    }

    /// What a start says that comes to nothing.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).args(["-h", "ldap://127.0.0.1:0"]).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

struct Running {
    child: larix_testkit::Running,
    url: String,
    authority: PathBuf,
    shown: PathBuf,
}

impl Running {
    fn client(&self, command: &str, password: &str) -> Command {
        let mut client = Command::new(Kind::Larix.program().unwrap());
        client.args([command, "-x", "-H", &self.url, "-D", ADMIN, "-w", password, "-o"]);
        client.arg(format!("tls_cacert={}", self.authority.display()));
        client
    }

    fn change(&self, password: &str, ldif: &str) {
        let mut client = self.client("modify", password).stdin(Stdio::piped()).spawn().unwrap();
        client.stdin.take().unwrap().write_all(ldif.as_bytes()).unwrap();
        assert!(client.wait().unwrap().success(), "{ldif}");
    }

    /// Whether the configuration shows these lines to the administrator.
    fn check(&self, password: &str, base: &str, lines: &[&str]) {
        let output =
            self.client("search", password).args(["-LLL", "-b", base, "-s", "base"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for line in lines {
            assert!(text.lines().any(|it| it == *line), "{line}: {text}{:?}", output.stderr);
        }
    }

    /// Whether an entry of the sample can log in so.
    fn binds(&self, uid: &str, password: &str) -> bool {
        let mut client = Command::new(Kind::Larix.program().unwrap());
        client.args(["whoami", "-x", "-H", &self.url, "-w", password, "-D"]);
        client.arg(format!("uid={uid},ou=people,dc=example,dc=com"));
        client.stderr(Stdio::null()).output().unwrap().status.success()
    }

    fn stop(mut self) -> String {
        assert!(signal(self.child.id(), Signal::TERM));
        assert!(self.child.wait().unwrap().success(), "a clean stop");
        fs::read_to_string(&self.shown).unwrap()
    }
}

/// Whether the line with the password is there as a whole.
fn has_shown(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().any(|line| line.trim_start().starts_with("password"))
}

/// The word behind a label of what the server shows.
fn shown<'t>(text: &'t str, label: &str) -> &'t str {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label));
    line.unwrap_or_else(|| panic!("no {label}: {text}")).trim()
}

/// Nobody may read what it shows, or the disk of that is full. It serves all the same, and the password is not lost.
#[test]
fn a_server_needs_no_reader() {
    // One of several also says for whom it waits. No server is at port 1.
    let replicas = [
        "--replica-name",
        "here",
        "--replica",
        "ldap://here",
        "--replica",
        "ldap://127.0.0.1:1",
        "--replica-wait",
        "1",
        "--replica-password-file",
        "password",
    ];
    for arguments in [&[][..], &replicas] {
        let newcomer = Newcomer::new();
        fs::write(newcomer.folder.path().join("password"), "secret of replicas\n").unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let shown = newcomer.folder.path().join("shown");
        let mut command = newcomer.command(&["--suffix", "dc=example,dc=com", "-h", "ldap://127.0.0.1:0"]);
        command.args(arguments).stdout(full).stderr(File::create(&shown).unwrap());
        let mut child = larix_testkit::Running(command.spawn().unwrap());
        until("it shows its password", || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", fs::read_to_string(&shown).unwrap());
            has_shown(&shown)
        });
        assert!(signal(child.id(), Signal::TERM));
        assert!(child.wait().unwrap().success(), "a clean stop");
    }
}

#[test]
fn changes_are_there_at_the_next_start() {
    let mut newcomer = Newcomer::new();
    let server = newcomer.start("ldap://127.0.0.1:0", &[]);
    let text = fs::read_to_string(&server.shown).unwrap();
    let password = shown(&text, "password").split(' ').next().unwrap().to_owned();
    server.change(
        &password,
        "dn: cn=config\nchangetype: modify\nreplace: olcIdleTimeout\nolcIdleTimeout: 77\n\n\
         dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\nreplace: olcRootPW\nolcRootPW: changed\n",
    );
    server.stop();

    // An address with TLS makes a certificate, also when the configuration is there already.
    let server = newcomer.start("ldaps://127.0.0.1:0", &[]);
    let certificate = format!("olcTLSCertificateFile: {}/server.pem", newcomer.data.display());
    server.check("changed", "cn=config", &["olcIdleTimeout: 77", &certificate]);
    let text = server.stop();
    assert_eq!(shown(&text, "password"), "as set before");
    assert!(text.contains("signed itself"), "{text}");

    // The directory may be moved.
    let moved = newcomer.folder.path().join("moved");
    fs::rename(&newcomer.data, &moved).unwrap();
    let earlier = std::mem::replace(&mut newcomer.data, moved);
    // Who names the configuration alone is not sent to make an empty directory.
    for tool in ["test", "cat"] {
        let output = Kind::Larix.tool(tool).arg("-F").arg(newcomer.data.join("slapd.d")).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let mend = format!("--data {}` writes the new paths", newcomer.data.display());
        assert!(!output.status.success() && text.contains(&mend), "{text}");
    }
    let server = newcomer.start("ldaps://127.0.0.1:0", &[]);
    let now = |attribute: &str, rest: &str| format!("{attribute}: {}{rest}", newcomer.data.display());
    server.check(
        "changed",
        "cn=config",
        &[
            "olcIdleTimeout: 77",
            &now("olcTLSCertificateFile", "/server.pem"),
            &now("olcConfigDir", "/slapd.d"),
        ],
    );
    server.check("changed", "olcDatabase={1}mdb,cn=config", &[&now("olcDbDirectory", "")]);
    assert!(shown(&server.stop(), "note").contains(earlier.to_str().unwrap()));

    // A database that is gone is not taken for one that was empty, whatever is beside its place.
    fs::rename(newcomer.data.join("data.mdb"), newcomer.data.join("data.mdb.old")).unwrap();
    let text = newcomer.start("ldaps://127.0.0.1:0", &[]).stop();
    assert!(shown(&text, "note").starts_with("there was no data.mdb in "), "{text}");
}

/// The path of a data directory may have a blank: it stands in quotes under cn=config. What is below moves with it.
#[test]
fn a_data_directory_with_a_blank_moves_with_all_that_is_below() {
    let mut newcomer = Newcomer::new();
    newcomer.data = newcomer.folder.path().join("a b");
    let server = newcomer.start("ldap://127.0.0.1:0", &[]);
    let text = fs::read_to_string(&server.shown).unwrap();
    let password = shown(&text, "password").split(' ').next().unwrap();
    fs::create_dir(newcomer.data.join("log")).unwrap();
    let directory = format!("olcDbDirectory: \"{}/log\"\n", newcomer.data.display());
    let database = "dn: olcDatabase=mdb,cn=config\nchangetype: add\nobjectClass: olcDatabaseConfig\n\
                    objectClass: olcMdbConfig\nolcDatabase: mdb\nolcSuffix: cn=log\n";
    server.change(password, &format!("{database}{directory}"));
    server.stop();
    newcomer.start("ldaps://127.0.0.1:0", &[]).stop();

    let moved = newcomer.folder.path().join("c d");
    fs::rename(&newcomer.data, &moved).unwrap();
    newcomer.data = moved;
    let server = newcomer.start("ldaps://127.0.0.1:0", &[]);
    let path = |attribute: &str, rest: &str| format!("{attribute}: \"{}{rest}\"", newcomer.data.display());
    server.check(password, "cn=config", &[&path("olcTLSCertificateFile", "/server.pem")]);
    server.check(password, "olcDatabase={1}mdb,cn=config", &[&path("olcDbDirectory", "")]);
    server.check(password, "olcDatabase={3}mdb,cn=config", &[&path("olcDbDirectory", "/log")]);
    server.stop();
}

/// A file system that is not mounted is not taken for a directory that was moved.
#[test]
fn a_database_that_was_elsewhere_has_not_moved() {
    let newcomer = Newcomer::new();
    newcomer.start("ldap://127.0.0.1:0", &[]).stop();
    let file = newcomer.data.join("slapd.d/cn=config/olcDatabase={1}mdb.ldif");
    let text = fs::read_to_string(&file).unwrap();
    let line = |directory: &Path| format!("olcDbDirectory: {}\n", directory.display());
    let changed = text.replace(&line(&newcomer.data), &line(&newcomer.folder.path().join("gone")));
    assert_ne!(changed, text);
    fs::write(&file, &changed).unwrap();
    let message = newcomer.refused(&["--suffix", "dc=example,dc=com"]);
    assert!(message.contains("/gone, not in --data") && message.contains("cannot be had"), "{message}");
    assert_eq!(fs::read_to_string(&file).unwrap(), changed);
}

/// What a start left that was killed amid its certificate does not open the key to all.
#[test]
fn the_key_is_its_owner_s_alone() {
    let newcomer = Newcomer::new();
    fs::create_dir(&newcomer.data).unwrap();
    let part = newcomer.data.join("server.part");
    fs::write(&part, "half").unwrap();
    fs::set_permissions(&part, fs::Permissions::from_mode(0o644)).unwrap();
    newcomer.start("ldaps://127.0.0.1:0", &[]).stop();
    assert_eq!(fs::metadata(newcomer.data.join("server.key")).unwrap().mode() & 0o777, 0o600);
    assert!(!part.exists());
}

/// `tests/tests/tools/guide_blocks.rs` types the guide's first page.
#[test]
fn the_first_entry_is_proposed_until_there_is_one() {
    let newcomer = Newcomer::new();
    let server = newcomer.start("ldap://127.0.0.1:0", &[]);
    let text = fs::read_to_string(&server.shown).unwrap();
    let password = shown(&text, "password").split(' ').next().unwrap();
    server.change(password, "dn: dc=example,dc=com\nchangetype: add\nobjectClass: domain\ndc: example\n");
    let text = server.stop();
    assert!(text.contains("the first entry") && text.contains(" -b 'DC=example, dc=com'\n"), "{text}");
    let text = newcomer.start("ldap://127.0.0.1:0", &[]).stop();
    assert!(!text.contains("the first entry"), "it has entries: {text}");
}

/// README says that passwords are hashed: those that come by LDIF in the clear, too.
#[test]
fn passwords_that_come_in_the_clear_are_stored_hashed() {
    let newcomer = Newcomer::new();
    let server = newcomer.start("ldap://127.0.0.1:0", &[]);
    let text = fs::read_to_string(&server.shown).unwrap();
    let password = shown(&text, "password").split(' ').next().unwrap();
    let person = |name: &str| {
        format!(
            "dn: uid={name},dc=example,dc=com\nchangetype: add\nobjectClass: inetOrgPerson\nuid: {name}\n\
             cn: {name}\nsn: {name}\nuserPassword: added-{name}\n\n"
        )
    };
    server.change(
        password,
        &format!(
            "dn: dc=example,dc=com\nchangetype: add\nobjectClass: domain\ndc: example\n\n{}{}\
             dn: uid=bob,dc=example,dc=com\nchangetype: modify\nreplace: userPassword\nuserPassword: changed-bob\n",
            person("ann"),
            person("bob"),
        ),
    );
    for (name, known) in [("ann", "added-ann"), ("bob", "changed-bob")] {
        let dn = format!("uid={name},dc=example,dc=com");
        let output = server
            .client("search", password)
            .args(["-LLL", "--json", "-b", &dn, "-s", "base", "(userPassword=*)", "userPassword"])
            .output()
            .unwrap();
        let stored = String::from_utf8(output.stdout).unwrap();
        assert!(stored.contains("{ARGON2}$argon2id$") && !stored.contains(known), "{stored}");
        let mut bind = Command::new(Kind::Larix.program().unwrap());
        bind.args(["whoami", "-x", "-H", &server.url, "-D", &dn, "-w", known]);
        let output = bind.output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("dn:{dn}\n"));
    }
    server.stop();
}

/// Where nobody asked anything no index is unused.
#[test]
fn an_empty_log_judges_no_index() {
    let newcomer = Newcomer::new();
    let server = newcomer.start("ldap://127.0.0.1:0", &[]);
    let text = fs::read_to_string(&server.shown).unwrap();
    let password = shown(&text, "password").split(' ').next().unwrap();
    server.change(
        password,
        "dn: dc=example,dc=com\nchangetype: add\nobjectClass: domain\nobjectClass: uidObject\ndc: example\nuid: x\n",
    );
    server.stop();
    let log = newcomer.folder.path().join("log");
    let search = "conn=1 op=1 SRCH base=\"dc=example,dc=com\" scope=2 deref=0 filter=\"(cn=x)\"\n";
    for (lines, judged) in [("", false), ("conn=1 op=0 BIND dn=\"\" method=128\n", false), (search, true)] {
        fs::write(&log, lines).unwrap();
        let mut advise = Kind::Larix.tool("advise");
        let output =
            advise.arg("-F").arg(newcomer.data.join("slapd.d")).arg("--log").arg(&log).output().unwrap();
        let message = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{:?}", output.stderr);
        assert_eq!(message.contains("not used: index uid eq"), judged, "{lines}: {message}");
        assert_eq!(message.contains("nothing to judge by"), !judged, "{lines}: {message}");
    }
}

#[test]
fn a_full_disk_is_no_damaged_entry() {
    let newcomer = Newcomer::new();
    let server = newcomer.start("ldap://127.0.0.1:0", &[]);
    let text = fs::read_to_string(&server.shown).unwrap();
    let password = shown(&text, "password").split(' ').next().unwrap();
    // More than what is gathered before it is written.
    let long = "x".repeat(3 << 19);
    server.change(
        password,
        &format!(
            "dn: dc=example,dc=com\nchangetype: add\nobjectClass: domain\ndc: example\ndescription: {long}\n"
        ),
    );
    server.stop();
    for go_on in [&[][..], &["-c"]] {
        let mut cat = Kind::Larix.tool("cat");
        cat.args(["-l", "/dev/full", "-F"]).arg(newcomer.data.join("slapd.d")).args(go_on);
        let output = cat.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && message.contains("cannot write the LDIF: No space left"),
            "{message}"
        );
        assert!(!message.contains("entry"), "{message}");
    }
}

#[test]
fn flags_that_say_otherwise_are_told() {
    let newcomer = Newcomer::new();
    fs::write(newcomer.folder.path().join("first"), "one\n").unwrap();
    fs::write(newcomer.folder.path().join("second"), "two\n").unwrap();
    let server = newcomer.start("ldaps://127.0.0.1:0", &["--admin-password-file", "first"]);
    server.check("one", "cn=config", &["dn: cn=config"]);
    assert_eq!(shown(&server.stop(), "password"), "the first line of first");
    for (arguments, words) in [
        (&["--suffix", "dc=other"][..], &["dc=other", "serves \"dc=example,dc=com\""][..]),
        (
            &["--suffix", "dc=example,dc=com", "--tls-cert", "mine.pem"],
            &["--tls-cert", "mine.pem", "server.pem"],
        ),
        (&["--suffix", "no name"], &["--suffix no name"]),
    ] {
        let message = newcomer.refused(arguments);
        assert!(words.iter().all(|word| message.contains(word)), "{arguments:?}: {message}");
    }
    // The first start's password, or one that was set since, stays: the file is a first start's.
    let server = newcomer.start("ldap://127.0.0.1:0", &["--admin-password-file", "second"]);
    server.check("one", "cn=config", &["dn: cn=config"]);
    assert!(shown(&server.stop(), "note").contains("--admin-password-file"));

    // A directory elsewhere that is still there is not this one.
    let copy = newcomer.folder.path().join("copy/slapd.d");
    fs::create_dir_all(&copy).unwrap();
    let copied =
        Command::new("cp").arg("-r").arg(newcomer.data.join("slapd.d/.")).arg(&copy).status().unwrap();
    assert!(copied.success());
    let other = Newcomer { data: newcomer.folder.path().join("copy"), folder: tempfile::tempdir().unwrap() };
    let message = other.refused(&["--suffix", "dc=example,dc=com"]);
    assert!(
        message.contains(newcomer.data.to_str().unwrap()) && message.contains("not in --data"),
        "{message}"
    );
}

#[test]
fn a_server_in_the_background_shows_its_password() {
    let newcomer = Newcomer::new();
    let output = newcomer
        .command(&["--suffix", "dc=example,dc=com", "-h", "ldapi://ldapi", "--background"])
        .env_remove("LARIX_DETACHED")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // No pid file by default: the one that has the socket is asked who it is by name of its own data directory.
    let ours = processes_with(newcomer.data.to_str().unwrap());
    for process in &ours {
        assert!(signal(process.parse().unwrap(), Signal::TERM));
    }
    assert!(output.status.success() && shown(&text, "password").contains("shown once"), "{text}");
    assert_eq!(ours.len(), 1, "{ours:?}");
}

/// One line says which address is taken; no password is made up, and nothing is left, so that the next start is a first one.
#[test]
fn an_address_that_is_taken_is_said_and_nothing_is_left() {
    let newcomer = Newcomer::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("socket");
    let _answers = UnixListener::bind(&path).unwrap();
    let path = path.display().to_string();
    let socket = format!("ldapi://{}", path.replace('/', "%2F"));
    let (url, http) = (format!("ldapi://own ldap://{address}"), format!("http://{address}/"));
    let cases: [(&[&str], &str); 5] = [
        (&["-h", &url], &address),
        (&["-h", "ldapi://own", "--http", &http], &address),
        (&["-h", "ldapi://own", "--admin", &address], &address),
        (&["-h", &format!("ldapi://own {socket}")], &path),
        (&["-h", &url, "--background"], &address),
    ];
    for (arguments, named) in cases {
        let mut command = newcomer.command(&["--suffix", "dc=example,dc=com"]);
        let output = command.args(arguments).env_remove("LARIX_DETACHED").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
        for word in [named, "another process", "end that, or name another"] {
            assert!(message.contains(word), "{arguments:?}: {message}");
        }
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{arguments:?}");
        let left: Vec<_> = fs::read_dir(newcomer.folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{arguments:?}: {left:?}");
    }
}

/// The configuration is kept with the hash of a password that was made up: the password is printed, this once, though nothing is
/// served.
#[test]
fn a_start_that_comes_to_nothing_shows_its_password() {
    let newcomer = Newcomer::new();
    fs::create_dir(&newcomer.data).unwrap();
    let foreign = newcomer.data.join("data.mdb");
    let suffix = ["--suffix", "dc=example,dc=com"];
    for arguments in [&[][..], &["--background"]] {
        fs::write(&foreign, [b'x'; 65_536]).unwrap();
        let mut command = newcomer.command(&suffix);
        command.args(["-h", "ldapi://own"]).args(arguments).env_remove("LARIX_DETACHED");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("password").count(), 1, "{text}");
        let password = shown(&text, "password").split(' ').next().unwrap().to_owned();
        // The second start has nothing new to tell.
        let again = newcomer.command(&suffix).args(["-h", "ldapi://own"]).output().unwrap();
        assert!(!again.status.success() && again.stdout.is_empty(), "{again:?}");

        fs::remove_file(&foreign).unwrap();
        let server = newcomer.start("ldap://127.0.0.1:0", &[]);
        server.check(&password, "cn=config", &["dn: cn=config"]);
        assert_eq!(shown(&server.stop(), "password"), "as set before");
        fs::remove_dir_all(&newcomer.data).unwrap();
        fs::create_dir(&newcomer.data).unwrap();
    }
}

/// A certificate that cannot be read is said before a configuration is made that would ask for it for ever.
#[test]
fn a_first_start_with_a_wrong_certificate_leaves_a_first_start() {
    let newcomer = Newcomer::new();
    let arguments = ["--suffix", "dc=example,dc=com", "--tls-cert", "missing.pem"];
    let output = newcomer.command(&arguments).args(["-h", "ldapi://own"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && message.contains("missing.pem"), "{message}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    assert!(!newcomer.data.join("slapd.d").exists());
    let server = newcomer.start("ldap://127.0.0.1:0", &[]);
    assert!(shown(&server.stop(), "password").contains("shown once"));
}

/// Of two first starts at once, one makes the configuration. The other one waits for it, and shows no password of its own.
#[test]
fn a_first_start_waits_for_another_one() {
    let (newcomer, other) = (Newcomer::new(), Newcomer::new());
    let text = other.start("ldap://127.0.0.1:0", &[]).stop();
    let password = shown(&text, "password").split(' ').next().unwrap();
    fs::create_dir(&newcomer.data).unwrap();
    // As a start has it that makes its configuration.
    let directory = File::open(&newcomer.data).unwrap();
    directory.lock().unwrap();
    let inode = format!(":{} ", directory.metadata().unwrap().ino());
    let said = newcomer.folder.path().join("said");
    let mut command = newcomer.command(&["--suffix", "dc=example,dc=com", "-h", "ldap://127.0.0.1:0"]);
    command.stdout(Stdio::null()).stderr(File::create(&said).unwrap());
    let waiting = larix_testkit::Running(command.spawn().unwrap());
    until("it says so", || fs::read_to_string(&said).unwrap().contains("as by another start"));
    drop(waiting);
    thread::scope(|scope| {
        let started = scope.spawn(|| newcomer.start("ldap://127.0.0.1:0", &[]));
        until("it waits", || {
            assert!(!newcomer.data.join("slapd.d").exists(), "it does not wait");
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("->") && line.contains(&inode))
        });
        fs::rename(other.data.join("slapd.d"), newcomer.data.join("slapd.d")).unwrap();
        fs::remove_dir_all(&other.data).unwrap();
        directory.unlock().unwrap();
        let server = started.join().unwrap();
        server.check(password, "cn=config", &["dn: cn=config"]);
        assert_eq!(shown(&server.stop(), "password"), "as set before");
    });
}

/// An expired certificate is served, with a warning where the administrator looks.
#[test]
fn an_expired_certificate_is_noted() {
    let newcomer = Newcomer::new();
    let expired = |params: &mut rcgen::CertificateParams| params.not_after = rcgen::date_time_ymd(2022, 1, 1);
    let issued = Authority::new("Root").issue(&rcgen::PKCS_ECDSA_P256_SHA256, "localhost", expired);
    let (certificate, key) = issued.write(newcomer.folder.path(), "old");
    let paths = [certificate, key].map(|path| path.display().to_string());
    // A first start, and a later one.
    for arguments in [&["--tls-cert", paths[0].as_str(), "--tls-key", paths[1].as_str()][..], &[]] {
        let text = newcomer.start("ldap://127.0.0.1:0", arguments).stop();
        let note = shown(&text, "note");
        assert!(note.contains("the certificate expired on 2022-01-01"), "{note}");
    }
    let output = Kind::Larix.tool("test").arg("-F").arg(newcomer.data.join("slapd.d")).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && text.contains("warning: TLSCertificateFile"), "{text}");
}

/// A later start that cannot use its certificate changes nothing: the configuration that asks for it would end every start.
#[test]
fn a_later_start_with_a_wrong_certificate_leaves_the_configuration() {
    let newcomer = Newcomer::new();
    newcomer.start("ldap://127.0.0.1:0", &[]).stop();
    fs::write(newcomer.folder.path().join("empty.pem"), "").unwrap();
    for file in ["missing.pem", "empty.pem"] {
        let message = newcomer.refused(&["--suffix", "dc=example,dc=com", "--tls-cert", file]);
        assert!(message.contains("TLSCertificateFile") && message.contains(file), "{message}");
        let text = newcomer.start("ldap://127.0.0.1:0", &[]).stop();
        assert_eq!(shown(&text, "password"), "as set before");
        assert!(!text.contains(file), "{text}");
    }
}

/// What `--sample` and `--ldif` load is there at once, and once; a file that is refused leaves a first start.
#[test]
fn a_first_start_loads_entries() {
    let newcomer = Newcomer::new();
    let file = newcomer.folder.path().join("site.ldif");
    let base =
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n";
    fs::write(&file, format!("{base}\ndn: ou=people,dc=example,dc=com\nobjectClass: organisation\n"))
        .unwrap();
    let given = ["--suffix", "dc=example,dc=com", "--ldif", "site.ldif"];
    let message = newcomer.refused(&given);
    assert!(
        message.contains("site.ldif") && message.contains("line 7: ") && message.contains("objectClass"),
        "{message}"
    );
    for (name, text, expected) in [
        ("none.ldif", None, "cannot read none.ldif"),
        (".", None, "cannot read .: it is a directory"),
        (
            "other.ldif",
            Some("dn: dc=other\nobjectClass: domain\ndc: other\n"),
            "which has \"dc=example,dc=com\"",
        ),
        (
            "part.ldif",
            Some("dn: ou=people,dc=example,dc=com\nobjectClass: organizationalUnit\nou: people\n"),
            "the file has to have it, from the entry \"dc=example,dc=com\" on",
        ),
    ] {
        if let Some(text) = text {
            fs::write(newcomer.folder.path().join(name), text).unwrap();
        }
        let message = newcomer.refused(&["--suffix", "dc=example,dc=com", "--ldif", name]);
        assert!(message.contains(expected), "{message}");
    }
    assert!(!newcomer.data.join("slapd.d").exists());

    fs::write(&file, base).unwrap();
    // Where the configuration cannot be written, the next start meets no entries that this one has loaded.
    fs::write(newcomer.data.join("slapd.d"), "").unwrap();
    newcomer.refused(&given);
    assert!(!newcomer.data.join("data.mdb").exists());
    fs::remove_file(newcomer.data.join("slapd.d")).unwrap();
    let server = newcomer.start("ldap://127.0.0.1:0", &given[2..]);
    let password = {
        let text = fs::read_to_string(&server.shown).unwrap();
        shown(&text, "password").split_whitespace().next().unwrap().to_owned()
    };
    server.check(&password, "dc=example,dc=com", &["o: Example"]);
    assert!(server.stop().contains("an entry was loaded"));
    // The next start takes what is there, and says so.
    let again = newcomer.start("ldap://127.0.0.1:0", &given[2..]).stop();
    assert!(shown(&again, "note").contains("--ldif: no effect"), "{again}");

    // One that was killed between its entries and its configuration leaves this.
    let killed = Newcomer::new();
    killed.start("ldap://127.0.0.1:0", &["--base-entry"]).stop();
    fs::remove_dir_all(killed.data.join("slapd.d")).unwrap();
    let message = killed.refused(&["--suffix", "dc=example,dc=com", "--base-entry"]);
    assert!(message.contains("exists already"), "{message}");
    let mark = killed.data.join("first-start.unfinished");
    fs::write(&mark, "").unwrap();
    let server = killed.start("ldap://127.0.0.1:0", &["--base-entry"]);
    let text = fs::read_to_string(&server.shown).unwrap();
    let password = shown(&text, "password").split_whitespace().next().unwrap();
    server.check(password, "dc=example,dc=com", &["o: example"]);
    assert!(server.stop().contains("an earlier start loaded the entries"));
    assert!(!mark.exists());

    // A load whose last steps failed, as on a broken disk: the entries are there.
    let broken = Newcomer::new();
    let readers = broken.data.join("lock.mdb");
    fs::create_dir_all(&readers).unwrap();
    let message = broken.refused(&["--suffix", "dc=example,dc=com", "--base-entry"]);
    assert!(message.contains("the new database counts all the same"), "{message}");
    fs::remove_dir(&readers).unwrap();
    let server = broken.start("ldap://127.0.0.1:0", &["--base-entry"]);
    assert!(server.stop().contains("an earlier start loaded the entries"));
    assert!(!broken.data.join("first-start.unfinished").exists());

    let empty = Newcomer::new();
    let message = empty.refused(&["--suffix", "cn=example", "--base-entry"]);
    assert!(
        message.contains("--base-entry makes an entry for") && message.contains("not for cn=example"),
        "{message}"
    );
    assert!(!empty.data.join("slapd.d").exists());
    let server = empty.start("ldap://127.0.0.1:0", &["--base-entry"]);
    let text = fs::read_to_string(&server.shown).unwrap();
    let password = shown(&text, "password").split_whitespace().next().unwrap();
    server.check(password, "dc=example,dc=com", &["o: example"]);
    assert!(server.stop().contains("an entry was loaded"));

    let other = Newcomer::new();
    let server = other.start("ldap://127.0.0.1:0", &["--sample"]);
    let text = until_some("it has shown all", || {
        Some(fs::read_to_string(&server.shown).unwrap()).filter(|text| text.contains("Stop it with"))
    });
    let password = shown(&text, "password").split_whitespace().next().unwrap();
    server.check(password, "uid=ann,ou=people,dc=example,dc=com", &["cn: Ann Archer", "title: Director"]);
    // Told once: with it each of the people logs in.
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("sample "))
        .unwrap_or_else(|| panic!("{text}"));
    let sample_password =
        line.split_once("log in with ").and_then(|(_, rest)| rest.split_whitespace().next()).unwrap();
    assert!(line.contains("shown once") && sample_password != password, "{line}");
    for uid in ["ann", "bilal", "chiara"] {
        assert!(server.binds(uid, sample_password), "{uid}");
        assert!(!server.binds(uid, password), "{uid}");
    }
    assert!(server.stop().contains("18 entries were loaded"));
    let again = other.start("ldap://127.0.0.1:0", &["--sample"]).stop();
    assert!(!again.contains(sample_password) && !again.contains("log in with"), "{again}");
}

/// The ids of processes that have this among their arguments.
fn processes_with(argument: &str) -> Vec<String> {
    let all = fs::read_dir("/proc")
        .unwrap()
        .map_while(Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok());
    let has = |id: &String| {
        let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|it| it == argument.as_bytes())
    };
    all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(has).collect()
}

/// Nothing has been made then, and no password shown that is lost with the end of the server.
#[test]
fn a_port_file_that_cannot_be_written_is_refused_first() {
    let newcomer = Newcomer::new();
    fs::create_dir(newcomer.folder.path().join("folder")).unwrap();
    for file in ["nowhere/ports", "folder"] {
        let output = newcomer
            .command(&["--suffix", "dc=example,dc=com", "-h", "ldap://127.0.0.1:0", "--port-file", file])
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{file}");
        assert!(message.contains(&format!("cannot write the port file {file}: ")), "{message}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{file}");
        assert!(!newcomer.data.exists(), "{file}");
    }
}

//! What the process gives up, seen from outside: user, groups, privileges, core dumps, files; and what it tells a service manager.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Server, Site, packages, until};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

const NOBODY: u32 = 65_534;

struct Folder(tempfile::TempDir);

impl Folder {
    /// A configuration and an empty database directory, which anybody may reach.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let folder = Self(folder);
        std::fs::create_dir(folder.at("data")).unwrap();
        let text = format!(
            "pidfile {}\ndatabase mdb\nsuffix cn=x\ndirectory {}\n",
            folder.at("pid").display(),
            folder.at("data").display()
        );
        std::fs::write(folder.at("slapd.conf"), text).unwrap();
        folder
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
        command.args(["serve", "-d", "0", "-f"]).arg(self.at("slapd.conf"));
        let socket = self.at("ldapi").display().to_string().replace('/', "%2F");
        command.arg("-h").arg(format!("ldap://127.0.0.1:0 ldapi://{socket}/????x-mod=0750"));
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        command
    }

    /// Starts it and waits for what it tells the service manager.
    fn start(&self, arguments: &[&str]) -> (Running, String) {
        self.run(self.command().args(arguments))
    }

    fn run(&self, command: &mut Command) -> (Running, String) {
        let socket = UnixDatagram::bind(self.at("notify")).unwrap();
        std::fs::set_permissions(self.at("notify"), std::fs::Permissions::from_mode(0o777)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let child = command.env("NOTIFY_SOCKET", self.at("notify")).spawn().unwrap();
        let running = Running { child, socket };
        let notification = running.notification();
        (running, notification)
    }
}

struct Running {
    child: Child,
    socket: UnixDatagram,
}

impl Running {
    fn notification(&self) -> String {
        let mut bytes = [0; 1024];
        let count = loop {
            match self.socket.recv(&mut bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.expect("the server says something"),
            }
        };
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    /// A line of `/proc/PID/FILE`, by how it begins; its words after that.
    fn line(&self, file: &str, beginning: &str) -> Vec<String> {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(beginning));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    fn stop(mut self) {
        assert!(signal(self.child.id(), Signal::TERM));
        assert_eq!(self.notification(), "STOPPING=1\n");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn is_root(folder: &Folder) -> bool {
    let root = std::fs::metadata(folder.at("slapd.conf")).unwrap().uid() == 0;
    if !root {
        packages::note_lack(packages::ROOT);
    }
    root
}

#[test]
fn a_service_gives_up_dumps_and_privileges_and_tells_when_it_is_ready() {
    let folder = Folder::new();
    let (running, notification) = folder.start(&[]);
    assert_eq!(notification, format!("READY=1\nMAINPID={}\n", running.child.id()));
    assert_eq!(running.line("limits", "Max core file size")[..2], ["0", "0"]);
    assert_eq!(running.line("status", "NoNewPrivs:"), ["1"]);
    assert_eq!(running.line("status", "Umask:"), ["0027"]);
    assert_eq!(mode(&folder.at("pid")), 0o644);
    assert_eq!(mode(&folder.at("ldapi")), 0o750);
    assert_eq!(mode(&folder.at("data").join("data.mdb")) & 0o077, 0);
    running.stop();
    assert!(!folder.at("pid").exists() && !folder.at("ldapi").exists());
}

#[test]
fn a_service_manager_that_asks_hears_that_the_loops_answer() {
    let folder = Folder::new();
    let (mut running, notification) = folder.run(folder.command().env("WATCHDOG_USEC", "200000"));
    assert_eq!(notification, format!("READY=1\nMAINPID={}\n", running.child.id()));
    for _ in 0..2 {
        assert_eq!(running.notification(), "WATCHDOG=1\n");
    }
    assert!(signal(running.child.id(), Signal::TERM));
    let last = std::iter::repeat_with(|| running.notification()).find(|told| told != "WATCHDOG=1\n");
    assert_eq!(last.as_deref(), Some("STOPPING=1\n"));
    assert!(running.child.wait().unwrap().success());
}

/// For the time of an investigation: it keeps the limits that it was started with.
#[test]
fn dumps_are_allowed_where_that_is_configured() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(folder.at("slapd.conf")).unwrap();
    std::fs::write(folder.at("slapd.conf"), format!("core-dumps on\n{text}")).unwrap();
    let (running, _) = folder.start(&[]);
    let own = std::fs::read_to_string("/proc/self/limits").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    assert_eq!(running.line("limits", "Max core file size"), own.split_whitespace().collect::<Vec<_>>());
    running.stop();
}

/// As slapd, which ends by each of them.
#[test]
fn four_signals_stop_it() {
    for how in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR2] {
        let folder = Folder::new();
        let (mut running, _) = folder.start(&[]);
        assert!(signal(running.child.id(), how));
        assert_eq!(running.notification(), "STOPPING=1\n", "{how:?}");
        assert!(running.child.wait().unwrap().success(), "{how:?}");
        assert!(!folder.at("pid").exists(), "{how:?}");
    }
}

#[test]
fn another_user_without_groups_or_ways_back() {
    let folder = Folder::new();
    if !is_root(&folder) {
        return;
    }
    chown(folder.at("data"), Some(NOBODY), Some(NOBODY)).unwrap();
    let (running, _) = folder.start(&["-u", "nobody", "-g", "nogroup"]);
    let four = vec![NOBODY.to_string(); 4];
    assert_eq!(running.line("status", "Uid:"), four);
    assert_eq!(running.line("status", "Gid:"), four);
    assert_eq!(running.line("status", "Groups:"), [NOBODY.to_string()]);
    for set in ["CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(running.line("status", set), ["0000000000000000"], "{set}");
    }
    // What cannot be dumped is shown as root's.
    let shown_as = std::fs::metadata(format!("/proc/{}/fd", running.child.id())).unwrap().uid();
    assert_eq!(shown_as, 0);
    assert_eq!(std::fs::metadata(folder.at("data").join("data.mdb")).unwrap().uid(), NOBODY);
    running.stop();
}

#[test]
fn what_cannot_be_given_up_is_said() {
    let folder = Folder::new();
    let refused = |arguments: &[&str], expected: &str| {
        let output = folder.command().args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(expected), "{arguments:?}: {text}");
    };
    refused(&["-u", "no-such-user"], "no such user: no-such-user");
    refused(&["-g", "no-such-group"], "no such group: no-such-group");
    refused(&["-r", "/no/such/directory"], "cannot set the root directory /no/such/directory");
    if is_root(&folder) {
        // The directory is root's.
        std::fs::set_permissions(folder.at("data"), std::fs::Permissions::from_mode(0o700)).unwrap();
        refused(&["-u", "nobody"], "chown -R");
    } else {
        refused(&["-u", "root"], "for servers that root starts");
    }
}

/// What tests stand on: where somebody else listens on the port of a server to be started, the server has not started.
#[test]
fn a_port_that_another_program_has_is_no_started_server() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let site = Site::example(Kind::Larix);
    let error = Server::start_at(Kind::Larix, &site.configuration(), port, &[]).unwrap_err().to_string();
    assert!(error.contains("ended: exit status"), "{error}");
}

/// The map of one database leaves room for the others; where there is none, the limit is named.
#[test]
fn a_limit_on_the_address_space_is_shared_by_databases() {
    let folder = Folder::new();
    let more: String = (0..8)
        .map(|number| {
            let directory = folder.at(&format!("data-{number}"));
            std::fs::create_dir(&directory).unwrap();
            format!("database mdb\nsuffix cn=y{number}\ndirectory {}\n", directory.display())
        })
        .collect();
    let text = std::fs::read_to_string(folder.at("slapd.conf")).unwrap();
    std::fs::write(folder.at("slapd.conf"), text + &more).unwrap();
    let limited = |kilobytes: u64| {
        let served = folder.command();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -v {kilobytes}; exec \"$0\" \"$@\""));
        command
            .arg(served.get_program())
            .args(served.get_args())
            .stderr(Stdio::piped())
            .stdout(Stdio::null());
        command
    };
    let running = folder.run(&mut limited(40_000_000)).0;
    running.stop();
    let output = limited(2_500_000).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("limit of 2560000000 bytes on the address space"),
        "{error}"
    );
}

/// A limit on the size of files is a full disk: the change that meets it is refused, and the server goes on.
#[test]
fn a_limit_on_the_size_of_files_ends_no_server() {
    let site = Site::example(Kind::Larix);
    site.load(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n",
    );
    let log = site.path().join("larix.log");
    let text = std::fs::read_to_string(site.configuration()).unwrap();
    let lines = format!("loglevel none\nlogfile {}\n", log.display());
    std::fs::write(site.configuration(), lines + &text).unwrap();
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let limit = |bytes: Option<u64>| {
        let process = Pid::from_raw(i32::try_from(server.process_id()).unwrap());
        prlimit(process, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    let file = site.path().join("add.ldif");
    let add = |name: &str, length: usize| {
        let text = format!(
            "dn: ou={name},dc=example,dc=com\nobjectClass: organizationalUnit\nou: {name}\ndescription: {}\n",
            "x".repeat(length)
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
        command.args(["modify", "-a", "-x", "-D", "cn=admin,dc=example,dc=com", "-w", "secret", "-H"]);
        let output = command.arg(format!("ldap://{}", server.address)).arg("-f").arg(&file).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    limit(Some(std::fs::metadata(site.path().join("data/data.mdb")).unwrap().len()));
    // More than the room at the end of the file.
    let (code, message) = add("large", 2 << 20);
    assert!(code == Some(80) && message.contains("no space left for the database"), "{code:?} {message}");
    until("the log says so, whatever its level", || {
        let written = std::fs::read_to_string(&log).unwrap();
        written.contains("no space left for the database in ") && written.contains("no restart is needed")
    });
    limit(None);
    assert_eq!(add("large", 2 << 20).0, Some(0));
    assert!(server.stop());
}

/// Nor does one that is met while the server starts.
#[test]
fn a_limit_on_the_size_of_files_is_named_by_a_server_that_cannot_start() {
    let folder = Folder::new();
    let served = folder.command();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(served.get_program()).args(served.get_args());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{} {error}", output.status);
    assert!(error.contains("larix.lock: no space left on device"), "{error}");
}

/// A data file with half of its first pages would be refused as damaged by every later start.
#[test]
fn a_database_that_finds_no_room_leaves_an_empty_directory() {
    let folder = Folder::new();
    folder.start(&[]).0.stop();
    // The file of readers has its room.
    let data = folder.at("data").join("data.mdb");
    std::fs::remove_file(&data).unwrap();
    let served = folder.command();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""]).arg(served.get_program()).args(served.get_args());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("no space left on device"), "{error}");
    assert!(!data.exists());
    std::fs::remove_file(folder.at("notify")).unwrap();
    folder.start(&[]).0.stop();
}

/// A program that rotates logs knows the process once its pid file is there, before it serves.
#[test]
fn a_log_that_is_rotated_ends_no_server_that_starts() {
    let folder = Folder::new();
    let mut command = folder.command();
    command.arg("--port-file").arg(folder.at("ports"));
    let socket = UnixDatagram::bind(folder.at("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let child = command.env("NOTIFY_SOCKET", folder.at("notify")).spawn().unwrap();
    let mut running = Running { child, socket };
    until("it serves, or has ended", || {
        if folder.at("pid").exists() {
            assert!(signal(running.child.id(), Signal::USR1));
        }
        folder.at("ports").exists() || running.child.try_wait().unwrap().is_some()
    });
    assert_eq!(running.child.try_wait().unwrap(), None);
    assert_eq!(running.notification(), format!("READY=1\nMAINPID={}\n", running.child.id()));
    running.stop();
}

/// A busy service manager reads news later, and waits for it meanwhile.
#[test]
fn a_service_manager_without_room_is_told_when_it_has_some() {
    let folder = Folder::new();
    let socket = UnixDatagram::bind(folder.at("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send_to(b"X=1\n", folder.at("notify")).is_ok() {}
    let mut command = folder.command();
    command.arg("--port-file").arg(folder.at("ports")).env("NOTIFY_SOCKET", folder.at("notify"));
    let running = Running { child: command.spawn().unwrap(), socket };
    until("it listens", || folder.at("ports").exists());
    let ports = std::fs::read_to_string(folder.at("ports")).unwrap();
    let port: u16 = ports.lines().next().unwrap().parse().unwrap();
    // A bind: connections are served behind the notification.
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00").unwrap();
    assert_ne!(client.read(&mut [0; 64]).unwrap(), 0);
    let ready = std::iter::repeat_with(|| running.notification()).find(|told| told != "X=1\n");
    assert_eq!(ready, Some(format!("READY=1\nMAINPID={}\n", running.child.id())));
    running.stop();
}

/// The socket of the service manager is not in the server's root directory.
#[test]
fn a_service_in_another_root_directory_tells_when_it_is_ready() {
    let folder = Folder::new();
    if !is_root(&folder) {
        return;
    }
    std::fs::write(folder.at("root.conf"), "database mdb\nsuffix cn=x\ndirectory /data\n").unwrap();
    let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
    command
        .args(["serve", "-d", "0", "-f", "/root.conf", "-h", "ldap://127.0.0.1:0", "-r"])
        .arg(folder.0.path());
    let (running, notification) = folder.run(command.stderr(Stdio::piped()).stdout(Stdio::null()));
    assert_eq!(notification, format!("READY=1\nMAINPID={}\n", running.child.id()));
    running.stop();
}

/// As a container is stopped whose server still waits for something. The kernel keeps a signal without a handler from its process.
#[test]
fn the_first_process_of_a_container_is_ended_while_it_starts() {
    let folder = Folder::new();
    if !is_root(&folder) {
        return;
    }
    folder.start(&[]).0.stop();
    std::fs::remove_file(folder.at("notify")).unwrap();
    let text = std::fs::read_to_string(folder.at("slapd.conf")).unwrap();
    std::fs::write(folder.at("slapd.conf"), format!("logfile {}\n{text}", folder.at("log").display()))
        .unwrap();
    // As a tool that reads the database by a read-only mount has it: the server waits for that.
    let data = std::fs::File::open(folder.at("data/data.mdb")).unwrap();
    rustix::fs::flock(&data, rustix::fs::FlockOperation::LockShared).unwrap();
    let served = folder.command();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(served.get_program()).args(served.get_args());
    let mut unshare = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    until("the server waits", || {
        let log = std::fs::read_to_string(folder.at("log")).unwrap_or_default();
        log.contains("the server waits for a tool")
    });
    let children = format!("/proc/{0}/task/{0}/children", unshare.id());
    let child = std::fs::read_to_string(children).unwrap();
    assert!(signal(child.trim().parse().unwrap(), Signal::TERM));
    assert_eq!(unshare.wait().unwrap().code(), Some(128 + 15));
}

/// As at a limit on the threads of a user or of a container: each of the threads in turn is the first that cannot be had.
#[test]
fn a_server_that_gets_no_thread_names_the_limit() {
    if packages::STRACE.is_lacking() {
        return;
    }
    let strace = packages::STRACE.files().into_iter().next().expect("it was asked for");
    let folder = Folder::new();
    for number in 1.. {
        let served = folder.command();
        let mut command = Command::new(&strace);
        command.args(["-f", "-qq", "-o", "/dev/null", "-etrace=clone,clone3"]);
        command.arg(format!("-einject=clone,clone3:error=EAGAIN:when={number}+"));
        command.arg(served.get_program()).args(served.get_args()).arg("--port-file").arg(folder.at("ports"));
        let error = std::fs::File::create(folder.at("error")).unwrap();
        let mut child = command.stderr(error).stdout(Stdio::null()).spawn().unwrap();
        let mut ended = None;
        until("it serves, or has ended", || {
            ended = child.try_wait().unwrap();
            ended.is_some() || folder.at("ports").exists()
        });
        let error = std::fs::read_to_string(folder.at("error")).unwrap();
        assert!(!error.contains("panicked"), "{number}: {error}");
        if ended.is_none() {
            let pid = std::fs::read_to_string(folder.at("pid")).unwrap();
            assert!(signal(pid.trim().parse().unwrap(), Signal::TERM));
            assert!(child.wait().unwrap().success());
            break;
        }
        assert!(
            error.contains("Resource temporarily unavailable") && error.contains("TasksMax="),
            "{number}: {error}"
        );
    }
}

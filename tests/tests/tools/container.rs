//! What a container starts (dist/container), run on this machine with the environment that a container would have.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use larix_testkit::postgresql::Engine;
use larix_testkit::process::{Running, Signal, free_ports, signal};
use larix_testkit::site::schema_directory;
use larix_testkit::{Kind, until};
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, ask};

const SUFFIX: &str = "dc=example,dc=com";
const PASSWORD: &str = "an admin's word";
/// How often a condition is looked at until it must hold, with [`PAUSE`] between.
const LOOKS: u32 = 1_800;
const PAUSE: Duration = Duration::from_millis(100);

/// A script of dist/container, with the program that the tests run in place of the image's.
fn script(folder: &Path, name: &str) -> Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/container").join(name);
    let program = Kind::Larix.program().expect("larix is built");
    let file = folder.join(name);
    // Once: a shell that just reads it must not find it cut short.
    if !file.exists() {
        let text =
            fs::read_to_string(source).unwrap().replace("/usr/bin/larix", &program.display().to_string());
        fs::write(&file, text).unwrap();
    }
    let mut command = Command::new("sh");
    command.arg(file).env_clear().env("PATH", "/usr/bin:/bin");
    command
}

/// Servers in containers that find each other by a list.
struct Set {
    folder: tempfile::TempDir,
    ports: Vec<u16>,
    health: Vec<u16>,
}

impl Set {
    fn new(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("admin"), format!("{PASSWORD}\n")).unwrap();
        fs::write(folder.path().join("replication"), "another word").unwrap();
        let ldifs = folder.path().join("ldifs");
        fs::create_dir(&ldifs).unwrap();
        let base = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
        fs::write(ldifs.join("01-base.ldif"), base).unwrap();
        let people = format!("dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n");
        let lines = folder.path().join("conf.d");
        fs::create_dir(&lines).unwrap();
        fs::write(lines.join("10-unique.conf"), "overlay unique\nunique_uri ldap:///?description?sub\n")
            .unwrap();
        fs::write(ldifs.join("02-people.ldif"), people).unwrap();
        Self { folder, ports: free_ports(count), health: free_ports(count) }
    }

    fn url(&self, member: usize) -> String {
        format!("ldap://127.0.0.1:{}", self.ports[member])
    }

    fn data(&self, member: usize) -> PathBuf {
        self.folder.path().join(format!("data-{member}"))
    }

    fn shown(&self, member: usize) -> String {
        fs::read_to_string(self.folder.path().join(format!("shown-{member}"))).unwrap()
    }

    /// The environment is that of the chart's ConfigMap, with this machine's addresses and files.
    fn start(&self, member: usize) -> Running {
        self.start_waiting(member, "30")
    }

    /// So many seconds for others that cannot be reached, before the first start.
    fn start_waiting(&self, member: usize, wait: &str) -> Running {
        let urls: Vec<String> = (0..self.ports.len()).map(|member| self.url(member)).collect();
        let shown = File::create(self.folder.path().join(format!("shown-{member}"))).unwrap();
        let file = |name: &str| self.folder.path().join(name);
        let mut start = script(self.folder.path(), "start");
        if file("ldifs").exists() {
            start.env("LARIX_LDIF", file("ldifs"));
        }
        let child = start
            .env("LARIX_SUFFIX", SUFFIX)
            .env("LARIX_DATA", self.data(member))
            .env("LARIX_URLS", self.url(member))
            .env("LARIX_HTTP", format!("http://127.0.0.1:{}/", self.health[member]))
            .env("LARIX_ADMIN_PASSWORD_FILE", file("admin"))
            .env("LARIX_INCLUDE", file("conf.d"))
            .env("LARIX_SCHEMAS", "nis, samba")
            .env("LARIX_OVERLAYS", "memberof,collective")
            .env("LARIX_REPLICAS", urls.join(" "))
            .env("LARIX_REPLICA_NAME", self.url(member))
            .env("LARIX_REPLICA_WAIT", wait)
            .env("LARIX_REPLICA_PASSWORD_FILE", file("replication"))
            .stdout(shown)
            .stderr(File::create(self.errors(member)).unwrap())
            .spawn()
            .unwrap();
        Running(child)
    }

    /// Where the server's log is.
    fn errors(&self, member: usize) -> PathBuf {
        self.folder.path().join(format!("errors-{member}"))
    }

    /// What `/health/ready` answers.
    fn health(&self, member: usize) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.health[member]))?;
        stream.write_all(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    }

    /// # Panics
    /// The server ends, or is not ready in time: with what all of them have said.
    fn wait_until_ready(&self, member: usize, server: &mut Running) {
        let mut last = String::new();
        for _ in 0..LOOKS {
            if let Some(status) = server.try_wait().unwrap() {
                panic!("server {member} has ended, {status}: {}", self.error_logs());
            }
            match self.health(member) {
                Ok(answer) if answer.starts_with("HTTP/1.1 200") => return,
                Ok(answer) => last = answer,
                Err(error) => last = error.to_string(),
            }
            thread::park_timeout(PAUSE);
        }
        panic!("server {member} is not ready, {last}: {}", self.error_logs());
    }

    fn error_logs(&self) -> String {
        let read = |member| fs::read_to_string(self.errors(member)).unwrap_or_default();
        (0..self.ports.len()).map(|member| format!("\n-- server {member}:\n{}", read(member))).collect()
    }

    fn client(&self, member: usize, command: &str) -> Command {
        let mut client = Command::new(Kind::Larix.program().unwrap());
        client.args([command, "-x", "-H", &self.url(member), "-D", &format!("cn=admin,{SUFFIX}")]);
        client.args(["-w", PASSWORD]);
        client
    }

    fn search(&self, member: usize, arguments: &[&str]) -> String {
        let Output { stdout, .. } =
            self.client(member, "search").args(["-LLL", "-b", SUFFIX]).args(arguments).output().unwrap();
        String::from_utf8(stdout).unwrap()
    }

    /// What `larix replica status` shows of all of them. It finds the suffix itself.
    fn status(&self) -> String {
        let mut client = Command::new(Kind::Larix.program().unwrap());
        client.args(["replica", "status", "-x", "-D", &format!("cn=admin,{SUFFIX}"), "-w", PASSWORD]);
        client.args((0..self.ports.len()).map(|member| self.url(member)));
        let Output { status, stdout, .. } = client.output().unwrap();
        let text = String::from_utf8(stdout).unwrap();
        assert!(status.success(), "{text}");
        text
    }

    fn add(&self, member: usize, cn: &str) {
        let mut client = self.client(member, "modify").stdin(Stdio::piped()).spawn().unwrap();
        let entry =
            format!("dn: cn={cn},{SUFFIX}\nchangetype: add\nobjectClass: organizationalRole\ncn: {cn}\n");
        client.stdin.take().unwrap().write_all(entry.as_bytes()).unwrap();
        assert!(client.wait().unwrap().success(), "{cn}");
    }
}

fn stop(mut server: Running) {
    assert!(signal(server.id(), Signal::TERM));
    assert!(server.wait().unwrap().success(), "a clean stop");
}

/// Three servers from empty volumes: one loads the entries, all become ready and take changes. One that loses its volume gets it
/// back from the others. The export of one is loaded into an empty directory.
#[test]
fn servers_find_each_other_by_a_list() {
    let set = Set::new(3);
    let mut servers: Vec<Running> = (0..3).map(|member| set.start(member)).collect();
    for (member, server) in servers.iter_mut().enumerate() {
        set.wait_until_ready(member, server);
    }
    assert!(set.shown(0).contains("2 entries were loaded"), "{}", set.shown(0));
    for member in 1..3 {
        assert!(set.shown(member).contains("come from the other servers"), "{}", set.shown(member));
        assert!(!set.shown(member).contains("the first entry"), "{}", set.shown(member));
    }
    for member in 0..3 {
        set.add(member, &format!("by-{member}"));
    }
    let uuids = |member: usize| set.search(member, &["-S", "", "entryUUID"]);
    until("all have all changes", || (0..3).all(|member| uuids(member).matches("entryUUID: ").count() == 5));
    assert_eq!(uuids(0), uuids(1));
    assert_eq!(uuids(0), uuids(2));

    // The first one, with an empty volume: it must not load the entries a second time.
    stop(servers.remove(0));
    fs::remove_dir_all(set.data(0)).unwrap();
    servers.insert(0, set.start(0));
    set.wait_until_ready(0, &mut servers[0]);
    assert!(set.shown(0).contains("come from the other servers"), "{}", set.shown(0));
    until("it has all", || uuids(0) == uuids(1));

    // The same where all start together, and the others later than the first one, which waits for them.
    servers.drain(..).for_each(stop);
    fs::remove_dir_all(set.data(0)).unwrap();
    servers.push(set.start(0));
    until("it waits", || set.shown(0).contains("Waiting up to 30 s for"));
    servers.extend((1..3).map(|member| set.start(member)));
    for (member, server) in servers.iter_mut().enumerate() {
        set.wait_until_ready(member, server);
    }
    assert!(set.shown(0).contains("come from the other servers"), "{}", set.shown(0));
    until("it has all again", || uuids(0) == uuids(1));

    // The other servers take its changes after that, too.
    set.add(0, "again");
    until("the change is at the others", || (1..3).all(|member| uuids(member).contains("cn=again,")));
    export(&set);
    for server in servers {
        stop(server);
    }
}

/// The first one loses its volume, waits for nobody and makes the entry of the suffix anew: it is the entry that the other one has.
#[test]
fn the_entry_of_the_suffix_is_the_same_wherever_it_is_made() {
    let set = Set::new(2);
    fs::remove_dir_all(set.folder.path().join("ldifs")).unwrap();
    let mut servers: Vec<Running> = (0..2).map(|member| set.start(member)).collect();
    for (member, server) in servers.iter_mut().enumerate() {
        set.wait_until_ready(member, server);
    }
    set.add(1, "before");
    let uuids = |member: usize| set.search(member, &["-S", "", "entryUUID"]);
    let status = set.status();
    assert!(status.contains("sid 002"), "{status}");
    until("both have the change", || uuids(0).contains("cn=before,") && uuids(1) == uuids(0));
    let before = uuids(1);
    servers.drain(..).for_each(stop);
    fs::remove_dir_all(set.data(0)).unwrap();
    servers.push(set.start_waiting(0, "0"));
    until("it has made the entry", || set.shown(0).contains("an entry was loaded"));
    servers.push(set.start(1));
    for (member, server) in servers.iter_mut().enumerate() {
        set.wait_until_ready(member, server);
    }
    until("it has all", || uuids(0) == before);
    assert_eq!(uuids(1), before);
    // Its changes reach the other one again.
    set.add(0, "again");
    until("the change is at the other one", || uuids(1).contains("cn=again,"));
    servers.into_iter().for_each(stop);
}

fn export(set: &Set) {
    let folder = set.folder.path().join("exports");
    fs::create_dir(&folder).unwrap();
    for old in ["larix-20200101T000000Z.ldif", "larix-20200102T000000Z.ldif"] {
        fs::write(folder.join(old), "").unwrap();
    }
    let run = |password: &str| {
        script(set.folder.path(), "export")
            .env("LARIX_SUFFIX", SUFFIX)
            .env("LARIX_ADMIN_PASSWORD_FILE", set.folder.path().join(password))
            .env("LARIX_EXPORT_URL", set.url(1))
            .env("LARIX_EXPORT_FOLDER", &folder)
            .env("LARIX_EXPORT_KEEP", "2")
            .output()
            .unwrap()
    };
    let names = || {
        let mut names: Vec<String> =
            fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let refused = run("replication");
    assert!(!refused.status.success());
    assert_eq!(names().len(), 2, "an export that fails leaves and removes nothing: {:?}", names());
    let done = run("admin");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let names = names();
    assert_eq!(names.first().map(String::as_str), Some("larix-20200102T000000Z.ldif"), "{names:?}");
    assert_eq!(names.len(), 2, "{names:?}");

    let copy = set.folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let configuration = set.folder.path().join("copy.conf");
    let schema = schema_directory();
    let text = format!(
        "include {0}/core.schema\ninclude {0}/cosine.schema\ndatabase mdb\nsuffix {SUFFIX}\ndirectory {1}\n",
        schema.display(),
        copy.display()
    );
    fs::write(&configuration, text).unwrap();
    let tool = |arguments: &[&str]| {
        let mut tool = Command::new(Kind::Larix.program().unwrap());
        tool.arg(arguments[0]).arg("-f").arg(&configuration).args(&arguments[1..]).output().unwrap()
    };
    let loaded = tool(&["add", "-l", folder.join(&names[1]).to_str().unwrap()]);
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    let text = String::from_utf8(tool(&["cat"]).stdout).unwrap();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with("dn: ") || line.starts_with("entryUUID: "))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&text), sorted(&set.search(1, &["entryUUID"])));
}

/// The list and the password of a later start count.
#[test]
fn a_longer_list_counts_at_the_next_start() {
    let mut set = Set::new(2);
    let mut server = set.start_waiting(0, "0");
    set.wait_until_ready(0, &mut server);
    stop(server);
    let more = free_ports(1);
    set.ports.extend(more);
    fs::write(set.folder.path().join("replication"), "it's two words").unwrap();
    let mut server = set.start(0);
    set.wait_until_ready(0, &mut server);
    let lines = set
        .client(0, "search")
        .args(["-LLL", "-o", "ldif_wrap=no", "-b", "cn=config", "(olcSyncrepl=*)", "olcSyncrepl"])
        .output()
        .unwrap();
    let lines = String::from_utf8(lines.stdout).unwrap();
    for (place, member) in [(0, 1), (1, 2)] {
        let line = format!("olcSyncrepl: {{{place}}}rid=00{} provider={} ", member + 1, set.url(member));
        assert!(lines.contains(&line), "{line}: {lines}");
    }
    let configured = |filter: &str| {
        let mut search = set.client(0, "search");
        search.args(["-LLL", "-o", "ldif_wrap=no", "-b", "cn=config", filter, "olcOverlay"]);
        String::from_utf8(search.output().unwrap().stdout).unwrap()
    };
    assert!(configured("(cn=*samba)").contains("samba,cn=schema,cn=config"), "LARIX_SCHEMAS");
    let overlays = configured("(olcOverlay=*)");
    for overlay in ["{0}memberof", "{1}collective", "{2}unique"] {
        assert!(overlays.contains(&format!("olcOverlay: {overlay}\n")), "{overlay}: {overlays}");
    }
    let mut account = Command::new(Kind::Larix.program().unwrap());
    account.args([
        "whoami",
        "-x",
        "-H",
        &set.url(0),
        "-D",
        "cn=replicator,cn=replication",
        "-w",
        "it's two words",
    ]);
    assert!(account.output().unwrap().status.success());
    stop(server);

    // Another place in the list is another server.
    set.ports.swap(0, 1);
    fs::rename(set.data(0), set.data(1)).unwrap();
    let mut refused = set.start(1);
    assert!(!refused.wait().unwrap().success());
}

/// What the start says about settings that cannot be.
#[test]
fn settings_that_cannot_be_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (environment, fault) in [
        (&[][..], "say which directory this is"),
        (
            &[("LARIX_SUFFIX", SUFFIX), ("LARIX_INCLUDE", "/none.conf")],
            "LARIX_INCLUDE names /none.conf, which cannot be read",
        ),
        (
            &[("LARIX_SUFFIX", SUFFIX), ("LARIX_REPLICAS", "ldap://a ldap://b")],
            "LARIX_REPLICAS needs LARIX_REPLICA_PASSWORD",
        ),
        (
            &[
                ("LARIX_SUFFIX", SUFFIX),
                ("LARIX_REPLICAS", "ldap://a ldap://b"),
                ("LARIX_REPLICA_PASSWORD", "x"),
                ("LARIX_REPLICA_NAME", "c"),
            ],
            "no --replica is this server, c",
        ),
        (
            &[("LARIX_SUFFIX", SUFFIX), ("LARIX_ADMIN_PASSWORD_FILE", "/nowhere")],
            "/nowhere, which cannot be read",
        ),
    ] {
        let mut command = script(folder.path(), "start");
        let data = folder.path().join("data");
        command
            .env("LARIX_DATA", &data)
            .env("LARIX_URLS", "ldap://127.0.0.1:0")
            .envs(environment.iter().copied());
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(fault), "{environment:?}: {stderr}");
        assert!(!data.join("slapd.d").exists(), "{environment:?}");
    }
}

/// A node whose configuration comes from the engine.
#[test]
fn a_container_joins_a_directory_in_an_engine() {
    let Some(engine) = Engine::start() else { return };
    let (_, address) = engine.database();
    let ports = free_ports(2);
    let body = format!(
        "database kv\nengine {address}\nnode ldap://127.0.0.1:{}\nlease 120\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\n",
        ports[0]
    );
    let mut first = Member::with(Kind::Larix, ports[0], &body).arguments(&["-d", "256"]);
    first.start();
    until("it is published", || first.log().contains("nodes that join get this node's configuration"));
    let folder = tempfile::tempdir().unwrap();
    let joining = || {
        let mut script = script(folder.path(), "start");
        script
            .env("LARIX_JOIN_FILE", folder.path().join("engine"))
            .env("LARIX_DATA", folder.path().join("data"));
        script
    };
    fs::write(folder.path().join("engine"), format!("{address}\n")).unwrap();
    let refused = joining().output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("LARIX_JOIN needs LARIX_NODE"), "{text}");
    let url = format!("ldap://127.0.0.1:{}", ports[1]);
    let shown = File::create(folder.path().join("shown")).unwrap();
    let server = joining().env("LARIX_NODE", &url).env("LARIX_URLS", &url).stderr(shown).spawn().unwrap();
    let server = Running(server);
    let address = SocketAddr::from(([127, 0, 0, 1], ports[1]));
    until("it listens", || Client::try_connect(address).is_ok());
    let mut client = Client::connect(address);
    let found = ask(&mut client, "search \"\" base (objectClass=*) namingContexts");
    assert!(found.contains(&format!("namingContexts: {SUFFIX}")), "{found}");
    stop(server);
    first.stop();
}

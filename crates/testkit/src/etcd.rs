//! A real etcd of one member or several, on loopback, in a directory of its own, ended by process ids.

#![allow(clippy::disallowed_methods, reason = "waits until another process answers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::pki::{Authority, Issued};
use crate::ports::free_port;
use crate::process::{Signal, freeze, signal};

const START_SECONDS: u64 = 180;

/// The members and their directory, which goes with them.
#[derive(Debug)]
pub struct Etcd {
    directory: TempDir,
    members: Vec<Member>,
    is_secure: bool,
    prefixes: AtomicU32,
}

/// How a member is started that listens at these URLs, for clients and for other members.
fn member_arguments(name: &str, data: &Path, (clients, peers): (&str, &str), cluster: &str) -> Vec<String> {
    let data = data.display().to_string();
    [
        ["--name", name],
        ["--data-dir", &data],
        ["--listen-client-urls", clients],
        ["--advertise-client-urls", clients],
        ["--listen-peer-urls", peers],
        ["--initial-advertise-peer-urls", peers],
        ["--initial-cluster", cluster],
        ["--log-level", "warn"],
        ["--logger", "zap"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

#[derive(Debug)]
struct Member {
    client_port: u16,
    arguments: Vec<String>,
    server: Option<Child>,
}

impl Etcd {
    /// None where etcd is not installed; the run says so.
    pub fn start() -> Option<Self> {
        Self::start_members(1)
    }

    /// The same with so many members.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn start_members(count: usize) -> Option<Self> {
        Self::start_with(count, None)
    }

    /// The same with TLS by a certificate, and clients' certificates by those of `authority`.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn start_with_tls(issued: &Issued, authority: &Authority) -> Option<Self> {
        Self::start_with(1, Some((issued, authority)))
    }

    fn start_with(count: usize, tls: Option<(&Issued, &Authority)>) -> Option<Self> {
        // Both are looked at, so that both are said to be lacking.
        if crate::packages::ETCD.is_lacking() | crate::packages::ETCD_CLIENT.is_lacking() {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("etcd").tempdir_in("/tmp").expect("a directory");
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(at, (_, peer))| format!("m{at}=http://127.0.0.1:{peer}"))
            .collect();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut members = Vec::new();
        for (at, (client, peer)) in ports.iter().enumerate() {
            let data = directory.path().join(format!("m{at}"));
            let urls = format!("{scheme}://127.0.0.1:{client}");
            let peer = format!("http://127.0.0.1:{peer}");
            let mut arguments = member_arguments(&format!("m{at}"), &data, (&urls, &peer), &peers.join(","));
            if let Some((issued, authority)) = tls {
                for (option, name, text) in [
                    ("--cert-file", "tls.pem", &issued.certificate),
                    ("--key-file", "tls.key", &issued.key),
                    ("--trusted-ca-file", "clients.pem", &authority.certificate()),
                ] {
                    let path = directory.path().join(name);
                    fs::write(&path, text).expect("a file");
                    arguments.extend([option.to_owned(), path.display().to_string()]);
                }
                arguments.push("--client-cert-auth".to_owned());
            }
            members.push(Member { client_port: *client, arguments, server: None });
        }
        let is_secure = tls.is_some();
        let mut etcd = Self { directory, members, is_secure, prefixes: AtomicU32::new(0) };
        (0..count).for_each(|at| etcd.spawn(at));
        etcd.wait();
        Some(etcd)
    }

    fn spawn(&mut self, at: usize) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_of(at)).expect("a log");
        let member = self.members.get_mut(at).expect("a member");
        let server = Command::new(crate::packages::ETCD.named().unwrap_or_else(|| "etcd".into()))
            .args(&member.arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            // No test cuts off the power: what etcd has written outlives its process. On a disk that other tests keep busy, commits and
            // leases would wait longer than Larix does. A version that does not know the variable says so and goes on.
            .env("ETCD_UNSAFE_NO_FSYNC", "true")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        member.server = Some(server.expect("etcd"));
    }

    fn log_of(&self, at: usize) -> PathBuf {
        self.directory.path().join(format!("log{at}"))
    }

    /// Waits until it takes writes.
    fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(START_SECONDS);
        let listens =
            |member: &Member| std::net::TcpStream::connect(("127.0.0.1", member.client_port)).is_ok();
        while !self.members.iter().filter(|member| member.server.is_some()).all(listens)
            || !self.is_secure && self.ctl(&["put", "ready", "yes"]).is_none()
        {
            assert!(Instant::now() < until, "{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts one more member, which has no vote. The port where it listens for clients.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn add_learner(&mut self) -> u16 {
        let (at, client_port, peer_port) = (self.members.len(), free_port(), free_port());
        let (name, peer) = (format!("m{at}"), format!("http://127.0.0.1:{peer_port}"));
        self.ctl(&["member", "add", &name, "--learner", &format!("--peer-urls={peer}")]).expect("a learner");
        let first = &self.members.first().expect("a member").arguments;
        let mut others = first.iter().skip_while(|argument| *argument != "--initial-cluster").skip(1);
        let cluster = format!("{},{name}={peer}", others.next().expect("the members"));
        let urls = format!("http://127.0.0.1:{client_port}");
        let data = self.directory.path().join(&name);
        let mut arguments = member_arguments(&name, &data, (&urls, &peer), &cluster);
        arguments.extend(["--initial-cluster-state", "existing"].map(str::to_owned));
        self.members.push(Member { client_port, arguments, server: None });
        self.spawn(at);
        let until = Instant::now() + Duration::from_secs(START_SECONDS);
        while std::net::TcpStream::connect(("127.0.0.1", client_port)).is_err() {
            assert!(Instant::now() < until, "{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
        client_port
    }

    /// What the members have logged.
    pub fn log(&self) -> String {
        (0..self.members.len()).map(|at| fs::read_to_string(self.log_of(at)).unwrap_or_default()).collect()
    }

    /// What etcdctl prints, or none if it fails.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn ctl(&self, arguments: &[&str]) -> Option<String> {
        let endpoints = self.endpoints();
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints, "--command-timeout", "30s", "--dial-timeout", "30s"])
            .args(arguments)
            .output()
            .expect("etcdctl");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn endpoints(&self) -> String {
        let hosts = self.members.iter().map(|member| format!("127.0.0.1:{}", member.client_port));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// A new prefix: its address.
    pub fn prefix(&self) -> String {
        self.address(&format!("p{}", self.prefixes.fetch_add(1, Ordering::Relaxed)))
    }

    /// The address of a prefix.
    pub fn address(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.endpoints())
    }

    /// Where the first member listens for clients.
    ///
    /// # Panics
    /// Never: there is one.
    pub fn port(&self) -> u16 {
        self.members.first().expect("a member").client_port
    }

    /// Which member leads.
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| {
            let endpoint = format!("127.0.0.1:{}", member.client_port);
            let output = Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .args(["--endpoints", &endpoint, "--command-timeout", "1s", "--dial-timeout", "1s"])
                .args(["endpoint", "status"])
                .output();
            // Endpoint, id, version, size, whether it leads.
            member.server.is_some()
                && output.is_ok_and(|output| {
                    String::from_utf8_lossy(&output.stdout).split(", ").nth(4) == Some("true")
                })
        })
    }

    /// Ends a member as a crash would.
    ///
    /// # Panics
    /// When it does not run.
    pub fn crash(&mut self, at: usize) {
        let mut server = self.members.get_mut(at).and_then(|member| member.server.take()).expect("it runs");
        server.kill().expect("kill");
        server.wait().expect("its end");
    }

    /// Ends all members as a crash would.
    pub fn crash_all(&mut self) {
        (0..self.members.len()).for_each(|at| self.crash(at));
    }

    /// Starts the members that were ended, and waits until writes are taken.
    pub fn run(&mut self) {
        for at in 0..self.members.len() {
            if self.members.get(at).is_some_and(|member| member.server.is_none()) {
                self.spawn(at);
            }
        }
        self.wait();
    }

    /// Has a member do nothing until [`Self::go_on`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn hang(&self, at: usize) {
        freeze(self.pid(at));
    }

    /// The opposite of [`Self::hang`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn go_on(&self, at: usize) {
        assert!(signal(self.pid(at), Signal::CONT));
    }

    fn pid(&self, at: usize) -> u32 {
        self.members.get(at).and_then(|member| member.server.as_ref()).expect("it runs").id()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut server) = member.server.take() {
                // One that was stopped ends as well.
                let _killed = server.kill();
                let _status = server.wait();
            }
        }
    }
}

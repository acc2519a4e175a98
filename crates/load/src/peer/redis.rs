//! Redis as a mark beside the servers: what a request over a socket costs here when hardly anything is done for it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;

use super::{Guard, Running, Start, installed};
use crate::clock;
use crate::drive::Usage;
use crate::generate::Random;

/// Where distributions and hand-made installations put it.
const PLACES: [&str; 3] = ["/usr/bin/redis-server", "/usr/local/bin/redis-server", "/usr/sbin/redis-server"];
/// Keys that are asked for at most: with values of 2 KB more than a processor's caches hold, and quickly written.
const KEYS_MAX: u64 = 20_000;
/// Values that are written before their answers are read.
const SET_BATCH: u64 = 100;
/// What is read at once, as in the driver.
const READ_BYTES: usize = 256 << 10;
/// Events taken at once.
const EVENTS: usize = 256;
/// How long the server may be silent while requests are out.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// A redis-server that can be started.
#[derive(Clone, Debug)]
pub struct Redis {
    pub path: PathBuf,
    pub version: String,
}

/// How it is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    /// Requests in flight on each connection.
    pub(crate) in_flight: usize,
}

/// A running Redis with its values. It is stopped when dropped.
#[derive(Debug)]
pub(crate) struct FilledRedis {
    running: Running,
    keys: u64,
    /// Of each value.
    bytes: usize,
}

impl Redis {
    /// The redis-server at `path`, or where it usually is.
    ///
    /// # Errors
    /// None is there, or the program there is none.
    pub fn find(path: Option<&Path>) -> anyhow::Result<Self> {
        const PACKAGES: &str =
            "Debian and Ubuntu have it in the package redis-server, Fedora in redis; --redis PATH names one";
        let path = installed("redis-server", path, &PLACES, PACKAGES)?;
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot start {}", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = parse_version(&text)
            .with_context(|| format!("{} --version printed no version of Redis: {text:?}", path.display()))?;
        Ok(Self { path, version })
    }

    /// Starts it on a free loopback port, without files and with its own defaults otherwise, and gives it as many values
    /// of `bytes` as there are `entries`, 20,000 at most.
    ///
    /// # Errors
    /// It does not start, or refuses a value.
    pub(crate) fn fill(
        &self,
        guard: &Guard,
        folder: &Path,
        entries: u64,
        bytes: usize,
    ) -> anyhow::Result<FilledRedis> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let command = |address: SocketAddr| {
            let mut command = Command::new(&self.path);
            command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
            command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning", "--dir"]).arg(folder);
            command
        };
        let log = folder.join("log");
        let start = Start { name: "redis-server", command: &command, port: None, cores: None, log: &log };
        let running = Running::start(guard, &start)?;
        let keys = entries.clamp(1, KEYS_MAX);
        set_values(running.address, keys, bytes)?;
        Ok(FilledRedis { running, keys, bytes })
    }
}

/// `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=...` is 7.0.15.
fn parse_version(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Redis server v=")?;
    rest.split_whitespace().next().map(str::to_owned)
}

impl FilledRedis {
    /// GETs a second of the server's CPU time; absent when the measurement was too short to see any.
    ///
    /// # Errors
    /// The server ends, is silent for 30 seconds, or answers anything but the value.
    pub(crate) fn gets(&self, shape: Shape, seconds: f64) -> anyhow::Result<Option<f64>> {
        let mut clients = Clients::open(self.running.address, shape, self.keys, self.bytes)?;
        clients.drive(Duration::from_secs_f64((seconds / 5.0).min(2.0)))?;
        let process = self.running.process_id();
        let before = Usage::of(process)?;
        let answered = clients.drive(Duration::from_secs_f64(seconds))?;
        let cpu = Usage::of(process)?.cpu_seconds - before.cpu_seconds;
        Ok((cpu > 0.0).then_some(answered as f64 / cpu))
    }
}

/// A key of 16 letters, as the values' names in redis-benchmark.
fn append_key(out: &mut Vec<u8>, number: u64) {
    // A write into memory does not fail.
    let _ = write!(out, "$16\r\nkey:{number:012}\r\n");
}

fn set_values(address: SocketAddr, keys: u64, bytes: usize) -> anyhow::Result<()> {
    const STORED: &[u8] = b"+OK\r\n";
    let mut socket = TcpStream::connect(address).context("cannot connect to redis-server")?;
    socket.set_read_timeout(Some(Duration::from_secs(PATIENCE.tv_sec.unsigned_abs())))?;
    let value = vec![b'x'; bytes];
    let (mut out, mut answers) = (Vec::new(), Vec::new());
    for first in (0..keys).step_by(SET_BATCH as usize) {
        out.clear();
        let batch = first..keys.min(first + SET_BATCH);
        answers.resize(STORED.len() * (batch.end - batch.start) as usize, 0);
        for number in batch {
            out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
            append_key(&mut out, number);
            let _ = write!(out, "${bytes}\r\n");
            out.extend_from_slice(&value);
            out.extend_from_slice(b"\r\n");
        }
        socket.write_all(&out).context("cannot send to redis-server")?;
        socket.read_exact(&mut answers).context("no answer of redis-server")?;
        if answers.chunks(STORED.len()).any(|answer| answer != STORED) {
            bail!("redis-server refused a value: {:?}", String::from_utf8_lossy(&answers));
        }
    }
    Ok(())
}

/// Connections that ask in a closed loop, on one thread with one epoll, as the driver does.
struct Clients {
    clients: Vec<Client>,
    epoll: OwnedFd,
    scratch: Vec<u8>,
    random: Random,
    keys: u64,
    shape: Shape,
    /// What every answer begins with, and its length.
    head: Vec<u8>,
    answer: usize,
}

struct Client {
    socket: TcpStream,
    /// The start of an answer whose end has not come.
    input: Vec<u8>,
    output: Vec<u8>,
    out: usize,
}

impl Clients {
    fn open(address: SocketAddr, shape: Shape, keys: u64, bytes: usize) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        let mut clients = Vec::with_capacity(shape.connections);
        for index in 0..shape.connections {
            let socket = TcpStream::connect(address).context("cannot connect to redis-server")?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            epoll::add(&epoll, &socket, EventData::new_u64(index as u64), EventFlags::IN).context("epoll")?;
            clients.push(Client { socket, input: Vec::new(), output: Vec::new(), out: 0 });
        }
        let head = format!("${bytes}\r\n").into_bytes();
        let answer = head.len() + bytes + 2;
        let (scratch, random) = (vec![0; READ_BYTES], Random::new(1));
        Ok(Self { clients, epoll, scratch, random, keys, shape, head, answer })
    }

    /// Asks for `length`, then waits for the answers still out; says how many there were.
    fn drive(&mut self, length: Duration) -> anyhow::Result<u64> {
        let begin = clock::now();
        let mut answered = 0;
        for index in 0..self.clients.len() {
            self.ask(index)?;
        }
        let mut events = Vec::with_capacity(EVENTS);
        while self.clients.iter().any(|client| client.out > 0) {
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&PATIENCE))
                .or_else(|error| if error == rustix::io::Errno::INTR { Ok(0) } else { Err(error) })
                .context("epoll")?;
            if events.is_empty() {
                bail!("redis-server gave no answer for {} seconds", PATIENCE.tv_sec);
            }
            for event in &events {
                answered += self.handle(event.data.u64() as usize, begin, length)?;
            }
        }
        Ok(answered)
    }

    /// Takes the answers of a connection and asks for as many more.
    fn handle(&mut self, index: usize, begin: Instant, length: Duration) -> anyhow::Result<u64> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(0) };
        let answers = client.receive(&mut self.scratch, &self.head, self.answer)?;
        if answers > 0 && begin.elapsed() < length {
            self.ask(index)?;
        }
        Ok(answers)
    }

    /// Uses every free place of a connection.
    fn ask(&mut self, index: usize) -> anyhow::Result<()> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        client.output.clear();
        while client.out < self.shape.in_flight {
            client.output.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
            append_key(&mut client.output, self.random.below(self.keys));
            client.out += 1;
        }
        // A few hundred bytes, behind requests that were all read: the socket takes them whole.
        client.socket.write_all(&client.output).context("cannot send to redis-server")
    }
}

impl Client {
    fn receive(&mut self, scratch: &mut [u8], head: &[u8], length: usize) -> anyhow::Result<u64> {
        let count = match self.socket.read(scratch) {
            Ok(0) => bail!("redis-server closed a connection"),
            Ok(count) => count,
            Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => {
                return Ok(0);
            }
            Err(error) => return Err(error).context("no answer of redis-server"),
        };
        self.input.extend_from_slice(scratch.get(..count).unwrap_or_default());
        let mut answers = 0;
        let mut rest = self.input.as_slice();
        while !rest.is_empty() {
            let seen = head.len().min(rest.len());
            if rest.get(..seen) != head.get(..seen) {
                let text = String::from_utf8_lossy(rest.get(..rest.len().min(80)).unwrap_or_default());
                bail!("redis-server answers {text:?} instead of a value");
            }
            let Some(after) = rest.get(length..) else { break };
            rest = after;
            answers += 1;
            self.out = self.out.saturating_sub(1);
        }
        let consumed = self.input.len() - rest.len();
        self.input.drain(..consumed);
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64\n", Some("7.0.15")),
            ("valkey 1", None),
            ("", None),
        ] {
            assert_eq!(parse_version(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_or_no_redis_is_refused() {
        for (path, parts) in [
            ("/nowhere/redis-server", ["/nowhere/redis-server", "package redis-server"]),
            ("/bin/true", ["/bin/true", "no version of Redis"]),
        ] {
            let error = Redis::find(Some(Path::new(path))).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    /// A server that reads whole requests and gives `answer` to each.
    fn fake(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                std::thread::spawn(move || -> io::Result<()> {
                    let mut socket = socket?;
                    let mut request = [0; 36];
                    loop {
                        socket.read_exact(&mut request)?;
                        // In two pieces: an answer may come in many.
                        let (one, other) = answer.split_at(answer.len() / 2);
                        socket.write_all(one)?;
                        socket.write_all(other)?;
                    }
                });
            }
        });
        address
    }

    #[test]
    fn answers_are_counted_and_looked_at() {
        let shape = Shape { connections: 3, in_flight: 4 };
        let drive = |answer| {
            let mut clients = Clients::open(fake(answer), shape, 7, 5).unwrap();
            clients.drive(Duration::ZERO)
        };
        assert_eq!(drive(b"$5\r\nabcde\r\n").unwrap(), 12, "one for each place");
        for wrong in [&b"$-1\r\n"[..], b"-ERR no\r\n", b"$6\r\nabcdef\r\n"] {
            let error = drive(wrong).unwrap_err().to_string();
            assert!(error.contains("instead of a value"), "{error}");
        }
    }

    #[test]
    fn a_real_one_gives_what_it_was_given() {
        if larix_packages::REDIS.is_lacking() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let redis = Redis::find(None).unwrap();
        let filled = redis.fill(&Guard::default(), folder.path(), 250, 2_100).unwrap();
        let shape = Shape { connections: 2, in_flight: 8 };
        let mut clients = Clients::open(filled.running.address, shape, filled.keys, filled.bytes).unwrap();
        assert!(clients.drive(Duration::ZERO).unwrap() == 16);
    }
}

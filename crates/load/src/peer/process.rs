//! The peers' processes: offline tools with their cost, servers on a free loopback port, and what they printed.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Guard;
use super::guard::has_ended;
use crate::clock;
use crate::drive::Usage;

/// How long a server may take until it accepts connections, in steps of [`STEP`].
const START_STEPS: u32 = 60_000;
/// How long it may take to stop before it is killed, in steps of [`STEP`].
const STOP_STEPS: u32 = 60_000;
const STEP: Duration = Duration::from_millis(2);
/// How long a failure waits for the server to be seen ended, in steps of [`STEP`].
const DEATH_STEPS: u32 = 1_000;
/// How often a start is tried when another process took the port first.
const PORT_TRIES: u32 = 3;
/// How much of a log an error quotes.
const LOG_LINES: usize = 10;
const LOG_BYTES: u64 = 16 << 10;

/// What an offline tool cost.
#[derive(Clone, Copy, Debug)]
pub struct ToolCost {
    /// Seconds from start to end.
    pub seconds: f64,
    /// User and system seconds of all its threads.
    pub cpu_seconds: f64,
}

/// Runs a tool to its end; what it prints is appended to `log`.
///
/// # Errors
/// It does not start, or ends with a failure: the log's last lines are in the error.
pub(crate) fn run_tool(
    guard: &Guard,
    mut command: Command,
    name: &str,
    log: &Path,
) -> anyhow::Result<ToolCost> {
    let output = open_log(log)?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
    let begin = clock::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {name}: {command:?}"))?;
    guard.add_child(child.id());
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { bail!("no process id") };
    while !has_ended(pid) {
        std::thread::park_timeout(STEP);
    }
    let seconds = begin.elapsed().as_secs_f64();
    // It has ended and is not reaped: /proc still says what all its threads used, as wait4 would.
    let usage = Usage::of(child.id());
    guard.forget_child(child.id());
    let status = child.wait()?;
    if !status.success() {
        bail!("{name} failed: {status}{}", quoted_log(log));
    }
    Ok(ToolCost { seconds, cpu_seconds: usage?.cpu_seconds })
}

/// A server that this process started; it is stopped when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    pub(crate) address: SocketAddr,
    /// Seconds from its start until it accepted a connection.
    pub(crate) start_seconds: f64,
    child: Child,
    log: PathBuf,
    guard: Guard,
}

/// How a server is started.
pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    /// The program with all its arguments, for the address to listen on.
    pub(crate) command: &'a dyn Fn(SocketAddr) -> Command,
    /// A fixed port instead of a free one.
    pub(crate) port: Option<u16>,
    /// Run it on this many cores alone.
    pub(crate) cores: Option<usize>,
    pub(crate) log: &'a Path,
}

impl Running {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// The fixed port is taken, the server ends, or it accepts nothing for two minutes.
    pub(crate) fn start(guard: &Guard, start: &Start<'_>) -> anyhow::Result<Self> {
        for _ in 1..PORT_TRIES {
            match Self::try_start(guard, start) {
                Err(error) if start.port.is_none() && format!("{error:#}").contains("in use") => {}
                done => return done,
            }
        }
        Self::try_start(guard, start)
    }

    fn try_start(guard: &Guard, start: &Start<'_>) -> anyhow::Result<Self> {
        let port = match start.port {
            Some(port) => port_if_free(port)?,
            None => free_port()?,
        };
        let output = open_log(start.log)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut command = (start.command)(address);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let begin = clock::now();
        let child = on_cores(start.cores, || {
            command.spawn().with_context(|| format!("cannot start {}: {command:?}", start.name))
        })?;
        guard.add_child(child.id());
        let mut running = Self {
            name: start.name.to_owned(),
            address,
            start_seconds: 0.0,
            child,
            log: start.log.to_owned(),
            guard: guard.clone(),
        };
        for _ in 0..START_STEPS {
            let accepted = TcpStream::connect_timeout(&running.address, Duration::from_secs(1)).is_ok();
            running.start_seconds = begin.elapsed().as_secs_f64();
            // In this order: another server at this port must not be taken for one that has already ended.
            running.check()?;
            if accepted {
                return Ok(running);
            }
            std::thread::park_timeout(STEP);
        }
        bail!("{} accepts no connection at {}{}", running.name, running.address, quoted_log(&running.log))
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the server still runs.
    ///
    /// # Errors
    /// It has ended: with its status and the last lines of its log.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let Some(pid) = self.pid().filter(|pid| has_ended(*pid)) else { return Ok(()) };
        self.guard.forget_child(self.child.id());
        let status = self.child.wait().with_context(|| format!("{} ({pid:?}) is lost", self.name))?;
        bail!("{} ended by itself: {status}{}", self.name, quoted_log(&self.log))
    }

    /// Says of a failure while this server was asked whether the server had died.
    pub(crate) fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        // A connection is seen closed a moment before the process is seen ended, on a busy machine a long one.
        for _ in 0..DEATH_STEPS {
            if let Err(death) = self.check() {
                return death.context(format!("{error:#}"));
            }
            std::thread::park_timeout(STEP);
        }
        error
    }

    /// Stops the server and waits until it is gone; says so if it did not end cleanly. Its figures stand: they were
    /// taken and checked before.
    pub(crate) fn stop(mut self) -> Option<String> {
        let status = self.terminate()?;
        (!status.success()).then(|| format!("{} did not stop cleanly: {status}", self.name))
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn terminate(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(_)) = self.child.try_wait() {
            self.guard.forget_child(self.child.id());
            return None;
        }
        let pid = self.pid()?;
        let _ = kill_process(pid, Signal::TERM);
        for _ in 0..STOP_STEPS {
            if has_ended(pid) {
                break;
            }
            std::thread::park_timeout(STEP);
        }
        self.guard.forget_child(self.child.id());
        if !has_ended(pid) {
            let _ = self.child.kill();
        }
        self.child.wait().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.terminate();
    }
}

fn open_log(log: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write {}", log.display()))
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

fn port_if_free(port: u16) -> anyhow::Result<u16> {
    let in_use = || format!("port {port} of 127.0.0.1 cannot be used: stop who has it, or leave --port out");
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(in_use)?;
    Ok(port)
}

/// Runs `spawn` with this thread on the first `cores` of its processors: a child stays where its parent was.
fn on_cores<T>(cores: Option<usize>, spawn: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let Some(cores) = cores else { return spawn() };
    let own = sched_getaffinity(None).context("cannot read the processors of this process")?;
    let mut few = CpuSet::new();
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).collect();
    if allowed.len() < cores {
        bail!("a server on {cores} cores was asked for and this process has {}", allowed.len());
    }
    allowed.into_iter().take(cores).for_each(|cpu| few.set(cpu));
    sched_setaffinity(None, &few).context("cannot choose the server's processors")?;
    let done = spawn();
    sched_setaffinity(None, &own).context("cannot take back all processors")?;
    done
}

/// The last lines of a log, ready to follow a message.
pub(crate) fn quoted_log(log: &Path) -> String {
    let tail = log_tail(log);
    if tail.is_empty() {
        return format!("; it printed nothing (log {})", log.display());
    }
    format!("\nlast lines of {}:\n  {}", log.display(), tail.join("\n  "))
}

fn log_tail(log: &Path) -> Vec<String> {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)));
        let _ = file.take(LOG_BYTES).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]);
        command
    }

    fn log(name: &str) -> PathBuf {
        let log = std::env::temp_dir().join(format!("larix-process-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&log);
        log
    }

    #[test]
    fn a_tool_costs_time_and_a_failing_one_is_quoted() {
        let guard = Guard::default();
        let log = log("tool");
        let cost = run_tool(&guard, shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"), "loop", &log);
        let cost = cost.unwrap();
        assert!(cost.seconds > 0.0 && cost.cpu_seconds >= 0.0, "{cost:?}");
        let error = run_tool(&guard, shell("echo one; echo two >&2; exit 3"), "the tool", &log)
            .unwrap_err()
            .to_string();
        for part in ["the tool failed", "exit status: 3", "  one\n  two"] {
            assert!(error.contains(part), "{error}");
        }
        std::fs::remove_file(&log).unwrap();
    }

    #[test]
    fn a_server_that_ends_at_once_is_reported_with_its_log() {
        let log = log("server");
        let command = |_: SocketAddr| shell("echo no such database >&2; exit 1");
        let start = Start { name: "peer", command: &command, port: None, cores: Some(1), log: &log };
        let error = Running::start(&Guard::default(), &start).unwrap_err().to_string();
        assert!(error.contains("peer ended by itself") && error.contains("no such database"), "{error}");
        std::fs::remove_file(&log).unwrap();
    }

    #[test]
    fn a_taken_port_is_named() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = port_if_free(port).unwrap_err().to_string();
        assert!(error.contains(&format!("port {port}")), "{error}");
    }

    #[test]
    fn more_cores_than_there_are_cannot_be_had() {
        let error = on_cores(Some(CpuSet::MAX_CPU), || Ok(())).unwrap_err().to_string();
        assert!(error.contains("cores was asked for"), "{error}");
        assert_eq!(on_cores(Some(1), || Ok(7)).unwrap(), 7);
    }
}

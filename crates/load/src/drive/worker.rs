//! One thread of the driver: an event loop over its connections.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::connection::{Connection, Outstanding};
use super::process::ThreadUsage;
use super::requests::{RequestSpec, Requests};
use super::tally::Tally;
use super::transport::Dialer;
use super::{Options, clock};
use crate::generate::Random;

/// What is read at once.
const READ_BYTES: usize = 256 << 10;
/// Events taken at once.
const EVENTS: usize = 256;
/// How long a server may be silent while requests are out.
const PATIENCE: u64 = 30_000_000_000;
/// The loop looks around at least this often, in nanoseconds.
const LOOK_AROUND: u64 = 500_000_000;
/// A timer shorter than this, in nanoseconds, would cost more than it is exact.
const TIMER_MIN: u64 = 20_000;
/// The event of the timer; those of connections are their indexes.
const TIMER: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Worker<'a> {
    options: &'a Options,
    dialer: &'a Dialer,
    stop: &'a AtomicBool,
    requests: Requests<'a>,
    random: Random,
    connections: Vec<Connection>,
    /// Whether a connection is registered for writing.
    writing: Vec<bool>,
    epoll: OwnedFd,
    timer: Option<OwnedFd>,
    scratch: Vec<u8>,
    origin: Instant,
    outstanding: usize,
    /// Connections with a free place, once for each place; kept for open loops alone.
    ready: VecDeque<usize>,
    tally: Tally,
    /// The thread's number and how many there are.
    share: (u64, u64),
}

/// What one thread brings home.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) usage: ThreadUsage,
    pub(super) seconds: f64,
    pub(super) backlog: Option<Backlog>,
    pub(super) sequence_end: u64,
}

/// Requests of an open loop that were due and not sent when its time was over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Backlog {
    pub(super) unsent: u64,
    pub(super) due: u64,
    /// How long the oldest of them had waited, in seconds.
    pub(super) seconds: f64,
}

/// When the requests of an open loop are due.
#[derive(Clone, Copy, Debug)]
struct Pace {
    begin: u64,
    /// Nanoseconds between two requests.
    interval: f64,
    sent: u64,
}

impl Pace {
    /// When the next request is due.
    fn next(&self) -> u64 {
        self.begin + (self.sent as f64 * self.interval) as u64
    }
}

/// What requests are made in a phase.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Drive,
    /// Only the ways back of renames.
    Restore,
}

impl<'a> Worker<'a> {
    /// Opens this thread's share of the connections.
    pub(super) fn open(
        options: &'a Options,
        dialer: &'a Dialer,
        requests: Requests<'a>,
        stop: &'a AtomicBool,
        thread: usize,
    ) -> anyhow::Result<Self> {
        let (connections, threads) = (options.connections, options.threads);
        let own = connections / threads + usize::from(thread < connections % threads);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        let timer = match options.rate {
            Some(_) => Some(timer(&epoll)?),
            None => None,
        };
        let mut worker = Self {
            options,
            dialer,
            stop,
            random: Random::new(options.seed.wrapping_add(thread as u64 * 0x9e37_79b9)),
            connections: Vec::with_capacity(own),
            writing: vec![false; own],
            epoll,
            timer,
            scratch: vec![0; READ_BYTES],
            origin: clock::now(),
            outstanding: 0,
            ready: VecDeque::new(),
            tally: Tally::new(&requests),
            requests,
            share: (thread as u64, threads as u64),
        };
        for index in 0..own {
            if stop.load(Ordering::Relaxed) {
                bail!(Stopped);
            }
            let connection = Connection::open(dialer, &options.identity, options.in_flight)
                .with_context(|| format!("connection {} of {connections}", index + 1))?;
            epoll::add(&worker.epoll, &connection, EventData::new_u64(index as u64), EventFlags::IN)
                .context("epoll")?;
            worker.connections.push(connection);
        }
        Ok(worker)
    }

    /// Drives without counting.
    pub(super) fn warm_up(&mut self) -> anyhow::Result<()> {
        self.drive(self.options.warm_up, Phase::Drive)?;
        self.tally = Tally::new(&self.requests);
        Ok(())
    }

    /// Drives and counts.
    pub(super) fn measure(&mut self) -> anyhow::Result<Outcome> {
        let begin = self.now();
        let length = nanos(self.options.duration);
        self.tally.sample(begin, begin.saturating_add(length), nanos(self.options.sample_every));
        let usage = ThreadUsage::now();
        let backlog = self.drive(self.options.duration, Phase::Drive)?;
        let usage = ThreadUsage::now().since(usage);
        let seconds = self.now().saturating_sub(begin) as f64 / 1e9;
        let mut tally = std::mem::replace(&mut self.tally, Tally::new(&self.requests));
        tally.tick(u64::MAX);
        tally.finish();
        Ok(Outcome { tally, usage, seconds, backlog, sequence_end: self.requests.sequence_end() })
    }

    /// Renames back what is still away, and says goodbye.
    pub(super) fn close(mut self) -> anyhow::Result<()> {
        self.drive(Duration::from_secs(3_600), Phase::Restore)?;
        self.connections.iter_mut().for_each(Connection::unbind);
        Ok(())
    }

    /// Nanoseconds since the worker was made.
    fn now(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    /// Sends requests for `length`, then waits for the answers still out.
    fn drive(&mut self, length: Duration, phase: Phase) -> anyhow::Result<Option<Backlog>> {
        let begin = self.now();
        let end = begin.saturating_add(nanos(length));
        let mut pace = if phase == Phase::Drive { self.pace(begin)? } else { None };
        if pace.is_none() && end > begin {
            for index in 0..self.connections.len() {
                self.fill(index, begin, phase)?;
            }
        }
        let mut events = Vec::with_capacity(EVENTS);
        let (mut last_answer, mut is_over) = (begin, false);
        loop {
            let now = self.now();
            self.tally.tick(now);
            if let Some(pace) = pace.as_mut().filter(|_| !is_over) {
                self.send_due(pace, now.min(end))?;
            }
            is_over = now >= end;
            let idle = phase == Phase::Restore && self.outstanding == 0;
            if (is_over && self.outstanding == 0) || idle {
                return Ok(pace.and_then(|pace| backlog(&pace, end)));
            }
            if self.stop.load(Ordering::Relaxed) {
                bail!(Stopped);
            }
            let wake = self.tally.next_sample().min(if is_over { u64::MAX } else { end });
            let timeout = timespec(wake.saturating_sub(now).min(LOOK_AROUND));
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout))
                .or_else(|error| if error == rustix::io::Errno::INTR { Ok(0) } else { Err(error) })
                .context("epoll")?;
            if !events.is_empty() || self.outstanding == 0 {
                last_answer = now;
            } else if now.saturating_sub(last_answer) > PATIENCE {
                bail!("the server gave no answer for 30 seconds; {} requests are out", self.outstanding);
            }
            for event in &events {
                let (index, flags) = (event.data.u64(), event.flags);
                if index == TIMER {
                    self.rearm()?;
                } else {
                    self.handle(index as usize, flags, end, pace.is_some(), phase)?;
                }
            }
        }
    }

    /// Reads and answers what a connection has.
    #[inline]
    fn handle(
        &mut self,
        index: usize,
        flags: EventFlags,
        end: u64,
        open_loop: bool,
        phase: Phase,
    ) -> anyhow::Result<()> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(()) };
        if connection.wants_write() {
            connection.send()?;
        }
        let mut now = 0;
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            let (origin, requests, tally) = (self.origin, &mut self.requests, &mut self.tally);
            let (outstanding, ready) = (&mut self.outstanding, &mut self.ready);
            connection.receive(&mut self.scratch, |out, code| {
                if now == 0 {
                    now = nanos(origin.elapsed());
                }
                *outstanding -= 1;
                if open_loop {
                    ready.push_back(index);
                }
                count(requests, tally, &out, code, now);
                Ok(())
            })?;
        }
        if now != 0 && now < end && !open_loop {
            return self.fill(index, now, phase);
        }
        self.register(index)
    }

    /// Uses every free place of a connection.
    #[inline]
    fn fill(&mut self, index: usize, start: u64, phase: Phase) -> anyhow::Result<()> {
        while self.connections.get(index).is_some_and(Connection::has_free_slot) {
            let spec = match phase {
                Phase::Drive => self.requests.next(&mut self.random),
                Phase::Restore => match self.requests.next_back() {
                    Some(spec) => spec,
                    None => break,
                },
            };
            self.request(index, spec, start)?;
        }
        if let Some(connection) = self.connections.get_mut(index) {
            connection.send()?;
        }
        self.register(index)
    }

    #[inline]
    fn request(&mut self, index: usize, spec: RequestSpec, start: u64) -> anyhow::Result<()> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(()) };
        if self.requests.reconnects(spec.step) {
            connection.reopen(self.dialer)?;
            let data = EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &*connection, data, EventFlags::IN).context("epoll")?;
            if let Some(writing) = self.writing.get_mut(index) {
                *writing = false;
            }
        }
        if let Some((id, out)) = connection.reserve(spec, start) {
            self.outstanding += 1;
            self.requests.append(&spec, id, &mut self.random, out)?;
        }
        Ok(())
    }

    /// Sends the requests of an open loop that are due, as long as there are places.
    fn send_due(&mut self, pace: &mut Pace, now: u64) -> anyhow::Result<()> {
        let mut touched: Vec<usize> = Vec::new();
        while pace.next() < now {
            let Some(index) = self.ready.pop_front() else { break };
            let spec = self.requests.next(&mut self.random);
            self.request(index, spec, pace.next())?;
            pace.sent += 1;
            touched.push(index);
        }
        for index in touched {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.send()?;
            }
            self.register(index)?;
        }
        Ok(())
    }

    /// Lets the timer go on: it stands still until its count is read.
    fn rearm(&self) -> anyhow::Result<()> {
        let Some(timer) = &self.timer else { return Ok(()) };
        match rustix::io::read(timer, &mut [0_u8; 8]) {
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("timer"),
        }
    }

    /// Tells epoll whether a connection has something to send.
    #[inline]
    fn register(&mut self, index: usize) -> anyhow::Result<()> {
        let (Some(connection), Some(writing)) = (self.connections.get(index), self.writing.get_mut(index))
        else {
            return Ok(());
        };
        let wants = connection.wants_write();
        if wants != *writing {
            *writing = wants;
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, connection, EventData::new_u64(index as u64), flags)
                .context("epoll")?;
        }
        Ok(())
    }

    /// Starts this thread's share of an open loop.
    fn pace(&mut self, begin: u64) -> anyhow::Result<Option<Pace>> {
        let (Some(rate), Some(timer)) = (self.options.rate, &self.timer) else { return Ok(None) };
        let (thread, threads) = self.share;
        let whole = 1e9 / rate;
        let interval = whole * threads as f64;
        let every = timespec((interval as u64).max(TIMER_MIN));
        let setting = Itimerspec { it_interval: every, it_value: every };
        rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &setting).context("timer")?;
        let places = self.connections.iter().enumerate().filter(|(_, connection)| connection.is_idle());
        let indexes: Vec<usize> = places.map(|(index, _)| index).collect();
        self.ready = (0..self.options.in_flight).flat_map(|_| indexes.iter().copied()).collect();
        // Threads take turns; the first request is due at once.
        Ok(Some(Pace { begin: begin + (whole * thread as f64) as u64, interval, sent: 0 }))
    }
}

#[inline]
fn count(requests: &mut Requests<'_>, tally: &mut Tally, out: &Outstanding, code: u32, now: u64) {
    let expected = requests.answered(&out.spec, code);
    let micros = (now.saturating_sub(out.start) / 1_000).max(1);
    tally.count(out.spec.step, code, expected, out.entries, micros);
}

/// A periodic timer; each of its events must be read before the next one comes.
fn timer(epoll: &OwnedFd) -> anyhow::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).context("timer")?;
    epoll::add(epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN).context("epoll")?;
    Ok(timer)
}

fn backlog(pace: &Pace, end: u64) -> Option<Backlog> {
    let due = (end.saturating_sub(pace.begin) as f64 / pace.interval).ceil() as u64;
    let unsent = due.saturating_sub(pace.sent);
    let seconds = end.saturating_sub(pace.next()) as f64 / 1e9;
    (unsent > 0).then_some(Backlog { unsent, due, seconds })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// Another thread failed.
#[derive(Debug)]
pub(super) struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

//! One consumer: connects, follows, and tries again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use larix_client::{ClientError, Stop};
use larix_engine::csn::{Csn, SKEW_FOLLOWED, SKEW_WARNED};
use larix_engine::load::{Fill, FillOptions, LoadError};
use larix_engine::log;
use larix_engine::replica::{
    Applied, DeleteOutcome, ReplicaRules, ReplicatedBatch, ReplicatedChange, ReplicatedOutcome, UuidSet,
};
use larix_engine::time::Timestamp;
use larix_proto::control::{ControlValue as _, ProxiedAuthorization, SyncMode};
use larix_proto::{ControlBuf, FilterBuf, LdapResult, ResultCode, Scope, client, oid};
use larix_replication::consumer::{Action, Attempts, End, Line, Massage, Next, Request, Retries, Session};
use larix_replication::delta;
use larix_store::Store as _;

use super::Task;
use super::connect::{KEEP_ALIVE, connect};
use super::status::{ConsumerPhase, Status};
use crate::config::Present;
use crate::config::values::{LogLevel, SyncData};
use crate::server::Server;

/// While a refresh goes on, what has come waits so long for more, to be committed together.
const GATHER: Duration = Duration::from_millis(50);
const MICROS: i64 = 1_000_000;
/// That a server's clock is wrong is said so often, in seconds.
const SKEW_TOLD: i64 = 3_600;
/// How often the first content is taken as a whole. A provider that is gone before its end each time gets further with
/// batches, which stay.
const FILLS: u32 = 5;
/// Threads that encode entries of the first content, at most.
const FILL_THREADS: usize = 4;

pub(super) struct Runner {
    server: Arc<Server>,
    task: Task,
    stop: Stop,
    status: Arc<Status>,
    retries: Retries,
    attempts: Attempts,
    /// Of an access log (`syncdata=accesslog`): how its records stand; none for entries.
    log: Option<LogState>,
    /// When it may be said again of a server that its clock is wrong, by its id.
    skew_told: BTreeMap<u16, Timestamp>,
    /// A batch of a refresh that is being written while the next one is read.
    underway: Option<Underway>,
    /// The first content on its way into the database as a whole.
    fill: Option<Fill>,
    /// Deletes that came beside it, for others to be told of.
    buried: Vec<ReplicatedChange>,
    /// How often that may be tried.
    fills_left: u32,
}

/// How a consumer of an access log stands.
#[derive(Debug, Default)]
struct LogState {
    /// The next session asks for the entries themselves.
    plain: bool,
    /// How often that was so since a session with the log went well.
    fallbacks: u32,
    /// The session under way is one with the log.
    logged: bool,
    /// A change of the log was refused here.
    refused: AtomicBool,
    /// Of cn=config: how far the sessions of this thread have brought it. What it says of itself is no measure: it was
    /// changed here, too.
    reached: Vec<Csn>,
}

/// A batch that the writer has.
struct Underway {
    outcome: Receiver<ReplicatedOutcome>,
    names: Vec<String>,
    newest: Option<Timestamp>,
    refreshing: bool,
}

/// How changes came.
#[derive(Clone, Copy)]
struct Manner {
    refreshing: bool,
    /// In a session that asked for everything.
    full: bool,
    /// The end of a pass over the provider's content, which does not name what is gone.
    by_content: bool,
    /// Up to this change of its own the provider had told of before.
    provider: Option<Csn>,
}

/// How one session ended.
enum Ended {
    Poll,
    FullRefresh,
    /// The first content cannot be taken as it was tried.
    Again(String),
    Failed(String),
}

impl Runner {
    pub(super) fn new(server: &Arc<Server>, task: Task, stop: Stop, status: Arc<Status>) -> Self {
        let retries = Retries::new(task.line.retry.clone());
        let log = (task.line.data == SyncData::AccessLog).then(LogState::default);
        let (server, fills_left) = (Arc::clone(server), FILLS);
        let (skew_told, underway, fill) = (BTreeMap::new(), None, None);
        let (attempts, buried) = (Attempts::default(), Vec::new());
        Self {
            server,
            task,
            stop,
            status,
            retries,
            attempts,
            log,
            skew_told,
            underway,
            fill,
            buried,
            fills_left,
        }
    }

    /// Follows the provider until it is stopped, or no retry is left.
    pub(super) fn run(mut self) {
        while !self.stop.is_stopped() {
            let ended = self.session(self.attempts.is_full());
            if self.stop.is_stopped() {
                break;
            }
            let Some(ended) = self.changes_sides(ended) else {
                self.attempts.start_over();
                continue;
            };
            let (end, why) = match ended {
                Ended::Poll => (Some(End::Poll), String::new()),
                Ended::Again(why) => {
                    self.tell(&why);
                    continue;
                }
                Ended::FullRefresh => {
                    (Some(End::FullRefresh), "the provider asks for a full refresh".to_owned())
                }
                Ended::Failed(why) => (None, why),
            };
            let seconds = match self.attempts.after(end.as_ref()) {
                Next::Interval => self.task.line.interval,
                Next::FullAtOnce => {
                    self.tell(&why);
                    continue;
                }
                Next::Retry => match self.failed(&why) {
                    Some(seconds) => seconds,
                    None => return,
                },
            };
            let next = Timestamp(self.server.now().0.saturating_add(i64::from(seconds) * MICROS));
            self.status.change(|status| {
                (status.phase, status.local, status.next_connect) =
                    (ConsumerPhase::Waiting, None, Some(next));
            });
            self.stop.wait(Duration::from_secs(seconds.into()));
        }
        self.status.change(|status| status.phase = ConsumerPhase::Stopped);
    }

    /// From the log to the entries, when the log does not lead on from here, and back when they were refreshed: `None`,
    /// and another session at once. The second time in a row it is a failure, which waits as the others do.
    fn changes_sides(&mut self, ended: Ended) -> Option<Ended> {
        let is_empty = self.task.served.is_some() && self.context_csns().is_ok_and(|csns| csns.is_empty());
        let Some(log) = &mut self.log else { return Some(ended) };
        let refused = log.refused.swap(false, Ordering::Relaxed);
        let why = match (log.logged, ended) {
            (true, Ended::FullRefresh) => "the provider's log does not lead on from here".to_owned(),
            (true, Ended::Failed(why)) if refused => why,
            (false, Ended::Poll) => {
                log.plain = false;
                return match is_empty {
                    // Its log leads on from nowhere: not at once again.
                    true => Some(Ended::Failed("the provider has no content yet".to_owned())),
                    false => None,
                };
            }
            (_, ended) => return Some(ended),
        };
        log.plain = true;
        log.fallbacks += 1;
        if log.fallbacks > 1 {
            return Some(Ended::Failed(why));
        }
        self.tell(&format!("{why}: the entries themselves are asked for"));
        None
    }

    /// Seconds until the next try.
    fn failed(&mut self, why: &str) -> Option<u32> {
        self.status.change(|status| status.error = Some(why.to_owned()));
        let next = self.retries.next_wait();
        let rid = self.task.line.rid;
        let then = match (next, self.retries.left()) {
            (None, _) => "no retry is left: it gives up".to_owned(),
            (Some(seconds), None) => format!("again in {seconds} s"),
            (Some(seconds), Some(left)) => format!("again in {seconds} s ({left} retries left)"),
        };
        self.server.log.warning(format_args!("syncrepl rid={rid:03}: {why}; {then}"));
        if next.is_none() {
            self.status.change(|status| {
                (status.phase, status.local, status.next_connect) = (ConsumerPhase::GivenUp, None, None);
            });
        }
        next
    }

    fn tell(&self, what: &str) {
        let rid = self.task.line.rid;
        self.server.log.line(LogLevel::SYNC, format_args!("syncrepl rid={rid:03}: {what}"));
    }

    fn session(&mut self, full: bool) -> Ended {
        let now = self.server.now();
        self.status.change(|status| {
            (status.phase, status.last_connect, status.next_connect) =
                (ConsumerPhase::Connecting, Some(now), None);
        });
        let ended = self.follow(full).unwrap_or_else(Ended::Failed);
        // What of it came is thrown away.
        self.fill = None;
        // Whoever comes next begins behind it.
        match self.settle() {
            Err(why) if !matches!(ended, Ended::Failed(_)) => Ended::Failed(why),
            _ => ended,
        }
    }

    /// One session from its beginning to its end.
    fn follow(&mut self, full: bool) -> Result<Ended, String> {
        let shown = |error: ClientError| error.to_string();
        let (mut connection, note) = connect(&self.task.line, &self.task.tls, &self.stop).map_err(shown)?;
        note.iter().for_each(|note| self.tell(note));
        let known = self.context_csns()?;
        let logged = !full && !known.is_empty() && self.log.as_ref().is_some_and(|log| !log.plain);
        if let Some(log) = &mut self.log {
            log.logged = logged;
        }
        let request = if logged { self.log_request() } else { self.line().request() };
        let mut session = Session::new(request, self.massage(), known, full);
        let cookie = session.cookie().to_string();
        // As slapd says it: who watches its log looks for these words.
        self.tell(&format!("starting refresh at {} (sending cookie={cookie})", self.provider()));
        let local = connection.connection.local_address();
        self.status.change(|status| {
            (status.phase, status.local, status.cookie_sent) =
                (ConsumerPhase::Refreshing, local, Some(cookie));
        });
        connection.send(|out, id, _| session.request(out, id)).map_err(shown)?;
        let (mut may_fill, mut is_asked) = (true, false);
        loop {
            if session.flushes(connection.connection.has_message()) {
                self.flush(&mut session, full)?;
            }
            let has_gathered = session.has_gathered();
            let silence = self.silence(is_asked).filter(|_| session.is_refreshed());
            let wait = if has_gathered { Some(GATHER) } else { silence };
            let actions = match connection.connection.receive_within(wait) {
                Ok(Some(message)) => {
                    is_asked = false;
                    let first = session.first_entry(&message);
                    if first.is_some() && std::mem::take(&mut may_fill) {
                        self.begin_fill();
                    }
                    if let Some((fill, (uuid, entry))) = self.fill.as_mut().zip(first) {
                        match fill.add(uuid, entry) {
                            Ok(()) => continue,
                            Err(error) => return Ok(self.fill_failed(&error)),
                        }
                    }
                    may_fill = false;
                    Some(session.receive(&message))
                }
                Ok(None) if !has_gathered && is_asked => {
                    return Err(format!("{} is silent, and does not answer", self.provider()));
                }
                Ok(None) if !has_gathered => None,
                Ok(None) => Some(session.flush().into_iter().collect()),
                Err(error) => {
                    // What was gathered is good in itself.
                    self.flush(&mut session, full)?;
                    return Err(error.to_string());
                }
            };
            let Some(actions) = actions else {
                // It goes on with the search, and answers this beside it.
                connection
                    .send(|out, id, _| client::extended(out, id, oid::WHO_AM_I, None, &[]))
                    .map_err(shown)?;
                is_asked = true;
                continue;
            };
            let (now, received) = (self.server.now(), session.last_cookie());
            self.status.change(|status| {
                status.last_contact = Some(now);
                if status.cookie_received.as_deref() != received {
                    status.cookie_received = received.map(str::to_owned);
                }
            });
            for action in actions {
                if let Some(ended) = self.carry_out(action, full)? {
                    return Ok(ended);
                }
            }
        }
    }

    /// How long a provider that is followed may say nothing until it is asked for a sign of life, or how long it may take to
    /// answer. The kernel's probes find a machine that is gone, this a process that stands still.
    fn silence(&self, is_asked: bool) -> Option<Duration> {
        let said = self.task.line.keep_alive.unwrap_or(KEEP_ALIVE);
        let or = |said: u32, usual: u32| if said == 0 { usual } else { said };
        let answers =
            or(said.probes, KEEP_ALIVE.probes).saturating_mul(or(said.interval, KEEP_ALIVE.interval));
        let seconds = if is_asked { answers } else { said.idle };
        (said.idle > 0).then(|| Duration::from_secs(seconds.into()))
    }

    fn flush(&mut self, session: &mut Session, full: bool) -> Result<(), String> {
        match session.flush() {
            Some(action) => self.carry_out(action, full).map(|_| ()),
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, action: Action, full: bool) -> Result<Option<Ended>, String> {
        if !matches!(action, Action::Apply { .. } | Action::Note(_)) {
            self.settle()?;
        }
        match action {
            Action::Apply { csns, changes, .. } if self.fill.is_some() && changes.is_empty() => {
                return self.finish_fill(csns, full);
            }
            // Nothing was here that could be absent.
            Action::DeleteAbsent { csns, .. } if self.fill.is_some() => return self.finish_fill(csns, full),
            Action::Apply { changes, csns, .. } if self.fill.is_some() && changes.iter().all(is_delete) => {
                self.buried.extend(changes);
                if !csns.is_empty() {
                    return self.finish_fill(csns, full);
                }
            }
            Action::Apply { .. } if self.fill.is_some() => {
                let why = "the provider sends more than entries";
                return Ok(Some(self.fill_failed(&LoadError::Stopped(why))));
            }
            Action::Refreshed if self.fill.is_some() => {
                if let Some(ended) = self.finish_fill(Vec::new(), full)? {
                    return Ok(Some(ended));
                }
                self.refreshed();
            }
            Action::Apply { changes, csns, refreshing, provider } => {
                self.judge_clocks(&csns);
                self.apply(changes, csns.clone(), Manner { refreshing, full, provider, by_content: false })?;
                self.note_reached(&csns);
            }
            Action::DeleteAbsent { present, csns, deletes_told } => {
                self.judge_clocks(&csns);
                self.delete_absent(&present, &csns)?;
                let manner = Manner { refreshing: true, full, by_content: !deletes_told, provider: None };
                self.apply(Vec::new(), csns.clone(), manner)?;
                self.note_reached(&csns);
            }
            Action::Refreshed => self.refreshed(),
            Action::End(End::Poll) => return Ok(Some(Ended::Poll)),
            Action::End(End::FullRefresh) => return Ok(Some(Ended::FullRefresh)),
            Action::End(End::NotLogged(why)) => {
                self.tell(&why);
                return Ok(Some(Ended::FullRefresh));
            }
            Action::End(End::Failed(result)) => {
                return Err(format!("{} ended the search: {result}", self.provider()));
            }
            Action::Note(note) => self.tell(&note),
        }
        Ok(None)
    }

    fn note_reached(&mut self, csns: &[Csn]) {
        let Some(log) = self.log.as_mut().filter(|_| self.task.served.is_none()) else { return };
        for csn in csns {
            match log.reached.iter_mut().find(|known| known.server_id == csn.server_id) {
                Some(known) => *known = (*known).max(*csn),
                None => log.reached.push(*csn),
            }
        }
    }

    /// Says, and counts, that changes come from a clock that is ahead of ours. One that is behind looks like a change that
    /// was long on its way.
    fn judge_clocks(&mut self, csns: &[Csn]) {
        let (now, rid) = (self.server.now(), self.task.line.rid);
        for csn in csns {
            let (of, ahead) = (csn.server_id, csn.time.0.saturating_sub(now.0));
            if ahead <= SKEW_WARNED {
                self.status.change(|status| status.ahead = status.ahead.filter(|(last, _)| *last != of));
                continue;
            }
            self.status.change(|status| {
                status.counts.ahead += 1;
                status.ahead = Some((of, ahead));
            });
            if self.skew_told.get(&of).is_some_and(|next| now < *next) {
                continue;
            }
            self.skew_told.insert(of, Timestamp(now.0.saturating_add(SKEW_TOLD * MICROS)));
            let seconds = ahead / MICROS;
            let then =
                if ahead > SKEW_FOLLOWED { "; they are taken, and our own do not follow them" } else { "" };
            self.server.log.warning(format_args!(
                "syncrepl rid={rid:03}: changes of the server id {of} are {seconds} s ahead of our clock: one of the two is \
                 wrong{then}"
            ));
        }
    }

    /// The content is the provider's now.
    fn refreshed(&mut self) {
        if let Some(log) = self.log.as_mut().filter(|log| log.logged) {
            log.fallbacks = 0;
        }
        self.retries.reset();
        self.attempts.start_over();
        self.tell("the refresh is complete");
        self.status.change(|status| {
            (status.phase, status.refreshed, status.error) = (ConsumerPhase::Persisting, true, None);
        });
    }

    /// Into an empty database the first content goes as a whole, if it is all of a suffix.
    fn begin_fill(&mut self) {
        let Some(served) = self.task.served.clone() else { return };
        let rules = self.rules(true);
        if self.fills_left == 0 || !self.is_whole() || !rules.attributes.is_whole() {
            return;
        }
        // A load knows nothing of the states that entries come with.
        if self.settles_values() {
            return;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.buried.clear();
        self.fill = served.fill(FillOptions {
            scratch: self.task.directory.clone(),
            schema_checking: rules.schema_checking,
            threads: cores.min(FILL_THREADS),
        });
        if self.fill.is_some() {
            self.fills_left -= 1;
            self.tell("the database is empty: it is filled as by a load");
        }
    }

    /// The first content has come. Nothing of the deletes that came with it was here, and others may have it: they are to be
    /// told of them.
    fn finish_fill(&mut self, csns: Vec<Csn>, full: bool) -> Result<Option<Ended>, String> {
        self.judge_clocks(&csns);
        let newest = csns.iter().map(|csn| csn.time).max();
        let Some(fill) = self.fill.take() else { return Ok(None) };
        let buried = std::mem::take(&mut self.buried);
        // A crash may come before the deletes are stored. Without a contextCSN all is asked for again, with one they never are.
        let proved = if buried.is_empty() { csns.clone() } else { Vec::new() };
        let entries = match fill.finish(proved) {
            Ok(entries) => entries,
            Err(error) => return Ok(Some(self.fill_failed(&error))),
        };
        if entries > 0 {
            self.tell(&format!("the database was filled with {entries} entries"));
        }
        self.status.change(|status| {
            status.counts.applied += entries;
            status.last_change = newest.max(status.last_change);
        });
        if !buried.is_empty() {
            let manner = Manner { refreshing: true, full, by_content: false, provider: None };
            self.apply(buried, csns, manner)?;
            self.settle()?;
        }
        Ok(None)
    }

    /// What cannot be stored as a whole is asked for again, to be stored in batches, unless something else was in the way.
    fn fill_failed(&mut self, error: &LoadError) -> Ended {
        (self.fill, self.buried) = (None, Vec::new());
        if !matches!(error, LoadError::Stopped(_)) {
            self.fills_left = 0;
        }
        Ended::Again(format!("the database was not filled, the content is asked for again: {error}"))
    }

    fn is_whole(&self) -> bool {
        let line = &self.task.line;
        let Some(served) = &self.task.served else { return false };
        line.scope == Scope::Subtree
            && line.filter == FilterBuf::every_entry()
            && served
                .database()
                .current_settings()
                .suffixes
                .iter()
                .any(|s| s.normal == line.local_base().normal)
    }

    /// Hands a batch to the writer. One of a refresh that nothing is said of yet is written while the next is read.
    fn apply(
        &mut self,
        changes: Vec<ReplicatedChange>,
        csns: Vec<Csn>,
        Manner { refreshing, full, by_content, provider }: Manner,
    ) -> Result<(), String> {
        let newest = csns.iter().map(|csn| csn.time).max();
        let names: Vec<String> = changes.iter().map(name).collect();
        let logged = self.log.as_ref().is_some_and(|log| log.logged);
        // Records of a log may come in any order: each is judged by what is here.
        let rules = self.rules(refreshing || logged || full);
        let by_content = by_content && rules.multi_provider;
        let rules = ReplicaRules { by_content, whole: refreshing && !logged, provider, ..rules };
        let alone = !refreshing || logged || !csns.is_empty();
        if alone {
            // What these CSNs stand for is to be there.
            self.settle()?;
        }
        let batch = ReplicatedBatch { changes, context_csns: csns, rules };
        let (done, outcome) = sync_channel(1);
        // Whoever waits has not gone.
        match &self.task.served {
            Some(served) => served.replicate(batch, Box::new(move |outcome| drop(done.send(outcome)))),
            None => {
                let done = Box::new(move |outcome, _| drop(done.send(outcome)));
                self.server.configuration.replicate(batch, None, done);
            }
        }
        let before = self.underway.replace(Underway { outcome, names, newest, refreshing });
        before.map_or(Ok(()), |before| self.judge_one(before))?;
        if alone { self.settle() } else { Ok(()) }
    }

    /// Waits for the batch that the writer has.
    fn settle(&mut self) -> Result<(), String> {
        self.underway.take().map_or(Ok(()), |underway| self.judge_one(underway))
    }

    fn judge_one(&self, underway: Underway) -> Result<(), String> {
        let Underway { outcome, names, newest, refreshing } = underway;
        let outcome = outcome.recv().map_err(|_| "the database is being closed".to_owned())?;
        self.judge(&outcome, &names)?;
        let now = self.server.now();
        self.status.change(|status| {
            status.last_change = newest.max(status.last_change);
            if let Some(newest) = newest.filter(|_| !refreshing) {
                status.last_delay = Some(now.0.saturating_sub(newest.0));
            }
        });
        Ok(())
    }

    /// Counts what came of the changes; one that was refused ends the session, so that it is asked for again.
    fn judge(&self, outcome: &ReplicatedOutcome, names: &[String]) -> Result<(), String> {
        let mut refused: Option<(&String, &LdapResult)> = None;
        for (change, name) in outcome.changes.iter().zip(names) {
            match change {
                Applied::Done | Applied::Older => {}
                Applied::Conflict(note) => {
                    self.tell(&format!("conflict at \"{}\": {:?}, kept {:?}", note.dn, note.kind, note.kept));
                }
                Applied::Refused(result) => {
                    refused = refused.or(Some((name, result)));
                }
            }
        }
        self.status.change(|status| {
            let counts = &mut status.counts;
            for change in &outcome.changes {
                *match change {
                    Applied::Done => &mut counts.applied,
                    Applied::Older => &mut counts.older,
                    Applied::Conflict(_) => &mut counts.conflicts,
                    Applied::Refused(_) => &mut counts.refused,
                } += 1;
            }
        });
        if outcome.result.code != ResultCode::SUCCESS {
            return Err(format!("a change could not be stored: {}", outcome.result));
        }
        match refused {
            Some((name, result)) => {
                self.log.iter().for_each(|log| log.refused.store(log.logged, Ordering::Relaxed));
                Err(format!("{name}: {result}"))
            }
            None => Ok(()),
        }
    }

    fn delete_absent(&self, present: &UuidSet, csns: &[Csn]) -> Result<(), String> {
        let line = &self.task.line;
        let Some(served) = &self.task.served else { return self.delete_absent_in_config(present, csns) };
        let (share, limit) = self.line().share(csns);
        let (done, outcome) = sync_channel(1);
        served.delete_absent(
            &share,
            present,
            limit,
            Box::new(move |outcome| {
                // Whoever waits has not gone.
                let _ = done.send(outcome);
            }),
        );
        match outcome.recv().map_err(|_| "the database is being closed".to_owned())? {
            DeleteOutcome::Deleted(count) => {
                if count > 0 {
                    self.tell(&format!("deleted {count} entries that the provider does not have"));
                }
                self.status.change(|status| status.counts.absent += count);
                Ok(())
            }
            DeleteOutcome::TooMany { absent, entries } => Err(format!(
                "{} has {absent} of our {entries} entries no longer: nothing was deleted, as that is more than \
                 maxdelete={}% allows. If the provider is right, let maxdelete=100 stand in the syncrepl line once",
                self.provider(),
                line.delete_percent
            )),
            DeleteOutcome::Failed { result, .. } => {
                Err(format!("entries that the provider does not have could not be deleted: {result}"))
            }
        }
    }

    /// The configuration is small: no share of it is too much to go, and what would be needed may not.
    fn delete_absent_in_config(&self, present: &UuidSet, csns: &[Csn]) -> Result<(), String> {
        let (done, outcome) = sync_channel(1);
        let batch = ReplicatedBatch { context_csns: csns.to_vec(), ..ReplicatedBatch::default() };
        let done = Box::new(move |outcome: ReplicatedOutcome, absent: u64| {
            // Whoever waits has not gone.
            let _ = done.send((outcome.result, absent));
        });
        let present = Present { base: self.task.line.local_base().normal.clone(), uuids: present.clone() };
        self.server.configuration.replicate(batch, Some(present), done);
        let (result, absent) =
            outcome.recv().map_err(|_| "the configuration's thread has ended".to_owned())?;
        if result.code != ResultCode::SUCCESS {
            return Err(format!("entries that the provider does not have could not be deleted: {result}"));
        }
        self.status.change(|status| status.counts.absent += absent);
        Ok(())
    }

    fn rules(&self, refresh: bool) -> ReplicaRules {
        let Some(served) = &self.task.served else { return ReplicaRules::default() };
        let schema = Arc::clone(self.server.generation().databases.schema());
        self.line().rules(&schema, &served.database().current_settings(), refresh)
    }

    /// What the configuration says of what is replicated.
    fn line(&self) -> Line {
        let line = &self.task.line;
        let local = line.local_base();
        let identity = line.bind.authorization.as_deref().filter(|_| !line.bind.sasl);
        let controls: Vec<ControlBuf> = identity
            .map(|identity| ProxiedAuthorization { authorization_id: identity }.to_control(true))
            .into_iter()
            .collect();
        Line {
            rid: line.rid,
            sid: self.task.sid,
            // Behind it comes what the log has.
            mode: if self.log.is_some() { SyncMode::RefreshOnly } else { line.mode },
            base: line.base.text.clone(),
            local_base: (local.text.clone(), local.normal.clone()),
            scope: line.scope,
            filter: line.filter.clone(),
            attributes: line.attributes.clone(),
            except_attributes: line.except_attributes.clone(),
            types_only: line.types_only,
            size_limit: line.size_limit,
            time_limit: line.time_limit,
            schema_checking: line.schema_checking,
            lazy: line.lazy_commit,
            delete_percent: line.delete_percent,
            values: self.settles_values(),
            controls,
        }
    }

    /// Asks for the records of the provider's access log.
    fn log_request(&self) -> Request {
        let line = &self.task.line;
        let filter = line.log_filter.clone().or_else(|| FilterBuf::parse(delta::FILTER).ok());
        let base = line.log_base.as_ref().map_or_else(String::new, |base| base.text.clone());
        Request {
            base,
            scope: Scope::Subtree,
            filter: filter.unwrap_or_else(FilterBuf::every_entry),
            attributes: vec!["*".to_owned(), "+".to_owned()],
            types_only: false,
            logged: true,
            values: false,
            mode: line.mode,
            ..self.line().request()
        }
    }

    /// Whether conflicts are settled value by value here.
    fn settles_values(&self) -> bool {
        let served = self.task.served.as_ref();
        served.is_some_and(|served| served.database().current_settings().value_conflicts)
    }

    fn massage(&self) -> Option<Massage> {
        let line = &self.task.line;
        let to = line.suffix_massage.as_ref()?;
        let schema = Arc::clone(self.server.generation().databases.schema());
        Some(Massage::new(schema, line.base.normal.clone(), &to.text))
    }

    fn context_csns(&self) -> Result<Vec<Csn>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("the contextCSN cannot be read: {error}");
        // Of cn=config a session asks for everything: it is small, and what was changed here says nothing of what the
        // provider has done.
        let Some(served) = &self.task.served else {
            let log = self.log.as_ref().filter(|log| !log.plain);
            return Ok(log.map_or_else(Vec::new, |log| log.reached.clone()));
        };
        let database = served.database();
        let snapshot = database.store().snapshot().map_err(|error| failed(&error))?;
        log::context_csns(&snapshot).map_err(|error| failed(&error))
    }

    fn provider(&self) -> String {
        let urls: Vec<String> = self.task.line.providers.iter().map(ToString::to_string).collect();
        urls.join(" ")
    }
}

fn is_delete(change: &ReplicatedChange) -> bool {
    matches!(change, ReplicatedChange::Delete { .. })
}

/// What a message calls a change.
fn name(change: &ReplicatedChange) -> String {
    match change {
        ReplicatedChange::Put { dn, .. } | ReplicatedChange::Delta { dn, .. } => format!("entry \"{dn}\""),
        ReplicatedChange::Delete { entry_uuid, .. } => format!("the delete of the entry {entry_uuid}"),
    }
}

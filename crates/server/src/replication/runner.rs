//! One consumer: connects, follows, and tries again.
//!
//! What a session is to do is said by [`larix_replication::consumer`]; here it is carried out, in [`batches`] or for an empty
//! database as a [whole](first_content), and here the next session is waited for.

mod batches;
mod clocks;
mod directory;
mod first_content;
mod log_state;
mod second_hand;
mod stateless;

use std::sync::Arc;
use std::time::Duration;

use larix_client::{ClientError, Connection, Session as ClientSession, Stop};
use larix_engine::csn::{Csn, SKEW_FOLLOWED};
use larix_engine::injected;
use larix_engine::log::CsnVector;
use larix_engine::time::{Clock as _, Monotonic, Timestamp};
use larix_proto::control::SyncMode;
use larix_proto::{client, oid};
use larix_replication::consumer::{Action, Attempts, End, Next, Retries, Session};
use larix_replication::consumer::{ConsumerPhase, ConsumerStatus, Status};
use larix_replication::push::Push;
use larix_schema::Schema;

use super::connect::{connect, silence};
use super::pushed::with_push;
use crate::consumers::Task;
use crate::log::{LogLevel, printable};
use crate::panics;
use crate::server::Server;
use batches::{Manner, Underway};
use clocks::Clocks;
use first_content::FirstContent;
use log_state::{After, LogState};
use second_hand::SecondHand;

/// While a refresh goes on, what has come waits so long for more, to be committed together.
const GATHER: Duration = Duration::from_millis(50);
/// How long a consumer of an access log waits that gets nothing from the log and nothing from the entries.
const IDLE_TURN: Duration = Duration::from_secs(1);
/// A session that goes on for so long after its refresh has nothing to do with how the one before it ended.
const LASTING_SECONDS: u32 = 60;
const MICROS: i64 = 1_000_000;
/// How often the node of a shared engine looks whether it is its turn to follow.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Runner {
    server: Arc<Server>,
    task: Task,
    stop: Stop,
    status: Arc<Status>,
    retries: Retries,
    attempts: Attempts,
    /// Since when the session under way has all of the content.
    refreshed_at: Option<Monotonic>,
    /// How the records of an access log stand; none where entries are followed.
    log: Option<LogState>,
    clocks: Clocks,
    /// A batch of a refresh that is being written while the next one is read.
    underway: Option<Underway>,
    first: FirstContent,
    /// How far a provider that keeps no states had come before it was asked for all its entries, by the session under way.
    provider_had: Option<CsnVector>,
    /// What the provider of the session under way tells of servers that other lines follow.
    second_hand: SecondHand,
    /// It was said that the provider has the server ID of this server.
    warned_of_id: bool,
}

/// How one session ended.
#[derive(Debug, PartialEq, Eq)]
enum SessionEnd {
    Poll,
    FullRefresh,
    /// The first content cannot be taken as it was tried.
    Again(String),
    Failed(String),
}

impl Runner {
    pub(super) fn new(server: &Arc<Server>, task: Task, stop: Stop, status: Arc<Status>) -> Self {
        Self {
            server: Arc::clone(server),
            retries: Retries::new(task.line.retry.clone()),
            log: task.follows_log().then(LogState::default),
            task,
            stop,
            status,
            attempts: Attempts::default(),
            refreshed_at: None,
            clocks: Clocks::default(),
            underway: None,
            first: FirstContent::new(),
            provider_had: None,
            second_hand: SecondHand::default(),
            warned_of_id: false,
        }
    }

    /// Follows the provider until it is stopped, or no retry is left.
    pub(super) fn run(mut self) {
        while !self.stop.is_stopped() {
            if !self.task.is_ours() {
                self.stand_by();
                continue;
            }
            let is_full = self.attempts.is_full();
            let ended = panics::contained(|| {
                injected::panic_at("consumer");
                self.session(is_full)
            });
            let ended = ended.unwrap_or_else(|panicked| {
                self.forget_session();
                SessionEnd::Failed(panicked.to_string())
            });
            let (now, refreshed_at) = (self.server.clock.monotonic(), self.refreshed_at.take());
            if refreshed_at.is_some_and(|at| now >= at.plus_seconds(LASTING_SECONDS)) {
                self.attempts.lasted();
            }
            if self.stop.is_stopped() {
                break;
            }
            if !self.task.is_ours() {
                continue;
            }
            let Some(ended) = self.changes_sides(ended) else {
                self.attempts.start_over();
                continue;
            };
            let (end, why) = match ended {
                SessionEnd::Poll => (Some(End::Poll), String::new()),
                SessionEnd::Again(why) => {
                    self.tell(&why);
                    continue;
                }
                SessionEnd::FullRefresh => {
                    (Some(End::FullRefresh), "the provider asks for a full refresh".to_owned())
                }
                SessionEnd::Failed(why) => (None, why),
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

    /// Another node of the database follows: waits until it may be this one.
    fn stand_by(&mut self) {
        self.status.change(|status| {
            if status.phase != ConsumerPhase::StandingBy {
                (status.phase, status.local, status.next_connect, status.error) =
                    (ConsumerPhase::StandingBy, None, None, None);
            }
        });
        self.retries.reset();
        self.attempts.start_over();
        self.stop.wait(LOOK);
    }

    /// What a session left that ended by a panic.
    fn forget_session(&mut self) {
        self.log = self.task.follows_log().then(LogState::default);
        (self.underway, self.first, self.provider_had) = (None, FirstContent::new(), None);
    }

    /// `None`: another session comes at once, which asks for the log's records instead of the entries, or for these instead of
    /// those.
    fn changes_sides(&mut self, ended: SessionEnd) -> Option<SessionEnd> {
        let task = &self.task;
        let Some(log) = &mut self.log else { return Some(ended) };
        let is_empty = || task.database.is_some() && context_csns(task).is_ok_and(|csns| csns.is_empty());
        match log.after(ended, is_empty) {
            After::SessionEnd(ended) => Some(ended),
            After::OtherSide(why) => {
                let waits = why.is_some() && log.turns_idly();
                why.iter().for_each(|why| self.tell(why));
                if waits {
                    self.stop.wait(IDLE_TURN);
                }
                None
            }
        }
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
        self.server.log.warning(format_args!("syncrepl rid={rid:03}: {}; {then}", one_line(why)));
        if next.is_none() {
            self.status.change(|status| {
                (status.phase, status.local, status.next_connect) = (ConsumerPhase::GivenUp, None, None);
            });
        }
        next
    }

    fn tell(&self, what: &str) {
        let rid = self.task.line.rid;
        self.server.log.line(LogLevel::SYNC, format_args!("syncrepl rid={rid:03}: {}", one_line(what)));
    }

    fn session(&mut self, full: bool) -> SessionEnd {
        let now = self.server.now();
        self.status.change(|status| {
            (status.phase, status.last_connect, status.next_connect) =
                (ConsumerPhase::Connecting, Some(now), None);
        });
        let ended = match self.task.line.dir_sync {
            true => self.follow_directory(full),
            false => self.follow(full),
        };
        let ended = ended.unwrap_or_else(SessionEnd::Failed);
        self.first.abandon();
        // The next consumer begins after it.
        match self.settle() {
            Err(why) if !matches!(ended, SessionEnd::Failed(_)) => SessionEnd::Failed(why),
            _ => ended,
        }
    }

    /// One session from its beginning to its end.
    fn follow(&mut self, full: bool) -> Result<SessionEnd, String> {
        let (mut connection, mut session) = self.begin(full)?;
        let mut is_asked = false;
        loop {
            if session.flushes(connection.connection.has_message()) {
                self.flush(&mut session, full)?;
            }
            self.apply_due()?;
            let has_gathered = session.has_gathered();
            let wait = if has_gathered { Some(GATHER) } else { silence(self.task.line.keep_alive, is_asked) };
            let due = self.second_hand.waits(self.server.clock.monotonic());
            let wait = wait.into_iter().chain(due).min();
            let received = match self.waits_within(&mut connection.connection, wait) {
                Ok(true) => connection.connection.receive().map(Some),
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            let actions = match received {
                Ok(Some(message)) => {
                    is_asked = false;
                    match self.take_first(&session, &message) {
                        Some(Ok(())) => continue,
                        Some(Err(error)) => return Ok(self.fill_failed(&error)),
                        None => Some(session.receive(&message)),
                    }
                }
                Ok(None) if has_gathered => Some(session.flush().into_iter().collect()),
                Ok(None) if due.is_some() => continue,
                Ok(None) if is_asked => {
                    return Err(format!("{} is silent, and does not answer", self.task.provider()));
                }
                Ok(None) => None,
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
                    .map_err(|error| error.to_string())?;
                is_asked = true;
                continue;
            };
            self.note_contact(&session);
            for action in actions {
                if let Some(ended) = self.carry_out(action, full)? {
                    return Ok(ended);
                }
            }
        }
    }

    /// Whether a message comes within so long.
    ///
    /// # Errors
    /// The connection ended, or another node of the database follows now.
    fn waits_within(&self, connection: &mut Connection, time: Option<Duration>) -> Result<bool, ClientError> {
        if !self.task.is_shared() {
            return connection.waits_within(time);
        }
        let mut left = time;
        loop {
            let slice = left.map_or(LOOK, |left| left.min(LOOK));
            if connection.waits_within(Some(slice))? {
                return Ok(true);
            }
            if !self.task.is_ours() {
                let why = "another node of this database follows the provider now";
                return Err(ClientError::Io(std::io::Error::other(why)));
            }
            left = left.map(|left| left.saturating_sub(slice));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
        }
    }

    /// Connects, and asks for what the line wants.
    fn begin(&mut self, full: bool) -> Result<(ClientSession, Session), String> {
        let shown = |error: ClientError| error.to_string();
        let (mut connection, note) = connect(&self.task.line, &self.task.tls, &self.stop).map_err(shown)?;
        note.iter().for_each(|note| self.tell(note));
        let known = self.known()?;
        let logged = self.log.as_mut().is_some_and(|log| log.begin(full, &known));
        let mut request = if logged { self.task.log_request() } else { self.task.line().request() };
        let had = match known.is_empty() {
            true => None,
            false => self.ask_stateless(&mut connection)?,
        };
        self.second_hand = SecondHand::new(had.is_some());
        self.provider_had = had.filter(|_| !logged);
        if self.provider_had.is_some() {
            // What is changed while a search that does not persist goes on is neither sent nor named by a slapd.
            request.mode = SyncMode::RefreshAndPersist;
        }
        let massage = self.task.massage(self.schema());
        let mut session = Session::new(request, massage, known, full || self.provider_had.is_some());
        // Of cn=config nothing is ever known, lines of parts bring what others do not have, and a member has what others sent meanwhile.
        let is_copy = self.task.database.is_some() && !self.task.is_part && self.task.sid.is_none();
        if is_copy {
            session = session.follows_broken();
        }
        let cookie = session.cookie().to_string();
        // As slapd says it: who watches its log looks for these words.
        self.tell(&format!("starting refresh at {} (sending cookie={cookie})", self.task.provider()));
        let local = connection.connection.local_address();
        self.status.change(|status| {
            (status.phase, status.local, status.cookie_sent) =
                (ConsumerPhase::Refreshing, local, Some(cookie));
        });
        connection.send(|out, id, _| session.request(out, id)).map_err(shown)?;
        self.first.session_begins();
        Ok((connection, session))
    }

    fn note_contact(&mut self, session: &Session) {
        if session.has_own_id() && !std::mem::replace(&mut self.warned_of_id, true) {
            let (rid, provider) = (self.task.line.rid, self.task.provider());
            let own = self.task.sid.unwrap_or_default();
            self.server.log.warning(format_args!(
                "syncrepl rid={rid:03}: {provider} has the server ID {own} of this server: neither receives what the other \
                 changes. Give each server a `serverID` of its own; if it is this server, take the line out"
            ));
        }
        let (now, received) = (self.server.now(), session.last_cookie());
        self.status.change(|status| {
            status.heard(now);
            status.provider_id = session.provider_id().or(status.provider_id);
            if status.cookie_received.as_deref() != received {
                status.cookie_received = received.map(str::to_owned);
            }
        });
    }

    fn flush(&mut self, session: &mut Session, full: bool) -> Result<(), String> {
        match session.flush() {
            Some(action) => self.carry_out(action, full).map(|_| ()),
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, action: Action, full: bool) -> Result<Option<SessionEnd>, String> {
        if !matches!(action, Action::Apply { .. } | Action::Note(_)) {
            self.settle()?;
        }
        match self.first.is_underway() {
            true => self.carry_out_during_first_content(action, full),
            false => self.carry_out_in_batches(action, full),
        }
    }

    fn carry_out_in_batches(&mut self, action: Action, full: bool) -> Result<Option<SessionEnd>, String> {
        match action {
            Action::Apply { changes, csns, refreshing, provider, elsewhere } => {
                self.judge_clocks(&csns);
                let manner = Manner { refreshing, full, provider, by_content: false, elsewhere };
                self.apply(changes, csns.clone(), manner)?;
                self.note_reached(&csns);
            }
            Action::DeleteAbsent { present, csns, deletes_told, whole, subentries } => {
                self.judge_clocks(&csns);
                self.delete_absent(&present, &csns, (whole, subentries))?;
                let manner = Manner {
                    refreshing: true,
                    full,
                    by_content: !deletes_told,
                    provider: None,
                    elsewhere: false,
                };
                self.apply(Vec::new(), csns.clone(), manner)?;
                self.note_reached(&csns);
            }
            Action::KeepStates => self.keep_states()?,
            Action::Refreshed => {
                self.refreshed();
                if self.provider_had.is_some() {
                    // Behind it comes what the log has.
                    return Ok(Some(SessionEnd::Poll));
                }
            }
            Action::End(End::Poll) => return Ok(Some(SessionEnd::Poll)),
            Action::End(End::FullRefresh) => return Ok(Some(SessionEnd::FullRefresh)),
            Action::End(End::NotLogged(why)) => {
                self.tell(&why);
                return Ok(Some(SessionEnd::FullRefresh));
            }
            Action::End(End::Failed(result)) => {
                return Err(format!("{} ended the search: {result}", self.task.provider()));
            }
            Action::Note(note) => self.tell(&note),
        }
        Ok(None)
    }

    /// The provider keeps the states of entries: what is changed here is to be merged with what is changed there, whatever way
    /// others follow.
    fn keep_states(&self) -> Result<(), String> {
        let Some(database) = self.task.database.as_ref().filter(|_| !self.task.keeps_states()) else {
            return Ok(());
        };
        match database.keep_states() {
            Ok(true) => self.tell("the provider keeps the states of entries: they are kept here, too"),
            Ok(false) => {}
            Err(error) => return Err(format!("the states of entries cannot be kept: {error}")),
        }
        Ok(())
    }

    fn note_reached(&mut self, csns: &[Csn]) {
        if let (Some(log), None) = (&mut self.log, &self.task.database) {
            log.note_reached(csns);
        }
    }

    /// Says, and counts, that changes come from a clock that is ahead of ours.
    fn judge_clocks(&mut self, csns: &[Csn]) {
        let (now, rid) = (self.server.now(), self.task.line.rid);
        for csn in csns {
            let of = csn.server_id;
            let Some(ahead) = self.clocks.judge(csn, now) else {
                self.status.change(|status| status.ahead = status.ahead.filter(|(last, _)| *last != of));
                continue;
            };
            self.status.change(|status| {
                status.counts.ahead += 1;
                status.ahead = Some((of, ahead.micros));
            });
            if !ahead.is_news {
                continue;
            }
            let seconds = ahead.micros / MICROS;
            let then = match ahead.micros > SKEW_FOLLOWED {
                _ if self.task.server_id == of => "; it is our own id, so our next changes come behind them",
                true => "; they are taken, and our own do not follow them",
                false => "",
            };
            self.server.log.warning(format_args!(
                "syncrepl rid={rid:03}: changes of the server id {of} are {seconds} s ahead of our clock: one of the two is \
                 wrong{then}"
            ));
        }
    }

    /// The content is the provider's now.
    fn refreshed(&mut self) {
        self.log.iter_mut().for_each(LogState::refreshed);
        self.retries.reset();
        self.attempts.start_over();
        self.refreshed_at = Some(self.server.clock.monotonic());
        self.tell("the refresh is complete");
        self.status.change(ConsumerStatus::refreshed);
    }

    /// Does something in the directory of another server that is written to. `None`: it is one of this server.
    fn with_push<R>(&self, act: impl FnOnce(&mut Push<'_>) -> R) -> Option<R> {
        with_push(&self.server, (&self.task, &self.stop), &self.schema(), act)
    }

    fn schema(&self) -> Arc<Schema> {
        Arc::clone(self.server.generation().databases.schema())
    }

    /// How far what is here has come. Of cn=config a session asks for everything: it is small, and what was changed here says
    /// nothing of what the provider has done.
    fn known(&self) -> Result<Vec<Csn>, String> {
        if let Some(known) = self.with_push(|push| push.context_csns()) {
            let failed =
                |why| format!("the contextCSN of the server that is written to cannot be read: {why}");
            return known.map_err(failed);
        }
        match self.task.database {
            Some(_) => context_csns(&self.task),
            None => Ok(self.log.as_ref().map_or_else(Vec::new, |log| log.reached().to_vec())),
        }
    }
}

/// Of the database, or of the part of it that the line brings; none of cn=config.
fn context_csns(task: &Task) -> Result<Vec<Csn>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the contextCSN cannot be read: {error}");
    let Some(database) = &task.database else { return Ok(Vec::new()) };
    let csns = match task.is_part {
        true => database.part_csns(&task.line().part_name()),
        false => database.context_csns(),
    };
    csns.map_err(|error| failed(&error))
}

/// What the log gets of a text in which words of the provider may stand: one line.
fn one_line(text: &str) -> String {
    printable(&text.replace("\n\t\t", " ").replace("\n\t", "; ")).into_owned()
}

#[cfg(test)]
mod tests {
    use larix_proto::{LdapResult, ResultCode};

    use super::*;

    #[test]
    fn a_provider_writes_no_lines_of_its_own_into_the_log() {
        let text = "no\nconn=1 fd=2 ACCEPT forged";
        let mut result = LdapResult::with(ResultCode::UNAVAILABLE, text);
        result.matched_dn = "dc=x".into();
        result.referrals = vec!["ldap://a".into(), "ldap://b".into()];
        let error = ClientError::Refused { step: "search", result };
        let expected = "(52); matched DN: dc=x; additional info: no#0Aconn=1 fd=2 ACCEPT forged; \
                        referrals: ldap://a ldap://b";
        let line = one_line(&error.to_string());
        assert!(line.ends_with(expected), "{line}");
    }
}

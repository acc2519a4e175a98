//! How a consumer stands: what cn=Monitor, the metrics and the health show.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use larix_engine::time::Timestamp;

/// What a consumer does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsumerPhase {
    /// Until the next try, or the next refresh.
    #[default]
    Waiting,
    Connecting,
    Refreshing,
    /// Changes come as they are made.
    Persisting,
    /// Another node of the database follows, and this one takes over from it.
    StandingBy,
    /// All retries failed.
    GivenUp,
    Stopped,
}

impl ConsumerPhase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connecting => "connecting",
            Self::Refreshing => "refreshing",
            Self::Persisting => "persisting",
            Self::StandingBy => "standing by",
            Self::GivenUp => "given up",
            Self::Stopped => "stopped",
        }
    }
}

/// What became of changes since the start of the consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerCounts {
    pub applied: u64,
    /// What was here already, or newer.
    pub older: u64,
    pub conflicts: u64,
    pub refused: u64,
    /// Deleted because a refresh did not name them.
    pub absent: u64,
    /// Commits with a CSN that was more than a minute ahead of our clock.
    pub ahead: u64,
}

/// How one consumer stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    pub rid: u16,
    /// Of the database.
    pub suffix: String,
    /// As configured.
    pub providers: Vec<String>,
    pub phase: ConsumerPhase,
    /// Our end of the connection.
    pub local: Option<SocketAddr>,
    pub last_connect: Option<Timestamp>,
    /// When the provider last sent anything.
    pub last_contact: Option<Timestamp>,
    /// When it last sent anything while nothing had failed: the content is not older than that.
    pub last_in_step: Option<Timestamp>,
    /// When it is tried next, while it waits.
    pub next_connect: Option<Timestamp>,
    pub cookie_sent: Option<String>,
    pub cookie_received: Option<String>,
    /// The provider's server ID, as its last cookie that had one said it.
    pub provider_id: Option<u16>,
    /// A refresh was completed since the start: the content is, or was, the provider's.
    pub refreshed: bool,
    /// The time of the newest change that was taken over, by the clock of the server where it was made.
    pub last_change: Option<Timestamp>,
    /// How long after it was made the last change was durable here, in microseconds by both servers' clocks; of
    /// changes that came one by one.
    pub last_delay: Option<i64>,
    pub counts: ConsumerCounts,
    /// The server whose last change was more than a minute ahead of our clock, and how far in microseconds.
    pub ahead: Option<(u16, i64)>,
    /// Why the last session ended, if badly; none once a refresh is complete again.
    pub error: Option<String>,
}

impl ConsumerStatus {
    /// The provider has sent something.
    pub fn heard(&mut self, now: Timestamp) {
        self.last_contact = Some(now);
        if self.error.is_none() {
            self.last_in_step = Some(now);
        }
    }

    /// A refresh is complete: the content is the provider's.
    pub fn refreshed(&mut self) {
        (self.phase, self.refreshed, self.error) = (ConsumerPhase::Persisting, true, None);
        self.last_in_step = self.last_contact;
    }

    /// How long the consumer has heard nothing from its provider that it could store, in microseconds: what its content may
    /// lack at most. 0 while changes come as they are made. A consumer that has heard nothing yet counts from `started`, the
    /// server's start.
    pub fn silence(&self, now: Timestamp, started: Timestamp) -> u64 {
        // What another node receives is shown here, too.
        if matches!(self.phase, ConsumerPhase::Persisting | ConsumerPhase::StandingBy) {
            return 0;
        }
        let heard = self.last_in_step.filter(|_| self.refreshed).unwrap_or(started);
        u64::try_from(now.0.saturating_sub(heard.0)).unwrap_or(0)
    }
}

/// The status where its thread writes it and others read it.
#[derive(Debug)]
pub struct Status(Mutex<ConsumerStatus>);

impl Status {
    /// Of a consumer that is about to start: its replica id, the suffix of its database, the URLs of its providers.
    pub fn new(rid: u16, suffix: String, providers: Vec<String>) -> Self {
        Self(Mutex::new(ConsumerStatus { rid, suffix, providers, ..ConsumerStatus::default() }))
    }

    pub fn get(&self) -> ConsumerStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut ConsumerStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_heard_and_not_stored_does_not_make_the_content_newer() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        let silence = |status: &ConsumerStatus, seconds| status.silence(at(seconds), at(0)) / 1_000_000;
        let mut status = ConsumerStatus::default();
        status.heard(at(5));
        assert_eq!(silence(&status, 8), 8, "nothing is complete yet");
        status.refreshed();
        assert_eq!(silence(&status, 8), 0, "changes come as they are made");
        status.phase = ConsumerPhase::Waiting;
        assert_eq!(silence(&status, 8), 3);
        status.error = Some("a change could not be stored".to_owned());
        status.heard(at(20));
        assert_eq!((silence(&status, 22), status.last_contact), (17, Some(at(20))));
        status.refreshed();
        status.phase = ConsumerPhase::Waiting;
        assert_eq!(silence(&status, 22), 2);
    }
}

//! What a `syncrepl` line means: what is asked of the provider, by which rules what it sends is written, and what comes
//! after the end of a session. The runner with its sockets and the simulator decide by it alike.

use std::sync::Arc;

use larix_engine::csn::Csn;
use larix_engine::database::DatabaseSettings;
use larix_engine::replica::{AttributeShare, DeleteLimit, ReplicaRules, ReplicatedPart, Share};
use larix_proto::control::SyncMode;
use larix_proto::{ControlBuf, FilterBuf, Scope};
use larix_schema::{NormalDn, Schema};
use sha2::{Digest, Sha256};

use super::{End, Request};

/// What every entry needs, whatever attributes are asked for.
const NEEDED: [&str; 3] = ["objectClass", "structuralObjectClass", "entryCSN"];

/// One line, as far as it says what is replicated.
#[derive(Clone, Debug)]
pub struct Line {
    /// The replica id, 0 to [`RID_MAX`](crate::RID_MAX).
    pub rid: u16,
    /// Our own server id, where several servers take changes.
    pub sid: Option<u16>,
    pub mode: SyncMode,
    /// At the provider.
    pub base: String,
    /// Here.
    pub local_base: (String, NormalDn),
    pub scope: Scope,
    pub filter: FilterBuf,
    /// Other lines of the database bring other parts of it.
    pub is_part: bool,
    /// Empty: `*` and `+`.
    pub attributes: Vec<String>,
    pub except_attributes: Vec<String>,
    /// Entries; 0 is no limit.
    pub size_limit: u32,
    /// Seconds; 0 is no limit.
    pub time_limit: u32,
    pub schema_checking: bool,
    /// Commits of what comes may be lost with the machine: the provider has it (`lazycommit`).
    pub lazy: bool,
    /// Percent of the entries that one refresh may delete; 100: all.
    pub delete_percent: u8,
    /// Conflicts are settled value by value.
    pub values: bool,
    /// Changes are merged by the states of entries, or will be when the provider keeps these.
    pub states: bool,
    /// That go with the request.
    pub controls: Vec<ControlBuf>,
}

impl Line {
    /// The search for the entries themselves.
    #[must_use]
    pub fn request(&self) -> Request {
        let mut attributes = self.attributes.clone();
        if attributes.is_empty() {
            attributes = vec!["*".to_owned(), "+".to_owned()];
        }
        for needed in NEEDED {
            let has = |name: &String| name == "+" || name.eq_ignore_ascii_case(needed);
            if !attributes.iter().any(has) {
                attributes.push(needed.to_owned());
            }
        }
        Request {
            rid: self.rid,
            sid: self.sid,
            mode: self.mode,
            base: self.base.clone(),
            scope: self.scope,
            filter: self.filter.clone(),
            attributes,
            logged: false,
            values: self.values,
            // A state says nothing of a part.
            states: self.states && self.attributes.is_empty() && self.except_attributes.is_empty(),
            size_limit: self.size_limit,
            time_limit: self.time_limit,
            controls: self.controls.clone(),
        }
    }

    /// What the cookie of one of several lines is kept by: a line that brings another part has another name, whatever its `rid=`.
    #[must_use]
    pub fn part_name(&self) -> String {
        let part = format!("{}\n{:?}\n{}", self.local_base.1.as_str(), self.scope, self.filter.as_filter());
        let digest = Sha256::digest(part.as_bytes());
        let number = digest.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        format!("{:03}-{number:08x}", self.rid)
    }

    /// Whether all of one of the database's suffixes is asked for.
    #[must_use]
    pub fn is_whole(&self, settings: &DatabaseSettings) -> bool {
        self.scope == Scope::Subtree
            && self.filter == FilterBuf::every_entry()
            && settings.suffixes.iter().any(|suffix| suffix.normal == self.local_base.1)
    }

    /// By which rules changes are written. `refresh`: what is sent is judged entry by entry, for it may be what was
    /// missed before.
    #[must_use]
    pub fn rules(&self, schema: &Schema, settings: &DatabaseSettings, refresh: bool) -> ReplicaRules {
        let whole = self.is_whole(settings);
        ReplicaRules {
            schema_checking: self.schema_checking,
            lazy: self.lazy,
            // Another line may have raised the contextCSN.
            drop_covered: !refresh && !self.is_part,
            multi_provider: whole && !settings.shadow,
            places: whole,
            part: self.is_part.then(|| ReplicatedPart {
                name: self.part_name(),
                base: self.local_base.1.clone(),
                scope: self.scope,
            }),
            attributes: Arc::new(AttributeShare::new(schema, &self.attributes, &self.except_attributes)),
            ..ReplicaRules::default()
        }
    }

    /// What of the database is the provider's, and how much of it a present phase may delete. `seen`: the contextCSN that
    /// the phase stands for.
    #[must_use]
    pub fn share(&self, seen: &[Csn]) -> (Share, DeleteLimit) {
        let share = Share {
            base: self.local_base.0.clone(),
            scope: self.scope,
            filter: Some(self.filter.clone()).filter(|filter| *filter != FilterBuf::every_entry()),
            seen: seen.to_vec(),
            whole: false,
            subentries: false,
        };
        (share, DeleteLimit { percent: self.delete_percent, ..DeleteLimit::default() })
    }
}

/// What comes after a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another one when the interval is over.
    Interval,
    /// Another one at once, which asks for everything.
    FullAtOnce,
    /// Another one by the schedule of retries.
    Retry,
}

/// Whether the next session asks for everything, whatever is here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    full: bool,
    /// The session under way came at once behind another.
    at_once: bool,
}

impl Attempts {
    #[must_use]
    pub fn is_full(self) -> bool {
        self.full
    }

    /// The next session goes by what is here: a refresh is complete, or another kind of session comes.
    pub fn start_over(&mut self) {
        self.full = false;
    }

    /// The session under way went on for long after its refresh: how it ends has nothing to do with the one before it.
    pub fn lasted(&mut self) {
        self.at_once = false;
    }

    /// `None`: the connection was lost.
    pub fn after(&mut self, end: Option<&End>) -> Next {
        let was_at_once = std::mem::take(&mut self.at_once);
        match end {
            Some(End::Poll) => {
                self.full = false;
                Next::Interval
            }
            // Asked for twice in a row it is no way out, be it that all came in between: it would come again and again.
            Some(End::FullRefresh | End::NotLogged(_)) if !self.full && !was_at_once => {
                (self.full, self.at_once) = (true, true);
                Next::FullAtOnce
            }
            Some(End::FullRefresh | End::NotLogged(_)) => {
                self.full = true;
                Next::Retry
            }
            _ => Next::Retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use larix_proto::{LdapResult, ResultCode};

    use super::*;

    #[test]
    fn everything_is_asked_for_once() {
        let mut attempts = Attempts::default();
        let mut check = |end: Option<End>, next: Next, full: bool| {
            assert_eq!((attempts.after(end.as_ref()), attempts.is_full()), (next, full), "{end:?}");
        };
        check(Some(End::Poll), Next::Interval, false);
        check(Some(End::FullRefresh), Next::FullAtOnce, true);
        check(Some(End::FullRefresh), Next::Retry, true);
        check(None, Next::Retry, true);
        check(Some(End::Failed(LdapResult::new(ResultCode::BUSY))), Next::Retry, true);
        check(Some(End::Poll), Next::Interval, false);
        check(None, Next::Retry, false);
    }

    #[test]
    fn a_provider_that_asks_for_everything_again_and_again_is_waited_for() {
        let mut attempts = Attempts::default();
        for expected in [Next::FullAtOnce, Next::Retry, Next::FullAtOnce, Next::Retry] {
            assert_eq!((attempts.after(Some(&End::FullRefresh)), attempts.is_full()), (expected, true));
            // The refresh is complete, and then the provider asks for another.
            attempts.start_over();
        }
        assert_eq!((attempts.after(None), attempts.is_full()), (Next::Retry, false));
    }

    #[test]
    fn a_provider_that_asks_for_everything_now_and_then_is_asked_at_once() {
        let mut attempts = Attempts::default();
        for _ in 0..3 {
            assert_eq!(attempts.after(Some(&End::FullRefresh)), Next::FullAtOnce);
            attempts.start_over();
            attempts.lasted();
        }
    }
}

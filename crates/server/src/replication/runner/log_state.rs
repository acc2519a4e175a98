//! How a consumer of an access log stands (`syncdata=accesslog`): whether its next session asks for records of the log, or for the
//! entries themselves because the log did not lead on from here.

use larix_engine::csn::Csn;
use larix_engine::log::CsnVector;

use super::SessionEnd;

/// How often in a row the log may not lead on, and the entries bring nothing, before the next session has to wait.
const IDLE_TURNS_MAX: u32 = 2;

/// The state between sessions, and of the one under way.
#[derive(Debug, Default)]
pub(super) struct LogState {
    /// The next session asks for the entries themselves.
    plain: bool,
    /// How often that was so since a session with the log went well.
    fallbacks: u32,
    /// How often that was so since a change was stored here.
    idle_turns: u32,
    /// The session under way is one with the log.
    logged: bool,
    /// A change of the log was refused here.
    refused: bool,
    /// Of cn=config: how far the sessions of this thread have brought it. What it says of itself is no measure: it was
    /// changed here, too.
    reached: CsnVector,
}

/// What comes after a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    /// What comes after it by its end.
    SessionEnd(SessionEnd),
    /// Another session at once, which asks for the other thing; why, where that is to be told.
    OtherSide(Option<String>),
}

impl LogState {
    /// A session begins. `full`: it asks for everything. Answers whether it asks for records.
    pub(super) fn begin(&mut self, full: bool, known: &[Csn]) -> bool {
        self.logged = !full && !known.is_empty() && !self.plain;
        self.logged
    }

    /// Whether the session under way is one with the log.
    pub(super) fn is_logged(&self) -> bool {
        self.logged
    }

    /// The session under way has brought all that there was.
    pub(super) fn refreshed(&mut self) {
        if self.logged {
            self.fallbacks = 0;
        }
    }

    /// A change was stored here.
    pub(super) fn note_stored(&mut self) {
        self.idle_turns = 0;
    }

    /// Whether neither the log nor the entries bring anything: who turns from the one to the other waits first.
    pub(super) fn turns_idly(&self) -> bool {
        self.idle_turns > IDLE_TURNS_MAX
    }

    /// A change was refused here.
    pub(super) fn note_refused(&mut self) {
        self.refused = self.logged;
    }

    /// The sessions have brought cn=config so far.
    pub(super) fn note_reached(&mut self, csns: &[Csn]) {
        self.reached.extend(csns.iter().copied());
    }

    /// How far a session with the log may say that cn=config is.
    pub(super) fn reached(&self) -> &[Csn] {
        if self.plain { &[] } else { self.reached.as_slice() }
    }

    /// From the log to the entries, when the log does not lead on from here, and back when they were refreshed. The second time in
    /// a row it is a failure, which waits as the others do. `is_empty`: nothing came to be here.
    pub(super) fn after(&mut self, ended: SessionEnd, is_empty: impl FnOnce() -> bool) -> After {
        let refused = std::mem::take(&mut self.refused);
        let why = match (self.logged, ended) {
            (true, SessionEnd::FullRefresh) => "the provider's log does not lead on from here".to_owned(),
            (true, SessionEnd::Failed(why)) if refused => why,
            (false, SessionEnd::Poll) => {
                self.plain = false;
                return match is_empty() {
                    // Its log leads on from nowhere: not at once again.
                    true => {
                        After::SessionEnd(SessionEnd::Failed("the provider has no content yet".to_owned()))
                    }
                    false => After::OtherSide(None),
                };
            }
            (_, ended) => return After::SessionEnd(ended),
        };
        self.plain = true;
        self.fallbacks += 1;
        self.idle_turns = self.idle_turns.saturating_add(1);
        if self.fallbacks > 1 {
            return After::SessionEnd(SessionEnd::Failed(why));
        }
        After::OtherSide(Some(format!("{why}: the entries themselves are asked for")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: &str = "the provider's log does not lead on from here";

    fn csn() -> Csn {
        Csn { time: larix_engine::time::Timestamp(1), count: 0, server_id: 1, modification: 0 }
    }

    fn failed(why: &str) -> After {
        After::SessionEnd(SessionEnd::Failed(why.to_owned()))
    }

    fn fallen(why: &str) -> After {
        After::OtherSide(Some(format!("{why}: the entries themselves are asked for")))
    }

    #[test]
    fn what_a_session_asks_for() {
        for (full, known, plain, logged) in [
            (false, vec![csn()], false, true),
            (true, vec![csn()], false, false),
            (false, vec![], false, false),
            (false, vec![csn()], true, false),
        ] {
            let mut log = LogState { plain, ..LogState::default() };
            assert_eq!(log.begin(full, &known), logged, "full {full}, known {known:?}, plain {plain}");
            assert_eq!(log.is_logged(), logged);
        }
    }

    #[test]
    fn what_comes_after_a_session() {
        let check =
            |logged: bool, refused: bool, ended: SessionEnd, is_empty: bool, after: After, plain: bool| {
                let case = format!("logged {logged}, refused {refused}, {ended:?}, empty {is_empty}");
                let mut log = LogState { plain: !logged, logged, ..LogState::default() };
                if refused {
                    log.note_refused();
                }
                assert_eq!(log.after(ended, || is_empty), after, "{case}");
                assert_eq!(log.plain, plain, "{case}");
            };
        let lost = || SessionEnd::Failed("lost".to_owned());
        check(true, false, SessionEnd::FullRefresh, false, fallen(GAP), true);
        check(true, true, lost(), false, fallen("lost"), true);
        check(true, false, lost(), false, failed("lost"), false);
        check(true, false, SessionEnd::Poll, false, After::SessionEnd(SessionEnd::Poll), false);
        check(false, false, SessionEnd::Poll, false, After::OtherSide(None), false);
        check(false, false, SessionEnd::Poll, true, failed("the provider has no content yet"), false);
        // What was refused of the entries is no reason to ask for them again.
        check(false, true, lost(), false, failed("lost"), true);
        check(false, false, SessionEnd::FullRefresh, false, After::SessionEnd(SessionEnd::FullRefresh), true);
    }

    #[test]
    fn the_second_time_in_a_row_is_a_failure() {
        let mut log = LogState::default();
        let mut sessions = |refreshed: bool| {
            assert!(log.begin(false, &[csn()]));
            if refreshed {
                log.refreshed();
            }
            let after = log.after(SessionEnd::FullRefresh, || false);
            assert!(!log.begin(false, &[csn()]));
            // That the entries were refreshed says nothing of the log.
            log.refreshed();
            assert_eq!(log.after(SessionEnd::Poll, || false), After::OtherSide(None));
            after
        };
        assert_eq!(sessions(false), fallen(GAP));
        assert_eq!(sessions(false), failed(GAP));
        assert_eq!(sessions(true), fallen(GAP));
    }

    #[test]
    fn turns_that_bring_nothing_are_noticed() {
        let mut log = LogState::default();
        let turn = |log: &mut LogState| {
            assert!(log.begin(false, &[csn()]));
            log.refreshed();
            assert_eq!(log.after(SessionEnd::FullRefresh, || false), fallen(GAP));
            let is_idle = log.turns_idly();
            assert!(!log.begin(false, &[csn()]));
            assert_eq!(log.after(SessionEnd::Poll, || false), After::OtherSide(None));
            is_idle
        };
        assert_eq!(
            [turn(&mut log), turn(&mut log), turn(&mut log), turn(&mut log)],
            [false, false, true, true]
        );
        log.note_stored();
        assert!(!turn(&mut log));
    }

    #[test]
    fn of_the_configuration_nothing_is_known_while_its_entries_are_asked_for() {
        let mut log = LogState::default();
        log.note_reached(&[csn()]);
        assert_eq!(log.reached(), [csn()]);
        log.plain = true;
        assert_eq!(log.reached(), []);
    }
}

//! One `syncrepl` line at work: the session of the consumer, the search of the provider, and the connection between them.
//!
//! What is sent goes through two queues of bytes. Nothing in them overtakes; how late it comes, and in which pieces, is
//! chance. A connection that is lost takes with it what was in them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larix_engine::ServedDatabase;
use larix_engine::controls::{OperationKind, RequestControls};
use larix_engine::log::Follower;
use larix_engine::replica::{ApplyOutcome, DeleteOutcome, ReplicaRules, ReplicatedBatch};
use larix_engine::search::{Budget, SearchInput, SearchTask};
use larix_engine::time::Clock as _;
use larix_proto::{Frame, Message, MessageId, Request, Response, ResponseOp, encode, frame, limits};
use larix_replication::consumer::{Action, Attempts, End, Line, Next, Session};
use larix_replication::provider::{ConsumerRequest, SliceOutcome, Start, SyncSearch};
use larix_schema::NormalDn;
use larix_store::Store as _;

use crate::log::Side;
use crate::node::{Memory, Node};
use crate::random::{Random, Trace};

/// Bytes that wait in a connection before the provider stops.
const WINDOW: usize = 8 << 10;

pub(crate) struct Link {
    pub(crate) provider: usize,
    pub(crate) consumer: usize,
    pub(crate) line: Line,
    attempts: Attempts,
    pub(crate) connection: Option<Connection>,
    /// Nobody gets through.
    pub(crate) cut: bool,
    /// What is sent does not arrive, and neither side notices.
    pub(crate) silent: bool,
    /// Of an access log; none for entries.
    pub(crate) side: Option<Side>,
}

pub(crate) struct Connection {
    session: Session,
    search: Option<SyncSearch<Memory>>,
    notified: Arc<AtomicBool>,
    more: bool,
    to_provider: VecDeque<u8>,
    to_consumer: VecDeque<u8>,
    /// What the consumer has read and is no whole message yet.
    read: Vec<u8>,
    full: bool,
}

impl Link {
    pub(crate) fn new(provider: usize, consumer: usize, line: Line) -> Self {
        let attempts = Attempts::default();
        let (connection, side) = (None, None);
        Self { provider, consumer, line, attempts, connection, cut: false, silent: false, side }
    }

    fn name(&self) -> String {
        format!("{}->{}", self.provider, self.consumer)
    }

    /// The consumer begins a session.
    pub(crate) fn connect(&mut self, nodes: &[Node], trace: &mut Trace) {
        let node = &nodes[self.consumer];
        let full = self.attempts.is_full();
        let known = node.csns();
        let request = match &mut self.side {
            Some(side) => side.request(&self.line, full, &known),
            None => self.line.request(),
        };
        let mut session = Session::new(request, None, known, full);
        let mut request = Vec::new();
        trace.note(format_args!("{} connects, {}", self.name(), session.cookie()));
        session.request(&mut request, MessageId(2));
        self.connection = Some(Connection {
            session,
            search: None,
            notified: Arc::new(AtomicBool::new(true)),
            more: true,
            to_provider: request.into(),
            to_consumer: VecDeque::new(),
            read: Vec::new(),
            full,
        });
    }

    /// The connection is lost: the consumer keeps what it has read.
    pub(crate) fn lose(&mut self, nodes: &[Node], trace: &mut Trace) {
        let Some(mut connection) = self.connection.take() else { return };
        trace.note(format_args!("{} is lost", self.name()));
        if let Some(action) = connection.session.flush() {
            let _ = self.carry_out(nodes, action, connection.full, trace);
        }
        self.attempts.after(None);
    }

    /// A server has died.
    pub(crate) fn drop_connection(&mut self) {
        if self.connection.take().is_some() {
            self.attempts.after(None);
        }
    }

    /// A server was started anew: what it remembers of attempts is gone.
    pub(crate) fn forget(&mut self) {
        self.attempts = Attempts::default();
        self.side.iter_mut().for_each(|side| *side = Side::default());
    }

    /// Bytes come to the provider, which begins to search.
    pub(crate) fn reach_provider(&mut self, nodes: &[Node], trace: &mut Trace) {
        let name = self.name();
        let Some(connection) = &mut self.connection else { return };
        if connection.search.is_some() || connection.to_provider.is_empty() {
            return;
        }
        let request: Vec<u8> = connection.to_provider.drain(..).collect();
        connection.search = Some(begin(&nodes[self.provider], &request, &connection.notified));
        trace.note(format_args!("{name} is asked"));
    }

    /// The provider goes on for a slice.
    pub(crate) fn step(&mut self, nodes: &[Node], random: &mut Random, trace: &mut Trace) {
        let name = self.name();
        let Some(connection) = &mut self.connection else { return };
        let Some(search) = &mut connection.search else { return };
        if connection.to_consumer.len() > WINDOW {
            return;
        }
        let is_notified = connection.notified.swap(false, Ordering::SeqCst);
        if !(connection.more || is_notified) {
            return;
        }
        let clock = &*nodes[self.provider].clock;
        let (candidates, bytes) = (1 + random.below(60) as u32, 1 + random.below(6_000));
        let mut out = Vec::new();
        let stepped = search.step(Budget { candidates, nanos: u64::MAX, bytes, clock }, &mut out);
        connection.more = matches!(stepped, SliceOutcome::More);
        if let SliceOutcome::Done(result, controls) = stepped {
            trace.note(format_args!("{name} ends: {}", result.code.0));
            encode::result(&mut out, MessageId(2), ResponseOp::SearchDone, &result, &controls);
            connection.search = None;
        }
        if !out.is_empty() {
            trace.note(format_args!("{name} sends {}", out.len()));
        }
        connection.to_consumer.extend(out);
    }

    /// Bytes come to the consumer. `calm`: all that was sent, and then nothing for a while.
    pub(crate) fn reach_consumer(
        &mut self,
        nodes: &[Node],
        calm: bool,
        random: &mut Random,
        trace: &mut Trace,
    ) {
        let Some(connection) = &mut self.connection else { return };
        let waiting = connection.to_consumer.len();
        let count = if calm { waiting } else { random.below(waiting + 1) };
        connection.read.extend(connection.to_consumer.drain(..count));
        while let Some(connection) = &mut self.connection {
            let Frame::Complete { len } = frame(&connection.read, limits::PDU_CEILING).unwrap() else {
                break;
            };
            let pdu: Vec<u8> = connection.read.drain(..len).collect();
            let message = Response::decode_message(&pdu).unwrap();
            let (actions, full) = (connection.session.receive(&message), connection.full);
            if !self.carry_out_all(nodes, actions, full, trace) {
                return;
            }
        }
        let Some(connection) = &mut self.connection else { return };
        let pause = calm || random.once_in(4);
        if connection.session.flushes(false) || pause {
            let (action, full) = (connection.session.flush(), connection.full);
            self.carry_out_all(nodes, action.into_iter().collect(), full, trace);
        }
    }

    /// Answers whether the session goes on.
    fn carry_out_all(&mut self, nodes: &[Node], actions: Vec<Action>, full: bool, trace: &mut Trace) -> bool {
        for action in actions {
            match self.carry_out(nodes, action, full, trace) {
                Ok(None) => {}
                Ok(Some(end)) => {
                    if self.side.as_mut().is_some_and(|side| side.changes(Some(&end))) {
                        trace.note(format_args!("{}: {end:?}, the other side", self.name()));
                        self.connection = None;
                        self.attempts.start_over();
                        return false;
                    }
                    let next = self.attempts.after(Some(&end));
                    trace.note(format_args!("{}: {end:?}, {next:?}", self.name()));
                    self.connection = None;
                    if next == Next::FullAtOnce {
                        self.connect(nodes, trace);
                    }
                    return false;
                }
                Err(why) => {
                    trace.note(format_args!("{} fails: {why}", self.name()));
                    self.connection = None;
                    if self.side.as_mut().is_some_and(|side| side.changes(None)) {
                        self.attempts.start_over();
                        return false;
                    }
                    self.attempts.after(None);
                    return false;
                }
            }
        }
        true
    }

    fn carry_out(
        &mut self,
        nodes: &[Node],
        action: Action,
        full: bool,
        trace: &mut Trace,
    ) -> Result<Option<End>, String> {
        let logged = self.side.as_ref().is_some_and(|side| side.logged);
        match action {
            Action::Apply { changes, csns, refreshing, provider, .. } => {
                // Records of a log may come in any order: each is judged by what is here.
                let rules = self.rules(nodes, refreshing || logged || full);
                let whole = (refreshing || nodes[self.consumer].merges_records()) && !logged;
                self.apply(nodes, (changes, csns), ReplicaRules { provider, whole, ..rules }, trace)?;
            }
            Action::DeleteAbsent { present, csns, deletes_told, .. } => {
                let (share, limit) = self.line.share(&csns);
                match nodes[self.consumer].delete_absent(&share, &present, limit) {
                    DeleteOutcome::Deleted(count) => {
                        trace.note(format_args!("{} deletes {count} of what is absent", self.name()));
                    }
                    other => return Err(format!("{other:?}")),
                }
                let rules = self.rules(nodes, true);
                let by_content = !deletes_told && rules.multi_provider;
                let rules = ReplicaRules { by_content, whole: true, ..rules };
                self.apply(nodes, (Vec::new(), csns), rules, trace)?;
            }
            Action::KeepStates => nodes[self.consumer].keep_states(),
            Action::Refreshed => {
                self.attempts.start_over();
                trace.note(format_args!("{} is refreshed", self.name()));
            }
            Action::End(end) => return Ok(Some(end)),
            Action::Note(note) => trace.note(format_args!("{}: {note}", self.name())),
        }
        Ok(None)
    }

    fn rules(&self, nodes: &[Node], refresh: bool) -> ReplicaRules {
        let node = &nodes[self.consumer];
        self.line.rules(&node.schema, &node.database().current_settings(), refresh)
    }

    fn apply(
        &mut self,
        nodes: &[Node],
        (changes, context_csns): (Vec<larix_engine::replica::ReplicatedChange>, Vec<larix_engine::csn::Csn>),
        rules: ReplicaRules,
        trace: &mut Trace,
    ) -> Result<(), String> {
        let node = &nodes[self.consumer];
        let csns: Vec<String> = context_csns.iter().map(|csn| csn.text()).collect();
        trace.note(format_args!("{} applies {} up to {}", self.name(), changes.len(), csns.join(";")));
        for change in &changes {
            trace.note(format_args!("    {}", crate::changes::shown(change)));
        }
        let outcome = node.replicate(ReplicatedBatch { changes, context_csns, rules });
        let mut refused = None;
        for applied in &outcome.changes {
            match applied {
                ApplyOutcome::Done => {}
                ApplyOutcome::Older => trace.note(format_args!("    older")),
                ApplyOutcome::Conflict(note) => {
                    trace.note(format_args!("    conflict {:?} {:?} {}", note.kind, note.kept, note.dn));
                }
                ApplyOutcome::Refused(result) => refused = Some(format!("refused: {result}")),
            }
        }
        assert!(outcome.result.is_success(), "{outcome:?}");
        if let Some(side) = self.side.as_mut().filter(|side| side.logged) {
            side.refused |= refused.is_some();
        }
        refused.map_or(Ok(()), Err)
    }
}

/// The search as the server makes it of its request.
fn begin(node: &Node, request: &[u8], notified: &Arc<AtomicBool>) -> SyncSearch<Memory> {
    let message = Message::decode(request).unwrap();
    let Request::Search(search) = message.request else { panic!("no search") };
    let controls = RequestControls::parse(message.controls, OperationKind::Search).unwrap();
    let any_entry = search.filter.to_string().eq_ignore_ascii_case("(objectClass=*)");
    let part = |(served, base): (&Arc<ServedDatabase<Memory>>, NormalDn)| {
        let database = served.database();
        let snapshot = database.store().snapshot().unwrap();
        let view = database.view(&snapshot).unwrap();
        let input = SearchInput {
            message: message.id,
            base,
            request: search,
            controls: controls.clone(),
            subject: Arc::new(node.root()),
            limits: None,
            default_referrals: None,
            cookie_secret: *database.cookie_secret(),
            now: node.clock.monotonic(),
        };
        (Arc::clone(served), SearchTask::new(&view, input).map_err(|(result, _)| result).unwrap())
    };
    // What was answered before is in the log that is searched.
    node.record(usize::MAX);
    let parts = node.parts(search.base).into_iter().map(part).collect();
    let asked = ConsumerRequest::new(controls.sync.as_ref().unwrap());
    let (queue, values, states) = (node.queue.clone(), controls.value_conflicts, controls.states);
    let mut search =
        SyncSearch::new(Start { asked, parts, any_entry, values, states, elsewhere: false, queue });
    let notified = Arc::clone(notified);
    search.follow(Follower::new(Box::new(move || notified.store(true, Ordering::SeqCst))));
    search
}

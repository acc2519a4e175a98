//! For tests of overlays: settings from lines of slapd.conf, and a directory in memory behind overlays.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

pub(crate) mod requests;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use larix_engine::compare::{CompareContext, compare};
use larix_engine::controls::RequestControls;
use larix_engine::index::IndexConfig;
use larix_engine::overlay::committed::ChangeOrigin;
use larix_engine::overlay::descriptor::{Form, Piece, Values};
use larix_engine::overlay::settings::{SettingError, Settings, Value};
use larix_engine::overlay::{BuildContext, Descriptor, Overlay, OverlayDirective};
use larix_engine::password::{Hasher, Scheme};
use larix_engine::search::{Budget, SearchInput, SearchTask, Step};
use larix_engine::time::Clock;
use larix_engine::{CommittedFollower, ServedDatabase, Writers};
use larix_proto::client::{self, Search};
use larix_proto::{CompareRequest, FilterBuf, Frame, Message, MessageId, Request, Response, Scope, frame};
use larix_schema::Schema;
use larix_store::Store;
use larix_store::memory::MemoryStore;

pub(crate) use crate::fixture::*;

/// The settings that these lines make: a keyword each, and words, with double quotes around those that have blanks in them.
pub(crate) fn settings_of(descriptor: &Descriptor, lines: &str) -> Settings {
    let mut given = Settings::default();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = words(line);
        let keyword = words.first().unwrap().clone();
        let is_it = |name: &str| name.eq_ignore_ascii_case(&keyword);
        let begins = |directive: &OverlayDirective| {
            directive.prefix > 0
                && keyword.get(..directive.prefix) == directive.keyword.get(..directive.prefix)
        };
        let is_known = |directive: &&OverlayDirective| {
            is_it(directive.keyword) || directive.aliases.iter().any(|alias| is_it(alias))
        };
        let directive = descriptor.directives.iter().find(is_known);
        let directive = directive.or_else(|| descriptor.directives.iter().find(|known| begins(known)));
        let directive = directive.unwrap_or_else(|| panic!("no directive `{keyword}`"));
        if directive.form != Form::Command {
            words.remove(0);
        }
        if !directive.pieces.is_empty() {
            words = Piece::words(directive.pieces, &words);
        }
        if directive.form == Form::Each {
            for word in words {
                given.add(directive.attribute, Value { text: word.clone(), words: vec![word] });
            }
            continue;
        }
        let text = match directive.form {
            Form::Switch => {
                words.first().map_or("TRUE", |word| if is_off(word) { "FALSE" } else { "TRUE" }).to_owned()
            }
            Form::Whole | Form::Words | Form::Command | Form::Each => words.join(" "),
        };
        assert!(
            directive.values != Values::One || given.text(directive.attribute).is_none(),
            "{line}: twice"
        );
        given.add(directive.attribute, Value { text, words });
    }
    given
}

fn is_off(word: &str) -> bool {
    ["off", "false", "no"].iter().any(|off| off.eq_ignore_ascii_case(word))
}

fn words(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => all.push(String::new()),
            other => all.last_mut().unwrap().push(other),
        }
    }
    all
}

/// Builds an overlay as for a database with the suffix and the root DN of [`Fixture`], `lastmod` and `lastbind` on.
pub(crate) fn build(
    descriptor: &Descriptor,
    schema: &Arc<Schema>,
    lines: &str,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let build = descriptor.build.expect("an overlay of databases");
    with_context(schema, |context| build(&settings_of(descriptor, lines), context))
}

pub(crate) fn with_context<T>(schema: &Arc<Schema>, then: impl FnOnce(&BuildContext<'_>) -> T) -> T {
    let suffixes = [schema.parse_dn(SUFFIX).unwrap()];
    let root = schema.parse_dn(ROOT).unwrap();
    then(&BuildContext {
        schema,
        suffixes: &suffixes,
        shown_suffix: SUFFIX,
        root_dn: Some((&root, ROOT)),
        last_modified: true,
        last_bind: true,
        last_bind_precision: 0,
        last_bind_asserts: false,
        hasher: &Hasher::new(Scheme::SSHA),
        index: &IndexConfig::default(),
        maintained: &[],
        others: &[],
        forwards: None,
        receives: false,
    })
}

/// The same once more, to be altered.
pub(crate) fn copied<'c>(context: &BuildContext<'c>) -> BuildContext<'c> {
    BuildContext { ..*context }
}

/// A directory in memory, empty, behind overlays with the settings that their lines make.
pub(crate) fn directory(overlays: &[(&Descriptor, &str)]) -> Fixture<MemoryStore> {
    ruled(overlays, &[])
}

/// The same under access rules; without any everybody may do everything.
pub(crate) fn ruled(overlays: &[(&Descriptor, &str)], rules: &[&str]) -> Fixture<MemoryStore> {
    ruled_with(larix_schema::bundled("dyngroup").unwrap(), overlays, rules)
}

/// The same with more definitions.
pub(crate) fn ruled_with(
    definitions: &str,
    overlays: &[(&Descriptor, &str)],
    rules: &[&str],
) -> Fixture<MemoryStore> {
    let mut definitions = vec![definitions];
    definitions.extend(overlays.iter().map(|(descriptor, _)| descriptor.schema));
    let schema = schema(&definitions.join("\n"));
    let mut settings = settings(&schema);
    if !rules.is_empty() {
        settings.policy = Some(policy(&schema, rules));
    }
    for (descriptor, lines) in overlays {
        let overlay = build(descriptor, &schema, lines).unwrap_or_else(|error| panic!("{error}"));
        for (attribute, kinds) in overlay.indexes() {
            settings.index.also(attribute, kinds);
        }
        settings.overlays.push(overlay);
    }
    Fixture::of(schema, vec![(memory(), settings)])
}

/// What a search of the whole directory answers: `rdn: attribute=value|value, attribute=value; rdn: ...`, sorted, and a result
/// that is not success before it.
pub(crate) fn found<S: Store>(fixture: &Fixture<S>, filter: &str, attributes: &[&str]) -> String {
    let filter = FilterBuf::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    let search = Search { attributes, ..Search::new(SUFFIX, Scope::Subtree, filter.as_filter()) };
    let mut pdu = Vec::new();
    client::search(&mut pdu, MessageId(1), &search, &[]);
    let Request::Search(request) = Message::decode(&pdu).unwrap().request else { panic!("not a search") };
    let database = fixture.database();
    let snapshot = database.store().snapshot().unwrap();
    let view = database.view(&snapshot).unwrap();
    let input = SearchInput {
        message: MessageId(1),
        request,
        base: fixture.schema.parse_dn(SUFFIX).unwrap(),
        controls: RequestControls::default(),
        subject: Arc::clone(&fixture.subject),
        limits: None,
        default_referrals: None,
        cookie_secret: *database.cookie_secret(),
        now: fixture.clock.monotonic(),
    };
    let mut task = SearchTask::new(&view, input).unwrap_or_else(|(result, _)| panic!("{result:?}"));
    let mut out = Vec::new();
    loop {
        let budget = Budget { candidates: 1000, bytes: usize::MAX, nanos: u64::MAX, clock: &*fixture.clock };
        if let Step::Done(result, _) = task.step(&view, &mut out, budget) {
            let entries = shown(&out);
            return match result.code.0 {
                0 => entries,
                code => format!("{code} {} {entries}", result.diagnostic),
            };
        }
    }
}

fn shown(mut out: &[u8]) -> String {
    let mut entries = Vec::new();
    while !out.is_empty() {
        let Ok(Frame::Complete { len }) = frame(out, usize::MAX) else { panic!("half a message") };
        let (pdu, rest) = out.split_at(len);
        out = rest;
        let Response::Entry(entry) = Response::decode_message(pdu).unwrap().response else { continue };
        let mut attributes: Vec<String> = Vec::new();
        for attribute in entry.attributes.iter() {
            let mut values: Vec<_> =
                attribute.values.iter().map(|value| short(&String::from_utf8_lossy(value))).collect();
            values.sort();
            attributes.push(format!("{}={}", attribute.description, values.join("|")));
        }
        attributes.sort();
        let head = if attributes.is_empty() { "" } else { ": " };
        entries.push(format!("{}{head}{}", short(entry.dn), attributes.join(", ")));
    }
    entries.sort();
    entries.join("; ")
}

/// A name below the suffix as its first value alone.
fn short(text: &str) -> String {
    let Some(name) = text.strip_suffix(SUFFIX) else { return text.to_owned() };
    let first = name.split(',').next().and_then(|rdn| rdn.split('=').nth(1));
    first.unwrap_or("suffix").to_owned()
}

/// The code that a compare is answered with.
pub(crate) fn compared(fixture: &Fixture<MemoryStore>, dn: &str, attribute: &str, value: &str) -> u32 {
    let database = fixture.database();
    let snapshot = database.store().snapshot().unwrap();
    let view = database.view(&snapshot).unwrap();
    let controls = RequestControls::default();
    let context = CompareContext { controls: &controls, subject: &fixture.subject, default_referrals: &[] };
    let request = CompareRequest { entry: dn, attribute, value: value.as_bytes() };
    compare(&view, &context, &fixture.schema.parse_dn(dn).unwrap(), &request).code.0
}

/// An overlay of a directory that is handed what is committed, as its thread would.
pub(crate) struct Followed {
    served: Arc<ServedDatabase<MemoryStore>>,
    follower: CommittedFollower<MemoryStore>,
    overlay: Arc<dyn Overlay>,
    writers: Writers<MemoryStore>,
    woken: Receiver<()>,
}

impl Followed {
    pub(crate) fn new(fixture: &Fixture<MemoryStore>, overlay: &str) -> Self {
        Self::of_database(fixture, 0, overlay)
    }

    /// The overlay of this database of several.
    pub(crate) fn of_database(fixture: &Fixture<MemoryStore>, at: usize, overlay: &str) -> Self {
        let served = Arc::clone(&fixture.directory.databases()[at]);
        let writers = Writers::of(fixture.directory.databases());
        let database = served.database();
        let (wake, woken) = mpsc::channel();
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || wake.send(()).unwrap_or_default());
        let waiting = CommittedFollower::join(&served, overlay, Arc::clone(&wake)).unwrap();
        // Requesters hear first: it begins behind what was made before.
        while database.following().answered().sequence < database.writes().log_last() {
            woken.recv().unwrap();
        }
        drop(waiting);
        let follower = CommittedFollower::join(&served, overlay, wake).unwrap();
        let settings = served.database().settings();
        let overlay = Arc::clone(settings.overlays.iter().find(|o| o.name() == overlay).unwrap());
        follower.begin(overlay.committed().unwrap()).unwrap();
        Self { served, follower, overlay, writers, woken }
    }

    /// Has it begin anew, as behind a crash: changes that it has not caught up with are made already.
    pub(crate) fn begin_again(&self) {
        self.follower.begin(self.overlay.committed().unwrap()).unwrap();
    }

    /// Has it take all that is in the change log, as sent from there; what it has the log tell.
    pub(crate) fn catch_up(&mut self, origin: Option<Arc<ChangeOrigin>>) -> Vec<String> {
        let mut reports = Vec::new();
        let last = self.served.database().writes().log_last();
        loop {
            let round = self
                .follower
                .round(self.overlay.committed().unwrap(), &|_| origin.clone(), &self.writers)
                .unwrap();
            assert_eq!(round.not_taken, None);
            reports.extend(round.reports);
            if self.follower.reached() >= last {
                return reports;
            }
            // Requesters hear first.
            self.woken.recv().unwrap();
        }
    }
}

//! Servers, the lines between them, and what happens to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use larix_engine::log::LogRetention;
use larix_engine::time::{Clock as _, Timestamp};
use larix_proto::control::SyncMode;
use larix_proto::{FilterBuf, Scope};
use larix_replication::consumer::Line;
use larix_schema::Schema;

use crate::changes::{Promises, add};
use crate::link::Link;
use crate::log::Side;
use crate::node::{Kind, Node, SUFFIX, Shown};
use crate::random::{Random, Trace};
use crate::setup::Setup;

/// What a part has of the whole.
const PART_FILTER: &str = "(objectClass=device)";
const PART_ATTRIBUTES: [&str; 2] = ["cn", "description"];
/// After so many rounds in a whole network nothing may happen any more.
const ROUNDS_MAX: usize = 120;
const MINUTE: i64 = 60_000_000;

pub(crate) struct World {
    nodes: Vec<Node>,
    links: Vec<Link>,
    random: Random,
    pub(crate) trace: Trace,
    promises: Promises,
    setup: Setup,
    /// The log may forget what others have not heard of.
    forgets: bool,
}

impl World {
    pub(crate) fn new(schema: &Arc<Schema>, seed: u64, setup: Setup, keep: bool) -> Self {
        let mut random = Random::new(seed);
        let forgets = random.once_in(4);
        let size = forgets.then_some(2_000 + random.below(20_000) as u64);
        let retention = LogRetention { age: None, size };
        let members = if setup.alone { 1 } else { 2 + random.below(4) };
        let mut kinds = vec![Kind::Member; members];
        let follow = setup.alone || setup.delta;
        let shadows = if follow { 1 + random.below(3) } else { usize::from(random.once_in(3)) };
        kinds.resize(members + shadows, Kind::Shadow);
        // Value by value whole entries are taken.
        if random.once_in(3) && !setup.values {
            kinds.push(Kind::Part);
        }
        let node = |(at, kind): (usize, &Kind)| {
            // Whom nobody else follows that takes changes needs no id.
            let has_id = *kind == Kind::Member && !(setup.alone && seed.is_multiple_of(2));
            let id = if has_id { at as u16 + 1 } else { 0 };
            Node::new(schema, (id, *kind), setup, seed ^ (at as u64) << 8, retention)
        };
        let nodes: Vec<Node> = kinds.iter().enumerate().map(node).collect();
        let (links, promises) = (Vec::new(), Promises::default());
        let mut world = Self { nodes, links, random, trace: Trace::default(), promises, setup, forgets };
        world.trace.keep = keep;
        world.connect_members(members);
        for (at, kind) in kinds.iter().enumerate().skip(members) {
            // A lone provider is followed by way of others, too.
            let providers = if setup.alone && !setup.delta { at.min(members + shadows) } else { members };
            let provider = world.random.below(providers);
            world.add_link(provider, at, *kind);
            if *kind == Kind::Shadow && !setup.alone && world.random.once_in(2) {
                let another = world.random.below(providers);
                if another != provider {
                    world.add_link(another, at, *kind);
                }
            }
        }
        world.begin();
        world
    }

    /// Mesh, line, ring or star.
    fn connect_members(&mut self, members: usize) {
        let shape = self.random.below(5);
        self.trace.note(format_args!("{members} members, shape {shape}"));
        for from in 0..members {
            for to in 0..members {
                let (low, high) = (from.min(to), from.max(to));
                let ends = low == 0 && high == members - 1;
                let joined = match shape {
                    0 => true,
                    1 => high - low == 1,
                    2 => high - low == 1 || ends,
                    3 => (from + 1) % members == to,
                    _ => low == 0,
                };
                if from != to && joined {
                    self.add_link(from, to, Kind::Member);
                }
            }
        }
    }

    fn add_link(&mut self, provider: usize, consumer: usize, kind: Kind) {
        let polls = self.random.once_in(4);
        let part = kind == Kind::Part;
        let schema = Arc::clone(&self.nodes[consumer].schema);
        let filter = if part { FilterBuf::parse(PART_FILTER).unwrap() } else { FilterBuf::every_entry() };
        let lazy = self.setup.lossy && self.random.once_in(2);
        let attributes = if part { PART_ATTRIBUTES.map(str::to_owned).to_vec() } else { Vec::new() };
        let line = Line {
            rid: self.links.len() as u16 + 1,
            sid: (kind == Kind::Member).then_some(self.nodes[consumer].id),
            mode: if polls { SyncMode::RefreshOnly } else { SyncMode::RefreshAndPersist },
            base: SUFFIX.to_owned(),
            local_base: (SUFFIX.to_owned(), schema.parse_dn(SUFFIX).unwrap()),
            scope: Scope::Subtree,
            filter,
            is_part: false,
            attributes,
            except_attributes: Vec::new(),
            size_limit: 0,
            time_limit: 0,
            schema_checking: false,
            lazy,
            delete_percent: 100,
            values: self.setup.values,
            states: !part,
            controls: Vec::new(),
        };
        let mut link = Link::new(provider, consumer, line);
        let follows_log = kind == Kind::Shadow || kind == Kind::Member && self.setup.delta_ring;
        if self.setup.delta && follows_log && !(self.setup.mixed && self.random.once_in(2)) {
            link.side = Some(Side::default());
            self.nodes[consumer].follow_logs();
        }
        self.links.push(link);
    }

    fn begin(&mut self) {
        for (dn, class, name) in [
            (SUFFIX, "domain", "dc"),
            ("ou=a,dc=example,dc=com", "organizationalUnit", "ou"),
            ("ou=b,dc=example,dc=com", "organizationalUnit", "ou"),
        ] {
            let value = dn.split(['=', ',']).nth(1).unwrap();
            let before = self.nodes[0].content();
            let result = self.nodes[0].change(add(dn, &[("objectClass", class), (name, value)]));
            assert!(result.is_success(), "{result:?}");
            self.promises.keep(&before, &self.nodes[0].content());
        }
        // Some begin as copies, the others are filled while they work.
        // A server that learns only from entries that states are kept does not know when earlier changes were made.
        if self.setup.mixed || self.random.once_in(2) {
            self.settle();
        }
        for node in &self.nodes {
            let skew = self.random.below(20) as i64 - 10;
            node.clock.set(Timestamp(node.clock.now().0 + skew * MINUTE));
        }
    }

    /// One thing happens.
    pub(crate) fn step(&mut self) {
        let Self { nodes, links, random, trace, promises, .. } = self;
        for node in nodes.iter() {
            node.clock.advance_micros([1, 700, 40_000, 2_000_000][random.below(4)]);
        }
        if self.setup.delta {
            nodes[random.below(nodes.len())].record(1 + random.below(8));
        }
        match random.below(100) {
            0..20 => {
                let node = random.below(nodes.len());
                promises.change(&nodes[node], self.setup, random, trace);
            }
            20..92 => {
                let at = random.below(links.len());
                work(&mut links[at], nodes, random, trace);
            }
            92..95 => {
                let at = random.below(links.len());
                links[at].cut = !links[at].cut;
                if links[at].cut {
                    links[at].lose(nodes, trace);
                }
            }
            95..97 => {
                let at = random.below(links.len());
                links[at].silent = !links[at].silent;
                if !links[at].silent && random.once_in(2) {
                    links[at].lose(nodes, trace);
                }
            }
            97 => {
                let node = random.below(nodes.len());
                let by = random.below(10 * MINUTE as usize) as i64 - 5 * MINUTE;
                let clock = &nodes[node].clock;
                clock.set(Timestamp(clock.now().0 + by));
            }
            98 => self.restart(),
            _ => self.part(),
        }
    }

    fn restart(&mut self) {
        let at = self.random.below(self.nodes.len());
        let dies = self.setup.lossy && self.random.once_in(2);
        self.trace.note(format_args!("{at} is started again"));
        for link in &mut self.links {
            if link.consumer == at {
                link.drop_connection();
                link.forget();
            } else if link.provider == at {
                link.lose(&self.nodes, &mut self.trace);
            }
        }
        if dies {
            let lost = self.nodes[at].crash(&mut self.random);
            self.trace.note(format_args!("it has lost {lost} commits"));
        } else {
            self.nodes[at].start();
        }
    }

    /// One server hears of nobody any more, or all do again.
    fn part(&mut self) {
        let at = self.random.below(self.nodes.len());
        let cut = self.random.once_in(2);
        self.trace.note(format_args!("{at} is alone: {cut}"));
        for link in &mut self.links {
            link.cut = cut && (link.provider == at || link.consumer == at);
            if link.cut {
                link.lose(&self.nodes, &mut self.trace);
            }
        }
    }

    /// The network is whole: everybody hears everything. Answers whether it became quiet.
    pub(crate) fn settle(&mut self) -> bool {
        let Self { nodes, links, random, trace, .. } = self;
        for link in links.iter_mut() {
            link.cut = false;
            if std::mem::take(&mut link.silent) {
                link.lose(nodes, trace);
            }
        }
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            let before: Vec<_> = nodes.iter().map(Node::state).collect();
            for link in links.iter_mut() {
                for node in nodes.iter() {
                    node.clock.advance_micros(1_000);
                    node.record(usize::MAX);
                }
                if link.connection.is_none() {
                    link.connect(nodes, trace);
                }
                for _ in 0..40 {
                    link.reach_provider(nodes, trace);
                    link.step(nodes, random, trace);
                    link.reach_consumer(nodes, true, random, trace);
                }
            }
            let behind: Vec<_> = nodes.iter().map(Node::state).collect();
            quiet = if before == behind { quiet + 1 } else { 0 };
            if quiet == 3 {
                return true;
            }
        }
        false
    }

    /// What is wrong at the end.
    pub(crate) fn wrong(&mut self) -> Option<String> {
        if !self.settle() {
            return Some("it does not become quiet".to_owned());
        }
        let contents: Vec<BTreeMap<String, Shown>> = self.nodes.iter().map(Node::content).collect();
        let whole = &contents[0];
        contents.iter().for_each(|content| self.promises.see(content));
        for (at, (content, node)) in contents.iter().zip(&self.nodes).enumerate() {
            let findings = node.findings();
            if !findings.is_empty() {
                return Some(format!("{at}: {findings:?}"));
            }
            let wrong = match node.kind {
                Kind::Part => part_differs(whole, content, &self.promises),
                _ => differs(whole, content),
            };
            if let Some(wrong) = wrong {
                return Some(format!("{at}{}: {wrong}", if self.forgets { " (log forgets)" } else { "" }));
            }
            if node.kind == Kind::Member && node.csns() != self.nodes[0].csns() {
                return Some(format!("{at}: contextCSN {:?}, 0 has {:?}", node.csns(), self.nodes[0].csns()));
            }
            // The entry above a glued database is not in that.
            let like = if self.setup.glued { 1 } else { 0 };
            let is_whole = node.kind != Kind::Part && at >= like;
            if is_whole && node.digests().ranges != self.nodes[like].digests().ranges {
                return Some(format!("{at}: the digests differ, and no entry does"));
            }
        }
        if self.forgets {
            None
        } else {
            self.promises.broken(whole, self.setup.values || self.setup.delta_ring)
        }
    }
}

/// A line does the one or the other thing.
fn work(link: &mut Link, nodes: &[Node], random: &mut Random, trace: &mut Trace) {
    if link.cut {
        return;
    }
    if link.connection.is_none() {
        if random.once_in(3) {
            link.connect(nodes, trace);
        }
        return;
    }
    match random.below(8) {
        0 if !link.silent => link.reach_provider(nodes, trace),
        1..=3 => link.step(nodes, random, trace),
        4..=7 if !link.silent => link.reach_consumer(nodes, false, random, trace),
        _ => {}
    }
}

fn differs(whole: &BTreeMap<String, Shown>, content: &BTreeMap<String, Shown>) -> Option<String> {
    for (uuid, entry) in whole {
        if content.get(uuid) != Some(entry) {
            return Some(format!("{uuid}: 0 has {entry:?}, here is {:?}", content.get(uuid)));
        }
    }
    let more = content.keys().find(|uuid| !whole.contains_key(*uuid));
    more.map(|uuid| format!("{uuid} is here alone: {:?}", content[uuid]))
}

/// A part has the entries of its filter, with its attributes. It does not hear that containers that its filter leaves out are
/// called otherwise: of what is below one that was, the entry's own name is compared.
fn part_differs(
    whole: &BTreeMap<String, Shown>,
    content: &BTreeMap<String, Shown>,
    promises: &Promises,
) -> Option<String> {
    let name = |uuid: &str, dn: &str| {
        let above = whole.get(uuid).map(|(dn, _)| dn.as_str());
        let Some(above) = above.filter(|above| promises.superior_was_renamed(whole, above)) else {
            return dn.to_owned();
        };
        let own = dn.split(',').next().unwrap_or_default();
        // Below the old name another one may have it.
        let is_aside = own.eq_ignore_ascii_case(&format!("entryUUID={uuid}"));
        if is_aside { above.split(',').next().unwrap_or_default() } else { own }.to_owned()
    };
    let share = |all: &BTreeMap<String, Shown>| {
        let mut share = BTreeMap::new();
        for (uuid, (dn, attributes)) in all {
            if attributes["objectClass"].contains("device") {
                let mut kept = attributes.clone();
                kept.retain(|name, _| PART_ATTRIBUTES.contains(&name.as_str()) || name == "entryCSN");
                share.insert(uuid.clone(), (name(uuid, dn), kept));
            }
        }
        share
    };
    differs(&share(whole), &share(content))
}

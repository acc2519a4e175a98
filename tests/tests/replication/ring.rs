//! Servers that all take writes and replicate to each other, each to each or in a line, while the network between them is
//! cut or falls silent and servers are killed: once it is whole again all hold the same, nothing acknowledged is lost,
//! nothing deleted is back.
//!
//! `LARIX_RING` names the servers (default `larix,larix,larix`; `slapd` is one of another kind), `LARIX_RING_ROUNDS` says
//! how often the network breaks (default 3), `LARIX_SEED` how. The seed is printed. `LARIX_RING_DELTA` names the servers, by
//! their places (`0,2`, or `all`), that follow the others' access logs instead of their entries.
//!
//! All that the servers tell each other passes a relay that keeps it. Of a failure the messages about the first entries that
//! differ are shown; `LARIX_RING_RECORD` names a folder that gets all of them, and the servers' logs.
//!
//! Clocks are set wrong by libfaketime (the package `faketime`), which each server's own calls go through.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use larix_load::generate::Random;
use larix_testkit::{Kind, Server, Site, StartError, packages};
use larix_tests::client::Client;
use larix_tests::relay::{Passage, Relay};
use larix_tests::scenario::Step;
use larix_tests::sync::{SyncSearch, read};
use larix_tests::transcript::transcript;
use larix_tests::writers::{ADMIN, Content, REQUESTS, SUFFIX, Writer, content, fill};

/// Of each server's log and of what differs: lines that a failure shows.
const SHOWN: usize = 10;
/// How often contents are looked at until they must be equal, with [`PAUSE`] between.
const LOOKS: u32 = 900;
const PAUSE: Duration = Duration::from_millis(200);
/// Characters of an entryUUID.
const UUID_LENGTH: usize = 36;

/// One of the ring.
struct Member {
    number: usize,
    kind: Kind,
    /// Of this ring alone: a relay may lead to a port that another ring's server has taken over meanwhile.
    password: String,
    site: Site,
    server: Option<Server>,
    /// Seconds that its clock is ahead; it changes when the server is started again.
    ahead: Option<i64>,
    writer: Writer,
}

/// The way that one member takes to another.
struct Link {
    from: usize,
    to: usize,
    relay: Relay,
}

/// Who is joined with whom while the network is whole.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Shape {
    Mesh,
    /// Each with the one before and the one behind.
    Line,
}

/// What the members take for the time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Clocks {
    Right,
    /// Minutes apart, and set to something else while a server is down: back as often as not.
    Wrong,
}

/// Of the access logs.
const LOG: &str = "cn=log";

/// Seconds that a clock may be wrong by, either way.
const WRONG_BY: u64 = 900;

struct Ring {
    members: Vec<Member>,
    links: Vec<Link>,
}

/// What a run is made of.
struct Plan {
    kinds: Vec<Kind>,
    shape: Shape,
    clocks: Clocks,
    /// The servers that follow access logs (delta-syncrepl). If there is one, all keep an access log.
    delta: Vec<usize>,
}

#[test]
fn all_hold_the_same_when_the_network_is_whole_again() {
    run(Shape::Mesh, Clocks::Right, "");
}

/// Changes are ordered by times that are not those of the changes; nothing is lost for it.
#[test]
fn clocks_that_are_wrong_and_set_back_lose_nothing() {
    run(Shape::Mesh, Clocks::Wrong, "");
}

/// Each server hears of most changes from servers that did not make them.
#[test]
fn what_goes_through_others_arrives_too() {
    run(Shape::Line, Clocks::Right, "");
}

/// One follows entries, the others the changes that logs tell of.
#[test]
fn logs_tell_what_entries_tell() {
    run(Shape::Mesh, Clocks::Right, "0,2");
}

/// `delta`: as in `LARIX_RING_DELTA`, which counts for more.
fn run(shape: Shape, clocks: Clocks, delta: &str) {
    if clocks == Clocks::Wrong && packages::FAKETIME.is_lacking() {
        return;
    }
    let kinds = env::var("LARIX_RING").unwrap_or_else(|_| "larix,larix,larix".to_owned());
    let kinds: Vec<Kind> = kinds
        .split(',')
        .map(|kind| match kind {
            "larix" => Kind::Larix,
            "slapd" => Kind::Slapd,
            other => panic!("LARIX_RING: {other:?} is neither larix nor slapd"),
        })
        .collect();
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (rounds, seed) = (number("LARIX_RING_ROUNDS").unwrap_or(3), number("LARIX_SEED").unwrap_or(1));
    let delta = env::var("LARIX_RING_DELTA").unwrap_or_else(|_| delta.to_owned());
    let delta = match delta.as_str() {
        "all" => (0..kinds.len()).collect(),
        places => places.split(',').filter_map(|place| place.parse().ok()).collect(),
    };
    println!("seed {seed}, {rounds} rounds, {kinds:?}, delta {delta:?}");
    let mut random = Random::new(seed);
    let mut ring = Ring::start(&Plan { kinds, shape, clocks, delta }, &mut random);
    ring.settle("the start");
    for round in 0..rounds {
        ring.disturb(&mut random);
        ring.write(round, &mut random);
        ring.heal();
        let content = ring.settle(&format!("round {round}"));
        ring.check(&content, &format!("round {round}"));
    }
}

impl Ring {
    fn start(plan: &Plan, random: &mut Random) -> Self {
        let count = plan.kinds.len();
        let ways = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let links = ways
            .filter(|(from, to)| match plan.shape {
                Shape::Mesh => from != to,
                Shape::Line => from.abs_diff(*to) == 1,
            })
            .map(|(from, to)| Link { from, to, relay: Relay::recording() });
        let links: Vec<Link> = links.collect();
        let password = format!("{:?}-{}", plan.shape, std::process::id());
        let members = plan.kinds.iter().enumerate().map(|(number, kind)| Member {
            number,
            kind: *kind,
            password: password.clone(),
            site: Site::new(*kind, &configuration(plan, number, &password, &links)),
            server: None,
            ahead: (plan.clocks == Clocks::Wrong).then(|| wrong_by(random)),
            writer: Writer::new(number),
        });
        let mut ring = Self { members: members.collect(), links };
        for member in 0..ring.members.len() {
            ring.restart(member);
        }
        let mut client = ring.members[0].client();
        fill(&mut client);
        ring
    }

    fn restart(&mut self, number: usize) {
        let member = &mut self.members[number];
        let server = member.start().unwrap_or_else(|error| panic!("member {number}: {error}"));
        for link in self.links.iter().filter(|link| link.to == number) {
            link.relay.lead_to(server.address);
        }
        member.server = Some(server);
    }

    /// Breaks some of the ways, each in its manner.
    fn disturb(&self, random: &mut Random) {
        for link in &self.links {
            let passage = *random.pick(&[Passage::Open, Passage::Cut, Passage::Cut, Passage::Silent]);
            println!("  {} -> {}: {passage:?}", link.from, link.to);
            link.relay.set(passage);
        }
    }

    fn heal(&self) {
        self.links.iter().for_each(|link| link.relay.set(Passage::Open));
    }

    /// All write at once; one of them is killed in the midst of it and started again.
    fn write(&mut self, round: u64, random: &mut Random) {
        let killed = random.below(self.members.len() as u64) as usize;
        println!("  {killed} is killed");
        let kill_after = 5 + random.below(REQUESTS - 10);
        let seeds: Vec<u64> = self.members.iter().map(|_| random.bits()).collect();
        thread::scope(|scope| {
            for (member, seed) in self.members.iter_mut().zip(seeds) {
                let limit = if member.number == killed { kill_after } else { REQUESTS };
                scope.spawn(move || {
                    let mut client = member.client();
                    member.writer.write(&mut client, round, limit, &mut Random::new(seed));
                    if member.number == killed
                        && let Some(server) = member.server.take()
                    {
                        server.kill();
                    }
                });
            }
        });
        let member = &mut self.members[killed];
        if let Some(ahead) = &mut member.ahead {
            *ahead = wrong_by(random);
            println!("  its clock is {ahead} seconds ahead");
        }
        self.restart(killed);
    }

    /// Waits until all hold the same, and gives it.
    fn settle(&self, when: &str) -> Content {
        let mut contents = Vec::new();
        for _ in 0..LOOKS {
            contents = self.members.iter().map(|member| content(&mut member.client())).collect();
            if contents.windows(2).all(|pair| pair[0] == pair[1]) && !contents[0].is_empty() {
                return contents.swap_remove(0);
            }
            thread::park_timeout(PAUSE);
        }
        if let Some(folder) = env::var_os("LARIX_RING_RECORD") {
            self.keep(Path::new(&folder));
        }
        panic!("{when}: not equal\n{}", self.report(&contents));
    }

    /// Nothing acknowledged is lost, nothing deleted is back.
    fn check(&self, content: &Content, when: &str) {
        let fault = self.members.iter().find_map(|member| member.writer.fault(content));
        let Some((dn, fault)) = fault else { return };
        if let Some(folder) = env::var_os("LARIX_RING_RECORD") {
            self.keep(Path::new(&folder));
        }
        let mut text = String::new();
        self.story(dn, None, &mut text);
        panic!("{when}: {fault}\n{text}{}", self.report(&[]));
    }

    /// How each stands, and the first entries that differ: little, for often only the end of the output is kept.
    fn report(&self, contents: &[Content]) -> String {
        let mut text = String::new();
        for member in &self.members {
            let _ = writeln!(text, "{} ({:?}), at the end of its log:", member.number, member.kind);
            let log = std::fs::read_to_string(member.log_file()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(SHOWN)) {
                let _ = writeln!(text, "  {line}");
            }
            let values = |base: &str, attribute: &str| {
                let search = SyncSearch {
                    password: &member.password,
                    base,
                    attributes: &[attribute],
                    ..SyncSearch::default()
                };
                let found = read(member.address(), &search).unwrap_or_default();
                let lines = found.iter().flat_map(|(dn, attributes)| {
                    let values = attributes.get(&attribute.to_lowercase()).into_iter().flatten();
                    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value)).collect();
                    (!values.is_empty()).then(|| format!("  {dn}: {}\n", values.join(", ")))
                });
                lines.collect::<String>()
            };
            let csns = values(SUFFIX, "contextCSN");
            let _ = write!(text, "{csns}{}", values("cn=Replication,cn=Larix,cn=Monitor", "monitoredInfo"));
        }
        for (number, content) in contents.iter().enumerate().skip(1) {
            let names: BTreeSet<&String> = contents[0].keys().chain(content.keys()).collect();
            let differ = |dn: &&&String| contents[0].get(**dn) != content.get(**dn);
            let differing: Vec<&&String> = names.iter().filter(differ).collect();
            let _ = writeln!(text, "{} entries differ between 0 and {number}", differing.len());
            for dn in differing.into_iter().take(SHOWN) {
                let shown = |content: &Content| match content.get(*dn) {
                    None => "not there".to_owned(),
                    Some(lines) => {
                        let telling = |line: &&String| {
                            ["description", "telephoneNumber", "entryCSN", "entryUUID"]
                                .iter()
                                .any(|name| line.starts_with(name))
                        };
                        lines.iter().filter(telling).cloned().collect::<Vec<_>>().join(", ")
                    }
                };
                let acknowledged: String =
                    self.members.iter().filter_map(|member| member.writer.acknowledged_state(dn)).collect();
                let (first, other) = (shown(&contents[0]), shown(content));
                let _ = writeln!(
                    text,
                    "{dn}\n  in 0: {first}\n  in {number}: {other}\n  its writer: {acknowledged}"
                );
                let uuid = [&contents[0], content].into_iter().find_map(|content| {
                    content.get(*dn)?.iter().find_map(|line| line.strip_prefix("entryUUID: "))
                });
                self.story(dn, uuid, &mut text);
            }
        }
        text
    }

    /// What the members told each other of an entry. One that is gone everywhere has the entryUUID of who was called so.
    fn story(&self, dn: &str, uuid: Option<&str>, text: &mut String) {
        let begin = format!("{dn} ");
        let mut passed = Vec::new();
        for link in &self.links {
            let lines = transcript(&link.relay.recorded()).into_iter();
            passed.extend(lines.map(|line| (link, line)));
        }
        let of_line = |text: &str| {
            let (_, state) = text.split_once(&begin)?.1.split_once("Add ")?;
            state.get(..UUID_LENGTH).map(str::to_owned)
        };
        let uuid =
            uuid.map(str::to_owned).or_else(|| passed.iter().find_map(|(_, line)| of_line(&line.text)));
        let record = format!("reqDN: {dn}");
        passed.retain(|(_, line)| {
            let of_it = line.text.contains(&begin) || line.text.contains(&record);
            of_it || uuid.as_ref().is_some_and(|uuid| line.text.contains(uuid))
        });
        let lines = passed.into_iter();
        let lines = lines
            .map(|(link, line)| format!("  {} {} told {}: {}\n", line.at, link.to, link.from, line.text));
        let mut lines: Vec<String> = lines.collect();
        lines.sort_unstable();
        text.extend(lines);
    }

    /// Writes what the members told each other, and their logs, to a folder.
    fn keep(&self, folder: &Path) {
        std::fs::create_dir_all(folder).expect("a folder for the record");
        for link in &self.links {
            let lines = transcript(&link.relay.recorded());
            let text: String = lines.iter().map(|line| format!("{} {}\n", line.at, line.text)).collect();
            std::fs::write(folder.join(format!("{}-told-{}", link.to, link.from)), text).expect("a record");
        }
        for member in &self.members {
            let name = folder.join(format!("log-{}", member.number));
            std::fs::copy(member.log_file(), name).expect("a copy of the log");
        }
    }
}

/// How many seconds a clock is ahead.
fn wrong_by(random: &mut Random) -> i64 {
    random.below(2 * WRONG_BY) as i64 - WRONG_BY as i64
}

/// The library that gives a process another time.
fn library_of_wrong_time() -> PathBuf {
    packages::FAKETIME.files().into_iter().next().expect("asked for before the ring was started")
}

impl Member {
    fn start(&self) -> Result<Server, StartError> {
        let configuration = self.site.configuration();
        // Its `logfile` is that of -d.
        let arguments: &[&str] = if self.kind == Kind::Slapd { &["-d", "sync"] } else { &[] };
        let Some(ahead) = self.ahead else {
            return Server::start_with(self.kind, &configuration, arguments, &[]);
        };
        let (library, time) = (library_of_wrong_time(), format!("{ahead:+}s"));
        let environment = [
            ("LD_PRELOAD", library.as_path()),
            ("FAKETIME", Path::new(&time)),
            // What waits waits as long as it should.
            ("FAKETIME_DONT_FAKE_MONOTONIC", Path::new("1")),
        ];
        Server::start_with(self.kind, &configuration, arguments, &environment)
    }

    fn log_file(&self) -> PathBuf {
        match self.kind {
            Kind::Larix => self.site.path().join("data/log"),
            Kind::Slapd => self.site.configuration().with_extension("Slapd.log"),
        }
    }

    fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap_or_else(|| panic!("member {} is down", self.number)).address
    }

    fn client(&self) -> Client {
        let mut client = Client::connect(self.address());
        let bind = Step { request: format!("as {ADMIN} {}\n", self.password), ..Step::default() };
        assert_eq!(client.run(&bind), "=> 0\n", "member {}", self.number);
        client
    }
}

fn configuration(plan: &Plan, number: usize, password: &str, links: &[Link]) -> String {
    let (kind, keeps_log) = (plan.kinds[number], !plan.delta.is_empty());
    let mut text = String::new();
    if kind == Kind::Slapd {
        text += "moduleload syncprov\nmoduleload accesslog\n";
    }
    let _ = writeln!(text, "loglevel sync\nlogfile @DATA@/log\nserverID {}", number + 1);
    if keeps_log {
        let _ = writeln!(
            text,
            "database mdb\nsuffix {LOG}\nrootdn {ADMIN}\ndirectory @DATA@/changes\n\
             index objectClass,entryCSN,entryUUID,reqStart,reqDN,reqResult eq\nlimits users size=unlimited\n\
             overlay syncprov\nsyncprov-nopresent TRUE\nsyncprov-reloadhint TRUE"
        );
    }
    let _ = writeln!(
        text,
        "database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw {password}\ndirectory @DATA@/entries\n\
         index objectClass,entryUUID,entryCSN eq\nlimits users size=unlimited"
    );
    let delta = match plan.delta.contains(&number) {
        true => format!(
            " logbase=\"{LOG}\" logfilter=\"(&(objectClass=auditWriteObject)(reqResult=0))\" syncdata=accesslog"
        ),
        false => String::new(),
    };
    for link in links.iter().filter(|link| link.from == number) {
        let _ = writeln!(
            text,
            "syncrepl rid={:03} provider=ldap://{} searchbase=\"{SUFFIX}\" bindmethod=simple binddn=\"{ADMIN}\" \
             credentials={password} type=refreshAndPersist retry=\"1 +\"{delta}",
            link.to + 1,
            link.relay.address
        );
    }
    text += "mirrormode on\noverlay syncprov\n";
    if kind == Kind::Slapd {
        // No session log: it is in memory, and whether one that began after a crash reaches back is judged by a single
        // server's CSN. A consumer that lacks deletes of another server is then sent what the log has, without them.
        // Otherwise a slapd that is killed does not know how far it had come, and tells nobody of its last changes.
        text += "syncprov-checkpoint 1 1\n";
    }
    if keeps_log {
        let _ = writeln!(text, "overlay accesslog\nlogdb {LOG}\nlogops writes\nlogsuccess TRUE");
    }
    if kind == Kind::Larix {
        text += "database monitor\n";
    }
    text
}

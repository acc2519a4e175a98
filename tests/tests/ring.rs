//! Servers that all take writes and replicate to each other, each to each or in a line, while the network between them is
//! cut or falls silent and servers are killed: once it is whole again all hold the same, nothing acknowledged is lost,
//! nothing deleted is back.
//!
//! `LARIX_RING` names the servers (default `larix,larix,larix`; `slapd` is one of another kind), `LARIX_RING_ROUNDS` says
//! how often the network breaks (default 3), `LARIX_SEED` how. The seed is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use larix_load::generate::Random;
use larix_proto::client::{self, ClientAttribute, ClientChange, Search};
use larix_proto::{FilterBuf, MessageId, ModifyOperation, Response, ResultCode, Scope};
use larix_testkit::{Kind, Server, Site};
use larix_tests::client::Client;
use larix_tests::relay::{Passage, Relay};
use larix_tests::scenario::Step;

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";
/// Of each server's log and of what differs: lines that a failure shows.
const SHOWN: usize = 10;
/// Entries that everybody changes.
const SHARED: u64 = 5;
/// Requests of each writer in a round.
const REQUESTS: u64 = 60;
/// How often contents are looked at until they must be equal, with [`PAUSE`] between.
const LOOKS: u32 = 300;
const PAUSE: Duration = Duration::from_millis(200);

/// What one writer was told about an entry that nobody else changes.
#[derive(Clone, Debug, Default)]
struct Own {
    /// Values of `description` that it may have; the last acknowledged one, and those asked for since.
    descriptions: BTreeSet<String>,
    deletion_asked: bool,
    deleted: bool,
}

type Acknowledged = BTreeMap<String, Own>;
/// Lines of each entry, by DN.
type Content = BTreeMap<String, BTreeSet<String>>;

/// One of the ring.
struct Member {
    number: usize,
    kind: Kind,
    /// Of this ring alone: a relay may lead to a port that another ring's server has taken over meanwhile.
    password: String,
    site: Site,
    server: Option<Server>,
    acknowledged: Acknowledged,
    /// Of entries added so far.
    added: u64,
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

struct Ring {
    members: Vec<Member>,
    links: Vec<Link>,
}

#[test]
fn all_hold_the_same_when_the_network_is_whole_again() {
    run(Shape::Mesh);
}

/// Each server hears of most changes from servers that did not make them.
#[test]
fn what_goes_through_others_arrives_too() {
    run(Shape::Line);
}

fn run(shape: Shape) {
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
    println!("seed {seed}, {rounds} rounds, {kinds:?}");
    let mut random = Random::new(seed);
    let mut ring = Ring::start(&kinds, shape);
    ring.settle("the start");
    for round in 0..rounds {
        ring.disturb(&mut random);
        ring.write(round, &mut random);
        ring.heal();
        let content = ring.settle(&format!("round {round}"));
        ring.check_acknowledged(&content, round);
    }
}

impl Ring {
    fn start(kinds: &[Kind], shape: Shape) -> Self {
        let ways = (0..kinds.len()).flat_map(|from| (0..kinds.len()).map(move |to| (from, to)));
        let links = ways
            .filter(|(from, to)| match shape {
                Shape::Mesh => from != to,
                Shape::Line => from.abs_diff(*to) == 1,
            })
            .map(|(from, to)| Link { from, to, relay: Relay::start() });
        let links: Vec<Link> = links.collect();
        let password = format!("{shape:?}-{}", std::process::id());
        let members = kinds.iter().enumerate().map(|(number, kind)| Member {
            number,
            kind: *kind,
            password: password.clone(),
            site: Site::new(*kind, &configuration(*kind, number, &password, &links)),
            server: None,
            acknowledged: Acknowledged::new(),
            added: 0,
        });
        let mut ring = Self { members: members.collect(), links };
        for member in 0..ring.members.len() {
            ring.restart(member);
        }
        let mut client = ring.members[0].client();
        let organization = [("objectClass", "organization"), ("objectClass", "dcObject"), ("o", "Example")];
        assert_eq!(add(&mut client, SUFFIX, &organization), Some(ResultCode::SUCCESS));
        for number in 0..SHARED {
            let name = format!("shared{number}");
            let dn = format!("cn={name},{SUFFIX}");
            let person = [("objectClass", "person"), ("cn", name.as_str()), ("sn", "Shared")];
            assert_eq!(add(&mut client, &dn, &person), Some(ResultCode::SUCCESS));
        }
        ring
    }

    fn restart(&mut self, number: usize) {
        let member = &mut self.members[number];
        let server = member.site.start().unwrap_or_else(|error| panic!("member {number}: {error}"));
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
                    member.write(round, limit, &mut Random::new(seed));
                    if member.number == killed
                        && let Some(server) = member.server.take()
                    {
                        server.kill();
                    }
                });
            }
        });
        self.restart(killed);
    }

    /// Waits until all hold the same, and gives it.
    fn settle(&self, when: &str) -> Content {
        let mut contents = Vec::new();
        for _ in 0..LOOKS {
            contents = self.members.iter().map(Member::content).collect();
            if contents.windows(2).all(|pair| pair[0] == pair[1]) && !contents[0].is_empty() {
                return contents.swap_remove(0);
            }
            thread::park_timeout(PAUSE);
        }
        panic!("{when}: not equal\n{}", self.report(&contents));
    }

    /// How each stands, and the first entries that differ: little, for often only the end of the output is kept.
    fn report(&self, contents: &[Content]) -> String {
        let mut text = String::new();
        for member in &self.members {
            let _ = writeln!(text, "{} ({:?}), at the end of its log:", member.number, member.kind);
            let log = std::fs::read_to_string(member.site.path().join("data/log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(SHOWN)) {
                let _ = writeln!(text, "  {line}");
            }
            let mut client = member.client();
            let mut show = |request: &str| {
                let step = Step { request: request.to_owned(), ..Step::default() };
                client.run(&step).lines().for_each(|line| {
                    let _ = writeln!(text, "  {line}");
                });
            };
            show(&format!("search {SUFFIX} base (objectClass=*) contextCSN"));
            if member.kind == Kind::Larix {
                show("search cn=Replication,cn=Larix,cn=Monitor sub (objectClass=*) * +");
            }
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
                let _ = writeln!(
                    text,
                    "{dn}\n  in 0: {}\n  in {number}: {}",
                    shown(&contents[0]),
                    shown(content)
                );
            }
        }
        text
    }

    fn check_acknowledged(&self, content: &Content, round: u64) {
        for (dn, own) in self.members.iter().flat_map(|member| &member.acknowledged) {
            let Some(lines) = content.get(dn) else {
                assert!(own.deletion_asked, "round {round}: {dn} is lost");
                continue;
            };
            assert!(!own.deleted, "round {round}: {dn} is back");
            let description = lines.iter().find_map(|line| line.strip_prefix("description: "));
            let fits =
                description.map_or(own.descriptions.is_empty(), |text| own.descriptions.contains(text));
            assert!(fits, "round {round}: {dn} has {description:?}, not {:?}", own.descriptions);
        }
    }
}

impl Member {
    fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap_or_else(|| panic!("member {} is down", self.number)).address
    }

    fn client(&self) -> Client {
        let mut client = Client::connect(self.address());
        let bind = Step { request: format!("as {ADMIN} {}\n", self.password), ..Step::default() };
        assert_eq!(client.run(&bind), "=> 0\n", "member {}", self.number);
        client
    }

    /// Adds, changes and deletes entries of its own, and changes those that everybody changes.
    fn write(&mut self, round: u64, limit: u64, random: &mut Random) {
        let mut client = self.client();
        for step in 0..limit {
            let text = format!("{}.{round}.{step}", self.number);
            let names: Vec<String> = self
                .acknowledged
                .iter()
                .filter(|(_, own)| !own.deletion_asked)
                .map(|(dn, _)| dn.clone())
                .collect();
            match random.below(10) {
                4..8 if !names.is_empty() => self.describe(&mut client, random.pick::<String>(&names), &text),
                8 if !names.is_empty() => self.delete(&mut client, random.pick::<String>(&names)),
                9 => {
                    let dn = format!("cn=shared{},{SUFFIX}", random.below(SHARED));
                    let attribute = *random.pick(&["description", "telephoneNumber"]);
                    let value = if attribute == "description" { text } else { format!("{step}") };
                    // Somebody else's change is as good.
                    let _ = replace(&mut client, &dn, attribute, &value);
                }
                _ => {
                    self.added += 1;
                    let name = format!("own{}.{}", self.number, self.added);
                    let dn = format!("cn={name},{SUFFIX}");
                    let person = [("objectClass", "person"), ("cn", name.as_str()), ("sn", text.as_str())];
                    assert_eq!(add(&mut client, &dn, &person), Some(ResultCode::SUCCESS), "{dn}");
                    self.acknowledged.insert(dn, Own::default());
                }
            }
        }
    }

    fn describe(&mut self, client: &mut Client, dn: &str, text: &str) {
        assert_eq!(replace(client, dn, "description", text), Some(ResultCode::SUCCESS), "{dn}");
        if let Some(own) = self.acknowledged.get_mut(dn) {
            own.descriptions = BTreeSet::from([text.to_owned()]);
        }
    }

    fn delete(&mut self, client: &mut Client, dn: &str) {
        let mut request = Vec::new();
        client::delete(&mut request, MessageId(4), dn, &[]);
        assert_eq!(code(&client.exchange(&request)), Some(ResultCode::SUCCESS), "{dn}");
        if let Some(own) = self.acknowledged.get_mut(dn) {
            (own.deletion_asked, own.deleted) = (true, true);
        }
    }

    fn content(&self) -> Content {
        let mut client = self.client();
        let mut request = Vec::new();
        let filter = FilterBuf::parse("(objectClass=*)").expect("a filter");
        let attributes = &["*", "entryUUID", "entryCSN", "creatorsName", "createTimestamp", "modifiersName"];
        let search = Search { attributes, ..Search::new(SUFFIX, Scope::Subtree, filter.as_filter()) };
        client::search(&mut request, MessageId(5), &search, &[]);
        let mut content = Content::new();
        for pdu in client.exchange(&request) {
            let message = Response::decode_message(&pdu).expect("a response");
            let Response::Entry(entry) = message.response else { continue };
            let mut lines = BTreeSet::new();
            for attribute in entry.attributes {
                for value in attribute.values {
                    lines.insert(format!("{}: {}", attribute.description, String::from_utf8_lossy(value)));
                }
            }
            content.insert(entry.dn.to_owned(), lines);
        }
        content
    }
}

fn configuration(kind: Kind, number: usize, password: &str, links: &[Link]) -> String {
    let mut text = String::new();
    if kind == Kind::Slapd {
        text += "moduleload syncprov\n";
    }
    let _ = write!(
        text,
        "loglevel sync\nlogfile @DATA@/log\nserverID {}\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw {password}\ndirectory @DATA@\n\
         index objectClass,entryUUID,entryCSN eq\nlimits users size=unlimited\n",
        number + 1
    );
    for link in links.iter().filter(|link| link.from == number) {
        let _ = writeln!(
            text,
            "syncrepl rid={:03} provider=ldap://{} searchbase=\"{SUFFIX}\" bindmethod=simple binddn=\"{ADMIN}\" \
             credentials={password} type=refreshAndPersist retry=\"1 +\"",
            link.to + 1,
            link.relay.address
        );
    }
    text += "mirrormode on\noverlay syncprov\nsyncprov-sessionlog 10000\n";
    if kind == Kind::Slapd {
        // Otherwise a slapd that is killed does not know how far it had come, and tells nobody of its last changes.
        text += "syncprov-checkpoint 1 1\n";
    }
    if kind == Kind::Larix {
        text += "database monitor\n";
    }
    text
}

fn add(client: &mut Client, dn: &str, values: &[(&str, &str)]) -> Option<ResultCode> {
    let mut attributes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    values.iter().for_each(|(name, value)| attributes.entry(name).or_default().push(value));
    let attributes: Vec<ClientAttribute<'_, &str>> = attributes
        .iter()
        .map(|(description, values)| ClientAttribute { description, values: values.as_slice() })
        .collect();
    let mut request = Vec::new();
    client::add(&mut request, MessageId(2), dn, &attributes, &[]);
    code(&client.exchange(&request))
}

fn replace(client: &mut Client, dn: &str, attribute: &str, value: &str) -> Option<ResultCode> {
    let change = ClientChange {
        operation: ModifyOperation::Replace,
        attribute: ClientAttribute { description: attribute, values: &[value] },
    };
    let mut request = Vec::new();
    client::modify(&mut request, MessageId(3), dn, &[change], &[]);
    code(&client.exchange(&request))
}

fn code(answers: &[Vec<u8>]) -> Option<ResultCode> {
    let message = Response::decode_message(answers.last()?).ok()?;
    Some(message.response.result()?.1.code)
}

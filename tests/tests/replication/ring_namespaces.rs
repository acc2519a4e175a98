//! Servers that all take writes, each in a network namespace of its own: links are taken down, flap and swallow packets,
//! servers are killed; when all is whole again `larix replica check` finds them equal.
//!
//! Needs root, `ip` and a kernel with namespaces, veth and bridges; with `tc` and netem there are delay, loss and reordering,
//! too. `LARIX_SEED`, `LARIX_RING_ROUNDS` and `LARIX_RING_SERVERS` (3) as for the other rings. The test makes its namespaces
//! and removes them:
//!
//! ```text
//!   cargo test -p larix-tests --test replication ring_namespaces -- --ignored --nocapture
//! ```

use std::env;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use larix_load::generate::Random;
use larix_testkit::{Kind, Site};
use larix_tests::client::{Client, run as ask};
use larix_tests::writers::{ADMIN, REQUESTS, SUFFIX, Writer, content, fill};

/// Set for the part that runs within the namespace of the bridges: what its namespaces are called.
const WITHIN: &str = "LARIX_NAMESPACES";
const PORT: u16 = 3890;
const PASSWORD: &str = "secret";
/// How often something is looked at until it must be so, with [`PAUSE`] between.
const LOOKS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(200);

fn number(name: &str, usual: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn servers() -> usize {
    number("LARIX_RING_SERVERS", 3) as usize
}

/// Runs a command that has to succeed.
fn run(program: &str, words: &str) {
    if let Err(why) = tried(program, words) {
        panic!("{program} {words}: {why}");
    }
}

fn tried(program: &str, words: &str) -> Result<(), String> {
    let output = Command::new(program).args(words.split_whitespace()).output();
    let Output { status, stderr, .. } = output.map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&stderr).trim().to_owned()) }
}

/// Where servers hear each other.
fn data(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 98, 0, number as u8 + 1)
}

/// Where the test reaches them, whatever the network does.
fn control(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, number as u8 + 1)
}

/// The namespaces: one with two bridges and the test, one for each server.
struct Network {
    prefix: String,
}

impl Network {
    fn make() -> Self {
        let network = Self { prefix: format!("larix{}", std::process::id()) };
        let switch = network.switch();
        run("ip", &format!("netns add {switch}"));
        run("ip", &format!("-n {switch} link set lo up"));
        for bridge in ["data", "control"] {
            run("ip", &format!("-n {switch} link add {bridge} type bridge"));
            run("ip", &format!("-n {switch} link set {bridge} up"));
        }
        run("ip", &format!("-n {switch} address add 10.99.0.254/24 dev control"));
        for server in 0..servers() {
            let own = network.of(server);
            run("ip", &format!("netns add {own}"));
            run("ip", &format!("-n {own} link set lo up"));
            for (bridge, address) in [("data", data(server)), ("control", control(server))] {
                let end = format!("{bridge}{server}");
                run("ip", &format!("-n {switch} link add {end} type veth peer name {bridge} netns {own}"));
                run("ip", &format!("-n {switch} link set {end} master {bridge} up"));
                run("ip", &format!("-n {own} address add {address}/24 dev {bridge}"));
                run("ip", &format!("-n {own} link set {bridge} up"));
            }
        }
        network
    }

    fn switch(&self) -> String {
        format!("{}s", self.prefix)
    }

    fn of(&self, server: usize) -> String {
        format!("{}n{server}", self.prefix)
    }

    /// Takes the link of a server down, or up again.
    fn link(&self, server: usize, state: &str) {
        run("ip", &format!("-n {} link set data{server} {state}", self.switch()));
    }

    /// Has packets from one server to another vanish, or not any more.
    fn swallow(&self, (from, to): (usize, usize), swallows: bool) {
        let what = if swallows { "add" } else { "delete" };
        run("ip", &format!("-n {} route {what} blackhole {}/32", self.of(from), data(to)));
    }

    /// Delay, loss and reordering on the way to a server, where the kernel has them.
    fn disturb(&self, server: usize) -> Result<(), String> {
        let how = "netem delay 20ms 10ms loss 5% reorder 20% 50%";
        tried("tc", &format!("-n {} qdisc replace dev data{server} root {how}", self.switch()))
    }

    fn calm(&self, server: usize) {
        // There may be none.
        let _ = tried("tc", &format!("-n {} qdisc del dev data{server} root", self.switch()));
    }
}

/// Makes the namespaces, runs the test within, and removes them whatever became of it.
#[test]
#[ignore = "needs root and network namespaces"]
fn rings_in_namespaces_converge() {
    if let Ok(prefix) = env::var(WITHIN) {
        return within(Network { prefix });
    }
    let network = Network::make();
    let program = env::current_exe().expect("the test's own program");
    let output = Command::new("ip")
        .args(["netns", "exec", &network.switch()])
        .arg(program)
        .args(["--ignored", "--exact", "--nocapture", "ring_namespaces::rings_in_namespaces_converge"])
        .env(WITHIN, &network.prefix)
        .stderr(Stdio::inherit())
        .output();
    for server in 0..servers() {
        run("ip", &format!("netns delete {}", network.of(server)));
    }
    run("ip", &format!("netns delete {}", network.switch()));
    let output = output.expect("ip starts");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    // Without that line there is no test of this name.
    assert!(output.status.success() && text.contains("1 passed"), "{}", output.status);
}

/// One server.
struct Node {
    number: usize,
    namespace: String,
    site: Site,
    child: Option<Child>,
    writer: Writer,
}

impl Node {
    fn start(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.site.path().join("errors"));
        let urls = format!("ldap://{}:{PORT}/ ldap://{}:{PORT}/", data(self.number), control(self.number));
        // `ip` becomes the server: what kills the one kills the other.
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace])
            .arg(Kind::Larix.program().expect("larix is built"))
            .args(["serve", "-d", "0", "-h", &urls, "-f"])
            .arg(self.site.configuration())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn();
        self.child = Some(child.expect("larix starts"));
        let address = self.address();
        let there = looked_for(|| Client::try_connect(address).is_ok());
        assert!(there, "server {} accepts nothing: {}", self.number, self.log());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((control(self.number), PORT))
    }

    fn client(&self) -> Client {
        let mut client = Client::connect(self.address());
        assert_eq!(ask(&mut client, &format!("as {ADMIN} {PASSWORD}")), "=> 0\n");
        client
    }

    /// What a consumer says of itself.
    fn consumer(&self, of: usize) -> String {
        let dn = format!("cn=Consumer {:03},cn=Replication,cn=Larix,cn=Monitor", of + 1);
        ask(&mut self.client(), &format!("search \"{dn}\" base (objectClass=*) +"))
    }

    fn log(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.site.path().join(name)).unwrap_or_default();
        let text = read("errors") + &read("data/log");
        let lines: Vec<&str> = text.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(12)).fold(String::new(), |text, line| text + line + "\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn looked_for(mut is_so: impl FnMut() -> bool) -> bool {
    (0..LOOKS).any(|_| {
        let found = is_so();
        if !found {
            thread::park_timeout(PAUSE);
        }
        found
    })
}

fn configuration(number: usize) -> String {
    let mut text = format!(
        "loglevel sync\nlogfile @DATA@/log\nserverID {}\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\n\
         rootpw {PASSWORD}\ndirectory @DATA@\nindex objectClass,entryUUID,entryCSN eq\n",
        number + 1
    );
    for other in (0..servers()).filter(|other| *other != number) {
        let _ = writeln!(
            text,
            "syncrepl rid={:03} provider=ldap://{}:{PORT} searchbase=\"{SUFFIX}\" bindmethod=simple \
             binddn=\"{ADMIN}\" credentials={PASSWORD} type=refreshAndPersist retry=\"1 +\" keepalive=1:3:1 \
             network-timeout=2 timeout=4 tcp-user-timeout=4000",
            other + 1,
            data(other)
        );
    }
    text + "multiprovider on\noverlay syncprov\ndatabase monitor\n"
}

fn within(network: Network) {
    let (seed, rounds) = (number("LARIX_SEED", 1), number("LARIX_RING_ROUNDS", 3));
    println!("seed {seed}, {rounds} rounds, {} servers", servers());
    let mut random = Random::new(seed);
    let mut nodes: Vec<Node> = (0..servers())
        .map(|number| Node {
            number,
            namespace: network.of(number),
            site: Site::new(Kind::Larix, &configuration(number)),
            child: None,
            writer: Writer::new(number),
        })
        .collect();
    nodes.iter_mut().for_each(Node::start);
    fill(&mut nodes[0].client());
    are_equal(&nodes, "the start");
    a_lost_provider_is_noticed(&network, &nodes);
    for round in 0..rounds {
        let healed = break_and_write(&network, &mut nodes, round, &mut random);
        healed.iter().for_each(|pair| network.swallow(*pair, false));
        for node in &nodes {
            network.calm(node.number);
            network.link(node.number, "up");
        }
        are_equal(&nodes, &format!("round {round}"));
        let entries = content(&mut nodes[0].client());
        nodes.iter().for_each(|node| node.writer.check(&entries, &format!("round {round}")));
        println!("  equal: {} entries", entries.len());
    }
}

/// A consumer that only listens hears of a link that went down by its keepalive, and comes back.
fn a_lost_provider_is_noticed(network: &Network, nodes: &[Node]) {
    let follows = || nodes[1].consumer(0).contains("phase=persisting");
    assert!(looked_for(follows), "{}", nodes[1].consumer(0));
    network.link(0, "down");
    assert!(looked_for(|| !follows()), "the loss was not noticed: {}", nodes[1].consumer(0));
    let seen = nodes[1].consumer(0);
    let why = seen.lines().find(|line| line.contains("error=")).unwrap_or_default().trim();
    println!("  noticed: {why}");
    // By whom first: the kernel, whose probes are not answered, or the consumer, whose question is not.
    let words = ["timed out", "No route", "is silent, and does not answer"];
    assert!(words.iter().any(|word| why.contains(word)), "{seen}");
    network.link(0, "up");
    assert!(looked_for(follows), "it did not come back: {}", nodes[1].consumer(0));
}

/// Breaks the network, has all write while one is killed. Answers whose packets are swallowed.
fn break_and_write(
    network: &Network,
    nodes: &mut [Node],
    round: u64,
    random: &mut Random,
) -> Vec<(usize, usize)> {
    let (mut flapping, mut swallowed) = (Vec::new(), Vec::new());
    for server in 0..nodes.len() {
        let how = *random.pick(&["open", "down", "flaps", "disturbed"]);
        println!("  {server}: {how}");
        match how {
            "down" => network.link(server, "down"),
            "flaps" => flapping.push(server),
            "disturbed" => network.disturb(server).unwrap_or_else(|why| println!("    it is not: {why}")),
            _ => {}
        }
        for other in 0..nodes.len() {
            if other != server && random.below(4) == 0 {
                println!("  {server} -> {other}: swallowed");
                network.swallow((server, other), true);
                swallowed.push((server, other));
            }
        }
    }
    let killed = random.below(nodes.len() as u64) as usize;
    println!("  {killed} is killed");
    let kill_after = 5 + random.below(REQUESTS - 10);
    let seeds: Vec<u64> = nodes.iter().map(|_| random.bits()).collect();
    let flaps: Vec<Duration> = (0..16).map(|_| Duration::from_millis(20 + random.below(300))).collect();
    let written = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for (at, pause) in flaps.iter().cycle().enumerate() {
                let state = if at % 2 == 0 { "down" } else { "up" };
                flapping.iter().for_each(|server| network.link(*server, state));
                thread::park_timeout(*pause);
                if written.load(Ordering::Relaxed) && at >= flaps.len() {
                    break;
                }
            }
        });
        let writers: Vec<_> = nodes
            .iter_mut()
            .zip(seeds)
            .map(|(node, seed)| {
                scope.spawn(move || {
                    let limit = if node.number == killed { kill_after } else { REQUESTS };
                    let mut client = node.client();
                    node.writer.write(&mut client, round, limit, &mut Random::new(seed));
                    if node.number == killed {
                        node.kill();
                    }
                })
            })
            .collect();
        let failed = writers.into_iter().any(|writer| writer.join().is_err());
        written.store(true, Ordering::Relaxed);
        assert!(!failed, "a writer failed");
    });
    nodes[killed].start();
    swallowed
}

/// `larix replica check` finds all of them equal in the end.
fn are_equal(nodes: &[Node], when: &str) {
    let mut differences = String::new();
    let equal = looked_for(|| {
        differences.clear();
        nodes.iter().skip(1).all(|other| {
            let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
            command.args([
                "replica", "check", "-x", "-D", ADMIN, "-w", PASSWORD, "--settle", "0", "--limit", "10",
            ]);
            let urls = [&nodes[0], other].map(|node| format!("ldap://{}", node.address()));
            let output = command.args(urls).output().expect("larix runs");
            let text = String::from_utf8_lossy(&output.stdout);
            let _ =
                write!(differences, "{}: {text}{}", other.number, String::from_utf8_lossy(&output.stderr));
            // Before anything came there, it holds nothing, as another one.
            output.status.success() && !text.contains("equal: 0 ")
        })
    });
    if !equal {
        for node in nodes {
            println!("--- {}\n{}", node.number, node.log());
            let others = (0..nodes.len()).filter(|other| *other != node.number);
            others.for_each(|other| println!("{}", node.consumer(other)));
        }
        panic!("{when}: not equal\n{differences}");
    }
}

//! How often operations wait for the engine, as the monitor counts it.

use larix_proto::Scope;
use larix_testkit::postgresql::Engine;
use larix_tests::client::Client;
use larix_tests::raw::{Raw, bind, replace, search};
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

use super::{change, fill, larix, nodes_with, until};

/// The longest lease: nobody looks at it again during the test.
const LEASE: u32 = 300;
/// So many people that the top of the tree, which a node reads at first, does not have the last of them by name and by age.
const PEOPLE: usize = 362;
const FIRST_PEOPLE: usize = 300;
const DEEP: [&str; 4] =
    ["ou=a,ou=people", "ou=b,ou=a,ou=people", "ou=c,ou=b,ou=a,ou=people", "cn=deep,ou=c,ou=b,ou=a,ou=people"];

/// The most that an operation may take.
pub(super) struct Most {
    /// A read by a name of which the node knows neither the entry nor its three next superiors.
    pub(super) read: u64,
    pub(super) search: u64,
    pub(super) bind: u64,
    pub(super) modify: u64,
    pub(super) add: u64,
}

#[test]
fn operations_take_few_round_trips() {
    let Some(engine) = Engine::start() else { return };
    count(&engine.database().1, &Most { read: 1, search: 2, bind: 2, modify: 3, add: 3 });
}

fn name(number: usize) -> String {
    format!("{}{number}", if number < FIRST_PEOPLE { 'p' } else { 'q' })
}

fn person(number: usize) -> String {
    format!("cn={},ou=people,{SUFFIX}", name(number))
}

/// A connection as the root DN, whose password is in the configuration.
struct Counted {
    client: Client,
}

impl Counted {
    fn to(node: &Member) -> Self {
        let mut client = Client::connect(node.address());
        assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
        Self { client }
    }

    fn shown(&mut self) -> String {
        ask(&mut self.client, "search cn=Nodes,cn=Larix,cn=Monitor sub (objectClass=*) monitoredInfo")
    }

    fn trips(&mut self) -> u64 {
        let shown = self.shown();
        let (_, number) = shown.split_once("roundTrips=").expect("a number");
        let end = number.find(|letter: char| !letter.is_ascii_digit()).expect("an end");
        number[..end].parse().expect("a number")
    }

    /// The round trips of a request, which is answered so.
    fn of(&mut self, request: &str, answered: &str) -> u64 {
        let before = self.trips();
        let answer = ask(&mut self.client, request);
        assert!(
            answer.contains(answered) && answer.ends_with("=> 0\n") || answer == answered,
            "{request}: {answer}"
        );
        let cost = self.trips() - before;
        println!("{cost} round trips: {}", request.lines().next().unwrap_or_default());
        cost
    }

    #[track_caller]
    fn at_most(&mut self, most: u64, request: &str, answered: &str) {
        let cost = self.of(request, answered);
        assert!(cost <= most, "{cost} round trips, not {most}: {request}");
    }
}

pub(super) fn count(address: &str, most: &Most) {
    let mut nodes = nodes_with(address, 2, LEASE, ("", "index sn,ou eq\n"));
    nodes[0].start();
    fill(&nodes[0]);
    let mut loading = Counted::to(&nodes[0]);
    for number in 0..PEOPLE {
        let body =
            format!("objectClass: person\n  cn: {}\n  sn: s{number}\n  userPassword: right", name(number));
        assert_eq!(ask(&mut loading.client, &format!("add {}\n  {body}", person(number))), "=> 0\n");
    }
    for name in DEEP {
        let (rdn, class) = match name.split_once(',').expect("a superior").0.split_once('=').expect("a value")
        {
            ("ou", value) => (format!("ou: {value}"), "organizationalUnit"),
            (_, value) => (format!("cn: {value}\n  sn: deep"), "person"),
        };
        let request = format!("add {name},{SUFFIX}\n  objectClass: {class}\n  {rdn}");
        assert_eq!(ask(&mut loading.client, &request), "=> 0\n");
    }

    // A node that has read nothing of what it is asked for.
    nodes[1].start();
    let mut reading = Counted::to(&nodes[1]);
    // With that its first look at the lease ends.
    let line = format!("node:          {}, Larix ", nodes[1].url());
    until("it has said what it is", || larix(&["cluster", "status"], &nodes[0]).1.contains(&line));
    let deep = DEEP[3];
    let read = format!("search {deep},{SUFFIX} base (objectClass=*) sn");
    reading.at_most(most.read, &read, "sn: deep");
    reading.at_most(1, &read, "sn: deep");
    for (filter, found) in [
        ("(cn=q301)", "cn=q301"),
        ("(&(objectClass=person)(sn=s302))", "cn=q302"),
        ("(|(cn=q303)(sn=s304)(cn=q305)(sn=s306))", "cn=q306"),
        ("(&(cn=q307)(sn=s307)(!(description=x)))", "cn=q307"),
    ] {
        let search = format!("search {SUFFIX} sub {filter} sn");
        reading.at_most(most.search, &search, found);
        reading.at_most(1, &search, found);
    }
    reading.at_most(most.read.min(2), &format!("compare {} sn:s308", person(308)), "=> 6\n");
    let before = reading.trips();
    let mut user = Client::connect(nodes[1].address());
    assert_eq!(ask(&mut user, &format!("as {} right", person(309))), "=> 0\n");
    let cost = reading.trips() - before;
    assert!(cost <= most.bind, "{cost} round trips, not {}: a bind", most.bind);

    // Reads of what the node knows that wait at the same time share a question.
    let mut crowd = Raw::connect(nodes[1].address()).expect("a connection");
    let requests = (0..32).flat_map(|number| search(number + 1, &person(308), Scope::Base, "(sn=nobody)"));
    let before = reading.trips();
    assert!(crowd.send(&requests.collect::<Vec<u8>>()));
    let codes: Vec<_> = (0..32).map(|_| crowd.answer().map(|answer| answer.code)).collect();
    assert_eq!(codes, [Some(0); 32]);
    let cost = reading.trips() - before;
    assert!(cost <= 16, "{cost} round trips for 32 searches at once");

    // One that writes, and remembers nothing either.
    nodes[1].stop();
    nodes[0].stop();
    nodes[0].start();
    until("it writes", || change(&nodes[0], &format!("modify {}\n  replace sn: s0", person(0))) == "=> 0\n");
    let mut writing = Counted::to(&nodes[0]);
    // What the writer does beside changes may come between: the same again.
    let fewest = |writing: &mut Counted, what: &str, most: u64, request: &dyn Fn(usize) -> String| {
        let cost = (310..314).map(|number| writing.of(&request(number), "=> 0\n")).min().expect("several");
        assert!(cost <= most, "{cost} round trips, not {most}: {what}");
    };
    fewest(&mut writing, "a modify", most.modify, &|number| {
        format!("modify {}\n  replace sn: other{number}\n  replace description: x", person(number))
    });
    // The commit, and nothing else.
    fewest(&mut writing, "a modify of what it knows", 1, &|number| {
        format!("modify {}\n  replace description: y", person(number))
    });
    // Those that come while others are carried out are looked up together.
    let mut crowd = Raw::connect(nodes[0].address()).expect("a connection");
    assert_eq!(crowd.ask(&bind(1, ADMIN, "secret")).map(|answer| answer.code), Some(0));
    let mut together = |first: usize| {
        let one = |number: u32| replace(number + 2, &person(first + number as usize), "description", "z");
        let before = writing.trips();
        assert!(crowd.send(&(0..16).flat_map(one).collect::<Vec<u8>>()));
        let codes: Vec<_> = (0..16).map(|_| crowd.answer().map(|answer| answer.code)).collect();
        assert_eq!(codes, [Some(0); 16]);
        writing.trips() - before
    };
    let cost = [314, 330, 346].map(&mut together).into_iter().min().expect("several");
    assert!(cost <= 12, "{cost} round trips for 16 modifies at once");
    fewest(&mut writing, "an add", most.add, &|number| {
        let number = number + 1000;
        format!("add {}\n  objectClass: person\n  cn: {}\n  sn: new{number}", person(number), name(number))
    });
    nodes[0].stop();
}

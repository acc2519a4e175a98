//! Many clients that give one value to several entries at once, behind `overlay unique`: each server lets one of them have it.
//!
//! `LARIX_RACE_VALUES` says how many values (1,000 by default, a tenth of that for two servers).

use std::sync::Barrier;

use larix_testkit::Kind;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Content, Member, Merging, SUFFIX, ask, members, people};

const CLIENTS: usize = 16;
const UNIQUE: &str = "dbnosync\nindex mail eq\noverlay unique\nunique_uri ldap:///?mail?sub";

/// How many values are raced for.
fn values(usual: usize) -> usize {
    std::env::var("LARIX_RACE_VALUES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn mail(value: usize) -> String {
    format!("v{value}@race.org")
}

/// An entry that wants a value: odd clients add it with the value, even ones give the value to an entry that is there.
fn request(client: usize, value: usize) -> String {
    match client.is_multiple_of(2) {
        true => format!("modify \"uid=u{client},ou=people,{SUFFIX}\"\n  add mail: {}", mail(value)),
        false => format!(
            "add \"uid=c{client}v{value},ou=people,{SUFFIX}\"\n  objectClass: inetOrgPerson\n  uid: c{client}v{value}\n  \
             cn: c\n  sn: c\n  mail: {}",
            mail(value)
        ),
    }
}

/// Every client asks for every value, all at the same time; for each value, how often it was given, by server. A client that gets
/// another answer goes on, so that no other one waits for it for ever.
fn race(servers: &[Member], values: usize) -> Vec<Vec<usize>> {
    let start = Barrier::new(CLIENTS);
    let run = |number: usize, mut client: Client| {
        let (mut won, mut fault) = (Vec::new(), None);
        for value in 0..values {
            let request = request(number, value);
            start.wait();
            let answer = ask(&mut client, &request);
            let refused = answer.starts_with("=> 19 text \"non-unique attributes found");
            if !refused && answer != "=> 0\n" {
                fault.get_or_insert_with(|| format!("{request}\n{answer}"));
            }
            won.push(!refused);
        }
        (won, fault)
    };
    let mut given = vec![vec![0; servers.len()]; values];
    let clients: Vec<Client> = (0..CLIENTS).map(|number| servers[number % servers.len()].client()).collect();
    std::thread::scope(|scope| {
        let clients = clients.into_iter().enumerate();
        let clients: Vec<_> =
            clients.map(|(number, client)| scope.spawn(move || run(number, client))).collect();
        for (number, client) in clients.into_iter().enumerate() {
            let (won, fault) = client.join().expect("a client");
            assert_eq!(fault, None);
            for (value, _) in won.iter().enumerate().filter(|(_, won)| **won) {
                given[value][number % servers.len()] += 1;
            }
        }
    });
    given
}

/// How many entries have the value.
fn holders(content: &Content, value: usize) -> usize {
    let mail = mail(value);
    let mails = content.values().filter_map(|entry| entry.get("mail"));
    mails.filter(|values| values.iter().any(|known| known == mail.as_bytes())).count()
}

#[test]
fn one_client_of_many_gets_a_value() {
    let member = Member::new(Kind::Larix, "", UNIQUE);
    member.site.load_into(Some(SUFFIX), &people(CLIENTS));
    let servers = [member.started()];
    let given = race(&servers, values(1_000));
    let content = servers[0].content(SUFFIX).expect("the tree");
    for (value, given) in given.iter().enumerate() {
        assert_eq!(given, &[1], "{}", mail(value));
        assert_eq!(holders(&content, value), 1, "{}", mail(value));
    }
}

/// Neither of two servers can know what the other one takes at the same moment: each lets one client have the value, no change
/// that was answered is lost, and both come to the same. From then on the value is taken on both.
#[test]
fn each_of_two_servers_lets_one_client_have_a_value() {
    let mut servers = members(2, Merging::Values);
    for member in &mut servers {
        let file = member.site.configuration();
        let text = std::fs::read_to_string(&file).expect("a slapd.conf");
        std::fs::write(&file, format!("{text}{UNIQUE}\n")).expect("a slapd.conf");
    }
    servers[0].site.load_into(Some(SUFFIX), &people(CLIENTS));
    servers.iter_mut().for_each(Member::start);
    servers[1].wait_until_like(&servers[0]);

    let given = race(&servers, values(1_000) / 10);
    for _ in 0..2 {
        servers[1].wait_until_like(&servers[0]);
        servers[0].wait_until_like(&servers[1]);
    }
    let content = servers[0].content(SUFFIX).expect("the tree");
    let mut both = 0;
    for (value, given) in given.iter().enumerate() {
        let mail = mail(value);
        assert!(given.iter().all(|count| *count <= 1), "{mail}: {given:?}");
        let total: usize = given.iter().sum();
        assert!(total >= 1, "{mail}: nobody has it");
        assert_eq!(holders(&content, value), total, "{mail}: {given:?}");
        both += usize::from(total == 2);
        for member in &servers {
            let again = request(CLIENTS + 1, value);
            let answer = ask(&mut member.client(), &again);
            assert!(answer.starts_with("=> 19"), "{ADMIN} {again}\n{answer}");
        }
    }
    println!("{both} of {} values were given by both servers", given.len());
}

/// A value that two servers gave while neither could hear of the other stays with both entries, and both servers tell it.
#[test]
fn a_value_that_was_given_apart_is_told() {
    let mut servers = members(2, Merging::Values);
    for member in &mut servers {
        let file = member.site.configuration();
        let text = std::fs::read_to_string(&file).expect("a slapd.conf");
        std::fs::write(&file, format!("{text}{UNIQUE}\n")).expect("a slapd.conf");
    }
    servers[0].site.load_into(Some(SUFFIX), &people(2));
    servers.iter_mut().for_each(Member::start);
    servers[1].wait_until_like(&servers[0]);
    servers.iter_mut().for_each(Member::stop);
    for (number, member) in servers.iter_mut().enumerate() {
        member.start();
        member.change(&format!("modify \"uid=u{number},ou=people,{SUFFIX}\"\n  add mail: {}", mail(0)));
        member.stop();
    }
    servers.iter_mut().for_each(Member::start);
    servers[1].wait_until_like(&servers[0]);
    assert_eq!(holders(&servers[1].content(SUFFIX).expect("the tree"), 0), 2);
    for (number, member) in servers.iter().enumerate() {
        let there = 1 - number;
        member.wait_for_log(&format!(
            "a value of mail is in \"uid=u{there},ou=people,{SUFFIX}\", which another server changed"
        ));
    }
}

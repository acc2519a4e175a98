//! Many clients, operations and faults by chance: nobody sees an answer that is not his.

use std::collections::{BTreeMap, HashMap};

use super::*;

/// A generator of numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        Balancer::draw(&mut self.0) % limit
    }
}

/// Every request names its client and number; servers answer with what the request names, in any order, or die.
fn run(seed: u64) {
    let mut numbers = Numbers(seed * 2 + 1);
    let mut world = World::new(
        &(conf(2, 2, "client_max_pending 5")
            + "tier bestof\nbackend-server uri=ldap://192.0.2.7 numconns=1 bindconns=1 weight=2"),
    );
    let mut clients: Vec<u64> = (0..6).map(|_| world.client()).collect();
    // By client: what is expected by message id.
    let mut expected: HashMap<u64, BTreeMap<u32, String>> = HashMap::new();
    // By connection: what the server has to answer.
    let mut servers: HashMap<u64, Vec<ReceivedRequest>> = HashMap::new();
    let (mut next, mut answered, mut lost) = (0u32, 0, 0);
    for _ in 0..3000 {
        match numbers.below(20) {
            0..=8 => {
                let client = clients[usize::try_from(numbers.below(clients.len() as u64)).unwrap()];
                next += 1;
                let name = format!("cn={client}-{next}");
                expected.entry(client).or_default().insert(next, name.clone());
                match numbers.below(4) {
                    0 => world.search(client, next, &name),
                    1 if expected[&client].len() == 1 => world.bind(client, next, &name, "x"),
                    _ => world.delete(client, next, &name),
                }
            }
            9 => {
                let client = clients[usize::try_from(numbers.below(clients.len() as u64)).unwrap()];
                let first = expected.get(&client).and_then(|open| open.keys().next().copied());
                if let Some(id) = first {
                    next += 1;
                    world.send(client, |out| client::abandon(out, MessageId(next), MessageId(id), &[]));
                }
            }
            10 => {
                let at = usize::try_from(numbers.below(clients.len() as u64)).unwrap();
                world.balancer.client_gone(clients[at]);
                expected.remove(&clients[at]);
                clients[at] = world.client();
            }
            11 => {
                let all: Vec<u64> = Pool::ALL.into_iter().flat_map(|pool| world.upstreams(pool)).collect();
                if !all.is_empty() && numbers.below(4) == 0 {
                    let id = all[usize::try_from(numbers.below(all.len() as u64)).unwrap()];
                    world.balancer.lost(id, &PeerFault::Closed, world.now);
                    servers.remove(&id);
                    lost += 1;
                }
            }
            12 => {
                world.pass(Duration::from_millis(300));
                world.connect_all();
            }
            _ => {
                let all: Vec<u64> = Pool::ALL.into_iter().flat_map(|pool| world.upstreams(pool)).collect();
                for id in &all {
                    let requests = world
                        .requests(*id)
                        .into_iter()
                        .filter(|request| !request.what.starts_with("abandon"));
                    servers.entry(*id).or_default().extend(requests);
                }
                servers.retain(|id, _| all.contains(id));
                let Some((id, open)) = servers.iter_mut().find(|(_, open)| !open.is_empty()) else {
                    continue;
                };
                let request = open.remove(usize::try_from(numbers.below(open.len() as u64)).unwrap());
                let (kind, name) = request.what.split_once(' ').unwrap();
                let op = match kind {
                    "bind" => ResponseOp::Bind,
                    "search" => ResponseOp::SearchDone,
                    _ => ResponseOp::Delete,
                };
                let id = *id;
                if op == ResponseOp::SearchDone {
                    world.entry(id, request.id, name);
                }
                world.answer(id, request.id, op, ResultCode::SUCCESS, name);
            }
        }
        for client in &clients {
            for answer in world.answers(*client) {
                let (id, rest) = answer.split_once(' ').unwrap();
                let id: u32 = id.parse().unwrap();
                let open = expected.get_mut(client).unwrap();
                let name = open.get(&id).unwrap_or_else(|| {
                    panic!("seed {seed}: {client} has {answer}, which it did not ask for")
                });
                if rest.starts_with("entry ") {
                    assert_eq!(rest, format!("entry {name}"), "seed {seed}");
                    continue;
                }
                let code = rest.split(' ').nth(1).unwrap();
                match code {
                    "0" => {
                        assert!(rest.ends_with(&format!(" {name}")), "seed {seed}: {answer} for {name}");
                        answered += 1;
                    }
                    "51" | "52" => {}
                    _ => panic!("seed {seed}: {answer}"),
                }
                open.remove(&id);
            }
        }
        // Tables and counts agree.
        let under_way: usize = world.balancer.clients.values().map(|client| client.pending.len()).sum();
        let at_servers: usize = world
            .balancer
            .upstreams
            .values()
            .map(|upstream| upstream.pending.values().filter(|operation| operation.to.is_some()).count())
            .sum();
        assert_eq!(under_way, at_servers, "seed {seed}");
        let counted: usize = world.balancer.backends.iter().map(|backend| backend.pending).sum();
        let shared = world.balancer.upstreams.values().filter(|upstream| upstream.pool == Pool::Shared);
        assert_eq!(counted, shared.map(|upstream| upstream.pending.len()).sum::<usize>(), "seed {seed}");
    }
    assert!(answered > 200 && lost > 0, "seed {seed}: {answered} answered, {lost} lost");
}

#[test]
fn nobody_sees_anothers_answer() {
    (1..=20).for_each(run);
}

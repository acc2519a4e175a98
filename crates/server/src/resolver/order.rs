//! The order in which the hosts of SRV records are to be tried (RFC 2782).

use larix_engine::time::RandomSource;

use super::message::Host;

/// By priority, and within one priority by chance: the larger the weight, the sooner.
pub(super) fn in_order<'h>(hosts: &'h [Host], random: &dyn RandomSource) -> Vec<&'h Host> {
    let mut left: Vec<&Host> = hosts.iter().collect();
    // Within a priority those without weight come first, so that they have a small chance, too.
    left.sort_by_key(|host| (host.priority, host.weight > 0));
    let mut numbers = vec![0; left.len() * size_of::<u32>()];
    random.fill(&mut numbers);
    let mut ordered = Vec::with_capacity(left.len());
    for number in numbers.as_chunks::<4>().0 {
        let Some(first) = left.first() else { break };
        let group = left.iter().take_while(|host| host.priority == first.priority);
        let (count, sum) = group.fold((0, 0), |(count, sum), host| (count + 1, sum + u32::from(host.weight)));
        let number = u32::from_le_bytes(*number);
        let mut drawn = number % (sum + 1);
        let is_it = |host: &&Host| {
            let weight = u32::from(host.weight);
            let is_it = drawn <= weight;
            drawn = drawn.saturating_sub(weight);
            is_it
        };
        let at = match sum {
            // Without weights all have the same chance.
            0 => number as usize % count,
            _ => left.iter().position(is_it).unwrap_or(0),
        };
        ordered.push(left.remove(at));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use larix_engine::time::SeededRandom;

    use super::*;

    fn host(name: &str, priority: u16, weight: u16) -> Host {
        Host { priority, weight, name: name.to_owned(), port: 389 }
    }

    #[test]
    fn priorities_are_kept_and_weights_are_chances() {
        let random = SeededRandom::new(7);
        let hosts = [
            host("last", 9, 65535),
            host("heavy", 1, 70),
            host("light", 1, 30),
            host("never", 1, 0),
            host("a", 2, 0),
            host("b", 2, 0),
        ];
        let mut first = std::collections::HashMap::<String, u32>::new();
        let mut a_first = 0;
        for _ in 0..10_000 {
            let ordered: Vec<&str> = in_order(&hosts, &random).iter().map(|host| &*host.name).collect();
            assert_eq!(ordered.len(), hosts.len());
            assert_eq!(ordered[5], "last");
            assert!(["a", "b"].contains(&ordered[3]) && ["a", "b"].contains(&ordered[4]), "{ordered:?}");
            *first.entry(ordered[0].to_owned()).or_default() += 1;
            a_first += u32::from(ordered[3] == "a");
        }
        let of = |name: &str| first.get(name).copied().unwrap_or(0);
        assert!((6_700..7_300).contains(&of("heavy")), "{first:?}");
        assert!((2_700..3_300).contains(&of("light")), "{first:?}");
        assert!((1..300).contains(&of("never")), "{first:?}");
        assert!((4_700..5_300).contains(&a_first), "{a_first}");
        assert!(in_order(&[], &random).is_empty());
    }
}

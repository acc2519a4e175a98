//! Which numbers are asked for, and in what order.

use crate::generate::Random;

/// A range of numbers and how `{n}` is drawn from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// The lowest number.
    pub first: u64,
    /// How many numbers there are, from `first` on.
    pub count: u64,
    pub order: Order,
}

/// How a number is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Each as likely as any other.
    Random,
    /// One after the other, then from the start again.
    Sequential,
    /// The k-th most popular number with a likelihood of `1 / k^exponent`; popular ones are scattered over the range.
    Zipf {
        /// More than 0; 1 is the classic law, web and mail traffic is near it.
        exponent: f64,
    },
}

impl Targets {
    /// Each of `1..=count` as likely as any other.
    pub const fn random(count: u64) -> Self {
        Self { first: 1, count, order: Order::Random }
    }
}

/// A stream of numbers for one of several threads.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    targets: Targets,
    zipf: Option<Zipf>,
    sequence: Sequence,
}

/// Numbers from 0 that no other thread has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    next: u64,
    stride: u64,
}

impl Sequence {
    /// That of one of `threads`, counted from 0.
    pub(super) const fn new(thread: u64, threads: u64) -> Self {
        Self { next: thread, stride: threads }
    }

    pub(super) const fn next(&mut self) -> u64 {
        let next = self.next;
        self.next = next.wrapping_add(self.stride);
        next
    }
}

impl Draw {
    pub(super) fn new(targets: Targets, sequence: Sequence) -> Self {
        let zipf = match targets.order {
            Order::Zipf { exponent } => Some(Zipf::new(targets.count, exponent)),
            Order::Random | Order::Sequential => None,
        };
        Self { targets, zipf, sequence }
    }

    pub(super) fn number(&mut self, random: &mut Random) -> u64 {
        match (&self.zipf, self.targets.order) {
            (Some(zipf), _) => self.targets.first + zipf.scatter(zipf.rank(random)),
            (None, Order::Sequential) => self.sequential(),
            (None, _) => self.targets.first + random.below(self.targets.count),
        }
    }

    /// The next in sequence, whatever the order.
    pub(super) const fn sequential(&mut self) -> u64 {
        self.targets.first + self.sequence.next() % self.targets.count
    }
}

/// Ranks by Zipf's law with any exponent above 0, in constant time and memory: rejection-inversion (W. Hörmann and
/// G. Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", 1996).
///
/// The density `x^-exponent` is integrated; a point is drawn under the integral between the edges of the first and the
/// last rank, turned back into a rank, and rejected where the step function lies below the curve, less than once in
/// three draws.
#[derive(Clone, Debug)]
struct Zipf {
    count: u64,
    exponent: f64,
    /// The integral at the left edge of rank 1 and at the right edge of the last.
    low: f64,
    high: f64,
    /// Points so near below their rank need no check.
    sure: f64,
    /// A factor without a common divisor with `count`, so that multiplying permutes the ranks.
    scatter: u64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self { count, exponent, low: 0.0, high: 0.0, sure: 0.0, scatter: coprime(count) };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(count as f64 + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// `1..=count`
    fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let unit = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
            let point = self.high + unit * (self.low - self.high);
            let x = self.inverse(point);
            let rank = x.round().clamp(1.0, self.count as f64);
            if rank - x <= self.sure || point >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    /// Another number below `count` for each rank.
    const fn scatter(&self, rank: u64) -> u64 {
        ((rank - 1) as u128 * self.scatter as u128 % self.count as u128) as u64
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to `x`: `(x^(1-e) - 1) / (1-e)`, and the logarithm for e = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let by = (1.0 - self.exponent) * log;
        log * if by.abs() > 1e-8 { by.exp_m1() / by } else { 1.0 + by / 2.0 }
    }

    fn inverse(&self, integral: f64) -> f64 {
        let by = (integral * (1.0 - self.exponent)).max(-1.0);
        let log = integral * if by.abs() > 1e-8 { by.ln_1p() / by } else { 1.0 - by / 2.0 };
        log.exp()
    }
}

/// The first number from the golden section of `count` upwards that has no common divisor with it.
fn coprime(count: u64) -> u64 {
    const fn divisor(mut a: u64, mut b: u64) -> u64 {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    }
    let from = ((count as f64 * 0.618_033_988_749_895) as u64).max(1);
    (from..).find(|&factor| divisor(factor, count) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(order: Order, count: u64, draws: usize) -> Vec<u64> {
        let mut draw = Draw::new(Targets { first: 10, count, order }, Sequence::new(0, 1));
        let mut random = Random::new(1);
        let mut seen = vec![0; usize::try_from(count).unwrap()];
        for _ in 0..draws {
            let number = draw.number(&mut random);
            seen[usize::try_from(number - 10).unwrap()] += 1;
        }
        seen
    }

    #[test]
    fn every_order_stays_in_its_range_and_reaches_it() {
        for order in [Order::Random, Order::Sequential, Order::Zipf { exponent: 1.0 }] {
            for count in [1, 2, 7, 100] {
                let seen = draw(order, count, 20_000);
                assert!(seen.iter().all(|&times| times > 0), "{order:?} {count}: {seen:?}");
            }
        }
    }

    #[test]
    fn random_is_even_and_sequential_exactly_so() {
        let seen = draw(Order::Sequential, 100, 10_000);
        assert!(seen.iter().all(|&times| times == 100), "{seen:?}");
        let seen = draw(Order::Random, 100, 100_000);
        assert!(seen.iter().all(|&times| (850..1_150).contains(&times)), "{seen:?}");
    }

    #[test]
    fn zipf_follows_its_law() {
        for exponent in [0.5, 0.99, 1.0, 1.5, 2.0] {
            const DRAWS: usize = 400_000;
            let zipf = Zipf::new(1_000, exponent);
            let mut random = Random::new(7);
            let mut seen = [0_u32; 1_001];
            for _ in 0..DRAWS {
                seen[usize::try_from(zipf.rank(&mut random)).unwrap()] += 1;
            }
            let total: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1_u32, 2, 3, 10, 50] {
                let expected = DRAWS as f64 * f64::from(rank).powf(-exponent) / total;
                let got = f64::from(seen[rank as usize]);
                // Five standard deviations of a count that large.
                assert!(
                    (got - expected).abs() < 5.0 * expected.sqrt(),
                    "{exponent} {rank}: {got}, {expected}"
                );
            }
        }
    }

    #[test]
    fn zipf_scatters_without_collision_and_takes_large_ranges() {
        for count in [1, 2, 10, 97, 1_000] {
            let zipf = Zipf::new(count, 1.0);
            let mut all: Vec<u64> = (1..=count).map(|rank| zipf.scatter(rank)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
        let (zipf, mut random) = (Zipf::new(50_000_000, 0.99), Random::new(1));
        assert!((0..10_000).all(|_| (1..=50_000_000).contains(&zipf.rank(&mut random))));
    }

    #[test]
    fn threads_take_turns_in_a_sequence() {
        let (mut first, mut second) = (Sequence::new(0, 2), Sequence::new(1, 2));
        let taken: Vec<u64> = (0..3).flat_map(|_| [first.next(), second.next()]).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
    }
}

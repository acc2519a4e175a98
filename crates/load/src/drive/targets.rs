//! Which numbers are asked for, and in what order.

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

//! Which numbers a filter can be true of.

use larix_schema::{AttributeTypeId, BoundFilter};

/// The lowest and the highest number; the first is the greater one if there is none.
pub(super) type Numbers = (u64, u64);

const ALL: Numbers = (0, u64::MAX);
const NONE: Numbers = (1, 0);

/// The numbers between which all changes are that the filter can be true of: those outside need not be looked at.
pub(super) fn of_filter(filter: &BoundFilter, number: AttributeTypeId) -> Numbers {
    let number_of = |assertion: &larix_schema::BoundAssertion| {
        let own = assertion.description.attribute == number && assertion.description.options().is_empty();
        own.then(|| std::str::from_utf8(assertion.value.raw()).ok()?.parse::<i128>().ok()).flatten()
    };
    let at_least = |value: i128| u64::try_from(value.max(0)).map_or(NONE, |low| (low, u64::MAX));
    let at_most = |value: i128| match u64::try_from(value) {
        Ok(high) => (0, high),
        Err(_) if value < 0 => NONE,
        Err(_) => ALL,
    };
    match filter {
        BoundFilter::False | BoundFilter::Undefined => NONE,
        BoundFilter::And(list) => list.iter().fold(ALL, |(low, high), one| {
            let (own_low, own_high) = of_filter(one, number);
            (low.max(own_low), high.min(own_high))
        }),
        BoundFilter::Or(list) => {
            list.iter().map(|one| of_filter(one, number)).fold(NONE, |all, own| {
                match (all.0 > all.1, own.0 > own.1) {
                    (_, true) => all,
                    (true, _) => own,
                    _ => (all.0.min(own.0), all.1.max(own.1)),
                }
            })
        }
        BoundFilter::Equality(assertion) => match number_of(assertion) {
            Some(value) => u64::try_from(value).map_or(NONE, |value| (value, value)),
            None => ALL,
        },
        BoundFilter::GreaterOrEqual(assertion) => number_of(assertion).map_or(ALL, at_least),
        BoundFilter::LessOrEqual(assertion) => number_of(assertion).map_or(ALL, at_most),
        _ => ALL,
    }
}

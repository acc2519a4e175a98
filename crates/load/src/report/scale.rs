//! Where values stand on an axis, and its ticks.

use super::Scale;

/// The greatest and the least size that an axis has a place for: a figure beyond is a fault, and shown at the end.
const VALUE_MAX: f64 = 1e30;
const VALUE_MIN: f64 = 1e-30;

/// A span of values laid on 0 to 1.
#[derive(Clone, Debug)]
pub(super) struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    pub(super) ticks: Vec<f64>,
}

impl Span {
    /// From zero to a round number at or above `most`; about `steps` ticks.
    pub(super) fn from_zero(most: f64, steps: u32) -> Self {
        Self::linear(0.0, most, steps)
    }

    /// Bytes from zero, with ticks at round numbers of the unit that `most` is shown in.
    pub(super) fn bytes(most: f64) -> Self {
        let mut unit = 1.0;
        while most.min(VALUE_MAX) / unit >= 1024.0 {
            unit *= 1024.0;
        }
        let mut span = Self::from_zero(most / unit, 4);
        span.high *= unit;
        for tick in &mut span.ticks {
            *tick *= unit;
        }
        span
    }

    /// From `low` to `high` as they are, without ticks.
    pub(super) fn exactly(low: f64, high: f64) -> Self {
        Self { scale: Scale::Linear, low, high, ticks: Vec::new() }
    }

    /// Round numbers around `least` and `most`; no more than a few above `steps` ticks.
    pub(super) fn linear(least: f64, most: f64, steps: u32) -> Self {
        let steps = f64::from(steps.max(1));
        let (least, most) = (least.clamp(-VALUE_MAX, VALUE_MAX), most.clamp(-VALUE_MAX, VALUE_MAX));
        // Two values that are all but equal would have ticks that are equal in print.
        let room = least.abs().max(VALUE_MIN) * 1e-6;
        let most = if most - least > room { most } else { least + least.abs().max(1.0) };
        let step = round_step((most - least) / steps);
        let low = (least / step + 1e-9).floor() * step;
        // An epsilon keeps 0.3 / 0.1 from asking for a fourth step.
        let high = (most / step - 1e-9).ceil() * step;
        let count = ((high - low) / step).round().min(steps + 2.0) as u32;
        let ticks = (0..=count).map(|tick| low + f64::from(tick) * step).collect();
        Self { scale: Scale::Linear, low, high, ticks }
    }

    /// By powers of ten, ending at 1, 2 or 5 times one; both must be above zero.
    pub(super) fn log(least: f64, most: f64) -> Self {
        let least = least.clamp(VALUE_MIN, VALUE_MAX);
        let most = most.clamp(least, VALUE_MAX);
        let marks = |decades: f64| if decades > 3.0 { &[1.0][..] } else { &[1.0, 2.0, 5.0] };
        let marks = marks((most / least).log10());
        let first = least.log10().floor() as i32 - 1;
        let last = most.log10().ceil() as i32 + 1;
        let all: Vec<f64> =
            (first..=last).flat_map(|power| marks.iter().map(move |mark| mark * 10f64.powi(power))).collect();
        let below = all.iter().copied().rfind(|tick| *tick <= least * 1.000_001);
        let above = all.iter().copied().find(|tick| *tick >= most * 0.999_999);
        let (low, mut high) = (below.unwrap_or(least), above.unwrap_or(most));
        if high <= low {
            high = all.iter().copied().find(|tick| *tick > low * 1.000_001).unwrap_or(low * 10.0);
        }
        let ticks =
            all.into_iter().filter(|tick| *tick >= low * 0.999_999 && *tick <= high * 1.000_001).collect();
        Self { scale: Scale::Log, low, high, ticks }
    }

    /// The ticks that are named where there is little room: `anchor`'s, when it is one, and others that are at least
    /// `apart` of the axis from the next.
    pub(super) fn named(&self, anchor: f64, apart: f64) -> Vec<f64> {
        let position = |tick: &f64| self.position(*tick).unwrap_or(0.0);
        let first = self.ticks.iter().position(|tick| (tick - anchor).abs() < 1e-9).unwrap_or(0);
        let (before, after) = self.ticks.split_at(first.min(self.ticks.len()));
        let mut named: Vec<f64> = Vec::new();
        for tick in after {
            if named.last().is_none_or(|last| position(tick) - position(last) >= apart) {
                named.push(*tick);
            }
        }
        let mut next = named.first().map_or(1.0, position);
        for tick in before.iter().rev() {
            if next - position(tick) >= apart {
                next = position(tick);
                named.insert(0, *tick);
            }
        }
        named
    }

    /// The place of `value` between 0 and 1; absent when the axis has no place for it.
    pub(super) fn position(&self, value: f64) -> Option<f64> {
        if !value.is_finite() {
            return None;
        }
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Log => return None,
        };
        Some(place.clamp(0.0, 1.0))
    }
}

/// The round number (1, 2 or 5 times a power of ten) at or above `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let mark = [1.0, 2.0, 5.0].into_iter().find(|mark| mark * power >= step * 0.999_999);
    mark.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: &[f64], expected: &[f64]) -> bool {
        found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9 * b.abs().max(1.0))
    }

    #[test]
    fn linear_ticks_are_round_and_hold_all() {
        for (least, most, expected) in [
            (0.0, 37.0, &[0.0, 10.0, 20.0, 30.0, 40.0][..]),
            (0.0, 0.3, &[0.0, 0.1, 0.2, 0.3]),
            (0.0, 0.0, &[0.0, 0.5, 1.0]),
            (0.0, f64::MAX, &[0.0, 5e29, 1e30]),
            (1.0, 20.0, &[0.0, 5.0, 10.0, 15.0, 20.0]),
            (7.0, 7.0, &[6.0, 8.0, 10.0, 12.0, 14.0]),
        ] {
            let span = Span::linear(least, most, 4);
            assert!(close(&span.ticks, expected), "{least} to {most}: {:?}", span.ticks);
        }
    }

    #[test]
    fn log_ticks_hold_all() {
        for (least, most, expected) in [
            (1.0, 20.0, &[1.0, 2.0, 5.0, 10.0, 20.0][..]),
            (3.0, 40.0, &[2.0, 5.0, 10.0, 20.0, 50.0]),
            (1.0, 20_000.0, &[1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0]),
            (5.0, 5.0, &[5.0, 10.0]),
            (0.5, 2.0, &[0.5, 1.0, 2.0]),
        ] {
            let span = Span::log(least, most);
            assert!(close(&span.ticks, expected), "{least} to {most}: {:?}", span.ticks);
        }
    }

    #[test]
    fn named_ticks_are_apart() {
        let span = Span::log(0.5, 50.0);
        assert_eq!(span.ticks, [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        for (anchor, apart, expected) in [
            (1.0, 0.01, &[0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0][..]),
            (1.0, 0.2, &[1.0, 5.0, 20.0]),
            (50.0, 0.2, &[0.5, 2.0, 10.0, 50.0]),
            (7.0, 0.4, &[0.5, 5.0, 50.0]),
        ] {
            assert_eq!(span.named(anchor, apart), expected, "{anchor} {apart}");
        }
    }

    #[test]
    fn places() {
        for (span, value, expected) in [
            (Span::from_zero(40.0, 4), 10.0, Some(0.25)),
            (Span::from_zero(40.0, 4), 90.0, Some(1.0)),
            (Span::log(1.0, 100.0), 10.0, Some(0.5)),
            (Span::log(1.0, 100.0), 0.0, None),
            (Span::from_zero(1.0, 2), f64::NAN, None),
        ] {
            let place = span.position(value);
            let right = match (place, expected) {
                (Some(a), Some(b)) => (a - b).abs() < 1e-9,
                (a, b) => a == b,
            };
            assert!(right, "{value}: {place:?}");
        }
    }
}

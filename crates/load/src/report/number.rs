//! Numbers as people read them.

/// A figure with three significant digits or more, thousands apart; bytes in the largest binary unit that keeps it
/// above one. Microseconds stay microseconds: a row's figures are to be compared with each other at a glance.
pub(super) fn figure(value: f64, unit: &str) -> String {
    if unit == "bytes" { bytes(value) } else { plain(value) }
}

/// The unit that stands beside a figure; bytes carry theirs in the figure.
pub(super) fn unit(unit: &str) -> &str {
    if unit == "bytes" { "" } else { unit }
}

/// A number without a unit.
pub(super) fn plain(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 99.95 => thousands(value),
        size if size >= 9.995 => trimmed(value, 1),
        size if size >= 0.9995 => trimmed(value, 2),
        size if size >= 0.001 => trimmed(value, 3),
        _ => format!("{value:.1e}"),
    }
}

/// A ratio: `3.54x`.
pub(super) fn ratio(value: f64) -> String {
    let text = match value {
        value if value >= 99.95 => thousands(value),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    format!("{text}x")
}

/// A goal: `4x`, `1.5x`.
pub(super) fn goal(value: f64) -> String {
    format!("{}x", trimmed(value, 2))
}

/// A whole number with its thousands apart: `12,700`.
pub fn count(value: f64) -> String {
    thousands(value)
}

/// Bytes in the largest binary unit that keeps them above one: `1.5 GiB`.
pub fn bytes(value: f64) -> String {
    let mut left = value;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        // 1,023.6 KiB would be shown as 1,024 KiB.
        if left.abs() < 1023.5 {
            return format!("{} {unit}", plain(left));
        }
        left /= 1024.0;
    }
    format!("{} TiB", plain(left))
}

fn thousands(value: f64) -> String {
    let text = format!("{value:.0}");
    match text.strip_prefix('-') {
        Some(digits) => format!("-{}", group(digits)),
        None => group(&text),
    }
}

fn group(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// At most `decimals` decimals, without zeros at the end.
fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        for (value, unit, expected) in [
            (0.0, "/s", "0"),
            (-0.0, "/s", "0"),
            (0.000_12, "s", "1.2e-4"),
            (0.123_4, "s", "0.123"),
            (0.999_9, "s", "1"),
            (7.5, "s", "7.5"),
            (99.96, "s", "100"),
            (52_547.4, "per CPU-s", "52,547"),
            (1_234_567.0, "/s", "1,234,567"),
            (-1_234.0, "/s", "-1,234"),
            (1023.0, "bytes", "1,023 B"),
            (1024.0, "bytes", "1 KiB"),
            (1_048_300.0, "bytes", "1 MiB"),
            (1_395_864_371.2, "bytes", "1.3 GiB"),
            (5e15, "bytes", "4,547 TiB"),
        ] {
            assert_eq!(figure(value, unit), expected, "{value} {unit}");
        }
    }

    #[test]
    fn ratios_and_goals() {
        for (value, expected) in [(3.544, "3.54x"), (34.09, "34.1x"), (0.5, "0.50x"), (1234.0, "1,234x")] {
            assert_eq!(ratio(value), expected);
        }
        for (value, expected) in [(4.0, "4x"), (1.5, "1.5x"), (0.666, "0.67x"), (30.0, "30x")] {
            assert_eq!(goal(value), expected);
        }
    }
}

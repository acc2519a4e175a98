//! Times and sizes with a unit.

/// Seconds: `90`, `90s`, `15m`, `12h`, `7d`, `2w`.
///
/// # Errors
/// Says what is wrong with the text.
pub fn seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text).ok_or_else(|| format!("`{text}` is not a time; for example 7d"))?;
    let seconds = match unit.to_ascii_lowercase().as_str() {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(format!("`{unit}` is not a unit of time; say s, m, h, d or w")),
    };
    number.checked_mul(seconds).ok_or_else(|| format!("`{text}` is too long a time"))
}

/// Bytes: `1048576`, `64k`, `512m`, `10g`, `1t`; the units are powers of 1,024.
///
/// # Errors
/// Says what is wrong with the text.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text).ok_or_else(|| format!("`{text}` is not a size; for example 10g"))?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("`{unit}` is not a unit of size; say k, m, g or t")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too large a size"))
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit))
}

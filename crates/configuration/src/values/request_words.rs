//! `request-limits`: what one request may cost.

use larix_engine::budget::{RequestLimit, RequestLimits};

/// The words, for messages.
pub(crate) fn all() -> String {
    let words: Vec<String> = RequestLimit::ALL.iter().map(|row| format!("{}=", row.word)).collect();
    words.join(", ")
}

/// Takes one word of the line, `selectors=1000`, into the limits.
pub(crate) fn apply(limits: &mut RequestLimits, word: &str) -> Result<(), String> {
    let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no value"))?;
    let limit = RequestLimit::named(name).ok_or_else(|| format!("no limit `{name}`"))?;
    let most = match value.to_ascii_lowercase().as_str() {
        "unlimited" | "none" => u64::MAX,
        number => match number.parse() {
            Ok(0) | Err(_) => {
                return Err(format!("`{value}` is not a limit; say a number above 0, or unlimited"));
            }
            Ok(most) => most,
        },
    };
    limits.set(limit, most);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_line() {
        let mut limits = RequestLimits::default();
        for word in ["selectors=100", "SortKeys=7", "transaction.bytes=unlimited"] {
            apply(&mut limits, word).unwrap();
        }
        let expected = RequestLimits::default()
            .with(RequestLimit::Selectors, 100)
            .with(RequestLimit::SortKeys, 7)
            .with(RequestLimit::TransactionBytes, u64::MAX);
        assert_eq!(limits, expected);
        for (word, expected) in [
            ("selectors", "`selectors` has no value"),
            ("speed=5", "no limit `speed`"),
            ("selectors=0", "`0` is not a limit; say a number above 0, or unlimited"),
            ("selectors=-1", "`-1` is not a limit"),
            ("selectors=many", "`many` is not a limit"),
        ] {
            let error = apply(&mut limits, word).unwrap_err();
            assert!(error.contains(expected), "{word}: {error}");
        }
        assert!(all().starts_with("selectors=, sortkeys=, "));
    }
}

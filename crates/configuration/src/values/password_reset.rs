//! `admin-password-reset`: whether users who forgot their password may set another one on the admin page.

use super::quantity;

/// By a code that a helper makes and reads out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PasswordReset {
    /// Seconds for which a code is valid.
    pub lifetime: u64,
}

impl PasswordReset {
    /// The words, for messages.
    pub(crate) const WORDS: &'static str = "for example `code lifetime=15m`, or `off`";

    /// Seconds for which a code is valid if nothing else is said.
    pub const LIFETIME_DEFAULT: u64 = 15 * 60;
    /// A code must be read out and typed.
    const LIFETIME_MIN: u64 = 60;
    /// A code is no second password.
    const LIFETIME_MAX: u64 = 24 * 60 * 60;

    /// Reads the words of a line; an error names the word by its number. `None`: off.
    pub(crate) fn parse<'w>(
        words: impl IntoIterator<Item = &'w str>,
    ) -> Result<Option<Self>, (usize, String)> {
        let mut words = words.into_iter().enumerate();
        let how = words.next().map_or("", |(_, how)| how);
        let mut reset = match how.to_ascii_lowercase().as_str() {
            "off" => None,
            "code" => Some(Self { lifetime: Self::LIFETIME_DEFAULT }),
            _ => return Err((0, format!("`{how}` is no way to reset a password"))),
        };
        for (number, word) in words {
            let fault = |message| (number, message);
            match (&mut reset, word.split_once('=')) {
                (None, _) => return Err(fault(format!("`{word}` has no meaning behind `off`"))),
                (Some(reset), Some((name, value))) if name.eq_ignore_ascii_case("lifetime") => {
                    let seconds = quantity::seconds(value).map_err(fault)?;
                    if !(Self::LIFETIME_MIN..=Self::LIFETIME_MAX).contains(&seconds) {
                        return Err(fault(format!("`{value}` is not between 1m and 24h")));
                    }
                    reset.lifetime = seconds;
                }
                _ => return Err(fault(format!("no setting `{word}`"))),
            }
        }
        Ok(reset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let parse = |line: &str| PasswordReset::parse(line.split(' '));
        for (line, expected) in [
            ("off", None),
            ("OFF", None),
            ("code", Some(900)),
            ("Code Lifetime=1h", Some(3_600)),
            ("code lifetime=60", Some(60)),
            ("code lifetime=24h", Some(86_400)),
        ] {
            assert_eq!(parse(line).unwrap().map(|reset| reset.lifetime), expected, "{line}");
        }
        for (line, number, part) in [
            ("", 0, "no way to reset"),
            ("mail", 0, "`mail` is no way to reset"),
            ("off lifetime=5m", 1, "no meaning behind `off`"),
            ("code lifetime=59s", 1, "between 1m and 24h"),
            ("code lifetime=25h", 1, "between 1m and 24h"),
            ("code lifetime=soon", 1, "not a time"),
            ("code lifetime", 1, "no setting `lifetime`"),
            ("code tries=3", 1, "no setting `tries=3`"),
        ] {
            let (at, message) = parse(line).unwrap_err();
            assert!(at == number && message.contains(part), "{line}: {at} {message}");
        }
    }
}

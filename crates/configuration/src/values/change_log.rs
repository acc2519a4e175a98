//! `change-log`: what a database keeps of its changes.

use larix_engine::log::LogRetention;

use super::quantity;

/// Whether changes are logged, and how long they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeLog {
    Off,
    Kept(LogRetention),
}

impl Default for ChangeLog {
    fn default() -> Self {
        Self::Kept(LogRetention::default())
    }
}

impl ChangeLog {
    /// The words, for messages.
    pub(crate) const WORDS: &'static str = "off, or age=7d, size=10g or both; alone, `on` keeps as many records as \
         a quarter of the entries";

    /// Less than this is no log to restore or replicate from.
    const SIZE_MIN: u64 = 1 << 20;

    /// Reads the words of a line; an error names the word by its number.
    pub(crate) fn parse<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, (usize, String)> {
        let mut retention = LogRetention::default();
        let mut single = None;
        for (number, word) in words.into_iter().enumerate() {
            let fault = |message| (number, message);
            match word.to_ascii_lowercase().as_str() {
                word @ ("on" | "off") if number == 0 => single = Some(word == "off"),
                word if single.is_some() => {
                    return Err(fault(format!("`{word}` cannot follow `on` or `off`")));
                }
                word => match word.split_once('=') {
                    Some(("age", age)) => match quantity::seconds(age).map_err(fault)? {
                        0 => return Err(fault("an age of 0 keeps nothing: say `off`".to_owned())),
                        seconds => retention.age = Some(seconds),
                    },
                    Some(("size", size)) => match quantity::bytes(size).map_err(fault)? {
                        ..Self::SIZE_MIN => {
                            return Err(fault(format!("`{size}` is less than 1m, the smallest size")));
                        }
                        bytes => retention.size = Some(bytes),
                    },
                    Some((name, _)) => return Err(fault(format!("no bound `{name}`"))),
                    None => return Err(fault(format!("`{word}` is not known here"))),
                },
            }
        }
        Ok(if single == Some(true) { Self::Off } else { Self::Kept(retention) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_is_read_and_its_mistakes_are_named() {
        let kept = |age, size| Ok(ChangeLog::Kept(LogRetention { age, size }));
        let wrong = |number, part: &'static str| Err((number, part));
        for (line, expected) in [
            ("on", kept(None, None)),
            ("off", Ok(ChangeLog::Off)),
            ("age=7d", kept(Some(604_800), None)),
            ("AGE=90m size=10G", kept(Some(5_400), Some(10 << 30))),
            ("size=1048576", kept(None, Some(1 << 20))),
            ("size=1k", wrong(0, "less than 1m")),
            ("age=0", wrong(0, "keeps nothing")),
            ("age=7y", wrong(0, "`y` is not a unit of time")),
            ("age=7d size=x", wrong(1, "`x` is not a size")),
            ("off age=7d", wrong(1, "cannot follow")),
            ("count=7", wrong(0, "no bound `count`")),
            ("yes", wrong(0, "not known here")),
        ] {
            let found = ChangeLog::parse(line.split(' '));
            match (expected, found) {
                (Ok(expected), found) => assert_eq!(found, Ok(expected), "{line}"),
                (Err((number, part)), Err((at, message))) => {
                    assert!(at == number && message.contains(part), "{line}: {at} {message}");
                }
                (expected, found) => panic!("{line}: {found:?} where {expected:?} was expected"),
            }
        }
    }
}

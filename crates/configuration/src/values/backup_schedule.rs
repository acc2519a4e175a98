//! `backup-schedule`: backups that the server makes by itself.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::quantity;

/// Where to, how often, and how many are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSchedule {
    /// Each full backup makes a directory in it.
    pub directory: PathBuf,
    /// Seconds from one full backup to the next.
    pub full: u64,
    /// Seconds from any backup to the next increment; `None`: there are none.
    pub increment: Option<u64>,
    /// Full backups that are kept, each with its increments.
    pub keep: u32,
    pub throttle: Throttle,
}

/// How fast a backup goes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Throttle {
    /// It rests as long as it works.
    #[default]
    Considerate,
    /// The same, and at most so many bytes a second.
    AtMost(u64),
    /// As fast as it can.
    Unlimited,
}

impl Throttle {
    /// `none` (or 0), or bytes a second such as `50m`.
    ///
    /// # Errors
    /// Says what it should look like.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self::Unlimited);
        }
        let rate = quantity::bytes(text).map_err(|error| format!("{error}; or `none`"))?;
        Ok(if rate == 0 { Self::Unlimited } else { Self::AtMost(rate) })
    }
}

impl BackupSchedule {
    /// The words, for messages.
    pub(crate) const WORDS: &'static str =
        "for example directory=/backup full=7d increment=1h keep=4 throttle=50m";

    /// Seconds between two backups at least: one follows the other without a rest otherwise.
    const PERIOD_MIN: u64 = 60;
    const FULL_DEFAULT: u64 = 7 * 86_400;
    const KEEP_DEFAULT: u32 = 2;

    /// Reads the words of a line; an error names the word by its number.
    pub(crate) fn parse<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, (usize, String)> {
        let mut schedule = Self {
            directory: PathBuf::new(),
            full: Self::FULL_DEFAULT,
            increment: None,
            keep: Self::KEEP_DEFAULT,
            throttle: Throttle::default(),
        };
        for (number, word) in words.into_iter().enumerate() {
            let fault = |message| (number, message);
            let Some((name, value)) = word.split_once('=') else {
                return Err(fault(format!("`{word}` has no value")));
            };
            match name.to_ascii_lowercase().as_str() {
                "directory" => schedule.directory = PathBuf::from(value),
                "full" => schedule.full = period(value).map_err(fault)?,
                "increment" => schedule.increment = Some(period(value).map_err(fault)?),
                "throttle" => schedule.throttle = Throttle::parse(value).map_err(fault)?,
                "keep" => {
                    let keep = value.parse().ok().filter(|keep| *keep > 0);
                    let wrong = || fault(format!("`{value}` is not a number of backups, 1 or more"));
                    schedule.keep = keep.ok_or_else(wrong)?;
                }
                _ => return Err(fault(format!("no setting `{name}`"))),
            }
        }
        if !schedule.directory.is_absolute() {
            return Err((0, "`directory=` names no absolute path".to_owned()));
        }
        Ok(schedule)
    }

    /// Whether the directory is there. A server starts without it, because a disk may be mounted late, and takes it from a provider
    /// of its configuration; a client that names it in cn=config is refused.
    ///
    /// # Errors
    /// Names the directory, and what makes it.
    pub fn check_directory(&self) -> Result<(), String> {
        let path = self.directory.display();
        match std::fs::metadata(&self.directory) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(format!("backup-schedule: `{path}` is not a directory")),
            Err(why) if why.kind() == ErrorKind::NotFound => Err(format!(
                "backup-schedule: the directory `{path}` does not exist; make it: mkdir -p -m 700 {path}"
            )),
            Err(why) => Err(format!("backup-schedule: the directory `{path}` cannot be used: {why}")),
        }
    }
}

fn period(text: &str) -> Result<u64, String> {
    match quantity::seconds(text)? {
        ..BackupSchedule::PERIOD_MIN => Err(format!("`{text}` is less than a minute")),
        seconds => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_missing_or_none_is_named() {
        let schedule = |path: &std::path::Path| {
            BackupSchedule::parse([format!("directory={}", path.display()).as_str()]).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        schedule(folder.path()).check_directory().unwrap();
        let missing = folder.path().join("missing");
        let why = schedule(&missing).check_directory().unwrap_err();
        assert!(why.contains("does not exist; make it: mkdir") && why.contains("missing"), "{why}");
        std::fs::write(&missing, "").unwrap();
        let why = schedule(&missing).check_directory().unwrap_err();
        assert!(why.contains("is not a directory"), "{why}");
    }

    #[test]
    fn a_schedule_is_read_and_its_mistakes_are_named() {
        let parse = |line: &str| BackupSchedule::parse(line.split(' '));
        let whole = parse("directory=/backup full=1d increment=15m KEEP=3 throttle=50m").unwrap();
        let expected = BackupSchedule {
            directory: "/backup".into(),
            full: 86_400,
            increment: Some(900),
            keep: 3,
            throttle: Throttle::AtMost(50 << 20),
        };
        assert_eq!(whole, expected);
        let short = parse("directory=/b").unwrap();
        assert_eq!((short.increment, short.throttle), (None, Throttle::Considerate));
        for text in ["none", "0", "NONE"] {
            assert_eq!(
                parse(&format!("directory=/b throttle={text}")).unwrap().throttle,
                Throttle::Unlimited
            );
        }
        for (line, number, part) in [
            ("full=1d", 0, "no absolute path"),
            ("directory=b", 0, "no absolute path"),
            ("directory=/b full=10s", 1, "less than a minute"),
            ("directory=/b keep=0", 1, "not a number of backups"),
            ("directory=/b now", 1, "has no value"),
            ("directory=/b at=5", 1, "no setting `at`"),
            ("directory=/b throttle=fast", 1, "`none`"),
        ] {
            let (at, message) = parse(line).unwrap_err();
            assert!(at == number && message.contains(part), "{line}: {at} {message}");
        }
    }
}

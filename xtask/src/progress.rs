//! How far `cargo xtask test` is: which test programs have ended, and how long the others took the last time.

#![expect(clippy::disallowed_methods, reason = "tests take as long as they take")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Where the durations of the last run stay: a line each, milliseconds and the program's name.
const FILE: &str = "target/test-durations";

/// Which tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    All,
    /// Those that the caller's arguments choose: how long they take says nothing of the next run.
    Chosen,
}

/// What takes how long, as it was the last time.
type Durations = BTreeMap<String, Duration>;

/// Runs `cargo test`, and says before each test program how many have ended and how long the rest takes.
///
/// # Errors
/// Cargo cannot be started, or a test failed.
pub(crate) fn run(root: &Path, command: &mut Command, what: What) -> anyhow::Result<()> {
    eprintln!("+ {command:?}");
    let file = root.join(FILE);
    let mut progress = Progress::new(read(&file));
    eprintln!("{}", progress.announcement());
    let mut child =
        command.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let output = child.stderr.take().context("cargo's messages are not piped")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read cargo's messages")?;
        if let Some(name) = program(&String::from_utf8_lossy(&line)) {
            eprintln!("{}", progress.next(name, Instant::now()));
        }
        let mut error = std::io::stderr().lock();
        error.write_all(&line).and_then(|()| error.write_all(b"\n")).context("cannot write messages")?;
    }
    let status = child.wait().context("cannot wait for cargo")?;
    progress.end(Instant::now());
    if what == What::All {
        write(&file, &progress.durations(status.success()))?;
    }
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// The test program that a line of cargo's says it starts: `Running tests/server/main.rs (target/debug/deps/server-0123)`,
/// `Doc-tests larix_proto`. A name stays the same when the program is built anew.
fn program(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["Running", .., file] => {
            let file = Path::new(file.strip_prefix('(')?.strip_suffix(')')?).file_name()?.to_str()?;
            let source = words.get(words.len().checked_sub(2)?)?;
            Some(format!("{} {source}", file.rsplit_once('-')?.0))
        }
        ["Doc-tests", name] => Some(format!("documentation of {name}")),
        _ => None,
    }
}

#[derive(Debug)]
struct Progress {
    last: Durations,
    ended: Durations,
    running: Option<(String, Instant)>,
}

impl Progress {
    fn new(last: Durations) -> Self {
        Self { last, ended: Durations::new(), running: None }
    }

    /// What stands before everything else.
    fn announcement(&self) -> String {
        match self.last.len() {
            0 => "test: builds all test programs, then runs them one after the other".to_owned(),
            programs => format!(
                "test: builds {programs} test programs, then runs them one after the other: {} the last time",
                shown(self.last.values().sum())
            ),
        }
    }

    /// A program starts, and the one before it has ended.
    fn next(&mut self, name: String, now: Instant) -> String {
        self.end(now);
        let ended = self.ended.len();
        let rest = self.last.iter().filter(|(name, _)| !self.ended.contains_key(*name));
        let rest: Vec<Duration> = rest.map(|(_, taken)| *taken).collect();
        self.running = Some((name, now));
        match rest.is_empty() {
            true => format!("test: {ended} programs done"),
            false => format!(
                "test: {ended} of {} programs done, {} left if it goes as the last time",
                ended + rest.len(),
                shown(rest.into_iter().sum())
            ),
        }
    }

    fn end(&mut self, now: Instant) {
        if let Some((name, since)) = self.running.take() {
            self.ended.insert(name, now.saturating_duration_since(since));
        }
    }

    /// The durations that are kept for the next run: those of this run, and for programs that did not run those of the last one.
    fn durations(&self, whole: bool) -> Durations {
        let mut all = if whole { Durations::new() } else { self.last.clone() };
        all.extend(self.ended.iter().map(|(name, taken)| (name.clone(), *taken)));
        all
    }
}

fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

/// What cannot be read is not known.
fn read(file: &PathBuf) -> Durations {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let (taken, name) = line.split_once(' ')?;
        Some((name.to_owned(), Duration::from_millis(taken.parse().ok()?)))
    });
    lines.collect()
}

fn write(file: &PathBuf, durations: &Durations) -> anyhow::Result<()> {
    let lines = durations.iter().map(|(name, taken)| format!("{} {name}\n", taken.as_millis()));
    std::fs::write(file, lines.collect::<String>())
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_what_cargo_says() {
        for (line, expected) in [
            (
                "     Running unittests src/lib.rs (target/debug/deps/larix_acl-0a1b)",
                Some("larix_acl src/lib.rs"),
            ),
            (
                "     Running tests/server/main.rs (target/debug/deps/server-0a1b)",
                Some("server tests/server/main.rs"),
            ),
            ("   Doc-tests larix_proto", Some("documentation of larix_proto")),
            ("   Compiling larix-acl v0.1.0 (/larix/crates/acl)", None),
            ("warning: Running out (of ideas)", None),
            ("     Running", None),
            ("", None),
        ] {
            assert_eq!(program(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn what_is_left_is_what_it_took_the_last_time() {
        let start = Instant::now();
        let mut first = Progress::new(Durations::new());
        assert_eq!(first.next("a".to_owned(), start), "test: 0 programs done");
        assert_eq!(first.next("b".to_owned(), start + Duration::from_secs(40)), "test: 1 programs done");
        first.end(start + Duration::from_secs(340));

        let mut second = Progress::new(first.durations(true));
        assert!(second.announcement().contains("2 test programs"), "{}", second.announcement());
        assert!(second.announcement().contains(": 6 min the last time"), "{}", second.announcement());
        assert!(second.next("a".to_owned(), start).contains("0 of 2 programs done, 6 min left"));
        assert!(second.next("b".to_owned(), start).contains("1 of 2 programs done, 5 min left"));
        assert!(second.next("new".to_owned(), start).contains("2 programs done"));
        second.end(start + Duration::from_secs(7));
        let known = second.durations(false);
        assert_eq!(known.get("new"), Some(&Duration::from_secs(7)));
        assert_eq!(known.get("a"), Some(&Duration::ZERO));
        let mut third = Progress::new(known);
        third.next("new".to_owned(), start);
        third.end(start);
        assert_eq!(third.durations(false).len(), 3);
        assert_eq!(third.durations(true).len(), 1);
    }

    #[test]
    fn durations_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("durations");
        assert_eq!(read(&file), Durations::new());
        let known = Durations::from([
            ("documentation of larix_proto".to_owned(), Duration::from_millis(1500)),
            ("server tests/server/main.rs".to_owned(), Duration::from_secs(90)),
        ]);
        write(&file, &known).expect("written");
        assert_eq!(read(&file), known);
        std::fs::write(&file, "x y\n\n12 z\n").expect("written");
        assert_eq!(read(&file), Durations::from([("z".to_owned(), Duration::from_millis(12))]));
    }
}

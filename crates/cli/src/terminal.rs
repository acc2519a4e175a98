//! What is asked of a person at the terminal: passwords, without echo.
//!
//! The questions go to the controlling terminal, `/dev/tty`, so that standard input stays free for data. A process without
//! one reads a line of standard input. A signal that ends the process while the echo is off puts it on again first.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use zeroize::Zeroizing;

use crate::signals::EndingSignals;

/// Prints a line of news about work that is under way. Unlike `println!` it does not panic where the reader has gone or the disk is full:
/// the work goes on, and the exit status tells how it ended.
macro_rules! say {
    ($($news:tt)*) => {
        $crate::terminal::print_news(format_args!($($news)*))
    };
}
pub(crate) use say;

/// As [`say!`].
pub(crate) fn print_news(news: std::fmt::Arguments<'_>) {
    // Nobody reads it any more.
    let _ = writeln!(io::stdout().lock(), "{news}");
}

/// Prints a line of a report that somebody asked for.
///
/// # Errors
/// It cannot be written, as to a full disk. A reader that has gone is no error: it wanted no more, and the exit status says the rest.
pub(crate) fn print_report(line: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// The status of a command whose output nobody reads any more: that of a program which SIGPIPE has ended.
pub(crate) const READER_GONE: u8 = 141;

/// Prints the answer that a command is for, in whole lines, and gives the exit status: [`READER_GONE`] if nobody reads the answer.
///
/// # Errors
/// It cannot be written, as to a full disk.
pub(crate) fn print_answer(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::from(READER_GONE)),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}

/// The exit status of a command that ended with this error. Writes the error to standard error, unless it is that nobody reads the output
/// any more: then the command was ended on purpose.
pub(crate) fn end_with(name: &str, error: &anyhow::Error) -> ExitCode {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    if causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::from(READER_GONE);
    }
    eprintln!("{name}: {error:#}");
    ExitCode::FAILURE
}

/// The exit status of a command that goes through records and goes on after failures: `done` is how many failed, or what ended it. Says so
/// on standard error; `what` follows the number.
pub(crate) fn end_counted(name: &str, done: anyhow::Result<u64>, what: &str) -> ExitCode {
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{name}: {failed} {what}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The usual exit status of a command line that cannot be read.
pub(crate) const MISTAKE: i32 = 2;

/// Ends the process as clap does on `--help`, `--version` and mistakes, these with the status `mistake`. Help that is asked for and cannot
/// be written is no success.
pub(crate) fn end_parsing(error: &clap::Error, mistake: i32) -> ! {
    let mut status = if error.use_stderr() { mistake } else { 0 };
    if let Some(text) = with_plain_numbers(&error.render().to_string()) {
        // A failure to write this can be reported nowhere.
        let _ = write!(io::stderr(), "{text}");
        std::process::exit(status)
    }
    if let Err(lost) = error.print()
        && !error.use_stderr()
        && lost.kind() != io::ErrorKind::BrokenPipe
    {
        // Standard error may be full, too.
        let _ = writeln!(io::stderr(), "cannot write to standard output: {lost}");
        status = 1;
    }
    std::process::exit(status)
}

/// What the standard library says of numbers that it cannot read, and what is meant.
const NUMBERS: [(&str, &str); 4] = [
    ("invalid digit found in string", "a whole number is wanted"),
    ("cannot parse integer from empty string", "it is empty, and a whole number is wanted"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "a number is wanted"),
];

/// The text of a mistake with a number; none for other mistakes.
fn with_plain_numbers(text: &str) -> Option<String> {
    NUMBERS
        .iter()
        .find(|(library, _)| text.contains(library))
        .map(|(library, plain)| text.replace(library, plain))
}

/// A flag's number of things of which at least one is needed.
///
/// # Errors
/// No number, or 0.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

/// An option of `-o` to slapd or lloadd.
///
/// # Errors
/// An option that neither has.
pub(crate) fn known_option(option: &str) -> Result<String, String> {
    let name = option.split('=').next().unwrap_or_default();
    match name.eq_ignore_ascii_case("slp") {
        true => Ok(option.to_owned()),
        false => Err(format!("there is no option `{name}`: slp is the only one")),
    }
}

/// A cookie of `-c` to slapd: it says whose it is.
///
/// # Errors
/// One that names no consumer.
pub(crate) fn known_cookie(cookie: &str) -> Result<String, String> {
    match replica_id(cookie) {
        Some(_) => Ok(cookie.to_owned()),
        None => Err(format!("`{cookie}` names no consumer: rid=N, from 0 to 999, then perhaps csn=...")),
    }
}

fn replica_id(cookie: &str) -> Option<u16> {
    let rid = cookie.split(',').find_map(|part| part.strip_prefix("rid="))?;
    rid.parse().ok().filter(|rid| *rid <= 999)
}

/// Whether each of these cookies of `-c` is another consumer's.
///
/// # Errors
/// Two of one consumer.
pub(crate) fn distinct_cookies(cookies: &[String]) -> Result<(), String> {
    for (at, cookie) in cookies.iter().enumerate() {
        let same = cookies.iter().take(at).find(|earlier| replica_id(earlier) == replica_id(cookie));
        if let Some(same) = same {
            return Err(format!("`-c {same}` and `-c {cookie}` are one consumer's: name each rid once"));
        }
    }
    Ok(())
}

/// The terminal of this process, also where standard input is redirected.
const TERMINAL: &str = "/dev/tty";
/// A longer answer is no password.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The terminal whose echo is off, with the modes that it had: for the thread that awaits signals.
static SILENCED: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// Where a secret is read when the process has no terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// A line of standard input.
    StandardInput,
    /// Nowhere: standard input has data.
    Nowhere,
}

/// Asks for a secret on the terminal, without echo; without a terminal as `otherwise` says. Gives the line without its end.
///
/// # Errors
/// No terminal where standard input may not be read, an input that ended before a line, or one that cannot be read.
pub(crate) fn secret(prompt: &str, otherwise: Otherwise) -> io::Result<Vec<u8>> {
    match (open(), otherwise) {
        (Some(terminal), _) => silently(&terminal, prompt),
        (None, Otherwise::StandardInput) => {
            let mut line = Zeroizing::new(Vec::new());
            io::stdin().lock().read_until(b'\n', &mut line)?;
            whole_line(&line)
        }
        (None, Otherwise::Nowhere) => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it cannot be asked for: there is no terminal, and standard input has the data; -y FILE reads it from a file",
        )),
    }
}

/// Shows a question on the terminal and gives the answer, with echo.
///
/// # Errors
/// There is no terminal, or it cannot be read.
pub(crate) fn line(question: &str) -> io::Result<String> {
    let mut terminal = open().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    terminal.write_all(question.as_bytes())?;
    let line = read_line(&terminal)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// A word as a shell takes it, for command lines that are copied.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "=,._:/@%+-".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether Ctrl-C at the terminal where standard output goes ends this process: there is one, and this is no background job.
pub(crate) fn interrupts_this_process() -> bool {
    tcgetpgrp(io::stdout()).is_ok_and(|group| group == getpgrp())
}

/// The controlling terminal, if there is one.
fn open() -> Option<File> {
    OpenOptions::new().read(true).write(true).open(TERMINAL).ok()
}

fn silently(mut terminal: &File, prompt: &str) -> io::Result<Vec<u8>> {
    let silence = Silence::over(terminal)?;
    terminal.write_all(prompt.as_bytes())?;
    let line = read_line(terminal).map(Zeroizing::new);
    drop(silence);
    // The line end that was typed was not shown.
    terminal.write_all(b"\n")?;
    whole_line(&line?)
}

/// A terminal gives a line at a time; bytes are taken singly, so that none of what follows is lost.
fn read_line(mut terminal: &File) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE_BYTES_MAX && terminal.read(&mut byte)? == 1 {
        line.push(byte[0]);
        if byte[0] == b'\n' {
            break;
        }
    }
    Ok(line)
}

/// A line without its end.
///
/// # Errors
/// Nothing came before the end of the input.
pub(crate) fn whole_line(line: &[u8]) -> io::Result<Vec<u8>> {
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the input ended before one was given"));
    }
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
}

/// The echo is off while this is there.
struct Silence;

impl Silence {
    fn over(terminal: &File) -> io::Result<Self> {
        await_signals()?;
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        // Locked meanwhile: a signal comes before or behind it.
        let mut echo = silenced();
        *echo = Some((terminal.try_clone()?, before));
        let silence = Self;
        let set = tcsetattr(terminal, OptionalActions::Flush, &silent);
        drop(echo);
        set?;
        Ok(silence)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        restore(&mut silenced());
    }
}

fn silenced() -> MutexGuard<'static, Option<(File, Termios)>> {
    SILENCED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn restore(silenced: &mut Option<(File, Termios)>) {
    if let Some((terminal, before)) = silenced.take() {
        // A terminal that is gone has no echo to restore.
        let _ = tcsetattr(&terminal, OptionalActions::Flush, &before);
    }
}

/// Starts the thread, once, that ends the process on a signal as the signal would have, with the echo restored.
fn await_signals() -> io::Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.get().is_some() {
        return Ok(());
    }
    EndingSignals::new()?.end_after(|| {
        let mut echo = silenced();
        if let Some((terminal, _)) = &mut *echo {
            // The line that was begun is ended.
            let _ = terminal.write_all(b"\n");
        }
        restore(&mut echo);
    })?;
    // No other thread asks at the same time.
    let _ = STARTED.set(());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_found_below_what_was_done() {
        for (kind, expected) in [
            (io::ErrorKind::BrokenPipe, ExitCode::from(READER_GONE)),
            (io::ErrorKind::StorageFull, ExitCode::FAILURE),
        ] {
            let error = anyhow::Error::new(io::Error::from(kind));
            assert_eq!(format!("{:?}", end_with("x", &error)), format!("{expected:?}"));
            let error = error.context("cannot write");
            assert_eq!(format!("{:?}", end_with("x", &error)), format!("{expected:?}"));
        }
    }

    #[test]
    fn options_that_are_none_are_refused() {
        for option in ["slp", "SLP=off"] {
            assert_eq!(known_option(option).as_deref(), Ok(option));
        }
        for (option, name) in [("slpx=on", "slpx"), ("schema-check=no", "schema-check"), ("", "")] {
            let expected = format!("there is no option `{name}`: slp is the only one");
            assert_eq!(known_option(option), Err(expected));
        }
    }

    #[test]
    fn a_cookie_names_its_consumer() {
        for cookie in ["rid=001", "rid=7,csn=20260101000000.000000Z#000000#001#000000", "sid=1,rid=999"] {
            assert_eq!(known_cookie(cookie).as_deref(), Ok(cookie));
        }
        for cookie in ["bogus", "", "rid=", "rid=1000", "rid=-1"] {
            let expected =
                format!("`{cookie}` names no consumer: rid=N, from 0 to 999, then perhaps csn=...");
            assert_eq!(known_cookie(cookie), Err(expected));
        }
    }

    #[test]
    fn a_consumer_has_one_cookie() {
        let check = |cookies: &[&str], expected: Result<(), &str>| {
            let cookies: Vec<String> = cookies.iter().map(|cookie| (*cookie).to_owned()).collect();
            assert_eq!(distinct_cookies(&cookies), expected.map_err(str::to_owned));
        };
        check(&[], Ok(()));
        check(&["rid=1", "rid=2"], Ok(()));
        let text = "`-c rid=001` and `-c sid=2,rid=1` are one consumer's: name each rid once";
        check(&["rid=001", "rid=2", "sid=2,rid=1"], Err(text));
    }

    #[test]
    fn numbers_that_cannot_be_read_are_reported_in_plain_words() {
        for (text, expected) in [
            ("7", Ok(7)),
            ("0", Err("at least 1")),
            ("x", Err("a whole number is wanted")),
            ("", Err("it is empty, and a whole number is wanted")),
            ("99999999999999999999999", Err("the number is too large")),
        ] {
            let found = at_least_one(text).map_err(|error| with_plain_numbers(&error).unwrap_or(error));
            assert_eq!(found, expected.map_err(str::to_owned), "{text:?}");
        }
        assert_eq!(with_plain_numbers("unexpected argument 'x' found"), None);
    }

    #[test]
    fn words_for_a_shell() {
        for (word, expected) in [
            ("cn=admin,dc=example,dc=com", "cn=admin,dc=example,dc=com"),
            ("ldap://127.0.0.1:3890/", "ldap://127.0.0.1:3890/"),
            ("cn=admin,o=My Company", "'cn=admin,o=My Company'"),
            ("o=A \\2B B", "'o=A \\2B B'"),
            ("o=Foo's", "'o=Foo'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), expected);
        }
    }
}

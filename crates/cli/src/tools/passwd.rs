//! `slappasswd`: hashes or makes a password.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use larix_engine::password::{CryptMethod, Hasher, Scheme, Verification, time_based, verify};
use larix_engine::time::RandomSource;
use larix_server::clock::SystemRandom;

use super::flags;
use crate::terminal::{self, Otherwise};

/// Letters of a made password: those that cannot be taken for one another.
const LETTERS: &[u8] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// 20 of 56 letters are 116 bits.
const MADE_LENGTH: usize = 20;
/// The scheme of `-c`.
const CRYPT: &str = "{CRYPT}";
/// A password file is a word, not a volume.
const FILE_MAX: u64 = 1 << 16;

/// Hash a password for userPassword, rootpw or olcRootPW
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)] // -h is the scheme
#[command(after_help = "\
Examples:
  larix hash-password
  larix hash-password -T password.txt -h {SSHA}")]
pub(super) struct PasswdArgs {
    /// Make a password
    #[arg(short = 'g', conflicts_with_all = ["secret", "file"])]
    generate: bool,
    /// The password; without -s, -g and -T it is asked for
    #[arg(short = 's', value_name = "SECRET", conflicts_with = "file")]
    secret: Option<OsString>,
    /// The password is the content of this file
    #[arg(short = 'T', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Scheme of the value, not of a password made by -g; such as {ARGON2}, {SSHA}, {SSHA512}, {PBKDF2-SHA256}, {CRYPT}, {CLEARTEXT}
    #[arg(short = 'h', value_name = "SCHEME")]
    scheme: Option<String>,
    /// Salt format of {CRYPT}, such as $6$%.16s; without -h, that is the scheme
    #[arg(short = 'c', value_name = "FORMAT")]
    salt_format: Option<String>,
    /// No line end behind it
    #[arg(short = 'n')]
    no_line_end: bool,
    /// RFC 2307 values: accepted, the only form there is
    #[arg(short = 'u')]
    rfc2307: bool,
    /// Accepted, without effect
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    verbose: u8,
    /// module-load="argon2 m=KIB t=PASSES p=LANES" or "pw-pbkdf2 ROUNDS": costs (every scheme is built in); module-path=DIR: no effect
    #[arg(short = 'o', value_name = "OPTION=VALUE")]
    options: Vec<String>,
    /// Accepted, without effect
    #[arg(short = 'd', value_name = "LEVEL", allow_hyphen_values = true)]
    debug: Option<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: PasswdArgs = flags::parse(name, arguments);
    match value(name, &args) {
        Ok(mut value) => {
            if !args.no_line_end {
                value.push(b'\n');
            }
            let mut out = std::io::stdout().lock();
            // Without a line end it would stay in the buffer, whose last flush tells nobody of a full disk.
            match out.write_all(&value).and_then(|()| out.flush()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => terminal::end_with(name, &error.into()),
            }
        }
        Err(message) => fail(name, &message),
    }
}

fn fail(name: &str, message: &str) -> ExitCode {
    eprintln!("{name}: {message}");
    ExitCode::FAILURE
}

fn value(name: &str, args: &PasswdArgs) -> Result<Vec<u8>, String> {
    if args.generate {
        return Ok(generate(&SystemRandom).into_bytes());
    }
    let hasher = hasher(name, args)?;
    let password = match (&args.secret, &args.file) {
        (Some(secret), _) => secret.as_bytes().to_vec(),
        (None, Some(file)) => read_file(file)?,
        (None, None) => ask()?,
    };
    if password.is_empty() {
        // Nobody means a file or a variable without a byte.
        return Err("the password is empty".to_owned());
    }
    let hashed = hasher.hash(&password, &SystemRandom).map_err(|error| error.to_string())?;
    // A value that does not verify must never reach an entry.
    let is_usable = if hasher.scheme.is_time_based() {
        time_based(&hashed).is_some()
    } else {
        matches!(verify(&hashed, &password), Verification::Match)
    };
    if !is_usable {
        return Err("password verification failed".to_owned());
    }
    Ok(hashed.to_vec())
}

/// Under slapd's name the default is slapd's, so that the value works in either server.
fn hasher(name: &str, args: &PasswdArgs) -> Result<Hasher, String> {
    let default = if name.ends_with("slappasswd") { "{SSHA}" } else { "{ARGON2}" };
    let text = match (&args.salt_format, args.scheme.as_deref()) {
        (Some(format), Some(other)) if !other.eq_ignore_ascii_case(CRYPT) => {
            return Err(format!("-c {format} is for {CRYPT}, and -h {other} names another scheme"));
        }
        (Some(_), _) => CRYPT,
        (None, scheme) => scheme.unwrap_or(default),
    };
    let Some(scheme) = Scheme::from_name(text) else {
        let names: Vec<&str> = Scheme::names().collect();
        return Err(format!("no password scheme {text}: one of {}", names.join(" ")));
    };
    let mut hasher = Hasher::new(scheme);
    if let Some(format) = &args.salt_format {
        let methods =
            "$1$%.8s, $2b$COST$%.22s, $5$%.16s and $6$%.16s, the last two with rounds=N$ before the salt";
        hasher.crypt = CryptMethod::from_salt_format(format)
            .ok_or_else(|| format!("-c {format}: no crypt method that new passwords have: {methods}"))?;
    }
    for option in &args.options {
        set_option(&mut hasher, option)?;
    }
    Ok(hasher)
}

/// What the modules take as arguments is what a value costs; loading them is not needed.
fn set_option(hasher: &mut Hasher, option: &str) -> Result<(), String> {
    let refused = |why: &str| format!("-o {option}: {why}");
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    if name.eq_ignore_ascii_case("module-path") {
        return Ok(());
    }
    if !name.eq_ignore_ascii_case("module-load") {
        return Err(refused("one of module-load=NAME and module-path=DIRECTORY"));
    }
    let mut words = value.split_ascii_whitespace();
    let file = words.next().unwrap_or_default();
    let module = file.rsplit('/').next().unwrap_or(file);
    let module = module.strip_suffix(".la").or_else(|| module.strip_suffix(".so")).unwrap_or(module);
    let number = |text: &str| {
        let number = text.parse::<u32>().ok().filter(|number| *number > 0);
        number.ok_or_else(|| refused(&format!("`{text}` is not a number from 1 up")))
    };
    match module {
        "argon2" | "pw-argon2" => {
            for word in words {
                match word.split_once('=') {
                    Some(("m", value)) => hasher.argon2.memory_kib = number(value)?,
                    Some(("t", value)) => hasher.argon2.passes = number(value)?,
                    Some(("p", value)) => hasher.argon2.lanes = number(value)?,
                    _ => return Err(refused(&format!("`{word}` is none of m=KIB, t=PASSES and p=LANES"))),
                }
            }
            if hasher.is_possible() {
                Ok(())
            } else {
                Err(refused("at least 8 KiB a lane; at most 1 GiB, 64 passes, 64 lanes"))
            }
        }
        "pw-pbkdf2" => {
            if let Some(rounds) = words.next() {
                hasher.pbkdf2_rounds = number(rounds)?;
            }
            Ok(())
        }
        "pw-apr1" | "pw-netscape" | "pw-sha2" | "pw-totp" => Ok(()),
        _ => Err(refused(&format!(
            "no password module `{module}`: one of argon2, pw-apr1, pw-netscape, pw-pbkdf2, pw-sha2, pw-totp"
        ))),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let error = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let length = fs::metadata(path).map_err(|why| error(&why))?.len();
    if length > FILE_MAX {
        return Err(error(&format!("{length} bytes are no password")));
    }
    fs::read(path).map_err(|why| error(&why))
}

/// Asks twice at a terminal without showing what is typed; reads one line otherwise.
fn ask() -> Result<Vec<u8>, String> {
    if !std::io::stdin().is_terminal() {
        return read_line();
    }
    let prompt =
        |text: &str| terminal::secret(text, Otherwise::StandardInput).map_err(|error| error.to_string());
    let first = prompt("New password: ")?;
    let second = prompt("Re-enter new password: ")?;
    if first == second { Ok(first) } else { Err("Password values do not match".to_owned()) }
}

fn read_line() -> Result<Vec<u8>, String> {
    let mut line = Vec::new();
    std::io::stdin().lock().read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
    terminal::whole_line(&line).map_err(|error| format!("password: {error}"))
}

/// A password of letters and digits.
fn generate(random: &dyn RandomSource) -> String {
    let mut password = String::with_capacity(MADE_LENGTH);
    while password.len() < MADE_LENGTH {
        let mut byte = [0];
        random.fill(&mut byte);
        // What is beyond a whole multiple would favour the first letters.
        let whole = 256 - 256 % LETTERS.len();
        if usize::from(byte[0]) < whole
            && let Some(letter) = LETTERS.get(usize::from(byte[0]) % LETTERS.len())
        {
            password.push(char::from(*letter));
        }
    }
    password
}

#[cfg(test)]
mod tests;

//! Passwords that everybody knows: words of a file (`ppolicy_words`), and those of published breaches by their hashes
//! (`ppolicy_breached`).

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::RandomState;
use sha1::{Digest as _, Sha1};

/// The most words of a file.
const WORDS_MAX: usize = 2_000_000;

/// The longest line of a list of hashes, its end included.
const LINE_MAX: usize = 128;

/// The digits of a hash by which lists in a folder are named.
const PREFIX: usize = 5;

/// Letters that are written as digits and signs.
const WRITTEN: [(char, char); 8] =
    [('0', 'o'), ('1', 'l'), ('3', 'e'), ('4', 'a'), ('5', 's'), ('7', 't'), ('@', 'a'), ('$', 's')];

/// Words, in lower case.
#[derive(Clone, Debug)]
pub(super) struct Words(Arc<HashSet<Box<str>, RandomState>>);

impl Words {
    /// Reads a file with a word on each line.
    ///
    /// # Errors
    /// A file that cannot be read, or has more than two million words.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let text = String::from_utf8_lossy(&larix_files::read(path)?).into_owned();
        let mut words = HashSet::default();
        for word in text.lines().map(str::trim).filter(|word| !word.is_empty() && !word.starts_with('#')) {
            if words.len() == WORDS_MAX {
                return Err(io::Error::other(format!("more than {WORDS_MAX} words")));
            }
            words.insert(word.to_lowercase().into_boxed_str());
        }
        Ok(Self(Arc::new(words)))
    }

    /// Whether a password is one of them: whatever the case of its letters, with digits and signs before and behind it, with digits
    /// for letters, or from the end.
    pub(super) fn has(&self, password: &str) -> bool {
        let lower = password.to_lowercase();
        let written = |text: &str| -> String {
            text.chars()
                .map(|own| WRITTEN.iter().find(|(sign, _)| *sign == own).map_or(own, |(_, letter)| *letter))
                .collect()
        };
        let is_other = |c: char| !c.is_alphabetic();
        let backwards = |text: &str| text.chars().rev().collect::<String>();
        let bare = [&*lower, lower.trim_end_matches(is_other), lower.trim_matches(is_other)];
        let forms: Vec<String> = bare.iter().flat_map(|form| [(*form).to_owned(), written(form)]).collect();
        forms.iter().any(|form| {
            !form.is_empty() && (self.0.contains(form.as_str()) || self.0.contains(backwards(form).as_str()))
        })
    }
}

/// Where hashes of passwords are that were published: SHA-1 in hexadecimal, in their order, as `HASH:COUNT` lines of one file, or by
/// their first five digits in files of a folder, which have the rest of each.
#[derive(Clone, Debug)]
pub(super) struct Breached {
    path: PathBuf,
    by_prefix: bool,
}

impl Breached {
    /// # Errors
    /// A file that cannot be read or has no hashes, a folder without the file `00000` or `00000.txt`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let by_prefix = fs::metadata(path)?.is_dir();
        let list = Self { path: path.to_owned(), by_prefix };
        let file = list.file_of(&"0".repeat(PREFIX))?;
        let mut buffer = [0; LINE_MAX];
        let read = file.read_at(&mut buffer, 0)?;
        let digits =
            buffer.get(..read).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_hexdigit());
        let wanted = if by_prefix { 40 - PREFIX } else { 40 };
        match digits.count() {
            count if count == wanted => Ok(list),
            _ => Err(io::Error::other(format!("its first line is no hash of {wanted} hexadecimal digits"))),
        }
    }

    fn file_of(&self, prefix: &str) -> io::Result<File> {
        if !self.by_prefix {
            return larix_files::open(&self.path);
        }
        let names = [prefix.to_owned(), format!("{prefix}.txt")];
        let found = names.iter().map(|name| self.path.join(name)).find(|path| path.exists());
        larix_files::open(&found.unwrap_or_else(|| self.path.join(prefix)))
    }

    /// Whether a password is among them. Reads some blocks of a file.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn has(&self, password: &[u8]) -> io::Result<bool> {
        use std::fmt::Write as _;
        let mut hash = String::with_capacity(40);
        for byte in Sha1::digest(password) {
            // Into a string nothing fails.
            let _ = write!(hash, "{byte:02X}");
        }
        let (prefix, rest) = hash.split_at(PREFIX);
        let file = self.file_of(prefix)?;
        let sought = if self.by_prefix { rest } else { &hash };
        let (mut low, mut high) = (0, file.metadata()?.len());
        // A line begins at `low`. The one that is sought begins there or behind it, and before `high`.
        while low < high {
            let middle = low + (high - low) / 2;
            let start = if middle == low { low } else { first_line(&file, middle)? };
            if start >= high {
                high = middle;
                continue;
            }
            let line = line_at(&file, start)?;
            match compare(&line, sought) {
                Ordering::Equal => return Ok(true),
                Ordering::Less => low = start + line.len() as u64 + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(false)
    }
}

/// Where the first line begins at a place or behind it; the place is not 0.
fn first_line(file: &File, place: u64) -> io::Result<u64> {
    let before = place.saturating_sub(1);
    Ok(before + line_at(file, before)?.len() as u64 + 1)
}

/// What stands there up to the end of the line.
fn line_at(file: &File, place: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; LINE_MAX];
    let mut read = 0;
    while read < LINE_MAX {
        let more = file.read_at(buffer.get_mut(read..).unwrap_or_default(), place + read as u64)?;
        if more == 0 {
            break;
        }
        read += more;
    }
    buffer.truncate(read);
    match buffer.iter().position(|byte| *byte == b'\n') {
        Some(end) => buffer.truncate(end),
        None if read == LINE_MAX => {
            return Err(io::Error::other(format!("a line is longer than {LINE_MAX} bytes")));
        }
        None => {}
    }
    Ok(buffer)
}

/// How the hash of a line stands to another one.
fn compare(line: &[u8], hash: &str) -> Ordering {
    let own = line.get(..hash.len().min(line.len())).unwrap_or_default();
    own.iter().map(u8::to_ascii_uppercase).cmp(hash.bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

    use super::*;

    fn hash(password: &str) -> String {
        Sha1::digest(password).iter().map(|byte| format!("{byte:02X}")).collect()
    }

    #[test]
    fn words_are_found_in_their_disguises() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words");
        fs::write(&path, "# some\nDragon\nelephant\n\nmonkey\r\n").unwrap();
        let words = Words::read(&path).unwrap();
        for (password, expected) in [
            ("dragon", true),
            ("DRAGON1!", true),
            ("--dr4g0n--", true),
            ("nogard", true),
            ("3l3ph4nt99", true),
            ("monkey", true),
            ("dragonfly", false),
            ("some", false),
            ("12345", false),
            ("", false),
        ] {
            assert_eq!(words.has(password), expected, "{password}");
        }
        assert!(Words::read(&folder.path().join("none")).is_err());
    }

    #[test]
    fn hashes_are_found_in_one_file_and_in_many() {
        let folder = tempfile::tempdir().unwrap();
        let known: Vec<String> = (0..500).map(|number| format!("password{number}")).collect();
        let mut hashes: Vec<String> = known.iter().map(|password| hash(password)).collect();
        hashes.push("0".repeat(40));
        hashes.sort();
        for (end, last) in [("\n", "\n"), ("\r\n", "\r\n"), ("\n", "")] {
            let path = folder.path().join("one");
            let lines: Vec<String> =
                hashes.iter().enumerate().map(|(n, hash)| format!("{hash}:{}", n * n)).collect();
            fs::write(&path, lines.join(end) + last).unwrap();
            let one = Breached::open(&path).unwrap();
            known.iter().for_each(|password| assert!(one.has(password.as_bytes()).unwrap(), "{password}"));
            for number in 500..1000 {
                assert!(!one.has(format!("password{number}").as_bytes()).unwrap(), "{number}");
            }
        }
        let many = folder.path().join("many");
        fs::create_dir(&many).unwrap();
        fs::write(many.join("00000.txt"), format!("{}:1\n", "0".repeat(35))).unwrap();
        let (prefix, rest) = (&hash("secret")[..5], hash("secret")[5..].to_owned());
        fs::write(many.join(prefix), format!("{}:1\n{rest}:7\n{}:2\n", "0".repeat(35), "F".repeat(35)))
            .unwrap();
        let many = Breached::open(&many).unwrap();
        assert!(many.has(b"secret").unwrap());
        assert!(many.has(b"other").is_err(), "no file of its prefix");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        fs::write(&path, "dragon\n").unwrap();
        let error = Breached::open(&path).unwrap_err();
        assert_eq!(error.to_string(), "its first line is no hash of 40 hexadecimal digits");
        assert!(Breached::open(folder.path()).is_err());
    }
}

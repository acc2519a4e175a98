//! `larix search -t`: values in files of their own, which LDIF names by URL (RFC 2849).

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use larix_client::ClientError;
use larix_engine::time::RandomSource as _;
use larix_proto::ldif::Writer;
use larix_server::clock::SystemRandom;

/// Names that are tried for one file before the folder is given up.
const TRIES: usize = 16;

/// Where values go, and what they are called there.
#[derive(Debug)]
pub(super) struct ValueFiles {
    folder: PathBuf,
    /// What stands before a file's name in its URL.
    prefix: String,
    /// Values that LDIF can show as they are, too.
    takes_text: bool,
}

impl ValueFiles {
    /// Files in a folder, without one in that of temporary files (`TMPDIR`). Their URLs begin with `prefix`, without one with `file://` and
    /// the folder.
    ///
    /// # Errors
    /// There is no such folder.
    pub(super) fn new(
        folder: Option<&Path>,
        prefix: Option<&str>,
        takes_text: bool,
    ) -> Result<Self, ClientError> {
        let folder = folder.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let lacking = |why: String| ClientError::Input { name: folder.display().to_string(), why };
        if !folder.is_dir() {
            return Err(lacking("there is no such folder for the values".to_owned()));
        }
        let absolute = std::path::absolute(&folder).map_err(|error| lacking(error.to_string()))?;
        let prefix = prefix.map_or_else(|| url_of(&absolute), str::to_owned);
        Ok(Self { folder: absolute, prefix, takes_text })
    }

    /// Whether a value belongs into a file.
    pub(super) fn takes(&self, value: &[u8]) -> bool {
        self.takes_text || !(value.is_empty() || Writer::is_plain(value))
    }

    /// Writes a value into a new file that its owner alone may read. Answers the URL.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub(super) fn write(&self, description: &str, value: &[u8]) -> Result<String, ClientError> {
        let fault = |path: &Path, error: &io::Error| {
            ClientError::Output(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        // A server chooses the description: it must not lead out of the folder.
        let shown = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | ';') { c } else { '_' };
        let description: String = description.chars().map(shown).collect();
        let mut tries = 0;
        let (name, path, mut file) = loop {
            let mut random = [0; 8];
            SystemRandom.fill(&mut random);
            let name = format!("ldapsearch-{description}-{:016x}", u64::from_be_bytes(random));
            let path = self.folder.join(&name);
            match create(&path) {
                Ok(file) => break (name, path, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
                Err(error) => return Err(fault(&path, &error)),
            }
        };
        file.write_all(value).map_err(|error| fault(&path, &error))?;
        Ok(format!("{}{}", self.prefix, percent_encoded(&name)))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The URL of a folder (RFC 8089), with a slash at its end.
fn url_of(folder: &Path) -> String {
    let path = percent_encoded(&folder.to_string_lossy());
    format!("file://{}/", path.trim_end_matches('/'))
}

/// Text as a path in a URL has it (RFC 3986 section 2.1).
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b';' => encoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn values_that_are_no_text_are_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a folder");
        std::fs::create_dir(&path).unwrap();
        let files = ValueFiles::new(Some(&path), None, false).unwrap();
        for (value, expected) in [
            (&b"plain"[..], false),
            (b"", false),
            (b" a blank first", true),
            (b"\xff\x00", true),
            ("M\u{fc}ller".as_bytes(), true),
        ] {
            assert_eq!(files.takes(value), expected, "{value:?}");
        }
        let url = files.write("jpegPhoto;x-a", b"\xff\xd8").unwrap();
        let start = format!("file://{}/a%20folder/ldapsearch-jpegPhoto;x-a-", folder.path().display());
        let random = url.strip_prefix(&start).unwrap_or_else(|| panic!("{url}"));
        let file = path.join(format!("ldapsearch-jpegPhoto;x-a-{random}"));
        assert_eq!(std::fs::read(&file).unwrap(), b"\xff\xd8");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_server_s_name_leads_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let files = ValueFiles::new(Some(&inner), Some("http://there/"), true).unwrap();
        let url = files.write("../x/\u{1}", b"").unwrap();
        assert!(url.starts_with("http://there/ldapsearch-___x__-"), "{url}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 1);
        assert!(ValueFiles::new(Some(&folder.path().join("none")), None, true).is_err());
    }
}

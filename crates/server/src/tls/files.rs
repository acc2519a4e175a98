//! The files and values that TLS is set up from. Each fault names its file and the remedy.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use zeroize::Zeroizing;

/// Where something was given: a file, or the value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Value(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Value(attribute) => write!(f, "the value of {attribute}"),
        }
    }
}

/// Why TLS cannot be had with these settings.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read.
    Read { directive: &'static str, path: PathBuf, source: io::Error },
    /// A file has nothing of what it is for.
    Nothing { directive: &'static str, source: Source, wanted: &'static str, found: Option<String> },
    /// What is there cannot be understood.
    Malformed { directive: &'static str, source: Source, why: String },
    /// The key has a passphrase.
    EncryptedKey(Source),
    /// The key is of a kind that is not signed with.
    KeyKind { source: Source, why: String },
    /// The key belongs to none of the certificates.
    Mismatch { certificate: Source, key: Source },
    /// There is a key without a certificate, or the other way round.
    Lone { given: &'static str, missing: &'static str },
    /// A setting that depends on another one.
    Needs { setting: String, needs: &'static str },
    /// A value of `TLSCipherSuite`, `TLSProtocolMin` or `TLSECName`.
    Value(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { directive, path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                let user = rustix::process::geteuid().as_raw();
                write!(
                    f,
                    "{directive} {}: user {user}, as whom the server runs, may not read it",
                    path.display()
                )
            }
            Self::Read { directive, path, source } if source.kind() == io::ErrorKind::NotFound => {
                write!(f, "{directive} {}: there is no such file", path.display())
            }
            Self::Read { directive, path, source } => write!(f, "{directive} {}: {source}", path.display()),
            Self::Nothing { directive, source, wanted, found } => {
                write!(f, "{directive} {source}: there is no {wanted} in it")?;
                found.as_ref().map_or(Ok(()), |found| write!(f, ", but {found}"))
            }
            Self::Malformed { directive, source, why } => write!(f, "{directive} {source}: {why}"),
            Self::EncryptedKey(source) => write!(
                f,
                "TLSCertificateKeyFile {source}: the key is encrypted, and nobody is there to type its passphrase; \
                 write it without one: openssl pkey -in {source} -out KEYFILE"
            ),
            Self::KeyKind { source, why } => {
                write!(
                    f,
                    "TLSCertificateKeyFile {source}: {why}; RSA from 2048 to 4096 bits, P-256, P-384 and Ed25519 can be had"
                )
            }
            Self::Mismatch { certificate, key } => {
                write!(f, "TLSCertificateKeyFile {key}: the key belongs to no certificate in {certificate}")
            }
            Self::Lone { given, missing } => write!(f, "{given} is given, {missing} is not: TLS needs both"),
            Self::Needs { setting, needs } => write!(f, "{setting} needs {needs}"),
            Self::Value(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for TlsError {}

/// What a file of PEM sections holds.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    pub(super) key: Option<PrivateKeyDer<'static>>,
    /// Sections of other kinds, and what a file without any looks like.
    other: Option<&'static str>,
    encrypted: bool,
}

impl Sections {
    /// Reads a file.
    pub(super) fn read(directive: &'static str, path: &Path) -> Result<Self, TlsError> {
        let bytes = larix_files::read(path).map(Zeroizing::new).map_err(|source| TlsError::Read {
            directive,
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&bytes).map_err(|why| TlsError::Malformed {
            directive,
            source: Source::File(path.to_owned()),
            why,
        })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        // Editors of Windows write a byte order mark, and a section stands at the begin of a line.
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        let encrypted = has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED");
        let mut sections = Self { encrypted, ..Self::default() };
        // What stands between sections is for people; `openssl x509 -text` writes it in any encoding.
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes) {
            let (kind, der) = match section {
                Ok(section) => section,
                // The headers of an old encrypted key are no base64.
                Err(_) if encrypted => break,
                Err(error) => return Err(format!("its PEM is damaged: {error}")),
            };
            match kind {
                SectionKind::Certificate => sections.certificates.push(der.into()),
                SectionKind::Crl => sections.lists.push(der.into()),
                SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey
                    if sections.key.is_none() =>
                {
                    sections.key = PrivateKeyDer::from_pem(kind, der);
                }
                _ => {}
            }
        }
        sections.other = if has(b"-----BEGIN TRUSTED CERTIFICATE-----") {
            Some("a TRUSTED CERTIFICATE, which only OpenSSL knows: write it again with openssl x509")
        } else if has(b"-----BEGIN CERTIFICATE REQUEST-----") {
            Some("a request for one")
        } else if bytes.first() == Some(&0x30) {
            Some("binary data, perhaps DER: write it as PEM with openssl x509 -inform der")
        } else if bytes.is_empty() {
            Some("nothing at all")
        } else {
            None
        };
        Ok(sections)
    }

    fn found(&self) -> Option<String> {
        let found = if let Some(other) = self.other {
            other
        } else if self.key.is_some() || self.encrypted {
            "a private key"
        } else if !self.certificates.is_empty() {
            "a certificate"
        } else if !self.lists.is_empty() {
            "a revocation list"
        } else {
            return None;
        };
        Some(found.to_owned())
    }

    /// Its certificates, at least one.
    pub(super) fn certificates(
        self,
        directive: &'static str,
        path: &Path,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        if self.certificates.is_empty() {
            return Err(self.nothing(directive, path, "certificate (PEM)"));
        }
        Ok(self.certificates)
    }

    pub(super) fn has_key(&self) -> bool {
        self.key.is_some() || self.encrypted
    }

    /// Its private key.
    pub(super) fn key(
        self,
        directive: &'static str,
        path: &Path,
    ) -> Result<PrivateKeyDer<'static>, TlsError> {
        if self.encrypted {
            return Err(TlsError::EncryptedKey(Source::File(path.to_owned())));
        }
        let nothing = self.nothing(directive, path, "private key (PEM)");
        self.key.ok_or(nothing)
    }

    /// Its revocation lists, at least one.
    pub(super) fn lists(
        self,
        directive: &'static str,
        path: &Path,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        if self.lists.is_empty() {
            return Err(self.nothing(directive, path, "revocation list (PEM)"));
        }
        Ok(self.lists)
    }

    fn nothing(&self, directive: &'static str, path: &Path, wanted: &'static str) -> TlsError {
        TlsError::Nothing { directive, source: Source::File(path.to_owned()), wanted, found: self.found() }
    }
}

/// The files of a directory of authorities, in the order of their names. Links that `openssl rehash` made are skipped
/// when what they lead to is there itself; hidden files always.
pub(super) fn directory(directive: &'static str, path: &Path) -> Result<Vec<PathBuf>, TlsError> {
    let failed = |source| TlsError::Read { directive, path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    let targets: Vec<PathBuf> =
        files.iter().map(|file| file.canonicalize().unwrap_or_else(|_| file.clone())).collect();
    let mut seen = std::collections::HashSet::new();
    Ok(files
        .into_iter()
        .zip(targets)
        .filter(|(_, target)| seen.insert(target.clone()))
        .map(|(file, _)| file)
        .collect())
}

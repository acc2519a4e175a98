//! TLS of the clients: `ldaps://`, `-Z`, and the settings that OpenLDAP's clients know (ldap.conf(5)).

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use larix_sasl::scram::ClientBinding;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, Error, ProtocolVersion, RootCertStore, StreamOwned, version};

use crate::authorities::{ByDate, Trusted, roots};
use crate::ciphers;
use crate::error::ClientError;
use crate::fault::{self, SettingNames};
use crate::ldap_conf::{self, LdapConf};
use crate::peer_fault::PeerFault;
use crate::pins::{PeerKeyHash, Pinned};
use crate::proof;
use crate::revocation::{orders, unusable};
use crate::trust::{NameRule, Named, PeerCertificate, Verifiers};
use crate::verifier::Verifier;

/// The label of `tls-exporter` (RFC 9266 section 4).
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// Where distributions keep the authorities that the machine believes, when `TLS_CACERT` names none.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// What the command line, the environment and the files say about TLS, by the names of ldap.conf.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    settings: HashMap<&'static str, String>,
    /// Where those stand that a file or the environment gives, with their names.
    places: HashMap<&'static str, String>,
    /// Whether a certificate may have any name.
    any_name: bool,
    /// A tool reads pipes; a server, which would wait for them, does not.
    pipes: Option<Pipes>,
}

/// What came out of the pipes that a tool's settings name, as `<(...)` of a shell is one: each is read once, for all connections.
#[derive(Clone, Default)]
struct Pipes(Arc<Mutex<HashMap<PathBuf, Vec<u8>>>>);

impl Pipes {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(path) {
            return Ok(bytes.clone());
        }
        let bytes = std::fs::read(path)?;
        known.insert(path.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// Without their content: there may be a key in it.
impl fmt::Debug for Pipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pipes")
    }
}

/// What was read says nothing about the settings.
impl PartialEq for Pipes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Pipes {}

impl TlsOptions {
    /// The settings that are known, by the names of ldap.conf.
    pub const NAMES: &'static [&'static str] = ldap_conf::TLS;

    /// Exactly these, by the names of ldap.conf in any case (`tls_cert` and the like); names that are none of them are left
    /// out.
    pub fn new<'a>(settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let named = |(name, value): (&str, &str)| known(name).map(|name| (name, value.to_owned()));
        Self { settings: settings.into_iter().filter_map(named).collect(), ..Self::default() }
    }

    /// The same, and a certificate may have any name: its chain alone is judged.
    #[must_use]
    pub fn with_any_name(self) -> Self {
        Self { any_name: true, ..self }
    }

    /// From `-o tls_...=...`, then the environment and the files. Pipes are read where files are named.
    pub fn gather(options: &[String], conf: &LdapConf) -> Self {
        let mut gathered = Self { pipes: Some(Pipes::default()), ..Self::default() };
        for option in options {
            if let Some((name, value)) = option.split_once('=') {
                gathered.settings.extend(known(name).map(|name| (name, value.to_owned())));
            }
        }
        for setting in Self::NAMES.iter().filter_map(|name| conf.get(name)) {
            if !gathered.settings.contains_key(setting.name) {
                gathered.settings.insert(setting.name, setting.value.clone());
                gathered.places.insert(setting.name, setting.place());
            }
        }
        gathered
    }

    /// The error of a setting whose value is none of `words`.
    fn unknown_word(&self, name: &str, value: &str, words: &str) -> ClientError {
        let place = self.places.get(name).map_or(name, String::as_str);
        ClientError::Usage(format!("{place} {value}: {words}"))
    }

    /// An error about a file names the setting that names the file.
    fn placed(&self, name: &str, error: ClientError) -> ClientError {
        let ClientError::Input { name: file, why } = error else { return error };
        match self.places.get(name) {
            Some(place) => ClientError::Input { name: file, why: format!("{why} ({place})") },
            None => ClientError::Input { name: format!("{} {file}", name.to_ascii_lowercase()), why },
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// The channel binding that is asked for: `tls-endpoint` or `tls-exporter`.
    pub fn channel_binding(&self) -> Option<&str> {
        self.get("SASL_CBINDING")
    }

    /// Whether there is a certificate to prove one's identity with.
    pub fn has_certificate(&self) -> bool {
        self.get("TLS_CERT").is_some()
    }

    /// Whether these settings can be used at all: missing files are found before the first connection.
    ///
    /// # Errors
    /// Names the setting, or the file.
    pub fn check(&self) -> Result<(), ClientError> {
        self.configuration(&PeerCertificate::default(), &[]).map(|_| ())
    }

    /// `peer_certificate` is where the server's certificate comes to, for messages.
    fn configuration(
        &self,
        peer_certificate: &PeerCertificate,
        pins: &[PeerKeyHash],
    ) -> Result<ClientConfig, ClientError> {
        let usage = |error: String| ClientError::Usage(format!("TLS: {error}"));
        let choice = ciphers::choose(
            self.get("TLS_CIPHER_SUITE"),
            self.get("TLS_PROTOCOL_MIN"),
            self.get("TLS_ECNAME"),
        );
        let choice = choice.map_err(usage)?;
        let mut provider = ring::default_provider();
        provider.cipher_suites = choice.suites;
        provider.kx_groups = choice.groups;
        let provider = Arc::new(provider);
        let mut versions = Vec::new();
        if choice.tls13 {
            versions.push(&version::TLS13);
        }
        if choice.tls12 {
            versions.push(&version::TLS12);
        }
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| usage(error.to_string()))?;
        let mut verifier = Verifier::new(Arc::clone(&provider));
        if !pins.is_empty() {
            verifier.add(Pinned(pins.to_vec()));
        }
        if let Some(named) = self.named(&provider, peer_certificate.clone())? {
            verifier.add(named);
        }
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let Some(path) = self.get("TLS_CERT") else { return Ok(builder.with_no_client_auth()) };
        let chain = self.certificates(path).map_err(|error| self.placed("TLS_CERT", error))?;
        let key_path = self.get("TLS_KEY").unwrap_or(path);
        let key =
            self.opened(Path::new(key_path)).and_then(PrivateKeyDer::from_pem_reader).map_err(|error| {
                let why = match error {
                    pem::Error::NoItemsFound => {
                        "no private key (PEM) in it: tls_key names the file of the key".to_owned()
                    }
                    pem::Error::Io(_) => not_read(&error),
                    error => format!("no private key in it: {error}"),
                };
                self.placed("TLS_KEY", unreadable(Path::new(key_path), &why))
            })?;
        let refused = |error: Error| {
            unreadable(Path::new(path), &fault::own_certificate(&error, key_path, &SettingNames::LDAP))
        };
        let key = provider.key_provider.load_private_key(key).map_err(refused)?;
        chain.first().map_or(Ok(()), |own| proof::belongs(own, key.as_ref())).map_err(refused)?;
        let own = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        Ok(builder.with_client_cert_resolver(Arc::new(own)))
    }

    /// What judges the chain and the name of the server's certificate; `None`: nothing does.
    fn named(
        &self,
        provider: &Arc<CryptoProvider>,
        peer_certificate: PeerCertificate,
    ) -> Result<Option<Named>, ClientError> {
        let word = |name: &str| self.get(name).map(str::to_ascii_lowercase);
        match word("TLS_REQCERT").as_deref() {
            Some("never" | "allow") => return Ok(None),
            None | Some("try" | "demand" | "hard" | "on" | "true" | "yes") => {}
            Some(other) => {
                return Err(self.unknown_word("TLS_REQCERT", other, "never, allow, try, demand or hard"));
            }
        }
        let rule = match word("TLS_REQSAN").as_deref() {
            _ if self.any_name => NameRule::Any,
            None | Some("allow") => NameRule::Either,
            Some("never") => NameRule::Subject,
            Some("try") => NameRule::AlternativeFirst,
            Some("demand" | "hard" | "on" | "true" | "yes") => NameRule::Alternative,
            Some(other) => {
                return Err(self.unknown_word("TLS_REQSAN", other, "never, allow, try, demand or hard"));
            }
        };
        let certificates = self.authorities()?;
        if roots(&certificates).is_empty() {
            let text = "no authority is known to check the server's certificate: give tls_cacert=FILE, or \
                        tls_reqcert=never to trust any (-o of the tools)";
            return Err(ClientError::Usage(text.to_owned()));
        }
        let check = word("TLS_CRLCHECK");
        let check = check.unwrap_or_else(|| "none".to_owned());
        if !["none", "peer", "all"].contains(&check.as_str()) {
            return Err(self.unknown_word("TLS_CRLCHECK", &check, "none, peer or all"));
        }
        let asks_revocation = check != "none";
        let lists = self.revocation_lists(asks_revocation)?;
        // Without any, the TLS library checks nothing.
        if asks_revocation && lists.is_empty() {
            let text = "no list of revoked certificates is there: it belongs into tls_crlfile, tls_cacert or tls_cacertdir";
            return Err(self.unknown_word("TLS_CRLCHECK", &check, text));
        }
        let provider = Arc::clone(provider);
        let orders = orders(lists);
        let verifiers = move |roots: RootCertStore| -> Result<Option<Verifiers>, ClientError> {
            if roots.is_empty() {
                return Ok(None);
            }
            let roots = Arc::new(roots);
            let with_lists = |lists: &Vec<CertificateRevocationListDer<'static>>| {
                let builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
                let builder = match check.as_str() {
                    // A list that is past its time says nothing of what was revoked since.
                    "peer" => builder
                        .with_crls(lists.clone())
                        .only_check_end_entity_revocation()
                        .enforce_revocation_expiration(),
                    "all" => builder.with_crls(lists.clone()).enforce_revocation_expiration(),
                    _ if lists.is_empty() => builder,
                    _ => builder.with_crls(lists.clone()).allow_unknown_revocation_status(),
                };
                builder.build().map_err(|error| {
                    let why = unusable(lists).map_or_else(|| error.to_string(), str::to_owned);
                    ClientError::Usage(format!("TLS_CACERT and TLS_CRLFILE: {why}"))
                })
            };
            orders.iter().map(with_lists).collect::<Result<_, _>>().map(Some)
        };
        let trusted = Trusted::of(certificates);
        let shown_itself = verifiers(roots(&trusted.others))?;
        let signed = ByDate::new(&trusted.anchors, verifiers)?;
        Ok(Some(Named { signed, shown_itself, trusted, asks_revocation, peer_certificate, rule }))
    }

    /// Of `TLS_CRLFILE`, and those that stand beside the authorities; of a directory only those that are needed, since what stands
    /// there is for several programs.
    fn revocation_lists(
        &self,
        asks_revocation: bool,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, ClientError> {
        let mut lists = Vec::new();
        for (name, must) in [("TLS_CRLFILE", true), ("TLS_CACERT", false)] {
            let Some(path) = self.get(name).map(Path::new) else { continue };
            let found = self
                .opened(path)
                .and_then(|file| {
                    CertificateRevocationListDer::pem_reader_iter(file).collect::<Result<Vec<_>, _>>()
                })
                .map_err(|error| self.placed(name, unreadable(path, &not_read(&error))))?;
            if must && found.is_empty() {
                return Err(self.placed(name, unreadable(path, "no revocation list (PEM) in it")));
            }
            lists.extend(found);
        }
        if asks_revocation {
            for path in self.directory()? {
                let found = opened(&path).and_then(|file| {
                    CertificateRevocationListDer::pem_reader_iter(file).collect::<Result<Vec<_>, _>>()
                });
                lists.extend(found.unwrap_or_default());
            }
        }
        Ok(lists)
    }

    /// The files of `TLS_CACERTDIR`.
    fn directory(&self) -> Result<Vec<PathBuf>, ClientError> {
        let Some(path) = self.get("TLS_CACERTDIR") else { return Ok(Vec::new()) };
        let entries = std::fs::read_dir(path)
            .map_err(|error| self.placed("TLS_CACERTDIR", unreadable(Path::new(path), &error.to_string())))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }

    /// The certificates that are believed: authorities', or a server's own.
    fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, ClientError> {
        let file = self.get("TLS_CACERT");
        let mut found = match file {
            Some(path) => self.certificates(path).map_err(|error| self.placed("TLS_CACERT", error))?,
            None => Vec::new(),
        };
        for path in self.directory()? {
            found.extend(certificates(&path, opened(&path)).unwrap_or_default());
        }
        if file.is_none() && self.get("TLS_CACERTDIR").is_none() {
            let system = SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
            if let Some(path) = system {
                found.extend(certificates(path, opened(path))?);
            }
        }
        Ok(found)
    }

    /// The certificates in the file that a setting names.
    fn certificates(&self, path: &str) -> Result<Vec<CertificateDer<'static>>, ClientError> {
        let path = Path::new(path);
        certificates(path, self.opened(path))
    }

    /// The file that a setting names, or what came out of the pipe.
    fn opened(&self, path: &Path) -> Result<Box<dyn Read>, pem::Error> {
        let is_pipe = || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        match &self.pipes {
            Some(pipes) if is_pipe() => {
                let bytes = pipes.read(path).map_err(pem::Error::Io)?;
                without_mark(io::Cursor::new(bytes)).map_err(pem::Error::Io)
            }
            _ => opened(path),
        }
    }

    /// The same, read once for many connections.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn prepare(&self) -> Result<TlsClient, ClientError> {
        self.prepare_pinned(&[])
    }

    /// The same for servers whose public keys are known. With any hash, a server without one is refused.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn prepare_pinned(&self, pins: &[PeerKeyHash]) -> Result<TlsClient, ClientError> {
        let peer_certificate = PeerCertificate::default();
        let config = Arc::new(self.configuration(&peer_certificate, pins)?);
        let binding = self.channel_binding().map(str::to_owned);
        Ok(TlsClient { config, binding, peer_certificate })
    }

    /// For one connection to a server of another protocol. The files are read now, so that renewed ones are used.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn handshake(&self) -> Result<Handshake, ClientError> {
        let peer_certificate = PeerCertificate::default();
        let config = Arc::new(self.configuration(&peer_certificate, &[])?);
        Ok(Handshake { config, peer_certificate })
    }

    /// Makes the handshake with `host`, whose name its certificate must have.
    pub(crate) fn secure(&self, mut socket: TcpStream, host: &str) -> Result<TlsStream, ClientError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|_| ClientError::Usage(format!("{host}: no certificate can have this name")))?;
        let peer_certificate = PeerCertificate::default();
        let refused = |why: String| ClientError::Tls { host: host.to_owned(), why };
        let mut session = ClientConnection::new(Arc::new(self.configuration(&peer_certificate, &[])?), name)
            .map_err(|error| refused(error.to_string()))?;
        while session.is_handshaking() {
            if let Err(error) = session.complete_io(&mut socket) {
                return Err(refused(fault::handshake(
                    &error,
                    host,
                    peer_certificate.get().as_ref(),
                    &SettingNames::LDAP,
                )));
            }
        }
        Ok(StreamOwned::new(session, socket))
    }
}

/// TLS of one connection whose bytes somebody else moves.
#[derive(Debug)]
pub struct Handshake {
    config: Arc<ClientConfig>,
    peer_certificate: PeerCertificate,
}

impl Handshake {
    /// What rustls makes the connection with.
    #[must_use]
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// Why the handshake with `host` failed, with the setting that corrects it.
    #[must_use]
    pub fn fault(&self, error: &io::Error, host: &str, names: &SettingNames<'_>) -> String {
        fault::handshake(error, host, self.peer_certificate.get().as_ref(), names)
    }
}

/// Why a connection that had made its handshake ended, if TLS is the reason: with TLS 1.3 a server says only then what it has
/// against a client's certificate.
#[must_use]
pub fn fault_after_handshake(error: &io::Error, names: &SettingNames<'_>) -> Option<String> {
    fault::later(error, names)
}

/// TLS of many connections, its files read.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    /// `SASL_CBINDING`
    pub(crate) binding: Option<String>,
    peer_certificate: PeerCertificate,
}

impl TlsClient {
    /// Why a handshake with `host` failed, just now.
    pub(crate) fn fault(&self, error: &Error, host: &str) -> String {
        fault::unfinished(error, host, self.peer_certificate.get().as_ref(), &SettingNames::LDAP)
    }

    /// Begins a handshake with `host`, whose name its certificate must have.
    pub(crate) fn begin(&self, host: &str) -> Result<ClientConnection, PeerFault> {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|_| PeerFault::Tls(format!("{host}: no certificate can have this name")))?;
        ClientConnection::new(Arc::clone(&self.config), name)
            .map_err(|error| PeerFault::Tls(error.to_string()))
    }
}

/// `tls-exporter` (RFC 9266) where TLS is 1.3, else `tls-server-end-point` (RFC 5929); or the one that is `binding_type`.
pub(crate) fn channel_binding(
    session: &ClientConnection,
    binding_type: Option<&str>,
    end_point: fn(&CertificateDer<'_>) -> Option<Vec<u8>>,
) -> Result<ClientBinding, ClientError> {
    let is_tls13 = session.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    let fault = |why: &str| ClientError::Usage(format!("-PLUS: {why}"));
    match binding_type.unwrap_or(if is_tls13 { "tls-exporter" } else { "tls-endpoint" }) {
        "tls-exporter" if is_tls13 => {
            let data = session.export_keying_material([0; 32], EXPORTER_LABEL, None);
            let data = data.map_err(|error| fault(&format!("no tls-exporter: {error}")))?;
            Ok(ClientBinding::Used { name: "tls-exporter", data: data.to_vec() })
        }
        "tls-exporter" => Err(fault("tls-exporter is for TLS 1.3")),
        "tls-endpoint" => {
            let certificate = session.peer_certificates().and_then(|chain| chain.first());
            let data = certificate.and_then(|certificate| end_point(certificate));
            let data = data.ok_or_else(|| fault("the server's certificate has no tls-server-end-point"))?;
            Ok(ClientBinding::Used { name: "tls-server-end-point", data })
        }
        other => Err(fault(&format!("SASL_CBINDING {other}: tls-endpoint or tls-exporter"))),
    }
}

fn known(name: &str) -> Option<&'static str> {
    TlsOptions::NAMES.iter().copied().find(|known| known.eq_ignore_ascii_case(name))
}

fn opened(path: &Path) -> Result<Box<dyn Read>, pem::Error> {
    let file = larix_files::open(path).map_err(pem::Error::Io)?;
    without_mark(file).map_err(pem::Error::Io)
}

/// Without the byte order mark that editors of Windows write: a section of PEM stands at the begin of a line.
fn without_mark(mut file: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut start = Vec::new();
    file.by_ref().take(3).read_to_end(&mut start)?;
    if start == "\u{feff}".as_bytes() {
        start.clear();
    }
    Ok(Box::new(io::Cursor::new(start).chain(file)))
}

fn certificates(
    path: &Path,
    opened: Result<Box<dyn Read>, pem::Error>,
) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let found = opened
        .and_then(|file| CertificateDer::pem_reader_iter(file).collect::<Result<Vec<_>, _>>())
        .map_err(|error| unreadable(path, &not_read(&error)))?;
    if found.is_empty() {
        return Err(unreadable(path, "no certificate (PEM) in it"));
    }
    Ok(found)
}

/// Why nothing came out of a file.
fn not_read(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            "there is no such file".to_owned()
        }
        pem::Error::Io(error) => format!("it cannot be read: {error}"),
        error => error.to_string(),
    }
}

fn unreadable(path: &Path, why: &str) -> ClientError {
    ClientError::Input { name: path.display().to_string(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_line_says_holds() {
        let conf = LdapConf::of(&[("TLS_CACERT", "/c"), ("TLS_REQCERT", "perhaps"), ("BASE", "o=x")]);
        let options = ["TLS_CACERT=/first", "nettimeout=3", "tls_key=/k"].map(str::to_owned);
        let options = TlsOptions::gather(&options, &conf);
        let expected = [("TLS_CACERT", "/first"), ("TLS_KEY", "/k"), ("TLS_REQCERT", "perhaps")];
        assert_eq!(options.settings, expected.map(|(name, value)| (name, value.to_owned())).into());
        let error = options.configuration(&PeerCertificate::default(), &[]).unwrap_err().to_string();
        assert_eq!(error, "LDAPTLS_REQCERT perhaps: never, allow, try, demand or hard");
        let conf = LdapConf::of(&[("TLS_CACERT", "/no/such/file")]);
        let options = TlsOptions::gather(&[], &conf);
        let error = options.configuration(&PeerCertificate::default(), &[]).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/file: ") && error.ends_with("(LDAPTLS_CACERT)"), "{error}");
    }

    #[test]
    fn a_tool_reads_a_pipe_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let name = pipe.display().to_string();
        let text = larix_testkit::Authority::new("Root").certificate();
        let writer = std::thread::spawn(move || std::fs::write(pipe, text).unwrap());
        let tool = TlsOptions::gather(&[format!("tls_cacert={name}")], &LdapConf::of(&[]));
        for _ in 0..2 {
            tool.check().unwrap();
        }
        writer.join().unwrap();
        let error = TlsOptions::new([("tls_cacert", name.as_str())]).check().unwrap_err().to_string();
        assert!(error.ends_with("it is not a regular file"), "{error}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, "\u{feff}".to_owned() + &larix_testkit::Authority::new("Root").certificate())
            .unwrap();
        TlsOptions::new([("tls_cacert", path.display().to_string().as_str())]).check().unwrap();
        for short in ["", "\u{feff}", "a"] {
            std::fs::write(&path, short).unwrap();
            let options = TlsOptions::new([("tls_cacert", path.display().to_string().as_str())]);
            assert!(options.check().unwrap_err().to_string().contains("no certificate (PEM) in it"));
        }
    }

    /// Where certificates must be on no list, a client without lists would ask nothing.
    #[test]
    fn without_a_list_no_check_is_promised() {
        let folder = tempfile::tempdir().unwrap();
        let root = larix_testkit::Authority::new("Root");
        std::fs::write(folder.path().join("root.pem"), root.certificate()).unwrap();
        let directory = folder.path().display().to_string();
        let check = |level: &str| {
            TlsOptions::new([("tls_cacertdir", directory.as_str()), ("tls_crlcheck", level)]).check()
        };
        check("none").unwrap();
        for level in ["peer", "all"] {
            let error = check(level).unwrap_err().to_string();
            assert!(error.contains("no list of revoked certificates"), "{error}");
        }
        std::fs::write(folder.path().join("root.r0"), root.revocations(&[], 2090)).unwrap();
        std::fs::write(folder.path().join("other"), "-----BEGIN X509 CRL-----\n").unwrap();
        check("peer").unwrap();
    }

    #[test]
    fn settings_that_cannot_be() {
        for (name, value, expected) in [
            ("TLS_REQCERT", "perhaps", "TLS_REQCERT perhaps: never, allow, try, demand or hard"),
            ("TLS_CACERT", "/no/such/file", "tls_cacert /no/such/file: there is no such file"),
            ("TLS_CACERT", "/", "tls_cacert /: it cannot be read: "),
        ] {
            let options = TlsOptions::new([(name, value)]);
            let error = options.configuration(&PeerCertificate::default(), &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn faults_of_ones_own_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let authority = larix_testkit::Authority::new("Root");
        for name in ["first", "second"] {
            authority.server().write(folder.path(), name);
        }
        std::fs::write(folder.path().join("ca.pem"), authority.certificate()).unwrap();
        larix_testkit::pki::version_1().write(folder.path(), "old");
        let none = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        std::fs::write(folder.path().join("none.pem"), none).unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        for (certificate, key, expected) in [
            ("old.pem", "first.key", "(tls_cert) does not belong to the key in"),
            ("none.pem", "first.key", "none.pem: the certificate (tls_cert) cannot be used: BadEncoding"),
            ("first.pem", "none.pem", "none.pem: no private key (PEM) in it"),
            ("first.pem", "second.key", "(tls_cert) does not belong to the key in"),
            ("ca.pem", "ca.pem", "ca.pem: no private key (PEM) in it: tls_key names the file of the key"),
        ] {
            let (authority, certificate, key) = (file("ca.pem"), file(certificate), file(key));
            let options = TlsOptions::new([
                ("TLS_CACERT", authority.as_str()),
                ("TLS_CERT", certificate.as_str()),
                ("TLS_KEY", key.as_str()),
            ]);
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        // Whether it is good is for the server to say.
        let (authority, certificate, key) = (file("ca.pem"), file("old.pem"), file("old.key"));
        let own = [
            ("TLS_CACERT", authority.as_str()),
            ("TLS_CERT", certificate.as_str()),
            ("TLS_KEY", key.as_str()),
        ];
        TlsOptions::new(own).check().unwrap();
    }
}

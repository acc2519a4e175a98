//! A server with TLS, and connections to it by hand.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "used by tests alone")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use larix_proto::{MessageId, Response, client, oid};
use larix_testkit::{Authority, Kind, Server, Site, packages};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::raw::read_to_end;

/// How long an answer may take before it is missed; longer than a handshake is waited for, also by a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A server with a certificate of its own authority.
#[derive(Debug)]
pub struct Secure {
    pub server: Server,
    pub authority: Authority,
    pub site: Site,
    pub folder: tempfile::TempDir,
    pub secure_port: u16,
    /// Where connections begin with a balancer's header.
    pub proxied_port: Option<u16>,
}

impl Secure {
    pub fn start(kind: Kind, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("Root");
        authority.server().write(folder.path(), "server");
        std::fs::write(folder.path().join("ca.pem"), authority.certificate()).unwrap();
        let path = folder.path().display();
        let body = format!(
            "TLSCertificateFile {path}/server.pem\nTLSCertificateKeyFile {path}/server.key\n\
             TLSCACertificateFile {path}/ca.pem\n{settings}\ndatabase mdb\nsuffix dc=example,dc=com\n\
             rootdn cn=admin,dc=example,dc=com\nrootpw secret\ndirectory @DATA@\ndatabase monitor\n"
        );
        let site = Site::new(kind, &body);
        // A server that supports the PROXY header has a listener for it, too.
        let urls: &[&str] = match kind {
            Kind::Larix => &["ldap://127.0.0.1:0/", "ldaps://127.0.0.1:0/", "pldap://127.0.0.1:0/"],
            Kind::Slapd => &["ldap://127.0.0.1:0/", "ldaps://127.0.0.1:0/"],
        };
        let server = Server::start_on(kind, &site.configuration(), urls, &["-d", "256"], &[])
            .unwrap_or_else(|error| panic!("{error}"));
        let (secure_port, proxied_port) = (server.ports[1], server.ports.get(2).copied());
        Self { server, authority, site, folder, secure_port, proxied_port }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One of OpenLDAP's clients that believes the authority; `None` where they are not installed.
    pub fn tool(&self, name: &str, arguments: &[&str], environment: &[(&str, &Path)]) -> Option<Output> {
        if packages::LDAP_UTILS.is_lacking() {
            return None;
        }
        let mut command = Command::new(Path::new("/usr/bin").join(name));
        command.args(arguments).env("LDAPNOINIT", "").env_remove("LDAPNOINIT");
        command.env("LDAPTLS_CACERT", self.path("ca.pem")).envs(environment.iter().copied());
        Some(command.output().unwrap())
    }

    pub fn url(&self) -> String {
        format!("ldap://{}", self.server.address)
    }

    pub fn secure_url(&self) -> String {
        format!("ldaps://127.0.0.1:{}", self.secure_port)
    }

    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.server.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    pub fn connect_secure_port(&self) -> TcpStream {
        let socket = TcpStream::connect(("127.0.0.1", self.secure_port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    pub fn handshake(&self, mut socket: TcpStream) -> TlsStream {
        let mut roots = RootCertStore::empty();
        let root = std::fs::read(self.path("ca.pem")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&root).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut session =
            ClientConnection::new(Arc::new(config), ServerName::try_from("127.0.0.1").unwrap()).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket).unwrap();
        }
        StreamOwned::new(session, socket)
    }

    pub fn assert_serves(&self, after: &str) {
        let mut stream = self.handshake(self.connect_secure_port());
        assert_eq!(ask(&mut stream, &whoami(1)), ["1:0"], "after {after}");
    }
}

pub fn start_tls(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(id), oid::START_TLS, None, &[]);
    out
}

pub fn whoami(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(id), oid::WHO_AM_I, None, &[]);
    out
}

/// Sends requests and reads one answer a request, or to the end: `id:code`.
pub fn ask(stream: &mut (impl Read + Write), requests: &[u8]) -> Vec<String> {
    stream.write_all(requests).unwrap();
    stream.flush().unwrap();
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    loop {
        while let Ok(larix_proto::Frame::Complete { len }) = larix_proto::frame(&bytes, 1 << 20) {
            let pdu: Vec<u8> = bytes.drain(..len).collect();
            let message = Response::decode_message(&pdu).unwrap();
            if let Some((_, result)) = message.response.result() {
                found.push(format!("{}:{}", message.id, result.code.0));
            }
        }
        if !found.is_empty() && bytes.is_empty() {
            return found;
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return found,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Everything up to the end of the connection.
pub fn rest(socket: &mut TcpStream) -> Vec<u8> {
    read_to_end(socket)
}

//! The channel without a socket: a TLS server whose bytes the test moves.

#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use larix_client::{Ambient, Channel, MessageLimits, Opening, Security, TlsOptions};
use larix_proto::{LdapResult, ResponseOp, client, encode};
use larix_testkit::Authority;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion, version};

/// A channel that believes an authority, and the server that it is to reach.
fn both_ends(
    version: &'static SupportedProtocolVersion,
    authority: &Authority,
    believed: &Authority,
) -> (Channel, ServerConnection) {
    let folder = tempfile::tempdir().unwrap();
    let issued = authority.server();
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let trust = folder.path().join("ca.pem");
    std::fs::write(&trust, believed.certificate()).unwrap();
    let trust = trust.display().to_string();
    let opening = Opening {
        host: "localhost".to_owned(),
        security: Security::Ldaps(TlsOptions::new([("tls_cacert", trust.as_str())]).prepare().unwrap()),
        credentials: None,
        binds_anonymously: false,
        limits: MessageLimits::default(),
        ambient: Ambient { random: |_| {}, end_point_binding: |_| None },
    };
    (Channel::begin(opening).unwrap(), ServerConnection::new(Arc::new(config)).unwrap())
}

/// What a server has to send.
fn sent(server: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Moves bytes until neither side has any.
fn settle(channel: &mut Channel, server: &mut ServerConnection) {
    loop {
        let request = channel.output().unwrap().to_vec();
        channel.sent(request.len());
        let mut rest = request.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        let answer = sent(server);
        if request.is_empty() && answer.is_empty() {
            return;
        }
        channel.receive(&answer).unwrap();
    }
}

/// A server that says goodbye and goes on sending is heard no longer. What it said before counts, and the thread does not stay there.
#[test]
fn what_comes_behind_the_goodbye_is_ignored() {
    for version in [&version::TLS12, &version::TLS13] {
        let (told, ended) = channel();
        // A thread of its own: a loop without an end is a failure, not a test that never ends.
        std::thread::spawn(move || {
            let authority = Authority::new("Root");
            let (mut channel, mut server) = both_ends(version, &authority, &authority);
            settle(&mut channel, &mut server);
            assert!(channel.is_ready());
            let asked = channel.layer().request(None, None, |out, id| client::delete(out, id, "dc=x", &[]));
            let asked = asked.unwrap();
            settle(&mut channel, &mut server);
            let mut answer = Vec::new();
            encode::result(&mut answer, asked, ResponseOp::Delete, &LdapResult::success(), &[]);
            server.writer().write_all(&answer).unwrap();
            server.send_close_notify();
            let mut bytes = sent(&mut server);
            // More than TLS takes at once.
            bytes.resize(bytes.len() + 20_000, 0);
            channel.receive(&bytes).unwrap();
            let answered = channel.next_answer().unwrap().map(|answer| (answer.message.id, answer.is_last));
            channel.receive(&[0; 64]).unwrap();
            let has_more = channel.next_answer().unwrap().is_some();
            told.send((answered == Some((asked, true)), has_more)).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok((true, false)));
    }
}

/// As for the tools, with the setting that corrects it.
#[test]
fn what_is_wrong_with_a_certificate_is_said() {
    let (authority, other) = (Authority::new("Root"), Authority::new("Other"));
    for version in [&version::TLS12, &version::TLS13] {
        let (mut channel, mut server) = both_ends(version, &authority, &other);
        let hello = channel.output().unwrap().to_vec();
        channel.sent(hello.len());
        server.read_tls(&mut hello.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let fault = channel.receive(&sent(&mut server)).unwrap_err().to_string();
        assert!(fault.contains("is from an authority that is not trusted ("), "{fault}");
        assert!(fault.contains("Root") && fault.contains("tls_cacert"), "{fault}");
    }
}

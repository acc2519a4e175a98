//! Those who attack TLS.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use larix_proto::Response;
use larix_testkit::Kind;
use larix_tests::secure::{Secure, TlsStream, ask, rest, start_tls, whoami};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{figure, shown, times};

#[test]
fn what_is_injected_behind_start_tls_is_never_answered() {
    let secure = Secure::start(Kind::Larix, "");
    let kinds = [("a request", whoami(2)), ("a part of one", vec![0x30]), ("garbage", vec![0xff; 70_000])];
    let tries = times(10);
    for (name, behind) in kinds.iter().cycle().take(3 * tries) {
        let mut socket = secure.connect();
        let _ = socket.write_all(&[&start_tls(1)[..], behind].concat());
        let answer = rest(&mut socket);
        let mut found = Vec::new();
        let mut bytes = answer.as_slice();
        while let Ok(larix_proto::Frame::Complete { len }) = larix_proto::frame(bytes, 1 << 20) {
            found.push(Response::decode_message(&bytes[..len]).unwrap().id.0);
            bytes = &bytes[len..];
        }
        assert!(found.is_empty() || found == [1], "{name}: {found:?}");
    }
    // In a segment of its own it is taken for a handshake, and is none.
    let mut socket = secure.connect();
    assert_eq!(ask(&mut socket, &start_tls(1)), ["1:0"]);
    socket.write_all(&whoami(2)).unwrap();
    let answer = rest(&mut socket);
    assert!(answer.is_empty() || answer[0] == 21, "an alert at most: {answer:02x?}");
    figure(
        "StartTLS injection",
        format_args!(
            "{} times a request, half a request or 70 KB behind StartTLS: none answered; in the clear after \
         it: {}",
            3 * tries,
            if answer.is_empty() { "the connection ends" } else { "an alert" }
        ),
    );
    secure.assert_serves("injections");
}

#[test]
fn nobody_is_talked_down() {
    // A database that demands strength gives nothing away in the clear, and all of it behind TLS.
    let secure = Secure::start(Kind::Larix, "security ssf=128");
    let mut socket = secure.connect();
    assert_eq!(ask(&mut socket, &whoami(1)), ["1:13"]);
    assert_eq!(ask(&mut socket, &start_tls(2)), ["2:0"]);
    assert_eq!(ask(&mut secure.handshake(socket), &whoami(3)), ["3:0"]);
    // A client that speaks nothing newer than TLS 1.1 gets alert 70, protocol version.
    let mut hello = vec![3, 2];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(&[0, 0, 4, 0xc0, 0x2f, 0xc0, 0x2b, 1, 0]);
    let extensions =
        [&[0, 10, 0, 4, 0, 2, 0, 23][..], &[0, 11, 0, 2, 1, 0], &[0, 13, 0, 4, 0, 2, 4, 3]].concat();
    hello.extend_from_slice(&u16::try_from(extensions.len()).unwrap().to_be_bytes());
    hello.extend_from_slice(&extensions);
    let length = u16::try_from(hello.len()).unwrap();
    let message = [&[1, 0], &length.to_be_bytes()[..], &hello].concat();
    let record = [&[22, 3, 1], &(length + 4).to_be_bytes()[..], &message].concat();
    let (tries, begin) = (times(10), Instant::now());
    for _ in 0..tries {
        let mut socket = secure.connect_secure_port();
        socket.write_all(&record).unwrap();
        assert_eq!(rest(&mut socket), [21, 3, 3, 0, 2, 2, 70], "fatal alert: protocol version");
    }
    figure(
        "TLS downgrade",
        format_args!(
            "{tries} hellos of TLS 1.1 refused by `protocol_version`, {:?} each; in the clear 13 under `security \
         ssf=128`",
            begin.elapsed() / u32::try_from(tries).unwrap()
        ),
    );
    // LDAP in the clear at a port of TLS is no handshake.
    let mut socket = secure.connect_secure_port();
    socket.write_all(&whoami(1)).unwrap();
    let answer = rest(&mut socket);
    assert!(answer.is_empty() || answer[0] == 21, "{answer:02x?}");
    secure.assert_serves("attempts to talk it down");
}

#[test]
fn slow_handshakes_hold_nobody_up_and_end() {
    let secure = Secure::start(Kind::Larix, "");
    // Descriptors of the test and of the server bound how many there may be.
    let count = times(30);
    let begin = Instant::now();
    let mut slow: Vec<TcpStream> = (0..count).map(|_| secure.connect_secure_port()).collect();
    for socket in slow.iter_mut().skip(count / 3) {
        // The beginning of a hello that never comes whole.
        socket.write_all(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc]).unwrap();
    }
    let mut others = Vec::new();
    for _ in 0..times(5) {
        let begin = Instant::now();
        secure.assert_serves("slow handshakes began");
        others.push(begin.elapsed());
    }
    others.sort();
    // Each ends by the server's patience, not by the client's.
    assert_eq!(rest(&mut slow[0]), b"");
    assert_eq!(rest(&mut slow[count - 1]), b"");
    figure(
        "slow handshakes",
        format_args!(
            "{count}, ended by the server {:?} after the first; connect, handshake and answer of others {}",
            begin.elapsed(),
            shown(&others)
        ),
    );
    secure.assert_serves("slow handshakes ended");
}

#[test]
fn certificates_are_swapped_under_load() {
    let secure = Secure::start(Kind::Larix, "");
    let mut old = secure.handshake(secure.connect_secure_port());
    let served = |stream: &TlsStream| stream.conn.peer_certificates().unwrap()[0].to_vec();
    let first = served(&old);
    // Broken files are not taken.
    std::fs::write(secure.path("server.key"), "nothing").unwrap();
    let renewed = secure.authority.server();
    let expected = CertificateDer::from_pem_slice(renewed.certificate.as_bytes()).unwrap().to_vec();
    let (mut handshakes, begin) = (0, Instant::now());
    let before = times(50);
    let mut last = first.clone();
    while last != expected {
        if handshakes == u32::try_from(before).unwrap() {
            renewed.write(secure.folder.path(), "server");
        }
        handshakes += 1;
        let mut stream = secure.handshake(secure.connect_secure_port());
        assert_eq!(ask(&mut stream, &whoami(1)), ["1:0"], "handshake {handshakes}");
        last = served(&stream);
        assert!(last == first || last == expected);
        assert!(handshakes < 100_000, "the new certificate is never used");
    }
    assert_eq!(ask(&mut old, &whoami(9)), ["9:0"], "a connection that stands keeps standing");
    figure(
        "certificate swap",
        format_args!(
            "{handshakes} full handshakes, one after the other, while key and certificate were broken and \
         replaced: none failed, {:?} each",
            begin.elapsed() / handshakes
        ),
    );
}

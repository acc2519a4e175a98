//! Messages of SASL mechanisms, of both sides. The first byte chooses one.
#![no_main]

use larix_sasl::scram::{Client, ClientBinding, ClientFirst, Hash, Server, ServerBinding, Verifier};
use larix_sasl::{cram_md5, digest_md5, plain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, message)) = data.split_first() else { return };
    match choice % 6 {
        0 => {
            if let Ok(parsed) = plain::Plain::parse(message) {
                assert_eq!(*parsed.encode(), message);
            }
        }
        1 => scram(message),
        2 => {
            // A false server proves nothing.
            let mut client = Client::new(Hash::Sha256, "user", "", "abc", ClientBinding::Unsupported);
            if Client::parameters(message).is_ok_and(|(_, rounds)| rounds <= 5000) {
                let _ = client.respond(message, b"pencil");
            }
            assert!(client.verify(message).is_err());
        }
        3 => {
            if let Ok(answer) = cram_md5::Answer::parse(message) {
                assert!(!answer.is_of(b"a password nobody guesses", "<challenge@host>"));
            }
        }
        4 => {
            if let Ok(response) = digest_md5::Response::parse(message) {
                let all = vec![digest_md5::Quality::Auth, digest_md5::Quality::Integrity];
                let server = digest_md5::Server::new("nonce".to_owned(), "realm".to_owned(), all, 65536);
                assert!(server.finish(&response, Some(b"a password nobody guesses")).is_err());
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(message) else { return };
            for hash in Hash::ALL {
                if let Some(verifier) = Verifier::parse(hash, text) {
                    assert_eq!(Verifier::parse(hash, &verifier.to_text()), Some(verifier));
                }
            }
        }
    }
});

/// The first message, and what follows a line end as the final one.
fn scram(message: &[u8]) {
    let cut = message.iter().position(|byte| *byte == b'\n').unwrap_or(message.len());
    let (first, last) = message.split_at(cut);
    let Ok(first) = ClientFirst::parse(first) else { return };
    let verifier = Verifier::of_nobody(Hash::Sha256, b"secret", &first.authcid, 4096);
    let binding = ServerBinding { plus: false, offered: false, channels: &[] };
    if let Ok((server, _)) = Server::start(&first, verifier, "server", &binding) {
        assert!(server.finish(last.get(1..).unwrap_or_default()).is_err());
    }
}

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::{Fault, NAME_MAX, TEXT_MESSAGE_MAX};

const NO_BINDING: ServerBinding<'static> = ServerBinding { plus: false, offered: false, channels: &[] };

fn start(hash: Hash, first: &str, binding: &ServerBinding<'_>) -> Result<(Server, String), Fault> {
    let first = ClientFirst::parse(first.as_bytes())?;
    let verifier = Verifier::derive(hash, b"pencil", b"salt", ITERATIONS_MIN);
    Server::start(&first, verifier, "server", binding)
}

/// The four messages of an example with the user "user" and the password "pencil".
fn check_example(hash: Hash, salt: &str, nonces: [&str; 2], proof: &str, signature: &str) {
    let [client_nonce, server_nonce] = nonces;
    let mut client = Client::new(hash, "user", "", client_nonce, ClientBinding::Unsupported);
    let first = client.first();
    assert_eq!(first, format!("n,,n=user,r={client_nonce}"));
    let verifier = Verifier::derive(hash, b"pencil", &STANDARD.decode(salt).unwrap(), 4096);
    assert!(verifier.is_of(b"pencil") && !verifier.is_of(b"pen"));
    let parsed = ClientFirst::parse(first.as_bytes()).unwrap();
    let (server, challenge) = Server::start(&parsed, verifier, server_nonce, &NO_BINDING).unwrap();
    assert_eq!(challenge, format!("r={client_nonce}{server_nonce},s={salt},i=4096"));
    let answer = client.respond(challenge.as_bytes(), b"pencil").unwrap();
    assert_eq!(answer, format!("c=biws,r={client_nonce}{server_nonce},p={proof}"));
    let last = server.finish(answer.as_bytes()).unwrap();
    assert_eq!(last, format!("v={signature}"));
    assert_eq!(client.verify(last.as_bytes()), Ok(()));
}

#[test]
fn examples_of_rfc_5802_and_7677() {
    check_example(
        Hash::Sha1,
        "QSXCR+Q6sek8bf92",
        ["fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j"],
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    );
    check_example(
        Hash::Sha256,
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        ["rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"],
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    );
}

/// No RFC has an example for SHA-512: these messages were computed by another implementation.
#[test]
fn an_example_for_sha_512() {
    check_example(
        Hash::Sha512,
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        ["rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"],
        "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==",
        "ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==",
    );
}

#[test]
fn channel_bindings_must_agree() {
    let channels: [(&str, &[u8]); 2] =
        [("tls-exporter", b"exported"), ("tls-server-end-point", b"certificate")];
    let both = |plus| ServerBinding { plus, offered: true, channels: &channels };
    // The configuration leaves out the mechanisms that bind.
    let left_out = ServerBinding { plus: false, offered: false, channels: &channels };
    for (flag, binding, expected) in [
        ("n", NO_BINDING, None),
        ("y", NO_BINDING, None),
        ("n", both(false), None),
        ("y", both(false), Some(Fault::ChannelBinding("somebody removed it from the mechanisms offered"))),
        ("p=tls-exporter", both(true), None),
        ("p=tls-server-end-point", both(true), None),
        ("p=tls-unique", both(true), Some(Fault::ChannelBinding("type not available"))),
        ("p=tls-exporter", both(false), None),
        ("n", left_out, None),
        ("y", left_out, None),
        ("p=tls-exporter", left_out, None),
        ("p=tls-exporter", NO_BINDING, Some(Fault::ChannelBinding("the mechanism has none"))),
        ("n", both(true), Some(Fault::ChannelBinding("the mechanism demands it"))),
        ("y", both(true), Some(Fault::ChannelBinding("the mechanism demands it"))),
    ] {
        let found = start(Hash::Sha256, &format!("{flag},,n=user,r=abc"), &binding).err();
        assert_eq!(found, expected, "{flag} {binding:?}");
    }
    for (data, expected) in [("exported", None), ("other", Some(Fault::ChannelBinding("the data differ")))] {
        let used = ClientBinding::Used { name: "tls-exporter", data: data.as_bytes().to_vec() };
        let mut client = Client::new(Hash::Sha256, "user", "", "abc", used);
        let (server, challenge) = start(Hash::Sha256, &client.first(), &both(true)).unwrap();
        let answer = client.respond(challenge.as_bytes(), b"pencil").unwrap();
        assert_eq!(server.finish(answer.as_bytes()).err(), expected, "{data}");
    }
}

#[test]
fn bad_first_messages() {
    let long_name = format!("n,,n={},r=a", "x".repeat(NAME_MAX + 1));
    let huge = format!("n,,n=x,r=a,{}", "x".repeat(TEXT_MESSAGE_MAX));
    for (message, expected) in [
        ("", Fault::Malformed("channel binding flag")),
        ("n", Fault::Malformed("authorization identity")),
        ("n,,", Fault::Malformed("user name")),
        ("q,,n=user,r=abc", Fault::Malformed("channel binding flag")),
        ("p=,,n=user,r=abc", Fault::Malformed("channel binding flag")),
        ("p=a b,,n=user,r=abc", Fault::Malformed("channel binding flag")),
        ("n,other,n=user,r=abc", Fault::Malformed("authorization identity")),
        ("n,,m=x,n=user,r=abc", Fault::Unsupported("the demanded extension")),
        ("n,,n=,r=abc", Fault::Malformed("user name")),
        ("n,,n=a=b,r=abc", Fault::Malformed("name")),
        ("n,,n=a=2c,r=abc", Fault::Malformed("name")),
        ("n,,n=a\0b,r=abc", Fault::Malformed("name")),
        ("n,,n=user", Fault::Malformed("nonce")),
        ("n,,n=user,r=", Fault::Malformed("nonce")),
        ("n,,n=user,r=a b", Fault::Malformed("nonce")),
        ("n,,r=abc,n=user", Fault::Malformed("user name")),
        (&long_name, Fault::TooLong { limit: NAME_MAX }),
        (&huge, Fault::TooLong { limit: TEXT_MESSAGE_MAX }),
    ] {
        assert_eq!(ClientFirst::parse(message.as_bytes()), Err(expected), "{message:?}");
    }
    assert_eq!(ClientFirst::parse(b"n,,n=\xff,r=a"), Err(Fault::Malformed("UTF-8")));
}

#[test]
fn bad_final_messages() {
    let mut client = Client::new(Hash::Sha256, "user", "", "abc", ClientBinding::Unsupported);
    let (server, challenge) = start(Hash::Sha256, &client.first(), &NO_BINDING).unwrap();
    let right = client.respond(challenge.as_bytes(), b"pencil").unwrap();
    let wrong = client.respond(challenge.as_bytes(), b"pen").unwrap();
    let proof = right.rsplit_once(",p=").unwrap().1;
    let with_proof = |text: &str| format!("{text},p={proof}");
    for (message, expected) in [
        (String::new(), Fault::Malformed("proof")),
        ("c=biws,r=abcserver".to_owned(), Fault::Malformed("proof")),
        ("c=biws,r=abcserver,p=***".to_owned(), Fault::Malformed("proof")),
        ("c=biws,r=abcserver,p=".to_owned(), Fault::Malformed("proof")),
        ("c=biws,r=abcserver,p=AAAA".to_owned(), Fault::Malformed("proof")),
        (with_proof("r=abcserver"), Fault::Malformed("channel binding")),
        (with_proof("c=biws"), Fault::Malformed("nonce")),
        (with_proof("c=biws,r=abc"), Fault::Mismatch("nonce")),
        (with_proof("c=eSws,r=abcserver"), Fault::ChannelBinding("the data differ")),
        // An extension changes what was signed.
        (with_proof("c=biws,r=abcserver,x=1"), Fault::Proof),
        (wrong, Fault::Proof),
    ] {
        assert_eq!(server.finish(message.as_bytes()), Err(expected), "{message:?}");
    }
    assert!(server.finish(right.as_bytes()).is_ok());
}

#[test]
fn clients_refuse_what_a_false_server_says() {
    let fresh = || Client::new(Hash::Sha256, "user", "", "abc", ClientBinding::Unsupported);
    for (challenge, expected) in [
        ("r=abc,s=c2FsdA==,i=4096", Fault::Mismatch("nonce")),
        ("r=xyzserver,s=c2FsdA==,i=4096", Fault::Mismatch("nonce")),
        ("r=abcserver,s=c2FsdA==,i=1", Fault::Unsupported("an iteration count below 4096 is")),
        ("r=abcserver,s=c2FsdA==,i=99999999", Fault::Malformed("iteration count")),
        ("r=abcserver,s=*,i=4096", Fault::Malformed("salt")),
        ("r=abcserver,i=4096", Fault::Malformed("salt")),
        ("m=x,r=abcserver,s=c2FsdA==,i=4096", Fault::Unsupported("the demanded extension")),
    ] {
        assert_eq!(fresh().respond(challenge.as_bytes(), b"pencil"), Err(expected), "{challenge}");
    }
    let mut client = fresh();
    assert_eq!(client.verify(b"v=AAAA"), Err(Fault::Peer));
    client.respond(b"r=abcserver,s=c2FsdA==,i=4096", b"pencil").unwrap();
    for last in ["e=other-error", "v=AAAA", "v=", ""] {
        assert_eq!(client.verify(last.as_bytes()), Err(Fault::Peer), "{last}");
    }
}

#[test]
fn names_are_escaped_on_the_way() {
    let client = Client::new(Hash::Sha1, "a,b=c", "u:x,y", "abc", ClientBinding::Unsupported);
    assert_eq!(client.first(), "n,a=u:x=2Cy,n=a=2Cb=3Dc,r=abc");
    let first = ClientFirst::parse(client.first().as_bytes()).unwrap();
    assert_eq!((first.authcid.as_str(), first.authzid.as_str()), ("a,b=c", "u:x,y"));
}

#[test]
fn verifiers_as_text() {
    let verifier = Verifier::derive(Hash::Sha256, b"pencil", b"salt", 4096);
    let text = verifier.to_text();
    assert!(text.starts_with("4096:c2FsdA==$"), "{text}");
    assert_eq!(Verifier::parse(Hash::Sha256, &text).as_ref(), Some(&verifier));
    let commas = text.replace([':', '$'], ",");
    assert_eq!(Verifier::parse(Hash::Sha256, &commas), Some(verifier));
    for bad in [
        "".to_owned(),
        "4096".to_owned(),
        text.replace("4096", "0"),
        text.replace("4096", "10000001"),
        text.replace("c2FsdA==", ""),
        text.replace("c2FsdA==", "*"),
        format!("{text}:x"),
    ] {
        assert_eq!(Verifier::parse(Hash::Sha256, &bad), None, "{bad}");
    }
    assert_eq!(Verifier::parse(Hash::Sha1, &text), None);
}

#[test]
fn nobody_looks_like_somebody() {
    let nobody = |name: &str| Verifier::of_nobody(Hash::Sha256, b"secret", name, 10_000);
    assert_eq!(nobody("a"), nobody("a"));
    assert_ne!(nobody("a").salt, nobody("b").salt);
    assert_eq!(nobody("a").salt, salt_for(Hash::Sha256, b"secret", "a"));
    assert_ne!(nobody("a").salt, salt_for(Hash::Sha512, b"secret", "a"));
    assert_eq!(nobody("a").salt.len(), SALT_BYTES);
    assert!(Verifier::parse(Hash::Sha256, &nobody("a").to_text()).is_some());
}

use super::*;
use crate::TEXT_MESSAGE_MAX;

/// The example of RFC 2831 section 4, with LDAP's service name.
fn server() -> Server {
    let all = vec![Quality::Auth, Quality::Integrity, Quality::Confidentiality];
    Server::new("OA6MG9tEQGm2hh".to_owned(), "elwood.innosoft.com".to_owned(), all, 65536)
}

const RESPONSE: &str = "charset=utf-8,username=\"chris\",realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",\
    nc=00000001,cnonce=\"OA6MHXh6VqTrRk\",digest-uri=\"imap/elwood.innosoft.com\",\
    response=d388dad90d4bbd760a152321f2143af7,qop=auth";

#[test]
fn the_digest_of_rfc_2831() {
    let mut response = Response::parse(RESPONSE.replace("imap/", "ldap/").as_bytes()).unwrap();
    // The example is IMAP's.
    response.uri = "imap/elwood.innosoft.com".to_owned();
    let accepted = server().finish(&response, Some(b"secret")).unwrap();
    assert_eq!(accepted.answer, "rspauth=ea40f60335c427b5527b84dbabcdfffd");
    assert!(accepted.layer.is_none());
    assert_eq!(server().finish(&response, Some(b"wrong")).err(), Some(Fault::Proof));
    assert_eq!(server().finish(&response, None).err(), Some(Fault::Proof));
}

#[test]
fn the_challenge_offers_what_the_server_can() {
    assert_eq!(
        server().challenge(),
        "nonce=\"OA6MG9tEQGm2hh\",realm=\"elwood.innosoft.com\",qop=\"auth,auth-int,auth-conf\",cipher=\"rc4\",\
         maxbuf=65536,charset=utf-8,algorithm=md5-sess"
    );
}

#[test]
fn bad_responses() {
    let good = RESPONSE.replace("imap/", "ldap/");
    for (message, expected) in [
        (String::new(), Fault::Malformed("username, nonce, cnonce, nc, digest-uri and response")),
        ("username".to_owned(), Fault::Malformed("name=value")),
        ("username=\"chris".to_owned(), Fault::Malformed("a closing quote")),
        ("username=\"chris\"x".to_owned(), Fault::Malformed("a comma")),
        (format!("{good},nc=1"), Fault::Malformed("a name given once")),
        (good.replace("\"chris\"", "\"\""), Fault::Malformed("a name")),
        (good.replace("00000001", "x"), Fault::Malformed("nc")),
        (good.replace("utf-8", "latin"), Fault::Malformed("charset")),
        (good.replace("ldap/", "imap/"), Fault::Mismatch("digest-uri")),
        ("x".repeat(TEXT_MESSAGE_MAX + 1), Fault::TooLong { limit: TEXT_MESSAGE_MAX }),
    ] {
        assert_eq!(Response::parse(message.as_bytes()), Err(expected), "{message}");
    }
    for (from, to, expected) in [
        ("OA6MG9tEQGm2hh", "other", Fault::Mismatch("nonce")),
        ("00000001", "00000002", Fault::Mismatch("nonce")),
        ("qop=auth", "qop=auth-x", Fault::Unsupported("the quality of protection is")),
        ("qop=auth", "qop=auth-conf,cipher=des", Fault::Unsupported("the cipher is")),
        ("qop=auth", "qop=auth-int", Fault::Proof),
    ] {
        let response = Response::parse(good.replace(from, to).as_bytes()).unwrap();
        assert_eq!(server().finish(&response, Some(b"secret")).err(), Some(expected), "{from} -> {to}");
    }
}

#[test]
fn names_beyond_ascii_are_hashed_in_latin_1() {
    assert_eq!(latin_1("é".as_bytes()).as_deref(), Some(&[0xe9][..]));
    assert_eq!(latin_1("ł".as_bytes()), None);
    let response =
        Response::parse(b"username=\"a\\\"b\",nonce=n,cnonce=c,nc=1,digest-uri=ldap/x,response=0").unwrap();
    assert_eq!(response.username, "a\"b");
}

#[test]
fn layers_carry_both_ways_and_notice_changes() {
    let session = [7; 16];
    for quality in [Quality::Integrity, Quality::Confidentiality] {
        let mut server = Layer::of_server(&session, quality, 4096, 128);
        let mut client = Layer::of_client(&session, quality, 4096);
        assert_eq!((server.limit(), server.chunk()), (4096, 108));
        let (mut packet, mut plain) = (Vec::new(), Vec::new());
        for message in [&b"one"[..], b"", b"three"] {
            packet.clear();
            server.seal(message, &mut packet);
            client.open(&packet, &mut plain).unwrap();
        }
        assert_eq!(plain, b"onethree");
        packet.clear();
        client.seal(b"hello", &mut packet);
        plain.clear();
        server.open(&packet, &mut plain).unwrap();
        assert_eq!(plain, b"hello");
        // The same again is a repetition.
        assert_eq!(server.open(&packet, &mut plain), Err(LayerFault::Forged));
        packet.clear();
        client.seal(b"hello", &mut packet);
        packet[1] ^= 1;
        assert_eq!(server.open(&packet, &mut plain), Err(LayerFault::Forged));
        assert_eq!(server.open(&[1, 2, 3], &mut plain), Err(LayerFault::TooShort));
    }
}

#[test]
fn the_client_of_rfc_2831() {
    let parameters = ClientParameters {
        username: "chris",
        realm: "",
        authzid: "",
        host: "elwood.innosoft.com",
        nonce: "OA6MHXh6VqTrRk",
    };
    let challenge = server().challenge();
    let client = Client::respond(challenge.as_bytes(), parameters, b"secret").unwrap();
    let response = Response::parse(client.message().as_bytes()).unwrap();
    let accepted = server().finish(&response, Some(b"secret")).unwrap();
    assert_eq!(client.verify(accepted.answer.as_bytes()), Ok(()));
    assert_eq!(client.verify(b"rspauth=ea40f60335c427b5527b84dbabcdffff"), Err(Fault::Peer));
    assert_eq!(server().finish(&response, Some(b"other")).err(), Some(Fault::Proof));
    // What has to be quoted, another realm, and whom to act as.
    let odd = ClientParameters { username: "a\"b\\", realm: "x\"", authzid: "dn:cn=\"y", ..parameters };
    let client = Client::respond(challenge.as_bytes(), odd, "p\u{e9}".as_bytes()).unwrap();
    let response = Response::parse(client.message().as_bytes()).unwrap();
    assert_eq!((response.username.as_str(), response.realm.as_str()), ("a\"b\\", "x\""));
    assert_eq!(response.authzid.as_deref(), Some("dn:cn=\"y"));
    assert!(server().finish(&response, Some("p\u{e9}".as_bytes())).is_ok());
    for (challenge, expected) in [
        ("realm=\"x\",algorithm=md5-sess", Fault::Malformed("a nonce")),
        ("nonce=\"a\",nonce=\"b\",algorithm=md5-sess", Fault::Malformed("a nonce given once")),
        ("nonce=\"a\",algorithm=md5", Fault::Unsupported("the algorithm is")),
        (
            "nonce=\"a\",qop=\"auth-int,auth-conf\",algorithm=md5-sess",
            Fault::Unsupported("a layer is asked for, which is"),
        ),
    ] {
        assert_eq!(
            Client::respond(challenge.as_bytes(), parameters, b"x").err(),
            Some(expected),
            "{challenge}"
        );
    }
}

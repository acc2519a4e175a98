//! Binds by Verify Credentials (`feature vc`).

use larix_proto::extended::{ExtendedValue as _, VerifyCredentials, VerifyCredentialsResponse};
use larix_proto::{Authentication, oid};

use super::*;

const VERIFY: &str = "extended 1.3.6.1.4.1.4203.666.6.5";

impl World {
    /// Answers a verification of credentials.
    fn verified(&mut self, upstream: u64, id: u32, code: ResultCode, text: &str) {
        let value = VerifyCredentialsResponse { code, diagnostic: text.to_owned(), controls: Vec::new() };
        self.answer_extended(upstream, id, ResultCode::SUCCESS, value.encode().as_deref());
    }

    fn answer_extended(&mut self, upstream: u64, id: u32, code: ResultCode, value: Option<&[u8]>) {
        let mut bytes = Vec::new();
        encode::extended_result(&mut bytes, MessageId(id), &LdapResult::new(code), None, value, &[]);
        self.receive(upstream, &bytes);
    }
}

#[test]
fn simple_binds_are_verified_over_shared_connections() {
    let mut world = World::new(&conf(1, 1, "feature vc"));
    let [shared] = world.upstreams(Pool::Shared)[..] else { panic!("one connection") };
    let (ann, bob) = (world.client(), world.client());
    // Two binds and another client's operation are under way on one connection at once.
    world.bind(ann, 1, "cn=ann,dc=x", "a");
    world.bind(bob, 1, "cn=bob,dc=x", "b");
    let third = world.client();
    world.delete(third, 1, "dc=third");
    let requests = world.requests(shared);
    let what: Vec<_> = requests.iter().map(|request| (&*request.what, request.identity.as_deref())).collect();
    assert_eq!(what, [(VERIFY, None), (VERIFY, None), ("delete dc=third", Some(""))]);
    // What comes behind a bind waits for it.
    world.delete(ann, 2, "dc=ann");
    assert!(world.requests(shared).is_empty());
    world.verified(shared, requests[1].id, ResultCode::INVALID_CREDENTIALS, "no");
    world.verified(shared, requests[0].id, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(ann), ["1 Bind 0"]);
    assert_eq!(world.answers(bob), ["1 Bind 49 no"]);
    world.delete(bob, 2, "dc=bob");
    let identities: Vec<_> =
        world.requests(shared).into_iter().map(|request| request.identity.unwrap()).collect();
    assert_eq!(identities, ["dn:cn=ann,dc=x", ""]);
    // Nothing is left under way but the three operations.
    assert_eq!(world.balancer.backends[0].pending, 3);
}

#[test]
fn what_says_nothing_of_credentials_is_no_success() {
    let verdict = |code: ResultCode| {
        VerifyCredentialsResponse { code, diagnostic: String::new(), controls: Vec::new() }.encode()
    };
    for (code, value, expected) in [
        (ResultCode::SUCCESS, None, "80 the server does not say"),
        (ResultCode::SUCCESS, Some(b"\x30".to_vec()), "80 the server does not say"),
        (ResultCode::UNAVAILABLE, verdict(ResultCode::SUCCESS), "52"),
        (ResultCode::UNAVAILABLE, None, "52"),
        (ResultCode::PROTOCOL_ERROR, None, "80 the server does not verify credentials"),
        (ResultCode::PROTOCOL_ERROR, verdict(ResultCode::PROTOCOL_ERROR), "2"),
        (
            ResultCode::SUCCESS,
            verdict(ResultCode::SASL_BIND_IN_PROGRESS),
            "80 the server answered a simple bind",
        ),
        (ResultCode::INVALID_CREDENTIALS, verdict(ResultCode::INVALID_CREDENTIALS), "49"),
    ] {
        let mut world = World::new(&conf(1, 1, "feature vc"));
        let client = world.client();
        for message in 1..3 {
            world.bind(client, message, "cn=ann,dc=x", "a");
            let (upstream, request) = world.one_request();
            world.answer_extended(upstream, request.id, code, value.as_deref());
            let answers = world.answers(client);
            assert!(answers[0].starts_with(&format!("{message} Bind {expected}")), "{expected}: {answers:?}");
        }
        world.delete(client, 3, "dc=x");
        assert_eq!(world.one_request().1.identity.as_deref(), Some(""));
        let log_text = world.log_lines.lock().unwrap().join(" ");
        assert_eq!(
            log_text.matches("take the feature out").count(),
            usize::from(expected.contains("verify"))
        );
    }
}

#[test]
fn other_binds_go_to_connections_of_their_own_and_late_ones_fail_alone() {
    let mut world = World::new(&conf(1, 1, "feature vc"));
    let [shared] = world.upstreams(Pool::Shared)[..] else { panic!("one connection") };
    let [bind] = world.upstreams(Pool::Bind)[..] else { panic!("one connection") };
    let (plain, named) = (world.client(), world.client());
    world.send(plain, |out| client::sasl_bind(out, MessageId(1), "", "PLAIN", Some(b"\0a\0b"), &[]));
    world.bind(named, 1, "ann@example.com", "a");
    assert_eq!(world.requests(bind).len(), 1);
    assert!(world.requests(shared).is_empty());

    let (late, other) = (world.client(), world.client());
    world.bind(late, 1, "cn=ann,dc=x", "a");
    assert_eq!(world.requests(shared)[0].what, VERIFY);
    world.pass(Duration::from_secs(20));
    world.delete(other, 1, "dc=x");
    let delete = world.requests(shared).remove(0);
    assert_eq!(delete.what, "delete dc=x");
    world.pass(Duration::from_secs(11));
    assert_eq!(world.answers(late), ["1 Bind 11 the server did not answer in time"]);
    assert!(world.requests(shared)[0].what.starts_with("abandon "));
    world.answer(shared, delete.id, ResponseOp::Delete, ResultCode::SUCCESS, "");
    assert_eq!(world.answers(other), ["1 Delete 0"]);
    assert_eq!(world.balancer.backends[0].pending, 0);
    // The controls of a bind go with its credentials, and the proxies before are counted.
    let control = |oid: &'static str, value: &[u8]| larix_proto::ControlBuf {
        oid: oid.into(),
        critical: false,
        value: Some(value.to_vec()),
    };
    let controls = [control(oid::PASSWORD_POLICY, b""), control(oid::PROXY_HOPS, &[3])];
    let client = world.client();
    world.send(client, |out| client::simple_bind(out, MessageId(1), "cn=b,dc=x", b"pw", &controls));
    let bytes = world.balancer.upstream_output(shared).to_vec();
    let message = Message::decode(&bytes).unwrap();
    let hops = message.controls.iter().find(|control| control.oid == oid::PROXY_HOPS).unwrap();
    assert_eq!((hops.value, message.controls.iter().count()), (Some(&[4][..]), 1));
    let Request::Extended(extended) = message.request else { panic!("an extended operation") };
    let request = VerifyCredentials::decode(extended.value).unwrap();
    assert_eq!((request.name, request.authentication), ("cn=b,dc=x", Authentication::Simple(b"pw")));
    let inner: Vec<_> = request.controls.iter().map(|control| control.oid).collect();
    assert_eq!(inner, [oid::PASSWORD_POLICY]);
}

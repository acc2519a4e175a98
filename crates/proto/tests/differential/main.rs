//! Every message through three decoders: ours, `ldap-parser` and `rasn-ldap`, which know nothing of each other.
//!
//! Whole messages are generated, encoded by us, and must be decoded to the same content by all three. Then bytes
//! are damaged: whoever still accepts a message must read the same content out of it, and whoever disagrees on
//! accepting it must have one of the reasons that `excuse_for_reading` and its kin list.

mod generate;
mod ldap_parser_reads;
mod neutral;
mod rasn_reads;
mod we_read;

use std::collections::BTreeMap;

use neutral::Message;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

type Decoder = fn(&[u8]) -> Result<Message, String>;

const PEERS: [(&str, Decoder); 2] =
    [("ldap-parser", ldap_parser_reads::decode), ("rasn-ldap", rasn_reads::decode)];

/// A runner that always makes the same cases.
fn runner(seed: u8) -> TestRunner {
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

#[test]
fn whole_messages() {
    let mut runner = runner(1);
    for _ in 0..4000 {
        let message = generate::message().new_tree(&mut runner).expect("a message").current();
        let pdu = message.encode();
        assert_eq!(we_read::decode(&pdu).as_ref(), Ok(&message), "{pdu:02x?}");
        for (peer, decode) in PEERS {
            if !message.is_beyond(peer) {
                assert_eq!(decode(&pdu), Ok(message.as_seen_by(peer)), "{peer}: {pdu:02x?}");
            }
        }
    }
}

#[test]
fn damaged_messages() {
    let mut runner = runner(2);
    let mut unexcused: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut both_accept = 0;
    for _ in 0..20_000 {
        let message = generate::message().new_tree(&mut runner).expect("a message").current();
        let mut pdu = message.encode();
        let damages = generate::damages().new_tree(&mut runner).expect("damages").current();
        damages.iter().for_each(|damage| damage.apply(&mut pdu));
        let ours = we_read::decode(&pdu);
        let theirs = PEERS.map(|(peer, decode)| (peer, decode(&pdu)));
        let mut note = |what: String| unexcused.entry(what).or_default().push(hex(&pdu));
        match &ours {
            Ok(ours) => {
                for (peer, theirs) in &theirs {
                    if let Ok(theirs) = theirs
                        && !ours.is_beyond(peer)
                    {
                        both_accept += 1;
                        if ours.as_seen_by(peer) != *theirs && !excuse_for_reading(peer, ours, theirs) {
                            note(format!("{peer} reads {theirs:?}, we {ours:?}"));
                        }
                    }
                }
                let alone = theirs.iter().all(|(peer, theirs)| theirs.is_err() && !ours.is_beyond(peer));
                if alone && !theirs.iter().any(|(_, theirs)| excuse_for_accepting(theirs)) {
                    note(format!("we alone accept: {:?}", theirs.map(|(_, theirs)| theirs.err())));
                }
            }
            Err(reason) => {
                if theirs.iter().all(|(_, theirs)| theirs.is_ok()) && !excuse_for_refusing(reason) {
                    note(format!("we alone refuse: {reason}"));
                }
            }
        }
    }
    for (what, pdus) in &unexcused {
        println!("{:5} {what}\n      {}", pdus.len(), pdus[0]);
    }
    assert!(unexcused.is_empty());
    assert!(both_accept > 1000, "{both_accept}");
}

/// Why a peer may read something else than we do: `ldap-parser` does not look at the tags in a control.
fn excuse_for_reading(peer: &str, ours: &Message, theirs: &Message) -> bool {
    peer == "ldap-parser" && ours.op == theirs.op && ours.id == theirs.id
}

/// Why we may accept what both peers refuse, by the reason of one.
fn excuse_for_accepting(theirs: &Result<Message, String>) -> bool {
    const EXCUSES: [&str; 2] = [
        // Every sequence of RFC 4511 is extensible (section 4): what follows the known elements is ignored.
        "Unexpected extra data found",
        // The same, and what follows has a tag that means something in the indefinite form only.
        "End-of-contents octets encountered",
    ];
    theirs.as_ref().is_err_and(|reason| EXCUSES.iter().any(|excuse| reason.contains(excuse)))
}

/// Why we may refuse what both peers accept, by our own reason.
fn excuse_for_refusing(reason: &str) -> bool {
    const EXCUSES: [&str; 2] = [
        // RFC 4511 section 5.1 allows the definite form only.
        "indefinite length",
        // It also has octet strings in primitive form only, passwords included.
        "authentication: expected tag 0x80, found 0xa0",
    ];
    EXCUSES.iter().any(|excuse| reason.contains(excuse))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

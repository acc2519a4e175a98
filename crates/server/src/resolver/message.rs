//! Questions for SRV records (RFC 2782) and their answers (RFC 1035), as bytes. Nothing here asks anybody.

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE, header_buffer};

/// Records that are taken of one answer.
const RECORDS_MAX: usize = 100;
/// Aliases that are followed in one answer.
const ALIASES_MAX: usize = 8;
/// Bytes of the smallest thing that an answer counts: a question with the root's name.
const COUNTED_BYTES_MIN: usize = 5;
/// How long it is known that there is no record, where the answer does not say: in seconds.
const NEGATIVE_TTL: u32 = 60;

/// A host that serves a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(super) priority: u16,
    pub(super) weight: u16,
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// What a name server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Hosts, and how long they are known: in seconds. None where there is no such record, or one that says that nobody serves the domain.
    Hosts(Vec<Host>, u32),
    /// It does not fit one datagram.
    Truncated,
}

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It answers something else, so it may be anybody's.
    Stray,
    Malformed,
    /// The server does not answer the question: its code (RFC 6895 section 2.3).
    Refused(u16),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stray => f.write_str("an answer to another question"),
            Self::Malformed => f.write_str("an answer that is not well-formed"),
            Self::Refused(code) => write!(f, "the response code {code}"),
        }
    }
}

/// The question for the SRV records of a name; none of a name that cannot be asked for.
pub(super) fn question(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let question =
        Question::new(Name::new(name).ok()?, QTYPE::TYPE(TYPE::SRV), QCLASS::CLASS(CLASS::IN), false);
    packet.questions.push(question);
    packet.build_bytes_vec().ok()
}

/// Reads the answer to a question.
///
/// # Errors
/// An answer that is none.
pub(super) fn answer(bytes: &[u8], id: u16, name: &str) -> Result<Answer, Fault> {
    let is_ours = header_buffer::id(bytes) == Ok(id)
        && header_buffer::has_flags(bytes, PacketFlag::RESPONSE) == Ok(true);
    if !is_ours {
        return Err(Fault::Stray);
    }
    // What is cut off need not be well-formed.
    if header_buffer::has_flags(bytes, PacketFlag::TRUNCATION) == Ok(true) {
        return Ok(Answer::Truncated);
    }
    let counts = [
        header_buffer::questions(bytes),
        header_buffer::answers(bytes),
        header_buffer::name_servers(bytes),
        header_buffer::additional_records(bytes),
    ];
    let counted: usize = counts.into_iter().flatten().map(usize::from).sum();
    if counted > bytes.len() / COUNTED_BYTES_MIN {
        return Err(Fault::Malformed);
    }
    let packet = Packet::parse(bytes).map_err(|_| Fault::Malformed)?;
    let qname = Name::new(name).map_err(|_| Fault::Stray)?;
    let is_asked = |one: &Question<'_>| {
        same(&one.qname, &qname)
            && one.qtype == QTYPE::TYPE(TYPE::SRV)
            && one.qclass == QCLASS::CLASS(CLASS::IN)
    };
    if packet.questions.len() != 1 || !packet.questions.iter().all(is_asked) {
        return Err(Fault::Stray);
    }
    match packet.rcode() {
        RCODE::NoError => Ok(hosts(&packet, qname)),
        RCODE::NameError => Ok(Answer::Hosts(Vec::new(), negative_ttl(&packet))),
        code => Err(Fault::Refused(code as u16)),
    }
}

/// The hosts in a whole answer.
fn hosts(packet: &Packet<'_>, qname: Name<'_>) -> Answer {
    let records = || packet.answers.iter().filter(|record| record.class == CLASS::IN);
    let mut owner = qname;
    let mut ttl = u32::MAX;
    for _ in 0..ALIASES_MAX {
        let alias = records().find_map(|record| match &record.rdata {
            RData::CNAME(alias) if same(&record.name, &owner) => Some((alias.0.clone(), record.ttl)),
            _ => None,
        });
        let Some((alias, alias_ttl)) = alias else { break };
        (owner, ttl) = (alias, ttl.min(alias_ttl));
    }
    let mut is_there = false;
    let mut hosts = Vec::new();
    for record in records().filter(|record| same(&record.name, &owner)).take(RECORDS_MAX) {
        let RData::SRV(found) = &record.rdata else { continue };
        (is_there, ttl) = (true, ttl.min(record.ttl));
        // The root's name says that nobody serves the domain.
        if let Some(name) = host_name(&found.target).filter(|_| found.port > 0) {
            hosts.push(Host { priority: found.priority, weight: found.weight, name, port: found.port });
        }
    }
    Answer::Hosts(hosts, if is_there { ttl } else { negative_ttl(packet) })
}

/// How long it is known that there is nothing (RFC 2308 section 5): in seconds.
fn negative_ttl(packet: &Packet<'_>) -> u32 {
    let of_zone = packet.name_servers.iter().find_map(|record| match &record.rdata {
        RData::SOA(zone) => Some(zone.minimum.min(record.ttl)),
        _ => None,
    });
    of_zone.unwrap_or(NEGATIVE_TTL)
}

/// The name of a host, where it can stand in a URL: a server may answer any bytes.
fn host_name(name: &Name<'_>) -> Option<String> {
    let mut text = String::new();
    for label in name.as_bytes() {
        if !is_label(label) {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(std::str::from_utf8(label).ok()?);
    }
    (!text.is_empty()).then_some(text)
}

/// Whether this is a label of a host's name (RFC 1123 section 2.1), or one with underscores, as some have.
pub(crate) fn is_label(label: &[u8]) -> bool {
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&label.len()) && label.iter().all(is_known)
}

/// Names are the same whatever their case (RFC 4343).
fn same(one: &Name<'_>, other: &Name<'_>) -> bool {
    one.as_bytes().count() == other.as_bytes().count()
        && one.as_bytes().zip(other.as_bytes()).all(|(one, other)| one.eq_ignore_ascii_case(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "_ldap._tcp.example.com";
    /// The question in the section of questions.
    const QUESTION: &[u8] = b"\x05_ldap\x04_tcp\x07example\x03com\x00\x00\x21\x00\x01";

    fn message(flags: u16, counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34];
        bytes.extend(flags.to_be_bytes());
        counts.iter().for_each(|count| bytes.extend(count.to_be_bytes()));
        bytes.extend_from_slice(rest);
        bytes
    }

    /// A record about the name of the question.
    fn record(kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xc0, 12];
        bytes.extend(kind.to_be_bytes());
        bytes.extend(1u16.to_be_bytes());
        bytes.extend(ttl.to_be_bytes());
        bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn srv(priority: u16, weight: u16, port: u16, target: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        [priority, weight, port].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        bytes.extend_from_slice(target);
        bytes
    }

    fn host(priority: u16, weight: u16, name: &str, port: u16) -> Host {
        Host { priority, weight, name: name.to_owned(), port }
    }

    #[test]
    fn a_question_is_what_servers_understand() {
        let query = question(0x1234, NAME).unwrap();
        assert_eq!(query, message(0x0100, [1, 0, 0, 0], QUESTION));
        assert!(question(1, &"a.".repeat(130)).is_none(), "a name has 255 bytes");
    }

    #[test]
    fn answers_are_read() {
        let with = |records: &[Vec<u8>]| {
            let count = u16::try_from(records.len()).unwrap();
            message(0x8180, [1, count, 0, 0], &[QUESTION, &records.concat()].concat())
        };
        let zone = [b"\x01n\x00\x01h\x00".as_slice(), &[0; 16], &30u32.to_be_bytes()].concat();
        let of_zone = [QUESTION, &record(6, 90, &zone)].concat();
        let alias = record(5, 40, b"\x01a\xc0\x17");
        // Its name is the one that the alias leads to, at the place of the alias's own target.
        let target = u8::try_from(12 + QUESTION.len() + 12).unwrap();
        let mut behind = record(33, 70, &srv(0, 0, 389, b"\x01h\x00"));
        behind[1] = target;
        for (bytes, expected) in [
            (
                with(&[
                    record(33, 300, &srv(1, 2, 389, b"\x01b\x07example\x03com\x00")),
                    record(33, 200, &srv(0, 5, 636, b"\x01A\xc0\x17")),
                ]),
                Answer::Hosts(vec![host(1, 2, "b.example.com", 389), host(0, 5, "A.example.com", 636)], 200),
            ),
            (with(&[record(33, 9, &srv(0, 0, 0, b"\x00"))]), Answer::Hosts(vec![], 9)),
            (with(&[record(33, 9, &srv(0, 0, 389, b"\x00"))]), Answer::Hosts(vec![], 9)),
            // What cannot stand in a URL.
            (with(&[record(33, 9, &srv(0, 0, 389, b"\x03a/b\x00"))]), Answer::Hosts(vec![], 9)),
            (with(&[record(33, 9, &srv(0, 0, 389, b"\x03a b\x00"))]), Answer::Hosts(vec![], 9)),
            (with(&[record(33, 9, &srv(0, 0, 389, b"\x02\xc3\xa4\x00"))]), Answer::Hosts(vec![], 9)),
            // Records of another kind.
            (with(&[record(1, 9, &[127, 0, 0, 1])]), Answer::Hosts(vec![], 60)),
            (with(&[]), Answer::Hosts(vec![], 60)),
            (message(0x8183, [1, 0, 0, 0], QUESTION), Answer::Hosts(vec![], 60)),
            (message(0x8183, [1, 0, 1, 0], &of_zone), Answer::Hosts(vec![], 30)),
            (with(&[alias, behind]), Answer::Hosts(vec![host(0, 0, "h", 389)], 40)),
            // Names that lead to each other.
            (with(&[record(5, 40, &[0xc0, 12])]), Answer::Hosts(vec![], 60)),
            (message(0x8380, [1, 9, 9, 9], b"cut"), Answer::Truncated),
        ] {
            assert_eq!(answer(&bytes, 0x1234, NAME), Ok(expected), "{bytes:02x?}");
            assert_eq!(answer(&bytes, 0x1235, NAME), Err(Fault::Stray));
            // No byte of it may be too much for the reader.
            for length in 0..bytes.len() {
                let _ = answer(&bytes[..length], 0x1234, NAME);
            }
        }
        assert!(answer(&with(&[]), 0x1234, "_LDAP._tcp.Example.com").is_ok());
    }

    #[test]
    fn what_is_no_answer() {
        let looping = |target: &[u8]| {
            message(0x8180, [1, 1, 0, 0], &[QUESTION, &record(33, 9, &srv(0, 0, 389, target))].concat())
        };
        let own = u8::try_from(12 + QUESTION.len() + 12 + 6).unwrap();
        let endless = [b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(5);
        for (bytes, expected) in [
            (message(0x0180, [1, 0, 0, 0], QUESTION), Fault::Stray),
            (message(0x8180, [1, 0, 0, 0], b"\x05_ldap\x00\x00\x21\x00\x01"), Fault::Stray),
            (
                message(0x8180, [1, 0, 0, 0], &[QUESTION, b"x"].concat()[..QUESTION.len() - 1]),
                Fault::Malformed,
            ),
            (message(0x8180, [0, 0, 0, 0], b""), Fault::Stray),
            (message(0x8182, [1, 0, 0, 0], QUESTION), Fault::Refused(2)),
            (message(0x8185, [1, 0, 0, 0], QUESTION), Fault::Refused(5)),
            // Counts that no such message can have.
            (message(0x8180, [1, 65535, 65535, 65535], QUESTION), Fault::Malformed),
            (message(0x8180, [1, 3, 0, 0], QUESTION), Fault::Malformed),
            // Names that point at themselves, ahead, or never end.
            (looping(&[0xc0, own]), Fault::Malformed),
            (looping(&[1, b'a', 0xc0, own]), Fault::Malformed),
            (looping(&[0xc0, 0xff]), Fault::Malformed),
            (looping(&endless), Fault::Malformed),
        ] {
            assert_eq!(answer(&bytes, 0x1234, NAME), Err(expected), "{bytes:02x?}");
        }
        assert_eq!(answer(b"", 0, NAME), Err(Fault::Stray));
    }
}

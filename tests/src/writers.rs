//! Writers for rings of servers that all take writes: each changes entries of its own and some that are everybody's, and
//! remembers its answers, so that a test finds acknowledged changes that are lost and deleted entries that come back.

use std::collections::{BTreeMap, BTreeSet};

use larix_load::generate::Random;
use larix_proto::client::{self, ClientAttribute, ClientChange, Search};
use larix_proto::{FilterBuf, MessageId, ModifyOperation, Response, ResultCode, Scope};

use crate::client::Client;

pub const SUFFIX: &str = "dc=example,dc=com";
pub const ADMIN: &str = "cn=admin,dc=example,dc=com";
/// Requests of each writer in a round.
pub const REQUESTS: u64 = 60;
/// Entries that everybody changes.
const SHARED: u64 = 5;

/// The acknowledged state of an entry that only one writer changes.
#[derive(Clone, Debug, Default)]
struct Own {
    /// Values of `description` that it may have; the last acknowledged one, and those asked for since.
    descriptions: BTreeSet<String>,
    deletion_asked: bool,
    deleted: bool,
}

type Acknowledged = BTreeMap<String, Own>;
/// Lines of each entry, by DN.
pub type Content = BTreeMap<String, BTreeSet<String>>;

/// The writer to one server.
#[derive(Debug)]
pub struct Writer {
    number: usize,
    acknowledged: Acknowledged,
    /// Of entries added so far.
    added: u64,
}

/// Adds the suffix entry and what everybody changes.
///
/// # Panics
/// When that is refused.
pub fn fill(client: &mut Client) {
    let organization = [("objectClass", "organization"), ("objectClass", "dcObject"), ("o", "Example")];
    assert_eq!(add(client, SUFFIX, &organization), Some(ResultCode::SUCCESS));
    for number in 0..SHARED {
        let name = format!("shared{number}");
        let dn = format!("cn={name},{SUFFIX}");
        let person = [("objectClass", "person"), ("cn", name.as_str()), ("sn", "Shared")];
        assert_eq!(add(client, &dn, &person), Some(ResultCode::SUCCESS));
    }
}

/// All that a server has; nothing where no whole answer comes.
///
/// # Panics
/// It sends what is no answer.
pub fn content(client: &mut Client) -> Content {
    let mut request = Vec::new();
    let filter = FilterBuf::parse("(objectClass=*)").expect("a filter");
    let attributes = &["*", "entryUUID", "entryCSN", "creatorsName", "createTimestamp", "modifiersName"];
    let search = Search { attributes, ..Search::new(SUFFIX, Scope::Subtree, filter.as_filter()) };
    client::search(&mut request, MessageId(5), &search, &[]);
    let mut content = Content::new();
    let answers = client.exchange(&request);
    if code(&answers) != Some(ResultCode::SUCCESS) {
        return content;
    }
    for pdu in answers {
        let message = Response::decode_message(&pdu).expect("a response");
        let Response::Entry(entry) = message.response else { continue };
        let mut lines = BTreeSet::new();
        for attribute in entry.attributes {
            for value in attribute.values {
                lines.insert(format!("{}: {}", attribute.description, String::from_utf8_lossy(value)));
            }
        }
        content.insert(entry.dn.to_owned(), lines);
    }
    content
}

impl Writer {
    pub fn new(number: usize) -> Self {
        Self { number, acknowledged: Acknowledged::new(), added: 0 }
    }

    /// Adds, changes and deletes entries of its own, and changes those that everybody changes.
    ///
    /// # Panics
    /// When one of its own is refused.
    pub fn write(&mut self, client: &mut Client, round: u64, limit: u64, random: &mut Random) {
        for step in 0..limit {
            let text = format!("{}.{round}.{step}", self.number);
            let names: Vec<String> = self
                .acknowledged
                .iter()
                .filter(|(_, own)| !own.deletion_asked)
                .map(|(dn, _)| dn.clone())
                .collect();
            match random.below(10) {
                4..8 if !names.is_empty() => self.describe(client, random.pick::<String>(&names), &text),
                8 if !names.is_empty() => self.delete(client, random.pick::<String>(&names)),
                9 => {
                    let dn = format!("cn=shared{},{SUFFIX}", random.below(SHARED));
                    let attribute = *random.pick(&["description", "telephoneNumber"]);
                    let value = if attribute == "description" { text } else { format!("{step}") };
                    // Somebody else's change is as good.
                    let _ = replace(client, &dn, attribute, &value);
                }
                _ => {
                    self.added += 1;
                    let name = format!("own{}.{}", self.number, self.added);
                    let dn = format!("cn={name},{SUFFIX}");
                    let person = [("objectClass", "person"), ("cn", name.as_str()), ("sn", text.as_str())];
                    assert_eq!(add(client, &dn, &person), Some(ResultCode::SUCCESS), "{dn}");
                    self.acknowledged.insert(dn, Own::default());
                }
            }
        }
    }

    fn describe(&mut self, client: &mut Client, dn: &str, text: &str) {
        assert_eq!(replace(client, dn, "description", text), Some(ResultCode::SUCCESS), "{dn}");
        if let Some(own) = self.acknowledged.get_mut(dn) {
            own.descriptions = BTreeSet::from([text.to_owned()]);
        }
    }

    fn delete(&mut self, client: &mut Client, dn: &str) {
        let mut request = Vec::new();
        client::delete(&mut request, MessageId(4), dn, &[]);
        assert_eq!(code(&client.exchange(&request)), Some(ResultCode::SUCCESS), "{dn}");
        if let Some(own) = self.acknowledged.get_mut(dn) {
            (own.deletion_asked, own.deleted) = (true, true);
        }
    }

    /// The acknowledged state of an entry, if a writer has it for itself.
    pub fn acknowledged_state(&self, dn: &str) -> Option<String> {
        self.acknowledged.get(dn).map(|own| format!("{own:?}"))
    }

    /// Whether the content has all that was acknowledged, and nothing that was deleted.
    ///
    /// # Panics
    /// When it has not.
    pub fn check(&self, content: &Content, when: &str) {
        if let Some((_, fault)) = self.fault(content) {
            panic!("{when}: {fault}");
        }
    }

    /// The first entry that is not as it was acknowledged, and what is wrong with it.
    pub fn fault(&self, content: &Content) -> Option<(&str, String)> {
        self.acknowledged.iter().find_map(|(dn, own)| Some((dn.as_str(), own.fault(dn, content.get(dn))?)))
    }
}

impl Own {
    fn fault(&self, dn: &str, lines: Option<&BTreeSet<String>>) -> Option<String> {
        let Some(lines) = lines else {
            return (!self.deletion_asked).then(|| format!("{dn} is lost"));
        };
        if self.deleted {
            return Some(format!("{dn} is back"));
        }
        let description = lines.iter().find_map(|line| line.strip_prefix("description: "));
        let fits = description.map_or(self.descriptions.is_empty(), |text| self.descriptions.contains(text));
        (!fits).then(|| format!("{dn} has {description:?}, not {:?}", self.descriptions))
    }
}

fn add(client: &mut Client, dn: &str, values: &[(&str, &str)]) -> Option<ResultCode> {
    let mut attributes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    values.iter().for_each(|(name, value)| attributes.entry(name).or_default().push(value));
    let attributes: Vec<ClientAttribute<'_, &str>> = attributes
        .iter()
        .map(|(description, values)| ClientAttribute { description, values: values.as_slice() })
        .collect();
    let mut request = Vec::new();
    client::add(&mut request, MessageId(2), dn, &attributes, &[]);
    code(&client.exchange(&request))
}

fn replace(client: &mut Client, dn: &str, attribute: &str, value: &str) -> Option<ResultCode> {
    let change = ClientChange {
        operation: ModifyOperation::Replace,
        attribute: ClientAttribute { description: attribute, values: &[value] },
    };
    let mut request = Vec::new();
    client::modify(&mut request, MessageId(3), dn, &[change], &[]);
    code(&client.exchange(&request))
}

fn code(answers: &[Vec<u8>]) -> Option<ResultCode> {
    let message = Response::decode_message(answers.last()?).ok()?;
    Some(message.response.result()?.1.code)
}

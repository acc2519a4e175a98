//! A client that takes a scenario's requests and shows the answers as text.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::extended::{ExtendedValue, PasswordModify, VerifyCredentials};
use larix_proto::{
    Attributes, Authentication, ControlBuf, Controls, DerefAliases, FilterBuf, Frame, MessageId,
    ModifyOperation, Response, ResultView, Scope, client, frame, oid,
};

use crate::controls;
use crate::scenario::{Step, words};

/// Values of these differ from run to run.
const VARIABLE: [&str; 7] = [
    "entryuuid",
    "entrycsn",
    "createtimestamp",
    "modifytimestamp",
    "contextcsn",
    "configcontext",
    "monitorcontext",
];
/// Values of these depend on what was built in, and are compared by tests of their own.
const UNCOMPARED: [&str; 9] = [
    "attributetypes",
    "objectclasses",
    "ldapsyntaxes",
    "matchingrules",
    "matchingruleuse",
    "ditcontentrules",
    "supportedsaslmechanisms",
    "vendorname",
    "vendorversion",
];

/// How long an answer may take, also of a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    socket: TcpStream,
    address: SocketAddr,
    input: Vec<u8>,
    next_id: u32,
    /// The cookie of the last page.
    cookie: Vec<u8>,
}

/// Runs one request without controls, in the text of scenarios, and shows what came back.
pub fn run(client: &mut Client, request: &str) -> String {
    client.run(&Step { request: request.to_owned(), ..Step::default() })
}

/// An answer without the texts beside its result codes, in which two servers may differ.
pub fn codes_alone(answer: &str) -> String {
    let lines = answer.lines().map(|line| match line.strip_prefix("=> ") {
        Some(end) => format!("=> {}\n", end.split_whitespace().next().unwrap_or_default()),
        None => format!("{line}\n"),
    });
    lines.collect()
}

impl Client {
    /// Connects; panics when the server is not there.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    /// Connects, or says why the server is not there.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, address, input: Vec::new(), next_id: 1, cookie: Vec::new() })
    }

    /// Sends bytes that nothing answers.
    ///
    /// # Panics
    /// The server is gone.
    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap_or_else(|error| panic!("send to {}: {error}", self.address));
    }

    /// Sends `request` and collects the PDUs up to the one that ends it. A closed connection is shown as such.
    pub fn exchange(&mut self, request: &[u8]) -> Vec<Vec<u8>> {
        self.next_id += 1;
        let mut answers = Vec::new();
        if self.socket.write_all(request).is_err() {
            return answers;
        }
        loop {
            while let Ok(Frame::Complete { len }) = frame(&self.input, 64 << 20) {
                let pdu: Vec<u8> = self.input.drain(..len).collect();
                let done = Response::decode_message(&pdu)
                    .unwrap_or_else(|error| panic!("{}: cannot decode {pdu:02x?}: {error}", self.address))
                    .response
                    .result()
                    .is_some();
                answers.push(pdu);
                if done {
                    return answers;
                }
            }
            let mut chunk = [0; 65536];
            match self.socket.read(&mut chunk) {
                Ok(0) => return answers,
                // As behind a stop of the whole process.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // It is shown as a closed connection: which of both it was stands in the test's output.
                    eprintln!("{}: {error}", self.address);
                    return answers;
                }
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// The first value of an attribute of an entry, also of one that the server chose.
    pub fn value(&mut self, base: &str, attribute: &str) -> Option<String> {
        let mut out = Vec::new();
        search(&mut out, MessageId(self.next_id), base, "base", "(objectClass=*)", &[attribute], &[]);
        self.exchange(&out).iter().find_map(|pdu| match Response::decode_message(pdu).ok()?.response {
            Response::Entry(entry) => {
                let value = entry.attributes.iter().next()?.values.iter().next()?;
                Some(String::from_utf8_lossy(value).into_owned())
            }
            _ => None,
        })
    }

    /// Runs one step and shows what came back.
    pub fn run(&mut self, step: &Step) -> String {
        let mut lines = step.request.lines();
        let words = words(lines.next().unwrap_or(""));
        let split = words.iter().position(|word| word == "with").unwrap_or(words.len());
        let controls: Vec<ControlBuf> =
            words[split..].iter().skip(1).map(|word| controls::control(word, &self.cookie)).collect();
        let words: Vec<&str> = words[..split].iter().map(String::as_str).collect();
        let body: Vec<&str> = lines.map(str::trim_start).collect();
        let mut out = Vec::new();
        let id = MessageId(self.next_id);
        match words.as_slice() {
            ["reconnect"] => {}
            ["as-v2", dn, password] => {
                client::simple_bind(&mut out, id, dn, password.as_bytes(), &controls);
                ask_for_version_2(&mut out);
            }
            ["anonymous"] => client::simple_bind(&mut out, id, "", b"", &controls),
            ["as", dn, password] => client::simple_bind(&mut out, id, dn, password.as_bytes(), &controls),
            ["sasl", mechanism] => client::sasl_bind(&mut out, id, "", mechanism, None, &controls),
            ["whoami"] => client::extended(&mut out, id, oid::WHO_AM_I, None, &controls),
            ["extended", oid] => client::extended(&mut out, id, oid, None, &controls),
            ["extended", oid, hex] => client::extended(&mut out, id, oid, Some(&bytes(hex)), &controls),
            ["verify", dn, password] => {
                let value = verification(dn, password, &controls);
                client::extended(&mut out, id, oid::VERIFY_CREDENTIALS, Some(&value), &[]);
            }
            ["passwd", dn, rest @ ..] => {
                let value = password_modify(dn, rest);
                client::extended(&mut out, id, oid::PASSWORD_MODIFY, Some(&value), &controls);
            }
            ["delete", dn] => client::delete(&mut out, id, dn, &controls),
            ["compare", dn, rest @ ..] => {
                let assertion = rest.join(" ");
                let (attribute, value) = assertion.split_once(':').expect("attribute:value");
                client::compare(&mut out, id, dn, attribute, value.as_bytes(), &controls);
            }
            ["modrdn", dn, rdn, old, superior @ ..] => {
                client::modify_dn(
                    &mut out,
                    id,
                    dn,
                    rdn,
                    *old == "delete",
                    superior.first().copied(),
                    &controls,
                );
            }
            ["add", dn] => add(&mut out, id, dn, &body, &controls),
            ["modify", dn] => modify(&mut out, id, dn, &body, &controls),
            ["search", base, scope, filter, rest @ ..] => {
                search(&mut out, id, base, scope, filter, rest, &controls);
            }
            other => panic!("line {}: not a request: {other:?}", step.line),
        }
        if words == ["reconnect"] {
            *self = Self::connect(self.address);
            return "=> connected\n".to_owned();
        }
        let answers = self.exchange(&out);
        if let Some(Ok(last)) = answers.last().map(|pdu| Response::decode_message(pdu))
            && let Some(cookie) = controls::cookie(last.controls.iter())
        {
            self.cookie = cookie;
        }
        show(&answers, words.contains(&"inorder"), words.first() == Some(&"passwd"))
    }
}

/// Changes the version in a small bind request.
fn ask_for_version_2(request: &mut [u8]) {
    let operation = request.windows(5).position(|bytes| bytes[0] == 0x60 && bytes[2..] == [2, 1, 3]);
    request[operation.expect("a bind request") + 4] = 2;
}

/// The bytes of `30 03 02 01 05`.
fn bytes(hex: &str) -> Vec<u8> {
    hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits")).collect()
}

/// The value of a verify credentials request, with controls as those of a bind.
fn verification(name: &str, password: &str, controls: &[ControlBuf]) -> Vec<u8> {
    let mut encoded = Vec::new();
    controls.iter().for_each(|control| control.encode(&mut encoded));
    let controls = Controls::check(&encoded).expect("controls");
    let authentication = Authentication::Simple(password.as_bytes());
    let request = VerifyCredentials { cookie: None, name, authentication, controls };
    request.encode().unwrap_or_default()
}

/// `old=...` and `new=...`, both as wanted.
fn password_modify(dn: &str, words: &[&str]) -> Vec<u8> {
    let find = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)).map(str::as_bytes);
    let request = PasswordModify {
        user: (!dn.is_empty()).then_some(dn.as_bytes()),
        old: find("old="),
        new: find("new="),
    };
    request.encode().unwrap_or_default()
}

fn add(out: &mut Vec<u8>, id: MessageId, dn: &str, body: &[&str], controls: &[ControlBuf]) {
    let mut attributes: Vec<(&str, Vec<&[u8]>)> = Vec::new();
    for line in body {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).as_bytes();
        match attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => attributes.push((name, vec![value])),
        }
    }
    let list: Vec<ClientAttribute<'_, &[u8]>> =
        attributes.iter().map(|(description, values)| ClientAttribute { description, values }).collect();
    client::add(out, id, dn, &list, controls);
}

fn modify(out: &mut Vec<u8>, id: MessageId, dn: &str, body: &[&str], controls: &[ControlBuf]) {
    let changes: Vec<(ModifyOperation, &str, Vec<&[u8]>)> = body
        .iter()
        .map(|line| {
            let (operation, rest) = line.split_once(' ').expect("operation attribute: value");
            let operation = match operation {
                "add" => ModifyOperation::Add,
                "delete" => ModifyOperation::Delete,
                "replace" => ModifyOperation::Replace,
                "increment" => ModifyOperation::Increment,
                other => panic!("{other:?} is no modification"),
            };
            let (name, values) = match rest.split_once(':') {
                None => (rest, Vec::new()),
                Some((name, values)) => (name, values.trim_start().split(" | ").map(str::as_bytes).collect()),
            };
            (operation, name, values)
        })
        .collect();
    let list: Vec<ClientChange<'_, &[u8]>> = changes
        .iter()
        .map(|(operation, description, values)| ClientChange {
            operation: *operation,
            attribute: ClientAttribute { description, values },
        })
        .collect();
    client::modify(out, id, dn, &list, controls);
}

fn search(
    out: &mut Vec<u8>,
    id: MessageId,
    base: &str,
    scope: &str,
    filter: &str,
    rest: &[&str],
    controls: &[ControlBuf],
) {
    let filter = FilterBuf::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    let mut attributes = Vec::new();
    let (mut deref, mut size_limit, mut time_limit, mut types_only) = (DerefAliases::Never, 0, 0, false);
    for word in rest {
        match word.split_once('=') {
            Some(("deref", "never")) => deref = DerefAliases::Never,
            Some(("deref", "search")) => deref = DerefAliases::InSearching,
            Some(("deref", "finding")) => deref = DerefAliases::FindingBase,
            Some(("deref", "always")) => deref = DerefAliases::Always,
            Some(("time", number)) => time_limit = number.parse().expect("a time limit"),
            Some(("size", number)) => size_limit = number.parse().expect("a size limit"),
            _ if *word == "typesonly" => types_only = true,
            _ if matches!(*word, "inorder" | "later" | "eventually") => {}
            _ => attributes.push(*word),
        }
    }
    let scope = match scope {
        "base" => Scope::Base,
        "one" => Scope::OneLevel,
        "sub" => Scope::Subtree,
        "children" => Scope::Children,
        other => panic!("{other:?} is no scope"),
    };
    let request = client::Search {
        base,
        scope,
        deref,
        size_limit,
        time_limit,
        types_only,
        filter: filter.as_filter(),
        attributes: &attributes,
    };
    client::search(out, id, &request, controls);
}

/// The answers as text; entries in sorted order unless `in_order`, and values that the server chose (`secret`) hidden.
fn show(answers: &[Vec<u8>], in_order: bool, secret: bool) -> String {
    let mut entries = Vec::new();
    let mut references = Vec::new();
    let mut tail = String::new();
    for pdu in answers {
        let Ok(message) = Response::decode_message(pdu) else { continue };
        match message.response {
            Response::Entry(entry) => {
                let named = message.controls.iter().filter(|control| control.oid == oid::DEREF);
                let shown = show_entry(entry.dn, entry.attributes);
                entries.push(format!("-> {shown}{}", controls::show(named)));
            }
            Response::Reference(urls) => {
                let urls: Vec<&str> = urls.iter().collect();
                references.push(format!("~> {}\n", urls.join(" ")));
            }
            Response::Extended { result, value, .. } => {
                tail += &show_result(result);
                if let Some(value) = value {
                    let shown = if secret { "*".to_owned() } else { show_value(value) };
                    let _ = writeln!(tail, "   value: {shown}");
                }
            }
            other => {
                if let Some((_, result)) = other.result() {
                    tail += &show_result(result);
                    tail += &controls::show(message.controls.iter());
                }
            }
        }
    }
    if answers
        .last()
        .is_none_or(|pdu| Response::decode_message(pdu).map_or(true, |m| m.response.result().is_none()))
    {
        tail += "=> closed\n";
    }
    if !in_order {
        entries.sort();
    }
    references.sort();
    entries.concat() + &references.concat() + &tail
}

fn show_result(result: ResultView<'_>) -> String {
    let mut text = format!("=> {}", result.code.0);
    if !result.matched_dn.is_empty() {
        let _ = write!(text, " matched {:?}", result.matched_dn);
    }
    if !result.diagnostic.is_empty() {
        let _ = write!(text, " text {:?}", result.diagnostic);
    }
    for url in result.referrals.iter() {
        let _ = write!(text, " referral {url}");
    }
    text.push('\n');
    text
}

/// The DN and, below it, the attributes in sorted order.
pub(crate) fn show_entry(dn: &str, attributes: Attributes<'_>) -> String {
    let mut shown: Vec<String> = attributes
        .iter()
        .map(|attribute| {
            let name = attribute.description.to_ascii_lowercase();
            let mut text = String::new();
            if attribute.values.is_empty() {
                let _ = writeln!(text, "   {}:", attribute.description);
            } else if VARIABLE.contains(&name.as_str()) {
                let _ = writeln!(text, "   {}: *", attribute.description);
            } else if UNCOMPARED.contains(&name.as_str()) {
                let _ = writeln!(text, "   {}: ...", attribute.description);
            } else {
                for value in attribute.values.iter() {
                    let _ = writeln!(text, "   {}: {}", attribute.description, show_value(value));
                }
            }
            text
        })
        .collect();
    shown.sort_by_key(|text| text.to_ascii_lowercase());
    format!("{dn}\n{}", shown.concat())
}

fn show_value(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => value.iter().map(|byte| format!("\\{byte:02x}")).collect(),
    }
}

//! Requests and answers in the text of slapd-sock(5).

use std::io::{self, BufRead, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larix_engine::write::{AttributeValues, WriteOperation};
use larix_proto::ldif::{Body, LdifAttribute, Modification, Reader, Writer};
use larix_proto::{LdapResult, ResultCode, SearchRequest, SearchResultEntry};
use zeroize::Zeroizing;

use super::Extension;

/// Bytes of one entry, or of the result, in an answer.
pub(super) const BLOCK_BYTES_MAX: usize = 4 << 20;

/// Who asks, for what stands at the beginning of each request.
#[derive(Debug, Default)]
pub(super) struct RequestHeader<'a> {
    /// The number of the request on its connection; none of what is asked inside the server.
    pub(super) message: Option<u32>,
    pub(super) connection: Option<u64>,
    pub(super) bound: &'a str,
    pub(super) peer: &'a str,
    pub(super) strength: u32,
    pub(super) extensions: &'a [Extension],
    pub(super) suffixes: &'a [String],
}

/// A request, or an answer for the program, as it is written.
#[derive(Clone, Debug)]
pub(super) struct Text(Zeroizing<Vec<u8>>);

impl Text {
    pub(super) fn begin(command: &str, header: &RequestHeader<'_>) -> Self {
        let mut text = Self(Zeroizing::new(format!("{command}\n").into_bytes()));
        text.line("msgid", &header.message.unwrap_or(0).to_string());
        for extension in Extension::ALL.iter().filter(|known| header.extensions.contains(known)) {
            let value = match extension {
                Extension::BindDn => header.bound.to_owned(),
                Extension::Peer => header.peer.to_owned(),
                Extension::Strength => header.strength.to_string(),
                Extension::Connection => header.connection.unwrap_or(0).to_string(),
            };
            text.line(extension.name(), &value);
        }
        header.suffixes.iter().for_each(|suffix| text.line("suffix", suffix));
        text
    }

    /// A line. What would end it stands there as in a DN or a filter: a client cannot write lines of its own.
    pub(super) fn line(&mut self, name: &str, value: &str) {
        let out = &mut self.0;
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        for byte in value.bytes() {
            match byte {
                b'\n' => out.extend_from_slice(b"\\0A"),
                b'\r' => out.extend_from_slice(b"\\0D"),
                0 => out.extend_from_slice(b"\\00"),
                other => out.push(other),
            }
        }
        out.push(b'\n');
    }

    /// The same with bytes that have been found to be one line.
    pub(super) fn raw_line(&mut self, name: &str, value: &[u8]) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// Values as LDIF has them.
    pub(super) fn values(&mut self, description: &str, values: &[Vec<u8>]) {
        let writer = Writer::new(None);
        values.iter().for_each(|value| writer.value(&mut self.0, description, value));
    }

    /// Bytes in base64, always: a line that LDIF would not have.
    pub(super) fn base64_line(&mut self, name: &str, value: &[u8]) {
        let encoded = Zeroizing::new(STANDARD.encode(value));
        self.line(name, &encoded);
    }

    /// The lines of a result.
    pub(super) fn result(&mut self, result: &LdapResult) {
        self.line("code", &result.code.0.to_string());
        for (name, value) in [("matched", &result.matched_dn), ("info", &result.diagnostic)] {
            if !value.is_empty() {
                self.line(name, value);
            }
        }
    }

    /// The lines of an entry.
    pub(super) fn entry(&mut self, entry: &SearchResultEntry<'_>) {
        let writer = Writer::new(None);
        writer.value(&mut self.0, "dn", entry.dn.as_bytes());
        for attribute in entry.attributes.iter() {
            for value in attribute.values.iter() {
                writer.value(&mut self.0, attribute.description, value);
            }
        }
    }

    fn modification(&mut self, modification: &Modification) {
        Writer::new(None).modification(&mut self.0, modification);
    }

    /// The whole request.
    pub(super) fn end(mut self) -> Zeroizing<Vec<u8>> {
        self.0.push(b'\n');
        self.0
    }
}

pub(super) fn search(
    header: &RequestHeader<'_>,
    base: &str,
    request: &SearchRequest<'_>,
) -> Zeroizing<Vec<u8>> {
    let mut text = Text::begin("SEARCH", header);
    text.line("base", base);
    text.line("scope", &(request.scope as u8).to_string());
    text.line("deref", &(request.deref as u8).to_string());
    text.line("sizelimit", &limit(request.size_limit));
    text.line("timelimit", &limit(request.time_limit));
    text.line("filter", &request.filter.to_string());
    text.line("attrsonly", if request.types_only { "1" } else { "0" });
    // What is no name of an attribute can be asked for, and is nothing.
    let is_name = |name: &&str| {
        let of_it = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.;*+@".contains(&byte);
        !name.is_empty() && name.bytes().all(of_it)
    };
    let names: Vec<&str> = request.attributes.iter().filter(is_name).collect();
    let is_all = request.attributes.iter().next().is_none();
    text.line("attrs", if is_all { "all".to_owned() } else { names.join(" ") }.as_str());
    text.end()
}

/// As slapd writes it: -1 is no limit.
fn limit(limit: u32) -> String {
    match limit {
        0 => "-1".to_owned(),
        limit => limit.to_string(),
    }
}

pub(super) fn change(header: &RequestHeader<'_>, operation: &WriteOperation) -> Zeroizing<Vec<u8>> {
    match operation {
        WriteOperation::Add { entry, attributes } => {
            let mut text = Text::begin("ADD", header);
            text.values("dn", &[entry.as_bytes().to_vec()]);
            for AttributeValues { description, values } in attributes {
                text.values(description, values);
            }
            text.end()
        }
        WriteOperation::Delete { entry } => {
            let mut text = Text::begin("DELETE", header);
            text.line("dn", entry);
            text.end()
        }
        WriteOperation::Modify { object, changes } => {
            let mut text = Text::begin("MODIFY", header);
            text.line("dn", object);
            for change in changes {
                text.modification(&Modification {
                    operation: change.operation,
                    description: change.attribute.description.clone(),
                    values: change.attribute.values.clone(),
                });
            }
            text.end()
        }
        WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn, new_superior } => {
            let mut text = Text::begin("MODRDN", header);
            text.line("dn", entry);
            text.line("newrdn", new_rdn);
            text.line("deleteoldrdn", if *delete_old_rdn { "1" } else { "0" });
            if let Some(superior) = new_superior {
                text.line("newSuperior", superior);
            }
            text.end()
        }
    }
}

/// What an answer consists of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SocketResponse {
    /// A DN, and attributes by name.
    Entry(String, Vec<LdifAttribute>),
    Result(LdapResult),
    /// The operation is to go on behind the program.
    Continue,
}

/// What is wrong with an answer.
#[derive(Debug)]
pub(super) enum AnswerFault {
    /// It cannot be read on.
    Io(io::Error),
    /// It is not what slapd-sock(5) says.
    Text(String),
}

/// The parts of an answer as they come.
#[derive(Debug)]
pub(super) struct Answer<R> {
    input: R,
}

impl<R: BufRead> Answer<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input }
    }

    /// The next part. The result is the last one.
    ///
    /// # Errors
    /// An answer that ends before its result, or is none.
    pub(super) fn next(&mut self) -> Result<SocketResponse, AnswerFault> {
        let mut block = Vec::new();
        loop {
            let before = block.len();
            let room = (BLOCK_BYTES_MAX - before) as u64 + 1;
            self.input.by_ref().take(room).read_until(b'\n', &mut block).map_err(AnswerFault::Io)?;
            if block.len() > BLOCK_BYTES_MAX {
                let text = format!("it has an entry of more than {BLOCK_BYTES_MAX} bytes");
                return Err(AnswerFault::Text(text));
            }
            let line = block.get(before..).unwrap_or_default();
            let is_at_end = line.last() != Some(&b'\n');
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if text.starts_with(b"#") || begins(text, b"DEBUG:") {
                block.truncate(before);
            } else if before == 0 && begins(text, b"CONTINUE") {
                return Ok(SocketResponse::Continue);
            } else if text.is_empty() && !line.is_empty() {
                block.truncate(before);
                if !block.is_empty() {
                    return part(&block);
                }
            }
            if is_at_end {
                return match begins(&block, b"RESULT") {
                    true => part(&block),
                    false => Err(AnswerFault::Text("it ended before the result".to_owned())),
                };
            }
        }
    }
}

fn begins(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

fn part(block: &[u8]) -> Result<SocketResponse, AnswerFault> {
    let fault = |text: String| Err(AnswerFault::Text(text));
    if begins(block, b"RESULT") {
        return result(block).map(SocketResponse::Result).map_err(AnswerFault::Text);
    }
    match Reader::new(block).read_record() {
        Ok(Some(record)) => match record.body {
            Body::Content(attributes) => Ok(SocketResponse::Entry(record.dn, attributes)),
            Body::Change { .. } => fault(format!("\"{}\" is a change, and no entry", record.dn)),
        },
        Ok(None) => fault("it has an entry without lines".to_owned()),
        Err(error) => fault(format!("it has an entry that is no LDIF: {error}")),
    }
}

/// The lines of a result.
fn result(block: &[u8]) -> Result<LdapResult, String> {
    let text = std::str::from_utf8(block).map_err(|_| "its result is not UTF-8".to_owned())?;
    let mut result = LdapResult::success();
    for line in text.lines().skip(1) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name.trim().to_ascii_lowercase().as_str() {
            "code" => {
                let code = value.parse::<u32>().map_err(|_| format!("its code \"{value}\" is no number"))?;
                result.code = ResultCode(code);
            }
            "matched" => value.clone_into(&mut result.matched_dn),
            "info" => value.clone_into(&mut result.diagnostic),
            _ => {}
        }
    }
    match result.code {
        ResultCode::REFERRAL => Err("its result is a referral, and has no URL".to_owned()),
        ResultCode::SASL_BIND_IN_PROGRESS => Err("its result begins a SASL bind".to_owned()),
        _ => Ok(result),
    }
}

#[cfg(test)]
mod tests {
    use larix_proto::{DerefAliases, FilterBuf, Scope, Strings};

    use super::*;

    fn header<'a>(extensions: &'a [Extension], suffixes: &'a [String]) -> RequestHeader<'a> {
        let (bound, peer) = ("cn=ann,o=x", "IP=127.0.0.1:4");
        RequestHeader {
            message: Some(7),
            connection: Some(3),
            bound,
            peer,
            strength: 71,
            extensions,
            suffixes,
        }
    }

    fn text_of(text: Zeroizing<Vec<u8>>) -> String {
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[test]
    fn requests_are_written_as_slapd_writes_them() {
        let suffixes = ["o=x".to_owned()];
        let filter: FilterBuf = "(cn=a*)".parse().unwrap();
        let request = SearchRequest {
            base: "o=x",
            scope: Scope::Subtree,
            deref: DerefAliases::Never,
            size_limit: 0,
            time_limit: 5,
            types_only: false,
            filter: filter.as_filter(),
            attributes: Strings::default(),
        };
        assert_eq!(
            text_of(search(&header(&[], &suffixes), "o=x", &request)),
            "SEARCH\nmsgid: 7\nsuffix: o=x\nbase: o=x\nscope: 2\nderef: 0\nsizelimit: -1\ntimelimit: 5\nfilter: (cn=a*)\n\
             attrsonly: 0\nattrs: all\n\n"
        );
        // What a client sends cannot make lines of its own.
        let delete = WriteOperation::Delete { entry: "cn=a\nbinddn: cn=root,o=x\n\n,o=x".to_owned() };
        assert_eq!(
            text_of(change(&header(&Extension::ALL, &[]), &delete)),
            "DELETE\nmsgid: 7\nbinddn: cn=ann,o=x\npeername: IP=127.0.0.1:4\nssf: 71\nconnid: 3\n\
             dn: cn=a\\0Abinddn: cn=root,o=x\\0A\\0A,o=x\n\n"
        );
        let values = |description: &str, values: &[&str]| AttributeValues {
            description: description.to_owned(),
            values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
        };
        let add = WriteOperation::Add {
            entry: "cn=a,o=x".to_owned(),
            attributes: vec![values("cn", &["a", "b\nc"]), values("sn", &["x"])],
        };
        assert_eq!(
            text_of(change(&header(&[], &[]), &add)),
            "ADD\nmsgid: 7\ndn: cn=a,o=x\ncn: a\ncn:: Ygpj\nsn: x\n\n"
        );
        let rename = WriteOperation::ModifyDn {
            entry: "cn=a,o=x".to_owned(),
            new_rdn: "cn=b".to_owned(),
            delete_old_rdn: true,
            new_superior: Some("o=y".to_owned()),
        };
        assert_eq!(
            text_of(change(&header(&[], &[]), &rename)),
            "MODRDN\nmsgid: 7\ndn: cn=a,o=x\nnewrdn: cn=b\ndeleteoldrdn: 1\nnewSuperior: o=y\n\n"
        );
    }

    /// The parts of an answer in words, up to the result or a fault.
    fn read(text: &str) -> Vec<String> {
        let mut answer = Answer::new(text.as_bytes());
        let mut parts = Vec::new();
        loop {
            match answer.next() {
                Ok(SocketResponse::Entry(dn, attributes)) => {
                    let count: usize = attributes.iter().map(|attribute| attribute.values.len()).sum();
                    parts.push(format!("{dn} {count}"));
                }
                Ok(SocketResponse::Result(result)) => {
                    let LdapResult { code, matched_dn, diagnostic, .. } = result;
                    parts.push(format!("{} {matched_dn} {diagnostic}", code.0));
                    return parts;
                }
                Ok(SocketResponse::Continue) => {
                    parts.push("go on".to_owned());
                    return parts;
                }
                Err(AnswerFault::Text(fault)) => {
                    parts.push(fault);
                    return parts;
                }
                Err(AnswerFault::Io(error)) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn answers_and_what_is_none() {
        for (text, parts) in [
            ("RESULT\ncode: 0\n\n", &["0  "][..]),
            ("RESULT\n", &["0  "]),
            ("result\ncode: 32\nmatched: o=x\ninfo: no such: entry", &["32 o=x no such: entry"]),
            (
                "# who\nDEBUG: x\ndn: cn=a,o=x\ncn: a\n# between\nsn: b\n\n\nRESULT\r\n\r\n",
                &["cn=a,o=x 2", "0  "],
            ),
            ("dn: cn=a,o=x\ncn: a\n", &["it ended before the result"]),
            ("", &["it ended before the result"]),
            ("RESULT\ncode: many\n", &["its code \"many\" is no number"]),
            ("RESULT\ncode: -1\n", &["its code \"-1\" is no number"]),
            ("RESULT\ncode: 10\n", &["its result is a referral, and has no URL"]),
            ("RESULT\ncode: 14\n", &["its result begins a SASL bind"]),
        ] {
            assert_eq!(read(text), parts, "{text}");
        }
        assert_eq!(read("# on\nCONTINUE\nRESULT\n"), ["go on"]);
        assert_eq!(read("dn: cn=a,o=x\ncn: a\n\ncontinue"), ["cn=a,o=x 1", "go on"]);
        assert!(read("hello\n\nRESULT\n")[0].starts_with("it has an entry that is no LDIF"));
        assert!(read("dn: cn=a,o=x\njpegPhoto:< file:///etc/passwd\n\n")[0].contains("no LDIF"));
        assert!(read("dn: cn=a,o=x\nchangetype: delete\n\n")[0].contains("is a change"));
        let long = format!("dn: cn=a,o=x\ncn: {}\n\n", "a".repeat(BLOCK_BYTES_MAX));
        assert!(read(&long)[0].contains("an entry of more than"));
    }
}

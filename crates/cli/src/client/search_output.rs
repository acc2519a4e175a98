//! What a search found: as LDIF to the byte as ldapsearch writes it, as JSON, or readable on a terminal.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larix_proto::ldif::Writer;
use larix_proto::{Attributes, ControlBuf, Dn, LdapResult, MessageId, ResultCode, Scope, Strings};
use serde_json::json;

use super::json as objects;
use super::report::{self, ControlStyle};
use super::value_files::ValueFiles;
use larix_client::ClientError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `level` is how often `-L` was given.
    Ldif {
        level: u8,
    },
    Json,
    Terminal {
        colour: bool,
    },
}

/// What ldapsearch says before the first entry.
#[derive(Debug)]
pub(super) struct Heading<'a> {
    pub(super) base: &'a str,
    pub(super) base_is_default: bool,
    pub(super) scope: Scope,
    pub(super) filter: &'a str,
    pub(super) is_pattern: bool,
    pub(super) attributes: &'a [&'a str],
    pub(super) remarks: &'a [String],
}

pub(super) struct Output<'o> {
    out: &'o mut dyn Write,
    format: Format,
    writer: Writer,
    types_only: bool,
    user_friendly: bool,
    /// Where values go that do not stand in LDIF.
    files: Option<ValueFiles>,
    /// Of this request; an empty line parts two of them.
    responses_of_request: u64,
    counts: Counts,
    buffer: Vec<u8>,
}

/// Over all pages.
#[derive(Debug, Default)]
struct Counts {
    responses: u64,
    entries: u64,
    references: u64,
    partial: u64,
}

impl<'o> Output<'o> {
    pub(super) fn new(
        out: &'o mut dyn Write,
        format: Format,
        writer: Writer,
        types_only: bool,
        user_friendly: bool,
    ) -> Self {
        Self {
            out,
            format,
            writer,
            types_only,
            user_friendly,
            files: None,
            responses_of_request: 0,
            counts: Counts::default(),
            buffer: Vec::new(),
        }
    }

    /// Values go into files, as far as these take them, and LDIF has their URLs.
    pub(super) fn with_files(mut self, files: Option<ValueFiles>) -> Self {
        self.files = files;
        self
    }

    /// Whether the output carries ldapsearch's comments.
    const fn is_commented(&self) -> bool {
        matches!(self.format, Format::Ldif { level: 0 | 1 })
    }

    pub(super) fn heading(&mut self, heading: &Heading<'_>) -> Result<(), ClientError> {
        let mut text = String::new();
        match self.format {
            Format::Ldif { level: 0 } => text.push_str("# extended LDIF\n"),
            Format::Ldif { level: 1 | 2 } => text.push_str("version: 1\n\n"),
            _ => {}
        }
        if self.is_commented() {
            text.push_str("#\n# LDAPv3\n");
            let scope = match heading.scope {
                Scope::Base => "baseObject",
                Scope::OneLevel => "oneLevel",
                Scope::Subtree => "subtree",
                Scope::Children => "children",
            };
            let default = if heading.base_is_default { " (default)" } else { "" };
            text.push_str(&format!("# base <{}>{default} with scope {scope}\n", heading.base));
            let pattern = if heading.is_pattern { " pattern" } else { "" };
            text.push_str(&format!("# filter{pattern}: {}\n# requesting: ", heading.filter));
            if heading.attributes.is_empty() {
                text.push_str("ALL");
            }
            for attribute in heading.attributes {
                text.push_str(attribute);
                text.push(' ');
            }
            for remark in heading.remarks {
                text.push_str("\n# with ");
                text.push_str(remark);
            }
            text.push_str("\n#\n\n");
        }
        self.text(&text)
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), ClientError> {
        report::write(self.out, text.as_bytes())
    }

    /// Between two searches of a file.
    pub(super) fn gap(&mut self) -> Result<(), ClientError> {
        if matches!(self.format, Format::Json) { Ok(()) } else { self.text("\n") }
    }

    /// The filter made for a line of a file.
    pub(super) fn filter(&mut self, filter: &str) -> Result<(), ClientError> {
        if self.is_commented() { self.text(&format!("#\n# filter: {filter}\n#\n")) } else { Ok(()) }
    }

    fn next_response(&mut self) {
        self.buffer.clear();
        if self.responses_of_request > 0 && matches!(self.format, Format::Ldif { .. }) {
            self.buffer.push(b'\n');
        }
        self.responses_of_request += 1;
        self.counts.responses += 1;
    }

    fn flush_buffer(&mut self) -> Result<(), ClientError> {
        report::write(self.out, &self.buffer)
    }

    fn control_style(&self) -> ControlStyle {
        match self.format {
            Format::Ldif { level: 0 } => ControlStyle::Plain,
            Format::Ldif { level: 1 } => ControlStyle::Comments,
            Format::Ldif { .. } => ControlStyle::Contents,
            _ => ControlStyle::Words,
        }
    }

    pub(super) fn entry(
        &mut self,
        dn: &str,
        attributes: Attributes<'_>,
        controls: &[ControlBuf],
    ) -> Result<(), ClientError> {
        self.next_response();
        self.counts.entries += 1;
        match self.format {
            Format::Json => return objects::line(self.out, &objects::entry(dn, attributes)),
            Format::Terminal { colour } => self.entry_on_terminal(dn, attributes, colour),
            Format::Ldif { .. } => self.entry_as_ldif(dn, attributes, controls)?,
        }
        self.flush_buffer()
    }

    fn entry_as_ldif(
        &mut self,
        dn: &str,
        attributes: Attributes<'_>,
        controls: &[ControlBuf],
    ) -> Result<(), ClientError> {
        let style = self.control_style();
        if self.is_commented() {
            self.writer.comment(&mut self.buffer, &friendly(dn).unwrap_or_default());
        }
        self.writer.value(&mut self.buffer, "dn", dn.as_bytes());
        report::controls(&mut self.buffer, &self.writer, style, controls);
        if let Some(name) = friendly(dn).filter(|_| self.user_friendly) {
            self.writer.value(&mut self.buffer, "ufn", name.as_bytes());
        }
        for attribute in attributes.iter() {
            if self.types_only {
                self.writer.value(&mut self.buffer, attribute.description, b"");
                continue;
            }
            for value in attribute.values.iter() {
                match self.files.as_ref().filter(|files| files.takes(value)) {
                    Some(files) => {
                        let url = files.write(attribute.description, value)?;
                        self.writer.url(&mut self.buffer, attribute.description, &url);
                    }
                    None => self.writer.value(&mut self.buffer, attribute.description, value),
                }
            }
        }
        Ok(())
    }

    /// The DN, then each attribute's name once, its values in a column.
    fn entry_on_terminal(&mut self, dn: &str, attributes: Attributes<'_>, colour: bool) {
        let (bold, name_colour, reset) =
            if colour { ("\x1b[1m", "\x1b[36m", "\x1b[0m") } else { ("", "", "") };
        if self.counts.entries > 1 {
            self.buffer.push(b'\n');
        }
        let shown = if dn.is_empty() { "(root DSE)" } else { dn };
        let mut text = format!("{bold}{}{reset}\n", printable(shown));
        let width = attributes.iter().map(|attribute| attribute.description.len()).max().unwrap_or(0);
        for attribute in attributes.iter() {
            let mut name = attribute.description;
            if attribute.values.is_empty() {
                text.push_str(&format!("  {name_colour}{name}{reset}\n"));
            }
            for value in attribute.values.iter() {
                text.push_str(&format!("  {name_colour}{name:width$}{reset}  {}\n", readable(value)));
                name = "";
            }
        }
        self.buffer.extend_from_slice(text.as_bytes());
    }

    pub(super) fn reference(
        &mut self,
        urls: Strings<'_>,
        controls: &[ControlBuf],
    ) -> Result<(), ClientError> {
        self.next_response();
        self.counts.references += 1;
        match self.format {
            Format::Json => {
                let urls: Vec<&str> = urls.iter().collect();
                return objects::line(self.out, &json!({ "references": urls }));
            }
            Format::Terminal { .. } => {
                for url in urls.iter() {
                    self.buffer.extend_from_slice(format!("\n-> {}\n", printable(url)).as_bytes());
                }
            }
            Format::Ldif { level } => {
                if self.is_commented() {
                    self.buffer.extend_from_slice(b"# search reference\n");
                }
                for url in urls.iter() {
                    match level {
                        0 => self.writer.value(&mut self.buffer, "ref", url.as_bytes()),
                        _ => self.writer.comment(&mut self.buffer, &format!("ref{url}")),
                    }
                }
                let style = self.control_style();
                report::controls(&mut self.buffer, &self.writer, style, controls);
            }
        }
        self.flush_buffer()
    }

    pub(super) fn intermediate(&mut self) -> Result<(), ClientError> {
        self.next_response();
        self.counts.partial += 1;
        if self.is_commented() {
            self.buffer.extend_from_slice(b"# partial result response\n");
        }
        self.flush_buffer()
    }

    /// The result of one request.
    pub(super) fn result(
        &mut self,
        id: MessageId,
        result: &LdapResult,
        controls: &[ControlBuf],
    ) -> Result<(), ClientError> {
        self.next_response();
        let style = self.control_style();
        match self.format {
            Format::Json => {
                let line = json!({ "result": objects::result(result), "entries": self.counts.entries });
                return objects::line(self.out, &line);
            }
            Format::Terminal { .. } => {
                report::controls(&mut self.buffer, &self.writer, style, controls);
                self.flush_buffer()?;
                return self.complain("search", result);
            }
            Format::Ldif { level: 0 } => {
                self.buffer.extend_from_slice(b"# search result\n");
                let text = format!("search: {}\nresult: {} {}\n", id.0, result.code.0, result.code.text());
                self.buffer.extend_from_slice(text.as_bytes());
                if !result.matched_dn.is_empty() {
                    self.writer.value(&mut self.buffer, "matchedDN", result.matched_dn.as_bytes());
                }
                if !result.diagnostic.is_empty() {
                    self.writer.value(&mut self.buffer, "text", result.diagnostic.as_bytes());
                }
                for url in &result.referrals {
                    self.writer.value(&mut self.buffer, "ref", url.as_bytes());
                }
                report::controls(&mut self.buffer, &self.writer, style, controls);
            }
            Format::Ldif { .. } => {
                if self.is_commented() {
                    self.buffer.extend_from_slice(b"# search result\n");
                }
                self.flush_buffer()?;
                self.buffer.clear();
                self.complain("", result)?;
                report::controls(&mut self.buffer, &self.writer, style, controls);
            }
        }
        self.flush_buffer()
    }

    /// Tells a failure on standard error, where it cannot stand in the output.
    fn complain(&mut self, step: &'static str, result: &LdapResult) -> Result<(), ClientError> {
        if result.code == ResultCode::SUCCESS {
            return Ok(());
        }
        self.out.flush().map_err(ClientError::Output)?;
        if !step.is_empty() {
            eprintln!("{}", ClientError::Refused { step, result: result.clone() });
            return Ok(());
        }
        eprintln!("{} ({})", result.code.text(), result.code.0);
        if !result.matched_dn.is_empty() {
            eprintln!("Matched DN: {}", result.matched_dn);
        }
        if !result.diagnostic.is_empty() {
            eprintln!("Additional information: {}", result.diagnostic);
        }
        for url in &result.referrals {
            eprintln!("Referral: {url}");
        }
        Ok(())
    }

    /// After the result of a request; `more` pages may come.
    pub(super) fn finish(&mut self, more: bool) -> Result<(), ClientError> {
        self.responses_of_request = 0;
        if more {
            return Ok(());
        }
        let counts = std::mem::take(&mut self.counts);
        if let Format::Terminal { .. } = self.format {
            self.out.flush().map_err(ClientError::Output)?;
            let entries = if counts.entries == 1 { "entry" } else { "entries" };
            eprintln!("\n{} {entries}", counts.entries);
            return Ok(());
        }
        if !self.is_commented() {
            return Ok(());
        }
        let mut text = format!("\n# numResponses: {}\n", counts.responses);
        for (name, count) in
            [("Entries", counts.entries), ("Partial", counts.partial), ("References", counts.references)]
        {
            if count > 0 {
                text.push_str(&format!("# num{name}: {count}\n"));
            }
        }
        self.text(&text)
    }
}

/// The user friendly name of a DN: its values, a domain's with dots. `None` if it has none.
pub(super) fn friendly(dn: &str) -> Option<String> {
    let dn = Dn::parse(dn).ok()?;
    let is_domain = |rdn: &larix_proto::Rdn<'_>| matches!(rdn.avas(), [ava] if ava.attribute.eq_ignore_ascii_case("dc") || ava.attribute == "0.9.2342.19200300.100.1.25");
    let rdns = dn.rdns();
    let domain_from = rdns.iter().rposition(|rdn| !is_domain(rdn)).map_or(0, |last| last + 1);
    let text = |rdn: &larix_proto::Rdn<'_>| {
        let values: Vec<_> =
            rdn.avas().iter().map(|ava| String::from_utf8_lossy(&ava.value).into_owned()).collect();
        values.join(" + ")
    };
    let (names, domain) = rdns.split_at_checked(domain_from)?;
    let mut parts: Vec<String> = names.iter().map(text).collect();
    if !domain.is_empty() {
        parts.push(domain.iter().map(text).collect::<Vec<_>>().join("."));
    }
    Some(parts.join(", "))
}

/// Longest binary value shown on a terminal, in bytes.
const BINARY_SHOWN: usize = 48;

/// A value for the eye: text as it is, anything else as its length and the beginning in base64.
fn readable(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) => {
            printable(text)
        }
        _ => {
            let shown = value.get(..BINARY_SHOWN).unwrap_or(value);
            let dots = if shown.len() < value.len() { "..." } else { "" };
            format!("({} bytes) {}{dots}", value.len(), STANDARD.encode(shown))
        }
    }
}

/// Text that cannot steer the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

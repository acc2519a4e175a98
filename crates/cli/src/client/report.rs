//! How results and response controls are shown; what is the same for all clients.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larix_proto::control::{
    ControlValue, DerefResponse, PagedResults, PostReadResponse, PreReadResponse, SortResponse, VlvResponse,
};
use larix_proto::ldif::Writer;
use larix_proto::{Attributes, ControlBuf, LdapResult, ResultCode, oid};

use larix_client::ClientError;

use super::error;

/// Whether to use colour: on a terminal, unless NO_COLOR is set.
pub(super) fn use_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub(super) fn write(out: &mut dyn Write, bytes: &[u8]) -> Result<(), ClientError> {
    out.write_all(bytes).map_err(ClientError::Output)
}

/// The exit status for a result; one that is not success is printed to standard error first.
pub(super) fn conclude(step: &'static str, result: LdapResult) -> Result<ExitCode, ClientError> {
    if result.code == ResultCode::SUCCESS {
        return Ok(ExitCode::SUCCESS);
    }
    Err(ClientError::Refused { step, result })
}

/// The exit status of whichever code.
pub(super) fn status(code: ResultCode) -> ExitCode {
    error::exit_code(code)
}

/// How much of a response control is a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlStyle {
    /// `control: ...` lines.
    Plain,
    /// The same behind `#`, for strict LDIF.
    Comments,
    /// Behind `#`, and only what is in them, as far as that is known.
    Contents,
    /// Only those with something to say, in words.
    Words,
}

/// Appends response controls as OpenLDAP's tools show them.
pub(super) fn controls(out: &mut Vec<u8>, writer: &Writer, style: ControlStyle, controls: &[ControlBuf]) {
    for control in controls {
        match style {
            ControlStyle::Plain => writer.value(out, "control", text_of(control).as_bytes()),
            ControlStyle::Comments => writer.comment(out, &format!("control: {}", text_of(control))),
            ControlStyle::Contents | ControlStyle::Words => {}
        }
        known(out, writer, style, control);
    }
}

fn text_of(control: &ControlBuf) -> String {
    let value =
        control.value.as_ref().map(|value| format!(" {}", STANDARD.encode(value))).unwrap_or_default();
    format!("{} {}{value}", control.oid, control.critical)
}

fn known(out: &mut Vec<u8>, writer: &Writer, style: ControlStyle, control: &ControlBuf) {
    let value = control.value.as_deref();
    let line = |out: &mut Vec<u8>, name: &str, text: &str| match style {
        ControlStyle::Comments | ControlStyle::Contents => writer.comment(out, &format!("{name}: {text}")),
        _ => writer.value(out, name, text.as_bytes()),
    };
    match &*control.oid {
        oid::PAGED_RESULTS if style != ControlStyle::Words => {
            if let Ok(page) = PagedResults::decode(value) {
                let estimate = if page.size > 0 { format!("estimate={} ", page.size) } else { String::new() };
                line(out, "pagedresults", &format!("{estimate}cookie={}", STANDARD.encode(page.cookie)));
            }
        }
        oid::SORT_RESPONSE => {
            if let Ok(sort) = SortResponse::decode(value)
                && (style != ControlStyle::Words || sort.code != ResultCode::SUCCESS)
            {
                let attribute = sort.attribute.map(|name| format!(" {name}")).unwrap_or_default();
                line(out, "sortResult", &format!("({}) {}{attribute}", sort.code.0, sort.code.text()));
            }
        }
        oid::VLV_RESPONSE => {
            if let Ok(view) = VlvResponse::decode(value) {
                let text = view.code.text();
                let (at, of) = (view.target_position, view.content_count);
                line(out, "vlvResult", &format!("pos={at} count={of} context= ({}) {text}", view.code.0));
            }
        }
        oid::DEREF => {
            for named in DerefResponse::decode(value).map(|response| response.results).unwrap_or_default() {
                let mut text = String::new();
                for attribute in named.attributes.iter().flat_map(Attributes::iter) {
                    for value in attribute.values.iter() {
                        let value = String::from_utf8_lossy(value);
                        text.push_str(&format!("<{}={value}>;", attribute.description));
                    }
                }
                text.push_str(named.value);
                line(out, named.attribute, &text);
            }
        }
        oid::PRE_READ => {
            if let Ok(read) = PreReadResponse::decode(value) {
                read_entry(out, writer, style, "preread", read.dn, read.attributes);
            }
        }
        oid::POST_READ => {
            if let Ok(read) = PostReadResponse::decode(value) {
                read_entry(out, writer, style, "postread", read.dn, read.attributes);
            }
        }
        _ => {}
    }
}

fn read_entry(
    out: &mut Vec<u8>,
    writer: &Writer,
    style: ControlStyle,
    what: &str,
    dn: &str,
    attributes: Attributes<'_>,
) {
    writer.comment(out, &format!("==> {what}"));
    writer.value(out, "dn", dn.as_bytes());
    for attribute in attributes.iter() {
        for value in attribute.values.iter() {
            match style {
                ControlStyle::Comments | ControlStyle::Contents => {
                    writer.comment(
                        out,
                        &format!("{}: {}", attribute.description, String::from_utf8_lossy(value)),
                    );
                }
                _ => writer.value(out, attribute.description, value),
            }
        }
    }
    writer.comment(out, &format!("<== {what}"));
}

/// Puts the entries of pre- and post-read into a JSON object.
pub(super) fn add_read_entries(line: &mut serde_json::Value, controls: &[ControlBuf]) {
    for control in controls {
        let value = control.value.as_deref();
        match &*control.oid {
            oid::PRE_READ => {
                if let Ok(read) = PreReadResponse::decode(value) {
                    line["preRead"] = super::json::entry(read.dn, read.attributes);
                }
            }
            oid::POST_READ => {
                if let Ok(read) = PostReadResponse::decode(value) {
                    line["postRead"] = super::json::entry(read.dn, read.attributes);
                }
            }
            _ => {}
        }
    }
}

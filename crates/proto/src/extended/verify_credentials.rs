//! Verify credentials (OpenLDAP's contributed module vc): whether a bind would succeed, without binding.

use std::fmt;

use super::ExtendedValue;
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::control::{ControlBuf, Controls, write_value};
use crate::oid;
use crate::request::Authentication;
use crate::result::ResultCode;

/// The bind that would be made.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct VerifyCredentials<'a> {
    /// What an earlier answer of a SASL exchange gave.
    pub cookie: Option<&'a [u8]>,
    pub name: &'a str,
    pub authentication: Authentication<'a>,
    /// As they would go with the bind.
    pub controls: Controls<'a>,
}

/// How the bind would end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyCredentialsResponse {
    pub code: ResultCode,
    pub diagnostic: String,
    pub controls: Vec<ControlBuf>,
}

const COOKIE: Tag = Tag::context(0);
const SIMPLE: Tag = Tag::context(0);
const SASL: Tag = Tag::context_constructed(3);
const CONTROLS: Tag = Tag::context_constructed(2);

impl<'a> ExtendedValue<'a> for VerifyCredentials<'a> {
    const OID: &'static str = oid::VERIFY_CREDENTIALS;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let what = "VCRequestValue";
        let mut outer = Reader::new(value.unwrap_or_default());
        let mut value = outer.sequence(what)?;
        outer.finish(what)?;
        let cookie = value.optional(COOKIE, "cookie")?;
        let name = value.string("name")?;
        let (tag, contents) = value.element("authentication")?;
        let authentication = match tag {
            SIMPLE => Authentication::Simple(contents),
            SASL => {
                let mut sasl = Reader::new(contents);
                let mechanism = sasl.string("mechanism")?;
                let credentials = sasl.optional(Tag::OCTET_STRING, "credentials")?;
                sasl.finish("SaslCredentials")?;
                Authentication::Sasl { mechanism, credentials }
            }
            Tag(other) => Authentication::Other(other & 0x1f),
        };
        let controls = Controls::check(value.optional(CONTROLS, "controls")?.unwrap_or_default())?;
        value.finish(what)?;
        Ok(Self { cookie, name, authentication, controls })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::optional(out, COOKIE, self.cookie);
            write::string(out, self.name);
            match self.authentication {
                Authentication::Simple(password) => write::octets(out, SIMPLE, password),
                Authentication::Sasl { mechanism, credentials } => write::constructed(out, SASL, |out| {
                    write::string(out, mechanism);
                    write::optional(out, Tag::OCTET_STRING, credentials);
                }),
                Authentication::Other(number) => write::octets(out, Tag::context(number), &[]),
            }
            write_controls(out, self.controls.iter().map(|control| control.to_owned()));
        })
    }
}

impl VerifyCredentialsResponse {
    /// Reads the answer's value.
    ///
    /// # Errors
    /// Something else.
    pub fn decode(value: Option<&[u8]>) -> Result<Self, DecodeError> {
        let what = "VCResponseValue";
        let mut value = Reader::new(value.unwrap_or_default()).sequence(what)?;
        let code = ResultCode(value.unsigned("resultCode")?);
        let diagnostic = value.string("diagnosticMessage")?.to_owned();
        value.optional(COOKIE, "cookie")?;
        value.optional(Tag::context(1), "serverSaslCreds")?;
        let controls = Controls::check(value.optional(CONTROLS, "controls")?.unwrap_or_default())?;
        let controls = controls.iter().map(|control| control.to_owned()).collect();
        Ok(Self { code, diagnostic, controls })
    }

    /// The answer's value. The code is an INTEGER, as the module has it.
    pub fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, self.code.0.into());
            write::string(out, &self.diagnostic);
            write_controls(out, self.controls.iter().cloned());
        })
    }
}

fn write_controls(out: &mut Vec<u8>, controls: impl Iterator<Item = ControlBuf>) {
    let mut controls = controls.peekable();
    if controls.peek().is_some() {
        write::constructed(out, CONTROLS, |out| controls.for_each(|control| control.encode(out)));
    }
}

/// Passwords stay out of logs.
impl fmt::Debug for VerifyCredentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyCredentials").field("name", &self.name).finish_non_exhaustive()
    }
}

//! Requests (RFC 4511 sections 4.2 to 4.12), borrowed from the PDU.

use crate::ber::{self, DecodeError, Fault, Reader, Tag};
use crate::filter::Filter;
use crate::limits::DecodeLimits;
use crate::list::{Attributes, Changes, Strings};
use crate::message_id::MessageId;

/// The operation of a request (RFC 4511 section 4.2 on).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Bind(BindRequest<'a>),
    Unbind,
    Search(SearchRequest<'a>),
    Modify(ModifyRequest<'a>),
    Add(AddRequest<'a>),
    /// The DN to delete.
    Delete(&'a str),
    ModifyDn(ModifyDnRequest<'a>),
    Compare(CompareRequest<'a>),
    /// The message to abandon.
    Abandon(MessageId),
    Extended(ExtendedRequest<'a>),
}

/// RFC 4511 section 4.2.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BindRequest<'a> {
    /// 0 ..= 127; only 3 is LDAPv3.
    pub version: u8,
    pub name: &'a str,
    pub authentication: Authentication<'a>,
}

/// How a bind proves its identity (RFC 4511 section 4.2).
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// The password.
    Simple(&'a [u8]),
    Sasl {
        mechanism: &'a str,
        credentials: Option<&'a [u8]>,
    },
    /// A choice that RFC 4511 does not define, by its tag number: authMethodNotSupported.
    Other(u8),
}

/// RFC 4511 section 4.5.1.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SearchRequest<'a> {
    pub base: &'a str,
    pub scope: Scope,
    pub deref: DerefAliases,
    /// Entries; 0 is no limit.
    pub size_limit: u32,
    /// Seconds; 0 is no limit.
    pub time_limit: u32,
    pub types_only: bool,
    pub filter: Filter<'a>,
    pub attributes: Strings<'a>,
}

/// How far below its base a search goes (RFC 4511 section 4.5.1.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Base = 0,
    OneLevel = 1,
    Subtree = 2,
    /// The subtree without its base (draft-sermersheim-ldap-subordinate-scope).
    Children = 3,
}

/// Which aliases a search follows (RFC 4511 section 4.5.1.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum DerefAliases {
    Never = 0,
    InSearching = 1,
    FindingBase = 2,
    Always = 3,
}

/// RFC 4511 section 4.6.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ModifyRequest<'a> {
    pub object: &'a str,
    pub changes: Changes<'a>,
}

/// RFC 4511 section 4.7.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AddRequest<'a> {
    pub entry: &'a str,
    pub attributes: Attributes<'a>,
}

/// RFC 4511 section 4.9.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ModifyDnRequest<'a> {
    pub entry: &'a str,
    pub new_rdn: &'a str,
    pub delete_old_rdn: bool,
    pub new_superior: Option<&'a str>,
}

/// RFC 4511 section 4.10.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CompareRequest<'a> {
    pub entry: &'a str,
    pub attribute: &'a str,
    pub value: &'a [u8],
}

/// RFC 4511 section 4.12.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ExtendedRequest<'a> {
    /// The operation's OID.
    pub name: &'a str,
    pub value: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    pub(crate) fn decode(tag: Tag, contents: &'a [u8], limits: &DecodeLimits) -> Result<Self, DecodeError> {
        let reader = Reader::new(contents);
        match tag.0 {
            0x63 => whole(reader, |reader| search(reader, limits)).map(Self::Search),
            0x60 => whole(reader, bind).map(Self::Bind),
            0x42 => Ok(Self::Unbind),
            0x66 => whole(reader, modify).map(Self::Modify),
            0x68 => whole(reader, add).map(Self::Add),
            0x4a => ber::utf8(contents, "DelRequest").map(Self::Delete),
            0x6c => whole(reader, modify_dn).map(Self::ModifyDn),
            0x6e => whole(reader, compare).map(Self::Compare),
            0x50 => ber::unsigned(contents, "AbandonRequest").map(|id| Self::Abandon(MessageId(id))),
            0x77 => whole(reader, extended).map(Self::Extended),
            other => Err(DecodeError::new("protocolOp", Fault::UnknownChoice(i64::from(other)))),
        }
    }
}

/// Reads a request that is a sequence, and skips what follows its last known element.
#[inline]
fn whole<'a, T>(
    mut reader: Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let request = read(&mut reader)?;
    reader.ignore_rest("protocolOp")?;
    Ok(request)
}

fn search<'a>(reader: &mut Reader<'a>, limits: &DecodeLimits) -> Result<SearchRequest<'a>, DecodeError> {
    Ok(SearchRequest {
        base: reader.string("baseObject")?,
        scope: Scope::from_number(reader.enumerated("scope")?)?,
        deref: DerefAliases::from_number(reader.enumerated("derefAliases")?)?,
        size_limit: reader.unsigned("sizeLimit")?,
        time_limit: reader.unsigned("timeLimit")?,
        types_only: reader.boolean("typesOnly")?,
        filter: Filter::read(reader, limits.filter_depth)?,
        attributes: Strings::check(reader.expect(Tag::SEQUENCE, "attributes")?, "attributes")?,
    })
}

fn bind<'a>(reader: &mut Reader<'a>) -> Result<BindRequest<'a>, DecodeError> {
    let version = reader.integer("version")?;
    let version = u8::try_from(version)
        .ok()
        .filter(|&version| version < 128)
        .ok_or_else(|| DecodeError::new("version", Fault::OutOfRange { value: version, min: 1, max: 127 }))?;
    let name = reader.string("name")?;
    let (tag, contents) = reader.element("authentication")?;
    let authentication = match tag.0 {
        0x80 => Authentication::Simple(contents),
        0xa3 => {
            let mut sasl = Reader::new(contents);
            let mechanism = sasl.string("mechanism")?;
            let credentials = sasl.optional(Tag::OCTET_STRING, "credentials")?;
            sasl.ignore_rest("SaslCredentials")?;
            Authentication::Sasl { mechanism, credentials }
        }
        // Simple and SASL in the wrong form are no choices of their own.
        _ if tag.is_context() && !matches!(tag.number(), 0 | 3) => Authentication::Other(tag.number()),
        _ => {
            let expected = Tag::context(0);
            return Err(DecodeError::new("authentication", Fault::UnexpectedTag { expected, found: tag }));
        }
    };
    Ok(BindRequest { version, name, authentication })
}

fn modify<'a>(reader: &mut Reader<'a>) -> Result<ModifyRequest<'a>, DecodeError> {
    Ok(ModifyRequest {
        object: reader.string("object")?,
        changes: Changes::check(reader.expect(Tag::SEQUENCE, "changes")?)?,
    })
}

fn add<'a>(reader: &mut Reader<'a>) -> Result<AddRequest<'a>, DecodeError> {
    Ok(AddRequest {
        entry: reader.string("entry")?,
        attributes: Attributes::check(reader.expect(Tag::SEQUENCE, "attributes")?)?,
    })
}

fn modify_dn<'a>(reader: &mut Reader<'a>) -> Result<ModifyDnRequest<'a>, DecodeError> {
    Ok(ModifyDnRequest {
        entry: reader.string("entry")?,
        new_rdn: reader.string("newrdn")?,
        delete_old_rdn: reader.boolean("deleteoldrdn")?,
        new_superior: match reader.optional(Tag::context(0), "newSuperior")? {
            Some(contents) => Some(ber::utf8(contents, "newSuperior")?),
            None => None,
        },
    })
}

fn compare<'a>(reader: &mut Reader<'a>) -> Result<CompareRequest<'a>, DecodeError> {
    let whole = reader.remaining();
    let entry = reader.octets("entry")?;
    let begin = whole.len() - reader.remaining().len() - entry.len();
    let mut assertion = reader.sequence("ava")?;
    let attribute = assertion.octets("attributeDesc")?;
    let end = whole.len() - reader.remaining().len() - assertion.remaining().len();
    let value = assertion.octets("assertionValue")?;
    assertion.ignore_rest("ava")?;
    // Tags and short lengths are of ASCII: one look at both texts and what stands between them tells as much as one at each.
    let both = whole.get(begin..end).and_then(|both| std::str::from_utf8(both).ok());
    let texts = both.and_then(|both| {
        let second = both.len().checked_sub(attribute.len())?;
        Some((both.get(..entry.len())?, both.get(second..)?))
    });
    let (entry, attribute) = match texts {
        Some(texts) => texts,
        None => (ber::utf8(entry, "entry")?, ber::utf8(attribute, "attributeDesc")?),
    };
    Ok(CompareRequest { entry, attribute, value })
}

fn extended<'a>(reader: &mut Reader<'a>) -> Result<ExtendedRequest<'a>, DecodeError> {
    Ok(ExtendedRequest {
        name: ber::utf8(reader.expect(Tag::context(0), "requestName")?, "requestName")?,
        value: reader.optional(Tag::context(1), "requestValue")?,
    })
}

impl Scope {
    fn from_number(number: i64) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Base),
            1 => Ok(Self::OneLevel),
            2 => Ok(Self::Subtree),
            3 => Ok(Self::Children),
            other => Err(DecodeError::new("scope", Fault::UnknownChoice(other))),
        }
    }
}

impl DerefAliases {
    fn from_number(number: i64) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Never),
            1 => Ok(Self::InSearching),
            2 => Ok(Self::FindingBase),
            3 => Ok(Self::Always),
            other => Err(DecodeError::new("derefAliases", Fault::UnknownChoice(other))),
        }
    }
}

/// Credentials stay out of logs.
impl std::fmt::Debug for Authentication<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Simple(_) => f.write_str("Simple(..)"),
            Self::Sasl { mechanism, .. } => write!(f, "Sasl({mechanism:?}, ..)"),
            Self::Other(number) => write!(f, "Other({number})"),
        }
    }
}

//! The wire and the text forms of LDAP: BER, messages, controls, extended operations, filters, DNs, URLs and LDIF.
//!
//! Everything decoded borrows from the input: [`Message::decode`] walks a PDU once, checks every length, tag,
//! depth and string, and returns views that can be iterated without errors or allocation. Nothing here knows a
//! schema, opens a socket or reads a clock; [`ldif`] alone reads from a [`std::io::BufRead`], and
//! for tools from the files that LDIF names ([`ldif::LocalFiles`]).

pub mod ber;
pub mod brief;
pub mod calendar;
pub mod client;
pub mod control;
pub mod dn;
pub mod encode;
pub mod extended;
pub mod filter;
mod frame;
pub mod ldif;
pub mod limits;
mod list;
mod message;
mod message_id;
pub mod oid;
pub mod proxy_header;
mod request;
mod response;
mod result;
pub mod url;

pub use ber::DecodeError;
pub use control::{Control, ControlBuf, ControlValue, Controls};
pub use dn::{Dn, DnSyntaxError, Rdn, RdnAva};
pub use filter::{
    AttributeValueAssertion, Filter, FilterBuf, FilterNode, FilterSet, FilterSyntaxError,
    MatchingRuleAssertion, SubstringFilter,
};
pub use frame::{Frame, FrameError, frame, frames, part_last};
pub use limits::DecodeLimits;
pub use list::{Attribute, Attributes, Change, Changes, ModifyOperation, Strings, Values};
pub use message::{Message, MessageError};
pub use message_id::MessageId;
pub use request::{
    AddRequest, Authentication, BindRequest, CompareRequest, DerefAliases, ExtendedRequest, ModifyDnRequest,
    ModifyRequest, Request, Scope, SearchRequest,
};
pub use response::{Response, ResponseMessage, ResultView, SearchResultEntry};
pub use result::{LdapResult, ResponseOp, ResultCode};

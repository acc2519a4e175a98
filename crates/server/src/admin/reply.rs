//! The result of a page's function: HTML, a redirect, bytes, or an error.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use larix_proto::{LdapResult, ResultCode};
use maud::Markup;

/// An answer.
pub(super) enum Reply {
    /// A whole page.
    Page(StatusCode, Markup),
    /// After a change: the browser asks anew, and a reload repeats nothing.
    SeeOther(String),
    Json(StatusCode, serde_json::Value),
    Bytes {
        content_type: &'static str,
        file_name: Option<String>,
        bytes: Vec<u8>,
    },
}

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) enum Problem {
    /// The directory's answer to what was asked, and what that was.
    Refused { what: String, result: LdapResult },
    /// No such page.
    NotFound,
    /// No entry of this name that the user may see.
    NoEntry(String),
    /// The request makes no sense, and why.
    Bad(String),
    /// The LDAP connection has ended: to be logged in again.
    LoggedOut,
}

impl Problem {
    pub(super) fn no_entry(dn: &str) -> Self {
        Self::NoEntry(dn.to_owned())
    }
}

pub(super) type PageResult = Result<Reply, Problem>;

impl Reply {
    pub(super) fn page(markup: Markup) -> Self {
        Self::Page(StatusCode::OK, markup)
    }

    pub(super) fn json(value: serde_json::Value) -> Self {
        Self::Json(StatusCode::OK, value)
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::default());
        let mut set = |name, value: &str| {
            // What cannot stand in a header is left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                response.headers_mut().insert(name, value);
            }
        };
        match self {
            Self::Page(status, markup) => {
                set(header::CONTENT_TYPE, "text/html; charset=utf-8");
                *response.status_mut() = status;
                *response.body_mut() = Full::new(Bytes::from(markup.into_string()));
            }
            Self::Json(status, value) => {
                set(header::CONTENT_TYPE, "application/json");
                *response.status_mut() = status;
                *response.body_mut() = Full::new(Bytes::from(value.to_string()));
            }
            Self::SeeOther(address) => {
                set(header::LOCATION, &address);
                *response.status_mut() = StatusCode::SEE_OTHER;
            }
            Self::Bytes { content_type, file_name, bytes } => {
                set(header::CONTENT_TYPE, content_type);
                if let Some(name) = file_name {
                    set(header::CONTENT_DISPOSITION, &format!("attachment; filename=\"{name}\""));
                }
                *response.body_mut() = Full::new(Bytes::from(bytes));
            }
        }
        response
    }
}

/// Says what was attempted where the directory refuses.
pub(super) trait Attempt<T> {
    fn attempt(self, what: impl Into<String>) -> Result<T, Problem>;
}

impl<T> Attempt<T> for Result<T, LdapResult> {
    fn attempt(self, what: impl Into<String>) -> Result<T, Problem> {
        self.map_err(|result| Problem::Refused { what: what.into(), result })
    }
}

/// A result in words for users who do not know its number.
pub(super) fn explain(result: &LdapResult) -> &'static str {
    match result.code {
        ResultCode::INSUFFICIENT_ACCESS_RIGHTS => "You do not have the rights for this.",
        ResultCode::REFERRAL => "This server does not do this: another server does.",
        ResultCode::NO_SUCH_OBJECT => "There is no such entry, or you may not see it.",
        ResultCode::ENTRY_ALREADY_EXISTS => "There is an entry of this name already.",
        ResultCode::OBJECT_CLASS_VIOLATION => "This does not fit the entry's object classes.",
        ResultCode::INVALID_ATTRIBUTE_SYNTAX => "A value is not written as its attribute demands.",
        ResultCode::UNDEFINED_ATTRIBUTE_TYPE => "There is no attribute of this name in the schema.",
        ResultCode::ATTRIBUTE_OR_VALUE_EXISTS => "This value is there already.",
        ResultCode::NO_SUCH_ATTRIBUTE => "This value is not there any more.",
        ResultCode::CONSTRAINT_VIOLATION => "A rule of this directory forbids this value.",
        ResultCode::NAMING_VIOLATION => "An entry of this kind cannot have this name.",
        ResultCode::NOT_ALLOWED_ON_RDN => "The value is part of the entry's name: rename the entry instead.",
        ResultCode::NOT_ALLOWED_ON_NON_LEAF => "There are entries below this one.",
        ResultCode::ASSERTION_FAILED => "Somebody has changed this entry meanwhile: look at it again.",
        ResultCode::UNWILLING_TO_PERFORM => "The server does not do this.",
        ResultCode::INVALID_DN_SYNTAX => "This is not a distinguished name.",
        ResultCode::BUSY | ResultCode::UNAVAILABLE => "The server cannot do this now: try again later.",
        ResultCode::SIZE_LIMIT_EXCEEDED
        | ResultCode::ADMIN_LIMIT_EXCEEDED
        | ResultCode::TIME_LIMIT_EXCEEDED => "A limit was reached: narrow the question.",
        ResultCode::CONFIDENTIALITY_REQUIRED | ResultCode::STRONGER_AUTH_REQUIRED => {
            "This needs a connection that is encrypted: use https://."
        }
        _ => "The directory refused this.",
    }
}

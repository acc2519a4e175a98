//! Why a change failed.

use std::fmt;

use larix_proto::{LdapResult, ResultCode};
use larix_store::{CommitError, ReadError};

use crate::fault::Fault;

/// A change that did not happen.
#[derive(Debug)]
pub enum Failure {
    /// The request was refused; others in its group are not concerned.
    Refused(LdapResult),
    /// The store could not be read: the whole group fails.
    Storage(Fault),
}

impl From<LdapResult> for Failure {
    fn from(result: LdapResult) -> Self {
        Self::Refused(result)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Storage(fault)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Storage(error.into())
    }
}

impl From<crate::entry::RecordError> for Failure {
    fn from(error: crate::entry::RecordError) -> Self {
        Self::Storage(error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(result) => result.fmt(f),
            Self::Storage(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The result that is sent to the client.
    pub fn into_result(self) -> LdapResult {
        match self {
            Self::Refused(result) => result,
            Self::Storage(fault) => match fault.code() {
                ResultCode::OTHER => LdapResult::with(ResultCode::OTHER, format!("internal error: {fault}")),
                code => LdapResult::with(code, fault.to_string()),
            },
        }
    }
}

/// The result that the clients of a group get when its commit failed. Nothing was changed, but for one kind of error; where that is
/// unknown, the answer says so.
pub(crate) fn commit_failed(error: &CommitError) -> LdapResult {
    let text = error.to_string();
    match error {
        CommitError::Conflict | CommitError::Read(ReadError::Stale) => {
            let text = "other servers' changes were always first: nothing was changed, try again";
            LdapResult::with(ResultCode::BUSY, text)
        }
        CommitError::Fenced => {
            let text = format!("{text}: nothing was changed, send the change there");
            LdapResult::with(ResultCode::UNAVAILABLE, text)
        }
        CommitError::OutcomeUnknown(_) => {
            LdapResult::with(ResultCode::OTHER, format!("{text}; read the entry before you try again"))
        }
        CommitError::Unavailable(_) | CommitError::Read(ReadError::Unavailable(_)) => {
            LdapResult::with(ResultCode::UNAVAILABLE, format!("{text}; nothing was changed"))
        }
        CommitError::Read(ReadError::Unusable { .. }) => LdapResult::with(ResultCode::UNAVAILABLE, text),
        CommitError::Displaced | CommitError::Sync(_) | CommitError::ReadOnly { .. } => {
            LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
        }
        CommitError::Full => {
            LdapResult::with(ResultCode::OTHER, "no space left for the database: nothing was changed")
        }
        _ => LdapResult::with(ResultCode::OTHER, format!("commit failed: {text}")),
    }
}

//! Faults as the tools show them, and the exit status that they mean.

use std::process::ExitCode;

use larix_client::ClientError;
use larix_proto::ResultCode;

/// A result as OpenLDAP's tools show it; anything else behind the program's name.
pub(super) fn error_text(error: &ClientError) -> String {
    match error {
        ClientError::Refused { .. } => error.to_string(),
        _ => format!("larix: {error}"),
    }
}

pub(super) fn status_of(error: &ClientError) -> ExitCode {
    match error {
        ClientError::Usage(_) | ClientError::Input { .. } => ExitCode::FAILURE,
        ClientError::Refused { result, .. } | ClientError::Disconnected(result) => exit_code(result.code),
        ClientError::At { error, .. } | ClientError::Advised { error, .. } => status_of(error),
        _ => ExitCode::from(255),
    }
}

/// The result code, as far as an exit status can hold it; what does not fit is 255.
pub(super) fn exit_code(code: ResultCode) -> ExitCode {
    ExitCode::from(u8::try_from(code.0).unwrap_or(u8::MAX))
}

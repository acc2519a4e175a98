//! What a shadow hands on to its provider.

use larix_proto::FilterBuf;

use super::WriteOperation;

/// Modify requests for the provider of a shadow. They name operational attributes: they go with the relax rules control.
#[derive(Clone, Debug, Default)]
pub struct Forward {
    /// Where the provider is (`updateref`).
    pub referrals: Vec<String>,
    /// They say that a code is used up. The bind fails unless all of them succeed; each fails if the account is no longer as it was
    /// seen here.
    pub needed: Vec<WriteOperation>,
    /// The account's state. The bind ends as it does, whatever becomes of them.
    pub state: Vec<WriteOperation>,
    /// More of it, each under the condition that the filter matches the account there. A provider that knows no conditions makes
    /// them all the same.
    pub conditional: Vec<(WriteOperation, FilterBuf)>,
    /// The password of an account that has none, under the condition that it still has none. The bind ends as it does.
    pub password: Option<WriteOperation>,
}

impl Forward {
    pub(crate) fn is_empty(&self) -> bool {
        self.needed.is_empty()
            && self.state.is_empty()
            && self.conditional.is_empty()
            && self.password.is_none()
    }
}

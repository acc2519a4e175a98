//! What comes in and what goes out of the write path: owned, so that it can wait in a queue.

use std::ops::Range;
use std::sync::Arc;

use larix_proto::{ControlBuf, LdapResult};

use crate::access::Subject;
use crate::change::{Forward, WriteOperation};
use crate::controls::RequestControls;
use crate::overlay::PasswordWork;
use crate::password::Scheme;

/// Who asks for a change.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A client: every rule applies.
    #[default]
    Client,
    /// The server itself, on behalf of `subject`: operational attributes may be set, access rules still apply.
    Internal,
}

/// A change with its envelope.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    pub operation: WriteOperation,
    pub subject: Arc<Subject>,
    pub controls: RequestControls,
    pub origin: Origin,
    /// Passwords that come with it, and what was computed about them beforehand.
    pub passwords: Option<Arc<PasswordWork>>,
}

/// How a change ended. Success means durable.
#[derive(Clone, Debug)]
pub struct WriteOutcome {
    pub result: LdapResult,
    pub controls: Vec<ControlBuf>,
    /// Which of several changes was refused, counted from 0.
    pub refused: Option<usize>,
    /// Of a bind: until the password is changed the session may do nothing else.
    pub must_change_password: bool,
    /// Of a bind: the password is to be stored anew by this scheme.
    pub rehash: Option<Scheme>,
    /// Sequences of the change log that tell of it: nothing but its own records.
    pub logged: Range<u64>,
    /// Of a bind: the result was judged, and stands only once the account's state is committed.
    pub judged: bool,
    /// Of a bind to an account of a shadow: what its provider is to hear.
    pub forward: Option<Box<Forward>>,
    /// Of a change that was refused: it has a password as proof that is wrong, or that a password policy does not look at.
    pub wrong_password: bool,
}

/// Called once when a change has ended, on the writer's thread or, for what is refused at once, on the caller's. It
/// must not block.
pub type Completion = Box<dyn FnOnce(WriteOutcome) + Send>;

impl From<LdapResult> for WriteOutcome {
    fn from(result: LdapResult) -> Self {
        Self {
            result,
            controls: Vec::new(),
            refused: None,
            must_change_password: false,
            rehash: None,
            logged: 0..0,
            judged: false,
            forward: None,
            wrong_password: false,
        }
    }
}

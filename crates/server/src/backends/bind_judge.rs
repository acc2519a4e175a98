//! Who judges how a bind ends after the password was compared, and the compares that are judged as binds are.

use std::sync::Arc;

use larix_engine::controls::RequestControls;
use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion};
use larix_engine::{ChosenDatabase, Directory, ServedDatabase};
use larix_proto::{CompareRequest, LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;
use zeroize::Zeroizing;

use super::Common;
use crate::secrets::is_password_name;
use larix_backend::End;

/// Judges how a bind ends, after the password was compared.
#[derive(Clone)]
pub(super) enum Judge {
    Stored {
        directory: Arc<Directory<LmdbStore>>,
        /// The database of the name, or one that counts wrong passwords.
        served: Option<Arc<ServedDatabase<LmdbStore>>>,
        is_own: bool,
    },
    /// A database in a shared engine.
    #[cfg(feature = "kv")]
    Shared(Arc<dyn SharedJudge>),
}

/// A database in a shared engine judges binds. None of it waits on the calling thread.
#[cfg(feature = "kv")]
pub(super) trait SharedJudge: Send + Sync {
    fn judges(&self, dn: &NormalDn) -> bool;

    fn conclude(self: Arc<Self>, attempt: BindAttempt, done: Box<dyn FnOnce(BindConclusion) + Send>);

    /// Stores a password anew where this node may; `then` is dropped at the end of it.
    fn rehash(&self, dn: &NormalDn, old: &[u8], new: &[u8], then: Box<dyn Send>);
}

impl Judge {
    /// The database itself.
    pub(super) fn of(common: &Common, served: &Arc<ServedDatabase<LmdbStore>>) -> Self {
        let directory = Arc::clone(&common.directory);
        Self::Stored { directory, served: Some(Arc::clone(served)), is_own: true }
    }

    /// Of a name that no database stores.
    pub(super) fn without_database(common: &Arc<Common>) -> Self {
        let served = common.directory.counting().map(|counting| Arc::clone(counting.served()));
        #[cfg(feature = "kv")]
        if served.is_none()
            && let Some(judge) = super::clustered::counting(common)
        {
            return judge;
        }
        Self::Stored { directory: Arc::clone(&common.directory), served, is_own: false }
    }

    pub(super) fn judges(&self, dn: &NormalDn) -> bool {
        match self {
            Self::Stored { directory, served, .. } => {
                served.as_ref().is_some_and(|served| directory.at(served).judges_binds(dn))
            }
            #[cfg(feature = "kv")]
            Self::Shared(judge) => judge.judges(dn),
        }
    }

    pub(super) fn conclude(&self, attempt: BindAttempt, done: Box<dyn FnOnce(BindConclusion) + Send>) {
        match self {
            Self::Stored { directory, served: Some(served), .. } => {
                directory.at(served).conclude_bind(attempt, done);
            }
            Self::Stored { served: None, .. } => done(BindConclusion::outright(attempt.matched)),
            #[cfg(feature = "kv")]
            Self::Shared(judge) => Arc::clone(judge).conclude(attempt, done),
        }
    }

    /// `then` is dropped once what became of it is known.
    pub(super) fn rehash(&self, dn: &NormalDn, old: &[u8], new: &[u8], then: impl Send + 'static) {
        match self {
            Self::Stored { directory, served: Some(served), is_own: true } => {
                directory.at(served).rehash(dn, old, new, Box::new(|_| drop(then)));
            }
            Self::Stored { .. } => {}
            #[cfg(feature = "kv")]
            Self::Shared(judge) => judge.rehash(dn, old, new, Box::new(then)),
        }
    }
}

/// What a compare has overlays judge, whose outcome is so far `result`; `None`: nothing.
pub(super) fn compared_attempt<S: Store>(
    chosen: ChosenDatabase<'_, S>,
    result: &LdapResult,
    (dn, request): (&NormalDn, &CompareRequest<'_>),
    controls: &RequestControls,
) -> Option<BindAttempt> {
    let matched = match result.code {
        ResultCode::COMPARE_TRUE => true,
        ResultCode::COMPARE_FALSE => false,
        _ => return None,
    };
    if chosen.compares_code(dn, request.attribute) {
        // Whatever it has to do with the secret: it is the code that is asked about.
        let code = GivenCode::Compared(Zeroizing::new(request.value.to_vec()));
        Some(BindAttempt { dn: dn.clone(), matched: true, policy_control: false, code })
    } else if controls.password_policy && is_password_name(request.attribute) && chosen.judges_binds(dn) {
        Some(BindAttempt { dn: dn.clone(), matched, policy_control: true, code: GivenCode::NotAsked })
    } else {
        None
    }
}

/// What the judgement of a compare means for its answer.
pub(super) fn compared(verdict: BindConclusion) -> End {
    let BindConclusion { result, controls, .. } = verdict;
    let result = match result.code {
        ResultCode::SUCCESS => LdapResult::new(ResultCode::COMPARE_TRUE),
        ResultCode::INVALID_CREDENTIALS => LdapResult::new(ResultCode::COMPARE_FALSE),
        _ => result,
    };
    (result, controls)
}

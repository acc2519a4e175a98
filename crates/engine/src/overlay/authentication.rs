//! The hook around binds, and how what several overlays say to one is joined.

use std::fmt::Debug;

use larix_proto::{ControlBuf, FilterBuf, LdapResult, ResultCode};
use larix_schema::Schema;

use super::second_factor::{FactorJudgement, GivenCode};
use super::{BindAttempt, Change, Entries, Failure, Interests, Overlays};
use crate::change::Forward;
use crate::entry::Entry;
use crate::password::Scheme;
use crate::time::Timestamp;

/// The hook around binds.
pub trait Authentication: Debug + Send + Sync {
    /// Judges a bind whose password was compared. Called in the order of the configuration; `matched` tells what the
    /// overlays before made of it. Called once more, and the first judgement is dropped, where an overlay behind refuses the login.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn judge(&self, bind: &PendingBind<'_>) -> Result<Judgement, Failure>;

    /// Judges a bind to a name that has no account as [`Self::judge`] would a wrong password: neither the answer nor the
    /// time until it comes is to tell which names there are.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn judge_nobody(&self, _bind: &NobodysBind<'_>) -> Result<Judgement, Failure> {
        Ok(Judgement::default())
    }

    /// Whether wrong passwords are counted, as far as is known from the accounts that were judged.
    fn counts_failures(&self) -> bool {
        false
    }
}

/// A bind that is about to be answered.
#[derive(Debug)]
pub struct PendingBind<'a> {
    pub attempt: &'a BindAttempt,
    /// What the comparison and the overlays before say.
    pub matched: bool,
    /// The account; its state as everything before leaves it.
    pub entry: &'a Entry,
    pub schema: &'a Schema,
    pub entries: &'a dyn Entries,
    pub now: Timestamp,
}

/// A bind to a name that has no account.
#[derive(Debug)]
pub struct NobodysBind<'a> {
    pub attempt: &'a BindAttempt,
    pub schema: &'a Schema,
    pub entries: &'a dyn Entries,
}

/// What overlays say to a bind.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// The bind fails though the password was right.
    pub refused: bool,
    pub controls: Vec<ControlBuf>,
    /// Changes of the account, made before the answer.
    pub changes: Vec<Change>,
    /// Those of [`Self::changes`] that a shadow hands on to its provider as well.
    pub forwarded: Vec<Change>,
    /// Others of them that it hands on each by itself, under the condition that the filter matches the entry there.
    pub forwarded_if: Vec<(Change, FilterBuf)>,
    /// Until the password is changed the session may do nothing else.
    pub must_change_password: bool,
    /// Store the password anew with this scheme (pwdRehashOnBind).
    pub rehash: Option<Scheme>,
    /// Whether other attempts at the same time may change the judgement: then it stands only on the writer's thread.
    pub ordered: bool,
}

impl Judgement {
    /// Joins what the next overlay says.
    pub fn join(&mut self, next: Self) {
        self.refused |= next.refused;
        self.controls.extend(next.controls);
        self.changes.extend(next.changes);
        self.forwarded.extend(next.forwarded);
        self.forwarded_if.extend(next.forwarded_if);
        self.must_change_password |= next.must_change_password;
        self.rehash = self.rehash.or(next.rehash);
        self.ordered |= next.ordered;
    }
}

/// How a bind ended.
#[derive(Clone, Debug)]
pub struct BindConclusion {
    pub result: LdapResult,
    pub controls: Vec<ControlBuf>,
    /// Until the password is changed the session may do nothing else.
    pub must_change_password: bool,
    /// Store the password anew with this scheme.
    pub rehash: Option<Scheme>,
    /// What the provider of a shadow has to receive. A bind that needs it fails if nothing passes it on.
    pub forward: Option<Box<Forward>>,
}

impl BindConclusion {
    /// No overlay judges the bind: the password alone decides.
    pub fn outright(matched: bool) -> Self {
        let code = if matched { ResultCode::SUCCESS } else { ResultCode::INVALID_CREDENTIALS };
        Self {
            result: LdapResult::new(code),
            controls: Vec::new(),
            must_change_password: false,
            rehash: None,
            forward: None,
        }
    }
}

/// What second factors say to a bind. Without `writable` a code cannot be used up, and is refused.
///
/// # Errors
/// A store that cannot be read.
pub(crate) fn judge_code(
    overlays: &Overlays,
    attempt: &BindAttempt,
    entries: &dyn Entries,
    schema: &Schema,
    (now, writable): (Timestamp, bool),
) -> Result<FactorJudgement, Failure> {
    let mut judgement = FactorJudgement::default();
    if attempt.code != GivenCode::NotAsked
        && overlays.want(Interests::SECOND_FACTOR)
        && let Some(entry) = entries.entry(&attempt.dn)?
    {
        for overlay in overlays.at(Interests::SECOND_FACTOR) {
            let Some(factor) = overlay.second_factor() else { continue };
            let bind = PendingBind { attempt, matched: attempt.matched, entry: &entry, schema, entries, now };
            judgement.join(factor.judge(&bind)?);
        }
    }
    // A stored password that takes codes is no password if nothing verifies codes.
    judgement.refused |= matches!(attempt.code, GivenCode::OfPasswords { .. }) && !judgement.redeemed;
    if !writable && !judgement.changes.is_empty() {
        judgement.refused = true;
        judgement.changes.clear();
    }
    Ok(judgement)
}

/// What the overlays say to a bind, in their order, given what became of its code. A login that one of them refuses is one for none of
/// them, wherever they stand.
///
/// # Errors
/// A store that cannot be read.
pub(crate) fn judge(
    overlays: &Overlays,
    attempt: &BindAttempt,
    code: &FactorJudgement,
    entries: &dyn Entries,
    (schema, now): (&Schema, Timestamp),
) -> Result<Judgement, Failure> {
    let mut judgement = Judgement { refused: code.refused, ordered: code.ordered, ..Judgement::default() };
    if matches!(attempt.code, GivenCode::Compared(_)) {
        // No client logs in.
        return Ok(judgement);
    }
    let authentications = overlays.at(Interests::BIND).filter_map(|overlay| overlay.authentication());
    let Some(entry) = entries.entry(&attempt.dn)? else {
        for overlay in authentications {
            judgement.join(overlay.judge_nobody(&NobodysBind { attempt, schema, entries })?);
        }
        return Ok(judgement);
    };
    let authentications: Vec<&dyn Authentication> = authentications.collect();
    let mut matched = attempt.matched && !judgement.refused;
    let ask = |overlay: &dyn Authentication, matched: bool| {
        overlay.judge(&PendingBind { attempt, matched, entry: &entry, schema, entries, now })
    };
    let mut judged: Vec<Judgement> = Vec::with_capacity(authentications.len());
    for overlay in &authentications {
        let own = ask(*overlay, matched)?;
        if matched && own.refused {
            matched = false;
            // What the overlays before took for a login is none.
            for (before, overlay) in judged.iter_mut().zip(&authentications) {
                *before = ask(*overlay, false)?;
            }
        }
        judged.push(own);
    }
    judged.into_iter().for_each(|own| judgement.join(own));
    Ok(judgement)
}

//! `overlay otp`: one-time passwords as a second factor (slapo-otp): HOTP (RFC 4226) and TOTP (RFC 6238).
//!
//! An account of a class below oathUser names a token, an entry with the secret and the last code that was used, and the token an entry
//! with its parameters. Who logs in sends the password and the code behind it. The writer judges the code, and what it changes in the
//! token is durable before the answer.

mod definitions;
mod token;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larix_engine::Entry;
use larix_engine::overlay::second_factor::{FactorJudgement, GivenCode, LoginPassword, SecondFactor};
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    Authentication, BuildContext, Change, Descriptor, Entries, Failure, Interests, Judgement, NobodysBind,
    Overlay, PendingBind,
};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use token::{Kind, SECRET, Token, dn_of, has_class, value};

pub static DESCRIPTOR: Descriptor = Descriptor::new("otp", "olcOverlayConfig", build)
    .once()
    .schema(definitions::DEFINITIONS)
    .secrets(&["oathSecret"]);

/// The class of the accounts that need a code.
const USER: &str = "oathUser";

/// The kinds of tokens, in the order in which they are tried.
const KINDS: [Kind; 2] = [Kind::Totp, Kind::Hotp];

/// The overlay on one database.
#[derive(Debug, Default)]
struct OneTimePasswords {
    /// Whether an account was seen that needs a code.
    needs_code: AtomicBool,
}

fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(OneTimePasswords::default()))
}

impl Overlay for OneTimePasswords {
    fn name(&self) -> &'static str {
        "otp"
    }

    fn interests(&self) -> Interests {
        Interests::SECOND_FACTOR | Interests::BIND
    }

    fn second_factor(&self) -> Option<&dyn SecondFactor> {
        Some(self)
    }

    fn authentication(&self) -> Option<&dyn Authentication> {
        Some(self)
    }
}

impl SecondFactor for OneTimePasswords {
    fn code_length(&self, login: &LoginPassword<'_>) -> Result<Option<usize>, Failure> {
        let Some(tokens) = tokens(login.schema, login.entry, login.entries)? else { return Ok(None) };
        let now = login.now.seconds();
        let redeemed = |token: &Token| {
            let start = login.password.len().checked_sub(token.digits())?;
            token.redeem(login.password.get(start..)?, now)
        };
        let matching = tokens.iter().find(|token| redeemed(token).is_some());
        Ok(matching.or_else(|| tokens.first()).map(Token::digits))
    }

    fn judge(&self, bind: &PendingBind<'_>) -> Result<FactorJudgement, Failure> {
        if let GivenCode::Compared(code) = &bind.attempt.code {
            return compared(bind, code);
        }
        let Some(tokens) = tokens(bind.schema, bind.entry, bind.entries)? else {
            // A wrong password of an account without a code waits as long as one with a code, and as one of nobody.
            let ordered = !bind.matched && self.counts_failures();
            return Ok(FactorJudgement { ordered, ..FactorJudgement::default() });
        };
        self.needs_code.store(true, Ordering::Relaxed);
        let mut judgement = FactorJudgement { refused: true, ordered: true, ..FactorJudgement::default() };
        let GivenCode::Given(code) = &bind.attempt.code else { return Ok(judgement) };
        for token in &tokens {
            if let Some(change) = used(token, code, bind)? {
                judgement.refused = false;
                judgement.changes.push(change);
                break;
            }
        }
        Ok(judgement)
    }

    fn is_compared(&self, schema: &Schema, entry: &Entry, attribute: &AttributeDescription) -> bool {
        let secret = schema.attribute_type(SECRET).map(|secret| secret.id);
        let is_token = || KINDS.iter().any(|kind| has_class(schema, entry, kind.token()));
        secret == Some(attribute.attribute) && is_token()
    }
}

/// Judges a code that a compare asks about, which names the token itself; or two codes in a row, after which it is in step again.
fn compared(bind: &PendingBind<'_>, code: &[u8]) -> Result<FactorJudgement, Failure> {
    let mut judgement = FactorJudgement { refused: true, ordered: true, ..FactorJudgement::default() };
    let kind = KINDS.into_iter().find(|kind| has_class(bind.schema, bind.entry, kind.token()));
    let Some(kind) = kind else { return Ok(judgement) };
    let Some(token) = Token::read(kind, &bind.attempt.dn, bind.schema, bind.entries)? else {
        return Ok(judgement);
    };
    let change = if code.len() == 2 * token.digits() {
        let redeemed = token.resynchronise(code, bind.now.seconds());
        redeemed.map(|redeemed| token.used(redeemed, bind.schema)).transpose()?
    } else {
        used(&token, code, bind)?
    };
    if let Some(change) = change {
        judgement.refused = false;
        judgement.changes.push(change);
    }
    Ok(judgement)
}

/// What uses a code of the token up; `None`: it is none that may still be used.
fn used(
    token: &Token,
    code: &[u8],
    bind: &PendingBind<'_>,
) -> Result<Option<(NormalDn, Vec<Change>)>, Failure> {
    let redeemed = if token.digits() == code.len() { token.redeem(code, bind.now.seconds()) } else { None };
    redeemed.map(|redeemed| token.used(redeemed, bind.schema)).transpose()
}

/// Passwords are judged by others; this is about names that nobody has.
impl Authentication for OneTimePasswords {
    fn judge(&self, _: &PendingBind<'_>) -> Result<Judgement, Failure> {
        Ok(Judgement::default())
    }

    fn judge_nobody(&self, _: &NobodysBind<'_>) -> Result<Judgement, Failure> {
        Ok(Judgement { ordered: self.counts_failures(), ..Judgement::default() })
    }

    fn counts_failures(&self) -> bool {
        self.needs_code.load(Ordering::Relaxed)
    }
}

/// The tokens of an account, that of time first. `None`: it needs no code. None in it: it can give none.
fn tokens(schema: &Schema, entry: &Entry, entries: &dyn Entries) -> Result<Option<Vec<Token>>, Failure> {
    if !has_class(schema, entry, USER) {
        return Ok(None);
    }
    let mut tokens = Vec::new();
    for kind in KINDS {
        let Some(name) = value(schema, entry, kind.token()).and_then(|name| dn_of(schema, name)) else {
            continue;
        };
        tokens.extend(Token::read(kind, &name, schema, entries)?);
    }
    Ok(Some(tokens))
}

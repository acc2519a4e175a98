//! A token and its parameters, as their entries say, and the codes that it takes.

use larix_engine::Entry;
use larix_engine::overlay::{Change, ChangeKind, Entries, Failure, internal_change};
use larix_engine::password::one_time::{self, Algorithm, DIGITS_MAX};
use larix_schema::{NormalDn, Schema};
use zeroize::Zeroizing;

/// The most counters ahead at which a code is looked for, whatever oathHOTPLookAhead says.
const LOOK_AHEAD_MAX: i64 = 1000;

/// The most time steps on either side at which a code is looked for, whatever oathTOTPTimeStepWindow says.
const WINDOW_MAX: i64 = 100;

/// The most counters ahead at which two codes in a row are looked for (RFC 4226 section 7.4).
const RESYNCHRONISED_MAX: i64 = 1000;

pub(super) const SECRET: &str = "oathSecret";

/// What kind of token an attribute of the account leads to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Totp,
    Hotp,
}

impl Kind {
    /// The attribute of an account, which is also the object class of what it names.
    pub(super) fn token(self) -> &'static str {
        match self {
            Self::Totp => "oathTOTPToken",
            Self::Hotp => "oathHOTPToken",
        }
    }

    /// The attribute of a token, which is also the object class of what it names.
    fn parameters(self) -> &'static str {
        match self {
            Self::Totp => "oathTOTPParams",
            Self::Hotp => "oathHOTPParams",
        }
    }

    /// Where the last code that was used stands.
    fn last(self) -> &'static str {
        match self {
            Self::Totp => "oathTOTPLastTimeStep",
            Self::Hotp => "oathHOTPCounter",
        }
    }
}

/// How codes follow each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Moves {
    /// By one with each code.
    Counter { look_ahead: i64 },
    /// With time. `drift` is how many steps the token is ahead of the server.
    Time { period: i64, window: i64, drift: i64 },
}

/// A token that can be used.
pub(super) struct Token {
    dn: NormalDn,
    kind: Kind,
    secret: Zeroizing<Vec<u8>>,
    digits: u32,
    algorithm: Algorithm,
    /// The counter or the time step of the last code that was used; -1: none was.
    last: i64,
    moves: Moves,
}

/// Which code was given.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Redeemed {
    /// Its counter or time step.
    step: i64,
    /// Of a time step: how far it is from the server's time.
    drift: Option<i64>,
}

impl Token {
    /// The token that an entry of this database is. `None`: it is none, or something is missing or out of range there or in the entry
    /// with its parameters.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn read(
        kind: Kind,
        dn: &NormalDn,
        schema: &Schema,
        entries: &dyn Entries,
    ) -> Result<Option<Self>, Failure> {
        // What is in another database could not be changed in the same commit.
        if entries.id_of(dn)?.is_none() {
            return Ok(None);
        }
        let Some(token) = entries.entry(dn)?.filter(|entry| has_class(schema, entry, kind.token())) else {
            return Ok(None);
        };
        let parameters = value(schema, &token, kind.parameters()).and_then(|name| dn_of(schema, name));
        let Some(parameters) = parameters else { return Ok(None) };
        let parameters =
            entries.entry(&parameters)?.filter(|entry| has_class(schema, entry, kind.parameters()));
        Ok(parameters.and_then(|parameters| Self::of(kind, dn, schema, &token, &parameters)))
    }

    fn of(kind: Kind, dn: &NormalDn, schema: &Schema, token: &Entry, parameters: &Entry) -> Option<Self> {
        let of_token = |name| Number::read(schema, token, name);
        let of_parameters = |name| Number::read(schema, parameters, name);
        let moves = match kind {
            Kind::Hotp => Moves::Counter {
                look_ahead: of_parameters("oathHOTPLookAhead").known()?.clamp(0, LOOK_AHEAD_MAX),
            },
            Kind::Totp => Moves::Time {
                period: of_parameters("oathTOTPTimeStepPeriod").known().filter(|period| *period > 0)?,
                window: of_parameters("oathTOTPTimeStepWindow").or(0)?.clamp(0, WINDOW_MAX),
                drift: of_token("oathTOTPTimeStepDrift").or(0)?,
            },
        };
        let digits = u32::try_from(of_parameters("oathOTPLength").known()?).ok()?;
        Some(Self {
            dn: dn.clone(),
            kind,
            secret: Zeroizing::new(value(schema, token, SECRET)?.to_vec()),
            digits: Some(digits).filter(|digits| (1..=DIGITS_MAX).contains(digits))?,
            algorithm: Algorithm::of_oid(value(schema, parameters, "oathHMACAlgorithm")?)?,
            last: of_token(kind.last()).or(-1)?,
            moves,
        })
    }

    /// How many digits its codes have.
    pub(super) fn digits(&self) -> usize {
        self.digits as usize
    }

    /// Which of the codes that may still be used this is, at a time in seconds since 1970. All of them are looked at: the time does not
    /// tell which it was.
    pub(super) fn redeem(&self, given: &[u8], now: i64) -> Option<Redeemed> {
        let (steps, now) = match self.moves {
            Moves::Counter { look_ahead } => {
                let first = self.last.checked_add(1)?;
                (first..=first.saturating_add(look_ahead), None)
            }
            Moves::Time { period, window, drift } => {
                let now = now.div_euclid(period);
                let middle = now.checked_add(drift)?;
                (middle.saturating_sub(window)..=middle.saturating_add(window), Some(now))
            }
        };
        let first = self.last.saturating_add(1).max(*steps.start());
        let key = (self.algorithm, self.secret.as_slice());
        let step = one_time::find(key, first..=*steps.end(), self.digits, given)?;
        Some(Redeemed { step, drift: now.map(|now| step.saturating_sub(now)) })
    }

    /// Where the token is by two codes in a row, which may be further ahead than one code may be.
    pub(super) fn resynchronise(&self, given: &[u8], now: i64) -> Option<Redeemed> {
        let codes = given.split_at_checked(self.digits())?;
        let first = self.last.checked_add(1)?;
        let (steps, now) = match self.moves {
            Moves::Counter { .. } => (first..=first.saturating_add(RESYNCHRONISED_MAX), None),
            Moves::Time { period, drift, .. } => {
                let now = now.div_euclid(period);
                let middle = now.checked_add(drift)?;
                let start = middle.saturating_sub(WINDOW_MAX).max(first);
                (start..=middle.saturating_add(WINDOW_MAX), Some(now))
            }
        };
        let key = (self.algorithm, self.secret.as_slice());
        let step = one_time::find_two(key, steps, self.digits, codes)?;
        Some(Redeemed { step, drift: now.map(|now| step.saturating_sub(now)) })
    }

    /// What is to be changed so that neither this code nor one before it is taken again.
    ///
    /// # Errors
    /// Attributes that the schema does not have.
    pub(super) fn used(
        &self,
        redeemed: Redeemed,
        schema: &Schema,
    ) -> Result<(NormalDn, Vec<Change>), Failure> {
        let number = |name, number: i64| {
            internal_change(schema, ChangeKind::Replace, name, vec![number.to_string().into_bytes()])
        };
        let mut changes = vec![number(self.kind.last(), redeemed.step)?];
        if let Some(drift) = redeemed.drift {
            changes.push(number("oathTOTPTimeStepDrift", drift)?);
        }
        Ok((self.dn.clone(), changes))
    }
}

/// A number as an attribute has it.
enum Number {
    Missing,
    Unreadable,
    Known(i64),
}

impl Number {
    fn read(schema: &Schema, entry: &Entry, name: &str) -> Self {
        match value(schema, entry, name) {
            None => Self::Missing,
            Some(text) => match std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()) {
                Some(number) => Self::Known(number),
                None => Self::Unreadable,
            },
        }
    }

    fn known(self) -> Option<i64> {
        if let Self::Known(number) = self { Some(number) } else { None }
    }

    /// The same, and another number where there is none; `None`: it is unreadable.
    fn or(self, otherwise: i64) -> Option<i64> {
        if matches!(self, Self::Missing) { Some(otherwise) } else { self.known() }
    }
}

/// The first value of an attribute.
pub(super) fn value<'e>(schema: &Schema, entry: &'e Entry, name: &str) -> Option<&'e [u8]> {
    let attribute = schema.attribute_type(name)?.id;
    entry.values(attribute).first().map(Vec::as_slice)
}

pub(super) fn dn_of(schema: &Schema, name: &[u8]) -> Option<NormalDn> {
    schema.parse_dn(std::str::from_utf8(name).ok()?).ok()
}

/// Whether an entry is of a class or of one below it.
pub(super) fn has_class(schema: &Schema, entry: &Entry, class: &str) -> bool {
    let (Some(attribute), Some(class)) =
        (schema.attribute_type("objectClass"), schema.object_class_id(class))
    else {
        return false;
    };
    let own = entry.values(attribute.id).iter().filter_map(|name| std::str::from_utf8(name).ok());
    own.filter_map(|name| schema.object_class_id(name)).any(|own| schema.is_subclass(own, class))
}

//! A device on its way to an account as its second factor: the secret is held here until a code shows that the device has it.

use std::fmt::Write as _;

use fast_qr::ECL;
use fast_qr::qr::QRBuilder;
use larix_engine::password::one_time::{self, Algorithm, DIGITS_MAX};
use larix_engine::password::to_base32;
use larix_engine::time::{Monotonic, RandomSource};
use maud::{Markup, html};
use zeroize::Zeroizing;

use super::client::ReceivedEntry;
use super::form::encode;

/// Bytes of a secret (RFC 4226 section 4, requirement R6).
const SECRET_BYTES: usize = 20;
/// Codes that may be tried with one secret.
const TRIES: u32 = 5;
/// How long a secret waits for its code.
const PATIENCE_SECONDS: u64 = 10 * 60;
const NANOS_A_SECOND: u64 = 1_000_000_000;
/// The most time steps on either side, as at a login.
const WINDOW_MAX: i64 = 100;
/// The most codes that are skipped, as at a login.
const LOOK_AHEAD_MAX: i64 = 1000;
/// White around a code, in modules (ISO/IEC 18004 section 5.3.8).
const QUIET: usize = 4;

/// How the codes of a device follow each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With time (TOTP, RFC 6238).
    Totp,
    /// By one with each code (HOTP, RFC 4226).
    Hotp,
}

/// What the codes of a device are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Their entry.
    pub(super) dn: String,
    digits: u32,
    algorithm: Algorithm,
    moves: Moves,
}

/// How the codes follow each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Moves {
    Time {
        /// Seconds of a time step.
        period: i64,
        /// Time steps before and after the present one.
        window: i64,
    },
    Counter {
        /// Codes that may be skipped.
        look_ahead: i64,
    },
}

/// A device whose secret is made and not yet stored.
#[derive(Debug)]
pub(super) struct Enrolment {
    /// The account.
    pub(super) user: String,
    /// The entry that the device will have.
    pub(super) token: String,
    pub(super) parameters: Parameters,
    /// The entry with the parameters is still to be made.
    pub(super) makes_parameters: bool,
    pub(super) secret: Zeroizing<[u8; SECRET_BYTES]>,
    began: Monotonic,
    tries: u32,
}

/// Which code was given.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    /// Its time step or counter.
    step: i64,
    /// Of a time step: how far that is from the server's time.
    drift: Option<i64>,
}

impl Proof {
    /// The attributes of a device that this code was used of.
    pub(super) fn attributes(self) -> Vec<(&'static str, String)> {
        match self.drift {
            Some(drift) => vec![
                ("oathTOTPLastTimeStep", self.step.to_string()),
                ("oathTOTPTimeStepDrift", drift.to_string()),
            ],
            None => vec![("oathHOTPCounter", self.step.to_string())],
        }
    }
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Totp, Self::Hotp];

    /// The attribute of an account that names its device, and the class of a device.
    pub(super) fn token(self) -> &'static str {
        match self {
            Self::Totp => "oathTOTPToken",
            Self::Hotp => "oathHOTPToken",
        }
    }

    /// The class of accounts with a device.
    pub(super) fn user(self) -> &'static str {
        match self {
            Self::Totp => "oathTOTPUser",
            Self::Hotp => "oathHOTPUser",
        }
    }

    /// The class of entries with parameters, and the attribute of a device that names one.
    pub(super) fn parameters(self) -> &'static str {
        match self {
            Self::Totp => "oathTOTPParams",
            Self::Hotp => "oathHOTPParams",
        }
    }

    /// As a page calls the codes.
    pub(super) fn called(self) -> &'static str {
        match self {
            Self::Totp => "from the time (TOTP)",
            Self::Hotp => "counted (HOTP)",
        }
    }

    /// How the URI in a QR code begins.
    fn scheme(self) -> &'static str {
        match self {
            Self::Totp => "otpauth://totp/",
            Self::Hotp => "otpauth://hotp/",
        }
    }
}

impl Parameters {
    /// What apps do unless the code says something else.
    pub(super) fn usual(kind: Kind, dn: String) -> Self {
        let moves = match kind {
            Kind::Totp => Moves::Time { period: 30, window: 1 },
            Kind::Hotp => Moves::Counter { look_ahead: 10 },
        };
        Self { dn, digits: 6, algorithm: Algorithm::Sha1, moves }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.moves {
            Moves::Time { .. } => Kind::Totp,
            Moves::Counter { .. } => Kind::Hotp,
        }
    }

    /// As an entry of the class of the kind says; `None`: no device could log in with them.
    pub(super) fn of(kind: Kind, entry: &ReceivedEntry) -> Option<Self> {
        let number = |name| entry.text(name)?.trim().parse::<i64>().ok();
        let digits = number("oathOTPLength").and_then(|digits| u32::try_from(digits).ok());
        let moves = match kind {
            Kind::Totp => {
                let window = match entry.text("oathTOTPTimeStepWindow") {
                    Some(_) => number("oathTOTPTimeStepWindow")?,
                    None => 0,
                };
                let period = number("oathTOTPTimeStepPeriod").filter(|period| *period > 0)?;
                Moves::Time { period, window: window.clamp(0, WINDOW_MAX) }
            }
            Kind::Hotp => {
                Moves::Counter { look_ahead: number("oathHOTPLookAhead")?.clamp(0, LOOK_AHEAD_MAX) }
            }
        };
        Some(Self {
            dn: entry.dn.clone(),
            digits: digits.filter(|digits| (1..=DIGITS_MAX).contains(digits))?,
            algorithm: Algorithm::of_oid(entry.text("oathHMACAlgorithm")?.as_bytes())?,
            moves,
        })
    }

    /// The attributes of an entry with them.
    pub(super) fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = vec![
            ("oathOTPLength", self.digits.to_string()),
            ("oathHMACAlgorithm", "1.2.840.113549.2.7".to_owned()),
        ];
        match self.moves {
            Moves::Time { period, window } => {
                attributes.push(("oathTOTPTimeStepPeriod", period.to_string()));
                attributes.push(("oathTOTPTimeStepWindow", window.to_string()));
            }
            Moves::Counter { look_ahead } => attributes.push(("oathHOTPLookAhead", look_ahead.to_string())),
        }
        attributes
    }
}

impl Enrolment {
    pub(super) fn begin(
        user: String,
        token: String,
        (parameters, makes_parameters): (Parameters, bool),
        random: &dyn RandomSource,
        now: Monotonic,
    ) -> Self {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        random.fill(&mut secret[..]);
        Self { user, token, parameters, makes_parameters, secret, began: now, tries: 0 }
    }

    /// Whether another code may be tried.
    pub(super) fn is_open(&self, now: Monotonic) -> bool {
        let waited = now.0.saturating_sub(self.began.0) / NANOS_A_SECOND;
        self.tries < TRIES && waited < PATIENCE_SECONDS
    }

    /// Judges a code at a time in seconds since 1970.
    pub(super) fn prove(&mut self, code: &str, now: i64) -> Option<Proof> {
        self.tries = self.tries.saturating_add(1);
        let Parameters { digits, algorithm, moves, .. } = self.parameters;
        let (steps, now) = match moves {
            Moves::Time { period, window } => {
                let now = now.div_euclid(period);
                (now.saturating_sub(window)..=now.saturating_add(window), Some(now))
            }
            Moves::Counter { look_ahead } => (0..=look_ahead, None),
        };
        let code: String = code.split_whitespace().collect();
        let step = one_time::find((algorithm, &self.secret[..]), steps, digits, code.as_bytes())?;
        Some(Proof { step, drift: now.map(|now| step.saturating_sub(now)) })
    }

    /// The secret in base 32, without padding: as a person types it into an app.
    pub(super) fn typed(&self) -> Zeroizing<String> {
        let text = Zeroizing::new(to_base32(&self.secret[..]));
        let letters = text.iter().take_while(|letter| **letter != b'=');
        Zeroizing::new(letters.map(|letter| char::from(*letter)).collect())
    }

    /// What the QR code says: otpauth://totp/Issuer:Account?... or otpauth://hotp/..., as apps read it.
    pub(super) fn uri(&self, issuer: &str, account: &str) -> Zeroizing<String> {
        let mut uri = Zeroizing::new(String::with_capacity(512));
        uri.push_str(self.parameters.kind().scheme());
        encode(&mut uri, issuer);
        uri.push(':');
        encode(&mut uri, account);
        uri.push_str("?secret=");
        uri.push_str(&self.typed());
        uri.push_str("&issuer=");
        encode(&mut uri, issuer);
        let Parameters { digits, algorithm, moves, .. } = self.parameters;
        let algorithm = format!("{algorithm:?}").to_ascii_uppercase();
        let _ = write!(uri, "&algorithm={algorithm}&digits={digits}");
        let _ = match moves {
            Moves::Time { period, .. } => write!(uri, "&period={period}"),
            Moves::Counter { .. } => write!(uri, "&counter=0"),
        };
        uri
    }
}

/// A text as a QR code; `None`: it is too long for one.
pub(super) fn qr_code(text: &str) -> Option<Markup> {
    let code = QRBuilder::new(text).ecl(ECL::M).build().ok()?;
    let (path, side) = (dark_modules(&code), code.size + 2 * QUIET);
    Some(html! {
        svg.qr role="img" aria-label="QR code of the secret, for an app" viewBox={ "0 0 " (side) " " (side) }
            shape-rendering="crispEdges" {
            rect width=(side) height=(side) fill="#fff" {}
            path d=(path.as_str()) fill="#000" {}
        }
    })
}

/// A square for each dark module.
fn dark_modules(code: &fast_qr::QRCode) -> Zeroizing<String> {
    let mut path = Zeroizing::new(String::with_capacity(code.size * code.size * 8));
    for (y, row) in code.data.chunks(code.size.max(1)).take(code.size).enumerate() {
        for (x, _) in row.iter().enumerate().filter(|(_, module)| module.value()) {
            let _ = write!(path, "M{} {}h1v1h-1z", x + QUIET, y + QUIET);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use larix_engine::time::SeededRandom;

    use super::*;
    use crate::admin::client::ReceivedAttribute;

    fn enrolment(kind: Kind) -> Enrolment {
        let parameters = Parameters::usual(kind, "cn=codes".to_owned());
        let random = SeededRandom::new(1);
        let mut made = Enrolment::begin(
            "uid=ann".to_owned(),
            "cn=ann phone".to_owned(),
            (parameters, false),
            &random,
            Monotonic(0),
        );
        made.secret.copy_from_slice(b"12345678901234567890");
        made
    }

    #[test]
    fn codes_of_the_present_time_prove_it() {
        // RFC 6238 appendix B, the last six digits: time 59, and counter 0 and 2 of RFC 4226.
        for (code, expected) in [
            ("287082", Some(Proof { step: 1, drift: Some(0) })),
            (" 287 082 ", Some(Proof { step: 1, drift: Some(0) })),
            ("755224", Some(Proof { step: 0, drift: Some(-1) })),
            ("359152", Some(Proof { step: 2, drift: Some(1) })),
            ("969429", None),
            ("", None),
            ("94287082", None),
        ] {
            assert_eq!(enrolment(Kind::Totp).prove(code, 59), expected, "{code}");
        }
    }

    #[test]
    fn the_first_codes_of_a_counter_prove_it() {
        // RFC 4226 appendix D: counters 0, 9 and, by another program, 10 and 11.
        for (code, expected) in [
            ("755224", Some(0)),
            ("520 489", Some(9)),
            ("403154", Some(10)),
            ("481090", None),
            ("000000", None),
        ] {
            let proof = enrolment(Kind::Hotp).prove(code, 59);
            assert_eq!(proof, expected.map(|step| Proof { step, drift: None }), "{code}");
        }
    }

    #[test]
    fn a_secret_waits_neither_long_nor_for_many_codes() {
        let mut made = enrolment(Kind::Totp);
        let minutes = |minutes: u64| Monotonic(minutes * 60 * NANOS_A_SECOND);
        assert!(made.is_open(minutes(9)) && !made.is_open(minutes(10)));
        for _ in 0..TRIES {
            assert!(made.is_open(minutes(1)));
            made.prove("000000", 59);
        }
        assert!(!made.is_open(minutes(1)));
    }

    #[test]
    fn apps_are_told_all_of_it() {
        let counted = enrolment(Kind::Hotp).uri("example.com", "ann");
        let expected = "otpauth://hotp/example.com:ann?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\
                        &issuer=example.com&algorithm=SHA1&digits=6&counter=0";
        assert_eq!(*counted, expected);
        let uri = enrolment(Kind::Totp).uri("example.com", "ann & co");
        let expected = "otpauth://totp/example.com:ann%20%26%20co?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\
                        &issuer=example.com&algorithm=SHA1&digits=6&period=30";
        assert_eq!(*uri, expected);
        let code = QRBuilder::new(uri.as_str()).ecl(ECL::M).build().expect("a code");
        let dark = code.data.iter().take(code.size * code.size).filter(|module| module.value()).count();
        assert_eq!(dark_modules(&code).matches('M').count(), dark);
        // The finder pattern in the corner: seven dark modules, and a light ring within.
        let path = dark_modules(&code);
        for x in 4..11 {
            assert!(path.contains(&format!("M{x} 4h1")), "{x}");
        }
        assert!(path.contains("M4 5h1") && !path.contains("M5 5h1"));
        assert!(qr_code(&uri).is_some() && qr_code(&"x".repeat(3_000)).is_none());
    }

    #[test]
    fn parameters_that_no_device_could_use_are_none() {
        let entry = |fields: &[(&str, &str)]| ReceivedEntry {
            dn: "cn=totp".to_owned(),
            attributes: fields
                .iter()
                .map(|(name, value)| ReceivedAttribute {
                    name: (*name).to_owned(),
                    values: vec![value.as_bytes().to_vec()],
                })
                .collect(),
        };
        for kind in Kind::ALL {
            let usual = Parameters::usual(kind, "cn=totp".to_owned());
            let attributes = usual.attributes();
            let all: Vec<(&str, &str)> =
                attributes.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(Parameters::of(kind, &entry(&all)), Some(usual));
            for (name, value) in [
                ("oathOTPLength", "9"),
                ("oathOTPLength", "x"),
                ("oathHMACAlgorithm", "1.2.3"),
                ("oathTOTPTimeStepPeriod", "0"),
                ("oathTOTPTimeStepWindow", "x"),
                ("oathHOTPLookAhead", "x"),
            ] {
                let mut wrong = all.clone();
                let mut known = wrong.iter_mut().filter(|(known, _)| *known == name);
                let Some((_, known)) = known.next() else { continue };
                *known = value;
                assert_eq!(Parameters::of(kind, &entry(&wrong)), None, "{name} {value}");
            }
        }
    }
}

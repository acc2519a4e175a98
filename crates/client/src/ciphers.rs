//! What may be negotiated: the strings of `TLSCipherSuite` in OpenSSL's and GnuTLS' languages, `TLSProtocolMin` and
//! `TLSECName`, as far as they mean anything to a library that has only what is safe.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::ring::{ALL_CIPHER_SUITES, kx_group};
use rustls::{NamedGroup, SupportedCipherSuite};

/// What handshakes may agree on.
#[derive(Clone, Debug)]
pub struct Choice {
    /// In order of preference, where the client has none.
    pub suites: Vec<SupportedCipherSuite>,
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    pub tls12: bool,
    pub tls13: bool,
    /// What was asked for and has no effect, and why.
    pub notes: Vec<String>,
}

/// One of the cipher suites that can be had, as the languages tell them apart.
struct Suite {
    /// OpenSSL's name, and the registry's.
    name: &'static str,
    registered: &'static str,
    /// The words that select it.
    words: &'static [&'static str],
    key_bits: u32,
}

const TLS13: &str = "TLSv1.3";
const ECDSA: &str = "ECDSA";
const AES128: &str = "AES128";
const AES256: &str = "AES256";
const CHACHA20: &str = "CHACHA20";

/// Those of [`ALL_CIPHER_SUITES`]; a test holds the two together.
const SUITES: &[Suite] = &[
    Suite {
        name: "TLS_AES_256_GCM_SHA384",
        registered: "TLS_AES_256_GCM_SHA384",
        words: &[TLS13, AES256],
        key_bits: 256,
    },
    Suite {
        name: "TLS_AES_128_GCM_SHA256",
        registered: "TLS_AES_128_GCM_SHA256",
        words: &[TLS13, AES128],
        key_bits: 128,
    },
    Suite {
        name: "TLS_CHACHA20_POLY1305_SHA256",
        registered: "TLS_CHACHA20_POLY1305_SHA256",
        words: &[TLS13, CHACHA20],
        key_bits: 256,
    },
    Suite {
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        registered: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        words: &[ECDSA, "aECDSA", AES256, "AES", "AESGCM", "SHA384", "SUITEB192", "SUITEB128", "FIPS"],
        key_bits: 256,
    },
    Suite {
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        registered: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        words: &[ECDSA, "aECDSA", AES128, "AES", "AESGCM", "SHA256", "SUITEB128", "SUITEB128ONLY", "FIPS"],
        key_bits: 128,
    },
    Suite {
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        registered: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        words: &[ECDSA, "aECDSA", CHACHA20, "SHA256"],
        key_bits: 256,
    },
    Suite {
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        registered: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        words: &["aRSA", AES256, "AES", "AESGCM", "SHA384", "FIPS"],
        key_bits: 256,
    },
    Suite {
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        registered: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        words: &["aRSA", AES128, "AES", "AESGCM", "SHA256", "FIPS"],
        key_bits: 128,
    },
    Suite {
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        registered: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        words: &["aRSA", CHACHA20, "SHA256"],
        key_bits: 256,
    },
];

/// Words of OpenSSL that select every suite below TLS 1.3 that can be had.
const ALL_WORDS: &[&str] =
    &["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "ECDH", "TLSv1.2", "TLSv1", "AEAD"];
/// Words of OpenSSL that select what cannot be had: taking it out is no loss, asking for it gives nothing.
const NO_WORDS: &[&str] = &[
    "COMPLEMENTOFDEFAULT",
    "COMPLEMENTOFALL",
    "MEDIUM",
    "LOW",
    "EXP",
    "EXPORT",
    "EXPORT40",
    "EXPORT56",
    "eNULL",
    "NULL",
    "aNULL",
    "kRSA",
    "RSA",
    "kDHE",
    "kEDH",
    "DH",
    "DHE",
    "EDH",
    "ADH",
    "AECDH",
    "kECDH",
    "kECDHr",
    "kECDHe",
    "aECDH",
    "aDSS",
    "DSS",
    "DES",
    "3DES",
    "RC4",
    "RC2",
    "IDEA",
    "SEED",
    "CAMELLIA",
    "CAMELLIA128",
    "CAMELLIA256",
    "ARIA",
    "ARIA128",
    "ARIA256",
    "ARIAGCM",
    "AESCCM",
    "AESCCM8",
    "CBC",
    "MD5",
    "SHA",
    "SHA1",
    "GOST",
    "GOST94",
    "GOST89MAC",
    "aGOST",
    "aGOST01",
    "kGOST",
    "PSK",
    "kPSK",
    "aPSK",
    "kECDHEPSK",
    "kDHEPSK",
    "kRSAPSK",
    "SRP",
    "kSRP",
    "aSRP",
    "SSLv2",
    "SSLv3",
    "TLSv1.0",
    "TLSv1.1",
    "kKRB5",
    "KRB5",
    "aKRB5",
    "FZA",
    "aFZA",
];
/// Whether a keyword leaves a suite.
type Selects = fn(&Suite) -> bool;
/// Keywords that GnuTLS' strings begin with, and whether they are about 256 bits alone.
const PRIORITY_KEYWORDS: &[(&str, Selects)] = &[
    ("NORMAL", |_| true),
    ("LEGACY", |_| true),
    ("PERFORMANCE", |_| true),
    ("PFS", |_| true),
    ("SECURE", |_| true),
    ("SECURE128", |_| true),
    ("SYSTEM", |_| true),
    ("SECURE192", |suite| suite.key_bits == 256),
    ("SECURE256", |suite| suite.key_bits == 256),
    ("NONE", |_| false),
];

/// The suite's name as OpenSSL writes it, and its key's bits.
pub fn describe(suite: SupportedCipherSuite) -> (&'static str, u32) {
    let found = SUITES.iter().find(|known| is(suite, known));
    found.map_or(("unknown", 128), |known| (known.name, known.key_bits))
}

fn is(suite: SupportedCipherSuite, known: &Suite) -> bool {
    let name = suite.suite().as_str().unwrap_or("");
    let name = name.strip_prefix("TLS13_").map_or_else(|| name.to_owned(), |rest| format!("TLS_{rest}"));
    name == known.registered
}

impl Suite {
    fn is_tls13(&self) -> bool {
        self.words.contains(&TLS13)
    }

    fn is_named(&self, word: &str) -> bool {
        self.name.eq_ignore_ascii_case(word) || self.registered.eq_ignore_ascii_case(word)
    }

    fn supported(&self) -> Option<SupportedCipherSuite> {
        ALL_CIPHER_SUITES.iter().copied().find(|suite| is(*suite, self))
    }
}

/// Reads the three settings.
///
/// # Errors
/// A message that names the setting and its value: nothing is left that could be negotiated, or it is not of the language.
pub fn choose(
    ciphers: Option<&str>,
    protocol_min: Option<&str>,
    curves: Option<&str>,
) -> Result<Choice, String> {
    let mut picked = Picked {
        suites: SUITES.iter().collect(),
        groups: all_groups(),
        tls12: true,
        tls13: true,
        notes: vec![],
    };
    if let Some(text) = ciphers {
        if is_priority_string(text) {
            picked.priority_string(text);
        } else {
            picked.cipher_list(text);
        }
        if picked.suites.is_empty() || !(picked.tls12 || picked.tls13) {
            return Err(format!("TLSCipherSuite `{text}` leaves no cipher suite that this server has"));
        }
    }
    if let Some(text) = protocol_min {
        picked.protocol_min(text)?;
    }
    if let Some(text) = curves {
        picked.curves(text)?;
    }
    let suites: Vec<_> = picked
        .suites
        .iter()
        .filter(|suite| if suite.is_tls13() { picked.tls13 } else { picked.tls12 })
        .collect();
    let (tls12, tls13) =
        (suites.iter().any(|suite| !suite.is_tls13()), suites.iter().any(|suite| suite.is_tls13()));
    if suites.is_empty() {
        return Err(format!(
            "TLSProtocolMin `{}` and TLSCipherSuite `{}` leave no cipher suite together",
            protocol_min.unwrap_or_default(),
            ciphers.unwrap_or_default()
        ));
    }
    if picked.groups.is_empty() {
        return Err(format!(
            "TLSCipherSuite `{}` leaves no group for the key exchange",
            ciphers.unwrap_or_default()
        ));
    }
    let suites = suites.into_iter().filter_map(|suite| suite.supported()).collect();
    Ok(Choice { suites, groups: picked.groups, tls12, tls13, notes: picked.notes })
}

struct Picked {
    suites: Vec<&'static Suite>,
    groups: Vec<&'static dyn SupportedKxGroup>,
    tls12: bool,
    tls13: bool,
    notes: Vec<String>,
}

fn all_groups() -> Vec<&'static dyn SupportedKxGroup> {
    vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1]
}

fn group(name: &str) -> Option<&'static dyn SupportedKxGroup> {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("group-").or_else(|| name.strip_prefix("curve-")).unwrap_or(&name);
    let named = match name {
        "x25519" => NamedGroup::X25519,
        "prime256v1" | "secp256r1" | "p-256" => NamedGroup::secp256r1,
        "secp384r1" | "p-384" => NamedGroup::secp384r1,
        _ => return None,
    };
    all_groups().into_iter().find(|group| group.name() == named)
}

/// Whether a string is of GnuTLS' language: it begins with one of its keywords, or changes versions as only it does.
fn is_priority_string(text: &str) -> bool {
    let mut words = text.split([':', ',', '+', ' ']).map(str::trim).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or("").trim_start_matches(['-', '!']);
    first.starts_with('@')
        || PRIORITY_KEYWORDS.iter().any(|(keyword, _)| keyword.eq_ignore_ascii_case(first))
        || text.split([':', ',', ' ']).any(|word| {
            let word = word.trim_start_matches(['+', '-', '!']);
            word.starts_with('%') || word.to_ascii_uppercase().starts_with("VERS-")
        })
}

impl Picked {
    fn protocol_min(&mut self, text: &str) -> Result<(), String> {
        let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
        let version = major.parse::<u8>().ok().zip(minor.parse::<u8>().ok());
        match version {
            Some((3, 4)) => self.tls12 = false,
            Some((3, 3)) => {}
            Some((1, 2)) => self.not_as_on_the_wire(text, "TLS 1.2 is written 3.3"),
            Some((1, 3)) => self.not_as_on_the_wire(text, "TLS 1.3 is written 3.4"),
            Some((0..=2, _) | (3, 0..=2)) => {
                self.notes.push(format!("TLSProtocolMin `{text}`: nothing below TLS 1.2 is spoken"));
            }
            _ => return Err(format!("TLSProtocolMin `{text}`: there is no such version; 3.4 is TLS 1.3")),
        }
        Ok(())
    }

    fn not_as_on_the_wire(&mut self, text: &str, mend: &str) {
        self.notes.push(format!("TLSProtocolMin `{text}` is below 3.3 and changes nothing: {mend}"));
    }

    fn curves(&mut self, text: &str) -> Result<(), String> {
        let names = text.split([':', ',']).map(str::trim).filter(|name| !name.is_empty());
        if names.clone().any(|name| name.eq_ignore_ascii_case("auto")) {
            return Ok(());
        }
        self.groups = names.clone().filter_map(group).collect();
        let unknown: Vec<&str> = names.filter(|name| group(name).is_none()).collect();
        if self.groups.is_empty() {
            return Err(format!(
                "TLSECName `{text}` names no group that this server has: X25519, prime256v1, secp384r1"
            ));
        }
        if !unknown.is_empty() {
            self.notes.push(format!("TLSECName: no {} here, the others are used", unknown.join(", ")));
        }
        Ok(())
    }

    /// OpenSSL's language: `HIGH:!aNULL:-AES128`. Suites of TLS 1.3 stay as they are unless some are named.
    fn cipher_list(&mut self, text: &str) {
        let older: Vec<&'static Suite> = SUITES.iter().filter(|suite| !suite.is_tls13()).collect();
        let mut chosen: Vec<&'static Suite> = Vec::new();
        let mut newer: Vec<&'static Suite> = Vec::new();
        let mut killed: Vec<&'static str> = Vec::new();
        for word in text.split([':', ',', ' ', ';']).map(str::trim).filter(|word| !word.is_empty()) {
            let (operator, word) = match word.split_at_checked(1) {
                Some((operator @ ("!" | "-" | "+"), rest)) => (operator, rest),
                _ => ("", word),
            };
            if word.starts_with('@') {
                match word.to_ascii_uppercase().as_str() {
                    "@STRENGTH" => chosen.sort_by_key(|suite| std::cmp::Reverse(suite.key_bits)),
                    _ => self.notes.push(format!("TLSCipherSuite: `{word}` has no meaning here")),
                }
                continue;
            }
            if let Some(suite) = SUITES.iter().find(|suite| suite.is_tls13() && suite.is_named(word)) {
                match operator {
                    "" if newer.iter().all(|known| known.name != suite.name) => newer.push(suite),
                    "!" | "-" => newer.retain(|known| known.name != suite.name),
                    _ => {}
                }
                continue;
            }
            let Some(selected) = select(&older, word) else {
                self.notes.push(format!("TLSCipherSuite: no cipher suite is called `{word}` here"));
                continue;
            };
            let is_selected = |suite: &&'static Suite| selected.iter().any(|other| other.name == suite.name);
            match operator {
                "!" => {
                    chosen.retain(|suite| !is_selected(suite));
                    killed.extend(selected.iter().map(|suite| suite.name));
                }
                "-" => chosen.retain(|suite| !is_selected(suite)),
                "+" => chosen.sort_by_key(|suite| is_selected(suite)),
                _ => {
                    for suite in selected {
                        if !killed.contains(&suite.name)
                            && chosen.iter().all(|known| known.name != suite.name)
                        {
                            chosen.push(suite);
                        }
                    }
                }
            }
        }
        if chosen.is_empty() && newer.is_empty() {
            self.suites.clear();
            return;
        }
        if newer.is_empty() {
            newer = SUITES.iter().filter(|suite| suite.is_tls13()).collect();
        }
        self.tls12 = !chosen.is_empty();
        self.suites = newer;
        self.suites.extend(chosen);
    }

    /// GnuTLS' language: `SECURE256:-VERS-TLS1.2:+AES-128-GCM`. Without a keyword it changes what is usual.
    fn priority_string(&mut self, text: &str) {
        for word in text.split([':', ',', ' ']).map(str::trim).filter(|word| !word.is_empty()) {
            let (adds, word) = match word.split_at_checked(1) {
                Some(("+", rest)) => (true, rest),
                Some(("-" | "!", rest)) => (false, rest),
                _ => (true, word),
            };
            let upper = word.to_ascii_uppercase();
            if let Some((keyword, fits)) =
                PRIORITY_KEYWORDS.iter().find(|(keyword, _)| *keyword == upper.trim_start_matches('@'))
            {
                let keep: Vec<_> = SUITES.iter().filter(|suite| fits(suite)).collect();
                (self.tls12, self.tls13) = (*keyword != "NONE", *keyword != "NONE");
                self.suites = keep;
                if *keyword == "NONE" {
                    self.groups.clear();
                }
                continue;
            }
            if upper == "SUITEB128" || upper == "SUITEB192" {
                self.suites = SUITES.iter().filter(|suite| suite.words.contains(&upper.as_str())).collect();
                self.groups.retain(|group| group.name() != NamedGroup::X25519);
                continue;
            }
            self.priority(&upper, adds);
        }
    }

    fn priority(&mut self, word: &str, adds: bool) {
        match word {
            "VERS-ALL" | "VERS-TLS-ALL" => (self.tls12, self.tls13) = (adds, adds),
            "VERS-TLS1.2" => self.tls12 = adds,
            "VERS-TLS1.3" => self.tls13 = adds,
            "CIPHER-ALL" => self.change(adds, |_| true),
            "AES-256-GCM" => self.change(adds, |suite| suite.words.contains(&AES256)),
            "AES-128-GCM" => self.change(adds, |suite| suite.words.contains(&AES128)),
            "CHACHA20-POLY1305" => self.change(adds, |suite| suite.words.contains(&CHACHA20)),
            // What a key exchange needs is there whenever a suite is: only taking one out says something.
            "ECDHE-RSA" if !adds => self.change(false, |suite| suite.words.contains(&"aRSA")),
            "ECDHE-ECDSA" if !adds => self.change(false, |suite| suite.words.contains(&ECDSA)),
            "KX-ALL" if !adds => self.change(false, |suite| !suite.is_tls13()),
            "GROUP-ALL" | "CURVE-ALL" => self.groups = if adds { all_groups() } else { Vec::new() },
            _ => match group(word).filter(|_| word.starts_with("GROUP-") || word.starts_with("CURVE-")) {
                Some(named) => {
                    self.groups.retain(|known| known.name() != named.name());
                    if adds {
                        self.groups.push(named);
                    }
                }
                None if adds && !is_understood(word) => {
                    self.notes.push(format!("TLSCipherSuite: `{word}` has no meaning here"));
                }
                None => {}
            },
        }
    }

    fn change(&mut self, adds: bool, selects: impl Fn(&Suite) -> bool) {
        if adds {
            let missing = SUITES.iter().filter(|suite| selects(suite));
            let missing: Vec<_> =
                missing.filter(|suite| self.suites.iter().all(|known| known.name != suite.name)).collect();
            self.suites.extend(missing);
        } else {
            self.suites.retain(|suite| !selects(suite));
        }
    }
}

/// Words of GnuTLS that hold whether they are said or not.
fn is_understood(word: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "SIGN-",
        "MAC-",
        "COMP-",
        "CTYPE-",
        "KX-",
        "SHA",
        "AEAD",
        "ECDHE-",
        "%SERVER_PRECEDENCE",
        "%SAFE_RENEGOTIATION",
    ];
    PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

/// The suites below TLS 1.3 that a word of OpenSSL selects, `A+B` those that both select; `None`: an unknown word.
fn select(among: &[&'static Suite], word: &str) -> Option<Vec<&'static Suite>> {
    let mut found = among.to_vec();
    for part in word.split('+').filter(|part| !part.is_empty()) {
        let all = ALL_WORDS.iter().any(|known| known.eq_ignore_ascii_case(part));
        let none = NO_WORDS.contains(&part) || NO_WORDS.iter().any(|known| known.eq_ignore_ascii_case(part));
        let matches = |suite: &Suite| {
            suite.is_named(part) || suite.words.iter().any(|known| known.eq_ignore_ascii_case(part))
        };
        if !all && !none && !among.iter().any(|suite| matches(suite)) && !is_suite_name(part) {
            return None;
        }
        found.retain(|suite| all || matches(suite));
    }
    Some(found)
}

/// Whether it has the form of a cipher suite's name: of one that cannot be had.
fn is_suite_name(word: &str) -> bool {
    word.contains("-SHA") || word.ends_with("-MD5") || (word.starts_with("TLS_") && word.contains("_WITH_"))
}

#[cfg(test)]
#[path = "ciphers_tests.rs"]
mod tests;

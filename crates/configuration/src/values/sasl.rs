//! The `sasl-*` directives.

use std::path::PathBuf;

use larix_sasl::scram::Hash;

/// The `sasl-*` directives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SaslSettings {
    /// The server's name in challenges and in Kerberos; none: the machine's.
    pub host: Option<String>,
    pub realm: Option<String>,
    pub properties: SecurityProperties,
    pub channel_binding: ChannelBinding,
    /// `sasl-mechanisms`: these and no others. None: all but the obsolete ones.
    pub mechanisms: Option<Vec<Mechanism>>,
    /// `sasl-saslauthd`: the socket of a saslauthd that knows the passwords of `{SASL}` values.
    pub saslauthd: Option<PathBuf>,
}

/// A mechanism that this build has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    External,
    Plain,
    Scram {
        hash: Hash,
        /// With a channel binding.
        plus: bool,
    },
    DigestMd5,
    CramMd5,
    #[cfg(feature = "gssapi")]
    Gssapi,
}

impl Mechanism {
    /// The strongest first, which is the order in which they are offered.
    pub const ALL: &'static [Self] = &[
        #[cfg(feature = "gssapi")]
        Self::Gssapi,
        Self::Scram { hash: Hash::Sha512, plus: true },
        Self::Scram { hash: Hash::Sha256, plus: true },
        Self::Scram { hash: Hash::Sha1, plus: true },
        Self::Scram { hash: Hash::Sha512, plus: false },
        Self::Scram { hash: Hash::Sha256, plus: false },
        Self::Scram { hash: Hash::Sha1, plus: false },
        Self::External,
        Self::DigestMd5,
        Self::CramMd5,
        Self::Plain,
    ];

    /// By its name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|mechanism| mechanism.name().eq_ignore_ascii_case(name)).copied()
    }

    /// As it is registered.
    pub const fn name(self) -> &'static str {
        match self {
            Self::External => "EXTERNAL",
            Self::Plain => larix_sasl::plain::NAME,
            Self::Scram { hash, plus: false } => hash.mechanism(),
            Self::Scram { hash, plus: true } => hash.plus_mechanism(),
            Self::DigestMd5 => larix_sasl::digest_md5::NAME,
            Self::CramMd5 => larix_sasl::cram_md5::NAME,
            #[cfg(feature = "gssapi")]
            Self::Gssapi => "GSSAPI",
        }
    }

    /// Offered only where the configuration names it (RFC 6331, and the age of RFC 2195).
    pub const fn is_obsolete(self) -> bool {
        matches!(self, Self::DigestMd5 | Self::CramMd5)
    }
}

/// `sasl-secprops`, in Cyrus SASL's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityProperties {
    /// No mechanism that shows the password to an eavesdropper; the layer below (TLS, a local socket) may hide it.
    pub no_plain: bool,
    /// None that falls to an active attacker.
    pub no_active: bool,
    /// None that lets an eavesdropper try passwords.
    pub no_dictionary: bool,
    pub no_anonymous: bool,
    pub forward_secrecy: bool,
    /// Only mechanisms that hand credentials over.
    pub pass_credentials: bool,
    /// Strength that mechanism and transport must reach.
    pub min_ssf: u32,
    /// Strength above which no layer is negotiated.
    pub max_ssf: u32,
    /// Largest buffer of a layer that is read, in bytes; 0: no layers.
    pub max_buffer: u32,
}

impl Default for SecurityProperties {
    fn default() -> Self {
        Self {
            no_plain: true,
            no_active: false,
            no_dictionary: false,
            no_anonymous: true,
            forward_secrecy: false,
            pass_credentials: false,
            min_ssf: 0,
            max_ssf: i32::MAX.unsigned_abs(),
            max_buffer: 65536,
        }
    }
}

impl SecurityProperties {
    const FLAGS: &'static str =
        "none, noplain, noactive, nodict, noanonymous, forwardsec, passcred, minssf=, maxssf=, maxbufsize=";

    /// Reads a comma-separated list. Any flag replaces the default ones; `none` alone clears them.
    ///
    /// # Errors
    /// The word that is not a property, and what there is.
    pub fn parse(text: &str) -> Result<Self, (String, &'static str)> {
        let mut read = Self::default();
        let mut flags = None;
        let cleared = Self { no_plain: false, no_anonymous: false, ..Self::default() };
        // Nothing between two commas is nothing, as in slapd.
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty() || text.is_empty()) {
            let unknown = || (word.to_owned(), Self::FLAGS);
            if let Some((name, value)) = word.split_once('=') {
                let number = value.parse().map_err(|_| unknown())?;
                match name.to_ascii_lowercase().as_str() {
                    "minssf" => read.min_ssf = number,
                    "maxssf" => read.max_ssf = number,
                    "maxbufsize" => read.max_buffer = number,
                    _ => return Err(unknown()),
                }
                continue;
            }
            let set: &mut Self = flags.get_or_insert(cleared);
            match word.to_ascii_lowercase().as_str() {
                "none" => {}
                "noplain" => set.no_plain = true,
                "noactive" => set.no_active = true,
                "nodict" => set.no_dictionary = true,
                "noanonymous" => set.no_anonymous = true,
                "forwardsec" => set.forward_secrecy = true,
                "passcred" => set.pass_credentials = true,
                _ => return Err(unknown()),
            }
        }
        let Self { min_ssf, max_ssf, max_buffer, .. } = read;
        Ok(Self { min_ssf, max_ssf, max_buffer, ..flags.unwrap_or_default() })
    }
}

/// `sasl-cbinding`: which channel bindings `-PLUS` mechanisms and Kerberos may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Not said: those that the connection has.
    #[default]
    Any,
    None,
    TlsUnique,
    TlsEndpoint,
    TlsExporter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_properties() {
        let plain = SecurityProperties::default();
        let cleared = SecurityProperties { no_plain: false, no_anonymous: false, ..plain };
        for (text, expected) in [
            ("none", Ok(cleared)),
            ("noplain,noanonymous", Ok(plain)),
            ("noplain,", Ok(SecurityProperties { no_plain: true, ..cleared })),
            ("NoDict", Ok(SecurityProperties { no_dictionary: true, ..cleared })),
            ("minssf=56", Ok(SecurityProperties { min_ssf: 56, ..plain })),
            (
                "none,minssf=1,maxssf=128,maxbufsize=0",
                Ok(SecurityProperties { min_ssf: 1, max_ssf: 128, max_buffer: 0, ..cleared }),
            ),
            ("nosuch", Err("nosuch")),
            ("minssf=x", Err("minssf=x")),
            ("", Err("")),
        ] {
            let found = SecurityProperties::parse(text).map_err(|(word, _)| word);
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn mechanisms_by_name() {
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::from_name(&mechanism.name().to_lowercase()), Some(*mechanism));
        }
        assert_eq!(Mechanism::from_name("ANONYMOUS"), None);
    }
}

//! The data of a scenario's databases, as LDIF.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::generate::Kind;

/// What is loaded into a database before it is served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// A generated directory with so many leaf entries.
    Generated { kind: Kind, entries: u64 },
    /// Telephony subscribers under a suffix `dc=NAME,dc=com` of their own.
    Subscribers { suffix: String, entries: u64 },
    /// A flat list `cn=file.NUMBER` of grid metadata, with entryUUIDs that end in the number.
    Files { suffix: String, entries: u64 },
    /// The suffix entry alone.
    Suffix { suffix: String },
}

impl Content {
    /// Bytes of LDIF that an entry has, about: for the room that is needed.
    pub(crate) const fn bytes_each(&self) -> u64 {
        match self {
            Self::Generated { kind: Kind::Mail, .. } => 2_100,
            Self::Generated { .. } => 600,
            Self::Subscribers { .. } | Self::Files { .. } => 350,
            Self::Suffix { .. } => 100,
        }
    }

    /// Leaf entries.
    pub const fn leaves(&self) -> u64 {
        match self {
            Self::Generated { entries, .. }
            | Self::Subscribers { entries, .. }
            | Self::Files { entries, .. } => *entries,
            Self::Suffix { .. } => 0,
        }
    }

    /// Writes it as LDIF, parents first.
    ///
    /// # Errors
    /// Those of `out`, and of [`Kind::write_ldif`].
    pub fn write_ldif(&self, seed: u64, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Generated { kind, entries } => kind.write_ldif(*entries, seed, out),
            Self::Subscribers { suffix, entries } => {
                let mut out = Replace { from: Kind::Subscribers.suffix(), to: suffix, line: Vec::new(), out };
                Kind::Subscribers.write_ldif(*entries, seed, &mut out)?;
                out.finish()
            }
            Self::Files { suffix, entries } => write_files(suffix, *entries, out),
            Self::Suffix { suffix } => write_suffix(suffix, out),
        }
    }
}

fn write_suffix(suffix: &str, out: &mut impl Write) -> io::Result<()> {
    let label = suffix.split(',').next().and_then(|rdn| rdn.strip_prefix("dc=")).unwrap_or_default();
    writeln!(out, "dn: {suffix}\nobjectClass: dcObject\nobjectClass: organization\ndc: {label}\no: {label}\n")
}

fn write_files(suffix: &str, entries: u64, out: &mut impl Write) -> io::Result<()> {
    write_suffix(suffix, out)?;
    for number in 1..=entries {
        writeln!(
            out,
            "dn: cn=file.{number},{suffix}\nobjectClass: top\nobjectClass: device\ncn: file.{number}\n\
             serialNumber: {number:012}\nl: storage {:02}\ndescription: size={} checksum={:016x}\n\
             entryUUID: 5e1ec7ed-0000-4000-8000-{number:012}\n",
            number % 20,
            number * 4_093 % 1_000_003,
            number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        )?;
    }
    Ok(())
}

/// Object classes in the syntax of a schema file, numbered from 1: what a site has whose types are defined at run time.
pub fn object_classes(count: u64) -> String {
    let mut text = String::new();
    for number in 1..=count {
        // Writing into a string does not fail.
        let _ = writeln!(text, "objectclass {}", object_class(number));
    }
    text
}

/// One definition; its OID is below an arc that was given out for examples (RFC 5612).
pub(crate) fn object_class(number: u64) -> String {
    format!(
        "( 1.3.6.1.4.1.32473.7.{number} NAME 'gridType{number}' DESC 'entry type {number}' SUP top STRUCTURAL \
         MUST cn MAY ( description $ l $ serialNumber ) )"
    )
}

/// Replaces a text in every line that is written.
struct Replace<'a, W> {
    from: &'a str,
    to: &'a str,
    line: Vec<u8>,
    out: W,
}

impl<W: Write> Replace<'_, W> {
    fn finish(&mut self) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.line).replace(self.from, self.to);
        // The suffix entry names itself by its label alone.
        let label = |suffix: &str| suffix.split(',').next().unwrap_or_default().replace("dc=", ": ");
        let text = text.replace(&label(self.from), &label(self.to));
        self.line.clear();
        self.out.write_all(text.as_bytes())
    }
}

impl<W: Write> Write for Replace<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.finish()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &Content) -> String {
        let mut out = Vec::new();
        content.write_ldif(1, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_content_has_its_suffix_and_its_leaves() {
        let suffix = "dc=db2,dc=com".to_owned();
        for (content, entries) in [
            (Content::Generated { kind: Kind::People, entries: 3 }, 3 + 3),
            (Content::Subscribers { suffix: suffix.clone(), entries: 3 }, 1 + 3),
            (Content::Files { suffix: suffix.clone(), entries: 3 }, 1 + 3),
            (Content::Suffix { suffix }, 1),
        ] {
            let text = text(&content);
            let groups =
                text.matches("dn: cn=").count() * usize::from(matches!(content, Content::Generated { .. }));
            assert_eq!(text.matches("\ndn: ").count() + 1 - groups, entries, "{content:?}\n{text}");
        }
    }

    #[test]
    fn subscribers_move_to_another_suffix_whole() {
        let text = text(&Content::Subscribers { suffix: "dc=db2,dc=com".into(), entries: 2 });
        assert!(text.starts_with("dn: dc=db2,dc=com\n"), "{text}");
        assert!(
            text.contains("\ndc: db2\n") && text.contains("\ndn: uid=000000002,dc=db2,dc=com\n"),
            "{text}"
        );
        assert!(!text.contains("subscribers"), "{text}");
    }
}

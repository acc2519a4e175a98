//! Names of principals as text (RFC 1964 section 2.1.1).

/// A principal's name, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Principal {
    pub(super) realm: Vec<u8>,
    /// What its password is salted with by default: the realm and the components (RFC 4120 section 4).
    pub(super) salt: Vec<u8>,
}

impl Principal {
    /// `None`: the text has no realm, or more than one.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (mut components, mut realm): (Vec<u8>, Option<Vec<u8>>) = (Vec::new(), None);
        let mut octets = text.iter().copied();
        while let Some(octet) = octets.next() {
            let octet = match octet {
                b'\\' => Some(match octets.next()? {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'b' => 8,
                    b'0' => 0,
                    other => other,
                }),
                b'@' if realm.is_some() => return None,
                b'@' => {
                    realm = Some(Vec::new());
                    None
                }
                b'/' if realm.is_none() => None,
                other => Some(other),
            };
            realm.as_mut().unwrap_or(&mut components).extend(octet);
        }
        let realm = realm.filter(|realm| !realm.is_empty())?;
        Some(Self { salt: [realm.as_slice(), &components].concat(), realm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        for (text, expected) in [
            ("ann@EXAMPLE.COM", Some(("EXAMPLE.COM", "EXAMPLE.COMann"))),
            ("ann/admin@EXAMPLE.COM", Some(("EXAMPLE.COM", "EXAMPLE.COMannadmin"))),
            (r"a\/b\@c\\\n@R/S", Some(("R/S", "R/Sa/b@c\\\n"))),
            ("ann", None),
            ("ann@", None),
            ("ann@A@B", None),
            (r"ann@A\", None),
        ] {
            let parsed = Principal::parse(text.as_bytes());
            let expected = expected.map(|(realm, salt): (&str, &str)| Principal {
                realm: realm.as_bytes().to_vec(),
                salt: salt.as_bytes().to_vec(),
            });
            assert_eq!(parsed, expected, "{text}");
        }
    }
}

//! How small parts of definitions and values are spelt.

/// Whether the value is `'0101'B` (RFC 4517 §3.3.2).
pub(crate) fn is_bit_string(value: &[u8]) -> bool {
    value
        .strip_prefix(b"'")
        .and_then(|rest| rest.strip_suffix(b"'B"))
        .is_some_and(|bits| bits.iter().all(|b| matches!(b, b'0' | b'1')))
}

/// A numeric OID or a descriptor (RFC 4512 §1.4).
pub(crate) fn is_oid(value: &[u8]) -> bool {
    is_numeric_oid(value) || is_descriptor(value)
}

/// Numbers without leading zeros with dots between them; one number alone is taken, as OpenLDAP takes it.
pub(crate) fn is_numeric_oid(value: &[u8]) -> bool {
    !value.is_empty()
        && value.split(|&b| b == b'.').all(|arc| match arc {
            [b'0'] => true,
            [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
            _ => false,
        })
}

/// keystring of RFC 4512 §1.4: a letter, then letters, digits and hyphens.
pub(crate) fn is_descriptor(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_alphabetic)
        && value.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-')
}

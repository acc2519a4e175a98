//! What every engine's store has: the number of the format, a name, and its tables.

use larix_store::TableKind;

use crate::error::OpenError;

/// The format that this version reads and writes.
pub const FORMAT: i64 = 1;
/// Longest name of a schema, in bytes.
pub const NAME_BYTES_MAX: usize = 40;

/// Whether a name can be a store's.
///
/// # Errors
/// One that is not [`crate::KvOptions::schema`].
pub fn check_name(name: &str) -> Result<(), OpenError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    if begins && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain) && !name.starts_with("pg_") {
        Ok(())
    } else {
        Err(OpenError::Schema { name: name.to_owned(), bytes_max: NAME_BYTES_MAX })
    }
}

pub(crate) fn kind(kind: TableKind) -> &'static str {
    match kind {
        TableKind::Integer => "integer",
        TableKind::Ordered => "ordered",
        TableKind::Postings => "postings",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_schemas() {
        for (name, good) in [
            ("larix", true),
            ("dc_example_com2", true),
            ("", false),
            ("2a", false),
            ("Larix", false),
            ("a;drop", false),
            ("a\"b", false),
            ("pg_x", false),
            (&"a".repeat(NAME_BYTES_MAX), true),
            (&"a".repeat(NAME_BYTES_MAX + 1), false),
        ] {
            assert_eq!(check_name(name).is_ok(), good, "{name}");
        }
    }
}

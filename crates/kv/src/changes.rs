//! The keys that a commit changed, as its row lists them: for each the table (1 byte), the key's length (2 bytes,
//! big-endian) and the key. A row without a list changed too many to list: anything may be different.

/// Keys of one commit: number of the table in the engine, and key.
pub(crate) type Keys = Vec<(u8, Box<[u8]>)>;

/// Longest list in bytes. A commit that changed more is listed as none, and empties the caches of other nodes.
pub(crate) const LIST_BYTES_MAX: usize = 16 << 10;

pub(crate) fn encode<'a>(keys: impl Iterator<Item = (u8, &'a [u8])>) -> Option<Vec<u8>> {
    let mut list = Vec::new();
    for (table, key) in keys {
        let length = u16::try_from(key.len()).ok()?;
        if list.len() + 3 + key.len() > LIST_BYTES_MAX {
            return None;
        }
        list.push(table);
        list.extend_from_slice(&length.to_be_bytes());
        list.extend_from_slice(key);
    }
    Some(list)
}

/// `None` if it is no such list.
pub(crate) fn decode(mut list: &[u8]) -> Option<Keys> {
    let mut keys = Keys::new();
    while let Some((table, rest)) = list.split_first() {
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        keys.push((*table, key.into()));
        list = rest;
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_and_garbage_does_not() {
        let keys: [(u8, &[u8]); 3] = [(1, b"a"), (1, b""), (63, &[7; 511])];
        let list = encode(keys.into_iter()).expect("it fits");
        let back = decode(&list).expect("a list");
        assert!(back.iter().map(|(table, key)| (*table, &**key)).eq(keys));
        for cut in 1..list.len() {
            if ![4, 7].contains(&cut) {
                assert_eq!(decode(&list[..cut]), None, "{cut}");
            }
        }
        assert_eq!(decode(b""), Some(Vec::new()));
        assert_eq!(encode(std::iter::repeat_n((1, &[0; 500][..]), 40)), None);
    }
}

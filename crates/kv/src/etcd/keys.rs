//! Where everything lies in etcd. A store has a prefix of its own, and below it:
//!
//! | | |
//! |---|---|
//! | `format` | the number of the format, as text |
//! | `tables` | a line for each table: number, kind, name |
//! | `h/version`, `h/epoch`, `h/attempt` | the newest commit, its epoch, and what made it |
//! | `h/pending` | a large commit that was decided and is being carried out; else nothing |
//! | `c/` and a number | a commit: epoch, attempt, the keys that it changed |
//! | `r/`, the number of a table, and a key | a row |
//! | `s/`, an attempt, and a number | a part of a large commit; with `reached`, how many of its parts were carried out |
//! | `lease`, `kept` | who tries to be the writer, and who may not for now |
//! | `n/`, `p/`, `m/` | nodes that are connected; what each says of itself; messages between them |

use crate::error::Fault;

#[derive(Clone, Debug)]
pub(super) struct Keys(Vec<u8>);

impl Keys {
    pub(super) fn new(prefix: &str, schema: &str) -> Self {
        Self(format!("{prefix}/{schema}/").into_bytes())
    }

    fn named(&self, name: &[u8]) -> Vec<u8> {
        [&*self.0, name].concat()
    }

    pub(super) fn format(&self) -> Vec<u8> {
        self.named(b"format")
    }

    pub(super) fn tables(&self) -> Vec<u8> {
        self.named(b"tables")
    }

    pub(super) fn version(&self) -> Vec<u8> {
        self.named(b"h/version")
    }

    pub(super) fn epoch(&self) -> Vec<u8> {
        self.named(b"h/epoch")
    }

    pub(super) fn attempt(&self) -> Vec<u8> {
        self.named(b"h/attempt")
    }

    pub(super) fn pending(&self) -> Vec<u8> {
        self.named(b"h/pending")
    }

    /// All of the head.
    pub(super) fn head(&self) -> (Vec<u8>, Vec<u8>) {
        below(self.named(b"h/"))
    }

    pub(super) fn commit(&self, version: u64) -> Vec<u8> {
        [&*self.named(b"c/"), &version.to_be_bytes()].concat()
    }

    /// Commits from one on, up to before another one.
    pub(super) fn commits(&self, from: u64, to: u64) -> (Vec<u8>, Vec<u8>) {
        (self.commit(from), self.commit(to))
    }

    /// The number in the key of a commit.
    pub(super) fn commit_of(&self, key: &[u8]) -> Result<u64, Fault> {
        let number = key.strip_prefix(&*self.named(b"c/")).and_then(|number| number.try_into().ok());
        number.map(u64::from_be_bytes).ok_or_else(|| Fault::Lie("a commit without a number".to_owned()))
    }

    pub(super) fn row(&self, table: u8, key: &[u8]) -> Vec<u8> {
        [&*self.named(b"r/"), &[table], key].concat()
    }

    pub(super) fn table(&self, table: u8) -> (Vec<u8>, Vec<u8>) {
        below(self.row(table, &[]))
    }

    /// The key in a row's.
    pub(super) fn row_of(&self, mut key: Vec<u8>) -> Result<Vec<u8>, Fault> {
        const TABLE_BYTES: usize = 3;
        let front = self.0.len() + TABLE_BYTES;
        if key.len() < front {
            return Err(Fault::Lie("a row without a table".to_owned()));
        }
        Ok(key.split_off(front))
    }

    pub(super) fn part(&self, attempt: &[u8], number: u32) -> Vec<u8> {
        [&*self.named(b"s/"), attempt, b"/", &number.to_be_bytes()].concat()
    }

    pub(super) fn parts(&self, attempt: &[u8]) -> (Vec<u8>, Vec<u8>) {
        below([&*self.named(b"s/"), attempt, b"/"].concat())
    }

    /// How many parts of a large commit were carried out.
    pub(super) fn reached(&self, attempt: &[u8]) -> Vec<u8> {
        [&*self.named(b"s/"), attempt, b"/reached"].concat()
    }

    /// Parts of all large commits.
    pub(super) fn all_parts(&self) -> (Vec<u8>, Vec<u8>) {
        below(self.named(b"s/"))
    }

    pub(super) fn lease(&self) -> Vec<u8> {
        self.named(b"lease")
    }

    pub(super) fn kept(&self) -> Vec<u8> {
        self.named(b"kept")
    }

    pub(super) fn node(&self, lease: i64) -> Vec<u8> {
        self.named(format!("n/{lease:016x}").as_bytes())
    }

    pub(super) fn nodes(&self) -> (Vec<u8>, Vec<u8>) {
        below(self.named(b"n/"))
    }

    /// What a node says of itself.
    pub(super) fn words(&self, lease: i64) -> Vec<u8> {
        self.named(format!("p/{lease:016x}").as_bytes())
    }

    pub(super) fn all_words(&self) -> (Vec<u8>, Vec<u8>) {
        below(self.named(b"p/"))
    }

    pub(super) fn messages(&self) -> (Vec<u8>, Vec<u8>) {
        below(self.named(b"m/"))
    }

    /// Where messages for a node lie; none: for the one that writes.
    pub(super) fn mailbox(&self, node: Option<&[u8]>) -> Vec<u8> {
        match node {
            None => self.named(b"m/L"),
            Some(node) => [&*self.named(b"m/N"), node].concat(),
        }
    }
}

/// A prefix, and the first key behind all that begin with it.
pub(super) fn below(prefix: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.clone();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    (prefix, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_begins_alike() {
        for (prefix, end) in [(&b"a/"[..], &b"a0"[..]), (b"a\xff\xff", b"b"), (b"a\xfe", b"a\xff")] {
            assert_eq!(below(prefix.to_vec()), (prefix.to_vec(), end.to_vec()));
        }
        let keys = Keys::new("/larix", "s");
        assert_eq!(keys.row_of(keys.row(255, b"abc")).expect("a row"), b"abc");
        assert_eq!(keys.commit_of(&keys.commit(7)).expect("a commit"), 7);
        assert!(keys.row_of(b"short".to_vec()).is_err() && keys.commit_of(b"short").is_err());
    }
}

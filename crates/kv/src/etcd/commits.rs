//! Commits: a transaction that etcd carries out only if the head is what the writer knows.
//!
//! One that is larger than a transaction may be is first laid beside the rows, in parts. Then one transaction decides it: it writes
//! `h/pending`. From then on it is carried out, by its writer or by the node that finds it; each step is carried out only while
//! `h/pending` is there, and can be repeated. The last one makes it the newest commit and takes `h/pending` away. Until then
//! readers see the revision in which it was decided, which has none of it.

use std::sync::Arc;

use super::Shared;
use super::keys::Keys;
use super::wire::{Condition, KeyValue, Op, Txn, TxnResponse};
use crate::changes;
use crate::engine::{CommitPresence, Proposal, StoredCommit};
use crate::error::Fault;

/// How often a step is tried again if another node's commit comes first.
const TRIES: usize = 16;
/// Transactions of one large commit that are under way at once.
const AT_ONCE: usize = 8;

/// Where the store stands.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) version: u64,
    pub(super) epoch: u64,
    attempt: Vec<u8>,
    pub(super) pending: Option<(Pending, KeyValue)>,
}

impl Head {
    pub(super) fn read(keys: &Keys, found: Vec<KeyValue>) -> Result<Self, Fault> {
        let take = |key: Vec<u8>| found.iter().find(|found| found.key == key);
        let number = |key: Vec<u8>, name: &str| {
            let value = take(key).map(|found| &*found.value);
            let lacks = || Fault::Lie(format!("{name} is not there"));
            let number = <[u8; 8]>::try_from(value.ok_or_else(lacks)?);
            number.map(u64::from_be_bytes).map_err(|_| Fault::Lie(format!("{name} is no number")))
        };
        let pending = match take(keys.pending()) {
            None => None,
            Some(found) => Some((Pending::decode(&found.value)?, found.clone())),
        };
        Ok(Self {
            version: number(keys.version(), "h/version")?,
            epoch: number(keys.epoch(), "h/epoch")?,
            attempt: take(keys.attempt()).map(|found| found.value.clone()).unwrap_or_default(),
            pending,
        })
    }

    /// The newest commit, without the keys that it changed.
    pub(super) fn newest(&self) -> StoredCommit {
        StoredCommit { version: self.version, keys: None, epoch: self.epoch, attempt: self.attempt.clone() }
    }
}

/// A large commit that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    version: u64,
    epoch: u64,
    attempt: Vec<u8>,
    keys: Option<Vec<u8>>,
    parts: u32,
    /// Tables to be emptied before, unless that was done.
    clears: Vec<u8>,
    trimmed: u64,
}

impl Pending {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.trimmed.to_be_bytes());
        out.extend_from_slice(&self.parts.to_be_bytes());
        out.push(u8::try_from(self.clears.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(&self.clears);
        out.extend_from_slice(&record(self.epoch, &self.attempt, self.keys.as_deref()));
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let read = || {
            let (version, rest) = bytes.split_first_chunk::<8>()?;
            let (trimmed, rest) = rest.split_first_chunk::<8>()?;
            let (parts, rest) = rest.split_first_chunk::<4>()?;
            let (count, rest) = rest.split_first()?;
            let (clears, rest) = rest.split_at_checked(usize::from(*count))?;
            let (epoch, attempt, keys) = read_record(rest)?;
            Some(Self {
                version: u64::from_be_bytes(*version),
                epoch,
                attempt: attempt.to_vec(),
                keys: keys.map(<[u8]>::to_vec),
                parts: u32::from_be_bytes(*parts),
                clears: clears.to_vec(),
                trimmed: u64::from_be_bytes(*trimmed),
            })
        };
        read().ok_or_else(|| Fault::Lie("h/pending cannot be read".to_owned()))
    }
}

/// A commit as its key holds it.
pub(super) fn record(epoch: u64, attempt: &[u8], keys: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&epoch.to_be_bytes());
    out.push(u8::try_from(attempt.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(attempt);
    out.push(u8::from(keys.is_some()));
    out.extend_from_slice(keys.unwrap_or_default());
    out
}

type Record<'a> = (u64, &'a [u8], Option<&'a [u8]>);

fn read_record(bytes: &[u8]) -> Option<Record<'_>> {
    let (epoch, rest) = bytes.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first()?;
    let (attempt, rest) = rest.split_at_checked(usize::from(*length))?;
    let (listed, keys) = rest.split_first()?;
    Some((u64::from_be_bytes(*epoch), attempt, (*listed != 0).then_some(keys)))
}

/// A commit out of its key.
pub(super) fn stored(version: u64, value: &[u8]) -> Result<StoredCommit, Fault> {
    let (epoch, attempt, keys) =
        read_record(value).ok_or_else(|| Fault::Lie(format!("commit {version} cannot be read")))?;
    let lie = || Fault::Lie(format!("the list of keys of commit {version} cannot be read"));
    let keys = keys.map(|list| changes::decode(list).ok_or_else(lie)).transpose()?;
    Ok(StoredCommit { version, keys, epoch, attempt: attempt.to_vec() })
}

/// A row as a part of a large commit has it: whether there is a value, table, key, value.
fn part_of_row(out: &mut Vec<u8>, table: u8, key: &[u8], value: Option<&[u8]>) {
    out.push(u8::from(value.is_some()));
    out.push(table);
    for bytes in [key, value.unwrap_or_default()] {
        out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(bytes);
    }
}

fn rows_of_part(keys: &Keys, mut part: &[u8]) -> Option<Vec<Op>> {
    fn take<'a>(part: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = part.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        *part = rest;
        Some(bytes)
    }
    let mut ops = Vec::new();
    while let Some(([is_there, table], rest)) = part.split_first_chunk::<2>() {
        part = rest;
        let row = keys.row(*table, take(&mut part)?);
        let value = take(&mut part)?;
        ops.push(if *is_there == 0 { Op::delete(row) } else { Op::put(row, value) });
    }
    part.is_empty().then_some(ops)
}

/// How many parts of a large commit are noted as carried out. More may be: carrying one out again changes nothing.
fn reached_of(outcome: TxnResponse) -> u32 {
    let found = outcome.done.into_iter().next().map(|done| done.found()).unwrap_or_default();
    let number = found.first().and_then(|found| <[u8; 4]>::try_from(&*found.value).ok());
    number.map_or(0, u32::from_be_bytes)
}

/// What a commit changes, as it is sent, and what it empties before.
pub(super) struct Change {
    pub(super) proposal: Proposal,
    pub(super) clears: Vec<u8>,
}

impl Shared {
    pub(super) async fn head(&self) -> Result<Head, Fault> {
        let outcome = self.client.txn(&Txn::of(vec![Op::all(self.keys.head())])).await?;
        self.head_of(outcome)
    }

    fn head_of(&self, outcome: TxnResponse) -> Result<Head, Fault> {
        Head::read(&self.keys, outcome.done.into_iter().next().map(|done| done.found()).unwrap_or_default())
    }

    /// That nobody has committed behind a version, nor taken over from an epoch.
    fn fence(&self, version: u64, epoch: u64) -> Vec<(Vec<u8>, Condition)> {
        vec![
            (self.keys.version(), Condition::Value(version.to_be_bytes().to_vec())),
            (self.keys.epoch(), Condition::ValueBelow(epoch.saturating_add(1).to_be_bytes().to_vec())),
            (self.keys.pending(), Condition::Absent),
        ]
    }

    /// The same, and that the commit behind which a proposal comes is the one that its writer knows.
    fn fence_of(&self, proposal: &Proposal) -> Vec<(Vec<u8>, Condition)> {
        let mut conditions = self.fence(proposal.version, proposal.epoch);
        conditions.extend(proposal.continues.as_ref().map(|made_by| {
            // A new store has none.
            let test = if made_by.is_empty() { Condition::Absent } else { Condition::Value(made_by.clone()) };
            (self.keys.attempt(), test)
        }));
        conditions
    }

    /// What makes a commit the newest.
    fn advance(&self, version: u64, epoch: u64, attempt: &[u8], keys: Option<&[u8]>) -> Vec<Op> {
        vec![
            Op::put(self.keys.version(), version.to_be_bytes()),
            Op::put(self.keys.attempt(), attempt),
            Op::put(self.keys.commit(version), record(epoch, attempt, keys)),
        ]
    }

    /// What makes a large commit the newest once its rows are there, and takes away what was laid beside them.
    fn conclusion(&self, pending: &Pending) -> Vec<Op> {
        let Pending { version, epoch, attempt, keys, trimmed, .. } = pending;
        let mut ops = self.advance(*version, *epoch, attempt, keys.as_deref());
        let (key, end) = self.keys.parts(attempt);
        ops.extend([Op::delete(self.keys.pending()), Op::Delete { key, end }]);
        ops.extend(self.trim(*trimmed));
        ops
    }

    fn trim(&self, below: u64) -> Option<Op> {
        let (key, end) = self.keys.commits(0, below);
        (below > 0).then_some(Op::Delete { key, end })
    }

    /// Whether a commit was let in.
    pub(super) async fn commit(&self, change: Change) -> Result<bool, Fault> {
        let Change { proposal, clears } = &change;
        let Proposal { version, epoch, attempt, keys, .. } = proposal;
        let mut ops = self.advance(version + 1, *epoch, attempt, keys.as_deref());
        ops.extend(self.trim(proposal.trimmed));
        let rows = proposal.puts.len() + proposal.deletes.len();
        let room = self.request_bytes.saturating_sub(ops.iter().map(Op::size).sum());
        let bytes = |key: &[u8], value: usize| self.keys.row(0, key).len() + value + 32;
        let size: usize =
            proposal.puts.iter().map(|((_, key), value)| bytes(key, value.len())).sum::<usize>()
                + proposal.deletes.iter().map(|(_, key)| bytes(key, 0)).sum::<usize>();
        if !clears.is_empty() || ops.len() + rows > self.txn_ops || size > room {
            return self.commit_in_parts(&change).await;
        }
        let puts =
            proposal.puts.iter().map(|((table, key), value)| Op::put(self.keys.row(*table, key), &**value));
        let deletes = proposal.deletes.iter().map(|(table, key)| Op::delete(self.keys.row(*table, key)));
        ops.extend(puts.chain(deletes));
        let outcome = self.decide(proposal, ops).await?;
        if outcome.succeeded { Ok(true) } else { self.refused(*version, *epoch, outcome).await }
    }

    /// Carries operations out if nobody has committed or taken over since the commit that a proposal's writer knows. If somebody has, the
    /// outcome has the head.
    async fn decide(&self, proposal: &Proposal, success: Vec<Op>) -> Result<TxnResponse, Fault> {
        self.client.trip();
        let (conditions, failure) = (self.fence_of(proposal), vec![Op::all(self.keys.head())]);
        self.client.txn(&Txn { conditions, success, failure }).await
    }

    /// Why a commit was not let in.
    async fn refused(&self, version: u64, epoch: u64, outcome: TxnResponse) -> Result<bool, Fault> {
        let head = self.head_of(outcome)?;
        if let Some((pending, found)) = head.pending {
            self.carry_out(pending, &found).await?;
        } else if head.version == version && head.epoch > epoch {
            return Ok(false);
        }
        Err(Fault::Conflict)
    }

    async fn commit_in_parts(&self, change: &Change) -> Result<bool, Fault> {
        let Change { proposal, clears } = change;
        let Proposal { version, epoch, attempt, .. } = proposal;
        let mut parts = vec![Vec::new()];
        let mut push = |table: u8, key: &[u8], value: Option<&[u8]>| {
            let mut row = Vec::new();
            part_of_row(&mut row, table, key, value);
            match parts.last_mut() {
                Some(part) if part.is_empty() || part.len() + row.len() <= self.part_bytes() => {
                    part.extend(row)
                }
                _ => parts.push(row),
            }
        };
        proposal.puts.iter().for_each(|((table, key), value)| push(*table, key, Some(value)));
        proposal.deletes.iter().for_each(|(table, key)| push(*table, key, None));
        let pending = Pending {
            version: version + 1,
            epoch: *epoch,
            attempt: attempt.clone(),
            keys: proposal.keys.clone(),
            parts: u32::try_from(parts.len()).unwrap_or(u32::MAX),
            clears: clears.clone(),
            trimmed: proposal.trimmed,
        };
        let decision = Op::put(self.keys.pending(), pending.encode());
        // With one part, as most have it, nothing has to be read back.
        let own = match parts.as_slice() {
            [only] if clears.is_empty() => rows_of_part(&self.keys, only),
            _ => None,
        };
        let mut puts: Vec<Op> =
            (0..).zip(parts).map(|(number, part)| Op::put(self.keys.part(attempt, number), part)).collect();
        // The last part goes with the decision if there is room.
        let with_decision = match puts.pop() {
            Some(last) if last.size() + decision.size() <= self.request_bytes => vec![last, decision],
            last => {
                puts.extend(last);
                vec![decision]
            }
        };
        if !puts.is_empty() {
            self.client.trip();
            self.all(puts.into_iter().map(|put| Txn::of(vec![put])).collect()).await?;
        }
        let outcome = self.decide(proposal, with_decision).await?;
        if !outcome.succeeded {
            let (key, end) = self.keys.parts(attempt);
            self.client.txn(&Txn::of(vec![Op::Delete { key, end }])).await?;
            return self.refused(*version, *epoch, outcome).await;
        }
        let found = KeyValue { changed: outcome.revision, ..KeyValue::default() };
        // It is decided: whatever goes wrong from here on, it may be made.
        let carried_out = match own {
            Some(rows) => self.carry_out_own(&pending, outcome.revision, rows).await,
            None => self.carry_out(pending, &found).await,
        };
        carried_out.map_err(|fault| Fault::Connection {
            why: format!("a large commit was not carried out to its end: {}", fault.into_io()),
            tls: None,
            was_sent: true,
        })?;
        Ok(true)
    }

    fn part_bytes(&self) -> usize {
        self.request_bytes - super::PART_ROOM
    }

    /// Several transactions, some at once; whether all succeeded.
    async fn all(&self, txns: Vec<Txn>) -> Result<bool, Fault> {
        let mut txns = txns.into_iter();
        let mut all = true;
        loop {
            let mut waiting = Vec::new();
            for txn in txns.by_ref().take(AT_ONCE) {
                let client = Arc::clone(&self.client);
                waiting.push(tokio::spawn(async move { client.txn(&txn).await }));
            }
            if waiting.is_empty() {
                return Ok(all);
            }
            for one in waiting {
                all &= one.await.map_err(|_| Fault::Ended)??.succeeded;
            }
        }
    }

    /// Carries a decided commit out to its end. `found`: the key `h/pending`. Others may do the same at the same time.
    pub(super) async fn carry_out(&self, pending: Pending, found: &KeyValue) -> Result<(), Fault> {
        let mut pending = pending;
        let mut revision = found.changed;
        self.client.trip();
        if !pending.clears.is_empty() {
            // Emptied once and no more: rows that are written behind it must stay.
            let clears = std::mem::take(&mut pending.clears).into_iter();
            let mut success: Vec<Op> = clears
                .map(|table| self.keys.table(table))
                .map(|(key, end)| Op::Delete { key, end })
                .collect();
            success.push(Op::put(self.keys.pending(), pending.encode()));
            let conditions = vec![(self.keys.pending(), Condition::Revision(revision))];
            let outcome = self.client.txn(&Txn { conditions, success, failure: Vec::new() }).await?;
            if !outcome.succeeded {
                return Box::pin(self.carry_on(&pending)).await;
            }
            revision = outcome.revision;
        }
        let conditions = || vec![(self.keys.pending(), Condition::Revision(revision))];
        // A deadline may have cut off another node that carried it out: its parts are not carried out again.
        let reached = self.client.txn(&Txn::of(vec![Op::get(self.keys.reached(&pending.attempt))])).await?;
        for number in reached_of(reached)..pending.parts {
            let success = vec![
                Op::put(self.keys.reached(&pending.attempt), number.to_be_bytes()),
                Op::get(self.keys.part(&pending.attempt, number)),
            ];
            let outcome =
                self.client.txn(&Txn { conditions: conditions(), success, failure: Vec::new() }).await?;
            if !outcome.succeeded {
                return Box::pin(self.carry_on(&pending)).await;
            }
            let part = outcome.done.into_iter().nth(1).map(|done| done.found()).unwrap_or_default();
            let rows = part.first().and_then(|part| rows_of_part(&self.keys, &part.value));
            let rows = rows.ok_or_else(|| {
                Fault::Lie(format!("part {number} of the commit {} cannot be read", pending.version))
            })?;
            let txns = self.grouped(rows).into_iter();
            let txns =
                txns.map(|success| Txn { conditions: conditions(), success, failure: Vec::new() }).collect();
            if !self.all(txns).await? {
                return Box::pin(self.carry_on(&pending)).await;
            }
        }
        let success = self.conclusion(&pending);
        let outcome =
            self.client.txn(&Txn { conditions: conditions(), success, failure: Vec::new() }).await?;
        if outcome.succeeded { Ok(()) } else { Box::pin(self.carry_on(&pending)).await }
    }

    /// The same at the node that has just decided it in this revision and has its rows still: the others at once, and the last of them with
    /// what makes it the newest commit.
    async fn carry_out_own(&self, pending: &Pending, revision: i64, rows: Vec<Op>) -> Result<(), Fault> {
        let conditions = || vec![(self.keys.pending(), Condition::Revision(revision))];
        let mut success = self.conclusion(pending);
        let size = |ops: &[Op]| ops.iter().map(Op::size).sum::<usize>();
        let mut groups = self.grouped(rows);
        if groups.last().is_some_and(|last| {
            last.len() + success.len() <= self.txn_ops && size(last) + size(&success) <= self.request_bytes
        }) {
            success.extend(groups.pop().unwrap_or_default());
        }
        let txns = groups.into_iter();
        let txns: Vec<Txn> =
            txns.map(|success| Txn { conditions: conditions(), success, failure: Vec::new() }).collect();
        if !txns.is_empty() {
            self.client.trip();
            if !self.all(txns).await? {
                return self.carry_on(pending).await;
            }
        }
        self.client.trip();
        let outcome =
            self.client.txn(&Txn { conditions: conditions(), success, failure: Vec::new() }).await?;
        if outcome.succeeded { Ok(()) } else { self.carry_on(pending).await }
    }

    /// Somebody else carries the same commit out: goes on from where that has come, or finds it done.
    async fn carry_on(&self, ours: &Pending) -> Result<(), Fault> {
        let head = self.head().await?;
        match head.pending {
            Some((pending, found)) if pending.attempt == ours.attempt => {
                self.carry_out(pending, &found).await
            }
            _ => Ok(()),
        }
    }

    /// Operations in as many transactions as they take.
    fn grouped(&self, ops: Vec<Op>) -> Vec<Vec<Op>> {
        let mut groups: Vec<Vec<Op>> = Vec::new();
        let mut bytes = 0;
        for op in ops {
            bytes += op.size();
            match groups.last_mut() {
                Some(group) if group.len() < self.txn_ops && bytes <= self.request_bytes => group.push(op),
                _ => {
                    bytes = op.size();
                    groups.push(vec![op]);
                }
            }
        }
        groups
    }

    /// The head, once no large commit is being carried out.
    pub(super) async fn settled_head(&self) -> Result<Head, Fault> {
        for _ in 0..TRIES {
            let head = self.head().await?;
            match head.pending {
                Some((pending, found)) => self.carry_out(pending, &found).await?,
                None => return Ok(head),
            }
        }
        Err(Fault::Conflict)
    }

    pub(super) async fn take_over(&self, attempt: &[u8]) -> Result<u64, Fault> {
        self.client.trip();
        let head = self.settled_head().await?;
        let (version, epoch) = (head.version + 1, head.epoch + 1);
        let mut success = self.advance(version, epoch, attempt, Some(&[]));
        success.push(Op::put(self.keys.epoch(), epoch.to_be_bytes()));
        // Parts of commits that were not decided, and now never will be.
        let (key, end) = self.keys.all_parts();
        success.push(Op::Delete { key, end });
        let txn = Txn { conditions: self.fence(head.version, head.epoch), success, failure: Vec::new() };
        self.client.trip();
        let outcome = self.client.txn(&txn).await?;
        if outcome.succeeded { Ok(epoch) } else { Err(Fault::Conflict) }
    }

    /// The head, and the key of a commit if it is there.
    async fn head_and_commit(&self, version: u64) -> Result<(Head, Option<KeyValue>), Fault> {
        self.client.trip();
        let operations = vec![Op::all(self.keys.head()), Op::get(self.keys.commit(version))];
        let mut done = self.client.txn(&Txn::of(operations)).await?.done.into_iter();
        let mut next = || done.next().map(|done| done.found()).unwrap_or_default();
        Ok((Head::read(&self.keys, next())?, next().into_iter().next()))
    }

    /// What there is of a commit that was acknowledged.
    pub(super) async fn holds(&self, version: u64, attempt: &[u8]) -> Result<CommitPresence, Fault> {
        let (head, commit) = self.head_and_commit(version).await?;
        Ok(match commit {
            Some(found) if stored(version, &found.value)?.attempt == attempt => CommitPresence::Present,
            Some(_) => CommitPresence::Replaced,
            None => CommitPresence::Absent { newest: head.version },
        })
    }

    /// Whether `version` was made by `attempt`; makes it `void`'s if nobody has.
    pub(super) async fn settle(&self, version: u64, attempt: &[u8], void: &[u8]) -> Result<bool, Fault> {
        for _ in 0..TRIES {
            let (head, commit) = self.head_and_commit(version).await?;
            if let Some(found) = commit {
                return Ok(stored(version, &found.value)?.attempt == attempt);
            }
            if let Some((pending, found)) = head.pending {
                self.carry_out(pending, &found).await?;
                continue;
            }
            if head.version + 1 != version {
                return Err(Fault::Lie(format!("commit {version} is not there")));
            }
            let success = self.advance(version, head.epoch, void, Some(&[]));
            let txn = Txn { conditions: self.fence(head.version, head.epoch), success, failure: Vec::new() };
            if self.client.txn(&txn).await?.succeeded {
                return Ok(false);
            }
        }
        Err(Fault::Conflict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_garbage_is_not() {
        let pending = Pending {
            version: 7,
            epoch: 3,
            attempt: vec![9; 16],
            keys: Some(vec![1, 2]),
            parts: 4,
            clears: vec![0, 5],
            trimmed: 2,
        };
        let bytes = pending.encode();
        assert_eq!(Pending::decode(&bytes).expect("it"), pending);
        for cut in 0..30 {
            assert!(Pending::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        for keys in [None, Some(&[][..]), Some(&[1, 0, 1, 7])] {
            let commit = stored(5, &record(2, b"who", keys)).expect("a commit");
            assert_eq!((commit.version, commit.epoch, &*commit.attempt), (5, 2, &b"who"[..]));
            assert_eq!(commit.keys.is_some(), keys.is_some());
        }
        assert!(stored(5, b"short").is_err());
        let keys = Keys::new("/p", "s");
        let mut part = Vec::new();
        part_of_row(&mut part, 1, b"key", Some(b"value"));
        part_of_row(&mut part, 2, b"gone", None);
        assert_eq!(rows_of_part(&keys, &part).expect("rows").len(), 2);
        for cut in 1..part.len() {
            let is_end_of_row = cut == 18;
            assert_eq!(rows_of_part(&keys, &part[..cut]).is_some(), is_end_of_row, "{cut}");
        }
    }
}

//! Reading: the state at one revision of etcd.

use std::sync::Arc;

use super::commits::{Head, stored};
use super::wire::{Op, OpResponse, Range, Txn};
use super::{Etcd, Shared};
use crate::engine::{
    ANSWER_BYTES_MAX, Answer, COMMITS_LISTED_MAX, EngineSnapshot, FIRSTS, NewCommits, OpenedSnapshot,
    Question,
};
use crate::error::{Fault, Status};

/// One revision.
#[derive(Debug)]
pub(super) struct AtRevision<'e> {
    etcd: &'e Etcd,
    revision: i64,
}

impl EngineSnapshot for AtRevision<'_> {
    fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Vec<Answer>>, Fault> {
        let (shared, revision) = (Arc::clone(&self.etcd.shared), self.revision);
        self.etcd.run(async move { shared.answers(&questions, revision).await })
    }

    fn leave(self: Box<Self>) {
        self.etcd.shared.client.move_on();
    }
}

/// Which question an operation belongs to, and which of its keys or ranges it asks for.
type KeyOfQuestion = (usize, usize);

impl Etcd {
    pub(super) fn begin_at(&self, known: u64, questions: Vec<Question>) -> Result<OpenedSnapshot<'_>, Fault> {
        let shared = Arc::clone(&self.shared);
        let (revision, new_commits, answers) =
            self.run(async move { shared.begin(known, &questions).await })?;
        Ok((Box::new(AtRevision { etcd: self, revision }), new_commits, answers))
    }
}

impl Shared {
    /// The newest commits from `known` on, and the first answers.
    async fn begin(
        &self,
        known: u64,
        questions: &[Question],
    ) -> Result<(i64, NewCommits, Vec<Vec<Answer>>), Fault> {
        const OF_HEAD: usize = 2;
        let (from, to) = self.keys.commits(known, known.saturating_add(COMMITS_LISTED_MAX + 1));
        let mut ops = vec![Op::all(self.keys.head()), Op::all((from, to))];
        let (own, places) = self.ops(questions, 0);
        let fits = own.len() + OF_HEAD <= self.txn_ops;
        if fits {
            ops.extend(own);
        }
        self.client.trip();
        let outcome = self.client.txn(&Txn::of(ops)).await?;
        let mut done = outcome.done.into_iter();
        let mut next = || done.next().map(OpResponse::found).unwrap_or_default();
        let head = Head::read(&self.keys, next())?;
        let commits = next();
        let new_commits = if head.version < known {
            NewCommits::Listed(Vec::new())
        } else if head.version - known > COMMITS_LISTED_MAX {
            let oldest = match commits.first() {
                Some(found) => {
                    let number = self.keys.commit_of(&found.key)?;
                    Some(stored(number, &found.value)?).filter(|oldest| oldest.version == known)
                }
                None => None,
            };
            NewCommits::TooMany { newest: head.newest(), known: oldest.map(|oldest| oldest.attempt) }
        } else {
            let read = commits.iter().map(|found| stored(self.keys.commit_of(&found.key)?, &found.value));
            let mut new_commits = read.collect::<Result<Vec<_>, _>>()?;
            new_commits.reverse();
            NewCommits::Listed(new_commits)
        };
        // A large commit is being carried out: what it leaves alone so far is the state before it.
        if let Some((_, pending)) = &head.pending {
            let revision = pending.created;
            let answers = match questions {
                [] => Vec::new(),
                questions => self.answers(questions, revision).await?,
            };
            return Ok((revision, new_commits, answers));
        }
        let revision = outcome.revision;
        let answers = match fits {
            true => self.sorted(questions, &places, done.collect())?,
            false => self.answers(questions, revision).await?,
        };
        Ok((revision, new_commits, answers))
    }

    /// Answers as of a revision.
    async fn answers(&self, questions: &[Question], revision: i64) -> Result<Vec<Vec<Answer>>, Fault> {
        let (ops, places) = self.ops(questions, revision);
        self.client.trip();
        let done = self.in_parts(ops).await.map_err(|fault| match fault {
            // Compacted meanwhile: the reader begins again with what is newest.
            Fault::Etcd(Status { code: Status::OUT_OF_RANGE, .. }) => Fault::Stale,
            fault => fault,
        })?;
        self.sorted(questions, &places, done)
    }

    /// Questions in as many transactions as they take, all sent at once.
    async fn in_parts(&self, mut ops: Vec<Op>) -> Result<Vec<OpResponse>, Fault> {
        let mut parts = Vec::new();
        while !ops.is_empty() {
            let rest = ops.split_off(ops.len().min(self.txn_ops));
            parts.push(Txn::of(std::mem::replace(&mut ops, rest)));
        }
        let mut waiting = Vec::with_capacity(parts.len());
        for part in parts {
            let client = Arc::clone(&self.client);
            waiting.push(tokio::spawn(async move { client.txn(&part).await }));
        }
        let mut done = Vec::new();
        for part in waiting {
            done.extend(part.await.map_err(|_| Fault::Ended)??.done);
        }
        Ok(done)
    }

    fn ops(&self, questions: &[Question], revision: i64) -> (Vec<Op>, Vec<KeyOfQuestion>) {
        let (mut ops, mut places) = (Vec::new(), Vec::new());
        for (at, question) in questions.iter().enumerate() {
            let mut push = |place: usize, range: Range| {
                ops.push(Op::Range(Range { revision, ..range }));
                places.push((at, place));
            };
            let range = |table: u8, from: &[u8], to: &[u8], limit: u32, backward: bool| Range {
                key: self.keys.row(table, from),
                end: self.keys.row(table, to),
                limit,
                backward,
                ..Range::default()
            };
            match question {
                Question::Values { table, keys } => {
                    for (place, key) in keys.iter().enumerate() {
                        push(place, Range { key: self.keys.row(*table, key), ..Range::default() });
                    }
                }
                Question::Forward { table, from, to, limit } => {
                    push(0, range(*table, from, to, *limit, false));
                }
                Question::Backward { table, from, to, limit } => {
                    push(0, range(*table, from, to, *limit, true));
                }
                Question::Path { table, from, steps, .. } => {
                    let step = steps.first().map(Vec::as_slice).unwrap_or_default();
                    let key = self.keys.row(*table, &[from, step].concat());
                    push(0, Range { key, ..Range::default() });
                }
                Question::Firsts { table, ranges } => {
                    for (place, (from, to)) in ranges.iter().enumerate() {
                        push(place, range(*table, from, to, FIRSTS, false));
                    }
                }
                Question::Lasts { table, ranges } => {
                    for (place, (from, to)) in ranges.iter().enumerate() {
                        push(place, range(*table, from, to, 1, true));
                    }
                }
            }
        }
        (ops, places)
    }

    /// Answers by question. As the interface has it, they are cut off where they are long.
    fn sorted(
        &self,
        questions: &[Question],
        places: &[KeyOfQuestion],
        done: Vec<OpResponse>,
    ) -> Result<Vec<Vec<Answer>>, Fault> {
        if done.len() != places.len() {
            return Err(Fault::Lie("another number of answers than of questions".to_owned()));
        }
        let mut answers: Vec<Vec<Answer>> = questions.iter().map(|_| Vec::new()).collect();
        for ((question, place), done) in places.iter().zip(done) {
            let Some(own) = answers.get_mut(*question) else { continue };
            let is_scan = matches!(
                questions.get(*question),
                Some(Question::Forward { .. } | Question::Backward { .. })
            );
            let mut bytes = 0;
            for found in done.found() {
                if is_scan && bytes >= ANSWER_BYTES_MAX {
                    break;
                }
                bytes += found.value.len();
                let (key, value) = (self.keys.row_of(found.key)?, found.value);
                own.push(Answer { place: *place, key, value });
            }
        }
        Ok(answers)
    }
}

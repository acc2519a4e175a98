//! The workload as one thread sends it: which request comes next, and its bytes.

use std::collections::VecDeque;

use anyhow::{Context, bail, ensure};

use super::placeholder::{Numbers, Shapes, Variable};
use super::targets::{Draw, Sequence};
use super::workload::{Operation, Workload};
use super::{Order, Step};
use crate::generate::Random;

/// The most renamed or added entries that are remembered; older ones are forgotten.
const REMEMBERED_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Requests<'a> {
    steps: Vec<Prepared<'a>>,
    total_weight: u64,
    draw: Draw,
    sequence: Sequence,
    sequence_start: u64,
    sequence_end: u64,
    /// The first step that adds entries by `{s}`.
    adding: Option<usize>,
    /// The `{s}` of entries that were added and not yet taken.
    added: VecDeque<u64>,
}

#[derive(Debug)]
struct Prepared<'a> {
    step: &'a Step,
    codes: &'a [u32],
    shapes: Shapes,
    /// The way back of a rename, and the numbers of entries that are away.
    back: Option<(Operation, Shapes)>,
    away: VecDeque<Numbers>,
    uses: Uses,
}

/// Which placeholders a step has.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    number: bool,
    sequence: bool,
    added: bool,
}

/// Which request was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestSpec {
    pub(super) step: usize,
    pub(super) back: bool,
    pub(super) numbers: Numbers,
}

impl<'a> Requests<'a> {
    /// The requests of one of `threads` threads, counted from 0.
    pub(super) fn new(workload: &'a Workload, thread: u64, threads: u64) -> anyhow::Result<Self> {
        ensure!(workload.targets.count > 0, "the range of numbers is empty");
        if let Order::Zipf { exponent } = workload.targets.order {
            ensure!(
                exponent > 0.0 && exponent <= 10.0,
                "a Zipf exponent {exponent}: more than 0, at most 10"
            );
        }
        let with_weight = workload.steps.iter().filter(|step| step.weight > 0);
        let prepare = |step: &'a Step| Prepared::new(step).with_context(|| step.name.clone());
        let steps = with_weight.map(prepare).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!steps.is_empty(), "no operation has a weight");
        let adding = steps.iter().position(|prepared| prepared.adds());
        if let (None, Some(prepared)) = (adding, steps.iter().find(|prepared| prepared.uses.added)) {
            bail!("{}: {{added}} needs an add with {{s}} in the same workload", prepared.step.name);
        }
        Ok(Self {
            total_weight: steps.iter().map(|prepared| u64::from(prepared.step.weight)).sum(),
            steps,
            draw: Draw::new(workload.targets, Sequence::new(thread, threads)),
            sequence: Sequence::new(thread, threads),
            sequence_start: workload.sequence_start,
            sequence_end: workload.sequence_start,
            adding,
            added: VecDeque::new(),
        })
    }

    /// The steps that have a weight; [`RequestSpec::step`] counts them.
    pub(super) fn steps(&self) -> impl Iterator<Item = &'a Step> {
        self.steps.iter().map(|prepared| prepared.step)
    }

    pub(super) const fn sequence_end(&self) -> u64 {
        self.sequence_end
    }

    /// Whether a request of this step is a bind on a new connection.
    pub(super) fn reconnects(&self, step: usize) -> bool {
        let operation = self.steps.get(step).map(|prepared| &prepared.step.operation);
        matches!(operation, Some(Operation::Bind { reconnect: true, .. }))
    }

    /// Decides on the next request.
    #[inline]
    pub(super) fn next(&mut self, random: &mut Random) -> RequestSpec {
        let mut step = if self.steps.len() == 1 { 0 } else { self.choose(random) };
        let mut uses = self.steps.get(step).map_or_else(Uses::default, |prepared| prepared.uses);
        if let Some(numbers) = self.steps.get_mut(step).and_then(|prepared| prepared.away.pop_front()) {
            return RequestSpec { step, back: true, numbers };
        }
        let mut numbers = Numbers::default();
        if uses.added {
            match (self.added.pop_front(), self.adding) {
                (Some(added), _) => numbers.added = added,
                (None, Some(adding)) => {
                    step = adding;
                    uses = self.steps.get(adding).map_or_else(Uses::default, |prepared| prepared.uses);
                }
                (None, None) => {}
            }
        }
        if uses.number {
            let sequential = self.steps.get(step).is_some_and(|prepared| prepared.back.is_some());
            numbers.number = if sequential { self.draw.sequential() } else { self.draw.number(random) };
        }
        if uses.sequence {
            numbers.sequence = self.sequence_start + 1 + self.sequence.next();
            self.sequence_end = numbers.sequence;
        }
        RequestSpec { step, back: false, numbers }
    }

    /// The way back of a rename that has none yet.
    pub(super) fn next_back(&mut self) -> Option<RequestSpec> {
        self.steps.iter_mut().enumerate().find_map(|(step, prepared)| {
            let numbers = prepared.away.pop_front()?;
            Some(RequestSpec { step, back: true, numbers })
        })
    }

    fn choose(&self, random: &mut Random) -> usize {
        let mut draw = random.below(self.total_weight);
        for (index, prepared) in self.steps.iter().enumerate() {
            let weight = u64::from(prepared.step.weight);
            if draw < weight {
                return index;
            }
            draw -= weight;
        }
        0
    }

    /// Appends the bytes of a request.
    ///
    /// # Errors
    /// What the encoder says; the templates were read before.
    #[inline]
    pub(super) fn append(
        &mut self,
        spec: &RequestSpec,
        id: u32,
        random: &mut Random,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let Some(prepared) = self.steps.get_mut(spec.step) else { return Ok(()) };
        match (spec.back, &mut prepared.back) {
            (true, Some((operation, shapes))) => shapes.append(operation, id, &spec.numbers, random, out),
            _ => prepared.shapes.append(&prepared.step.operation, id, &spec.numbers, random, out),
        }
    }

    /// Whether `code` is what the step expects; remembers what it brought about.
    #[inline]
    pub(super) fn answered(&mut self, spec: &RequestSpec, code: u32) -> bool {
        let Some(prepared) = self.steps.get_mut(spec.step) else { return false };
        if code == 0 && !spec.back && prepared.back.is_some() && prepared.away.len() < REMEMBERED_MAX {
            prepared.away.push_back(spec.numbers);
        } else if code == 0 && self.adding == Some(spec.step) && self.added.len() < REMEMBERED_MAX {
            self.added.push_back(spec.numbers.sequence);
        }
        prepared.codes.contains(&code)
    }
}

impl<'a> Prepared<'a> {
    fn new(step: &'a Step) -> anyhow::Result<Self> {
        let shapes = Shapes::new(&step.operation)?;
        let back = match step.operation.back()? {
            Some(operation) => {
                let shapes = Shapes::new(&operation)?;
                Some((operation, shapes))
            }
            None => None,
        };
        let has = |is_kind: fn(&Variable) -> bool| shapes.variables.iter().any(is_kind);
        let uses = Uses {
            number: has(|variable| matches!(variable, Variable::Number(_))),
            sequence: has(|variable| matches!(variable, Variable::Sequence(_))),
            added: has(|variable| matches!(variable, Variable::Added(_))),
        };
        let codes = match step.expect.codes.as_slice() {
            [] => step.operation.success_codes(),
            codes => codes,
        };
        if back.is_some() && has(|variable| matches!(variable, Variable::Random(..))) {
            bail!("a rename with random characters cannot be renamed back: use {{n}} or {{s}}");
        }
        Ok(Self { step, codes, shapes, back, away: VecDeque::new(), uses })
    }

    const fn adds(&self) -> bool {
        matches!(self.step.operation, Operation::Add { .. }) && self.uses.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(workload: &Workload, count: usize, code: u32) -> Vec<String> {
        let mut requests = Requests::new(workload, 0, 1).unwrap();
        let mut random = Random::new(1);
        let mut text = |_| {
            let spec = requests.next(&mut random);
            let mut out = Vec::new();
            requests.append(&spec, 0x0100_0001, &mut random, &mut out).unwrap();
            requests.answered(&spec, code);
            let text: Vec<u8> = out.into_iter().filter(|byte| byte.is_ascii_graphic()).collect();
            String::from_utf8(text).unwrap()
        };
        (0..count).map(&mut text).collect()
    }

    fn check(step: Step, count: usize, code: u32, expected: &[&str]) {
        let workload = Workload { sequence_start: 98, ..Workload::new(3) }.with(step);
        assert_eq!(count, expected.len());
        for (text, expected) in texts(&workload, count, code).iter().zip(expected) {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn a_sequence_goes_on_and_widens() {
        let add = Operation::Add { dn: "uid=a{s}.".into(), attributes: vec![("uid".into(), "a{s};".into())] };
        check(Step::new(1, add), 3, 0, &["uid=a99.", "uid=a100.", "uid=a101."]);
    }

    #[test]
    fn a_rename_is_followed_by_the_way_back() {
        let rename = Operation::ModifyDn {
            dn: "uid=a{n},ou=x\\,y,dc=com".into(),
            new_rdn: "uid=b{n}".into(),
            new_superior: None,
        };
        let there_and_back = ["uid=a1,ou=x\\,y,dc=com", "uid=b1,ou=x\\,y,dc=com", "uid=a2,ou=x"];
        check(Step::new(1, rename.clone()), 3, 0, &there_and_back);
        // One that failed is not renamed back.
        check(Step::new(1, rename), 3, 32, &["uid=a1,", "uid=a2,", "uid=a3,"]);
        let moved = Operation::ModifyDn {
            dn: "uid=a{n},ou=x".into(),
            new_rdn: "uid=a{n}".into(),
            new_superior: Some("ou=y".into()),
        };
        check(Step::new(1, moved), 2, 0, &["uid=a1,ou=x", "uid=a1,ou=y"]);
    }

    #[test]
    fn what_was_added_is_deleted_once() {
        let add = Step::new(1, Operation::Add { dn: "uid=a{s}.".into(), attributes: Vec::new() });
        let delete = Step::new(100, Operation::Delete { dn: "uid=a{added}.".into() });
        let workload = Workload::new(1).with(add).with(delete);
        let mut seen: Vec<String> = Vec::new();
        for text in texts(&workload, 100, 0) {
            let name: String = text.chars().skip_while(|c| *c != '=').take_while(|c| *c != '.').collect();
            seen.push(name);
        }
        let adds = seen.iter().enumerate().filter(|(at, name)| !seen[..*at].contains(name)).count();
        assert!(adds >= 50, "each delete needs an add: {seen:?}");
        for name in &seen {
            assert!(seen.iter().filter(|other| *other == name).count() <= 2, "{name}: {seen:?}");
        }
    }

    #[test]
    fn weights_are_shares() {
        let read = |name: &str, weight| Step::new(weight, Operation::read(name));
        let workload = Workload::new(1).with(read("uid=a", 3)).with(read("uid=b", 1)).with(read("uid=c", 0));
        let texts = texts(&workload, 4_000, 0);
        let share = |name: &str| texts.iter().filter(|text| text.contains(name)).count();
        assert!((2_850..3_150).contains(&share("uid=a")), "{}", share("uid=a"));
        assert_eq!(share("uid=c"), 0);
    }

    #[test]
    fn codes_are_checked_by_operation() {
        let compare = Operation::Compare { dn: "a=b".into(), attribute: "a".into(), value: "b".into() };
        let limited = match Operation::search("", "(a=b)") {
            Operation::Search(search) => {
                Operation::Search(super::super::SearchTemplate { size_limit: 1, ..search })
            }
            other => other,
        };
        let cases: [(Operation, &[u32], &[u32]); 3] = [
            (compare, &[5, 6], &[0, 32]),
            (Operation::read("a=b"), &[0], &[4, 5, 32]),
            (limited, &[0, 4], &[3]),
        ];
        for (operation, good, bad) in cases {
            let workload = Workload::new(1).with(Step::new(1, operation));
            let mut requests = Requests::new(&workload, 0, 1).unwrap();
            assert!(good.iter().all(|code| requests.answered(&RequestSpec::default(), *code)));
            assert!(!bad.iter().any(|code| requests.answered(&RequestSpec::default(), *code)));
        }
    }
}

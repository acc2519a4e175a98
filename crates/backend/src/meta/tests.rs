//! Which targets are asked, and what their answers come to.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_engine::access::AccessPolicy;
use larix_engine::search::task::Budget;
use larix_engine::time::{Clock, ManualClock, Timestamp};
use regex::Regex;

use super::merged::MergedSearch;
use super::*;
use crate::cursor::{Effort, StepOutcome};

/// A target that is never reached.
#[derive(Debug)]
struct Unreached;

impl Backend for Unreached {
    fn open(&self, _: &Context<'_>, _: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        panic!("opened")
    }

    fn compare(&self, _: &Context<'_>, _: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        panic!("compared")
    }

    fn bind(&self, _: &Context<'_>, _: &Bind<'_>, _: Later<'_, Verdict>) -> Reply<Verdict> {
        panic!("bound")
    }

    fn modify_password(
        &self,
        _: &Context<'_>,
        _: PasswordChange<'_>,
        _: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        panic!("changed")
    }

    fn update(&self, _: &Context<'_>, _: Changes, _: Completion) -> PendingAnswer {
        panic!("updated")
    }

    fn announce(&self, _: &mut Announcement) {}
}

fn dn(text: &str) -> NormalDn {
    NormalDn::from_normal(text)
}

fn target(suffix: &str, subtrees: Subtrees) -> Target {
    Target { backend: Arc::new(Unreached), suffix: dn(suffix), subtrees, filters: Vec::new() }
}

fn meta(targets: Vec<Target>, default_target: Option<usize>) -> Meta {
    let mut builder = larix_schema::SchemaBuilder::system();
    builder.add_bundled("core").unwrap();
    let schema = Arc::new(builder.build());
    let policy = Arc::new(AccessPolicy::open(Arc::clone(&schema), None));
    let suffixes = vec!["o=x".to_owned()];
    Meta { targets, on_error: OnError::Continue, default_target, known: None, schema, policy, suffixes }
}

#[test]
fn searches_begin_at_the_base_or_at_the_suffix() {
    use Scope::{Base, Children, OneLevel, Subtree};
    let one = target("ou=a,ou=b,o=x", Subtrees::All);
    for (base, scope, expected) in [
        ("ou=a,ou=b,o=x", Base, Some(("ou=a,ou=b,o=x", Base))),
        ("cn=c,ou=a,ou=b,o=x", Subtree, Some(("cn=c,ou=a,ou=b,o=x", Subtree))),
        ("ou=b,o=x", Base, None),
        ("ou=b,o=x", OneLevel, Some(("ou=a,ou=b,o=x", Base))),
        ("ou=b,o=x", Subtree, Some(("ou=a,ou=b,o=x", Subtree))),
        ("ou=b,o=x", Children, Some(("ou=a,ou=b,o=x", Subtree))),
        ("o=x", OneLevel, None),
        ("o=x", Subtree, Some(("ou=a,ou=b,o=x", Subtree))),
        // An end that is the same, and no suffix.
        ("ou=ba,ou=b,o=x", Subtree, None),
        ("ou=c,o=x", Subtree, None),
    ] {
        let base = dn(base);
        let expected = expected.map(|(base, scope)| (dn(base), scope));
        let found = one.candidate(&base, scope).map(|(base, scope)| (base.clone(), scope));
        assert_eq!(found, expected, "{base:?} {scope:?}");
    }
}

#[test]
fn subtrees_and_filters_say_what_a_target_serves() {
    let regex = |text: &str| Regex::new(text).unwrap();
    let except = target("o=x", Subtrees::Except(vec![SubtreeRule::Subtree(dn("ou=a,o=x"))]));
    let only = target(
        "o=x",
        Subtrees::Only(vec![SubtreeRule::Children(dn("ou=a,o=x")), SubtreeRule::Regex(regex("^uid="))]),
    );
    for (name, by_except, by_only) in [
        ("o=x", true, false),
        ("ou=a,o=x", false, false),
        ("cn=c,ou=a,o=x", false, true),
        ("uid=c,o=x", true, true),
        ("cn=c,o=x", true, false),
    ] {
        assert_eq!((except.serves(&dn(name)), only.serves(&dn(name))), (by_except, by_only), "{name}");
    }
    // A search below the entry has something.
    assert!(only.candidate(&dn("ou=a,o=x"), Scope::Subtree).is_some());
    let filtered = Target { filters: vec![regex(r"\(uid="), regex(r"\(cn=")], ..except };
    assert!(filtered.takes("(&(cn=x)(sn=y))") && !filtered.takes("(sn=y)") && only.takes("(sn=y)"));
}

#[test]
fn one_target_holds_a_name() {
    let suffixes = |all: &[&str]| all.iter().map(|suffix| target(suffix, Subtrees::All)).collect::<Vec<_>>();
    let all = ["o=x", "ou=a,o=x", "ou=b,o=x", "ou=b,o=x"];
    let without = meta(suffixes(&all), None);
    let with = meta(suffixes(&all), Some(3));
    let elsewhere = meta(suffixes(&all), Some(0));
    for (name, expected) in [("cn=c,ou=a,o=x", 1), ("ou=a,o=x", 1), ("cn=c,o=x", 0), ("cn=c,ou=b,o=x", 3)] {
        let found = with.holder(&dn(name), Lookup::New).unwrap();
        assert!(std::ptr::eq(found, &raw const with.targets[expected]), "{name}");
    }
    for both in [&without, &elsewhere] {
        let refused = both.holder(&dn("cn=c,ou=b,o=x"), Lookup::New).unwrap_err();
        assert_eq!(refused.code, ResultCode::UNWILLING_TO_PERFORM);
        assert!(refused.diagnostic.contains("default-target"), "{refused:?}");
    }
    let none = meta(suffixes(&["ou=a,o=x"]), None);
    let refused = none.holder(&dn("cn=c,o=x"), Lookup::New).unwrap_err();
    assert_eq!((refused.code, refused.matched_dn.as_str()), (ResultCode::NO_SUCH_OBJECT, "o=x"));
    // A renamed entry stays where it is.
    let rename = |entry: &str, new_rdn: &str, new_superior: Option<&str>| {
        let (entry, new_rdn) = (entry.to_owned(), new_rdn.to_owned());
        let new_superior = new_superior.map(str::to_owned);
        let name = dn(&entry);
        let operation = WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn: true, new_superior };
        without.holder_of_change(&operation, &name, None).map(|_| ()).map_err(|refused| refused.code)
    };
    let across = Err(ResultCode::AFFECTS_MULTIPLE_DSAS);
    assert_eq!(rename("cn=c,ou=a,o=x", "cn=d", None), Ok(()));
    assert_eq!(rename("cn=c,ou=a,o=x", "cn=d", Some("ou=a,o=x")), Ok(()));
    assert_eq!(rename("cn=c,ou=a,o=x", "cn=d", Some("o=x")), across);
    assert_eq!(rename("ou=c,o=x", "ou=a", None), across);
}

/// What a target answers, a slice each: so many entries, then waiting or more; at last a result.
#[derive(Debug)]
struct Played {
    slices: Vec<(u64, Option<StepOutcome>)>,
    sent: u64,
    limit: Option<u32>,
}

impl Played {
    fn cursor(slices: Vec<(u64, StepOutcome)>) -> Box<dyn Cursor> {
        let slices = slices.into_iter().rev().map(|(entries, slice)| (entries, Some(slice))).collect();
        Box::new(Self { slices, sent: 0, limit: None })
    }
}

impl Cursor for Played {
    fn step(&mut self, _: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let (entries, slice) = self.slices.pop().expect("a target that is done is not asked again");
        for _ in 0..entries {
            if self.limit.is_some_and(|limit| self.sent >= u64::from(limit)) {
                return StepOutcome::Done(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED), Vec::new());
            }
            out.push(b'e');
            self.sent += 1;
        }
        slice.unwrap_or(StepOutcome::Waiting)
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.sent, candidates: self.sent }
    }

    fn limit_size(&mut self, entries: u32) {
        self.limit = Some(entries);
    }
}

fn done(code: ResultCode) -> StepOutcome {
    StepOutcome::Done(LdapResult::new(code), Vec::new())
}

/// Runs it to its end: the entries, the result, and how often it was asked for more.
fn run(mut merged: MergedSearch) -> (usize, LdapResult, usize) {
    let clock = ManualClock::new(Timestamp(0));
    let (mut out, mut steps) = (Vec::new(), 0);
    loop {
        steps += 1;
        let budget = Budget { candidates: 128, nanos: 100_000, bytes: 1000, clock: &clock as &dyn Clock };
        match merged.step(budget, &mut out) {
            StepOutcome::Done(result, _) => return (out.len(), result, steps),
            StepOutcome::More | StepOutcome::Waiting if steps < 100 => {}
            other => panic!("no end: {other:?}"),
        }
    }
}

#[test]
fn what_targets_answer_together() {
    use OnError::{Continue, Report, Stop};
    const GONE: ResultCode = ResultCode::UNAVAILABLE;
    const NONE: ResultCode = ResultCode::NO_SUCH_OBJECT;
    const OK: ResultCode = ResultCode::SUCCESS;
    // The targets' results, with two entries before each success, and what comes of them by `onerr`.
    for (results, expected) in [
        (&[OK, OK][..], [OK, OK, OK]),
        (&[OK, NONE], [OK, OK, OK]),
        (&[NONE, NONE], [NONE, NONE, NONE]),
        (&[OK, GONE], [OK, GONE, GONE]),
        (&[GONE, OK, ResultCode::BUSY], [OK, GONE, GONE]),
        (&[GONE, GONE], [GONE, GONE, GONE]),
        // What is gone may have had the base.
        (&[NONE, GONE], [GONE, GONE, GONE]),
    ] {
        for (on_error, expected) in [Continue, Report, Stop].into_iter().zip(expected) {
            let mut merged = MergedSearch::new(on_error, 0, "o=x".to_owned(), Vec::new());
            for code in results {
                let entries = if *code == OK { 2 } else { 0 };
                merged
                    .add(Ok(Played::cursor(vec![(entries, StepOutcome::Waiting), (0, done(*code))])), false)
                    .unwrap();
            }
            let (entries, result, _) = run(merged);
            assert_eq!(result.code, expected, "{results:?} {on_error:?}");
            if on_error != Stop {
                assert_eq!(entries, 2 * results.iter().filter(|code| **code == OK).count());
            }
            let matched = if expected == NONE { "o=x" } else { "" };
            assert_eq!(result.matched_dn, matched);
        }
    }
    // One that cannot even be asked.
    let gone = || Err(Box::new((LdapResult::new(GONE), Vec::new())));
    let mut merged = MergedSearch::new(Stop, 0, String::new(), Vec::new());
    assert_eq!(merged.add(gone(), false).unwrap_err().0.code, GONE);
    let mut merged = MergedSearch::new(Continue, 0, String::new(), Vec::new());
    merged.add(gone(), false).unwrap();
    merged.add(Ok(Played::cursor(vec![(1, done(OK))])), false).unwrap();
    assert_eq!(run(merged).1.code, OK);
    // One that ends in the middle has answered.
    let mut merged = MergedSearch::new(Continue, 0, String::new(), Vec::new());
    merged.add(Ok(Played::cursor(vec![(3, done(GONE))])), false).unwrap();
    merged.add(Ok(Played::cursor(vec![(0, done(NONE))])), false).unwrap();
    assert_eq!(run(merged).1.code, OK);
}

#[test]
fn one_size_limit_for_all() {
    for (limit, counts, expected, code) in [
        (5, [3, 3], 5, ResultCode::SIZE_LIMIT_EXCEEDED),
        (6, [3, 3], 6, ResultCode::SUCCESS),
        (1, [3, 3], 1, ResultCode::SIZE_LIMIT_EXCEEDED),
        (5, [0, 5], 5, ResultCode::SUCCESS),
        (5, [9, 0], 5, ResultCode::SIZE_LIMIT_EXCEEDED),
    ] {
        let mut merged = MergedSearch::new(OnError::Continue, limit, String::new(), Vec::new());
        for count in counts {
            let slices =
                (0..count).map(|_| (1, StepOutcome::Waiting)).chain([(0, done(ResultCode::SUCCESS))]);
            merged.add(Ok(Played::cursor(slices.collect())), false).unwrap();
        }
        let (entries, result, _) = run(merged);
        assert_eq!((entries, result.code), (expected, code), "{limit} {counts:?}");
    }
    // A lower limit of one target is an error of that target.
    let mut merged = MergedSearch::new(OnError::Report, 5, String::new(), Vec::new());
    merged.add(Ok(Played::cursor(vec![(2, done(ResultCode::SIZE_LIMIT_EXCEEDED))])), false).unwrap();
    merged
        .add(Ok(Played::cursor(vec![(0, StepOutcome::Waiting), (1, done(ResultCode::SUCCESS))])), false)
        .unwrap();
    let (entries, result, _) = run(merged);
    assert_eq!((entries, result.code), (3, ResultCode::SIZE_LIMIT_EXCEEDED));
}

/// A target that fills the output does not keep the others from being asked.
#[test]
fn each_has_its_turn() {
    let mut merged = MergedSearch::new(OnError::Continue, 0, String::new(), Vec::new());
    let much = (0..20).map(|_| (1, StepOutcome::More)).chain([(0, done(ResultCode::SUCCESS))]);
    merged.add(Ok(Played::cursor(much.collect())), false).unwrap();
    merged
        .add(Ok(Played::cursor(vec![(1, StepOutcome::Waiting), (1, done(ResultCode::BUSY))])), false)
        .unwrap();
    let clock = ManualClock::new(Timestamp(0));
    let mut out = Vec::new();
    for _ in 0..4 {
        let budget = Budget { candidates: 128, nanos: 100_000, bytes: 1000, clock: &clock as &dyn Clock };
        merged.step(budget, &mut out);
    }
    // The short one is done long before the long one.
    assert!(merged.effort().entries >= 4 && merged.effort().entries < 10, "{:?}", merged.effort());
}

#[test]
fn controls_of_the_whole_answer() {
    let controls = |all: &[(&str, bool)]| {
        let mut sent = Vec::new();
        for (oid, critical) in all {
            ControlBuf { oid: (*oid).to_owned().into(), critical: *critical, value: None }.encode(&mut sent);
        }
        RequestControls::from(larix_engine::controls::ControlValues { sent, ..Default::default() })
    };
    for (unheeded, critical) in [
        (OF_THE_WHOLE, oid::SORT_REQUEST),
        (OF_THE_WHOLE, oid::ASSERTION),
        (&[oid::ASSERTION][..], oid::ASSERTION),
    ] {
        let refused = without(unheeded, &controls(&[("1.2.3", true), (critical, true)])).unwrap_err();
        assert_eq!(refused.code, ResultCode::UNAVAILABLE_CRITICAL_EXTENSION);
    }
    let remaining = |unheeded: &[&str], all: &[(&str, bool)]| -> Vec<String> {
        let (remaining, response_controls) = without(unheeded, &controls(all)).unwrap();
        assert!(response_controls.is_empty());
        Controls::parse(&remaining.sent).unwrap().iter().map(|control| control.oid.to_owned()).collect()
    };
    assert_eq!(remaining(OF_THE_WHOLE, &[("1.2.3", true), (oid::PAGED_RESULTS, false)]), ["1.2.3"]);
    // Of one target below the base the assertion alone is left out.
    let sent = [(oid::ASSERTION, false), (oid::PAGED_RESULTS, true), (oid::SORT_REQUEST, true)];
    assert_eq!(remaining(&[oid::ASSERTION], &sent), [oid::PAGED_RESULTS, oid::SORT_REQUEST]);
}

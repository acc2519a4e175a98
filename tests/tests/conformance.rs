//! Conformance by RFC: every scenario is run against Larix, and against a real slapd when one is installed; both must
//! answer what the scenario says (see `tests/conformance/README.md`).

use std::path::{Path, PathBuf};

use larix_testkit::{Kind, Site};
use larix_tests::client::Client;
use larix_tests::scenario::{self, Step};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

/// Runs a file's steps in order against a fresh directory.
fn answers(kind: Kind, steps: &[Step]) -> Vec<String> {
    let site = Site::example(kind);
    let base = std::fs::read_to_string(folder().join("base.ldif")).expect("base.ldif");
    site.load(&base);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut client = Client::connect(server.address);
    let answers = steps
        .iter()
        .map(|step| {
            let answer = client.run(step);
            if answer.ends_with("=> closed\n") {
                client = Client::connect(server.address);
            }
            answer
        })
        .collect();
    let clean = server.stop();
    assert!(clean || kind == Kind::Slapd, "{kind:?} did not stop cleanly");
    answers
}

/// One line for each step whose answer is not the expected one.
fn differences(name: &str, kind: Kind, steps: &[Step], answers: &[String]) -> Vec<String> {
    let expected = |step: &Step| match kind {
        Kind::Larix => step.expected_of_larix().to_owned(),
        Kind::Slapd => step.expected.clone(),
    };
    steps
        .iter()
        .zip(answers)
        .filter(|(step, answer)| expected(step) != **answer)
        .map(|(step, answer)| {
            let request = step.request.trim_end();
            format!(
                "{name}:{}: {kind:?}\n{request}\n--- expected\n{}--- answered\n{answer}",
                step.line,
                expected(step)
            )
        })
        .collect()
}

fn check(name: &str) {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut steps = scenario::parse(&text);
    assert!(!steps.is_empty(), "{name} has no steps");
    let mut faults = Vec::new();
    if Kind::Slapd.program().is_some() {
        let real = answers(Kind::Slapd, &steps);
        if std::env::var("BLESS").is_ok_and(|who| who == "slapd") {
            for (step, answer) in steps.iter_mut().zip(&real) {
                step.expected.clone_from(answer);
            }
            std::fs::write(&path, scenario::render(&steps)).expect("the scenario file");
        } else {
            faults.extend(differences(name, Kind::Slapd, &steps, &real));
        }
    } else {
        eprintln!("{name}: no slapd is installed: only Larix is asked");
    }
    let ours = answers(Kind::Larix, &steps);
    faults.extend(differences(name, Kind::Larix, &steps, &ours));
    let on_purpose: Vec<&Step> = steps.iter().filter(|step| step.differs.is_some()).collect();
    for step in &on_purpose {
        let reason = step.differs.as_ref().map_or("", |(reason, _)| reason);
        println!("{name}:{}: differs from slapd: {reason}", step.line);
    }
    let total = steps.len();
    assert!(faults.is_empty(), "{} of {total} steps of {name}:\n\n{}", faults.len(), faults.join("\n"));
    println!("{name}: {total} steps, {} differ from slapd on purpose", on_purpose.len());
}

#[test]
fn rfc4511_bind() {
    check("rfc4511-bind.txt");
}

#[test]
fn rfc4511_compare() {
    check("rfc4511-compare.txt");
}

#[test]
fn rfc4511_search() {
    check("rfc4511-search.txt");
}

#[test]
fn rfc4511_write() {
    check("rfc4511-write.txt");
}

#[test]
fn rfc4512_root_dse_and_subschema() {
    check("rfc4512-root-dse.txt");
}

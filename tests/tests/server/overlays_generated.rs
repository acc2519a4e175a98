//! Overlays with generated configurations and changes: Larix and a real slapd come to the same result codes and values.
//!
//! `LARIX_OVERLAYS_CASES` says how many databases for each overlay, `LARIX_OVERLAYS_SEED` where they begin, `LARIX_OVERLAYS_ONLY`
//! names one overlay. A difference is shown with the fewest steps that lead to it, in a scenario's words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use larix_testkit::{Kind, Server, Site, StartError};
use larix_tests::client::Client;
use larix_tests::generated::{Case, Difference, Generator, Random, SUFFIX, code, overlays, without_text};
use larix_tests::scenario::Step;

const DEFAULT_CASES: usize = 3;
/// Databases of one server.
const DATABASES_MAX: usize = 20;
/// Differences of an overlay that are made smaller, and servers that are started for each of them.
const SHRUNK_MAX: usize = 3;
const TRIALS_MAX: usize = 150;
/// How long slapd may work behind its answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is shown of a connection that the server has closed.
const CLOSED: &str = "=> closed";

/// What every tree begins with. What watches is changed by slapd behind its answers, after what it is to do before.
const TREE: &str = "dn: @S@\nobjectClass: domain\ndc: @DC@\n\n\
    dn: ou=people,@S@\nobjectClass: organizationalUnit\nou: people\n\n\
    dn: ou=other,@S@\nobjectClass: organizationalUnit\nou: other\n\n\
    dn: ou=groups,@S@\nobjectClass: organizationalUnit\nou: groups\n\n\
    dn: cn=watcher,ou=people,@S@\nobjectClass: inetOrgPerson\ncn: watcher\nsn: watcher\n";

#[test]
fn overlays_do_as_those_of_slapd() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    let cases = number("LARIX_OVERLAYS_CASES").unwrap_or(DEFAULT_CASES);
    let seed = number("LARIX_OVERLAYS_SEED").unwrap_or(1);
    let only = std::env::var("LARIX_OVERLAYS_ONLY").ok();
    println!("LARIX_OVERLAYS_SEED={seed} LARIX_OVERLAYS_CASES={cases}");
    let mut faults = Vec::new();
    for generator in overlays::ALL {
        if only.as_ref().is_none_or(|only| only == generator.overlay) {
            faults.extend(check(generator, seed as u64, cases));
        }
    }
    assert!(faults.is_empty(), "{} cases differ:\n\n{}", faults.len(), faults.join("\n\n"));
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs cases of one overlay and shows those that differ.
fn check(generator: &Generator, seed: u64, count: usize) -> Vec<String> {
    let cases = (0..count).map(|number| (generator.case)(&mut Random::derived(seed, number as u64)));
    let mut cases: Vec<Case> = cases.collect();
    let mut report = Report::default();
    let mut faults = Vec::new();
    while !cases.is_empty() {
        let mut batch: Vec<Case> = cases.drain(..cases.len().min(DATABASES_MAX)).collect();
        let mut pair = match Pair::start(generator, &batch) {
            Ok(pair) => pair,
            Err(_) => {
                batch.retain(|case| is_taken(generator, case, &mut faults));
                Pair::start(generator, &batch).unwrap_or_else(|error| panic!("{error}"))
            }
        };
        for (number, case) in batch.iter().enumerate() {
            match pair.run(number, case, &mut report) {
                Outcome::Equal => {}
                Outcome::Died => {
                    println!("slapd died:\n{}", shown(generator, case));
                    cases.extend(batch.split_off(number + 1));
                    break;
                }
                Outcome::Differs(text) if faults.len() < SHRUNK_MAX => {
                    println!("{text}");
                    faults.push(smaller(generator, case));
                }
                Outcome::Differs(text) => faults.push(format!("{}\n{text}", case.configuration.join("\n"))),
            }
        }
    }
    println!("{}: {report}", generator.overlay);
    if report.steps == 0 && count > 0 {
        faults.push(format!("{}: no answer was compared", generator.overlay));
    }
    faults
}

/// Whether both servers take the configuration; that only one does is a fault.
fn is_taken(generator: &Generator, case: &Case, faults: &mut Vec<String>) -> bool {
    let [slapd, larix] = [Kind::Slapd, Kind::Larix].map(|kind| {
        takes(kind, &Site::new(kind, &configuration(generator, kind, std::slice::from_ref(case))))
    });
    match (&slapd, &larix) {
        (Err(why), _) => println!("slapd refuses\n{}\n{why}", case.configuration.join("\n")),
        (Ok(()), Err(why)) => {
            faults.push(format!("only slapd takes\n{}\n{why}", case.configuration.join("\n")));
        }
        (Ok(()), Ok(())) => {}
    }
    slapd.is_ok() && larix.is_ok()
}

/// What came of all cases.
#[derive(Default)]
struct Report {
    steps: usize,
    results: BTreeMap<String, usize>,
    texts: usize,
    /// Cases that ended early, because slapd never came to what follows from a delete.
    stuck: usize,
    known: BTreeMap<&'static str, usize>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} steps, {} with another text; results {:?}", self.steps, self.texts, self.results)?;
        if self.stuck > 0 {
            write!(f, "\n{:6} ended: slapd does not follow up on a delete", self.stuck)?;
        }
        for (reason, count) in &self.known {
            write!(f, "\n{count:6} differ on purpose: {reason}")?;
        }
        Ok(())
    }
}

enum Outcome {
    Equal,
    Differs(String),
    /// slapd has gone.
    Died,
}

fn suffix(number: usize) -> String {
    format!("dc=m{number}")
}

fn configuration(generator: &Generator, kind: Kind, cases: &[Case]) -> String {
    let mut text = String::new();
    if kind == Kind::Slapd {
        let _ = writeln!(text, "moduleload {}", generator.overlay);
    }
    for name in generator.schema {
        let _ = writeln!(text, "include @SCHEMA@/{name}.schema");
    }
    for (number, case) in cases.iter().enumerate() {
        let suffix = suffix(number);
        let _ = write!(
            text,
            "\ndatabase mdb\nsuffix {suffix}\nrootdn cn=root,{suffix}\nrootpw secret\ndirectory @DATA@/{suffix}\n\
             maxsize 4194304\ndbnosync\nindex objectClass eq\noverlay {}\n",
            generator.overlay
        );
        for line in &case.configuration {
            let _ = writeln!(text, "{}", line.replace(SUFFIX, &suffix));
        }
    }
    text
}

/// A server, with a connection for each database.
struct Peer {
    clients: Vec<Client>,
    _server: Server,
    // Its folder goes when the server has gone.
    _site: Site,
}

impl Peer {
    fn start(generator: &Generator, kind: Kind, cases: &[Case]) -> Result<Self, StartError> {
        let site = Site::new(kind, &configuration(generator, kind, cases));
        if let Err(log) = takes(kind, &site) {
            return Err(StartError { reason: format!("{kind:?} refuses the configuration"), log });
        }
        for number in 0..cases.len() {
            let suffix = suffix(number);
            let tree = TREE.replace(SUFFIX, &suffix).replace("@DC@", &format!("m{number}"));
            site.load_into(Some(&suffix), &tree);
        }
        let server = site.start()?;
        let clients = (0..cases.len()).map(|number| {
            let mut client = Client::connect(server.address);
            let answer = ask(&mut client, number, "as cn=root,@S@ secret\n");
            assert_eq!(code(&answer), "0", "{answer}");
            client
        });
        Ok(Self { clients: clients.collect(), _server: server, _site: site })
    }
}

/// Whether a server takes the configuration, or what it says.
fn takes(kind: Kind, site: &Site) -> Result<(), String> {
    let output = kind.tool("test").arg("-uf").arg(site.configuration()).output().expect("the tool starts");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn ask(client: &mut Client, number: usize, step: &str) -> String {
    client.run(&Step { request: step.replace(SUFFIX, &suffix(number)), ..Step::default() })
}

/// Both servers with the same databases.
struct Pair<'g> {
    generator: &'g Generator,
    slapd: Peer,
    larix: Peer,
}

impl<'g> Pair<'g> {
    fn start(generator: &'g Generator, cases: &[Case]) -> Result<Self, StartError> {
        let slapd = Peer::start(generator, Kind::Slapd, cases)?;
        let larix = Peer::start(generator, Kind::Larix, cases)?;
        Ok(Self { generator, slapd, larix })
    }

    /// Carries out a case on the database with this number.
    fn run(&mut self, number: usize, case: &Case, report: &mut Report) -> Outcome {
        for (at, step) in case.steps.iter().enumerate() {
            let slapd = ask(&mut self.slapd.clients[number], number, step);
            let larix = ask(&mut self.larix.clients[number], number, step);
            assert!(!larix.contains(CLOSED), "larix died:\n{}", shown(self.generator, case));
            if slapd.contains(CLOSED) {
                return Outcome::Died;
            }
            let is_followed = self.generator.works_later && is_followed(step) && code(&slapd) == "0";
            if is_followed {
                match self.settle(number) {
                    None => {}
                    Some(Kind::Slapd) => {
                        report.stuck += 1;
                        return Outcome::Equal;
                    }
                    Some(Kind::Larix) => {
                        return Outcome::Differs(format!(
                            "step {at}: {step}larix does not follow up on a delete\n"
                        ));
                    }
                }
            }
            let (slapd, larix) = (normal(&slapd), normal(&larix));
            report.steps += 1;
            *report.results.entry(code(&slapd).to_owned()).or_default() += 1;
            report.texts += usize::from(without_text(&slapd) == without_text(&larix) && slapd != larix);
            let tree = format!("search \"@S@\" sub (objectClass=*) {}\n", self.generator.compared);
            let theirs = normal(&ask(&mut self.slapd.clients[number], number, &tree));
            let ours = normal(&ask(&mut self.larix.clients[number], number, &tree));
            if theirs == ours && without_text(&slapd) == without_text(&larix) {
                continue;
            }
            let trees = (lines_without(&theirs, &ours), lines_without(&ours, &theirs));
            let difference = Difference {
                case,
                step,
                answers: (&slapd, &larix),
                trees: (&trees.0, &trees.1),
                ours: &ours,
            };
            match self.generator.known.iter().find(|known| (known.is)(&difference)) {
                None => return Outcome::Differs(describe(at, &difference)),
                Some(known) => *report.known.entry(known.reason).or_default() += 1,
            }
            if theirs != ours {
                // From here on both have another tree.
                return Outcome::Equal;
            }
        }
        Outcome::Equal
    }

    /// Waits until both have done what follows from all deletes and renames: slapd does it in their order. Answers who
    /// does not come to it.
    #[allow(clippy::disallowed_methods, reason = "slapd tells nobody when its background task is done")]
    fn settle(&mut self, number: usize) -> Option<Kind> {
        let watcher = "cn=watcher,ou=people,@S@";
        for client in [&mut self.larix.clients[number], &mut self.slapd.clients[number]] {
            for step in [
                "add cn=watched,@S@\n  objectClass: inetOrgPerson\n  cn: watched\n  sn: watched\n",
                &format!("modify {watcher}\n  add secretary: cn=watched,@S@\n"),
                "delete cn=watched,@S@\n",
            ] {
                let answer = ask(client, number, step);
                assert_eq!(code(&answer), "0", "{step}{answer}");
            }
        }
        let search = format!("search {watcher} base (secretary=cn=watched,@S@) 1.1\n");
        let is_left = |client: &mut Client| ask(client, number, &search).starts_with("-> ");
        if is_left(&mut self.larix.clients[number]) {
            return Some(Kind::Larix);
        }
        let deadline = Instant::now() + PATIENCE;
        while is_left(&mut self.slapd.clients[number]) {
            if Instant::now() > deadline {
                return Some(Kind::Slapd);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

/// Whether an overlay has something to do behind the answer.
fn is_followed(step: &str) -> bool {
    step.starts_with("delete") || step.starts_with("modrdn")
}

/// Each entry's lines in sorted order. How a group's name is spelled in memberOf is no matter.
fn normal(answer: &str) -> String {
    let mut entries: Vec<Vec<String>> = Vec::new();
    for line in answer.lines() {
        match (line.strip_prefix("   memberOf: "), entries.last_mut()) {
            (Some(group), Some(entry)) => entry.push(format!("   memberOf: {}", group.to_lowercase())),
            (None, Some(entry)) if line.starts_with("   ") => entry.push(line.to_owned()),
            _ => entries.push(vec![line.to_owned()]),
        }
    }
    let mut text = String::new();
    for entry in &mut entries {
        if let Some((_, lines)) = entry.split_first_mut() {
            lines.sort();
        }
        entry.iter().for_each(|line| text += &format!("{line}\n"));
    }
    text
}

/// Lines of one tree that the other lacks, each below its entry.
fn lines_without(one: &str, other: &str) -> String {
    let of = |text: &str| -> Vec<(String, String)> {
        let mut entry = String::new();
        let pairs = text.lines().map(|line| {
            if line.starts_with("-> ") {
                line.clone_into(&mut entry);
            }
            (entry.clone(), line.to_owned())
        });
        pairs.collect()
    };
    let theirs = of(other);
    let mut text = String::new();
    for (entry, line) in of(one).iter().filter(|pair| !theirs.contains(pair)) {
        let _ = writeln!(text, "{entry}: {line}");
    }
    text
}

fn describe(at: usize, difference: &Difference<'_>) -> String {
    let Difference { step, answers, trees, .. } = difference;
    format!("step {at}: {step}--- slapd\n{}{}--- larix\n{}{}", answers.0, trees.0, answers.1, trees.1)
}

/// A case as a scenario.
fn shown(generator: &Generator, case: &Case) -> String {
    let configuration: String = case.configuration.iter().map(|line| format!("  {line}\n")).collect();
    format!("  overlay {}\n{configuration}{}", generator.overlay, case.steps.concat())
}

/// Leaves out what does not matter for the difference, and shows the rest with it.
fn smaller(generator: &Generator, case: &Case) -> String {
    let mut trials = 0;
    let mut differs = |case: &Case| -> Option<String> {
        trials += 1;
        if trials > TRIALS_MAX {
            return None;
        }
        let mut pair = Pair::start(generator, std::slice::from_ref(case)).ok()?;
        match pair.run(0, case, &mut Report::default()) {
            Outcome::Differs(text) => Some(text),
            Outcome::Equal | Outcome::Died => None,
        }
    };
    let mut best = case.clone();
    let mut text = differs(&best).unwrap_or_else(|| "it is not seen when the case stands alone".to_owned());
    let mut width = best.steps.len() / 2;
    while width > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            let mut fewer = best.clone();
            fewer.steps.drain(at..best.steps.len().min(at + width));
            match differs(&fewer) {
                Some(found) => (best, text) = (fewer, found),
                None => at += width,
            }
        }
        width /= 2;
    }
    // The first line is what the watcher needs.
    for at in (usize::from(generator.works_later)..best.configuration.len()).rev() {
        let mut fewer = best.clone();
        fewer.configuration.remove(at);
        if let Some(found) = differs(&fewer) {
            (best, text) = (fewer, found);
        }
    }
    format!("{}{text}", shown(generator, &best))
}

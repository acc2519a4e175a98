//! Conformance by RFC: every scenario is run against Larix, and against a real slapd when one is installed; both must
//! answer what the scenario says (see `tests/conformance/README.md`).

#[path = "conformance/proxied.rs"]
mod proxied;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larix_testkit::{Kind, Server, Site};
use larix_tests::client::Client;
use larix_tests::scenario::{self, Step};
use larix_tests::shared_engine::{AnyEngine, OnEngine};

/// The first line of a file that only Larix is to answer, followed by the reason.
const SLAPD_IS_NOT_ASKED: &str = "# slapd is not asked:";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

/// The lines of a file's `config` step, if it has one.
fn configuration(steps: &[Step]) -> Option<String> {
    steps.iter().find(|step| step.verb() == "config").map(text)
}

fn text(step: &Step) -> String {
    step.body().map(|line| format!("{line}\n")).collect()
}

/// The entries of a file's `load` steps with the suffix of their database, behind the usual ones where it has no `config`.
fn loads(steps: &[Step]) -> Vec<(Option<String>, String)> {
    let mut loads = Vec::new();
    if configuration(steps).is_none() {
        loads.push((None, std::fs::read_to_string(folder().join("base.ldif")).expect("base.ldif")));
    }
    for step in steps.iter().filter(|step| step.verb() == "load") {
        let suffix = scenario::words(step.request.lines().next().unwrap_or("")).get(1).cloned();
        // A blank line ends a step's text, so entries stand without one between them.
        loads.push((suffix, text(step).replace("\ndn: ", "\n\ndn: ")));
    }
    loads
}

/// The directory of a file: its `config` and `load` steps, or the usual one.
fn prepare(kind: Kind, steps: &[Step]) -> Site {
    let site = match configuration(steps) {
        None => Site::example(kind),
        Some(text) => Site::new(kind, &text),
    };
    loads(steps).iter().for_each(|(suffix, ldif)| site.load_into(suffix.as_deref(), ldif));
    site
}

/// How often a file is given to a fresh slapd when the one before it died: 2.5.13 sometimes reads freed memory when it
/// commits a transaction (RFC 5805), most often on a busy machine, and a dead peer has no answer to compare with.
const TRIES_OF_SLAPD: usize = 5;

/// The line at which a server died.
struct Died(usize);

/// How slapd tells that something failed which is no fault of the request.
const INTERNAL_ERROR: &str = "=> 80 text \"internal error\"";

/// How often a file is given to a fresh slapd that answered otherwise: 2.5.13 does not count each wrong password where several come
/// at once, or within a moment on a busy machine. What it always answers is still a fault of the file.
const TRIES_OF_ANSWERS: usize = 3;

/// What a real slapd answers.
fn answers_of_slapd(name: &str, steps: &[Step]) -> Vec<String> {
    let mut different = 0;
    for _ in 0..TRIES_OF_SLAPD {
        match answers(Kind::Slapd, steps) {
            Ok(answers) => {
                let faults = differences(name, Kind::Slapd, steps, &answers);
                different += 1;
                if bless("slapd") || faults.is_empty() || different == TRIES_OF_ANSWERS {
                    return answers;
                }
                println!("{}\n{name}: the file is given to a fresh slapd", faults.join("\n"));
            }
            Err(Died(line)) => println!("{name}:{line}: slapd failed; the file is given to a fresh one"),
        }
    }
    panic!("{name}: slapd failed {TRIES_OF_SLAPD} times");
}

/// Marks a search for what slapd does in the background.
const LATER: &str = "later";
/// Marks a search for what any server does in the background behind a load.
const EVENTUALLY: &str = "eventually";

/// What is expected of a kind of server.
fn expected(kind: Kind, step: &Step) -> &str {
    match kind {
        Kind::Larix => step.expected_of_larix(),
        Kind::Slapd => &step.expected,
    }
}

/// Asks until the answer is the expected one; where that is not known, until three seconds bring no other.
#[allow(clippy::disallowed_methods, reason = "a server tells nobody when its background task is done")]
fn later(kind: Kind, client: &mut Client, step: &Step) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut answer = client.run(step);
    let mut same = 0;
    while Instant::now() < deadline && (bless("slapd") || answer != expected(kind, step)) && same < 60 {
        std::thread::sleep(Duration::from_millis(50));
        let next = client.run(step);
        same = if bless("slapd") && next == answer { same + 1 } else { 0 };
        answer = next;
    }
    answer
}

/// Runs a file's steps in order against a fresh directory.
fn answers(kind: Kind, steps: &[Step]) -> Result<Vec<String>, Died> {
    let site = prepare(kind, steps);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    play(kind, steps, server)
}

/// The same against a server that has the directory.
fn play(kind: Kind, steps: &[Step], server: Server) -> Result<Vec<String>, Died> {
    let mut client = Client::connect(server.address);
    let mut answers = Vec::new();
    let mut closed_at = None;
    for step in steps {
        if matches!(step.verb(), "config" | "load") {
            answers.push(String::new());
            continue;
        }
        let is_marked = |mark| step.request.split_whitespace().any(|word| word == mark);
        let answer = match is_marked(EVENTUALLY) || (kind == Kind::Slapd && is_marked(LATER)) {
            true => later(kind, &mut client, step),
            false => client.run(step),
        };
        if answer.ends_with("=> closed\n") {
            println!("{kind:?} closed the connection at line {}", step.line);
            closed_at = Some(step.line);
            client = Client::try_connect(server.address).map_err(|_| Died(step.line))?;
        }
        // slapd says so now and then, of requests that it answers the next time.
        if kind == Kind::Slapd
            && answer.contains(INTERNAL_ERROR)
            && step.expected != answer
            && !bless("slapd")
        {
            return Err(Died(step.line));
        }
        answers.push(answer);
    }
    // A dying process may still take a connection, so the way it ended decides.
    match (server.stop(), kind, closed_at) {
        (false, Kind::Slapd, Some(line)) => Err(Died(line)),
        (clean, _, _) => {
            assert!(clean || kind == Kind::Slapd, "{kind:?} did not stop cleanly");
            Ok(answers)
        }
    }
}

/// One line for each step whose answer is not the expected one.
fn differences(name: &str, kind: Kind, steps: &[Step], answers: &[String]) -> Vec<String> {
    steps
        .iter()
        .zip(answers)
        .filter(|(step, answer)| expected(kind, step) != **answer)
        .map(|(step, answer)| {
            let request = step.request.trim_end();
            format!(
                "{name}:{}: {kind:?}\n{request}\n--- expected\n{}--- answered\n{answer}",
                step.line,
                expected(kind, step)
            )
        })
        .collect()
}

/// Whether `BLESS` asks for the answers of `who` to be written down.
fn bless(who: &str) -> bool {
    std::env::var("BLESS").is_ok_and(|named| named == who)
}

fn check(name: &str) {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut steps = scenario::parse(&text);
    assert!(!steps.is_empty(), "{name} has no steps");
    let mut faults = Vec::new();
    if text.starts_with(SLAPD_IS_NOT_ASKED) && !bless("slapd") {
        println!("{name}: {}", text.lines().next().unwrap_or_default());
    } else if !Kind::Slapd.is_lacking() {
        let real = answers_of_slapd(name, &steps);
        if bless("slapd") {
            for (step, answer) in steps.iter_mut().zip(&real) {
                step.expected.clone_from(answer);
            }
            std::fs::write(&path, scenario::render(&steps)).expect("the scenario file");
        } else {
            faults.extend(differences(name, Kind::Slapd, &steps, &real));
        }
    }
    let ours =
        answers(Kind::Larix, &steps).unwrap_or_else(|Died(line)| panic!("{name}:{line}: the server died"));
    if bless("larix") {
        for (step, answer) in steps.iter_mut().zip(&ours) {
            if let Some((_, known)) = &mut step.differs {
                known.clone_from(answer);
            }
        }
        std::fs::write(&path, scenario::render(&steps)).expect("the scenario file");
    }
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

/// The files of which every run asks a database in a shared engine; `LARIX_CONFORMANCE_KV=all` asks all of them.
const ALSO_ON_AN_ENGINE: [&str; 12] = [
    "dds.txt",
    "dynlist.txt",
    "password-policy-controls.txt",
    "rfc2696-paged-results.txt",
    "rfc3296-referrals.txt",
    "rfc4511-bind.txt",
    "rfc4513-authorization-identities.txt",
    "rfc4511-compare.txt",
    "rfc4511-search.txt",
    "rfc4511-write.txt",
    "rfc5805-transactions.txt",
    "unique.txt",
];

/// The files to run: these, unless a variable of the environment says `all`, or names files with commas between them.
fn chosen(variable: &str, usual: &[&str]) -> Vec<String> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let Ok(asked) = std::env::var(variable) else { return owned(usual) };
    if asked != "all" {
        return owned(&asked.split(',').collect::<Vec<_>>());
    }
    let files = std::fs::read_dir(folder()).expect("the scenarios");
    let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".txt")).collect();
    names.sort();
    names
}

/// The configuration that is meant where a file has none: that of [`Site::example`].
const EXAMPLE: &str = "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
    index objectClass,uid,uidNumber eq\nindex cn,sn,mail pres,eq,sub\n";

/// What Larix answers with `database kv` in place of `database mdb`; or why nothing is answered.
fn differences_on_an_engine(engine: &AnyEngine, name: &str, reads: &str) -> Result<Vec<String>, String> {
    let path = folder().join(name);
    let steps = scenario::parse(&std::fs::read_to_string(&path).expect("a scenario"));
    let place = OnEngine::new(engine, &configuration(&steps).unwrap_or_else(|| EXAMPLE.to_owned()), reads);
    if let Some(refusal) = place.refusal() {
        return Err(refusal);
    }
    place.load(&loads(&steps))?;
    let answers = play(Kind::Larix, &steps, place.start()?);
    let answers = answers.map_err(|Died(line)| format!("the server died at line {line}"))?;
    Ok(differences(name, Kind::Larix, &steps, &answers))
}

#[test]
fn databases_in_a_shared_engine() {
    let Some(engine) = AnyEngine::start("LARIX_CONFORMANCE_KV_ENGINE") else { return };
    let names = chosen("LARIX_CONFORMANCE_KV", &ALSO_ON_AN_ENGINE);
    // Every other file each way, unless a variable says one for all.
    let reads = std::env::var("LARIX_CONFORMANCE_KV_READS").ok();
    let mut wrong = Vec::new();
    for (name, usual) in names.iter().zip(["strict", "session"].into_iter().cycle()) {
        let reads = reads.as_deref().unwrap_or(usual);
        let known = KNOWN_ON_AN_ENGINE.iter().find(|(file, ..)| file == name);
        match (&differences_on_an_engine(&engine, name, reads), known) {
            (Ok(faults), None) if faults.is_empty() => println!("{name}: as with mdb ({reads})"),
            (Err(refusal), Some((_, Known::Refused(part)))) if refusal.contains(part) => {
                println!("{name}: refused: {part}");
            }
            (Ok(faults), Some((_, Known::Differs(steps, why)))) if faults.len() == *steps => {
                println!("{name}: {steps} steps differ: {why}");
            }
            (Ok(faults), _) => {
                wrong.push(format!("{name}: {} steps differ:\n{}", faults.len(), faults.join("\n")))
            }
            (Err(refusal), _) => wrong.push(format!("{name}: refused: {refusal}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {} files:\n\n{}", wrong.len(), names.len(), wrong.join("\n\n"));
}

/// What is known of a file with a database in a shared engine.
enum Known {
    /// The server refuses the configuration, or the entries, with a text that has this in it.
    Refused(&'static str),
    /// So many steps are answered otherwise, and why.
    Differs(usize, &'static str),
}

const KNOWN_ON_AN_ENGINE: &[(&str, Known)] = &[
    ("cn-config-changes.txt", Known::Differs(45, "its requests name the entry olcDatabase={1}mdb")),
    ("memberof-across-databases.txt", Known::Refused("is meant for all of them")),
    ("monitor.txt", Known::Differs(1, "the class olmMDBDatabase is for mdb")),
    ("overlay-glue.txt", Known::Refused("the overlay glue does not work in a kv database")),
    ("overlay-glue-references.txt", Known::Refused("the overlay glue does not work in a kv database")),
    ("refint-across-databases.txt", Known::Refused("is meant for all of them")),
    ("retcode.txt", Known::Refused("the overlay retcode does not work in a kv database")),
];

macro_rules! scenarios {
    ($($name:ident: $file:literal,)*) => {
        $(#[test]
        fn $name() {
            check($file);
        })*

        #[test]
        fn every_file_is_run() {
            let named = [$($file),*];
            for entry in std::fs::read_dir(folder()).expect("the scenarios") {
                let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
                assert!(!name.ends_with(".txt") || named.contains(&name.as_str()), "{name} is not run");
            }
        }
    };
}

scenarios! {
    memberof: "memberof.txt",
    refint: "refint.txt",
    memberof_across_databases: "memberof-across-databases.txt",
    refint_across_databases: "refint-across-databases.txt",
    cn_config_changes: "cn-config-changes.txt",
    configuration_allow: "configuration-allow.txt",
    configuration_disallow: "configuration-disallow.txt",
    configuration_disallow_simple: "configuration-disallow-simple.txt",
    configuration_security_global: "configuration-security-global.txt",
    configuration_security_simple_bind: "configuration-security-simple-bind.txt",
    access_doors: "access-doors.txt",
    filters_and_indexes: "filters-and-indexes.txt",
    access_increment: "access-increment.txt",
    access_relax: "access-relax.txt",
    access_passwords: "access-passwords.txt",
    access_authorization_urls: "access-authorization-urls.txt",
    access_effective_rights: "access-effective-rights.txt",
    access_values: "access-values.txt",
    access_virtual_entries: "access-virtual-entries.txt",
    configuration_limits: "configuration-limits.txt",
    configuration_limits_grid: "configuration-limits-grid.txt",
    configuration_limits_sections: "configuration-limits-sections.txt",
    configuration_limits_subjects: "configuration-limits-subjects.txt",
    configuration_require_everywhere: "configuration-require-everywhere.txt",
    configuration_restrict_everywhere: "configuration-restrict-everywhere.txt",
    configuration_restrictions: "configuration-restrictions.txt",
    databases_and_suffixes: "databases-and-suffixes.txt",
    glued_access: "glued-access.txt",
    glued_identities: "glued-identities.txt",
    glued_referral: "glued-referral.txt",
    rfc2696_paged_results: "rfc2696-paged-results.txt",
    rfc2891_sort: "rfc2891-sort.txt",
    rfc3062_password_modify: "rfc3062-password-modify.txt",
    rfc3296_referrals: "rfc3296-referrals.txt",
    rfc3672_subentries: "rfc3672-subentries.txt",
    rfc3673_operational_attributes: "rfc3673-operational-attributes.txt",
    rfc3866_language_tags: "rfc3866-language-tags.txt",
    rfc3876_matched_values: "rfc3876-matched-values.txt",
    rfc3909_cancel: "rfc3909-cancel.txt",
    rfc4370_proxied_authorization: "rfc4370-proxied-authorization.txt",
    rfc4511_bind: "rfc4511-bind.txt",
    rfc4511_compare: "rfc4511-compare.txt",
    rfc4511_search: "rfc4511-search.txt",
    rfc4511_write: "rfc4511-write.txt",
    rfc4512_root_dse_and_subschema: "rfc4512-root-dse.txt",
    rfc4512_schema_rules: "rfc4512-schema-rules.txt",
    rfc4513_authorization_identities: "rfc4513-authorization-identities.txt",
    rfc4514_names: "rfc4514-names.txt",
    rfc4517_matching_rules: "rfc4517-matching-rules.txt",
    rfc4525_increment: "rfc4525-increment.txt",
    rfc4526_absolute_filters: "rfc4526-absolute-filters.txt",
    monitor: "monitor.txt",
    password_policy: "password-policy.txt",
    password_hashing: "password-hashing.txt",
    password_policy_controls: "password-policy-controls.txt",
    rfc4527_read_entry: "rfc4527-read-entry.txt",
    rfc4528_assertion: "rfc4528-assertion.txt",
    rfc4528_virtual_entries: "rfc4528-virtual-entries.txt",
    rfc4529_object_class_attributes: "rfc4529-object-class-attributes.txt",
    rfc5805_transactions: "rfc5805-transactions.txt",
    rfc5805_undone: "rfc5805-undone.txt",
    deref: "deref.txt",
    in_chain: "in-chain.txt",
    collect: "collect.txt",
    collective: "collective.txt",
    autogroup: "autogroup.txt",
    constraint: "constraint.txt",
    dds: "dds.txt",
    dyngroup: "dyngroup.txt",
    dynlist: "dynlist.txt",
    nestgroup: "nestgroup.txt",
    otp: "otp.txt",
    overlay_glue: "overlay-glue.txt",
    overlay_glue_references: "overlay-glue-references.txt",
    overlay_order: "overlay-order.txt",
    proxied_authorization_v1: "proxied-authorization-v1.txt",
    unique: "unique.txt",
    retcode: "retcode.txt",
    smbk5pwd: "smbk5pwd.txt",
    relay_glued: "relay-glued.txt",
    rwm_relay: "rwm-relay.txt",
    valsort: "valsort.txt",
    verify_credentials: "verify-credentials.txt",
    vlv: "vlv.txt",
    update_controls: "update-controls.txt",
}

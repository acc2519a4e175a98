//! The scenarios once more, through `database ldap` in front of the server that has the entries.

use larix_testkit::Kind;
use larix_tests::proxied::Proxied;
use larix_tests::scenario::{self, Step};

use super::{Died, EXAMPLE, SLAPD_IS_NOT_ASKED, chosen, configuration, differences, folder, play, prepare};

/// The files that every run puts behind a proxy; `LARIX_CONFORMANCE_PROXY=all` puts all of them there, and
/// `LARIX_CONFORMANCE_PROXY_TARGET=slapd` puts them behind a proxy in front of a real slapd.
const ALSO_BEHIND_A_PROXY: [&str; 10] = [
    "access-doors.txt",
    "rfc2696-paged-results.txt",
    "rfc3062-password-modify.txt",
    "rfc3296-referrals.txt",
    "rfc4370-proxied-authorization.txt",
    "rfc4511-bind.txt",
    "rfc4511-compare.txt",
    "rfc4511-search.txt",
    "rfc4511-write.txt",
    "rfc4527-read-entry.txt",
];

/// What is answered through a proxy otherwise than by the target; or why nothing is.
fn differences_behind(target: Kind, name: &str) -> Result<Vec<String>, String> {
    let mut steps = scenario::parse(&std::fs::read_to_string(folder().join(name)).expect("a scenario"));
    let lines = configuration(&steps).unwrap_or_else(|| EXAMPLE.to_owned());
    let site = prepare(target, &steps);
    let proxied = Proxied::new(&lines, site.start().map_err(|error| error.to_string())?);
    let server = proxied.start().map_err(|error| error.to_string())?;
    let answers = play(target, &steps, server);
    let answers = answers.map_err(|Died(line)| format!("the server died at line {line}"))?;
    if !proxied.stop() && target == Kind::Larix {
        return Err("the target did not stop cleanly".to_owned());
    }
    if target == Kind::Slapd {
        // What Larix answers otherwise on purpose, it may answer before it asks the target.
        let own = |(step, answer): &(&mut Step, &String)| step.expected_of_larix() == answer.as_str();
        let steps = steps.iter_mut().zip(&answers).filter(own);
        steps.for_each(|(step, answer)| step.expected.clone_from(answer));
    }
    Ok(differences(name, target, &steps, &answers))
}

#[test]
fn databases_behind_a_proxy() {
    let asked = std::env::var("LARIX_CONFORMANCE_PROXY_TARGET");
    let target = if asked.is_ok_and(|asked| asked == "slapd") { Kind::Slapd } else { Kind::Larix };
    if target.is_lacking() {
        return;
    }
    let mut names = chosen("LARIX_CONFORMANCE_PROXY", &ALSO_BEHIND_A_PROXY);
    let is_of_larix = |name: &String| {
        std::fs::read_to_string(folder().join(name)).is_ok_and(|text| text.starts_with(SLAPD_IS_NOT_ASKED))
    };
    if target == Kind::Slapd {
        names.retain(|name| !is_of_larix(name));
    }
    names.retain(|name| !ABOUT_THE_SERVER.contains(&name.as_str()));
    let mut wrong = Vec::new();
    for name in &names {
        let tables = [KNOWN_BEHIND_A_PROXY, if target == Kind::Slapd { KNOWN_BEFORE_SLAPD } else { &[] }];
        let known = tables.iter().copied().flatten().filter(|(file, _)| file == name);
        let known: Vec<&Known> = known.flat_map(|(_, known)| *known).collect();
        let found = differences_behind(target, name);
        match found.and_then(|faults| explained(&faults, &known)) {
            Ok(text) => println!("{name}: {text}"),
            Err(text) => wrong.push(format!("{name}: {text}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {} files:\n\n{}", wrong.len(), names.len(), wrong.join("\n\n"));
}

/// Steps that are answered otherwise.
struct Known {
    /// What the request and its answers have in them.
    part: &'static str,
    steps: usize,
    why: &'static str,
}

/// What is known of these differences, if each of them is known.
fn explained(faults: &[String], known: &[&Known]) -> Result<String, String> {
    let mut left: Vec<&String> = faults.iter().collect();
    let mut text = String::new();
    for Known { part, steps, why } in known {
        let before = left.len();
        left.retain(|fault| !fault.contains(part));
        let found = before - left.len();
        if found != *steps {
            return Err(format!("{found} steps, not {steps}, differ with {part:?}:\n{}", faults.join("\n")));
        }
        text += &format!("\n  {steps} steps differ: {why}");
    }
    match left.as_slice() {
        [] if text.is_empty() => Ok("as without a proxy".to_owned()),
        [] => Ok(text),
        _ => {
            let left: Vec<String> = left.into_iter().cloned().collect();
            Err(format!("{} steps differ:\n{}", left.len(), left.join("\n")))
        }
    }
}

/// These ask a server about itself: through a proxy, that is the proxy.
const ABOUT_THE_SERVER: [&str; 3] = ["access-virtual-entries.txt", "cn-config-changes.txt", "monitor.txt"];

const NO_TRANSACTIONS: &str = "a proxied database takes no transactions, as in slapd";
const OWN_ENTRIES: &str = "the root DSE and cn=Subschema are the proxy's own";
const WHO_AM_I: &str = "Who am I? is answered by the proxy, with the name that was bound by, as in slapd";
const ELSEWHERE: &str =
    "who has bound at another database is anonymous to the target: there is no idassert-bind, as in slapd";
const OWN_BIND: &str =
    "the target refuses the proxy's own bind: slapd hands its 53 on, and here the target is unavailable";
const ROOT_HERE: &str = "the proxy compares the root's password itself";
const NO_IDENTITIES: &str = "identities of SASL and authzid find no entries in a proxied database";

/// The differences, by file. What a part has taken is not counted for the parts below it.
const KNOWN_BEHIND_A_PROXY: &[(&str, &[Known])] = &[
    ("access-doors.txt", &[Known { part: "takes no transactions", steps: 2, why: NO_TRANSACTIONS }]),
    ("configuration-limits-sections.txt", &[Known { part: "search \"dc=y\"", steps: 2, why: ELSEWHERE }]),
    (
        "configuration-restrict-everywhere.txt",
        &[
            Known { part: "search \"\" base", steps: 18, why: OWN_ENTRIES },
            Known { part: "search \"cn=Subschema\" base", steps: 18, why: OWN_ENTRIES },
            Known { part: "whoami", steps: 22, why: WHO_AM_I },
        ],
    ),
    (
        "configuration-restrictions.txt",
        &[
            Known {
                part: "--- answered\n=> 52 text \"the target could not be used",
                steps: 16,
                why: OWN_BIND,
            },
            Known { part: "as cn=root,", steps: 2, why: ROOT_HERE },
            Known { part: "whoami", steps: 6, why: WHO_AM_I },
        ],
    ),
    (
        "databases-and-suffixes.txt",
        &[Known { part: "=> 8 text \"modifications require authentication\"", steps: 2, why: ELSEWHERE }],
    ),
    ("dds.txt", &[Known { part: "dynamicSubtrees", steps: 1, why: OWN_ENTRIES }]),
    ("rfc4511-bind.txt", &[Known { part: "whoami", steps: 1, why: WHO_AM_I }]),
    (
        "rfc4513-authorization-identities.txt",
        &[Known { part: "text \"not authorized to assume identity\"", steps: 29, why: NO_IDENTITIES }],
    ),
    (
        "rfc5805-transactions.txt",
        &[
            Known { part: "takes no transactions", steps: 3, why: NO_TRANSACTIONS },
            Known { part: "search \"ou=people,dc=example,dc=com\"", steps: 3, why: NO_TRANSACTIONS },
        ],
    ),
    ("rfc5805-undone.txt", &[Known { part: "takes no transactions", steps: 1, why: NO_TRANSACTIONS }]),
    (
        "rwm-relay.txt",
        &[
            Known { part: "whoami", steps: 2, why: WHO_AM_I },
            Known {
                part: "delete uid=bob,ou=people,o=rules",
                steps: 1,
                why: "the proxy refuses a change by nobody before the target's rules see it, as slapd does",
            },
        ],
    ),
];

/// Further ones where a real slapd is the target.
const KNOWN_BEFORE_SLAPD: &[(&str, &[Known])] = &[(
    "retcode.txt",
    &[Known {
        part: "delete cn=any,",
        steps: 1,
        why: "slapd's retcode answers a delete with an entry, which ends the connection to it",
    }],
)];

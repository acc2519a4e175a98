//! A generator for each overlay: configurations that slapd 2.5 takes, and values that they are about.

use super::changes::{Changes, Vocabulary};
use super::{Case, Difference, Generator, Known, Random};

pub static ALL: &[Generator] = &[
    Generator {
        overlay: "unique",
        schema: &[],
        case: unique,
        compared: "*",
        works_later: false,
        known: UNIQUE_KNOWN,
    },
    Generator {
        overlay: "constraint",
        schema: &[],
        case: constraint,
        compared: "*",
        works_later: false,
        known: CONSTRAINT_KNOWN,
    },
    Generator {
        overlay: "memberof",
        schema: &[],
        case: memberof,
        compared: "* memberOf",
        works_later: false,
        known: MEMBEROF_KNOWN,
    },
    Generator {
        overlay: "refint",
        schema: &[],
        case: refint,
        compared: "* modifiersName",
        works_later: true,
        known: REFINT_KNOWN,
    },
    Generator {
        overlay: "dynlist",
        schema: &["dyngroup"],
        case: dynlist,
        compared: "* memberOf",
        works_later: false,
        known: DYNLIST_KNOWN,
    },
];

const UNIQUE_KNOWN: &[Known] = &[
    Known {
        reason: "unique judges the entry as the change leaves it: other faults of the change are reported first",
        is: |difference| {
            difference.trees_are_equal() && matches!(difference.codes(), ("19", other) if other != "0")
        },
    },
    Known {
        reason: "slapd looks at the filter of a URI for adds alone, not whether the modified entry matches it",
        is: |difference| {
            let changes = difference.step.starts_with("modify") || difference.step.starts_with("modrdn");
            difference.codes() == ("19", "0") && changes && is_outside(difference, difference.answers.0)
        },
    },
    Known {
        reason: "slapd judges an entry that moves out of a domain by where it was",
        is: |difference| {
            difference.codes() == ("19", "0")
                && difference.step.starts_with("modrdn")
                && leaves_the_domains(difference)
        },
    },
    Known {
        reason: "an entry that a change brings into a domain counts with all of its values, not with those of the change alone",
        is: |difference| {
            let (modifies, moves) =
                (difference.step.starts_with("modify"), difference.step.starts_with("modrdn"));
            difference.codes() == ("0", "19")
                && (modifies || moves)
                && is_outside(difference, difference.answers.1)
        },
    },
];

/// Whether a move takes the entry out of the bases of all areas with the filter that slapd's refusal quotes.
fn leaves_the_domains(difference: &Difference<'_>) -> bool {
    let Some(superior) = difference.step.split('"').nth(5) else { return false };
    let uris = difference.case.configuration.iter().flat_map(|line| line.split("ldap:///").skip(1));
    let quoted = difference.answers.0.split_once("(&").and_then(|(_, text)| text.split_once("(|"));
    let filter = quoted.map_or("", |(filter, _)| filter);
    let areas = uris.filter(|uri| uri.contains(filter));
    let mut bases = areas.map(|uri| uri.split('?').next().unwrap_or_default());
    bases.all(|base| !base.is_empty() && base != "@S@" && !superior.ends_with(base))
}

/// Whether the entry does not match the filter that this refusal quotes, as Larix has it now.
fn is_outside(difference: &Difference<'_>, refusal: &str) -> bool {
    let text = |dn: &str| dn.replace("@S@", &difference.suffix());
    let (before, behind) = (text(difference.target()), text(&new_name(difference).unwrap_or_default()));
    let lines = || difference.lines_of(&before).chain(difference.lines_of(&behind));
    let has = |line: &str| lines().any(|known| known.eq_ignore_ascii_case(line));
    let has_any = |attribute: &str| lines().any(|line| line.starts_with(attribute));
    let quotes = |filter: &str| refusal.contains(&format!("(&{filter}(|"));
    quotes(BOSSES) && !has("title: boss")
        || quotes(OTHERS) && has("title: boss")
        || quotes(NAMED) && !has("uid: a") && !has_any("description: ")
}

const BOSSES: &str = "(title=boss)";
const OTHERS: &str = "(!(title=boss))";
const NAMED: &str = "(|(uid=a)(description=*))";

const CONSTRAINT_KNOWN: &[Known] = &[
    Known {
        reason: "slapd does not escape a value that it puts into the filter of a URI",
        is: |difference| difference.codes() == ("80", "19") && difference.step.contains("(*)"),
    },
    Known {
        reason: "slapd counts values that are there already twice: the change is refused here because they are there",
        is: |difference| difference.codes() == ("19", "20") && difference.is_configured(" count "),
    },
    Known {
        reason: "slapd counts the values of attributes that a change does not touch or only takes away from",
        // Larix reports the other faults of such a change.
        is: |difference| {
            let codes_fit = match difference.codes() {
                ("19", "0") => true,
                ("19", "16") => difference.trees_are_equal() && difference.is_configured(" count "),
                _ => false,
            };
            codes_fit && !brings_what_is_counted(difference)
        },
    },
];

/// Whether a change adds to or replaces an attribute whose values are counted.
fn brings_what_is_counted(difference: &Difference<'_>) -> bool {
    let rdn =
        difference.step.split('"').nth(3).and_then(|rdn| rdn.split_once('=')).map(|(attribute, _)| attribute);
    let changed = difference.step.lines().skip(1).filter_map(|line| {
        let line = line.trim_start();
        let (verb, rest) = line.split_once(' ')?;
        (verb != "delete").then(|| rest.split(':').next().unwrap_or(rest))
    });
    changed.chain(rdn).any(|attribute| {
        difference.case.configuration.iter().filter(|line| line.contains(" count ")).any(|line| {
            line.split(' ').nth(1).is_some_and(|names| names.split(',').any(|name| name == attribute))
        })
    })
}

const MEMBEROF_KNOWN: &[Known] = &[
    Known {
        reason: "memberOf is what the groups say, whichever entry came first and whatever else the request changes",
        is: |difference| {
            let names = ("groupOfNames", "member");
            let unique_names = ("groupOfUniqueNames", "uniqueMember");
            match (difference.is_configured("groupOfUniqueNames"), difference.is_configured(ANOTHER)) {
                (_, true) => difference.groups_decide(&[names, unique_names]),
                (true, false) => difference.groups_decide(&[unique_names]),
                (false, false) => difference.groups_decide(&[names]),
            }
        },
    },
    Known {
        reason: "with memberof-refint groups follow when an entry above a member is renamed",
        is: |difference| difference.is_configured("memberof-refint TRUE") && follows_a_container(difference),
    },
    Known {
        reason: "a group that is added may name itself",
        is: |difference| {
            let itself = format!("ember: {}", difference.target());
            let names_itself = |line: &str| line.ends_with(&itself);
            let keeps_itself = match difference.codes() {
                // The group had no other member that is there.
                ("65", "0") => difference.is_configured("dangling drop"),
                ("0", "0") => {
                    let own = itself.replace("@S@", &difference.suffix());
                    let mut lines = difference.trees.1.lines().filter(|line| !is_about_others(line));
                    difference.is_configured("dangling drop")
                        && difference.trees.0.is_empty()
                        && lines.all(|line| line.ends_with(&own))
                }
                _ => difference.is_configured("dangling error"),
            };
            keeps_itself && difference.step.starts_with("add") && difference.step.lines().any(names_itself)
        },
    },
];

/// Whether members are those of slapd with the new name of a container in them.
fn follows_a_container(difference: &Difference<'_>) -> bool {
    is_renamed_in(difference, difference.trees.0, difference.trees.1)
}

/// Whether `after` has all names of `before`, with the new name of a container in them.
fn is_renamed_in(difference: &Difference<'_>, before: &str, after: &str) -> bool {
    let renamed: Vec<&str> = difference.step.split('"').collect();
    let ["modrdn ", from, " ", to, ..] = renamed.as_slice() else { return false };
    let from = from.split(',').next().unwrap_or_default();
    let mut lines = before.lines().filter(|line| !is_about_others(line));
    from.starts_with("ou=")
        && lines.all(|line| {
            let parts = line.rsplit_once(&format!(",{from},"));
            parts.is_some_and(|(start, end)| after.contains(&format!("{start},{to},{end}")))
        })
}

/// Lines that differ where others do.
fn is_about_others(line: &str) -> bool {
    line.contains("memberOf: ") || line.contains("modifiersName: ")
}

const REFINT_KNOWN: &[Known] = &[
    Known {
        reason: "names below an entry that has no entry below it stay",
        is: |difference| {
            let to = difference.step.split('"').nth(3).unwrap_or_default();
            let below = format!(",{to},{}", difference.suffix());
            let is_empty =
                !difference.ours.lines().any(|line| line.starts_with("-> ") && line.ends_with(&below));
            is_empty && is_renamed_in(difference, difference.trees.1, difference.trees.0)
        },
    },
    Known {
        reason: "slapd leaves an entry as it is that has the new name already",
        is: |difference| {
            let mut lines = difference.trees.0.lines().filter(|line| !is_about_others(line));
            difference.step.starts_with("modrdn") && lines.all(|line| has_the_new_name(difference, line))
        },
    },
];

/// What a rename calls the entry.
fn new_name(difference: &Difference<'_>) -> Option<String> {
    let words: Vec<&str> = difference.step.split('"').collect();
    let ["modrdn ", from, " ", rdn, rest @ ..] = words.as_slice() else { return None };
    let superior = rest.get(1).copied().or_else(|| from.split_once(',').map(|(_, superior)| superior));
    Some(format!("{rdn},{}", superior.unwrap_or_default()))
}

/// Whether the line has the old name of what is renamed, in an attribute of refint that has the new name here.
fn has_the_new_name(difference: &Difference<'_>, line: &str) -> bool {
    let text = |dn: &str| dn.replace("@S@", &difference.suffix());
    let Some(new) = new_name(difference) else { return false };
    let (old, new) = (text(difference.target()), text(&new));
    let Some((entry, value)) = line.trim_start_matches("-> ").split_once(":    ") else { return false };
    let Some((attribute, name)) = value.split_once(": ") else { return false };
    let followed = |line: &String| line.split(' ').skip(1).any(|followed| followed == attribute);
    let expected = format!("{attribute}: {new}");
    name == old
        && difference
            .case
            .configuration
            .iter()
            .filter(|line| line.starts_with("refint_attributes "))
            .any(followed)
        && difference.lines_of(entry).any(|own| own == expected)
}

/// The line that puts a second one over the first.
const ANOTHER: &str = "overlay memberof";

const DYNLIST_KNOWN: &[Known] = &[
    Known {
        reason: "memberOf is what members of groups say, also of groups themselves",
        is: |difference| {
            let by_url = ("groupOfURLs", "member");
            match difference.is_configured("@groupOfNames") {
                true => difference.groups_decide(&[by_url, ("groupOfNames", "member")]),
                false => difference.groups_decide(&[by_url]),
            }
        },
    },
    Known {
        reason: "a group by URL has members for every identity",
        is: |difference| difference.step.starts_with("compare") && difference.codes() == ("16", "5"),
    },
    Known {
        reason: "slapd expands a list with mapped attributes for who asks for one of these alone: here what is asked for by name \
                 is there as with `*`",
        is: |difference| {
            let lines =
                difference.case.configuration.iter().filter(|line| line.starts_with("dynlist-attrset "));
            let mapped = lines.flat_map(|line| line.split(' ').filter_map(|word| word.split_once(':')));
            let mapped: Vec<&str> = mapped.map(|(mapped, _)| mapped).collect();
            let selection: Vec<&str> = match difference.step.trim_end().rsplit_once(") ") {
                Some((_, selection)) => selection.split(' ').collect(),
                None => return false,
            };
            let (theirs, ours) = difference.answers;
            let is_asked = |line: &str| {
                let attribute = line.trim_start().split_once(": ").map(|(attribute, _)| attribute);
                attribute.is_some_and(|attribute| selection.contains(&attribute))
            };
            let known: Vec<&str> = theirs.lines().collect();
            difference.step.starts_with("search")
                && difference.trees_are_equal()
                && !mapped.is_empty()
                && !selection.iter().any(|name| *name == "*" || mapped.contains(name))
                && known.iter().all(|line| ours.lines().any(|own| own == *line))
                && ours.lines().filter(|line| !known.contains(line)).all(is_asked)
        },
    },
    Known {
        reason: "a filter finds the nested groups whose answers show the member, static ones with a group by URL in them as well",
        is: |difference| {
            let (theirs, ours) = difference.answers;
            let found = |answer: &str| -> Vec<String> {
                answer.lines().filter(|line| line.starts_with("-> ")).map(str::to_owned).collect()
            };
            let (theirs, ours) = (found(theirs), found(ours));
            let is_static = |line: &&String| {
                let dn = line.trim_start_matches("-> ");
                difference.lines_of(dn).any(|own| own == "objectClass: groupOfNames")
            };
            difference.step.starts_with("search \"@S@\" sub (member=")
                && difference.is_configured("*")
                && difference.trees_are_equal()
                && theirs.iter().all(|line| ours.contains(line))
                && ours.iter().filter(|line| !theirs.contains(line)).all(|line| is_static(&line))
        },
    },
    Known {
        reason: "slapd compares with a group that is not there",
        is: |difference| difference.step.starts_with("compare") && difference.codes() == ("5", "32"),
    },
];

/// Steps of one case behind those that fill the tree.
const STEPS: usize = 24;

fn no_read(_: &mut Random) -> String {
    String::new()
}

fn lines(random: &mut Random, most: usize, line: fn(&mut Random) -> String) -> Vec<String> {
    (0..=random.below(most)).map(|_| line(random)).collect()
}

static VALUES: Vocabulary = Vocabulary {
    of_people: &[
        ("mail", &["a@x.org", "A@X.org", "b@x.org", "bad@y.org", "c(*)@x.org", "d@x.org"]),
        ("employeeNumber", &["1", "2", "22", "3", "4", "5"]),
        ("description", &["one", "ONE", "two words", "two  Words", "three three three", "x", "y"]),
        ("title", &["boss", "clerk"]),
        ("displayName", &["a", "b", "c"]),
        ("uid", &["a", "b", "boss", "clerk"]),
        ("telephoneNumber", &["+1 234", "+1234", "5"]),
    ],
    groups: &[],
    controls: &["manageDSAit", "!relax"],
};

fn unique(random: &mut Random) -> Case {
    let mut configuration = Vec::new();
    if random.percent(25) {
        let base = ["", "unique_base @S@", "unique_base ou=people,@S@"][random.below(3)];
        let attributes = random.some(&["mail", "employeeNumber", "description", "uid"], 50).join(" ");
        let keyword = random.pick(&["unique_attributes", "unique_ignore"]);
        if !base.is_empty() {
            configuration.push(base.to_owned());
        }
        if !attributes.is_empty() {
            configuration.push(format!("{keyword} {attributes}"));
        }
        if random.percent(30) || configuration.is_empty() {
            configuration.push("unique_strict TRUE".to_owned());
        }
    } else {
        configuration.extend(lines(random, 3, unique_uri));
    }
    let steps = Changes::new(random, &VALUES).steps(STEPS, 0, no_read);
    Case { configuration, steps }
}

fn unique_uri(random: &mut Random) -> String {
    let keywords = random.some(&["strict ", "ignore ", "serialize "], 20).concat();
    let uris: Vec<String> = (0..=random.below(2))
        .map(|_| {
            let base = random.pick(&["", "@S@", "ou=people,@S@", "ou=other,@S@"]);
            let attributes =
                random.some(&["mail", "employeeNumber", "description", "uid", "telephoneNumber"], 35);
            let scope = random.pick(&["sub", "sub", "one"]);
            let filter = random.pick(&["", "", BOSSES, OTHERS, NAMED, "(objectClass=inetOrgPerson)"]);
            let mark = if filter.is_empty() { "" } else { "?" };
            format!("ldap:///{base}?{}?{scope}{mark}{filter}", attributes.join(","))
        })
        .collect();
    format!("unique_uri \"{keywords}{}\"", uris.join(" "))
}

fn constraint(random: &mut Random) -> Case {
    let configuration = lines(random, 4, constraint_line);
    let steps = Changes::new(random, &VALUES).steps(STEPS, 0, no_read);
    Case { configuration, steps }
}

fn constraint_line(random: &mut Random) -> String {
    let one = random.pick(&["mail", "employeeNumber", "description", "title", "uid", "telephoneNumber"]);
    let rule = match random.below(8) {
        0 => format!("{one} regex {}", random.pick(&["^[a-z]+@x", "o", "^.{1,3}$", "^[[:digit:]]+$"])),
        1 => format!("{one} negregex {}", random.pick(&["^bad", "[A-Z]", "^2", "two +"])),
        2 => format!("{one} size {}", random.below(12)),
        3 => format!("{one} count {}", random.below(3)),
        4 => {
            let base = random.pick(&["@S@", "ou=people,@S@"]);
            let scope = random.pick(&["sub", "one"]);
            let filter = random.pick(&["", "?(title=boss)", "?(objectClass=inetOrgPerson)"]);
            format!(
                "{one} uri ldap:///{base}?{}?{scope}{filter}",
                random.pick(&["uid", "title,uid", "description"])
            )
        }
        5 => format!("{one} set \"this/{one} & this/{}\"", random.pick(&["cn", "uid", "displayName"])),
        6 => format!("{one} set \"this/uid & [a]\""),
        _ => format!("mail,uid {} {}", random.pick(&["count", "size"]), 1 + random.below(4)),
    };
    let restrict = random.pick(&[
        "",
        "",
        "",
        " restrict=\"ldap:///ou=people,@S@??sub\"",
        " restrict=\"ldap:///@S@??one\"",
        " restrict=\"ldap:///ou=people,@S@??one?(title=*)\"",
        " restrict=\"ldap:///??sub?(!(employeeNumber=1))\"",
    ]);
    format!("constraint_attribute {rule}{restrict}")
}

static MEMBERS: Vocabulary = Vocabulary {
    of_people: &[("description", &["one", "two"]), ("seeAlso", &["@DN@"])],
    groups: &[
        ("groupOfNames", &[("member", &["@DN@"]), ("seeAlso", &["@DN@"])]),
        ("groupOfUniqueNames", &[("uniqueMember", &["@DN@"])]),
    ],
    controls: &["manageDSAit"],
};

fn memberof(random: &mut Random) -> Case {
    let mut configuration = Vec::new();
    if random.percent(25) {
        configuration.push("memberof-group-oc groupOfUniqueNames".to_owned());
        configuration.push("memberof-member-ad uniqueMember".to_owned());
    }
    if random.percent(50) {
        configuration.push(format!("memberof-refint {}", random.pick(&["TRUE", "FALSE"])));
    }
    if random.percent(60) {
        configuration.push(format!("memberof-dangling {}", random.pick(&["ignore", "drop", "error"])));
        if random.percent(40) {
            let code = random.pick(&["noSuchObject", "constraintViolation", "0x35"]);
            configuration.push(format!("memberof-dangling-error {code}"));
        }
    }
    if random.percent(15) && configuration.iter().all(|line| !line.contains("group-oc")) {
        configuration.push(ANOTHER.to_owned());
        configuration.push("memberof-group-oc groupOfUniqueNames".to_owned());
        configuration.push("memberof-member-ad uniqueMember".to_owned());
    }
    let steps = Changes::new(random, &MEMBERS).steps(STEPS, 0, no_read);
    Case { configuration, steps }
}

static REFERENCES: Vocabulary = Vocabulary {
    of_people: &[("manager", &["@DN@"]), ("seeAlso", &["@DN@"]), ("description", &["one", "two"])],
    groups: &[
        ("groupOfNames", &[("member", &["@DN@"]), ("owner", &["@DN@"]), ("seeAlso", &["@DN@"])]),
        ("groupOfUniqueNames", &[("uniqueMember", &["@DN@"]), ("owner", &["@DN@"])]),
    ],
    controls: &["manageDSAit"],
};

fn refint(random: &mut Random) -> Case {
    // The watcher's attribute is always among them.
    let mut configuration = vec!["refint_attributes secretary".to_owned()];
    let attributes = random.some(&["member", "manager", "seeAlso", "owner", "uniqueMember"], 60).join(" ");
    if !attributes.is_empty() {
        configuration.push(format!("refint_attributes {attributes}"));
    }
    if random.percent(50) {
        configuration.push("refint_nothing cn=nothing,@S@".to_owned());
    }
    if random.percent(30) {
        configuration.push("refint_modifiersName cn=keeper,@S@".to_owned());
    }
    let steps = Changes::new(random, &REFERENCES).steps(STEPS, 0, no_read);
    Case { configuration, steps }
}

static GROUPS_BY_URL: Vocabulary = Vocabulary {
    of_people: &[("mail", &["a@x.org", "b@x.org"]), ("title", &["boss", "clerk"]), ("uid", &["a", "b"])],
    groups: &[
        (
            "groupOfURLs",
            &[(
                "memberURL",
                &[
                    "ldap:///ou=people,@S@??one?(mail=*)",
                    "ldap:///ou=people,@S@??sub?(title=boss)",
                    "ldap:///@S@??sub?(uid=a)",
                    "ldap:///@DN@??base?(objectClass=*)",
                    "ldap:///ou=other,@S@??sub?(|(mail=a@x.org)(title=clerk))",
                    "ldap:///ou=other,@S@??sub?(objectClass=inetOrgPerson)",
                ],
            )],
        ),
        ("groupOfNames", &[("member", &["@DN@"])]),
    ],
    controls: &[],
};

static LISTS: Vocabulary = Vocabulary {
    of_people: GROUPS_BY_URL.of_people,
    groups: &[(
        "groupOfURLs",
        &[(
            "memberURL",
            &[
                "ldap:///ou=people,@S@?mail,title?one?(mail=*)",
                "ldap:///ou=people,@S@?mail?sub?(title=boss)",
                "ldap:///@S@?uid?sub?(uid=a)",
                "ldap:///@DN@?mail,uid?base?(objectClass=*)",
                "ldap:///ou=other,@S@?title?children?(objectClass=inetOrgPerson)",
            ],
        )],
    )],
    controls: &[],
};

fn dynlist(random: &mut Random) -> Case {
    if random.percent(25) {
        let set = random.pick(&["", " mail:mail", " description:uid mail:mail", " uid:uid"]);
        let configuration = vec![format!("dynlist-attrset groupOfURLs memberURL{set}")];
        let steps = Changes::new(random, &LISTS).steps(STEPS, 25, list_read);
        return Case { configuration, steps };
    }
    let set = random.pick(&[
        "member",
        "member+memberOf",
        "member+memberOf@groupOfNames",
        "member+memberOf@groupOfNames",
        "member+memberOf@groupOfNames*",
    ]);
    let configuration = vec![format!("dynlist-attrset groupOfURLs memberURL {set}")];
    let steps = Changes::new(random, &GROUPS_BY_URL).steps(STEPS, 35, dynlist_read);
    Case { configuration, steps }
}

fn list_read(random: &mut Random) -> String {
    let group = format!("cn={},ou=groups,@S@", random.pick(&["g", "h", "i", "j"]));
    match random.below(3) {
        0 => {
            format!("search \"{group}\" base (objectClass=*) {}\n", random.pick(&["mail", "uid title", "*"]))
        }
        1 => format!("compare \"{group}\" mail:{}\n", random.pick(&["a@x.org", "B@x.org"])),
        _ => format!("search \"@S@\" sub (cn={}) mail description\n", random.pick(&["g", "h", "i", "j"])),
    }
}

fn dynlist_read(random: &mut Random) -> String {
    let group = format!("cn={},ou=groups,@S@", random.pick(&["g", "h", "i", "j"]));
    match random.below(7) {
        0 => format!("search \"@S@\" sub (memberOf={group}) cn\n"),
        1 => format!("search \"@S@\" sub (&(objectClass=inetOrgPerson)(memberOf={group})) cn\n"),
        2 => format!("search \"@S@\" sub (|(title=boss)(memberOf={group})) cn\n"),
        3 => "search \"@S@\" sub (member=@DN@) cn\n".to_owned(),
        4 => format!("search \"{group}\" base (objectClass=*) member\n"),
        5 => "search \"@DN@\" base (objectClass=*) memberOf\n".to_owned(),
        _ => format!("compare \"{group}\" member:@DN@\n"),
    }
}

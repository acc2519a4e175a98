//! Access rules x identities x requests, generated: Larix and a real slapd decide alike.
//!
//! `LARIX_MATRIX_CASES` says how many requests (400 by default), `LARIX_MATRIX_SEED` where they begin. A difference
//! shows the rules, who asked and the request, in a scenario's words.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use larix_testkit::{Kind, Server, Site};
use larix_tests::client::Client;
use larix_tests::matrix::rules::{self, Grammar};
use larix_tests::matrix::{Case, Identity, Random, Tree, requests};
use larix_tests::scenario::Step;

/// Databases of one server, each with rules of its own.
const DATABASES: usize = 20;
const CASES_OF_DATABASE: usize = 20;
const DEFAULT_CASES: usize = 400;
/// Databases of a hundred whose entries hold rights, with rules that ask them.
const ACIS_PERCENT: usize = 35;
/// Differences shown in full.
const SHOWN_MAX: usize = 90;

#[test]
fn larix_decides_as_slapd() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    let slapd = Slapd::found();
    println!("{slapd:?}");
    let cases = number("LARIX_MATRIX_CASES").unwrap_or(DEFAULT_CASES);
    let seed = number("LARIX_MATRIX_SEED").unwrap_or(1);
    let rounds = cases.div_ceil(DATABASES * CASES_OF_DATABASE);
    let mut report = Report::default();
    for round in 0..rounds {
        let seed = seed as u64 + round as u64;
        println!("LARIX_MATRIX_SEED={seed}");
        Round::new(seed, slapd).run(&mut report);
    }
    println!("{report}");
    assert!(report.differences.is_empty(), "{} cases differ", report.differences.len());
    // Where slapd dies or an entry does not come back, the rest of a database is not tried.
    assert!(report.cases * 4 >= cases, "{} of {cases} cases were tried", report.cases);
    for code in [" 0", " 50"] {
        assert!(report.results.keys().any(|result| result.ends_with(code)), "nothing has ended with{code}");
    }
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// What the slapd that answers can do.
#[derive(Clone, Copy, Debug)]
struct Slapd {
    /// 2.7: rules about operations and controls.
    knows_requests: bool,
    /// There is a module that sorts.
    sorts: bool,
    /// Built with rights in entries: Debian's is, by default none is.
    knows_acis: bool,
}

impl Slapd {
    fn found() -> Self {
        let program = Kind::Slapd.program().unwrap_or_default();
        let version =
            Command::new(program).arg("-VV").output().map(|output| output.stderr).unwrap_or_default();
        let modules = std::env::var("SLAPD_MODULES").unwrap_or_else(|_| "/usr/lib/ldap".to_owned());
        Self {
            knows_requests: String::from_utf8_lossy(&version).contains("slapd 2.7"),
            sorts: !modules.is_empty() && Path::new(&modules).join("sssvlv.so").exists(),
            knows_acis: Self::takes("access to * by dynacl/aci read\n"),
        }
    }

    /// Whether a line of slapd.conf is none that it refuses.
    fn takes(line: &str) -> bool {
        let site = Site::new(Kind::Slapd, &format!("database mdb\nsuffix dc=m\ndirectory @DATA@\n{line}"));
        let mut test = Kind::Slapd.tool("test");
        test.arg("-uf").arg(site.configuration()).output().is_ok_and(|output| output.status.success())
    }
}

/// What came of all rounds.
#[derive(Default)]
struct Report {
    cases: usize,
    /// Cases at which slapd crashed.
    deaths: usize,
    /// Cases by verb and result code of slapd.
    results: std::collections::BTreeMap<String, usize>,
    /// Equal but for the diagnostic text.
    texts: std::collections::BTreeMap<String, usize>,
    on_purpose: std::collections::BTreeMap<&'static str, usize>,
    differences: Vec<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for difference in self.differences.iter().take(SHOWN_MAX) {
            writeln!(f, "{difference}")?;
        }
        let Self { cases, deaths, differences, .. } = self;
        writeln!(f, "{cases} cases, {} differ, slapd died {deaths} times", differences.len())?;
        for (title, counts) in [("results", &self.results), ("other texts", &self.texts)] {
            writeln!(f, "{title}:")?;
            for (key, count) in counts {
                writeln!(f, "  {count:6} {key}")?;
            }
        }
        for (reason, count) in &self.on_purpose {
            writeln!(f, "  {count:6} differ on purpose: {reason}")?;
        }
        Ok(())
    }
}

/// One start of each server.
struct Round {
    seed: u64,
    slapd: Slapd,
    frontend: Vec<String>,
    databases: Vec<Database>,
}

struct Database {
    tree: Tree,
    rules: Vec<String>,
    add_content_acl: bool,
}

/// A server with its open connections.
struct Peer {
    server: Server,
    clients: HashMap<String, Client>,
    closed: bool,
    /// Whether they could bind.
    bound: HashMap<String, bool>,
    /// Rules know the name of the client's address.
    looks_names_up: bool,
    // Its folder goes when the server has gone.
    site: Site,
}

impl Round {
    fn new(seed: u64, slapd: Slapd) -> Self {
        let grammar = Grammar { requests: slapd.knows_requests, acis: false, ..Grammar::WHOLE };
        let databases = (0..DATABASES)
            .map(|number| {
                let mut random = Random::derived(seed, number as u64);
                let mut tree = Tree::new(&format!("m{number}"));
                let mut acis = Random::derived(seed, 3_000 + number as u64);
                let grammar = Grammar { acis: slapd.knows_acis && acis.percent(ACIS_PERCENT), ..grammar };
                if grammar.acis {
                    tree = tree.with_acis(&mut acis);
                }
                let rules = rules::rule_set(&mut random, grammar);
                let rules = rules.into_iter().map(|rule| rule.replace("@S@", &tree.suffix)).collect();
                Database { tree, rules, add_content_acl: random.percent(20) }
            })
            .collect();
        let frontend = rules::frontend_rules(&mut Random::derived(seed, 1_000), grammar);
        Self { seed, slapd, frontend, databases }
    }

    fn configuration(&self, kind: Kind) -> String {
        let sorts = kind == Kind::Slapd && self.slapd.sorts;
        let schema = larix_testkit::site::schema_directory();
        let mut text = format!("include {}/dyngroup.schema\n", schema.display());
        if sorts {
            text.insert_str(0, "moduleload sssvlv\n");
        }
        if self.looks_names_up() {
            text += "reverse-lookup on\n";
        }
        // Otherwise most of what anonymous asks for is refused before the rules are.
        if !self.seed.is_multiple_of(4) {
            text += "allow update_anon\n";
        }
        self.frontend.iter().for_each(|rule| text += &format!("{rule}\n"));
        for Database { tree, rules, add_content_acl } in &self.databases {
            let suffix = &tree.suffix;
            let _ = write!(
                text,
                "\ndatabase mdb\nsuffix {suffix}\nrootdn cn=root,{suffix}\nrootpw secret\ndirectory @DATA@/{suffix}\n\
                 maxsize 4194304\ndbnosync\nadd_content_acl {}\n",
                if *add_content_acl { "on" } else { "off" }
            );
            rules.iter().for_each(|rule| text += &format!("{rule}\n"));
            if sorts {
                text += "overlay sssvlv\n";
            }
        }
        text
    }

    /// Debian's slapd can; a 2.7 need not be built so.
    fn looks_names_up(&self) -> bool {
        self.seed.is_multiple_of(3) && !self.slapd.knows_requests
    }

    fn start(&self, kind: Kind) -> Peer {
        let site = Site::new(kind, &self.configuration(kind));
        for Database { tree, .. } in &self.databases {
            site.load_into(Some(&tree.suffix), &tree.ldif());
        }
        let server = site.start().unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        Peer {
            server,
            clients: HashMap::new(),
            closed: false,
            bound: HashMap::new(),
            looks_names_up: self.looks_names_up(),
            site,
        }
    }

    fn run(&self, report: &mut Report) {
        let mut slapd = self.start(Kind::Slapd);
        let mut larix = self.start(Kind::Larix);
        for (number, database) in self.databases.iter().enumerate() {
            let mut random = Random::derived(self.seed, 2_000 + number as u64);
            let other = &self.databases[(number + 1) % self.databases.len()].tree.suffix;
            for _ in 0..CASES_OF_DATABASE {
                let case = requests::case(&mut random, &database.tree, other);
                if case.request.contains("sort=") && !self.slapd.sorts {
                    continue;
                }
                let tried = Tried { round: self, database, case };
                let usable = tried.run(&mut slapd, &mut larix, report);
                if slapd.is_dead() {
                    println!("slapd died:\n{}", tried.shown());
                    report.deaths += 1;
                    (slapd, larix) = (self.start(Kind::Slapd), self.start(Kind::Larix));
                    break;
                }
                assert!(!larix.is_dead(), "larix died:\n{}", tried.shown());
                if !usable {
                    break;
                }
            }
        }
    }
}

/// A case, where it is tried.
struct Tried<'a> {
    round: &'a Round,
    database: &'a Database,
    case: Case,
}

impl Tried<'_> {
    /// Answers false when the database cannot be used any more.
    fn run(&self, slapd: &mut Peer, larix: &mut Peer, report: &mut Report) -> bool {
        let Self { database, case, .. } = self;
        let bound = (slapd.bind(&case.identity), larix.bind(&case.identity));
        if bound.0 != bound.1 && !bound.0.is_empty() && !bound.1.is_empty() {
            self.differ(report, &case.identity.bind, &bound.0, &bound.1);
        }
        let (theirs, ours) =
            (slapd.ask(&case.identity, &case.request), larix.ask(&case.identity, &case.request));
        report.cases += 1;
        let verb = case.request.split(' ').next().unwrap_or_default();
        let code = result_code(&theirs);
        *report.results.entry(format!("{verb} {code}")).or_default() += 1;
        if theirs != ours {
            if without_text(&theirs) == without_text(&ours) {
                let line = |answer: &str| {
                    answer.lines().find(|line| line.starts_with("=> ")).unwrap_or("").to_owned()
                };
                *report.texts.entry(format!("{verb}: {} / {}", line(&theirs), line(&ours))).or_default() += 1;
            } else if let Some(reason) = self.on_purpose(slapd, &theirs, &ours) {
                *report.on_purpose.entry(reason).or_default() += 1;
            } else {
                self.differ(report, "", &theirs, &ours);
            }
        }
        // Then nobody knows: 2.5 has changed nothing, 2.7 has.
        let unsure = code == "0" && lacks_reading(case, &theirs);
        let changed = (code == "0", result_code(&ours) == "0");
        if case.undo.is_empty() || changed == (false, false) {
            return true;
        }
        let root = Identity::root(&database.tree);
        let whole = format!("search \"{}\" sub (objectClass=*) with manageDSAit\n", database.tree.suffix);
        if changed == (true, true) && !unsure {
            let (theirs, ours) = (slapd.ask(&root, &whole), larix.ask(&root, &whole));
            if theirs != ours {
                let (theirs, ours) = (lines_without(&theirs, &ours), lines_without(&ours, &theirs));
                self.differ(report, "what the tree is afterwards", &theirs, &ours);
            }
        }
        for undo in &case.undo {
            for (peer, _) in [(&mut *slapd, changed.0), (larix, changed.1)].into_iter().filter(|(_, c)| *c) {
                let answer = peer.ask(&root, undo);
                if result_code(&answer) != "0" && !(unsure && peer.server.kind == Kind::Slapd) {
                    println!("{:?} of seed {}: {undo}{answer}", peer.server.kind, self.round.seed);
                    return false;
                }
            }
        }
        true
    }

    /// Why the answers differ, where that is meant to be.
    fn on_purpose(&self, slapd: &mut Peer, theirs: &str, ours: &str) -> Option<&'static str> {
        let case = &self.case;
        if result_code(theirs) == "0" && lacks_reading(case, theirs) {
            return Some(
                "slapd answers success and changes nothing when the pre-read or post-read may not be had",
            );
        }
        if case.request.contains(" deref=") && without_duplicates(theirs) == without_duplicates(ours) {
            return Some("slapd answers an entry once for each alias that leads to it");
        }
        if case.request.contains(" deref=")
            && case.request.contains(" children ")
            && lines_without(theirs, ours).is_empty()
        {
            // As soon as there are more candidates than entries below the base, it walks down from what aliases lead to, too,
            // and leaves the tops of all walks out.
            let with_tops = slapd.ask(&case.identity, &case.request.replacen(" children ", " sub ", 1));
            if lines_without(ours, &with_tops).is_empty() {
                return Some(
                    "slapd's search below a base leaves out what an alias there leads to, where it walks",
                );
            }
        }
        let fewer = || lines_without(ours, theirs).is_empty();
        if case.request.contains(" typesonly") && case.request.contains(" mv=(") && fewer() {
            return Some("slapd tells the types of matched values that may not be read");
        }
        if case.request.contains("sort=") {
            let without = |answer: &str| lines_that(answer, |line| !line.starts_with("~> "));
            if without(theirs) == without(ours) && !theirs.contains("~> ") {
                return Some("slapd sends no references with sorted results");
            }
            if result_code(theirs) == "50" && result_code(ours) == "0" && !ours.contains("-> ") {
                return Some("slapd's sorting ends with the refusal of an entry that may not be read");
            }
        }
        match (result_code(theirs), result_code(ours)) {
            ("50" | "122" | "32", "32") | ("68", "32" | "50") if is_change(case) && self.is_hidden(slapd) => {
                Some("what may not be disclosed looks missing to changes, too")
            }
            ("50" | "122" | "32", "32") | ("68", "32" | "50")
                if is_change(case) && self.asks_for_requests() =>
            {
                Some(
                    "the same, not proved: a rule is about the operation, which slapd's tool cannot be told of",
                )
            }
            ("32", "32") if self.is_hidden(slapd) || self.asks_for_requests() => {
                Some("what may not be disclosed looks missing: the nearest superior that may be is named")
            }
            ("32", "32") if !ours.contains(" matched ") => {
                Some("rules hide any entry of that name: no superior is named, whether it is there or not")
            }
            ("32", "33") if case.request.contains(" deref=") && self.leads_somewhere(slapd) => {
                Some("an alias of what may not be disclosed looks like one of what is missing")
            }
            _ if self.hides_values() && asks_by_parts(&case.request) => {
                Some("slapd finds values that rules hide by their parts, by order and by presence")
            }
            (_, "8") => Some("anonymous changes are refused before their values are looked at"),
            _ => None,
        }
    }

    /// Whether rules speak of single values.
    fn hides_values(&self) -> bool {
        let mut rules = self.database.rules.iter().chain(&self.round.frontend);
        rules.any(|rule| rule.contains(" val"))
    }

    /// Whether rules speak of operations or controls.
    fn asks_for_requests(&self) -> bool {
        let mut rules = self.database.rules.iter().chain(&self.round.frontend);
        rules.any(|rule| rule.contains(" op=") || rule.contains(" control="))
    }

    /// Whether an entry that the change is about, or one above it, is there and, as slapd itself says, not to be disclosed.
    fn is_hidden(&self, slapd: &mut Peer) -> bool {
        let Self { database, case, .. } = self;
        let root = Identity::root(&database.tree);
        names_of(case, &database.tree.suffix).iter().any(|name| {
            let search = format!("search \"{name}\" base (objectClass=*) 1.1 with manageDSAit");
            let proxied =
                case.identity.proxied.as_ref().map(|id| format!(" !authzid=\"{id}\"")).unwrap_or_default();
            let is_there = result_code(&slapd.ask(&root, &format!("{search}\n"))) == "0";
            // To slapd's tool groups by URL have members that they have not for the server.
            is_there
                && (result_code(&slapd.ask(&case.identity, &format!("{search}{proxied}\n"))) == "32"
                    || !slapd.discloses(&case.identity, name))
        })
    }

    /// Whether an alias on the way to what is asked for is one of an entry, as slapd itself says.
    fn leads_somewhere(&self, slapd: &mut Peer) -> bool {
        let root = Identity::root(&self.database.tree);
        names_of(&self.case, &self.database.tree.suffix).first().is_some_and(|name| {
            let search = format!("search \"{name}\" base (objectClass=*) 1.1 deref=finding\n");
            result_code(&slapd.ask(&root, &search)) != "33"
        })
    }

    fn differ(&self, report: &mut Report, what: &str, theirs: &str, ours: &str) {
        if theirs.ends_with("=> closed\n") {
            return;
        }
        let mut text = self.shown();
        if !what.is_empty() {
            let _ = writeln!(text, "({what})");
        }
        let _ = write!(text, "slapd:\n{theirs}larix:\n{ours}");
        report.differences.push(text);
    }

    /// The rules and the request.
    fn shown(&self) -> String {
        let Self { round, database, case } = self;
        let mut text = format!("\n---- seed {}, {}", round.seed, database.tree.suffix);
        if database.add_content_acl {
            text += ", add_content_acl on";
        }
        text.push('\n');
        database.rules.iter().for_each(|rule| text += &format!("{rule}\n"));
        round.frontend.iter().for_each(|rule| text += &format!("frontend: {rule}\n"));
        database.tree.acis().for_each(|(dn, value)| text += &format!("{dn}: {value}\n"));
        let _ = write!(text, "\n{}\n{}", case.identity.bind, case.request);
        text
    }
}

impl Peer {
    /// Binds, the first time; answers what came of it.
    fn bind(&mut self, identity: &Identity) -> String {
        if self.clients.contains_key(&identity.bind) {
            return String::new();
        }
        let Ok(mut client) = Client::try_connect(self.server.address) else { return CLOSED.to_owned() };
        let answer = client.run(&step(&format!("{}\n", identity.bind)));
        self.clients.insert(identity.bind.clone(), client);
        self.bound.insert(identity.bind.clone(), result_code(&answer) == "0");
        answer
    }

    fn ask(&mut self, identity: &Identity, request: &str) -> String {
        self.bind(identity);
        let Some(client) = self.clients.get_mut(&identity.bind) else { return CLOSED.to_owned() };
        let answer = client.run(&step(request));
        if answer.ends_with(CLOSED) {
            self.clients.remove(&identity.bind);
            self.closed = true;
        }
        // slapd has it only where it replicates.
        answer.replace("   contextCSN: *\n", "").replace("   contextCSN:\n", "")
    }

    /// What slapd's own tool says.
    fn discloses(&self, identity: &Identity, name: &str) -> bool {
        let port = self.server.address.port();
        let mut command = self.server.kind.tool("acl");
        command.arg("-f").arg(self.site.configuration()).args(["-b", name]);
        // A client whose bind was refused is anonymous.
        let bound = self.bound.get(&identity.bind).copied().unwrap_or(false);
        let name = identity.bind.strip_prefix("as \"").and_then(|bind| bind.split('"').next());
        if let Some(bound) = name.filter(|_| bound) {
            command.args(["-D", bound]);
        }
        if let Some(proxied) = identity.proxied.as_deref().and_then(|authzid| authzid.strip_prefix("dn:")) {
            command.arg("-o").arg(format!("authzDN={proxied}"));
        }
        for option in [
            "peername=IP=127.0.0.1:40000".to_owned(),
            format!("sockname=IP=127.0.0.1:{port}"),
            format!("sockurl=ldap://127.0.0.1:{port}/"),
        ] {
            command.args(["-o", &option]);
        }
        if self.looks_names_up {
            command.args(["-o", "domain=localhost"]);
        }
        let output = command.arg("entry/disclose").output().expect("slapacl");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let verdict = text.lines().find_map(|line| line.strip_prefix("disclose access to entry: "));
        verdict.unwrap_or_else(|| panic!("{command:?}: {text}")) == "ALLOWED"
    }

    /// Whether the server has gone; asked only after a connection was closed.
    fn is_dead(&mut self) -> bool {
        std::mem::take(&mut self.closed) && Client::try_connect(self.server.address).is_err()
    }
}

/// What a client shows when the connection was closed.
const CLOSED: &str = "=> closed\n";

fn step(request: &str) -> Step {
    Step { request: request.to_owned(), ..Step::default() }
}

fn result_code(answer: &str) -> &str {
    answer
        .lines()
        .find_map(|line| line.strip_prefix("=> "))
        .and_then(|line| line.split(' ').next())
        .unwrap_or("none")
}

/// The answer without its diagnostic text.
fn without_text(answer: &str) -> String {
    let line = |line: &str| -> String {
        let Some((head, tail)) = line.split_once(" text \"").filter(|_| line.starts_with("=> ")) else {
            return format!("{line}\n");
        };
        let mut escaped = false;
        let end = tail.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        format!("{head}{}\n", end.and_then(|at| tail.get(at + 1..)).unwrap_or_default())
    };
    answer.lines().map(line).collect()
}

fn lines_that(of: &str, keep: impl Fn(&str) -> bool) -> String {
    of.lines().filter(|line| keep(line)).map(|line| format!("{line}\n")).collect()
}

/// The lines of `of` that `other` has not.
fn lines_without(of: &str, other: &str) -> String {
    lines_that(of, |line| other.lines().all(|l| l != line))
}

/// The answer with each entry once.
fn without_duplicates(answer: &str) -> Vec<&str> {
    let mut entries: Vec<&str> = answer.split("-> ").collect();
    entries.dedup();
    entries
}

/// Whether a pre-read or post-read that was asked for is not there.
fn lacks_reading(case: &Case, answer: &str) -> bool {
    let lacks = |requested: &str, shown: &str| case.request.contains(requested) && !answer.contains(shown);
    lacks("preread=", "   before:") || lacks("postread=", "   after:")
}

fn is_change(case: &Case) -> bool {
    ["add ", "modify ", "delete ", "modrdn "].iter().any(|verb| case.request.starts_with(verb))
}

/// Whether a filter of the request asks for more than equality.
fn asks_by_parts(request: &str) -> bool {
    let filters = request.replace("(objectClass=*)", "");
    ["=*", "*)", ">=", "<=", "~=", ":="].iter().any(|sign| filters.contains(sign))
}

/// The entries that a change is about: its target, where it leads to, and all above them up to the suffix.
fn names_of(case: &Case, suffix: &str) -> Vec<String> {
    let line = case.request.lines().next().unwrap_or_default();
    let quoted: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        let mut rest = Some(name);
        while let Some(name) = rest.filter(|name| name.ends_with(suffix)) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
            rest = name.split_once(',').map(|(_, above)| above);
        }
    };
    match (case.request.split(' ').next(), quoted.as_slice()) {
        (Some("modrdn"), [target, new, more @ ..]) => {
            let above = target.split_once(',').map_or("", |(_, above)| above);
            let superior = more.first().filter(|name| name.ends_with(suffix)).copied().unwrap_or(above);
            add(target);
            add(&format!("{new},{superior}"));
        }
        (_, [target, ..]) => add(target),
        _ => {}
    }
    names
}

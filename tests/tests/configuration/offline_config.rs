//! `slapmodify -n 0` and `slapdelete -n 0`: cn=config in its directory, changed while no server runs.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use larix_testkit::process::output_text;
use larix_testkit::{Kind, Site};

const CONFIGURATION: &str = "database config\nrootpw secret\n\
    database mdb\nsuffix dc=example,dc=com\ndirectory @DATA@\nindex objectClass eq\n\
    access to attrs=userPassword by * auth\naccess to * by * read\noverlay ppolicy\noverlay refint\nrefint_attributes member\n\
    database null\nsuffix dc=nothing\n\
    database null\nsuffix dc=less\n";

struct Bench {
    site: Site,
    directory: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let site = Site::new(Kind::Larix, CONFIGURATION);
        let directory = site.path().join("slapd.d");
        std::fs::create_dir(&directory).unwrap();
        let mut convert = Kind::Larix.tool("test");
        let output = convert.arg("-f").arg(site.configuration()).arg("-F").arg(&directory).output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        Self { site, directory }
    }

    /// Runs a tool on cn=config; `input` is what it reads.
    fn run(&self, tool: &str, arguments: &[&str], input: &str) -> Output {
        let mut command = Kind::Larix.tool(tool);
        command.arg("-F").arg(&self.directory).args(["-n", "0"]).args(arguments);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        // A tool that has nothing to read may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Runs a tool that must do all it is asked.
    fn done(&self, tool: &str, arguments: &[&str], input: &str) -> String {
        let output = self.run(tool, arguments, input);
        assert!(output.status.success(), "{tool} {arguments:?}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The DNs of overlays and databases.
    fn names(&self) -> Vec<String> {
        let text = self.done("cat", &["-a", "(|(olcDatabase=*)(olcOverlay=*))"], "");
        text.lines().filter_map(|line| line.strip_prefix("dn: ")).map(str::to_owned).collect()
    }

    /// The values of an attribute, wherever it is.
    fn values(&self, attribute: &str) -> Vec<String> {
        let text = self.done("cat", &["-o", "ldif-wrap=no"], "");
        let values = text.lines().filter_map(|line| line.strip_prefix(attribute)?.strip_prefix(": "));
        values.map(str::to_owned).collect()
    }
}

/// A checksum that does not fit is the only sign of a value that a disk has changed, or somebody by hand.
#[test]
fn a_file_that_is_not_what_was_written_is_found() {
    let bench = Bench::new();
    assert!(bench.done("check", &[], "").contains(" entries, 0 findings"));
    let file = bench.directory.join("cn=config.ldif");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}olcIdleTimeout: 5\n")).unwrap();
    let output = bench.run("check", &[], "");
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cn=config.ldif:1: was edited by hand") && text.contains("1 findings"), "{text}");
    let output = bench.run("check", &["--json"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"findings\":1"), "{}", output_text(&output));
    // As it is said.
    let change = "dn: cn=config\nchangetype: modify\nreplace: olcIdleTimeout\nolcIdleTimeout: 6\n";
    bench.done("offline-modify", &[], change);
    bench.done("check", &[], "");
}

const FRONTEND: &str = "olcDatabase={-1}frontend,cn=config";
const CONFIG: &str = "olcDatabase={0}config,cn=config";
const MDB: &str = "olcDatabase={1}mdb,cn=config";
const PPOLICY: &str = "olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config";
const REFINT: &str = "olcOverlay={1}refint,olcDatabase={1}mdb,cn=config";
const NOTHING: &str = "olcDatabase={2}null,cn=config";
const LESS: &str = "olcDatabase={3}null,cn=config";

#[test]
fn entries_that_match_a_filter_are_deleted() {
    let all = [FRONTEND, CONFIG, MDB, PPOLICY, REFINT, NOTHING, LESS];
    // What is deleted, in its order, and what is left under which names.
    for (arguments, deleted, left) in [
        // The last first: the others keep their numbers until it is their turn.
        (&["-a", "(olcOverlay=*)"][..], &[REFINT, PPOLICY][..], &[FRONTEND, CONFIG, MDB, NOTHING, LESS][..]),
        (&["-a", "(objectClass=olcNullConfig)"], &[LESS, NOTHING], &[FRONTEND, CONFIG, MDB, PPOLICY, REFINT]),
        (
            &["-a", "(olcSuffix=dc=nothing)"],
            &[NOTHING],
            &[FRONTEND, CONFIG, MDB, PPOLICY, REFINT, "olcDatabase={2}null,cn=config"],
        ),
        // What is below goes with it, whether it matches or not.
        (
            &["-r", "-a", "(|(olcSuffix=dc=example,dc=com)(olcOverlay=*))"],
            &[MDB],
            &[FRONTEND, CONFIG, "olcDatabase={1}null,cn=config", "olcDatabase={2}null,cn=config"],
        ),
        (&["-a", "(olcSuffix=dc=elsewhere)"], &[], &all),
    ] {
        let bench = Bench::new();
        assert_eq!(bench.names(), all);
        let dry: Vec<&str> = [&["-u"], arguments].concat();
        let shown = bench.done("offline-delete", &dry, "");
        assert_eq!(shown.lines().collect::<Vec<_>>(), deleted, "{dry:?}");
        assert_eq!(bench.names(), all, "a dry run");
        bench.done("offline-delete", arguments, "");
        assert_eq!(bench.names(), left, "{arguments:?}");
    }
}

#[test]
fn what_cannot_be_deleted_is_said() {
    let bench = Bench::new();
    for (arguments, words) in [
        // Without -r, what has something below it stays.
        (
            &["-a", "(olcSuffix=dc=example,dc=com)"][..],
            &["olcDatabase={1}mdb,cn=config", "entries below it"][..],
        ),
        (&["-a", "(olcSuffix=dc=example"], &["filter", "(olcSuffix=dc=example"]),
        (&["cn=nobody,cn=config"], &["cn=nobody,cn=config", "No such object"]),
        (&[], &["nothing to delete"]),
    ] {
        let before = bench.names();
        let output = bench.run("offline-delete", arguments, "");
        let text = output_text(&output);
        assert!(
            !output.status.success() && words.iter().all(|word| text.contains(word)),
            "{arguments:?}: {text}"
        );
        assert_eq!(bench.names(), before, "{arguments:?}");
    }
    // What comes behind it goes where that is asked for.
    let output = bench.run("offline-delete", &["-c", "cn=nobody,cn=config", PPOLICY], "");
    assert!(
        !output.status.success() && output_text(&output).contains("1 entries were not deleted"),
        "{}",
        output_text(&output)
    );
    assert_eq!(bench.values("olcOverlay"), ["{0}refint"]);
}

#[test]
fn changes_are_carried_out_one_after_another() {
    let bench = Bench::new();
    let change = |dn: &str, how: &str| format!("dn: {dn}\nchangetype: modify\n{how}\n\n");
    let bad = change(MDB, "replace: olcSizeLimit\nolcSizeLimit: many");
    let good = change("cn=config", "replace: olcIdleTimeout\nolcIdleTimeout: 77");
    let rule = change(MDB, "add: olcAccess\nolcAccess: {1}to dn.base=\"\" by * read");

    bench.done("offline-modify", &["-u"], &good);
    assert_eq!(bench.values("olcIdleTimeout"), [""; 0], "a dry run");
    bench.done("offline-modify", &[], &(good + &rule));
    assert_eq!(bench.values("olcIdleTimeout"), ["77"]);
    let rules = bench.values("olcAccess");
    let wanted = ["{0}to attrs=userPassword by * auth", "{1}to dn.base=\"\" by * read", "{2}to * by * read"];
    assert_eq!(rules.iter().filter(|rule| wanted.contains(&rule.as_str())).count(), 3, "{rules:?}");

    // What is refused is named by its line, and changes nothing; what came before it stays, and what follows waits for -c.
    let first = change("cn=config", "replace: olcIdleTimeout\nolcIdleTimeout: 78");
    let last = change("cn=config", "replace: olcThreads\nolcThreads: 9");
    let all = first + &bad + &last;
    let output = bench.run("offline-modify", &[], &all);
    let text = output_text(&output);
    assert!(!output.status.success() && text.contains("line 6") && text.contains("olcSizeLimit"), "{text}");
    let now = || ["olcIdleTimeout", "olcSizeLimit", "olcThreads"].map(|name| bench.values(name).concat());
    assert_eq!(now(), ["78", "", ""]);
    let output = bench.run("offline-modify", &["-c"], &all);
    assert!(
        !output.status.success() && output_text(&output).contains("1 changes failed"),
        "{}",
        output_text(&output)
    );
    assert_eq!(now(), ["78", "", "9"]);

    // Entries come and go in the same way, and a server takes what was made of it.
    let add = "dn: olcDatabase=null,cn=config\nchangetype: add\nobjectClass: olcDatabaseConfig\n\
               objectClass: olcNullConfig\nolcDatabase: null\nolcSuffix: dc=more\n\n";
    bench.done("offline-modify", &[], &format!("{add}dn: {PPOLICY}\nchangetype: delete\n"));
    assert_eq!(
        bench.names(),
        [
            FRONTEND,
            CONFIG,
            MDB,
            &REFINT.replace("{1}refint", "{0}refint"),
            NOTHING,
            LESS,
            "olcDatabase={4}null,cn=config"
        ]
    );
    let server =
        larix_testkit::Server::start(Kind::Larix, &bench.directory).unwrap_or_else(|error| panic!("{error}"));
    assert!(server.stop());
}

#[test]
fn with_c_the_entries_that_fit_are_added() {
    let section = |name: &str, definition: &str| {
        format!(
            "dn: cn={name},cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: {name}\nolcAttributeTypes: {definition}\n\n"
        )
    };
    let good = |name: &str, number: u8| {
        let syntax = "SYNTAX 1.3.6.1.4.1.1466.115.121.1.15";
        section(name, &format!("( 1.3.9999.{number} NAME '{name}' {syntax} )"))
    };
    let orphan = "dn: cn=x,cn=nowhere,cn=config\nobjectClass: olcSchemaConfig\ncn: x\n\n";
    let delete = "dn: cn=config\nchangetype: delete\n\n";
    let all = [
        section("bad", "( 1.3.9999.1 NAME (( bad )").as_str(),
        good("larch", 2).as_str(),
        "no colon\n\n",
        orphan,
        delete,
        good("pine", 3).as_str(),
    ]
    .concat();
    let bench = Bench::new();
    let sections = || -> Vec<String> {
        let names = ["bad", "larch", "pine"];
        bench.values("cn").into_iter().filter(|cn| names.iter().any(|name| cn.ends_with(name))).collect()
    };
    let output = bench.run("add", &[], &all);
    assert!(!output.status.success() && sections().is_empty(), "{}", output_text(&output));
    for (flags, expected) in [(&["-c", "-u"][..], 0), (&["-c"], 2)] {
        let output = bench.run("add", flags, &all);
        let text = output_text(&output);
        assert!(!output.status.success() && text.contains("4 records were refused"), "{flags:?}: {text}");
        for line in ["line 1: ", "line 11: missing ':'", "line 13: ", "line 17: \"cn=config\": only whole"] {
            assert!(text.contains(line), "{flags:?}: {text}");
        }
        assert_eq!(sections().len(), expected, "{flags:?}: {:?}", sections());
    }
}

/// A slapd.conf is not changed behind its author's back.
#[test]
fn a_file_is_not_changed() {
    let bench = Bench::new();
    for (tool, arguments) in [("offline-modify", &[][..]), ("offline-delete", &["-a", "(olcOverlay=*)"])] {
        let mut command = Kind::Larix.tool(tool);
        command.arg("-f").arg(bench.site.configuration()).args(["-n", "0"]).args(arguments);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = output_text(&output);
        assert!(!output.status.success() && text.contains("slapd.d"), "{tool}: {text}");
    }
}

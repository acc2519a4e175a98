//! `larix config`: a server's configuration as a file, compared with it, and applied to it while it serves.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use larix_testkit::process::output_text;
use larix_testkit::{Kind, Server, Site};

const CONFIGURATION: &str = "loglevel none\ndatabase config\nrootpw secret\n\
    database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\ndirectory @DATA@\n\
    index objectClass eq\naccess to * by * read\n";

struct Bench {
    site: Site,
    server: Server,
}

impl Bench {
    fn new() -> Self {
        let site = Site::new(Kind::Larix, CONFIGURATION);
        let server = site.start().expect("larix starts");
        Self { site, server }
    }

    fn larix(&self, words: &[&str], more: &[&Path]) -> Output {
        let program = Kind::Larix.program().expect("larix is built");
        let url = format!("ldap://{}", self.server.address);
        Command::new(program)
            .arg("config")
            .args(words)
            .args(["-H", &url, "-D", "cn=config", "-w", "secret"])
            .args(more)
            .output()
            .expect("larix runs")
    }

    fn export(&self, name: &str) -> PathBuf {
        let file = self.site.path().join(name);
        let output = self.larix(&["export", "--output"], &[]);
        assert!(!output.status.success(), "--output without a file");
        let output = self.larix(&["export"], &[]);
        assert!(output.status.success(), "{}", output_text(&output));
        std::fs::write(&file, output.stdout).expect("a file");
        file
    }
}

/// Applies a file, and says what came of it.
fn apply(bench: &Bench, flags: &[&str], file: &Path) -> (bool, String) {
    let words: Vec<&str> = ["apply"].into_iter().chain(flags.iter().copied()).collect();
    let output = bench.larix(&words, &[file]);
    (output.status.success(), output_text(&output))
}

#[test]
fn a_file_becomes_the_configuration_as_a_whole_or_not_at_all() {
    let bench = Bench::new();
    let file = bench.export("wanted.conf");
    let text = std::fs::read_to_string(&file).expect("the export");
    assert_eq!(
        output_text(&bench.larix(&["diff"], &[&file])),
        "",
        "an export differs from what it was made of"
    );

    let wanted = text.replace("loglevel none", "loglevel stats") + "index mail eq\n";
    let wanted =
        wanted.replace("index mail eq\n", "") + "overlay ppolicy\ndatabase null\nsuffix dc=nothing\n";
    std::fs::write(&file, &wanted).expect("a file");
    let difference = bench.larix(&["diff"], &[&file]);
    assert_eq!(difference.status.code(), Some(1), "{}", output_text(&difference));
    let expected = "  cn=config\n  - olcLogLevel: none\n  + olcLogLevel: stats\n\
        + olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config\n  + objectClass: olcOverlayConfig\n  \
        + objectClass: olcPPolicyConfig\n  + olcOverlay: {0}ppolicy\n\
        + olcDatabase={2}null,cn=config\n  + objectClass: olcDatabaseConfig\n  + objectClass: olcNullConfig\n  \
        + olcDatabase: {2}null\n  + olcSuffix: dc=nothing\n";
    assert_eq!(output_text(&difference), expected);

    let (done, text) = apply(&bench, &["-n"], &file);
    assert!(done && text == expected, "a dry run only says what it would do: {text}");
    assert_eq!(bench.larix(&["diff"], &[&file]).status.code(), Some(1));
    assert_eq!(apply(&bench, &[], &file), (true, format!("{expected}applied\n")));
    assert_eq!(output_text(&bench.larix(&["diff"], &[&file])), "");
    assert_eq!(apply(&bench, &[], &file), (true, "nothing to change\n".to_owned()));

    // The second change cannot be: nothing is left of the first.
    let other = bench.site.path().join("other.conf");
    let refused = wanted.replace("loglevel stats", "loglevel none")
        + &format!(
            "database mdb\nsuffix dc=other\ndirectory {}\n",
            bench.site.path().join("missing").display()
        );
    std::fs::write(&other, refused).expect("a file");
    let (done, text) = apply(&bench, &[], &other);
    assert!(!done && text.contains("nothing was changed") && text.contains("missing"), "{text}");
    assert_eq!(output_text(&bench.larix(&["diff"], &[&file])), "", "a part of what was refused is in force");
}

#[test]
fn databases_go_only_when_that_is_said() {
    let bench = Bench::new();
    let file = bench.export("wanted.conf");
    let text = std::fs::read_to_string(&file).expect("the export");
    let at = text.find("database mdb").expect("the database");
    std::fs::write(&file, &text[..at]).expect("a file");
    let (done, text) = apply(&bench, &[], &file);
    assert!(!done && text.contains("--delete-databases"), "{text}");
    assert_eq!(bench.larix(&["diff"], &[&file]).status.code(), Some(1));
    let (done, text) = apply(&bench, &["--delete-databases"], &file);
    assert!(done, "{text}");
    assert_eq!(output_text(&bench.larix(&["diff"], &[&file])), "");
}

#[test]
fn ldapuri_names_the_server() {
    let bench = Bench::new();
    let file = bench.export("own.conf");
    let program = Kind::Larix.program().expect("larix is built");
    let output = Command::new(program)
        .args(["config", "diff", "-D", "cn=config", "-w", "secret"])
        .arg(&file)
        .env_remove("LDAPNOINIT")
        .env("LDAPURI", format!("ldap://{}", bench.server.address))
        .output()
        .expect("larix runs");
    assert_eq!(output_text(&output), "", "the server's own configuration is compared");
}

#[test]
fn bad_files_and_strangers_are_told_why() {
    let bench = Bench::new();
    let file = bench.site.path().join("bad.conf");
    std::fs::write(&file, "database mdb\nsufix dc=x\n").expect("a file");
    for command in ["diff", "apply"] {
        let output = bench.larix(&[command], &[&file]);
        assert!(!output.status.success());
        assert!(
            output_text(&output).contains("bad.conf:2:1: unknown directive `sufix`"),
            "{}",
            output_text(&output)
        );
    }
    let program = Kind::Larix.program().expect("larix is built");
    let url = format!("ldap://{}", bench.server.address);
    let output = Command::new(program).args(["config", "export", "-H", &url]).output().expect("larix runs");
    assert!(!output.status.success());
    assert!(output_text(&output).contains("olcRootDN"), "{}", output_text(&output));
}

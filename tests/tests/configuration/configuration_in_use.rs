//! A slapd.d belongs to the server that runs with it: tools refuse to change it beside it, and say how it is changed.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use larix_testkit::process::output_text;
use larix_testkit::{Kind, Server, Site};

const CONFIGURATION: &str = "loglevel none\ndatabase config\nrootpw secret\n\
    database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\ndirectory @DATA@\n\
    index objectClass eq\naccess to * by * read\n";
const CHANGE: &str = "dn: cn=config\nchangetype: modify\nreplace: olcIdleTimeout\nolcIdleTimeout: 77\n";
const ENTRY: &str = "dn: olcDatabase=null,cn=config\nobjectClass: olcDatabaseConfig\nobjectClass: olcNullConfig\nolcDatabase: null\n\
    olcSuffix: cn=another\n";

struct Bench {
    site: Site,
    directory: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let site = Site::new(Kind::Larix, CONFIGURATION);
        let directory = site.path().join("slapd.d");
        fs::create_dir(&directory).unwrap();
        let mut convert = Kind::Larix.tool("test");
        let output = convert.arg("-f").arg(site.configuration()).arg("-F").arg(&directory).output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        Self { site, directory }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.site.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// Runs a command with `-F` and further arguments.
    fn run(&self, words: &[&str], more: &[&Path]) -> Output {
        let mut command = Command::new(Kind::Larix.program().unwrap());
        command.args(words).arg("-F").arg(&self.directory).args(more).output().unwrap()
    }

    fn timeout(&self) -> Option<String> {
        let text = String::from_utf8(self.run(&["cat", "-n0"], &[]).stdout).unwrap();
        text.lines().find_map(|line| line.strip_prefix("olcIdleTimeout: ")).map(str::to_owned)
    }

    fn start(&self) -> Server {
        let socket = self.site.path().join("ldapi").display().to_string().replace('/', "%2F");
        let urls = ["ldap://127.0.0.1:0/", &format!("ldapi://{socket}/")];
        Server::start_on(Kind::Larix, &self.directory, &urls, &[], &[]).unwrap()
    }
}

#[test]
fn tools_refuse_beside_the_server_and_what_they_say_works() {
    let bench = Bench::new();
    let exported = output_text(&bench.run(&["config", "export"], &[]));
    let wanted = bench.file("wanted.conf", &format!("idletimeout 77\n{exported}"));
    let change = bench.file("change.ldif", CHANGE);
    let entry = bench.file("entry.ldif", ENTRY);
    let server = bench.start();
    let process = format!("(process {})", server.process_id());
    let [wanted, change, entry] = [wanted.as_path(), change.as_path(), entry.as_path()];
    let delete = Path::new("olcDatabase={1}mdb,cn=config");
    for (words, more) in [
        (&["config", "apply"][..], &[wanted][..]),
        (&["offline-modify", "-n0"], &[Path::new("-l"), change]),
        (&["offline-delete", "-n0"], &[delete]),
    ] {
        let output = bench.run(words, more);
        let text = output_text(&output);
        assert!(!output.status.success() && !text.contains("applied\n"), "{words:?}: {text}");
        assert!(text.contains(&process) && text.contains("larix modify -H ldapi://"), "{words:?}: {text}");
    }
    // What only reads works beside it.
    assert_eq!(bench.timeout(), None);
    assert!(!output_text(&bench.run(&["cat", "-n0"], &[])).contains("cn=another"));
    let looked_at = bench.run(&["add", "-n0", "-u"], &[Path::new("-l"), entry]);
    assert!(looked_at.status.success(), "{}", output_text(&looked_at));
    assert!(output_text(&bench.run(&["config", "apply", "-n"], &[wanted])).contains("+ olcIdleTimeout: 77"));

    // As it is said.
    let text = output_text(&bench.run(&["config", "apply"], &[wanted]));
    let flags = text.split("`larix config apply ").nth(1).and_then(|rest| rest.split(" FILE`").next());
    let flags = flags.unwrap_or_else(|| panic!("{text}")).replace(" -W", " -w secret");
    let mut command = Command::new(Kind::Larix.program().unwrap());
    let output = command.args(["config", "apply"]).args(flags.split(' ')).arg(wanted).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    assert_eq!(bench.timeout().as_deref(), Some("77"));

    // Without the server the tools change it.
    assert!(server.stop());
    let output = bench.run(&["config", "apply"], &[&bench.file("before.conf", &exported)]);
    assert!(output.status.success(), "{}", output_text(&output));
    assert_eq!(bench.timeout(), None);
    let output = bench.run(&["add", "-n0"], &[Path::new("-l"), entry]);
    assert!(
        output.status.success() && !output_text(&output).contains("next start"),
        "{}",
        output_text(&output)
    );
    assert!(output_text(&bench.run(&["cat", "-n0"], &[])).contains("olcSuffix: cn=another"));
}

/// slapadd adds entries for the next start of the server, as OpenLDAP's does, and says so.
#[test]
fn entries_may_be_added_beside_the_server() {
    let bench = Bench::new();
    let entry = bench.file("entry.ldif", ENTRY);
    let server = bench.start();
    let output = bench.run(&["add", "-n0"], &[Path::new("-l"), &entry]);
    let text = output_text(&output);
    assert!(output.status.success(), "{text}");
    let process = format!("(process {})", server.process_id());
    assert!(text.contains(&process) && text.contains("at its next start"), "{text}");
    drop(server);
    let _server = bench.start();
    assert!(output_text(&bench.run(&["cat", "-n0"], &[])).contains("olcSuffix: cn=another"));
}

#[test]
fn a_second_server_is_refused_with_the_first_ones_number() {
    let bench = Bench::new();
    let server = bench.start();
    let output = bench.run(&["serve", "-d", "0", "-h", "ldap://127.0.0.1:0"], &[]);
    let text = output_text(&output);
    let process = format!("in use by process {}", server.process_id());
    assert!(!output.status.success() && text.contains(&process), "{text}");
    // A server that was killed leaves no lock.
    server.kill();
    let server = bench.start();
    assert!(server.stop());
}

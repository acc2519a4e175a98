//! The commands of README and the guide, typed as they stand there, block by block, and what they answer.
//!
//! Blocks are fenced: `sh` is typed, `text` behind it is what has come (`...` stands for anything). A document is one shell in one
//! folder. What cannot be typed as it stands is listed with the reason, line by line; all else is.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larix_testkit::process::free_ports;
use larix_testkit::{Authority, Kind, Server, Site, until};
use larix_tests::client::Client;
use larix_tests::replicas::ask;

/// A line of a document that is not typed as it stands.
struct StandIn {
    /// A part of it, which no other line has.
    documented: &'static str,
    /// What is typed in the place of that part.
    typed: &'static str,
    why: &'static str,
}

const fn instead(documented: &'static str, typed: &'static str, why: &'static str) -> StandIn {
    StandIn { documented, typed, why }
}

/// Nothing is typed: a line that is a word of the shell for nothing.
const NOTHING: &str = ": #";

#[derive(Debug)]
struct Block {
    document: &'static str,
    line: usize,
    commands: String,
    /// What the document shows behind it.
    output: Option<String>,
}

/// The blocks between two lines of a document.
fn blocks(document: &'static str, from: &str, to: Option<&str>) -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
    let text = fs::read_to_string(&path).unwrap();
    let start = text.find(from).unwrap_or_else(|| panic!("{document}: no {from:?}"));
    let end = to.map_or(text.len(), |to| start + text[start..].find(to).unwrap());
    let first_line = text[..start].lines().count();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(usize, &str, String)> = None;
    for (number, line) in text[start..end].lines().enumerate() {
        open = match (open.take(), line.strip_prefix("```")) {
            (None, Some(kind)) => Some((first_line + number + 1, kind, String::new())),
            (None, None) => {
                let is_command = line.starts_with("    larix ") || line.starts_with("    cargo ");
                assert!(!is_command, "{document}: not in a fenced block, so that nobody types it: {line}");
                None
            }
            (Some((at, "sh", commands)), Some(_)) => {
                blocks.push(Block { document, line: at, commands, output: None });
                None
            }
            (Some((_, "text", output)), Some(_)) => {
                blocks.last_mut().unwrap().output = Some(output);
                None
            }
            (Some((at, kind, _)), Some(_)) => panic!("{document}:{at}: a block of the kind {kind:?}"),
            (Some((at, kind, text)), None) => Some((at, kind, text + line + "\n")),
        };
    }
    blocks
}

/// A folder, ports and a shell.
struct World {
    folder: tempfile::TempDir,
    /// What stands in documents, and what it is here.
    places: Vec<(String, String)>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        for made in ["bin", "etc/ldap", "etc/ssl/certs", "var/lib/ldap", "work", "state"] {
            fs::create_dir_all(folder.path().join(made)).unwrap();
        }
        symlink(Kind::Larix.program().expect("larix is built"), folder.path().join("bin/larix")).unwrap();
        let ports = free_ports(4);
        let mut places: Vec<(String, String)> = ["/etc/ldap", "/etc/larix", "/etc/ssl/certs", "/var/lib"]
            .map(|place| (place.to_owned(), format!("{root}{place}")))
            .into();
        for (documented, port) in ["3890", "6360", "9390"].into_iter().zip(&ports) {
            places.push((format!("127.0.0.1:{documented}"), format!("127.0.0.1:{port}")));
        }
        // Port 389 of all addresses.
        places.push(("\"ldap:/// ldapi:///\"".to_owned(), format!("ldap://127.0.0.1:{}/", ports[3])));
        places.push(("-h ldap:///".to_owned(), format!("-h ldap://127.0.0.1:{}/", ports[3])));
        places.push((" -W".to_owned(), format!(" -y {root}/state/password")));
        places.push(("gidNumber=0+uidNumber=0".to_owned(), identity()));
        Self { folder, places }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An OpenLDAP to move from: its configuration, its data, `slapcat`, and what would stop it.
    fn with_openldap(self) -> Self {
        let database = self.path("var/lib/ldap");
        fs::write(
            self.path("etc/ldap/slapd.conf"),
            format!(
                "schema core cosine inetorgperson\npidfile {root}/slapd.pid\nargsfile {root}/slapd.args\ndatabase mdb\n\
                 suffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\nmaxsize 1073741824\n\
                 directory {}\nindex objectClass,uid eq\n",
                database.display(),
                root = self.folder.path().display(),
            ),
        )
        .unwrap();
        let mut ldif = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n".to_owned();
        for number in 0..200 {
            write!(
                ldif,
                "dn: uid=p{number},dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: p{number}\ncn: Person {number}\nsn: P\n\n"
            )
            .unwrap();
        }
        fs::write(self.path("openldap.ldif"), ldif).unwrap();
        let mut load = Kind::Larix.tool("add");
        load.args(["-q", "-f"])
            .arg(self.path("etc/ldap/slapd.conf"))
            .arg("-l")
            .arg(self.path("openldap.ldif"));
        assert!(load.status().unwrap().success());
        let (larix, configuration) = (self.path("bin/larix"), self.path("etc/ldap/slapd.conf"));
        let slapcat = format!("exec {} cat -f {} \"$@\"", larix.display(), configuration.display());
        for (name, text) in [("slapcat", slapcat.as_str()), ("systemctl", "test \"$*\" = \"stop slapd\"")] {
            let path = self.path("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        self
    }

    fn here(&self, text: &str) -> String {
        self.places.iter().fold(text.to_owned(), |text, (documented, here)| text.replace(documented, here))
    }

    /// Types the blocks, and compares what they answer.
    fn type_all(&self, blocks: &[Block], stand_ins: &[StandIn]) {
        let all: String = blocks.iter().map(|block| block.commands.as_str()).collect();
        for StandIn { documented, why, .. } in stand_ins {
            let lines = all.lines().filter(|line| line.contains(documented)).count();
            assert_eq!(lines, 1, "a stand-in for {documented:?} ({why}) belongs to one line");
        }
        let mut script = self.here(PRELUDE);
        for (number, block) in blocks.iter().enumerate() {
            let typed = stand_ins
                .iter()
                .fold(block.commands.clone(), |text, one| text.replace(one.documented, one.typed));
            write!(
                script,
                "echo {number} > ../state/block\n{{\n{}}} > ../state/{number} 2>&1\n",
                self.here(&typed)
            )
            .unwrap();
        }
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        // LDAPURI has to count. What the machine's ldap.conf says beside is taken back.
        let taken_back = ["BASE", "DEREF", "SIZELIMIT", "TIMELIMIT", "NETWORK_TIMEOUT", "SASL_MECH"];
        let output = Command::new("sh")
            .args(["-c", &script])
            .envs(taken_back.map(|name| (format!("LDAP{name}"), "")))
            .env_remove("LDAPNOINIT")
            .env_remove("LDAPCONF")
            .env_remove("LDAPRC")
            .env_remove("LDAPBINDDN")
            .current_dir(self.path("work"))
            .env("PATH", path)
            .env("HOME", self.path("work"))
            .env_remove("LDAPURI")
            .env_remove("LARIX_DETACHED")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let output_text = |number: usize| {
            fs::read_to_string(self.path("state").join(number.to_string())).unwrap_or_default()
        };
        if !output.status.success() {
            let number: usize = fs::read_to_string(self.path("state/block")).unwrap().trim().parse().unwrap();
            let Block { document, line, commands, .. } = &blocks[number];
            let errors = String::from_utf8_lossy(&output.stderr);
            panic!("{document}:{line}: {:?}\n{commands}\n{}{errors}", output.status, output_text(number));
        }
        for (number, block) in blocks.iter().enumerate() {
            let Some(expected) = &block.output else { continue };
            let (expected, output_text) = (self.here(expected), output_text(number));
            let fault = difference(&expected, &output_text);
            assert!(
                fault.is_none(),
                "{}:{}: {fault:?} has not come:\n{output_text}",
                block.document,
                block.line
            );
        }
        for StandIn { documented, typed, why } in stand_ins {
            println!("{documented}: {}: {why}", if *typed == NOTHING { "not typed" } else { typed });
        }
        println!("{} blocks typed, {} lines otherwise than they stand", blocks.len(), stand_ins.len());
    }
}

/// `larix serve` in front stays in a terminal of its own, and a new one comes when the last was ended.
const PRELUDE: &str = r#"
set -e
stop() {
    if [ -n "$server" ]; then kill "$server"; wait "$server" || true; server=; fi
}
finish() {
    stop
    for lock in /var/lib/larix/larix.lock; do
        if [ -s "$lock" ]; then kill "$(cat "$lock")" || true; fi
    done
}
trap finish EXIT
in_front() {
    stop
    rm -f ../state/ports
    # Where it listens without -h.
    case "$*" in *" -h "*) ;; *) set -- "$@" -h ldap://127.0.0.1:3890 ;; esac
    command larix "$@" --port-file ../state/ports > ../state/served 2>&1 &
    server=$!
    until [ -s ../state/ports ] && { [ "$2" != --suffix ] || grep -q '^ *password' ../state/served; }; do
        kill -0 "$server" || { cat ../state/served; exit 1; }
        sleep 0.05
    done
    cat ../state/served
    made=$(sed -n 's/^ *password *\([^ ]*\) *(shown once.*/\1/p' ../state/served)
    if [ -n "$made" ]; then printf %s "$made" > ../state/password; fi
}
larix() {
    case "$*" in
        serve*--suffix*|serve*"-d 0"*) in_front "$@" ;;
        *) command larix "$@" ;;
    esac
}
new_password() {
    date +secret-%N | tr -d '\n' > ../state/password
    command larix hash-password -T ../state/password
}
"#;

/// The first line of what is expected that did not come, behind those before it.
fn difference<'e>(expected: &'e str, output: &str) -> Option<&'e str> {
    let mut lines = output.lines();
    expected.lines().find(|wanted| !lines.any(|line| fits(wanted, line)))
}

/// Whether a line is the wanted one; `...` stands for anything.
fn fits(wanted: &str, line: &str) -> bool {
    let mut parts = wanted.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut open = false;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        open = part.is_empty();
    }
    rest.is_empty() || open
}

/// Who this process is at a local socket.
fn identity() -> String {
    let (group, user) = (rustix::process::getegid().as_raw(), rustix::process::geteuid().as_raw());
    format!("gidNumber={group}+uidNumber={user}")
}

#[test]
fn readme() {
    const BUILDS: &str = "builds the workspace: this test is a part of it";
    const TWO: &str = "two servers of another network: here both are the one that serves";
    let blocks = blocks("README.md", "# Larix", Some("## Where to read on"));
    World::new().with_openldap().type_all(
        &blocks,
        &[
            instead("cargo run --release -- demo", NOTHING, BUILDS),
            instead("cargo xtask test", NOTHING, BUILDS),
            instead(
                "larix load compare mail",
                NOTHING,
                "takes a minute, and slapd: tests/tests/tools/load_compare.rs has it in small",
            ),
            instead(
                "--ldif site.ldif ",
                "--ldif site.ldif --seconds 0 ",
                "measures for five seconds each, on a quiet machine",
            ),
            instead(
                "status -D cn=admin,dc=example,dc=com -W ldap://one.example.com ldap://two.example.com",
                "status -D cn=admin,dc=example,dc=com -W ldap://127.0.0.1:3890 ldap://127.0.0.1:3890",
                TWO,
            ),
            instead(
                "check  -D cn=admin,dc=example,dc=com -W ldap://one.example.com ldap://two.example.com",
                "check  -D cn=admin,dc=example,dc=com -W ldap://127.0.0.1:3890 ldap://127.0.0.1:3890",
                TWO,
            ),
        ],
    );
}

#[test]
fn getting_started_and_a_lost_password() {
    const ASKS: &str = "asks for the new password on a terminal";
    let mut all = blocks("docs/guide/getting-started.md", "# Getting started", None);
    let lost = ("## When the administrator's password is lost", Some("## Last bind"));
    all.extend(blocks("docs/guide/passwords.md", lost.0, lost.1));
    World::new().type_all(
        &all,
        &[
            instead(
                "cargo install --profile dist",
                NOTHING,
                "builds the workspace: this test is a part of it",
            ),
            instead(
                "larix serve --suffix dc=example,dc=com --data people --include more.conf",
                "command larix serve --suffix dc=example,dc=com --data people --include more.conf -h ldap://127.0.0.1:0 \
                 --port-file ../state/people & people=$!; until [ -s ../state/people ]; do kill -0 $people || exit 1; \
                 sleep 0.05; done; kill $people; wait $people || true",
                "all other blocks go on with the first directory",
            ),
            instead("hash=$(larix hash-password)", "stop; hash=$(new_password)", ASKS),
            instead(
                "userPassword: $(larix hash-password)",
                "userPassword: $(command larix hash-password -s anns)",
                ASKS,
            ),
            instead("olcRootPW: $(larix hash-password)", "olcRootPW: $(new_password)", ASKS),
        ],
    );
}

/// What all recipes have in common; `tests/interop/recipes` tries the applications.
#[test]
fn the_directory_of_the_recipes() {
    const ASKS: &str = "asks for the password on a terminal";
    let blocks = blocks("docs/guide/recipes/README.md", "## The directory", None);
    World::new().type_all(
        &blocks,
        &[
            instead(
                "-W -S uid=ann,ou=people,dc=example,dc=com",
                "-W -s annspass uid=ann,ou=people,dc=example,dc=com",
                ASKS,
            ),
            instead(
                "-D cn=grafana,ou=services,dc=example,dc=com -W",
                "-D cn=grafana,ou=services,dc=example,dc=com -w a-long-random-password",
                ASKS,
            ),
            instead(
                "-D uid=ann,ou=people,dc=example,dc=com -W",
                "-D uid=ann,ou=people,dc=example,dc=com -w annspass",
                ASKS,
            ),
        ],
    );
}

#[test]
fn moving_from_openldap() {
    // `larix adopt` before it takes over this machine's own slapd: it has tests of its own.
    let blocks =
        blocks("docs/guide/from-openldap.md", "## The configuration", Some("**Where reads must go on**"));
    World::new().with_openldap().type_all(
        &blocks,
        &[instead(
            "systemctl stop slapd",
            "stop; systemctl stop slapd",
            "Ctrl-C in the other terminal, as it stands above",
        )],
    );
}

/// The same with a slapd.d, and behind it the change for those who will not go back: also where there is nothing to take out.
#[test]
fn moving_a_slapd_d() {
    let document = "docs/guide/from-openldap.md";
    let world = World::new().with_openldap();
    let directory = world.path("etc/ldap/slapd.d");
    fs::create_dir(&directory).unwrap();
    let mut convert = Kind::Larix.tool("test");
    convert.arg("-f").arg(world.path("etc/ldap/slapd.conf")).arg("-F").arg(&directory);
    assert!(convert.status().unwrap().success());
    let mut all = blocks(document, "## A slapd.d", Some("## What clients may notice"));
    let changes = files(document, "## Passwords");
    let [change] = &changes[..] else { panic!("other blocks than were expected") };
    let shown = "larix test -F /etc/larix/slapd.d\nlarix cat -n 0 -F /etc/larix/slapd.d\n";
    let changed = format!("larix offline-modify -n 0 -F /etc/larix/slapd.d <<'END'\n{change}END\n{shown}");
    let first = "config file testing succeeded\nolcPasswordHash: {SSHA}\nolcDbDirectory: /var/lib/larix\n";
    for (commands, output) in
        [(shown, first), (changed.as_str(), "olcLarixPasswordRehash: TRUE\n"), (changed.as_str(), "")]
    {
        all.push(Block { document, line: 0, commands: commands.to_owned(), output: Some(output.to_owned()) });
    }
    world.type_all(&all, &[]);
}

/// The proxy and its target on one machine.
#[test]
fn a_proxy_and_its_target() {
    let document = "docs/guide/proxy.md";
    let shown = files(document, "## Quick start");
    let [configuration, commands, _] = &shown[..] else { panic!("other blocks than were expected") };
    let mut world = World::new();
    for (documented, port) in ["1391", "1392"].into_iter().zip(free_ports(2)) {
        world.places.push((format!("127.0.0.1:{documented}"), format!("127.0.0.1:{port}")));
    }
    fs::write(world.path("work/proxy.conf"), world.here(configuration)).unwrap();
    let output = "dn: uid=ann,ou=people,dc=example,dc=com\nlabeledURI: ldap://127.0.0.1:1391/\n";
    let block = |commands: &str, output: &str| Block {
        document,
        line: 0,
        commands: commands.to_owned(),
        output: Some(output.to_owned()),
    };
    world.type_all(
        &[block(commands, output), block("kill $proxy\nwait $proxy || true\n", "")],
        &[
            instead(" --background", "", "a server in front is ended with the shell"),
            instead(
                "larix serve -f proxy.conf -h ldap://127.0.0.1:1392",
                "timeout 120 larix serve -f proxy.conf -h ldap://127.0.0.1:1392 -d 0 --port-file ../state/proxy & proxy=$!; \
                 until [ -s ../state/proxy ]; do kill -0 $proxy || exit 1; sleep 0.05; done",
                "the same",
            ),
        ],
    );
}

/// The blocks of files that a section of a document shows.
fn files(document: &str, section: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
    let text = fs::read_to_string(path).unwrap();
    let (_, text) = text.split_once(section).unwrap_or_else(|| panic!("{document}: no {section:?}"));
    let text = text.split_once("\n## ").map_or(text, |(section, _)| section);
    text.split("```\n").skip(1).step_by(2).map(str::to_owned).collect()
}

/// The first example of replication: the consumer is as closed as the provider, and its administrator gets in without it.
#[test]
fn a_provider_and_a_consumer() {
    let authority = Authority::new("ca");
    let [provider, _, rules, account] = &files("docs/guide/replication.md", "## A provider")[..] else {
        panic!("other blocks than were expected");
    };
    let hash = |password: &str| {
        let mut command = Kind::Larix.tool("hash-password");
        let output = command.args(["-n", "-s", password]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let directory = ("/var/lib/larix/example", "@DATA@");
    let secure = "TLSCertificateFile @DATA@/server.pem\nTLSCertificateKeyFile @DATA@/server.key\n";
    let secured = |body: &str| {
        let site = Site::new(Kind::Larix, &format!("{secure}{body}"));
        let data = site.path().join("data");
        authority.server().write(&data, "server");
        fs::write(data.join("ca.pem"), authority.certificate()).unwrap();
        site
    };
    let provider = secured(&format!("{}{rules}", provider.replace(directory.0, directory.1)));
    let account = account.replace("{ARGON2}...", &hash("secret"));
    let user = format!(
        "dn: uid=ann,dc=example,dc=com\nobjectClass: account\nobjectClass: simpleSecurityObject\nuid: ann\nuserPassword: {}\n",
        hash("annpass")
    );
    provider.load(&format!("dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n{account}\n{user}"));
    let provider_server = provider.start().unwrap();
    let address = format!("ldap://{}", provider_server.address);

    let [consumer] = &files("docs/guide/replication.md", "## A consumer")[..] else {
        panic!("other blocks than were expected");
    };
    let consumer = secured(
        &[
            directory,
            ("{ARGON2}...", &hash("root's")),
            ("ldap://ldap1.example.com", &address),
            ("/etc/ldap/ca.pem", "@DATA@/ca.pem"),
        ]
        .into_iter()
        .fold(consumer.clone(), |text, (documented, here)| {
            assert!(text.contains(documented), "{documented}");
            text.replace(documented, here)
        }),
    );
    let server = consumer.start().unwrap();
    let run = |who: &str, request: &str| {
        let mut client = Client::connect(server.address);
        let bound = ask(&mut client, who);
        bound + &ask(&mut client, request)
    };
    let all = "search \"dc=example,dc=com\" sub (objectClass=*) userPassword uid";
    let as_user = "as uid=ann,dc=example,dc=com annpass";
    // It was filled when the user may log in.
    until("the user may log in", || run(as_user, "whoami").starts_with("=> 0"));
    assert_eq!(run("anonymous", all), "=> 0\n=> 32\n");
    let shown = run(as_user, all);
    assert!(shown.contains("uid: ann") && shown.contains("-> cn=replicator"), "{shown}");
    assert!(!shown.contains("userPassword"), "{shown}");
    let change = "modify \"uid=ann,dc=example,dc=com\"\n  replace description: new";
    let sent_on = run(as_user, change);
    assert!(sent_on.contains("=> 10") && sent_on.contains(&address), "{sent_on}");
    assert!(provider_server.stop());
    let shown = run("as cn=admin,dc=example,dc=com root's", all);
    assert!(shown.starts_with("=> 0") && shown.contains("userPassword"), "{shown}");
    assert!(server.stop());
}

/// The mix of requests that the guide shows is for the directory that it generates: all answers are as the file says.
#[test]
fn a_mix_of_requests() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/load.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, text) = text.split_once("```toml\n").unwrap();
    let (workload, _) = text.split_once("```\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let larix = |arguments: &[&str]| {
        let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
        let output = command.args(arguments).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    larix(&["load", "generate", "people", "--entries", "200", "--out", "site"]);
    larix(&["add", "-f", "site/slapd.conf", "-l", "site/people.ldif"]);
    let documented = "count = 10_000 ";
    assert!(workload.contains(documented), "{workload}");
    fs::write(folder.path().join("mix.toml"), workload.replace(documented, "count = 200 ")).unwrap();
    let server = Server::start(Kind::Larix, &folder.path().join("site/slapd.conf")).unwrap();
    let run = format!(
        "load run --workload mix.toml --server {} -D cn=admin,dc=example,dc=com -w secret --connections 4 --seconds 1",
        server.address
    );
    larix(&run.split(' ').collect::<Vec<_>>());
    assert!(server.stop());
}

#[test]
fn what_has_come_is_compared() {
    for (wanted, line, expected) in [
        ("dn: x", "dn: x", true),
        ("dn: x", "dn: xy", false),
        ("New password: ...", "New password: abc", true),
        ("a ... c", "a b c", true),
        ("a ... c", "a b cd", false),
    ] {
        assert_eq!(fits(wanted, line), expected, "{wanted}: {line}");
    }
    assert_eq!(difference("b\nc\n", "a\nb\nc\n"), None);
    assert_eq!(difference("c\nb\n", "a\nb\nc\n"), Some("b"));
}

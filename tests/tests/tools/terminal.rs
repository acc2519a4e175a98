//! Passwords are asked for on the terminal, without echo, whatever standard input is; a signal restores the echo.
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use larix_testkit::process::{Signal, signal};
use larix_testkit::terminal::INTERRUPT;
use larix_testkit::{Kind, Server, Site, Terminal};

const ADMIN: &str = "cn=admin,dc=example,dc=com";
const BASE: &str = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n";
const PROMPT: &str = "Enter LDAP Password: ";

fn site() -> (Site, Server) {
    let site = Site::example(Kind::Larix);
    site.load(BASE);
    let server = site.start().unwrap();
    (site, server)
}

fn url(server: &Server) -> String {
    format!("ldap://{}", server.address)
}

/// Starts a client at the terminal, with `input` on its standard input.
fn start(terminal: &Terminal, server: &Server, arguments: &[&str], input: &str) -> Child {
    let mut command = terminal.command(Kind::Larix.program().unwrap());
    command.args(arguments).args(["-x", "-H", &url(server), "-D", ADMIN, "-W"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child
}

/// Runs a client that has no terminal.
fn without_terminal(server: &Server, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(Kind::Larix.program().unwrap()).args(arguments);
    command.args(["-x", "-H", &url(server), "-D", ADMIN, "-W"]);
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn entry(name: &str) -> String {
    format!("dn: cn={name},dc=example,dc=com\nobjectClass: person\ncn: {name}\nsn: {name}\n")
}

#[test]
fn records_on_standard_input_and_a_password_from_the_terminal() {
    let (_site, server) = site();
    let mut terminal = Terminal::open().unwrap();
    let mut child = start(&terminal, &server, &["modify", "-a"], &entry("ann"));
    terminal.shows(PROMPT);
    assert!(!terminal.echoes());
    terminal.types("secret\n");
    let (status, shown) = terminal.ended(&mut child);
    assert!(status.success(), "{shown}");
    assert!(shown.contains("adding new entry \"cn=ann,dc=example,dc=com\""), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
    assert!(terminal.echoes());
}

#[test]
fn filters_on_standard_input_with_questions_between_pages() {
    let (site, server) = site();
    drop(server);
    site.load(&[entry("ann"), entry("bob"), entry("cid")].join("\n"));
    let server = site.start().unwrap();
    let mut terminal = Terminal::open().unwrap();
    let arguments = ["search", "-LLL", "-b", "dc=example,dc=com", "-f", "-", "-E", "pr=2/prompt", "cn=%s"];
    let mut child = start(&terminal, &server, &arguments, "*\n");
    terminal.shows(PROMPT);
    terminal.types("secret\n");
    terminal.shows("Press [size] Enter");
    terminal.types("\n");
    let (status, shown) = terminal.ended(&mut child);
    assert!(status.success(), "{shown}");
    assert!(shown.contains("cn: cid"), "{shown}");
}

#[test]
fn a_signal_restores_the_echo() {
    let (_site, server) = site();
    let mut terminal = Terminal::open().unwrap();
    for (how, expected) in [(None, 130), (Some(Signal::TERM), 143), (Some(Signal::HUP), 129)] {
        let mut child = start(&terminal, &server, &["modify"], &entry("ann"));
        terminal.shows(PROMPT);
        assert!(!terminal.echoes(), "{how:?}");
        match how {
            None => terminal.types(INTERRUPT),
            Some(how) => assert!(signal(child.id(), how)),
        }
        let (status, shown) = terminal.ended(&mut child);
        assert_eq!(status.code(), Some(expected), "{how:?}: {shown}");
        assert!(terminal.echoes(), "{how:?}");
    }
}

#[test]
fn an_offline_tool_asks_twice_and_restores_the_echo() {
    let larix = Kind::Larix.program().unwrap();
    let mut terminal = Terminal::open().unwrap();
    let mut child = terminal.command(&larix).args(["hash-password", "-h", "{SSHA}"]).spawn().unwrap();
    terminal.shows("New password: ");
    terminal.types("secret\n");
    terminal.shows("Re-enter new password: ");
    assert!(!terminal.echoes());
    terminal.types("secret\n");
    let (status, shown) = terminal.ended(&mut child);
    assert!(status.success() && shown.contains("{SSHA}") && !shown.contains("secret"), "{shown}");

    let mut child = terminal.command(&larix).arg("hash-password").spawn().unwrap();
    terminal.shows("New password: ");
    terminal.types(INTERRUPT);
    assert_eq!(terminal.ended(&mut child).0.code(), Some(130));
    assert!(terminal.echoes());
}

/// A hash of nothing would be the password of nobody.
#[test]
fn hash_password_needs_a_line() {
    let hashed = |input: &str| {
        let mut command = Command::new(Kind::Larix.program().unwrap());
        command.args(["hash-password", "-h", "{CLEARTEXT}", "-n"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = hashed("");
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("password: the input ended"), "{output:?}");
    for input in ["secret", "secret\n", "secret\r\n"] {
        assert_eq!(hashed(input).stdout, b"secret", "{input:?}");
    }
}

#[test]
fn without_a_terminal_a_line_of_standard_input_is_taken_unless_that_has_the_data() {
    let (_site, server) = site();
    let output = without_terminal(&server, &["whoami"], "secret\n");
    assert!(output.status.success(), "{output:?}");
    for (arguments, input) in
        [(&["modify", "-a"][..], entry("ann")), (&["search", "-b", "", "-f", "-", "cn=%s"], "ann\n".into())]
    {
        let output = without_terminal(&server, arguments, &input);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(errors.contains("no terminal") && errors.contains("-y FILE"), "{arguments:?}: {errors}");
    }
    let output = without_terminal(&server, &["whoami"], "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("ended before"), "{output:?}");
}

/// What becomes a part of a password unseen is noted, what is no DN is named, and a base that is nowhere is answered with where to look, and
/// an anonymous change with the flags.
#[test]
fn mistakes_are_named() {
    let (_site, server) = site();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new").display().to_string();
    std::fs::write(&file, "new\n").unwrap();
    for (arguments, expected) in [
        (
            &["passwd", "-T", file.as_str(), "cn=x,dc=example,dc=com"][..],
            "new ends in a line end, which is a part of the password",
        ),
        (&["passwd", "-s", "new", "ann"], "\"ann\" is no DN: name the entry"),
        (
            &["search", "-b", "dc=exmaple,dc=com"],
            "is it misspelt, or has its suffix no entries yet? The server's suffixes: larix search",
        ),
        (&["search", "-b", "cn=Monitor"], "the server has no `database monitor`, or its access rules"),
    ] {
        let output = without_terminal(&server, arguments, "secret\n");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(expected), "{text}");
    }
    std::fs::write(&file, entry("x")).unwrap();
    let mut anonymous = Command::new(Kind::Larix.program().unwrap());
    let output = anonymous.args(["modify", "-a", "-x", "-H", &url(&server), "-f", &file]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("this client is anonymous: -D names who changes it"), "{text}");
    for lines in ["objectClass: sambaSamAccount\n", "objectClass: person\ncn: y\nsn: y\nsambaSID: 1\n"] {
        std::fs::write(&file, format!("dn: cn=y,dc=example,dc=com\n{lines}")).unwrap();
        let output = without_terminal(&server, &["modify", "-a", "-f", &file], "secret\n");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("`schema samba` in the configuration"), "{lines}: {text}");
    }
}

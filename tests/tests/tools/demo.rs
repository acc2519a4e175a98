//! `larix demo`: whatever ends it, its server ends with it and its data are removed.
use std::fs;
use std::net::TcpStream;
use std::process::Command;

use larix_testkit::process::{Signal, signal};
use larix_testkit::terminal::INTERRUPT;
use larix_testkit::{Kind, Terminal};

const SERVING: &str = "* serving on ldap://";

struct Demo {
    temporary: tempfile::TempDir,
    terminal: Terminal,
}

impl Demo {
    fn new() -> Self {
        Self { temporary: tempfile::tempdir().unwrap(), terminal: Terminal::open().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.terminal.command(Kind::Larix.program().unwrap());
        command.arg("demo").args(arguments).env("TMPDIR", self.temporary.path());
        command
    }

    fn leaves_nothing(&self) -> bool {
        fs::read_dir(self.temporary.path()).unwrap().next().is_none()
    }
}

/// Starts it, has it serve, ends it and looks at what is left.
fn check(end: impl FnOnce(&mut Terminal, u32), expected: i32) {
    let mut demo = Demo::new();
    let mut child = demo.command(&["--entries", "200"]).spawn().unwrap();
    demo.terminal.shows(SERVING);
    let address = demo.terminal.shows("/");
    let address = address.trim_end_matches('/').to_owned();
    let shown = demo.terminal.shows("Ctrl-C ends it and removes the data.");
    assert!(shown.contains("cn: "), "{shown}");
    assert!(TcpStream::connect(&address).is_ok());
    assert!(!demo.leaves_nothing());
    end(&mut demo.terminal, child.id());
    let (status, shown) = demo.terminal.ended(&mut child);
    assert_eq!(status.code(), Some(expected), "{shown}");
    assert!(TcpStream::connect(&address).is_err(), "the server runs on");
    assert!(demo.leaves_nothing(), "{shown}");
}

#[test]
fn a_terminals_interrupt_ends_it() {
    check(|terminal, _| terminal.types(INTERRUPT), 130);
}

#[test]
fn a_signal_to_it_alone_ends_it() {
    check(|_, process| assert!(signal(process, Signal::TERM)), 143);
}

#[test]
fn it_is_ended_while_it_loads() {
    let mut demo = Demo::new();
    let mut child = demo.command(&["--entries", "50000"]).spawn().unwrap();
    demo.terminal.shows("* generated");
    assert!(signal(child.id(), Signal::TERM));
    assert_eq!(demo.terminal.ended(&mut child).0.code(), Some(143));
    assert!(demo.leaves_nothing());
}

#[test]
fn one_answer_and_data_that_stay() {
    let mut demo = Demo::new();
    let mut child = demo.command(&["--entries", "200", "--once"]).spawn().unwrap();
    let (status, shown) = demo.terminal.ended(&mut child);
    assert!(status.success() && shown.contains("cn: "), "{shown}");
    assert!(demo.leaves_nothing(), "{shown}");

    let kept = demo.temporary.path().join("kept").display().to_string();
    let mut child = demo.command(&["--entries", "200", "--data", &kept]).spawn().unwrap();
    demo.terminal.shows("Ctrl-C ends it.");
    demo.terminal.types(INTERRUPT);
    assert_eq!(demo.terminal.ended(&mut child).0.code(), Some(130));
    assert!(fs::read_dir(&kept).unwrap().next().is_some(), "the data stay");
}

/// As beside a `head` that has what it wanted.
#[test]
fn a_signal_ends_it_though_nobody_reads_its_errors() {
    let mut demo = Demo::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = demo.command(&["--entries", "200"]).stderr(writer).spawn().unwrap();
    demo.terminal.shows("Ctrl-C ends it and removes the data.");
    assert!(signal(child.id(), Signal::TERM));
    assert_eq!(demo.terminal.ended(&mut child).0.code(), Some(143));
    assert!(demo.leaves_nothing());
}

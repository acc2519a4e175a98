//! `database sock`: a program behind a local socket answers requests. `overlay sock`: it is asked before a database.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use larix_testkit::{Kind, Site};
use larix_tests::client::{Client, codes_alone, run};
use larix_tests::running::Running;

/// The lines of a server with a database of a program, and one beside it.
fn lines(kind: Kind, socket: &Path) -> String {
    let module = if kind == Kind::Slapd { "moduleload back_sock\nmoduleload back_null\n" } else { "" };
    format!(
        "{module}database sock\nsuffix o=x\nrootdn cn=root,o=x\nrootpw secret\nsocketpath {}\n\
         extensions binddn peername ssf connid\nsizelimit 100\n\
         access to dn.exact=cn=secret,o=x by dn.exact=cn=root,o=x read by * none\n\
         access to attrs=userPassword by * auth\naccess to * by * write\n\ndatabase null\nsuffix cn=null\n",
        socket.display()
    )
}

/// Answers as a simple program does; the requests that came.
fn serve(listener: UnixListener) -> Receiver<String> {
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut text = String::new();
            let mut input = BufReader::new(stream.try_clone().unwrap());
            while input.read_line(&mut text).is_ok_and(|read| read > 1) {}
            let has = |part: &str| text.contains(part);
            let answer = if has("base: cn=hangs") {
                // It keeps the connection, and says nothing.
                std::mem::forget(stream);
                continue;
            } else if has("\ndn: cn=ends") {
                String::new()
            } else if has("base: cn=many") {
                let entry =
                    |number| format!("dn: cn={number},cn=many,o=x\ncn: {number}\nobjectClass: person\n\n");
                (0..300).map(entry).collect::<String>() + "RESULT\ncode: 0\n"
            } else if text.starts_with("SEARCH") {
                "# found\ndn: cn=ann,o=x\nobjectClass: person\ncn: ann\nsn:: w4RyY2hlcg==\nuserPassword: pw\nnoSuchType: 1\n\n\
                 DEBUG: next\ndn: cn=secret,o=x\nobjectClass: person\ncn: secret\nsn: s\n\n\
                 dn: cn=elsewhere,o=y\nobjectClass: person\ncn: elsewhere\nsn: e\n\nRESULT\ncode: 0\n\n"
                    .to_owned()
            } else if text.starts_with("BIND") {
                format!("RESULT\ncode: {}\n", if has("\ncred: pw\n") { 0 } else { 49 })
            } else if text.starts_with("COMPARE") {
                format!("RESULT\ncode: {}\n", if has("\nsn: archer\n") { 6 } else { 5 })
            } else if text.starts_with("DELETE") {
                "RESULT\ncode: 32\nmatched: o=x\ninfo: not here\n".to_owned()
            } else {
                "RESULT\ncode: 0\n".to_owned()
            };
            // Before the answer: a client that has the answer finds the request.
            if sender.send(text).is_err() {
                return;
            }
            // A server that hangs up has heard enough.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    requests
}

/// A server of this kind in front of a program, what it answers, and what the program was asked: values that differ from run to run
/// taken out.
fn answers(kind: Kind, requests: &[&str]) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let receiver = serve(UnixListener::bind(&socket).unwrap());
    let server = Running::start(kind, &lines(kind, &socket), "");
    let mut client = server.client();
    let answers = requests.iter().map(|request| {
        let answer = run(&mut client, request);
        let text = receiver.try_recv().unwrap_or_default();
        let text: String = text
            .lines()
            .filter(|line| {
                !["peername:", "connid:", "structuralObjectClass:"].iter().any(|own| line.starts_with(own))
            })
            .map(|line| format!("{line}\n"))
            .collect();
        (answer, text)
    });
    answers.collect()
}

const REQUESTS: [&str; 11] = [
    "search o=x sub (|(cn=a*)(sn=b)) cn sn",
    "search o=x sub (objectClass=*)",
    "search cn=ann,o=x base (cn=*)",
    "search cn=many,o=x sub (cn=*) cn",
    "compare cn=ann,o=x sn:archer",
    "compare cn=ann,o=x sn:brewer",
    "as cn=ann,o=x wrong",
    "as cn=ann,o=x pw",
    "modify cn=ann,o=x\n  replace sn: a | b\n  delete description",
    "modrdn cn=ann,o=x cn=eve delete",
    "delete cn=ann,o=x",
];

#[test]
fn a_program_answers_requests() {
    let ours = answers(Kind::Larix, &REQUESTS);
    let has = |number: usize, answer: &str, text: &str| {
        let (answered, notice) = &ours[number];
        assert!(answered.contains(answer), "{}: {answered} lacks {answer}", REQUESTS[number]);
        assert!(notice.contains(text), "{}: {notice} lacks {text}", REQUESTS[number]);
    };
    has(
        0,
        "cn: ann",
        "SEARCH\nmsgid: 1\nbinddn: \nssf: 0\nsuffix: o=x\nbase: o=x\nscope: 2\nderef: 0\nsizelimit: 100\n",
    );
    has(0, "=> 0", "filter: (|(cn=a*)(sn=b))\nattrsonly: 0\nattrs: cn sn\n");
    has(1, "cn=ann,o=x", "attrs: all\n");
    assert!(!ours[1].0.contains("cn=secret") && !ours[1].0.contains("elsewhere"), "{}", ours[1].0);
    assert!(!ours[1].0.contains("userPassword"), "{}", ours[1].0);
    has(3, "=> 4", "base: cn=many,o=x\n");
    has(4, "=> 6", "COMPARE\n");
    has(4, "=> 6", "dn: cn=ann,o=x\nsn: archer\n");
    has(5, "=> 5", "sn: brewer\n");
    has(
        8,
        "=> 0",
        "binddn: cn=ann,o=x\nssf: 0\nsuffix: o=x\ndn: cn=ann,o=x\nreplace: sn\nsn: a\nsn: b\n-\ndelete: description\n-\n",
    );
    has(9, "=> 0", "newrdn: cn=eve\ndeleteoldrdn: 1\n");
    has(10, "=> 32", "DELETE\n");
    has(6, "=> 49", "dn: cn=ann,o=x\nmethod: 128\ncredlen: 5\ncred: wrong\n");
    has(7, "=> 0", "cred: pw\n");

    if Kind::Slapd.is_lacking_module("back_sock") {
        return;
    }
    let theirs = answers(Kind::Slapd, &REQUESTS);
    for ((request, own), other) in REQUESTS.iter().zip(&ours).zip(&theirs) {
        // slapd adds attributes of its own to a modify, and passes on what was not asked for.
        if !request.starts_with("modify") {
            assert_eq!(own.1, other.1, "{request}");
        }
        if !request.starts_with("search") {
            assert_eq!(codes_alone(&own.0), codes_alone(&other.0), "{request}");
        }
    }
}

/// The program may have made it, and has ended since.
#[test]
fn the_outcome_of_a_change_without_an_answer_is_unknown() {
    for (request, is_change) in [
        ("delete cn=ends,o=x", true),
        ("modify cn=ends,o=x\n  replace sn: a", true),
        ("compare cn=ends,o=x sn:a", false),
    ] {
        let (answer, text) = answers(Kind::Larix, &["as cn=ann,o=x pw", request]).remove(1);
        assert!(text.contains("dn: cn=ends,o=x") && answer.contains("=> 80"), "{request}: {answer}");
        assert_eq!(
            answer.contains("whether the change was made is unknown"),
            is_change,
            "{request}: {answer}"
        );
    }
}

#[test]
fn a_program_that_hangs_delays_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _asked = serve(UnixListener::bind(&socket).unwrap());
    let site = Site::new(Kind::Larix, &lines(Kind::Larix, &socket));
    let server = Running::of(site);
    let hang = |time: u32| format!("search cn=hangs,o=x sub (cn=*) time={time}");
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let address = server.address();
            let request = hang(2);
            std::thread::spawn(move || run(&mut Client::connect(address), &request))
        })
        .collect();
    let mut other = server.client();
    for _ in 0..20 {
        assert!(run(&mut other, "search cn=null base (objectClass=*)").contains("=> 0"));
        assert!(run(&mut other, "search o=x sub (objectClass=*)").contains("cn: ann"));
    }
    for thread in waiting {
        assert!(thread.join().unwrap().contains("=> 3"));
    }
    assert!(run(&mut other, "as cn=root,o=x secret").contains("=> 0"));
    assert!(
        run(&mut other, "search \"\" base (objectClass=*) namingContexts").contains("namingContexts: o=x")
    );
}

/// The lines of a server with a stored database that a program is asked before.
fn overlay_lines(kind: Kind, socket: &Path) -> String {
    let module = if kind == Kind::Slapd { "moduleload back_sock\n" } else { "" };
    format!(
        "{module}database mdb\nsuffix o=x\nrootdn cn=root,o=x\nrootpw secret\ndirectory @DATA@\n\
         access to attrs=userPassword by * auth\naccess to * by * write\n\
         overlay sock\nsocketpath {}\nextensions binddn\n\
         sockops bind search compare modify modrdn\nsockops add delete extended\nsockresps result search\n\
         sockdnpat ^(cn=.*,)?o=x$\n",
        socket.display()
    )
}

const STORED: &str = "dn: o=x\nobjectClass: organization\no: x\n\n\
    dn: ou=quiet,o=x\nobjectClass: organizationalUnit\nou: quiet\n\n\
    dn: cn=ann,o=x\nobjectClass: person\ncn: ann\nsn: archer\nuserPassword: pw\n";

/// Answers some requests itself, and lets the others go on; what it was asked and told.
fn decide(listener: UnixListener) -> Receiver<String> {
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut text = String::new();
            let mut input = BufReader::new(stream.try_clone().unwrap());
            while input.read_line(&mut text).is_ok_and(|read| read > 1) {}
            let has = |part: &str| text.contains(part);
            let found = |name: &str| format!("dn: cn={name},o=x\nobjectClass: person\ncn: {name}\nsn: s\n\n");
            let answer = if text.starts_with("RESULT") || text.starts_with("ENTRY") {
                String::new()
            } else if has("base: cn=virtual") {
                found("virtual") + "RESULT\ncode: 0\n\n"
            } else if has("filter: (cn=both)") {
                found("both") + "CONTINUE\n\n"
            } else if has("\ncred: outside\n") {
                "RESULT\ncode: 0\n\n".to_owned()
            } else if has("dn: cn=refused") {
                "RESULT\ncode: 53\ninfo: not today\n\n".to_owned()
            } else {
                "CONTINUE\n\n".to_owned()
            };
            // Before the answer: a client that has the answer finds the request.
            if sender.send(text).is_err() {
                return;
            }
            // A server that hangs up has heard enough.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    requests
}

/// How long the program is waited for that has not heard enough, and how long for what it may hear beyond that.
const PATIENCE: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_millis(150);

/// What a server of this kind answers, and in short what the program was asked and told: that comes behind the answer. `is_enough` says
/// of a request by its number whether the program has heard what it must hear.
fn decided(kind: Kind, requests: &[&str], is_enough: impl Fn(usize, &str) -> bool) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let heard = decide(UnixListener::bind(&socket).unwrap());
    let server = Running::start(kind, &overlay_lines(kind, &socket), STORED);
    let mut client = server.client();
    let answers = requests.iter().enumerate().map(|(at, request)| {
        let answer = run(&mut client, request);
        let mut short = String::new();
        while let Ok(text) = heard.recv_timeout(if is_enough(at, &short) { QUIET } else { PATIENCE }) {
            let prefixes =
                ["suffix:", "binddn:", "dn:", "base:", "cred:", "oid:", "code:", "matched:", "info:"];
            let mut lines = text.lines();
            short += lines.next().unwrap_or_default();
            for line in lines.filter(|line| prefixes.iter().any(|own| line.starts_with(own))) {
                short += &format!(" {line}");
            }
            short.push('\n');
        }
        (answer, short)
    });
    answers.collect()
}

#[test]
fn a_program_is_asked_before_a_database_and_told_its_answers() {
    const PERSON: &str = "\n  objectClass: person\n  sn: e";
    let (eve, refused) = (format!("add cn=eve,o=x{PERSON}"), format!("add cn=refused,o=x{PERSON}"));
    // Each: the answer's end, and what the program hears.
    let cases: &[(&str, &str, &str)] = &[
        (
            "as cn=ann,o=x pw",
            "=> 0",
            "BIND binddn:  suffix: o=x dn: cn=ann,o=x cred: pw\nRESULT binddn:  code: 0\n",
        ),
        // What the program itself says it is not told.
        ("as cn=ann,o=x outside", "=> 0", "BIND binddn:  suffix: o=x dn: cn=ann,o=x cred: outside\n"),
        ("whoami", "dn:cn=ann,o=x", ""),
        ("as cn=ann,o=x wrong", "=> 49", "BIND"),
        ("as cn=root,o=x secret", "=> 0", "BIND"),
        (
            "search o=x sub (cn=ann) cn",
            "cn: ann",
            "SEARCH binddn: cn=root,o=x suffix: o=x base: o=x\nENTRY binddn: cn=root,o=x dn: cn=ann,o=x\n\
             RESULT binddn: cn=root,o=x code: 0\n",
        ),
        (
            "search cn=virtual,o=x sub (objectClass=*) cn",
            "cn: virtual",
            "SEARCH binddn: cn=root,o=x suffix: o=x base: cn=virtual,o=x\n",
        ),
        ("search o=x sub (cn=both) cn", "cn: both", "SEARCH"),
        ("search cn=nobody,o=x sub (cn=*)", "=> 32", "matched: o=x"),
        (&eve, "=> 0", "ADD binddn: cn=root,o=x suffix: o=x dn: cn=eve,o=x\nRESULT"),
        (&eve, "=> 68", "code: 68"),
        (&refused, "=> 53 text \"not today\"", "ADD binddn: cn=root,o=x suffix: o=x dn: cn=refused,o=x\n"),
        ("compare cn=eve,o=x sn:e", "=> 6", "RESULT binddn: cn=root,o=x code: 6\n"),
        ("modify cn=eve,o=x\n  replace sn: f", "=> 0", "MODIFY"),
        ("passwd cn=eve,o=x new=secret", "=> 0", "EXTENDED"),
        ("as cn=eve,o=x secret", "=> 0", "BIND"),
        // The program receives answers about names that the pattern leaves out, too, as from slapd.
        ("modify ou=quiet,o=x\n  replace description: d", "=> 0", "RESULT binddn: cn=eve,o=x code: 0\n"),
        ("modrdn cn=eve,o=x cn=eva delete", "=> 0", "MODRDN"),
        ("delete cn=eva,o=x", "=> 0", "DELETE"),
        ("delete cn=eva,o=x", "=> 32", "matched: o=x"),
    ];
    let requests: Vec<&str> = cases.iter().map(|(request, ..)| *request).collect();
    // Where a case has a bare word, the program also hears the result.
    let ours = decided(Kind::Larix, &requests, |at, heard| {
        let notice = cases[at].2;
        heard.contains(notice) && (notice.is_empty() || notice.ends_with('\n') || heard.contains("RESULT"))
    });
    for ((request, answer, notice), (answered, notices)) in cases.iter().zip(&ours) {
        assert!(answered.contains(answer), "{request}: {answered} lacks {answer}");
        assert!(
            notices.contains(notice) && notice.is_empty() == notices.is_empty(),
            "{request}: {notices} lacks {notice}"
        );
    }
    if Kind::Slapd.is_lacking_module("back_sock") {
        return;
    }
    // slapd says nothing about a bind that succeeds, and it asks about the change that a password change makes, too.
    let without = |text: &str, kind: &str| {
        let lines = text.lines().filter(|line| !line.starts_with(kind));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let compared = |at: usize, theirs: &str| {
        let own = &ours[at];
        match requests[at].split(' ').next() {
            Some("as") if own.0.starts_with("=> 0") => (without(&own.1, "RESULT"), theirs.to_owned()),
            Some("passwd") => (own.1.clone(), without(theirs, "MODIFY")),
            _ => (own.1.clone(), theirs.to_owned()),
        }
    };
    let theirs = decided(Kind::Slapd, &requests, |at, heard| {
        let (own, other) = compared(at, heard);
        own == other
    });
    for (at, (request, other)) in requests.iter().zip(&theirs).enumerate() {
        let (own_text, other_text) = compared(at, &other.1);
        assert_eq!(own_text, other_text, "{request}");
        assert_eq!(codes_alone(&ours[at].0), codes_alone(&other.0), "{request}");
    }
}

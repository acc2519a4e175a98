//! A server with an admin page, and a browser's half of a conversation with it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use larix_testkit::{Kind, Server, Site, until_some};

pub(crate) const ADMIN: &str = "cn=admin,dc=example,dc=com";

/// Two people, one of whom has something to say to browsers.
pub(crate) const ENTRIES: &str = "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
    dn: ou=people,dc=example,dc=com\nobjectClass: organizationalUnit\nou: people\n\n\
    dn: uid=ann,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: ann\ncn: Ann Example\nsn: Example\n\
    userPassword: annpass\n\n\
    dn: uid=bob,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: bob\n\
    cn: <script>alert(1)</script>\nsn: \"><img src=x onerror=alert(2)>\ndescription: {{7*7}} ' onload='x\n";

pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) http: SocketAddr,
    pub(crate) site: Site,
}

impl Fixture {
    /// The file `data/log` as soon as it has this: the log has a thread of its own.
    pub(crate) fn log_with(&self, text: &str) -> String {
        until_some(text, || {
            let log = std::fs::read_to_string(self.site.path().join("data/log")).expect("the log");
            log.contains(text).then_some(log)
        })
    }
}

/// With these lines before the first database.
pub(crate) fn start(extra: &str) -> Fixture {
    start_under(extra, "")
}

/// And with these access rules before those that all of these tests have.
pub(crate) fn start_under(extra: &str, rules: &str) -> Fixture {
    start_with(extra, rules, ENTRIES)
}

/// And with these entries.
pub(crate) fn start_with(extra: &str, rules: &str, entries: &str) -> Fixture {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "admin-listener http://127.0.0.1:0/ directory.example.com\n{extra}\n\
             database config\nrootdn {ADMIN}\n\
             database monitor\naccess to * by dn.exact={ADMIN} read by * none\n\
             database mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
             index objectClass,uid eq\n\
             {rules}\naccess to attrs=userPassword by self =xw by anonymous auth by * none\n\
             access to * by users read by * none\n"
        ),
    );
    site.load_into(Some("dc=example,dc=com"), entries);
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, server.ports[1]));
    Fixture { server, http, site }
}

/// A browser's half of a conversation: it keeps cookies and sends what a test asks for.
pub(crate) struct Http {
    address: SocketAddr,
    pub(crate) cookies: Vec<(String, String)>,
    pub(crate) csrf: String,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")));
        line.map_or("", |line| line[name.len() + 1..].trim())
    }
}

pub(crate) fn send(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("a connection");
    // Refused early, the server does not read to the end.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let answer = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

impl Http {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, cookies: Vec::new(), csrf: String::new() }
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nCookie: {}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.address,
            cookies.join("; "),
            body.len()
        );
        let answer = send(self.address, &request);
        for line in answer.head.lines().filter_map(|line| line.strip_prefix("set-cookie: ")) {
            let (name, rest) = line.split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or("");
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        if let Some((_, rest)) = answer.body.split_once("name=\"csrf\" value=\"") {
            self.csrf = rest.split('"').next().unwrap_or("").to_owned();
        }
        answer
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    pub(crate) fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut body = format!("csrf={}", self.csrf);
        for (name, value) in fields {
            body += &format!("&{}={}", escape(name), escape(value));
        }
        self.ask("POST", path, FORM, &body)
    }

    pub(crate) fn log_in(&mut self, name: &str, password: &str) -> Answer {
        self.get("/login");
        let answer = self.post("/login", &[("name", name), ("password", password)]);
        if answer.status == 303 {
            self.get("/about");
        }
        answer
    }
}

pub(crate) const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

pub(crate) fn escape(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

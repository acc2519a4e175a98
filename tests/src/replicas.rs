//! Servers that follow each other, and whether they have the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use larix_proto::client::{self, Search};
use larix_proto::control::{ControlValue as _, ManageDsaIt};
use larix_proto::{FilterBuf, MessageId, Response, ResultCode, Scope};
use larix_testkit::process::{free_port, free_ports};
use larix_testkit::{Kind, Server, Site};

use crate::client::Client;
use crate::scenario::Step;

pub const SUFFIX: &str = "dc=example,dc=com";
pub const ADMIN: &str = "cn=admin,dc=example,dc=com";
/// How long a replica may take until it has what its provider has, in steps of [`STEP`]; longer than any schedule of
/// retries in these tests.
const STEPS: u32 = 3_600;
const STEP: Duration = Duration::from_millis(50);

/// The suffix of the access logs of [`members`].
pub const LOG: &str = "cn=log";

/// How members that all take writes merge what several of them changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Merging {
    /// By the records of their access logs, which they follow.
    Records,
    /// By `conflict-mode value`.
    Values,
}

/// So many Larix servers, not started, that all take writes and follow each other; they tell in their logs what they do.
pub fn members(count: usize, merging: Merging) -> Vec<Member> {
    let ports = free_ports(count);
    let follow = match merging {
        Merging::Records => format!(
            " logbase={LOG} logfilter=\"(&(objectClass=auditWriteObject)(reqResult=0))\" syncdata=accesslog"
        ),
        Merging::Values => String::new(),
    };
    let member = |number: usize| {
        let others = ports.iter().enumerate().filter(|(other, _)| *other != number);
        let lines = others.map(|(other, port)| {
            format!(
                "syncrepl rid={:03} provider=ldap://127.0.0.1:{port} bindmethod=simple binddn={ADMIN} credentials=secret \
                 searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\"{follow}\n",
                other + 1
            )
        });
        let lines = lines.collect::<String>() + "multiprovider on\noverlay syncprov\n";
        let id = format!("serverID {}\n", number + 1);
        let (global, database) = match merging {
            Merging::Records => (
                format!(
                    "{id}database mdb\nsuffix {LOG}\nrootdn {ADMIN}\ndirectory @DATA@/changes\nlimits users size=unlimited\n\
                     overlay syncprov\nsyncprov-nopresent TRUE\nsyncprov-reloadhint TRUE"
                ),
                format!("{lines}overlay accesslog\nlogdb {LOG}\nlogops writes\nlogsuccess TRUE"),
            ),
            Merging::Values => (id, format!("conflict-mode value\n{lines}")),
        };
        Member::at(Kind::Larix, ports[number], &global, &database).arguments(&["-d", "16384"])
    };
    (0..count).map(member).collect()
}

/// Entries by DN, attributes by description, values sorted.
pub type Content = BTreeMap<String, BTreeMap<String, Vec<Vec<u8>>>>;

/// One server of several.
#[derive(Debug)]
pub struct Member {
    pub kind: Kind,
    pub site: Site,
    pub port: u16,
    arguments: Vec<String>,
    server: Option<Server>,
}

impl Member {
    /// A server on a port of its own. `global` and `database` are lines of slapd.conf; `@PORT@` in them is its port,
    /// `@DIR@` its folder. It has the suffix [`SUFFIX`], the root DN [`ADMIN`] and the password `secret`.
    pub fn new(kind: Kind, global: &str, database: &str) -> Self {
        Self::at(kind, free_port(), global, database)
    }

    pub fn at(kind: Kind, port: u16, global: &str, database: &str) -> Self {
        let modules = match kind {
            Kind::Slapd => "moduleload syncprov\nmoduleload accesslog\n",
            Kind::Larix => "",
        };
        let body = format!(
            "{modules}{global}\ndatabase config\nrootpw secret\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\n\
             rootpw secret\ndirectory @DATA@\nindex objectClass,entryUUID,entryCSN,uid eq\n{database}\n"
        );
        Self::with(kind, port, &body)
    }

    /// A server with this configuration below the schema.
    pub fn with(kind: Kind, port: u16, body: &str) -> Self {
        let site = Site::new(kind, &body.replace("@PORT@", &port.to_string()));
        Self { kind, site, port, arguments: Vec::new(), server: None }
    }

    /// Further arguments; with `-h` among them the port must be one of its URLs'.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self
    }

    /// # Panics
    /// When it does not start.
    pub fn start(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let started = Server::start_at(self.kind, &self.site.configuration(), self.port, &arguments);
        self.server = Some(started.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Starts it on other ports than its own, which is the first of these from then on; port 0 is any that is free.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_on(&mut self, urls: &[&str]) -> Vec<u16> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let started = Server::start_on(self.kind, &self.site.configuration(), urls, &arguments, &[]);
        let server = started.unwrap_or_else(|error| panic!("{error}"));
        let ports = server.ports.clone();
        self.port = server.address.port();
        self.server = Some(server);
        ports
    }

    /// Started.
    #[must_use]
    pub fn started(mut self) -> Self {
        self.start();
        self
    }

    pub fn stop(&mut self) {
        let clean = self.server.take().is_some_and(Server::stop);
        assert!(clean, "{:?} did not end cleanly", self.kind);
    }

    pub fn kill(&mut self) {
        self.server.take().into_iter().for_each(Server::kill);
    }

    /// Of the server, if it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.server.as_ref().map(Server::process_id)
    }

    pub fn log(&self) -> String {
        self.server.as_ref().map(Server::log).unwrap_or_default()
    }

    pub fn url(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// A connection of the root DN.
    pub fn client(&self) -> Client {
        let mut client = Client::connect(self.address());
        assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
        client
    }

    /// Requests in the form of scenarios, separated by empty lines; each must succeed.
    ///
    /// # Panics
    /// When one does not.
    pub fn change(&self, requests: &str) {
        let mut client = self.client();
        for request in requests.split("\n\n").map(str::trim).filter(|request| !request.is_empty()) {
            assert_eq!(ask(&mut client, request), "=> 0\n", "{request}");
        }
    }

    /// What one search finds, operational attributes included; what each server computes for itself is left out. None where
    /// the base is not there, or no whole answer comes.
    ///
    /// # Panics
    /// When the answer cannot be read.
    pub fn content(&self, base: &str) -> Option<Content> {
        self.content_as(ADMIN, base)
    }

    /// As [`Self::content`], read by another root DN.
    ///
    /// # Panics
    /// As [`Self::content`].
    pub fn content_as(&self, root: &str, base: &str) -> Option<Content> {
        let mut client = Client::try_connect(self.address()).ok()?;
        ask(&mut client, &format!("as {root} secret"));
        let filter = FilterBuf::parse("(objectClass=*)").expect("a filter");
        let mut request = Vec::new();
        let search =
            Search { attributes: &["*", "+"], ..Search::new(base, Scope::Subtree, filter.as_filter()) };
        client::search(&mut request, MessageId(9), &search, &[ManageDsaIt.to_control(true)]);
        let (mut content, mut is_whole) = (Content::new(), false);
        for pdu in client.exchange(&request) {
            match Response::decode_message(&pdu).expect("a response").response {
                Response::Entry(entry) => {
                    let attributes = entry.attributes.iter().filter(|a| !is_computed(a.description));
                    let attributes = attributes.map(|attribute| {
                        let mut values: Vec<Vec<u8>> = attribute.values.iter().map(<[u8]>::to_vec).collect();
                        values.sort();
                        (attribute.description.to_ascii_lowercase(), values)
                    });
                    content.insert(entry.dn.to_ascii_lowercase().replace(", ", ","), attributes.collect());
                }
                Response::SearchDone(result) => is_whole = result.code == ResultCode::SUCCESS,
                _ => {}
            }
        }
        is_whole.then_some(content)
    }

    /// Waits until this server shows what `wanted` says.
    ///
    /// # Panics
    /// When it never does.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Content) -> bool) {
        for _ in 0..STEPS {
            if self.content(SUFFIX).is_some_and(|content| wanted(&content)) {
                return;
            }
            std::thread::park_timeout(STEP);
        }
        panic!("{:?} never had {what}\n{}", self.kind, self.log());
    }

    /// Waits until this server has exactly what the other one has.
    ///
    /// # Panics
    /// Names what differs, with the log.
    pub fn wait_until_like(&self, other: &Self) {
        self.wait_until(SUFFIX, || other.content(SUFFIX).unwrap_or_default());
    }

    /// Waits until this server has exactly this below a base.
    ///
    /// # Panics
    /// Names what differs, with the log.
    pub fn wait_until(&self, base: &str, wanted: impl Fn() -> Content) {
        self.wait_until_equal(|| self.content(base), wanted);
    }

    /// As [`Self::wait_until`], read by another root DN.
    pub fn wait_until_as(&self, root: &str, base: &str, wanted: impl Fn() -> Content) {
        self.wait_until_equal(|| self.content_as(root, base), wanted);
    }

    /// As [`Self::wait_until`]; attributes that `wanted` has of no entry do not count.
    pub fn wait_until_part(&self, base: &str, wanted: impl Fn() -> Content) {
        let known: BTreeSet<String> = wanted().values().flat_map(|entry| entry.keys().cloned()).collect();
        let own = || {
            let mut own = self.content(base)?;
            own.values_mut().for_each(|entry| entry.retain(|name, _| known.contains(name)));
            Some(own)
        };
        self.wait_until_equal(own, wanted);
    }

    /// Waits until the server has written this to its log.
    ///
    /// # Panics
    /// When it never does.
    pub fn wait_for_log(&self, text: &str) {
        for _ in 0..STEPS {
            if self.log().contains(text) {
                return;
            }
            std::thread::park_timeout(STEP);
        }
        panic!("{:?} never said {text:?}\n{}", self.kind, self.log());
    }

    /// Two that have nothing are not equal: neither of them may have answered.
    fn wait_until_equal(&self, own: impl Fn() -> Option<Content>, wanted: impl Fn() -> Content) {
        let mut difference = String::new();
        for _ in 0..STEPS {
            let own = own().unwrap_or_default();
            difference = differences(&own, &wanted());
            if difference.is_empty() && !own.is_empty() {
                return;
            }
            std::thread::park_timeout(STEP);
        }
        panic!("{:?} at port {} differs:\n{difference}\n{}", self.kind, self.port, self.log());
    }
}

/// What each server says of itself.
fn is_computed(description: &str) -> bool {
    const COMPUTED: [&str; 7] = [
        "auditContext",
        "contextCSN",
        "entryDN",
        "subschemaSubentry",
        "hasSubordinates",
        "numSubordinates",
        "structuralObjectClass",
    ];
    // structuralObjectClass is shown by the name that each server's schema has first.
    COMPUTED.iter().any(|name| name.eq_ignore_ascii_case(description))
}

pub fn ask(client: &mut Client, request: &str) -> String {
    client.run(&Step { request: format!("{request}\n"), ..Step::default() })
}

/// What one has and the other has not, in lines; none when they are equal.
pub fn differences(own: &Content, wanted: &Content) -> String {
    let mut text = String::new();
    for dn in own.keys().chain(wanted.keys().filter(|dn| !own.contains_key(*dn))) {
        match (own.get(dn), wanted.get(dn)) {
            (Some(_), None) => text += &format!("{dn}: too much\n"),
            (None, _) => text += &format!("{dn}: missing\n"),
            (Some(own), Some(wanted)) => {
                for name in own.keys().chain(wanted.keys().filter(|name| !own.contains_key(*name))) {
                    if own.get(name) != wanted.get(name) {
                        let shown = |values: Option<&Vec<Vec<u8>>>| {
                            let values = values.into_iter().flatten().map(|v| String::from_utf8_lossy(v));
                            values.collect::<Vec<_>>().join(" | ")
                        };
                        text += &format!(
                            "{dn}: {name}: {} / {}\n",
                            shown(own.get(name)),
                            shown(wanted.get(name))
                        );
                    }
                }
            }
        }
    }
    text
}

/// LDIF of a small company: the suffix, two units and so many people.
pub fn people(count: usize) -> String {
    let mut ldif = format!(
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
         dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: ou=groups,{SUFFIX}\nobjectClass: organizationalUnit\nou: groups\n\n"
    );
    for number in 0..count {
        ldif += &format!(
            "dn: uid=u{number},ou=people,{SUFFIX}\nobjectClass: inetOrgPerson\nuid: u{number}\ncn: User {number}\n\
             sn: {number}\nmail: u{number}@example.com\ndescription: {}\n\n",
            if number % 2 == 0 { "even" } else { "odd" }
        );
    }
    ldif
}

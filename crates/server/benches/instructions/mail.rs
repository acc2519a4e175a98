//! The mail directory, loaded, and requests to it: what the benchmark and the test of allocations share.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use larix_configuration::Config;
use larix_engine::load::{self, LoadContext, LoadObserver, LoadOptions, Progress, RecordError};
use larix_load::generate::{self, Kind, ROOT_PASSWORD};
use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::{FilterBuf, MessageId, ModifyOperation, Scope};
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::local::{LocalConnection, LocalServer};
use larix_store::lmdb::LmdbOptions;

pub(crate) const ENTRIES: u64 = 2_000;

const PEOPLE: &str = "ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com";

/// Generates the directory into `folder` and loads it.
///
/// # Panics
/// When the folder cannot be written, or the load fails.
pub(crate) fn prepare(folder: &Path) {
    let schema = folder.join("schema");
    std::fs::create_dir_all(&schema).expect("a folder for the schema");
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        let text = larix_schema::bundled(name).expect("a bundled schema");
        std::fs::write(schema.join(format!("{name}.schema")), text).expect("a schema file");
    }
    let made = generate::write_directory(Kind::Mail, ENTRIES, 1, folder, &schema).expect("a directory");
    let ldif = std::fs::read_to_string(&made.ldif).expect("the generated LDIF");
    let account = ldif.split("\n\n").find(|entry| entry.contains("uid=user.1,")).expect("an account");
    let password = account.lines().find_map(|line| line.strip_prefix("userPassword: ")).expect("a password");
    std::fs::write(folder.join(PASSWORD), password).expect("the password of an account");
    let ruled = std::fs::read_to_string(&made.configuration).expect("the generated configuration") + RULES;
    std::fs::write(folder.join(RULED), ruled).expect("the configuration with rules");
    let config = Config::from_slapd_conf(&made.configuration).expect("the generated configuration");
    let section = config.databases.iter().find(|d| d.kind.mdb().is_some());
    let settings = config.engine_settings(section.expect("a database")).expect("its settings");
    let (clock, random) = (SystemClock, SystemRandom);
    let context = LoadContext { schema: &config.schema, settings: &settings, clock: &clock, random: &random };
    let input = BufReader::new(File::open(&made.ldif).expect("the generated LDIF"));
    let options = LoadOptions::default();
    load::load_directory(&made.data, &LmdbOptions::default(), input, context, &options, &mut Quiet)
        .expect("the load");
}

struct Quiet;

impl LoadObserver for Quiet {
    fn progress(&mut self, _: &Progress) {}

    fn record_failed(&mut self, error: &RecordError) {
        panic!("{error}");
    }
}

/// The password of the account that asks under rules.
const PASSWORD: &str = "password";
/// The configuration with [`RULES`].
const RULED: &str = "slapd-ruled.conf";

/// Rules as most directories have them.
const RULES: &str = "
access to attrs=userPassword by self write by anonymous auth by * none
access to * by self write by group.exact=\"cn=admins,dc=com\" write by users read by * none
";

/// Opens what [`prepare`] loaded.
///
/// # Panics
/// When it cannot be opened.
pub(crate) fn open(folder: &Path) -> LocalServer {
    open_under(&folder.join("slapd.conf"))
}

/// The same under rules that ask about the entry, the requester and a group.
///
/// # Panics
/// When it cannot be opened.
#[allow(dead_code, reason = "the test of allocations has no use for it")]
pub(crate) fn open_ruled(folder: &Path) -> LocalServer {
    open_under(&folder.join(RULED))
}

/// Overlays whose settings concern none of the requests, each on a database of its own.
#[allow(dead_code, reason = "the test of allocations has no use for it")]
pub(crate) const OVERLAYS: &[(&str, &str)] = &[
    ("accesslog", ACCESS_LOG),
    ("auditlog", "overlay auditlog\nauditlog @FOLDER@/audit.ldif\n"),
    ("collect", "overlay collect\ncollectinfo cn=nowhere,dc=com l\n"),
    ("constraint", "overlay constraint\nconstraint_attribute employeeNumber regex ^[0-9]+$\n"),
    ("dynlist", "overlay dynlist\ndynlist-attrset groupOfURLs memberURL member+memberOf@groupOfNames*\n"),
    ("memberof", "overlay memberof\n"),
    (
        "nestgroup",
        "overlay nestgroup\nnestgroup-base ou=groups,dc=com\nnestgroup-flags member-filter memberof-filter\n",
    ),
    ("ppolicy", "overlay ppolicy\nppolicy_default cn=none,dc=com\n"),
    ("refint", "overlay refint\nrefint_attributes manager\n"),
    ("syncprov", "overlay syncprov\n"),
    ("unique", "overlay unique\nunique_uri ldap:///?employeeNumber?sub\n"),
    ("valsort", "overlay valsort\nvalsort-attr ou cn=nowhere,dc=com alpha-ascend\n"),
];

const ACCESS_LOG: &str = "overlay accesslog\nlogdb cn=log\nlogops bind\n";
/// The database of the access log, which stands before the one that it is of.
const LOG_DATABASE: &str = "database mdb\nsuffix cn=log\nrootdn cn=log\ndirectory @FOLDER@/log\n\n";

/// How long nothing is computed, and how often that is seen, before the writer is taken to rest.
const REST: Duration = Duration::from_millis(200);
const RESTS: u32 = 3;

/// What stands for ten overlays at once: all of [`OVERLAYS`] but the two that write files or logs.
#[allow(dead_code, reason = "the test of allocations has no use for it")]
pub(crate) const TEN: &str = "ten";

/// Opens a copy of what [`prepare`] loaded, in a folder of its own, behind the overlay with this name, or behind [`TEN`].
///
/// # Panics
/// When it cannot be opened.
#[allow(dead_code, reason = "the test of allocations has no use for it")]
pub(crate) fn open_behind(folder: &Path, overlay: &str) -> LocalServer {
    let own = folder.join(overlay);
    let (data, log) = (own.join("data"), own.join("log"));
    for made in [&data, &log] {
        std::fs::create_dir_all(made).expect("a folder");
    }
    let text = std::fs::read_to_string(folder.join("slapd.conf")).expect("the generated configuration");
    let directory = text.lines().find_map(|line| line.strip_prefix("directory")).expect("a directory").trim();
    for file in std::fs::read_dir(directory).expect("the loaded directory") {
        let file = file.expect("a file").path();
        if file.is_file() {
            std::fs::copy(&file, data.join(file.file_name().unwrap_or_default())).expect("a copy");
        }
    }
    let chosen = OVERLAYS.iter().filter(|(name, _)| match overlay {
        TEN => !matches!(*name, "accesslog" | "auditlog"),
        one => *name == one,
    });
    let lines: String = chosen.map(|(_, lines)| *lines).collect();
    let dyngroup = folder.join("schema/dyngroup.schema");
    std::fs::write(&dyngroup, larix_schema::bundled("dyngroup").expect("a bundled schema"))
        .expect("a schema file");
    let mut before = format!("\ninclude {}\n", dyngroup.display());
    if lines.contains(ACCESS_LOG) {
        before += LOG_DATABASE;
    }
    let text = text.replace(directory, &data.display().to_string());
    let text = text.replacen("\ndatabase ", &format!("{before}database "), 1) + "\n" + &lines;
    let configuration = own.join("slapd.conf");
    std::fs::write(&configuration, text.replace("@FOLDER@", &own.display().to_string()))
        .expect("a configuration");
    let server = open_under(&configuration);
    wait_for_rest();
    server
}

/// Waits until no thread computes: indexes and back links that an overlay wants, and dictionaries, are made behind the opening, and
/// would be counted.
#[allow(clippy::disallowed_methods, reason = "the writer tells nobody in this process that it rests")]
pub(crate) fn wait_for_rest() {
    // proc_pid_stat(5): utime and stime, in hundredths of a second. rustix's clocks do not run under valgrind.
    let computed = || {
        let text = std::fs::read_to_string("/proc/self/stat").expect("the process");
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let [user, system] =
            [14, 15].map(|field| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok()));
        user.expect("utime") + system.expect("stime")
    };
    let (mut resting, mut before) = (0, computed());
    while resting < RESTS {
        std::thread::sleep(REST);
        let now = computed();
        resting = if now - before <= 1 { resting + 1 } else { 0 };
        before = now;
    }
}

fn open_under(configuration: &Path) -> LocalServer {
    let config = Config::from_slapd_conf(configuration).expect("the generated configuration");
    LocalServer::open(config).expect("the generated database")
}

/// Binds a connection as one of the accounts.
///
/// # Panics
/// When that is refused.
#[allow(dead_code, reason = "the test of allocations has no use for it")]
pub(crate) fn bind_as_user(connection: &mut LocalConnection, folder: &Path) {
    let (mut request, mut out) = (Vec::new(), Vec::new());
    let dn = format!("uid=user.1,{PEOPLE}");
    let password = std::fs::read_to_string(folder.join(PASSWORD)).expect("a password");
    client::simple_bind(&mut request, MessageId(1), &dn, password.as_bytes(), &[]);
    connection.request(&request, &mut out);
    check(What::Bind, &out);
}

/// Binds a connection as the root DN.
///
/// # Panics
/// When that is refused.
pub(crate) fn bind_as_root(connection: &mut LocalConnection) {
    let mut out = Vec::new();
    connection.request(&request(What::Bind, 1), &mut out);
    check(What::Bind, &out);
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A subtree search by two terms, one of them an address; the whole entry comes back.
    Search,
    /// The same, three attributes asked for.
    SearchSelected,
    /// A base search of an account; the whole entry comes back.
    Read,
    Compare,
    /// As the root DN, whose password is clear.
    Bind,
    /// Replaces a value that is not indexed.
    Modify,
    /// A whole account.
    Add,
}

impl What {
    /// What is measured under rules, too, as a user.
    #[allow(dead_code, reason = "the test of allocations has no use for it")]
    pub(crate) const RULED: [Self; 3] = [Self::Search, Self::Read, Self::Compare];

    pub(crate) const ALL: [Self; 7] =
        [Self::Search, Self::SearchSelected, Self::Read, Self::Compare, Self::Bind, Self::Modify, Self::Add];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::SearchSelected => "search-selected",
            Self::Read => "read",
            Self::Compare => "compare",
            Self::Bind => "bind",
            Self::Modify => "modify",
            Self::Add => "add",
        }
    }
}

/// Sends `warm_up` requests of a kind, which fill caches, and gives back those that count and room for their answers.
///
/// # Panics
/// When the answer is not the kind's.
pub(crate) fn warm(
    connection: &mut LocalConnection,
    what: What,
    warm_up: u64,
    operations: u64,
) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut out = Vec::with_capacity(64 * 1024);
    for number in 0..warm_up {
        out.clear();
        connection.request(&request(what, number), &mut out);
    }
    check(what, &out);
    ((warm_up..warm_up + operations).map(|number| request(what, number)).collect(), out)
}

/// The bytes of one request; `number` says which account it is about.
///
/// # Panics
/// Never: the templates are filters.
pub(crate) fn request(what: What, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let id = MessageId(1 + u32::try_from(number).unwrap_or(0));
    let account = 1 + number * 7 % ENTRIES;
    let dn = format!("uid=user.{account},{PEOPLE}");
    let mut search = |base: &str, scope, filter: &str, attributes: &[&str]| {
        let filter = FilterBuf::parse(filter).expect("a filter");
        let request = client::Search { attributes, ..client::Search::new(base, scope, filter.as_filter()) };
        client::search(&mut out, id, &request, &[]);
    };
    let attribute = if number.is_multiple_of(2) { "zimbraMailDeliveryAddress" } else { "zimbraMailAlias" };
    let filter =
        format!("(&({attribute}=user.{account}@zre-ldap001.eng.vmware.com)(zimbraMailStatus=enabled))");
    match what {
        What::Search => search("dc=com", Scope::Subtree, &filter, &[]),
        What::SearchSelected => search("dc=com", Scope::Subtree, &filter, &["cn", "mail", "zimbraId"]),
        What::Read => search(&dn, Scope::Base, "(objectClass=*)", &[]),
        What::Compare => client::compare(&mut out, id, &dn, "zimbraMailStatus", b"enabled", &[]),
        What::Bind => {
            client::simple_bind(&mut out, id, &Kind::Mail.root_dn(), ROOT_PASSWORD.as_bytes(), &[]);
        }
        What::Modify => {
            let value = format!("20200101{:06}Z", number % 240_000 / 10 % 235_959);
            let values = [value.as_str()];
            let attribute = ClientAttribute { description: "description", values: &values };
            let changes = [ClientChange { operation: ModifyOperation::Replace, attribute }];
            client::modify(&mut out, id, &dn, &changes, &[]);
        }
        What::Add => add(id, ENTRIES + 1 + number, &mut out),
    }
    out
}

/// The generator's own account, under another number.
fn add(id: MessageId, number: u64, out: &mut Vec<u8>) {
    let mut ldif = Vec::new();
    Kind::Mail.write_ldif(1, 1, &mut ldif).expect("an account");
    let text = String::from_utf8(ldif).expect("UTF-8");
    let account = text.split("\n\n").find(|entry| entry.starts_with("dn: uid=")).expect("an account");
    let account = account.replace("user.1@", &format!("user.{number}@"));
    let mut attributes: Vec<(&str, Vec<String>)> = Vec::new();
    let mut lines = account.lines().filter_map(|line| line.split_once(": "));
    let _ = lines.next();
    for (name, value) in lines {
        let value = if value == "user.1" { format!("user.{number}") } else { value.to_owned() };
        match attributes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => attributes.push((name, vec![value])),
        }
    }
    let list: Vec<ClientAttribute<'_, String>> =
        attributes.iter().map(|(description, values)| ClientAttribute { description, values }).collect();
    client::add(out, id, &format!("uid=user.{number},{PEOPLE}"), &list, &[]);
}

/// Whether the answer is the one that the request has to have.
///
/// # Panics
/// When it is another: a benchmark of refusals would look good.
pub(crate) fn check(what: What, answer: &[u8]) {
    let expected = if what == What::Compare { 6 } else { 0 };
    let mut entries = 0;
    let mut code = None;
    for message in larix_proto::frames(answer, usize::MAX >> 1) {
        match larix_proto::Response::decode_message(message).expect("a response").response {
            larix_proto::Response::Entry(_) => entries += 1,
            response => code = response.result().map(|(_, result)| result.code.0),
        }
    }
    let wanted = usize::from(matches!(what, What::Search | What::SearchSelected | What::Read));
    assert_eq!((code, entries), (Some(expected), wanted), "{what:?}");
}

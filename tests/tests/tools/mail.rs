//! The mail directory, which is the main job: it loads, both of a mail server's lookups are answered right, by the
//! wire and by Postfix's own client, and a dump loads again to the byte.
//!
//! `LARIX_MAIL_ENTRIES` says how many accounts (default 2,000; 200,000 is the long run).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use larix_load::generate::{self, Generated, Kind as Directory, Random};
use larix_testkit::{Kind, Server, packages, site};
use larix_tests::client::Client;
use larix_tests::scenario::Step;

const SEED: u64 = 1;
const DOMAIN: &str = "zre-ldap001.eng.vmware.com";
const PEOPLE: &str = "ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com";
/// Accounts that the wire, and Postfix, are asked for.
const ASKED: u64 = 200;
const ASKED_BY_POSTFIX: u64 = 5;
const POSTMAP: &str = "/usr/sbin/postmap";

fn entries() -> u64 {
    std::env::var("LARIX_MAIL_ENTRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

/// The two filters that the mail server looks its users up with; `%s` is the address.
const FILTERS: [&str; 2] = [
    "(&(zimbraMailDeliveryAddress=%s)(zimbraMailStatus=enabled))",
    "(&(zimbraMailAlias=%s)(zimbraMailStatus=enabled))",
];

#[test]
fn the_mail_directory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let accounts = entries();
    let schema = site::schema_directory();
    let generated = generate::write_directory(Directory::Mail, accounts, SEED, folder.path(), &schema)
        .expect("the generated directory");
    let seconds = load(&generated.configuration, &generated.ldif);
    println!(
        "{accounts} accounts, {} bytes of LDIF: loaded in {seconds:.1} s, {} bytes on disk",
        generated.ldif_bytes,
        disk(&generated.data)
    );
    round_trip(folder.path(), &generated);
    let server = Server::start(Kind::Larix, &generated.configuration).unwrap_or_else(|e| panic!("{e}"));
    by_the_wire(&server, accounts, &generated);
    by_postfix(&server, accounts, folder.path(), &generated);
    assert!(server.stop(), "the server did not stop cleanly");
}

/// Loads and says how many seconds it took.
#[expect(clippy::disallowed_methods, reason = "the figure is for the reader, no outcome depends on it")]
fn load(configuration: &Path, ldif: &Path) -> f64 {
    let begin = Instant::now();
    let output = Kind::Larix.tool("add").arg("-f").arg(configuration).arg("-l").arg(ldif).output();
    let output = output.expect("the tool starts");
    assert!(output.status.success(), "larix add: {}", String::from_utf8_lossy(&output.stderr));
    begin.elapsed().as_secs_f64()
}

/// Bytes that the files of a folder take.
fn disk(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(folder).expect("the database's folder");
    files.filter_map(|file| file.ok()?.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

/// A dump, loaded and dumped again, is the same to the byte.
fn round_trip(folder: &Path, generated: &Generated) {
    let again = folder.join("again");
    fs::create_dir(&again).expect("a folder for the second database");
    let text = fs::read_to_string(&generated.configuration).expect("the configuration");
    let text = text.replace(
        &format!("directory {}", generated.data.display()),
        &format!("directory {}", again.display()),
    );
    let second = folder.join("again.conf");
    fs::write(&second, text).expect("the second configuration");
    let first_dump = dump(&generated.configuration, &folder.join("first.ldif"));
    load(&second, &first_dump);
    let second_dump = dump(&second, &folder.join("second.ldif"));
    let same = fs::read(&first_dump).expect("a dump") == fs::read(&second_dump).expect("a dump");
    assert!(same, "slapcat, slapadd, slapcat: the dumps differ");
    fs::remove_dir_all(&again).expect("the second database");
}

fn dump(configuration: &Path, file: &Path) -> PathBuf {
    let output = Kind::Larix.tool("cat").arg("-f").arg(configuration).arg("-l").arg(file).output();
    let output = output.expect("the tool starts");
    assert!(output.status.success(), "larix cat: {}", String::from_utf8_lossy(&output.stderr));
    file.to_owned()
}

/// Every asked account is found by both filters, alone and with its own values; one that does not exist is not.
fn by_the_wire(server: &Server, accounts: u64, generated: &Generated) {
    let transports = transports(generated);
    let mut client = Client::connect(server.address);
    let mut random = Random::new(SEED + 1);
    let mut ask = |number: u64, filter: &str| {
        let filter = filter.replace("%s", &format!("user.{number}@{DOMAIN}"));
        let request = format!("search \"\" sub {filter} uid zimbraMailTransport\n");
        client.run(&Step { request, ..Step::default() })
    };
    for _ in 0..ASKED.min(accounts) {
        let number = 1 + random.below(accounts);
        let mut expected = format!("-> uid=user.{number},{PEOPLE}\n   uid: user.{number}\n");
        let transport = &transports[usize::try_from(number - 1).expect("a number of accounts")];
        let _ = write!(expected, "   zimbraMailTransport: {transport}\n=> 0\n");
        for filter in FILTERS {
            assert_eq!(ask(number, filter), expected, "{filter} for {number}");
        }
    }
    for filter in FILTERS {
        assert_eq!(ask(accounts + 1, filter), "=> 0\n", "{filter} for nobody");
    }
}

/// The mail transport of each account, in order of their numbers, from the LDIF itself.
fn transports(generated: &Generated) -> Vec<String> {
    let text = fs::read_to_string(&generated.ldif).expect("the LDIF");
    let lines = text.lines().filter_map(|line| line.strip_prefix("zimbraMailTransport: "));
    lines.map(str::to_owned).collect()
}

/// Postfix's LDAP client, as `postmap -q` runs it.
fn by_postfix(server: &Server, accounts: u64, folder: &Path, generated: &Generated) {
    if packages::POSTFIX.is_lacking() {
        return;
    }
    let settings = folder.join("postfix");
    fs::create_dir(&settings).expect("a folder for Postfix");
    fs::write(settings.join("main.cf"), "compatibility_level = 3.6\n").expect("main.cf");
    let transports = transports(generated);
    for (at, filter) in FILTERS.into_iter().enumerate() {
        let table = folder.join(format!("table{at}.cf"));
        let text = format!(
            "server_host = ldap://{}\nversion = 3\nbind = no\nsearch_base = dc=com\nscope = sub\n\
             query_filter = {filter}\nresult_attribute = zimbraMailTransport\n",
            server.address
        );
        fs::write(&table, text).expect("the table");
        let ask = |number: u64| {
            let output = Command::new(POSTMAP)
                .arg("-c")
                .arg(&settings)
                .args(["-q", &format!("user.{number}@{DOMAIN}")])
                .arg(format!("ldap:{}", table.display()))
                .output()
                .expect("postmap starts");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(errors.is_empty(), "postmap: {errors}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        for number in (1..=accounts).step_by(usize::try_from(accounts / ASKED_BY_POSTFIX).unwrap_or(1).max(1))
        {
            let transport = &transports[usize::try_from(number - 1).expect("a number of accounts")];
            assert_eq!(ask(number), format!("{transport}\n"), "{filter} for {number}");
        }
        assert_eq!(ask(accounts + 1), "", "{filter} for nobody");
    }
    println!("postmap found its users by both filters");
}

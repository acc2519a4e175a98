//! The configuration of a real slapd with every overlay that there is here: `slapcat -n0` of it loads, runs, comes out
//! the same, and goes back; and slapcat's filters find the same in it, as tools that configure servers ask.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use larix_testkit::site::schema_directory;
use larix_testkit::{Kind, Server};
use larix_tests::client::Client;
use larix_tests::scenario::Step;

/// Overlays and their directives.
const OVERLAYS: [(&str, &str); 7] = [
    (
        "ppolicy",
        "ppolicy_default \"cn=default,ou=policies,dc=example,dc=com\"\nppolicy_hash_cleartext\nppolicy_use_lockout\n\
         ppolicy_send_netscape_controls\n",
    ),
    (
        "accesslog",
        "logdb cn=log\nlogops writes bind\nlogold (objectclass=person)\nlogoldattr sn cn\nlogsuccess TRUE\n\
         logpurge 07+00:00 01+00:00\nlogbase search \"ou=people,dc=example,dc=com\"\n",
    ),
    ("syncprov", "syncprov-checkpoint 100 10\nsyncprov-sessionlog 500\n"),
    ("sssvlv", "sssvlv-max 5\nsssvlv-maxkeys 3\nsssvlv-maxperconn 2\n"),
    ("deref", ""),
    (
        "memberof",
        "memberof-dn cn=keeper,dc=example,dc=com\nmemberof-dangling error\nmemberof-dangling-error noSuchObject\n\
         memberof-refint TRUE\nmemberof-group-oc groupOfUniqueNames\nmemberof-member-ad uniqueMember\n\
         memberof-memberof-ad memberOf\n",
    ),
    ("refint", "refint_attributes member owner\nrefint_nothing cn=nobody,dc=example,dc=com\n"),
];

fn configuration(folder: &Path) -> String {
    let schema = |name: &str| format!("include {}/{name}.schema\n", schema_directory().display());
    let mut text: String = ["core", "cosine", "inetorgperson"].map(schema).concat();
    let modules = std::env::var("SLAPD_MODULES").unwrap_or_else(|_| "/usr/lib/ldap".to_owned());
    if !modules.is_empty() {
        text += &format!("modulepath {modules}\nmoduleload back_mdb\nmoduleload back_monitor\n");
        text.extend(OVERLAYS.map(|(name, _)| format!("moduleload {name}\n")));
    }
    let folder = folder.display();
    text += &format!(
        "serverID 1\npidfile {folder}/slapd.pid\nloglevel stats sync\nsizelimit size.soft=500 size.hard=1000\ntimelimit 60\n\
         idletimeout 600\nallow bind_v2\npassword-hash {{SSHA}}\nsecurity simple_bind=0\n\
         limits dn.exact=\"cn=r,dc=example,dc=com\" size=unlimited\naccess to dn.base=\"\" by * read\n\
         database config\nrootpw secret\n\
         database monitor\naccess to * by dn.exact=\"cn=admin,dc=example,dc=com\" read by * none\n\
         database mdb\nsuffix cn=log\nrootdn cn=admin,dc=example,dc=com\ndirectory {folder}/log\nindex reqStart,reqEnd eq\n\
         index objectClass,entryCSN eq\noverlay syncprov\nsyncprov-nopresent TRUE\nsyncprov-reloadhint TRUE\n\
         database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\ndirectory {folder}/data\n\
         maxsize 1073741824\ncheckpoint 1024 30\nindex objectClass eq\nindex uid,mail eq,sub\n\
         limits dn.exact=\"cn=r,dc=example,dc=com\" size.soft=unlimited time.soft=600\nlimits users size.soft=100\n\
         access to attrs=userPassword by self write by anonymous auth by * none\n\
         access to * by set=\"this/manager & user\" write by users read\nlastmod on\nlastbind on\n"
    );
    text.extend(OVERLAYS.map(|(name, directives)| format!("overlay {name}\n{directives}")));
    text
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What `slapcat -n0` shows of a directory, or of a part of it. The schema that a server has by itself is shown with and
/// without places.
fn dump(kind: Kind, directory: &Path, url: Option<&str>) -> String {
    let mut cat = kind.tool("cat");
    cat.args(["-n0", "-o", "ldif-wrap=no", "-F"]).arg(directory);
    let text = run(cat.args(url.map(|url| ["-H", url]).iter().flatten()));
    let unplaced = |line: &str| match line.split_once(": {") {
        Some((name, rest)) if DEFINITIONS.contains(&name) => {
            format!("{name}: {}\n", rest.split_once('}').unwrap().1)
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(unplaced).collect()
}

const DEFINITIONS: [&str; 4] =
    ["olcObjectIdentifier", "olcLdapSyntaxes", "olcAttributeTypes", "olcObjectClasses"];

#[test]
fn a_configuration_of_slapd_comes_and_goes_unchanged() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    ["log", "data", "theirs", "ours"].iter().for_each(|name| std::fs::create_dir(path(name)).unwrap());
    std::fs::write(path("slapd.conf"), configuration(folder.path())).unwrap();
    let (theirs, ours) = (path("theirs"), path("ours"));
    // It writes the directory, and then complains that the databases are not there yet.
    let converted =
        Kind::Slapd.tool("test").arg("-f").arg(path("slapd.conf")).arg("-F").arg(&theirs).output();
    assert!(theirs.join("cn=config.ldif").exists(), "{converted:?}");
    let dumped = run(Kind::Slapd.tool("cat").args(["-n0", "-F"]).arg(&theirs));
    std::fs::write(path("config.ldif"), &dumped).unwrap();
    run(Kind::Larix.tool("add").args(["-n0", "-F"]).arg(&ours).arg("-l").arg(path("config.ldif")));
    let expected = dump(Kind::Slapd, &theirs, None);
    assert_same(&dump(Kind::Larix, &ours, None), &expected);
    assert_same(&dump(Kind::Slapd, &ours, None), &expected);
    // Their directory as it is, too.
    assert_same(&dump(Kind::Larix, &theirs, None), &expected);
    finds_the_same(&theirs);

    let server = Server::start(Kind::Larix, &ours).unwrap_or_else(|error| panic!("{error}"));
    let mut administrator = Client::connect(server.address);
    let mut ask = |request: &str| administrator.run(&Step { request: request.to_owned(), ..Step::default() });
    assert_eq!(ask("as cn=config secret\n"), "=> 0\n");
    assert_eq!(ask("modify \"cn=config\"\nreplace olcIdleTimeout: 7\n"), "=> 0\n");
    assert_eq!(ask("modify \"cn=config\"\nreplace olcIdleTimeout: 600\n"), "=> 0\n");
    drop(server);
    let stamped = ["contextCSN: ", "entryCSN: ", "modifiersName: ", "modifyTimestamp: "];
    let unstamped = |text: String| -> String {
        // What was replaced comes last in its entry.
        let mut lines: Vec<&str> =
            text.lines().filter(|line| !stamped.iter().any(|name| line.starts_with(name))).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    assert_same(&unstamped(dump(Kind::Slapd, &ours, None)), &unstamped(expected));
    run(Kind::Slapd.tool("test").arg("-u").arg("-F").arg(&ours));
}

/// Filters as Puppet's types and others give them, with bases that have braces in them.
fn finds_the_same(directory: &Path) {
    let filters = [
        "(olcSuffix=dc=example,dc=com)",
        "(olcAccess=*)",
        "(olcOverlay=*)",
        "(olcDatabase=monitor)",
        "(olcDatabase={0}config)",
        "(objectClass=olcModuleList)",
        "(|(olcDatabase=monitor)(olcDatabase={0}config)(&(objectClass=olcDatabaseConfig)(|(objectClass=olcHdbConfig)(objectClass=olcMdbConfig))))",
        "(cn={2}inetorgperson)",
        "(cn=inetorgperson)",
        "(&(objectClass=olcDatabaseConfig)(!(olcSuffix=*)))",
        "(olcRootPW=*)",
        "(olcDbIndex=uid*)",
        "(nothing=*)",
    ];
    for filter in filters {
        for base in ["", "cn=config", "olcDatabase={3}mdb,cn=config"] {
            let url = format!("ldap:///{base}???{filter}");
            let [theirs, ours] =
                [Kind::Slapd, Kind::Larix].map(|kind| names(&dump(kind, directory, Some(&url))));
            assert_eq!(ours, theirs, "{url}");
        }
    }
}

fn names(dump: &str) -> BTreeSet<String> {
    dump.lines().filter(|line| line.starts_with("dn: ")).map(str::to_owned).collect()
}

/// Names the first line that differs: the whole is long.
fn assert_same(found: &str, expected: &str) {
    let differs = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert_eq!(differs, None);
    assert_eq!(found.lines().count(), expected.lines().count());
}

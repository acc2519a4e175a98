//! Configuration text -> model or exact error.

use super::{Config, DatabaseKind};

/// Writes files into a fresh directory (`$D` in their text stands for it), reads the first one.
fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Config, String>) {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().display().to_string();
    for (file, text) in files {
        std::fs::write(directory.path().join(file), text.replace("$D", &name)).unwrap();
    }
    let read = Config::from_slapd_conf(&directory.path().join(files[0].0));
    (directory, read.map_err(|error| error.to_string().replace(&name, "$D")))
}

const COMMON: &str = r#"# comment
pidfile  $D/slapd.pid
argsfile $D/slapd.args
sizelimit size.soft=10 size.hard=unlimited
loglevel stats sync
database mdb
suffix "dc=example,dc=com"
rootdn "cn=Manager,dc=example,dc=com"
rootpw secret
directory $D/db
index objectClass eq
index cn,sn,uid pres,eq,sub
access to attrs=userPassword
    by self write
    by anonymous auth
access to * by * read
database monitor
"#;

#[test]
fn a_common_file() {
    let (_keep, config) = read(&[("slapd.conf", COMMON)]);
    let config = config.unwrap();
    let kinds: Vec<&str> = config.databases.iter().map(|database| database.kind.name()).collect();
    assert_eq!(kinds, ["config", "mdb", "monitor"]);
    let mdb = &config.databases[1];
    assert_eq!(mdb.suffixes[0].text, "dc=example,dc=com");
    assert_eq!(mdb.root_password.as_deref(), Some(&b"secret"[..]));
    assert_eq!(mdb.access.len(), 2);
    let DatabaseKind::Mdb(settings) = &mdb.kind else { panic!("not mdb") };
    assert_eq!(settings.index.len(), 2);
    assert_eq!(config.global.log_level.0, 0x4100);
}

#[test]
fn errors_point_at_the_word() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("slapd.conf", "database mdb\nsufix dc=x\n")],
            "$D/slapd.conf:2:1: unknown directive `sufix`\n    | sufix dc=x\n    | ^^^^^\n    = help: did you mean `suffix`?",
        ),
        (
            &[("slapd.conf", "database mdb\nindex cn\n  eq,foo\n")],
            "$D/slapd.conf:3:3: no index kind `foo`\n    |   eq,foo\n    |   ^^^^^^\n    = help: some of pres, eq, sub, approx, subinitial, subany, subfinal, nolang, nosubtypes",
        ),
        (
            &[("slapd.conf", "include $D/a.conf\n"), ("a.conf", "\nidletimeout x\n")],
            "$D/a.conf:2:13: `x` is not a number\n    | idletimeout x\n    |             ^\n    = included from $D/slapd.conf:1",
        ),
        (
            &[("slapd.conf", "include $D/none.conf\n")],
            "$D/slapd.conf:1:9: there is no file `$D/none.conf`\n    | include $D/none.conf\n    |         ^^^^^^^^^^^^\n    = help: a relative name starts at the working directory",
        ),
    ];
    for (files, expected) in cases {
        let (_keep, read) = read(files);
        let text = read.expect_err("an error");
        // The caret line is as wide as the real path: compare it apart.
        let narrow =
            |text: &str| text.lines().filter(|line| !line.contains('^')).collect::<Vec<_>>().join("\n");
        assert_eq!(narrow(&text), narrow(expected));
    }
}

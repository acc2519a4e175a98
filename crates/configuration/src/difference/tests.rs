//! What has to change, as it is shown to the administrator.

use larix_engine::time::{ManualClock, SeededRandom, Timestamp};

use super::super::entry::ConfigEntry;
use super::super::model::{Config, Source};
use super::super::slapd_d::Stamp;

const BASE: &str = "schema core\ndatabase mdb\nsuffix dc=a\ndirectory $D/a\n";

fn config(directory: &std::path::Path, text: &str) -> Config {
    let place = directory.display().to_string();
    ["a", "b", "c"].iter().for_each(|name| std::fs::create_dir_all(directory.join(name)).unwrap());
    let path = directory.join("slapd.conf");
    std::fs::write(&path, text.replace("$D", &place)).unwrap();
    Config::from_slapd_conf(&path).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn check(name: &str, current: &str, wanted: &str, expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (current, wanted) = (config(directory.path(), current), config(directory.path(), wanted));
    let steps = current.difference(&wanted).to_string();
    let steps = steps.replace(&directory.path().display().to_string(), "$D");
    assert_eq!(steps, expected, "{name}");
    assert!(wanted.difference(&wanted).is_empty(), "{name}");
    for (from, to) in [(&current, &wanted), (&wanted, &current)] {
        let outcome = applied(from, to).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(outcome.difference(to).to_string(), "", "{name}");
    }
}

/// One configuration after all that makes it another: as the tools carry it out on files.
fn applied(from: &Config, to: &Config) -> Result<Config, String> {
    let clock = ManualClock::new(Timestamp::from_seconds(1_790_000_000));
    let random = SeededRandom::new(7);
    let difference = from.difference(to);
    let changed =
        from.changed_together(&difference.offline_changes(), &Stamp { clock: &clock, random: &random });
    let changed = changed.map_err(|(number, refusal)| {
        format!(
            "step {number}: {refusal}\n{}",
            difference.steps.get(number).map(ToString::to_string).unwrap_or_default()
        )
    })?;
    Ok(changed.config)
}

#[test]
fn what_has_to_change() {
    let with = |more: &str| format!("{BASE}{more}");
    let balanced = |more: &str| {
        format!(
            "backend lload\nbindconf binddn=cn=b credentials=x bindmethod=simple\nlisten ldap://:3890\n{more}{BASE}"
        )
    };
    check(
        "a balancer",
        &balanced("tier roundrobin\nbackend-server uri=ldap://one\nbackend-server uri=ldap://two\n"),
        &balanced(
            "iotimeout 5\ntier roundrobin\nbackend-server uri=ldap://one numconns=3\n\
             tier bestof\nbackend-server uri=ldap://four\n",
        ),
        "  olcBackend={0}lload,cn=config\n  - olcBkLloadIOTimeout: 10000\n  + olcBkLloadIOTimeout: 5\n- cn={1}server 2,cn={0}tier 1,\
         olcBackend={0}lload,cn=config\n  cn={0}server 1,cn={0}tier 1,olcBackend={0}lload,cn=config\n  - olcBkLloadNumconns: 10\n  \
         + olcBkLloadNumconns: 3\n+ cn={1}tier 2,olcBackend={0}lload,cn=config\n  \
         + objectClass: olcBkLloadTierConfig\n  + cn: {1}tier 2\n  \
         + olcBkLloadTierType: bestof\n+ cn={0}server 1,cn={1}tier 2,olcBackend={0}lload,cn=config\n  \
         + objectClass: olcBkLloadBackendConfig\n  + cn: {0}server 1\n  + olcBkLloadBackendUri: ldap://four\n  \
         + olcBkLloadNumconns: 10\n  + olcBkLloadBindconns: 10\n  + olcBkLloadRetry: 5000\n  + olcBkLloadMaxPendingOps: 0\n  \
         + olcBkLloadMaxPendingConns: 0\n",
    );
    check("nothing", BASE, &with("# a comment\nmaxderefdepth 15\n"), "");
    check(
        "single values",
        &with("sizelimit 5\nrootdn cn=a,dc=a\nrootpw x\n"),
        &with("sizelimit 6\nrootdn cn=a,dc=a\nrootpw y\nreadonly on\n"),
        "  olcDatabase={1}mdb,cn=config\n  - olcSizeLimit: 5\n  - olcRootPW: (not shown)\n  + olcReadOnly: TRUE\n  \
         + olcSizeLimit: 6\n  + olcRootPW: (not shown)\n",
    );
    let syncrepl = "syncrepl rid=1 provider=ldap://h searchbase=dc=a bindmethod=simple binddn=cn=r";
    check(
        "a password among other words",
        &with("rootdn cn=a,dc=a\n"),
        &with(&format!("rootdn cn=a,dc=a\n{syncrepl} credentials=topsecret\n")),
        "  olcDatabase={1}mdb,cn=config\n  + olcSyncrepl: {0}rid=1 provider=ldap://h searchbase=dc=a bindmethod=simple \
         binddn=cn=r credentials=*********\n",
    );
    check(
        "some of several values",
        &with("index cn eq\nindex sn eq\n"),
        &with("index cn eq\nindex mail eq\nindex uid eq\n"),
        "  olcDatabase={1}mdb,cn=config\n  - olcDbIndex: sn eq\n  + olcDbIndex: mail eq\n  + olcDbIndex: uid eq\n",
    );
    check(
        "one ordered value more",
        &with("access to * by self write\n"),
        &with("access to * by self write\naccess to * by * read\n"),
        "  olcDatabase={1}mdb,cn=config\n  + olcAccess: {1}to * by * read\n",
    );
    check(
        "another order",
        &with("access to dn.base=dc=a by * read\naccess to * by * read\n"),
        &with("access to * by * read\naccess to dn.base=dc=a by * read\n"),
        "  olcDatabase={1}mdb,cn=config\n  - olcAccess: to dn.base=\"dc=a\" by * read\n  - olcAccess: to * by * read\n  \
         + olcAccess: {0}to * by * read\n  + olcAccess: {1}to dn.base=\"dc=a\" by * read\n",
    );
    let (b, c) = ("database mdb\nsuffix dc=b\ndirectory $D/b\n", "database null\nsuffix dc=c\n");
    check(
        "databases go, come and move",
        &with(&format!("overlay ppolicy\n{b}")),
        &format!("schema core\n{c}{b}"),
        "- olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config\n- olcDatabase={1}mdb,cn=config\n\
         + olcDatabase={1}null,cn=config\n  + objectClass: olcDatabaseConfig\n  + objectClass: olcNullConfig\n  \
         + olcDatabase: {1}null\n  + olcSuffix: dc=c\n",
    );
    check(
        "a move",
        &with(&format!("{b}{c}")),
        &with(&format!("{c}{b}overlay ppolicy\n")),
        "~ olcDatabase={3}null,cn=config becomes olcDatabase={2}null\n\
         + olcOverlay={0}ppolicy,olcDatabase={3}mdb,cn=config\n  + objectClass: olcOverlayConfig\n  \
         + objectClass: olcPPolicyConfig\n  + olcOverlay: {0}ppolicy\n",
    );
    check(
        "the server and all databases",
        &format!("loglevel stats\nsizelimit 5\n{BASE}"),
        &format!("loglevel stats sync\nidletimeout 9\n{BASE}"),
        "  cn=config\n  + olcLogLevel: sync\n  + olcIdleTimeout: 9\n  \
         olcDatabase={-1}frontend,cn=config\n  - olcSizeLimit: 5\n",
    );
    check(
        "definitions",
        BASE,
        &BASE.replace("database", "attributetype ( 1.2.3 NAME 'x' SUP name )\ndatabase"),
        "  cn=config\n  + olcAttributeTypes: {0}( 1.2.3 NAME 'x' SUP name )\n",
    );
}

/// A slapd.d may have several lists of modules, and a file has one.
#[test]
fn modules_stay_in_their_lists() {
    let directory = tempfile::tempdir().unwrap();
    let with = |modules: &[&str]| {
        let lines: String = modules.iter().map(|module| format!("moduleload {module}\n")).collect();
        config(directory.path(), &format!("modulepath /usr/lib/ldap\n{lines}{BASE}"))
    };
    let list = |number: usize, modules: &[&str]| {
        let mut entry = ConfigEntry::new(format!("cn=module{{{number}}},cn=config"), &["olcModuleList"]);
        entry.text("cn", &format!("module{{{number}}}"));
        entry.text("olcModulePath", "/usr/lib/ldap");
        let numbered = modules.iter().enumerate().map(|(place, module)| format!("{{{place}}}{module}"));
        entry.add("olcModuleLoad", numbered.map(String::into_bytes).collect::<Vec<_>>());
        entry
    };
    let others = with(&[]).entries().into_iter().filter(|entry| !entry.dn.starts_with("cn=module"));
    let all = others.chain([list(0, &["back_mdb", "refint"]), list(1, &["memberof.la"])]).collect();
    let current = Config::from_entries(all, Source::QuickStart).unwrap_or_else(|error| panic!("{error}"));
    for (modules, expected) in [
        (&["back_mdb", "refint", "memberof.la"][..], ""),
        (
            &["back_mdb", "refint", "memberof.la", "unique"],
            "  cn=module{1},cn=config\n  + olcModuleLoad: {1}unique\n",
        ),
        (
            &["back_mdb", "memberof.la"],
            "  cn=module{0},cn=config\n  - olcModuleLoad: back_mdb\n  - olcModuleLoad: refint\n  \
             + olcModuleLoad: {0}back_mdb\n",
        ),
        (&["back_mdb", "refint"], "- cn=module{1},cn=config\n"),
    ] {
        let wanted = with(modules);
        assert_eq!(current.difference(&wanted).to_string(), expected, "{modules:?}");
        let outcome = applied(&current, &wanted).unwrap_or_else(|refusal| panic!("{modules:?}: {refusal}"));
        assert_eq!(outcome.difference(&wanted).to_string(), "", "{modules:?}");
    }
}

/// OpenLDAP writes an entry below each overlay chain, with what holds anyway or with nothing.
#[test]
fn servers_that_say_what_holds_anyway() {
    let directory = tempfile::tempdir().unwrap();
    let file = || config(directory.path(), &format!("{BASE}overlay chain\n"));
    let with = |attributes: &[(&str, &str)]| {
        let dn = "olcDatabase={0}ldap,olcOverlay={0}chain,olcDatabase={1}mdb,cn=config";
        let mut entry = ConfigEntry::new(dn, &["olcLDAPConfig", "olcChainDatabase"]);
        entry.text("olcDatabase", "{0}ldap");
        attributes.iter().for_each(|(name, value)| entry.text(name, value));
        let all = file().entries().into_iter().chain([entry]).collect();
        Config::from_entries(all, Source::QuickStart).unwrap_or_else(|error| panic!("{error}"))
    };
    let shown = [("olcDbCancel", "abandon"), ("olcDbNoRefs", "FALSE")];
    for attributes in [&shown[..0], &shown[..]] {
        let current = with(attributes);
        assert_eq!(current.difference(&file()).to_string(), "", "{attributes:?}");
        assert_eq!(current.to_slapd_conf().without_form, Vec::<String>::new(), "{attributes:?}");
    }
    // slapd.conf has no line for it there.
    let current = with(&[("olcDbCancel", "exop"), ("olcDbNoRefs", "FALSE")]);
    assert_eq!(current.to_slapd_conf().without_form, ["olcDbCancel: exop"]);
    assert!(!current.difference(&file()).is_empty());
}

/// Rules of a password policy that are entries mean the same as lines, and make room for other lines.
#[test]
fn rules_that_are_entries() {
    let directory = tempfile::tempdir().unwrap();
    let with = |lines: &str| config(directory.path(), &format!("{BASE}overlay ppolicy\n{lines}"));
    let line = |policy: &str| format!("ppolicy_rules dn.subtree=ou=a,dc=a policy_dn=cn={policy},dc=a\n");
    let overlay = "olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config";
    let rule = |name: &str, policy: &str| {
        let mut entry = ConfigEntry::new(
            format!("cn={name},{overlay}"),
            &["olcPPolicyAbstractRule", "olcPPolicyScopedRule"],
        );
        entry.text("cn", name);
        entry.text("olcPPolicyRuleObject", "ou=a,dc=a");
        entry.text("olcPPolicyRuleScope", "subtree");
        entry.text("olcPPolicyRulePolicy", &format!("cn={policy},dc=a"));
        entry
    };
    let entries = |lines: &str, rules: Vec<ConfigEntry>| {
        let all = with(lines).entries().into_iter().chain(rules).collect();
        Config::from_entries(all, Source::QuickStart).unwrap_or_else(|error| panic!("{error}"))
    };
    let two = || vec![rule("{0}one", "one"), rule("{1}two", "two")];
    let deleted = format!("- cn={{1}}two,{overlay}\n- cn={{0}}one,{overlay}\n");
    for (name, current, wanted, expected) in [
        ("alike", entries("", two()), with(&(line("one") + &line("two"))), String::new()),
        ("none is wanted", entries("", two()), with(""), deleted.clone()),
        (
            "the policy goes",
            entries("", two()),
            config(directory.path(), BASE),
            format!("{deleted}- {overlay}\n"),
        ),
        (
            "another one",
            entries("", two()),
            with(&line("three")),
            format!(
                "{deleted}  {overlay}\n  + olcLarixPPolicyRules: {{0}}dn.subtree=ou=a,dc=a policy_dn=cn=three,dc=a\n"
            ),
        ),
        (
            "a line stays",
            entries(&line("zero"), vec![rule("{0}one", "one")]),
            with(&line("zero")),
            format!("- cn={{0}}one,{overlay}\n"),
        ),
    ] {
        assert_eq!(current.difference(&wanted).to_string(), expected, "{name}");
        let outcome = applied(&current, &wanted).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(outcome.difference(&wanted).to_string(), "", "{name}");
        let rules =
            outcome.entries().iter().filter(|entry| entry.dn.ends_with(&format!(",{overlay}"))).count();
        assert!(rules == 0 || expected.is_empty(), "{name}");
    }
}

/// What sets all databases may stand in cn=config itself. slapd.conf has one place for it.
#[test]
fn settings_of_all_databases_in_either_entry() {
    let directory = tempfile::tempdir().unwrap();
    let mut all = config(directory.path(), &format!("require bind\n{BASE}")).entries();
    for (name, value) in [
        ("olcSizeLimit", "5"),
        ("olcTimeLimit", "6"),
        ("olcRequires", "authc"),
        ("olcRestrict", "compare"),
        ("olcReadOnly", "TRUE"),
        ("olcReplogFile", "/nowhere/log"),
        ("olcPasswordHash", "{SSHA}"),
    ] {
        all[0].text(name, value);
    }
    let current = Config::from_entries(all, Source::QuickStart).unwrap_or_else(|error| panic!("{error}"));
    let exported = config(directory.path(), &current.to_slapd_conf().text);
    assert_eq!(current.difference(&exported).to_string(), "");
    assert_eq!(exported.difference(&current).to_string(), "");
    let wanted = format!("sizelimit 7\nrequire bind\nreadonly on\npassword-hash {{SHA}}\n{BASE}");
    let wanted = config(directory.path(), &wanted);
    let outcome = applied(&current, &wanted).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(outcome.difference(&wanted).to_string(), "");
    assert_eq!(outcome.entries()[0].values("olcReadOnly").to_vec(), [b"TRUE"]);
    assert_eq!(outcome.frontend.password_hash, ["{SHA}"]);
}

/// A slapd writes what holds anyway into its slapd.d. Another value takes its place.
#[test]
fn defaults_that_stand_there() {
    let directory = tempfile::tempdir().unwrap();
    let base = format!("{BASE}overlay memberof\n");
    let mut all = config(directory.path(), &base).entries();
    let entry = |dn: &str| all.iter().position(|entry| entry.dn == dn).expect(dn);
    let (global, own) = (entry("cn=config"), entry("olcDatabase={0}config,cn=config"));
    let database = entry("olcDatabase={1}mdb,cn=config");
    let overlay = entry("olcOverlay={0}memberof,olcDatabase={1}mdb,cn=config");
    assert_eq!(all[own].values("olcRootDN").to_vec(), [b"cn=config"]);
    all[own].text("olcAccess", "{0}to * by * none");
    all[database].text("olcMultiProvider", "FALSE");
    all[overlay].text("olcMemberOfDangling", "ignore");
    all[overlay].text("olcMemberOfRefInt", "FALSE");
    all[global].text("olcIdleTimeout", "0");
    all[global].text("olcAttributeOptions", "lang-");
    let current = Config::from_entries(all, Source::QuickStart).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(current.difference(&config(directory.path(), &base)).to_string(), "");
    let lines = "idletimeout 5\nattributeoptions x-\n";
    let own = "database config\nrootdn cn=a,cn=config\naccess to * by users read\n";
    let wanted = format!("{lines}schema core\n{own}{base}memberof-refint on\n");
    let wanted = config(directory.path(), &wanted.replace("schema core\ndatabase mdb", "database mdb"));
    let outcome = applied(&current, &wanted).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(outcome.difference(&wanted).to_string(), "");
    assert_eq!(outcome.entries()[0].values("olcAttributeOptions").to_vec(), [b"x-"]);
    assert_eq!(outcome.databases[0].access.len(), 1);
}

/// The suffix of a new database is a name by the new schema.
#[test]
fn schema_and_what_is_named_by_it_come_together() {
    let directory = tempfile::tempdir().unwrap();
    let (empty, whole) = (config(directory.path(), ""), config(directory.path(), BASE));
    let current = Config::from_entries(empty.entries(), Source::QuickStart).unwrap();
    let outcome = applied(&current, &whole).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(outcome.difference(&whole).to_string(), "");
}

/// The first rule that fits decides, in the frontend, too.
#[test]
fn rules_of_the_frontend_in_another_order() {
    let (one, other) = ("access to attrs=userPassword by * none\n", "access to * by * read\n");
    check(
        "rules change places",
        &format!("{other}{one}{BASE}"),
        &format!("{one}{other}{BASE}"),
        "  olcDatabase={-1}frontend,cn=config\n  - olcAccess: to * by * read\n  \
         - olcAccess: to attrs=userPassword by * none\n  + olcAccess: {0}to attrs=userPassword by * none\n  \
         + olcAccess: {1}to * by * read\n",
    );
}

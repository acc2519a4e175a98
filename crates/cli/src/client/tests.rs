//! Command lines in, options out; entries in, LDIF, JSON and text for a terminal out.

use clap::Parser;
use larix_proto::encode::EntryEncoder;
use larix_proto::ldif::Writer;
use larix_proto::{ControlBuf, LdapResult, MessageId, Response, ResultCode, Scope, oid};

use super::controls::{self, Paging};
use super::search::{BufferedAnswers, filter_and_attributes};
use super::search_output::{Format, Heading, Output, friendly};
use super::session::{check_identity, credentials, name_a_server, name_the_place, name_what_lacks};
use super::value_files::ValueFiles;
use super::*;
use larix_client::{ClientError, Credentials, LdapConf};

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    command: ClientCommand,
}

fn parse(line: &str) -> Result<ClientCommand, clap::Error> {
    let words =
        std::iter::once("larix").chain(line.split(' ').map(|word| if word == "''" { "" } else { word }));
    Line::try_parse_from(words).map(|line| line.command)
}

fn search(line: &str) -> Box<SearchArgs> {
    match parse(line) {
        Ok(ClientCommand::Search(args)) => args,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn flags_are_those_of_ldapsearch() {
    let args = search(
        "search -x -LLL -H ldap://a:1389 -b dc=x -s one -D cn=a -w -pw -z 5 -l max -E pr=2/noprompt -MM (cn=*) cn sn",
    );
    assert_eq!(args.base.as_deref(), Some("dc=x"));
    assert_eq!(args.scope, Scope::OneLevel);
    assert_eq!(args.common.manage_dsa_it, 2);
    assert_eq!(args.common.password.as_deref(), Some("-pw"));
    assert_eq!(search("search -b '' -s base +").base.as_deref(), Some(""));
    for wrong in [
        "search -s none",
        "search -a perhaps",
        "search -z many",
        "search -W -w x",
        "search -P 2",
        "search -o nosuch=1",
        "compare",
        "modify x",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    for right in [
        "search",
        "search -o TLS_CACERT=x -o nettimeout=5 -o ldif-wrap=no",
        "modify -a -c -f x",
        "compare -z cn=a cn:b",
        "passwd -S -A cn=a",
        "whoami -x",
        "search -h host -p 389",
    ] {
        assert!(parse(right).is_ok(), "{right}");
    }
}

#[test]
fn the_first_word_is_a_filter_if_it_can_be() {
    let check = |words: &str, filter: &str, attributes: &[&str]| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        assert_eq!(filter_and_attributes(&words), (filter, attributes.to_vec()), "{words:?}");
    };
    check("", "(objectclass=*)", &[]);
    check("cn=a", "cn=a", &[]);
    check("(cn=a) cn sn", "(cn=a)", &["cn", "sn"]);
    check("cn sn", "(objectclass=*)", &["cn", "sn"]);
    // Mistakes, which the filter's own check finds.
    check("(cn", "(cn", &[]);
    check("(cn~x) cn", "(cn~x)", &["cn"]);
}

#[test]
fn servers_by_flag_or_environment() {
    let check = |line: &str, environment: Option<&str>, expected: &[&str]| {
        let conf = LdapConf::of(environment.map(|urls| ("URI", urls)).as_slice());
        let urls = search(line).common.urls(&conf).map(|urls| {
            urls.iter()
                .map(|url| format!("{}|{}|{:?}", url.scheme.as_str(), url.host, url.effective_port()))
                .collect()
        });
        assert_eq!(urls.unwrap_or_else(|error| vec![error::error_text(&error)]), expected, "{line}");
    };
    check("search", None, &["ldap|localhost|Some(389)"]);
    check("search", Some("ldap://a ldap://b"), &["ldap|a|Some(389)", "ldap|b|Some(389)"]);
    check("search -H ldapi://%2Frun%2Fx", Some("ldap://a"), &["ldapi|/run/x|None"]);
    check("search -H ldap://[::1]:1389", None, &["ldap|::1|Some(1389)"]);
    check("search -h a -p 7", None, &["ldap|a|Some(7)"]);
    let meant = "there is no scheme: did you mean \"ldap://a:3890\"?";
    check("search -H a:3890", None, &[&format!("larix: -H a:3890: {meant}")]);
    check("search", Some("a:3890"), &[&format!("larix: LDAPURI=a:3890: {meant}")]);
    check("search -H foo://a", None, &["larix: -H foo://a: \"foo\" is not a scheme of LDAP URLs"]);
}

/// The settings of ldap.conf, which the command line overrides.
#[test]
fn what_the_command_line_leaves_to_ldap_conf() {
    let check = |line: &str, settings: &[(&str, &str)], expected: &str| {
        let conf = LdapConf::of(settings);
        let args = search(line);
        let common = args.common.with_defaults(&conf);
        let shown = || -> Result<String, ClientError> {
            let urls = common.urls(&conf)?;
            let urls = urls.iter().map(|url| format!("{}:{:?}", url.host, url.effective_port().unwrap_or(0)));
            let names = [&common.bind_dn, &common.mechanism, &common.user, &common.authorization];
            let names = names.map(|name| name.as_deref().unwrap_or("-"));
            let limits = args.limits(&conf)?;
            let timeout = common.connect_timeout(&conf)?.map_or(0.0, |timeout| timeout.as_secs_f64());
            Ok(format!(
                "{} {} {:?} {} {} {timeout}",
                urls.collect::<Vec<_>>().join(","),
                names.join(" "),
                limits.deref,
                limits.size,
                limits.time
            ))
        };
        assert_eq!(
            shown().unwrap_or_else(|error| error::error_text(&error)),
            expected,
            "{line} {settings:?}"
        );
    };
    let nothing = "localhost:389 - - - - Never 0 0 0";
    check("search", &[], nothing);
    check("search", &[("HOST", "a b:7"), ("PORT", "9")], "a:9,b:7 - - - - Never 0 0 0");
    check("search", &[("HOST", "a, b")], "a:389,b:389 - - - - Never 0 0 0");
    check("search", &[("PORT", "9")], "localhost:9 - - - - Never 0 0 0");
    check("search -H ldap://c", &[("HOST", "a"), ("PORT", "x")], "c:389 - - - - Never 0 0 0");
    check("search", &[("PORT", "x")], "larix: LDAPPORT=x: a port is a number from 1 to 65535");
    check("search", &[("URI", ",")], "larix: LDAPURI=, names no server");
    check("search", &[("HOST", "a:b")], "larix: LDAPHOST=a:b: \"b\" is not a port");
    // A default DN without a password is no bind, as with ldapsearch.
    check("search", &[("BINDDN", "cn=a")], nothing);
    check("search -W", &[("BINDDN", "cn=a")], "localhost:389 cn=a - - - Never 0 0 0");
    check("search -w x -D cn=b", &[("BINDDN", "cn=a")], "localhost:389 cn=b - - - Never 0 0 0");
    let sasl =
        [("SASL_MECH", "PLAIN"), ("SASL_AUTHCID", "ann"), ("SASL_AUTHZID", "u:bob"), ("BINDDN", "cn=a")];
    check("search -w x", &sasl, "localhost:389 - PLAIN ann u:bob Never 0 0 0");
    check("search -w x -x", &sasl, "localhost:389 cn=a - ann u:bob Never 0 0 0");
    check("search -w x -D cn=b", &sasl, "localhost:389 cn=b - ann u:bob Never 0 0 0");
    check("search -Y EXTERNAL -U eve", &sasl, "localhost:389 - EXTERNAL eve u:bob Never 0 0 0");
    let limits = [("DEREF", "Searching"), ("SIZELIMIT", "5"), ("TIMELIMIT", "6"), ("NETWORK_TIMEOUT", "2.5")];
    check("search", &limits, "localhost:389 - - - - InSearching 5 6 2.5");
    let flags = "search -a find -z none -l max -o nettimeout=1";
    check(flags, &limits, "localhost:389 - - - - FindingBase 0 2147483647 1");
    check("search -o nettimeout=none", &limits[3..], nothing);
    check("search", &[("NETWORK_TIMEOUT", "0")], nothing);
    for (setting, value, expected) in [
        ("DEREF", "search", "never, searching, finding or always"),
        ("SIZELIMIT", "many", "a number from 0, no limit, to 2147483647"),
        ("TIMELIMIT", "-1", "a number from 0, no limit, to 2147483647"),
        ("NETWORK_TIMEOUT", "-1", "a number of seconds; 0 is no limit"),
    ] {
        check("search", &[(setting, value)], &format!("larix: LDAP{setting}={value}: {expected}"));
    }
}

#[test]
fn a_server_out_of_a_file_is_named_with_it() {
    use larix_client::{Origin, Setting};
    let unreached = || ClientError::Connect {
        url: "ldap://a/".to_owned(),
        source: io::Error::from(io::ErrorKind::ConnectionRefused),
    };
    let file = Origin::File { path: "/etc/ldap/ldap.conf".into(), line: 8 };
    for (origin, more) in [
        (Origin::Environment, ""),
        (file, "; /etc/ldap/ldap.conf line 8: URI names this server; -H names another one"),
    ] {
        let setting = Setting { name: "URI", value: "ldap://a".to_owned(), origin };
        assert_eq!(
            error::error_text(&name_the_place(unreached(), &setting)),
            format!("larix: cannot contact LDAP server ldap://a/: connection refused{more}")
        );
    }
}

#[test]
fn who_names_no_server_is_told_how() {
    assert!(!search("search").common.names_server());
    for line in ["search -H ldap://a", "search -h a", "search -p 7"] {
        assert!(search(line).common.names_server(), "{line}");
    }
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    let error = name_a_server(ClientError::Connect { url: "ldap://localhost/".to_owned(), source: refused });
    assert_eq!(
        error::error_text(&error),
        "larix: cannot contact LDAP server ldap://localhost/: connection refused; no server was named: -H or LDAPURI does, \
         as in -H ldap://127.0.0.1:3890 for what `larix serve --suffix` serves"
    );
}

#[test]
fn what_lacks_of_a_bind_is_named() {
    let advised = |code: ResultCode, dn: &str, password: &str| {
        let result = LdapResult::new(code);
        let credentials =
            Credentials::Simple { dn: dn.to_owned(), password: password.as_bytes().to_vec().into() };
        error::error_text(&name_what_lacks(ClientError::Refused { step: "ldap_bind", result }, &credentials))
    };
    assert!(advised(ResultCode::INVALID_DN_SYNTAX, "ann", "x").contains("\"ann\" is no DN: -D takes"));
    assert!(advised(ResultCode::UNWILLING_TO_PERFORM, "cn=a", "").contains("-W asks for it"));
    assert!(
        advised(ResultCode::INVALID_CREDENTIALS, "cn=a", "x").contains("\"cn=a\" has one part: -D takes")
    );
    for (code, dn, password) in [
        (ResultCode::INVALID_DN_SYNTAX, "foo=bar", "x"),
        (ResultCode::UNWILLING_TO_PERFORM, "cn=a", "x"),
        (ResultCode::INVALID_CREDENTIALS, "cn=a,dc=x", "x"),
        (ResultCode::INVALID_CREDENTIALS, "cn=Config", "x"),
    ] {
        assert!(advised(code, dn, password).starts_with("ldap_bind: "), "{code} {dn}");
    }
}

#[test]
fn how_to_bind() {
    let check = |line: &str, local: bool, expected: &str| {
        let common = search(line).common;
        let mut ask = |_: &str| Ok(b"asked".to_vec());
        let shown = match credentials(&common, local, false, &mut ask) {
            Ok(Credentials::Simple { dn, password }) => {
                format!("{dn}/{}", String::from_utf8_lossy(&password))
            }
            Ok(Credentials::External { authorization }) => format!("EXTERNAL {authorization}"),
            Ok(Credentials::Sasl(sasl)) => {
                let password = String::from_utf8_lossy(&sasl.password);
                format!("{} {}/{}/{password}", sasl.mechanism.name(), sasl.user, sasl.authorization)
            }
            Err(error) => error::error_text(&error),
        };
        assert_eq!(shown, expected, "{line}");
    };
    check("search", false, "/");
    check("search", true, "EXTERNAL ");
    check("search -x", true, "/");
    check("search -Y EXTERNAL -X dn:cn=a", true, "EXTERNAL dn:cn=a");
    check(
        "search -Y external",
        false,
        "larix: -Y EXTERNAL needs a local socket (-H ldapi://%2Fpath) or a certificate (-o tls_cert=FILE)",
    );
    check("search -D cn=a -w b", false, "cn=a/b");
    check("search -D cn=a -W", true, "cn=a/asked");
    check("search -D cn=a -y /nowhere/x", false, "larix: /nowhere/x: No such file or directory (os error 2)");
    check("search -Y scram-sha-256 -U ann -w b", false, "SCRAM-SHA-256 ann//b");
    check("search -Y PLAIN -U ann -X u:bob", false, "PLAIN ann/u:bob/asked");
    check("search -Y PLAIN -w b", false, "larix: -Y PLAIN: -U names the user");
    check(
        "search -Y NTLM",
        false,
        "larix: NTLM: EXTERNAL, PLAIN, SCRAM-SHA-512, SCRAM-SHA-256 and SCRAM-SHA-1 are supported, these three \
         with -PLUS, too, DIGEST-MD5, and in a build with the feature gssapi GSSAPI",
    );
}

#[test]
fn a_password_or_a_name_for_sasl_alone_is_no_identity() {
    let check = |line: &str, local: bool, settings: &[(&str, &str)], expected: Option<&str>| {
        let given = search(line).common;
        let args = given.with_defaults(&LdapConf::of(settings));
        let found = match check_identity(&given, &args, local) {
            Ok(remark) => remark.map(str::to_owned),
            Err(error) => Some(error::error_text(&error)),
        };
        assert_eq!(found.as_deref(), expected, "{line}");
    };
    let anonymous = Some("a password, and no name: this bind is anonymous; -D names the DN");
    let password = Some("larix: a password, and no name: -D names the DN, or -Y a mechanism and -U the user");
    for flags in ["-w x", "-W", "-y file"] {
        check(&format!("search {flags}"), false, &[], password);
        check(&format!("search {flags} -D ''"), false, &[], None);
        check(&format!("search {flags}"), false, &[("BINDDN", "cn=a")], None);
        check(&format!("search {flags}"), true, &[], None);
        check(&format!("search -x {flags}"), false, &[], anonymous);
        check(&format!("search -x {flags}"), true, &[], anonymous);
        check(&format!("search -x {flags}"), false, &[("BINDDN", "cn=a")], None);
        check(&format!("search -Y PLAIN -U ann {flags}"), false, &[], None);
    }
    let user = "larix: -U ann is a name for SASL: -Y names the mechanism, or -D a DN in place of it";
    check("search -U ann -w x", false, &[], Some(user));
    check("search -U ann -w x", false, &[("SASL_MECH", "PLAIN")], None);
    check("search -D cn=a -w x", false, &[("SASL_AUTHCID", "ann")], None);
    check("search -X u:bob", true, &[], None);
    let other = "larix: -X u:bob is a name for SASL: -Y names the mechanism, or -D a DN in place of it";
    check("search -X u:bob", false, &[], Some(other));
    check("search", false, &[], None);
}

fn shown(control: &ControlBuf) -> String {
    let value = control
        .value
        .as_ref()
        .map(|value| value.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    format!(
        "{}{} {}",
        if control.critical { "!" } else { "" },
        control.oid,
        value.unwrap_or_else(|| "-".to_owned())
    )
}

#[test]
fn controls_by_name() {
    let check = |text: &str, expected: &str| {
        let parsed = controls::common(&search(&format!("search -e {text}")).common);
        let shown = match parsed {
            Ok(controls) => controls.iter().map(shown).collect::<Vec<_>>().join(","),
            Err(error) => error::error_text(&error),
        };
        assert_eq!(shown, expected, "{text}");
    };
    check("!assert=(cn=a)", "!1.3.6.1.1.12 a3070402636e040161");
    check("preread=cn,sn", "1.3.6.1.1.13.1 30080402636e0402736e");
    check("!postread", "!1.3.6.1.1.13.2 3000");
    check("relax", "1.3.6.1.4.1.4203.666.5.12 -");
    check("!noop", "!1.3.6.1.4.1.4203.666.5.2 -");
    check("manageDSAit", "2.16.840.1.113730.3.4.2 -");
    check("authzid=dn:cn=a", "!2.16.840.1.113730.3.4.18 646e3a636e3d61");
    check("!1.2.3", "!1.2.3 -");
    check("1.2.3=:ab", "1.2.3 6162");
    check("1.2.3=::YWI=", "1.2.3 6162");
    check("assert", "larix: control `assert`: a value is missing");
    check("1.2.3=ab", "larix: control `1.2.3=ab`: write =:<value> or =::<base64>");
    assert!(controls::common(&search("search -e foo").common).is_err());
    let twice = controls::common(&search("search -e relax -e !Relax").common);
    let error = error::error_text(&twice.unwrap_err());
    assert_eq!(error, "larix: control `!Relax`: it is there twice: leave one of them out");
}

#[test]
fn search_extensions() {
    let parse = |text: &str| controls::search(&[text.to_owned()]);
    let paging = Paging { size: 7, critical: true, prompt: false };
    assert_eq!(parse("!pr=7/noprompt").expect("pr").paging, Some(paging));
    assert_eq!(parse("!pr=7/noprompt").expect("pr").remarks, ["pagedResults critical control: size=7"]);
    let one = |text: &str| parse(text).expect(text).controls.iter().map(shown).collect::<Vec<_>>().join(",");
    assert_eq!(
        one("sss=-cn:2.5.13.3/sn"),
        "1.2.840.113556.1.4.473 301930110402636e8008322e352e31332e338101ff30040402736e"
    );
    assert_eq!(one("mv=(cn=a)"), "1.2.826.0.1.3344810.2.3 3009a3070402636e040161");
    assert_eq!(one("mv=((cn=a)(cn=b))"), "1.2.826.0.1.3344810.2.3 3012a3070402636e040161a3070402636e040162");
    assert_eq!(one("!subentries"), "!1.3.6.1.4.1.4203.1.10.1 0101ff");
    assert_eq!(one("deref=member:uid"), "1.3.6.1.4.1.4203.666.5.16 3011300f04066d656d62657230050403756964");
    for wrong in [
        "deref",
        "deref=member",
        "deref=:uid",
        "pr",
        "pr=x",
        "pr=1/maybe",
        "vlv=1",
        "sss",
        "mv=(",
        "foo",
        "subentries=maybe",
    ] {
        assert!(matches!(parse(wrong), Err(ClientError::Usage(_))), "{wrong}");
    }
}

#[test]
fn an_extension_is_there_once() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert!(controls::search(&texts(&["pr=1", "!PR=2"])).is_err());
    assert!(controls::search(&texts(&["pr=1", "sss=cn"])).is_ok());
    assert!(controls::other(&texts(&["1.2.3", "!1.2.3=:x"])).is_err());
    for line in ["search -l -5", "search -z -1"] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains("a number, none or max"), "{error}");
    }
}

#[test]
fn an_assertion_is_an_attribute_and_a_value() {
    let check = |text: &str, expected: Option<(&str, &[u8])>| {
        let parsed = compare::assertion(text).ok();
        assert_eq!(parsed.as_ref().map(|(name, value)| (*name, value.as_slice())), expected, "{text}");
    };
    check("cn:a", Some(("cn", b"a")));
    check("cn:", Some(("cn", b"")));
    check("cn;lang-en::YWI=", Some(("cn;lang-en", b"ab")));
    check("cn::!", None);
    check(":a", None);
    check("cn", None);
}

#[test]
fn friendly_names() {
    let check = |dn: &str, expected: Option<&str>| assert_eq!(friendly(dn).as_deref(), expected, "{dn}");
    check("uid=ann,ou=people,dc=example,dc=com", Some("ann, people, example.com"));
    check("dc=example,dc=com", Some("example.com"));
    check("cn=a+sn=b,o=c", Some("a + b, c"));
    check("", Some(""));
    check("no dn", None);
}

/// The message of an entry with these values of cn.
fn entry_message(dn: &str, values: &[&[u8]]) -> Vec<u8> {
    let mut pdu = Vec::new();
    let mut encoder = EntryEncoder::begin(&mut pdu, MessageId(2), dn);
    encoder.begin_attribute("cn");
    values.iter().for_each(|value| encoder.value(value));
    encoder.end_attribute();
    encoder.finish(&[]);
    pdu
}

fn reference_message(url: &str) -> Vec<u8> {
    let mut pdu = Vec::new();
    larix_proto::encode::search_reference(&mut pdu, MessageId(2), &[url.to_owned()], &[]);
    pdu
}

/// References come behind the sorted entries, as ldapsearch writes them.
#[test]
fn what_is_sorted_here() {
    let mut held = BufferedAnswers::default();
    let take = |held: &mut BufferedAnswers, pdu: &[u8]| match Response::decode_message(pdu)
        .expect("decodes")
        .response
    {
        Response::Entry(entry) => held.entry(&entry, "cn", Vec::new()),
        Response::Reference(urls) => held.reference(urls, Vec::new()),
        other => panic!("{other:?}"),
    };
    for pdu in [
        reference_message("ldap://b/"),
        entry_message("cn=x", &[b"B"]),
        reference_message("ldap://a/"),
        entry_message("cn=y", &[b"a"]),
    ] {
        take(&mut held, &pdu);
    }
    let mut out = Vec::new();
    let mut output = Output::new(&mut out, Format::Ldif { level: 3 }, Writer::default(), true, false);
    held.write(&mut output).expect("written");
    let expected = "dn: cn=y\ncn:\n\ndn: cn=x\ncn:\n\n# refldap://b/\n\n# refldap://a/\n";
    assert_eq!(String::from_utf8(out).expect("text"), expected);
}

#[test]
fn ldif_has_the_urls_of_values_in_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let pdu = entry_message("cn=a,dc=x", &[b"a", b"\xff\x00"]);
    let message = Response::decode_message(&pdu).expect("decodes");
    let Response::Entry(entry) = message.response else { panic!("{message:?}") };
    for (all, expected) in [(false, "cn: a\ncn:< x:ldapsearch-cn-"), (true, "cn:< x:ldapsearch-cn-")] {
        let mut out = Vec::new();
        let files = ValueFiles::new(Some(folder.path()), Some("x:"), all).expect("files");
        let mut output = Output::new(&mut out, Format::Ldif { level: 3 }, Writer::default(), false, false)
            .with_files(Some(files));
        output.entry(entry.dn, entry.attributes, &[]).expect("written");
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with(&format!("dn: cn=a,dc=x\n{expected}")), "{text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 3);
}

/// An entry, a reference and a result, written in a format.
fn written(format: Format, types_only: bool) -> String {
    let mut out = Vec::new();
    let mut output = Output::new(&mut out, format, Writer::default(), types_only, false);
    let attributes = ["cn"];
    let heading = Heading {
        base: "dc=x",
        base_is_default: false,
        scope: Scope::Subtree,
        filter: "(cn=*)",
        is_pattern: false,
        attributes: &attributes,
        remarks: &[],
    };
    output.heading(&heading).expect("written");
    let pdu = entry_message("cn=a,dc=x", &[b"a", b"\xff\x00"]);
    let message = Response::decode_message(&pdu).expect("decodes");
    let Response::Entry(entry) = message.response else { panic!("{message:?}") };
    output.entry(entry.dn, entry.attributes, &[]).expect("written");
    let pdu = reference_message("ldap://b/");
    let message = Response::decode_message(&pdu).expect("decodes");
    let Response::Reference(urls) = message.response else { panic!("{message:?}") };
    output.reference(urls, &[]).expect("written");
    let page = ControlBuf {
        oid: oid::PAGED_RESULTS.into(),
        critical: false,
        value: Some(vec![0x30, 0x05, 0x02, 0x01, 0x00, 0x04, 0x00]),
    };
    output.result(MessageId(2), &LdapResult::new(ResultCode::SUCCESS), &[page]).expect("written");
    output.finish(false).expect("written");
    String::from_utf8(out).expect("text")
}

#[test]
fn ldif_as_ldapsearch_writes_it() {
    let full = "\
# extended LDIF
#
# LDAPv3
# base <dc=x> with scope subtree
# filter: (cn=*)
# requesting: cn 
#

# a, x
dn: cn=a,dc=x
cn: a
cn:: /wA=

# search reference
ref: ldap://b/

# search result
search: 2
result: 0 Success
control: 1.2.840.113556.1.4.319 false MAUCAQAEAA==
pagedresults: cookie=

# numResponses: 3
# numEntries: 1
# numReferences: 1
";
    assert_eq!(written(Format::Ldif { level: 0 }, false), full);
    let bare = "dn: cn=a,dc=x\ncn: a\ncn:: /wA=\n\n# refldap://b/\n\n# pagedresults: cookie=\n";
    assert_eq!(written(Format::Ldif { level: 3 }, false), bare);
    assert_eq!(written(Format::Ldif { level: 2 }, false), format!("version: 1\n\n{bare}"));
    let commented = written(Format::Ldif { level: 1 }, false);
    let control = "# control: 1.2.840.113556.1.4.319 false MAUCAQAEAA==\n# pagedresults: cookie=\n";
    assert!(commented.contains(control), "{commented}");
    assert!(written(Format::Ldif { level: 3 }, true).starts_with("dn: cn=a,dc=x\ncn:\n"));
}

#[test]
fn json_lines() {
    let expected = "\
{\"dn\":\"cn=a,dc=x\",\"attributes\":{\"cn\":[\"a\",{\"base64\":\"/wA=\"}]}}
{\"references\":[\"ldap://b/\"]}
{\"result\":{\"code\":0,\"text\":\"Success\"},\"entries\":1}
";
    assert_eq!(written(Format::Json, false), expected);
}

#[test]
fn text_for_a_terminal() {
    let expected = "cn=a,dc=x\n  cn  a\n      (2 bytes) /wA=\n\n-> ldap://b/\n";
    assert_eq!(written(Format::Terminal { colour: false }, false), expected);
    assert!(written(Format::Terminal { colour: true }, false).starts_with("\x1b[1mcn=a,dc=x\x1b[0m\n"));
}

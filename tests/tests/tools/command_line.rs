//! What commands say to somebody who is new to them: which URL was meant, which configuration is read, where a server is and how it is
//! stopped.
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use larix_testkit::packages::MOUNT_NAMESPACE;
use larix_testkit::process::{Signal, output_text, signal};
use larix_testkit::terminal::INTERRUPT;
use larix_testkit::{Kind, Running, Terminal, packages};

/// How often what has to come is looked for, and how long after one another: two minutes in all.
const LOOKS: u32 = 6_000;
const LOOK: Duration = Duration::from_millis(20);

fn larix() -> PathBuf {
    Kind::Larix.program().unwrap()
}

#[test]
fn a_server_without_a_scheme_is_answered_with_its_url() {
    let meant = "did you mean \"ldap://127.0.0.1:3890\"?";
    for words in [
        &["search", "-H", "127.0.0.1:3890"][..],
        &["whoami", "-H", "127.0.0.1:3890"],
        &["config", "export", "-H", "127.0.0.1:3890"],
        &["replica", "status", "127.0.0.1:3890", "-b", "dc=example,dc=com"],
        &["serve", "-d", "0", "-f", "/dev/null", "-h", "127.0.0.1:3890"],
    ] {
        let output = Command::new(larix()).args(words).env_remove("LDAPURI").output().unwrap();
        assert!(
            !output.status.success() && output_text(&output).contains(meant),
            "{words:?}: {}",
            output_text(&output)
        );
    }
}

/// What a command prints and a full disk does not take is lost: that is no success, and no panic.
#[test]
fn what_cannot_be_written_is_no_success() {
    for words in [
        &["version"][..],
        &["--version"],
        &["help"],
        &["help", "cat"],
        &["cat", "--help"],
        &["serve", "--help"],
        &["serve", "-VV"],
        &["serve", "-d", "?"],
        &["serve", "-t", "-f", "/dev/null"],
        &["cat", "-n", "0", "-f", "/dev/null"],
        &["completions", "bash"],
        &["search", "--help"],
        &["dn", "-f", "/dev/null", "cn=x"],
        &["hash-password", "-n", "-h", "{SSHA}", "-s", "x"],
        &["size", "--entries", "200", "--seconds", "0"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(larix()).args(words).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", output_text(&output));
        assert!(output_text(&output).contains("No space left"), "{words:?}: {}", output_text(&output));
        assert!(!output_text(&output).contains("panicked"), "{words:?}: {}", output_text(&output));
    }
}

/// A reader that has gone wants no more: no word, and the status of a program that SIGPIPE has ended.
#[test]
fn a_reader_that_has_gone_ends_commands_without_a_word() {
    for words in [
        &["version"][..],
        &["dn", "-f", "/dev/null", "cn=x"],
        &["cat", "-n", "0", "-f", "/dev/null"],
        &["config", "export", "-f", "/dev/null"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(larix()).args(words).stdout(writer).output().unwrap();
        let text = output_text(&output);
        assert_eq!((output.status.code(), text.as_str()), (Some(141), ""), "{words:?}");
    }
}

/// 2 is LDAP's protocol error: a client that cannot read its command line ends with 1, as OpenLDAP's tools do.
#[test]
fn a_wrong_command_line_of_a_client_ends_with_1() {
    for (words, status) in [
        (&["search", "-z", "many"][..], 1),
        (&["search", "-E", "foo"], 1),
        (&["search", "--nosuch"], 1),
        (&["modify", "operand"], 1),
        (&["compare"], 1),
        (&["passwd", "cn=a", "cn=b"], 1),
        (&["whoami", "operand"], 1),
        (&["load", "--nosuch"], 2),
    ] {
        let output = Command::new(larix()).args(words).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", output_text(&output));
    }
}

/// What `-S` keeps is what to correct and send again: records that cannot be read, too.
#[test]
fn records_that_cannot_be_read_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (input, skipped) = (path("changes.ldif"), path("skipped.ldif"));
    let bad = "dn: cn=b\nchangetype: modify\nreplace: sn\nsn:: !!\n";
    let good = "dn: cn=a\nchangetype: delete\n";
    fs::write(&input, format!("{good}\n# comment\n{bad}\n{good}")).unwrap();
    for flags in [&["-c"][..], &[]] {
        let mut command = Command::new(larix());
        let output =
            command.args(["modify", "-n", "-f", &input, "-S", &skipped]).args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {}", output_text(&output));
        let kept = fs::read_to_string(&skipped).unwrap();
        let (comment, record) = kept.split_once('\n').unwrap();
        assert!(comment.starts_with("# Error: line 8: "), "{flags:?}: {kept}");
        assert!(record.ends_with(&format!("{bad}\n")) && !record.contains("cn=a"), "{flags:?}: {kept}");
    }
    // The input is not emptied by a slip.
    let before = fs::read_to_string(&input).unwrap();
    let output = Command::new(larix()).args(["modify", "-n", "-f", &input, "-S", &input]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(output_text(&output).contains("is the file that -f reads"), "{}", output_text(&output));
    assert_eq!(fs::read_to_string(&input).unwrap(), before);
}

#[test]
fn a_socket_that_is_not_there_is_named() {
    for (url, expected) in [
        ("ldapi:///none/ldapi", "did you mean ldapi://%2Fnone%2Fldapi?"),
        ("ldapi://none/ldapi", "did you mean ldapi://none%2Fldapi?"),
        ("ldapi://%2Fnone%2Fldapi", "socket /none/ldapi: No such file or directory"),
    ] {
        let output = Command::new(larix()).args(["whoami", "-H", url]).output().unwrap();
        assert_eq!(output.status.code(), Some(255), "{url}");
        assert!(output_text(&output).contains(expected), "{url}: {}", output_text(&output));
    }
}

/// The files and variables of ldap.conf(5). With `-n` no server is asked, and the base is shown.
#[test]
fn clients_read_ldap_conf() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["home", "work"] {
        fs::create_dir(path(name)).unwrap();
    }
    let run = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(larix());
        command.args(words).current_dir(path("work")).env("HOME", path("home"));
        for name in ["LDAPNOINIT", "LDAPCONF", "LDAPRC", "LDAPURI", "LDAPHOST", "LDAPBASE", "LDAPSASL_MECH"] {
            command.env_remove(name);
        }
        let output = command.envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), output_text(&output))
    };
    fs::write(path("home/.ldaprc"), "BASE o=home\nSIZELIMIT 5\nURI ldap://127.0.0.1:1\n").unwrap();
    fs::write(path("work/conf"), "# comment\nBASE o=conf\n").unwrap();
    fs::write(path("work/rc"), "\nSIZELIMIT many\n").unwrap();
    for (variables, status, expected) in [
        (&[][..], 0, "# base <o=home> (default)"),
        (&[("LDAPCONF", "conf")], 0, "# base <o=conf> (default)"),
        (&[("LDAPCONF", "conf"), ("LDAPBASE", "o=x")], 0, "# base <o=x> (default)"),
        (&[("LDAPRC", "rc")], 1, "larix: rc line 2: SIZELIMIT many: a number from 0"),
        (&[("LDAPRC", "rc"), ("LDAPNOINIT", "")], 0, "# base <> (default)"),
    ] {
        let (code, text) = run(&["search", "-n", "-x"], variables);
        assert!(code == Some(status) && text.contains(expected), "{variables:?}: {code:?} {text}");
    }
    let (code, text) = run(&["whoami", "-x"], &[]);
    assert!(
        code == Some(255) && text.contains("/home/.ldaprc line 3: URI names this server; -H names another"),
        "{text}"
    );
    let (code, text) = run(&["whoami", "-x", "-H", "ldap://127.0.0.1:2"], &[]);
    assert!(code == Some(255) && text.contains("127.0.0.1:2") && !text.contains("ldaprc"), "{text}");
}

/// An error names the value, and what would do.
#[test]
fn values_that_cannot_be_are_named_with_what_would_do() {
    for (words, expected) in [
        (&["add", "-n", "x"][..], "'x' for '-n <NUMBER>': a whole number is wanted"),
        (&["cat", "-F", "/dev/null"], "`/dev/null` is no directory"),
        (&["acl", "-f", "/dev/null", "-b", "cn=x", "-o", "ssf=x"], "-o ssf=x: a number\n"),
        (&["add", "--threads", "0"], "'0' for '--threads <NUMBER>': at least 1"),
        (&["serve", "--workers", "0"], "'0' for '--workers <N>': at least 1"),
        (&["serve", "-d", "0", "-l", "FOO", "-f", "/dev/null"], "\"FOO\" after -l: LOCAL0 to LOCAL7"),
        (&["demo", "--entries", "7", "--once"], "'7' for '--entries <ENTRIES>': at least 8"),
        (&["cluster", "status", "-f", "/dev/null"], "has no `database kv`: -f or -F"),
        (
            &["cluster", "status", "-f", "/dev/null", "-b", "cn=x"],
            "no `database kv` with the suffix \"cn=x\"",
        ),
        (
            &["cat", "-f", "/dev/null", "-n", "0", "-o", "ldif-wrap=x"],
            "ldif-wrap=x: no, or a number of columns\n",
        ),
        (&["search", "-x", "-U", "ann", "-w", "x"], "-U ann is a name for SASL: -Y names the mechanism"),
        (&["whoami", "-w", "x"], "a password, and no name: -D names the DN"),
    ] {
        let output = Command::new(larix()).args(words).env("LDAPNOINIT", "1").output().unwrap();
        assert!(
            !output.status.success() && output_text(&output).contains(expected),
            "{words:?}: {}",
            output_text(&output)
        );
    }
}

/// A result without a text ends with its code.
#[test]
fn offline_tools_show_results_and_choices() {
    let folder = tempfile::tempdir().unwrap();
    let (file, ldif) = (folder.path().join("slapd.conf"), folder.path().join("site.ldif"));
    let text =
        format!("database mdb\nsuffix cn=x\nrootdn cn=a,cn=x\ndirectory {}\n", folder.path().display());
    fs::write(&file, text).unwrap();
    fs::write(&ldif, "dn: cn=x\nobjectClass: applicationProcess\ncn: x\n").unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(larix()).args(words).arg("-f").arg(&file).output().unwrap();
        (output.status.code(), output_text(&output))
    };
    let (status, text) = run(&["add", "-s", "-l", ldif.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = run(&["offline-delete", "cn=b,cn=x"]);
    assert!(status == Some(1) && text.contains("\"cn=b,cn=x\": No such object (32)"), "{text}");
    assert!(!text.contains("(32) "), "{text:?}");
    let (status, text) = run(&["backup", "--to", folder.path().join("no/b").to_str().unwrap()]);
    assert!(status == Some(1) && text.contains("/no: make that one first"), "{text}");
    let (status, text) = run(&["acl", "-b", "cn=x", "cn/reed"]);
    assert!(status == Some(1) && text.contains("\"reed\" is not known: disclose, auth, compare"), "{text}");
}

#[test]
fn a_path_without_a_flag_is_answered_with_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["larix-data/slapd.d", "larix-data/slapd.d/cn=config"] {
        fs::create_dir_all(folder.path().join(path)).unwrap();
    }
    for file in ["larix-data/slapd.d/cn=config.ldif", "slapd.conf", "people.ldif"] {
        fs::write(folder.path().join(file), "").unwrap();
    }
    for (words, flag) in [
        (&["check", "larix-data"][..], Some("-F larix-data/slapd.d")),
        (&["cat", "larix-data/slapd.d"], Some("-F larix-data/slapd.d")),
        (&["test", "slapd.conf"], Some("-f slapd.conf")),
        (&["add", "-F", "larix-data/slapd.d", "people.ldif"], Some("-l people.ldif")),
        // Not a flag of this one.
        (&["test", "people.ldif"], None),
        (&["check", "nosuch"], None),
    ] {
        let output = Command::new(larix()).args(words).current_dir(folder.path()).output().unwrap();
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert_eq!(text.contains("a flag names it"), flag.is_some(), "{words:?}: {text}");
        assert!(text.contains(flag.unwrap_or_default()), "{words:?}: {text}");
    }
}

#[test]
fn a_program_of_openldap_is_answered_with_its_command() {
    for (word, meant) in [
        ("slapd", "slapd is `larix serve`"),
        ("slapadd", "slapadd is `larix add`"),
        ("slappasswd", "slappasswd is `larix hash-password`"),
        ("ldapadd", "ldapadd is `larix modify -a`"),
        ("delete", "`changetype: delete`"),
        ("ldapdelete", "`changetype: delete`"),
        ("modrdn", "`newrdn: RDN`"),
        ("start", "`larix serve`"),
    ] {
        let output = Command::new(larix()).arg(word).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{word}");
        assert!(output_text(&output).contains(meant), "{word}: {}", output_text(&output));
    }
    // What is called `add` here is slapadd.
    let output = Command::new(larix()).args(["add", "-x", "-D", "cn=a", "-W"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        output_text(&output).contains("-x is a flag of ldapadd, which is `larix modify -a`"),
        "{output:?}"
    );
}

#[test]
fn searches_from_a_file_go_on_after_a_bad_filter() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines");
    fs::write(&lines, "a)(b\nann\n").unwrap();
    let search = |file: &Path, more: &[&str]| {
        let mut command = Command::new(larix());
        command.args(["search", "-n", "-x", "-b", "dc=x"]).args(more).arg("-f").arg(file).arg("(uid=%s)");
        command.output().unwrap()
    };
    for (more, goes_on) in [(&["-c"][..], true), (&[], false)] {
        let output = search(&lines, more);
        let said = output_text(&output);
        assert_eq!(output.status.code(), Some(1), "{more:?}: {said}");
        assert!(said.contains("larix: filter `(uid=a)(b)`"), "{more:?}: {said}");
        assert_eq!(said.contains("# filter: (uid=ann)"), goes_on, "{more:?}: {said}");
    }
    // Nothing is said of a search before there is one.
    let output = search(&folder.path().join("none"), &[]);
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", output_text(&output));
}

/// Runs a program where `etc` lies in the place of /etc/ldap, in a mount namespace of its own. None: the system permits none,
/// or has no such folder to be covered.
fn with_etc(etc: &Path, program: &Path, arguments: &[&str]) -> Option<Output> {
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            r#"mount --bind "$0" /etc/ldap && exec "$@""#,
        ]);
        command.arg(etc).arg(program).args(arguments).output().ok()
    };
    run(Path::new("true"), &[]).filter(|output| output.status.success())?;
    run(program, arguments)
}

/// A program that waits for JSON must not take nothing for an answer.
#[test]
fn json_is_of_explanations() {
    let output =
        Command::new(larix()).args(["acl", "--json", "-f", "/dev/null", "-u", "-b", "cn=x", "cn"]).output();
    let output = output.unwrap();
    assert!(
        !output.status.success() && output_text(&output).contains("acl explain --json"),
        "{}",
        output_text(&output)
    );
}

/// The usual directory is that of another server, if the configuration of this one is a file.
#[test]
fn a_file_names_no_directory_to_fill() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slapd.conf");
    fs::write(&file, "database null\nsuffix cn=x\n").unwrap();
    for name in [["-n", "0"], ["-b", "cn=config"]] {
        let mut command = Command::new(larix());
        let output =
            command.args(["add", "-u", "-l", "/dev/null", "-f"]).arg(&file).args(name).output().unwrap();
        assert!(
            !output.status.success() && output_text(&output).contains("name the directory (-F)"),
            "{}",
            output_text(&output)
        );
    }
}

/// An export that cannot be written leaves nothing in the way of the next one.
#[test]
fn an_export_that_cannot_be_written_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("slapd.conf"), "schema core\n").unwrap();
    let export = |shell: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell} exec \"$@\""), "sh"]).arg(larix());
        command.args(["config", "export", "-f"]).arg(path("slapd.conf"));
        command.arg("--output").arg(path("out.conf")).output().unwrap()
    };
    // As on a full disk: no file may have a byte.
    let output = export("trap '' XFSZ; ulimit -f 0;");
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(output_text(&output).contains("out.conf: "), "{}", output_text(&output));
    assert!(!path("out.conf").exists());
    let output = export("");
    assert!(output.status.success() && path("out.conf").exists(), "{}", output_text(&output));
}

/// Records for glued databases go through temporary files: what one of them does not take was never loaded.
#[test]
fn a_full_temporary_directory_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let database = |suffix: &str, name: &str| {
        fs::create_dir(path(name)).unwrap();
        format!("database mdb\nsuffix {suffix}\nrootdn cn=a,cn=x\ndirectory {}\n", path(name).display())
    };
    let text = database("cn=b,cn=x", "below") + "subordinate\n" + &database("cn=x", "above");
    fs::write(path("slapd.conf"), text).unwrap();
    let mut ldif = String::from(
        "dn: cn=x\nobjectClass: referral\nobjectClass: extensibleObject\nref: ldap://h/\ncn: x\n",
    );
    for number in 0..25 {
        let name = if number == 0 { "cn=b,cn=x".to_owned() } else { format!("cn=c{number},cn=b,cn=x") };
        let value = name[3..].split(',').next().unwrap();
        ldif += &format!(
            "\ndn: {name}\nobjectClass: referral\nobjectClass: extensibleObject\nref: ldap://h/{:0100}\ncn: {value}\n",
            0
        );
    }
    fs::write(path("data.ldif"), ldif).unwrap();
    fs::create_dir(path("small")).unwrap();
    let add = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command.arg(r#"mount -t tmpfs -o size=4k none "$0" && TMPDIR="$0" exec "$@""#);
        command.arg(path("small")).arg(program).args(["add", "-f"]).arg(path("slapd.conf"));
        command.arg("-l").arg(path("data.ldif")).output().ok()
    };
    if add(Path::new("true")).is_none_or(|output| !output.status.success()) {
        packages::note_lack(MOUNT_NAMESPACE);
        return;
    }
    let output = add(&larix()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(output_text(&output).contains("cannot write a temporary file"), "{}", output_text(&output));
}

#[test]
fn without_a_flag_the_tools_say_what_they_read() {
    let folder = tempfile::tempdir().unwrap();
    let (etc, data) = (folder.path().join("etc"), folder.path().join("data"));
    fs::create_dir(&etc).unwrap();
    fs::create_dir(&data).unwrap();
    let text = format!("database mdb\nsuffix cn=x\nrootdn cn=a,cn=x\ndirectory {}\n", data.display());
    let file = etc.join("slapd.conf");
    fs::write(&file, text).unwrap();
    let named = ["add", "-f", file.to_str().unwrap(), "-l", "/dev/null"];
    let output = Command::new(larix()).args(named).output().unwrap();
    assert!(output.status.success() && !output_text(&output).contains("reads"), "{}", output_text(&output));
    for tool in ["test", "check", "cat", "schema"] {
        let Some(output) = with_etc(&etc, &larix(), &[tool]) else {
            packages::note_lack("/etc/ldap and a mount namespace");
            return;
        };
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{tool}: {}", output_text(&output));
        assert!(errors.contains("reads /etc/ldap/slapd.conf; -f FILE or -F DIRECTORY"), "{tool}: {errors}");
    }
    // slapd's names read what OpenLDAP's packages configure, as ever.
    let link = folder.path().join("slapcat");
    symlink(larix(), &link).unwrap();
    let output = with_etc(&etc, &link, &[]).unwrap();
    assert!(output.status.success() && output_text(&output).is_empty(), "{}", output_text(&output));
}

/// What keeps somebody out is said also where notes are not asked for.
#[test]
fn a_check_of_the_configuration_warns() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slapd.conf");
    let text = format!(
        "database mdb\nsuffix cn=x\nrootdn cn=a,cn=x\nrootpw {{SSHA}}garbage\ndirectory {}\n",
        folder.path().display()
    );
    fs::write(&file, text).unwrap();
    for (flag, warnings, notes) in [("-u", 1, 0), ("-v", 1, 1), ("-Q", 0, 0)] {
        let output = Command::new(larix()).args(["test", flag, "-f"]).arg(&file).output().unwrap();
        let text = output_text(&output);
        assert!(output.status.success(), "{flag}: {text}");
        assert_eq!(
            text.matches("warning: no password matches this rootpw").count(),
            warnings,
            "{flag}: {text}"
        );
        assert_eq!(text.matches("may read userPassword").count(), notes, "{flag}: {text}");
    }
}

/// The server starts without these files, and what needs them fails later.
#[test]
fn a_check_of_the_configuration_warns_of_files_that_are_read_later() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slapd.conf");
    let gone = folder.path().join("gone");
    let mail =
        "admin-password-reset mail server=smtp://localhost from=a@b url=https://d binddn=cn=r,cn=x passfile=";
    let cases: [(&str, &str, Option<&str>, &[&str]); 5] = [
        ("ldap://localhost", "starttls=yes", None, &["tls_cacert", "passfile="]),
        ("ldaps://localhost", "", None, &["tls_cacert", "passfile="]),
        ("ldap://localhost", "", None, &["passfile="]),
        ("ldap://localhost", "starttls=critical", Some("-u"), &[]),
        ("ldap://localhost", "starttls=critical", Some("-Q"), &[]),
    ];
    for (provider, tls, flag, warned) in cases {
        let text = format!(
            "{mail}{gone}\ndatabase mdb\nsuffix cn=x\nrootdn cn=a,cn=x\ndirectory {}\n\
             syncrepl rid=7 provider={provider} searchbase=cn=x {tls} tls_cacert={gone}\n",
            folder.path().display(),
            gone = gone.display()
        );
        fs::write(&file, text).unwrap();
        let output = Command::new(larix()).arg("test").args(flag).arg("-f").arg(&file).output().unwrap();
        let text = output_text(&output);
        assert!(output.status.success(), "{text}");
        assert_eq!(text.matches("/gone").count(), warned.len(), "{provider} {tls} {flag:?}: {text}");
        for part in warned {
            let is_named = text.lines().any(|line| {
                line.starts_with("warning: ") && line.to_lowercase().contains(part) && line.contains("/gone")
            });
            assert!(is_named, "{part}: {text}");
        }
    }
}

/// A newcomer leaves the flags away.
#[test]
fn where_no_configuration_is_named_the_one_at_hand_is() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, broken) = (folder.path().join("empty"), folder.path().join("broken"));
    [&empty, &broken].into_iter().for_each(|etc| fs::create_dir(etc).unwrap());
    fs::write(broken.join("slapd.conf"), "schemacheck on\n").unwrap();
    let text = |etc: &Path, arguments: &[&str]| {
        let output = with_etc(etc, &larix(), arguments)?;
        assert!(!output.status.success(), "{}", output_text(&output));
        Some(output_text(&output))
    };
    let Some(nothing) = text(&empty, &["serve", "-d", "0", "-h", "ldap://127.0.0.1:0"]) else {
        packages::note_lack("/etc/ldap and a mount namespace");
        return;
    };
    assert!(nothing.contains("`larix serve --suffix dc=example,dc=com` makes one"), "{nothing}");
    let here = folder.path().join("larix-data/slapd.d");
    let convert = ["test", "-f", "/dev/null", "-F", here.to_str().unwrap()];
    fs::create_dir_all(&here).unwrap();
    assert!(Command::new(larix()).args(convert).output().unwrap().status.success());
    let (cat, serve) = (&["cat"][..], &["serve", "-d", "0", "-h", "ldap://127.0.0.1:0"][..]);
    let (no_file, no_line) = ("name a file with -f", "take the line out");
    for (etc, words, help) in
        [(&empty, cat, no_file), (&broken, cat, no_line), (&empty, serve, no_file), (&broken, serve, no_line)]
    {
        let script = r#"cd "$1" && shift && exec "$@""#;
        let program = larix();
        let shell = ["-c", script, "sh", folder.path().to_str().unwrap(), program.to_str().unwrap()];
        let output = with_etc(etc, Path::new("/bin/sh"), &[&shell[..], words].concat()).unwrap();
        let text = output_text(&output);
        let expected = format!("-F larix-data/slapd.d names the configuration here; {help}");
        assert!(!output.status.success() && text.contains(&expected), "{text}");
    }
}

#[test]
fn a_data_directory_that_cannot_be_read_names_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let permit = |mode| fs::set_permissions(&data, fs::Permissions::from_mode(mode)).unwrap();
    permit(0);
    let user = rustix::process::geteuid();
    let mut command = Command::new(larix());
    if user.is_root() {
        // Root as every other user.
        command = Command::new("setpriv");
        command.arg("--bounding-set=-dac_override,-dac_read_search").arg(larix());
    }
    command.args(["serve", "--suffix", "dc=example,dc=com", "-h", "ldap://127.0.0.1:0", "--data"]).arg(&data);
    let output = command.output().unwrap();
    permit(0o700);
    let expected = format!("which belongs to the user {}: start as that one", user.as_raw());
    assert!(!output.status.success() && output_text(&output).contains(&expected), "{}", output_text(&output));

    // One that cannot be made: a file is in the way of root, too.
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let mut command = Command::new(larix());
    command.args(["serve", "--suffix", "dc=example,dc=com", "-h", "ldap://127.0.0.1:0", "--data"]);
    let output = command.arg(file.join("data")).output().unwrap();
    let text = output_text(&output);
    assert!(!output.status.success() && text.contains("/file/data: name another with --data"), "{text}");
}

#[test]
fn a_load_into_the_wrong_database_names_the_right_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "schema core cosine\n".to_owned();
    for suffix in ["cn=log", "dc=example,dc=com"] {
        let data = folder.path().join(suffix);
        fs::create_dir(&data).unwrap();
        text += &format!("database mdb\nsuffix {suffix}\ndirectory {}\n", data.display());
    }
    let (file, ldif) = (folder.path().join("slapd.conf"), folder.path().join("site.ldif"));
    fs::write(&file, text).unwrap();
    for (dn, expected) in [
        (
            "dc=example,dc=com",
            "not below any suffix of the database, which has \"cn=log\"; -b \"dc=example,dc=com\" loads into the one that has it",
        ),
        ("dc=example,dc=org", "which has \"cn=log\"; no other database has it"),
    ] {
        fs::write(&ldif, format!("dn: {dn}\nobjectClass: domain\ndc: example\n")).unwrap();
        let output =
            Command::new(larix()).args(["add", "-f"]).arg(&file).arg("-l").arg(&ldif).output().unwrap();
        assert!(
            !output.status.success() && output_text(&output).contains(expected),
            "{}",
            output_text(&output)
        );
    }
}

struct QuickStart {
    folder: tempfile::TempDir,
}

impl QuickStart {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The words of a start, but for the address and the port file.
    const WORDS: [&str; 5] = ["serve", "--suffix", "dc=example,dc=com", "-4", "-h"];

    fn in_background(&self, address: &str, shown: &str) -> Running {
        let mut command = Command::new(larix());
        command.current_dir(self.folder.path()).args(Self::WORDS).arg(address).stdin(Stdio::null());
        let shown = fs::File::create(self.shown(shown)).unwrap();
        Running(command.stdout(shown.try_clone().unwrap()).stderr(shown).spawn().unwrap())
    }

    fn shown(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it has shown when it serves.
    fn shows(&self, server: &mut Running, shown: &str) -> String {
        for _ in 0..LOOKS {
            let text = fs::read_to_string(self.shown(shown)).unwrap();
            if text.contains("Stop it with") && text.ends_with('\n') {
                return text;
            }
            assert!(server.try_wait().unwrap().is_none(), "it ended: {text}");
            std::thread::park_timeout(LOOK);
        }
        panic!("it says nothing: {}", fs::read_to_string(self.shown(shown)).unwrap());
    }
}

#[test]
fn a_server_without_a_terminal_is_stopped_by_its_number() {
    let quick = QuickStart::new();
    let mut server = quick.in_background("ldap://127.0.0.1:0", "shown");
    let text = quick.shows(&mut server, "shown");
    assert!(text.contains(&format!("Stop it with: kill {}\n", server.id())), "{text}");
    assert!(!text.contains("Ctrl-C"), "{text}");
    // Kernels before 5.0 have no such line.
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    assert!(!status.contains("THP_enabled:\t1"), "it uses huge pages: {status}");

    // A second one on the same directory.
    let mut second = quick.in_background("ldap://127.0.0.1:0", "second");
    let ended = (0..LOOKS).find_map(|_| {
        std::thread::park_timeout(LOOK);
        second.try_wait().unwrap()
    });
    let text = fs::read_to_string(quick.shown("second")).unwrap();
    let process = format!("larix-data is served already, by process {}, at ldap://127.0.0.1:", server.id());
    assert!(ended.is_some_and(|status| !status.success()) && text.contains(&process), "{ended:?} {text}");
    assert!(text.contains("--data"), "{text}");
    assert!(signal(server.id(), Signal::TERM));
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_server_at_a_terminal_is_stopped_there() {
    let quick = QuickStart::new();
    let mut terminal = Terminal::open().unwrap();
    let mut command = terminal.command(larix());
    command.current_dir(quick.folder.path()).args(QuickStart::WORDS).arg("ldap://127.0.0.1:0");
    let mut server = Running(command.spawn().unwrap());
    terminal.shows("Stop it with Ctrl-C.");
    terminal.types(INTERRUPT);
    assert!(terminal.ended(&mut server).0.success());
}

//! Faults of a configuration: their texts and places.

use super::read;

#[test]
fn errors_point_at_the_word() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("slapd.conf", "database mdb\nsufix dc=x\n")],
            "$D/slapd.conf:2:1: unknown directive `sufix`\n    | sufix dc=x\n    | ^^^^^\n    = help: did you mean `suffix`?",
        ),
        (
            &[("slapd.conf", "idletimeout 5\nby * read\n")],
            "$D/slapd.conf:2:1: unknown directive `by`\n    | by * read\n    | ^^\n    = help: begin the line with a blank: it continues the rule above",
        ),
        (
            &[("slapd.conf", "include $D/core.ldif\n"), ("core.ldif", "dn: cn=core,cn=schema,cn=config\n")],
            "$D/core.ldif:1:1: unknown directive `dn:`\n    | dn: cn=core,cn=schema,cn=config\n    | ^^^\n    = help: this is LDIF: include $D/core.schema\n    = included from $D/slapd.conf:1",
        ),
        (
            &[("slapd.conf", "database mdb\noverlay membrof\n")],
            "$D/slapd.conf:2:9: no overlay `membrof`\n    | overlay membrof\n    |         ^^^^^^^\n    = help: did you mean `memberof`?",
        ),
        (
            &[("slapd.conf", "database mdb\noverlay dds\ndds-state 0\n")],
            "$D/slapd.conf:3:11: `0` is neither on nor off\n    | dds-state 0\n    |           ^\n    = help: say on, true, yes, off, false or no",
        ),
        (
            &[("slapd.conf", "database mdb\noverlay sssvlv\nsssvlv-max x\n")],
            "$D/slapd.conf:3:12: `x` is not a number\n    | sssvlv-max x\n    |            ^",
        ),
        (
            &[("slapd.conf", "database mdb\noverlay autogroup\nautogroup-memberof-ad nosuch\n")],
            "$D/slapd.conf:3:23: attribute \"nosuch\": attribute type undefined\n    | autogroup-memberof-ad nosuch\n    |                       ^^^^^^\n    = help: include the schema that defines it",
        ),
        (
            &[("slapd.conf", "database mdb\noverlay autogroup\nautogroup-memberof-ad objectClass\n")],
            "$D/slapd.conf:3:23: \"objectClass\" has no names as values\n    | autogroup-memberof-ad objectClass\n    |                       ^^^^^^^^^^^\n    = help: name the attribute with the groups of an entry, such as memberOf",
        ),
        (
            &[("slapd.conf", "database mdb\nindex cn\n  eq,foo\n")],
            "$D/slapd.conf:3:3: index type \"foo\" undefined\n    |   eq,foo\n    |   ^^^^^^\n    = help: some of pres, eq, sub, approx, subinitial, subany, subfinal, nolang, nosubtypes",
        ),
        (
            &[("slapd.conf", "database mdb\nindex default\n")],
            "$D/slapd.conf:2:7: index type for \"default\" undefined: no default specified\n    | index default\n    |       ^^^^^^^\n    = help: name the kinds, such as `eq`, or put `index default eq` before it",
        ),
        (
            &[("slapd.conf", "access to *\n  by dnattr=nosuch read\n")],
            "$D/slapd.conf:1: access rule: attribute `nosuch`: attribute type undefined\n    = help: include the schema that defines it",
        ),
        (
            &[("slapd.conf", "database mdb\nsuffix dc=x\n")],
            "$D/slapd.conf:2:8: `dc=x` is not a DN: attribute type \"dc\" in a DN is not defined\n    | suffix dc=x\n    |        ^^^^\n    = help: write `schema core` before it, which defines dc",
        ),
        (
            &[("slapd.conf", "schema inetorgperson\n")],
            "$D/slapd.conf:1:8: bundled schema inetorgperson: line 18: ObjectClass not found: \"organizationalPerson\"\n    | schema inetorgperson\n    |        ^^^^^^^^^^^^^\n    = help: write `schema core` before it, which defines organizationalPerson",
        ),
        (
            &[("slapd.conf", "schema core\naccess to attrs=userPasword by * none\n")],
            "$D/slapd.conf:2: access rule: attribute `userPasword`: attribute type undefined\n    = help: did you mean `userPassword`? If not, include the schema that defines it",
        ),
        (
            &[("slapd.conf", "schema core\naccess to attrs=sambaNTPassword by * none\n")],
            "$D/slapd.conf:2: access rule: attribute `sambaNTPassword`: attribute type undefined\n    = help: write `schema samba` before it, which defines sambaNTPassword",
        ),
        (
            &[("slapd.conf", "schema core\naccess to attrs=oathSecret by * none\n")],
            "$D/slapd.conf:2: access rule: attribute `oathSecret`: attribute type undefined\n    = help: `overlay otp` brings it",
        ),
        (
            &[("slapd.conf", "password-hash {SSHA9}\n")],
            "$D/slapd.conf:1:15: no password scheme `{SSHA9}`\n    | password-hash {SSHA9}\n    |               ^^^^^^^\n    = help: one of {SSHA}, {SHA}, {SMD5}, {MD5}, {SSHA256}, {SHA256}, {SSHA384}, {SHA384}, {SSHA512}, {SHA512}, {ARGON2}, {PBKDF2}, {PBKDF2-SHA1}, {PBKDF2-SHA256}, {PBKDF2-SHA512}, {CRYPT}, {APR1}, {BSDMD5}, {NS-MTA-MD5}, {SCRAM-SHA-1}, {SCRAM-SHA-256}, {SCRAM-SHA-512}, {TOTP1}, {TOTP256}, {TOTP512}, {TOTP1ANDPW}, {TOTP256ANDPW}, {TOTP512ANDPW}, {CLEARTEXT}",
        ),
        (
            &[("slapd.conf", "include $D/a.conf\n"), ("a.conf", "\nidletimeout x\n")],
            "$D/a.conf:2:13: `x` is not a number\n    | idletimeout x\n    |             ^\n    = included from $D/slapd.conf:1",
        ),
        (
            &[("slapd.conf", "restrict extended=whoIsIt\n")],
            "$D/slapd.conf:1:10: `whoIsIt` is not the OID of an extended operation\n    | restrict extended=whoIsIt\n    |          ^^^^^^^^^^^^^^^^\n    = help: an OID in digits, or a name that `objectidentifier` gives one",
        ),
        (
            &[("slapd.conf", "authid-rewriteEngine on\nauthid-rewriteRule a ${x}\n")],
            "$D/slapd.conf:2:22: `${x}`: a lone $ or %\n    | authid-rewriteRule a ${x}\n    |                      ^^^^\n    = help: $ or % followed by a digit; twice for itself",
        ),
        (
            &[("slapd.conf", "include $D/none.conf\n")],
            "$D/slapd.conf:1:9: there is no file `$D/none.conf`\n    | include $D/none.conf\n    |         ^^^^^^^^^^^^\n    = help: check the path",
        ),
        (
            &[("slapd.conf", "schemacheck on\n")],
            "$D/slapd.conf:1:1: unknown directive `schemacheck`\n    | schemacheck on\n    | ^^^^^^^^^^^\n    = help: take the line out: entries are always checked",
        ),
        (
            &[("slapd.conf", "include $D/*.schema\n")],
            "$D/slapd.conf:1:9: there is no file `$D/*.schema`\n    | include $D/*.schema\n    |         ^^^^^^^^^^^\n    = help: a `*` stands for no other names here: write an `include` line for each file",
        ),
        (
            &[("slapd.conf", "include no-such/core.schema\n")],
            "$D/slapd.conf:1:9: there is no file `no-such/core.schema`\n    | include no-such/core.schema\n    |         ^^^^\n    = help: a relative name starts at the working directory; `schema core` takes the one that comes with Larix",
        ),
        (
            &[("slapd.conf", "database mdb\ndirectory $D\n  index cn eq\n")],
            "$D/slapd.conf:3:3: `directory` takes no more arguments\n    |   index cn eq\n    |   ^^^^^\n    = help: a line that begins with a blank continues the one above: take the blank away",
        ),
        (
            &[("slapd.conf", "access to attrs=cn\n  # a comment\n  by * read\n")],
            "$D/slapd.conf:2:3: `=` is missing after `#`\n    |   # a comment\n    |   ^\n    = help: a comment cannot stand within a rule: put it above, without a blank before it",
        ),
        (
            &[("slapd.conf", "database mdb\noverlay memberof\nmemberof-refint 0\n")],
            "$D/slapd.conf:3:17: `0` is neither on nor off\n    | memberof-refint 0\n    |                 ^\n    = help: say on, true, yes, off, false or no",
        ),
        (
            &[("slapd.conf", "database mdb\nmode 0600 x\n")],
            "$D/slapd.conf:2:11: `mode` takes no more arguments\n    | mode 0600 x\n    |           ^",
        ),
        (
            &[("slapd.conf", "database mdb\nsuffix cn=a\nrootdn cn=r,cn=b\nrootpw x\ndirectory $D\n")],
            "$D/slapd.conf:1: rootpw is of no use: the rootdn \"cn=r,cn=b\" is not below a suffix of this database (\"cn=a\")\n    = help: correct the one or the other, or give the entry itself a userPassword",
        ),
        (
            &[("slapd.conf", "database mdb\nrootdn cn=r\nrootpw x\ndirectory $D\n")],
            "$D/slapd.conf:1: rootpw is of no use: this database has no suffix that the rootdn could be below\n    = help: add a line such as `suffix dc=example,dc=com`",
        ),
        (
            &[("slapd.conf", "database mdb\nsuffix cn=config\ndirectory $D\n")],
            "$D/slapd.conf:1: suffix \"cn=config\" lies within \"cn=config\", which the config database serves\n    = help: choose another suffix",
        ),
        (
            &[("slapd.conf", "database mdb\nsuffix cn=a,cn=MONITOR\ndirectory $D\ndatabase monitor\n")],
            "$D/slapd.conf:1: suffix \"cn=a,cn=MONITOR\" lies within \"cn=Monitor\", which the monitor database serves\n    = help: choose another suffix",
        ),
        (
            &[("slapd.conf", "\u{feff}database mdb\n")],
            "`$D/slapd.conf` begins with a byte order mark\n    = help: save it as UTF-8 without one",
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

#[test]
fn a_keyword_of_several_kinds_names_all_of_them() {
    let (_keep, read) = read(&[("slapd.conf", "uri ldap://x\n")]);
    let text = read.expect_err("an error");
    for kind in ["`database ldap`", "`database meta`"] {
        assert!(text.contains(kind), "{text}");
    }
}

/// Where the faults are that an error names, as `file:line`.
fn places(error: &str) -> Vec<String> {
    let first_lines = error.lines().filter_map(|line| line.strip_prefix("$D/"));
    first_lines.map(|line| line.splitn(3, ':').take(2).collect::<Vec<_>>().join(":")).collect()
}

/// All that is wrong with a file, but for what follows from another fault.
#[test]
fn faults_are_shown_together() {
    let many = "idletimeout x\n".repeat(30);
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[(
                "slapd.conf",
                "schemacheck on\nsizelimit fifty\ndatabase mdb\nsufix dc=x\nindex cn foo\nmode x\n",
            )],
            "slapd.conf:1 slapd.conf:2 slapd.conf:4 slapd.conf:5 slapd.conf:6",
        ),
        // The overlay's own lines.
        (
            &[(
                "slapd.conf",
                "database mdb\noverlay translog\ntranslog /x\noverlay ppolicy\nppolicy_defalt cn=x\n",
            )],
            "slapd.conf:2 slapd.conf:5",
        ),
        // A section of which nothing is known.
        (
            &[("slapd.conf", "database sqlite\nsuffix dc=a\nfoo bar\ndatabase mdb\nsufix dc=b\n")],
            "slapd.conf:1 slapd.conf:5",
        ),
        // What the missing schema may define.
        (
            &[(
                "slapd.conf",
                "include $D/none.schema\ndatabase mdb\nindex nosuch eq\nsufix dc=x\nthreads many\n",
            )],
            "slapd.conf:1 slapd.conf:4 slapd.conf:5",
        ),
        (
            &[
                ("slapd.conf", "include $D/a.conf\nthreads many\n"),
                ("a.conf", "idletimeout x\nwritetimeout y\n"),
            ],
            "a.conf:1 a.conf:2 slapd.conf:2",
        ),
        // No line of LDIF is one of slapd.conf.
        (
            &[
                ("slapd.conf", "include $D/core.ldif\nthreads many\n"),
                ("core.ldif", "dn: cn=core\nobjectClass: olcSchemaConfig\n"),
            ],
            "core.ldif:1 slapd.conf:2",
        ),
        // Its definitions, and those of a line that nobody knows.
        (
            &[
                ("slapd.conf", "include $D/nis.ldif\ndatabase mdb\nindex nosuch eq\nmode x\nsufix dc=x\n"),
                ("nis.ldif", "dn: cn=nis\nobjectClass: olcSchemaConfig\n"),
            ],
            "nis.ldif:1 slapd.conf:5",
        ),
        (
            &[(
                "slapd.conf",
                "atributetype ( 1.2.3 NAME 'nosuch' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )\ndatabase mdb\nindex nosuch eq\n",
            )],
            "slapd.conf:1",
        ),
        // Faults of the whole.
        (
            &[(
                "slapd.conf",
                "database mdb\nrootpw a\ndirectory $D/a\ndatabase mdb\nrootpw b\ndirectory $D/b\n",
            )],
            "slapd.conf:1 slapd.conf:4",
        ),
        (
            &[("slapd.conf", "access to attrs=nosuch by * read\naccess to attrs=none by * read\n")],
            "slapd.conf:1 slapd.conf:2",
        ),
        (&[("slapd.conf", many.as_str())], ""),
    ];
    for (files, expected) in cases {
        let error = read(files).1.expect_err(files[0].1);
        let places = places(&error);
        if expected.is_empty() {
            assert_eq!(places.len(), 20, "{error}");
        } else {
            assert_eq!(places.join(" "), *expected, "{error}");
        }
    }
    let (_keep, error) =
        read(&[("slapd.conf", "include $D/a.conf\n"), ("a.conf", "idletimeout x\nthreads y\n")]);
    let error = error.expect_err("two faults");
    assert_eq!(error.matches("= included from $D/slapd.conf:1").count(), 2, "{error}");
}

//! What rules make of names: the cases of `names_are_rewritten` are what OpenLDAP 2.5.13 tells of them.

use larix_proto::url::LdapUrl;

use super::*;

fn rewrite(commands: &[&[&str]]) -> Rewrite {
    let mut rewrite = Rewrite::default();
    for command in commands {
        rewrite.command(command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }
    rewrite
}

/// A directory without entries.
fn nothing(_: &LdapUrl, _: Option<&str>) -> Option<String> {
    None
}

/// One case: rules (pattern, substitution, flags), a name, and where it leads.
fn check(rules: &[(&str, &str, &str)], name: &str, expected: &str) {
    let mut all = rewrite(&[&["authid-rewriteEngine", "on"], &["authid-rewriteContext", "authid"]]);
    for (pattern, substitution, flags) in rules {
        all.command(&["authid-rewriteRule", pattern, substitution, flags]).expect(pattern);
    }
    assert_eq!(all.apply(name, false, &nothing).as_deref().unwrap_or(name), expected, "{rules:?} {name}");
}

#[test]
fn names_are_rewritten() {
    let ann = "uid=ann,cn=m,cn=auth";
    let bob = "uid=bob,cn=m,cn=auth";
    let many = format!("uid={}ann,cn=m,cn=auth", "q".repeat(100));
    type Case<'a> = (&'a [(&'a str, &'a str, &'a str)], &'a str, &'a str);
    let cases: &[Case<'_>] = &[
        (&[(r"^uid=([^,]+),.*$", "uid=$1,dc=x", ":")], ann, "uid=ann,dc=x"),
        (&[(r"^UID=([^,]+),.*$", "uid=%1,dc=x", ":")], ann, "uid=ann,dc=x"),
        (&[(r"^uid=([a-n\]+),cn=m,cn=auth$", "uid=$1,dc=x", ":")], ann, "uid=ann,dc=x"),
        (&[(r"^uid=\([]a-n\]\{1,\}\),cn=m,cn=auth$", "uid=$1,dc=x", ":R")], ann, "uid=ann,dc=x"),
        (&[(r"^uid=(.+?)(,cn=n.*)?$", "dc=x,uid=$1", ":")], ann, "dc=x,uid=ann,cn=m,cn=auth"),
        (&[(r"^UID=([^,]+),.*$", "uid=%1,dc=x", ":C")], ann, ann),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", ":"), (r"^dc=x,(.*)", "ou=z,$1", ":")], ann, "ou=z,dc=y"),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", ":@"), (r"^dc=x,(.*)", "ou=z,$1", ":")], ann, "dc=x,dc=y"),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", ":"), (r"none", "dc=n", ":")], ann, "dc=x,dc=y"),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", "#"), (r".*", "dc=all", ":@")], ann, ann),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", "#"), (r".*", "dc=all", ":@")], bob, "dc=all"),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", ":U{30}")], ann, ann),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", ":U{0}"), (r".*", "dc=all", ":")], ann, "dc=x,dc=y"),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", ":G{1}"), (r".*", "dc=one", ":")], ann, "dc=one"),
        (
            &[(r"^uid=ann,.*$", "dc=x,dc=y", ":G{2}"), (r".*", "dc=one", ":"), (r"dc=y", "dc=two", ":")],
            ann,
            "dc=two",
        ),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", ":G{2}")], ann, ann),
        (&[(r"^uid=ann,.*$", "dc=x,dc=y", ":G{3}"), (r".*", "dc=one", ":")], ann, ann),
        (
            &[(r"^uid=a+(n+),(.*)$", "uid=$1,$2", ":G{0}"), (r"^uid=n(.*)", "uid=m$1", ":")],
            ann,
            "uid=mn,cn=m,cn=auth",
        ),
        (
            &[(r"^uid=(a*)n(.*)$", "uid=$1m$2", ":G{0}"), (r"^uid=(a*)m(.*)", "uid=b$1$2", ":G{-1}")],
            ann,
            "uid=ban,cn=m,cn=auth",
        ),
        (&[(r"^uid=ann,.*$", "dc=x", ":G{-1}")], ann, ann),
        (&[(r"^uid=(.*)$", "uid=q$1", "M{3}")], ann, "uid=qqqann,cn=m,cn=auth"),
        (&[(r"^uid=(.*)$", "uid=q$1", "")], ann, &many),
        (&[(r"^uid=(.*)$", "uid=q$1", "M{200}")], ann, &many),
        (&[(r"^uid=(.*)$", "uid=q$1", "M{3}:")], ann, "uid=qann,cn=m,cn=auth"),
        (&[(r"^uid=(.*)$", "uid=q$1", "I:")], ann, "uid=qann,cn=m,cn=auth"),
        (&[(r"^uid=\([^,]*\),cn=\(.*\)$", "uid=$1,dc=$2", ":R")], ann, "uid=ann,dc=m,cn=auth"),
        (&[(r"^uid=(ann),.*$", "dc=x", ":R")], ann, ann),
        (&[(r"^uid=an\{2\},.*$", "dc=x", ":R")], ann, "dc=x"),
        (&[(r"^uid=a[n]*,.*$", "dc=x", ":R")], ann, "dc=x"),
        (&[(r"^uid=an+,.*$", "dc=x", ":R")], ann, ann),
        (&[(r"^uid=ann,.*$", "cn=$$1%%2$%3,dc=x", ":")], ann, "cn=$1%2%3,dc=x"),
        (&[(r"^uid=ann,.*$", "", ":")], ann, ""),
        (&[(r"none", "dc=n", ":"), (r"^uid=b.*$", "dc=b", ":")], ann, ann),
        (&[(r"^uid=ann,.*$", "dc=a", ":@"), (r"^uid=b.*$", "dc=b", ":@")], bob, "dc=b"),
        (&[(r"^dc=a$", "dc=b", ":@"), (r"^uid=ann,.*$", "dc=a", ":G{-1}")], ann, "dc=b"),
    ];
    for (rules, name, expected) in cases {
        check(rules, name, expected);
    }
    check(&[("uid=(.*)", "uid=$1$1", "")], ann, ann); // Larix's own: no name longer than the limit
    check(&[("nothing", "$0", "")], bob, bob);
}

/// One entry, and a search that finds it by its name.
fn ann(url: &LdapUrl, attribute: Option<&str>) -> Option<String> {
    let found = url.dn == "dc=x" && url.filter.as_ref()?.to_string() == "(cn=ann)";
    let value = match attribute {
        None => "uid=found,dc=x",
        Some("mail") => "ann@x",
        Some(_) => return None,
    };
    found.then(|| value.to_owned())
}

#[test]
fn maps_variables_and_parameters() {
    let name = "uid=ann,cn=m,cn=auth";
    let before: &[&[&str]] = &[
        &["rewriteEngine", "on"],
        &["rewriteParam", "Base", "dc=x"],
        &["rewriteMap", "slapd", "dnof", "ldap:///dc=x?dn?sub"],
        &["rewriteMap", "slapd", "mailof", "ldap:///dc=x?mail?sub?(cn="],
        &["rewriteMap", "slapd", "snof", "uri=ldap:///dc=x?sn?sub"],
        &["rewriteContext", "upper"],
        &["rewriteRule", "^ann$", "ANN", ":@"],
        &["rewriteRule", "^none$", "${*nothing}", ":"],
        &["rewriteRule", "^gone$", "x", "#"],
        &["rewriteContext", "other", "alias", "upper"],
        &["rewriteContext", "empty"],
        &["rewriteContext", "loop"],
        &["rewriteRule", "(.*)", "x${>loop($1)}", ":"],
        &["rewriteContext", "authid"],
    ];
    for (rules, expected) in [
        (&[("^uid=([^,]+),.*$", "uid=$1,${$base}", ":")][..], Some("uid=ann,dc=x")),
        (&[("^uid=([^,]+),.*$", "uid=$1,${$other}", ":")], None),
        (&[("^uid=([^,]+),.*$", "uid=$1,${$other}", ":I")], Some(name)),
        (&[("^uid=([^,]+),.*$", "${$other}", ":I"), ("^uid=a", "uid=b", ":")], Some("uid=b")),
        (&[("^uid=([^,]+),.*$", "${$o}", ":IG{2}"), (".*", "x", ":"), ("^uid=.*", "z", ":")], Some("z")),
        (&[("^uid=([^,]+),.*$", "${$o}", ":G{2}I"), (".*", "x", ":"), ("^x", "z", ":")], Some("z")),
        (&[("^uid=([^,]+),.*$", "${dnof((cn=$1))}", ":")], Some("uid=found,dc=x")),
        (&[("^uid=([^,]+),.*$", "${mailof($1)}", ":")], None),
        (&[("^uid=([^,]+),.*$", "m=${MAILof($1))}", ":")], Some("m=ann@x")),
        (&[("^uid=([^,]+),.*$", "${snof((cn=$1))}", ":")], None),
        (&[("^uid=([^,]+),.*$", "${dnof(cn)}", ":")], None),
        (
            &[("^uid=([^,]+),(.*)$", "cn=${&who($1)}$2", ":"), ("^(cn=)(.*)", "$1${*WHO},$2", ":")],
            Some("cn=ann,cn=m,cn=auth"),
        ),
        (&[("^uid=([^,]+),.*$", "${&*who($1)}=${*who}", ":")], Some("ann=ann")),
        (&[("^uid=.*$", "${*who}", ":")], None),
        (&[("^uid=([^,]+),.*$", "uid=${>upper($1)}", ":")], Some("uid=ANN")),
        (&[("^uid=([^,]+),.*$", "uid=${>Other(${>upper($1)})}", ":")], Some("uid=ANN")),
        (&[("^uid=.*$", "uid=${>upper(gone)}", ":")], None),
        (&[("^uid=.*$", "uid=${>upper(else)}", ":")], Some("uid=else")),
        (&[("^uid=.*$", "uid=${>empty(else)}", ":")], Some("uid=")),
        (&[("^uid=([^,]+),.*$", "uid=${>loop($1)}", ":")], None),
        // Behind a group without a brace another substitution may stand.
        (&[("^uid=([^,]+),.*$", "uid=${>upper($2${>upper($1)})}", ":")], Some("uid=ANN")),
        (&[("^uid=([^,]+),.*$", "uid=${>upper(%2%{>upper(%1)})},%{$base}", ":")], Some("uid=ANN,dc=x")),
        (&[("^uid=([^,]+),.*$", "uid=${>upper(${&x($1)}${*x})},$$$1", ":")], Some("uid=ANN,$ann")),
    ] {
        let mut all = rewrite(before);
        for (pattern, substitution, flags) in rules {
            all.command(&["rewriteRule", pattern, substitution, flags]).expect(pattern);
        }
        assert_eq!(all.apply(name, false, &ann).as_deref(), expected, "{rules:?}");
    }
}

#[test]
fn commands_that_change_what_rules_do() {
    let rule: &[&str] = &["rewriteRule", "^uid=(.*)$", "uid=q$1"];
    for (commands, by_default, expected) in [
        (&[rule][..], false, None),
        (&[rule, &["rewriteEngine", "on"], &["rewriteMaxPasses", "2"]], false, Some("uid=qqx")),
        (&[&["rewriteMaxPasses", "50", "3"], rule], true, Some("uid=qqqx")),
        (&[&["REWRITECONTEXT", "AuthID"], &["rewriteMaxPasses", "4"], rule], true, Some("uid=qqqqx")),
        (&[rule, &["rewriteEngine", "off"]], true, None),
    ] {
        assert_eq!(
            rewrite(commands).apply("uid=x", by_default, &nothing).as_deref(),
            expected,
            "{commands:?}"
        );
    }
}

#[test]
fn what_is_not_understood_is_said() {
    for (command, word, part) in [
        (&["rewriteMap", "ldap", "x", "ldap://h/"][..], 1, "kind `ldap`"),
        (&["rewriteMap", "slapd", "x"], 0, "needs a URL"),
        (&["rewriteMap", "slapd", "1x", "ldap:///"], 2, "no new name"),
        (&["rewriteMap", "slapd", "x", "ldap://h/"], 3, "can search"),
        (&["rewriteMap", "slapd", "x", "ldap:///?a,b"], 3, "can search"),
        (&["authid-rewriteParam", "a"], 0, "needs a value"),
        (&["rewriteRule", "a", "${x($0)}"], 2, "no context or map `x`"),
        (&["rewriteRule", "a", "${>x($0)}"], 2, "no context or map `x`"),
        (&["rewriteRule", "a", "${|x($0)}"], 2, "not supported"),
        (&["rewriteRule", "a", "${**x}"], 2, "not supported"),
        (&["rewriteRule", "a", "${&&x($0)}"], 2, "not supported"),
        (&["rewriteRule", "a", "${*x"], 2, "lone"),
        (&["rewriteRule", "a", "${*x-y}"], 2, "lone"),
        (&["rewriteRule", "a", "$1{x}"], 2, "not supported"),
        (&["rewriteRule", "a", "$x"], 2, "lone"),
        (&["rewriteRule", "a", "x$"], 2, "lone"),
        (&["rewriteRule", "(", "x"], 1, "not a regular expression"),
        (&["rewriteRule", "\\(a\\)\\1", "x", "R"], 1, "not a regular expression"),
        (&["rewriteRule", "a"], 0, "needs a pattern"),
        (&["rewriteRule", "a", "b", ":", "c"], 4, "`c` is one word too many"),
        (&["rewriteRule", "a", "b", "Z"], 3, "`Z` are no flags"),
        (&["rewriteRule", "a", "b", "G1"], 3, "flags"),
        (&["rewriteRule", "a", "b", "U{-1}"], 3, "flags"),
        (&["rewriteRule", "a", "b", "M{10001}"], 3, "flags"),
        (&["rewriteContext", "authid", "alias", "x"], 3, "no context `x`"),
        (&["rewriteContext", "authid", "alias"], 0, "needs the context"),
        (&["rewriteContext", "authid", "x"], 2, "too many"),
        (&["rewriteContext", "authid", "alias", "x", "y"], 4, "too many"),
        (&["rewriteEngine", "maybe"], 1, "neither on nor off"),
        (&["rewriteEngine"], 0, "needs on or off"),
        (&["rewriteMaxPasses", "0"], 1, "no number of passes"),
        (&["rewriteMaxPasses", "5", "x"], 2, "`x`"),
        (&["rewrite"], 0, "no command"),
        (&[], 0, "needs a command"),
    ] {
        let error = Rewrite::default().command(command).expect_err("a fault");
        assert!(error.to_string().contains(part), "{command:?}: {error}");
        assert_eq!(error.word(), word, "{command:?}");
    }
    let mut late = rewrite(&[&["rewriteRule", "a", "b"]]);
    assert_eq!(late.command(&["rewriteContext", "authid"]), Err(RewriteError::ContextAfterRules));
}

#[test]
fn basic_expressions_become_extended_ones() {
    for (given, expected) in [
        (r"^a\(b*\)c\{2\}$", r"^a(b*)c{2}$"),
        (r"a+b?c|d(e){f}", r"a\+b\?c\|d\(e\)\{f\}"),
        (r"*a\(*b\)\(^c$\)$d^e", r"\*a(\*b)(^c$)\$d\^e"),
        (r"[]a][^]b][[:alpha:]_][a\&]\?", r"[]a][^]b][[:alpha:]_][a\&]?"),
        (r"a\.b\+", r"a\.b+"),
    ] {
        assert_eq!(basic::to_extended(given), expected, "{given}");
    }
}

/// What OpenLDAP 2.7 tells of `rewriteMap escape` (its test087), and what cannot be text.
#[test]
fn maps_escape_and_unescape() {
    let map = |steps: &[&str], text: &str| {
        let words = [&["rewriteMap", "escape", "m"], steps].concat();
        let rule = ["rewriteRule", "^(.*)$", "${m($1)}", ":"];
        let mut rules = rewrite(&[&["rewriteEngine", "on"], &words, &rule]);
        rules.sessions = false;
        let (context, _) = rules.context("default").unwrap();
        assert!(!rules.searches(context));
        rules.rewrite(context, text, &nothing, None)
    };
    let changed = |text: &str| Rewritten::Changed(text.to_owned());
    for (steps, text, expected) in [
        (&["unescapedn", "escape2filter"][..], r"test\20\2c\31\\", changed(r"test ,1\5C")),
        (&["unescapedn", "escape2filter"], r"test\00)(uid=test", changed(r"test\00\29\28uid=test")),
        (&["unescapedn", "escape2filter"], r"\c3\28", changed(r"\C3\28")),
        (&["unescapedn", "escape2filter"], r"*\", Rewritten::Failed),
        (&["unescapedn"], r"\c3\28", Rewritten::Failed),
        (&["ESCAPE2FILTER"], r"cn=*\", changed(r"cn=\2A\5C")),
        (&["escape2filter"], "é\u{1}", changed(r"\C3\A9\01")),
        (&["escape2filter"], "", Rewritten::Kept),
        (&["unescapefilter", "escape2dn"], r"something ,\29+\28 \2A=", changed(r"something \2C)\2B( *\3D")),
        (&["unescapefilter", "escape2dn"], r"test\20\31*", Rewritten::Failed),
        (&["unescapefilter", "escape2dn"], r"test\20\31", changed("test 1")),
        (&["unescapefilter"], r"test\2", Rewritten::Failed),
        (&["unescapefilter"], r"test\+2", Rewritten::Failed),
        (&["unescapefilter", "escape2filter"], r"a\2a", changed(r"a\2A")),
    ] {
        assert_eq!(map(steps, text), expected, "{steps:?} {text}");
    }
    let refused = |words: &[&str]| Rewrite::default().command(words).unwrap_err();
    assert_eq!(refused(&["rewriteMap", "escape", "m"]), RewriteError::Missing("what the map does"));
    let wrong = refused(&["rewriteMap", "escape", "m", "escape2dn", "sideways"]);
    assert_eq!(wrong.word(), 4);
    assert_eq!(wrong, RewriteError::Escape(4, "sideways".to_owned()));
    assert_eq!(
        refused(&["rewriteMap", "slapd", "m", "ldap:///o=x?dn?sub", "y"]),
        RewriteError::Extra(4, "y".to_owned())
    );
}

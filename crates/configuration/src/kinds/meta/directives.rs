//! The directives that slapd-ldap(5) has not, or has otherwise.

use larix_backend::meta::{NameLifetime, OnError, SubtreeRule, Subtrees};
use larix_engine::access::posix_regex;
use larix_proto::Scope as SearchScope;
use larix_proto::url::LdapUrl;
use larix_proxy::settings::Paging;
use larix_rewrite::lines;

use super::super::super::builder::call::{Call, Fault};
use super::super::super::builder::directive::{Apply, Directive, Form, MANY, Scope};
use super::super::super::builder::{Builder, Section};
use super::super::super::settings::Settings;
use super::super::super::values::ConfigDn;
use super::super::ldap;
use super::{MetaSettings, MetaTarget, TARGETS_MAX, proxy};

const fn own(keyword: &'static str, attribute: &'static str, form: Form, apply: Apply) -> Directive {
    Directive::new(keyword, attribute, Scope::Kind("meta"), form, apply)
}

const fn asynchronous(keyword: &'static str, attribute: &'static str, form: Form, apply: Apply) -> Directive {
    Directive::new(keyword, attribute, Scope::Kind("asyncmeta"), form, apply)
}

/// `database asyncmeta` has them, too.
pub(super) static TABLE: &[Directive] = &[
    // The first: it opens the target that those after it belong to.
    own("uri", "olcDbURI", Form::Words, uri),
    own("t-f-support", "olcDbTFSupport", Form::Whole, |b, c| {
        proxy(b)?.absolute_filters = ldap::absolute_filters(b, c)?;
        Ok(())
    }),
    own("onerr", "olcDbOnErr", Form::Whole, |b, c| {
        let ways =
            [("continue", OnError::Continue), ("report", OnError::Report), ("stop", OnError::Stop)];
        let way = c.choice(0, &ways)?;
        of_all(b)?.on_error = way;
        Ok(())
    }),
    own("default-target", "olcDbDefaultTarget", Form::Own, default_target).arguments(0, 1),
    own("rewrite", "olcDbRewrite", Form::Command, |b, c| {
        let words = c.arguments.to_vec();
        target(b)?.rewrite.push(words);
        Ok(())
    })
    .prefix(7)
    .alias(&[
        "suffixmassage",
        "rewriteEngine",
        "rewriteContext",
        "rewriteRule",
        "rewriteMap",
        "rewriteParam",
        "rewriteMaxPasses",
    ])
    .ordered()
    .checked(lines::check_rewrite),
    own("map", "olcDbMap", Form::Words, |b, c| {
        let words = c.arguments.to_vec();
        target(b)?.maps.push(words);
        Ok(())
    })
    .ordered()
    .checked(lines::check_map),
    own("subtree-exclude", "olcDbSubtreeExclude", Form::Whole, |b, c| {
        let rule = subtree(b, c)?;
        match &mut target(b)?.subtrees {
            Subtrees::Except(rules) => rules.push(rule),
            Subtrees::Only(_) => return Err(both_ways()),
            none @ Subtrees::All => *none = Subtrees::Except(vec![rule]),
        }
        Ok(())
    })
    .many(),
    own("subtree-include", "olcDbSubtreeInclude", Form::Whole, |b, c| {
        let rule = subtree(b, c)?;
        match &mut target(b)?.subtrees {
            Subtrees::Only(rules) => rules.push(rule),
            Subtrees::Except(_) => return Err(both_ways()),
            none @ Subtrees::All => *none = Subtrees::Only(vec![rule]),
        }
        Ok(())
    })
    .many(),
    own("filter", "olcDbFilter", Form::Whole, |b, c| {
        let pattern = posix_regex(c.argument(0)?, true);
        let pattern = pattern.map_err(|error| {
            Fault::argument(0, error).with_help("an extended regular expression of filters, such as [(]uid=")
        })?;
        target(b)?.filters.push(pattern);
        Ok(())
    })
    .many(),
    own("client-pr", "olcDbClientPr", Form::Whole, |b, c| {
        let word = c.argument(0)?;
        proxy(b)?.paging = match word.to_ascii_lowercase().as_str() {
            "disable" => Paging::Never,
            "accept-unsolicited" => Paging::Unsolicited,
            _ => Paging::Pages(word.parse().map_err(|_| {
                Fault::argument(0, format!("`{word}` is no number of entries"))
                    .with_help("disable, accept-unsolicited, or how many entries a page has, such as 500")
            })?),
        };
        Ok(())
    }),
    own("bind-timeout", "olcDbBindTimeout", Form::Whole, |_, c| c.number::<u64>(0).map(|_| ()))
        .noted("nothing waits for a bind; `timeout bind=` says how long one may take"),
    own("nretries", "olcDbNretries", Form::Whole, |_, c| {
        let word = c.argument(0)?;
        let known = ["never", "forever"].iter().any(|known| known.eq_ignore_ascii_case(word));
        if known { Ok(()) } else { c.number::<u32>(0).map(|_| ()) }
    })
    .noted("a request that changes nothing is sent three times at most; `quarantine` says when a target is tried again"),
    own("dncache-ttl", "olcDbDnCacheTtl", Form::Whole, |b, c| {
        let lifetime = match c.argument(0)? {
            word if word.eq_ignore_ascii_case("disabled") => None,
            word if word.eq_ignore_ascii_case("forever") => Some(NameLifetime::Forever),
            word => {
                let time = ldap::time(word, 0).map_err(|fault| fault.with_help("disabled, forever, or a time such as 1h"))?;
                (!time.is_zero()).then_some(NameLifetime::For(time))
            }
        };
        of_all(b)?.known_names = lifetime;
        Ok(())
    }),
    own("pseudoroot-bind-defer", "olcDbPseudoRootBindDefer", Form::Switch, |_, c| c.switch().map(|_| ()))
        .alias(&["root-bind-defer"])
        .noted("targets are bound to when the root's first request needs it"),
    refused("acl-authcDN", "write acl-bind bindmethod=simple binddn=... credentials=..."),
    refused("acl-passwd", "write acl-bind bindmethod=simple binddn=... credentials=..."),
    refused("pseudorootdn", "write idassert-bind bindmethod=simple binddn=... credentials=..."),
    refused("pseudorootpw", "write idassert-bind bindmethod=simple binddn=... credentials=..."),
];

/// What `database asyncmeta` has alone, or otherwise.
pub(super) static ASYNCHRONOUS: &[Directive] = &[
    asynchronous("suffixmassage", "olcDbSuffixMassage", Form::Words, |b, c| {
        let words = [vec![c.directive.keyword.to_owned()], c.arguments.to_vec()].concat();
        target(b)?.rewrite.push(words);
        Ok(())
    })
    .arguments(1, 2)
    .checked(|schema, words| {
        let words = [vec!["suffixmassage".to_owned()], words.to_vec()].concat();
        lines::check_rewrite(schema, &words).map_err(|fault| larix_engine::overlay::WordFault {
            argument: fault.argument.saturating_sub(1),
            ..fault
        })
    }),
    asynchronous("conn-ttl", "olcDbConnTtl", Form::Words, |b, c| {
        let lifetime = ldap::time(c.argument(0)?, 0)?;
        let interval = c.arguments.get(1).map(|interval| ldap::time(interval, 1)).transpose()?;
        let proxy = proxy(b)?;
        proxy.connection_ttl = Some(lifetime).filter(|lifetime| !lifetime.is_zero());
        proxy.reset_interval = interval.filter(|interval| !interval.is_zero());
        Ok(())
    })
    .arguments(1, 2),
    asynchronous("max-target-conns", "olcDbMaxTargetConns", Form::Whole, |b, c| {
        let most: u32 = c.number(0)?;
        let proxy = &mut of_all(b)?.common;
        // slapd writes 0, its default, into every slapd.d.
        if most > 0 {
            proxy.pool_max = most.min(ldap::POOL_CEILING);
            proxy.in_turn = true;
        }
        Ok(())
    }),
    asynchronous("max-pending-ops", "olcDbMaxPendingOps", Form::Whole, |_, c| c.number::<u32>(0).map(|_| ()))
        .noted("a target may have 20000 requests under way; the answer to more is `busy`"),
    asynchronous("max-timeout-ops", "olcDbMaxTimeoutOps", Form::Whole, |_, c| c.number::<u32>(0).map(|_| ()))
        .noted("`keepalive` and `tcp-user-timeout` say when a silent connection is lost"),
    Directive::kept("rewrite", "", Scope::Kind("asyncmeta"), Form::Words)
        .arguments(0, MANY)
        .prefix(7)
        .refused(MAPPED)
        .alias(&[
            "rewriteEngine",
            "rewriteContext",
            "rewriteRule",
            "rewriteMap",
            "rewriteParam",
            "rewriteMaxPasses",
        ]),
    Directive::kept("map", "", Scope::Kind("asyncmeta"), Form::Words).arguments(0, MANY).refused(MAPPED),
];

const MAPPED: &str =
    "write `database meta`: it is asynchronous, too, and has rules and maps beside `suffixmassage`";

const fn refused(keyword: &'static str, instead: &'static str) -> Directive {
    Directive::kept(keyword, "", Scope::Kind("meta"), Form::Words).arguments(0, MANY).refused(instead)
}

fn both_ways() -> Fault {
    Fault::keyword("a target has `subtree-include` or `subtree-exclude`, and not both")
        .with_help("say what it serves, or what it does not serve")
}

/// The target that is open.
fn target(builder: &mut Builder) -> Result<&mut MetaTarget, Fault> {
    let Section::Target { number, .. } = builder.section else {
        let fault = Fault::keyword("this is for one target");
        return Err(fault.with_help("put it behind the `uri` line of the target"));
    };
    let settings = builder.settings_of::<MetaSettings>()?;
    settings.targets.get_mut(number).ok_or_else(|| Fault::keyword("the target is not there"))
}

/// The settings of the database, for what is said before the first target.
fn of_all(builder: &mut Builder) -> Result<&mut MetaSettings, Fault> {
    if matches!(builder.section, Section::Target { .. }) {
        let fault = Fault::keyword("this holds for all targets");
        return Err(fault.with_help("put it before the first `uri` line"));
    }
    builder.settings_of::<MetaSettings>()
}

/// `uri URL/NAME [URL]...`
fn uri(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let help = "ldap://host/NAME, where the NAME says where the target's entries are seen; more servers of it without a name";
    let (mut servers, mut name) = (Vec::new(), String::new());
    for (number, argument) in call.arguments.iter().enumerate() {
        let wrong = |why: String| Fault::argument(number, why).with_help(help);
        let url = LdapUrl::parse_server(argument).map_err(|error| wrong(format!("`{argument}`: {error}")))?;
        ldap::check_scheme(&url).map_err(|why| wrong(format!("`{argument}` {why}")))?;
        let has_more = !url.attributes.is_empty() || url.filter.is_some() || !url.extensions.is_empty();
        if has_more || url.scope.is_some_and(|scope| scope != SearchScope::Subtree) {
            return Err(wrong(format!("`{argument}`: a target is a whole subtree of one server")));
        }
        match number {
            0 => name.clone_from(&url.dn),
            _ if !url.dn.is_empty() => {
                return Err(wrong(format!("`{argument}`: the first URL of a target has the name")));
            }
            _ => {}
        }
        servers.push(LdapUrl { dn: String::new(), scope: None, ..url });
    }
    if name.is_empty() {
        return Err(Fault::argument(0, "a target needs a name").with_help(help));
    }
    let suffix = ConfigDn::parse_relaxed(&builder.schema(), &name)
        .map_err(|error| Fault::argument(0, format!("`{name}` is not a DN: {error}")).with_help(help))?;
    let origin = call.origin.clone();
    let database = builder.open_database_number()?;
    let settings = builder.settings_of::<MetaSettings>()?;
    if settings.targets.len() >= TARGETS_MAX {
        return Err(Fault::keyword(format!("more than {TARGETS_MAX} targets of one database")));
    }
    let mut proxy = settings.common.clone();
    proxy.targets = servers;
    settings.targets.push(MetaTarget {
        proxy,
        suffix,
        subtrees: Subtrees::All,
        filters: Vec::new(),
        rewrite: Vec::new(),
        maps: Vec::new(),
        shown: Settings::default(),
        origin,
    });
    let number = settings.targets.len() - 1;
    builder.section = Section::Target { database, number };
    Ok(())
}

/// `default-target`: this one; `default-target N`: that one, from 1; `default-target none`.
fn default_target(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let (text, number) = match call.arguments.first() {
        Some(word) if word.eq_ignore_ascii_case("none") => ("none".to_owned(), None),
        Some(_) => {
            let number: usize = call.positive(0)?;
            (number.to_string(), Some(number - 1))
        }
        None => match builder.section {
            Section::Target { number, .. } => ((number + 1).to_string(), Some(number)),
            _ => {
                let fault = Fault::keyword("which target is meant?");
                return Err(fault.with_help("put it behind the target's `uri` line, or give its number"));
            }
        },
    };
    builder.settings_of::<MetaSettings>()?.default_target = number;
    builder.open_database()?.settings.set("olcDbDefaultTarget", text.into_bytes());
    Ok(())
}

/// `[dn[.STYLE]:]PATTERN`
fn subtree(builder: &mut Builder, call: &Call<'_>) -> Result<SubtreeRule, Fault> {
    let text = call.argument(0)?;
    let help = "dn.subtree:, dn.children: or dn.regex:, and a DN within the target's name or a pattern";
    let (style, pattern) = match text.split_once(':') {
        Some((style, pattern)) if style.to_ascii_lowercase().starts_with("dn") && !style.contains('=') => {
            (style.get(2..).unwrap_or_default().trim_start_matches('.').to_ascii_lowercase(), pattern)
        }
        _ => (String::new(), text),
    };
    if style == "regex" {
        let pattern = posix_regex(pattern, true);
        return pattern.map(SubtreeRule::Regex).map_err(|error| Fault::argument(0, error).with_help(help));
    }
    let dn = ConfigDn::parse_relaxed(&builder.schema(), pattern)
        .map_err(|error| Fault::argument(0, format!("`{pattern}` is not a DN: {error}")).with_help(help))?;
    let suffix = &target(builder)?.suffix;
    if !dn.normal.is_within(&suffix.normal) {
        let fault = Fault::argument(0, format!("\"{dn}\" is not within the target's name \"{suffix}\""));
        return Err(fault.with_help(help));
    }
    match style.as_str() {
        "" | "sub" | "subtree" => Ok(SubtreeRule::Subtree(dn.normal)),
        "children" => Ok(SubtreeRule::Children(dn.normal)),
        _ => Err(Fault::argument(0, format!("no style `{style}`")).with_help(help)),
    }
}

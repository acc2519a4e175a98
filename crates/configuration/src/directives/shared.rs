//! Directives that set the frontend, and those that set the frontend or a database alike.

use larix_engine::password::Scheme;

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::values::{Requirements, Restrictions, SearchLimits, SecurityFactors};
use super::global::{Field, flags};
use super::operations::{extended_operation, restrict_operations};
use super::{Directive, Form, Scope};

pub(super) static TABLE: &[Directive] = &[
    // What sets the frontend.
    Directive::new("defaultSearchBase", "olcDefaultSearchBase", Scope::Frontend, Form::Dn, |b, c| {
        let dn = c.dn(&b.schema(), 0)?;
        b.frontend.default_search_base = Some(dn);
        Ok(())
    }),
    Directive::new("password-hash", "olcPasswordHash", Scope::Frontend, Form::Own, password_hash).many(),
    Directive::new("password-cost", "olcLarixPasswordCost", Scope::Frontend, Form::Each, |b, c| {
        b.frontend.password_costs.read(c, 0)
    })
    .many(),
    Directive::new("password-rehash", "olcLarixPasswordRehash", Scope::Frontend, Form::Switch, |b, c| {
        b.frontend.password_costs.rehash = c.switch()?;
        Ok(())
    })
    .arguments(0, 1),
    Directive::kept("sortvals", "olcSortVals", Scope::Frontend, Form::Each)
        .many()
        .noted("large sets of values are always sorted"),
    Directive::new("schemadn", "olcSchemaDN", Scope::Frontend, Form::Dn, |b, c| {
        let dn = c.dn(&b.schema(), 0)?;
        b.frontend.schema_dn = Some(dn);
        Ok(())
    }),
    // What sets the frontend or a database.
    Directive::new("readonly", "olcReadOnly", Scope::Shared, Form::Switch, |b, c| {
        b.shared().read_only = c.switch()?;
        Ok(())
    }),
    Directive::new("require", "olcRequires", Scope::Shared, Form::Each, require)
        .alias(&["requires"])
        .prefix(7)
        .many(),
    Directive::new("restrict", "olcRestrict", Scope::Shared, Form::Each, restrict).many(),
    Directive::new("restrictop", "olcRestrictOp", Scope::Shared, Form::Words, restrict_operations).ordered(),
    Directive::new("security", "olcSecurity", Scope::Shared, Form::Each, security).many(),
    Directive::new("sizelimit", "olcSizeLimit", Scope::Shared, Form::Words, |b, c| {
        limit_words(b, c, |limits, word| limits.apply_size_word(word))
    }),
    Directive::new("timelimit", "olcTimeLimit", Scope::Shared, Form::Words, |b, c| {
        limit_words(b, c, |limits, word| limits.apply_time_word(word))
    }),
    Directive::new("maxDerefDepth", "olcMaxDerefDepth", Scope::Shared, Form::Whole, |b, c| {
        b.shared().max_deref_depth = c.int_from_zero(0)?;
        Ok(())
    }),
    Directive::new("add_content_acl", "olcAddContentAcl", Scope::Shared, Form::Switch, |b, c| {
        b.shared().add_content_acl = c.switch()?;
        Ok(())
    })
    .arguments(0, 1),
    Directive::new("access", "olcAccess", Scope::Shared, Form::Own, super::database::access).ordered(),
];

/// The word of `require` that ends what was required before.
pub(crate) const REQUIRE_NOTHING: &str = "none";

fn require(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let mut set = builder.shared().requirements;
    let mut call = Call { ..*call };
    if let Some((first, rest)) = call.arguments.split_first()
        && first.eq_ignore_ascii_case(REQUIRE_NOTHING)
    {
        set = Requirements::default();
        call.arguments = rest;
    } else if let Some(at) = call.arguments.iter().position(|word| word.eq_ignore_ascii_case(REQUIRE_NOTHING))
    {
        let help = "it ends what was required before, as in `require none bind`";
        return Err(Fault::argument(at, "`none` must come first").with_help(help));
    }
    flags::<Requirements>(
        &call,
        &mut set,
        "condition",
        &[
            ("bind", |set| &mut set.bind),
            ("LDAPv3", |set| &mut set.ldap_v3),
            ("authc", |set| &mut set.authc),
            ("SASL", |set| &mut set.sasl),
            ("strong", |set| &mut set.strong),
        ],
    )?;
    builder.shared().requirements = set;
    Ok(())
}

/// The words of `restrict` and `restrictop`.
pub(super) const RESTRICTABLE: &str =
    "bind, add, modify, rename, delete, search, compare, read, write, extended, extended=<OID>, all";

fn restrict(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let schema = builder.schema();
    let set = &mut builder.shared().restrictions;
    for (number, word) in call.arguments.iter().enumerate() {
        if let Some(oid) = extended_operation(&schema, number, word)? {
            set.extended_oids.push(oid);
        } else if !restrict_word(set, &word.to_ascii_lowercase()) {
            return Err(Fault::argument(number, format!("no operation `{word}`"))
                .with_help(format!("some of {RESTRICTABLE}")));
        }
    }
    Ok(())
}

/// Adds what the word names, in lower case; answers whether it names something. [`extended_operation`] has the others.
pub(super) fn restrict_word(set: &mut Restrictions, word: &str) -> bool {
    let (mut read, mut write) = (false, false);
    match word {
        "bind" => set.bind = true,
        "add" => set.add = true,
        "modify" => set.modify = true,
        "rename" | "modrdn" => set.rename = true,
        "delete" => set.delete = true,
        "search" => set.search = true,
        "compare" => set.compare = true,
        "extended" => set.extended = true,
        "read" => read = true,
        "write" => write = true,
        "all" => {
            (read, write) = (true, true);
            set.bind = true;
            set.extended = true;
        }
        _ => return false,
    }
    if read {
        (set.search, set.compare) = (true, true);
    }
    if write {
        (set.add, set.modify, set.rename, set.delete) = (true, true, true, true);
    }
    true
}

fn security(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let factors: &[(&str, Field<SecurityFactors, u32>)] = &[
        ("ssf", |set| &mut set.ssf),
        ("transport", |set| &mut set.transport),
        ("tls", |set| &mut set.tls),
        ("sasl", |set| &mut set.sasl),
        ("update_ssf", |set| &mut set.update_ssf),
        ("update_transport", |set| &mut set.update_transport),
        ("update_tls", |set| &mut set.update_tls),
        ("update_sasl", |set| &mut set.update_sasl),
        ("simple_bind", |set| &mut set.simple_bind),
    ];
    let set = &mut builder.shared().security;
    for (number, word) in call.arguments.iter().enumerate() {
        let found = word.split_once('=').and_then(|(name, value)| {
            let (_, factor) = factors.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
            Some((factor, value))
        });
        let Some((factor, value)) = found else {
            let names: Vec<String> = factors.iter().map(|(name, _)| format!("{name}=")).collect();
            return Err(Fault::argument(number, format!("no security factor `{word}`"))
                .with_help(format!("some of {}", names.join(" "))));
        };
        *factor(set) = value
            .parse()
            .map_err(|_| Fault::argument(number, format!("`{value}` is not a strength in bits")))?;
    }
    Ok(())
}

fn limit_words(
    builder: &mut Builder,
    call: &Call<'_>,
    apply: impl Fn(&mut SearchLimits, &str) -> Result<(), String>,
) -> Result<(), Fault> {
    let limits = &mut builder.shared().search_limits;
    for (number, word) in call.arguments.iter().enumerate() {
        apply(limits, word).map_err(|message| Fault::argument(number, message))?;
    }
    Ok(())
}

fn password_hash(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    for (number, hash) in call.arguments.iter().enumerate() {
        if !(hash.starts_with('{') && hash.ends_with('}')) {
            return Err(Fault::argument(number, format!("`{hash}` is not a password scheme"))
                .with_help("schemes are written in braces, such as {SSHA} or {ARGON2}"));
        }
    }
    // As slapd, which goes on while one of them is known, and keeps those.
    let (known, unknown): (Vec<&String>, Vec<&String>) =
        call.arguments.iter().partition(|hash| Scheme::from_name(hash).is_some());
    if let Some(first) = unknown.first().filter(|_| known.is_empty()) {
        let names = Scheme::names().collect::<Vec<_>>().join(", ");
        return Err(
            Fault::argument(0, format!("no password scheme `{first}`")).with_help(format!("one of {names}"))
        );
    }
    for hash in unknown {
        let text = format!("`password-hash {hash}` has no effect: no such scheme");
        builder.notes.push(call.origin.clone(), text);
    }
    for hash in known {
        builder.frontend.password_hash.push(hash.clone());
        let settings = builder.settings(call.directive);
        if !settings.get(call.directive.attribute).contains(hash.as_bytes()) {
            settings.add(call.directive.attribute, hash.clone().into_bytes());
        }
    }
    Ok(())
}

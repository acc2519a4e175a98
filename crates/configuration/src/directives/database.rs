//! Directives of a database of any kind.

use larix_engine::access::AccessRule;
use larix_engine::password;

use super::super::builder::call::{Call, Fault};
use super::super::builder::{Builder, Section};
use super::super::model::AccessLine;
use super::super::undefined::remedy;
use super::super::values::{LimitRule, LimitSubject, Subordinate, SyncFault, SyncReplication};
use super::global::referral;
use super::{Directive, Form, MANY, Scope};

const OBSOLETE: &str = "slurpd replication is long gone; use syncrepl";

pub(super) static TABLE: &[Directive] = &[
    // A hidden database may share a suffix, so this comes first.
    Directive::new("hidden", "olcHidden", Scope::Database, Form::Switch, |b, c| {
        b.open_database()?.hidden = c.switch()?;
        Ok(())
    }),
    Directive::new("disabled", "olcDisabled", Scope::Database, Form::Switch, |b, c| {
        b.open_database()?.disabled = c.switch()?;
        Ok(())
    }),
    Directive::new("suffix", "olcSuffix", Scope::Database, Form::Dn, suffix).many(),
    Directive::new("rootdn", "olcRootDN", Scope::Database, Form::Dn, |b, c| {
        let dn = c.dn(&b.schema(), 0)?;
        b.open_database()?.root_dn = Some(dn);
        Ok(())
    }),
    Directive::new("rootpw", "olcRootPW", Scope::Database, Form::Secret, |b, c| {
        if let Some(why) = password::unusable(c.bytes) {
            let text =
                format!("no password matches this rootpw: {why}; `larix hash-password` prints a value");
            b.notes.warn(c.origin.clone(), &text);
        }
        b.open_database()?.root_password = Some(c.bytes.to_vec());
        Ok(())
    }),
    Directive::new("subordinate", "olcSubordinate", Scope::Database, Form::Own, subordinate).arguments(0, 1),
    Directive::new("limits", "olcLimits", Scope::Database, Form::Words, limits).arguments(2, MANY).ordered(),
    Directive::new("lastmod", "olcLastMod", Scope::Database, Form::Switch, |b, c| {
        b.open_database()?.last_mod = c.switch()?;
        Ok(())
    }),
    Directive::new("lastbind", "olcLastBind", Scope::Database, Form::Switch, |b, c| {
        b.open_database()?.last_bind = c.switch()?;
        Ok(())
    }),
    Directive::new("lastbind-precision", "olcLastBindPrecision", Scope::Database, Form::Whole, |b, c| {
        // The overlay's line in OpenLDAP 2.5, too, which takes it as a signed number.
        b.open_database()?.last_bind_precision = c.int_from_zero(0)?;
        Ok(())
    }),
    Directive::new("lastbind-send-assert", "olcLastBindSendAssert", Scope::Database, Form::Switch, |b, c| {
        b.open_database()?.last_bind_asserts = c.switch()?;
        Ok(())
    }),
    Directive::new("monitoring", "olcMonitoring", Scope::Database, Form::Switch, |b, c| {
        let on = c.switch()?;
        b.open_database()?;
        if !on {
            b.note_without_effect(c, "monitoring", "cn=Monitor has an entry for every database");
        }
        Ok(())
    }),
    Directive::new("multiprovider", "olcMultiProvider", Scope::Database, Form::Switch, |b, c| {
        b.open_database()?.multi_provider = c.switch()?;
        Ok(())
    })
    .alias(&["mirrormode"])
    .attribute_alias(&["olcMirrorMode"]),
    Directive::new("syncrepl", "olcSyncrepl", Scope::Database, Form::Words, sync_replication).ordered(),
    Directive::new("sync_use_subentry", "olcSyncUseSubentry", Scope::Database, Form::Switch, |b, c| {
        let on = c.switch()?;
        b.open_database()?;
        if on {
            b.note_without_effect(c, "sync_use_subentry", "contextCSN is shown on the entry of the suffix");
        }
        Ok(())
    })
    .arguments(0, 1),
    Directive::new("updatedn", "olcUpdateDN", Scope::Database, Form::Dn, |b, c| {
        let dn = c.dn(&b.schema(), 0)?;
        b.open_database()?.update_dn = Some(dn);
        Ok(())
    }),
    Directive::new("updateref", "olcUpdateRef", Scope::Database, Form::Whole, |b, c| {
        let url = referral(c)?;
        b.open_database()?.update_refs.push(url);
        Ok(())
    })
    .many(),
    Directive::kept("extra_attrs", "olcExtraAttrs", Scope::Database, Form::Each)
        .many()
        .noted("access rules and overlays see the whole entry, whatever a search asks for"),
    Directive::kept("replica", "olcReplica", Scope::Database, Form::Words).ordered().noted(OBSOLETE),
    Directive::kept("replogfile", "olcReplogFile", Scope::Shared, Form::Whole).noted(OBSOLETE),
    Directive::kept("replica-argsfile", "olcReplicaArgsFile", Scope::Shared, Form::Whole).noted(OBSOLETE),
    Directive::kept("replica-pidfile", "olcReplicaPidFile", Scope::Shared, Form::Whole).noted(OBSOLETE),
    Directive::kept("replicationInterval", "olcReplicationInterval", Scope::Shared, Form::Whole)
        .noted(OBSOLETE),
    Directive::kept("plugin", "olcPlugin", Scope::Shared, Form::Words)
        .ordered()
        .noted("there are no SLAPI plugins"),
];

fn suffix(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let dn = call.dn(&builder.schema(), 0)?;
    let database = builder.open_database()?;
    if database.kind.own_suffix().is_some() {
        return Err(Fault::keyword(format!("the {} database has its own suffix", database.kind.name())));
    }
    database.suffixes.push(dn);
    Ok(())
}

fn subordinate(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let how = match call.arguments.first() {
        None => Subordinate::Glued,
        Some(word) if word.eq_ignore_ascii_case("advertise") => Subordinate::Advertised,
        Some(word) if word.eq_ignore_ascii_case("true") => Subordinate::Glued,
        Some(word) => return Err(Fault::argument(0, format!("`{word}`: say nothing, TRUE or advertise"))),
    };
    let database = builder.open_database()?;
    if database.suffixes.is_empty() {
        return Err(
            Fault::keyword("a subordinate database needs a suffix").with_help("put `suffix` before it")
        );
    }
    database.subordinate = Some(how);
    let value = if how == Subordinate::Glued { "TRUE" } else { "advertise" };
    database.settings.set("olcSubordinate", value.as_bytes().to_vec());
    Ok(())
}

fn limits(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let subject = LimitSubject::parse(&builder.schema(), call.argument(0)?).map_err(|message| {
        Fault::argument(0, message)
            .with_help("*, anonymous, users, dn[.style]=<pattern> or group[/class[/attribute]]=<dn>")
    })?;
    if let LimitSubject::Group { class, attribute, .. } = &subject {
        defined(builder, class, attribute)?;
    }
    let is_same = |rule: &LimitRule| {
        use LimitSubject::{Anonymous, Any, Users};
        matches!((&rule.subject, &subject), (Any, Any) | (Anonymous, Anonymous) | (Users, Users))
    };
    if builder.open_database()?.shared.limits.iter().any(is_same) {
        let message = format!("`{}` has limits already, and the first line holds", call.argument(0)?);
        return Err(Fault::argument(0, message).with_help("put all of them into one line"));
    }
    let mut limits = builder.shared().search_limits;
    for (number, word) in call.arguments.iter().enumerate().skip(1) {
        limits.apply_word(word).map_err(|message| Fault::argument(number, message))?;
    }
    limits.settle();
    builder.open_database()?.shared.limits.push(LimitRule { subject, limits });
    Ok(())
}

/// A group of a class or by an attribute that there is not has no members.
fn defined(builder: &mut Builder, class: &str, attribute: &str) -> Result<(), Fault> {
    if builder.schema_comes() {
        return Ok(());
    }
    let schema = builder.schema();
    let (what, name) = match (schema.object_class_id(class), schema.attribute_type_id(attribute)) {
        (None, _) => ("object class", class),
        (_, None) => ("attribute type", attribute),
        _ => return Ok(()),
    };
    let missing = format!("{what} `{name}` is not defined");
    Err(Fault::argument(0, missing).with_help(remedy(&schema, name)))
}

fn sync_replication(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let schema_comes = builder.schema_comes();
    let line = SyncReplication::parse(&builder.schema(), call.arguments, schema_comes).map_err(|fault| {
        let SyncFault { at, message, help } = fault;
        let fault = match at {
            Some(number) => Fault::argument(number, message),
            None => Fault::keyword(message),
        };
        match help {
            Some(help) => fault.with_help(help),
            None => fault,
        }
    })?;
    let database = builder.open_database()?;
    let local_base = line.local_base();
    let is_within_suffix = match database.kind.own_suffix_normal() {
        Some(suffix) => local_base.normal.is_within(&suffix),
        None => database.suffixes.iter().any(|suffix| local_base.normal.is_within(&suffix.normal)),
    };
    if !is_within_suffix {
        let (key, base) = match &line.suffix_massage {
            Some(base) => ("suffixmassage", base),
            None => ("searchbase", &line.base),
        };
        return Err(Fault::keyword(format!(
            "syncrepl: {key}={base} is not within the suffix of this database"
        ))
        .with_help("put `suffix` before it, or say with suffixmassage= where the entries go"));
    }
    database.sync_replication.push(line);
    Ok(())
}

/// `access to ...`: of the open database, else of the frontend.
pub(super) fn access(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let rule = AccessRule::parse_quoted(call.text, call.quoting).map_err(|error| {
        let fault = Fault::text(error.column.saturating_sub(1), error.fault.to_string());
        match error.mend() {
            Some(mend) => fault.with_help(mend),
            None => fault,
        }
    })?;
    let value = rule.to_string().into_bytes();
    let line = AccessLine { rule, origin: call.origin.clone() };
    match builder.section {
        Section::Database(_) => builder.open_database()?.access.push(line),
        _ => builder.frontend.access.push(line),
    }
    builder.settings(call.directive).add(call.directive.attribute, value);
    Ok(())
}

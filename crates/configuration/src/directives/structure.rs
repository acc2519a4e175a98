//! Directives that start a section, name modules or define schema.

use super::super::builder::call::{Call, Fault};
use super::super::builder::{Builder, Section};
use super::super::kinds::{DatabaseKind, served_kinds};
use super::super::model::Overlay;
use super::super::settings::Settings;
use super::{Directive, Form, Scope, overlay_kind, overlay_suggestion};

/// A keyword of `backend harness`.
const fn harness(
    keyword: &'static str,
    attribute: &'static str,
    apply: super::super::builder::directive::Apply,
) -> Directive {
    Directive::new(keyword, attribute, Scope::Backend, Form::Whole, apply)
}

pub(super) static TABLE: &[Directive] = &[
    // Read by the parser of slapd.conf itself, which knows the files.
    Directive::kept("include", "olcInclude", Scope::Structure, Form::Whole).many(),
    // Our own: a schema that comes with the server, by name. It becomes an entry, as an included file does.
    Directive::new("schema", "", Scope::Structure, Form::Each, schema),
    // Our own: the name of the entry that the definitions behind it come into.
    Directive::new("schema-section", "", Scope::Structure, Form::Whole, schema_section),
    Directive::new("backend", "olcBackend", Scope::Structure, Form::Whole, backend),
    Directive::new("database", "olcDatabase", Scope::Structure, Form::Whole, database),
    Directive::new("overlay", "olcOverlay", Scope::Structure, Form::Whole, overlay),
    Directive::kept("modulepath", "olcModulePath", Scope::Module, Form::Whole)
        .noted("everything is built in"),
    Directive::new("moduleload", "olcModuleLoad", Scope::Module, Form::Words, module).ordered(),
    Directive::new("objectidentifier", "olcObjectIdentifier", Scope::Schema, Form::Words, define)
        .arguments(2, 2)
        .ordered(),
    Directive::new("ldapsyntax", "olcLdapSyntaxes", Scope::Schema, Form::Rest, define).ordered(),
    Directive::new("attributetype", "olcAttributeTypes", Scope::Schema, Form::Rest, define)
        .prefix(9)
        .ordered(),
    Directive::new("objectclass", "olcObjectClasses", Scope::Schema, Form::Rest, define).ordered(),
    // The program that starts the server for a test and waits for it (OpenLDAP's `mod_harness`).
    harness("host", "olcBkHarnessHost", |b, c| {
        b.harness()?.host = c.argument(0)?.to_owned();
        Ok(())
    }),
    harness("port", "olcBkHarnessPort", |b, c| {
        b.harness()?.port = c.positive(0)?;
        Ok(())
    }),
    harness("identifier", "olcBkHarnessIdentifier", |b, c| {
        b.harness()?.identifier = c.argument(0)?.to_owned();
        Ok(())
    }),
    Directive::new("ditcontentrule", "olcDitContentRules", Scope::Schema, Form::Rest, define).ordered(),
];

fn schema(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    for (number, name) in call.arguments.iter().enumerate() {
        if !larix_schema::BUNDLED.contains(&name.as_str()) {
            return Err(Fault::argument(number, format!("no schema `{name}` comes with the server"))
                .with_help(format!("one of {}, or `include` a file", larix_schema::BUNDLED.join(", "))));
        }
        builder.bundled(name).map_err(|error| {
            let fault = Fault::argument(number, &*error.message);
            Fault { help: error.help.clone(), ..fault }
        })?;
    }
    Ok(())
}

fn schema_section(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let name = call.argument(0)?;
    let is_usual = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.');
    if name.is_empty() || name.trim() != name || !name.chars().all(is_usual) {
        return Err(Fault::argument(0, format!("`{name}` cannot be the name of a section of the schema"))
            .with_help("letters, digits, `-`, `_`, `.` and blanks within it"));
    }
    builder.begin_section(name);
    Ok(())
}

fn backend(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    if matches!(builder.section, Section::Database(_)) && !builder.from_entries {
        return Err(Fault::keyword("must come before the first database").with_help("move it up"));
    }
    let name = call.argument(0)?;
    if DatabaseKind::named(name).is_none() && !matches!(name, "lload" | "frontend" | "harness") {
        return Err(unknown_kind(name));
    }
    builder.open_backend(name);
    Ok(())
}

fn database(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let name = call.argument(0)?;
    if name.eq_ignore_ascii_case("frontend") {
        builder.section = Section::Frontend;
        return Ok(());
    }
    let Some(kind) = DatabaseKind::named(name) else { return Err(unknown_kind(name)) };
    if kind.own_suffix().is_some() {
        let same = |database: &&super::super::model::Database| database.kind.name() == kind.name();
        if let Some(first) = builder.databases.iter().find(same) {
            return Err(Fault::argument(0, format!("there can be only one {} database", kind.name()))
                .with_help(format!("the first is at {}", first.origin)));
        }
    }
    if !name.eq_ignore_ascii_case(kind.name()) {
        builder.notes.push(call.origin.clone(), format!("`database {name}` is served as {}", kind.name()));
    }
    builder.define_unless_known(kind.descriptor().schema)?;
    builder.start_database(kind, call.origin.clone());
    Ok(())
}

fn unknown_kind(name: &str) -> Fault {
    if cfg!(not(feature = "kv")) && name.eq_ignore_ascii_case("kv") {
        return Fault::argument(0, "this program was built without `database kv`")
            .with_help("build it with `--features postgresql,etcd`, or take a packaged one: they have it");
    }
    Fault::argument(0, format!("no database kind `{name}`"))
        .with_help(format!("{} or frontend", served_kinds().join(", ")))
}

fn overlay(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    // A leading `-` makes an overlay optional.
    let name = call.argument(0)?;
    let bare = name.strip_prefix('-').unwrap_or(name);
    let Some(kind) = overlay_kind(bare) else {
        let fault = Fault::argument(0, format!("no overlay `{bare}`"));
        return Err(match overlay_suggestion(bare) {
            Some(known) => fault.with_help(format!("did you mean `{known}`?")),
            None => fault,
        });
    };
    let overlay = Overlay {
        name: kind.name.to_owned(),
        disabled: false,
        origin: call.origin.clone(),
        settings: Settings::default(),
        lines: Vec::new(),
        below: Vec::new(),
    };
    let present = match builder.section {
        Section::Database(_) => builder.open_database()?.overlays.as_slice(),
        _ => builder.frontend.overlays.as_slice(),
    };
    if kind.once && present.iter().any(|other| other.name == kind.name) {
        return Err(Fault::argument(0, format!("overlay \"{}\" already in list", kind.name))
            .with_help("a database has one of it: set what is there"));
    }
    if let Some(descriptor) = kind.descriptor {
        builder.define_for(descriptor)?;
    }
    if let Some(why) = kind.noted() {
        builder.notes.push(call.origin.clone(), format!("`overlay {}`: {why}", kind.name));
    }
    match builder.section {
        Section::Database(_) => builder.open_database()?.overlays.push(overlay),
        _ => builder.frontend.overlays.push(overlay),
    }
    Ok(())
}

/// Names of modules that ship with OpenLDAP and stand for nothing more than a database kind or an overlay.
fn module(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let file = call.argument(0)?;
    let name = module_name(file);
    let known = match name.strip_prefix("back_") {
        Some(kind) => DatabaseKind::named(kind).is_some(),
        None => {
            overlay_kind(name).is_some()
                || matches!(
                    name,
                    "argon2"
                        | "pw-sha2"
                        | "pw-pbkdf2"
                        | "pw-apr1"
                        | "pw-netscape"
                        | "pw-argon2"
                        | "pw-totp"
                        | "lload"
                        | "lloadd"
                        | "mod_harness"
                        | "proxyOld"
                )
        }
    };
    if let Some(descriptor) = overlay_kind(name).and_then(|kind| kind.descriptor) {
        builder.define_for_module(descriptor, call.origin);
        if !descriptor.schema.is_empty() {
            // Its definitions are there without the overlay, too.
            return Ok(());
        }
    }
    // The modules' own arguments: what a new value costs.
    if name == "argon2" || name == "pw-argon2" {
        builder.frontend.password_costs.read(call, 1)?;
    } else if let ("pw-pbkdf2", Some(_)) = (name, call.arguments.get(1)) {
        builder.frontend.password_costs.pbkdf2_rounds = call.positive(1)?;
    }
    if name == "vc" {
        builder.global.verify_credentials = true;
        return Ok(());
    }
    let text = if known {
        format!("`moduleload {name}` has no effect: what is supported of it is built in")
    } else {
        format!("`moduleload {name}`: no such module is known, nothing of it works here")
    };
    builder.notes.push(call.origin.clone(), text);
    Ok(())
}

/// The overlay whose definitions a module brings.
pub(in super::super) fn defining_module(file: &str) -> Option<&'static str> {
    super::defining_overlay(module_name(file))
}

/// The name of a module without its folder, its ending and the versions of its file: `refint` of
/// `/usr/lib/ldap/refint-2.4.so.2.10.8`.
fn module_name(file: &str) -> &str {
    let is_version = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = match name.rsplit_once(".so") {
        Some((before, after)) if after.is_empty() || after.strip_prefix('.').is_some_and(is_version) => {
            before
        }
        _ => name.strip_suffix(".la").unwrap_or(name),
    };
    match name.rsplit_once('-') {
        Some((before, version)) if is_version(version) => before,
        _ => name,
    }
}

fn define(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    if call.directive.form == Form::Rest && !call.text.starts_with('(') {
        return Err(Fault::argument(0, "a definition starts with `(`"));
    }
    builder.define(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_names_without_versions() {
        for (file, name) in [
            ("refint", "refint"),
            ("refint.la", "refint"),
            ("back_mdb.so", "back_mdb"),
            ("/usr/lib64/openldap/refint-2.4.so.2.10.8", "refint"),
            ("back_hdb-2.4.so.2", "back_hdb"),
            ("pw-sha2.so.0.0.0", "pw-sha2"),
            ("pw-sha2-2.5.la", "pw-sha2"),
            ("pw-pbkdf2", "pw-pbkdf2"),
            ("check.soap", "check.soap"),
        ] {
            assert_eq!(module_name(file), name, "{file}");
        }
    }
}

//! The directives of `overlay smbk5pwd`.

use std::sync::Arc;

use larix_engine::overlay::descriptor::WordFault;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_schema::{ObjectClassId, Schema};

use super::{CAN_CHANGE, LAST_CHANGE, LAST_SET, MUST_CHANGE, NT_HASH, PasswordSync, Samba};

const ENABLE: &str = "olcSmbK5PwdEnable";
const NAMES: [&str; 2] = ["samba", "shadow"];

/// A module is known.
pub(super) fn check_modules(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    for (at, word) in words.iter().enumerate() {
        if word.eq_ignore_ascii_case("krb5") {
            let fault = WordFault::new(at, "\"krb5\": Larix makes no Kerberos keys");
            return Err(fault.with_help("leave it out, and have the KDC's own tools change its keys"));
        }
        if !NAMES.iter().any(|name| name.eq_ignore_ascii_case(word)) {
            let fault = WordFault::new(at, format!("\"{word}\" is no module of smbk5pwd"));
            return Err(fault.with_help("write samba or shadow"));
        }
    }
    Ok(())
}

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let modules: Vec<String> = settings.words(ENABLE).map(str::to_owned).collect();
    check_modules(schema, &modules).map_err(|fault| fault.of_setting("smbk5pwd-enable", &modules))?;
    let names = |name: &str| modules.iter().any(|module| module.eq_ignore_ascii_case(name));
    let is_default = modules.is_empty();
    let seconds = |keyword, attribute| {
        let number = settings.number::<u32>(keyword, attribute);
        number.map_err(|error| error.with_help("write seconds; 0 for none"))
    };
    let must_change = seconds("smbk5pwd-must-change", "olcSmbK5PwdMustChange")?;
    let can_change = seconds("smbk5pwd-can-change", "olcSmbK5PwdCanChange")?;
    let samba = match is_default || names("samba") {
        true => {
            let attributes = [NT_HASH, LAST_SET, MUST_CHANGE, CAN_CHANGE];
            let class = class_of(schema, "sambaSamAccount", &attributes, "samba.schema")?;
            let (must_change, can_change) = (must_change.unwrap_or(0), can_change.unwrap_or(0));
            Some(Samba { class, must_change, can_change })
        }
        false => None,
    };
    // Without a word about modules, as many as the schema has, but Samba's.
    let is_shadow = names("shadow") || is_default && schema.object_class_id("shadowAccount").is_some();
    let shadow = match is_shadow {
        true => Some(class_of(schema, "shadowAccount", &[LAST_CHANGE], "nis.schema")?),
        false => None,
    };
    let given = [("smbk5pwd-must-change", must_change), ("smbk5pwd-can-change", can_change)];
    let idle = given.iter().filter(|(_, seconds)| samba.is_none() && seconds.is_some());
    let idle = idle.map(|(keyword, _)| *keyword).collect();
    let described = |name| described(schema, "overlay smbk5pwd", name);
    Ok(Arc::new(PasswordSync {
        password: described("userPassword")?,
        object_class: described("objectClass")?,
        samba,
        shadow,
        idle,
    }))
}

/// The class whose entries have these attributes.
fn class_of(
    schema: &Schema,
    class: &str,
    attributes: &[&str],
    file: &str,
) -> Result<ObjectClassId, SettingError> {
    let help = format!("include {file}, or leave the module out of `smbk5pwd-enable`");
    for name in attributes {
        described(schema, "overlay smbk5pwd", name).map_err(|error| error.with_help(help.clone()))?;
    }
    schema.object_class_id(class).ok_or_else(|| {
        let error = SettingError::new(format!("overlay smbk5pwd: the object class {class} is unknown"));
        error.with_help(help).awaiting_schema()
    })
}

//! The directives of `overlay smbk5pwd`.

use std::path::Path;
use std::sync::Arc;

use larix_engine::overlay::descriptor::WordFault;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_schema::{ObjectClassId, Schema};

use super::kerberos::{self, EncryptionType, Kerberos, MasterKey};
use super::{CAN_CHANGE, LAST_CHANGE, LAST_SET, MUST_CHANGE, NT_HASH, PasswordSync, Samba};

const ENABLE: &str = "olcSmbK5PwdEnable";
const STASH: &str = "olcLarixSmbK5PwdStash";
const ENCRYPTION_TYPES: &str = "olcLarixSmbK5PwdEnctypes";
const NAMES: [&str; 3] = ["samba", "shadow", "krb5"];

/// A module is known.
pub(super) fn check_modules(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    for (at, word) in words.iter().enumerate() {
        if !NAMES.iter().any(|name| name.eq_ignore_ascii_case(word)) {
            let fault = WordFault::new(at, format!("\"{word}\" is no module of smbk5pwd"));
            return Err(fault.with_help("write samba, shadow or krb5"));
        }
    }
    Ok(())
}

/// An encryption type is known.
pub(super) fn check_encryption_types(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    let unknown = words.iter().position(|word| EncryptionType::named(word).is_none());
    let Some((at, word)) = unknown.and_then(|at| Some((at, words.get(at)?))) else { return Ok(()) };
    let fault = WordFault::new(at, format!("\"{word}\": Larix makes no keys of this encryption type"));
    Err(fault.with_help(
        "write aes256-cts-hmac-sha1-96, aes128-cts-hmac-sha1-96, aes256-cts-hmac-sha384-192 or aes128-cts-hmac-sha256-128",
    ))
}

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let modules: Vec<String> = settings.words(ENABLE).map(str::to_owned).collect();
    check_modules(schema, &modules).map_err(|fault| fault.of_setting("smbk5pwd-enable", &modules))?;
    let words: Vec<String> = settings.words(ENCRYPTION_TYPES).map(str::to_owned).collect();
    check_encryption_types(schema, &words)
        .map_err(|fault| fault.of_setting("smbk5pwd-krb5-enctypes", &words))?;
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
    let is_kerberos = names("krb5") || is_default && settings.text(STASH).is_some();
    let kerberos = is_kerberos.then(|| kerberos(settings, schema)).transpose()?;
    let (is_samba, is_kerberos) = (samba.is_some(), kerberos.is_some());
    let idle = [
        ("smbk5pwd-must-change", "samba", must_change.is_some() && !is_samba),
        ("smbk5pwd-can-change", "samba", can_change.is_some() && !is_samba),
        ("smbk5pwd-krb5-stash", "krb5", settings.text(STASH).is_some() && !is_kerberos),
        ("smbk5pwd-krb5-enctypes", "krb5", settings.words(ENCRYPTION_TYPES).next().is_some() && !is_kerberos),
    ];
    let idle = idle.into_iter().filter(|(.., is_idle)| *is_idle);
    let idle = idle.map(|(keyword, module, _)| (keyword, module)).collect();
    let described = |name| described(schema, "overlay smbk5pwd", name);
    Ok(Arc::new(PasswordSync {
        password: described("userPassword")?,
        object_class: described("objectClass")?,
        samba,
        shadow,
        kerberos,
        idle,
    }))
}

fn kerberos(settings: &Settings, schema: &Schema) -> Result<Kerberos, SettingError> {
    let attributes = [
        kerberos::KEYS,
        kerberos::PRINCIPAL,
        kerberos::CANONICAL,
        kerberos::LAST_CHANGE,
        kerberos::EXPIRATION,
        kerberos::FLAGS,
        kerberos::FAILURES,
        kerberos::POLICY,
        kerberos::POLICY_LIFE,
    ];
    let class = class_of(schema, "krbPrincipalAux", &attributes, "kerberos.schema")?;
    let path = settings.text(STASH).ok_or_else(|| {
        SettingError::new("smbk5pwd-enable krb5: where the stash of the KDC's master key is, is not said")
            .with_help("add `smbk5pwd-krb5-stash FILE` with the file that `kdb5_ldap_util create -s` wrote")
    })?;
    let master = MasterKey::read(Path::new(path)).map_err(|fault| {
        SettingError::new(format!("smbk5pwd-krb5-stash \"{path}\": {fault}")).with_help(
            "name the file that `kdb5_ldap_util create -s` wrote, and let the server's user read it",
        )
    })?;
    let words = settings.words(ENCRYPTION_TYPES);
    let mut kinds: Vec<EncryptionType> = words.filter_map(EncryptionType::named).collect();
    if kinds.is_empty() {
        kinds = EncryptionType::USUAL.to_vec();
    }
    Ok(Kerberos { class, master, kinds })
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

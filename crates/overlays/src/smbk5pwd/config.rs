//! The directives of `overlay smbk5pwd`.

use std::path::Path;
use std::sync::Arc;

use larix_engine::overlay::descriptor::WordFault;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_schema::{ObjectClassId, Schema};

use super::kerberos::{EncryptionType, Heimdal, MasterKeys, Mit, heimdal_names, names};
use super::{CAN_CHANGE, LAST_CHANGE, LAST_SET, MUST_CHANGE, NT_HASH, PasswordSync, Samba};

const ENABLE: &str = "olcSmbK5PwdEnable";
const STASH: &str = "olcLarixSmbK5PwdStash";
const HEIMDAL_KEY: &str = "olcLarixSmbK5PwdHeimdalMkey";
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
    let is_named = |name: &str| modules.iter().any(|module| module.eq_ignore_ascii_case(name));
    let is_default = modules.is_empty();
    let seconds = |keyword, attribute| {
        let number = settings.number::<u32>(keyword, attribute);
        number.map_err(|error| error.with_help("write seconds; 0 for none"))
    };
    let must_change = seconds("smbk5pwd-must-change", "olcSmbK5PwdMustChange")?;
    let can_change = seconds("smbk5pwd-can-change", "olcSmbK5PwdCanChange")?;
    let samba = match is_default || is_named("samba") {
        true => {
            let attributes = [NT_HASH, LAST_SET, MUST_CHANGE, CAN_CHANGE];
            let class = class_of(schema, "sambaSamAccount", &attributes, "`schema samba`")?;
            let (must_change, can_change) = (must_change.unwrap_or(0), can_change.unwrap_or(0));
            Some(Samba { class, must_change, can_change })
        }
        false => None,
    };
    // Without a word about modules, as many as the schema has, but Samba's.
    let is_shadow = is_named("shadow") || is_default && schema.object_class_id("shadowAccount").is_some();
    let shadow = match is_shadow {
        true => Some(class_of(schema, "shadowAccount", &[LAST_CHANGE], "`schema nis`")?),
        false => None,
    };
    let (stash, heimdal_key) = (settings.text(STASH), settings.text(HEIMDAL_KEY));
    let is_kerberos = is_named("krb5") || is_default && (stash.is_some() || heimdal_key.is_some());
    // Without a stash there are Heimdal's principals alone, if the schema has them.
    let knows_heimdal = heimdal_key.is_some() || schema.object_class_id("krb5KDCEntry").is_some();
    let mit = (is_kerberos && (stash.is_some() || !knows_heimdal)).then(|| mit(settings, schema));
    let heimdal = (is_kerberos && knows_heimdal).then(|| heimdal(settings, schema));
    let (mit, heimdal, is_samba) = (mit.transpose()?, heimdal.transpose()?, samba.is_some());
    let idle = [
        ("smbk5pwd-must-change", "samba", must_change.is_some() && !is_samba),
        ("smbk5pwd-can-change", "samba", can_change.is_some() && !is_samba),
        ("smbk5pwd-krb5-stash", "krb5", stash.is_some() && !is_kerberos),
        ("smbk5pwd-heimdal-mkey", "krb5", heimdal_key.is_some() && !is_kerberos),
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
        mit,
        heimdal,
        idle,
    }))
}

fn mit(settings: &Settings, schema: &Schema) -> Result<Mit, SettingError> {
    let class = class_of(schema, "krbPrincipalAux", &names::ALL, "`schema kerberos`")?;
    let path = settings.text(STASH).ok_or_else(|| {
        SettingError::new("smbk5pwd-enable krb5: where the stash of the KDC's master key is, is not said")
            .with_help(
                "add `smbk5pwd-krb5-stash FILE` with the file that `kdb5_ldap_util create -s` wrote, or for Heimdal's KDC \
                 include its hdb.schema",
            )
    })?;
    let masters = MasterKeys::read(Path::new(path)).map_err(|fault| {
        SettingError::new(format!("smbk5pwd-krb5-stash \"{path}\": {fault}")).with_help(
            "name the file that `kdb5_ldap_util create -s` wrote, and let the server's user read it",
        )
    })?;
    let principal_name = described(schema, "overlay smbk5pwd", names::PRINCIPAL)?;
    Ok(Mit { class, masters, kinds: kinds(settings), principal_name })
}

fn heimdal(settings: &Settings, schema: &Schema) -> Result<Heimdal, SettingError> {
    let class =
        class_of(schema, "krb5KDCEntry", &heimdal_names::ALL, "`include` with the path of hdb.schema")?;
    let read = |path: &str| {
        MasterKeys::read(Path::new(path)).map_err(|fault| {
            let error = SettingError::new(format!("smbk5pwd-heimdal-mkey \"{path}\": {fault}"));
            error.with_help(
                "name the file that `kstash -e aes256-cts-hmac-sha1-96` wrote, and let the server's user read it; without this \
                 line keys are stored as they are, and the KDC reads them, too",
            )
        })
    };
    let masters = settings.text(HEIMDAL_KEY).map(read).transpose()?;
    Ok(Heimdal { class, masters, kinds: kinds(settings) })
}

/// Which keys to make.
fn kinds(settings: &Settings) -> Vec<EncryptionType> {
    let kinds: Vec<_> = settings.words(ENCRYPTION_TYPES).filter_map(EncryptionType::named).collect();
    if kinds.is_empty() { EncryptionType::USUAL.to_vec() } else { kinds }
}

/// The class whose entries have these attributes.
fn class_of(
    schema: &Schema,
    class: &str,
    attributes: &[&str],
    source: &str,
) -> Result<ObjectClassId, SettingError> {
    let help = format!("write {source} before it, or leave the module out of `smbk5pwd-enable`");
    for name in attributes {
        described(schema, "overlay smbk5pwd", name).map_err(|error| error.with_help(help.clone()))?;
    }
    schema.object_class_id(class).ok_or_else(|| {
        let error = SettingError::new(format!("overlay smbk5pwd: the object class {class} is unknown"));
        error.with_help(help).awaiting_schema()
    })
}

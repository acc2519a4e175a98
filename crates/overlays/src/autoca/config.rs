//! The directives of `overlay autoca`.

use std::sync::Arc;

use larix_backend::Interceptor;
use larix_engine::overlay::settings::{SettingError, Settings, ShownDn, described};
use larix_engine::overlay::{BuildContext, Overlay, WordFault};
use larix_schema::{ObjectClassId, Schema};

use super::issue::Issuer;
use super::{AutoCa, Rules};

/// Days that a certificate may be valid: 100 years.
const DAYS_MAX: u32 = 36_525;
/// OpenLDAP's days.
const USER_DAYS: u32 = 365;
const SERVER_DAYS: u32 = 1_826;
const AUTHORITY_DAYS: u32 = 3_652;
/// OpenLDAP's least bits of a key.
const BITS_MIN: u32 = 512;

pub(super) const BITS_NOTE: &str = "keys are made on the curve P-256, whatever number of bits is asked for";

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(AutoCa::new(rules(settings, context)?)))
}

/// What stands in front of the database.
///
/// # Errors
/// As for the overlay of the database.
pub fn intercept(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Interceptor>, SettingError> {
    Ok(Arc::new(Issuer::new(rules(settings, context)?)))
}

fn rules(settings: &Settings, context: &BuildContext<'_>) -> Result<Rules, SettingError> {
    let schema = context.schema;
    let class =
        |keyword: &str, attribute: &str, default: &str| -> Result<Option<ObjectClassId>, SettingError> {
            let Some(name) = settings.text(attribute) else { return Ok(schema.object_class_id(default)) };
            check_class(schema, &[name.to_owned()])
                .map_err(|fault| fault.of_setting(keyword, &[name.to_owned()]))?;
            Ok(schema.object_class_id(name))
        };
    let days = |keyword: &str, attribute: &str, default: u32| -> Result<u32, SettingError> {
        let days = settings.number::<u32>(keyword, attribute)?.unwrap_or(default);
        check_days(schema, &[days.to_string()])
            .map_err(|fault| fault.of_setting(keyword, &[days.to_string()]))?;
        Ok(days)
    };
    let root = context.root_dn.ok_or_else(|| {
        let error =
            SettingError::new("overlay autoca: the database has no root DN, as which keys are stored");
        error.with_help("write a rootdn line for it")
    })?;
    let local = settings.dn(schema, "localDN", "olcAutoCAlocalDN")?;
    let is_here = |dn: &ShownDn| context.suffixes.iter().any(|suffix| dn.normal.is_within(suffix));
    if let Some(strange) = local.as_ref().filter(|dn| !is_here(dn)) {
        let error = SettingError::new(format!("localDN \"{}\" is not in this database", strange.text));
        return Err(error.with_help("name the server's entry, below the suffix").awaiting_schema());
    }
    let described = |name| described(schema, "overlay autoca", name);
    Ok(Rules {
        schema: Arc::clone(schema),
        suffix: context.suffixes.first().cloned().unwrap_or_else(larix_schema::NormalDn::root),
        shown_suffix: context.shown_suffix.to_owned(),
        root_dn: (root.0.clone(), root.1.to_owned()),
        user_class: class("userClass", "olcAutoCAuserClass", "person")?,
        server_class: class("serverClass", "olcAutoCAserverClass", "ipHost")?,
        user_days: days("userDays", "olcAutoCAuserDays", USER_DAYS)?,
        server_days: days("serverDays", "olcAutoCAserverDays", SERVER_DAYS)?,
        authority_days: days("caDays", "olcAutoCADays", AUTHORITY_DAYS)?,
        local: local.map(|dn| dn.normal),
        object_class: described("objectClass")?,
        authority_certificate: described("cACertificate;binary")?,
        authority_key: described("cAPrivateKey;binary")?,
        certificate: described("userCertificate;binary")?,
        key: described("userPrivateKey;binary")?,
        common_name: described("cn")?,
        mail: schema.describe("mail").ok(),
        address: schema.describe("ipHostNumber").ok(),
    })
}

pub(super) fn check_class(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    match words.first().map(|name| schema.object_class_id(name)) {
        Some(None) => {
            let fault = WordFault::new(0, "the schema has no such object class");
            Err(fault.with_help("include its schema first, or name another class, such as person"))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_days(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    check_number(words, 1, DAYS_MAX, "days that certificates are valid")
}

pub(super) fn check_bits(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    check_number(words, BITS_MIN, 65_536, "bits of a key")
}

fn check_number(words: &[String], least: u32, most: u32, what: &str) -> Result<(), WordFault> {
    let Some(text) = words.first() else { return Ok(()) };
    let number = text.trim().parse::<u32>().ok();
    match number.is_some_and(|number| (least..=most).contains(&number)) {
        true => Ok(()),
        false => {
            Err(WordFault::new(0, format!("`{text}` cannot be"))
                .with_help(format!("{least} to {most} {what}")))
        }
    }
}

//! The directives of `overlay retcode`.

use std::sync::Arc;
use std::time::Duration;

use larix_backend::{Delays, Interceptor};
use larix_engine::Entry;
use larix_engine::entry::EntryAttribute;
use larix_engine::overlay::BuildContext;
use larix_engine::overlay::settings::{SettingError, Settings, Value, c_integer};
use larix_proto::ldif;
use larix_proto::{Dn, ResultCode};
use larix_schema::{NormalDn, Schema};

use super::response::{Disconnect, Response, Unsolicited};
use super::{Item, Kind, Names, ReturnCode, Sleep};

/// Builds the overlay from its directives.
///
/// # Errors
/// A value that cannot be understood.
pub fn build(settings: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError> {
    build_with(settings, context, Arc::clone(Delays::of_process()))
}

pub(super) fn build_with(
    settings: &Settings,
    context: &BuildContext<'_>,
    delays: Arc<Delays>,
) -> Result<Arc<dyn Interceptor>, SettingError> {
    let schema = context.schema;
    let parent = match settings.dn(schema, "retcode-parent", "olcRetcodeParent")? {
        Some(parent) => (parent.normal, parent.text),
        None => match context.suffixes.first() {
            Some(suffix) => (suffix.clone(), suffix.as_str().to_owned()),
            None => {
                let error = SettingError::new("overlay retcode: no name for its entries");
                return Err(error.with_help("add `retcode-parent`, or a suffix of the database"));
            }
        },
    };
    let names = Names::new(schema)?;
    let items = settings.values("olcRetcodeItem").map(|value| item(schema, &names, &parent, value));
    let items = items.collect::<Result<Vec<Item>, SettingError>>()?;
    let sleep = settings.number::<i32>("retcode-sleep", "olcRetcodeSleep")?.unwrap_or(0);
    let seconds = Duration::from_secs(sleep.unsigned_abs().into());
    Ok(Arc::new(ReturnCode {
        schema: Arc::clone(schema),
        parent: parent.0,
        parent_text: parent.1,
        items,
        in_directory: settings.is_on("olcRetcodeInDir"),
        sleep: if sleep < 0 { Sleep::UpTo(seconds) } else { Sleep::Exactly(seconds) },
        root_dn: context.root_dn.map(|(normal, _)| normal.clone()),
        names,
        delays,
    }))
}

fn item(
    schema: &Schema,
    names: &Names,
    (parent, parent_text): &(NormalDn, String),
    value: &Value,
) -> Result<Item, SettingError> {
    let fault = |what: String| SettingError::new(format!("retcode-item {}: {what}", value.text));
    let [rdn, code, options @ ..] = value.words.as_slice() else {
        return Err(fault("an RDN and a result code are needed".to_owned()));
    };
    let parsed = Dn::parse(rdn).map_err(|error| fault(format!("\"{rdn}\" is not an RDN: {error}")))?;
    let [only] = parsed.rdns() else { return Err(fault(format!("\"{rdn}\" is not a single RDN"))) };
    let unknown = |error: larix_schema::DnError| {
        SettingError::new(format!("retcode-item {}: {error}", value.text)).awaiting_schema()
    };
    let (normal, pretty) =
        (schema.normalize_rdn(only).map_err(unknown)?, schema.pretty_rdn(only).map_err(unknown)?);
    let code = c_integer(code)
        .and_then(|code| u32::try_from(code).ok())
        .ok_or_else(|| fault(format!("\"{code}\" is not a result code")))?;
    let mut response = Response::from(ResultCode(code));
    let mut kinds: Option<Vec<Kind>> = None;
    for option in options {
        match option.split_once('=').map(|(name, value)| (name.to_ascii_lowercase(), value)) {
            Some((name, list)) if name == "op" => kinds = Some(operations(list).map_err(fault)?),
            Some((name, given)) => {
                set(schema, &mut response, &name, given)
                    .map_err(|what| fault(format!("{option}: {what}")))?;
            }
            None => return Err(fault(format!("unknown option \"{option}\""))),
        }
    }
    let kinds = kinds.unwrap_or_else(|| Kind::ALL.map(|(_, kind)| kind).to_vec());
    let shown = format!("{pretty},{parent_text}");
    let entry = entry(schema, names, (shown, only), (&response, &kinds)).map_err(fault)?;
    Ok(Item { dn: NormalDn::join(&normal, parent), kinds, response, entry })
}

/// The operations of `op=`.
fn operations(list: &str) -> Result<Vec<Kind>, String> {
    let mut kinds = Vec::new();
    for name in list.split(',') {
        match name.to_ascii_lowercase().as_str() {
            "auth" => kinds.push(Kind::Bind),
            "modrdn" => kinds.push(Kind::Rename),
            "read" => kinds.extend([Kind::Compare, Kind::Search]),
            "write" => kinds.extend([Kind::Add, Kind::Delete, Kind::Modify, Kind::Rename]),
            "all" => kinds.extend(Kind::ALL.map(|(_, kind)| kind)),
            name => match Kind::ALL.iter().find(|(known, _)| *known == name) {
                Some((_, kind)) => kinds.push(*kind),
                None => {
                    return Err(format!(
                        "unknown operation \"{name}\": write add, bind, compare, delete, extended, modify, rename, search, \
                         auth, read, write or all"
                    ));
                }
            },
        }
    }
    Ok(kinds)
}

/// Takes one option.
fn set(schema: &Schema, response: &mut Response, name: &str, given: &str) -> Result<(), String> {
    let once = |is_new: bool| if is_new { Ok(()) } else { Err("given twice".to_owned()) };
    match name {
        "text" => {
            once(response.text.is_empty())?;
            given.clone_into(&mut response.text);
        }
        "matched" => {
            once(response.matched.is_empty())?;
            let dn = Dn::parse(given).ok().and_then(|dn| schema.pretty_dn(&dn).ok());
            response.matched = dn.ok_or_else(|| "not a DN".to_owned())?;
        }
        "ref" => {
            once(response.referrals.is_empty())?;
            if response.code != ResultCode::REFERRAL {
                return Err("only a referral (0x0a) has URLs".to_owned());
            }
            response.referrals = given.split_ascii_whitespace().map(str::to_owned).collect();
        }
        "sleeptime" => {
            once(response.sleep.is_zero())?;
            let seconds = given.parse::<u32>().map_err(|_| "not a number of seconds".to_owned())?;
            response.sleep = Duration::from_secs(seconds.into());
        }
        "unsolicited" => {
            once(response.unsolicited.is_none())?;
            response.unsolicited = Some(unsolicited(given)?);
        }
        "flags" => {
            response.disconnect = match given.to_ascii_lowercase().as_str() {
                "disconnect" | "pre-disconnect" => Disconnect::Before,
                "post-disconnect" => Disconnect::After,
                _ => return Err("write disconnect, pre-disconnect or post-disconnect".to_owned()),
            };
        }
        _ => {
            return Err("unknown: write op, text, matched, ref, sleeptime, unsolicited or flags".to_owned());
        }
    }
    Ok(())
}

/// An OID and data as in a line of LDIF: `OID`, `OID:text` or `OID::base64`.
fn unsolicited(given: &str) -> Result<Unsolicited, String> {
    let Some((oid, _)) = given.split_once(':') else {
        return Ok(Unsolicited { oid: given.to_owned(), data: None });
    };
    let line = format!("dn:\n{given}\n");
    let record = ldif::Reader::new(line.as_bytes()).next();
    let data = match record {
        Some(Ok(ldif::Record { body: ldif::Body::Content(attributes), .. })) => {
            attributes.into_iter().flat_map(|attribute| attribute.values).next()
        }
        _ => None,
    };
    match data {
        Some(data) => Ok(Unsolicited { oid: oid.to_owned(), data: Some(data) }),
        None => Err("write an OID, or an OID, a colon and data, or two colons and data in base64".to_owned()),
    }
}

/// The entry that stands for an item.
fn entry(
    schema: &Schema,
    names: &Names,
    (dn, rdn): (String, &larix_proto::dn::Rdn<'_>),
    (response, kinds): (&Response, &[Kind]),
) -> Result<Entry, String> {
    let mut entry = Entry::new(dn);
    let text = |text: &str| text.as_bytes().to_vec();
    let mut add = |description: &larix_schema::AttributeDescription, values: Vec<Vec<u8>>| {
        if !values.is_empty() {
            entry.attributes.push(EntryAttribute::new(description.clone(), values));
        }
    };
    add(&names.object_class, vec![text("errObject"), text("extensibleObject")]);
    for ava in rdn.avas() {
        let description = schema.describe(ava.attribute).map_err(|error| error.to_string())?;
        add(&description, vec![ava.value.to_vec()]);
    }
    add(&names.code, vec![text(&response.code.0.to_string())]);
    add(&names.referral, response.referrals.iter().map(|url| text(url)).collect());
    add(
        &names.text,
        Some(&response.text).filter(|given| !given.is_empty()).map(|given| text(given)).into_iter().collect(),
    );
    add(
        &names.matched,
        Some(&response.matched).filter(|dn| !dn.is_empty()).map(|dn| text(dn)).into_iter().collect(),
    );
    let seconds = response.sleep.as_secs();
    add(&names.sleep, (seconds > 0).then(|| text(&seconds.to_string())).into_iter().collect());
    let operations = Kind::ALL.iter().filter(|(_, kind)| kinds.contains(kind)).map(|(name, _)| text(name));
    add(&names.operation, operations.collect());
    Ok(entry)
}

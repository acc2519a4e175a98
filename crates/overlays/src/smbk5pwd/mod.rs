//! `overlay smbk5pwd` (slapo-smbk5pwd(5) of OpenLDAP's contrib folder): keeps Samba's hash of a password, Kerberos' keys, and the times when
//! it was changed, in step with userPassword.

mod config;
mod kerberos;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::index::Kinds;
use larix_engine::overlay::password_keys::PasswordKeys;
use larix_engine::overlay::{
    Additions, Change, ChangeKind, Descriptor, Interests, Overlay, OverlayDirective, PendingChange,
    PreparedChange, Purpose, Refusal, internal_change,
};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, ObjectClassId, Schema};
use md4::{Digest as _, Md4};
use zeroize::Zeroizing;

use kerberos::{Heimdal, Mit, heimdal_names, names};

const NT_HASH: &str = "sambaNTPassword";
const LAST_SET: &str = "sambaPwdLastSet";
const MUST_CHANGE: &str = "sambaPwdMustChange";
const CAN_CHANGE: &str = "sambaPwdCanChange";
const LAST_CHANGE: &str = "shadowLastChange";

const SECONDS_OF_DAY: i64 = 86_400;

pub static DESCRIPTOR: Descriptor = Descriptor::new("smbk5pwd", "olcSmbK5PwdConfig", config::build)
    .once()
    .secrets(&[NT_HASH, names::KEYS, names::HISTORY, heimdal_names::KEYS])
    .directives(&[
        OverlayDirective::each("smbk5pwd-enable", "olcSmbK5PwdEnable").checked(config::check_modules),
        OverlayDirective::whole("smbk5pwd-must-change", "olcSmbK5PwdMustChange").default("0"),
        OverlayDirective::whole("smbk5pwd-can-change", "olcSmbK5PwdCanChange").default("0"),
        OverlayDirective::whole("smbk5pwd-krb5-stash", "olcLarixSmbK5PwdStash"),
        OverlayDirective::whole("smbk5pwd-heimdal-mkey", "olcLarixSmbK5PwdHeimdalMkey"),
        OverlayDirective::each("smbk5pwd-krb5-enctypes", "olcLarixSmbK5PwdEnctypes")
            .checked(config::check_encryption_types),
    ]);

/// The overlay on one database.
#[derive(Debug)]
struct PasswordSync {
    password: AttributeDescription,
    object_class: AttributeDescription,
    samba: Option<Samba>,
    /// shadowAccount, where `shadow` is on.
    shadow: Option<ObjectClassId>,
    mit: Option<Mit>,
    heimdal: Option<Heimdal>,
    /// Directives that have no effect, and the module that they are for.
    idle: Vec<(&'static str, &'static str)>,
}

/// The account of a change, as the change leaves it.
struct Account<'a> {
    schema: &'a Schema,
    entry: &'a Entry,
    mods: &'a [Change],
}

/// Values that an attribute has from now on; none: it goes.
type Settled = Vec<(&'static str, Vec<Vec<u8>>)>;

/// The module `samba`.
#[derive(Debug)]
struct Samba {
    /// sambaSamAccount.
    class: ObjectClassId,
    /// Seconds until the password must be changed; 0: that is not kept.
    must_change: u32,
    /// Seconds until it may be changed again; 0: that is not kept.
    can_change: u32,
}

impl Overlay for PasswordSync {
    fn name(&self) -> &'static str {
        "smbk5pwd"
    }

    fn interests(&self) -> Interests {
        match self.heimdal {
            Some(_) => Interests::PREPARE | Interests::PASSWORD_KEY,
            None => Interests::PREPARE,
        }
    }

    fn password_keys(&self) -> Option<&dyn PasswordKeys> {
        let heimdal = self.heimdal.as_ref()?;
        Some(heimdal)
    }

    fn notes(&self, _: &Schema) -> Vec<String> {
        let idle = self.idle.iter();
        let note = |(keyword, module): &(&str, &str)| {
            format!("{keyword} has no effect: `smbk5pwd-enable` leaves {module} out")
        };
        idle.map(note).collect()
    }

    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        // The key of the passwords before is that of a principal.
        self.mit.iter().map(|mit| (mit.principal_name.clone(), Kinds::EQUALITY)).collect()
    }

    /// Keys of principals take thousands of rounds.
    fn works_on_passwords(&self) -> bool {
        self.mit.is_some() || self.heimdal.is_some()
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        // The same password under another scheme.
        if change.passwords.purpose == Purpose::Rehash {
            return Ok(Additions::default());
        }
        let altered = match change.operation {
            PreparedChange::Add { dn, entry, mods } => {
                let Some(given) = entry.attribute(&self.password) else { return Ok(Additions::default()) };
                let account = Account { schema: change.schema, entry, mods: &[] };
                let settled = self.settled(change, &given.values, &account)?;
                let mut entry = entry.clone();
                for (name, values) in settled.into_iter().filter(|(_, values)| !values.is_empty()) {
                    let set = internal_change(change.schema, ChangeKind::Replace, name, values)?;
                    if entry.attribute(&set.description).is_none() {
                        entry.attributes.push(EntryAttribute::new(set.description, set.values));
                    }
                }
                PreparedChange::Add { dn: dn.clone(), entry, mods: mods.clone() }
            }
            PreparedChange::Modify { dn, mods } => {
                let gives = |one: &&Change| one.description == self.password && gives(one);
                let Some(given) = mods.iter().rfind(gives) else { return Ok(Additions::default()) };
                let Some(entry) = change.entries.entry(dn)? else { return Ok(Additions::default()) };
                let account = Account { schema: change.schema, entry: &entry, mods };
                let settled = self.settled(change, &given.values, &account)?;
                let mut mods = mods.clone();
                for (name, values) in settled {
                    let set = internal_change(change.schema, ChangeKind::Replace, name, values)?;
                    if !mods.iter().any(|one| one.description == set.description) {
                        mods.push(set);
                    }
                }
                PreparedChange::Modify { dn: dn.clone(), mods }
            }
            _ => return Ok(Additions::default()),
        };
        Ok(Additions { altered: Some(altered), ..Additions::default() })
    }
}

/// Whether a modification stores values.
fn gives(one: &Change) -> bool {
    matches!(one.kind, ChangeKind::Add | ChangeKind::Replace | ChangeKind::SoftAdd) && !one.values.is_empty()
}

impl PasswordSync {
    /// What an account has besides the new password.
    fn settled(
        &self,
        change: &PendingChange<'_>,
        given: &[Vec<u8>],
        account: &Account<'_>,
    ) -> Result<Settled, Refusal> {
        let classes = account.classes(&self.object_class);
        let is_of = |class: ObjectClassId| classes.iter().any(|own| change.schema.is_subclass(*own, class));
        let now = change.now.seconds();
        let mut settled: Settled = Vec::new();
        let samba = self.samba.as_ref().filter(|samba| is_of(samba.class));
        let mit = self.mit.as_ref().filter(|mit| is_of(mit.class));
        let heimdal = self.heimdal.as_ref().filter(|heimdal| is_of(heimdal.class));
        let password = match samba.is_some() || mit.is_some() || heimdal.is_some() {
            true => clear_text(change, given),
            false => None,
        };
        if let Some((samba, password)) = samba.zip(password.as_ref()) {
            settled.push((NT_HASH, vec![nt_hash(password)?.into_bytes()]));
            settled.push((LAST_SET, vec![number(now)]));
            for (name, seconds) in [(MUST_CHANGE, samba.must_change), (CAN_CHANGE, samba.can_change)] {
                if seconds > 0 {
                    settled.push((name, vec![number(now.saturating_add(i64::from(seconds)))]));
                }
            }
        }
        if let Some((mit, password)) = mit.zip(password.as_ref()) {
            settled.extend(mit.settled(change, account, password)?);
        }
        if let Some((heimdal, password)) = heimdal.zip(password.as_ref()) {
            settled.extend(heimdal.settled(change, account, password));
        }
        if self.shadow.is_some_and(is_of) {
            settled.push((LAST_CHANGE, vec![number(now.div_euclid(SECONDS_OF_DAY))]));
        }
        Ok(settled)
    }
}

fn number(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The password that a request stores, unless the request has only a hash of it.
fn clear_text(change: &PendingChange<'_>, given: &[Vec<u8>]) -> Option<Zeroizing<Vec<u8>>> {
    let new_password = change.passwords.new.clone();
    new_password.or_else(|| given.iter().find_map(|value| change.passwords.clear_text_of(value)))
}

impl Account<'_> {
    /// Its values of an attribute.
    fn values(&self, name: &str) -> Vec<Vec<u8>> {
        let Ok(description) = self.schema.describe(name) else { return Vec::new() };
        let mut values = self.entry.values(description.attribute).to_vec();
        for one in self.mods.iter().filter(|one| one.description == description) {
            match one.kind {
                ChangeKind::Add | ChangeKind::SoftAdd => values.extend_from_slice(&one.values),
                ChangeKind::Replace => values.clone_from(&one.values),
                ChangeKind::Delete if one.values.is_empty() => values.clear(),
                ChangeKind::Delete => values.retain(|value| !one.values.contains(value)),
                ChangeKind::Increment => {}
            }
        }
        values
    }

    fn classes(&self, object_class: &AttributeDescription) -> Vec<ObjectClassId> {
        let known = |values: &[Vec<u8>]| -> Vec<ObjectClassId> {
            let names = values.iter().filter_map(|name| std::str::from_utf8(name).ok());
            names.filter_map(|name| self.schema.object_class_id(name)).collect()
        };
        let mut classes = known(self.entry.values(object_class.attribute));
        for one in self.mods.iter().filter(|one| one.description == *object_class) {
            let named = known(&one.values);
            match one.kind {
                ChangeKind::Add | ChangeKind::SoftAdd => classes.extend(named),
                ChangeKind::Replace => classes = named,
                ChangeKind::Delete if one.values.is_empty() => classes.clear(),
                ChangeKind::Delete => classes.retain(|class| !named.contains(class)),
                ChangeKind::Increment => {}
            }
        }
        classes
    }
}

/// Windows' hash of a password: MD4 of its UTF-16, little-endian (MS-NLMP section 3.3.1, NTOWFv1), in hexadecimal digits.
///
/// # Errors
/// constraintViolation for bytes that are no UTF-8.
fn nt_hash(password: &[u8]) -> Result<String, LdapResult> {
    let text = std::str::from_utf8(password).map_err(|_| {
        let text = "the password is not UTF-8, so it has no sambaNTPassword; choose another one";
        LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text)
    })?;
    let mut hash = Md4::new();
    text.encode_utf16().for_each(|unit| hash.update(unit.to_le_bytes()));
    Ok(hash.finalize().iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    }))
}

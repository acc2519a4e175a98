//! `overlay autoca`: an authority that makes keys and certificates for entries (slapo-autoca(5)).
//!
//! The authority's certificate and key are in the suffix entry; where none is, the overlay makes them. A search that asks for
//! userCertificate;binary and userPrivateKey;binary and nothing else makes both for the users and servers that it finds and that have no
//! key. The writer adds a key on the condition that there is none yet, so that two searches at once make one.

mod authority;
mod certificate;
mod config;
mod internal_backend;
mod issue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larix_engine::Entry;
use larix_engine::overlay::committed::{Tick, TickChange, TickChanges, Turn};
use larix_engine::overlay::{Descriptor, Failure, Interests, Overlay, OverlayDirective};
use larix_engine::time::Timestamp;
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::{FilterBuf, LdapResult, ModifyOperation, ResultCode};
use larix_schema::{AttributeDescription, NormalDn, ObjectClassId, Schema};

use authority::{Authority, CertificateRequest, Issued};
use certificate::Purpose;

pub use config::intercept;

pub static DESCRIPTOR: Descriptor = Descriptor::new("autoca", "olcAutoCAConfig", config::build)
    .once()
    .schema(DEFINITIONS)
    .secrets(&["cAPrivateKey", "userPrivateKey"])
    .directives(&[
        OverlayDirective::whole("userClass", "olcAutoCAuserClass").checked(config::check_class),
        OverlayDirective::whole("serverClass", "olcAutoCAserverClass").checked(config::check_class),
        OverlayDirective::whole("userKeybits", "olcAutoCAuserKeybits")
            .checked(config::check_bits)
            .noted(config::BITS_NOTE),
        OverlayDirective::whole("serverKeybits", "olcAutoCAserverKeybits")
            .checked(config::check_bits)
            .noted(config::BITS_NOTE),
        OverlayDirective::whole("caKeybits", "olcAutoCAKeybits")
            .checked(config::check_bits)
            .noted(config::BITS_NOTE),
        OverlayDirective::whole("userDays", "olcAutoCAuserDays").checked(config::check_days),
        OverlayDirective::whole("serverDays", "olcAutoCAserverDays").checked(config::check_days),
        OverlayDirective::whole("caDays", "olcAutoCADays").checked(config::check_days),
        OverlayDirective::whole("localdn", "olcAutoCAlocalDN").with_blanks(),
    ]);

/// OpenLDAP's types and classes below 1.3.6.1.4.1.4203.666.11.11.
const DEFINITIONS: &str = "\
attributetype ( 1.3.6.1.4.1.4203.666.11.11.1.1 NAME 'cAPrivateKey' DESC 'X.509 CA private key, use ;binary' \
    SUP pKCS8PrivateKey )
attributetype ( 1.3.6.1.4.1.4203.666.11.11.1.2 NAME 'userPrivateKey' DESC 'X.509 user private key, use ;binary' \
    SUP pKCS8PrivateKey )
objectclass ( 1.3.6.1.4.1.4203.666.11.11.2.1 NAME 'autoCA' DESC 'Automated PKI certificate authority' SUP pkiCA \
    AUXILIARY MAY cAPrivateKey )
objectclass ( 1.3.6.1.4.1.4203.666.11.11.2.2 NAME 'autoCAuser' DESC 'Automated PKI CA user' SUP pkiUser AUXILIARY \
    MAY userPrivateKey )";

/// True of entries that have no such key yet: what a change that adds one is made under.
const NO_AUTHORITY: &str = "(!(cAPrivateKey=*))";
const NO_KEY: &str = "(!(userPrivateKey=*))";

/// From one look at the suffix entry to the next, until the authority is there.
const INTERVAL: Duration = Duration::from_secs(60);

/// What the directives say, and the attributes that it is about.
#[derive(Debug)]
struct Rules {
    schema: Arc<Schema>,
    suffix: NormalDn,
    shown_suffix: String,
    /// Normal and as configured.
    root_dn: (NormalDn, String),
    /// None: the schema has no such class.
    user_class: Option<ObjectClassId>,
    server_class: Option<ObjectClassId>,
    user_days: u32,
    server_days: u32,
    authority_days: u32,
    /// The entry of this server.
    local: Option<NormalDn>,
    object_class: AttributeDescription,
    authority_certificate: AttributeDescription,
    authority_key: AttributeDescription,
    certificate: AttributeDescription,
    key: AttributeDescription,
    common_name: AttributeDescription,
    /// None: the schema has no such type.
    mail: Option<AttributeDescription>,
    address: Option<AttributeDescription>,
}

/// The overlay as part of the database: it makes the authority.
#[derive(Debug)]
struct AutoCa {
    rules: Rules,
    /// There is an authority, as far as is known.
    is_done: AtomicBool,
}

/// What the suffix entry has of the authority.
#[derive(Debug)]
enum SuffixAuthority {
    /// With its certificate.
    Usable(Box<Authority>, Vec<u8>),
    /// There is none: what stores a new one.
    Made(WriteOperation),
}

impl AutoCa {
    fn new(rules: Rules) -> Self {
        Self { rules, is_done: AtomicBool::new(false) }
    }
}

impl Overlay for AutoCa {
    fn name(&self) -> &'static str {
        "autoca"
    }

    fn interests(&self) -> Interests {
        Interests::TICK
    }

    fn tick(&self) -> Option<&dyn Tick> {
        Some(self)
    }
}

/// The authority is made when the server starts; where the suffix entry comes later, then.
impl Tick for AutoCa {
    fn interval(&self) -> Duration {
        INTERVAL
    }

    fn tick(&self, turn: &Turn<'_>) -> Result<TickChanges, Failure> {
        let rules = &self.rules;
        if self.is_done.load(Ordering::Relaxed) {
            return Ok(TickChanges::default());
        }
        let Some(entry) = turn.entries.entry(&rules.suffix)? else { return Ok(TickChanges::default()) };
        self.is_done.store(true, Ordering::Relaxed);
        match rules.authority(turn.schema, &entry, turn.now) {
            // A key that cannot be used is named to those who ask for a certificate.
            Ok(SuffixAuthority::Usable(..)) => Ok(TickChanges::default()),
            Err(_) if rules.has(&entry, &rules.authority_key) => Ok(TickChanges::default()),
            Err(why) => Err(LdapResult::with(ResultCode::OTHER, format!("autoca: {why}")).into()),
            Ok(SuffixAuthority::Made(operation)) => {
                let only_if = Some(filter(NO_AUTHORITY)?);
                Ok(TickChanges { changes: vec![TickChange { operation, only_if }], more: false })
            }
        }
    }
}

impl Rules {
    /// The authority that the suffix entry has, or a new one.
    ///
    /// # Errors
    /// What it has cannot be used; says why.
    fn authority(&self, schema: &Schema, suffix: &Entry, now: Timestamp) -> Result<SuffixAuthority, String> {
        let value = |description| suffix.attribute(description).and_then(|found| found.values.first());
        match (value(&self.authority_key), value(&self.authority_certificate)) {
            (Some(key), Some(certificate)) => {
                let authority = Authority::read(certificate, key, now)?;
                Ok(SuffixAuthority::Usable(Box::new(authority), certificate.clone()))
            }
            (Some(_), None) => {
                Err("the suffix entry has cAPrivateKey;binary, but no cACertificate;binary".to_owned())
            }
            (None, _) => {
                let (purpose, dn, days) = (&Purpose::Authority, &*self.shown_suffix, self.authority_days);
                let (_, issued) = Authority::make(schema, &CertificateRequest { dn, purpose, now, days })?;
                let class =
                    (!self.is_of(schema, suffix, schema.object_class_id("autoCA"))).then_some("autoCA");
                let names = ("cACertificate;binary", "cAPrivateKey;binary");
                Ok(SuffixAuthority::Made(keeping(self.shown_suffix.clone(), class, names, &issued)))
            }
        }
    }

    /// Whether the entry is of the class, or of one below it.
    fn is_of(&self, schema: &Schema, entry: &Entry, class: Option<ObjectClassId>) -> bool {
        let Some(class) = class else { return false };
        let own = entry.attribute(&self.object_class).map(|found| &found.values);
        let own = own.into_iter().flatten().filter_map(|name| std::str::from_utf8(name).ok());
        own.filter_map(|name| schema.object_class_id(name)).any(|own| schema.is_subclass(own, class))
    }

    fn has(&self, entry: &Entry, description: &AttributeDescription) -> bool {
        entry.attributes.iter().any(|own| own.description.attribute == description.attribute)
    }
}

/// The change that stores a certificate and its key; a certificate without a key goes.
fn keeping(
    object: String,
    class: Option<&str>,
    (certificate, key): (&str, &str),
    issued: &Issued,
) -> WriteOperation {
    let modification = |operation, name: &str, value: &[u8]| Modification {
        operation,
        attribute: AttributeValues { description: name.to_owned(), values: vec![value.to_vec()] },
    };
    let class = class.map(|class| modification(ModifyOperation::Add, "objectClass", class.as_bytes()));
    let rest = [
        modification(ModifyOperation::Replace, certificate, &issued.certificate),
        modification(ModifyOperation::Add, key, &issued.key),
    ];
    WriteOperation::Modify { object, changes: class.into_iter().chain(rest).collect() }
}

fn filter(text: &str) -> Result<FilterBuf, LdapResult> {
    FilterBuf::parse(text).map_err(|error| LdapResult::with(ResultCode::OTHER, error.to_string()))
}

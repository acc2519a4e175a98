//! For tests: a configuration of a few entries, and changes written as LDIF.

use larix_engine::controls::RequestControls;
use larix_engine::time::{ManualClock, SeededRandom, Timestamp};
use larix_engine::write::WriteOperation;
use larix_proto::ldif::{Body, Reader, Record};

use super::super::entry::ConfigEntry;
use super::super::model::{Config, Source};
use super::super::slapd_d::Stamp;
use super::{ChangedConfig, ConfigChange, ConfigRefusal, Requester};

/// Two databases, the first with three overlays and three access rules.
pub(in super::super) const START: &str = "\
dn: cn=config
objectClass: olcGlobal
cn: config

dn: cn=module{0},cn=config
objectClass: olcModuleList
cn: module{0}
olcModuleLoad: {0}back_mdb
olcModuleLoad: {1}ppolicy
olcModuleLoad: {2}seqmod

dn: cn=schema,cn=config
objectClass: olcSchemaConfig
cn: schema

dn: cn={0}one,cn=schema,cn=config
objectClass: olcSchemaConfig
cn: {0}one
olcAttributeTypes: {0}( 1.3.9999.1 NAME 'larch' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
olcAttributeTypes: {1}( 1.3.9999.2 NAME 'needle' SUP larch )
olcObjectClasses: {0}( 1.3.9999.3 NAME 'conifer' SUP top AUXILIARY MAY ( larch $ needle ) )

dn: cn={1}two,cn=schema,cn=config
objectClass: olcSchemaConfig
cn: {1}two
olcAttributeTypes: {0}( 1.3.9999.4 NAME 'cone' SUP larch )

dn: olcDatabase={-1}frontend,cn=config
objectClass: olcDatabaseConfig
objectClass: olcFrontendConfig
olcDatabase: {-1}frontend

dn: olcDatabase={0}config,cn=config
objectClass: olcDatabaseConfig
olcDatabase: {0}config
olcRootDN: cn=config
olcRootPW: secret

dn: olcDatabase={1}mdb,cn=config
objectClass: olcDatabaseConfig
objectClass: olcMdbConfig
olcDatabase: {1}mdb
olcSuffix: cn=one
olcDbDirectory: /tmp/larix-test/one
olcAccess: {0}to attrs=larch by * none
olcAccess: {1}to attrs=needle by * read
olcAccess: {2}to * by users read
olcDbIndex: objectClass eq
olcDbIndex: larch,cn eq

dn: olcOverlay={0}seqmod,olcDatabase={1}mdb,cn=config
objectClass: olcOverlayConfig
olcOverlay: {0}seqmod

dn: olcOverlay={1}ppolicy,olcDatabase={1}mdb,cn=config
objectClass: olcOverlayConfig
objectClass: olcPPolicyConfig
olcOverlay: {1}ppolicy

dn: olcOverlay={2}deref,olcDatabase={1}mdb,cn=config
objectClass: olcOverlayConfig
olcOverlay: {2}deref

dn: olcDatabase={2}mdb,cn=config
objectClass: olcDatabaseConfig
objectClass: olcMdbConfig
olcDatabase: {2}mdb
olcSuffix: cn=two
olcDbDirectory: /tmp/larix-test/two

dn: olcOverlay={0}seqmod,olcDatabase={2}mdb,cn=config
objectClass: olcOverlayConfig
olcOverlay: {0}seqmod
";

pub(in super::super) struct TestSources {
    pub(in super::super) clock: ManualClock,
    pub(in super::super) random: SeededRandom,
}

impl TestSources {
    pub(in super::super) fn new() -> Self {
        Self { clock: ManualClock::new(Timestamp::from_seconds(1_790_000_000)), random: SeededRandom::new(7) }
    }

    pub(in super::super) fn stamp(&self) -> Stamp<'_> {
        self.clock.advance_micros(10);
        Stamp { clock: &self.clock, random: &self.random }
    }

    pub(in super::super) fn change(
        &self,
        config: &Config,
        operation: WriteOperation,
        controls: RequestControls,
    ) -> Result<ChangedConfig, ConfigRefusal> {
        let change = ConfigChange { operation, controls, requester: Requester::Offline };
        config.changed(&change, &self.stamp())
    }
}

pub(in super::super) fn start(source: Source) -> Config {
    Config::from_entries(entries(START), source).unwrap_or_else(|error| panic!("{error}"))
}

pub(in super::super) fn entries(ldif: &str) -> Vec<ConfigEntry> {
    let entry = |record: Record| {
        let Body::Content(attributes) = record.body else { panic!("no entry") };
        ConfigEntry::from_ldif(record.dn, attributes)
    };
    Reader::new(ldif.as_bytes()).map(|record| entry(record.unwrap())).collect()
}

pub(in super::super) fn operations(ldif: &str) -> Vec<WriteOperation> {
    Reader::new(ldif.as_bytes()).map(|record| record.unwrap().into()).collect()
}

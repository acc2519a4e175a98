//! Overlays: what stands in front of databases. A folder each, and a line in [`IN_DATABASES`] or in [`INTERCEPTORS`]; CONTRIBUTING.md says how
//! one is written.

pub mod accesslog;
pub mod allowed;
pub mod auditlog;
pub mod authzid;
pub mod autoca;
pub mod autogroup;
pub mod automember;
pub mod cloak;
pub mod collect;
pub mod collective;
pub mod constraint;
pub mod dds;
pub mod denyop;
pub mod deref;
pub mod dna;
pub mod dyngroup;
pub mod dynlist;
pub mod emptyds;
pub mod homedir;
pub mod lastbind;
pub mod lastmod;
pub mod memberof;
pub mod mep;
pub mod nestgroup;
pub mod noopsrch;
pub mod nops;
pub mod otp;
pub mod pguid;
pub mod ppolicy;
pub mod psearch;
pub mod rdnval;
pub mod refint;
pub mod retcode;
pub mod rwm;
pub mod seqmod;
pub mod smbk5pwd;
pub mod sssvlv;
pub mod syncprov;
pub mod totp;
pub mod trace;
pub mod unique;
pub mod usn;
pub mod valsort;
pub mod vernum;

#[cfg(test)]
mod descriptors;
#[cfg(test)]
#[path = "../../engine/tests/engine/common/mod.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the engine's tests, and a test says where it failed by panicking"
)]
mod fixture;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use larix_backend::Interceptor;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor, Overlay};

/// Every overlay that is part of databases and sees no request before.
pub static IN_DATABASES: &[&Descriptor] = &[
    &accesslog::DESCRIPTOR,
    &allowed::DESCRIPTOR,
    &auditlog::DESCRIPTOR,
    &autogroup::DESCRIPTOR,
    &automember::DESCRIPTOR,
    &cloak::DESCRIPTOR,
    &collect::DESCRIPTOR,
    &collective::DESCRIPTOR,
    &constraint::DESCRIPTOR,
    &deref::DESCRIPTOR,
    &dna::DESCRIPTOR,
    &dyngroup::DESCRIPTOR,
    &dynlist::DESCRIPTOR,
    &homedir::DESCRIPTOR,
    &lastbind::DESCRIPTOR,
    &memberof::DESCRIPTOR,
    &mep::DESCRIPTOR,
    &nestgroup::DESCRIPTOR,
    &nops::DESCRIPTOR,
    &otp::DESCRIPTOR,
    &pguid::DESCRIPTOR,
    &ppolicy::DESCRIPTOR,
    &psearch::DESCRIPTOR,
    &rdnval::DESCRIPTOR,
    &refint::DESCRIPTOR,
    &seqmod::DESCRIPTOR,
    &smbk5pwd::DESCRIPTOR,
    &sssvlv::DESCRIPTOR,
    &syncprov::DESCRIPTOR,
    &totp::DESCRIPTOR,
    &trace::DESCRIPTOR,
    &unique::DESCRIPTOR,
    &usn::DESCRIPTOR,
    &valsort::DESCRIPTOR,
    &vernum::DESCRIPTOR,
];

/// Builds what an overlay has in front of one database or, configured before the first, of all.
pub type BuildInterceptor = fn(&Settings, &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError>;

/// Every overlay that sees requests in front of a backend, whether it is part of databases, too, or not.
pub static INTERCEPTORS: &[(&Descriptor, BuildInterceptor)] = &[
    (&authzid::DESCRIPTOR, authzid::build),
    (&autoca::DESCRIPTOR, autoca::intercept),
    (&dds::DESCRIPTOR, dds::intercept),
    (&denyop::DESCRIPTOR, denyop::build),
    (&emptyds::DESCRIPTOR, emptyds::build),
    (&lastmod::DESCRIPTOR, lastmod::build),
    (&noopsrch::DESCRIPTOR, noopsrch::build),
    (&retcode::DESCRIPTOR, retcode::build),
    (&rwm::DESCRIPTOR, rwm::build),
];

/// Every overlay that can be configured.
pub fn all() -> impl Iterator<Item = &'static Descriptor> {
    IN_DATABASES.iter().copied().chain(INTERCEPTORS.iter().map(|(descriptor, _)| *descriptor))
}

/// What the overlay of this name has in front of a backend.
pub fn interceptor(name: &str) -> Option<BuildInterceptor> {
    let known = INTERCEPTORS.iter().find(|(descriptor, _)| descriptor.name.eq_ignore_ascii_case(name));
    known.map(|(_, build)| *build)
}

/// The overlay of this name, matched without regard to case.
pub fn find(name: &str) -> Option<&'static Descriptor> {
    all().find(|descriptor| descriptor.name.eq_ignore_ascii_case(name))
}

/// Overlays that settings of the database itself bring. They stand behind all that are configured.
pub fn implied(context: &BuildContext<'_>) -> impl Iterator<Item = Arc<dyn Overlay>> {
    [lastbind::implied(context)].into_iter().flatten()
}

//! Overlays: what stands in front of databases. A folder each, and a line in [`ALL`]; CONTRIBUTING.md says how one is written.

pub mod accesslog;
pub mod collect;
pub mod constraint;
pub mod deref;
pub mod dyngroup;
pub mod dynlist;
pub mod lastbind;
pub mod memberof;
pub mod nestgroup;
pub mod ppolicy;
pub mod refint;
pub mod seqmod;
pub mod sssvlv;
pub mod syncprov;
pub mod unique;
pub mod valsort;

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

use larix_engine::overlay::{BuildContext, Descriptor, Overlay};

/// Every overlay that can be configured.
pub static ALL: &[&Descriptor] = &[
    &accesslog::DESCRIPTOR,
    &collect::DESCRIPTOR,
    &constraint::DESCRIPTOR,
    &deref::DESCRIPTOR,
    &dyngroup::DESCRIPTOR,
    &dynlist::DESCRIPTOR,
    &memberof::DESCRIPTOR,
    &nestgroup::DESCRIPTOR,
    &ppolicy::DESCRIPTOR,
    &refint::DESCRIPTOR,
    &seqmod::DESCRIPTOR,
    &sssvlv::DESCRIPTOR,
    &syncprov::DESCRIPTOR,
    &unique::DESCRIPTOR,
    &valsort::DESCRIPTOR,
];

/// The overlay of this name, matched without regard to case.
pub fn find(name: &str) -> Option<&'static Descriptor> {
    ALL.iter().find(|descriptor| descriptor.name.eq_ignore_ascii_case(name)).copied()
}

/// Overlays that settings of the database itself bring. They stand behind all that are configured.
pub fn implied(context: &BuildContext<'_>) -> impl Iterator<Item = Arc<dyn Overlay>> {
    [lastbind::implied(context)].into_iter().flatten()
}

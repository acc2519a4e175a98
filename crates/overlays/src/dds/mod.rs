//! `overlay dds`: entries that expire unless they are refreshed (RFC 2589, slapo-dds(5)).
//!
//! An entry says until when it lives: entryExpireTimestamp, which is stored, replicated and exported as any attribute. Where changes
//! are made a turn at an interval asks for the deletes of what has expired, each on the condition that the entry is still expired when
//! the writer comes to it: a refresh that is answered with success is never followed by the delete of what it has refreshed.

mod config;
mod expiry;
mod refresh;
mod rules;
#[cfg(test)]
mod tests;

use larix_engine::index::Kinds;
use larix_engine::overlay::committed::Tick;
use larix_engine::overlay::computed::StoredEntry;
use larix_engine::overlay::shown::{ShownEntries, ShownEntry, ShownRequest};
use larix_engine::overlay::{
    Additions, Descriptor, Failure, InSharedEngine, Interests, Overlay, OverlayDirective, PendingChange,
    Refusal,
};
use larix_engine::time::Timestamp;
use larix_schema::{AttributeDescription, BoundFilter, Schema};

pub use config::intercept;

pub static DESCRIPTOR: Descriptor = Descriptor::new("dds", "olcDDSConfig", config::build)
    .once()
    .in_shared_engine(InSharedEngine::AlikeInFront)
    .shows(&["entryExpireTimestamp"])
    .directives(&[
        OverlayDirective::switch("dds-state", "olcDDSstate"),
        OverlayDirective::words("dds-max-ttl", "olcDDSmaxTtl").arguments(1, 1).checked(config::check_most),
        OverlayDirective::words("dds-min-ttl", "olcDDSminTtl").arguments(1, 1).checked(config::check_ttl),
        OverlayDirective::words("dds-default-ttl", "olcDDSdefaultTtl")
            .arguments(1, 1)
            .checked(config::check_ttl),
        OverlayDirective::words("dds-interval", "olcDDSinterval")
            .arguments(1, 1)
            .checked(config::check_interval),
        OverlayDirective::words("dds-tolerance", "olcDDStolerance")
            .arguments(1, 1)
            .checked(config::check_ttl),
        OverlayDirective::whole("dds-max-dynamicObjects", "olcDDSmaxDynamicObjects"),
    ]);

/// What the directives say; times are seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lifetimes {
    /// `dds-state`. Otherwise dynamic objects are entries like any other.
    on: bool,
    most: u64,
    /// Who asks for less gets this.
    least: u64,
    /// Of a new entry.
    usual: u64,
    interval: u64,
    /// How long an entry stays beyond its time.
    tolerance: u64,
    /// How many dynamic objects there may be.
    limit: Option<u64>,
}

/// The overlay on one database.
#[derive(Clone, Debug)]
struct DynamicObjects {
    lifetimes: Lifetimes,
    /// `(objectClass=dynamicObject)`
    dynamic: BoundFilter,
    /// `(&(entryTtl=*)(!(objectClass=dynamicObject)))`: what no entry is.
    misplaced: BoundFilter,
    object_class: AttributeDescription,
    ttl: AttributeDescription,
    expires: AttributeDescription,
}

impl Overlay for DynamicObjects {
    fn name(&self) -> &'static str {
        "dds"
    }

    fn interests(&self) -> Interests {
        match self.lifetimes.on {
            true => {
                Interests::DYNAMIC_OBJECTS.and(Interests::PREPARE).and(Interests::SHOW).and(Interests::TICK)
            }
            // What is static has no time to live then, either.
            false => Interests::DYNAMIC_OBJECTS.and(Interests::PREPARE),
        }
    }

    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        if self.lifetimes.on { vec![(self.expires.clone(), Kinds::EQUALITY)] } else { Vec::new() }
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        rules::prepare(self, change)
    }

    fn shown(&self) -> Option<&dyn ShownEntries> {
        Some(self)
    }

    fn tick(&self) -> Option<&dyn Tick> {
        Some(self)
    }
}

/// Answers have the time that is left in the place of the one that was asked for last.
impl ShownEntries for DynamicObjects {
    fn wants(&self, request: &ShownRequest<'_>) -> bool {
        !request.compares && !request.types_only
    }

    fn concerns(&self, entry: &dyn StoredEntry, _: &Schema) -> Result<bool, Failure> {
        let mut any = false;
        entry.source().visit_exact(&self.ttl, &mut |_| {
            any = true;
            false
        })?;
        Ok(any)
    }

    fn show(&self, shown: &mut ShownEntry<'_>) -> Result<(), Failure> {
        let Some(now) = shown.now else { return Ok(()) };
        let mut expires = None;
        shown.entry.source().visit_exact(&self.expires, &mut |value| {
            expires = std::str::from_utf8(value).ok().and_then(Timestamp::parse_generalized);
            false
        })?;
        let Some(expires) = expires else { return Ok(()) };
        let left = expires.seconds().saturating_sub(now.seconds()).max(0);
        if let Some(ttl) = shown.attribute_mut(&self.ttl) {
            for value in &mut ttl.values {
                *value = left.to_string().into_bytes().into();
            }
        }
        Ok(())
    }
}

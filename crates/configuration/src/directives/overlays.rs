//! Overlays: what becomes of each, and their directives. Those that the server has come from their descriptors; the tables here are
//! of those that it knows by name alone.

use std::sync::LazyLock;

use larix_engine::overlay::{Descriptor, OverlayDirective, descriptor};

use super::super::{chain, pbind, pcache, remote_auth, sock, translucent};
use super::{Cardinality, Directive, Form, Handling, Scope};

/// An overlay that OpenLDAP has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverlayKind {
    pub(crate) name: &'static str,
    /// Structural class of its entry under cn=config.
    pub(crate) class: &'static str,
    pub(crate) handling: OverlayHandling,
    /// Of one that the server has.
    pub(crate) descriptor: Option<&'static Descriptor>,
}

/// What becomes of an `overlay` line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OverlayHandling {
    /// Part of the server.
    BuiltIn,
    /// Accepted: nothing that was asked for goes wrong without it. What it means.
    Noted(&'static str),
}

use OverlayHandling::{BuiltIn, Noted};

const OVERLAYS: &[OverlayKind] = &[
    overlay("chain", "olcChainConfig", BuiltIn),
    overlay("glue", "olcOverlayConfig", BuiltIn),
    overlay(pbind::NAME, "olcPBindConfig", BuiltIn),
    overlay(pcache::NAME, "olcPcacheConfig", BuiltIn),
    overlay("remoteauth", "olcRemoteAuthCfg", BuiltIn),
    overlay(sock::NAME, "olcOvSocketConfig", BuiltIn),
    overlay(translucent::NAME, "olcTranslucentConfig", BuiltIn),
];

const fn overlay(name: &'static str, class: &'static str, handling: OverlayHandling) -> OverlayKind {
    OverlayKind { name, class, handling, descriptor: None }
}

/// Of those without a descriptor: those that a database has once at most.
const SINGLE: [&str; 4] = [pbind::NAME, pcache::NAME, "remoteauth", translucent::NAME];

impl OverlayKind {
    fn of(descriptor: &'static Descriptor) -> Self {
        let handling = descriptor.note.map_or(BuiltIn, Noted);
        Self { name: descriptor.name, class: descriptor.class, handling, descriptor: Some(descriptor) }
    }

    /// Whether a second one on the same database is refused, as slapd refuses it.
    pub(crate) fn is_single(&self) -> bool {
        self.descriptor.map_or_else(|| SINGLE.contains(&self.name), |descriptor| descriptor.once)
    }

    /// What there is to say when it is accepted.
    pub(crate) fn noted(&self) -> Option<&'static str> {
        match self.handling {
            Noted(text) => Some(text),
            BuiltIn => None,
        }
    }
}

/// The overlay of this name: one that the server has, or else one that is known of.
pub(crate) fn overlay_kind(name: &str) -> Option<&'static OverlayKind> {
    kinds().iter().find(|kind| kind.name.eq_ignore_ascii_case(name))
}

/// The overlay of this name, if definitions come with it.
pub(crate) fn defining_overlay(name: &str) -> Option<&'static str> {
    overlay_kind(name)?.descriptor.filter(|descriptor| !descriptor.schema.is_empty()).map(|found| found.name)
}

/// The overlay with which the attribute type or object class of this name comes, if it is one.
#[must_use]
pub fn overlay_that_defines(element: &str) -> Option<&'static str> {
    let quoted = format!("'{}'", element.to_ascii_lowercase());
    let defines = |schema: &str| schema.to_ascii_lowercase().contains(&quoted);
    larix_overlays::all().find(|descriptor| defines(descriptor.schema)).map(|descriptor| descriptor.name)
}

/// All of them.
pub(super) fn kinds() -> &'static [OverlayKind] {
    static KINDS: LazyLock<Vec<OverlayKind>> = LazyLock::new(|| {
        let own = larix_overlays::all().map(OverlayKind::of);
        own.chain(OVERLAYS.iter().copied()).collect()
    });
    &KINDS
}

/// The directives of all overlays.
pub(super) fn table() -> &'static [Directive] {
    static DIRECTIVES: LazyLock<Vec<Directive>> = LazyLock::new(|| {
        let own = larix_overlays::all().flat_map(|descriptor| {
            descriptor.directives.iter().map(|directive| directive_of(descriptor.name, directive))
        });
        own.chain(
            chain::TABLE
                .iter()
                .chain(pbind::TABLE)
                .chain(pcache::TABLE)
                .chain(remote_auth::TABLE)
                .chain(sock::TABLE)
                .chain(translucent::TABLE)
                .cloned(),
        )
        .collect()
    });
    &DIRECTIVES
}

fn directive_of(overlay: &'static str, directive: &OverlayDirective) -> Directive {
    let form = match directive.form {
        descriptor::Form::Words => Form::Words,
        descriptor::Form::Command => Form::Command,
        descriptor::Form::Whole => Form::Whole,
        descriptor::Form::Switch => Form::Switch,
        descriptor::Form::Each => Form::Each,
    };
    Directive {
        prefix: directive.prefix,
        aliases: directive.aliases,
        attribute_aliases: directive.attribute_aliases,
        arguments: directive.arguments,
        cardinality: match directive.values {
            descriptor::Values::One => Cardinality::One,
            descriptor::Values::Many => Cardinality::Many,
            descriptor::Values::Ordered => Cardinality::Ordered,
        },
        handling: directive.note.map_or(Handling::Done, Handling::Noted),
        check: directive.check,
        has_blanks: directive.has_blanks,
        pieces: directive.pieces,
        ..Directive::kept(directive.keyword, directive.attribute, Scope::Overlay(overlay), form)
    }
}

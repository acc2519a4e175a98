//! Overlays: what becomes of each, and their directives. Most come from their descriptors. The table here has the others: the server builds
//! them itself, with its connections to other servers and to programs.

use std::sync::LazyLock;

use larix_engine::overlay::{Descriptor, InGluedDatabases, OverlayDirective, descriptor};

use super::super::{chain, pbind, pcache, remote_auth, sock, translucent};
use super::{Cardinality, Directive, Form, Handling, Scope};

/// An overlay that OpenLDAP has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverlayKind {
    pub(crate) name: &'static str,
    /// Structural class of its entry under cn=config.
    pub(crate) class: &'static str,
    pub(crate) handling: OverlayHandling,
    /// Whether a second one on the same database is refused, as slapd refuses it.
    pub(crate) once: bool,
    /// Its meaning behind an `overlay glue` line.
    pub(crate) over_glue: InGluedDatabases,
    /// Of one in a folder of `crates/overlays`.
    pub(crate) descriptor: Option<&'static Descriptor>,
    /// The directives of one without a descriptor.
    own_directives: &'static [Directive],
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

/// The overlays without a descriptor. The server's table of interceptors says how each is built; `glue` and `pcache` are part of how a
/// database is mounted.
static OVERLAYS: &[OverlayKind] = &[
    overlay(chain::NAME, "olcChainConfig", chain::TABLE),
    overlay("glue", "olcOverlayConfig", &[]),
    overlay(pbind::NAME, "olcPBindConfig", pbind::TABLE).once(),
    overlay(pcache::NAME, "olcPcacheConfig", pcache::TABLE).once().of_one_database(),
    overlay(remote_auth::NAME, "olcRemoteAuthCfg", remote_auth::TABLE).once(),
    overlay(sock::NAME, "olcOvSocketConfig", sock::TABLE).of_one_database(),
    overlay(translucent::NAME, "olcTranslucentConfig", translucent::TABLE).once(),
];

/// One about referrals or binds, wherever these come from.
const fn overlay(
    name: &'static str,
    class: &'static str,
    own_directives: &'static [Directive],
) -> OverlayKind {
    OverlayKind {
        name,
        class,
        handling: BuiltIn,
        once: false,
        over_glue: InGluedDatabases::TakenIn,
        descriptor: None,
        own_directives,
    }
}

impl OverlayKind {
    const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    const fn of_one_database(mut self) -> Self {
        self.over_glue = InGluedDatabases::Refused("it sees one database alone");
        self
    }

    fn of(descriptor: &'static Descriptor) -> Self {
        Self {
            name: descriptor.name,
            class: descriptor.class,
            handling: descriptor.note.map_or(BuiltIn, Noted),
            once: descriptor.once,
            over_glue: descriptor.over_glue,
            descriptor: Some(descriptor),
            own_directives: &[],
        }
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

/// The overlays that have no descriptor.
pub fn overlays_without_descriptors() -> impl Iterator<Item = &'static str> {
    OVERLAYS.iter().map(|kind| kind.name)
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
        own.chain(OVERLAYS.iter().flat_map(|kind| kind.own_directives).cloned()).collect()
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

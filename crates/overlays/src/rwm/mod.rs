//! `overlay rwm` (slapo-rwm(5)): what is behind it is seen under other names, with other attributes and classes
//! ([`larix_rewrite::NamesInFront`]).

mod config;
#[cfg(test)]
mod tests;

use larix_engine::overlay::{Descriptor, OverlayDirective};

pub use config::build;

pub static DESCRIPTOR: Descriptor = Descriptor::in_front("rwm", "olcRwmConfig").once().directives(&[
    OverlayDirective::command("rwm-rewrite", "olcRwmRewrite")
        .prefix(11)
        .alias(&["rwm-suffixmassage"])
        .ordered()
        .checked(larix_rewrite::lines::check_rewrite),
    OverlayDirective::whole("rwm-t-f-support", "olcRwmTFSupport")
        .default("no")
        .checked(config::check_absolute_filters),
    OverlayDirective::words("rwm-map", "olcRwmMap").ordered().checked(larix_rewrite::lines::check_map),
    OverlayDirective::switch("rwm-normalize-mapped-attrs", "olcRwmNormalizeMapped").default("FALSE").noted(
        "values are compared by the rules of the attribute that they have here, whatever they come from",
    ),
    OverlayDirective::switch("rwm-drop-unrequested-attrs", "olcRwmDropUnrequested").default("TRUE"),
]);

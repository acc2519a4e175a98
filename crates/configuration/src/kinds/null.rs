//! `database null`: keeps nothing, answers success.

use super::super::builder::directive::{Directive, Form, Scope};
use super::{Descriptor, KindSettings, NOTHING};

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "null",
    class: Some("olcNullConfig"),
    settings: || Box::new(NullSettings::default()),
    directives: TABLE,
    ..NOTHING
};

static TABLE: &[Directive] = &[
    Directive::new("bind", "olcDbBindAllowed", Scope::Kind("null"), Form::Switch, |b, c| {
        let on = c.switch()?;
        b.settings_of::<NullSettings>()?.bind_allowed = on;
        Ok(())
    }),
    Directive::new("dosearch", "olcDbDoSearch", Scope::Kind("null"), Form::Switch, |b, c| {
        let on = c.switch()?;
        b.settings_of::<NullSettings>()?.search_answers = on;
        Ok(())
    }),
];

/// Settings of `database null`.
#[derive(Debug, Clone, Default)]
pub struct NullSettings {
    /// Any bind succeeds.
    pub bind_allowed: bool,
    pub search_answers: bool,
}

impl KindSettings for NullSettings {}

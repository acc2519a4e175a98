//! The values of a section as `cn=config` shows them.

use super::value_list::ValueList;

/// olc attributes with their values, in the order they were set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(Vec<Setting>);

/// One olc attribute. Values carry no `{n}`: that is added when an entry is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The attribute's name as the directive table spells it.
    pub attribute: &'static str,
    pub values: ValueList,
}

impl Settings {
    /// Appends a value.
    pub fn add(&mut self, attribute: &'static str, value: Vec<u8>) {
        match self.0.iter_mut().find(|setting| setting.attribute == attribute) {
            Some(setting) => setting.values.push(value),
            None => self.0.push(Setting { attribute, values: vec![value].into() }),
        }
    }

    /// Sets the only value.
    pub fn set(&mut self, attribute: &'static str, value: Vec<u8>) {
        match self.0.iter_mut().find(|setting| setting.attribute == attribute) {
            Some(setting) => setting.values = vec![value].into(),
            None => self.0.push(Setting { attribute, values: vec![value].into() }),
        }
    }

    /// Takes a value out, if it is there.
    pub(super) fn take_out(&mut self, attribute: &str, value: &[u8]) {
        self.0.retain_mut(|setting| {
            if setting.attribute == attribute && setting.values.contains(value) {
                let kept = setting.values.iter().filter(|other| *other != value).cloned();
                setting.values = kept.collect();
            }
            !setting.values.is_empty()
        });
    }

    /// The values of an attribute, matched without regard to case; empty when it is not set.
    pub fn get(&self, attribute: &str) -> &ValueList {
        const NONE: &ValueList = &ValueList::NONE;
        self.0
            .iter()
            .find(|setting| setting.attribute.eq_ignore_ascii_case(attribute))
            .map_or(NONE, |setting| &setting.values)
    }

    /// Adds those of others whose attribute `included` answers true to.
    #[cfg(feature = "kv")]
    pub(super) fn add_all(&mut self, others: &Self, included: impl Fn(&str) -> bool) {
        self.0.extend(others.0.iter().filter(|setting| included(setting.attribute)).cloned());
    }

    /// Keeps the settings that `kept` answers true to.
    #[cfg(feature = "kv")]
    pub(super) fn retain(&mut self, kept: impl Fn(&Setting) -> bool) {
        self.0.retain(kept);
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Setting> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

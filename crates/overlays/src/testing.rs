//! For tests of overlays: settings from lines of slapd.conf, and a directory in memory behind overlays.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::Arc;

use larix_engine::index::IndexConfig;
use larix_engine::overlay::descriptor::{Form, Values};
use larix_engine::overlay::settings::{SettingError, Settings, Value};
use larix_engine::overlay::{BuildContext, Descriptor, Overlay};
use larix_engine::password::{Hasher, Scheme};
use larix_schema::Schema;
use larix_store::memory::MemoryStore;

pub(crate) use crate::fixture::*;

/// The settings that these lines make: a keyword each, and words, with double quotes around those that have blanks in them.
pub(crate) fn settings_of(descriptor: &Descriptor, lines: &str) -> Settings {
    let mut given = Settings::default();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = words(line);
        let keyword = words.remove(0);
        let is_it = |name: &str| name.eq_ignore_ascii_case(&keyword);
        let directive = descriptor
            .directives
            .iter()
            .find(|directive| is_it(directive.keyword) || directive.aliases.iter().any(|alias| is_it(alias)));
        let directive = directive.unwrap_or_else(|| panic!("no directive `{keyword}`"));
        if directive.form == Form::Each {
            for word in words {
                given.add(directive.attribute, Value { text: word.clone(), words: vec![word] });
            }
            continue;
        }
        let text = match directive.form {
            Form::Switch => {
                words.first().map_or("TRUE", |word| if is_off(word) { "FALSE" } else { "TRUE" }).to_owned()
            }
            Form::Whole | Form::Words | Form::Each => words.join(" "),
        };
        assert!(
            directive.values != Values::One || given.text(directive.attribute).is_none(),
            "{line}: twice"
        );
        given.add(directive.attribute, Value { text, words });
    }
    given
}

fn is_off(word: &str) -> bool {
    ["off", "false", "no"].iter().any(|off| off.eq_ignore_ascii_case(word))
}

fn words(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => all.push(String::new()),
            other => all.last_mut().unwrap().push(other),
        }
    }
    all
}

/// Builds an overlay as for a database with the suffix and the root DN of [`Fixture`], `lastmod` and `lastbind` on.
pub(crate) fn build(
    descriptor: &Descriptor,
    schema: &Arc<Schema>,
    lines: &str,
) -> Result<Arc<dyn Overlay>, SettingError> {
    with_context(schema, |context| (descriptor.build)(&settings_of(descriptor, lines), context))
}

pub(crate) fn with_context<T>(schema: &Arc<Schema>, then: impl FnOnce(&BuildContext<'_>) -> T) -> T {
    let suffixes = [schema.parse_dn(SUFFIX).unwrap()];
    let root = schema.parse_dn(ROOT).unwrap();
    then(&BuildContext {
        schema,
        suffixes: &suffixes,
        root_dn: Some((&root, ROOT)),
        last_modified: true,
        last_bind: true,
        last_bind_precision: 0,
        hasher: &Hasher::new(Scheme::SSHA),
        index: &IndexConfig::default(),
        maintained: &[],
    })
}

/// A directory in memory, empty, behind overlays with the settings that their lines make.
pub(crate) fn directory(overlays: &[(&Descriptor, &str)]) -> Fixture<MemoryStore> {
    let definitions: Vec<&str> = overlays.iter().map(|(descriptor, _)| descriptor.schema).collect();
    let schema = schema(&definitions.join("\n"));
    let mut settings = settings(&schema);
    for (descriptor, lines) in overlays {
        let overlay = build(descriptor, &schema, lines).unwrap_or_else(|error| panic!("{error}"));
        for (attribute, kinds) in overlay.indexes() {
            settings.index.also(attribute, kinds);
        }
        settings.overlays.push(overlay);
    }
    Fixture::of(schema, vec![(memory(), settings)])
}

//! The directive of `overlay collect`.

use std::cmp::Reverse;
use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay, WordFault};
use larix_schema::Schema;

use super::{Collect, Collection};

const INFO: &str = "collectinfo";

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let mut collections: Vec<Collection> = Vec::new();
    for value in settings.values("olcCollectInfo") {
        let words = &value.words;
        let own = collection(context.schema, words).map_err(|fault| fault.of_setting(INFO, words))?;
        if collections.iter().any(|other| other.ancestor == own.ancestor) {
            let fault =
                WordFault::new(0, "DN already configured").with_help("put all attributes into one value");
            return Err(fault.of_setting(INFO, words));
        }
        collections.push(own);
    }
    collections.sort_by_key(|own| Reverse(own.ancestor.as_str().len()));
    Ok(Arc::new(Collect { collections }))
}

/// Looks at one line where it is read.
pub(super) fn check(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    collection(schema, words).map(|_| ())
}

fn collection(schema: &Schema, words: &[String]) -> Result<Collection, WordFault> {
    let [dn, names] = words else {
        return Err(WordFault::new(0, "write a DN and a list of attributes like c-l,c-o"));
    };
    let ancestor =
        schema.parse_dn(dn).map_err(|error| WordFault::new(0, format!("invalid DN \"{dn}\": {error}")))?;
    let names = names.split(',').filter(|name| !name.is_empty());
    let attributes = names.map(|name| {
        let unknown =
            |error| WordFault::new(1, format!("attribute description unknown: \"{name}\": {error}"));
        schema.describe(name).map_err(unknown)
    });
    Ok(Collection { ancestor, attributes: attributes.collect::<Result<_, _>>()? })
}

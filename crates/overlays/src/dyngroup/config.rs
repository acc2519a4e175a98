//! The directive of `overlay dyngroup`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay, WordFault};
use larix_schema::Schema;

use super::{DynGroup, Pair};

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let pairs = settings.values("olcDynGroupAttrPair").map(|value| {
        pair(context.schema, &value.words).map_err(|fault| fault.of_setting("attrpair", &value.words))
    });
    Ok(Arc::new(DynGroup { pairs: pairs.collect::<Result<_, _>>()? }))
}

/// Looks at one line where it is read.
pub(super) fn check(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    pair(schema, words).map(|_| ())
}

fn pair(schema: &Schema, words: &[String]) -> Result<Pair, WordFault> {
    let [member, url] = words else {
        return Err(WordFault::new(0, "write a member attribute and the attribute of its URLs"));
    };
    let describe = |argument, name: &String| {
        let unknown = |error| format!("attribute description unknown: \"{name}\": {error}");
        schema.describe(name).map_err(|error| WordFault::new(argument, unknown(error)))
    };
    Ok(Pair { member: describe(0, member)?, url: describe(1, url)? })
}

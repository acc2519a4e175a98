//! The directives of `overlay lastmod`.

use std::sync::{Arc, Mutex};

use larix_backend::Interceptor;
use larix_engine::overlay::BuildContext;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_schema::escape_value;

use super::{LastModification, Names, ShownChange};

/// The name of the entry below the suffix where none is configured.
const USUAL_NAME: &str = "Lastmod";

/// Builds the overlay from its lines.
///
/// # Errors
/// A name that makes no DN; no database, or one that does not keep who changed what.
pub fn build(settings: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError> {
    if context.suffixes.is_empty() {
        let error = SettingError::new("overlay lastmod: it tells the last change of one database");
        return Err(error.with_help("write it behind the `suffix` of the database that is meant"));
    }
    if !context.last_modified {
        let error = SettingError::new("overlay lastmod: this database has `lastmod off`");
        return Err(error.with_help("take `lastmod off` out, or the overlay"));
    }
    let name = settings.text("olcLastmodRdnValue").unwrap_or(USUAL_NAME);
    let unusable = |why: String| {
        let error = SettingError::new(format!("lastmod-rdnvalue \"{name}\": {why}"));
        error.with_help(format!("write the value of cn alone, such as `{USUAL_NAME}`"))
    };
    if name.trim().is_empty() {
        return Err(unusable("it is empty".to_owned()));
    }
    let mut text = "cn=".to_owned();
    escape_value(name.as_bytes(), &mut text);
    if !context.shown_suffix.is_empty() {
        text.push(',');
        text.push_str(context.shown_suffix);
    }
    let dn = context.schema.parse_dn(&text).map_err(|error| unusable(error.to_string()))?;
    let is_enabled = settings.switch("olcLastmodEnabled").unwrap_or(true);
    Ok(Arc::new(LastModification {
        names: Names::of(&|name| described(context.schema, "overlay lastmod", name))?,
        schema: Arc::clone(context.schema),
        dn,
        text,
        name: name.to_owned(),
        creator: context.root_dn.map_or("cn=anonymous", |(_, shown)| shown).to_owned(),
        shown: Mutex::new(if is_enabled { ShownChange::Newest } else { ShownChange::Frozen(None) }),
    }))
}

//! For tests: configurations out of lines of slapd.conf.

use crate::{Config, Source};

/// A configuration of `lines` behind these of the bundled schemas, the same by way of cn=config, and the same by way of the file that is
/// made of it.
///
/// # Errors
/// What is wrong with the lines, or what the server refuses of them.
pub(crate) fn in_all_forms(schemas: &[&str], lines: &str) -> Result<[Config; 3], String> {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for name in schemas {
        let schema = folder.path().join(format!("{name}.schema"));
        std::fs::write(&schema, larix_schema::bundled(name).unwrap()).unwrap();
        text += &format!("include {}\n", schema.display());
    }
    text += &format!("{lines}\n");
    let path = folder.path().join("slapd.conf");
    let from_file = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let config = Config::from_slapd_conf(&path).map_err(|error| error.to_string())?;
        match config.refusals().first() {
            Some(refusal) => Err(refusal.to_string()),
            None => Ok(config),
        }
    };
    let config = from_file(&text)?;
    let entries =
        Config::from_entries(config.entries(), Source::QuickStart).map_err(|error| error.to_string())?;
    let exported = from_file(&config.to_slapd_conf().text)?;
    Ok([config, entries, exported])
}

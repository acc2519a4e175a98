//! The settings of `overlay refint`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay};

use super::{MODIFIER, OtherDatabase, ReferentialIntegrity, ReferentialIntegritySettings};

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(ReferentialIntegrity::new(read(settings, context)?)))
}

fn read(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<ReferentialIntegritySettings, SettingError> {
    let schema = context.schema;
    let nothing = settings.dn(schema, "refint_nothing", "olcRefintNothing")?;
    let modifier = settings.dn(schema, "refint_modifiersname", "olcRefintModifiersName")?;
    let modifier = modifier.map_or_else(|| MODIFIER.to_owned(), |dn| dn.text);
    let mut attributes = settings.attributes(schema, "refint_attributes", "olcRefintAttribute")?;
    // What another overlay keeps right by itself is left to it.
    attributes.retain(|attribute| !context.maintained.contains(attribute));
    let others = context.others.iter().map(|other| OtherDatabase {
        suffix: other.suffix.clone(),
        modifier: other.last_modified.then(|| modifier.clone()),
        receives: other.receives,
    });
    Ok(ReferentialIntegritySettings {
        attributes,
        nothing: nothing.map(|dn| dn.text),
        others: others.collect(),
        modifier: context.last_modified.then_some(modifier),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refint::DESCRIPTOR;
    use crate::testing::{SUFFIX, TREE, directory, schema, settings_of, with_context};

    fn settings(lines: &str) -> Result<ReferentialIntegritySettings, String> {
        let schema = schema("");
        let settings = settings_of(&DESCRIPTOR, lines);
        with_context(&schema, |context| read(&settings, context)).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_read() {
        let settings = settings(
            "refint_attributes member owner\nrefint_attributes seeAlso\nrefint_nothing \"CN=no body, dc=a\"\n",
        )
        .expect("settings");
        let schema = schema("");
        let names = settings.attributes.iter().map(|attribute| attribute.to_text(&schema));
        assert_eq!(names.collect::<Vec<_>>(), ["member", "owner", "seeAlso"]);
        assert_eq!(settings.nothing.as_deref(), Some("cn=no body,dc=a"));
        assert_eq!(settings.modifier.as_deref(), Some(MODIFIER));
    }

    #[test]
    fn what_another_overlay_keeps_right_is_left_to_it() {
        let schema = schema("");
        let settings = settings_of(&DESCRIPTOR, "refint_attributes memberOf member");
        let maintained = [schema.describe("memberOf").expect("memberOf")];
        let read = with_context(&schema, |context| {
            read(&settings, &BuildContext { maintained: &maintained, ..*context })
        });
        assert_eq!(read.expect("settings").attributes, [schema.describe("member").expect("member")]);
    }

    #[test]
    fn mistakes_are_named() {
        for (lines, fault) in [
            ("refint_attributes nosuch\n", "refint_attributes <nosuch>: attribute type undefined"),
            ("refint_nothing nobody\n", "refint_nothing \"nobody\" is not a DN"),
        ] {
            let error = settings(lines).expect_err(lines);
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn a_directory_behind_it_follows_its_lines() {
        let fixture = directory(&[(&DESCRIPTOR, "refint_attributes member")]);
        fixture.apply(TREE);
        let group = format!("cn=all,ou=Groups,{SUFFIX}");
        let (ann, bo) = (format!("cn=Ann Lee,ou=People,{SUFFIX}"), format!("cn=Bo,ou=People,{SUFFIX}"));
        fixture.apply(&format!(
            "dn: {group}\nobjectClass: groupOfNames\ncn: all\nmember: {ann}\nmember: {bo}\n"
        ));
        fixture.apply(&format!("dn: {ann}\nchangetype: delete\n"));
        assert!(fixture.show(&group).ends_with(&format!("cn: all\nmember: {bo}\n")));
    }
}

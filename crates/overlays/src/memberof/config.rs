//! The settings of `overlay memberof`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings, c_integer, described};
use larix_engine::overlay::{BackLinkRule, BuildContext, Overlay};
use larix_engine::write::BACK_LINKS_LIMIT;
use larix_proto::ResultCode;
use larix_schema::{AttributeDescription, Schema};

use crate::refint::OtherDatabase;

use super::{Dangling, Membership, MembershipSettings};

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(Membership::new(read(settings, context)?)))
}

/// The attribute of members is kept right here: no other overlay has to.
pub(super) fn maintained(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Vec<AttributeDescription>, SettingError> {
    Ok(vec![read(settings, context)?.rule.back])
}

fn read(settings: &Settings, context: &BuildContext<'_>) -> Result<MembershipSettings, SettingError> {
    let schema = context.schema;
    let dangling = dangling(settings)?;
    let modifier = settings.dn(schema, "memberof-dn", "olcMemberOfDN")?.map(|dn| dn.text);
    let others = context.others.iter().map(|other| OtherDatabase {
        suffix: other.suffix.clone(),
        modifier: modifier.clone().filter(|_| other.last_modified),
        receives: other.receives,
    });
    let others = others.collect();
    let root = || context.root_dn.map(|(_, shown)| shown.to_owned());
    let class = settings.text("olcMemberOfGroupOC").unwrap_or("groupOfNames");
    let Some(group_class) = schema.object_class_id(class) else {
        let text = format!("memberof-group-oc <{class}>: unable to find group objectClass=\"{class}\"");
        return Err(SettingError::new(text)
            .with_help("load the schema that defines it before (groupOfNames: core)")
            .awaiting_schema());
    };
    let names = |keyword, attribute, otherwise| {
        let name = settings.text(attribute).unwrap_or(otherwise);
        names_attribute(schema, keyword, name.trim().trim_matches('"'))
    };
    let rule = BackLinkRule {
        class: group_class,
        forward: names("memberof-member-ad", "olcMemberOfMemberAD", "member")?,
        back: names("memberof-memberof-ad", "olcMemberOfMemberOfAD", "memberOf")?,
        at_once: BACK_LINKS_LIMIT,
    };
    if rule.forward == rule.back {
        let name = rule.forward.to_text(schema);
        let text = format!("memberof-memberof-ad <{name}>: the same attribute as memberof-member-ad");
        return Err(
            SettingError::new(text).with_help("name the attribute that members are to have, as memberOf")
        );
    }
    Ok(MembershipSettings {
        rule,
        dangling,
        integrity: settings.is_on("olcMemberOfRefInt"),
        modifier: modifier.or_else(root).filter(|_| context.last_modified),
        others,
    })
}

/// An attribute whose values are names.
fn names_attribute(schema: &Schema, keyword: &str, name: &str) -> Result<AttributeDescription, SettingError> {
    let description = described(schema, keyword, name)?;
    let kind = schema.attribute(description.attribute);
    if !kind.syntax.is_dn() || kind.equality.is_none() {
        let text = format!(
            "{keyword} <{name}>: must either have DN (1.3.6.1.4.1.1466.115.121.1.12) or nameUID \
             (1.3.6.1.4.1.1466.115.121.1.34) syntax"
        );
        return Err(SettingError::new(text).with_help("name an attribute whose values are DNs, as member"));
    }
    Ok(description)
}

fn dangling(settings: &Settings) -> Result<Dangling, SettingError> {
    let code = match settings.text("olcMemberOfDanglingError") {
        None => ResultCode::CONSTRAINT_VIOLATION,
        Some(text) => result_code(text.trim()).ok_or_else(|| {
            let text = format!("memberof-dangling-error <{text}>: not a result code");
            SettingError::new(text).with_help("a number, or a name as noSuchObject")
        })?,
    };
    let Some(word) = settings.text("olcMemberOfDangling") else { return Ok(Dangling::Ignore) };
    Ok(match word.trim().to_ascii_lowercase().as_str() {
        "ignore" => Dangling::Ignore,
        "drop" => Dangling::Drop,
        "error" => Dangling::Error(code),
        _ => {
            let text = format!("memberof-dangling <{word}>: not a way to treat members that are not there");
            return Err(SettingError::new(text).with_help("ignore, drop or error"));
        }
    })
}

/// A result code by its number, as C writes it, or by its name in RFC 4511; none for success.
fn result_code(text: &str) -> Option<ResultCode> {
    let number = c_integer(text).and_then(|number| u32::try_from(number).ok());
    let named =
        |code: &ResultCode| code.name().is_some_and(|name| name.replace('_', "").eq_ignore_ascii_case(text));
    let code = match number {
        Some(number) => Some(ResultCode(number)),
        None => (0..=0xff).map(ResultCode).find(named),
    };
    code.filter(|code| *code != ResultCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memberof::DESCRIPTOR;
    use crate::testing::{ROOT, schema, settings_of, with_context};

    fn settings(lines: &str) -> Result<MembershipSettings, String> {
        let settings = settings_of(&DESCRIPTOR, lines);
        with_context(&schema(""), |context| read(&settings, context)).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_are_read() {
        let plain = settings("").expect("settings");
        assert_eq!((plain.dangling, plain.integrity), (Dangling::Ignore, false));
        assert_eq!(plain.modifier.as_deref(), Some(ROOT));
        for (lines, dangling) in [
            ("memberof-dangling drop\n", Dangling::Drop),
            ("memberof-dangling error\n", Dangling::Error(ResultCode::CONSTRAINT_VIOLATION)),
            (
                "memberof-dangling error\nmemberof-dangling-error noSuchObject\n",
                Dangling::Error(ResultCode::NO_SUCH_OBJECT),
            ),
            (
                "memberof-dangling ERROR\nmemberof-dangling-error 0x35\n",
                Dangling::Error(ResultCode::UNWILLING_TO_PERFORM),
            ),
            (
                "memberof-dangling error\nmemberof-dangling-error 065\n",
                Dangling::Error(ResultCode::UNWILLING_TO_PERFORM),
            ),
            ("memberof-dangling ignore\nmemberof-dangling-error 32\n", Dangling::Ignore),
        ] {
            assert_eq!(settings(lines).expect(lines).dangling, dangling, "{lines}");
        }
        let other = settings(
            "memberof-group-oc groupOfUniqueNames\nmemberof-member-ad uniqueMember\nmemberof-memberof-ad seeAlso\n\
             memberof-dn \"CN=keeper, dc=a\"\nmemberof-refint TRUE\nmemberof-addcheck TRUE\n",
        )
        .expect("settings");
        assert_eq!(other.modifier.as_deref(), Some("cn=keeper,dc=a"));
        assert!(other.integrity && other.rule != plain.rule);
    }

    #[test]
    fn mistakes_are_named() {
        for (lines, fault) in [
            ("memberof-group-oc nosuch\n", "memberof-group-oc <nosuch>: unable to find group objectClass"),
            ("memberof-member-ad nosuch\n", "memberof-member-ad <nosuch>: attribute type undefined"),
            ("memberof-member-ad cn\n", "memberof-member-ad <cn>: must either have DN"),
            ("memberof-memberof-ad sn\n", "memberof-memberof-ad <sn>: must either have DN"),
            ("memberof-memberof-ad member\n", "the same attribute as memberof-member-ad"),
            ("memberof-dangling maybe\n", "ignore, drop or error"),
            ("memberof-dangling-error nothing\n", "memberof-dangling-error <nothing>: not a result code"),
            ("memberof-dn nobody\n", "memberof-dn \"nobody\" is not a DN"),
        ] {
            let error = settings(lines).expect_err(lines);
            assert!(error.contains(fault), "{error}");
        }
    }
}

//! `overlay memberof` and its directives.

use larix_engine::index::{IndexConfig, Kinds};
use larix_engine::overlay::membership::{Dangling, MembershipRule, MembershipSettings};
use larix_engine::write::MEMBERS_LIMIT;
use larix_proto::ResultCode;
use larix_schema::AttributeDescription;

use super::diagnostic::ConfigError;
use super::model::{Config, Database, Overlay};

const NAME: &str = "memberof";

impl Config {
    /// The overlays memberof of a database.
    fn membership_overlays<'c>(&'c self, database: &'c Database) -> impl Iterator<Item = &'c Overlay> {
        self.overlays_of(database).filter(|overlay| overlay.name == NAME)
    }

    /// # Errors
    /// A setting of an overlay memberof that cannot be understood.
    pub(super) fn check_memberships(&self, database: &Database) -> Result<(), ConfigError> {
        self.membership_overlays(database)
            .try_for_each(|overlay| self.membership(database, overlay).map(|_| ()))
    }

    /// Who names an entry as a member is found by an index, whatever the index lines say.
    ///
    /// # Errors
    /// As [`Self::membership`].
    pub(super) fn index_members(
        &self,
        database: &Database,
        index: &mut IndexConfig,
    ) -> Result<(), ConfigError> {
        for settings in self.memberships(database)? {
            index.also(settings.rule.member, Kinds::EQUALITY);
        }
        Ok(())
    }

    /// The settings of all of them.
    ///
    /// # Errors
    /// As [`Self::membership`].
    pub(super) fn memberships(&self, database: &Database) -> Result<Vec<MembershipSettings>, ConfigError> {
        let all = self.membership_overlays(database).map(|overlay| self.membership(database, overlay));
        all.filter_map(Result::transpose).collect()
    }

    /// Whether any database keeps the attribute memberOf.
    pub fn has_memberships(&self) -> bool {
        self.databases.iter().any(|database| self.membership_overlays(database).next().is_some())
    }

    /// The settings; none while the schema is still to come.
    ///
    /// # Errors
    /// A class or an attribute that is unknown, an attribute whose values are no names, a word that is none of those known.
    pub(super) fn membership(
        &self,
        database: &Database,
        overlay: &Overlay,
    ) -> Result<Option<MembershipSettings>, ConfigError> {
        let dangling = dangling(overlay)?;
        let modifier = overlay.dn(self, "memberof-dn", "olcMemberOfDN")?.map(|dn| dn.text);
        let root = || database.root_dn.as_ref().map(|root| root.text.clone());
        let class = overlay.text("olcMemberOfGroupOC").unwrap_or_else(|| "groupOfNames".to_owned());
        let group_class = self.schema.object_class_id(&class);
        let member = self.names_attribute(overlay, ("memberof-member-ad", "olcMemberOfMemberAD"), "member");
        let member_of =
            self.names_attribute(overlay, ("memberof-memberof-ad", "olcMemberOfMemberOfAD"), "memberOf");
        if self.schema_comes() && (group_class.is_none() || member.is_err() || member_of.is_err()) {
            return Ok(None);
        }
        let Some(group_class) = group_class else {
            let text = format!("memberof-group-oc <{class}>: unable to find group objectClass=\"{class}\"");
            return Err(overlay
                .fault(text)
                .with_help("load the schema that defines it before (groupOfNames: core)"));
        };
        let rule =
            MembershipRule { group_class, member: member?, member_of: member_of?, at_once: MEMBERS_LIMIT };
        if rule.member == rule.member_of {
            let name = rule.member.to_text(&self.schema);
            let text = format!("memberof-memberof-ad <{name}>: the same attribute as memberof-member-ad");
            return Err(overlay
                .fault(text)
                .with_help("name the attribute that members are to have, as memberOf"));
        }
        let flag = |name: &str| overlay.text(name).is_some_and(|value| value.eq_ignore_ascii_case("TRUE"));
        Ok(Some(MembershipSettings {
            rule,
            dangling,
            integrity: flag("olcMemberOfRefInt"),
            modifier: modifier.or_else(root).filter(|_| database.last_mod),
        }))
    }

    /// An attribute whose values are names.
    fn names_attribute(
        &self,
        overlay: &Overlay,
        (keyword, setting): (&str, &str),
        otherwise: &str,
    ) -> Result<AttributeDescription, ConfigError> {
        let name = overlay.text(setting).unwrap_or_else(|| otherwise.to_owned());
        let name = name.trim().trim_matches('"');
        let described = self.schema.describe(name);
        let description = described.map_err(|error| overlay.fault(format!("{keyword} <{name}>: {error}")))?;
        let kind = self.schema.attribute(description.attribute);
        if !kind.syntax.is_dn() || kind.equality.is_none() {
            let text = format!(
                "{keyword} <{name}>: must either have DN (1.3.6.1.4.1.1466.115.121.1.12) or nameUID \
                 (1.3.6.1.4.1.1466.115.121.1.34) syntax"
            );
            return Err(overlay.fault(text).with_help("name an attribute whose values are DNs, as member"));
        }
        Ok(description)
    }
}

fn dangling(overlay: &Overlay) -> Result<Dangling, ConfigError> {
    let code = match overlay.text("olcMemberOfDanglingError") {
        None => ResultCode::CONSTRAINT_VIOLATION,
        Some(text) => result_code(text.trim()).ok_or_else(|| {
            let text = format!("memberof-dangling-error <{text}>: not a result code");
            overlay.fault(text).with_help("a number, or a name as noSuchObject")
        })?,
    };
    let Some(word) = overlay.text("olcMemberOfDangling") else { return Ok(Dangling::Ignore) };
    Ok(match word.trim().to_ascii_lowercase().as_str() {
        "ignore" => Dangling::Ignore,
        "drop" => Dangling::Drop,
        "error" => Dangling::Error(code),
        _ => {
            let text = format!("memberof-dangling <{word}>: not a way to treat members that are not there");
            return Err(overlay.fault(text).with_help("ignore, drop or error"));
        }
    })
}

/// A result code by its number (decimal, or hexadecimal behind `0x`) or by its name in RFC 4511; none for success.
fn result_code(text: &str) -> Option<ResultCode> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
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
    use super::super::integrity::tests::read;
    use super::*;

    const DATABASE: &str = "database mdb\nsuffix dc=a\nrootdn cn=root,dc=a\ndirectory $D\noverlay memberof\n";

    fn settings(lines: &str) -> MembershipSettings {
        let config = read(&format!("{DATABASE}{lines}")).unwrap();
        assert!(config.refusals().is_empty());
        let database = &config.databases[1];
        config.membership(database, &database.overlays[0]).unwrap().unwrap()
    }

    #[test]
    fn settings_are_read() {
        let plain = settings("");
        assert_eq!((plain.dangling, plain.integrity), (Dangling::Ignore, false));
        assert_eq!(plain.modifier.as_deref(), Some("cn=root,dc=a"));
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
            ("memberof-dangling ignore\nmemberof-dangling-error 32\n", Dangling::Ignore),
        ] {
            assert_eq!(settings(lines).dangling, dangling, "{lines}");
        }
        let other = settings(
            "memberof-group-oc groupOfUniqueNames\nmemberof-member-ad uniqueMember\nmemberof-memberof-ad seeAlso\n\
             memberof-dn \"CN=keeper, dc=a\"\nmemberof-refint TRUE\nmemberof-addcheck TRUE\n",
        );
        assert_eq!(other.modifier.as_deref(), Some("cn=keeper,dc=a"));
        assert!(other.integrity && other.rule != plain.rule);
    }

    #[test]
    fn members_are_indexed_by_themselves() {
        let config = read(DATABASE).unwrap();
        let settings = config.engine_settings(&config.databases[1]).unwrap();
        let member = config.schema.describe("member").unwrap();
        assert!(settings.index.kinds(&config.schema, &member).has(Kinds::EQUALITY));
    }

    #[test]
    fn overlay_refint_leaves_member_of_alone() {
        let config = read(&format!("{DATABASE}overlay refint\nrefint_attributes memberOf member\n")).unwrap();
        let database = &config.databases[1];
        let settings = config.referential_integrity(database, &database.overlays[1]).unwrap();
        assert_eq!(settings.attributes, [config.schema.describe("member").unwrap()]);
        assert!(config.notes.iter().all(|note| !note.to_string().contains("equality index")));
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
            let error = read(&format!("{DATABASE}{lines}")).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
        let config = read("overlay memberof\n").unwrap();
        assert!(config.refusals()[0].to_string().contains("for all databases is not supported"));
    }
}

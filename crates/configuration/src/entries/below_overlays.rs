//! Entries below overlays (OpenLDAP 2.7 has the rules of the password policy so): read as the lines of a directive that they are.

use std::sync::Arc;

use larix_engine::access::Quoting;
use larix_engine::overlay::descriptor::EntriesBelow;

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::diagnostic::{ConfigError, Origin};
use super::super::directives::{self, overlay_kind};
use super::super::line;
use super::ConfigEntry;
use super::apply::error_of;
use super::names::{EntryName, split_number};

/// An entry that is a line of its overlay.
#[derive(Debug)]
pub(crate) struct EntryBelow {
    overlay: &'static str,
    pub(crate) kind: &'static EntriesBelow,
    /// Of [`EntriesBelow::classes`].
    class: &'static str,
}

impl EntryBelow {
    /// `None`: an entry of another kind.
    pub(crate) fn of(name: &EntryName, entry: &ConfigEntry) -> Option<Self> {
        let [.., (attribute, value), _] = name.path.as_slice() else { return None };
        let overlay = Some(split_number(value).1).filter(|_| attribute == "olcoverlay")?;
        let descriptor = overlay_kind(overlay)?.descriptor?;
        let kind = descriptor.below?;
        let class = kind.classes.iter().find(|class| is_a(entry, class))?;
        Some(Self { overlay: descriptor.name, kind, class })
    }

    /// Adds the line to those of its overlay, which is open.
    pub(super) fn apply(
        &self,
        builder: &mut Builder,
        entry: &ConfigEntry,
        dn: &Arc<str>,
    ) -> Result<(), ConfigError> {
        let origin = Origin::Value { dn: Arc::clone(dn), attribute: self.kind.fault_at.to_owned() };
        let value = |name: &str| {
            let value = entry.values(name).first();
            value.map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let arguments = (self.kind.words)(self.class, &value);
        let text = line::join(arguments.iter().map(String::as_str));
        let Some(directive) = directives::by_keyword(self.kind.keyword, &builder.context()) else {
            let message = format!("there is no overlay {} above it", self.overlay);
            return Err(error_of(Fault::keyword(message), &origin, None, 0));
        };
        let call = Call {
            directive,
            arguments: &arguments,
            text: &text,
            quoting: Quoting::Ldif,
            bytes: text.as_bytes(),
            origin: &origin,
        };
        builder.apply(&call).map_err(|fault| error_of(fault, &origin, None, 0))
    }
}

fn is_a(entry: &ConfigEntry, class: &str) -> bool {
    entry.values("objectClass").iter().any(|value| value.eq_ignore_ascii_case(class.as_bytes()))
}

#[cfg(test)]
mod tests {
    use larix_proto::ldif::{Body, Reader};

    use super::*;
    use crate::{Config, Source};

    const START: &str = "\
dn: cn=config
objectClass: olcGlobal
cn: config

dn: cn={0}one,cn=schema,cn=config
objectClass: olcSchemaConfig
cn: {0}one
olcAttributeTypes: {0}( 1.3.9999.1 NAME 'larch' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
olcAttributeTypes: {1}( 2.5.4.31 NAME 'member' SUP distinguishedName )
olcObjectClasses: {0}( 2.5.6.9 NAME 'groupOfNames' SUP top STRUCTURAL MUST ( member $ cn ) )

dn: olcDatabase={1}mdb,cn=config
objectClass: olcDatabaseConfig
objectClass: olcMdbConfig
olcDatabase: {1}mdb
olcSuffix: cn=one
olcDbDirectory: /tmp/larix-test/one

dn: olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config
objectClass: olcOverlayConfig
objectClass: olcPPolicyConfig
olcOverlay: {0}ppolicy
";

    fn read(rules: &str) -> Result<Config, ConfigError> {
        let text = format!("{START}\n{rules}");
        let entries = Reader::new(text.as_bytes()).map(|record| {
            let record = record.unwrap();
            let Body::Content(attributes) = record.body else { panic!("no entry") };
            ConfigEntry::from_ldif(record.dn, attributes)
        });
        Config::from_entries(entries.collect(), Source::QuickStart)
    }

    fn rule(name: &str, class: &str, lines: &str) -> String {
        let above = "olcOverlay={0}ppolicy,olcDatabase={1}mdb,cn=config";
        format!(
            "dn: cn={name},{above}\nobjectClass: olcPPolicyAbstractRule\nobjectClass: {class}\ncn: {name}\n{lines}\n"
        )
    }

    #[test]
    fn rules_are_lines() {
        let rules = [
            // In the order of their numbers.
            rule(
                "{1}rule 1",
                "olcPPolicyScopedRule",
                "olcPPolicyRuleRequirePassword: FALSE\nolcPPolicyRuleAction: continue\n",
            ),
            rule(
                "{0}rule 0",
                "olcPPolicyScopedRule",
                "olcPPolicyRuleObject: cn=a,cn=one\nolcPPolicyRuleScope: subtree\nolcPPolicyRuleFilter: (larch=x y)\n\
                 olcPPolicyRulePolicy: cn=p,cn=one\n",
            ),
            rule(
                "{2}rule 2",
                "olcPPolicyRegexRule",
                "olcPPolicyRuleObject: ^cn=([^,]+),cn=one$\nolcPPolicyRuleGroup: cn=g,cn=one\n\
                 olcPPolicyRuleGroupAttr: member\nolcPPolicyRulePolicy: cn=$1,cn=one\n",
            ),
            // As OpenLDAP shows it.
            rule("{3}rule 3", "olcPPolicyScopedRule", "olcPPolicyRuleAction: no_policy\n"),
        ];
        let config = read(&rules.concat()).unwrap_or_else(|error| panic!("{error}"));
        let overlay = config.databases.iter().flat_map(|database| &database.overlays).next().unwrap();
        let lines = overlay.settings.get("olcLarixPPolicyRules").iter();
        assert_eq!(
            lines.map(|line| String::from_utf8_lossy(line)).collect::<Vec<_>>(),
            [
                "dn.subtree=cn=a,cn=one filter=\"(larch=x y)\" policy_dn=cn=p,cn=one",
                "require_password=no no_policy continue",
                "dn.regex=^cn=([^,]+),cn=one$ group/groupOfNames/member=cn=g,cn=one policy_dn.expand=cn=$1,cn=one",
                "no_policy",
            ]
        );
        assert!(
            !config.notes.iter().any(|note| note.to_string().contains("has no effect")),
            "{:?}",
            config.notes
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (class, lines, part) in [
            (
                "olcPPolicyScopedRule",
                "olcPPolicyRuleObject: cn=a\nolcPPolicyRuleScope: near\n",
                "unknown dn style: near",
            ),
            (
                "olcPPolicyRegexRule",
                "olcPPolicyRuleObject: (\nolcPPolicyRulePolicy: cn=p\n",
                "not a regular expression",
            ),
            ("olcPPolicyScopedRule", "olcPPolicyRuleAction: jump\n", "jump"),
        ] {
            let error = read(&rule("{0}x", class, lines)).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(part), "{lines}: {error}");
        }
    }
}

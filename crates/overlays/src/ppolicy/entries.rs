//! Rules as entries below the overlay's own (OpenLDAP 2.7), which are the lines of `ppolicy_rules`.

use larix_engine::overlay::descriptor::{EntriesBelow, FirstValue};

pub(super) static RULES: EntriesBelow = EntriesBelow {
    keyword: "ppolicy_rules",
    attribute: "olcLarixPPolicyRules",
    classes: &[REGEX, SCOPED],
    fault_at: "olcPPolicyRulePolicy",
    words,
};

const REGEX: &str = "olcPPolicyRegexRule";
const SCOPED: &str = "olcPPolicyScopedRule";
const NO_POLICY: &str = "no_policy";
/// What groups are if a rule does not say.
const GROUP_CLASS: &str = "groupOfNames";

fn words(class: &str, values: FirstValue<'_>) -> Vec<String> {
    let value = |name: &str| values(&format!("olcPPolicyRule{name}"));
    let regex = class == REGEX;
    // Only what a regular expression matched can be filled in.
    let style = |text: &str| if regex && text.contains('$') { ".expand" } else { "" };
    let mut words = Vec::new();
    if let Some(object) = value("Object") {
        let scope =
            if regex { "regex".to_owned() } else { value("Scope").unwrap_or_else(|| "base".to_owned()) };
        words.push(format!("dn.{scope}={object}"));
    }
    if let Some(wanted) = value("RequirePassword") {
        words.push(format!(
            "require_password={}",
            if wanted.eq_ignore_ascii_case("FALSE") { "no" } else { "yes" }
        ));
    }
    words.extend(value("Filter").map(|filter| format!("filter={filter}")));
    if let Some(group) = value("Group") {
        let attribute = value("GroupAttr").map_or_else(String::new, |attribute| format!("/{attribute}"));
        let class = match value("GroupOC") {
            Some(class) => format!("/{class}"),
            None if attribute.is_empty() => String::new(),
            None => format!("/{GROUP_CLASS}"),
        };
        words.push(format!("group{class}{attribute}{}={group}", style(&group)));
    }
    let (policy, action) = (value("Policy"), value("Action"));
    // OpenLDAP shows `no_policy` of a line as the action.
    let is_said =
        policy.is_none() && action.as_ref().is_some_and(|action| action.eq_ignore_ascii_case(NO_POLICY));
    words.push(match policy {
        Some(policy) => format!("policy_dn{}={policy}", style(&policy)),
        None => NO_POLICY.to_owned(),
    });
    words.extend(action.filter(|_| !is_said));
    words
}

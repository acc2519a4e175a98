//! Which limits a search is under: the first `limits` line that is for the client, or the section's own.

use larix_configuration::values::{DnStyle, LimitRule, LimitSubject};
use larix_engine::access::{GroupQuery, Subject};
use larix_engine::{Fault, Limits, View};
use larix_schema::NormalDn;
use larix_store::Snapshot;

/// The limits of a subject's search of this base; `None` for the root DN.
pub(super) fn of_search<N: Snapshot>(
    view: &View<'_, N>,
    rules: &[LimitRule],
    subject: &Subject,
    base: &NormalDn,
) -> Result<Option<Limits>, Fault> {
    let is_root = match view.policy.decisions(subject) {
        Some(decisions) => decisions.is_root,
        None => view.policy.is_root(subject),
    };
    if is_root {
        return Ok(None);
    }
    for rule in rules {
        if applies(&rule.subject, subject, base, view)? {
            return Ok(Some(rule.limits.into()));
        }
    }
    Ok(Some(view.settings.limits))
}

/// The limits by what is known without looking anything up. `otherwise` are the section's own.
pub(super) fn by_name(rules: &[LimitRule], otherwise: Limits, subject: &Subject, base: &NormalDn) -> Limits {
    let rule = rules.iter().find(|rule| is_named(&rule.subject, subject, base));
    rule.map_or(otherwise, |rule| rule.limits.into())
}

fn applies<N: Snapshot>(
    whom: &LimitSubject,
    subject: &Subject,
    base: &NormalDn,
    view: &View<'_, N>,
) -> Result<bool, Fault> {
    Ok(match (whom, &subject.dn) {
        (LimitSubject::Group { class, attribute, dn }, Some(member)) => {
            is_member(view, &dn.normal, (class, attribute), member)?
        }
        _ => is_named(whom, subject, base),
    })
}

/// Whether the line is for this client, by what is known without looking anything up: a group has no members then.
fn is_named(whom: &LimitSubject, subject: &Subject, base: &NormalDn) -> bool {
    let who = |this: bool| if this { Some(base) } else { subject.dn.as_ref() };
    match whom {
        LimitSubject::Any => true,
        LimitSubject::Anonymous => subject.is_anonymous(),
        LimitSubject::Users => !subject.is_anonymous(),
        LimitSubject::Dn { this, style, dn } => {
            who(*this).is_some_and(|name| has_style(name, *style, &dn.normal))
        }
        LimitSubject::DnRegex { this, regex, .. } => {
            who(*this).is_some_and(|name| regex.is_match(name.as_str()))
        }
        LimitSubject::Group { .. } => false,
    }
}

fn has_style(name: &NormalDn, style: DnStyle, pattern: &NormalDn) -> bool {
    match style {
        DnStyle::Exact => name == pattern,
        DnStyle::OneLevel => name.parent().is_some_and(|parent| parent == *pattern),
        DnStyle::Subtree => name.is_within(pattern),
        DnStyle::Children => name.is_descendant_of(pattern),
    }
}

fn is_member<N: Snapshot>(
    view: &View<'_, N>,
    group: &NormalDn,
    (class, attribute): (&str, &str),
    member: &NormalDn,
) -> Result<bool, Fault> {
    let (Some(class), Ok(attribute)) = (view.schema.object_class_id(class), view.schema.describe(attribute))
    else {
        return Ok(false);
    };
    let query = GroupQuery { group, class, attribute: &attribute };
    let found = view.is_member(&query, member);
    found.ok_or(Fault::TooMuch("a group of a `limits` line"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_about_the_names_of_its_style() {
        let dn = NormalDn::from_normal;
        for (name, style, expected) in [
            ("dc=x", DnStyle::Exact, true),
            ("ou=a,dc=x", DnStyle::Exact, false),
            ("ou=a,dc=x", DnStyle::OneLevel, true),
            ("cn=b,ou=a,dc=x", DnStyle::OneLevel, false),
            ("dc=x", DnStyle::Subtree, true),
            ("cn=b,ou=a,dc=x", DnStyle::Subtree, true),
            ("dc=x", DnStyle::Children, false),
            ("ou=a,dc=x", DnStyle::Children, true),
            ("ou=a,dc=xx", DnStyle::Subtree, false),
        ] {
            assert_eq!(has_style(&dn(name), style, &dn("dc=x")), expected, "{name} {style:?}");
        }
    }
}

//! Which limits a search is under: the first `limits` line that is for the client, or the section's own.

use larix_engine::access::{EntryFacts, GroupQuery, Subject};
use larix_engine::search::{Gate, Seen};
use larix_engine::{Fault, Limits, View};
use larix_schema::NormalDn;
use larix_store::Snapshot;

use crate::config::values::{DnStyle, LimitRule, LimitSubject};

/// The limits for this client's search of this base. `otherwise` are the section's own.
pub(super) fn of_subject<N: Snapshot>(
    rules: &[LimitRule],
    otherwise: Limits,
    subject: &Subject,
    base: &NormalDn,
    view: &View<'_, N>,
) -> Result<Limits, Fault> {
    for rule in rules {
        if applies(&rule.subject, subject, base, view)? {
            return Ok(rule.limits.into());
        }
    }
    Ok(otherwise)
}

fn applies<N: Snapshot>(
    whom: &LimitSubject,
    subject: &Subject,
    base: &NormalDn,
    view: &View<'_, N>,
) -> Result<bool, Fault> {
    let who = |this: bool| if this { Some(base) } else { subject.dn.as_ref() };
    Ok(match whom {
        LimitSubject::Any => true,
        LimitSubject::Anonymous => subject.is_anonymous(),
        LimitSubject::Users => !subject.is_anonymous(),
        LimitSubject::Dn { this, style, dn } => {
            who(*this).is_some_and(|name| has_style(name, *style, &dn.normal))
        }
        LimitSubject::DnRegex { this, regex, .. } => {
            who(*this).is_some_and(|name| regex.is_match(name.as_str()))
        }
        LimitSubject::Group { class, attribute, dn } => match &subject.dn {
            Some(member) => is_member(view, &dn.normal, (class, attribute), subject, member)?,
            None => false,
        },
    })
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
    subject: &Subject,
    member: &NormalDn,
) -> Result<bool, Fault> {
    let (Some(class), Ok(attribute)) = (view.schema.object_class_id(class), view.schema.describe(attribute))
    else {
        return Ok(false);
    };
    let Some(id) = view.resolve(group)?.and_then(|resolved| resolved.id) else { return Ok(false) };
    let Some(record) = view.record(id)? else { return Ok(false) };
    let policy = view.settings.policy.clone();
    let Some(policy) = policy else { return Ok(false) };
    let seen = Seen::new(view, view.reader(id, &record)?, Gate::new(&policy, subject));
    Ok(EntryFacts::is_member(&seen, &GroupQuery { group, class, attribute: &attribute }, member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles() {
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

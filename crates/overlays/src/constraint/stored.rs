//! Entries that break constraints already.

use larix_engine::Fault;
use larix_engine::access::Subject;
use larix_engine::entry::EntryAttribute;
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch, Whose};
use larix_engine::overlay::{Entries, Failure, Violation};
use larix_proto::Scope;
use larix_schema::{BoundFilter, NormalDn, Schema};

use super::{Constraints, Rule, UriSearch, applies};

impl Constraints {
    /// Reports entries whose attributes break a constraint. The values of a `uri` are looked for as the server; sets that depend on
    /// who asks, and values that another database has, cannot be judged and are passed over.
    pub(super) fn report_broken(
        &self,
        entries: &dyn Entries,
        schema: &Schema,
        report: &mut dyn FnMut(Violation),
    ) -> Result<(), Failure> {
        if self.settings.constraints.is_empty() {
            return Ok(());
        }
        let (root, all) = (NormalDn::root(), BoundFilter::And(Vec::new()));
        let query = InternalSearch::new(&root, Scope::Subtree, &all);
        let mut failed = None;
        entries.search(&query, &mut |found| match self.report_entry(found, entries, schema, report) {
            Ok(()) => Ok(true),
            Err(failure) => {
                failed = Some(failure);
                Ok(false)
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn report_entry(
        &self,
        found: &dyn FoundEntry,
        entries: &dyn Entries,
        schema: &Schema,
        report: &mut dyn FnMut(Violation),
    ) -> Result<(), Failure> {
        let mut entry = found.owned()?;
        self.load((entries, schema), found.dn()?, &|_| false, &mut entry)?;
        for attribute in &entry.attributes {
            if schema.attribute(attribute.description.attribute).is_operational() {
                continue;
            }
            for constraint in self.about(&attribute.description) {
                if !applies(constraint, found.dn()?, &entry, entries)? {
                    continue;
                }
                let holds = match &constraint.rule {
                    Rule::Count(most) => attribute.count() <= *most,
                    Rule::Set { set, .. } if set.mentions_requester() => true,
                    Rule::Set { set, negated } => {
                        let has_any = entries.has_any(set, &Subject::default(), found.dn()?, &entry)?;
                        has_any.is_none_or(|any| any != *negated)
                    }
                    Rule::Uri { uri_search, .. } if !self.is_here(uri_search, entries)? => true,
                    rule => self.values_hold(rule, found, attribute, (entries, schema))?,
                };
                if !holds {
                    let name = attribute.description.to_text(schema);
                    let what =
                        format!("constraint: {name} breaks `constraint_attribute {}`", constraint.text);
                    report(Violation { dn: found.shown_dn()?, what });
                }
            }
        }
        Ok(())
    }

    /// Whether the values are looked for in this database.
    fn is_here(&self, uri_search: &UriSearch, entries: &dyn Entries) -> Result<bool, Failure> {
        match &uri_search.base {
            Some(base) if !base.is_within(&self.suffix) => Ok(entries.id_of(base)?.is_some()),
            _ => Ok(true),
        }
    }

    fn values_hold(
        &self,
        rule: &Rule,
        found: &dyn FoundEntry,
        attribute: &EntryAttribute,
        (entries, schema): (&dyn Entries, &Schema),
    ) -> Result<bool, Failure> {
        let mut holds: Result<bool, Failure> = Ok(true);
        let read: Result<(), Fault> = found.visit_readable(&attribute.description, &mut |value| {
            holds = self.value_holds(rule, value, (entries, schema, Whose::Server, None));
            matches!(holds, Ok(true))
        });
        read?;
        holds
    }
}

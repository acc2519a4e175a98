//! The rules that hold for a database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use larix_schema::{NormalDn, Schema};

use super::compile::{self, CompiledRule, CompiledTarget, CompiledWho};
use super::facts::OtherEntries;
use super::fault::AccessPolicyError;
use super::item::{ItemClass, ItemKind};
use super::item_classes::ItemClasses;
use super::privilege::AccessLevel;
use super::rule::AccessRule;
use super::subject::Subject;

/// A database's rules followed by the frontend's, looked up in a schema. Immutable.
#[derive(Debug, Clone)]
pub struct AccessPolicy {
    pub(super) rules: Arc<[CompiledRule]>,
    /// As they were written, in the same order; those of the frontend from `frontend_from` on.
    pub(super) sources: Arc<[AccessRule]>,
    pub(super) frontend_from: usize,
    root_dn: Option<NormalDn>,
    pub(super) schema: Arc<Schema>,
    pub(super) classes: Arc<ItemClasses>,
    /// The numbers of all rules.
    pub(super) every: Arc<[u32]>,
    /// Tells policies of this process apart.
    pub(super) instance: u64,
    others: Arc<OnceLock<Arc<dyn OtherEntries>>>,
}

impl AccessPolicy {
    /// What all clients have where there are no rules at all.
    pub(super) const WITHOUT_RULES: AccessLevel = AccessLevel::Read;

    /// Puts rules in force: those of the database, then those of the frontend. A client that is bound as `root_dn` may do
    /// everything.
    ///
    /// # Errors
    /// A name that is not defined, a DN, value or filter that is not valid, or a rule that cannot be enforced.
    pub fn new(
        schema: Arc<Schema>,
        root_dn: Option<NormalDn>,
        database: &[AccessRule],
        frontend: &[AccessRule],
    ) -> Result<Self, AccessPolicyError> {
        let sources: Vec<AccessRule> = database.iter().chain(frontend).cloned().collect();
        let mut memos = 0;
        let rules = sources
            .iter()
            .map(|rule| compile::rule(&schema, rule, &mut memos))
            .collect::<Result<Vec<_>, _>>()?;
        let classes = ItemClasses::of(&schema, &rules);
        Ok(Self {
            every: (0u32..).take(rules.len()).collect(),
            rules: rules.into(),
            sources: sources.into(),
            frontend_from: database.len(),
            classes: Arc::new(classes),
            ..Self::open(schema, root_dn)
        })
    }

    /// No rules: all clients may read, only the root DN may write.
    pub fn open(schema: Arc<Schema>, root_dn: Option<NormalDn>) -> Self {
        Self {
            rules: Arc::new([]),
            sources: Arc::new([]),
            frontend_from: 0,
            root_dn,
            schema,
            classes: Arc::default(),
            every: Arc::new([]),
            instance: next_instance(),
            others: Arc::default(),
        }
    }

    /// Whether all clients may read everything: there are no rules.
    pub fn lets_all_read(&self) -> bool {
        self.rules.is_empty()
    }

    /// Lets the rules see the entries of the server's other databases: groups and sets may be there. Once; what comes
    /// later is passed over.
    pub fn see_others(&self, others: Arc<dyn OtherEntries>) {
        let _ = self.others.set(others);
    }

    pub(crate) fn others(&self) -> Option<&Arc<dyn OtherEntries>> {
        self.others.get()
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Whether a rule speaks about the kind of request or its controls (`op=`, `control=`): then subjects are to carry
    /// them.
    pub fn asks_about_request(&self) -> bool {
        self.rules.iter().any(|rule| rule.operation.is_some() || rule.control.is_some())
    }

    /// Whether a rule is about single values of an attribute (`val=`).
    pub fn asks_about_values(&self) -> bool {
        self.rules.iter().any(|rule| rule.value.is_some())
    }

    /// Whether a rule asks for the client's host name (`domain=`), which is then to be looked up.
    pub fn asks_about_domain(&self) -> bool {
        let mut clauses = self.rules.iter().flat_map(|rule| &rule.by);
        clauses
            .any(|clause| clause.who.iter().any(|condition| matches!(condition.who, CompiledWho::Domain(_))))
    }

    /// Whether a clause asks what other entries have: groups and sets.
    pub fn asks_about_entries(&self) -> bool {
        let mut clauses = self.rules.iter().flat_map(|rule| &rule.by);
        clauses.any(|clause| {
            let asks = |who: &CompiledWho| matches!(who, CompiledWho::Group { .. } | CompiledWho::Set(_));
            clause.who.iter().any(|condition| asks(&condition.who))
        })
    }

    /// Whether what the rules say of an entry may be another when a superior of it below the suffixes has another name.
    pub fn asks_about_names(&self, suffixes: &[NormalDn]) -> bool {
        self.rules.iter().any(|rule| {
            let by_target = match &rule.dn {
                CompiledTarget::Any => false,
                CompiledTarget::Scoped { dn, .. } => {
                    let is_above = suffixes.iter().all(|suffix| suffix.is_within(dn));
                    let touches = |suffix: &NormalDn| dn.is_within(suffix) || suffix.is_within(dn);
                    !is_above && suffixes.iter().any(touches)
                }
                CompiledTarget::Regex(_) => true,
            };
            let asks = |who: &CompiledWho| match who {
                CompiledWho::SelfEntry { level, .. } => *level != 0,
                CompiledWho::Set(_) => true,
                _ => false,
            };
            let mut conditions = rule.by.iter().flat_map(|clause| &clause.who);
            by_target || conditions.any(|condition| asks(&condition.who))
        })
    }

    /// Whether the subject is this database's root, to whom no rule applies.
    #[inline]
    pub fn is_root(&self, subject: &Subject) -> bool {
        self.root_dn.is_some() && self.root_dn == subject.dn
    }

    /// What every item of a class has in common; `None` if nothing can be said of its class.
    #[inline]
    pub fn class_of(&self, item: ItemKind<'_>) -> Option<ItemClass> {
        if let ItemKind::Attribute(description) = item {
            return self.classes.decidable(description);
        }
        let class = self.classes.class(item)?;
        self.classes.list(class).is_some_and(|list| !list.individual).then_some(class)
    }

    /// Whether no rule tells an attribute with options from the same without.
    #[inline]
    pub fn treats_options_alike(&self) -> bool {
        self.classes.treats_options_alike()
    }
}

fn next_instance() -> u64 {
    static INSTANCES: AtomicU64 = AtomicU64::new(1);
    INSTANCES.fetch_add(1, Ordering::Relaxed)
}

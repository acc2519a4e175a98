//! What access rules say to somebody about an entry, and why: `larix acl explain` in a server that serves.

use larix_engine::Fault;
use larix_engine::access::{AccessTarget, Explanation, Item, Privilege, Subject};
use larix_engine::search::{Gate, GuardedEntry};
use larix_schema::{AttributeDescription, NormalDn};
use larix_store::Store as _;

use super::Databases;

/// Attributes of one entry that are explained; the others are left out.
const ATTRIBUTES_MAX: usize = 200;

/// What somebody wants to do with which part of an entry.
#[derive(Debug)]
pub(crate) struct AccessQuestion {
    pub(crate) subject: Subject,
    pub(crate) dn: NormalDn,
    /// `None`: the entry, its children, and each of its attributes.
    pub(crate) about: Option<About>,
    pub(crate) privilege: Privilege,
}

/// What rules speak about.
#[derive(Clone, Debug)]
pub(crate) enum About {
    Entry,
    Children,
    Attribute { description: AttributeDescription, value: Option<Vec<u8>> },
}

impl About {
    fn item(&self) -> Item<'_> {
        match self {
            Self::Entry => Item::Entry,
            Self::Children => Item::Children,
            Self::Attribute { description, value } => {
                Item::Attribute { description, value: value.as_deref() }
            }
        }
    }
}

impl Databases {
    /// Explains each answer. `None`: no stored database holds the entry, or there is no such entry.
    ///
    /// # Errors
    /// The entry cannot be read.
    pub(crate) fn explain_access(
        &self,
        question: &AccessQuestion,
    ) -> Result<Option<Vec<(About, Explanation)>>, Fault> {
        let Some(served) = self.stored(&question.dn) else { return Ok(None) };
        let database = served.database();
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let Some(id) = view.resolve(&question.dn)?.and_then(|resolved| resolved.id) else { return Ok(None) };
        let Some(record) = view.record(id)? else { return Ok(None) };
        let reader = view.reader(id, &record)?;
        let about = match &question.about {
            Some(about) => vec![about.clone()],
            None => {
                let entry = reader.to_owned(question.dn.to_string(), true)?;
                let attributes = entry.attributes.into_iter().take(ATTRIBUTES_MAX);
                let attributes = attributes
                    .map(|attribute| About::Attribute { description: attribute.description, value: None });
                [About::Entry, About::Children].into_iter().chain(attributes).collect()
            }
        };
        let policy = &view.policy;
        let seen = GuardedEntry::new(&view, reader, Gate::new(policy, &question.subject));
        let target = AccessTarget { dn: &question.dn, entry: &seen };
        let explain = |about: About| {
            let found = policy.explain(&question.subject, &target, about.item(), question.privilege);
            (about, found)
        };
        Ok(Some(about.into_iter().map(explain).collect()))
    }
}

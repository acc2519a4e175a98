//! What access rules say to one subject, with what holds for all entries.

use std::rc::Rc;

use larix_schema::{AttributeDescription, Schema};

use crate::access::{AccessPolicy, Decisions, ItemKind, Memo, Privilege, Subject};
use crate::filter::Filter;
use crate::overlay::computed::ComputedAttribute;
use crate::overlay::shown::ShownEntries;

/// What access rules say, with what can be said once for all entries. For one snapshot.
#[derive(Clone, Debug)]
pub struct Gate<'a> {
    pub policy: &'a AccessPolicy,
    pub subject: &'a Subject,
    /// The identity for which overlays compute: the subject, unless rights do not matter.
    pub requester: Option<&'a Subject>,
    pub search_all: bool,
    pub read_all: bool,
    /// The search identifies a user: filters ask for `auth`, and nothing is read.
    pub identity: bool,
    /// Steps that the work on one entry may take.
    pub steps: u64,
    /// What overlays compute, as far as it is seen; nothing unless it is set.
    pub computed: &'a [ComputedAttribute],
    /// Overlays that look at what is answered; none unless it is set.
    pub shown: &'a [&'a dyn ShownEntries],
    /// What holds whatever the entry, by class of attributes.
    pub(super) decisions: Option<&'a Decisions>,
    /// None where rules are hardly asked, since everything is granted anyway.
    pub(super) memo: Option<Rc<Memo>>,
}

impl<'a> Gate<'a> {
    pub fn new(policy: &'a AccessPolicy, subject: &'a Subject) -> Self {
        let decisions = policy.decisions(subject);
        let all = match decisions {
            Some(decisions) => (decisions.search_all, decisions.read_all),
            None => {
                (policy.grants_all(subject, Privilege::Search), policy.grants_all(subject, Privilege::Read))
            }
        };
        Self::with(policy, subject, all, decisions)
    }

    /// Every entry may be searched and read, whatever the rules say.
    pub fn unrestricted(policy: &'a AccessPolicy, subject: &'a Subject) -> Self {
        Self::with(policy, subject, (true, true), policy.decisions(subject))
    }

    #[inline]
    fn with(
        policy: &'a AccessPolicy,
        subject: &'a Subject,
        (search_all, read_all): (bool, bool),
        decisions: Option<&'a Decisions>,
    ) -> Self {
        let memo = (!search_all || !read_all).then(Rc::default);
        Self {
            policy,
            subject,
            requester: Some(subject),
            search_all,
            read_all,
            identity: false,
            steps: u64::MAX,
            computed: &[],
            shown: &[],
            decisions,
            memo,
        }
    }
}

impl Gate<'_> {
    /// Whether the subject may search every entry, as far as entries as a whole are concerned.
    pub(crate) fn enters_freely(&self) -> bool {
        let general = || {
            let decisions = self.decisions.filter(|_| !self.identity)?;
            decisions.general(self.policy.class_of(ItemKind::Entry)?, Privilege::Search)
        };
        self.search_all || general() == Some(true)
    }

    /// Whether the subject may search every value of exactly this description in every entry.
    pub(super) fn searches_all_of(&self, description: &AttributeDescription) -> bool {
        let general = || {
            let decisions = self.decisions.filter(|_| !self.identity)?;
            decisions.general(self.policy.class_of(ItemKind::Attribute(description))?, Privilege::Search)
        };
        self.search_all || general() == Some(true)
    }

    /// Whether the subject may search for all that the filter names, whatever the entry and value.
    pub(crate) fn searches_freely(&self, schema: &Schema, filter: &Filter) -> bool {
        if self.search_all {
            return true;
        }
        let Some(decisions) = self.decisions.filter(|_| !self.identity) else { return false };
        let granted = |description: &AttributeDescription| {
            let class = self.policy.class_of(ItemKind::Attribute(description));
            class.and_then(|class| decisions.general(class, Privilege::Search)) == Some(true)
        };
        // Subtypes, and descriptions with more options, are asked about by themselves.
        filter.asks_only(&|description| {
            let mut subtypes = schema.subtypes(description.attribute).iter();
            self.policy.treats_options_alike()
                && granted(description)
                && subtypes.all(|&subtype| granted(&AttributeDescription::plain(subtype)))
        })
    }
}

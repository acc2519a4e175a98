//! Controls that look at the entry: assertion (RFC 4528), pre-read and post-read (RFC 4527).

use larix_proto::ber::{DecodeError, Reader};
use larix_proto::{ControlBuf, LdapResult, MessageId, ResultCode, oid};
use larix_schema::{AttributeDescription, Match, NormalDn, Schema};
use larix_store::{Layered, Snapshot};

use super::operator::{CurrentEntry, Operator};
use crate::access::{AccessTarget, Item, Privilege};
use crate::budget::{LimitExceeded, Meter, RequestLimit};
use crate::controls::ReadAttributes;
use crate::database::View;
use crate::entry::{Entry, EntryId, EntrySource};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::filter::{Filter, FilterContext, unless_overdrawn};
use crate::search::answer::Answer;
use crate::search::computed::Sight;
use crate::search::rule_facts::RuleFacts;
use crate::search::selection::Selection;
use crate::search::{Gate, GuardedEntry};

/// Steps that an assertion control of a compare or an update may take: others wait for it meanwhile.
pub(crate) const ASSERTION_STEPS: u64 = 100_000;

/// Evaluates an assertion with the requester's own privilege to search.
struct AssertionContext<'a, 'b, V: Snapshot> {
    operator: &'a Operator<'b, V>,
    dn: &'a NormalDn,
    meter: &'a Meter,
    facts: RuleFacts<'a, V>,
}

impl<V: Snapshot> FilterContext for AssertionContext<'_, '_, V> {
    fn schema(&self) -> &Schema {
        self.operator.context.schema
    }

    fn meter(&self) -> Option<&Meter> {
        Some(self.meter)
    }

    fn may_search(&self, description: &AttributeDescription, value: Option<&[u8]>) -> Result<bool, Fault> {
        let target = AccessTarget { dn: self.dn, entry: &self.facts };
        let item = Item::Attribute { description, value };
        let (policy, subject) = (&self.operator.view.policy, self.operator.envelope.subject);
        unless_overdrawn(Some(self.meter), policy.check(subject, &target, item, Privilege::Search))
    }

    fn judges_values(&self, _: &AttributeDescription) -> Result<bool, Fault> {
        Ok(self.operator.view.policy.asks_about_values())
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        Ok(self.dn.clone())
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        self.facts.has_subordinates()
    }
}

impl<V: Snapshot> Operator<'_, V> {
    /// # Errors
    /// assertionFailed.
    pub(crate) fn check_assertion(&self, current: &CurrentEntry<'_>, dn: &NormalDn) -> Result<(), Failure> {
        if self.envelope.controls.assertion.is_none() {
            return Ok(());
        }
        self.check_asserted(&self.reader(current)?, dn)
    }

    /// The same for an entry that is to be added.
    pub(crate) fn check_assertion_of_new(&self, entry: &Entry, dn: &NormalDn) -> Result<(), Failure> {
        if self.envelope.controls.assertion.is_none() {
            return Ok(());
        }
        self.check_asserted(&self.new_source(entry), dn)
    }

    fn check_asserted(&self, entry: &dyn EntrySource, dn: &NormalDn) -> Result<(), Failure> {
        let Some(assertion) = &self.envelope.controls.assertion else { return Ok(()) };
        let bound = self.context.schema.bind_filter(assertion.as_filter());
        let limits = &self.context.settings.request_limits;
        let filter = Filter::within(limits, self.context.schema, &self.view.catalog, bound);
        let filter = filter.map_err(LdapResult::from)?;
        let mut sight = Sight::of(&self.view);
        if self.envelope.controls.manage_dsa_it {
            sight.computed = &[];
        }
        let most = limits.most(RequestLimit::Steps).min(ASSERTION_STEPS);
        let meter = Meter::new(most);
        (sight.requester, sight.meter) = (Some(self.envelope.subject), Some(&meter));
        let facts = RuleFacts::new(&self.view, sight, dn, entry);
        let context = AssertionContext { operator: self, dn, meter: &meter, facts };
        match context.facts.with_source(|entry| filter.matches(&context, entry)) {
            Ok(Match::True) => Ok(()),
            Ok(Match::False | Match::Undefined) => Err(LdapResult::new(ResultCode::ASSERTION_FAILED).into()),
            Err(Fault::StepsSpent) => {
                Err(LdapResult::from(LimitExceeded { limit: RequestLimit::Steps, most }).into())
            }
            Err(fault) => Err(fault.into()),
        }
    }

    pub(crate) fn pre_read(&mut self, current: &CurrentEntry<'_>) -> Result<(), Failure> {
        let Some(wanted) = &self.envelope.controls.pre_read else { return Ok(()) };
        if let Some(entry) = self.encoded(&self.view, current.id, wanted)? {
            self.controls.push(ControlBuf { oid: oid::PRE_READ.into(), critical: false, value: Some(entry) });
        }
        Ok(())
    }

    /// Reads the entry as this change leaves it.
    pub(crate) fn post_read(&mut self, id: EntryId) -> Result<(), Failure> {
        let Some(wanted) = &self.envelope.controls.post_read else { return Ok(()) };
        let changed = Layered::new(self.view.snapshot, &self.set);
        let state = self.catalog.state(self.view.state());
        let view = View::over_changes(&changed, self.instance, state)?;
        if let Some(entry) = self.encoded(&view, id, wanted)? {
            self.controls.push(ControlBuf {
                oid: oid::POST_READ.into(),
                critical: false,
                value: Some(entry),
            });
        }
        Ok(())
    }

    /// The entry as a SearchResultEntry, as far as the requester may read it.
    fn encoded<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        id: EntryId,
        wanted: &ReadAttributes,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let mut gate = Gate::new(&self.view.policy, self.envelope.subject);
        gate.steps = self.context.settings.request_limits.most(RequestLimit::Steps);
        if !self.envelope.controls.manage_dsa_it {
            gate.computed = &view.computed;
        }
        let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate);
        let names = wanted.attributes.iter().map(String::as_str);
        let answer = Answer {
            message: MessageId(0),
            types_only: false,
            selection: Selection::from_names(&view.schema, &view.catalog, names),
            matched_values: None,
            rights: None,
            for_consumer: false,
            states: false,
            now: self.envelope.now,
        };
        let mut message = Vec::new();
        let dn = view.dn(&seen.reader.view)?;
        if !answer.append(&seen, dn.as_bytes(), &mut message, &[])? {
            return Ok(None);
        }
        // The control's value is the bare protocolOp of the message.
        let unwrap = || {
            let mut reader = Reader::new(&message).sequence("LDAPMessage")?;
            reader.integer("messageID")?;
            reader.raw("protocolOp").map(<[u8]>::to_vec)
        };
        let unwrapped: Result<_, DecodeError> = unwrap();
        Ok(unwrapped.ok())
    }
}

//! The root DSE.

use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};

use super::{Common, Content, Tree, not_supported};
use crate::sasl_mechanisms::{self, MechanismContext};
use crate::virtual_entries::root_dse::RootDse;
use larix_backend::memory_tree::Bases;
use larix_backend::{Announcement, Context};

#[derive(Debug)]
pub(crate) struct RootDseTree {
    /// `rootDSE` files.
    pub(crate) extra: Vec<(String, Vec<Vec<u8>>)>,
}

impl Content for RootDseTree {
    const BASES: Bases = Bases::Known;

    fn entries(&self, common: &Common, context: &Context<'_>) -> Vec<Entry> {
        let sasl = &common.config.global.sasl;
        let Announcement {
            naming_contexts,
            monitor_context,
            changelog,
            config_context,
            database_controls,
            provides_content,
            tells_changes,
            dynamic_subtrees,
            operations,
            controls,
        } = context.router.announced();
        let entry = RootDse {
            naming_contexts,
            monitor_context,
            changelog,
            config_context,
            subschema_dn: common.subschema_dn.clone(),
            start_tls: common.services.tls.is_available(),
            sasl_mechanisms: sasl_mechanisms::offered(
                sasl,
                MechanismContext::of_subject(context.subject, sasl),
            ),
            referrals: common.config.global.referrals.clone(),
            provides_content,
            tells_changes,
            database_controls,
            dynamic_subtrees,
            overlay_controls: controls.iter().filter(|one| one.listed).map(|one| one.oid).collect(),
            overlay_operations: operations.iter().map(|one| one.oid).collect(),
            extra: self.extra.clone(),
        }
        .entry(&common.config.schema);
        vec![entry]
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        done(not_supported().into());
    }
}

//! The root DSE.

use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};

use super::{Common, Content, Tree, not_supported};
use crate::backend::{Announced, Context};
use crate::sasl_mechanisms::{self, MechanismContext};
use crate::virtual_entries::root_dse::RootDse;

#[derive(Debug)]
pub(crate) struct RootDseTree {
    /// `rootDSE` files.
    pub(crate) extra: Vec<(String, Vec<Vec<u8>>)>,
}

impl Content for RootDseTree {
    fn entries(&self, common: &Common, context: &Context<'_>) -> Vec<Entry> {
        let sasl = &common.config.global.sasl;
        let Announced { naming_contexts, monitor_context, config_context, password_policy, provides_content } =
            context.router.announced();
        let entry = RootDse {
            naming_contexts,
            monitor_context,
            config_context,
            subschema_dn: common.subschema_dn.clone(),
            start_tls: common.services.tls.is_available(),
            sasl_mechanisms: sasl_mechanisms::offered(
                sasl,
                MechanismContext::of_subject(context.subject, sasl),
            ),
            referrals: common.config.global.referrals.clone(),
            provides_content,
            password_policy,
            extra: self.extra.clone(),
        }
        .entry(&common.config.schema);
        vec![entry]
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        done(not_supported().into());
    }
}

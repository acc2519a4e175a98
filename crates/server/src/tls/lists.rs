//! How long lists of revoked certificates hold (RFC 5280 section 5.1.2.5). Where certificates must be on no list, one that is past its
//! time refuses all that its authority signed.

use larix_engine::time::Timestamp;
use rustls::pki_types::CertificateRevocationListDer;

use super::certificate::{RevocationList, name_to_dn};

/// Of the lists that are asked: one of each authority, as the TLS library takes the first.
#[derive(Clone, Debug, Default)]
pub(super) struct ListDates(Vec<(String, Timestamp)>);

impl ListDates {
    /// Lists without such a time always hold.
    pub(super) fn of(lists: &[CertificateRevocationListDer<'_>]) -> Self {
        let mut dates = Self::default();
        let mut issuers = Vec::new();
        for list in lists.iter().filter_map(|list| RevocationList::parse(list)) {
            if issuers.contains(&list.issuer) {
                continue;
            }
            issuers.push(list.issuer);
            let name = name_to_dn(list.issuer).unwrap_or_default();
            dates.0.extend(list.next_update.map(|until| (name, until)));
        }
        dates
    }

    /// What to say of those whose time is over.
    pub(super) fn over(&self, now: Timestamp) -> Vec<String> {
        let over = self.0.iter().filter(|(_, until)| now >= *until);
        over.map(|(name, until)| {
            format!(
                "TLSCRLCheck: the revocation list of {name} was to be renewed by {}: no certificate that this authority signed is believed \
                 until a newer list is in its place",
                until.generalized()
            )
        })
        .collect()
    }
}

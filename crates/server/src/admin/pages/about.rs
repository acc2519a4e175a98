//! Which server this is.

use maud::html;

use super::layout::{self, MenuItem};
use crate::admin::reply::{PageResult, Reply};
use crate::admin::respond::Visit;
use crate::admin::sessions::{AGE_SECONDS, IDLE_SECONDS};

pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let mut client = visit.session.client.lock().await;
    let root = client.read("", &["+", "*"]).await.ok().flatten().unwrap_or_default();
    drop(client);
    let list = |name: &str| root.texts(name).join(", ");
    let content = html! {
        dl.facts {
            dt { "Version" } dd { (crate::version()) }
            dt { "You" } dd { code { (visit.session.dn) } }
            dt { "Naming contexts" } dd { (list("namingContexts")) }
            dt { "SASL mechanisms" } dd { (list("supportedSASLMechanisms")) }
            dt { "LDAP version" } dd { (list("supportedLDAPVersion")) }
        }
        h2 { "This page" }
        p {
            "Everything here is done over LDAP with your own rights: what you may not do with "
            code { "ldapmodify" } " you cannot do here. A session ends after " (IDLE_SECONDS / 60)
            " minutes without a page, and after " (AGE_SECONDS / 3600) " hours."
        }
        h2 { "What the server supports" }
        details { summary { "Controls, extensions and features" }
            @for (title, name) in [
                ("Controls", "supportedControl"),
                ("Extended operations", "supportedExtension"),
                ("Features", "supportedFeatures"),
            ] {
                h3 { (title) }
                ul.plain { @for oid in root.texts(name) { li { code { (oid) } } } }
            }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::About, "About this server", content)))
}

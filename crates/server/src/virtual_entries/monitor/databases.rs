//! cn=Databases: each with its overlays below it.

use std::path::Path;

use larix_configuration::Database;
use larix_engine::entry::Entry;

use super::proxies::name_of;
use super::{DN, Monitor, truth};

/// What a database that is only read refuses.
const WRITES: [&str; 4] = ["add", "delete", "modify", "rename"];

impl Monitor<'_> {
    pub(super) fn databases(&self, out: &mut Vec<Entry>) {
        let shown = self.config.databases.iter().filter(|d| !d.kind.is_monitor());
        let contexts = shown.flat_map(suffixes).collect::<Vec<_>>();
        let about = "This subsystem contains information about configured databases.";
        out.push(
            self.container("Databases", about, true)
                .one("readOnly", "FALSE")
                // The frontend's, which has all names, comes first.
                .add("namingContexts", [String::new()].into_iter().chain(contexts))
                .one("monitorContext", DN)
                .build(),
        );
        out.push(
            self.child("Databases", "Frontend", "monitoredObject")
                .one("monitoredInfo", "frontend")
                .one("monitorIsShadow", "FALSE")
                .one("namingContexts", "")
                .one("readOnly", truth(self.config.frontend.shared.read_only))
                .build(),
        );
        for (n, database) in self.config.databases.iter().enumerate() {
            out.push(self.database(n, database));
            let overlays = database.overlays.iter().enumerate();
            out.extend(overlays.map(|(at, overlay)| self.overlay((n, database), at, &overlay.name)));
            out.extend(self.consumers_of(n, database));
            self.proxy_connections(n, database, out);
        }
    }

    fn database(&self, n: usize, database: &Database) -> Entry {
        let kind = database.kind.name();
        let backend = self.kinds().iter().position(|known| known.name() == kind).unwrap_or(0);
        let (contexts, names) = contexts(database);
        let figures = self.stored.get(n).and_then(Option::as_ref);
        let read_only = figures.map(|figures| figures.read_only);
        #[cfg(feature = "kv")]
        let read_only = read_only.or_else(|| self.node_is_read_only(database));
        let read_only = read_only.unwrap_or(database.shared.read_only);
        let dn = format!("cn=Database {n},cn=Databases,{DN}");
        let overlays = self.overlay_names();
        let used = database.overlays.iter();
        let numbers = used.clone().filter_map(|used| overlays.iter().position(|name| *name == used.name));
        let has_children = !database.overlays.is_empty()
            || !self.consumers_of(n, database).is_empty()
            || database.kind.is_proxied();
        let mut built = self
            .object(&dn, &format!("Database {n}"), "monitoredObject", has_children)
            .one("monitoredInfo", kind)
            .one("monitorIsShadow", truth(database.update_dn.is_some()))
            .add(contexts, names)
            .one("readOnly", truth(read_only))
            .add("restrictedOperation", WRITES.iter().copied().filter(|_| read_only))
            .add("monitorOverlay", used.map(|o| o.name.clone()))
            .add("seeAlso", numbers.map(|number| format!("cn=Overlay {number},cn=Overlays,{DN}")))
            .one("seeAlso", format!("cn=Backend {backend},cn=Backends,{DN}"));
        if let Some(group) = self.next_group(database) {
            built = built
                .one("objectClass", "olmAsyncmetaDatabase")
                .one("olmDbNextConnectionGroup", group.to_string());
        }
        if let Some(settings) = database.kind.mdb()
            && let Some(store) = figures.map(|figures| figures.store)
        {
            built = built
                .one("objectClass", "olmMDBDatabase")
                .one("olmMDBPagesMax", store.pages_max.to_string())
                .one("olmMDBPagesUsed", store.pages_used.to_string())
                .one("olmMDBPagesFree", store.pages_free.to_string())
                .one("olmMDBReadersMax", store.readers_max.to_string())
                .one("olmMDBReadersUsed", store.readers_used.to_string())
                .one("olmMDBEntries", store.entries.to_string())
                .one("olmDbDirectory", slashed(&settings.directory));
        }
        built.build()
    }

    fn overlay(&self, (n, database): (usize, &Database), at: usize, name: &str) -> Entry {
        let dn = format!("cn=Overlay {at},cn=Database {n},cn=Databases,{DN}");
        let number = self.overlay_names().iter().position(|other| *other == name).unwrap_or(0);
        let (contexts, names) = contexts(database);
        let built = self
            .object(&dn, &format!("Overlay {at}"), "monitoredObject", false)
            .one("monitoredInfo", name)
            .one("seeAlso", format!("cn=Overlay {number},cn=Overlays,{DN}"))
            .add(contexts, names);
        let cache = self.caches.iter().find(|(suffix, _)| name == "pcache" && suffix == name_of(database));
        let Some((_, content)) = cache else { return built.build() };
        built
            .one("objectClass", "olmPCache")
            .add("pcacheQueryURL", content.urls.clone())
            .one("pcacheNumQueries", content.queries.to_string())
            .one("pcacheNumEntries", content.entries.to_string())
            .build()
    }
}

/// As OpenLDAP shows it.
fn slashed(directory: &Path) -> String {
    let text = directory.display().to_string();
    if text.ends_with('/') { text } else { text + "/" }
}

/// The attribute that tells a database's suffixes, and they.
fn contexts(database: &Database) -> (&'static str, Vec<String>) {
    let attribute = if database.kind.is_monitor() { "monitorContext" } else { "namingContexts" };
    (attribute, suffixes(database))
}

fn suffixes(database: &Database) -> Vec<String> {
    if let Some(own) = database.kind.own_suffix() {
        return vec![own.to_owned()];
    }
    database.suffixes.iter().map(ToString::to_string).collect()
}

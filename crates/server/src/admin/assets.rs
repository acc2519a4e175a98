//! The files that pages name. They are part of the binary: nothing is fetched from elsewhere.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// One file.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) name: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: [Asset; 6] = [
    Asset {
        name: "style.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("assets/style.css"),
    },
    Asset { name: "app.js", content_type: SCRIPT, text: include_str!("assets/app.js") },
    Asset { name: "charts.js", content_type: SCRIPT, text: include_str!("assets/charts.js") },
    Asset { name: "searches.js", content_type: SCRIPT, text: include_str!("assets/searches.js") },
    Asset { name: "tree.js", content_type: SCRIPT, text: include_str!("assets/tree.js") },
    Asset { name: "larch.svg", content_type: "image/svg+xml", text: include_str!("assets/larch.svg") },
];

/// A part of every asset's URL: it changes with the files, so that browsers may keep them.
pub(super) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    ASSETS.iter().for_each(|asset| hash.update(asset.text));
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
});

/// The file of a path below `/assets/`, whatever version it names.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    let (_, name) = path.split_once('/')?;
    ASSETS.iter().find(|asset| asset.name == name)
}

/// The URL of a file.
pub(super) fn url(name: &str) -> String {
    format!("/assets/{}/{name}", *VERSION)
}

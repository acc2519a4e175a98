//! `larix version`: what this binary is.

use std::fmt::Write as _;

use larix_engine::tables::{FORMAT, FORMAT_OLDEST};
use larix_server::ENGINES;

/// What the binary was built from: a commit's first digits, or what the builder called it.
const BUILT_FROM: &str = env!("LARIX_BUILT_FROM");
/// Features that a build may have beside its engines, and whether this one has them.
const FEATURES: [(&str, bool); 1] = [("gssapi", cfg!(feature = "gssapi"))];

/// Name and version, then a line for each of commit, features and disk format.
pub(crate) fn text() -> String {
    let features: Vec<&str> =
        FEATURES.iter().chain(&ENGINES).filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(" ") };
    let mut text = format!("larix {}\n", env!("CARGO_PKG_VERSION"));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "commit       {BUILT_FROM}");
    let _ = writeln!(text, "features     {features}");
    let _ = writeln!(text, "disk format  {FORMAT} (reads {FORMAT_OLDEST} to {FORMAT})");
    text
}

//! Panics on purpose, for tests that show what one leaves behind. Builds without debug assertions have none of it.

/// Panics once if the directory that the environment's `LARIX_PANICS` names has a file called `place`, and removes that.
#[cfg(debug_assertions)]
pub fn panic_at(place: &str) {
    use std::path::PathBuf;
    use std::sync::OnceLock;

    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| std::env::var_os("LARIX_PANICS").map(PathBuf::from));
    // Of several threads the one that removes the file is meant.
    let is_meant =
        directory.as_ref().is_some_and(|directory| std::fs::remove_file(directory.join(place)).is_ok());
    assert!(!is_meant, "a panic was asked for at {place}");
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn panic_at(_place: &str) {}

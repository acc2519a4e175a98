//! What a backup says of itself.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::{MANIFEST, digest};

/// The manifest's own format.
const FORMAT: u32 = 1;

/// `backup.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// The version that made it.
    pub(super) larix: String,
    /// Generalized time (RFC 4517 section 3.3.13), when the last database was copied.
    pub(super) made_at: String,
    pub(super) configuration: StoredFile,
    pub(super) databases: Vec<DatabaseBackup>,
}

/// One database.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DatabaseBackup {
    /// Its naming contexts, as configured.
    pub(super) suffixes: Vec<String>,
    pub(super) file: StoredFile,
    pub(super) entries: u64,
    /// The state of replication in it, one for each server id.
    pub(super) context_csn: Vec<String>,
}

/// A file of the backup.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredFile {
    /// Below the backup's directory.
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// In hexadecimal digits.
    pub(super) sha256: String,
}

impl StoredFile {
    /// Describes the file at `path` below the directory.
    pub(super) fn of(directory: &Path, path: PathBuf) -> anyhow::Result<Self> {
        let (bytes, sha256) = digest(&directory.join(&path), |_| Ok(()))?;
        Ok(Self { path, bytes, sha256 })
    }

    /// Whether the file is what it was when the backup was made; each chunk is handed over on the way.
    pub(super) fn verify(
        &self,
        directory: &Path,
        chunk: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let path = directory.join(&self.path);
        let (bytes, sha256) = digest(&path, chunk)?;
        if bytes != self.bytes {
            bail!(
                "{} has {bytes} bytes where {MANIFEST} says {}: it was cut or changed",
                path.display(),
                self.bytes
            );
        }
        if sha256 != self.sha256 {
            bail!("{} is not what it was when the backup was made: its SHA-256 is {sha256}", path.display());
        }
        Ok(())
    }
}

impl Manifest {
    pub(super) fn new(made_at: String, configuration: StoredFile, databases: Vec<DatabaseBackup>) -> Self {
        let larix = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, larix, made_at, configuration, databases }
    }

    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(MANIFEST);
        let text = serde_json::to_string_pretty(self).context("the manifest as JSON")? + "\n";
        super::take::write_private(&path, text.as_bytes())
    }

    pub(super) fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(MANIFEST);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!("{} is no backup: it has no {MANIFEST}, which is written last", directory.display())
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let manifest: Self =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
        if manifest.format != FORMAT {
            let found = manifest.format;
            bail!("{} has format {found}; this version reads format {FORMAT}", path.display());
        }
        Ok(manifest)
    }
}

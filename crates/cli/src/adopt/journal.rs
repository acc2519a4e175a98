//! Where the move stands: one file, replaced whole before each step, so that a kill at any moment is gone on from or undone.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::slapd::FoundSlapd;

const VERSION: u32 = 1;
const STATE: &str = "state.json";
/// What becomes the journal when it is on the disk.
const NEXT_STATE: &str = "state.next";
pub(super) const LOCK: &str = "lock";

/// What is being done, or was done last. In the order of the way there and back.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Step {
    /// Larix's configuration and a first copy are made; slapd serves.
    Preparing,
    /// They are there; slapd serves.
    Copied,
    /// slapd is being stopped, what it wrote since the first copy is taken over, and all is compared.
    Taking,
    /// Larix is being started. From here on it may have what slapd has not.
    Starting,
    Adopted,
    /// Larix is being stopped, and a database of slapd's made beside the old one.
    Returning,
    /// The files change places.
    Swapping,
    /// slapd is being started.
    SlapdStarting,
}

impl Step {
    pub(super) fn tells(self) -> &'static str {
        match self {
            Self::Preparing => "the first copy is being made, slapd serves",
            Self::Copied => "the first copy is made, slapd serves",
            Self::Taking => "slapd is stopped, its last changes are being taken over",
            Self::Starting => "Larix is being started",
            Self::Adopted => "Larix serves",
            Self::Returning => "the way back: Larix is stopped, slapd's database is being made",
            Self::Swapping => "the way back: the files of slapd's database change places",
            Self::SlapdStarting => "the way back: slapd is being started",
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Journal {
    version: u32,
    pub(super) step: Step,
    /// Seconds since 1970 when the move was begun: part of the names of what is kept.
    pub(super) begun: u64,
    /// The seconds without a server, when they are over.
    pub(super) pause_seconds: Option<f64>,
    pub(super) found: FoundSlapd,
    #[serde(skip)]
    pub(super) place: PathBuf,
}

impl Journal {
    pub(super) fn path(place: &Path) -> PathBuf {
        place.join(STATE)
    }

    /// Whether a file of this name may be in the place before a move has begun: a kill leaves it there.
    pub(super) fn may_lie_before(name: &OsStr) -> bool {
        name == LOCK || name == NEXT_STATE
    }

    pub(super) fn is_in(place: &Path) -> bool {
        Self::path(place).exists()
    }

    pub(super) fn begin(place: &Path, found: FoundSlapd) -> anyhow::Result<Self> {
        let begun = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let journal = Self {
            version: VERSION,
            step: Step::Preparing,
            begun,
            pause_seconds: None,
            found,
            place: place.to_owned(),
        };
        journal.write()?;
        Ok(journal)
    }

    pub(super) fn read(place: &Path) -> anyhow::Result<Self> {
        let path = Self::path(place);
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut journal: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no journal of larix adopt", path.display()))?;
        ensure!(
            journal.version == VERSION,
            "{} is of version {}: use the larix that wrote it",
            path.display(),
            journal.version
        );
        place.clone_into(&mut journal.place);
        Ok(journal)
    }

    /// Durable when this returns.
    pub(super) fn enter(&mut self, step: Step) -> anyhow::Result<()> {
        self.step = step;
        self.write()
    }

    fn write(&self) -> anyhow::Result<()> {
        let path = Self::path(&self.place);
        let next = self.place.join(NEXT_STATE);
        let written = || -> std::io::Result<()> {
            let mut file = fs::File::create(&next)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            fs::File::open(&self.place)?.sync_all()
        };
        written().with_context(|| format!("cannot write {}", path.display()))
    }

    /// What Larix serves from; its user's.
    pub(super) fn larix(&self) -> PathBuf {
        self.place.join("larix")
    }

    pub(super) fn configuration(&self) -> PathBuf {
        self.larix().join("slapd.d")
    }

    /// Dumps and what was made once; root's alone.
    pub(super) fn work(&self) -> PathBuf {
        self.place.join("work")
    }

    /// Larix's directory of a database.
    pub(super) fn data(&self, number: usize) -> PathBuf {
        self.larix().join(format!("data-{number}"))
    }
}

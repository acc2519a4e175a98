//! What the planner decided, for people.

use std::fmt;

use super::Exactness;

/// One step of a plan and the steps that it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explain {
    /// What is done: `index mail eq`, `intersect`, `scan all entries`...
    pub step: String,
    /// Ids expected; `None` when all.
    pub estimate: Option<u64>,
    pub exactness: Exactness,
    pub inner: Vec<Self>,
}

impl Explain {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        write!(f, "{:width$}{}", "", self.step, width = depth * 2)?;
        match self.estimate {
            Some(1) => f.write_str(": about 1 entry")?,
            Some(count) => write!(f, ": about {count} entries")?,
            None => f.write_str(": all entries")?,
        }
        f.write_str(match self.exactness {
            Exactness::Exact => ", exact",
            Exactness::Partial => ", to verify",
            Exactness::All => ", the filter is tested on each",
        })?;
        for step in &self.inner {
            f.write_str("\n")?;
            step.write(f, depth + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

//! What a server's process used, from `/proc`.

use anyhow::Context;

/// CPU time and memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time of all its threads, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, mapped files included, in bytes.
    pub resident: u64,
}

impl Usage {
    /// Reads the usage of `process`.
    ///
    /// # Errors
    /// No such process, or a `/proc` that says it otherwise than proc(5).
    pub fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/stat");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // The second field is the name in parentheses and may hold spaces: count from the last parenthesis.
        let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or("").split_whitespace().collect();
        let field = |index: usize| -> anyhow::Result<u64> {
            let text = fields.get(index).with_context(|| format!("{path} has no field {index}"))?;
            text.parse().with_context(|| format!("{path}: field {index} is {text:?}"))
        };
        let ticks = rustix::param::clock_ticks_per_second();
        let pages = rustix::param::page_size() as u64;
        Ok(Self {
            cpu_seconds: (field(11)? + field(12)?) as f64 / ticks as f64,
            resident: field(21)? * pages,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident > 0, "{usage:?}");
        assert!(Usage::of(u32::MAX).is_err());
    }
}

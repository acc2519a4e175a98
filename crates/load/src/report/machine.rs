//! What this machine is, from `/proc`.

use super::Machine;

impl Machine {
    /// This machine; what cannot be found out is left empty.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Self {
            cpu: processor(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
            memory: memory(&read("/proc/meminfo")),
            kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
        }
    }
}

/// The first processor's model; arm64 kernels name only its implementer and part.
fn processor(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let line =
            cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        line.split_once(':').map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    if let Some(model) = field("model name") {
        return model;
    }
    match (field("CPU implementer"), field("CPU part")) {
        (Some(implementer), Some(part)) => format!("implementer {implementer}, part {part}"),
        _ => String::new(),
    }
}

/// Bytes of memory from the line `MemTotal: N kB`.
fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        for (text, expected) in [
            ("processor : 0\nmodel name\t: Some  CPU @ 2.2GHz\nmodel name : other\n", "Some CPU @ 2.2GHz"),
            ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "implementer 0x41, part 0xd0c"),
            ("", ""),
        ] {
            assert_eq!(processor(text), expected);
        }
    }

    #[test]
    fn memories() {
        for (text, expected) in
            [("MemTotal:       16 kB\nMemFree: 3 kB\n", 16 << 10), ("MemTotal: lots\n", 0), ("", 0)]
        {
            assert_eq!(memory(text), expected, "{text:?}");
        }
        assert!(Machine::here().cores > 0);
    }
}

//! Figures between processes, and the table in markdown.

use anyhow::Context;

use crate::workload::Figure;

/// What one engine reached.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) disk_bytes: u64,
    /// Resident bytes at the most, mapped files included.
    pub(crate) peak: u64,
}

/// A table: one line for each workload, one column for each engine.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) title: String,
    pub(crate) runs: Vec<Run>,
}

pub(crate) fn heading(seconds: f64) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "One thread, {cores} cores, at most {seconds} s a figure. Each cell: operations a second, and CPU us an operation\n\
         (user and system, background threads included).\n"
    )
}

pub(crate) fn suite(suite: &Suite) -> String {
    let mut out = format!("### {}\n\n| work |", suite.title);
    out += &suite.runs.iter().map(|run| format!(" {} |", run.name)).collect::<String>();
    out += &format!("\n|---|{}\n", "---:|".repeat(suite.runs.len()));
    // An engine that was killed has no figures.
    let longest = suite.runs.iter().max_by_key(|run| run.figures.len());
    let names = longest.map_or(&[][..], |run| &run.figures).iter().map(|figure| &figure.name);
    for name in names {
        out += &format!("| {name} |");
        for run in &suite.runs {
            let figure = run.figures.iter().find(|figure| figure.name == *name);
            out += &format!(" {} |", figure.map_or_else(|| "killed: out of memory".into(), cell));
        }
        out.push('\n');
    }
    let mut line = |name: &str, value: fn(&Run) -> u64| {
        let cells = suite.runs.iter().map(|run| format!(" {} |", bytes(value(run) as f64)));
        out += &format!("| {name} |{}\n", cells.collect::<String>());
    };
    line("disk at the end", |run| run.disk_bytes);
    line("resident at the most, mapped pages included", |run| run.peak);
    out
}

fn cell(figure: &Figure) -> String {
    if figure.operations == 0.0 {
        return format!("{:.1} s", figure.cpu_seconds);
    }
    let rate = figure.operations / figure.seconds.max(1e-9);
    let cpu = figure.cpu_seconds / figure.operations * 1e6;
    format!("{}/s, {cpu:.2} us", number(rate))
}

/// A whole number with its thousands apart.
pub(crate) fn number(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn bytes(value: f64) -> String {
    format!("{:.1} MiB", value / f64::from(1 << 20))
}

/// One line a figure, and the peak of resident bytes of this process.
pub(crate) fn write_figures(figures: &[Figure]) -> String {
    let lines = figures
        .iter()
        .map(|f| format!("{}\t{}\t{}\t{}\n", f.name, f.operations, f.seconds, f.cpu_seconds))
        .collect::<String>();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    format!("{lines}peak\t{}\n", kib * 1024)
}

pub(crate) fn read_figures(text: &str) -> anyhow::Result<(Vec<Figure>, u64)> {
    let mut figures = Vec::new();
    let mut peak = 0;
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["peak", bytes] => peak = bytes.parse()?,
            [name, operations, seconds, cpu] => figures.push(Figure {
                name: (*name).to_owned(),
                operations: operations.parse()?,
                seconds: seconds.parse()?,
                cpu_seconds: cpu.parse()?,
            }),
            _ => return Err(anyhow::anyhow!("{line:?}")).context("a worker's line"),
        }
    }
    Ok((figures, peak))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(operations: f64) -> Figure {
        Figure { name: "read".into(), operations, seconds: 2.0, cpu_seconds: 1.0 }
    }

    #[test]
    fn figures_come_back() {
        let figures = vec![figure(10.0), figure(0.0)];
        let (read, peak) = read_figures(&write_figures(&figures)).unwrap();
        assert_eq!(read, figures);
        assert!(peak > 0);
        assert!(read_figures("a\tb").is_err());
    }

    #[test]
    fn cells() {
        for (operations, expected) in [(2_000_000.0, "1,000,000/s, 0.50 us"), (0.0, "1.0 s")] {
            assert_eq!(cell(&figure(operations)), expected);
        }
    }
}

//! Measurements as text.

use std::fmt::Write;

use larix_load::drive::{OperationReport, Report};
use larix_proto::ResultCode;

/// The head of the lines that [`step`] makes.
pub(super) const STEP_HEADER: &str = "connections      rate/s  per CPU-s   p50 us   p99 us  p999 us";

/// A measurement in a few lines.
pub(super) fn report(report: &Report) -> String {
    let mut text = String::new();
    let per_cpu = report.per_cpu_second().map_or(String::new(), |rate| format!(", {rate:.0} per CPU-s"));
    let _ = writeln!(
        text,
        "{:.0}/s{per_cpu}, {} operations, {} entries",
        report.rate(),
        report.operations,
        report.entries
    );
    let _ = writeln!(text, "latency us: {}", latency(&report.latency_us, ", "));
    if report.by_operation.len() > 1 {
        for operation in &report.by_operation {
            let _ = writeln!(text, "  {}", operation_line(operation, report.seconds));
        }
    }
    if let Some(cpu) = report.server_cpu_seconds {
        let resident =
            report.server_resident.map_or(String::new(), |bytes| format!(", resident {}", size(bytes)));
        let _ = writeln!(text, "server: {cpu:.2} CPU-s in {:.2} s{resident}", report.seconds);
    }
    if let Some(bytes) = report.disk_bytes {
        let _ = writeln!(text, "disk: {}", size(bytes));
    }
    if let Some(lag) = &report.lag {
        let caught_up = lag.caught_up_after.map_or_else(
            || "never caught up".to_owned(),
            |seconds| format!("caught up {seconds:.3} s after the load"),
        );
        let _ = writeln!(text, "replica: at most {:.3} s behind, {caught_up}", lag.max_seconds);
    }
    let _ = writeln!(text, "driver: {:.2} CPU-s", report.generator_cpu_seconds);
    for (code, count) in &report.failures {
        text += &result_line(*code, *count);
    }
    for unexpected in &report.unexpected {
        let _ = writeln!(text, "WRONG: {}: {}: {} times", unexpected.step, unexpected.what, unexpected.count);
    }
    if let Some(saturated) = &report.saturated {
        let _ = writeln!(text, "LIMITED BY THE DRIVER: {saturated}");
    }
    text
}

/// One step of an optimization.
pub(super) fn step(connections: usize, report: &Report) -> String {
    let at = |quantile| report.latency_us.value_at_quantile(quantile);
    let per_cpu = report.per_cpu_second().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
    let mut text = format!(
        "{connections:11} {:11.0} {per_cpu:>10} {:8} {:8} {:8}",
        report.rate(),
        at(0.5),
        at(0.99),
        at(0.999)
    );
    if report.saturated.is_some() {
        text.push_str("  limited by the driver");
    }
    text
}

fn operation_line(operation: &OperationReport, seconds: f64) -> String {
    let rate = operation.operations as f64 / seconds;
    let failures = match operation.failures {
        0 => String::new(),
        failures => format!(", {failures} failed"),
    };
    format!("{:10} {rate:8.0}/s  {}{failures}", operation.name, latency(&operation.latency_us, " "))
}

fn latency(latency: &larix_load::drive::Histogram<u64>, separator: &str) -> String {
    let at = |quantile| latency.value_at_quantile(quantile);
    format!(
        "p50 {}{separator}p99 {}{separator}p999 {}{separator}max {}",
        at(0.5),
        at(0.99),
        at(0.999),
        latency.max()
    )
}

fn result_line(code: u32, count: u64) -> String {
    format!("result {code} ({}): {count} times\n", ResultCode(code).text())
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, f64); 3] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let (unit, factor) = UNITS.into_iter().find(|(_, factor)| bytes as f64 >= *factor).unwrap_or(("B", 1.0));
    format!("{:.1} {unit}", bytes as f64 / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_their_words() {
        assert_eq!(result_line(8, 3), "result 8 (Strong(er) authentication required): 3 times\n");
    }

    #[test]
    fn sizes_are_shown_in_the_nearest_unit() {
        for (bytes, expected) in [
            (0, "0.0 B"),
            (999, "999.0 B"),
            (1_500, "1.5 kB"),
            (2_000_000, "2.0 MB"),
            (31 * 100_000_000, "3.1 GB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}

//! `larix backup` and `larix restore`: the flags of what `larix_server::backup` does.

mod restore;
mod take;

pub(super) use restore::{RestoreArgs, main as restore};
pub(super) use take::{BackupArgs, main as take};

use std::io::{self, IsTerminal, Write};

use larix_configuration::values::Throttle;
use larix_server::backup::{Pace, Progress};

/// Tells a person at a terminal how far it is, on one line.
fn pace(throttle: Throttle) -> Pace<'static> {
    let is_terminal = io::stderr().is_terminal();
    let mut width = 0;
    Pace::new(throttle, move |progress: &Progress<'_>| {
        if is_terminal {
            let text = line(progress);
            let mut out = io::stderr().lock();
            // A terminal that takes no progress misses nothing else.
            let _ = write!(out, "\r{text:width$}\r");
            let _ = out.flush();
            width = text.chars().count();
        }
    })
}

fn line(progress: &Progress<'_>) -> String {
    let Progress { what, done, total, per_second, seconds_left } = *progress;
    let mut text = format!("{what}: {} MiB", done >> 20);
    if let Some(percent) = (done * 100).checked_div(total) {
        text.push_str(&format!(", {} %", percent.min(100)));
    }
    text.push_str(&format!(", {} MiB/s", per_second >> 20));
    if let Some(remaining) = seconds_left {
        text.push_str(&format!(", {}:{:02} left", remaining / 60, remaining % 60));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress() {
        let progress = |done, total, seconds_left| Progress {
            what: "data.mdb",
            done,
            total,
            per_second: 50 << 20,
            seconds_left,
        };
        for (progress, expected) in [
            (progress(100 << 20, 400 << 20, Some(66)), "data.mdb: 100 MiB, 25 %, 50 MiB/s, 1:06 left"),
            (progress(100 << 20, 0, None), "data.mdb: 100 MiB, 50 MiB/s"),
        ] {
            assert_eq!(line(&progress), expected);
        }
    }
}

//! `larix load optimize`: the most that a server gives.

use anyhow::Context;
use clap::Args;
use larix_load::drive::{self, Growth, Optimum, Options, Steps};

use super::run::{check, prepare};
use super::show;
use super::target::TargetArgs;
use super::work::WorkArgs;

#[derive(Args, Debug)]
pub(super) struct OptimizeArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Connections of the first step
    #[arg(long, default_value_t = 1)]
    from: usize,
    /// The most connections that are tried
    #[arg(long, default_value_t = 1_024)]
    to: usize,
    /// So many more connections each step [default: twice as many]
    #[arg(long)]
    by: Option<usize>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &OptimizeArgs) -> anyhow::Result<()> {
    let (options, mut workload) = prepare(&args.work, &args.target)?;
    let growth = args.by.map_or(Growth::Double, Growth::Add);
    let steps = Steps { first: args.from, growth, max: args.to };
    if !args.json {
        println!("{}", show::STEP_HEADER);
    }
    let found = drive::optimize_by(steps, |connections| {
        let threads = options.threads.min(connections);
        let options = Options { connections, threads, ..options.clone() };
        let report =
            drive::run(&options, &workload).with_context(|| format!("with {connections} connections"))?;
        workload.sequence_start = report.sequence_end.max(workload.sequence_start);
        if !args.json {
            println!("{}", show::step(connections, &report));
        }
        check(&report)?;
        Ok(report)
    })?;
    finish(args, &found);
    Ok(())
}

fn finish(args: &OptimizeArgs, found: &Optimum) {
    if args.json {
        let steps = found.steps.iter().map(|(connections, report)| {
            serde_json::json!({ "connections": connections, "report": report.to_json() })
        });
        let best = found.best().map(|(connections, _)| connections);
        println!("{}", serde_json::json!({ "best_connections": best, "steps": steps.collect::<Vec<_>>() }));
    } else if let Some((connections, report)) = found.best() {
        println!("\nthe best rate, with {connections} connections:");
        print!("{}", show::report(report));
    }
}

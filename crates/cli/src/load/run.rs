//! `larix load run`: one measurement.

use anyhow::bail;
use clap::Args;
use larix_load::drive::{self, Options, Report, Workload};

use super::show;
use super::target::TargetArgs;
use super::work::WorkArgs;

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Connections that send requests
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let (options, workload) = prepare(&args.work, &args.target)?;
    let options = Options { connections: args.connections, ..options };
    let report = drive::run(&options, &workload)?;
    if args.json {
        println!("{}", report.to_json());
    } else {
        print!("{}", show::report(&report));
    }
    check(&report)
}

/// The options, but for the connections, and the workload.
pub(super) fn prepare(work: &WorkArgs, target: &TargetArgs) -> anyhow::Result<(Options, Workload)> {
    let bind = match &target.bind_dn {
        Some(dn) => Some((dn.clone(), target.password()?)),
        None => None,
    };
    let workload = work.workload(bind)?;
    Ok((target.options(work.usual_identity())?, workload))
}

/// A measurement of wrong answers has failed, whatever its rate.
pub(super) fn check(report: &Report) -> anyhow::Result<()> {
    let wrong: u64 = report.unexpected.iter().map(|unexpected| unexpected.count).sum();
    if wrong > 0 {
        bail!(
            "{wrong} of {} answers are not what is expected: the figures are worth nothing",
            report.operations
        );
    }
    Ok(())
}

//! `larix cluster`: what the engine of a `database kv` says of its nodes, from its own address; no server is asked.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use larix_server::cluster::{self, CheckedContent, KnownNode, NodeReport, Status};

use crate::terminal::{print_report, say};
use crate::tools::flags::ConfigArgs;

/// How long a node that stepped down keeps away from the lease.
const KEPT_AWAY: Duration = Duration::from_secs(10);
/// Findings that are printed; the rest is counted.
const PRINTED_MAX: u64 = 100;
/// Something does not fit.
const FINDINGS: u8 = 1;
/// The engine cannot be asked.
const NOT_ASKED: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Print which node writes, the newest commit, what each node has in force of the configuration, and which servers are connected
    Status(SharedDatabaseArgs),
    /// End the lease: another node takes over, and the one that writes may not for ten seconds
    StepDown(SharedDatabaseArgs),
    /// Take a node out: end its lease and its connections to the engine. Stop its server first, or it comes back
    Remove(RemoveArgs),
    /// Check that tree, entries and indexes in the engine agree
    Check(SharedDatabaseArgs),
}

#[derive(Debug, Args)]
struct SharedDatabaseArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// A suffix of the kv database; needed where there are several
    #[arg(short = 'b', long = "suffix", value_name = "SUFFIX")]
    suffix: Option<String>,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    #[command(flatten)]
    place: SharedDatabaseArgs,
    /// The node's URL, as `larix cluster status` prints it
    #[arg(value_name = "NODE")]
    node: String,
}

pub(crate) fn main(arguments: &ClusterArgs) -> ExitCode {
    let done = match &arguments.command {
        ClusterCommand::Status(place) => status(place),
        ClusterCommand::StepDown(place) => step_down(place),
        ClusterCommand::Remove(remove) => removed(remove),
        ClusterCommand::Check(place) => checked(place),
    };
    done.unwrap_or_else(|error| {
        eprintln!("larix cluster: {error:#}");
        ExitCode::from(NOT_ASKED)
    })
}

/// Prints a line of what was asked.
fn line(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    print_report(&text.to_string())
}

fn status(place: &SharedDatabaseArgs) -> anyhow::Result<ExitCode> {
    let Status { leader, epoch, commit, configuration, nodes, connected } =
        cluster::status(&place.config.read()?, place.suffix()).map_err(anyhow::Error::msg)?;
    match leader {
        Some((leader, remaining)) => {
            line(format_args!("leader:        {leader} (lease: {} ms)", remaining.as_millis()))?;
        }
        None => line(format_args!("leader:        none"))?,
    }
    line(format_args!("epoch:         {epoch}"))?;
    line(format_args!("newest commit: {commit}"))?;
    if let Some((generation, node)) = configuration {
        line(format_args!("configuration: generation {generation}, of {node}"))?;
    }
    nodes.iter().try_for_each(|node| line(format_args!("node:          {}", about(node))))?;
    for session in connected {
        line(format_args!("connected:     {} ({} connections)", session.name, session.connections))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A node in a line.
fn about(known: &KnownNode) -> String {
    let KnownNode { node, heard, report } = known;
    let mut text = node.clone();
    if let Some(NodeReport { version, .. }) = report {
        text += &format!(", Larix {version}");
    }
    match heard {
        Some(ago) => text += &format!(", heard of {:.1} s ago", ago.as_secs_f64()),
        None => text += ", connected",
    }
    match report {
        Some(report) => text + ", configuration: " + &configuration_of(report),
        None => text + ", of another version, which says nothing more that this one reads",
    }
}

/// How the configuration of a node stands to what all nodes have in common.
fn configuration_of(report: &NodeReport) -> String {
    let NodeReport { is_shared, newest, in_force, refused, .. } = report;
    let text = match in_force {
        0 if *is_shared => "an earlier one in force".to_owned(),
        0 if *newest == 0 => "its own".to_owned(),
        0 => format!("its own, which differs from generation {newest}"),
        _ => format!("generation {in_force} in force"),
    };
    match refused {
        Some(why) => format!("{text}, generation {newest} refused: {why}"),
        None if *is_shared && in_force < newest => format!("{text}, generation {newest} not yet"),
        None => text,
    }
}

fn step_down(place: &SharedDatabaseArgs) -> anyhow::Result<ExitCode> {
    let before = cluster::step_down(&place.config.read()?, place.suffix(), KEPT_AWAY);
    let Some(leader) = before.map_err(anyhow::Error::msg)? else { bail!("no node holds the lease") };
    say!("{leader} has lost the lease, and may not take it for {} seconds", KEPT_AWAY.as_secs());
    Ok(ExitCode::SUCCESS)
}

fn removed(arguments: &RemoveArgs) -> anyhow::Result<ExitCode> {
    let RemoveArgs { place, node } = arguments;
    let node = node.trim_end_matches('/');
    let done = cluster::remove(&place.config.read()?, place.suffix(), node, KEPT_AWAY);
    let done = done.map_err(anyhow::Error::msg)?;
    if !done.held_lease && done.connections == 0 {
        bail!(
            "no node {node:?} is connected or holds the lease: `larix cluster status` lists those that are"
        );
    }
    if done.held_lease {
        say!("{node} has lost the lease, and may not take it for {} seconds", KEPT_AWAY.as_secs());
    }
    say!("{node} has lost {} connections to the engine", done.connections);
    say!("a server that still runs connects again: stop it");
    Ok(ExitCode::SUCCESS)
}

fn checked(place: &SharedDatabaseArgs) -> anyhow::Result<ExitCode> {
    let (mut findings, mut printed) = (0, Ok(()));
    let checked = cluster::check(&place.config.read()?, place.suffix(), &mut |finding| {
        findings += 1;
        if findings <= PRINTED_MAX && printed.is_ok() {
            printed = line(format_args!("{finding}"));
        }
    });
    let CheckedContent { commit, entries } = checked.map_err(anyhow::Error::msg)?;
    printed.and_then(|()| line(format_args!("commit {commit}: {entries} entries, {findings} findings")))?;
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

impl SharedDatabaseArgs {
    fn suffix(&self) -> Option<&str> {
        self.suffix.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_a_node() {
        let report = |is_shared, newest, in_force, refused: Option<&str>| NodeReport {
            version: "1.2".to_owned(),
            is_shared,
            newest,
            in_force,
            refused: refused.map(str::to_owned),
        };
        for (report, expected) in [
            (report(true, 3, 3, None), "generation 3 in force"),
            (report(false, 3, 3, None), "generation 3 in force"),
            (report(true, 3, 2, None), "generation 2 in force, generation 3 not yet"),
            (report(true, 3, 2, Some("no such")), "generation 2 in force, generation 3 refused: no such"),
            (report(true, 3, 0, Some("no such")), "an earlier one in force, generation 3 refused: no such"),
            (report(false, 3, 0, None), "its own, which differs from generation 3"),
            (report(false, 0, 0, None), "its own"),
        ] {
            let known = KnownNode {
                node: "ldap://n1".to_owned(),
                heard: Some(Duration::from_millis(1250)),
                report: Some(report),
            };
            let text = format!("ldap://n1, Larix 1.2, heard of 1.2 s ago, configuration: {expected}");
            assert_eq!(about(&known), text);
        }
        let silent = KnownNode { node: "ldap://n1".to_owned(), heard: None, report: None };
        assert!(about(&silent).starts_with("ldap://n1, connected, of another version"));
    }
}

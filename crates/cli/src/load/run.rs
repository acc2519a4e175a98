//! `larix load run`: one measurement.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use larix_load::drive::{self, Identity, Operation, Step, Workload};
use larix_load::generate::{self, Kind};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Half by delivery address, half by alias, and status; the whole entry comes back
    MailSearch,
    /// Base search by DN
    Read,
    Compare,
    /// Simple bind as the bind DN
    Bind,
    /// Replace one attribute
    Modify,
    /// Add accounts with new numbers
    Add,
    /// 80 % searches, 20 % modifies
    Mixed,
}

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// What is asked of the generated mail directory
    #[arg(value_enum)]
    what: What,
    /// HOST:PORT of the server
    #[arg(long)]
    server: String,
    /// How many accounts the directory was generated with
    #[arg(long)]
    entries: u64,
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Seconds that are measured
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seconds before the measurement
    #[arg(long, default_value_t = 2)]
    warm_up: u64,
    /// The server's process id, for its CPU time and memory
    #[arg(long)]
    process: Option<u32>,
    #[arg(long, short = 'D')]
    bind_dn: Option<String>,
    #[arg(long, short = 'w', default_value = generate::ROOT_PASSWORD)]
    password: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Numbers of added accounts start after this
    #[arg(long, default_value_t = 0)]
    sequence_start: u64,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let workload = workload(args)?;
    workload.check()?;
    let identity = match (&args.bind_dn, args.what) {
        (Some(dn), _) => (dn.clone(), args.password.clone()).into(),
        (None, What::Modify | What::Add | What::Mixed) => {
            (Kind::Mail.root_dn(), generate::ROOT_PASSWORD.to_owned()).into()
        }
        (None, _) => Identity::Anonymous,
    };
    let options = drive::Options {
        identity,
        connections: args.connections,
        in_flight: args.in_flight,
        duration: Duration::from_secs(args.seconds),
        warm_up: Duration::from_secs(args.warm_up),
        process: args.process,
        seed: args.seed,
        ..drive::Options::new(resolve(&args.server)?.into())
    };
    let report = drive::run(&options, &workload)?;
    if args.json {
        println!("{}", report.to_json());
        return Ok(());
    }
    let per_cpu = report.per_cpu_second().map_or(String::new(), |rate| format!(", {rate:.0} per CPU-s"));
    println!("{:.0}/s{per_cpu}, {} operations, {} entries", report.rate(), report.operations, report.entries);
    let at = |quantile| report.latency_us.value_at_quantile(quantile);
    println!(
        "latency us: p50 {}, p99 {}, p999 {}, max {}",
        at(0.5),
        at(0.99),
        at(0.999),
        report.latency_us.max()
    );
    for (code, count) in &report.failures {
        println!("result {code}: {count} times");
    }
    Ok(())
}

fn resolve(server: &str) -> anyhow::Result<SocketAddr> {
    let mut found = server.to_socket_addrs().with_context(|| format!("{server:?} is not HOST:PORT"))?;
    found.next().with_context(|| format!("{server:?} has no address"))
}

const PEOPLE: &str = "ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com";

fn workload(args: &RunArgs) -> anyhow::Result<Workload> {
    let account = || format!("uid=user.{{n}},{PEOPLE}");
    let search = |weight, attribute: &str| {
        let filter =
            format!("(&({attribute}=user.{{n}}@zre-ldap001.eng.vmware.com)(zimbraMailStatus=enabled))");
        Step::new(weight, Operation::search("dc=com", filter)).expecting(1)
    };
    let modify =
        || Step::new(1, Operation::replace(account(), "zimbraLastLogonTimestamp", "20200101000000Z"));
    let searches =
        |weight| [search(weight, "zimbraMailDeliveryAddress"), search(weight, "zimbraMailAlias")].into_iter();
    let steps = match args.what {
        What::MailSearch => searches(1).collect(),
        What::Read => vec![Step::new(1, Operation::read(account()))],
        What::Compare => {
            let (attribute, value) = ("zimbraMailStatus".into(), "enabled".into());
            vec![Step::new(1, Operation::Compare { dn: account(), attribute, value })]
        }
        What::Bind => {
            let dn = args.bind_dn.clone().unwrap_or_else(|| Kind::Mail.root_dn());
            vec![Step::new(1, Operation::Bind { dn, password: args.password.clone(), reconnect: false })]
        }
        What::Modify => vec![modify()],
        What::Add => vec![Step::new(1, add_template()?)],
        What::Mixed => searches(2).chain([modify()]).collect(),
    };
    let sequence_start = args.sequence_start.max(args.entries);
    Ok(Workload { steps, sequence_start, ..Workload::new(args.entries) })
}

/// The generator's own account, with its number made a placeholder.
fn add_template() -> anyhow::Result<Operation> {
    let mut ldif = Vec::new();
    Kind::Mail.write_ldif(1, 1, &mut ldif)?;
    let text = String::from_utf8(ldif).context("the generator writes UTF-8")?;
    let account =
        text.split("\n\n").find(|entry| entry.starts_with("dn: uid=")).context("the generated account")?;
    let mut lines = account.lines().filter_map(|line| line.split_once(": "));
    let dn = lines.next().map_or("", |(_, dn)| dn).replace("user.1,", "user.{s},");
    let attributes = lines
        .map(|(name, value)| {
            let value = value.replace("user.1@", "user.{s}@");
            (name.to_owned(), if value == "user.1" { "user.{s}".to_owned() } else { value })
        })
        .collect();
    Ok(Operation::Add { dn, attributes })
}

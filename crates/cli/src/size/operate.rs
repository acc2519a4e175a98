//! Serves the sample and drives it: operations for each second of the server's CPU time, and its memory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use larix_load::drive::{self, Operation, Options, Step, Workload};
use larix_load::generate::{self, Kind};
use larix_load::peer::Guard;

use super::sample::{Sample, Target};
use super::{SizeArgs, Source};
use crate::demo;

/// A database with a sample of entries, which a server serves.
pub(super) struct SizedDatabase<'a> {
    pub(super) section: &'a larix_configuration::Database,
    pub(super) source: &'a Source,
    pub(super) sample: &'a Sample,
}

/// What the server reached.
#[derive(Debug)]
pub(super) struct OperationFigures {
    pub(super) rates: Vec<Rate>,
    /// Bytes of the process's own memory, and of the mapped file that it had touched.
    pub(super) own_bytes: u64,
    pub(super) mapped_bytes: u64,
    pub(super) how: String,
}

/// One workload's result.
#[derive(Debug)]
pub(super) struct Rate {
    pub(super) name: &'static str,
    /// What the sizing guide of another server says of a core.
    pub(super) guide: f64,
    pub(super) a_core: f64,
    pub(super) a_second: f64,
    pub(super) p99_us: u64,
    /// Why the figure must not be used.
    pub(super) invalid: Option<String>,
}

pub(super) fn run(
    served: &SizedDatabase<'_>,
    folder: &Path,
    args: &SizeArgs,
    guard: &Guard,
) -> anyhow::Result<OperationFigures> {
    let file = folder.join("served.conf");
    std::fs::write(&file, served.configuration(&folder.join("whole"))?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let larix = std::env::current_exe().context("cannot find this program's own file")?;
    let server = demo::DemoServer::start(&larix, &file, folder, guard)?;
    let mut options = Options::new(server.address().into());
    options.identity = (served.root_dn(), generate::ROOT_PASSWORD.to_owned()).into();
    options.connections = args.connections;
    options.duration = args.duration();
    options.warm_up = args.duration() / 4;
    options.process = Some(server.id());
    let (how, searches, mixed) = served.workloads();
    let rates = vec![
        measured("searches only", 12_700.0, &options, &searches)?,
        measured("20 % modifies", 10_500.0, &options, &mixed)?,
    ];
    let (own_bytes, mapped_bytes) = memory(server.id())?;
    Ok(OperationFigures { rates, own_bytes, mapped_bytes, how })
}

fn measured(name: &'static str, guide: f64, options: &Options, workload: &Workload) -> anyhow::Result<Rate> {
    let report = drive::run(options, workload).with_context(|| format!("driving the server with {name}"))?;
    let wrong = report
        .unexpected
        .first()
        .map(|wrong| format!("{}: {} ({} times)", wrong.step, wrong.what, wrong.count));
    let failed = report.failures.first().map(|(code, count)| format!("{count} answers with result {code}"));
    Ok(Rate {
        name,
        guide,
        a_core: report.per_cpu_second().unwrap_or(0.0),
        a_second: report.rate(),
        p99_us: report.latency_us.value_at_quantile(0.99),
        invalid: wrong.or(failed),
    })
}

impl SizedDatabase<'_> {
    /// A slapd.conf with the sample's schema, suffix and indexes and nothing else: no access rules, no overlays, no
    /// files or sockets of the real server.
    fn configuration(&self, data: &Path) -> anyhow::Result<String> {
        let Some(mdb) = self.section.kind.mdb() else {
            anyhow::bail!("a {} database stores no entries", self.section.kind.name())
        };
        let text = std::fs::read_to_string(&self.source.config)
            .with_context(|| format!("cannot read {}", self.source.config.display()))?;
        let mut out = schema_lines(&text);
        out += "\ndatabase mdb\n";
        for suffix in &self.section.suffixes {
            let _ = writeln!(out, "suffix {}", quoted(&suffix.text));
        }
        let _ = writeln!(out, "rootdn {}\nrootpw {}", quoted(&self.root_dn()), generate::ROOT_PASSWORD);
        let _ = writeln!(out, "directory {}", quoted(&data.display().to_string()));
        for line in &mdb.index {
            let _ = writeln!(out, "index {} {}", line.attributes.join(","), line.kinds.join(","));
        }
        Ok(out)
    }

    /// The configured root DN, or one below the suffix.
    fn root_dn(&self) -> String {
        if let Some(dn) = &self.section.root_dn {
            return dn.text.clone();
        }
        match self.section.suffixes.first().map(|suffix| suffix.text.as_str()) {
            None | Some("") => "cn=larix-size".into(),
            Some(suffix) => format!("cn=larix-size,{suffix}"),
        }
    }

    /// How they are made, searches only, and with 20 % modifies.
    fn workloads(&self) -> (String, Workload, Workload) {
        match self.source.generated {
            Some(kind) => by_number(kind, self.sample),
            None => by_name(&self.sample.targets),
        }
    }
}

/// Searches by an indexed attribute over all generated entries.
fn by_number(kind: Kind, sample: &Sample) -> (String, Workload, Workload) {
    let suffix = kind.suffix();
    let (filter, dn, attribute, value) = match kind {
        Kind::Mail => {
            let people = "ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com";
            let filter = "(&(zimbraMailDeliveryAddress=user.{n}@zre-ldap001.eng.vmware.com)(zimbraMailStatus=enabled))";
            (filter, format!("uid=user.{{n}},{people}"), "zimbraLastLogonTimestamp", "20200101000000Z")
        }
        Kind::People => (
            "(uid=user.{n})",
            format!("uid=user.{{n}},ou=people,{suffix}"),
            "telephoneNumber",
            "+1 555 {digits:7}",
        ),
        Kind::Subscribers => ("(uid={n:9})", format!("uid={{n:9}},{suffix}"), "roomNumber", "{digits:6}"),
    };
    // Leaves are fewer than entries: what stands above them, and groups, are no targets.
    let leaves = sample.entries.saturating_sub(NOT_LEAVES_MAX).max(1);
    let search = |weight| Step::new(weight, Operation::search(suffix, filter)).expecting(1);
    let modify = Step::new(1, Operation::replace(dn, attribute, value));
    let how = format!("searches {filter} below {suffix:?}, whole entry back; modifies replace {attribute}");
    (how, Workload::new(leaves).with(search(1)), Workload::new(leaves).with(search(4)).with(modify))
}

/// The most generated entries that are no leaves, of any kind.
const NOT_LEAVES_MAX: u64 = 16;

/// Reads by name of entries that are spread over the sample.
fn by_name(targets: &[Target]) -> (String, Workload, Workload) {
    let read = |weight: u32, target: &Target| Step::new(weight, Operation::read(&target.dn)).expecting(1);
    let reads = targets.iter().fold(Workload::new(1), |workload, target| workload.with(read(1, target)));
    let changed = targets.iter().filter_map(|target| Some((target, target.change.as_ref()?)));
    let mut mixed = Workload::new(1);
    for (target, (attribute, value)) in changed.clone() {
        let modify = Step::new(1, Operation::replace(&target.dn, attribute, value)).named("modify");
        mixed = mixed.with(read(4, target)).with(modify);
    }
    let how = format!(
        "reads of {} entries by name, whole entry back; modifies replace a value of {} of them by itself, \
         which changes the record and the log but no index",
        targets.len(),
        changed.count()
    );
    let mixed = if mixed.steps.is_empty() { reads.clone() } else { mixed };
    (how, reads, mixed)
}

/// The lines of a slapd.conf that make its schema, with their continuation lines; those before the first database.
fn schema_lines(text: &str) -> String {
    const KEPT: [&str; 9] = [
        "schema",
        "include",
        "attributetype",
        "attributetypes",
        "objectclass",
        "objectclasses",
        "objectidentifier",
        "ldapsyntax",
        "attributeoptions",
    ];
    let mut out = String::new();
    let mut keeps = false;
    for line in text.lines() {
        if line.starts_with([' ', '\t']) {
            if keeps {
                out += &format!("{line}\n");
            }
            continue;
        }
        let keyword = line.split_whitespace().next().unwrap_or("").to_ascii_lowercase();
        if keyword == "database" {
            break;
        }
        keeps = KEPT.contains(&keyword.as_str());
        if keeps {
            out += &format!("{line}\n");
        }
    }
    out
}

/// A word of slapd.conf.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The process's own resident bytes, and the mapped file's.
fn memory(process: u32) -> anyhow::Result<(u64, u64)> {
    let path = PathBuf::from(format!("/proc/{process}/status"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    let own = field("RssAnon:").with_context(|| format!("{} has no RssAnon", path.display()))?;
    Ok((own, field("RssFile:").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_schema_is_kept() {
        let text = "# c\nschema core\ninclude /s/core.schema\npidfile /run/slapd.pid\nTLSCertificateFile /x\n\
                    attributetype ( 1.2\n  NAME 'a' )\nloglevel\n  stats\nObjectClass ( 1.3 )\ndatabase mdb\ninclude /no\n";
        let expected =
            "schema core\ninclude /s/core.schema\nattributetype ( 1.2\n  NAME 'a' )\nObjectClass ( 1.3 )\n";
        assert_eq!(schema_lines(text), expected);
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted(r#"o="a\b""#), r#""o=\"a\\b\"""#);
    }

    #[test]
    fn workloads_can_be_sent() {
        let sample = Sample { entries: 200, targets: Vec::new() };
        for kind in Kind::ALL {
            let (_, searches, mixed) = by_number(kind, &sample);
            searches.check().unwrap();
            mixed.check().unwrap();
        }
        let target = |change: Option<(&str, &str)>| Target {
            dn: "cn=a".into(),
            change: change.map(|(name, value)| (name.into(), value.into())),
        };
        for targets in [vec![target(None)], vec![target(Some(("sn", "x"))), target(None)]] {
            let (_, reads, mixed) = by_name(&targets);
            reads.check().unwrap();
            mixed.check().unwrap();
        }
    }
}

//! The flags that say what is asked: a preset on a generated directory, own templates, or a file.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use larix_load::drive::{Order, Preset, Targets, Templates, Workload};
use larix_load::generate::Kind;

#[derive(Args, Debug)]
pub(super) struct WorkArgs {
    /// What is done: search, read, compare, bind, rebind, modify, add, delete, churn, rename, mixed (20 % modifies)
    #[arg(value_parser = preset, required_unless_present = "workload")]
    what: Option<Preset>,
    /// A file that says what is done instead (TOML)
    #[arg(long, conflicts_with = "what")]
    workload: Option<PathBuf>,
    /// The generated directory that the server holds: mail, people, subscribers
    #[arg(long, default_value = "mail", value_parser = super::generate::kind)]
    directory: Kind,
    /// How many entries the directory was generated with: `n` in braces, in templates, is one of them
    #[arg(long, required_unless_present = "workload")]
    entries: Option<u64>,
    /// The lowest of their numbers
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How entries are chosen
    #[arg(long, value_enum, default_value_t = OrderName::Random)]
    order: OrderName,
    /// The k-th most popular entry is chosen with a likelihood of 1/k^EXPONENT (order zipf)
    #[arg(long, default_value_t = 1.0)]
    exponent: f64,
    /// Numbers of added entries, {s} in templates, start after this [default: the highest number of --entries]
    #[arg(long)]
    sequence_start: Option<u64>,
    /// Another base of searches
    #[arg(long)]
    base: Option<String>,
    /// Another filter of searches; given again, they are asked in even split
    #[arg(long)]
    filter: Vec<String>,
    /// How many entries each search must give [default: 1 without --filter]
    #[arg(long)]
    expect: Option<u64>,
    /// Another entry for reads, compares, modifies and renames
    #[arg(long)]
    dn: Option<String>,
    /// What searches and reads ask for; may be given again [default: all user attributes]
    #[arg(long)]
    attributes: Vec<String>,
    /// What is compared or replaced, as ATTRIBUTE=VALUE
    #[arg(long, value_parser = assertion)]
    value: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderName {
    Random,
    Sequential,
    Zipf,
}

fn preset(text: &str) -> Result<Preset, String> {
    let preset_name = if text == "mail-search" { "search" } else { text };
    Preset::ALL.into_iter().find(|preset| preset.name() == preset_name).ok_or_else(|| {
        let names: Vec<&str> = Preset::ALL.into_iter().map(Preset::name).collect();
        format!("no operation is called {text:?}: one of {}", names.join(", "))
    })
}

fn assertion(text: &str) -> Result<(String, String), String> {
    let (attribute, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is not ATTRIBUTE=VALUE"))?;
    Ok((attribute.to_owned(), value.to_owned()))
}

impl WorkArgs {
    /// What is asked; `bind` are the name and password of preset binds, if given.
    pub(super) fn workload(&self, bind: Option<(String, String)>) -> anyhow::Result<Workload> {
        if let Some(path) = &self.workload {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            return Workload::from_toml(&text).with_context(|| path.display().to_string());
        }
        let (Some(what), Some(entries)) = (self.what, self.entries) else { bail!("give WHAT and --entries") };
        let mut templates = Templates::of(self.directory)?;
        if let Some(bind) = bind {
            templates.bind = bind;
        }
        if let Some(base) = &self.base {
            templates.base.clone_from(base);
        }
        if !self.filter.is_empty() {
            templates.filters.clone_from(&self.filter);
            templates.expected = None;
        }
        templates.expected = self.expect.or(templates.expected);
        if let Some(dn) = &self.dn {
            templates.dn.clone_from(dn);
        }
        templates.attributes.clone_from(&self.attributes);
        if let Some(value) = &self.value {
            templates.compare = value.clone();
            templates.modify = value.clone();
        }
        let order = match self.order {
            OrderName::Random => Order::Random,
            OrderName::Sequential => Order::Sequential,
            OrderName::Zipf => Order::Zipf { exponent: self.exponent },
        };
        let last = self.first.saturating_add(entries).saturating_sub(1);
        let workload = Workload {
            targets: Targets { first: self.first, count: entries, order },
            sequence_start: self.sequence_start.unwrap_or(last),
            ..templates.workload(what, entries)?
        };
        workload.check()?;
        Ok(workload)
    }

    /// The name that binds on generated directories for writes, if the command line has none.
    pub(super) fn usual_identity(&self) -> Option<(String, String)> {
        let writes = self.what.is_some_and(Preset::writes);
        writes.then(|| (self.directory.root_dn(), larix_load::generate::ROOT_PASSWORD.to_owned()))
    }
}

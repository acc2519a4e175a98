//! Which entries of a database a tool reads, and the reading itself.

use anyhow::{Context, bail};
use clap::Args;
use larix_configuration::Config;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::search::entry::UnguardedEntry;
use larix_engine::search::{Filter, Gate, GuardedEntry};
use larix_engine::tables::ENTRIES;
use larix_engine::{Database, EntryId, View};
use larix_proto::url::LdapUrl;
use larix_proto::{FilterBuf, Scope};
use larix_schema::{BoundFilter, Match, NormalDn, Schema};
use larix_store::{Direction, KeyRange, Snapshot, Store};

use super::choice::Chosen;

/// Entries read in one snapshot: a slow disk or pipe never holds old pages for long.
const SLICE_ENTRIES: usize = 2_000;

/// The flags that choose entries.
#[derive(Args, Clone, Debug)]
pub(crate) struct SelectionArgs {
    /// Only entries that match this filter
    #[arg(short = 'a', value_name = "FILTER")]
    filter: Option<String>,
    /// Only this entry and what is below it
    #[arg(short = 's', value_name = "DN")]
    subtree: Option<String>,
    /// Only what this LDAP URL describes: base, scope and filter
    #[arg(short = 'H', value_name = "URL")]
    url: Option<String>,
}

impl SelectionArgs {
    /// The DN at or below which entries are wanted; none: wherever they are. A URL without a DN leaves that of `-s`.
    ///
    /// # Errors
    /// A URL that cannot be read.
    pub(crate) fn base(&self) -> anyhow::Result<Option<String>> {
        let url = self.url.as_deref().map(url).transpose()?;
        let of_url = url.map(|url| url.dn).filter(|dn| !dn.is_empty());
        Ok(of_url.or_else(|| self.subtree.clone()))
    }
}

fn url(text: &str) -> anyhow::Result<LdapUrl> {
    let url = LdapUrl::parse(text).map_err(|error| anyhow::anyhow!("-H {text}: {error}"))?;
    let names_a_server = !url.host.is_empty() || url.port.is_some();
    if names_a_server || !url.attributes.is_empty() || !url.extensions.is_empty() {
        bail!(
            "-H {text}: it says which entries are read, and names no server, attributes or extensions: ldap:///BASE??SCOPE?FILTER"
        );
    }
    Ok(url)
}

/// Which entries are wanted.
#[derive(Debug)]
pub(crate) struct Selection {
    base: Option<NormalDn>,
    scope: Scope,
    filter: Option<BoundFilter>,
    policy: AccessPolicy,
    subject: Subject,
}

impl Selection {
    /// Which entries of what was `chosen`. The scope of a URL without a DN begins at the suffix there, as for slapd's tools.
    ///
    /// # Errors
    /// A DN, filter or URL that cannot be read.
    pub(crate) fn new(args: &SelectionArgs, config: &Config, chosen: &Chosen<'_>) -> anyhow::Result<Self> {
        let schema = &config.schema;
        let dn = |text: &str| schema.parse_dn(text).map_err(|error| anyhow::anyhow!("DN {text:?}: {error}"));
        let mut selection =
            Self::filtered(config, args.filter.as_deref().map(|text| bind(schema, text)).transpose()?);
        selection.base = args.base()?.as_deref().map(dn).transpose()?;
        if let Some(text) = &args.url {
            let url = url(text)?;
            if let Some(scope) = url.scope {
                selection.scope = scope;
                if selection.base.is_none() {
                    selection.base = chosen.top(config)?;
                }
            }
            if let Some(filter) = &url.filter {
                selection.filter = Some(schema.bind_filter(filter.as_filter()));
            }
        }
        Ok(selection)
    }

    /// Everything that matches a filter.
    ///
    /// # Errors
    /// A filter that cannot be read.
    pub(crate) fn matching(filter: &str, config: &Config) -> anyhow::Result<Self> {
        Ok(Self::filtered(config, Some(bind(&config.schema, filter)?)))
    }

    fn filtered(config: &Config, filter: Option<BoundFilter>) -> Self {
        let policy = AccessPolicy::open(config.schema.clone(), None);
        Self { base: None, scope: Scope::Subtree, filter, policy, subject: Subject::default() }
    }

    pub(crate) fn holds_name(&self, dn: &NormalDn) -> bool {
        self.base.as_ref().is_none_or(|base| dn.is_in_scope(base, self.scope))
    }

    pub(crate) fn filter(&self) -> Option<&BoundFilter> {
        self.filter.as_ref()
    }

    /// The entry of a stored record as an unguarded reader sees it; it is handed over whether or not it is wanted.
    ///
    /// # Errors
    /// A record that cannot be read, and those of `with`.
    pub(crate) fn see<'v, S: Snapshot, T>(
        &self,
        view: &'v View<'v, S>,
        id: EntryId,
        record: &[u8],
        with: impl FnOnce(&GuardedEntry<'_, S>, bool) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let fault = |fault| anyhow::anyhow!("{fault}");
        let record = view.unpacked(id, record).map_err(fault)?;
        let reader = view.reader(id, &record).map_err(fault)?;
        let seen = GuardedEntry::new(view, reader, Gate::new(&self.policy, &self.subject));
        let selected = self.wants(view, &seen)?;
        with(&seen, selected)
    }

    fn wants<S: Snapshot>(&self, view: &View<'_, S>, seen: &GuardedEntry<'_, S>) -> anyhow::Result<bool> {
        let fault = |fault| anyhow::anyhow!("{fault}");
        if self.base.is_some() && !self.holds_name(seen.name().map_err(fault)?) {
            return Ok(false);
        }
        let Some(filter) = &self.filter else { return Ok(true) };
        let filter = Filter::new(&view.schema, &view.catalog, filter.clone());
        Ok(filter.matches(&UnguardedEntry(seen), &seen.reader).map_err(fault)? == Match::True)
    }
}

/// Hands every stored record over, in the order of ids, in snapshots of limited length.
///
/// # Errors
/// A store that cannot be read, and those of `row`, which end the reading.
pub(crate) fn each_record<D: Store>(
    database: &Database<D>,
    row: impl FnMut(&View<'_, D::Snapshot<'_>>, EntryId, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    read_records(database, SLICE_ENTRIES, row)
}

/// The same as of one moment: a superior that is renamed meanwhile has one name in all of it. A shared engine is read in slices,
/// since it keeps no state for long.
///
/// # Errors
/// As [`each_record`].
pub(crate) fn each_record_of_one_moment<D: Store>(
    database: &Database<D>,
    row: impl FnMut(&View<'_, D::Snapshot<'_>>, EntryId, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    read_records(database, if D::SHARED { SLICE_ENTRIES } else { usize::MAX }, row)
}

/// So many records in each snapshot.
fn read_records<D: Store>(
    database: &Database<D>,
    slice: usize,
    mut row: impl FnMut(&View<'_, D::Snapshot<'_>>, EntryId, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut next = EntryId(1);
    loop {
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let from = next.to_bytes();
        let mut read = 0;
        let rows = snapshot.scan(ENTRIES, KeyRange::at_least(&from), Direction::Forward)?;
        for found in rows.take(slice) {
            let (key, record) = found?;
            let id = EntryId::from_prefix(&key).context("a damaged key in the table of entries")?;
            next = EntryId(id.0.saturating_add(1));
            read += 1;
            row(&view, id, &record)?;
        }
        if read < slice {
            return Ok(());
        }
    }
}

fn bind(schema: &Schema, text: &str) -> anyhow::Result<BoundFilter> {
    let filter = FilterBuf::parse(text).map_err(|error| anyhow::anyhow!("filter {text:?}: {error}"))?;
    Ok(schema.bind_filter(filter.as_filter()))
}

#[cfg(test)]
mod tests {
    use super::super::flags::DatabaseArgs;
    use super::*;

    /// What a tool would pass over in silence.
    #[test]
    fn urls_say_which_entries_are_read() {
        for (text, fits) in [
            ("ldap:///", true),
            ("ldap:///dc=x??one?(cn=a)", true),
            ("ldap:///dc=x?cn", false),
            ("ldap://host/dc=x", false),
            ("ldap://:389/dc=x", false),
            ("ldap:///dc=x????!ext", false),
        ] {
            assert_eq!(url(text).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn the_scope_of_a_url_without_a_dn_begins_at_the_suffix() {
        const NAMES: [&str; 5] = ["cn=x", "cn=a,cn=x", "cn=b,cn=a,cn=x", "cn=config", "cn=schema,cn=config"];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        std::fs::write(&file, "database mdb\nsuffix cn=x\ndirectory /nowhere\n").unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        let check = |number: usize, url: &str, subtree: Option<&str>, expected: &[&str]| {
            let subtree = subtree.map(str::to_owned);
            let args = SelectionArgs { filter: None, subtree, url: Some(url.to_owned()) };
            let database = DatabaseArgs { suffix: None, number: Some(number), no_glue: false };
            let base = args.base().unwrap();
            let chosen = database.choose_to_read_below(&config, base.as_deref()).unwrap();
            let selection = Selection::new(&args, &config, &chosen).unwrap();
            let holds = |name: &&str| selection.holds_name(&config.schema.parse_dn(name).unwrap());
            let found: Vec<&str> = NAMES.into_iter().filter(holds).collect();
            assert_eq!(found, expected, "-n {number} -H {url} {:?}", args.subtree);
        };
        check(1, "ldap:///??base", None, &["cn=x"]);
        check(1, "ldap:///??one", None, &["cn=a,cn=x"]);
        check(1, "ldap:///??sub", None, &["cn=x", "cn=a,cn=x", "cn=b,cn=a,cn=x"]);
        check(1, "ldap:///??children", None, &["cn=a,cn=x", "cn=b,cn=a,cn=x"]);
        check(1, "ldap:///cn=a,cn=x??base", None, &["cn=a,cn=x"]);
        check(1, "ldap:///??one", Some("cn=a,cn=x"), &["cn=b,cn=a,cn=x"]);
        check(1, "ldap:///cn=a,cn=x", Some("cn=x"), &["cn=a,cn=x", "cn=b,cn=a,cn=x"]);
        check(1, "ldap:///", None, &NAMES);
        check(0, "ldap:///??base", None, &["cn=config"]);
        check(0, "ldap:///??one", None, &["cn=schema,cn=config"]);
    }
}

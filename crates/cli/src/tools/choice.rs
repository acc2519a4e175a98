//! The databases that a tool works on, as its flags name them.

use anyhow::{Context, bail};
use larix_configuration::Config;
use larix_schema::NormalDn;

use super::flags::DatabaseArgs;

/// What [`DatabaseArgs`] chose.
#[derive(Debug)]
pub(crate) enum Chosen<'c> {
    /// cn=config itself.
    Configuration,
    /// A stored database, then those glued below it.
    Stored(Vec<&'c larix_configuration::Database>),
}

impl Chosen<'_> {
    /// The DN at the top: the first suffix of the database that was named; `None` if it has none.
    ///
    /// # Errors
    /// A schema without the attribute `cn`.
    pub(crate) fn top(&self, config: &Config) -> anyhow::Result<Option<NormalDn>> {
        match self {
            Self::Configuration => dn_of(config, CONFIGURATION_SUFFIX).map(Some),
            Self::Stored(databases) => {
                let suffix = databases.first().and_then(|database| database.suffixes.first());
                Ok(suffix.map(|suffix| suffix.normal.clone()))
            }
        }
    }
}

impl DatabaseArgs {
    /// Whether no database is named.
    pub(crate) fn is_unset(&self) -> bool {
        self.number.is_none() && self.suffix.is_none()
    }

    /// Whether `-n 0` or the suffix of cn=config is asked for, which needs no readable configuration yet.
    pub(crate) fn is_configuration(&self) -> bool {
        self.number == Some(0) || self.suffix.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("cn=config"))
    }

    pub(crate) fn choose<'c>(&self, config: &'c Config) -> anyhow::Result<Chosen<'c>> {
        self.choose_among(config, |database| database.kind.is_stored())
    }

    /// The same for tools that work on databases in shared engines, too.
    pub(crate) fn choose_with_shared<'c>(&self, config: &'c Config) -> anyhow::Result<Chosen<'c>> {
        self.choose_among(config, |database| database.kind.keeps_entries())
    }

    /// As [`Self::choose_with_shared`] for a tool that reads below `base` alone: where no database is named, that DN names it, as for
    /// slapd's tools.
    ///
    /// # Errors
    /// Those of [`Self::choose_with_shared`]; a named database that has nothing below the DN.
    pub(crate) fn choose_to_read_below<'c>(
        &self,
        config: &'c Config,
        base: Option<&str>,
    ) -> anyhow::Result<Chosen<'c>> {
        let chosen = self.naming(config, base)?.choose_with_shared(config);
        chosen.and_then(|chosen| demand_reached(config, base, chosen))
    }

    /// What names a database: these flags, otherwise `base`.
    fn naming(&self, config: &Config, base: Option<&str>) -> anyhow::Result<Self> {
        let Some(base) = base.filter(|base| self.is_unset() && !base.is_empty()) else {
            return Ok(self.clone());
        };
        let number = dn_of(config, base)?.is_within(&dn_of(config, CONFIGURATION_SUFFIX)?).then_some(0);
        Ok(Self { suffix: Some(base.to_owned()).filter(|_| number.is_none()), number, ..self.clone() })
    }

    /// The same for tools that look at everything: every stored database if none is named, glued or not.
    pub(crate) fn choose_every<'c>(&self, config: &'c Config) -> anyhow::Result<Chosen<'c>> {
        if !self.is_unset() {
            return self.choose(config);
        }
        let all: Vec<_> = config.databases.iter().filter(|database| database.kind.is_stored()).collect();
        if all.is_empty() {
            return Err(nothing_stored(config));
        }
        Ok(Chosen::Stored(all))
    }

    fn choose_among<'c>(
        &self,
        config: &'c Config,
        is_meant: fn(&larix_configuration::Database) -> bool,
    ) -> anyhow::Result<Chosen<'c>> {
        if self.is_configuration() {
            return Ok(Chosen::Configuration);
        }
        let stored = |database: &&larix_configuration::Database| is_meant(database);
        let database = match (&self.suffix, self.number) {
            (Some(suffix), _) => {
                let dn = config
                    .schema
                    .parse_dn(suffix)
                    .map_err(|error| anyhow::anyhow!("-b {suffix}: {error}"))?;
                // A DN below a suffix names the database that serves it, by the nearest suffix.
                let depth = |database: &&larix_configuration::Database| {
                    let above = database.suffixes.iter().map(|suffix| &suffix.normal);
                    above.filter(|s| **s == dn || dn.is_descendant_of(s)).map(|s| s.depth()).max()
                };
                let serving =
                    config.databases.iter().filter(stored).filter(|database| depth(database).is_some());
                serving.max_by_key(depth).ok_or_else(|| {
                    let in_engine = why_in_engine(config, |database| depth(&database).is_some());
                    in_engine.unwrap_or_else(|| {
                        anyhow::anyhow!("no database serves {suffix:?}; there are {}", suffixes(config))
                    })
                })?
            }
            (None, Some(number)) => {
                // {0}config is the first, whether the configuration names it or not.
                let database = config.databases.get(number).with_context(|| {
                    format!("-n {number}: databases have the numbers 0 to {}", config.databases.len() - 1)
                })?;
                if !stored(&database) {
                    if let Some(why) = why_in_engine(config, |other| std::ptr::eq(other, database)) {
                        return Err(why);
                    }
                    bail!("-n {number} is a {} database, which stores no entries", database.kind.name());
                }
                database
            }
            (None, None) => first_stored(config, is_meant)?,
        };
        let mut chosen = vec![database];
        if !self.no_glue {
            let glued = config.databases.iter().filter(stored).filter(|other| {
                other.subordinate.is_some()
                    && other.suffixes.iter().any(|below| {
                        database.suffixes.iter().any(|above| below.normal.is_descendant_of(&above.normal))
                    })
            });
            chosen.extend(glued);
        }
        Ok(Chosen::Stored(chosen))
    }
}

const CONFIGURATION_SUFFIX: &str = "cn=config";

fn dn_of(config: &Config, text: &str) -> anyhow::Result<NormalDn> {
    config.schema.parse_dn(text).map_err(|error| anyhow::anyhow!("DN {text:?}: {error}"))
}

/// Nothing at all is read below a DN that is elsewhere, which must not pass for a database without entries.
fn demand_reached<'c>(config: &Config, base: Option<&str>, chosen: Chosen<'c>) -> anyhow::Result<Chosen<'c>> {
    let Some(text) = base.filter(|base| !base.is_empty()) else { return Ok(chosen) };
    let (base, own) = (dn_of(config, text)?, dn_of(config, CONFIGURATION_SUFFIX)?);
    let suffixes: Vec<&NormalDn> = match &chosen {
        Chosen::Configuration => vec![&own],
        Chosen::Stored(databases) => {
            databases.iter().flat_map(|database| &database.suffixes).map(|suffix| &suffix.normal).collect()
        }
    };
    if suffixes.iter().any(|suffix| base.is_within(suffix) || suffix.is_within(&base)) {
        return Ok(chosen);
    }
    let names: Vec<&str> = suffixes.iter().map(|suffix| suffix.as_str()).collect();
    bail!(
        "{text:?} is not in the database that -b or -n names ({}): name the one that has it",
        names.join(", ")
    )
}

/// Without `-b` and `-n`: the first stored database that is not glued below another.
fn first_stored(
    config: &Config,
    is_meant: fn(&larix_configuration::Database) -> bool,
) -> anyhow::Result<&larix_configuration::Database> {
    config
        .databases
        .iter()
        .find(|database| is_meant(database) && database.subordinate.is_none())
        .ok_or_else(|| nothing_stored(config))
}

/// Why a tool finds no database to work on.
pub(crate) fn nothing_stored(config: &Config) -> anyhow::Error {
    why_in_engine(config, |_| true).unwrap_or_else(|| {
        anyhow::anyhow!(
            "the configuration has no database that stores entries: add `database mdb` with a suffix"
        )
    })
}

/// Why a tool that works on files of this machine does not work on a database that is meant, if an engine has its entries.
pub(crate) fn why_in_engine(
    config: &Config,
    is_meant: impl Fn(&larix_configuration::Database) -> bool,
) -> Option<anyhow::Error> {
    let is_it =
        |database: &&larix_configuration::Database| database.kind.is_in_shared_engine() && is_meant(database);
    let suffixes = &config.databases.iter().find(is_it)?.suffixes;
    let suffix = suffixes.first().map(|suffix| suffix.text.as_str()).unwrap_or_default();
    Some(anyhow::anyhow!(
        "the entries of {suffix:?} are in an engine that servers share, and this tool works on files of this machine: \
         `larix cluster check` checks them there, `larix cat` writes them as LDIF, `slapadd`, `slapmodify` and `slapdelete` change them \
         while no node writes, and the engine's own tools make backups, as `pg_dump` or `etcdctl snapshot save`"
    ))
}

fn suffixes(config: &Config) -> String {
    let texts = config.databases.iter().flat_map(|database| &database.suffixes);
    texts.map(|suffix| format!("{:?}", suffix.text)).collect::<Vec<_>>().join(", ")
}

/// The database with the longest suffix above the DN, also where it stores no entries: its rules count there.
pub(crate) fn section_of<'c>(config: &'c Config, dn: &NormalDn) -> Option<&'c larix_configuration::Database> {
    config.nearest_database(dn, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_that_has_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let database = |suffix: &str| format!("database mdb\nsuffix {suffix}\ndirectory /nowhere/{suffix}\n");
        std::fs::write(&file, database("cn=x") + &database("cn=y")).unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        let check = |suffix: Option<&str>, number: Option<usize>, base: Option<&str>, expected: &str| {
            let args = DatabaseArgs { suffix: suffix.map(str::to_owned), number, no_glue: false };
            let found = match args.choose_to_read_below(&config, base) {
                Ok(Chosen::Configuration) => CONFIGURATION_SUFFIX.to_owned(),
                Ok(Chosen::Stored(databases)) => databases[0].suffixes[0].text.clone(),
                Err(error) => error.to_string(),
            };
            assert!(found.contains(expected), "{suffix:?} {number:?} {base:?}: {found}");
        };
        check(None, None, None, "cn=x");
        check(None, None, Some(""), "cn=x");
        check(None, None, Some("cn=y"), "cn=y");
        check(None, None, Some("cn=a,cn=y"), "cn=y");
        check(None, None, Some("cn=z"), "no database serves \"cn=z\"");
        check(None, None, Some("cn=schema,cn=config"), CONFIGURATION_SUFFIX);
        check(Some("cn=y"), None, Some("cn=a,cn=y"), "cn=y");
        check(Some("cn=x"), None, Some("cn=a,cn=y"), "\"cn=a,cn=y\" is not in the database");
        check(None, Some(1), Some("cn=a,cn=y"), "\"cn=a,cn=y\" is not in the database");
        check(None, Some(0), Some("cn=y"), "\"cn=y\" is not in the database");
        check(None, Some(0), Some("cn=schema,cn=config"), CONFIGURATION_SUFFIX);
    }

    #[test]
    fn what_looks_at_everything_looks_at_glued_databases() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let below = "database mdb\nsuffix cn=b,cn=x\ndirectory /nowhere/b\nsubordinate\n";
        std::fs::write(&file, format!("{below}database mdb\nsuffix cn=x\ndirectory /nowhere/x\n")).unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        for (number, no_glue, expected) in [
            (None, false, &["cn=b,cn=x", "cn=x"][..]),
            (None, true, &["cn=b,cn=x", "cn=x"]),
            (Some(2), false, &["cn=x", "cn=b,cn=x"]),
            (Some(2), true, &["cn=x"]),
            (Some(1), true, &["cn=b,cn=x"]),
        ] {
            let args = DatabaseArgs { suffix: None, number, no_glue };
            let Chosen::Stored(databases) = args.choose_every(&config).unwrap() else {
                panic!("stored ones")
            };
            let found: Vec<_> = databases.iter().map(|database| &*database.suffixes[0].text).collect();
            assert_eq!(found, expected, "{number:?} {no_glue}");
        }
    }
}

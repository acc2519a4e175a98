//! Workloads on the generated directories, by name.

use anyhow::{Context, bail};

use super::{Operation, Scope, SearchTemplate, Step, Workload};
use crate::generate::Kind;

/// What is done to a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Preset {
    /// The directory's usual lookups in even split, the whole entry back.
    Search,
    /// Searches of one entry by its DN.
    Read,
    Compare,
    /// Simple binds on connections that stay.
    Bind,
    /// Simple binds on a new connection each.
    Rebind,
    /// Replaces one attribute's value by another.
    Modify,
    /// Adds entries with new numbers.
    Add,
    /// Deletes the entries that `Add` adds with the same start of the sequence.
    Delete,
    /// Adds and deletes in even split.
    Churn,
    /// Renames there and back.
    Rename,
    /// Four lookups for each modify: 20 % modifies.
    Mixed,
}

impl Preset {
    /// Every preset, in the order in which help texts list them.
    pub const ALL: [Self; 11] = [
        Self::Search,
        Self::Read,
        Self::Compare,
        Self::Bind,
        Self::Rebind,
        Self::Modify,
        Self::Add,
        Self::Delete,
        Self::Churn,
        Self::Rename,
        Self::Mixed,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Read => "read",
            Self::Compare => "compare",
            Self::Bind => "bind",
            Self::Rebind => "rebind",
            Self::Modify => "modify",
            Self::Add => "add",
            Self::Delete => "delete",
            Self::Churn => "churn",
            Self::Rename => "rename",
            Self::Mixed => "mixed",
        }
    }

    /// Whether it changes the directory, for which servers want a bind.
    pub const fn writes(self) -> bool {
        match self {
            Self::Modify | Self::Add | Self::Delete | Self::Churn | Self::Rename | Self::Mixed => true,
            Self::Search | Self::Read | Self::Compare | Self::Bind | Self::Rebind => false,
        }
    }
}

/// The names, filters and values of a directory, as templates.
#[derive(Clone, Debug)]
pub struct Templates {
    pub base: String,
    /// The lookups, in even split.
    pub filters: Vec<String>,
    /// How many entries each lookup gives; none does not check.
    pub expected: Option<u64>,
    /// The entry with the number `{n}`.
    pub dn: String,
    /// What lookups and reads ask for; none is all user attributes.
    pub attributes: Vec<String>,
    /// What is compared.
    pub compare: (String, String),
    /// What is replaced.
    pub modify: (String, String),
    /// The RDN that an entry gets for a moment.
    pub new_rdn: String,
    /// The entry that is added, with the number `{s}`, and its attributes.
    pub added: (String, Vec<(String, String)>),
    /// Who binds.
    pub bind: (String, String),
}

impl Templates {
    /// Those of a generated directory.
    ///
    /// # Errors
    /// None that depends on what is given: the generator's own output is read.
    pub fn of(kind: Kind) -> anyhow::Result<Self> {
        let lookup = |attribute: &str| {
            format!("(&({attribute}=user.{{n}}@zre-ldap001.eng.vmware.com)(zimbraMailStatus=enabled))")
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let (base, filters, dn, compare, modify, new_rdn) = match kind {
            Kind::Mail => (
                "dc=com",
                vec![lookup("zimbraMailDeliveryAddress"), lookup("zimbraMailAlias")],
                "uid=user.{n},ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com",
                pair("zimbraMailStatus", "enabled"),
                pair("zimbraLastLogonTimestamp", "20200101000000.{digits:6}Z"),
                "uid=renamed.{n}",
            ),
            Kind::People => (
                kind.suffix(),
                vec!["(uid=user.{n})".to_owned()],
                "uid=user.{n},ou=people,dc=example,dc=com",
                pair("employeeNumber", "{n}"),
                pair("telephoneNumber", "+1 555 {digits:7}"),
                "uid=renamed.{n}",
            ),
            Kind::Subscribers => (
                kind.suffix(),
                vec!["(uid={n:9})".to_owned(), "(telephoneNumber=+49{n:9})".to_owned()],
                "uid={n:9},dc=subscribers,dc=com",
                pair("employeeType", "prepaid"),
                pair("roomNumber", "{digits:6}"),
                "uid=9{n:9}",
            ),
        };
        Ok(Self {
            base: base.to_owned(),
            filters,
            expected: Some(1),
            dn: dn.to_owned(),
            attributes: Vec::new(),
            compare,
            modify,
            new_rdn: new_rdn.to_owned(),
            added: added(kind)?,
            bind: (kind.root_dn(), crate::generate::ROOT_PASSWORD.to_owned()),
        })
    }

    /// The workload `preset` over `entries` entries; `{s}` starts after them.
    ///
    /// # Errors
    /// No filter where lookups are wanted.
    pub fn workload(&self, preset: Preset, entries: u64) -> anyhow::Result<Workload> {
        let one = |operation| vec![Step::new(1, operation)];
        let dn = || self.dn.clone();
        let (attribute, value) = self.modify.clone();
        let modify = Operation::replace(dn(), attribute, value);
        let add = Operation::Add { dn: self.added.0.clone(), attributes: self.added.1.clone() };
        let bind = |reconnect| {
            let (dn, password) = self.bind.clone();
            Operation::Bind { dn, password, reconnect }
        };
        let steps = match preset {
            Preset::Search => self.lookups(1)?,
            Preset::Read => one(Operation::Read { dn: dn(), attributes: self.attributes.clone() }),
            Preset::Compare => {
                let (attribute, value) = self.compare.clone();
                one(Operation::Compare { dn: dn(), attribute, value })
            }
            Preset::Bind => one(bind(false)),
            Preset::Rebind => one(bind(true)),
            Preset::Modify => one(modify),
            Preset::Add => one(add),
            Preset::Delete => one(Operation::Delete { dn: self.added.0.clone() }),
            Preset::Churn => {
                let dn = self.added.0.replace("{s", "{added");
                vec![Step::new(1, add), Step::new(1, Operation::Delete { dn })]
            }
            Preset::Rename => {
                let new_rdn = self.new_rdn.clone();
                one(Operation::ModifyDn { dn: dn(), new_rdn, new_superior: None })
            }
            Preset::Mixed => {
                let mut steps = self.lookups(4)?;
                let modifies = u32::try_from(steps.len()).context("too many filters")?;
                steps.push(Step::new(modifies, modify));
                steps
            }
        };
        Ok(Workload { steps, ..Workload::new(entries) })
    }

    fn lookups(&self, weight: u32) -> anyhow::Result<Vec<Step>> {
        if self.filters.is_empty() {
            bail!("no filter is given");
        }
        let step = |filter: &String| {
            let mut step = Step::new(
                weight,
                Operation::Search(SearchTemplate {
                    base: self.base.clone(),
                    scope: Scope::Subtree,
                    filter: filter.clone(),
                    attributes: self.attributes.clone(),
                    size_limit: 0,
                }),
            );
            step.expect.entries = self.expected;
            step
        };
        Ok(self.filters.iter().map(step).collect())
    }
}

/// The generator's first leaf entry, with its number made a placeholder.
fn added(kind: Kind) -> anyhow::Result<(String, Vec<(String, String)>)> {
    let mut ldif = Vec::new();
    kind.write_ldif(1, 1, &mut ldif)?;
    let text = String::from_utf8(ldif).context("the generator writes UTF-8")?;
    let entry = text.split("\n\n").find(|entry| entry.starts_with("dn: uid=")).context("no leaf entry")?;
    let number = |text: &str| match kind {
        Kind::Mail => text.replace("user.1@", "user.{s}@").replace("user.1,", "user.{s},"),
        Kind::People => text.replace("user.1,", "user.{s},").replace(".1@example.com", ".{s}@example.com"),
        Kind::Subscribers => text.replace("000000001", "{s:9}"),
    };
    let whole = |value: String| if value == "user.1" { "user.{s}".to_owned() } else { value };
    let mut lines = entry.lines().filter_map(|line| line.split_once(": "));
    let dn = lines.next().map(|(_, dn)| number(dn)).context("no name")?;
    let attributes = lines.map(|(name, value)| (name.to_owned(), whole(number(value)))).collect();
    Ok((dn, attributes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_can_be_sent_to_every_directory() {
        for kind in Kind::ALL {
            let templates = Templates::of(kind).unwrap();
            for preset in Preset::ALL {
                let workload = templates.workload(preset, 100).unwrap();
                workload.check().unwrap_or_else(|error| panic!("{kind:?} {}: {error:#}", preset.name()));
            }
        }
    }

    #[test]
    fn added_entries_are_told_apart() {
        for kind in Kind::ALL {
            let (dn, attributes) = added(kind).unwrap();
            assert!(dn.contains("{s"), "{kind:?}: {dn}");
            let rdn = dn.split([',', '=']).nth(1).unwrap();
            assert!(attributes.iter().any(|(name, value)| name == "uid" && value == rdn), "{kind:?}: {rdn}");
            assert!(attributes.iter().filter(|(name, _)| name == "objectClass").count() > 1, "{kind:?}");
        }
    }

    #[test]
    fn a_fifth_of_mixed_is_modifies() {
        for kind in Kind::ALL {
            let workload = Templates::of(kind).unwrap().workload(Preset::Mixed, 1).unwrap();
            let weight = |name| {
                let steps = workload.steps.iter().filter(|step| step.name == name);
                steps.map(|step| step.weight).sum::<u32>()
            };
            assert_eq!(weight("search"), 4 * weight("modify"), "{kind:?}");
        }
    }
}

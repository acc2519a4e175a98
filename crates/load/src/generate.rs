//! Directories made from a seed: the same kind, count and seed give the same bytes on every machine.

mod mail;
pub(crate) mod names;
mod people;
mod random;
mod subscribers;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use random::Random;

/// The most entries one directory is generated with; past it the fixed-width numbers of the templates overflow.
pub const ENTRIES_MAX: u64 = 999_999_999;

/// A directory that can be generated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The mail directory: accounts of some 2 KB with 29 indexed attributes, rooted at the empty suffix.
    Mail,
    /// People and groups of the standard schema below `dc=example,dc=com`.
    People,
    /// Telephony subscribers: 11 attributes, about 325 bytes of LDIF each, in one flat list.
    Subscribers,
}

impl Kind {
    /// Every kind, in the order in which help texts list them.
    pub const ALL: [Self; 3] = [Self::Mail, Self::People, Self::Subscribers];

    /// The name on the command line and of the generated files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::People => "people",
            Self::Subscribers => "subscribers",
        }
    }

    /// The kind called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The naming context, as it stands in a `suffix` line.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Mail => "",
            Self::People => people::SUFFIX,
            Self::Subscribers => subscribers::SUFFIX,
        }
    }

    /// The DN that the configuration names as `rootdn`; its password is [`ROOT_PASSWORD`].
    pub fn root_dn(self) -> String {
        match self.suffix() {
            "" => "cn=config-admin".into(),
            suffix => format!("cn=admin,{suffix}"),
        }
    }

    /// The schema that the entries need beyond `core`, `cosine`, `inetorgperson` and `nis`, in `.schema` form.
    pub const fn schema(self) -> Option<&'static str> {
        match self {
            Self::Mail => Some(mail::SCHEMA),
            Self::People | Self::Subscribers => None,
        }
    }

    /// The `index` lines, without their keyword.
    pub const fn index_lines(self) -> &'static [&'static str] {
        match self {
            Self::Mail => &mail::INDEX_LINES,
            Self::People => &people::INDEX_LINES,
            Self::Subscribers => &subscribers::INDEX_LINES,
        }
    }

    /// Writes `entries` leaf entries and what stands above them as LDIF, parents first.
    ///
    /// # Errors
    /// Those of `out`; [`io::ErrorKind::InvalidInput`] past [`ENTRIES_MAX`].
    pub fn write_ldif(self, entries: u64, seed: u64, out: &mut impl Write) -> io::Result<()> {
        if entries > ENTRIES_MAX {
            let text = format!("{entries} entries are too many: at most {ENTRIES_MAX} can be generated");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut random = Random::new(seed);
        match self {
            Self::Mail => mail::write_ldif(entries, &mut random, out),
            Self::People => people::write_ldif(entries, &mut random, out),
            Self::Subscribers => subscribers::write_ldif(entries, &mut random, out),
        }
    }

    /// A slapd.conf for this directory that both Larix and slapd read.
    ///
    /// `schema_directory` holds OpenLDAP's schema files; `own_schema` is the file with [`Kind::schema`].
    pub fn configuration(self, schema_directory: &Path, own_schema: &Path, data: &Path) -> String {
        let mut text = String::from("# Generated; read by larix and by slapd alike.\n");
        for name in ["core", "cosine", "inetorgperson", "nis"] {
            text += &format!("include {}\n", schema_directory.join(format!("{name}.schema")).display());
        }
        if self.schema().is_some() {
            text += &format!("include {}\n", own_schema.display());
        }
        text += "sizelimit 500\n\ndatabase mdb\n";
        text += &format!("suffix \"{}\"\nrootdn \"{}\"\n", self.suffix(), self.root_dn());
        text += &format!("rootpw {ROOT_PASSWORD}\ndirectory {}\nmaxsize 68719476736\n", data.display());
        for line in self.index_lines() {
            text += &format!("index {line}\n");
        }
        text
    }
}

/// The password of every generated `rootdn`; such a directory is for trials on the machine it was made on.
pub const ROOT_PASSWORD: &str = "secret";

/// The files that [`write_directory`] made.
#[derive(Clone, Debug)]
pub struct Generated {
    pub ldif: PathBuf,
    pub configuration: PathBuf,
    pub data: PathBuf,
    pub ldif_bytes: u64,
}

/// Writes `KIND.ldif`, `KIND.schema` (when the kind has one), `slapd.conf` and an empty `data/` into `directory`.
///
/// # Errors
/// What creating or writing the files says, with the file's name.
pub fn write_directory(
    kind: Kind,
    entries: u64,
    seed: u64,
    directory: &Path,
    schema_directory: &Path,
) -> anyhow::Result<Generated> {
    use anyhow::Context;
    let data = directory.join("data");
    std::fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;
    let directory =
        directory.canonicalize().with_context(|| format!("cannot resolve {}", directory.display()))?;
    let data = directory.join("data");
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let own_schema = directory.join(format!("{}.schema", kind.name()));
    if let Some(text) = kind.schema() {
        write(&own_schema, text)?;
    }
    let configuration = directory.join("slapd.conf");
    write(&configuration, &kind.configuration(schema_directory, &own_schema, &data))?;
    let ldif = directory.join(format!("{}.ldif", kind.name()));
    let file = std::fs::File::create(&ldif).with_context(|| format!("cannot create {}", ldif.display()))?;
    let mut out = io::BufWriter::with_capacity(1 << 20, file);
    kind.write_ldif(entries, seed, &mut out)
        .and_then(|()| out.flush())
        .with_context(|| format!("cannot write {}", ldif.display()))?;
    let ldif_bytes = std::fs::metadata(&ldif)?.len();
    Ok(Generated { ldif, configuration, data, ldif_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ldif(kind: Kind, entries: u64, seed: u64) -> String {
        let mut out = Vec::new();
        kind.write_ldif(entries, seed, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_seed_gives_the_same_bytes_and_another_seed_others() {
        for kind in Kind::ALL {
            assert_eq!(ldif(kind, 20, 7), ldif(kind, 20, 7), "{kind:?}");
            assert_ne!(ldif(kind, 20, 7), ldif(kind, 20, 8), "{kind:?}");
        }
    }

    #[test]
    fn every_leaf_is_there_and_parents_come_first() {
        for kind in Kind::ALL {
            let text = ldif(kind, 30, 1);
            let mut seen = vec![kind.suffix().to_owned(), String::new()];
            for dn in text.lines().filter_map(|line| line.strip_prefix("dn: ")) {
                let parent = dn.split_once(',').map_or("", |(_, parent)| parent);
                let known = dn == kind.suffix() || seen.iter().any(|dn| dn == parent);
                assert!(known, "{kind:?}: {dn} stands before its parent");
                seen.push(dn.to_owned());
            }
            let leaves = text.lines().filter(|line| line.starts_with("dn: uid=")).count();
            assert_eq!(leaves, 30, "{kind:?}");
        }
    }

    #[test]
    fn sizes_are_those_of_the_described_directories() {
        for (kind, low, high) in [(Kind::Mail, 1_700, 2_200), (Kind::Subscribers, 300, 350)] {
            let each = (ldif(kind, 1_100, 1).len() - ldif(kind, 100, 1).len()) / 1_000;
            assert!((low..=high).contains(&each), "{kind:?}: {each} bytes an entry");
        }
    }

    #[test]
    fn too_many_entries_are_refused_by_number() {
        let error = Kind::Mail.write_ldif(ENTRIES_MAX + 1, 1, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("1000000000"), "{error}");
    }
}

//! Clauses that all kinds of definitions have, and how they are written.

use std::fmt;

/// X- extensions in the order given (RFC 4512 §4.1).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Extensions(Vec<(String, Vec<String>)>);

impl Extensions {
    pub fn push(&mut self, name: String, values: Vec<String>) {
        self.0.push((name, values));
    }

    /// Values of the extension `name` (with its `X-`), in any case.
    pub fn get(&self, name: &str) -> Option<&[String]> {
        self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, values)| values.as_slice())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }
}

pub(crate) fn write_names(f: &mut fmt::Formatter<'_>, names: &[String]) -> fmt::Result {
    match names {
        [] => Ok(()),
        [one] => write!(f, " NAME '{one}'"),
        several => {
            f.write_str(" NAME (")?;
            several.iter().try_for_each(|name| write!(f, " '{name}'"))?;
            f.write_str(" )")
        }
    }
}

pub(crate) fn write_description(f: &mut fmt::Formatter<'_>, description: Option<&str>) -> fmt::Result {
    description.map_or(Ok(()), |text| write!(f, " DESC '{text}'"))
}

pub(crate) fn write_flag(f: &mut fmt::Formatter<'_>, keyword: &str, set: bool) -> fmt::Result {
    if set { write!(f, " {keyword}") } else { Ok(()) }
}

pub(crate) fn write_oids(f: &mut fmt::Formatter<'_>, keyword: &str, oids: &[String]) -> fmt::Result {
    match oids {
        [] => Ok(()),
        [one] => write!(f, " {keyword} {one}"),
        [first, others @ ..] => {
            write!(f, " {keyword} ( {first}")?;
            others.iter().try_for_each(|oid| write!(f, " $ {oid}"))?;
            f.write_str(" )")
        }
    }
}

pub(crate) fn write_extensions(f: &mut fmt::Formatter<'_>, extensions: &Extensions) -> fmt::Result {
    for (name, values) in extensions.iter() {
        write!(f, " {name}")?;
        match values {
            [one] => write!(f, " '{one}'")?,
            several => {
                f.write_str(" (")?;
                several.iter().try_for_each(|value| write!(f, " '{value}'"))?;
                f.write_str(" )")?;
            }
        }
    }
    Ok(())
}

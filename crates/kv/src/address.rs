//! The address of an engine, whichever it is.

use std::fmt;

use larix_store::TableSpec;

use crate::engine::{Engine, Limits};
use crate::error::OpenError;
#[cfg(feature = "etcd")]
use crate::etcd;
#[cfg(feature = "postgresql")]
use crate::postgresql;

/// Where an engine is and who asks. It is never shown with its password.
#[derive(Clone)]
pub struct Address(Kind);

#[derive(Clone)]
enum Kind {
    #[cfg(feature = "postgresql")]
    PostgreSql(postgresql::Address),
    #[cfg(feature = "etcd")]
    Etcd(etcd::Address),
}

/// How a store is opened at an address.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) schema: &'a str,
    pub(crate) name: &'a str,
    pub(crate) limits: Limits,
    pub(crate) tables: &'a [TableSpec],
    pub(crate) make: bool,
}

impl Address {
    /// Reads an address of the form `postgresql://` or `etcd://`.
    ///
    /// # Errors
    /// [`OpenError::Address`], which never contains the password.
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        let scheme = text.split("://").next().unwrap_or_default();
        match scheme {
            #[cfg(feature = "postgresql")]
            "postgresql" | "postgres" => postgresql::Address::parse(text).map(Kind::PostgreSql).map(Self),
            #[cfg(feature = "etcd")]
            "etcd" => etcd::Address::parse(text).map(Kind::Etcd).map(Self),
            #[cfg(not(feature = "postgresql"))]
            "postgresql" | "postgres" => Err(absent("PostgreSQL", "postgresql")),
            #[cfg(not(feature = "etcd"))]
            "etcd" => Err(absent("etcd", "etcd")),
            scheme => {
                // Without one, what comes before may be a user and his password.
                let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let begins = match is_scheme && text.contains("://") {
                    true => format!("it begins with {scheme:?}, and "),
                    false => String::new(),
                };
                Err(OpenError::Address(format!(
                    "{begins}an engine is given as postgresql://USER@HOST/DATABASE?sslmode=verify-full or as \
                     etcd://HOST:2379,HOST:2379/PREFIX; no other kind is known"
                )))
            }
        }
    }

    /// Connects, and looks at what is there, or makes it; gives the number of each table, too.
    pub(crate) fn open(&self, opening: &Opening<'_>) -> Result<(Box<dyn Engine>, Vec<u8>), OpenError> {
        match &self.0 {
            #[cfg(feature = "postgresql")]
            Kind::PostgreSql(address) => {
                let address = address.clone().named(opening.name);
                let (engine, numbers) = postgresql::PostgreSql::open(
                    address,
                    opening.schema,
                    opening.limits,
                    opening.tables,
                    opening.make,
                )?;
                Ok((Box::new(engine), numbers))
            }
            #[cfg(feature = "etcd")]
            Kind::Etcd(address) => {
                let (engine, numbers) = etcd::Etcd::open(
                    address.clone(),
                    opening.schema,
                    opening.name,
                    opening.limits,
                    opening.tables,
                    opening.make,
                )?;
                Ok((Box::new(engine), numbers))
            }
        }
    }
}

#[cfg(not(all(feature = "postgresql", feature = "etcd")))]
fn absent(engine: &str, feature: &str) -> OpenError {
    OpenError::Address(format!("this program has no part for {engine}: build it with the feature {feature}"))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            #[cfg(feature = "postgresql")]
            Kind::PostgreSql(address) => address.fmt(f),
            #[cfg(feature = "etcd")]
            Kind::Etcd(address) => address.fmt(f),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_no_known_kind_is_named_without_secrets() {
        for (text, begins) in [
            ("mysql://larix:secret@db1/d", "it begins with \"mysql\", and an engine is given as"),
            ("larix:secret@db1/d?application_name=http://n1", "an engine is given as"),
            ("secret", "an engine is given as"),
        ] {
            let Err(OpenError::Address(why)) = Address::parse(text) else { panic!("{text} is taken") };
            assert!(why.starts_with(begins) && !why.contains("secret"), "{why}");
        }
    }
}

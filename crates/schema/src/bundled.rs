//! The schema files inside the binary, under the names that OpenLDAP's files have.

macro_rules! bundle {
    ($($name:literal),* $(,)?) => {
        /// Names of all bundled schemas.
        pub const BUNDLED: &[&str] = &[$($name),*];

        /// The text of a bundled schema: `core`, `cosine`, ...; a `.schema` or `.ldif` ending is taken off.
        pub fn bundled(name: &str) -> Option<&'static str> {
            let name = name.strip_suffix(".schema").or(name.strip_suffix(".ldif")).unwrap_or(name);
            match name {
                $($name => Some(include_str!(concat!("../schema/", $name, ".schema"))),)*
                _ => None,
            }
        }
    };
}

bundle!(
    "core",
    "cosine",
    "inetorgperson",
    "nis",
    "collective",
    "corba",
    "duaconf",
    "dyngroup",
    "java",
    "misc",
    "openldap",
    "pmi",
    "namedobject",
    "msuser",
    "active-directory",
    "dsee",
    "rfc2307bis",
    "sudo",
    "openssh-lpk",
    "eduperson",
    "samba",
    "kerberos",
);

/// The bundled schema that defines an attribute type or object class of this name: the first of them.
pub fn bundle_with(element: &str) -> Option<&'static str> {
    let quoted = format!("'{}'", element.to_ascii_lowercase());
    let defines = |name: &&str| bundled(name).is_some_and(|text| text.to_ascii_lowercase().contains(&quoted));
    BUNDLED.iter().copied().find(defines)
}

/// The bundled schema that defines an object class of this name: the first of them. An attribute type of the name does not count.
pub fn bundle_with_class(name: &str) -> Option<&'static str> {
    let quoted = format!("'{}'", name.to_ascii_lowercase());
    let defines = |bundle: &&str| {
        let text = bundled(bundle).unwrap_or_default().to_ascii_lowercase();
        let classes = text.split("\nobjectclass").skip(1);
        classes.filter_map(|from| from.split("\nattributetype").next()).any(|class| class.contains(&quoted))
    };
    BUNDLED.iter().copied().find(defines)
}

/// What the server knows before it reads any schema.
pub(crate) const SYSTEM: &[(&str, &str)] = &[
    ("system", include_str!("../schema/system.schema")),
    ("larix", include_str!("../schema/larix.schema")),
    ("config", include_str!("../schema/config.schema")),
    ("monitor", include_str!("../schema/monitor.schema")),
    ("ppolicy", include_str!("../schema/ppolicy.schema")),
    ("overlays", include_str!("../schema/overlays.schema")),
];

#[cfg(test)]
mod tests {
    use super::{bundle_with, bundle_with_class};

    #[test]
    fn definitions_are_found_by_name() {
        for (class, bundle) in [
            ("sambaSamAccount", Some("samba")),
            ("INETORGPERSON", Some("inetorgperson")),
            ("domain", Some("cosine")),
            // Attribute types.
            ("mail", None),
            ("sambaSID", None),
            ("nosuch", None),
        ] {
            assert_eq!(bundle_with_class(class), bundle, "{class}");
        }
        assert_eq!((bundle_with("mail"), bundle_with("sambaSID")), (Some("core"), Some("samba")));
    }
}

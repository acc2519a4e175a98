//! OpenLDAP's experimental ACI syntax (1.3.6.1.4.1.4203.666.2.1): `OID#SCOPE#RIGHTS#TYPE#SUBJECT`, as slapd's aci module
//! takes and writes it.

use crate::error::InvalidValue;
use crate::lexical::is_numeric_oid;
use crate::schema::Schema;

const SCOPES: [&str; 3] = ["entry", "children", "subtree"];
const ACTIONS: [&str; 2] = ["grant", "deny"];
/// Types whose subject is a DN; the first two take `/class/attribute`.
const DN_TYPES: [&str; 6] = ["group", "role", "access-id", "subtree", "onelevel", "children"];
const OTHER_TYPES: [&str; 6] = ["dnattr", "public", "users", "self", "set", "set-ref"];

/// The canonical form: key words in lower case, names as the schema has them, the subject's DN by `dn`. Of a right to
/// `attribute=value` the value is dropped, as slapd drops it.
pub(crate) fn canonical(
    schema: &Schema,
    text: &str,
    dn: impl Fn(&str) -> Result<String, InvalidValue>,
) -> Result<String, InvalidValue> {
    let mut parts = text.splitn(5, '#');
    let mut part = || parts.next().map(str::trim).ok_or(InvalidValue);
    let (oid, scope, rights, kind, subject) = (part()?, part()?, part()?, part()?, part()?);
    if !is_numeric_oid(oid.as_bytes()) {
        return Err(InvalidValue);
    }
    let scope = known(&SCOPES, scope)?;
    let rights: Vec<String> =
        rights.split('$').map(|right| canonical_right(schema, right)).collect::<Result<_, _>>()?;
    let (name, options) = match kind.split_once('/') {
        Some((name, options)) => (name, Some(options)),
        None => (kind, None),
    };
    let (kind, subject) = match known(&DN_TYPES, name) {
        Ok(name) => (canonical_type(schema, name, options)?, dn(subject)?),
        Err(_) if options.is_some() => return Err(InvalidValue),
        Err(_) => {
            let name = known(&OTHER_TYPES, name)?;
            let subject = match name {
                "dnattr" => dn_attribute(schema, subject)?,
                "set" | "set-ref" => subject.to_owned(),
                _ => String::new(),
            };
            (name.to_owned(), subject)
        }
    };
    Ok(format!("{oid}#{scope}#{}#{kind}#{subject}", rights.join("$")))
}

fn known(names: &[&'static str], text: &str) -> Result<&'static str, InvalidValue> {
    names.iter().copied().find(|name| name.eq_ignore_ascii_case(text)).ok_or(InvalidValue)
}

/// `grant;r,s;cn,sn;c;mail`
fn canonical_right(schema: &Schema, right: &str) -> Result<String, InvalidValue> {
    let mut parts = right.split(';').map(str::trim);
    let mut out = known(&ACTIONS, parts.next().unwrap_or_default())?.to_owned();
    let rest: Vec<&str> = parts.collect();
    if rest.is_empty() || !rest.len().is_multiple_of(2) {
        return Err(InvalidValue);
    }
    for pair in rest.chunks_exact(2) {
        let [permissions, attributes] = pair else { return Err(InvalidValue) };
        let valid = |p: &str| matches!(p.trim(), "x" | "d" | "c" | "s" | "r" | "w");
        if !permissions.is_empty() && !permissions.split(',').all(valid) {
            return Err(InvalidValue);
        }
        out.push(';');
        out.push_str(permissions);
        out.push(';');
        out.push_str(&canonical_attributes(schema, attributes)?);
    }
    Ok(out)
}

fn canonical_attributes(schema: &Schema, list: &str) -> Result<String, InvalidValue> {
    let mut names = Vec::new();
    for name in list.split(',').map(str::trim) {
        names.push(match name.to_ascii_lowercase().as_str() {
            "[all]" => return Ok("[all]".to_owned()),
            "[entry]" | "entry" => "entry".to_owned(),
            "[children]" | "children" => "children".to_owned(),
            _ => {
                let name = name.split_once('=').map_or(name, |(name, _)| name.trim());
                schema.describe(name).map_err(|_| InvalidValue)?.to_text(schema)
            }
        });
    }
    Ok(names.join(","))
}

/// `group/class/attribute`
fn canonical_type(schema: &Schema, name: &str, options: Option<&str>) -> Result<String, InvalidValue> {
    let Some(options) = options else { return Ok(name.to_owned()) };
    if !["group", "role"].contains(&name) {
        return Err(InvalidValue);
    }
    let (class, attribute) = match options.split_once('/') {
        Some((class, attribute)) => (class, Some(attribute)),
        None => (options, None),
    };
    let class = schema.object_class(class).ok_or(InvalidValue)?.name();
    match attribute {
        None => Ok(format!("{name}/{class}")),
        Some(attribute) => {
            let attribute = schema.describe(attribute).map_err(|_| InvalidValue)?.to_text(schema);
            Ok(format!("{name}/{class}/{attribute}"))
        }
    }
}

fn dn_attribute(schema: &Schema, name: &str) -> Result<String, InvalidValue> {
    let description = schema.describe(name).map_err(|_| InvalidValue)?;
    let attribute = schema.get_attribute(description.attribute).ok_or(InvalidValue)?;
    if attribute.syntax.is_dn() { Ok(description.to_text(schema)) } else { Err(InvalidValue) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchemaBuilder;

    #[test]
    fn canonical_forms() {
        let mut builder = SchemaBuilder::system();
        builder.add_bundled("core").expect("core");
        let schema = builder.build();
        let check = |text: &str, expected: Option<&str>| {
            let got = canonical(&schema, text, |dn| crate::dn::pretty_dn_text(&schema, dn)).ok();
            assert_eq!(got.as_deref(), expected, "{text}");
        };
        check("0#entry#grant;r;[all]#public#", Some("0#entry#grant;r;[all]#public#"));
        check(
            "1.2#Subtree#GRANT;r,s;CN,sn$deny;w;[all]#Users#",
            Some("1.2#subtree#grant;r,s;cn,sn$deny;w;[all]#users#"),
        );
        check("0#children#grant;w;[entry],[children]#self#", Some("0#children#grant;w;entry,children#self#"));
        check("0#entry#grant;r;cn=Bob*#public#", Some("0#entry#grant;r;cn#public#"));
        check(
            "0#entry#grant;r;[all]#access-id#CN=a, dc=b#c",
            Some("0#entry#grant;r;[all]#access-id#cn=a,dc=b#c"),
        );
        check(
            "0#entry#grant;r;[all]#group/groupOfUniqueNames/uniquemember#cn=g",
            Some("0#entry#grant;r;[all]#group/groupOfUniqueNames/uniqueMember#cn=g"),
        );
        check("0#entry#grant;r;[all]#dnattr#member", Some("0#entry#grant;r;[all]#dnattr#member"));
        for bad in [
            "",
            "x#entry#grant;r;cn#public#",
            "0#onelevel#grant;r;cn#public#",
            "0#entry#allow;r;cn#public#",
            "0#entry#grant;r#public#",
            "0#entry#grant;q;cn#public#",
            "0#entry#grant;r;nosuch#public#",
            "0#entry#grant;r;cn#nobody#",
            "0#entry#grant;r;cn#public",
            "0#entry#grant;r;cn#access-id#nonsense",
            "0#entry#grant;r;cn#users/x#",
            "0#entry#grant;r;cn#dnattr#cn",
        ] {
            check(bad, None);
        }
    }
}

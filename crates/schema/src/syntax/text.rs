//! Syntaxes whose values are short texts.

use larix_proto::Scope;
use larix_proto::url::LdapUrl;

use crate::definition::strip_ordering_prefix;
use crate::dn::pretty_dn_text;
use crate::error::InvalidValue;
use crate::schema::Schema;

/// PrintableString (RFC 4517 §3.3.29); not empty.
pub(super) fn is_printable(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|&b| is_printable_byte(b))
}

fn is_printable_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'()+,-./:?= ".contains(&byte)
}

/// Printable strings with a dollar sign between two of them; none of them is empty.
pub(super) fn is_printables(value: &[u8]) -> bool {
    value.split(|&b| b == b'$').all(is_printable)
}

/// Digits and spaces (RFC 4517 §3.3.23); not empty.
pub(super) fn is_numeric(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|b| b.is_ascii_digit() || *b == b' ')
}

/// A number without leading zeros (RFC 4517 §3.3.16). Any length.
pub(super) fn is_integer(value: &[u8]) -> bool {
    let magnitude = value.strip_prefix(b"-").unwrap_or(value);
    match magnitude {
        [b'0'] => magnitude.len() == value.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Methods with dollar signs between them, around which spaces may stand (RFC 4517 §3.3.5).
pub(super) fn is_delivery_method(value: &[u8]) -> bool {
    const METHODS: [&[u8]; 10] = [
        b"any",
        b"mhs",
        b"physical",
        b"telex",
        b"teletex",
        b"g3fax",
        b"g4fax",
        b"ia5",
        b"videotex",
        b"telephone",
    ];
    let is_trimmed = !value.starts_with(b" ") && !value.ends_with(b" ");
    is_trimmed
        && value.split(|&b| b == b'$').all(|method| {
            let method = trim_spaces(method);
            METHODS.iter().any(|known| known.eq_ignore_ascii_case(method))
        })
}

/// Without the spaces (WSP, RFC 4512 §1.4) at either end.
fn trim_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

/// Lines with dollar signs between them, in which `\24` and `\5C` are the only escapes (RFC 4517 §3.3.28).
pub(super) fn is_postal_address(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok()
        && value
            .split(|&b| b == b'\\')
            .skip(1)
            .all(|after| after.get(..2).is_some_and(|hex| hex == b"24" || hex.eq_ignore_ascii_case(b"5c")))
}

pub(crate) fn is_uuid(value: &[u8]) -> bool {
    value.len() == 36
        && value.iter().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => *b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

/// `(host,user,domain)`; each part may be missing (RFC 2307 §2.4).
pub(super) fn is_netgroup_triple(value: &[u8]) -> bool {
    let inner = value.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")"));
    inner.is_some_and(|inner| {
        inner.split(|&b| b == b',').count() == 3 && inner.iter().all(|&b| b == b',' || is_key_byte(b))
    })
}

/// `key=server:path` (RFC 2307 §2.4).
pub(super) fn is_boot_parameter(value: &[u8]) -> bool {
    let mut parts = value.splitn(2, |&b| b == b'=');
    let (Some(key), Some(rest)) = (parts.next(), parts.next()) else { return false };
    let mut parts = rest.splitn(2, |&b| b == b':');
    let (Some(server), Some(path)) = (parts.next(), parts.next()) else { return false };
    key.iter().chain(server).all(|&b| is_key_byte(b)) && path.iter().all(|&b| is_printable_byte(b))
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-.;".contains(&byte)
}

/// An authorization rule of authzTo and authzFrom: `dn[.style]:pattern`, `u[.mech[/realm]]:name`,
/// `group[/class[/attribute]]:DN`, an LDAP URL, or a bare DN. Gives it with its DN in pretty form, behind the `{n}` that it has for
/// its place among others.
pub(super) fn pretty_authz(schema: &Schema, value: &str) -> Result<String, InvalidValue> {
    let rule = strip_ordering_prefix(value);
    // One below zero is for cn=config and is no place here.
    let number = value.strip_suffix(rule).map(str::trim).filter(|number| !number.contains('-'));
    let number = number.unwrap_or_default();
    let group = |head: &str| if names_group(schema, head) { Ok(head.to_owned()) } else { Err(InvalidValue) };
    let rule = authz_rule(rule, |dn| pretty_dn_text(schema, dn), group, str::to_owned)?;
    let is_url = rule.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("ldap:"));
    if is_url && !is_search(schema, &rule) {
        return Err(InvalidValue);
    }
    Ok(format!("{number}{rule}"))
}

/// What equal authorization rules have in common: the rule without its number, and with its DN in normal form, also in a URL.
/// A class or an attribute that the schema does not have is no error here: a stored value keeps its key when the schema changes.
pub(crate) fn normal_authz(schema: &Schema, value: &str) -> Result<String, InvalidValue> {
    let normal = |dn: &str| schema.parse_dn(dn).map(|dn| dn.as_str().to_owned()).map_err(|_| InvalidValue);
    let group = |head: &str| Ok(head.to_ascii_lowercase());
    authz_rule(strip_ordering_prefix(value), normal, group, |url| normal_search(schema, url))
}

/// A URL with its DN in normal form, its scope, and its filter as RFC 4515 writes it. One that cannot be read stays what it is.
fn normal_search(schema: &Schema, url: &str) -> String {
    let Ok(mut parsed) = LdapUrl::parse(url) else { return url.to_owned() };
    if let Ok(dn) = schema.parse_dn(&parsed.dn) {
        parsed.dn = dn.as_str().to_owned();
    }
    parsed.scope = parsed.scope.or(Some(Scope::Base));
    parsed.to_string()
}

/// A rule as OpenLDAP writes it: `dn:` is `dn.exact:` and a bare DN, too, `*` is `dn:*`, and `group.exact:` is `group:`. `name` writes
/// its DN, `group` what stands before the DN of a group, and `search` a URL.
fn authz_rule(
    rule: &str,
    name: impl Fn(&str) -> Result<String, InvalidValue>,
    group: impl Fn(&str) -> Result<String, InvalidValue>,
    search: impl Fn(&str) -> String,
) -> Result<String, InvalidValue> {
    let exact = |dn: &str| name(dn).map(|dn| format!("dn:{dn}"));
    if rule == "*" {
        return Ok("dn:*".to_owned());
    }
    let Some((head, given)) = rule.split_once(':') else { return exact(rule) };
    let (lower, rest) = (head.to_ascii_lowercase(), given.trim_start_matches(' '));
    match lower.as_str() {
        "ldap" if given.starts_with("///") => Ok(search(rule)),
        // The name may be empty (RFC 4513 section 5.2.1.8), and stands for nobody then.
        "u" => Ok(rule.to_owned()),
        "dn.regex" | "dn.pattern" => Ok(format!("{lower}:{rest}")),
        "dn" | "dn.exact" | "dn.onelevel" | "dn.children" | "dn.subtree" if rest == "*" => {
            Ok("dn:*".to_owned())
        }
        "dn" | "dn.exact" => exact(rest),
        "dn.onelevel" | "dn.children" | "dn.subtree" => Ok(format!("{lower}:{}", name(rest)?)),
        _ if lower.starts_with("u.") => Ok(rule.to_owned()),
        _ if lower.starts_with("group") => {
            // To OpenLDAP, what stands there without a slash has no meaning.
            let has_class = head.get("group".len()..).is_some_and(|way| way.starts_with('/'));
            let head = if has_class { group(head)? } else { "group".to_owned() };
            Ok(format!("{head}:{}", name(rest)?))
        }
        // A colon within a DN.
        _ => exact(rule),
    }
}

/// Whether an LDAP URL is a search by which a rule can find somebody: with a DN, a scope and a filter that can be read, and without
/// attributes and extensions.
fn is_search(schema: &Schema, url: &str) -> bool {
    LdapUrl::parse(url).is_ok_and(|url| {
        url.attributes.is_empty() && url.extensions.is_empty() && schema.parse_dn(&url.dn).is_ok()
    })
}

/// Whether the schema has the class and the attribute of `group[/class[/attribute]]`.
fn names_group(schema: &Schema, head: &str) -> bool {
    let mut names = head.split('/').skip(1);
    names.next().is_none_or(|class| schema.object_class(class).is_some())
        && names.next().is_none_or(|attribute| schema.describe(attribute).is_ok())
}

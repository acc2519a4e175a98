//! DNs and filters put together from what people typed.

use std::borrow::Cow;

use larix_proto::{Dn, RdnAva};

/// `cn=Ann \+ Bob`: a name of one value.
pub(super) fn rdn(attribute: &str, value: &str) -> String {
    RdnAva { attribute, value: Cow::Borrowed(value.as_bytes()), hex: false }.to_string()
}

/// A DN below another.
pub(super) fn below(rdn: &str, parent: &str) -> String {
    if parent.is_empty() { rdn.to_owned() } else { format!("{rdn},{parent}") }
}

/// The DN above; `None` for one of a single RDN, and for what is no DN.
pub(super) fn parent(dn: &str) -> Option<String> {
    let parsed = Dn::parse(dn).ok()?;
    let above: Vec<String> = parsed.rdns().iter().skip(1).map(ToString::to_string).collect();
    (!above.is_empty()).then(|| above.join(","))
}

/// The first RDN as text; the whole text if it is no DN.
pub(super) fn first(dn: &str) -> String {
    match Dn::parse(dn) {
        Ok(parsed) => parsed.rdns().first().map_or_else(String::new, ToString::to_string),
        Err(_) => dn.to_owned(),
    }
}

/// The first RDN's first value: what people call the entry.
pub(super) fn called(dn: &str) -> String {
    let value = Dn::parse(dn).ok().and_then(|parsed| {
        let ava = parsed.rdns().first()?.avas().first()?.value.clone();
        Some(String::from_utf8_lossy(&ava).into_owned())
    });
    value.unwrap_or_else(|| dn.to_owned())
}

/// Whether two texts are the same DN, but for case and the spelling of escapes.
pub(super) fn same(left: &str, right: &str) -> bool {
    let plain = |dn: &str| Dn::parse(dn).map(|parsed| parsed.to_string()).unwrap_or_else(|_| dn.to_owned());
    plain(left).eq_ignore_ascii_case(&plain(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_at_unescaped_commas() {
        assert_eq!(rdn("cn", "a,b"), "cn=a\\2Cb");
        assert_eq!(below("cn=a", ""), "cn=a");
        assert_eq!(parent("cn=a\\,b,ou=x,dc=y").as_deref(), Some("ou=x,dc=y"));
        assert_eq!(parent("dc=y"), None);
        assert_eq!(called("cn=a\\,b,ou=x"), "a,b");
        assert_eq!(first("cn=a+sn=b,ou=x"), "cn=a+sn=b");
        assert!(same("CN=a, dc=x", "cn=A,dc=X") && !same("cn=a", "cn=b"));
    }
}

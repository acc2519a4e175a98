//! LDAP URLs.
#![no_main]

use larix_proto::url::LdapUrl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match LdapUrl::parse(text) {
        Ok(url) => assert_eq!(LdapUrl::parse(&url.to_string()), Ok(url)),
        Err(error) => drop(error.to_string()),
    }
});

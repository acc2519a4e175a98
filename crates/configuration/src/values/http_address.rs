//! Where metrics and health are served: `http-listener http://127.0.0.1:9389/`.

use std::net::SocketAddr;

/// The address of a URL such as `http://127.0.0.1:9389/`; port 0 is any free one.
///
/// # Errors
/// What is wrong with the text. Names are not looked up: which of its addresses a name gives is not to be left to chance.
pub fn http_address(url: &str) -> Result<SocketAddr, String> {
    let Some(rest) = url.strip_prefix("http://") else {
        let address = if url.bytes().all(|digit| digit.is_ascii_digit()) { "127.0.0.1:" } else { "" };
        let meant = match url.contains("://") {
            true => String::new(),
            false => format!(": did you mean http://{address}{url}?"),
        };
        return Err(format!("`{url}` does not start with http://{meant}"));
    };
    let address = rest.strip_suffix('/').unwrap_or(rest);
    let address = address
        .strip_prefix("localhost:")
        .map_or_else(|| address.to_owned(), |port| format!("127.0.0.1:{port}"));
    address.parse().map_err(|_| format!("`{url}` is not http:// with a numeric address and a port"))
}

#[cfg(test)]
mod tests {
    use super::http_address;

    #[test]
    fn only_http_urls_of_addresses_are_taken() {
        let check = |url, expected: Result<&str, &str>| {
            let found = http_address(url).map(|address| address.to_string());
            match expected {
                Ok(text) => assert_eq!(found.as_deref(), Ok(text), "{url}"),
                Err(part) => {
                    assert!(found.as_ref().is_err_and(|error| error.contains(part)), "{url}: {found:?}")
                }
            }
        };
        check("http://127.0.0.1:9389/", Ok("127.0.0.1:9389"));
        check("http://127.0.0.1:9389", Ok("127.0.0.1:9389"));
        check("http://[::1]:0/", Ok("[::1]:0"));
        check("http://localhost:9389/", Ok("127.0.0.1:9389"));
        check("https://127.0.0.1:9389/", Err("does not start with http://"));
        check("localhost:9389", Err("did you mean http://localhost:9389?"));
        check("9389", Err("did you mean http://127.0.0.1:9389?"));
        check("http://127.0.0.1/", Err("a port"));
        check("http://example.com:80/", Err("numeric address"));
        check("http://127.0.0.1:70000/", Err("a port"));
        check("http://127.0.0.1:9389/metrics", Err("numeric address"));
    }
}

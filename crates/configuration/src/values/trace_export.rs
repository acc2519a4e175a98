//! `trace-export URL [sample=RATIO]`: where spans of operations go.

use std::fmt;

/// A collector that takes OTLP over HTTP, and the share of operations that it receives.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceExport {
    /// Host and port, as in the URL; with a port.
    pub authority: String,
    /// With its `/`.
    pub path: String,
    /// The share of operations that is sent: above 0, up to 1.
    pub sample: f64,
}

/// What OTLP's receivers listen on.
const PORT: &str = "4318";
const PATH: &str = "/v1/traces";

impl TraceExport {
    pub const WORDS: &'static str = "http://HOST[:PORT][/PATH] [sample=RATIO]";

    /// # Errors
    /// The number of the word, from 0, and what is wrong with it.
    pub fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self, (usize, String)> {
        let url = words.next().ok_or_else(|| (0, "an URL is missing".to_owned()))?;
        let rest = url.strip_prefix("http://").ok_or_else(|| {
            let why = match url.starts_with("https://") {
                true => "a collector is reached without TLS: one beside this server passes spans on",
                false => "not an http:// URL",
            };
            (0, why.to_owned())
        })?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let is_host = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
        };
        if !is_host(authority) || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err((0, "host or path of the URL cannot be used".to_owned()));
        }
        let after_host = authority.rfind(']').map_or(authority, |at| authority.get(at..).unwrap_or_default());
        let authority = match after_host.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => authority.to_owned(),
            Some(_) => return Err((0, "the URL's port is no port".to_owned())),
            None => format!("{authority}:{PORT}"),
        };
        let path = if matches!(path, "" | "/") { PATH.to_owned() } else { path.to_owned() };
        let mut sample = 1.0;
        for (number, word) in words.enumerate() {
            let ratio = word.strip_prefix("sample=").and_then(|ratio| ratio.parse::<f64>().ok());
            match ratio.filter(|ratio| *ratio > 0.0 && *ratio <= 1.0) {
                Some(ratio) => sample = ratio,
                None => {
                    return Err((number + 1, "not sample=RATIO with a ratio above 0, up to 1".to_owned()));
                }
            }
        }
        Ok(Self { authority, path, sample })
    }

    /// A random number below this chooses an operation.
    pub fn threshold(&self) -> u64 {
        if self.sample >= 1.0 {
            return u64::MAX;
        }
        // Never 0: that would be none.
        ((self.sample * u64::MAX as f64) as u64).max(1)
    }
}

impl fmt::Display for TraceExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_ratios() {
        let check = |text: &str, expected: Result<(&str, &str, f64), usize>| {
            let found = TraceExport::parse(text.split_whitespace());
            let found =
                found.as_ref().map(|t| (t.authority.as_str(), t.path.as_str(), t.sample)).map_err(|e| e.0);
            assert_eq!(found, expected, "{text}");
        };
        check("http://localhost", Ok(("localhost:4318", "/v1/traces", 1.0)));
        check("http://localhost/", Ok(("localhost:4318", "/v1/traces", 1.0)));
        check("http://[::1] sample=0.01", Ok(("[::1]:4318", "/v1/traces", 0.01)));
        check("http://[::1]:80/otlp/v1/traces", Ok(("[::1]:80", "/otlp/v1/traces", 1.0)));
        check("http://collector.example:9/x sample=1", Ok(("collector.example:9", "/x", 1.0)));
        check("https://localhost", Err(0));
        check("localhost:4318", Err(0));
        check("http://", Err(0));
        check("http://a:b", Err(0));
        check("http://a\u{7f}b", Err(0));
        check("http://localhost sample=0", Err(1));
        check("http://localhost sample=2", Err(1));
        check("http://localhost sample=NaN", Err(1));
        check("http://localhost often", Err(1));
        check("", Err(0));
    }
}

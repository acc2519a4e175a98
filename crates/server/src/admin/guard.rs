//! Checks before a request is handled: it must come from a browser that shows this page, and from nowhere else.

use hyper::header::{self, HeaderMap, HeaderValue};

use super::ClientConnection;

/// No script or style but the files of this page, no frame around it, nothing from elsewhere.
const CONTENT_SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                                connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The name that the browser asked for.
pub(super) fn host(headers: &HeaderMap) -> &str {
    text(headers, header::HOST)
}

/// Why a form is not taken for one of this origin's pages; `None` if it is. Browsers send one of these headers with every form.
pub(super) fn not_own_origin(headers: &HeaderMap, connection: &ClientConnection) -> Option<String> {
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Some("this form was sent from another site\n".to_owned());
    }
    let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or("elsewhere");
    let scheme = if connection.address.tls { "https" } else { "http" };
    let own = format!("{scheme}://{}", host(headers));
    (origin != own).then(|| {
        format!(
            "this form was sent from {origin}, and this page is {own}. A proxy in front of it must pass the Host header on, and where \
             browsers come with https://, an admin-listener with https:// must be behind the proxy.\n"
        )
    })
}

/// A cookie's value.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// Cookies know no ports: servers side by side on one machine have names of their own.
pub(super) fn cookie_name(connection: &ClientConnection, what: &str) -> String {
    let prefix = if connection.address.tls { "__Host-" } else { "" };
    format!("{prefix}larix-{what}-{}", connection.address.address.port())
}

/// A cookie that no script sees and no other site's request carries, until the browser ends.
pub(super) fn set_cookie(connection: &ClientConnection, name: &str, value: &str) -> Option<HeaderValue> {
    let secure = if connection.address.tls { "; Secure" } else { "" };
    let age = if value.is_empty() { "; Max-Age=0" } else { "" };
    HeaderValue::from_str(&format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}")).ok()
}

/// What every answer says.
pub(super) fn protect(headers: &mut HeaderMap, connection: &ClientConnection) {
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "same-origin");
    set(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if connection.address.tls {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

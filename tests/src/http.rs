//! HTTP as monitors and orchestrators ask it: one request a connection.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};

use crate::raw::PATIENCE;

/// Sends a request and reads up to the end of the connection. Answers the status (0: none), the status line and headers in small letters,
/// and the body.
///
/// # Panics
/// The server cannot be reached, or its answer does not end or is no text.
pub fn ask(server: impl ToSocketAddrs, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(server).expect("an HTTP connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a guard");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, head.to_ascii_lowercase(), body.to_owned())
}

/// Asks for a path, as [`ask`].
///
/// # Panics
/// As [`ask`].
pub fn get(server: impl ToSocketAddrs, path: &str) -> (u16, String, String) {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

/// The figure behind a metric's name and labels.
///
/// # Panics
/// There is no such metric in the text.
pub fn figure(text: &str, metric: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {metric} in\n{text}"))
}

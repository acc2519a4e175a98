//! The client's host name, for access rules by `domain`: looked up by its address before anything of a new connection is
//! read, off the event loop.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use larix_engine::access::PeerNames;
use tokio::sync::{Semaphore, oneshot};

use crate::server::Server;

/// A connection waits so long for its client's name; then there is none.
const WAIT: Duration = Duration::from_secs(5);
/// Names that are looked up at the same time, each on a thread of its own; later requests wait, too.
const LOOKUPS: usize = 32;

static PERMITS: LazyLock<std::sync::Arc<Semaphore>> =
    LazyLock::new(|| std::sync::Arc::new(Semaphore::new(LOOKUPS)));

/// Notes the name, where the configuration has `reverse-lookup on` and a rule asks for it. Without an answer in time the
/// name stays unknown, as without the directive.
pub(crate) async fn look_up(server: &Server, peer: &PeerNames) {
    if !server.config().global.reverse_lookup || !server.databases().ask_about_domain() {
        return;
    }
    let Some(address) = address(&peer.peer_name) else { return };
    let lookup = async {
        let permit = PERMITS.clone().acquire_owned().await.ok()?;
        let found = aside(move || {
            let found = dns_lookup::lookup_addr(&address.ip());
            drop(permit);
            found
        });
        found.await?.ok()
    };
    if let Ok(Some(name)) = tokio::time::timeout(WAIT, lookup).await {
        // No other place sets it.
        let _ = peer.domain.set(name.to_ascii_lowercase());
    }
}

/// Has something done on a thread of its own, which may take long: the one that the loop has beside it computes handshakes. `None`:
/// there is no thread to be had, or it has panicked.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, awaited) = oneshot::channel();
    let work = move || {
        // Who asked may not wait any longer.
        let _ = done.send(work());
    };
    thread::Builder::new().name("host-name".to_owned()).spawn(work).ok()?;
    awaited.await.ok()
}

/// The address in `IP=192.0.2.1:40000`.
fn address(name: &str) -> Option<SocketAddr> {
    name.strip_prefix("IP=")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aside::Aside;

    #[test]
    fn a_silent_resolver_holds_up_no_handshake() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let handshakes = Aside::new("handshakes", 1);
        let (answer, silence) = std::sync::mpsc::channel();
        runtime.block_on(async {
            let mut lookup = std::pin::pin!(aside(move || silence.recv().is_ok()));
            assert!(tokio::time::timeout(Duration::from_millis(10), &mut lookup).await.is_err());
            tokio::time::timeout(Duration::from_secs(120), handshakes.run(|| ())).await.unwrap().unwrap();
            answer.send(()).unwrap();
            assert_eq!(lookup.await, Some(true));
        });
    }

    #[test]
    fn only_peers_with_an_address_are_looked_up() {
        for (name, expected) in [
            ("IP=192.0.2.1:40000", Some("192.0.2.1:40000")),
            ("IP=[2001:db8::1]:40000", Some("[2001:db8::1]:40000")),
            ("PATH=/run/ldapi", None),
            ("", None),
        ] {
            let expected = expected.map(|text| text.parse().expect("an address"));
            assert_eq!(address(name), expected, "{name}");
        }
    }
}

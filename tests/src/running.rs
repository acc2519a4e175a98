//! A server with the folder that it has for itself.

use std::net::SocketAddr;

use larix_testkit::{Kind, Server, Site};

use crate::client::Client;

/// A server, with its folder: both go when this is dropped.
#[derive(Debug)]
pub struct Running {
    pub server: Server,
    _site: Site,
}

impl Running {
    /// Starts a server with these lines of a slapd.conf; `ldif` is loaded first, if there is any.
    ///
    /// # Panics
    /// The lines, the entries or the start are refused.
    pub fn start(kind: Kind, body: &str, ldif: &str) -> Self {
        let site = Site::new(kind, body);
        if !ldif.is_empty() {
            site.load(ldif);
        }
        Self::of(site)
    }

    /// Starts the server of a prepared folder.
    ///
    /// # Panics
    /// The start is refused.
    pub fn of(site: Site) -> Self {
        let server = site.start().unwrap_or_else(|error| panic!("{error}"));
        Self::with(server, site)
    }

    /// A server that runs already, with its folder.
    pub fn with(server: Server, site: Site) -> Self {
        Self { server, _site: site }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub fn client(&self) -> Client {
        Client::connect(self.server.address)
    }
}

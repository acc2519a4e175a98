//! One state of the server.

use std::sync::Arc;

use larix_configuration::Config;

use crate::databases::Databases;

/// One state of the server: a configuration and what was made of it. A change of the configuration publishes another.
#[derive(Debug)]
pub(crate) struct Generation {
    pub config: Arc<Config>,
    pub databases: Databases,
}

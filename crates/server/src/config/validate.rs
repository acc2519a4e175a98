//! The configuration as a whole.

use super::diagnostic::ConfigError;
use super::model::Config;

/// Checks what no single directive can see.
pub(super) fn complete(config: Config) -> Result<Config, ConfigError> {
    Ok(config)
}

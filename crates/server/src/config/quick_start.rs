//! placeholder
use super::{Config, ConfigError, Origin};
pub(super) fn build(_: &super::QuickStart) -> Result<Config, ConfigError> {
    Err(ConfigError::new(Origin::BuiltIn, "not implemented yet"))
}

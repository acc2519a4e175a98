//! What overlays have in front of backends: built from their settings, as the overlays themselves are.

use std::sync::Arc;

use larix_backend::{Interceptor, Stack};

use super::diagnostic::ConfigError;
use super::model::{Config, Database, Overlay};

/// Makes what the server alone can make for an overlay; none of another overlay.
pub type MakeInterceptor<'a> =
    &'a mut dyn FnMut(&Overlay) -> Result<Option<Arc<dyn Interceptor>>, ConfigError>;

impl Config {
    /// What stands in front of a database, or of all of them: its overlays as configured, the last one outermost (slapd.overlays(5)).
    ///
    /// # Errors
    /// A setting that cannot be understood; what `make` says.
    pub fn interceptors(
        &self,
        database: Option<&Database>,
        make: MakeInterceptor<'_>,
    ) -> Result<Stack, ConfigError> {
        let overlays = database.map_or(&self.frontend.overlays, |database| &database.overlays);
        let mut stack: Vec<Arc<dyn Interceptor>> = Vec::new();
        for overlay in overlays.iter().rev().filter(|overlay| !overlay.disabled) {
            match larix_overlays::interceptor(&overlay.name) {
                Some(build) => self.in_context(database, |context| {
                    stack.extend(self.unless_schema_comes(overlay, build(&overlay.given(), &context))?);
                    Ok::<(), ConfigError>(())
                })?,
                None => stack.extend(make(overlay)?),
            }
        }
        Ok(if stack.is_empty() { Stack::default() } else { Stack::new(stack) })
    }
}

//! What overlays have in front of backends: built from their settings, as the overlays themselves are.

use std::sync::Arc;

use larix_backend::{Interceptor, Stack};

use super::diagnostic::ConfigError;
use super::model::{Config, Database, Overlay};

impl Config {
    /// What stands in front of a database, or of all of them: its overlays as configured, the last one outermost (slapd.overlays(5)).
    ///
    /// # Errors
    /// A setting that cannot be understood.
    pub fn interceptors(&self, database: Option<&Database>) -> Result<Stack, ConfigError> {
        let overlays = database.map_or(&self.frontend.overlays, |database| &database.overlays);
        let configured = overlays.iter().rev().filter(|overlay| !overlay.disabled);
        let builders: Vec<(&Overlay, larix_overlays::BuildInterceptor)> = configured
            .filter_map(|overlay| larix_overlays::interceptor(&overlay.name).map(|build| (overlay, build)))
            .collect();
        if builders.is_empty() {
            return Ok(Stack::default());
        }
        self.in_context(database, |context| {
            let mut stack: Vec<Arc<dyn Interceptor>> = Vec::new();
            for (overlay, build) in builders {
                stack.extend(self.unless_schema_comes(overlay, build(&overlay.given(), &context))?);
            }
            Ok(Stack::new(stack))
        })
    }
}

//! What overlays have in front of backends: built from their settings, as the overlays themselves are.

use std::sync::Arc;

use larix_backend::{Interceptor, Stack};

use super::diagnostic::ConfigError;
use super::model::{Config, Database, Overlay};

/// Makes what the server alone can make for an overlay; none of another overlay.
pub type MakeInterceptor<'a> =
    &'a mut dyn FnMut(&Overlay) -> Result<Option<Arc<dyn Interceptor>>, ConfigError>;

/// What stands in front of a database, the outermost first.
#[derive(Debug, Default)]
pub struct InFront {
    /// Configured behind its `overlay glue`: in front of the databases glued below, too.
    pub over_glue: Vec<Arc<dyn Interceptor>>,
    pub own: Vec<Arc<dyn Interceptor>>,
}

impl InFront {
    /// All of them.
    pub fn stack(&self) -> Stack {
        Stack::new(self.over_glue.iter().chain(&self.own).cloned().collect())
    }
}

impl Config {
    /// What stands in front of a database, or of all of them: its overlays as configured, the last one outermost (slapd.overlays(5)).
    ///
    /// # Errors
    /// A setting that cannot be understood; what `make` says.
    pub fn interceptors(
        &self,
        database: Option<&Database>,
        make: MakeInterceptor<'_>,
    ) -> Result<InFront, ConfigError> {
        let overlays = database.map_or(&self.frontend.overlays, |database| &database.overlays);
        let over_glue = database.map_or(&[][..], |database| self.over_glue(database));
        let is_over = |overlay: &Overlay| over_glue.iter().any(|over| std::ptr::eq(over, overlay));
        let mut in_front = InFront::default();
        for overlay in overlays.iter().rev().filter(|overlay| !overlay.disabled) {
            let made = match larix_overlays::interceptor(&overlay.name) {
                Some(build) => self.in_context(database, |context| {
                    self.unless_schema_comes(overlay, build(&overlay.given(), &context))
                })?,
                None => make(overlay)?,
            };
            match is_over(overlay) {
                true => in_front.over_glue.extend(made),
                false => in_front.own.extend(made),
            }
        }
        Ok(in_front)
    }
}

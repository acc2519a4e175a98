//! `overlay emptyds`: clients that send empty values of the syntax Directory String, which has none (RFC 4517 section 3.3.6), are
//! taken to mean no value.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_backend::{Changes, Context, Interceptor, Next, Operations, PendingAnswer};
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor};
use larix_engine::write::{Completion, WriteOperation, WriteRequest};
use larix_proto::ModifyOperation;
use larix_schema::{Schema, Usage};

pub static DESCRIPTOR: Descriptor = Descriptor::in_front("emptyds", "olcOverlayConfig").once();

const DIRECTORY_STRING: &str = "1.3.6.1.4.1.1466.115.121.1.15";

/// The overlay in front of one database, or of all.
#[derive(Debug)]
struct EmptyStrings(Arc<Schema>);

pub fn build(_: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError> {
    Ok(Arc::new(EmptyStrings(Arc::clone(context.schema))))
}

impl Interceptor for EmptyStrings {
    fn requests(&self) -> Operations {
        Operations::UPDATE
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        mut changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        let strip = |request: &mut WriteRequest| self.strip(&mut request.operation);
        match &mut changes {
            Changes::One(request, _) => strip(request),
            Changes::Together(requests) => requests.iter_mut().for_each(strip),
        }
        next.update(context, changes, done)
    }
}

impl EmptyStrings {
    /// Takes empty values out. An attribute that had no others is left out of an add; a change that had no others is left out of a
    /// modify, but for a replace, which deletes then.
    fn strip(&self, operation: &mut WriteOperation) {
        match operation {
            WriteOperation::Add { attributes, .. } => {
                attributes.retain_mut(|attribute| {
                    !self.take_out(&attribute.description, &mut attribute.values)
                        || !attribute.values.is_empty()
                });
            }
            WriteOperation::Modify { changes, .. } => changes.retain_mut(|change| {
                !self.take_out(&change.attribute.description, &mut change.attribute.values)
                    || !change.attribute.values.is_empty()
                    || change.operation == ModifyOperation::Replace
            }),
            _ => {}
        }
    }

    /// Whether there were empty values.
    fn take_out(&self, description: &str, values: &mut Vec<Vec<u8>>) -> bool {
        if values.iter().all(|value| !value.is_empty()) {
            return false;
        }
        let Ok(description) = self.0.describe(description) else { return false };
        let attribute = self.0.attribute(description.attribute);
        if attribute.syntax.oid != DIRECTORY_STRING || attribute.usage != Usage::UserApplications {
            return false;
        }
        values.retain(|value| !value.is_empty());
        true
    }
}

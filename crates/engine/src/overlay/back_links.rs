//! Back links: an attribute that names the entries which name this one. `memberOf` is one of `member`. The writer keeps it so
//! (`crate::write::back_links`), with every change and for changes of other servers, too.

use larix_schema::{AttributeDescription, ObjectClassId, Schema};

/// Which links have a back link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackLinkRule {
    /// Of this class, or of one below it, are the entries whose links count: the sources.
    pub class: ObjectClassId,
    /// The attribute of sources that names targets.
    pub forward: AttributeDescription,
    /// The attribute of targets that names sources.
    pub back: AttributeDescription,
    /// Targets that change in the commit of what they follow from: [`crate::write::BACK_LINKS_LIMIT`].
    pub at_once: usize,
}

impl BackLinkRule {
    /// Whether the links of an entry with these classes count.
    pub fn is_source<'v>(&self, schema: &Schema, mut classes: impl Iterator<Item = &'v [u8]>) -> bool {
        classes.any(|value| {
            let class = std::str::from_utf8(value).ok().and_then(|name| schema.object_class_id(name));
            class.is_some_and(|class| class == self.class || schema.is_subclass(class, self.class))
        })
    }
}

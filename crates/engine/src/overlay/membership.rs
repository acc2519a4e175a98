//! What makes an entry a member, where an attribute of members says which groups name them (`overlay memberof`). The writer keeps
//! it so (`crate::write::membership`), with every change and for changes of other servers, too.

use larix_schema::{AttributeDescription, ObjectClassId, Schema};

/// What makes an entry a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipRule {
    /// `memberof-group-oc`: of this class, or of one below it, are the groups.
    pub group_class: ObjectClassId,
    /// `memberof-member-ad`
    pub member: AttributeDescription,
    /// `memberof-memberof-ad`
    pub member_of: AttributeDescription,
    /// Members that change in the commit of what they follow from: [`crate::write::MEMBERS_LIMIT`].
    pub at_once: usize,
}

impl MembershipRule {
    /// Whether an entry with these classes is a group.
    pub fn is_group<'v>(&self, schema: &Schema, mut classes: impl Iterator<Item = &'v [u8]>) -> bool {
        classes.any(|value| {
            let class = std::str::from_utf8(value).ok().and_then(|name| schema.object_class_id(name));
            class
                .is_some_and(|class| class == self.group_class || schema.is_subclass(class, self.group_class))
        })
    }
}

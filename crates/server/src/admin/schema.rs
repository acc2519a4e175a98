//! What the schema says of an entry's attributes.

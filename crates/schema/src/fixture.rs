//! For tests: a schema of the usual files.

use crate::{Schema, SchemaBuilder};

pub(crate) fn schema() -> Schema {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        builder.add_bundled(name).unwrap();
    }
    builder.build()
}

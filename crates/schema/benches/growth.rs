//! What 100 more object classes cost while a schema grows: `cargo bench -p larix-schema`. Prints microseconds and the
//! ratio to the first hundred; the growth is to stay flat.
#![allow(clippy::disallowed_methods)] // measures real time

use std::hint::black_box;
use std::time::Instant;

use larix_schema::{Schema, SchemaBuilder};

const SAMPLES: u32 = 300;

fn definition(number: usize) -> String {
    format!(
        "( 1.3.6.1.4.1.99999.1.{number} NAME 'gridClass{number}' DESC 'class {number}' SUP top STRUCTURAL MUST cn MAY ( description $ sn ) )"
    )
}

fn add(schema: &Schema, definitions: &[String]) -> Schema {
    let mut builder = SchemaBuilder::from(schema);
    for definition in definitions {
        builder.add_object_class(definition).expect("a class that is new");
    }
    builder.build()
}

fn main() {
    let mut builder = SchemaBuilder::system();
    builder.add_bundled("core").expect("the bundled core schema");
    let mut schema = builder.build();
    let definitions: Vec<String> = (1..=10_100).map(definition).collect();
    let mut first = 0.0;
    for (classes, hundred) in definitions.chunks(100).enumerate().map(|(i, chunk)| (i * 100, chunk)) {
        if matches!(classes, 0 | 1_000 | 5_000 | 10_000) {
            // The best of many: other work on the machine spoils only some of them.
            let best = (0..SAMPLES).fold(f64::MAX, |best, _| {
                let start = Instant::now();
                black_box(add(&schema, hundred));
                best.min(start.elapsed().as_secs_f64() * 1e6)
            });
            if classes == 0 {
                first = best;
            }
            println!("100 classes at {classes:>6}: {best:>8.1} us {:>6.2}x", best / first);
        }
        schema = add(&schema, hundred);
    }
}

//! `larix size`, end to end: a generated sample, an LDIF with its configuration, and what is refused.

use std::path::Path;
use std::process::Output;

use larix_load::generate::{self, Kind};
use larix_testkit::process;
use serde_json::Value;

fn size(arguments: &[&str]) -> Output {
    process::Kind::Larix.tool("size").args(arguments).output().expect("larix starts")
}

fn json(arguments: &[&str]) -> Value {
    let output = size(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Two rates without failures, and tables that add up.
fn check(found: &Value, entries: u64) {
    assert_eq!(found["sample"]["entries"], entries);
    for rate in found["operations"]["rates"].as_array().expect("rates") {
        assert_eq!(rate["invalid"], Value::Null, "{rate}");
        assert!(rate["per_second"].as_f64().unwrap_or(0.0) > 0.0, "{rate}");
    }
    let disk = found["disk_bytes"].as_f64().unwrap_or(0.0);
    let tables: f64 = found["tables"]
        .as_array()
        .expect("tables")
        .iter()
        .filter_map(|t| t["estimated_bytes"].as_f64())
        .sum();
    assert!(disk >= tables && tables > 0.0, "{disk} {tables}");
}

#[test]
fn generated_samples() {
    for (kind, extra) in [("people", 9), ("subscribers", 1)] {
        let found = json(&["--generate", kind, "--entries", "400", "--seconds", "0.2", "--for", "1000"]);
        check(&found, 400 + extra);
        assert_eq!(found["entries"], 1000);
    }
}

#[test]
fn an_ldif_with_its_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = folder.path().join("schema");
    std::fs::create_dir(&schema).expect("a folder");
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../crates/schema/schema/{name}.schema"));
        std::fs::copy(&source, schema.join(format!("{name}.schema")))
            .unwrap_or_else(|e| panic!("{source:?}: {e}"));
    }
    let made = generate::write_directory(Kind::People, 300, 1, folder.path(), &schema).expect("a directory");
    let (ldif, config) = (made.ldif.display().to_string(), made.configuration.display().to_string());
    let found = json(&["--ldif", &ldif, "-f", &config, "--seconds", "0.2", "--connections", "2"]);
    check(&found, 309);
    assert!(
        std::fs::read_dir(&made.data).expect("data").next().is_none(),
        "the configured folder is not touched"
    );
}

#[test]
fn what_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.ldif");
    std::fs::write(&empty, "").expect("a file");
    let empty = empty.display().to_string();
    for (arguments, expected) in [
        (&["--entries", "5"][..], "--entries 5"),
        (&["--for", "0"], "--for 0"),
        (&["--seconds", "9999"], "--seconds 9999: 0 to 3600"),
        (&["--generate", "unheard"], "mail, people, subscribers"),
        (&["--folder", "/no/such/folder"], "/no/such/folder"),
        (&["--ldif", &empty], "-f <FILE>"),
        (&["--ldif", &empty, "-f", "/no/such.conf"], "/no/such.conf"),
        (&["--entries", "900000000000"], "--folder"),
    ] {
        let output = size(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

//! The Helm chart (dist/helm/larix), as far as it can be checked without helm: its values, its schema, its templates, its page and the
//! scripts of the image agree. `cargo xtask chart` has helm render it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

fn dist() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist")
}

fn read(name: &str) -> String {
    fs::read_to_string(dist().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Each file of the chart's templates, by its name.
fn templates() -> Vec<(String, String)> {
    let files = fs::read_dir(dist().join("helm/larix/templates")).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// The subset of YAML that values.yaml has: maps by indentation, and scalars, `[]` and `{}` on one line.
fn values() -> Value {
    let text = read("helm/larix/values.yaml");
    let mut lines =
        text.lines().filter(|line| !line.is_empty() && !line.trim_start().starts_with('#')).peekable();
    map(&mut lines, 0)
}

fn map<'t>(lines: &mut std::iter::Peekable<impl Iterator<Item = &'t str>>, indentation: usize) -> Value {
    let mut found = Map::new();
    while let Some(line) = lines.next_if(|line| line.len() - line.trim_start().len() == indentation) {
        let (key, value) = line.trim().split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
        let value = match value.trim() {
            "" => map(lines, indentation + 2),
            text => scalar(text),
        };
        assert!(found.insert(key.to_owned(), value).is_none(), "{key} is there twice");
    }
    assert!(!found.is_empty(), "an empty map at {:?}", lines.peek());
    Value::Object(found)
}

/// JSON's scalars are YAML's; anything else is text.
fn scalar(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The faults of a value beside its schema, for the keywords that the schema uses.
fn faults(at: &str, value: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(kind) = schema["type"].as_str() {
        let is = match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64(),
            other => panic!("{at}: an unknown type {other}"),
        };
        if !is {
            faults.push(format!("{at}: {value} is not of type {kind}"));
        }
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        faults.push(format!("{at}: {value} is none of {allowed:?}"));
    }
    if let (Some(minimum), Some(number)) = (schema["minimum"].as_i64(), value.as_i64())
        && number < minimum
    {
        faults.push(format!("{at}: {number} is below {minimum}"));
    }
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object()) else {
        return faults;
    };
    for (name, member) in members {
        match properties.get(name) {
            Some(schema) => faults.extend(self::faults(&format!("{at}.{name}"), member, schema)),
            None => faults.push(format!("{at}.{name} is not in the schema")),
        }
    }
    // `global` is Helm's own.
    let missing = properties.keys().filter(|name| *name != "global" && !members.contains_key(*name));
    faults.extend(missing.map(|name| format!("{at}.{name} has no default")));
    faults
}

/// Names such as `auth.existingSecret` of all values that are no map with keys of its own in the schema.
fn leaves(at: &str, schema: &Value) -> BTreeSet<String> {
    let Some(properties) = schema["properties"].as_object() else { return BTreeSet::from([at.to_owned()]) };
    let below = |name: &String| if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
    let own = properties.iter().filter(|(name, _)| *name != "global");
    own.flat_map(|(name, schema)| leaves(&below(name), schema)).collect()
}

fn schema() -> Value {
    serde_json::from_str(&read("helm/larix/values.schema.json")).unwrap()
}

/// Words of these letters behind a marker.
fn words(text: &str, marker: &str, letters: fn(char) -> bool) -> BTreeSet<String> {
    let found = text.match_indices(marker).map(|(place, _)| &text[place + marker.len()..]);
    found.map(|rest| rest[..rest.find(|c| !letters(c)).unwrap_or(rest.len())].to_owned()).collect()
}

#[test]
fn the_default_values_fit_their_schema() {
    assert_eq!(faults("", &values(), &schema()), [""; 0]);
    let mut wrong = values();
    wrong["replicas"] = Value::from(0);
    wrong["image"]["pullPolicy"] = Value::from("sometimes");
    wrong["backup"]["keeps"] = Value::from(1);
    wrong["suffix"] = Value::from(7);
    let found = faults("", &wrong, &schema());
    assert_eq!(found.len(), 4, "each fault is seen: {found:?}");
}

#[test]
fn templates_use_all_values_and_no_others() {
    let text: String = templates().into_iter().map(|(_, text)| text).collect();
    let used = words(&text, ".Values.", |c| c.is_ascii_alphanumeric() || c == '.');
    assert_eq!(used, leaves("", &schema()));
}

#[test]
fn the_page_has_all_values() {
    let page = read("helm/larix/README.md");
    for name in leaves("", &schema()) {
        assert!(page.contains(&format!("`{name}`")), "dist/helm/larix/README.md does not have {name}");
    }
}

/// A name that a script does not read would be without effect.
#[test]
fn scripts_read_what_the_chart_and_the_guide_set() {
    let name = |c: char| c.is_ascii_uppercase() || c == '_';
    let variables = |text: &str| -> BTreeSet<String> {
        words(text, "LARIX_", name)
            .into_iter()
            .filter(|word| !word.is_empty())
            .map(|word| word.trim_end_matches("_FILE").to_owned())
            .collect()
    };
    // `${NAME}` and `setting NAME`: comments and texts of errors do not count.
    let read_by = |script: &str| -> BTreeSet<String> {
        let text = read(script);
        let mut found = words(&text, "${LARIX_", name);
        let settings = text.lines().filter_map(|line| Some(line.split_once("$(setting ")?.1));
        found.extend(settings.flat_map(|line| words(line, "LARIX_", name)));
        found.into_iter().map(|word| word.trim_end_matches("_FILE").to_owned()).collect()
    };
    let (start, export) = (read_by("container/start"), read_by("container/export"));
    let mut seen = 0;
    for (file, text) in templates() {
        let reader = if file == "backup.yaml" { &export } else { &start };
        let set = variables(&text);
        seen += set.len();
        assert!(set.is_subset(reader), "{file} sets {:?}", set.difference(reader).collect::<Vec<_>>());
    }
    assert!(seen > 10, "{seen}");
    let guide = fs::read_to_string(dist().join("../docs/guide/container.md")).unwrap();
    let documented = variables(&guide);
    let known: BTreeSet<String> = start.union(&export).cloned().collect();
    assert!(documented.is_subset(&known), "{:?}", documented.difference(&known).collect::<Vec<_>>());
    let set_only_there = BTreeSet::from(["DATA".to_owned()]);
    let undocumented: Vec<_> =
        known.difference(&documented).filter(|name| !set_only_there.contains(*name)).collect();
    assert!(undocumented.is_empty(), "docs/guide/container.md does not have {undocumented:?}");
    for file in ["container/compose.yaml", "container/compose-replicas.yaml"] {
        let set = variables(&read(file));
        assert!(
            !set.is_empty() && set.is_subset(&start),
            "{file}: {:?}",
            set.difference(&start).collect::<Vec<_>>()
        );
    }
}

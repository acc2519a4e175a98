//! The directive of `overlay valsort`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_schema::Schema;

use super::{Method, Rule, ValSort};

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let lines: Vec<Vec<String>> =
        settings.values("olcValSortAttr").map(|value| value.words.clone()).collect();
    let made = ValSort::new(context.schema, &lines);
    Ok(Arc::new(made.map_err(|error| SettingError::new(error).awaiting_schema())?))
}

const INTEGER: &str = "1.3.6.1.4.1.1466.115.121.1.27";
const NUMERIC_STRING: &str = "1.3.6.1.4.1.1466.115.121.1.36";

const METHODS: [(&str, Method); 4] = [
    ("alpha-ascend", Method { numeric: false, descending: false }),
    ("alpha-descend", Method { numeric: false, descending: true }),
    ("numeric-ascend", Method { numeric: true, descending: false }),
    ("numeric-descend", Method { numeric: true, descending: true }),
];

impl ValSort {
    /// The overlay with these values of `valsort-attr`, each as its words.
    ///
    /// # Errors
    /// A text that names the value and the mend.
    pub fn new(schema: &Schema, lines: &[Vec<String>]) -> Result<Self, String> {
        let mut rules = Vec::new();
        for line in lines {
            rules.extend(rule(schema, line).map_err(|fault| format!("valsort-attr: {fault}"))?);
        }
        Ok(Self { rules })
    }
}

/// A rule; none for an attribute that has one value at most.
fn rule(schema: &Schema, line: &[String]) -> Result<Option<Rule>, String> {
    let (name, base, methods) = match line {
        [name, base, methods @ ..] if matches!(methods.len(), 1 | 2) => (name, base, methods),
        _ => {
            let text = line.join(" ");
            return Err(format!("\"{text}\": write an attribute, a base DN, and a method or `weighted`"));
        }
    };
    let attribute = schema.describe(name).map_err(|error| format!("<{name}>: {error}"))?;
    let kind = schema.attribute(attribute.attribute);
    let base =
        schema.parse_dn(base).map_err(|error| format!("unable to normalize DN \"{base}\": {error}"))?;
    let (weighted, method) = match methods {
        [word] if word.eq_ignore_ascii_case("weighted") => (true, None),
        [word, second] if word.eq_ignore_ascii_case("weighted") => (true, Some(method(second)?)),
        [word] => (false, Some(method(word)?)),
        _ => {
            return Err(format!("\"{}\": a second method stands behind `weighted` alone", methods.join(" ")));
        }
    };
    if method.is_some_and(|method| method.numeric)
        && ![INTEGER, NUMERIC_STRING].contains(&kind.syntax.oid.as_str())
    {
        return Err(format!(
            "numeric sort specified for non-numeric syntax: {name}; write alpha-ascend or alpha-descend"
        ));
    }
    if kind.single_value {
        return Ok(None);
    }
    Ok(Some(Rule { attribute, base, weighted, method }))
}

fn method(word: &str) -> Result<Method, String> {
    let found = METHODS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    found.map(|(_, method)| *method).ok_or_else(|| {
        let names: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
        format!("unrecognized sort type \"{word}\"; one of weighted, {}", names.join(", "))
    })
}

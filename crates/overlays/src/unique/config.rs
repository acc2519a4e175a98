//! The directives of `overlay unique`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_proto::Scope;
use larix_proto::url::LdapUrl;
use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::{Area, Domain, Unique, UniqueSettings};

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let names = |attribute| settings.words(attribute).map(str::to_owned).collect();
    let directives = UniqueDirectives {
        uris: settings.values("olcUniqueURI").map(|value| value.words.clone()).collect(),
        base: settings.text("olcUniqueBase").map(|text| text.trim().trim_matches('"').to_owned()),
        attributes: names("olcUniqueAttribute"),
        ignore: names("olcUniqueIgnore"),
        strict: settings.is_on("olcUniqueStrict"),
    };
    let read = directives.settings(context.schema, context.suffixes);
    let read = read.map_err(|error| SettingError::new(error).awaiting_schema())?;
    let suffix = context.suffixes.first().cloned().unwrap_or_else(NormalDn::root);
    Ok(Arc::new(Unique::new(read, suffix).receiving(context.receives)))
}

/// The directives as they stand in the configuration.
#[derive(Clone, Debug, Default)]
pub struct UniqueDirectives {
    /// `unique_uri`, one value for each domain: keywords and URIs.
    pub uris: Vec<Vec<String>>,
    /// `unique_base`
    pub base: Option<String>,
    /// `unique_attributes`
    pub attributes: Vec<String>,
    /// `unique_ignore`
    pub ignore: Vec<String>,
    /// `unique_strict`
    pub strict: bool,
}

impl UniqueDirectives {
    /// The domains that the directives describe.
    ///
    /// # Errors
    /// A text that names the directive, the value and the mend.
    pub fn settings(&self, schema: &Schema, suffixes: &[NormalDn]) -> Result<UniqueSettings, String> {
        let is_old = self.base.is_some() || self.strict || self.has_names();
        if is_old && !self.uris.is_empty() {
            return Err("unique_uri cannot stand beside unique_base, unique_attributes, unique_ignore or \
                        unique_strict: write them as one more unique_uri"
                .to_owned());
        }
        if !self.attributes.is_empty() && !self.ignore.is_empty() {
            return Err("unique_attributes and unique_ignore exclude each other: keep one of them".to_owned());
        }
        let mut domains = Vec::new();
        // slapd checks nothing for an overlay without directives, and everything once `unique_strict` stands there.
        if is_old {
            domains.push(self.old_domain(schema, suffixes)?);
        }
        for words in &self.uris {
            domains.push(domain(schema, suffixes, words)?);
        }
        Ok(UniqueSettings { domains })
    }

    fn has_names(&self) -> bool {
        !self.attributes.is_empty() || !self.ignore.is_empty()
    }

    fn old_domain(&self, schema: &Schema, suffixes: &[NormalDn]) -> Result<Domain, String> {
        let base = match &self.base {
            None => None,
            Some(text) => Some(base_dn(schema, suffixes, "unique_base", text)?),
        };
        let (keyword, names) = match self.ignore.as_slice() {
            [] => ("unique_attributes", &self.attributes),
            _ => ("unique_ignore", &self.ignore),
        };
        let area = Area {
            base,
            scope: Scope::Subtree,
            attributes: descriptions(schema, keyword, names)?,
            filter: None,
        };
        Ok(Domain { strict: self.strict, ignore: !self.ignore.is_empty(), areas: vec![area] })
    }
}

/// One `unique_uri`.
fn domain(schema: &Schema, suffixes: &[NormalDn], words: &[String]) -> Result<Domain, String> {
    let mut domain = Domain { strict: false, ignore: false, areas: Vec::new() };
    // In slapd.conf keywords and URIs stand in one quoted word, so that white space parts them there, too.
    for word in words.iter().flat_map(|word| word.split_ascii_whitespace()) {
        match word.to_ascii_lowercase().as_str() {
            _ if !domain.areas.is_empty() => domain.areas.push(area(schema, suffixes, word)?),
            "strict" => domain.strict = true,
            "ignore" => domain.ignore = true,
            // The one writer of a database carries out one change after another: they always are.
            "serialize" => {}
            _ => domain.areas.push(area(schema, suffixes, word)?),
        }
    }
    if domain.areas.is_empty() {
        let text = words.join(" ");
        return Err(format!("unique_uri \"{text}\": no URI; write ldap:///[base]?[attributes]?sub[?filter]"));
    }
    Ok(domain)
}

/// One URI of a domain.
fn area(schema: &Schema, suffixes: &[NormalDn], text: &str) -> Result<Area, String> {
    let fault = |what: String| format!("unique_uri \"{text}\": {what}");
    let url = LdapUrl::parse(text).map_err(|error| fault(error.to_string()))?;
    if !url.host.is_empty() || url.port.is_some() {
        return Err(fault("names a server: only this database can be searched; write ldap:///".to_owned()));
    }
    if !url.extensions.is_empty() {
        return Err(fault("has extensions, which mean nothing here: leave them out".to_owned()));
    }
    let scope = match url.scope {
        // slapd takes it. Its searches then find some entries below a base and none below the suffix.
        None => {
            return Err(fault(
                "has no scope: write sub or one; slapd takes it and checks hardly anything".to_owned(),
            ));
        }
        Some(Scope::Base) => {
            return Err(fault("has the scope base, where everything is unique; write sub or one".to_owned()));
        }
        Some(scope) => scope,
    };
    let base = match url.dn.as_str() {
        "" => None,
        dn => Some(base_dn(schema, suffixes, "unique_uri", dn)?),
    };
    let attributes = descriptions(schema, "unique_uri", &url.attributes)?;
    let filter = url.filter.map(|filter| {
        let bound = schema.bind_filter(filter.as_filter());
        (bound, filter.to_string())
    });
    Ok(Area { base, scope, attributes, filter })
}

fn base_dn(schema: &Schema, suffixes: &[NormalDn], keyword: &str, text: &str) -> Result<NormalDn, String> {
    let dn = schema.parse_dn(text).map_err(|error| format!("{keyword} \"{text}\": not a DN: {error}"))?;
    if !suffixes.iter().any(|suffix| dn.is_within(suffix)) {
        return Err(format!("{keyword} \"{text}\": not within this database; name a DN below its suffix"));
    }
    Ok(dn)
}

fn descriptions(
    schema: &Schema,
    keyword: &str,
    names: &[String],
) -> Result<Vec<AttributeDescription>, String> {
    let names = names.iter().filter(|name| !name.is_empty());
    names.map(|name| schema.describe(name).map_err(|error| format!("{keyword} <{name}>: {error}"))).collect()
}

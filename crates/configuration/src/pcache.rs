//! `overlay pcache` (slapo-pcache(5)): answers of another server are kept for a while. The cache is in memory: of lines behind the overlay's
//! that slapd-mdb(5) has, `directory` alone has an effect.

use std::path::{Path, PathBuf};
use std::time::Duration;

use larix_proto::{FilterBuf, Scope as SearchScope};
use larix_proxy::pcache::{AttributeSet, BindTemplate, Settings as Behavior, Shape, Template};
use larix_schema::Schema;

use super::builder::directive::{Directive, Form, Scope};
use super::diagnostic::ConfigError;
use super::kinds::LdapSettings;
use super::model::{Config, Database, Overlay};
use super::values::quantity;

/// The overlay's name.
pub(super) const NAME: &str = "pcache";
/// Sets of attributes, as in OpenLDAP.
const SETS_MAX: usize = 500;
/// The file of a cache that is kept.
const FILE: &str = "pcache.saved";
/// Queries, unless `pcacheMaxQueries` says otherwise (OpenLDAP's number).
const QUERIES: usize = 10_000;
/// Bytes of all answers, unless `pcacheMaxBytes` says otherwise.
const BYTES: u64 = 64 << 20;
/// The longest time: what is longer is this.
const TIME_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

const fn own(keyword: &'static str, attribute: &'static str, form: Form) -> Directive {
    let directive = Directive::kept(keyword, attribute, Scope::Overlay(NAME), form);
    match form {
        Form::Switch => directive.arguments(0, 1),
        _ => directive,
    }
}

const ALWAYS: &str = "an entry that is not found here by the same filter is never kept";
const FIRST: &str = "the overlay stands right in front of the remote server, whatever overlays there are";

pub(super) static TABLE: &[Directive] = &[
    own("pcache", "olcPcache", Form::Words)
        .alias(&["proxycache"])
        .attribute_alias(&["olcProxyCache"])
        .arguments(5, 5),
    own("pcacheAttrset", "olcPcacheAttrset", Form::Words)
        .many()
        .alias(&["proxyattrset"])
        .attribute_alias(&["olcProxyAttrset"])
        .arguments(2, u8::MAX),
    own("pcacheTemplate", "olcPcacheTemplate", Form::Words)
        .many()
        .alias(&["proxytemplate"])
        .attribute_alias(&["olcProxyCacheTemplate"])
        .arguments(3, 6),
    own("pcachePosition", "olcPcachePosition", Form::Words).alias(&["response-callback"]).noted(FIRST),
    own("pcacheMaxQueries", "olcPcacheMaxQueries", Form::Whole)
        .alias(&["proxycachequeries"])
        .attribute_alias(&["olcProxyCacheQueries"]),
    own("pcacheMaxBytes", "olcLarixPcacheMaxBytes", Form::Whole),
    own("pcachePersist", "olcPcachePersist", Form::Switch)
        .alias(&["proxysavequeries"])
        .attribute_alias(&["olcProxySaveQueries"]),
    own("pcacheValidate", "olcPcacheValidate", Form::Switch)
        .alias(&["proxycheckcacheability"])
        .attribute_alias(&["olcProxyCheckCacheability"])
        .noted(ALWAYS),
    own("pcacheOffline", "olcPcacheOffline", Form::Switch),
    own("pcacheShared", "olcLarixPcacheShared", Form::Switch),
    own("pcacheBind", "olcPcacheBind", Form::Words).many().arguments(5, 5),
];

/// A number of 1 or more.
fn number(directive: &str, what: &str, text: &str) -> Result<usize, String> {
    let number = text.parse::<u32>().ok().filter(|number| *number > 0);
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| format!("{directive}: {what} `{text}` is no number of 1 or more"))
}

/// `90`, `90s`, `1h30m`.
fn time(directive: &str, what: &str, text: &str) -> Result<Duration, String> {
    super::kinds::ldap_time(text, 0)
        .map(|time| time.min(TIME_MAX))
        .map_err(|_| format!("{directive}: {what} `{text}` is not a time; such as 30, 90s, 5m or 1h30m"))
}

/// The number of a set of attributes.
fn index(directive: &str, text: &str, sets: usize) -> Result<usize, String> {
    text.parse::<usize>().ok().filter(|number| *number < sets).ok_or_else(|| {
        format!("{directive}: attribute set `{text}`: `pcache` says that there are {sets}, from 0 on")
    })
}

impl Overlay {
    /// The settings of `overlay pcache`; none of another one.
    ///
    /// # Errors
    /// Names the directive and the value.
    pub fn pcache(&self, schema: &Schema) -> Result<Option<Behavior>, ConfigError> {
        if self.name != NAME || self.disabled {
            return Ok(None);
        }
        self.read_pcache(schema).map(Some).map_err(|text| self.fault(text))
    }

    fn read_pcache(&self, schema: &Schema) -> Result<Behavior, String> {
        let given = self.given();
        let words = |attribute| given.values(attribute).map(|value| value.words.clone()).collect::<Vec<_>>();
        let main = words("olcPcache").into_iter().next().unwrap_or_default();
        let [_, entries, sets, per_answer, period] = main.as_slice() else {
            return Err("overlay pcache needs a line such as `pcache mdb 10000 1 50 100`".to_owned());
        };
        let entries_max = number("pcache", "the number of entries", entries)?;
        let sets_max = number("pcache", "the number of attribute sets", sets)?;
        let per_answer = number("pcache", "the number of entries of one answer", per_answer)?;
        if per_answer > entries_max {
            return Err(format!(
                "pcache: one answer of {per_answer} entries does not fit into {entries_max}: make the first of these smaller"
            ));
        }
        if sets_max > SETS_MAX {
            return Err(format!("pcache: {sets_max} attribute sets are too many: up to {SETS_MAX}"));
        }
        let check_period = time("pcache", "the period of checks", period)?.max(Duration::from_secs(1));
        let sets = read_sets(schema, &words("olcPcacheAttrset"), sets_max)?;
        let templates = words("olcPcacheTemplate")
            .iter()
            .map(|words| read_template(schema, words, &sets))
            .collect::<Result<Vec<_>, _>>()?;
        if templates.is_empty() {
            return Err("overlay pcache: nothing is cached without a pcacheTemplate".to_owned());
        }
        let binds = words("olcPcacheBind")
            .iter()
            .map(|words| read_bind(schema, words, &templates))
            .collect::<Result<Vec<_>, _>>()?;
        let queries = given.text("olcPcacheMaxQueries");
        let bytes = given.text("olcLarixPcacheMaxBytes").map_or(Ok(BYTES), |text| {
            quantity::bytes(text).map_err(|why| format!("pcacheMaxBytes: {why}"))
        })?;
        Ok(Behavior {
            sets,
            templates,
            binds,
            entries_max,
            answer_entries_max: u32::try_from(per_answer).unwrap_or(u32::MAX),
            bytes_max: usize::try_from(bytes).unwrap_or(usize::MAX),
            queries_max: queries.map_or(Ok(QUERIES), |text| number("pcacheMaxQueries", "", text))?,
            check_period,
            offline: given.is_on("olcPcacheOffline"),
            shared: given.is_on("olcLarixPcacheShared"),
            saved: self.saved_cache(given.is_on("olcPcachePersist")),
        })
    }
}

impl Overlay {
    /// The file that the cache is kept in: in the directory of the database that slapd has it in.
    fn saved_cache(&self, persists: bool) -> Option<PathBuf> {
        let directory = self.settings.iter().find(|setting| setting.attribute == "olcDbDirectory")?;
        let directory = String::from_utf8(directory.values.first()?.clone()).ok()?;
        persists.then(|| Path::new(&directory).join(FILE))
    }
}

fn read_sets(schema: &Schema, lines: &[Vec<String>], most: usize) -> Result<Vec<AttributeSet>, String> {
    let mut sets: Vec<Option<AttributeSet>> = vec![None; most];
    for words in lines {
        let [number, names @ ..] = words.as_slice() else { continue };
        let place = index("pcacheAttrset", number, most)?;
        let set = AttributeSet::parse(schema, names.iter().map(String::as_str))
            .map_err(|why| format!("pcacheAttrset {number}: {why}"))?;
        if let Some(slot) = sets.get_mut(place) {
            if slot.is_some() {
                return Err(format!("pcacheAttrset {number}: there is one with this number"));
            }
            *slot = Some(set);
        }
    }
    // One that is not there is of no template.
    Ok(sets.into_iter().map(Option::unwrap_or_default).collect())
}

fn read_template(schema: &Schema, words: &[String], sets: &[AttributeSet]) -> Result<Template, String> {
    const WHAT: &str = "pcacheTemplate";
    let [filter, set, ttl, more @ ..] = words else {
        return Err(format!("{WHAT}: write a template, the number of its attribute set, and a time to live"));
    };
    let shape = Shape::parse(schema, filter, false).map_err(|why| format!("{WHAT} {filter}: {why}"))?;
    let number = index(WHAT, set, sets.len())?;
    if sets.get(number).is_none_or(|set| *set == AttributeSet::default()) {
        return Err(format!("{WHAT} {filter}: there is no pcacheAttrset {number}"));
    }
    let times = more.iter().map(|text| time(WHAT, "", text)).collect::<Result<Vec<_>, _>>()?;
    let further = |number: usize| times.get(number).copied().unwrap_or_default();
    let ttl = time(WHAT, "the time to live", ttl)?;
    if ttl.is_zero() {
        return Err(format!("{WHAT} {filter}: a time to live of 0 keeps nothing: take the template out"));
    }
    Ok(Template {
        shape,
        set: number,
        ttl,
        negative_ttl: further(0),
        limit_ttl: further(1),
        refresh: Some(further(2)).filter(|time| !time.is_zero()),
    })
}

fn read_bind(schema: &Schema, words: &[String], templates: &[Template]) -> Result<BindTemplate, String> {
    let [filter, set, refresh, scope, base] = words else {
        return Err("pcacheBind: write a filter, an attribute set, a time, a scope and a base".to_owned());
    };
    let wrong = |why: String| format!("pcacheBind {filter}: {why}");
    let shape = Shape::parse(schema, filter, true).map_err(wrong)?;
    let is_it = |template: &&Template| template.shape == shape && template.set.to_string() == *set;
    let Some(template) = templates.iter().find(is_it) else {
        return Err(wrong(format!("there is no pcacheTemplate of this kind with the attribute set {set}")));
    };
    // What has no value here is to be there.
    let text = filter.replace("=)", "=*)");
    let filter = FilterBuf::parse(&text).map_err(|why| wrong(format!("`{text}` is no filter: {why}")))?;
    let refresh = time("pcacheBind", "the time to refresh", refresh)?;
    if refresh.is_zero() {
        return Err(wrong("a time to refresh of 0 keeps no password: take the line out".to_owned()));
    }
    let scope = match scope.to_ascii_lowercase().as_str() {
        "base" => SearchScope::Base,
        "one" | "onelevel" => SearchScope::OneLevel,
        "sub" | "subtree" => SearchScope::Subtree,
        "children" | "subordinate" => SearchScope::Children,
        _ => return Err(wrong(format!("`{scope}` is no scope: base, one, sub or children"))),
    };
    let base = schema.parse_dn(base).map_err(|why| wrong(format!("`{base}` is not a DN: {why}")))?;
    Ok(BindTemplate { filter, ttl: template.ttl, refresh, scope, base })
}

impl Database {
    /// The overlay that keeps answers, if it has one.
    pub fn caching_overlay(&self) -> Option<&Overlay> {
        self.overlays.iter().find(|overlay| overlay.name == NAME && !overlay.disabled)
    }
}

/// Checks where the overlay stands.
///
/// # Errors
/// It is in front of what is no database on another server, or of all databases; a setting that cannot be understood.
pub(super) fn complete(config: &mut Config) -> Result<(), ConfigError> {
    // The schema comes later; it is checked then.
    if config.read_entries.is_some() && config.schema_sections.is_empty() {
        return Ok(());
    }
    let is_it = |overlay: &&Overlay| overlay.name == NAME && !overlay.disabled;
    let strange = config.databases.iter().filter(|one| !one.kind.is_on_another_server());
    let mut misplaced = strange.flat_map(|database| &database.overlays).chain(&config.frontend.overlays);
    if let Some(overlay) = misplaced.find(is_it) {
        let text = "overlay pcache keeps answers of another server: put it behind a `database ldap` line";
        return Err(ConfigError::new(overlay.origin.clone(), text));
    }
    let mut notes = Vec::new();
    for database in &config.databases {
        let Some(place) = database.overlays.iter().position(|overlay| is_it(&overlay)) else { continue };
        let Some(overlay) = database.overlays.get(place) else { continue };
        let settings = overlay.pcache(&config.schema)?;
        let mut before = database.overlays.iter().take(place);
        let maps_names = |one: &&Overlay| {
            let Some(build) = larix_overlays::interceptor(&one.name).filter(|_| !one.disabled) else {
                return false;
            };
            let built = config.in_context(Some(database), |context| build(&one.given(), &context));
            built.is_ok_and(|built| built.maps_names())
        };
        if let Some(mapping) = before.find(maps_names) {
            let text = "overlay pcache keeps what the remote server answers, with its names";
            return Err(ConfigError::new(mapping.origin.clone(), text).with_help(
                "put `overlay rwm` behind `overlay pcache`, and write the remote names into the templates",
            ));
        }
        if settings.is_some_and(|settings| settings.shared) {
            let text = "answers are for all: who asks here sees what the remote server has shown to somebody else, \
                        as far as the access rules of this database let it";
            notes.push((overlay.origin.clone(), text));
        }
        // slapd writes it, its default, into every slapd.d.
        if database.kind.settings::<LdapSettings>().is_some_and(|ldap| ldap.proxy.chase_referrals) {
            let text =
                "`chase-referrals yes` has no effect behind overlay pcache: the client gets the referrals";
            notes.push((overlay.origin.clone(), text));
        }
        let has =
            |matches: fn(&str) -> bool| overlay.settings.iter().any(|setting| matches(setting.attribute));
        if has(|attribute| attribute.starts_with("olcDb") && attribute != "olcDbDirectory") {
            notes.push((
                overlay.origin.clone(),
                "the cache is in memory: settings of its database have no effect, but for `directory`",
            ));
        }
        if overlay.given().is_on("olcPcachePersist") && !has(|attribute| attribute == "olcDbDirectory") {
            notes.push((
                overlay.origin.clone(),
                "pcachePersist has no effect without a `directory` line behind it, which says where the cache is kept",
            ));
        }
    }
    notes.into_iter().for_each(|(origin, text)| config.notes.push(origin, text));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::in_all_forms;

    /// The settings of a slapd.conf, the same by way of cn=config and of the file that is made of that.
    fn read(lines: &str) -> Result<(Behavior, Config), String> {
        let [config, entries, exported] = in_all_forms(&["core", "cosine", "inetorgperson"], lines)?;
        let of = |config: &Config| {
            let database = config.databases.iter().find(|one| one.caching_overlay().is_some()).unwrap();
            database.caching_overlay().unwrap().pcache(&config.schema).unwrap().unwrap()
        };
        for again in [&entries, &exported] {
            assert_eq!(of(again), of(&config), "{lines}");
        }
        Ok((of(&config), config))
    }

    const DATABASE: &str = "database ldap\nsuffix o=x\nuri ldap://a\noverlay pcache\n";
    const ONE: &str = "pcache mdb 100 2 6 2\npcacheAttrset 0 cn sn\npcacheTemplate (sn=) 0 1h\n";

    /// They are settings of the overlay, and stand in its entry.
    #[test]
    fn the_entry_may_have_the_settings_of_the_cache_s_database() {
        let schema = larix_schema::SchemaBuilder::system().build();
        let class = schema.object_class("olcPcacheConfig").unwrap();
        let scope = Scope::Kind(crate::kinds::CACHE_KIND);
        let mut seen = 0;
        for directive in crate::directives::all().filter(|directive| directive.scope == scope) {
            // Some are lines of slapd.conf alone.
            let Some(id) = schema.attribute_type_id(directive.attribute) else { continue };
            assert!(class.may.contains(&id), "{}", directive.attribute);
            seen += 1;
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn what_is_read() {
        let lines = "dbnosync\npcache mdb 100 2 6 2\npcacheattrset 0 sn cn\nproxyattrset 1 mail undef:strange\n\
                     pcachetemplate (|(cn=)(sn=)) 0 1m 30 1h30m 5\nproxytemplate (&(objectclass=)(uid=)) 1 1d\n\
                     pcachebind (&(objectclass=person)(uid=)) 1 5 sub \"ou=a b,o=x\"\npcacheMaxQueries 7\npcacheMaxBytes 2m\n\
                     pcacheOffline TRUE\npcachePersist TRUE\npcachePosition head\npcacheValidate on\ndirectory /var/tmp/c\nindex cn eq\n";
        let (settings, config) = read(&format!("{DATABASE}{lines}")).unwrap();
        assert_eq!((settings.entries_max, settings.answer_entries_max, settings.queries_max), (100, 6, 7));
        assert_eq!((settings.bytes_max, settings.check_period), (2 << 20, Duration::from_secs(2)));
        assert!(settings.offline && !settings.shared);
        let [first, second] = settings.templates.as_slice() else { panic!() };
        let seconds = |time: Duration| time.as_secs();
        assert_eq!(
            (seconds(first.ttl), seconds(first.negative_ttl), seconds(first.limit_ttl)),
            (60, 30, 5_400)
        );
        assert_eq!(
            (first.refresh.map(seconds), second.refresh, seconds(second.ttl)),
            (Some(5), None, 86_400)
        );
        assert!(second.negative_ttl.is_zero() && second.limit_ttl.is_zero());
        let [bind] = settings.binds.as_slice() else { panic!() };
        assert_eq!((bind.base.as_str(), seconds(bind.refresh), seconds(bind.ttl)), ("ou=a b,o=x", 5, 86_400));
        let notes: Vec<String> = config.notes.iter().map(ToString::to_string).collect();
        assert_eq!(settings.saved.as_deref(), Some(Path::new("/var/tmp/c/pcache.saved")));
        for expected in ["never kept", "right in front", "settings of its database"] {
            assert!(notes.iter().any(|note| note.contains(expected)), "{expected}: {notes:?}");
        }
        let (settings, config) = read(&format!("{DATABASE}{ONE}pcachePersist TRUE")).unwrap();
        let note =
            config.notes.iter().map(ToString::to_string).find(|note| note.contains("`directory` line"));
        assert!(settings.saved.is_none() && note.is_some());
        let (settings, config) = read(&format!("{DATABASE}{ONE}pcacheShared TRUE")).unwrap();
        assert!(
            settings.shared
                && config.notes.iter().any(|note| note.to_string().contains("answers are for all"))
        );
    }

    /// slapd's default, which it writes into every slapd.d.
    #[test]
    fn referrals_that_are_to_be_followed_are_noted() {
        let lines = DATABASE.replace("overlay pcache", "chase-referrals yes\noverlay pcache");
        let (_, config) = read(&format!("{lines}{ONE}")).unwrap();
        let note = "`chase-referrals yes` has no effect behind overlay pcache";
        assert!(config.notes.iter().any(|found| found.text.starts_with(note)), "{:?}", config.notes);
        let (_, config) = read(&format!("{DATABASE}{ONE}")).unwrap();
        assert!(!config.notes.iter().any(|found| found.text.starts_with(note)), "{:?}", config.notes);
    }

    #[test]
    fn what_cannot_be() {
        let with = |lines: &str| format!("{DATABASE}{lines}");
        for (lines, expected) in [
            (DATABASE.to_owned(), "pcache mdb 10000 1 50 100"),
            (with("pcache mdb 100 1 6 2\npcacheAttrset 0 cn"), "without a pcacheTemplate"),
            (with("pcache mdb 0 1 6 2\npcacheAttrset 0 cn"), "`0`"),
            (with("pcache mdb 5 1 6 2\npcacheAttrset 0 cn"), "does not fit into 5"),
            (with("pcache mdb 5 1000 5 2\npcacheAttrset 0 cn"), "too many"),
            (with("pcache mdb 100 1 6 x\npcacheAttrset 0 cn"), "`x` is not a time"),
            (with("pcache mdb 100 1 6\n"), "pcache"),
            (with(&format!("{ONE}pcacheAttrset 2 cn")), "there are 2"),
            (with(&format!("{ONE}pcacheAttrset 0 mail")), "one with this number"),
            (with(&format!("{ONE}pcacheAttrset 1 nobodyKnowsIt")), "undef:nobodyKnowsIt"),
            (with(&format!("{ONE}pcacheTemplate (cn=) 1 60")), "no pcacheAttrset 1"),
            (with(&format!("{ONE}pcacheTemplate (cn=a) 0 60")), "has a value"),
            (with(&format!("{ONE}pcacheTemplate (cn=) 0 0")), "keeps nothing"),
            (with(&format!("{ONE}pcacheTemplate (cn=) 0 soon")), "`soon`"),
            (with(&format!("{ONE}pcacheBind (cn=) 0 60 sub o=x")), "no pcacheTemplate"),
            (with(&format!("{ONE}pcacheBind (sn=) 0 60 near o=x")), "`near`"),
            (with(&format!("{ONE}pcacheBind (sn=) 0 60 sub x")), "not a DN"),
            (with(&format!("{ONE}pcacheMaxQueries none")), "none"),
            (with(&format!("{ONE}pcacheMaxBytes much")), "much"),
            (with(&format!("{ONE}overlay pcache")), "pcache"),
            (
                format!(
                    "database ldap\nsuffix o=x\nuri ldap://a\noverlay rwm\nrwm-suffixmassage o=y\noverlay pcache\n{ONE}"
                ),
                "put `overlay rwm` behind `overlay pcache`",
            ),
            (
                format!("database mdb\nsuffix o=x\ndirectory /x\noverlay pcache\n{ONE}"),
                "behind a `database ldap`",
            ),
            (format!("overlay pcache\n{ONE}"), "behind a `database ldap`"),
        ] {
            let error = read(&lines).map(|_| String::new()).unwrap_or_else(|error| error);
            assert!(error.contains(expected), "{lines}: {error}");
        }
    }
}

//! `overlay translucent` (slapo-translucent(5)): a stored database whose values lie over the entries of another server. The lines behind
//! the overlay's that slapd-ldap(5) has are about that server. Under cn=config it is an entry below the overlay's.

use larix_proxy::ProxySettings;
use larix_proxy::translucent::Settings as Behavior;
use larix_schema::{AttributeDescription, Schema};

use super::builder::Builder;
use super::builder::call::{Call, Fault};
use super::builder::directive::{Apply, Directive, Form, Scope};
use super::diagnostic::{ConfigError, Origin};
use super::kinds::LdapSettings;
use super::model::{Config, Database, Overlay};

/// The overlay's name.
pub(super) const NAME: &str = "translucent";
/// The class of the entry below it.
pub(super) const SERVER_CLASS: &str = "olcTranslucentDatabase";

const fn own(keyword: &'static str, attribute: &'static str, form: Form, apply: Apply) -> Directive {
    Directive::new(keyword, attribute, Scope::Overlay(NAME), form, apply)
}

const fn switch(keyword: &'static str, attribute: &'static str) -> Directive {
    own(keyword, attribute, Form::Switch, |_, c| c.switch().map(|_| ())).arguments(0, 1)
}

pub(super) static TABLE: &[Directive] = &[
    switch("translucent_strict", "olcTranslucentStrict"),
    switch("translucent_no_glue", "olcTranslucentNoGlue"),
    own("translucent_local", "olcTranslucentLocal", Form::Own, attributes).arguments(1, 1).many(),
    own("translucent_remote", "olcTranslucentRemote", Form::Own, attributes).arguments(1, 1).many(),
    switch("translucent_bind_local", "olcTranslucentBindLocal"),
    switch("translucent_pwmod_local", "olcTranslucentPwModLocal"),
];

/// `attr[,attr...]`; under cn=config one value for each.
fn attributes(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let text = call.argument(0)?;
    if builder.from_entries && text.contains(',') {
        let fault = Fault::argument(0, "several attributes in one value");
        return Err(fault.with_help("write a value for each: they can be deleted one by one then"));
    }
    let is_known = !builder.schema_comes();
    let schema = builder.schema();
    for name in text.split(',') {
        if is_known && let Err(error) = schema.describe(name) {
            let fault = Fault::argument(0, format!("`{name}`: {error}"));
            return Err(fault.with_help("names of attributes, such as carLicense,employeeType"));
        }
        let settings = builder.settings(call.directive);
        if !settings
            .get(call.directive.attribute)
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name.as_bytes()))
        {
            settings.add(call.directive.attribute, name.as_bytes().to_vec());
        }
    }
    Ok(())
}

/// What the overlay does.
#[derive(Debug, Clone)]
pub struct TranslucentSettings {
    /// The server to ask; none until there is a `uri`.
    pub server: Option<ProxySettings>,
    pub behavior: Behavior,
}

impl Overlay {
    /// The settings of `overlay translucent`; none of another one.
    ///
    /// # Errors
    /// An attribute that the schema does not know.
    pub fn translucent(&self, schema: &Schema) -> Result<Option<TranslucentSettings>, ConfigError> {
        if self.name != NAME || self.disabled {
            return Ok(None);
        }
        let is_on = |attribute: &str| {
            let value = self.settings.get(attribute).first();
            value.is_some_and(|value| value.eq_ignore_ascii_case(b"TRUE"))
        };
        let listed = |attribute: &str| -> Result<Vec<AttributeDescription>, ConfigError> {
            let names = self.settings.get(attribute).iter().map(|name| String::from_utf8_lossy(name));
            let described = names.map(|name| {
                schema.describe(&name).map_err(|error| {
                    ConfigError::new(self.origin.clone(), format!("{attribute}: `{name}`: {error}"))
                })
            });
            described.collect()
        };
        Ok(Some(TranslucentSettings {
            server: self.server().map(|settings| settings.proxy.clone()),
            behavior: Behavior {
                strict: is_on("olcTranslucentStrict"),
                no_glue: is_on("olcTranslucentNoGlue"),
                local: listed("olcTranslucentLocal")?,
                remote: listed("olcTranslucentRemote")?,
                bind_local: is_on("olcTranslucentBindLocal"),
                modify_password_local: is_on("olcTranslucentPwModLocal"),
            },
        }))
    }

    /// The server to ask, if it has a URI.
    fn server(&self) -> Option<&LdapSettings> {
        let below = self.below.first()?.kind.settings::<LdapSettings>()?;
        Some(below).filter(|settings| !settings.proxy.targets.is_empty())
    }
}

impl Database {
    /// Whether its entries are parts of those of another server.
    pub fn is_translucent(&self) -> bool {
        self.overlays.iter().any(|overlay| overlay.name == NAME && !overlay.disabled)
    }
}

/// An entry below the overlay's opens the section of the server.
pub(super) fn open_entry(builder: &mut Builder, origin: &Origin) -> Result<(), Fault> {
    let number = builder.open_database_number()?;
    let missing = || Fault::keyword("there is no overlay translucent above it");
    let overlay = builder.asking_overlay(number).ok_or_else(missing)?;
    let is_second = |overlay: &Overlay| overlay.below.first().is_some_and(|below| !below.settings.is_empty());
    let overlays = builder.overlays_mut(Some(number));
    if overlays.and_then(|overlays| overlays.get(overlay)).is_some_and(is_second) {
        let fault = Fault::keyword("the overlay translucent has its server already");
        return Err(
            fault.with_help("name several servers in one olcDbURI: the next is asked where one is gone")
        );
    }
    builder.section = builder.below_asking(number, overlay, origin)?;
    Ok(())
}

/// Checks where the overlay stands and what it is with, and what it makes of the database.
///
/// # Errors
/// It stands in front of all databases, on one that is no mdb, or with what needs whole entries.
pub(super) fn complete(config: &mut Config) -> Result<(), ConfigError> {
    let is_it = |overlay: &&Overlay| overlay.name == NAME && !overlay.disabled;
    let strange = config.databases.iter().filter(|database| !database.kind.is_in_lmdb());
    let mut misplaced = strange.flat_map(|database| &database.overlays).chain(&config.frontend.overlays);
    if let Some(overlay) = misplaced.find(is_it) {
        let text =
            "overlay translucent lays stored values over remote entries: put it behind a `database mdb` line";
        return Err(ConfigError::new(overlay.origin.clone(), text));
    }
    let mut notes = Vec::new();
    for database in &config.databases {
        let Some(overlay) = database.overlays.iter().find(is_it) else { continue };
        overlay.translucent(&config.schema)?;
        let refused = |what: &str, help: &str| {
            let text = format!("overlay translucent: what is stored are parts of entries, {what}");
            Err(ConfigError::new(overlay.origin.clone(), text).with_help(help.to_owned()))
        };
        if !database.sync_replication.is_empty() {
            return refused("which no provider sends", "take `syncrepl` out");
        }
        if database.provides_content() {
            return refused("without entryCSN: no consumer can have them", "take `overlay syncprov` out");
        }
        if overlay.server().is_none() {
            let text = "no server to ask: every request is answered with unavailable until the lines behind \
                        `overlay translucent` have a `uri`";
            notes.push((overlay.origin.clone(), text));
        }
    }
    notes.into_iter().for_each(|(origin, text)| config.notes.push(origin, text));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::in_all_forms;

    /// The overlay of a slapd.conf, the same by way of cn=config and of the file that is made of that.
    fn read(lines: &str) -> Result<(TranslucentSettings, Config), String> {
        let [config, entries, exported] = in_all_forms(&["core"], lines)?;
        let of = |config: &Config| {
            let database = config.databases.iter().find(|database| database.kind.name() == "mdb").unwrap();
            assert!(database.is_translucent());
            database.overlays[0].translucent(&config.schema).unwrap().unwrap()
        };
        for again in [&entries, &exported] {
            assert_eq!(format!("{:?}", of(again)), format!("{:?}", of(&config)), "{lines}");
        }
        Ok((of(&config), config))
    }

    const DATABASE: &str =
        "database mdb\nsuffix o=x\nrootdn o=x\ndirectory /var/lib/x\noverlay translucent\n";

    #[test]
    fn what_is_read() {
        let (settings, config) = read(&format!(
            "{DATABASE}translucent_no_glue\ntranslucent_strict on\ntranslucent_local cn,sn\ntranslucent_local mail\n\
             translucent_remote sn\nuri \"ldap://a ldap://b\"\nlastmod off\n\
             acl-bind binddn=\"uid=binder,o=x\" credentials=\"bind test\"\nindex cn eq\nnetwork-timeout 3\n"
        ))
        .unwrap();
        let server = settings.server.unwrap();
        assert_eq!(server.targets.len(), 2);
        assert!(server.acl_bind.is_some() && server.network_timeout.is_some() && server.assertion.is_none());
        let behavior = settings.behavior;
        assert!(
            behavior.no_glue && behavior.strict && !behavior.bind_local && !behavior.modify_password_local
        );
        assert_eq!((behavior.local.len(), behavior.remote.len()), (3, 1));
        let entries = config.entries();
        let below = entries.iter().find(|entry| entry.dn.contains("ldap,olcOverlay=")).unwrap();
        assert!(
            below.dn.starts_with("olcDatabase={0}ldap,olcOverlay={0}translucent,olcDatabase={"),
            "{}",
            below.dn
        );
        assert!(below.values("objectClass").iter().any(|class| class == b"olcTranslucentDatabase"));
        let database = config.databases.iter().find(|database| database.is_translucent()).unwrap();
        let engine = config.engine_settings(database).unwrap();
        assert!(engine.holds_parts && !engine.last_modified);
    }

    #[test]
    fn a_server_may_come_later() {
        let (settings, config) = read(DATABASE).unwrap();
        assert!(settings.server.is_none());
        assert!(config.notes.iter().any(|note| note.to_string().contains("no server to ask")));
    }

    /// slapd writes its defaults into every slapd.d.
    #[test]
    fn the_defaults_of_slapd_are_taken() {
        let lines = format!("{DATABASE}uri ldap://a\nchase-referrals yes\nonerr continue\nt-f-support no");
        let (settings, config) = read(&lines).unwrap();
        assert!(!settings.server.unwrap().chase_referrals);
        for expected in ["`chase-referrals yes` has no", "`onerr continue` has no"] {
            assert!(config.notes.iter().any(|note| note.text.starts_with(expected)), "{expected}");
        }
    }

    #[test]
    fn what_cannot_be() {
        let with_line = |lines: &str| format!("{DATABASE}uri ldap://a\n{lines}");
        for (lines, expected) in [
            (with_line("translucent_local nobody-knows-it"), "nobody-knows-it"),
            (with_line("translucent_strict perhaps"), "neither on nor off"),
            (with_line("uri http://a"), "http://a"),
            (with_line("suffixmassage o=y"), "not supported"),
            (with_line("overlay translucent"), "translucent"),
            (with_line("overlay syncprov"), "no consumer can have them"),
            ("overlay translucent\nuri ldap://a".to_owned(), "uri"),
            ("overlay translucent".to_owned(), "behind a `database mdb` line"),
            (
                "database ldap\nsuffix o=x\nuri ldap://a\noverlay translucent".to_owned(),
                "behind a `database mdb` line",
            ),
            ("database mdb\nsuffix o=x\ndirectory /x\nuri ldap://a".to_owned(), "uri"),
        ] {
            let error = read(&lines).map(|_| String::new()).unwrap_or_else(|error| error);
            assert!(error.contains(expected), "{lines}: {error}");
        }
    }
}

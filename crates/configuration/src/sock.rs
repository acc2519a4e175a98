//! `overlay sock` (slapd-sock(5)): a program is asked before a database answers, and told what it answers.

use larix_engine::access::posix_regex;
use larix_proxy::sock::{Extension, OverlaySettings, SocketNotice, SocketOperation};
use regex::Regex;

use super::builder::call::{Call, Fault};
use super::builder::directive::{Apply, Directive, Form, Scope};
use super::diagnostic::ConfigError;
use super::kinds::{sock_extension, sock_path};
use super::model::{Config, Overlay};

/// The overlay's name.
pub(super) const NAME: &str = "sock";

const fn own(keyword: &'static str, attribute: &'static str, form: Form, apply: Apply) -> Directive {
    Directive::new(keyword, attribute, Scope::Overlay(NAME), form, apply)
}

pub(super) static TABLE: &[Directive] = &[
    own("socketpath", "olcDbSocketPath", Form::Whole, |_, c| sock_path(&c.path(0)?).map(|_| ())),
    own("extensions", "olcDbSocketExtensions", Form::Each, |_, c| each(c, sock_extension)).many(),
    own("sockops", "olcOvSocketOps", Form::Each, |_, c| each(c, operation)).many(),
    own("sockresps", "olcOvSocketResps", Form::Each, |_, c| each(c, answer)).many(),
    own("sockdnpat", "olcOvSocketDNpat", Form::Whole, |_, c| pattern(c.argument(0)?).map(|_| ())),
];

/// Checks each word of a line.
fn each<T>(call: &Call<'_>, read: fn(&str) -> Result<T, Fault>) -> Result<(), Fault> {
    let mut words = call.arguments.iter().enumerate();
    words.try_for_each(|(number, word)| read(word).map_err(|fault| fault.at(number)).map(|_| ()))
}

fn operation(word: &str) -> Result<SocketOperation, Fault> {
    let known = SocketOperation::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(word));
    known.ok_or_else(|| {
        let fault = Fault::argument(0, format!("no operation `{word}`"));
        fault.with_help("some of bind, unbind, search, compare, modify, modrdn, add, delete, extended")
    })
}

fn answer(word: &str) -> Result<SocketNotice, Fault> {
    let known = SocketNotice::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(word));
    known
        .ok_or_else(|| Fault::argument(0, format!("no answer `{word}`")).with_help("result, search, or both"))
}

fn pattern(text: &str) -> Result<Regex, Fault> {
    posix_regex(text, true).map_err(|why| Fault::argument(0, format!("`{text}`: {why}")))
}

impl Overlay {
    /// The settings of `overlay sock`; none of another one.
    ///
    /// # Errors
    /// A setting that cannot be; no path.
    pub fn program(&self) -> Result<Option<OverlaySettings>, ConfigError> {
        if self.name != NAME || self.disabled {
            return Ok(None);
        }
        let settings = self.read_program();
        let settings = settings.map_err(|fault| ConfigError::new(self.origin.clone(), fault.message))?;
        if settings.socket.path.as_os_str().is_empty() {
            let error = ConfigError::new(self.origin.clone(), "overlay sock has no `socketpath`");
            return Err(error.with_help("name the local socket of the program: socketpath /run/answers"));
        }
        Ok(Some(settings))
    }

    fn read_program(&self) -> Result<OverlaySettings, Fault> {
        let given = self.given();
        let mut settings = OverlaySettings::default();
        if let Some(path) = given.text("olcDbSocketPath") {
            settings.socket.path = sock_path(path.as_ref())?;
        }
        for word in given.words("olcDbSocketExtensions") {
            let extension: Extension = sock_extension(word)?;
            settings.socket.extensions.push(extension);
        }
        settings.asked = given.words("olcOvSocketOps").map(operation).collect::<Result<_, _>>()?;
        settings.told = given.words("olcOvSocketResps").map(answer).collect::<Result<_, _>>()?;
        settings.pattern = given.text("olcOvSocketDNpat").map(pattern).transpose()?;
        Ok(settings)
    }
}

/// What the lines of the overlay say together, and where it may stand.
///
/// # Errors
/// As [`Overlay::program`]; one in front of all databases.
pub(super) fn complete(config: &mut Config) -> Result<(), ConfigError> {
    let is_it = |overlay: &&Overlay| overlay.name == NAME && !overlay.disabled;
    if let Some(overlay) = config.frontend.overlays.iter().find(is_it) {
        let text = "overlay sock stands in front of one database: put it behind a `database` line";
        return Err(ConfigError::new(overlay.origin.clone(), text));
    }
    let mut notes = Vec::new();
    for overlay in config.databases.iter().flat_map(|database| &database.overlays) {
        let Some(settings) = overlay.program()? else { continue };
        if settings.asked.contains(&SocketOperation::Unbind) {
            notes.push((overlay.origin.clone(), "sockops: the program does not hear of unbinds"));
        }
        if settings.asked.is_empty() && settings.told.is_empty() {
            let text = "overlay sock does nothing: give it `sockops`, `sockresps`, or both";
            notes.push((overlay.origin.clone(), text));
        }
    }
    for (origin, text) in notes {
        config.notes.push(origin, text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration of a database with the overlay, or the error.
    fn read(lines: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slapd.conf");
        std::fs::write(&path, format!("schema core\ndatabase null\nsuffix o=x\noverlay sock\n{lines}\n"))
            .unwrap();
        let config = Config::from_slapd_conf(&path).map_err(|error| error.to_string())?;
        match config.refusals().first() {
            Some(refusal) => Err(refusal.to_string()),
            None => Ok(config),
        }
    }

    #[test]
    fn the_program_is_as_the_lines_say() {
        let lines = "socketpath /run/a\nextensions connid ssf\nsockops bind add\nsockops Extended\n\
            sockresps result search\nsockdnpat \"^uid=[^,]+,o=x$\"";
        let config = read(lines).unwrap();
        let again = Config::from_entries(config.entries(), super::super::Source::QuickStart).unwrap();
        for config in [config, again] {
            let settings = config.databases[1].overlays[0].program().unwrap().unwrap();
            assert_eq!(settings.socket.path, std::path::Path::new("/run/a"));
            assert_eq!(settings.socket.extensions, [Extension::Connection, Extension::Strength]);
            assert_eq!(
                settings.asked,
                [SocketOperation::Bind, SocketOperation::Add, SocketOperation::Extended]
            );
            assert_eq!(settings.told, [SocketNotice::Result, SocketNotice::Search]);
            let pattern = settings.pattern.unwrap();
            assert!(pattern.is_match("UID=a,o=x") && !pattern.is_match("uid=a,ou=b,o=x"));
        }
        for (lines, note) in [
            ("socketpath /run/a", Some("does nothing")),
            ("socketpath /run/a\nsockops unbind", Some("does not hear of unbinds")),
            ("socketpath /run/a\nsockops bind", None),
        ] {
            let notes: Vec<String> = read(lines).unwrap().notes.iter().map(ToString::to_string).collect();
            let found = notes.iter().any(|text| note.is_some_and(|note| text.contains(note)));
            assert_eq!(found, note.is_some(), "{lines}: {notes:?}");
            assert_eq!(notes.iter().any(|text| text.contains("sock")), note.is_some(), "{lines}: {notes:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let long = format!("socketpath /{}", "x".repeat(108));
        for (lines, expected) in [
            ("sockops bind", "has no `socketpath`"),
            (&*long, "a path of 109 bytes names no socket"),
            ("socketpath /run/a\nsockops bind rename", "no operation `rename`"),
            ("socketpath /run/a\nsockresps entry", "no answer `entry`"),
            ("socketpath /run/a\nsockdnpat (", "not a regular expression"),
            ("socketpath /run/a\nextensions who", "no extension `who`"),
        ] {
            let error = read(lines).map(|_| ()).unwrap_err();
            assert!(error.contains(expected), "{lines}: {error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slapd.conf");
        std::fs::write(&path, "schema core\noverlay sock\nsocketpath /run/a\ndatabase null\nsuffix o=x\n")
            .unwrap();
        let error = Config::from_slapd_conf(&path).unwrap_err().to_string();
        assert!(error.contains("put it behind a `database` line"), "{error}");
    }
}

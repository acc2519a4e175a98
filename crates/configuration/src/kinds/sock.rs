//! `database sock`: a program behind a local socket answers requests (slapd-sock(5)).

use std::path::{Path, PathBuf};

use larix_proxy::sock::{Extension, PATH_BYTES_MAX, SocketSettings};

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::builder::directive::{Directive, Form, Scope};
use super::super::diagnostic::ConfigError;
use super::super::model::Database;
use super::{Descriptor, KindSettings, NOTHING, Storage};

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "sock",
    storage: Storage::Elsewhere,
    class: Some("olcDbSocketConfig"),
    settings: || Box::new(SockSettings::default()),
    directives: TABLE,
    ..NOTHING
};

static TABLE: &[Directive] = &[
    Directive::new("socketpath", "olcDbSocketPath", Scope::Kind("sock"), Form::Whole, |b, c| {
        b.settings_of::<SockSettings>()?.socket.path = path(&c.path(0)?)?;
        Ok(())
    }),
    Directive::new("extensions", "olcDbSocketExtensions", Scope::Kind("sock"), Form::Each, extensions).many(),
];

/// The path of a local socket.
pub(crate) fn path(path: &Path) -> Result<PathBuf, Fault> {
    let bytes = path.as_os_str().len();
    if bytes == 0 || bytes > PATH_BYTES_MAX {
        let message = format!("a path of {bytes} bytes names no socket");
        let help = format!("name a local socket by a path of up to {PATH_BYTES_MAX} bytes");
        return Err(Fault::argument(0, message).with_help(help));
    }
    Ok(path.to_owned())
}

pub(crate) fn extension(word: &str) -> Result<Extension, Fault> {
    let known = Extension::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(word));
    known.ok_or_else(|| {
        let fault = Fault::argument(0, format!("no extension `{word}`"));
        fault.with_help("some of binddn, peername, ssf, connid")
    })
}

fn extensions(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let extensions = &mut builder.settings_of::<SockSettings>()?.socket.extensions;
    for (number, word) in call.arguments.iter().enumerate() {
        let extension = extension(word).map_err(|fault| fault.at(number))?;
        if !extensions.contains(&extension) {
            extensions.push(extension);
        }
    }
    Ok(())
}

/// Settings of `database sock`.
#[derive(Debug, Clone, Default)]
pub struct SockSettings {
    pub socket: SocketSettings,
}

impl KindSettings for SockSettings {
    fn check(&self, database: &Database) -> Result<(), ConfigError> {
        if self.socket.path.as_os_str().is_empty() {
            let message = "`database sock` has no `socketpath`";
            return Err(ConfigError::new(database.origin.clone(), message)
                .with_help("name the local socket of the program that answers: socketpath /run/answers"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use larix_proxy::sock::Extension;

    use super::super::super::model::Config;
    use super::SockSettings;

    #[test]
    fn what_it_is_configured_with() {
        let long = format!("socketpath /{}\n", "x".repeat(108));
        for (lines, expected) in [
            ("socketpath /run/a\nextensions binddn ssf\nextensions connid\n", None),
            ("", Some("has no `socketpath`")),
            (&*long, Some("a path of 109 bytes names no socket")),
            ("socketpath /run/a\nextensions who\n", Some("no extension `who`")),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("slapd.conf");
            std::fs::write(&file, format!("database sock\nsuffix cn=sock\n{lines}")).unwrap();
            match (Config::from_slapd_conf(&file), expected) {
                (Ok(config), None) => {
                    let settings: &SockSettings = config.databases[1].kind.settings().unwrap();
                    let given = [Extension::BindDn, Extension::Strength, Extension::Connection];
                    assert_eq!(settings.socket.extensions, given);
                    assert_eq!(settings.socket.path, std::path::Path::new("/run/a"));
                }
                (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{lines}: {error}"),
                (found, _) => panic!("{lines}: {found:?}"),
            }
        }
    }
}

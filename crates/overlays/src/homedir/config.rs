//! The directives of `overlay homedir`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use larix_engine::access::posix_regex;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{BuildContext, Overlay};

use super::{DeleteStyle, HomeDirectories, Names, PathPattern, is_plain};

const MIN_UID: u32 = 100;
const SKELETON: &str = "/etc/skel";

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let path = |keyword: &str, attribute: &str| -> Result<Option<PathBuf>, SettingError> {
        let Some(text) = settings.text(attribute) else { return Ok(None) };
        let fault = || SettingError::new(format!("{keyword} \"{text}\": not an absolute path without `..`"));
        is_plain(Path::new(text)).then(|| Some(PathBuf::from(text))).ok_or_else(fault)
    };
    let style = match settings.text("olcHomedirDeleteStyle") {
        None => DeleteStyle::Ignore,
        Some(text) if text.eq_ignore_ascii_case("IGNORE") => DeleteStyle::Ignore,
        Some(text) if text.eq_ignore_ascii_case("DELETE") => DeleteStyle::Delete,
        Some(text) if text.eq_ignore_ascii_case("ARCHIVE") => DeleteStyle::Archive,
        Some(text) => {
            let error = SettingError::new(format!("homedir-delete-style \"{text}\": there is no such style"));
            return Err(error.with_help("write IGNORE, DELETE or ARCHIVE"));
        }
    };
    let places = settings.values("olcHomedirRegexp").map(|value| place(&value.words));
    let described = |name| {
        described(context.schema, "overlay homedir", name)
            .map_err(|error| error.with_help("write `schema nis` or `schema rfc2307bis` before it"))
    };
    let min_uid = settings.number::<u32>("homedir-min-uidnumber", "olcMinimumUidNumber")?;
    Ok(Arc::new(HomeDirectories {
        names: Names {
            home: described("homeDirectory")?,
            uid: described("uidNumber")?,
            gid: described("gidNumber")?,
            uuid: described("entryUUID")?,
        },
        skeleton: path("homedir-skeleton-path", "olcSkeletonPath")?.unwrap_or_else(|| SKELETON.into()),
        min_uid: min_uid.unwrap_or(MIN_UID),
        places: places.collect::<Result<_, _>>()?,
        style,
        archive: path("homedir-archive-path", "olcHomedirArchivePath")?,
        accounts: Mutex::new(None),
    }))
}

fn place(words: &[String]) -> Result<PathPattern, SettingError> {
    let [pattern, path] = words else {
        let text = words.join(" ");
        let error =
            SettingError::new(format!("homedir-regexp \"{text}\": not a regular expression and a path"));
        return Err(error.with_help("as in `homedir-regexp ^(/home/[-_/a-z0-9]+)$ $1`"));
    };
    let fault = |why: String| SettingError::new(format!("homedir-regexp \"{pattern}\" \"{path}\": {why}"));
    let compiled = posix_regex(pattern, false).map_err(fault)?;
    let (mut rest, groups) = (path.chars(), compiled.captures_len());
    while let Some(c) = rest.next() {
        match c {
            '$' => {
                let number = rest.next().and_then(|digit| digit.to_digit(10));
                let number = number.and_then(|number| usize::try_from(number).ok());
                if number.is_none_or(|number| number >= groups) {
                    let parentheses = groups - 1;
                    let help = format!(
                        "behind $ stands a number of parentheses, of which there are {parentheses}; 0 for all"
                    );
                    return Err(fault("it names parentheses that are not there".to_owned()).with_help(help));
                }
            }
            '\\' if rest.next().is_none() => return Err(fault("a backslash is its end".to_owned())),
            _ => {}
        }
    }
    if !path.starts_with(['/', '$']) {
        let error = fault("the path does not begin with / or with what was found".to_owned());
        return Err(error.with_help("name a folder from the root on, as in `/export$1`"));
    }
    Ok(PathPattern { pattern: compiled, path: path.clone() })
}

//! The configuration of `larix serve --suffix`: nothing to write first, and safe.

use larix_engine::index::IndexConfigError;
use larix_schema::DnError;

use super::builder::Builder;
use super::diagnostic::{ConfigError, Origin};
use super::model::{Config, QuickReplicas, QuickStart, Source};
use super::slapd_conf;
use super::values::ConfigDn;

/// Reads nothing but the files that are included; everything else goes through the same directives as a file.
pub(super) fn build(start: &QuickStart) -> Result<Config, ConfigError> {
    let mut builder = Builder::new(false);
    global_settings(&mut builder, start)?;
    check_form(&mut builder, &start.suffix)?;
    let root = start.root_dn.clone().unwrap_or_else(|| administrator(&start.suffix));
    // One administrator for all: cn=config knows the same name, whose password the database has.
    run(&mut builder, "database", &["config"])?;
    run(&mut builder, "rootdn", &[&root])?;
    own_database(&mut builder, start, &root)?;
    let mut builder = slapd_conf::read_more(builder, &start.includes).map_err(name_own_index)?;
    // After the files, which may define its attributes.
    check_suffix(&mut builder, &start.suffix)?;
    let replicas = start.replicas.as_ref();
    if replicas.is_some() {
        let account = format!("dn.exact={}", QuickReplicas::ACCOUNT);
        run(&mut builder, "index", &["entryCSN", "eq"])?;
        run(&mut builder, "access", &["to", "*", "by", &account, "read", "by", "*", "break"])?;
        run(&mut builder, "limits", &[&account, "size=unlimited", "time=unlimited"])?;
    }
    for rule in ACCESS {
        let words: Vec<&str> = rule.split(' ').collect();
        run(&mut builder, "access", &words)?;
    }
    overlays(&mut builder)?;
    if let Some(replicas) = replicas {
        replication(&mut builder, replicas)?;
    }
    run(&mut builder, "database", &["monitor"])?;
    run(&mut builder, "access", &["to", "*", "by", &format!("dn.exact={root}"), "read", "by", "*", "none"])?;
    super::validate::complete(builder.finish(Source::QuickStart))
}

/// Says of an index line of a file that there is one of the attribute here: the file has no second line that it could be joined with.
fn name_own_index(mut error: ConfigError) -> ConfigError {
    let mut others = std::mem::take(&mut error.others);
    for one in std::iter::once(&mut error).chain(&mut others) {
        let is_of = |name: &&str| {
            let duplicate = IndexConfigError::Duplicate((*name).to_owned()).to_string();
            one.message.eq_ignore_ascii_case(&duplicate)
        };
        if let Some(name) = INDEXES.iter().flat_map(|(names, _)| names.split(',')).find(is_of) {
            one.help = Some(format!(
                "`larix serve --suffix` indexes {name} already: take it out of the line, and change its kinds in cn=config later"
            ));
        }
    }
    error.others = others;
    error
}

fn run(builder: &mut Builder, keyword: &str, arguments: &[&str]) -> Result<(), ConfigError> {
    builder.run(keyword, arguments).map_err(|fault| {
        let text = format!("{keyword} {}: {}", arguments.join(" "), fault.message);
        let mut error = ConfigError::new(Origin::BuiltIn, text);
        error.help = fault.help;
        error
    })
}

fn global_settings(builder: &mut Builder, start: &QuickStart) -> Result<(), ConfigError> {
    for name in SCHEMA {
        builder.bundled(name)?;
    }
    run(builder, "sizelimit", &["size.soft=1000", "size.hard=unlimited"])?;
    run(builder, "password-hash", &["{ARGON2}"])?;
    run(builder, "password-rehash", &["on"])?;
    if let Some(replicas) = &start.replicas {
        run(builder, "serverID", &[&replicas.number.to_string()])?;
    }
    for (keyword, path) in
        [("TLSCertificateFile", &start.tls_certificate), ("TLSCertificateKeyFile", &start.tls_key)]
    {
        if let Some(path) = path {
            run(builder, keyword, &[&path.to_string_lossy()])?;
        }
    }
    Ok(())
}

/// The database of the suffix, as far as the included files may add to it.
fn own_database(builder: &mut Builder, start: &QuickStart, root: &str) -> Result<(), ConfigError> {
    run(builder, "database", &["mdb"])?;
    run(builder, "suffix", &[&start.suffix])?;
    run(builder, "rootdn", &[root])?;
    run(builder, "directory", &[&start.directory.to_string_lossy()])?;
    if let Some(password) = &start.root_password {
        run(builder, "rootpw", &[&String::from_utf8_lossy(password)])?;
    }
    for (attributes, kinds) in INDEXES {
        run(builder, "index", &[attributes, kinds])?;
    }
    Ok(())
}

/// Overlays that every such database has, unless an included file configured them.
fn overlays(builder: &mut Builder) -> Result<(), ConfigError> {
    for overlay in larix_overlays::all().filter(|overlay| !overlay.quick_start.is_empty()) {
        if has_overlay(builder, overlay.name) {
            continue;
        }
        run(builder, "overlay", &[overlay.name])?;
        for (keyword, arguments) in overlay.quick_start {
            run(builder, keyword, arguments)?;
        }
    }
    Ok(())
}

fn has_overlay(builder: &Builder, name: &str) -> bool {
    builder.databases.last().is_some_and(|own| own.overlays.iter().any(|overlay| overlay.name == name))
}

/// Has the database follow the other servers, and gives these an account.
fn replication(builder: &mut Builder, replicas: &QuickReplicas) -> Result<(), ConfigError> {
    for line in &replicas.lines {
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        run(builder, "syncrepl", &words)?;
    }
    run(builder, "multiprovider", &["on"])?;
    if !has_overlay(builder, "syncprov") {
        run(builder, "overlay", &["syncprov"])?;
    }
    // The account is in no entry: servers that have no entries yet bind each other, too.
    run(builder, "database", &["null"])?;
    run(builder, "suffix", &[QuickReplicas::SUFFIX])?;
    run(builder, "rootdn", &[QuickReplicas::ACCOUNT])?;
    run(builder, "rootpw", &[&String::from_utf8_lossy(&replicas.password)])
}

/// Who administers the directory unless somebody is named.
fn administrator(suffix: &str) -> String {
    match suffix.is_empty() {
        true => "cn=admin".to_owned(),
        false => format!("cn=admin,{suffix}"),
    }
}

/// The names in the suffix may come with the files; the rest of it is right or wrong before.
fn check_form(builder: &mut Builder, suffix: &str) -> Result<(), ConfigError> {
    let parsed = ConfigDn::parse_relaxed(&builder.schema(), suffix);
    parsed.map(drop).map_err(|why| no_suffix(suffix, &why))
}

fn check_suffix(builder: &mut Builder, suffix: &str) -> Result<(), ConfigError> {
    builder.schema().parse_dn(suffix).map(drop).map_err(|why| no_suffix(suffix, &why))
}

fn no_suffix(suffix: &str, why: &DnError) -> ConfigError {
    let help = match why {
        DnError::UnknownAttribute(_) => format!(
            "the names in it are those of {}, or of a schema in a file of --include",
            SCHEMA.join(", ")
        ),
        DnError::InvalidValue(_) => {
            "dc takes ASCII alone (other letters of a domain as xn--...), and c the two letters of a country"
                .to_owned()
        }
        _ => "such as dc=example,dc=com".to_owned(),
    };
    ConfigError::new(Origin::BuiltIn, format!("--suffix {suffix} is not a DN: {why}")).with_help(help)
}

/// What mail servers, address books and hosts use.
const SCHEMA: &[&str] = &["core", "cosine", "inetorgperson", "nis"];

/// What applications ask for.
const INDEXES: &[(&str, &str)] = &[
    ("objectClass,entryUUID", "eq"),
    ("uid,mail,cn,sn,givenName", "eq,sub"),
    ("member,uniqueMember,memberUid", "eq"),
    ("uidNumber,gidNumber", "eq"),
];

/// Only its owner changes a password, and no client reads it or an earlier one; bound clients read the rest.
const ACCESS: &[&str] = &[
    "to attrs=userPassword,pwdHistory by self =xw by anonymous auth by * none",
    "to dn.base= by * read",
    "to * by users read by * none",
];

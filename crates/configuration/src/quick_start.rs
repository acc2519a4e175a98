//! The configuration of `larix serve --suffix`: nothing to write first, and safe.

use larix_schema::DnError;

use super::builder::Builder;
use super::diagnostic::{ConfigError, Origin};
use super::model::{Config, QuickReplicas, QuickStart, Source};
use super::slapd_conf;
use super::values::ConfigDn;

/// Reads nothing but the files that are included; everything else goes through the same directives as a file.
pub(super) fn build(start: &QuickStart) -> Result<Config, ConfigError> {
    let mut builder = Builder::new(false);
    let run = |builder: &mut Builder, keyword: &str, arguments: &[&str]| {
        builder.run(keyword, arguments).map_err(|fault| {
            let mut error = ConfigError::new(
                Origin::BuiltIn,
                format!("{keyword} {}: {}", arguments.join(" "), fault.message),
            );
            error.help = fault.help;
            error
        })
    };
    for name in SCHEMA {
        builder.bundled(name)?;
    }
    run(&mut builder, "sizelimit", &["size.soft=1000", "size.hard=unlimited"])?;
    run(&mut builder, "password-hash", &["{ARGON2}"])?;
    run(&mut builder, "password-rehash", &["on"])?;
    let replicas = start.replicas.as_ref();
    if let Some(replicas) = replicas {
        run(&mut builder, "serverID", &[&replicas.number.to_string()])?;
    }
    for (keyword, path) in
        [("TLSCertificateFile", &start.tls_certificate), ("TLSCertificateKeyFile", &start.tls_key)]
    {
        if let Some(path) = path {
            run(&mut builder, keyword, &[&path.to_string_lossy()])?;
        }
    }
    check_form(&mut builder, &start.suffix)?;
    let root = start.root_dn.clone().unwrap_or_else(|| administrator(&start.suffix));
    // One administrator for all: cn=config knows the same name, whose password the database has.
    run(&mut builder, "database", &["config"])?;
    run(&mut builder, "rootdn", &[&root])?;
    run(&mut builder, "database", &["mdb"])?;
    run(&mut builder, "suffix", &[&start.suffix])?;
    run(&mut builder, "rootdn", &[&root])?;
    run(&mut builder, "directory", &[&start.directory.to_string_lossy()])?;
    if let Some(password) = &start.root_password {
        run(&mut builder, "rootpw", &[&String::from_utf8_lossy(password)])?;
    }
    for (attributes, kinds) in INDEXES {
        run(&mut builder, "index", &[attributes, kinds])?;
    }
    let mut builder = slapd_conf::read_more(builder, &start.includes)?;
    // After the files, which may define its attributes.
    check_suffix(&mut builder, &start.suffix)?;
    let account = format!("dn.exact={}", QuickReplicas::ACCOUNT);
    if replicas.is_some() {
        run(&mut builder, "index", &["entryCSN", "eq"])?;
        run(&mut builder, "access", &["to", "*", "by", &account, "read", "by", "*", "break"])?;
        run(&mut builder, "limits", &[&account, "size=unlimited", "time=unlimited"])?;
    }
    for rule in ACCESS {
        let words: Vec<&str> = rule.split(' ').collect();
        run(&mut builder, "access", &words)?;
    }
    let has = |builder: &Builder, name: &str| {
        builder.databases.last().is_some_and(|own| own.overlays.iter().any(|overlay| overlay.name == name))
    };
    for overlay in larix_overlays::all().filter(|overlay| !overlay.quick_start.is_empty()) {
        if has(&builder, overlay.name) {
            continue;
        }
        run(&mut builder, "overlay", &[overlay.name])?;
        for (keyword, arguments) in overlay.quick_start {
            run(&mut builder, keyword, arguments)?;
        }
    }
    if let Some(replicas) = replicas {
        for line in &replicas.lines {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            run(&mut builder, "syncrepl", &words)?;
        }
        run(&mut builder, "multiprovider", &["on"])?;
        if !has(&builder, "syncprov") {
            run(&mut builder, "overlay", &["syncprov"])?;
        }
        // The account is in no entry: servers that have no entries yet bind each other, too.
        run(&mut builder, "database", &["null"])?;
        run(&mut builder, "suffix", &[QuickReplicas::SUFFIX])?;
        run(&mut builder, "rootdn", &[QuickReplicas::ACCOUNT])?;
        run(&mut builder, "rootpw", &[&String::from_utf8_lossy(&replicas.password)])?;
    }
    run(&mut builder, "database", &["monitor"])?;
    run(&mut builder, "access", &["to", "*", "by", &format!("dn.exact={root}"), "read", "by", "*", "none"])?;
    super::validate::complete(builder.finish(Source::QuickStart))
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

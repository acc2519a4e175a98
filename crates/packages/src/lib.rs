//! The system packages that tests want beside a Rust toolchain and a C compiler: one table for the tests, which skip what needs
//! a missing one and say so, for `cargo xtask test`, which lists them at its start, and for CI, which installs them.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// In the environment: the file to which tests append what they skip, one line each: `PACKAGE<tab>TEST`.
pub const SKIPS_VARIABLE: &str = "LARIX_SKIPS";

/// A package of Debian.
#[derive(Debug)]
pub struct Package {
    pub name: &'static str,
    /// Names a program (of PostgreSQL: the folder of its programs) to be used instead of the package's, or one that does not
    /// exist, to do without.
    variable: Option<&'static str>,
    /// The package is installed when of each row one file is there. `*` stands for any letters of one component.
    files: &'static [&'static [&'static str]],
    /// What else it brings that a test could take for granted: hidden with the files where tests are run as without it.
    folders: &'static [&'static str],
    /// What is not tested without it.
    pub tests: &'static str,
    /// Which command wants it.
    pub wanted_by: Command,
}

/// Commands of `cargo xtask` that want packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Test,
    Kerberos,
    Instructions,
}

pub const SLAPD: Package = Package {
    name: "slapd",
    variable: Some("SLAPD"),
    files: &[&["/usr/sbin/slapd"]],
    folders: &["/etc/ldap", "/usr/lib/ldap"],
    tests: "answers, access rules, configurations, tools and replication beside OpenLDAP's server",
    wanted_by: Command::Test,
};

pub const LDAP_UTILS: Package = Package {
    name: "ldap-utils",
    variable: None,
    files: &[&["/usr/bin/ldapsearch"], &["/usr/bin/ldapwhoami"]],
    folders: &[],
    tests: "OpenLDAP's clients over TLS and SASL, and as followers",
    wanted_by: Command::Test,
};

/// Mechanisms of Cyrus SASL's clients.
pub const SASL_MODULES: Package = Package {
    name: "libsasl2-modules",
    variable: None,
    files: &[&["/usr/lib/*/sasl2/libscram.so"], &["/usr/lib/*/sasl2/libdigestmd5.so"]],
    folders: &[],
    tests: "SCRAM, DIGEST-MD5, CRAM-MD5 and PLAIN with Cyrus SASL's clients",
    wanted_by: Command::Test,
};

pub const SASLAUTHD: Package = Package {
    name: "sasl2-bin",
    variable: None,
    files: &[&["/usr/sbin/saslauthd"]],
    folders: &[],
    tests: "passwords that saslauthd checks",
    wanted_by: Command::Test,
};

pub const FAKETIME: Package = Package {
    name: "faketime",
    variable: None,
    files: &[&["/usr/lib/*/faketime/libfaketimeMT.so.1"]],
    folders: &[],
    tests: "rings of servers whose clocks are wrong",
    wanted_by: Command::Test,
};

pub const STRACE: Package = Package {
    name: "strace",
    variable: None,
    files: &[&["/usr/bin/strace"]],
    folders: &[],
    tests: "restores and loads that are killed before each call of the system",
    wanted_by: Command::Test,
};

pub const OPENSSL: Package = Package {
    name: "openssl",
    variable: None,
    files: &[&["/usr/bin/openssl"]],
    folders: &[],
    tests: "TLS with OpenSSL's client and certificates",
    wanted_by: Command::Test,
};

pub const GNUTLS: Package = Package {
    name: "gnutls-bin",
    variable: None,
    files: &[&["/usr/bin/gnutls-cli"]],
    folders: &[],
    tests: "TLS with GnuTLS's client",
    wanted_by: Command::Test,
};

pub const POSTFIX: Package = Package {
    name: "postfix-ldap",
    variable: None,
    files: &[&["/usr/sbin/postmap"], &["/usr/lib/postfix/postfix-ldap.so"]],
    folders: &[],
    tests: "Postfix as a client",
    wanted_by: Command::Test,
};

pub const REDIS: Package = Package {
    name: "redis-server",
    variable: None,
    files: &[&["/usr/bin/redis-server"]],
    folders: &[],
    tests: "a comparison's rows beside Redis",
    wanted_by: Command::Test,
};

pub const POSTGRESQL: Package = Package {
    name: "postgresql",
    variable: Some("POSTGRESQL"),
    files: &[
        &["/usr/lib/postgresql/*/bin/initdb"],
        &["/usr/lib/postgresql/*/bin/postgres"],
        &["/usr/lib/postgresql/*/bin/psql"],
    ],
    folders: &[],
    tests: "the store over PostgreSQL",
    wanted_by: Command::Test,
};

pub const ETCD: Package = Package {
    name: "etcd-server",
    variable: Some("ETCD"),
    files: &[&["/usr/bin/etcd"]],
    folders: &[],
    tests: "the store over etcd",
    wanted_by: Command::Test,
};

pub const ETCD_CLIENT: Package = Package {
    name: "etcd-client",
    variable: None,
    files: &[&["/usr/bin/etcdctl"]],
    folders: &[],
    tests: "the store over etcd",
    wanted_by: Command::Test,
};

pub const CHROMIUM: Package = Package {
    name: "chromium",
    variable: None,
    files: &[&["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]],
    folders: &[],
    tests: "the admin page in a browser",
    wanted_by: Command::Test,
};

pub const RPM: Package = Package {
    name: "rpm",
    variable: None,
    files: &[&["/usr/bin/rpm"], &["/usr/bin/rpmbuild"]],
    folders: &[],
    tests: "the rpm, made and read",
    wanted_by: Command::Test,
};

pub const VALGRIND: Package = Package {
    name: "valgrind",
    variable: None,
    files: &[&["/usr/bin/valgrind"]],
    folders: &[],
    tests: "instructions a request",
    wanted_by: Command::Instructions,
};

pub const KRB5_LIBRARY: Package = kerberos("libkrb5-dev", &[&["/usr/include/gssapi/gssapi.h"]]);
pub const CLANG: Package = kerberos("clang", &[&["/usr/bin/clang"]]);
pub const CLANG_LIBRARY: Package = kerberos("libclang-dev", &[&["/usr/lib/llvm-*/lib/libclang.so*"]]);
pub const KDC: Package = kerberos("krb5-kdc", &[&["/usr/sbin/krb5kdc"], &["/usr/sbin/kdb5_util"]]);
pub const KADMIN: Package = kerberos("krb5-admin-server", &[&["/usr/sbin/kadmin.local"]]);
pub const KINIT: Package = kerberos("krb5-user", &[&["/usr/bin/kinit"]]);
pub const KDC_LDAP: Package = Package {
    name: "krb5-kdc-ldap",
    variable: None,
    files: &[&["/usr/sbin/kdb5_ldap_util"], &["/usr/lib/*/krb5/plugins/kdb/kldap.so"]],
    folders: &[],
    tests: "passwords and keys of MIT's KDC with its principals in the directory",
    wanted_by: Command::Test,
};
pub const SASL_GSSAPI: Package =
    kerberos("libsasl2-modules-gssapi-mit", &[&["/usr/lib/*/sasl2/libgssapiv2.so"]]);

/// Every package, in the order in which they are shown.
pub const PACKAGES: [&Package; 24] = [
    &SLAPD,
    &LDAP_UTILS,
    &SASL_MODULES,
    &SASLAUTHD,
    &FAKETIME,
    &STRACE,
    &OPENSSL,
    &GNUTLS,
    &POSTFIX,
    &REDIS,
    &POSTGRESQL,
    &ETCD,
    &ETCD_CLIENT,
    &CHROMIUM,
    &RPM,
    &VALGRIND,
    &KRB5_LIBRARY,
    &CLANG,
    &CLANG_LIBRARY,
    &KDC,
    &KADMIN,
    &KINIT,
    &KDC_LDAP,
    &SASL_GSSAPI,
];

const fn kerberos(name: &'static str, files: &'static [&'static [&'static str]]) -> Package {
    let tests = "the build feature gssapi with MIT's KDC";
    Package { name, variable: None, files, folders: &[], tests, wanted_by: Command::Kerberos }
}

impl Package {
    pub fn is_installed(&self) -> bool {
        if let Some(own) = self.named() {
            return is_content(&own) || own.is_dir();
        }
        self.files.iter().all(|any| any.iter().any(|pattern| !find(pattern).is_empty()))
    }

    /// What its variable names in place of the package's.
    pub fn named(&self) -> Option<PathBuf> {
        self.variable.and_then(std::env::var_os).map(PathBuf::from)
    }

    /// The files of the package that are there: of each row the first.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files
            .iter()
            .filter_map(|any| any.iter().find_map(|pattern| find(pattern).into_iter().next()))
            .collect()
    }

    /// What is hidden where tests run as without the package: every file by which a test would find it, those of other versions
    /// that are installed beside it too, and its folders.
    pub fn paths(&self) -> Vec<PathBuf> {
        let files = self.files.iter().copied().flatten().flat_map(|pattern| find(pattern));
        let folders = self.folders.iter().map(PathBuf::from).filter(|folder| folder.is_dir());
        files.chain(folders).collect()
    }

    /// Whether a test has to do without the package. Each such test asks this before it needs the package: where it is not
    /// installed this says so on standard error, and in the file that [`SKIPS_VARIABLE`] names.
    pub fn is_lacking(&self) -> bool {
        self.is_lacking_as_noted_in(std::env::var_os(SKIPS_VARIABLE).as_deref())
    }

    /// The same with the file in which skips are noted.
    fn is_lacking_as_noted_in(&self, skips: Option<&OsStr>) -> bool {
        if self.is_installed() {
            return false;
        }
        note(self.name, &format!("the package {} is not installed ({})", self.name, self.tests), skips);
        true
    }

    /// Whether a test has to do without a file of the package that not every version of it has, such as a module of slapd. As
    /// [`Self::is_lacking`], this says so.
    pub fn is_lacking_file(&self, file: &Path) -> bool {
        if self.is_lacking() {
            return true;
        }
        let is_there = file.exists();
        if !is_there {
            note(
                self.name,
                &format!("{} of the package {} is not there", file.display(), self.name),
                std::env::var_os(SKIPS_VARIABLE).as_deref(),
            );
        }
        !is_there
    }
}

/// What some tests need of the machine beside packages.
pub const ROOT: &str = "root";
pub const MOUNT_NAMESPACE: &str = "a mount namespace";

/// Says that the test that runs does without something of the machine that no package brings, as [`Package::is_lacking`] says it of
/// a package.
pub fn note_lack(what: &str) {
    note(
        what,
        &format!("this machine has not, or does not give, {what}"),
        std::env::var_os(SKIPS_VARIABLE).as_deref(),
    );
}

/// Writes down that the test that runs skips something.
fn note(what: &str, why: &str, skips: Option<&OsStr>) {
    let test = this_test();
    eprintln!("skipped: {test}: {why}");
    let Some(file) = skips else { return };
    let written = OpenOptions::new().create(true).append(true).open(file);
    // One write: tests of several processes append to the same file.
    if let Err(error) = written.and_then(|mut file| file.write_all(format!("{what}\t{test}\n").as_bytes())) {
        eprintln!("cannot write {}: {error}", Path::new(file).display());
    }
}

/// `PROGRAM::TEST`, as libtest names its threads.
fn this_test() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().and_then(OsStr::to_str).unwrap_or("test");
    // Cargo adds a hash to the name.
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    let thread = std::thread::current();
    format!("{program}::{}", thread.name().unwrap_or("?"))
}

/// The files that a pattern names, in order. An empty file does not count: that is what stands in an installed file's place where
/// tests are run as on a machine without it.
fn find(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for component in pattern.split('/').filter(|component| !component.is_empty()) {
        let Some((before, after)) = component.split_once('*') else {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        };
        let names = |folder: &PathBuf| {
            let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let fits = |name: &std::ffi::OsString| {
                name.to_str()
                    .and_then(|name| name.strip_prefix(before))
                    .is_some_and(|rest| rest.ends_with(after))
            };
            names.filter(fits).map(|name| folder.join(name)).collect::<Vec<_>>()
        };
        found = found.iter().flat_map(names).collect();
    }
    found.retain(|path| is_content(path));
    found.sort();
    found
}

fn is_content(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_files_with_content() {
        let folder = std::env::temp_dir().join(format!("larix-packages-{}", std::process::id()));
        fs::create_dir_all(folder.join("one/two")).expect("a folder");
        fs::write(folder.join("one/two/libx.so.1"), "x").expect("a file");
        fs::write(folder.join("one/two/empty"), "").expect("a file");
        for (pattern, is_there) in [
            ("one/two/libx.so.1", true),
            ("*/two/libx.so.1", true),
            ("o*/two/libx.so*", true),
            ("*/two/liby*", false),
            ("one/two/empty", false),
            ("one/two", false),
            ("three/*/libx.so.1", false),
        ] {
            let pattern = format!("{}/{pattern}", folder.display());
            assert_eq!(!find(&pattern).is_empty(), is_there, "{pattern}");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn all_versions_that_are_installed_are_hidden() {
        let folder = std::env::temp_dir().join(format!("larix-versions-{}", std::process::id()));
        for version in ["15", "18"] {
            fs::create_dir_all(folder.join(version)).expect("a folder");
            fs::write(folder.join(version).join("initdb"), "x").expect("a file");
        }
        let pattern: &str = Box::leak(format!("{}/*/initdb", folder.display()).into_boxed_str());
        let row: &[&str] = Box::leak(Box::new([pattern]));
        let package = Package { files: Box::leak(Box::new([row])), ..SLAPD_ALIKE };
        assert_eq!(package.files(), [folder.join("15/initdb")]);
        assert_eq!(package.paths(), [folder.join("15/initdb"), folder.join("18/initdb")]);
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn every_package_stands_once_and_has_files() {
        for package in PACKAGES {
            assert_eq!(
                PACKAGES.iter().filter(|other| other.name == package.name).count(),
                1,
                "{}",
                package.name
            );
            assert!(!package.files.is_empty() && package.files.iter().all(|any| !any.is_empty()));
        }
    }

    #[test]
    fn what_is_missing_is_said_with_the_tests_name() {
        // A file of its own: nothing is skipped here.
        let noted = std::env::temp_dir().join(format!("larix-skips-{}", std::process::id()));
        let missing = Package { files: &[&["/nonexistent/program"]], ..SLAPD_ALIKE };
        assert!(missing.is_lacking_as_noted_in(Some(noted.as_os_str())) && missing.files().is_empty());
        let there = Package { files: &[&["/nonexistent/program", "/proc/self/exe"]], ..SLAPD_ALIKE };
        assert!(!there.is_lacking_as_noted_in(Some(noted.as_os_str())));
        let name = "larix_packages::tests::what_is_missing_is_said_with_the_tests_name";
        assert_eq!(fs::read_to_string(&noted).expect("the file"), format!("none\t{name}\n"));
        note("root", "it is not", Some(noted.as_os_str()));
        assert!(fs::read_to_string(&noted).expect("the file").ends_with(&format!("\nroot\t{name}\n")));
        fs::remove_file(&noted).expect("removed");
    }

    const SLAPD_ALIKE: Package = Package {
        name: "none",
        variable: None,
        files: &[],
        folders: &[],
        tests: "nothing",
        wanted_by: Command::Test,
    };
}

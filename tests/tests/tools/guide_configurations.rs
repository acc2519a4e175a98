//! The lines of slapd.conf in README and the guide: `larix test` takes each example, within a database where the example has none.

use std::fs;
use std::path::{Path, PathBuf};

use larix_testkit::{Authority, Kind};

/// First words of examples that are lines of slapd.conf.
const STARTS: [&str; 28] = [
    "TLSCertificateFile",
    "access",
    "admin-listener",
    "admin-password-reset",
    "authid-rewriteEngine",
    "authid-rewriteMap",
    "authz-regexp",
    "backup-schedule",
    "change-log",
    "client-limits",
    "database",
    "http-listener",
    "include",
    "index",
    "loglevel",
    "moduleload",
    "overlay",
    "password-hash",
    "ppolicy_rules",
    "request-limits",
    "restrict",
    "restrictop",
    "sasl-saslauthd",
    "schema",
    "serverID",
    "sizelimit",
    "syncrepl",
    "trace-export",
];

/// Fewer examples than there have been for long: then they are not found any more.
const EXAMPLES_MIN: usize = 85;

/// Examples that cannot be taken as they stand: a page, the first line, and why.
const LEFT_OUT: [(&str, &str, &str); 4] = [
    ("chain.md", "overlay      chain", "the rest of its `syncrepl` line is on another page"),
    ("replication.md", "serverID 1 ldap://ldap1.example.com", "the same"),
    ("passwords.md", "schema kerberos", "takes the stash of a KDC"),
    ("passwords.md", "include /etc/ldap/schema/hdb.schema", "takes a file of Heimdal"),
];

const DATABASE: &str =
    "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n...";

/// What an example needs in front of it, by a part of its first line.
const IN_FRONT: [(&str, &str); 6] = [
    ("database changelog", DATABASE),
    ("database relay", DATABASE),
    ("ppolicy_rules ", "overlay ppolicy"),
    ("oathSecret", "overlay otp"),
    ("sambaNTPassword", "schema samba"),
    ("krbPrincipalKey", "schema kerberos"),
];

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs/guide", "docs/guide/recipes"] {
        let entries = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    pages
}

/// The lines of code of a page, block by block, without what all lines of one are indented by; and the number of the first.
fn blocks(text: &str) -> Vec<(usize, Vec<&str>)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_fence = |number: usize| lines[number].trim_start().starts_with("```");
    let is_code = |number: usize| lines.get(number).is_some_and(|line| line.starts_with("    "));
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let fenced = is_fence(at);
        if !fenced && !(is_code(at) && (at == 0 || lines[at - 1].is_empty())) {
            at += 1;
            continue;
        }
        let start = at + usize::from(fenced);
        let is_in = |number: usize| match fenced {
            true => !is_fence(number),
            false => is_code(number) || (lines[number].is_empty() && is_code(number + 1)),
        };
        let end = (start..lines.len()).find(|number| !is_in(*number)).unwrap_or(lines.len());
        let block = &lines[start..end];
        let filled = block.iter().filter(|line| !line.trim().is_empty());
        let indent = filled.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
        found.push((start + 1, block.iter().map(|line| line.get(indent..).unwrap_or_default()).collect()));
        at = end + usize::from(fenced);
    }
    found
}

/// Where examples are tried: a folder with the files that they name.
struct ExampleFolder {
    folder: tempfile::TempDir,
    /// What stands in pages, and what it is here.
    files: Vec<(&'static str, String)>,
    made: usize,
}

impl ExampleFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("ca");
        authority.server().write(folder.path(), "server");
        for (name, text) in [
            ("ca.pem", authority.certificate()),
            ("hosts", "dc1.example.com\n".to_owned()),
            ("words", "secret\n".to_owned()),
            ("breached", "0018A45C4D1DEF81644B54AB7F969B88D65CAFE0:1\n".to_owned()),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let files = [
            ("/etc/ldap/ca.pem", "ca.pem"),
            ("/etc/ldap/ad-ca.pem", "ca.pem"),
            ("/etc/ldap/tls/server.pem", "server.pem"),
            ("/etc/ldap/tls/server.key", "server.key"),
            ("/etc/ldap/americas.hosts", "hosts"),
            ("/usr/share/dict/words", "words"),
            ("/var/lib/larix/pwned-passwords.txt", "breached"),
        ];
        let files =
            files.map(|(documented, name)| (documented, folder.path().join(name).display().to_string()));
        Self { folder, files: files.into(), made: 0 }
    }

    /// A line as it is here: each `directory` is a new one, and a line that says that something is left out is one, too.
    fn here(&mut self, line: &str) -> String {
        if line == "..." || line.starts_with("directory ") {
            self.made += 1;
            let directory = self.folder.path().join(self.made.to_string());
            fs::create_dir(&directory).unwrap();
            return format!("directory {}\n", directory.display());
        }
        let bundled =
            line.strip_prefix("include /etc/ldap/schema/").and_then(|file| file.strip_suffix(".schema"));
        if let Some(name) = bundled {
            return format!("schema {name}\n");
        }
        self.files.iter().fold(line.to_owned(), |line, (documented, here)| line.replace(documented, here))
            + "\n"
    }

    /// What `larix test` says of the lines behind the usual schemas, if it does not take them.
    fn fault(&mut self, lines: &[&str]) -> Option<String> {
        let lines: Vec<String> =
            lines.iter().flat_map(|lines| lines.lines()).map(|line| self.here(line)).collect();
        let file = self.folder.path().join("slapd.conf");
        fs::write(&file, format!("schema core cosine inetorgperson nis\n{}", lines.concat())).unwrap();
        let output = Kind::Larix.tool("test").arg("-f").arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (!output.status.success()).then_some(text)
    }
}

#[test]
fn the_server_takes_the_lines_of_the_guide() {
    let mut folder = ExampleFolder::new();
    let (mut taken, mut left_out, mut faults) = (0, 0, Vec::new());
    for page in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        // Not every build has the engines of `database kv`.
        if name.starts_with("cluster") {
            continue;
        }
        for (number, lines) in blocks(&fs::read_to_string(&page).unwrap()) {
            // What a client does with it may stand behind.
            let is_of_client =
                |line: &str| ["dn:", "ldap", "larix "].iter().any(|start| line.starts_with(start));
            let lines: Vec<&str> = lines.into_iter().take_while(|line| !is_of_client(line)).collect();
            let Some(first) = lines.iter().find(|line| !line.trim().is_empty() && !line.starts_with('#'))
            else {
                continue;
            };
            if !STARTS.iter().any(|start| first.split_whitespace().next() == Some(*start)) {
                continue;
            }
            if LEFT_OUT.iter().any(|(of, line, _)| (*of, *line) == (name, *first)) {
                left_out += 1;
                continue;
            }
            let in_front = IN_FRONT.iter().find(|(part, _)| first.contains(*part)).map(|(_, lines)| *lines);
            let example = in_front.into_iter().chain(lines.iter().copied()).collect::<Vec<_>>();
            let has_database =
                example.iter().any(|line| line.lines().any(|line| line.starts_with("database ")));
            let fault = match has_database {
                true => folder.fault(&example),
                // Lines of a database, or those that stand before the first one.
                false => folder
                    .fault(&[&[DATABASE][..], &example[..]].concat())
                    .filter(|_| folder.fault(&[&example[..], &[DATABASE][..]].concat()).is_some()),
            };
            match fault {
                None => taken += 1,
                Some(fault) => faults.push(format!("{name}:{number}: {fault}")),
            }
        }
    }
    assert!(faults.is_empty(), "{} of {taken}:\n{}", faults.len(), faults.join("\n"));
    assert!(taken >= EXAMPLES_MIN, "{taken} examples were found");
    assert_eq!(left_out, LEFT_OUT.len());
}

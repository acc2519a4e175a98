//! What the nodes of a `database kv` have in common of their configurations, and a node's own made from it.

use std::path::Path;

use super::export::quoted_whole;
use super::model::{Config, Database};

/// Settings of the server as a whole that say what shared entries mean, who may do what with them, and how they are indexed. The others (listeners,
/// certificates, logs, threads, server ids) are each node's own.
const OF_ALL: &[&str] = &[
    "olcAllows",
    "olcAttributeOptions",
    "olcAttributeTypes",
    "olcAuthIDRewrite",
    "olcAuthzPolicy",
    "olcAuthzRegexp",
    "olcDisallows",
    "olcDitContentRules",
    "olcIndexHash64",
    "olcIndexIntLen",
    "olcIndexSubstrAnyLen",
    "olcIndexSubstrAnyStep",
    "olcIndexSubstrIfMaxLen",
    "olcIndexSubstrIfMinLen",
    "olcLarixSaslMechanisms",
    "olcLdapSyntaxes",
    "olcMaxFilterDepth",
    "olcObjectClasses",
    "olcObjectIdentifier",
    "olcPasswordCryptSaltFormat",
    "olcReferral",
    "olcRequires",
    "olcRestrict",
    "olcSaslRealm",
    "olcSaslSecProps",
    "olcSecurity",
    "olcSizeLimit",
    "olcTimeLimit",
];
/// Settings of the server as a whole that [`SharedLines::of_node`] adds.
const ADDED: &[&str] = &["olcTLSCertificateFile", "olcTLSCertificateKeyFile"];
/// Databases of a node that has joined.
const KINDS: &[&str] = &["config", "kv", "monitor"];
/// What each node says of the database.
const OF_NODE: &[&str] = &["olcLarixKvEngine", "olcLarixKvNode", SERVER_ID];
/// The same at all nodes: where none has it, nodes that join get what `serverID` says.
const SERVER_ID: &str = "olcLarixKvServerId";
const DATABASE: &str = "\ndatabase kv\n";

/// Lines of slapd.conf that all nodes of a database have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLines {
    /// What stands before the database: the schema, and what holds for the server as a whole.
    pub head: String,
    /// The database, without `engine` and `node`.
    pub database: String,
    pub root_dn: Option<String>,
}

/// What a node says itself.
#[derive(Copy, Clone, Debug)]
pub struct OwnLines<'a> {
    pub engine: &'a str,
    pub node: &'a str,
    /// Files of its certificate and the key.
    pub certificate: Option<(&'a Path, &'a Path)>,
}

/// A directive with one argument.
fn line_of(keyword: &str, argument: &str) -> String {
    format!("{keyword} {}\n", quoted_whole(argument))
}

impl Config {
    /// What other nodes of this database need. `overlay chain` is left out: it names the other nodes.
    pub fn shared_lines(&self, database: &Database) -> SharedLines {
        let mut shared = self.clone();
        let mut own = database.clone();
        own.settings.retain(|setting| !OF_NODE.contains(&setting.attribute));
        own.overlays.retain(|overlay| overlay.chain().is_none());
        shared.frontend.overlays.clear();
        shared.global.settings.retain(|setting| OF_ALL.contains(&setting.attribute));
        shared.modules.clear();
        shared.backends.clear();
        shared.databases.clear();
        let head = shared.to_slapd_conf().text;
        shared.databases.push(own);
        let whole = shared.to_slapd_conf().text;
        let lines = whole.strip_prefix(&head).unwrap_or_default();
        let id = match self.server_id_of(database) {
            0 => String::new(),
            id => format!("server-id {id}\n"),
        };
        SharedLines {
            database: lines.replacen(DATABASE, &format!("{DATABASE}{id}"), 1),
            head,
            root_dn: database.root_dn.as_ref().map(|dn| dn.text.clone()),
        }
    }
}

impl SharedLines {
    /// The slapd.conf of another node: the same with its own lines, cn=config for the same administrator, and cn=Monitor.
    pub fn of_node(&self, own: &OwnLines<'_>) -> String {
        let mut text = String::new();
        if let Some((certificate, key)) = own.certificate {
            text += &line_of("TLSCertificateFile", &certificate.to_string_lossy());
            text += &line_of("TLSCertificateKeyFile", &key.to_string_lossy());
        }
        text += &self.head;
        text += "\ndatabase config\n";
        text += &self.root_dn.as_ref().map(|dn| line_of("rootdn", dn)).unwrap_or_default();
        let own = format!("{}{}", line_of("engine", own.engine), line_of("node", own.node));
        text += &self.database.replacen(DATABASE, &format!("{DATABASE}{own}"), 1);
        text += "\ndatabase monitor\n";
        if let Some(reader) = &self.root_dn {
            text += &format!("access to * by dn.exact={} read by * none\n", quoted_whole(reader));
        }
        text
    }

    /// Whether the configuration of a node that has joined has nothing of its own but what [`Self::of_node`] adds: who writes into the
    /// engine decides about its entries, not about the files and the other databases of this machine.
    ///
    /// # Errors
    /// What it has beside.
    pub fn check_alone(config: &Config) -> Result<(), String> {
        let settings = config.global.settings.iter().map(|setting| setting.attribute);
        let others = |attribute: &&str| !OF_ALL.contains(attribute) && !ADDED.contains(attribute);
        if let Some(attribute) = settings.into_iter().find(others) {
            return Err(format!("it sets {attribute}, which is each node's own"));
        }
        if let Some(database) = config.databases.iter().find(|own| !KINDS.contains(&own.kind.name())) {
            return Err(format!("it has a database {}", database.kind.name()));
        }
        let lines = config.databases.iter().flat_map(|own| &own.sync_replication);
        let files = ["tls_cert", "tls_key", "tls_cacert", "tls_cacertdir"];
        let named = |(key, _): &&(String, String)| files.iter().any(|file| key.eq_ignore_ascii_case(file));
        if let Some((key, _)) = lines.flat_map(|line| &line.tls).find(named) {
            return Err(format!(
                "a syncrepl line has {key}, a file of each node's own: configure the node by hand"
            ));
        }
        if !(config.modules.is_empty() && config.backends.is_empty() && config.frontend.overlays.is_empty()) {
            return Err("it has modules, backends, or overlays before the first database".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Config {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("slapd.conf");
        std::fs::write(&file, text).expect("a file");
        Config::from_slapd_conf(&file).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn lines(config: &Config) -> SharedLines {
        let database = config.databases.iter().find(|database| database.kind.name() == "kv");
        config.shared_lines(database.expect("a kv database"))
    }

    #[test]
    fn another_node_has_what_is_shared_and_its_own_lines() {
        let text = "schema core\nattributetype ( 1.2.3.4 NAME 'ownThing' SUP name )\npidfile /run/one.pid\nserverID 7\nsizelimit 70\n\
            authz-regexp ^uid=(.*),cn=auth$ cn=$1,dc=example,dc=com\naccess to dn.base=\"\" by * read\n\
            database mdb\nsuffix dc=other\ndirectory /tmp\n\
            database kv\nengine postgresql://larix:hidden@127.0.0.1/d?sslmode=disable\nnode ldap://n1\nsuffix dc=example,dc=com\nlease 7\n\
            rootdn \"cn=Big Boss,dc=example,dc=com\"\nrootpw {SSHA}AAAA\nindex cn eq\naccess to * by users read\noverlay memberof\n";
        let shared = lines(&read(text));
        let whole = format!("{}{}", shared.head, shared.database);
        for own in ["hidden", "ldap://n1", "one.pid", "serverID", "dc=other"] {
            assert!(!whole.contains(own), "{own} is the node's own: {whole}");
        }
        let certificate = Some((Path::new("/etc/two.pem"), Path::new("/etc/two.key")));
        let own = OwnLines {
            engine: "postgresql://two@127.0.0.1/d?sslmode=disable",
            node: "ldap://n2",
            certificate,
        };
        let text = shared.of_node(&own);
        for line in [
            "schema core\n",
            "'ownThing'",
            "sizelimit 70\n",
            "authz-regexp",
            "access to dn.base=\"\"\n    by * read\n",
            "TLSCertificateFile /etc/two.pem\n",
            "database kv\nengine postgresql://two@127.0.0.1/d?sslmode=disable\nnode ldap://n2\nserver-id 7\n",
            "lease 7\n",
            "rootpw {SSHA}AAAA\n",
            "index cn eq\n",
            "overlay memberof\n",
            "database config\nrootdn \"cn=Big Boss,dc=example,dc=com\"\n",
        ] {
            assert!(text.contains(line), "no {line:?} in\n{text}");
        }
        SharedLines::check_alone(&read(&shared.of_node(&OwnLines { certificate: None, ..own })))
            .expect("nothing else");
        for (more, expected) in [
            ("pidfile /run/it.pid\n", "olcPidFile"),
            ("database mdb\nsuffix dc=more\ndirectory /tmp\n", "mdb"),
            ("database frontend\noverlay chain\n", "overlays"),
        ] {
            let more = SharedLines { head: format!("{}{more}", shared.head), ..shared.clone() };
            let read = read(&more.of_node(&OwnLines { certificate: None, ..own }));
            let refused = SharedLines::check_alone(&read).expect_err(expected);
            assert!(refused.contains(expected), "{refused}");
        }
        // What the joined node has to share is the same.
        let without_files = shared.of_node(&OwnLines { certificate: None, ..own });
        assert_eq!(lines(&read(&without_files)), shared);
    }
}

//! A server with `database ldap` in front of another server, for every suffix of its configuration.

use larix_testkit::{Kind, Server, Site, StartError};

use crate::sections::{OF_SCHEMA, Section, sections, those_of};

/// Directives about the client's session: that is with the proxy, whatever the target allows.
const OF_SESSIONS: [&str; 8] = [
    "allow",
    "authz-policy",
    "authz-regexp",
    "defaultsearchbase",
    "disallow",
    "referral",
    "require",
    "security",
];
/// Databases that tell of the server itself: each server has its own.
const OF_ITSELF: [&str; 3] = ["config", "frontend", "monitor"];

/// A proxy and its target.
#[derive(Debug)]
pub struct Proxied {
    proxy: Site,
    target: Server,
}

/// The lines of one database at the proxy; none for a database that tells of the server itself, and for one that is glued to another.
fn database(section: &Section<'_>, all: &[Section<'_>], uri: &str) -> Option<String> {
    if OF_ITSELF.contains(&section.kind().as_str()) || !those_of(&section.lines, &["subordinate"]).is_empty()
    {
        return None;
    }
    let mut text = format!("database ldap\nuri {uri}\n");
    text += &those_of(&section.lines, &["suffix", "rootdn", "rootpw", "require", "security"]);
    let Some(root) = section.value("rootdn") else { return Some(text) };
    // A root DN may have its password with another database.
    let of_root = all.iter().filter(|other| other.value("rootdn").as_ref() == Some(&root));
    if let Some(password) = of_root.filter_map(|other| other.value("rootpw")).next() {
        text += &format!("acl-bind bindmethod=simple binddn=\"{root}\" credentials={password}\n");
    }
    Some(text)
}

/// What a proxy in front of `uri` has in its slapd.conf. Clients bind through it by their own names; it binds as a
/// database's root DN for that one alone. Access rules, limits and overlays are the target's.
pub fn configuration(configuration: &str, uri: &str) -> String {
    let (global, sections) = sections(configuration);
    let mut text = those_of(&global, &OF_SCHEMA);
    text += &those_of(&global, &OF_SESSIONS);
    // A limit of its own would be asked of the target as if the client had asked for it.
    text += "sizelimit unlimited\ntimelimit unlimited\n";
    sections.iter().filter_map(|section| database(section, &sections, uri)).for_each(|one| text += &one);
    text
}

impl Proxied {
    /// A proxy in front of a server that is up and has this configuration.
    pub fn new(configuration: &str, target: Server) -> Self {
        let uri = format!("ldap://{}/", target.address);
        Self { proxy: Site::new(Kind::Larix, &self::configuration(configuration, &uri)), target }
    }

    /// Starts the proxy.
    ///
    /// # Errors
    /// It refuses its configuration, or does not start.
    pub fn start(&self) -> Result<Server, StartError> {
        self.proxy.start()
    }

    /// Stops the target, when the proxy is gone; whether it ended cleanly.
    pub fn stop(self) -> bool {
        self.target.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_has_the_suffixes_and_what_is_about_sessions() {
        let text = configuration(
            "allow bind_v2\naccess to *\n  by * read\nattributetype ( 1.2.3\n  NAME 'a' )\ndatabase monitor\n\
             database mdb\nsuffix dc=a\nrootdn cn=r,dc=b\ndirectory /x\nrequire authc\nlimits * size=1\n\
             database mdb\nsuffix ou=x,dc=b\nsubordinate\ndatabase mdb\nsuffix \"dc=b\"\nrootdn \"cn=r,dc=b\"\nrootpw s\n",
            "ldap://127.0.0.1:3/",
        );
        let expected = "attributetype ( 1.2.3\n  NAME 'a' )\nallow bind_v2\nsizelimit unlimited\ntimelimit unlimited\n\
            database ldap\nuri ldap://127.0.0.1:3/\nsuffix dc=a\nrootdn cn=r,dc=b\nrequire authc\n\
            acl-bind bindmethod=simple binddn=\"cn=r,dc=b\" credentials=s\n\
            database ldap\nuri ldap://127.0.0.1:3/\nsuffix \"dc=b\"\nrootdn \"cn=r,dc=b\"\nrootpw s\n\
            acl-bind bindmethod=simple binddn=\"cn=r,dc=b\" credentials=s\n";
        assert_eq!(text, expected);
    }
}

//! `admin-password-reset`: whether users who forgot their password may set another one on the admin page.

use std::path::PathBuf;

use super::quantity;

/// By a code that a helper makes and reads out, or that the server sends by mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordReset {
    /// Seconds for which a code is valid.
    pub lifetime: u64,
    /// How codes are sent; `None`: helpers alone make them.
    pub mail: Option<ResetMail>,
}

/// How codes are sent by mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetMail {
    pub server: MailServer,
    /// The sender's address.
    pub from: String,
    /// Where the page is, without `/reset`: for the text of the mail.
    pub url: String,
    /// The account in whose name passwords are set: its rights say whose.
    pub bind_dn: String,
    /// The file whose first line is its password.
    pub password_file: PathBuf,
    /// The name at the mail server, and the file whose first line is the password.
    pub login: Option<(String, PathBuf)>,
    /// Authorities (PEM) that certify the mail server.
    pub authorities: PathBuf,
}

/// A server that takes mails (RFC 6409).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer {
    pub host: String,
    pub port: u16,
    pub security: MailSecurity,
}

/// How a connection to the mail server is protected.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MailSecurity {
    /// `smtp://` to this machine.
    None,
    /// `smtp://` elsewhere (RFC 3207).
    StartTls,
    /// `smtps://` (RFC 8314 section 3.3).
    Tls,
}

/// What a line says of mails, before it is complete.
#[derive(Default)]
struct Words {
    server: Option<MailServer>,
    from: Option<String>,
    url: Option<String>,
    bind_dn: Option<String>,
    password_file: Option<PathBuf>,
    user: Option<String>,
    user_password_file: Option<PathBuf>,
    authorities: Option<PathBuf>,
}

impl PasswordReset {
    /// The words, for messages.
    pub(crate) const WORDS: &'static str = "for example `code lifetime=15m`, `off`, or `mail server=smtp://localhost \
        from=directory@example.com url=https://directory.example.com:9390 binddn=cn=reset,dc=example,dc=com \
        passfile=/etc/larix/reset.password`";

    /// Seconds for which a code is valid if nothing else is said.
    pub(crate) const LIFETIME_DEFAULT: u64 = 15 * 60;
    /// A code must be read out and typed.
    const LIFETIME_MIN: u64 = 60;
    /// A code is no second password.
    const LIFETIME_MAX: u64 = 24 * 60 * 60;

    /// Reads the words of a line; an error names the word by its number. `None`: off.
    pub(crate) fn parse<'w>(
        words: impl IntoIterator<Item = &'w str>,
    ) -> Result<Option<Self>, (usize, String)> {
        let mut words = words.into_iter().enumerate();
        let how = words.next().map_or("", |(_, how)| how);
        let mut lifetime = Self::LIFETIME_DEFAULT;
        let mut mail = match how.to_ascii_lowercase().as_str() {
            "off" => {
                return match words.next() {
                    Some((number, word)) => Err((number, format!("`{word}` has no meaning behind `off`"))),
                    None => Ok(None),
                };
            }
            "code" => None,
            "mail" => Some(Words::default()),
            _ => return Err((0, format!("`{how}` is no way to reset a password"))),
        };
        for (number, word) in words {
            let fault = |message| (number, message);
            match (word.split_once('='), &mut mail) {
                (Some((name, value)), _) if name.eq_ignore_ascii_case("lifetime") => {
                    lifetime = quantity::seconds(value).map_err(fault)?;
                    if !(Self::LIFETIME_MIN..=Self::LIFETIME_MAX).contains(&lifetime) {
                        return Err(fault(format!("`{value}` is not between 1m and 24h")));
                    }
                }
                (Some((name, value)), Some(mail)) => mail.set(name, value).map_err(fault)?,
                _ => return Err(fault(format!("no setting `{word}`"))),
            }
        }
        let mail = mail.map(Words::complete).transpose().map_err(|message| (0, message))?;
        Ok(Some(Self { lifetime, mail }))
    }
}

impl Words {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let path = || match value.starts_with('/') {
            true => Ok(Some(PathBuf::from(value))),
            false => Err(format!("{name}={value} is not an absolute path")),
        };
        match name.to_ascii_lowercase().as_str() {
            "server" => self.server = Some(MailServer::parse(value)?),
            "from" => self.from = Some(address(value)?.to_owned()),
            "url" if value.starts_with("https://") || value.starts_with("http://") => {
                self.url = Some(value.trim_end_matches('/').to_owned());
            }
            "url" => return Err(format!("url={value} does not begin with https://")),
            "binddn" => self.bind_dn = Some(value.to_owned()),
            "passfile" => self.password_file = path()?,
            "user" => self.user = Some(value.to_owned()),
            "user-passfile" => self.user_password_file = path()?,
            "cacert" => self.authorities = path()?,
            _ => return Err(format!("no setting `{name}`")),
        }
        Ok(())
    }

    fn complete(self) -> Result<ResetMail, String> {
        let lacks = |name: &str| format!("mails need {name}=");
        let login = match (self.user, self.user_password_file) {
            (Some(user), Some(file)) => Some((user, file)),
            (None, None) => None,
            _ => return Err("user= and user-passfile= belong together".to_owned()),
        };
        Ok(ResetMail {
            server: self.server.ok_or_else(|| lacks("server"))?,
            from: self.from.ok_or_else(|| lacks("from"))?,
            url: self.url.ok_or_else(|| lacks("url"))?,
            bind_dn: self.bind_dn.ok_or_else(|| lacks("binddn"))?,
            password_file: self.password_file.ok_or_else(|| lacks("passfile"))?,
            login,
            authorities: self.authorities.unwrap_or_else(|| MailServer::AUTHORITIES.into()),
        })
    }
}

impl MailServer {
    /// The authorities of Debian, and of the container image.
    pub const AUTHORITIES: &'static str = "/etc/ssl/certs/ca-certificates.crt";
    const PORT: u16 = 25;
    const PORT_TLS: u16 = 465;

    fn parse(url: &str) -> Result<Self, String> {
        let wrong = || format!("server={url} is not such as smtp://localhost:25 or smtps://mail.example.com");
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "smtp" => false,
            "smtps" => true,
            _ => return Err(wrong()),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            // An IPv6 address without a port.
            Some(_) if rest.ends_with(']') => (rest, None),
            Some((host, port)) => (host, Some(port.parse().map_err(|_| wrong())?)),
            None => (rest, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['/', '@', ' ']) {
            return Err(wrong());
        }
        let is_local = host.eq_ignore_ascii_case("localhost")
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        let security = match (tls, is_local) {
            (true, _) => MailSecurity::Tls,
            (false, true) => MailSecurity::None,
            (false, false) => MailSecurity::StartTls,
        };
        let usual = if tls { Self::PORT_TLS } else { Self::PORT };
        Ok(Self { host: host.to_owned(), port: port.unwrap_or(usual), security })
    }
}

/// An address as a mail server takes it: no line break and no bracket can end it early.
fn address(text: &str) -> Result<&str, String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>,;:\"\\()[]".contains(&byte));
    match text.split_once('@') {
        Some((name, domain)) if plain && !name.is_empty() && !domain.is_empty() && !domain.contains('@') => {
            Ok(text)
        }
        _ => Err(format!("`{text}` is not a mail address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "mail from=a@b url=https://d:9390/ binddn=cn=r passfile=/p";

    #[test]
    fn a_reset_is_read_and_its_mistakes_are_named() {
        let parse = |line: &str| PasswordReset::parse(line.split(' '));
        for (line, expected) in [
            ("off", None),
            ("OFF", None),
            ("code", Some(900)),
            ("Code Lifetime=1h", Some(3_600)),
            ("code lifetime=60", Some(60)),
            ("code lifetime=24h", Some(86_400)),
        ] {
            let reset = parse(line).unwrap();
            assert!(reset.as_ref().is_none_or(|reset| reset.mail.is_none()), "{line}");
            assert_eq!(reset.map(|reset| reset.lifetime), expected, "{line}");
        }
        for (line, number, part) in [
            ("", 0, "no way to reset"),
            ("post", 0, "`post` is no way to reset"),
            ("off lifetime=5m", 1, "no meaning behind `off`"),
            ("code lifetime=59s", 1, "between 1m and 24h"),
            ("code lifetime=25h", 1, "between 1m and 24h"),
            ("code lifetime=soon", 1, "not a time"),
            ("code lifetime", 1, "no setting `lifetime`"),
            ("code server=smtp://localhost", 1, "no setting `server=smtp://localhost`"),
            ("mail", 0, "mails need server="),
            ("mail server=localhost", 1, "is not such as smtp://localhost:25"),
            ("mail server=smtp://a:b", 1, "is not such as"),
            ("mail from=nobody", 1, "`nobody` is not a mail address"),
            ("mail from=a@b>", 1, "is not a mail address"),
            ("mail url=directory", 1, "does not begin with https://"),
            ("mail passfile=p", 1, "is not an absolute path"),
            ("mail server=smtp://localhost from=a@b url=https://d binddn=cn=r", 0, "mails need passfile="),
            (
                "mail server=smtp://a from=a@b url=https://d binddn=cn=r passfile=/p user=x",
                0,
                "belong together",
            ),
            ("mail colour=red", 1, "no setting `colour`"),
        ] {
            let (at, message) = parse(line).unwrap_err();
            assert!(at == number && message.contains(part), "{line}: {at} {message}");
        }
    }

    #[test]
    fn mail_servers() {
        for (url, host, port, security) in [
            ("smtp://localhost", "localhost", 25, MailSecurity::None),
            ("smtp://127.0.0.1:2525", "127.0.0.1", 2525, MailSecurity::None),
            ("smtp://[::1]:26/", "::1", 26, MailSecurity::None),
            ("SMTP://mail.example.com:587", "mail.example.com", 587, MailSecurity::StartTls),
            ("smtps://mail.example.com", "mail.example.com", 465, MailSecurity::Tls),
        ] {
            let line = format!("{MAIL} server={url} lifetime=5m");
            let reset = PasswordReset::parse(line.split(' ')).unwrap().unwrap();
            let mail = reset.mail.unwrap();
            assert_eq!(mail.server, MailServer { host: host.to_owned(), port, security }, "{url}");
            assert_eq!((mail.url.as_str(), mail.bind_dn.as_str()), ("https://d:9390", "cn=r"));
        }
    }
}

//! The client's side: a proof of the password for a server's challenge, and of the server's own knowledge of it. No layer
//! is put on: TLS does that.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::response::{pair, quoted};
use super::{Quality, Response, response_value, session_hash};
use crate::{Fault, TEXT_MESSAGE_MAX};

/// A response that was sent, and what its right answer shows.
#[derive(Debug)]
pub struct Client {
    response: Response,
    session: Zeroizing<[u8; 16]>,
}

/// The name that binds, and where.
#[derive(Debug, Clone, Copy)]
pub struct ClientParameters<'a> {
    pub username: &'a str,
    /// Empty: the first that the server names.
    pub realm: &'a str,
    /// Whom to act as; empty: the user.
    pub authzid: &'a str,
    /// The server's name as it was asked for.
    pub host: &'a str,
    /// Characters that need no quoting.
    pub nonce: &'a str,
}

impl Client {
    /// Answers a challenge.
    ///
    /// # Errors
    /// If the challenge is not of the grammar, or asks for a layer.
    pub fn respond(
        challenge: &[u8],
        parameters: ClientParameters<'_>,
        password: &[u8],
    ) -> Result<Self, Fault> {
        if challenge.len() > TEXT_MESSAGE_MAX {
            return Err(Fault::TooLong { limit: TEXT_MESSAGE_MAX });
        }
        let text = std::str::from_utf8(challenge).map_err(|_| Fault::Malformed("UTF-8"))?;
        let (mut nonce, mut realm, mut algorithm, mut utf_8) = (None, None, None, false);
        let mut qualities = "auth".to_owned();
        let mut rest = text.trim_start_matches([',', ' ']);
        while !rest.is_empty() {
            let (name, value, after) = pair(rest)?;
            rest = after;
            match name.as_str() {
                "nonce" if nonce.is_some() => return Err(Fault::Malformed("a nonce given once")),
                "nonce" => nonce = Some(value),
                "realm" => realm = realm.or(Some(value)),
                "qop" => qualities = value,
                "charset" => utf_8 = value.eq_ignore_ascii_case("utf-8"),
                "algorithm" => algorithm = Some(value),
                _ => {}
            }
        }
        if algorithm.as_deref() != Some("md5-sess") {
            return Err(Fault::Unsupported("the algorithm is"));
        }
        if !qualities.split(',').any(|quality| quality.trim().eq_ignore_ascii_case("auth")) {
            return Err(Fault::Unsupported("a layer is asked for, which is"));
        }
        let realm =
            if parameters.realm.is_empty() { realm.unwrap_or_default() } else { parameters.realm.to_owned() };
        let mut response = Response {
            username: parameters.username.to_owned(),
            realm,
            authzid: (!parameters.authzid.is_empty()).then(|| parameters.authzid.to_owned()),
            nonce: nonce.filter(|nonce| !nonce.is_empty()).ok_or(Fault::Malformed("a nonce"))?,
            client_nonce: parameters.nonce.to_owned(),
            count: 1,
            quality: Some(Quality::Auth.name().to_owned()),
            uri: format!("ldap/{}", parameters.host),
            utf_8,
            ..Response::default()
        };
        let session = session_hash(&response, password);
        response.digest = response_value(&session, &response, Quality::Auth, "AUTHENTICATE");
        Ok(Self { response, session })
    }

    /// What is sent.
    pub fn message(&self) -> String {
        let Response { username, realm, nonce, client_nonce, uri, digest, .. } = &self.response;
        let charset = if self.response.utf_8 { "charset=utf-8," } else { "" };
        let authzid = self.response.authzid.as_deref();
        let authzid = authzid.map_or_else(String::new, |id| format!(",authzid=\"{}\"", quoted(id)));
        format!(
            "{charset}username=\"{}\",realm=\"{}\",nonce=\"{}\",cnonce=\"{client_nonce}\",nc=00000001,qop=auth,\
             digest-uri=\"{}\",response={digest}{authzid}",
            quoted(username),
            quoted(realm),
            quoted(nonce),
            quoted(uri)
        )
    }

    /// Judges the server's last word.
    ///
    /// # Errors
    /// If it does not show that the server knows the password.
    pub fn verify(&self, answer: &[u8]) -> Result<(), Fault> {
        let text = std::str::from_utf8(answer).map_err(|_| Fault::Malformed("UTF-8"))?;
        let (name, value, _) = pair(text.trim())?;
        let expected = response_value(&self.session, &self.response, Quality::Auth, "");
        match name == "rspauth" && bool::from(value.as_bytes().ct_eq(expected.as_bytes())) {
            true => Ok(()),
            false => Err(Fault::Peer),
        }
    }
}

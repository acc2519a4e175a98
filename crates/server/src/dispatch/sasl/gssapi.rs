//! GSSAPI (RFC 4752): Kerberos V5 by the system's library, with its integrity and confidentiality layers.
//!
//! The service's key comes from the keytab that the library finds (`KRB5_KTNAME`), for `ldap@` and `sasl-host`. Reading it
//! and the replay cache touch the disk: each step of an exchange runs on the password pool.

use larix_configuration::values::{ChannelBinding, Mechanism};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use libgssapi::context::{CtxFlags, SecurityContext, ServerCtx};
use libgssapi::credential::{Cred, CredUsage};
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE, OidSet};

use super::exchange::{Claim, State};
use super::{Prepared, SaslOutcome, failure, malformed};
use crate::dispatch::bind::BindStep;
use crate::dispatch::{Completion, Dispatcher, RequestInFlight};
use crate::sasl_mechanisms::{self, MechanismContext};
use crate::security_layer::{LayerError, SecurityLayer};

/// Strength of an encrypting layer: the library does not tell, and no current key is weaker than AES with 128 bits.
const CONFIDENTIALITY_SSF: u32 = 128;
/// What a wrapped message has at most beside its content, in bytes.
const WRAP_OVERHEAD: usize = 256;
/// Longest authorization identity, in bytes.
const AUTHZID_MAX: usize = 8192;

const NO_LAYER: u8 = 1;
const INTEGRITY: u8 = 2;
const CONFIDENTIALITY: u8 = 4;

/// The server's side of an exchange.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// Without a credential before the first step.
    context: Option<ServerCtx>,
    /// `sasl-host`.
    host: Option<String>,
    /// Data of the channel binding that is configured.
    binding: Option<Vec<u8>>,
    /// Layers that may be chosen.
    layers: u8,
    /// Largest buffer that is read.
    buffer: usize,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The security context is being established.
    Context,
    /// It stands, and the client has its last token: now the layers are negotiated.
    Established,
    /// The client is to choose a layer.
    Negotiating,
}

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Step {
    Challenge(Vec<u8>),
    Done {
        /// `user`, or `user@REALM` of another realm than the server's.
        principal: String,
        authzid: String,
        layer: Option<GssLayer>,
    },
    /// Why the client is not let in; what the library says is for the log.
    Failed(String),
    Malformed(&'static str),
}

impl Acceptor {
    /// Takes the client's token.
    fn step(&mut self, token: &[u8]) -> Step {
        match self.phase {
            Phase::Context => self.establish(token),
            Phase::Established if token.is_empty() => self.offer_layers(),
            Phase::Established => Step::Malformed("an empty message"),
            Phase::Negotiating => self.choose(token),
        }
    }

    fn establish(&mut self, token: &[u8]) -> Step {
        if self.context.is_none() {
            match credential(self.host.as_deref()) {
                Ok(credential) => self.context = Some(ServerCtx::new(Some(credential))),
                Err(error) => return Step::Failed(format!("GSSAPI Error: no credential: {error}")),
            }
        }
        let Some(context) = &mut self.context else { return Step::Malformed("a context") };
        match context.step(token, self.binding.as_deref()) {
            Err(error) => Step::Failed(format!("GSSAPI Failure: gss_accept_sec_context: {error}")),
            Ok(answer) => {
                if context.is_complete() {
                    self.phase = Phase::Established;
                }
                match answer {
                    Some(answer) => Step::Challenge(answer.to_vec()),
                    None if self.phase == Phase::Established => self.offer_layers(),
                    None => Step::Challenge(Vec::new()),
                }
            }
        }
    }

    fn offer_layers(&mut self) -> Step {
        let Some(context) = &mut self.context else { return Step::Malformed("a context") };
        let flags = context.flags().unwrap_or(CtxFlags::empty());
        if !flags.contains(CtxFlags::GSS_C_INTEG_FLAG) {
            self.layers &= !(INTEGRITY | CONFIDENTIALITY);
        }
        if !flags.contains(CtxFlags::GSS_C_CONF_FLAG) {
            self.layers &= !CONFIDENTIALITY;
        }
        let buffer = if self.layers & (INTEGRITY | CONFIDENTIALITY) == 0 { 0 } else { self.buffer };
        let [_, high, middle, low] = u32::try_from(buffer).unwrap_or(0).to_be_bytes();
        match context.wrap(false, &[self.layers, high, middle, low]) {
            Ok(wrapped) => {
                self.phase = Phase::Negotiating;
                Step::Challenge(wrapped.to_vec())
            }
            Err(error) => Step::Failed(format!("GSSAPI Failure: gss_wrap: {error}")),
        }
    }

    fn choose(&mut self, token: &[u8]) -> Step {
        let Some(mut context) = self.context.take() else { return Step::Malformed("a context") };
        let plain = match context.unwrap(token) {
            Ok(plain) => plain,
            Err(error) => return Step::Failed(format!("GSSAPI Failure: gss_unwrap: {error}")),
        };
        let Some(([layer, high, middle, low], authzid)) = plain.split_first_chunk::<4>() else {
            return Step::Malformed("a layer and a size");
        };
        if layer.count_ones() != 1 || self.layers & layer == 0 {
            return Step::Malformed("one of the layers offered");
        }
        let authzid = match std::str::from_utf8(authzid) {
            Ok(authzid) if authzid.len() <= AUTHZID_MAX => authzid.to_owned(),
            _ => return Step::Malformed("an authorization identity"),
        };
        let names = context.source_name().and_then(|source| Ok((source, context.target_name()?)));
        let text = |name: &Name| name.display_name().map(|name| String::from_utf8_lossy(&name).into_owned());
        let names = names.and_then(|(source, target)| Ok((text(&source)?, text(&target)?)));
        let principal = match names {
            Ok((source, target)) => principal(&source, &target),
            Err(error) => return Step::Failed(format!("GSSAPI Failure: gss_display_name: {error}")),
        };
        let peer = usize::try_from(u32::from_be_bytes([0, *high, *middle, *low])).unwrap_or(0);
        let layer = (*layer != NO_LAYER).then_some(GssLayer {
            context,
            encrypts: *layer == CONFIDENTIALITY,
            send_max: peer.saturating_sub(WRAP_OVERHEAD).max(1),
            receive_max: self.buffer,
        });
        Step::Done { principal, authzid, layer }
    }
}

fn credential(host: Option<&str>) -> Result<Cred, libgssapi::error::Error> {
    let name = host.map(|host| Name::new(format!("ldap@{host}").as_bytes(), Some(GSS_NT_HOSTBASED_SERVICE)));
    let mut mechanisms = OidSet::new();
    mechanisms.add(GSS_MECH_KRB5)?;
    Cred::acquire(name.transpose()?.as_ref(), None, CredUsage::Accept, Some(&mechanisms))
}

/// The client's name without the realm that it shares with the server.
fn principal(source: &str, target: &str) -> String {
    let realm = target.rsplit_once('@').map(|(_, realm)| realm);
    match source.rsplit_once('@') {
        Some((user, own)) if Some(own) == realm => user.to_owned(),
        _ => source.to_owned(),
    }
}

impl Dispatcher {
    pub(super) fn gssapi_begin(
        &mut self,
        in_flight: RequestInFlight,
        token: &[u8],
    ) -> Result<BindStep, LdapResult> {
        if token.is_empty() {
            return Ok(self.challenge(Mechanism::Gssapi, State::Begin, Vec::new()));
        }
        let acceptor = {
            let config = self.server.config();
            let settings = &config.global.sasl;
            let properties = &settings.properties;
            let external = MechanismContext::of_subject(self.session.subject(), settings).external_ssf;
            let least = properties.min_ssf.saturating_sub(external);
            let most = properties.max_ssf.saturating_sub(external);
            let buffer = usize::try_from(properties.max_buffer.min(0x00ff_ffff)).unwrap_or(0);
            let layers = [(NO_LAYER, 0), (INTEGRITY, 1), (CONFIDENTIALITY, CONFIDENTIALITY_SSF)];
            let fits = |(_, ssf): &(u8, u32)| (least..=most).contains(ssf) && (*ssf == 0 || buffer > 0);
            let layers = layers.into_iter().filter(fits).fold(0, |all, (layer, _)| all | layer);
            // A client that binds otherwise is refused, one that does not bind at all is the library's affair (MIT's lets
            // it in): only where it was asked for.
            let binding = match settings.channel_binding {
                ChannelBinding::Any | ChannelBinding::None => None,
                configured => self.session.tls.as_deref().map(|tls| {
                    match sasl_mechanisms::channels(tls, configured).into_iter().next() {
                        Some((name, data)) => [format!("{name}:").as_bytes(), &data].concat(),
                        // The channel has no such data: no client can bind to it, so all are refused.
                        None => b"none:".to_vec(),
                    }
                }),
            };
            let host = settings.host.clone();
            Acceptor { context: None, host, binding, layers, buffer, phase: Phase::Context }
        };
        self.gssapi_continue(in_flight, Box::new(acceptor), token)
    }

    pub(super) fn gssapi_continue(
        &mut self,
        in_flight: RequestInFlight,
        mut acceptor: Box<Acceptor>,
        token: &[u8],
    ) -> Result<BindStep, LdapResult> {
        let token = token.to_vec();
        let completer = self.completer(&in_flight);
        let job = move || {
            let step = acceptor.step(&token);
            completer.complete(Completion::Sasl(Box::new(SaslOutcome(Prepared::Gssapi(acceptor, step)))));
        };
        // The ticket's owner is not known yet: the peer's address stands for it.
        let source = self.job_source(&NormalDn::root());
        self.server.passwords.submit(source, job).map_err(|_| {
            LdapResult::with(ResultCode::BUSY, "too many binds wait for their tickets' check")
        })?;
        self.wait_for(in_flight);
        Ok(BindStep::Waiting)
    }

    pub(super) fn gssapi_stepped(
        &mut self,
        in_flight: &RequestInFlight,
        acceptor: Box<Acceptor>,
        step: Step,
    ) -> Result<BindStep, LdapResult> {
        match step {
            Step::Challenge(token) => Ok(self.challenge(Mechanism::Gssapi, State::Gssapi(acceptor), token)),
            Step::Failed(why) => Err(failure(&why)),
            Step::Malformed(what) => Err(malformed(&format!("malformed message: {what}"))),
            Step::Done { principal, authzid, layer } => {
                let claim: Claim = self.claim(Mechanism::Gssapi, &principal, &authzid)?;
                let layer = layer.map(|layer| -> Box<dyn SecurityLayer> { Box::new(layer) });
                self.conclude_claim(in_flight, Mechanism::Gssapi, claim, true, None, layer)
            }
        }
    }
}

/// The layer that was chosen.
#[derive(Debug)]
pub(crate) struct GssLayer {
    context: ServerCtx,
    encrypts: bool,
    send_max: usize,
    receive_max: usize,
}

impl SecurityLayer for GssLayer {
    fn unwrap(&mut self, buffer: &[u8], plain: &mut Vec<u8>) -> Result<(), LayerError> {
        let unwrapped = self.context.unwrap(buffer);
        let unwrapped = unwrapped.map_err(|error| LayerError::Mechanism(error.to_string()))?;
        plain.extend_from_slice(&unwrapped);
        Ok(())
    }

    fn wrap(&mut self, plain: &[u8], buffer: &mut Vec<u8>) -> Result<(), LayerError> {
        let wrapped = self.context.wrap(self.encrypts, plain);
        let wrapped = wrapped.map_err(|error| LayerError::Mechanism(error.to_string()))?;
        buffer.extend_from_slice(&wrapped);
        Ok(())
    }

    fn send_max(&self) -> usize {
        self.send_max
    }

    fn receive_max(&self) -> usize {
        self.receive_max
    }

    fn ssf(&self) -> u32 {
        if self.encrypts { CONFIDENTIALITY_SSF } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_lose_the_server_s_own_realm() {
        for (source, target, expected) in [
            ("ann@X", "ldap/host@X", "ann"),
            ("ann/admin@X", "ldap/host@X", "ann/admin"),
            ("ann@Y", "ldap/host@X", "ann@Y"),
            ("ann", "ldap/host@X", "ann"),
        ] {
            assert_eq!(principal(source, target), expected);
        }
    }
}

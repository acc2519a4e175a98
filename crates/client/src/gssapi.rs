//! GSSAPI (RFC 4752) with the ticket that the system's library finds (`KRB5CCNAME`, or a keytab for clients). No layer is
//! put on: TLS does that.

use larix_proto::ResultCode;
use libgssapi::context::{ClientCtx, CtxFlags, SecurityContext as _};
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE};

use crate::error::ClientError;
use crate::sasl::SaslPassword;
use crate::session::{Reply, Session};

const NO_LAYER: u8 = 1;
/// More tokens than any exchange has.
const STEPS: usize = 16;

impl SaslPassword {
    pub(crate) fn gssapi(&self, session: &mut Session) -> Result<Reply, ClientError> {
        let failed = |what: &str, error: libgssapi::error::Error| ClientError::Input {
            name: "GSSAPI".to_owned(),
            why: format!("{what}: {error}"),
        };
        let target = format!("ldap@{}", session.connection.host());
        let target = Name::new(target.as_bytes(), Some(GSS_NT_HOSTBASED_SERVICE));
        let target = target.map_err(|error| failed("the server's name", error))?;
        let flags = CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_SEQUENCE_FLAG | CtxFlags::GSS_C_INTEG_FLAG;
        let mut context = ClientCtx::new(None, target, flags, Some(GSS_MECH_KRB5));
        let mut token: Option<Vec<u8>> = None;
        for _ in 0..STEPS {
            let answer = match context.is_complete() {
                true => None,
                false => context.step(token.as_deref(), None).map_err(|error| failed("no ticket", error))?,
            };
            let Some(answer) = answer else {
                if !context.is_complete() {
                    return Err(ClientError::Unexpected("a token that leads to nothing"));
                }
                break;
            };
            let reply = self.step(session, Some(&answer))?;
            if reply.result.code != ResultCode::SASL_BIND_IN_PROGRESS {
                return Ok(reply);
            }
            token = Some(reply.value.unwrap_or_default());
            if context.is_complete() {
                // The server had nothing more to say of the context: this is its offer of layers.
                return self.choose_no_layer(session, &mut context, &token.unwrap_or_default());
            }
        }
        let reply = self.step(session, Some(&[]))?;
        if reply.result.code != ResultCode::SASL_BIND_IN_PROGRESS {
            return Ok(reply);
        }
        self.choose_no_layer(session, &mut context, &reply.value.unwrap_or_default())
    }

    fn choose_no_layer(
        &self,
        session: &mut Session,
        context: &mut ClientCtx,
        offer: &[u8],
    ) -> Result<Reply, ClientError> {
        let failed = |error: libgssapi::error::Error| ClientError::Input {
            name: "GSSAPI".to_owned(),
            why: format!("the offer of layers: {error}"),
        };
        let offer = context.unwrap(offer).map_err(failed)?;
        if offer.first().is_none_or(|layers| layers & NO_LAYER == 0) {
            return Err(ClientError::Input {
                name: "GSSAPI".to_owned(),
                why: "the server demands a layer; use TLS, which counts as one".to_owned(),
            });
        }
        let choice = [&[NO_LAYER, 0, 0, 0], self.authorization.as_bytes()].concat();
        let choice = context.wrap(false, &choice).map_err(failed)?;
        self.step(session, Some(&choice))
    }
}

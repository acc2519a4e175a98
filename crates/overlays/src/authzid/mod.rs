//! `overlay authzid`: a bind tells the identity that it has established, to who asks for it (RFC 3829).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_backend::{Bind, BoundSession, Context, Interceptor, Later, Next, Operations, Reply, Verdict};
use larix_engine::controls::{OperationKind, OverlayControl};
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor};
use larix_proto::{ControlBuf, oid};

pub static DESCRIPTOR: Descriptor = Descriptor::in_front("authzid", "olcOverlayConfig").once();

static CONTROLS: [OverlayControl; 1] = [OverlayControl {
    oid: oid::AUTHORIZATION_IDENTITY_REQUEST,
    name: "authzid",
    // As in OpenLDAP.
    listed: false,
    goes_with: |operation| operation == OperationKind::Bind,
    fault: |value| value.map(|_| "not absent"),
}];

/// The overlay in front of all databases.
#[derive(Debug)]
struct AuthorizationIdentity;

/// # Errors
/// An overlay of a database: identities are the whole server's.
pub fn build(_: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError> {
    if !context.suffixes.is_empty() {
        let error = SettingError::new("overlay authzid: binds are told apart by no database");
        return Err(error.with_help("move `overlay authzid` before the first `database` line"));
    }
    Ok(Arc::new(AuthorizationIdentity))
}

impl Interceptor for AuthorizationIdentity {
    fn requests(&self) -> Operations {
        Operations::BIND
    }

    /// Another server that judges the bind may not know the control, or would answer it, too.
    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        if bind.controls.of_overlay(oid::AUTHORIZATION_IDENTITY_REQUEST).is_none() {
            return next.bind(context, bind, later);
        }
        let controls = bind.controls.without(oid::AUTHORIZATION_IDENTITY_REQUEST);
        next.bind(context, &Bind { controls: &controls, ..*bind }, later)
    }

    fn controls(&self) -> &'static [OverlayControl] {
        &CONTROLS
    }

    fn bound(&self, bound: &BoundSession<'_>) -> Vec<ControlBuf> {
        if bound.controls.of_overlay(oid::AUTHORIZATION_IDENTITY_REQUEST).is_none() {
            return Vec::new();
        }
        let name = bound.subject.shown_dn();
        let identity = if name.is_empty() { String::new() } else { format!("dn:{name}") };
        let oid = oid::AUTHORIZATION_IDENTITY_RESPONSE.into();
        vec![ControlBuf { oid, critical: false, value: Some(identity.into_bytes()) }]
    }
}

//! Directives of the balancer, `backend lload`: what they mean is said in [`crate::balancer`].

use super::super::balancer::{self, WrongAt};
use super::super::builder::call::{Call, Fault};
use super::super::builder::directive::{Apply, BalancerPart};
use super::super::builder::{Builder, Section};
use super::{Directive, Form, Scope};

const ONE_THREAD: &str = "one thread forwards everything";

/// A keyword of the balancer itself.
const fn own(keyword: &'static str, attribute: &'static str, form: Form) -> Directive {
    Directive::new(keyword, attribute, Scope::Balancer(BalancerPart::Whole), form, apply)
}

/// An attribute of a server's entry; the keyword is its key in `backend-server`, and no keyword of a file.
const fn of_server(key: &'static str, attribute: &'static str) -> Directive {
    Directive::new(key, attribute, Scope::Balancer(BalancerPart::Backend), Form::Own, server_key)
        .arguments(1, 1)
}

/// A number that says nothing here.
const fn counted(keyword: &'static str, attribute: &'static str, why: &'static str) -> Directive {
    let apply: Apply = |_, call| call.number::<u32>(0).map(|_| ());
    Directive::new(keyword, attribute, Scope::Balancer(BalancerPart::Whole), Form::Whole, apply).noted(why)
}

pub(super) static TABLE: &[Directive] = &[
    own("bindconf", "olcBkLloadBindconf", Form::Words),
    counted("io-threads", "olcBkLloadIOThreads", ONE_THREAD),
    own("sockbuf_max_incoming_client", "olcBkLloadSockbufMaxClient", Form::Whole),
    own("sockbuf_max_incoming_upstream", "olcBkLloadSockbufMaxUpstream", Form::Whole),
    own("sockbuf_max_pending_client", "olcBkLloadSockbufMaxPendingClient", Form::Whole),
    counted("max_pdus_per_cycle", "olcBkLloadMaxPDUPerCycle", "every connection has its turn after one read"),
    own("iotimeout", "olcBkLloadIOTimeout", Form::Whole),
    own("idletimeout", "olcBkLloadIdleTimeout", Form::Whole),
    own("client_max_pending", "olcBkLloadClientMaxPending", Form::Whole),
    own("write_coherence", "olcBkLloadWriteCoherence", Form::Whole),
    own("restrict_exop", "olcBkLloadRestrictExop", Form::Words).arguments(2, 2).many(),
    own("restrict_control", "olcBkLloadRestrictControl", Form::Words).arguments(2, 2).many(),
    Directive::new("listen", "olcBkLloadListen", Scope::Balancer(BalancerPart::Whole), Form::Own, listen)
        .many(),
    feature("enable", "olcBkLloadFeatureEnable").attribute_alias(&["olcBkLloadFeature"]),
    feature("disable", "olcBkLloadFeatureDisable"),
    feature("feature", ""),
    own("TLSCACertificateFile", "olcBkLloadTLSCACertificateFile", Form::Whole),
    own("TLSCACertificatePath", "olcBkLloadTLSCACertificatePath", Form::Whole),
    own("TLSCertificateFile", "olcBkLloadTLSCertificateFile", Form::Whole),
    own("TLSCertificateKeyFile", "olcBkLloadTLSCertificateKeyFile", Form::Whole),
    own("TLSCipherSuite", "olcBkLloadTLSCipherSuite", Form::Whole),
    own("TLSCRLCheck", "olcBkLloadTLSCRLCheck", Form::Whole),
    own("TLSCRLFile", "olcBkLloadTLSCRLFile", Form::Whole),
    own("TLSECName", "olcBkLloadTLSECName", Form::Whole),
    own("TLSProtocolMin", "olcBkLloadTLSProtocolMin", Form::Whole),
    own("TLSVerifyClient", "olcBkLloadVerifyClient", Form::Whole),
    own("TLSShareSlapdCTX", "olcBkLloadTLSShareSlapdCTX", Form::Switch),
    own("TLSRandFile", "olcBkLloadTLSRandFile", Form::Whole).noted("random bytes come from the system"),
    own("TLSDHParamFile", "olcBkLloadTLSDHParamFile", Form::Whole)
        .noted("key exchange is by elliptic curves"),
    own("tcp-buffer", "olcBkLloadTcpBuffer", Form::Words)
        .noted("the system chooses the buffers of the balancer's connections"),
    own("tier", "", Form::Words).arguments(1, 1),
    own("backend-server", "", Form::Words),
    // Of entries below.
    Directive::new("type", "olcBkLloadTierType", Scope::Balancer(BalancerPart::Tier), Form::Own, tier_type)
        .arguments(1, 1),
    of_server("uri", "olcBkLloadBackendUri"),
    of_server("numconns", "olcBkLloadNumconns"),
    of_server("bindconns", "olcBkLloadBindconns"),
    of_server("retry", "olcBkLloadRetry"),
    of_server("max-pending-ops", "olcBkLloadMaxPendingOps"),
    of_server("conn-max-pending", "olcBkLloadMaxPendingConns"),
    of_server("starttls", "olcBkLloadStartTLS"),
    of_server("weight", "olcBkLloadWeight"),
    of_server("proxyprotocol", "olcLarixBkLloadProxyProtocol"),
];

const fn feature(keyword: &'static str, attribute: &'static str) -> Directive {
    Directive::new(keyword, attribute, Scope::Balancer(BalancerPart::Whole), Form::Own, features).many()
}

fn fault((at, wrong): WrongAt) -> Fault {
    let fault = match at {
        Some(number) => Fault::argument(number, wrong.message),
        None => Fault::keyword(wrong.message),
    };
    if wrong.help.is_empty() { fault } else { fault.with_help(wrong.help) }
}

fn apply(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    balancer::take(builder.balancer()?, call.directive.keyword, call.arguments).map_err(fault)
}

fn listen(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    apply(builder, call)?;
    let urls = call.arguments.iter().flat_map(|word| word.split_ascii_whitespace());
    let settings = builder.settings(call.directive);
    urls.for_each(|url| settings.add("olcBkLloadListen", url.as_bytes().to_vec()));
    Ok(())
}

/// `enable` and `disable`: the last line holds. An entry has no last one.
fn features(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    apply(builder, call)?;
    let (enable, disable) = ("olcBkLloadFeatureEnable", "olcBkLloadFeatureDisable");
    let (own, other) =
        if call.directive.keyword == "disable" { (disable, enable) } else { (enable, disable) };
    let from_entries = builder.from_entries;
    let settings = builder.settings(call.directive);
    for (at, name) in call.arguments.iter().enumerate() {
        let value = name.to_ascii_lowercase().into_bytes();
        let is_other = settings.get(other).contains(&value);
        if is_other && from_entries {
            let message = format!("the feature `{name}` is enabled and disabled");
            let help = format!("take it out of {enable}, or out of {disable}");
            return Err(Fault::argument(at, message).with_help(help));
        }
        settings.take_out(other, &value);
        if !settings.get(own).contains(&value) {
            settings.add(own, value);
        }
    }
    Ok(())
}

fn tier_type(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let strategy = balancer::strategy(call.argument(0)?).map_err(|wrong| fault((Some(0), wrong)))?;
    if let Some(tier) = builder.balancer()?.tiers.last_mut() {
        tier.strategy = strategy;
    }
    Ok(())
}

fn server_key(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let value = call.argument(0)?;
    let server = builder.balancer()?.tiers.last_mut().and_then(|tier| tier.backends.last_mut());
    let Some(server) = server else { return Err(Fault::keyword("there is no server to set")) };
    balancer::server_key(server, call.directive.keyword, value).map_err(|wrong| fault((Some(0), wrong)))
}

impl Builder {
    /// The balancer, if its section is open.
    fn balancer(&mut self) -> Result<&mut balancer::BalanceSettings, Fault> {
        let is_open = match self.section {
            Section::Backend(number) => {
                self.backends.get(number).is_some_and(|backend| backend.name == balancer::MODULE)
            }
            Section::BalancerPart(_) => true,
            _ => false,
        };
        let settings = self.global.balancer.as_mut().filter(|_| is_open);
        settings.ok_or_else(|| Fault::keyword("only allowed after `backend lload`"))
    }
}

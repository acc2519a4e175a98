//! Directives of the server as a whole.

use std::time::Duration;

use larix_proto::url::LdapUrl;

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::line::c_integer;
use super::super::values::{
    AdminAddress, Allowed, AuthzPolicy, AuthzRegexp, BackupSchedule, ChannelBinding, ClientLimits,
    Disallowed, LinePrefix, LogFormat, LogLevel, LogRotation, Mechanism, PasswordReset, SecurityProperties,
    ServerId, TcpBuffer, TlsVerify, TraceExport, http_address, request_words,
};
use super::{Directive, Form, MANY, Scope};

const NO_CYRUS: &str = "SASL is built in and does not use Cyrus SASL";
const NO_KNOB: &str = "the server runs one event loop a core";
const NO_INDEX_KNOB: &str = "indexes need no tuning";

pub(super) static TABLE: &[Directive] = &[
    Directive::new("argsfile", "olcArgsFile", Scope::Global, Form::Whole, |b, c| {
        b.global.args_file = Some(c.path(0)?);
        Ok(())
    }),
    Directive::new("pidfile", "olcPidFile", Scope::Global, Form::Whole, |b, c| {
        b.global.pid_file = Some(c.path(0)?);
        Ok(())
    }),
    Directive::new("loglevel", "olcLogLevel", Scope::Global, Form::Each, loglevel).many(),
    Directive::new("logfile", "olcLogFile", Scope::Global, Form::Whole, |b, c| {
        b.global.log_file = Some(c.path(0)?);
        Ok(())
    }),
    Directive::new("logfile-format", "olcLogFileFormat", Scope::Global, Form::Whole, |b, c| {
        // Lines of several machines are put in order by their times: one zone for all.
        let (debug, syslog) = (LinePrefix::Debug, LinePrefix::Syslog);
        b.global.log_prefix =
            c.choice(0, &[("debug", debug), ("syslog-utc", syslog), ("syslog-localtime", syslog)])?;
        Ok(())
    }),
    Directive::new("logfile-only", "olcLogFileOnly", Scope::Global, Form::Switch, |b, c| {
        b.global.log_file_only = c.switch()?;
        Ok(())
    }),
    Directive::new("logfile-rotate", "olcLogFileRotate", Scope::Global, Form::Words, |b, c| {
        let (files, megabytes, hours) = (c.number(0)?, c.number(1)?, c.number(2)?);
        let rotation = LogRotation::new(files, megabytes, hours)
            .map_err(|(number, message)| Fault::argument(number, message))?;
        b.global.log_rotation = Some(rotation);
        Ok(())
    })
    .arguments(3, 3),
    Directive::new("log-format", "olcLarixLogFormat", Scope::Global, Form::Whole, |b, c| {
        b.global.log_format = c.choice(0, &[("stats", LogFormat::Stats), ("json", LogFormat::Json)])?;
        Ok(())
    }),
    Directive::new("log-journal", "olcLarixLogJournal", Scope::Global, Form::Switch, |b, c| {
        b.global.log_journal = c.switch()?;
        Ok(())
    }),
    Directive::new("slow-operation", "olcLarixSlowOperation", Scope::Global, Form::Whole, |b, c| {
        let milliseconds: u32 = c.number(0)?;
        b.global.slow_operation = (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()));
        Ok(())
    }),
    Directive::new("trace-export", "olcLarixTraceExport", Scope::Global, Form::Words, |b, c| {
        let export = TraceExport::parse(c.arguments.iter().map(String::as_str));
        b.global.trace_export = Some(export.map_err(|(word, message)| {
            Fault::argument(word, message).with_help(format!("trace-export {}", TraceExport::WORDS))
        })?);
        Ok(())
    })
    .arguments(1, 2),
    Directive::new("replica-max-lag", "olcLarixReplicaMaxLag", Scope::Global, Form::Whole, |b, c| {
        let seconds: u32 = c.number(0)?;
        b.global.replica_max_lag = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        Ok(())
    }),
    Directive::new("serverID", "olcServerID", Scope::Global, Form::Words, server_id).arguments(1, 2).many(),
    Directive::new("idletimeout", "olcIdleTimeout", Scope::Global, Form::Whole, |b, c| {
        b.global.idle_timeout = c.int_from_zero(0)?;
        Ok(())
    }),
    Directive::new("writetimeout", "olcWriteTimeout", Scope::Global, Form::Whole, |b, c| {
        b.global.write_timeout = c.int_from_zero(0)?;
        Ok(())
    }),
    Directive::new("conn_max_pending", "olcConnMaxPending", Scope::Global, Form::Whole, |b, c| {
        b.global.conn_max_pending = c.int_from_zero(0)?;
        Ok(())
    }),
    Directive::new("conn_max_pending_auth", "olcConnMaxPendingAuth", Scope::Global, Form::Whole, |b, c| {
        b.global.conn_max_pending_auth = c.int_from_zero(0)?;
        Ok(())
    }),
    Directive::new("sockbuf_max_incoming", "olcSockbufMaxIncoming", Scope::Global, Form::Whole, |b, c| {
        b.global.sockbuf_max_incoming = c.number(0)?;
        Ok(())
    }),
    Directive::new(
        "sockbuf_max_incoming_auth",
        "olcSockbufMaxIncomingAuth",
        Scope::Global,
        Form::Whole,
        |b, c| {
            b.global.sockbuf_max_incoming_auth = c.number(0)?;
            Ok(())
        },
    ),
    Directive::new("backup-schedule", "olcLarixBackupSchedule", Scope::Global, Form::Words, |b, c| {
        let schedule = BackupSchedule::parse(c.arguments.iter().map(String::as_str));
        b.global.backup_schedule =
            Some(schedule.map_err(|(word, message)| {
                Fault::argument(word, message).with_help(BackupSchedule::WORDS)
            })?);
        Ok(())
    }),
    Directive::new("client-limits", "olcLarixClientLimits", Scope::Global, Form::Each, client_limits).many(),
    Directive::new("request-limits", "olcLarixRequestLimits", Scope::Global, Form::Each, request_limits)
        .many(),
    Directive::new("core-dumps", "olcLarixCoreDumps", Scope::Global, Form::Switch, |b, c| {
        b.global.core_dumps = c.switch()?;
        Ok(())
    }),
    Directive::new("http-listener", "olcLarixHttpListener", Scope::Global, Form::Whole, |b, c| {
        let address = http_address(c.argument(0)?)
            .map_err(|message| Fault::argument(0, message).with_help("for example http://127.0.0.1:9389/"))?;
        // Two spellings of one address are one listener. Port 0 is another port each time.
        if address.port() == 0 || !b.global.http_listeners.contains(&address) {
            b.global.http_listeners.push(address);
        }
        Ok(())
    })
    .many(),
    Directive::new("admin-listener", "olcLarixAdminListener", Scope::Global, Form::Words, |b, c| {
        let mut address = AdminAddress::parse(c.argument(0)?)
            .map_err(|message| Fault::argument(0, message).with_help("for example http://127.0.0.1:9390/"))?;
        address.names = c.arguments.iter().skip(1).map(|name| (*name).to_owned()).collect();
        let mut listeners = b.global.admin_listeners.iter();
        if let Some(other) =
            listeners.find(|other| address.address.port() != 0 && other.address == address.address)
        {
            return match *other == address {
                true => Ok(()),
                false => {
                    Err(Fault::argument(0, format!("another admin-listener has the address of {address}"))
                        .with_help("write one line with all its names"))
                }
            };
        }
        b.global.admin_listeners.push(address);
        Ok(())
    })
    .many(),
    Directive::new(
        "admin-password-reset",
        "olcLarixAdminPasswordReset",
        Scope::Global,
        Form::Words,
        |b, c| {
            let reset = PasswordReset::parse(c.arguments.iter().map(String::as_str));
            b.global.admin_password_reset = reset
                .map_err(|(word, message)| Fault::argument(word, message).with_help(PasswordReset::WORDS))?;
            Ok(())
        },
    ),
    Directive::new("maxFilterDepth", "olcMaxFilterDepth", Scope::Global, Form::Whole, |b, c| {
        if c.number::<i32>(0)? < 0 {
            let why = "a depth below 0 lets no filter through, so that nothing could be searched";
            return Err(Fault::argument(0, why)
                .with_help("1000 is usual; 0 lets filters through that have no filter within them"));
        }
        b.global.max_filter_depth = c.number(0)?;
        Ok(())
    }),
    Directive::new("referral", "olcReferral", Scope::Global, Form::Whole, |b, c| {
        b.global.referrals.push(referral(c)?);
        Ok(())
    })
    .many(),
    Directive::new("rootDSE", "olcRootDSE", Scope::Global, Form::Whole, |b, c| {
        b.global.root_dse_files.push(c.path(0)?);
        Ok(())
    })
    .many(),
    Directive::new("allow", "olcAllows", Scope::GlobalFirst, Form::Each, allow)
        .alias(&["allows"])
        .prefix(5)
        .many(),
    Directive::new("disallow", "olcDisallows", Scope::GlobalFirst, Form::Each, disallow)
        .alias(&["disallows"])
        .prefix(8)
        .many(),
    Directive::new("authz-policy", "olcAuthzPolicy", Scope::Global, Form::Whole, |b, c| {
        b.global.authz_policy = c.choice(
            0,
            &[
                ("none", AuthzPolicy::None),
                ("from", AuthzPolicy::From),
                ("to", AuthzPolicy::To),
                ("any", AuthzPolicy::Any),
                ("both", AuthzPolicy::Any),
                ("all", AuthzPolicy::All),
            ],
        )?;
        Ok(())
    })
    .alias(&["sasl-authz-policy"]),
    Directive::new("authz-regexp", "olcAuthzRegexp", Scope::Global, Form::Words, authz_regexp)
        .arguments(2, 2)
        .alias(&["sasl-regexp", "saslRegexp"])
        .ordered(),
    Directive::new("authid-rewrite", "olcAuthIDRewrite", Scope::Global, Form::Command, authid_rewrite)
        .prefix(14)
        .ordered(),
    Directive::new("attributeoptions", "olcAttributeOptions", Scope::Global, Form::Each, attribute_options)
        .arguments(0, MANY)
        .many(),
    Directive::new(
        "password-crypt-salt-format",
        "olcPasswordCryptSaltFormat",
        Scope::Global,
        Form::Whole,
        |b, c| {
            b.global.password_crypt_salt_format = Some(c.argument(0)?.to_owned());
            Ok(())
        },
    ),
    Directive::new("localSSF", "olcLocalSSF", Scope::Global, Form::Whole, |b, c| {
        // An unsigned number of slapd's takes what is below 0, too.
        b.global.local_ssf = c.number::<i32>(0)?.cast_unsigned();
        Ok(())
    }),
    Directive::new("gentlehup", "olcGentleHUP", Scope::Global, Form::Switch, switch)
        .noted("SIGHUP ends the server at once, connections and all, after the answers that are due"),
    Directive::new("reverse-lookup", "olcReverseLookup", Scope::Global, Form::Switch, |b, c| {
        b.global.reverse_lookup = c.switch()?;
        Ok(())
    }),
    Directive::new("threads", "olcThreads", Scope::Global, Form::Whole, |_, c| {
        c.positive::<u32>(0).map(|_| ())
    })
    .noted(NO_KNOB),
    Directive::new("tool-threads", "olcToolThreads", Scope::Global, Form::Whole, |_, c| {
        c.int_from_zero(0).map(|_| ())
    })
    .noted(NO_KNOB),
    Directive::new("threadqueues", "olcThreadQueues", Scope::Global, Form::Whole, number).noted(NO_KNOB),
    Directive::new("listener-threads", "olcListenerThreads", Scope::Global, Form::Whole, number)
        .noted(NO_KNOB),
    Directive::new("concurrency", "olcConcurrency", Scope::Global, Form::Whole, |_, c| {
        c.int_from_zero(0).map(|_| ())
    })
    .noted(NO_KNOB),
    Directive::new("tcp-buffer", "olcTCPBuffer", Scope::Global, Form::Words, tcp_buffer).many(),
    Directive::new("index_substr_if_minlen", "olcIndexSubstrIfMinLen", Scope::Global, Form::Whole, number)
        .noted(NO_INDEX_KNOB),
    Directive::new("index_substr_if_maxlen", "olcIndexSubstrIfMaxLen", Scope::Global, Form::Whole, number)
        .noted(NO_INDEX_KNOB),
    Directive::new("index_substr_any_len", "olcIndexSubstrAnyLen", Scope::Global, Form::Whole, number)
        .noted(NO_INDEX_KNOB),
    Directive::new("index_substr_any_step", "olcIndexSubstrAnyStep", Scope::Global, Form::Whole, number)
        .noted(NO_INDEX_KNOB),
    Directive::new("index_intlen", "olcIndexIntLen", Scope::Global, Form::Whole, number).noted(NO_INDEX_KNOB),
    Directive::new("index_hash64", "olcIndexHash64", Scope::Global, Form::Switch, switch)
        .noted(NO_INDEX_KNOB),
    Directive::kept("pluginlog", "olcPluginLogFile", Scope::Global, Form::Whole)
        .noted("there are no SLAPI plugins"),
    Directive::kept("ucdata-path", "", Scope::Global, Form::Whole).noted("Unicode tables are built in"),
    Directive::new("sasl-host", "olcSaslHost", Scope::Global, Form::Whole, |b, c| {
        b.global.sasl.host = c.text_or_none(0)?;
        Ok(())
    }),
    Directive::new("sasl-realm", "olcSaslRealm", Scope::Global, Form::Whole, |b, c| {
        b.global.sasl.realm = c.text_or_none(0)?;
        Ok(())
    }),
    Directive::new("sasl-secprops", "olcSaslSecProps", Scope::Global, Form::Whole, sasl_secprops),
    Directive::new("sasl-cbinding", "olcSaslCBinding", Scope::Global, Form::Whole, |b, c| {
        b.global.sasl.channel_binding = c.choice(
            0,
            &[
                ("none", ChannelBinding::None),
                ("tls-unique", ChannelBinding::TlsUnique),
                ("tls-endpoint", ChannelBinding::TlsEndpoint),
                ("tls-exporter", ChannelBinding::TlsExporter),
            ],
        )?;
        Ok(())
    }),
    Directive::new("sasl-mechanisms", "olcLarixSaslMechanisms", Scope::Global, Form::Each, sasl_mechanisms)
        .many(),
    Directive::new("sasl-saslauthd", "olcLarixSaslauthd", Scope::Global, Form::Whole, |b, c| {
        b.global.sasl.saslauthd = Some(c.path(0)?);
        Ok(())
    }),
    Directive::kept("sasl-auxprops", "olcSaslAuxprops", Scope::Global, Form::Words).noted(NO_CYRUS),
    Directive::kept("sasl-auxprops-dontusecopy", "olcSaslAuxpropsDontUseCopy", Scope::Global, Form::Each)
        .many()
        .noted(NO_CYRUS),
    Directive::new(
        "sasl-auxprops-dontusecopy-ignore",
        "olcSaslAuxpropsDontUseCopyIgnore",
        Scope::Global,
        Form::Switch,
        switch,
    )
    .noted(NO_CYRUS),
    Directive::new("TLSCACertificateFile", "olcTLSCACertificateFile", Scope::Global, Form::Whole, |b, c| {
        b.global.tls.ca_certificate_file = c.path_or_none(0)?;
        Ok(())
    }),
    Directive::new("TLSCACertificatePath", "olcTLSCACertificatePath", Scope::Global, Form::Whole, |b, c| {
        b.global.tls.ca_certificate_path = c.path_or_none(0)?;
        Ok(())
    }),
    Directive::new("TLSCertificateFile", "olcTLSCertificateFile", Scope::Global, Form::Whole, |b, c| {
        b.global.tls.certificate_file = c.path_or_none(0)?;
        Ok(())
    }),
    Directive::new(
        "TLSCertificateKeyFile",
        "olcTLSCertificateKeyFile",
        Scope::Global,
        Form::Whole,
        |b, c| {
            b.global.tls.certificate_key_file = c.path_or_none(0)?;
            Ok(())
        },
    ),
    Directive::new("TLSCACertificate", "olcTLSCACertificate;binary", Scope::Global, Form::Bytes, |b, c| {
        b.global.tls.ca_certificate = Some(der(c)?);
        Ok(())
    })
    .attribute_alias(&["olcTLSCACertificate"]),
    Directive::new("TLSCertificate", "olcTLSCertificate;binary", Scope::Global, Form::Bytes, |b, c| {
        b.global.tls.certificate = Some(der(c)?);
        Ok(())
    })
    .attribute_alias(&["olcTLSCertificate"]),
    Directive::new(
        "TLSCertificateKey",
        "olcTLSCertificateKey;binary",
        Scope::Global,
        Form::Secret,
        |b, c| {
            b.global.tls.certificate_key = Some(der(c)?);
            Ok(())
        },
    )
    .attribute_alias(&["olcTLSCertificateKey"]),
    Directive::new("TLSCipherSuite", "olcTLSCipherSuite", Scope::Global, Form::Whole, |b, c| {
        b.global.tls.cipher_suite = c.text_or_none(0)?;
        Ok(())
    }),
    Directive::new("TLSProtocolMin", "olcTLSProtocolMin", Scope::Global, Form::Whole, tls_protocol_min),
    Directive::new("TLSVerifyClient", "olcTLSVerifyClient", Scope::Global, Form::Whole, |b, c| {
        b.global.tls.verify_client = c.choice(
            0,
            &[
                ("never", TlsVerify::Never),
                ("allow", TlsVerify::Allow),
                ("try", TlsVerify::Try),
                ("demand", TlsVerify::Demand),
                ("hard", TlsVerify::Demand),
                ("on", TlsVerify::Demand),
                ("true", TlsVerify::Demand),
                ("yes", TlsVerify::Demand),
                // The numbers of libldap.
                ("0", TlsVerify::Never),
                ("1", TlsVerify::Demand),
                ("2", TlsVerify::Demand),
                ("3", TlsVerify::Allow),
                ("4", TlsVerify::Try),
            ],
        )?;
        Ok(())
    }),
    Directive::new("TLSCRLCheck", "olcTLSCRLCheck", Scope::Global, Form::Whole, |b, c| {
        let words =
            [("none", "none"), ("peer", "peer"), ("all", "all"), ("0", "none"), ("1", "peer"), ("2", "all")];
        b.global.tls.crl_check = Some(c.choice(0, &words)?.to_owned());
        Ok(())
    }),
    Directive::new("TLSCRLFile", "olcTLSCRLFile", Scope::Global, Form::Whole, |b, c| {
        b.global.tls.crl_file = c.path_or_none(0)?;
        Ok(())
    }),
    Directive::new("TLSDHParamFile", "olcTLSDHParamFile", Scope::Global, Form::Whole, |b, c| {
        b.global.tls.dh_param_file = c.path_or_none(0)?;
        Ok(())
    })
    .noted("key exchange uses elliptic curves"),
    Directive::new("TLSECName", "olcTLSECName", Scope::Global, Form::Whole, |b, c| {
        b.global.tls.ec_name = c.text_or_none(0)?;
        Ok(())
    }),
    Directive::kept("TLSRandFile", "olcTLSRandFile", Scope::Global, Form::Whole)
        .noted("randomness comes from the operating system"),
];

fn client_limits(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let limits = &mut builder.global.client_limits;
    for (number, word) in call.arguments.iter().enumerate() {
        limits.apply_word(word).map_err(|message| {
            Fault::argument(number, message).with_help(format!("some of {}", ClientLimits::WORDS))
        })?;
    }
    Ok(())
}

fn request_limits(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let limits = &mut builder.global.request_limits;
    for (number, word) in call.arguments.iter().enumerate() {
        request_words::apply(limits, word).map_err(|message| {
            Fault::argument(number, message).with_help(format!("some of {}", request_words::all()))
        })?;
    }
    Ok(())
}

fn number(_: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    call.number::<u32>(0).map(|_| ())
}

fn switch(_: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    call.switch().map(|_| ())
}

fn loglevel(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    // The first line takes the place of the default; later words add.
    let is_first = builder.global.settings.get("olcLogLevel").is_empty();
    let mut bits = if is_first { 0 } else { builder.global.log_level.0 };
    for (number, word) in call.arguments.iter().enumerate() {
        let level = LogLevel::parse_word(word).ok_or_else(|| {
            let names: Vec<String> =
                LogLevel::NAMES.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
            Fault::argument(number, format!("no log level `{word}`"))
                .with_help(format!("a number or some of {}", names.join(", ")))
        })?;
        if level.is_silent() {
            let instead =
                if level.has(LogLevel::ACL) { ": `larix acl explain` says which rule decides" } else { "" };
            let text = format!("`loglevel {word}` has no effect: the server writes no such lines{instead}");
            builder.notes.push(call.origin.clone(), text);
        }
        bits = if level.0 == 0 { 0 } else { bits | level.0 };
    }
    builder.global.log_level = LogLevel(bits);
    Ok(())
}

fn server_id(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let word = call.argument(0)?;
    let number = server_number(word)
        .ok_or_else(|| Fault::argument(0, format!("`{word}` is not a number")).with_help("from 0 to 4095"))?;
    let number = u16::try_from(number).ok().filter(|number| *number <= ServerId::MAX).ok_or_else(|| {
        Fault::argument(0, format!("server ID {number} is out of range")).with_help("a number from 0 to 4095")
    })?;
    let url = call.arguments.get(1).cloned();
    if let Some(url) = &url {
        if number == 0 {
            return Err(Fault::argument(0, "server ID 0 cannot have a URL"));
        }
        ldap_url(url).map_err(|message| Fault::argument(1, message))?;
    }
    if let Some(first) = builder.global.server_ids.first() {
        let mixed = match (&first.url, &url) {
            (Some(_), Some(_)) => None,
            (Some(_), None) => Some("a server ID without a URL after one with a URL"),
            (None, Some(_)) => Some("a server ID with a URL after one without, which holds for every server"),
            (None, None) => Some("only one server ID without a URL is possible"),
        };
        if let Some(message) = mixed {
            return Err(Fault::argument(0, message).with_help("give each server's URL after its ID"));
        }
    }
    if let Some(other) = builder.global.server_ids.iter().find(|other| other.number == number)
        && !are_of_one_server(other.url.as_deref(), url.as_deref())
    {
        return Err(Fault::argument(0, format!("server ID {number} is given twice"))
            .with_help("each server has an ID of its own; one with several URLs has a line for each"));
    }
    builder.global.server_ids.push(ServerId { number, url });
    Ok(())
}

/// As slapd reads it: decimal, with zeros before it or not, and else hexadecimal.
fn server_number(word: &str) -> Option<i64> {
    let hexadecimal = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word);
    word.parse().ok().or_else(|| i64::from_str_radix(hexadecimal, 16).ok())
}

/// Whether two URLs name one server in two ways, ldap:// and ldaps://: host and scheme say so, since ports may be those of two servers.
fn are_of_one_server(one: Option<&str>, other: Option<&str>) -> bool {
    let parsed = |text: Option<&str>| LdapUrl::parse(text?).ok();
    let (Some(one), Some(other)) = (parsed(one), parsed(other)) else { return false };
    one.scheme != other.scheme && !one.host.is_empty() && one.host.eq_ignore_ascii_case(&other.host)
}

/// The server of a referral. The entry is added to the URL when it is sent (RFC 4511 section 4.1.10), so that none stands there.
pub(super) fn referral(call: &Call<'_>) -> Result<String, Fault> {
    const HELP: &str = "such as ldap://host:389/";
    let text = call.argument(0)?;
    let url = ldap_url(text).map_err(|message| Fault::argument(0, message).with_help(HELP))?;
    if !url.dn.is_empty() || !url.attributes.is_empty() || url.scope.is_some() || url.filter.is_some() {
        let message = format!("`{text}`: a referral names a server, and no entry, scope or filter");
        return Err(Fault::argument(0, message).with_help(HELP));
    }
    Ok(text.to_owned())
}

fn ldap_url(text: &str) -> Result<LdapUrl, String> {
    LdapUrl::parse_server(text).map_err(|error| format!("`{text}` is not an LDAP URL: {error}"))
}

/// A field of a set, to be changed.
pub(super) type Field<T, V> = fn(&mut T) -> &mut V;

/// Sets the flag each argument names.
pub(super) fn flags<T>(
    call: &Call<'_>,
    target: &mut T,
    what: &str,
    flags: &[(&str, Field<T, bool>)],
) -> Result<(), Fault> {
    for (number, word) in call.arguments.iter().enumerate() {
        let Some((_, flag)) = flags.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) else {
            let names: Vec<&str> = flags.iter().map(|(name, _)| *name).collect();
            return Err(Fault::argument(number, format!("no {what} `{word}`"))
                .with_help(format!("some of {}", names.join(", "))));
        };
        *flag(target) = true;
    }
    Ok(())
}

fn allow(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    flags::<Allowed>(
        call,
        &mut builder.global.allow,
        "feature",
        &[
            ("bind_v2", |set| &mut set.bind_v2),
            ("bind_anon_cred", |set| &mut set.bind_anon_cred),
            ("bind_anon_dn", |set| &mut set.bind_anon_dn),
            ("update_anon", |set| &mut set.update_anon),
            ("proxy_authz_anon", |set| &mut set.proxy_authz_anon),
        ],
    )
}

fn disallow(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    flags::<Disallowed>(
        call,
        &mut builder.global.disallow,
        "feature",
        &[
            ("bind_anon", |set| &mut set.bind_anon),
            ("bind_simple", |set| &mut set.bind_simple),
            ("tls_2_anon", |set| &mut set.tls_2_anon),
            ("tls_authc", |set| &mut set.tls_authc),
            ("proxy_authz_non_critical", |set| &mut set.proxy_authz_non_critical),
            ("dontusecopy_non_critical", |set| &mut set.dont_use_copy_non_critical),
        ],
    )
}

fn authz_regexp(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let rule =
        AuthzRegexp::new(call.argument(0)?, call.argument(1)?).map_err(|error| Fault::argument(0, error))?;
    builder.global.authz_regexps.push(rule);
    Ok(())
}

fn authid_rewrite(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let words: Vec<&str> = call.arguments.iter().map(String::as_str).collect();
    builder
        .global
        .authid_rewrite
        .command(&words)
        .map_err(|error| Fault::argument(error.word(), error.to_string()).with_help(error.help()))
}

fn attribute_options(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    for (number, option) in call.arguments.iter().enumerate() {
        let name = option.strip_suffix('=').unwrap_or(option);
        let fits =
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.') && !option.is_empty();
        if !fits {
            return Err(Fault::argument(number, format!("`{option}` cannot be an attribute option")));
        }
    }
    if builder.global.settings.get("olcAttributeOptions").is_empty() {
        builder.global.attribute_options.clear();
    }
    builder.global.attribute_options.extend_from_slice(call.arguments);
    builder.set_attribute_options();
    Ok(())
}

fn tcp_buffer(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let mut buffer = TcpBuffer { listener: None, read: None, write: None };
    for (number, word) in call.arguments.iter().enumerate() {
        let bytes = |text: &str| {
            let size = c_integer(text).and_then(|size| u32::try_from(size).ok());
            size.ok_or_else(|| Fault::argument(number, format!("`{text}` is not a size in bytes")))
        };
        match word.split_once('=') {
            Some(("listener", url)) => buffer.listener = Some(url.to_owned()),
            Some(("read", size)) => buffer.read = Some(bytes(size)?),
            Some(("write", size)) => buffer.write = Some(bytes(size)?),
            _ => {
                let size = bytes(word)?;
                (buffer.read, buffer.write) = (Some(size), Some(size));
            }
        }
    }
    builder.global.tcp_buffers.push(buffer);
    Ok(())
}

fn sasl_secprops(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    builder.global.sasl.properties =
        SecurityProperties::parse(call.argument(0)?).map_err(|(property, known)| {
            Fault::argument(0, format!("no SASL security property `{property}`"))
                .with_help(format!("some of {known}"))
        })?;
    Ok(())
}

fn sasl_mechanisms(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let chosen = builder.global.sasl.mechanisms.get_or_insert_default();
    for (number, name) in call.arguments.iter().enumerate() {
        let known = || Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect::<Vec<_>>().join(", ");
        let mechanism = Mechanism::from_name(name).ok_or_else(|| {
            Fault::argument(number, format!("no SASL mechanism `{name}`"))
                .with_help(format!("some of {}", known()))
        })?;
        chosen.push(mechanism);
    }
    Ok(())
}

fn tls_protocol_min(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let text = call.argument(0)?;
    let fits = match text.split_once('.') {
        Some((major, minor)) => major.parse::<u8>().is_ok() && minor.parse::<u8>().is_ok(),
        None => text.parse::<u8>().is_ok(),
    };
    if !fits {
        return Err(Fault::argument(0, format!("`{text}` is not a protocol version"))
            .with_help("3.3 is TLS 1.2, 3.4 is TLS 1.3"));
    }
    builder.global.tls.protocol_min = Some(text.to_owned());
    Ok(())
}

/// A certificate or key in DER: as bytes from cn=config, in base64 from slapd.conf.
fn der(call: &Call<'_>) -> Result<Vec<u8>, Fault> {
    use base64::Engine as _;
    // DER of a certificate or key is a SEQUENCE.
    if call.bytes.first() == Some(&0x30) {
        return Ok(call.bytes.to_vec());
    }
    base64::engine::general_purpose::STANDARD
        .decode(call.bytes)
        .map_err(|_| Fault::argument(0, "neither DER nor base64 of it"))
}

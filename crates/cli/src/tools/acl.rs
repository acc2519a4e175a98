//! `slapacl`: what the access rules allow somebody.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_engine::access::{
    AccessLevel, AccessPolicy, AccessTarget, EntryFacts, GroupQuery, Item, PeerNames, Privilege, Strength,
    Subject,
};
use larix_engine::search::entry::{Gate, Seen};
use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, Schema};
use larix_server::config::{self, Config, DatabaseKind};
use larix_store::Store;

use super::common::{self, Access, ConfigArgs};

/// Ask what the access rules allow
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Options of -o: authzDN, peername, sockname, sockurl, ssf, transport_ssf, tls_ssf and sasl_ssf, each with =VALUE.
Without a question, everything about the entry is listed.")]
struct AclArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The entry
    #[arg(short = 'b', value_name = "DN")]
    base: String,
    /// Who asks; anonymous otherwise
    #[arg(short = 'D', value_name = "DN")]
    bind_dn: Option<String>,
    /// Do not read the entry: rules that depend on what is in it do not match
    #[arg(short = 'u')]
    dry_run: bool,
    /// attribute[/access][:value]; entry and children are attributes here
    #[arg(value_name = "QUESTION")]
    questions: Vec<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: AclArgs = common::parse(name, arguments);
    match acl(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn acl(args: &AclArgs) -> anyhow::Result<()> {
    let config = args.config.read()?;
    let schema = &config.schema;
    let parse = |text: &str| schema.parse_dn(text).map_err(|error| anyhow::anyhow!("DN {text:?}: {error}"));
    let dn = parse(&args.base)?;
    let subject = subject(args, &config)?;
    if let Some(authentication) = subject.authentication_dn() {
        println!("authcDN: \"{authentication}\"");
    }
    if let (Some(_), Some(authorization)) = (&subject.real_dn, &subject.dn) {
        println!("authzDN: \"{authorization}\"");
    }
    let section = section_of(&config, &dn);
    let policy = config.access_policy(section).map_err(|error| anyhow::anyhow!("{error}"))?;
    let questions = args
        .questions
        .iter()
        .map(|text| Question::parse(schema, text))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if args.dry_run {
        let target = AccessTarget { dn: &dn, entry: &Nothing };
        answer(&policy, &subject, &target, schema, &questions);
        return Ok(());
    }
    let section =
        section.with_context(|| format!("no database holds {:?}; -u asks without reading it", args.base))?;
    let fault = |fault| anyhow::anyhow!("{fault}");
    let database = common::open(&config, section, Access::Read)?;
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot).map_err(fault)?;
    let missing = || format!("there is no entry {:?}; -u asks without reading it", args.base);
    let id = view.resolve(&dn).map_err(fault)?.and_then(|resolved| resolved.id).with_context(missing)?;
    let record = view.record(id).map_err(fault)?.with_context(missing)?;
    let reader = view.reader(id, &record).map_err(fault)?;
    let questions = if questions.is_empty() {
        everything(&reader.to_owned(args.base.clone(), true).map_err(fault)?)
    } else {
        questions
    };
    let seen = Seen::new(&view, reader, Gate::new(&policy, &subject));
    let target = AccessTarget { dn: &dn, entry: &seen };
    answer(&policy, &subject, &target, schema, &questions);
    if seen.failed() {
        bail!("the entry, or a group that a rule names, could not be read");
    }
    Ok(())
}

/// The database with the longest suffix above the DN.
fn section_of<'c>(config: &'c Config, dn: &NormalDn) -> Option<&'c config::Database> {
    let depth = |database: &&config::Database| {
        database
            .suffixes
            .iter()
            .filter(|suffix| dn.is_within(&suffix.normal))
            .map(|suffix| suffix.normal.depth())
            .max()
    };
    config
        .databases
        .iter()
        .filter(|database| matches!(database.kind, DatabaseKind::Mdb(_)) && depth(database).is_some())
        .max_by_key(depth)
}

fn subject(args: &AclArgs, config: &Config) -> anyhow::Result<Subject> {
    let option = |name: &str| args.config.option(name);
    let text = |name: &str| option(name).unwrap_or_default().to_owned();
    let number = |name: &str| match option(name) {
        None => Ok(0),
        Some(text) => text.parse().with_context(|| format!("-o {name}={text}: a number")),
    };
    let strength = Strength {
        overall: number("ssf")?,
        transport: number("transport_ssf")?,
        tls: number("tls_ssf")?,
        sasl: number("sasl_ssf")?,
    };
    if option("domain").is_some() {
        bail!("-o domain: rules by domain are not enforced");
    }
    let peer = PeerNames {
        peer_name: text("peername"),
        sock_name: text("sockname"),
        sock_url: text("sockurl"),
        ..PeerNames::default()
    };
    let mut subject = Subject::anonymous(peer.into(), strength);
    let parse =
        |text: &str| config.schema.parse_dn(text).map_err(|error| anyhow::anyhow!("DN {text:?}: {error}"));
    if let Some(dn) = &args.bind_dn {
        subject = subject.bound_as(parse(dn)?, dn);
    }
    if let Some(dn) = option("authzDN") {
        subject = if subject.is_anonymous() {
            subject.bound_as(parse(dn)?, dn)
        } else {
            subject.acting_as(parse(dn)?, dn)
        };
    }
    Ok(subject)
}

/// What is asked about.
enum About {
    Entry,
    Children,
    Attribute(AttributeDescription),
}

struct Question {
    about: About,
    /// With its name as given; without it, what is granted is shown.
    privilege: Option<(String, Privilege)>,
    value: Option<Vec<u8>>,
}

impl Question {
    /// `attribute[/access][:value]`
    fn parse(schema: &Schema, text: &str) -> anyhow::Result<Self> {
        let (left, value) = match text.split_once(':') {
            Some((left, value)) => (left, Some(value.as_bytes().to_vec())),
            None => (text, None),
        };
        let (name, access) = match left.split_once('/') {
            Some((name, access)) => (name, Some(access)),
            None => (left, None),
        };
        let about = match name.to_ascii_lowercase().as_str() {
            "entry" => About::Entry,
            "children" => About::Children,
            _ => {
                About::Attribute(schema.describe(name).map_err(|error| anyhow::anyhow!("{name:?}: {error}"))?)
            }
        };
        let privilege = access
            .map(|access| privilege(access).map(|privilege| (access.to_owned(), privilege)))
            .transpose()?;
        Ok(Self { about, privilege, value })
    }

    fn shown(&self, schema: &Schema) -> String {
        let name = match &self.about {
            About::Entry => "entry".to_owned(),
            About::Children => "children".to_owned(),
            About::Attribute(description) => description.to_text(schema),
        };
        match &self.value {
            // Not even a hash is to be seen over a shoulder.
            Some(_) if name.eq_ignore_ascii_case("userPassword") => format!("{name}=****"),
            Some(value) => format!("{name}={}", String::from_utf8_lossy(value)),
            None => name,
        }
    }
}

fn privilege(name: &str) -> anyhow::Result<Privilege> {
    let level = AccessLevel::parse(name).with_context(|| format!("access {name:?} is not known"))?;
    Ok(match level {
        AccessLevel::None => bail!("access \"none\" cannot be asked for"),
        AccessLevel::Disclose => Privilege::Disclose,
        AccessLevel::Auth => Privilege::Auth,
        AccessLevel::Compare => Privilege::Compare,
        AccessLevel::Search => Privilege::Search,
        AccessLevel::Read => Privilege::Read,
        AccessLevel::Add => Privilege::Add,
        AccessLevel::Delete => Privilege::Delete,
        AccessLevel::Write => Privilege::Write,
        AccessLevel::Manage => Privilege::Manage,
    })
}

/// The entry, its place as a superior, and each of its values.
fn everything(entry: &larix_engine::Entry) -> Vec<Question> {
    let about = |about| Question { about, privilege: None, value: None };
    let mut questions = vec![about(About::Entry), about(About::Children)];
    for attribute in &entry.attributes {
        for value in &attribute.values {
            let about = About::Attribute(attribute.description.clone());
            questions.push(Question { about, privilege: None, value: Some(value.clone()) });
        }
    }
    questions
}

fn answer(
    policy: &AccessPolicy,
    subject: &Subject,
    target: &AccessTarget<'_>,
    schema: &Schema,
    questions: &[Question],
) {
    for question in questions {
        let item = match &question.about {
            About::Entry => Item::Entry,
            About::Children => Item::Children,
            About::Attribute(description) => {
                Item::Attribute { description, value: question.value.as_deref() }
            }
        };
        let shown = question.shown(schema);
        match &question.privilege {
            None => println!("{shown}: {}", policy.collected(subject, target, item)),
            Some((name, privilege)) => {
                let allowed = policy.check(subject, target, item, *privilege);
                println!("{name} access to {shown}: {}", if allowed { "ALLOWED" } else { "DENIED" });
            }
        }
    }
}

/// An entry of which nothing is known.
struct Nothing;

impl EntryFacts for Nothing {
    fn visit(&self, _: &AttributeDescription, _: &mut dyn FnMut(&[u8]) -> bool) {}

    fn matches(&self, _: &BoundFilter) -> Match {
        Match::Undefined
    }

    fn is_member(&self, _: &GroupQuery<'_>, _: &NormalDn) -> bool {
        false
    }
}

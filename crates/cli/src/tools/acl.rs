//! `slapacl`: what the access rules allow an identity; and why (`larix acl explain`).

mod explain;

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_configuration::Config;
use larix_engine::Database;
use larix_engine::access::{
    AccessLevel, AccessPolicy, AccessTarget, EntryFacts, Item, PeerNames, Privilege, Strength, Subject,
};
use larix_engine::search::{Gate, GuardedEntry};
use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, Schema};
use larix_server::cluster;
use larix_server::sasl::identity::{IdentityFault, Mapper, user_name};
use larix_store::Store;

use super::choice::section_of;
use super::flags::{self, ConfigArgs};
use super::identities::Offline;
use super::opening::Opened;
use explain::Explained;

/// The status for an attribute that the schema does not know, as slapacl gives it.
const UNDEFINED_ATTRIBUTE: u8 = 17;

/// A question is about an attribute that the schema does not know.
#[derive(Debug)]
struct UndefinedAttribute(String);

impl fmt::Display for UndefinedAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UndefinedAttribute {}

/// Ask what the access rules allow
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Options of -o: authzDN, domain, peername, sockname, sockurl, ssf, transport_ssf, tls_ssf and sasl_ssf, each with =VALUE.
Without a question, everything about the entry is listed.
`explain` as the first argument tells which rule decides, and why the others do not.
There, a question without an access asks for `read`.

Examples:
  larix acl -F larix-data/slapd.d -D uid=bob,dc=example,dc=com -b uid=ann,dc=example,dc=com
  larix acl explain -F larix-data/slapd.d -b uid=ann,dc=example,dc=com userPassword/read")]
pub(super) struct AclArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The entry
    #[arg(short = 'b', value_name = "DN")]
    base: String,
    /// Who asks; anonymous otherwise
    #[arg(short = 'D', value_name = "DN")]
    bind_dn: Option<String>,
    /// Who asks, by the name that SASL knows
    #[arg(short = 'U', value_name = "ID", conflicts_with = "bind_dn")]
    authentication_id: Option<String>,
    /// Whom the request is made for: `dn:DN` or `u:ID`; also -o authzDN=DN
    #[arg(short = 'X', value_name = "ID")]
    authorization_id: Option<String>,
    /// Explanations as JSON
    #[arg(long)]
    json: bool,
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
    let (explains, arguments) = match arguments.split_first() {
        Some((first, rest)) if first == "explain" => (true, rest),
        _ => (false, arguments),
    };
    let args: AclArgs = flags::parse(name, arguments);
    match acl(&args, explains) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            if error.is::<UndefinedAttribute>() {
                ExitCode::from(UNDEFINED_ATTRIBUTE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn acl(args: &AclArgs, explains: bool) -> anyhow::Result<()> {
    if args.json && !explains {
        bail!("--json is of explanations: `acl explain --json`");
    }
    let config = args.config.read()?;
    let schema = &config.schema;
    let dn = dn(schema, &args.base)?;
    let subject = subject(args, &config)?;
    // An engine that did not answer must not pass for one without the identity.
    cluster::whole().map_err(anyhow::Error::msg)?;
    if !explains {
        show_subject(args, &subject);
    }
    let section = section_of(&config, &dn);
    let policy = config.access_policy(section).map_err(|error| anyhow::anyhow!("{error}"))?;
    let questions = args
        .questions
        .iter()
        .map(|text| Question::parse(schema, text))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let answer = |target: &AccessTarget<'_>, questions: &[Question]| {
        let input = ExplainInput { policy: &policy, subject: &subject, target, schema };
        if explains { input.explain(&args.base, questions, args.json) } else { input.answer(questions) }
    };
    if args.dry_run {
        answer(&AccessTarget { dn: &dn, entry: &Nothing }, &questions);
        return Ok(());
    }
    let section =
        section.with_context(|| format!("no database holds {:?}; -u asks without reading it", args.base))?;
    if !section.kind.keeps_entries() {
        let kind = section.kind.name();
        bail!(
            "{:?} is in a {kind} database, which this tool does not read; -u asks without reading",
            args.base
        );
    }
    let asking = Asking { args, policy: &policy, subject: &subject, dn: &dn, explains };
    match Opened::open(&config, section)? {
        Opened::Stored(database) => asking.about(&database, questions, &answer),
        Opened::Shared(database) => {
            let answered = asking.about(&database, questions, &answer);
            // What could not be read must not pass for a rule that does not match.
            cluster::whole().map_err(anyhow::Error::msg)?;
            answered
        }
    }
}

/// Who asks about which entry.
struct Asking<'a> {
    args: &'a AclArgs,
    policy: &'a AccessPolicy,
    subject: &'a Subject,
    dn: &'a NormalDn,
    explains: bool,
}

impl Asking<'_> {
    /// Has the questions answered, or all that the entry gives rise to, as the database holds it.
    fn about<S: Store>(
        &self,
        database: &Database<S>,
        questions: Vec<Question>,
        answer: &dyn Fn(&AccessTarget<'_>, &[Question]),
    ) -> anyhow::Result<()> {
        let Self { args, policy, subject, dn, explains } = *self;
        let fault = |fault| anyhow::anyhow!("{fault}");
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot).map_err(fault)?;
        let missing = || format!("there is no entry {:?}; -u asks without reading it", args.base);
        let id = view.resolve(dn).map_err(fault)?.and_then(|resolved| resolved.id).with_context(missing)?;
        let record = view.record(id).map_err(fault)?.with_context(missing)?;
        let reader = view.reader(id, &record).map_err(fault)?;
        let questions = if questions.is_empty() {
            everything(&reader.to_owned(args.base.clone(), true).map_err(fault)?, explains)
        } else {
            questions
        };
        let seen = GuardedEntry::new(&view, reader, Gate::new(policy, subject));
        answer(&AccessTarget { dn, entry: &seen }, &questions);
        if seen.failed() {
            bail!("the entry, or a group that a rule names, could not be read");
        }
        Ok(())
    }
}

fn dn(schema: &Schema, text: &str) -> anyhow::Result<NormalDn> {
    schema.parse_dn(text).map_err(|error| anyhow::anyhow!("DN {text:?}: {error}"))
}

/// Who asks, as slapacl shows it.
fn show_subject(args: &AclArgs, subject: &Subject) {
    let names_authentication = args.bind_dn.is_some() || args.authentication_id.is_some();
    if let Some(authentication) = subject.authentication_dn().filter(|_| names_authentication) {
        eprintln!("authcDN: \"{authentication}\"");
    }
    let names_authorization = args.authorization_id.is_some() || args.config.option("authzDN").is_some();
    if let Some(authorization) = subject.dn.as_ref().filter(|_| names_authorization) {
        eprintln!("authzDN: \"{authorization}\"");
    }
}

fn subject(args: &AclArgs, config: &Config) -> anyhow::Result<Subject> {
    let option = |name: &str| args.config.option(name);
    let text = |name: &str| option(name).unwrap_or_default().to_owned();
    let number = |name: &str| match option(name) {
        None => Ok(0),
        Some(text) => text.parse().ok().with_context(|| format!("-o {name}={text}: a number")),
    };
    let strength = Strength {
        overall: number("ssf")?,
        transport: number("transport_ssf")?,
        tls: number("tls_ssf")?,
        sasl: number("sasl_ssf")?,
    };
    let peer = PeerNames {
        peer_name: text("peername"),
        sock_name: text("sockname"),
        sock_url: text("sockurl"),
        domain: option("domain").map(|name| name.to_ascii_lowercase().into()).unwrap_or_default(),
        ..PeerNames::default()
    };
    let mut subject = Subject::anonymous(peer.into(), strength);
    let shown = |dn: NormalDn| (dn.as_str().to_owned(), dn);
    let given = |text: &str| Ok::<_, anyhow::Error>((text.to_owned(), dn(&config.schema, text)?));
    let authentication = match (&args.authentication_id, &args.bind_dn) {
        (Some(id), _) => Some(shown(Names::new(config).of_user(id)?)),
        (None, text) => text.as_deref().map(given).transpose()?,
    };
    if let Some((text, dn)) = authentication {
        subject = subject.bound_as(dn, &text);
    }
    let authorization = match (&args.authorization_id, option("authzDN")) {
        (Some(_), Some(_)) => bail!("-X and -o authzDN: one of them"),
        (Some(id), None) => Some(shown(Names::new(config).of_authorization(id)?)),
        (None, text) => text.map(given).transpose()?,
    };
    if let Some((text, dn)) = authorization {
        subject =
            if subject.is_anonymous() { subject.bound_as(dn, &text) } else { subject.acting_as(dn, &text) };
    }
    Ok(subject)
}

/// What identities are called in the directory, as a server would say.
struct Names<'c> {
    config: &'c Config,
    lookups: Offline<'c>,
}

impl<'c> Names<'c> {
    fn new(config: &'c Config) -> Self {
        let global = &config.global;
        let searches = !global.authz_regexps.is_empty() || global.authid_rewrite.is_in_force();
        let lookups = if searches { Offline::open(config) } else { Offline::closed(config) };
        Self { config, lookups }
    }

    fn mapper(&self) -> Mapper<'_> {
        let global = &self.config.global;
        let (rules, rewrite) = (&global.authz_regexps, &global.authid_rewrite);
        Mapper { lookups: &self.lookups, rules, rewrite, who: None }
    }

    /// The DN of a name that SASL knows.
    fn of_user(&self, id: &str) -> anyhow::Result<NormalDn> {
        self.mapper()
            .name(&user_name(id, "", ""))
            .with_context(|| format!("-U {id:?}: {}", IdentityFault::Dn.text()))
    }

    /// The DN of `dn:DN` or `u:NAME`, and the empty one of `anonymous`: what the server takes.
    fn of_authorization(&self, id: &str) -> anyhow::Result<NormalDn> {
        let found = self.mapper().authorization(id, "", "");
        found.map_err(|fault| anyhow::anyhow!("-X {id:?}: {}", fault.text()))
    }
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
        let (question, value) = match text.split_once(':') {
            Some((question, value)) => (question, Some(value.as_bytes().to_vec())),
            None => (text, None),
        };
        let (name, access) = match question.split_once('/') {
            Some((name, access)) => (name, Some(access)),
            None => (question, None),
        };
        let about = match name.to_ascii_lowercase().as_str() {
            "entry" => About::Entry,
            "children" => About::Children,
            _ => {
                let described = schema.describe(name);
                About::Attribute(described.map_err(|error| UndefinedAttribute(format!("{name:?}: {error}")))?)
            }
        };
        let privilege = access
            .map(|access| privilege(access).map(|privilege| (access.to_owned(), privilege)))
            .transpose()?;
        Ok(Self { about, privilege, value })
    }

    fn item(&self) -> Item<'_> {
        match &self.about {
            About::Entry => Item::Entry,
            About::Children => Item::Children,
            About::Attribute(description) => Item::Attribute { description, value: self.value.as_deref() },
        }
    }

    fn text(&self, schema: &Schema) -> String {
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
    let level = AccessLevel::parse(name).with_context(|| {
        format!("access {name:?} is not known: disclose, auth, compare, search, read, add, delete, write or manage")
    })?;
    Ok(match level {
        AccessLevel::None => bail!("access \"none\" cannot be asked for"),
        AccessLevel::Disclose => Privilege::Disclose,
        AccessLevel::Auth => Privilege::Auth,
        AccessLevel::Compare => Privilege::Compare,
        AccessLevel::Search => Privilege::Search,
        AccessLevel::Read => Privilege::Read,
        AccessLevel::Add => Privilege::Add,
        AccessLevel::Delete => Privilege::Delete,
        AccessLevel::Increment => Privilege::Increment,
        AccessLevel::Write => Privilege::Write,
        AccessLevel::Manage => Privilege::Manage,
    })
}

/// The entry, its place as a superior, and each of its values; or each attribute only once.
fn everything(entry: &larix_engine::Entry, once: bool) -> Vec<Question> {
    let about = |about, value| Question { about, privilege: None, value };
    let mut questions = vec![about(About::Entry, None), about(About::Children, None)];
    for attribute in &entry.attributes {
        let named = || About::Attribute(attribute.description.clone());
        if once {
            questions.push(about(named(), None));
        } else {
            questions.extend(attribute.values.iter().map(|value| about(named(), Some(value.clone()))));
        }
    }
    questions
}

/// Whom and what the questions are about.
struct ExplainInput<'a> {
    policy: &'a AccessPolicy,
    subject: &'a Subject,
    target: &'a AccessTarget<'a>,
    schema: &'a Schema,
}

impl ExplainInput<'_> {
    /// On the standard error, where slapacl answers.
    fn answer(&self, questions: &[Question]) {
        for question in questions {
            let (item, shown) = (question.item(), question.text(self.schema));
            match &question.privilege {
                None => eprintln!("{shown}: {}", self.policy.collected(self.subject, self.target, item)),
                Some((name, privilege)) => {
                    let allowed = self.policy.check(self.subject, self.target, item, *privilege);
                    eprintln!("{name} access to {shown}: {}", if allowed { "ALLOWED" } else { "DENIED" });
                }
            }
        }
    }

    fn explain(&self, entry: &str, questions: &[Question], as_json: bool) {
        let explained: Vec<Explained> = questions
            .iter()
            .map(|question| {
                let privilege =
                    question.privilege.as_ref().map_or(Privilege::Read, |(_, privilege)| *privilege);
                let explanation = self.policy.explain(self.subject, self.target, question.item(), privilege);
                Explained { about: question.text(self.schema), explanation }
            })
            .collect();
        if as_json {
            println!("{:#}", explain::json(entry, &explained));
        } else {
            print!("{}", explain::text(entry, &explained));
        }
    }
}

/// An entry about which nothing is known.
struct Nothing;

impl EntryFacts for Nothing {
    fn visit(&self, _: &AttributeDescription, _: &mut dyn FnMut(&[u8]) -> bool) {}

    fn matches(&self, _: &BoundFilter) -> Match {
        Match::Undefined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_whose_rules_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        std::fs::write(&file, "database null\nsuffix cn=x\ndatabase monitor\n").unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        for (name, expected) in [
            ("cn=a,cn=x", Some("null")),
            ("cn=config", Some("config")),
            ("cn=schema,cn=config", Some("config")),
            ("cn=Databases,cn=Monitor", Some("monitor")),
            ("cn=y", None),
        ] {
            let found = section_of(&config, &dn(&config.schema, name).unwrap());
            assert_eq!(found.map(|section| section.kind.name()), expected, "{name}");
        }
        // The rules of cn=config, and not the frontend's.
        let own = section_of(&config, &dn(&config.schema, "cn=config").unwrap());
        let policy = config.access_policy(own).unwrap();
        let anonymous = Subject::default();
        let target = AccessTarget { dn: &dn(&config.schema, "cn=config").unwrap(), entry: &Nothing };
        assert!(!policy.check(&anonymous, &target, Item::Entry, Privilege::Read));
    }
}

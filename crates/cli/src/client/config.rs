//! `larix config`: a configuration kept as a file, beside the one of a server that runs or of a slapd.d.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use larix_configuration::slapd_d::{InUse, Stamp};
use larix_configuration::{Config, ConfigEntry, DEFAULT_DIRECTORY, Difference, Source, Step};
use larix_engine::write::WriteOperation;
use larix_proto::ldif::{Body, Change, LdifAttribute, Modification, Record, Writer};
use larix_proto::{ControlBuf, FilterBuf, Response, ResultCode, Scope, client};
use larix_server::clock::{SystemClock, SystemRandom};

use super::modify;
use super::options::{CommonArgs, named_server};
use super::session;
use super::transaction::Transaction;
use larix_client::{ClientError, Origin, Session};

#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(super) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Read a file and say what is wrong with it, and what in it has no effect
    Check {
        /// A slapd.conf
        file: PathBuf,
    },
    /// Write a configuration as one readable file: a slapd.conf
    #[command(disable_help_flag = true)]
    #[command(after_help = "\
Examples:
  larix config export -H ldapi:/// --output directory.conf
  larix config export -F larix-data/slapd.d --output directory.conf")]
    Export(Box<ExportArgs>),
    /// Show how a configuration differs from a file; exit status 1 if it does
    #[command(disable_help_flag = true)]
    #[command(after_help = "\
Example:
  larix config diff -H ldap://127.0.0.1:3890 -D cn=admin,dc=example,dc=com -W directory.conf")]
    Diff(Box<DiffArgs>),
    /// Change a configuration to what a file says: all of it or nothing
    #[command(disable_help_flag = true)]
    #[command(after_help = "\
Examples:
  larix config apply -H ldap://127.0.0.1:3890 -D cn=admin,dc=example,dc=com -W -n directory.conf
  larix config apply -H ldap://127.0.0.1:3890 -D cn=admin,dc=example,dc=com -W directory.conf")]
    Apply(Box<ApplyArgs>),
}

/// Whose configuration. With -H, -D, -Y or LDAPURI that of a server that runs, read and changed over LDAP; else that of a slapd.d,
/// whose server must not run when it is changed.
#[derive(Args, Debug)]
pub(super) struct Target {
    #[command(flatten)]
    common: CommonArgs,
    /// The slapd.d of a server that does not run
    #[arg(short = 'F', value_name = "DIRECTORY", conflicts_with = "uri")]
    directory: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    target: Target,
    /// Write to this file, which nobody else may read, instead of standard output
    #[arg(long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// A slapd.conf instead, with all that it includes
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct DiffArgs {
    #[command(flatten)]
    target: Target,
    /// The configuration as it should be: a slapd.conf
    file: PathBuf,
    /// As LDIF that ldapmodify takes; passwords are shown
    #[arg(long)]
    ldif: bool,
}

#[derive(Args, Debug)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    target: Target,
    /// The configuration as it should be: a slapd.conf
    file: PathBuf,
    /// Delete databases that the file does not have; their data stay on disk
    #[arg(long)]
    delete_databases: bool,
    /// Send one request after another, for servers without transactions under cn=config
    #[arg(long)]
    one_by_one: bool,
}

pub(super) fn run(args: &ConfigArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    match &args.command {
        ConfigCommand::Check { file } => check(file, out),
        ConfigCommand::Export(args) => export(args, out),
        ConfigCommand::Diff(args) => diff(args, out),
        ConfigCommand::Apply(args) => apply(args, out),
    }
}

fn check(file: &Path, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let config = read(file)?;
    for note in &config.notes {
        writeln!(out, "note: {note}").map_err(ClientError::Output)?;
    }
    let refusals = config.refusals();
    for refusal in &refusals {
        eprintln!("{refusal}");
    }
    if !refusals.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    writeln!(out, "{} is a valid configuration", file.display()).map_err(ClientError::Output)?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Config, ClientError> {
    // The error names the file already.
    Config::from_slapd_conf(file).map_err(|error| ClientError::Usage(error.to_string()))
}

fn export(args: &ExportArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let config = match &args.file {
        Some(file) => read(file)?,
        None => args.target.read(&mut args.target.session()?)?,
    };
    let exported = config.to_slapd_conf();
    match &args.output {
        None => out.write_all(exported.text.as_bytes()).map_err(ClientError::Output)?,
        Some(path) => {
            let fault = |error: std::io::Error| ClientError::Input {
                name: path.display().to_string(),
                why: match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        "exists already: remove it, or name another file".to_owned()
                    }
                    _ => error.to_string(),
                },
            };
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(fault)?;
            file.write_all(exported.text.as_bytes()).map_err(|error| {
                // A part of a configuration is of no use, and would keep its name from the next export.
                let _ = fs::remove_file(path);
                fault(error)
            })?;
        }
    }
    if !exported.without_form.is_empty() {
        eprintln!("larix: these have no slapd.conf form and stand in comments:");
        exported.without_form.iter().for_each(|line| eprintln!("  {line}"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(args: &DiffArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let wanted = read(&args.file)?;
    let current = args.target.read(&mut args.target.session()?)?;
    let difference = current.difference(&wanted);
    if args.ldif {
        let writer = args.target.common.ldif_writer()?;
        write_ldif(&difference, &writer, out)?;
    } else {
        write!(out, "{difference}").map_err(ClientError::Output)?;
    }
    Ok(if difference.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_ldif(difference: &Difference, writer: &Writer, out: &mut dyn Write) -> Result<(), ClientError> {
    let mut text = Vec::new();
    difference.steps.iter().for_each(|step| writer.record(&mut text, &record(step, Vec::new())));
    out.write_all(&text).map_err(ClientError::Output)
}

fn apply(args: &ApplyArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let wanted = read(&args.file)?;
    let refusals = wanted.refusals();
    if let Some(refusal) = refusals.first() {
        return Err(ClientError::Usage(refusal.to_string()));
    }
    let mut session = args.target.session()?;
    let directory = args.target.directory();
    let _in_use = if session.is_none() && !args.target.common.dry_run && directory.exists() {
        Some(InUse::by_tool(directory).map_err(|error| ClientError::Usage(error.to_string()))?)
    } else {
        None
    };
    let current = args.target.read(&mut session)?;
    let difference = current.difference(&wanted);
    write!(out, "{difference}").map_err(ClientError::Output)?;
    if difference.is_empty() {
        writeln!(out, "nothing to change").map_err(ClientError::Output)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.target.common.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.delete_databases
        && let Some(database) = deleted_database(&difference)
    {
        return Err(ClientError::Usage(format!(
            "nothing was changed: {} has no database for {database}; --delete-databases if it is to go",
            args.file.display()
        )));
    }
    match &mut session {
        None => apply_offline(current, &difference)?,
        Some(session) if args.one_by_one => {
            for (number, step) in difference.steps.iter().enumerate() {
                perform(session, step, Vec::new(), number, difference.steps.len())?;
            }
        }
        Some(session) => apply_together(session, &difference)?,
    }
    writeln!(out, "applied").map_err(ClientError::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// A database that would no longer be served.
fn deleted_database(difference: &Difference) -> Option<&str> {
    difference.steps.iter().find_map(|step| match &step.operation {
        WriteOperation::Delete { entry } if entry.starts_with("olcDatabase=") => Some(entry.as_str()),
        _ => None,
    })
}

/// Changes a slapd.d: the files are written once, after the last step.
fn apply_offline(current: Config, difference: &Difference) -> Result<(), ClientError> {
    let (clock, random) = (SystemClock, SystemRandom);
    let changed = current
        .changed_together(&difference.offline_changes(), &Stamp { clock: &clock, random: &random })
        .map_err(|(number, refusal)| {
            let step = difference.steps.get(number).map(ToString::to_string).unwrap_or_default();
            ClientError::Usage(format!("nothing was changed; this step is refused: {refusal}\n{step}"))
        })?;
    changed.commit().map_err(|error| ClientError::Usage(format!("nothing was changed: {error}")))
}

/// Changes a server's configuration in one transaction (RFC 5805).
fn apply_together(session: &mut Session, difference: &Difference) -> Result<(), ClientError> {
    let transaction = Transaction::start(session, "without transactions --one-by-one applies what it can")?;
    for (number, step) in difference.steps.iter().enumerate() {
        perform(session, step, vec![transaction.member()], number, difference.steps.len())?;
    }
    let ended = transaction.commit(session)?;
    if ended.result.code == ResultCode::SUCCESS {
        return Ok(());
    }
    eprintln!("larix: nothing was changed");
    Err(ClientError::Refused { step: "end of the transaction", result: ended.result })
}

fn perform(
    session: &mut Session,
    step: &Step,
    controls: Vec<ControlBuf>,
    number: usize,
    count: usize,
) -> Result<(), ClientError> {
    let reply = modify::perform(session, &record(step, controls))?;
    if reply.result.code == ResultCode::SUCCESS {
        return Ok(());
    }
    eprint!("larix: step {} of {count} is refused:\n{step}", number + 1);
    Err(ClientError::Refused { step: "larix config apply", result: reply.result })
}

/// A step as an LDIF record.
fn record(step: &Step, controls: Vec<ControlBuf>) -> Record {
    let (dn, change) = match step.operation.clone() {
        WriteOperation::Add { entry, attributes } => {
            let attributes = attributes
                .into_iter()
                .map(|a| LdifAttribute { description: a.description, values: a.values });
            (entry, Change::Add(attributes.collect()))
        }
        WriteOperation::Delete { entry } => (entry, Change::Delete),
        WriteOperation::Modify { object, changes } => {
            let changes = changes.into_iter().map(|change| Modification {
                operation: change.operation,
                description: change.attribute.description,
                values: change.attribute.values,
            });
            (object, Change::Modify(changes.collect()))
        }
        WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn, new_superior } => {
            (entry, Change::ModifyDn { new_rdn, delete_old_rdn, new_superior })
        }
    };
    Record { line: 0, dn, body: Body::Change { controls, change } }
}

/// Whether LDAPURI or LDAPHOST names a server. A server in ldap.conf does not count: clients of this machine ask it, and it need not be
/// the server of this machine.
fn is_named_by_environment() -> bool {
    named_server(session::ldap_conf()).is_some_and(|setting| setting.origin == Origin::Environment)
}

impl Target {
    /// A connection, if the configuration is a server's: without -F, one that -H or LDAPURI names, or that is to be bound at.
    fn session(&self) -> Result<Option<Session>, ClientError> {
        let common = &self.common;
        let is_a_server = common.names_server()
            || self.directory.is_none()
                && (common.bind_dn.is_some() || common.mechanism.is_some() || is_named_by_environment());
        if is_a_server { session::open(common).map(Some) } else { Ok(None) }
    }

    /// The slapd.d, if the configuration is no server's.
    fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or_else(|| Path::new(DEFAULT_DIRECTORY))
    }

    fn read(&self, session: &mut Option<Session>) -> Result<Config, ClientError> {
        let config = match session {
            Some(session) => Config::from_kept_entries(entries(session)?, Source::QuickStart),
            None => {
                if self.directory.is_none() {
                    eprintln!(
                        "larix config: reads {DEFAULT_DIRECTORY}; -F names another slapd.d, -H a server"
                    );
                }
                Config::from_slapd_d(self.directory())
            }
        };
        config.map_err(|error| ClientError::Usage(error.to_string()))
    }
}

/// All entries under cn=config, as the server shows them to the bound identity.
fn entries(session: &mut Session) -> Result<Vec<ConfigEntry>, ClientError> {
    let filter = FilterBuf::parse("(objectClass=*)")
        .map_err(|error| ClientError::Usage(format!("a filter: {error}")))?;
    let search = client::Search::new("cn=config", Scope::Subtree, filter.as_filter());
    let id = session.send(|out, id, controls| client::search(out, id, &search, controls))?;
    let mut found = Vec::new();
    loop {
        let message = session.connection.receive()?;
        if message.id != id {
            continue;
        }
        if let Response::Entry(entry) = &message.response {
            let attributes = entry.attributes.iter().map(|attribute| LdifAttribute {
                description: attribute.description.to_owned(),
                values: attribute.values.iter().map(<[u8]>::to_vec).collect(),
            });
            found.push(ConfigEntry::from_ldif(entry.dn.to_owned(), attributes.collect()));
        }
        if let Some((_, result)) = message.response.result() {
            let result = result.to_owned();
            // To an identity that may not see it the server answers that there is none.
            let hidden = result.code == ResultCode::NO_SUCH_OBJECT;
            if result.code != ResultCode::SUCCESS && !hidden {
                return Err(ClientError::Refused { step: "reading cn=config", result });
            }
            if found.is_empty() {
                let text = "the server shows no cn=config to you: bind as its olcRootDN (-D, -w), or over ldapi:// as root";
                return Err(ClientError::Usage(text.to_owned()));
            }
            return Ok(found);
        }
    }
}

//! `larix search`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args};
use larix_proto::control::{ControlValue, PagedResults};
use larix_proto::{
    ControlBuf, DerefAliases, Dn, FilterBuf, LdapResult, Response, ResultCode, Scope, SearchResultEntry,
    Strings, client, oid,
};

use super::controls::{self, Paging};
use super::error;
use super::options::CommonArgs;
use super::report;
use super::search_output::{Format, Heading, Output};
use super::session;
use super::value_files::ValueFiles;
use crate::terminal::{self, Otherwise};
use larix_client::{ClientError, LdapConf, Origin, Session};

const DEFAULT_FILTER: &str = "(objectclass=*)";

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Attributes: 1.1 for none, * for all user attributes, + for all operational ones, @class for those of a class.
Without a filter, (objectClass=*); a first word without `=` and parentheses is an attribute.

Examples:
  larix search -D cn=admin,dc=example,dc=com -W -b dc=example,dc=com '(uid=ann)' cn mail
  larix search -x -b \"\" -s base namingContexts")]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Where to search [LDAPBASE or BASE of ldap.conf, else the empty DN]
    #[arg(short = 'b', value_name = "DN", allow_hyphen_values = true)]
    pub(super) base: Option<String>,
    /// base, one, sub or children
    #[arg(short = 's', value_name = "SCOPE", default_value = "sub", value_parser = scope)]
    pub(super) scope: Scope,
    /// Dereference aliases: never, always, search or find [DEREF of ldap.conf, else never]
    #[arg(short = 'a', value_name = "DEREF", value_parser = deref)]
    deref: Option<DerefAliases>,
    /// Time limit in seconds, none or max [TIMELIMIT of ldap.conf, else none]
    #[arg(short = 'l', value_name = "LIMIT", value_parser = limit, allow_negative_numbers = true)]
    time_limit: Option<u32>,
    /// Size limit in entries, none or max [SIZELIMIT of ldap.conf, else none]
    #[arg(short = 'z', value_name = "LIMIT", value_parser = limit, allow_negative_numbers = true)]
    size_limit: Option<u32>,
    /// Names of attributes only, no values
    #[arg(short = 'A')]
    types_only: bool,
    /// LDIF: -L with comments, -LL without, -LLL without the version line too
    #[arg(short = 'L', action = ArgAction::Count)]
    ldif: u8,
    /// Sort entries here by this attribute; empty: by DN
    #[arg(short = 'S', value_name = "ATTRIBUTE")]
    sort: Option<String>,
    /// Add a user friendly name to each entry
    #[arg(short = 'u')]
    user_friendly: bool,
    /// Search once for each line of a file, put in for %s in the filter
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// With -f: go on after an error
    #[arg(short = 'c')]
    go_on: bool,
    /// Write values that are no text to files, and their URLs to the output; twice: all values
    #[arg(short = 't', action = ArgAction::Count, conflicts_with = "json")]
    value_files: u8,
    /// With -t: the folder for the files [TMPDIR, else /tmp]
    #[arg(short = 'T', value_name = "FOLDER")]
    value_folder: Option<PathBuf>,
    /// With -t: what the URLs begin with, in the place of file:// and the folder
    #[arg(short = 'F', value_name = "PREFIX")]
    url_prefix: Option<String>,
    /// A control, critical with !: pr=<size>[/prompt|noprompt], sss=[-]<attribute>[:<rule>][/...],
    /// vlv=<before>/<after>/<offset>/<count>|:<value>, deref=<names>:<attribute>,...[;...], mv=<filter>,
    /// subentries[=true|false], domainScope, dontUseCopy,
    /// <oid>[=:<value>|::<base64>]
    #[arg(short = 'E', value_name = "[!]EXTENSION")]
    extensions: Vec<String>,
    /// Filter, then attributes
    #[arg(value_name = "FILTER] [ATTRIBUTE")]
    words: Vec<String>,
}

impl SearchArgs {
    /// Where `-t` writes values.
    fn files(&self) -> Result<Option<ValueFiles>, ClientError> {
        if self.value_files == 0 {
            return Ok(None);
        }
        let (folder, prefix) = (self.value_folder.as_deref(), self.url_prefix.as_deref());
        ValueFiles::new(folder, prefix, self.value_files > 1).map(Some)
    }

    /// Whether standard input has the lines to search for.
    fn reads_stdin(&self) -> bool {
        self.file.as_deref() == Some(Path::new("-"))
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "base" => Scope::Base,
        "one" | "onelevel" => Scope::OneLevel,
        "sub" | "subtree" => Scope::Subtree,
        "children" | "subordinate" => Scope::Children,
        _ => return Err("base, one, sub or children".to_owned()),
    })
}

fn deref(text: &str) -> Result<DerefAliases, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "never" => DerefAliases::Never,
        "search" => DerefAliases::InSearching,
        "find" => DerefAliases::FindingBase,
        "always" => DerefAliases::Always,
        _ => return Err("never, always, search or find".to_owned()),
    })
}

/// No limit of ours is 0; `max` is the largest the protocol can say.
fn limit(text: &str) -> Result<u32, String> {
    match text.to_ascii_lowercase().as_str() {
        "none" => Ok(0),
        "max" => Ok(i32::MAX.unsigned_abs()),
        _ => text.parse().map_err(|_| "a number, none or max".to_owned()),
    }
}

/// How far a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) deref: DerefAliases,
    /// Entries; 0 is no limit.
    pub(super) size: u32,
    /// Seconds; 0 is no limit.
    pub(super) time: u32,
}

impl SearchArgs {
    /// What the command line says, else `conf`.
    pub(super) fn limits(&self, conf: &LdapConf) -> Result<Limits, ClientError> {
        Ok(Limits {
            deref: self.deref.map_or_else(|| default_deref(conf), Ok)?,
            size: self.size_limit.map_or_else(|| default_limit(conf, "SIZELIMIT"), Ok)?,
            time: self.time_limit.map_or_else(|| default_limit(conf, "TIMELIMIT"), Ok)?,
        })
    }
}

fn default_deref(conf: &LdapConf) -> Result<DerefAliases, ClientError> {
    let Some(setting) = conf.get("DEREF") else { return Ok(DerefAliases::Never) };
    Ok(match setting.value.to_ascii_lowercase().as_str() {
        "never" => DerefAliases::Never,
        "searching" => DerefAliases::InSearching,
        "finding" => DerefAliases::FindingBase,
        "always" => DerefAliases::Always,
        _ => return Err(ClientError::Usage(format!("{setting}: never, searching, finding or always"))),
    })
}

fn default_limit(conf: &LdapConf, name: &str) -> Result<u32, ClientError> {
    let Some(setting) = conf.get(name) else { return Ok(0) };
    let limit = setting.value.parse::<u32>().ok().filter(|limit| *limit <= i32::MAX.unsigned_abs());
    limit.ok_or_else(|| ClientError::Usage(format!("{setting}: a number from 0, no limit, to {}", i32::MAX)))
}

/// A first word with `=` in it is the filter, and so is one in parentheses: a mistake in it must not ask for all entries.
pub(super) fn filter_and_attributes(words: &[String]) -> (&str, Vec<&str>) {
    match words.split_first() {
        Some((first, rest)) if first.starts_with('(') || first.contains('=') => {
            (first, rest.iter().map(String::as_str).collect())
        }
        _ => (DEFAULT_FILTER, words.iter().map(String::as_str).collect()),
    }
}

pub(super) fn run(args: &SearchArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let (filter, attributes) = filter_and_attributes(&args.words);
    if args.file.is_none() {
        parse_filter(filter)?;
    }
    let extensions = controls::search(&args.extensions)?;
    let conf = session::ldap_conf();
    let base = args.base.as_deref().or_else(|| conf.value("BASE")).unwrap_or_default();
    let limits = args.limits(conf)?;
    let format = if args.common.json {
        Format::Json
    } else if args.ldif == 0 && args.value_files == 0 && io::stdout().is_terminal() {
        Format::Terminal { colour: report::use_colour() }
    } else {
        Format::Ldif { level: args.ldif }
    };
    let mut output =
        Output::new(out, format, args.common.ldif_writer()?, args.types_only, args.user_friendly)
            .with_files(args.files()?);
    let mut search = Search {
        args,
        base,
        limits,
        attributes: &attributes,
        controls: extensions.controls,
        paging: extensions.paging,
        session: None,
    };
    if !args.common.dry_run {
        let otherwise = if args.reads_stdin() { Otherwise::Nowhere } else { Otherwise::StandardInput };
        search.session = Some(session::open_with(&args.common, otherwise)?);
    }
    let mut remarks = controls::remarks(&controls::common(&args.common)?);
    remarks.extend(extensions.remarks);
    let heading = Heading {
        base,
        base_is_default: args.base.is_none(),
        scope: args.scope,
        filter,
        is_pattern: args.file.is_some(),
        attributes: &attributes,
        remarks: &remarks,
    };
    let Some(path) = &args.file else {
        let result = search.all_pages(filter, &heading, &mut output, true)?;
        let advice = match result.code {
            ResultCode::NO_SUCH_OBJECT => no_base(args, base, &result)?,
            ResultCode::INVALID_DN_SYNTAX => {
                Some(format!("{base:?} is no DN: -b takes a whole name, as in -b dc=example,dc=com"))
            }
            _ => None,
        };
        advice.iter().for_each(|advice| eprintln!("larix: {advice}"));
        return Ok(report::status(result.code));
    };
    search.each_line(path, filter, &heading, &mut output)
}

/// What may be the reason where the server shows no entry at the base.
fn no_base(args: &SearchArgs, base: &str, result: &LdapResult) -> Result<Option<String>, ClientError> {
    let conf = session::ldap_conf();
    if base.is_empty() {
        return Ok(Some("no base was named: -b does, as in -b dc=example,dc=com".to_owned()));
    }
    if let (None, Some(setting)) = (&args.base, conf.get("BASE"))
        && setting.origin != Origin::Environment
    {
        return Ok(Some(format!("{} names this base; -b names another one", setting.place())));
    }
    let is_anonymous = match args.common.urls(conf)?.first() {
        Some(url) => session::is_anonymous(&args.common, url),
        None => false,
    };
    let advice = match is_anonymous {
        true => Some(
            "this search was anonymous; if the entry is there, the access rules hide it: bind with -D and -W",
        ),
        false if base.to_ascii_lowercase().ends_with("cn=monitor") => {
            Some("the server has no `database monitor`, or its access rules do not let you read there")
        }
        false if result.matched_dn.is_empty() => Some(
            "nothing is shown at or above this base: is it misspelt, or has its suffix no entries yet? The server's suffixes: \
             larix search -b \"\" -s base namingContexts",
        ),
        false => None,
    };
    Ok(advice.map(str::to_owned))
}

fn parse_filter(text: &str) -> Result<FilterBuf, ClientError> {
    let bad = |error: larix_proto::FilterSyntaxError| ClientError::Usage(format!("filter `{text}`: {error}"));
    // As ldapsearch, a filter without parentheses is taken, too.
    FilterBuf::parse(text).or_else(|first| FilterBuf::parse(&format!("({text})")).map_err(|_| bad(first)))
}

struct Search<'a> {
    args: &'a SearchArgs,
    base: &'a str,
    limits: Limits,
    attributes: &'a [&'a str],
    controls: Vec<ControlBuf>,
    paging: Option<Paging>,
    /// None when nothing is to be done.
    session: Option<Session>,
}

/// How one request ended.
struct Done {
    result: LdapResult,
    /// Of the next page.
    cookie: Vec<u8>,
}

impl Search<'_> {
    fn each_line(
        &mut self,
        path: &Path,
        pattern: &str,
        heading: &Heading<'_>,
        output: &mut Output<'_>,
    ) -> Result<ExitCode, ClientError> {
        let fault = |error: io::Error| ClientError::Input {
            name: path.display().to_string(),
            why: error.to_string(),
        };
        let lines: Box<dyn BufRead> = if self.args.reads_stdin() {
            Box::new(BufReader::new(io::stdin()))
        } else {
            Box::new(BufReader::new(File::open(path).map_err(fault)?))
        };
        output.heading(heading)?;
        let mut status = ExitCode::SUCCESS;
        for (number, line) in lines.lines().enumerate() {
            let filter = pattern.replace("%s", &line.map_err(fault)?);
            if number > 0 {
                output.gap()?;
            }
            output.filter(&filter)?;
            if let Err(error) = parse_filter(&filter) {
                if !self.args.go_on {
                    return Err(error);
                }
                eprintln!("{}", error::error_text(&error));
                status = error::status_of(&error);
                continue;
            }
            let code = self.all_pages(&filter, heading, output, false)?.code;
            if code != ResultCode::SUCCESS {
                status = report::status(code);
                if !self.args.go_on {
                    break;
                }
            }
        }
        Ok(status)
    }

    fn all_pages(
        &mut self,
        filter: &str,
        heading: &Heading<'_>,
        output: &mut Output<'_>,
        with_heading: bool,
    ) -> Result<LdapResult, ClientError> {
        let filter = parse_filter(filter)?;
        let mut cookie = Vec::new();
        loop {
            if with_heading {
                output.heading(heading)?;
            }
            let Some(done) = self.once(&filter, &cookie, output)? else { return Ok(LdapResult::success()) };
            let more = !done.cookie.is_empty() && done.result.code == ResultCode::SUCCESS;
            output.finish(more)?;
            if !more {
                return Ok(done.result);
            }
            cookie = done.cookie;
            if self.paging.is_some_and(|paging| paging.prompt) {
                self.ask_for_next_page(output)?;
            }
        }
    }

    fn ask_for_next_page(&mut self, output: &mut Output<'_>) -> Result<(), ClientError> {
        let size = self.paging.map_or(0, |paging| paging.size);
        let question = format!("Press [size] Enter for the next {{{size}|size}} entries.\n");
        let fault = |name: &str, error: io::Error| ClientError::Input {
            name: name.to_owned(),
            why: error.to_string(),
        };
        let mut line = String::new();
        if self.args.reads_stdin() {
            line = terminal::line(&question).map_err(|error| fault("the terminal", error))?;
        } else {
            output.text(&question)?;
            io::stdin().lock().read_line(&mut line).map_err(|error| fault("standard input", error))?;
        }
        if let (Ok(size), Some(paging)) = (line.trim().parse(), &mut self.paging) {
            paging.size = size;
        }
        Ok(())
    }

    /// One request and its answers; `None` if there is no server to ask.
    fn once(
        &mut self,
        filter: &FilterBuf,
        cookie: &[u8],
        output: &mut Output<'_>,
    ) -> Result<Option<Done>, ClientError> {
        let args = self.args;
        let request = client::Search {
            base: self.base,
            scope: args.scope,
            deref: self.limits.deref,
            size_limit: self.limits.size,
            time_limit: self.limits.time,
            types_only: args.types_only,
            filter: filter.as_filter(),
            attributes: self.attributes,
        };
        let mut own = self.controls.clone();
        own.extend(self.paging.map(|paging| controls::page(paging, cookie)));
        let Some(session) = &mut self.session else { return Ok(None) };
        let id =
            session.send(|out, id, common| client::search(out, id, &request, &[common, &own].concat()))?;
        let mut held = BufferedAnswers::default();
        loop {
            let message = session.connection.receive()?;
            if message.id != id {
                continue;
            }
            let received: Vec<ControlBuf> =
                message.controls.iter().map(|control| control.to_owned()).collect();
            match message.response {
                Response::Entry(entry) => match &args.sort {
                    Some(attribute) => held.entry(&entry, attribute, received),
                    None => output.entry(entry.dn, entry.attributes, &received)?,
                },
                Response::Reference(urls) if args.sort.is_some() => held.reference(urls, received),
                Response::Reference(urls) => output.reference(urls, &received)?,
                Response::Intermediate { .. } => output.intermediate()?,
                other => {
                    let Some((_, result)) = other.result() else {
                        return Err(ClientError::Unexpected("neither an entry nor a result"));
                    };
                    let result = result.to_owned();
                    held.write(output)?;
                    output.result(id, &result, &received)?;
                    return Ok(Some(Done { result, cookie: next_cookie(&received) }));
                }
            }
        }
    }
}

fn next_cookie(controls: &[ControlBuf]) -> Vec<u8> {
    controls
        .iter()
        .filter(|control| control.oid == oid::PAGED_RESULTS)
        .find_map(|control| PagedResults::decode(control.value.as_deref()).ok())
        .map(|page| page.cookie.to_vec())
        .unwrap_or_default()
}

/// What a search with `-S` has found, until all of it is there.
#[derive(Default)]
pub(super) struct BufferedAnswers {
    entries: Vec<BufferedEntry>,
    /// BER of the URLs.
    references: Vec<(Vec<u8>, Vec<ControlBuf>)>,
}

impl BufferedAnswers {
    pub(super) fn entry(&mut self, entry: &SearchResultEntry<'_>, by: &str, controls: Vec<ControlBuf>) {
        self.entries.push(BufferedEntry::of(entry, by, controls));
    }

    pub(super) fn reference(&mut self, urls: Strings<'_>, controls: Vec<ControlBuf>) {
        self.references.push((urls.as_ber().to_vec(), controls));
    }

    /// The entries in their order, then the references, as ldapsearch writes them.
    pub(super) fn write(mut self, output: &mut Output<'_>) -> Result<(), ClientError> {
        self.entries.sort_by(|a, b| a.key.cmp(&b.key));
        for entry in &self.entries {
            entry.write(output)?;
        }
        for (urls, controls) in &self.references {
            output.reference(Strings::check(urls, "uri")?, controls)?;
        }
        Ok(())
    }
}

/// An entry kept to be sorted.
struct BufferedEntry {
    /// Lower case.
    key: Vec<Vec<u8>>,
    dn: String,
    attributes: Vec<u8>,
    controls: Vec<ControlBuf>,
}

impl BufferedEntry {
    fn of(entry: &SearchResultEntry<'_>, by: &str, controls: Vec<ControlBuf>) -> Self {
        let key = if by.is_empty() {
            // By the values of the DN, leaf first.
            let dn = Dn::parse(entry.dn).ok();
            let avas = dn.iter().flat_map(|dn| dn.rdns()).flat_map(|rdn| rdn.avas());
            avas.map(|ava| ava.value.to_ascii_lowercase()).collect()
        } else {
            let found =
                entry.attributes.iter().find(|attribute| attribute.description.eq_ignore_ascii_case(by));
            found.map_or_else(Vec::new, |attribute| {
                attribute.values.iter().map(<[u8]>::to_ascii_lowercase).collect()
            })
        };
        Self { key, dn: entry.dn.to_owned(), attributes: entry.attributes.as_ber().to_vec(), controls }
    }

    fn write(&self, output: &mut Output<'_>) -> Result<(), ClientError> {
        let attributes = larix_proto::Attributes::check(&self.attributes)?;
        output.entry(&self.dn, attributes, &self.controls)
    }
}

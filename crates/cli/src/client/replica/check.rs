//! `larix replica check`: two servers' digests, and the entries behind those that differ.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use larix_client::{ClientError, Session};
use larix_engine::csn::Csn;
use larix_proto::{ResultCode, Scope, client};
use larix_replication::digest::{
    self, Difference, DifferentEntry, DigestRequest, DigestResponse, EntryDigest, Gathered, Row,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::json as output;
use super::super::options::CommonArgs;
use super::entries::{self, Asked, Shown};
use super::{NO, Server, at};

#[derive(Args, Debug)]
#[command(after_help = "\
Two Larix servers compare digests, which takes the rootdn or the manage privilege on the suffix entry. With any other \
server entries are searched and their entryUUID, entryCSN and DN compared.
The exit status is 0 if both hold the same, 5 if not, else the result code or 255.")]
pub(super) struct CheckArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Compare at and below this entry [the server's one suffix]
    #[arg(short = 'b', value_name = "DN")]
    base: Option<String>,
    /// Leave this attribute out: a fractional replica does not have it
    #[arg(long, value_name = "ATTRIBUTE")]
    without: Vec<String>,
    /// Stop after so many entries that differ
    #[arg(long, value_name = "ENTRIES", default_value_t = 100)]
    limit: usize,
    /// Seconds between two looks at what differs: what was on its way has arrived then
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    settle: u64,
    /// Compare entryUUID, entryCSN and DN alone, by searching, whatever the servers know
    #[arg(long)]
    search: bool,
    /// A server, as URL
    #[arg(value_name = "URL")]
    here: String,
    /// The other one
    #[arg(value_name = "URL")]
    there: String,
}

/// Looks at most at what differs before what still changes is told as changing.
const LOOKS: usize = 5;

/// How servers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Digests,
    Search,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Digests => "digests",
            Self::Search => "search",
        }
    }
}

/// A comparison of two servers.
struct Check<'a> {
    args: &'a CheckArgs,
    base: String,
    method: Method,
    servers: [Server; 2],
}

/// What one look found.
#[derive(Default)]
struct Look {
    different: Vec<DifferentEntry>,
    /// There may be more.
    cut: bool,
    entries: [u64; 2],
    context: [Vec<Csn>; 2],
    questions: usize,
}

pub(super) fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let mut here = at(&args.here, Server::open(&args.common, &args.here))?;
    let there = at(&args.there, Server::open(&args.common, &args.there))?;
    let base = at(&args.here, super::base(args.base.as_deref(), &mut here))?;
    let method = if args.search { Method::Search } else { Method::Digests };
    let mut check = Check { args, base, method, servers: [here, there] };
    let (look, changing) = check.look_until_settled()?;
    check.report(&look, &changing, out)?;
    Ok(if look.different.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

impl Check<'_> {
    /// The last look, and which of its entries were not the same in the look before.
    fn look_until_settled(&mut self) -> Result<(Look, Vec<Uuid>), ClientError> {
        let mut before = self.look()?;
        let mut changing = Vec::new();
        for _ in 1..LOOKS {
            if before.different.is_empty() {
                return Ok((before, Vec::new()));
            }
            self.say(format_args!("{} entries differ; looking again", before.different.len()));
            settle(Duration::from_secs(self.args.settle));
            let now = self.look()?;
            let new = now.different.iter().filter(|entry| !before.different.contains(entry));
            changing = new.map(|entry| entry.uuid).collect();
            before = now;
            if changing.is_empty() {
                break;
            }
        }
        Ok((before, changing))
    }

    /// Asks both servers until it is known which entries differ.
    fn look(&mut self) -> Result<Look, ClientError> {
        let mut difference = Difference::new(self.args.limit);
        let mut look = Look::default();
        while let Some(question) = difference.question() {
            let request = question.request(&self.base, &self.args.without);
            let [here, there] = self.ask(&request)?;
            difference.answers(&here.ranges, &there.ranges).map_err(ClientError::Unexpected)?;
            look.questions += 1;
            look.entries = [here.entries, there.entries];
            if look.questions == 1 {
                let [[here, _], [there, _]] = [here.context, there.context];
                look.context = [here, there];
            }
            self.say(format_args!(
                "question {}: {} and {} entries, {} differ so far",
                look.questions,
                look.entries[0],
                look.entries[1],
                difference.different().len()
            ));
        }
        look.cut = difference.is_cut();
        look.different = difference.different().to_vec();
        Ok(look)
    }

    /// Asks both at the same time.
    fn ask(&mut self, request: &DigestRequest) -> Result<[DigestResponse; 2], ClientError> {
        let method = self.method;
        let [here, there] = &mut self.servers;
        let (here, there) = thread::scope(|scope| {
            let other = scope.spawn(|| answer(&mut there.session, method, request));
            let here = answer(&mut here.session, method, request);
            (here, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        match (at(&self.args.here, here)?, at(&self.args.there, there)?) {
            (Some(here), Some(there)) => Ok([here, there]),
            _ => {
                self.say(format_args!("not both servers know digests: entries are searched and compared"));
                self.method = Method::Search;
                self.ask(request)
            }
        }
    }

    fn report(&mut self, look: &Look, changing: &[Uuid], out: &mut dyn Write) -> Result<(), ClientError> {
        let uuids: Vec<Uuid> = look.different.iter().map(|entry| entry.uuid).collect();
        let mut shown = Vec::new();
        for server in &mut self.servers {
            let found = entries::by_uuid(&mut server.session, &self.base, &uuids, &self.args.without);
            shown.push(at(&server.url, found)?);
        }
        for entry in &look.different {
            let [here, there] = [0, 1].map(|at| shown.get(at).and_then(|found| found.get(&entry.uuid)));
            let is_changing = changing.contains(&entry.uuid);
            if self.args.common.json {
                output::line(out, &entry_json(entry, here, there, is_changing))?;
            } else {
                self.entry_text(entry, here, there, is_changing, out)?;
            }
        }
        self.summary(look, out)
    }

    fn entry_text(
        &self,
        entry: &DifferentEntry,
        here: Option<&Shown>,
        there: Option<&Shown>,
        changing: bool,
        out: &mut dyn Write,
    ) -> Result<(), ClientError> {
        let dn = here.or(there).map_or("(no entry of this entryUUID is shown)", |shown| &shown.dn);
        let mut text = format!("{dn}\n  entryUUID: {}\n", entry.uuid);
        for (server, csn, shown) in
            [(&self.servers[0], entry.here, here), (&self.servers[1], entry.there, there)]
        {
            let what = match csn {
                None => "not there".to_owned(),
                Some(None) => "without entryCSN".to_owned(),
                Some(Some(csn)) => csn.text(),
            };
            text.push_str(&format!("  {}: {what}", server.url));
            if let Some(shown) = shown.filter(|shown| shown.dn != dn) {
                text.push_str(&format!(" as {}", shown.dn));
            }
            text.push('\n');
        }
        if let (Some(here), Some(there)) = (here, there) {
            let names = different_attributes(here, there);
            if !names.is_empty() {
                text.push_str(&format!("  differ: {}\n", names.join(", ")));
            } else if entry.here.is_some() == entry.there.is_some()
                && here.csn == there.csn
                && here.dn == there.dn
            {
                text.push_str(
                    "  differ in what a search does not show, or in the entryUUID of the entry above\n",
                );
            }
        }
        if changing {
            text.push_str("  still changing\n");
        }
        out.write_all(text.as_bytes()).map_err(ClientError::Output)
    }

    fn summary(&self, look: &Look, out: &mut dyn Write) -> Result<(), ClientError> {
        let equal = look.different.is_empty();
        if self.args.common.json {
            let context: Vec<Vec<String>> =
                look.context.iter().map(|csns| csns.iter().map(Csn::text).collect()).collect();
            return output::line(
                out,
                &json!({
                    "base": self.base,
                    "servers": [self.servers[0].url, self.servers[1].url],
                    "equal": equal,
                    "method": self.method.name(),
                    "entries": look.entries,
                    "different": look.different.len(),
                    "more": look.cut,
                    "questions": look.questions,
                    "contextCSN": context,
                }),
            );
        }
        let what = match self.method {
            Method::Digests => "",
            Method::Search => " in entryUUID, entryCSN and DN",
        };
        let text = if equal {
            format!("equal{what}: {} entries\n", look.entries[0])
        } else {
            let more = if look.cut { "or more " } else { "" };
            let count = look.different.len();
            format!(
                "not equal{what}: {count} {more}of {} and {} entries differ\n",
                look.entries[0], look.entries[1]
            )
        };
        out.write_all(text.as_bytes()).map_err(ClientError::Output)
    }

    /// Progress, for those who watch.
    fn say(&self, text: std::fmt::Arguments<'_>) {
        if self.args.common.verbose || std::io::stderr().is_terminal() {
            eprintln!("{text}");
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "what other servers send one another is no event here")]
fn settle(time: Duration) {
    thread::sleep(time);
}

/// `None`: the server knows no digests.
fn answer(
    session: &mut Session,
    method: Method,
    request: &DigestRequest,
) -> Result<Option<DigestResponse>, ClientError> {
    if method == Method::Search {
        return by_search(session, request).map(Some);
    }
    let value = request.encode();
    let reply =
        session.call(|out, id, controls| client::extended(out, id, digest::OID, Some(&value), controls))?;
    match (reply.result.code, reply.value) {
        (ResultCode::SUCCESS, Some(value)) => DigestResponse::decode(&value)
            .map(Some)
            .map_err(|error| ClientError::Input { name: "the answer".to_owned(), why: error.to_string() }),
        (ResultCode::SUCCESS, None) => Err(ClientError::Unexpected("no digests in the answer")),
        (ResultCode::PROTOCOL_ERROR, _) => Ok(None),
        _ => Err(ClientError::Refused { step: "digests", result: reply.result }),
    }
}

/// What a server would answer, made from what a search shows: entryUUID, entryCSN and DN, names without regard to case.
fn by_search(session: &mut Session, request: &DigestRequest) -> Result<DigestResponse, ClientError> {
    let before = entries::context_csns(session, &request.base)?;
    let mut gathered = Gathered::new(request);
    let filter = super::all()?;
    let asked = Asked {
        base: &request.base,
        scope: Scope::Subtree,
        filter: &filter,
        attributes: &["entryUUID", "entryCSN"],
    };
    entries::each(session, &asked, &mut |dn, attributes| {
        let (uuid, csn) = entries::identity(attributes);
        let name = dn.to_lowercase();
        let digest = EntryDigest::new(&uuid, None, name.as_bytes(), csn.as_ref()).finish();
        gathered.add(Row { uuid, csn, digest });
    })?;
    let after = entries::context_csns(session, &request.base)?;
    Ok(gathered.finish([before, after]))
}

fn different_attributes(here: &Shown, there: &Shown) -> Vec<String> {
    let mut names: Vec<&String> = here.attributes.keys().chain(there.attributes.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| here.attributes.get(*name) != there.attributes.get(*name));
    names.into_iter().cloned().collect()
}

fn entry_json(entry: &DifferentEntry, here: Option<&Shown>, there: Option<&Shown>, changing: bool) -> Value {
    let csn = |csn: Option<Option<Csn>>| csn.flatten().map(|csn| csn.text());
    let attributes = here.zip(there).map(|(here, there)| different_attributes(here, there));
    json!({
        "entryUUID": entry.uuid.to_string(),
        "dn": [here.map(|shown| &shown.dn), there.map(|shown| &shown.dn)],
        "there": [entry.here.is_some(), entry.there.is_some()],
        "entryCSN": [csn(entry.here), csn(entry.there)],
        "attributes": attributes,
        "changing": changing,
    })
}

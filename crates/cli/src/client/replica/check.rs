//! `larix replica check`: two servers' digests, or what searches show of their entries, and the entries that differ.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use larix_client::{ClientError, Session};
use larix_engine::csn::Csn;
use larix_proto::{ResultCode, Scope, client};
use larix_replication::digest::{
    self, Difference, DifferentEntry, DigestBuilder, DigestRequest, DigestResponse,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::json as output;
use super::super::options::CommonArgs;
use super::entries::{self, EntryQuery, Kind, Shown};
use super::{NO, Server, advised, at, values};

#[derive(Args, Debug)]
#[command(after_help = "\
Two Larix servers compare digests, which takes the rootdn or the manage privilege on the suffix entry. With any other \
server entries are searched and their entryUUID, entryCSN and DN compared. With --values all that entries hold is compared, \
whatever the servers are, but for what each server derives or keeps for itself (memberOf, times of binds and failed \
binds, ...): bind as somebody who may read everything on both, for what neither shows is not compared.
The exit status is 0 if both hold the same, 5 if not, else the result code or 255.

Example:
  larix replica check -D cn=admin,dc=example,dc=com -W ldap://one.example ldap://two.example")]
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
    #[arg(long, value_name = "ENTRIES", default_value_t = 100, value_parser = at_least_one)]
    limit: usize,
    /// Seconds between two looks at what differs: what was on its way has arrived then
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    settle: u64,
    /// Compare entryUUID, entryCSN and DN alone, by searching, whatever the servers know
    #[arg(long)]
    search: bool,
    /// Compare the values of all attributes, too, by searching, whatever the servers know
    #[arg(long)]
    values: bool,
    /// The two servers, as URLs; -H may name them, too
    #[arg(value_name = "URL")]
    urls: Vec<String>,
}

/// With none nothing would be compared.
fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "a number from 1 on".to_owned())
}

/// How often a differing entry is read before one that still changes is reported as changing.
const LOOKS: usize = 5;

/// To somebody who is bound, and is refused.
const BOUND: &str = "digests are for the rootdn and for who has the manage privilege on the suffix entry: bind as one of \
                     these, or compare what searches show, with --search or --values";

/// How servers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Digests,
    /// entryUUID, entryCSN and DN.
    Search,
    /// These and all values, by searching as well.
    Values,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Digests => "digests",
            Self::Search => "search",
            Self::Values => "values",
        }
    }

    /// What is equal or not, in words; digests are over all there is.
    fn compared(self) -> &'static str {
        match self {
            Self::Digests => "",
            Self::Search => " in entryUUID, entryCSN and DN",
            Self::Values => " in entryUUID, entryCSN, DN and values",
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
    /// What both show of those that differ, once it was read.
    shown: Option<[BTreeMap<Uuid, Shown>; 2]>,
}

pub(super) fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let urls = super::servers(&args.common, &args.urls, super::environment().as_deref(), 2..=2)?;
    let opened = urls.iter().map(|url| at(url, Server::open(&args.common, url)));
    let servers = opened.collect::<Result<Vec<_>, _>>()?;
    let [mut here, there]: [Server; 2] =
        servers.try_into().map_err(|_| ClientError::Usage("name two servers".to_owned()))?;
    let base = super::base(args.base.as_deref(), &mut here);
    let base = at(&here.url, base)?;
    let method = match (args.values, args.search) {
        (true, _) => Method::Values,
        (false, true) => Method::Search,
        (false, false) => Method::Digests,
    };
    let mut check = Check { args, base, method, servers: [here, there] };
    let (mut look, changing) = check.look_until_settled()?;
    if look.entries == [0, 0] {
        check.find_base()?;
    }
    check.report(&mut look, &changing, out)?;
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
            let now = self.look_again(&before)?;
            let new = now.different.iter().filter(|entry| !before.different.contains(entry));
            changing = new.map(|entry| entry.uuid).collect();
            before = now;
            if changing.is_empty() {
                break;
            }
        }
        Ok((before, changing))
    }

    /// What differed, looked at once more. With digests that is another look at all; where each look at all takes minutes,
    /// the entries that differed are read again one by one: those that came while the servers were read page by page are
    /// equal by now.
    fn look_again(&mut self, before: &Look) -> Result<Look, ClientError> {
        if self.method != Method::Values {
            return self.look();
        }
        let shown = self.read(before)?;
        let different = still_different(&before.different, &shown);
        if different.is_empty() && before.cut {
            // Beyond the limit nothing was looked at.
            return self.look();
        }
        let Look { cut, entries, questions, .. } = *before;
        Ok(Look { different, cut, entries, context: before.context.clone(), questions, shown: Some(shown) })
    }

    /// Nothing was compared: the first server says whether the base is there at all.
    fn find_base(&mut self) -> Result<(), ClientError> {
        let [here, _] = &mut self.servers;
        let found = entries::context_csns(&mut here.session, &self.base);
        at(&here.url, found.map(drop).map_err(|error| advised(error, here.anonymous, "")))
    }

    /// What both servers show of the entries that differ.
    fn read(&mut self, look: &Look) -> Result<[BTreeMap<Uuid, Shown>; 2], ClientError> {
        let uuids: Vec<Uuid> = look.different.iter().map(|entry| entry.uuid).collect();
        let mut shown = [BTreeMap::new(), BTreeMap::new()];
        for (server, shown) in self.servers.iter_mut().zip(&mut shown) {
            let found = entries::by_uuid(&mut server.session, &self.base, &uuids, &self.args.without);
            let found = entries::or_nothing(found);
            *shown = at(&server.url, found.map_err(|error| advised(error, server.anonymous, BOUND)))?;
        }
        Ok(shown)
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
        let anonymous = [here.anonymous, there.anonymous];
        let (here, other) = thread::scope(|scope| {
            let ask = || answer(&mut there.session, method, request);
            let other = thread::Builder::new().spawn_scoped(scope, ask).ok();
            let here = answer(&mut here.session, method, request);
            let joined =
                other.map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            (here, joined)
        });
        // Where the system has no thread to give, one after the other.
        let there = other.unwrap_or_else(|| answer(&mut there.session, method, request));
        let here = here.map_err(|error| advised(error, anonymous[0], BOUND));
        let there = there.map_err(|error| advised(error, anonymous[1], BOUND));
        match (at(&self.servers[0].url, here)?, at(&self.servers[1].url, there)?) {
            (Some(here), Some(there)) => Ok([here, there]),
            _ => {
                self.say(format_args!("not both servers know digests: entries are searched and compared"));
                self.method = Method::Search;
                self.ask(request)
            }
        }
    }

    fn report(&mut self, look: &mut Look, changing: &[Uuid], out: &mut dyn Write) -> Result<(), ClientError> {
        let shown = match look.shown.take() {
            Some(shown) => shown,
            None => self.read(look)?,
        };
        for entry in &look.different {
            let [here, there] = shown.each_ref().map(|found| found.get(&entry.uuid));
            let is_changing = changing.contains(&entry.uuid);
            if self.args.common.json {
                output::line(out, &self.entry_json(entry, here, there, is_changing))?;
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
        let uuid = entry_uuid(entry).unwrap_or_else(|| "none".to_owned());
        let mut text = format!("{dn}\n  entryUUID: {uuid}\n");
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
            let differing = values::differing(here, there);
            if !differing.is_empty() {
                let names: Vec<&str> = differing.iter().map(|attribute| attribute.name).collect();
                text.push_str(&format!("  differ: {}\n", names.join(", ")));
                if self.method == Method::Values {
                    let servers = self.servers.each_ref().map(|server| server.url.as_str());
                    differing.iter().for_each(|attribute| text.push_str(&attribute.text(servers)));
                }
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

    fn entry_json(
        &self,
        entry: &DifferentEntry,
        here: Option<&Shown>,
        there: Option<&Shown>,
        changing: bool,
    ) -> Value {
        let csn = |csn: Option<Option<Csn>>| csn.flatten().map(|csn| csn.text());
        let differing = here.zip(there).map(|(here, there)| values::differing(here, there));
        let names: Option<Vec<&str>> = differing.as_ref().map(|all| all.iter().map(|one| one.name).collect());
        let mut object = json!({
            "entryUUID": entry_uuid(entry),
            "dn": [here.map(|shown| &shown.dn), there.map(|shown| &shown.dn)],
            "there": [entry.here.is_some(), entry.there.is_some()],
            "entryCSN": [csn(entry.here), csn(entry.there)],
            "attributes": names,
            "changing": changing,
        });
        if let (Method::Values, Some(differing), Some(members)) =
            (self.method, &differing, object.as_object_mut())
        {
            members.insert("values".to_owned(), values::json(differing));
        }
        object
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
        let what = self.method.compared();
        let mut text = if equal {
            format!("equal{what}: {} entries\n", look.entries[0])
        } else {
            let more = if look.cut { "or more " } else { "" };
            let count = look.different.len();
            format!(
                "not equal{what}: {count} {more}of {} and {} entries differ\n",
                look.entries[0], look.entries[1]
            )
        };
        if self.method == Method::Search {
            text.push_str("values were not compared: --values compares them, too\n");
        }
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
    match method {
        Method::Digests => {}
        Method::Search | Method::Values => {
            return by_search(session, request, method == Method::Values).map(Some);
        }
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

/// What a server would answer, made from what searches show: entryUUID, entryCSN and DN, names without regard to case; with
/// `values` all attributes that are compared, and subentries, too. Of an entry nothing is kept but what its range needs.
fn by_search(
    session: &mut Session,
    request: &DigestRequest,
    values: bool,
) -> Result<DigestResponse, ClientError> {
    let Some(before) = entries::or_nothing(entries::context_csns(session, &request.base).map(Some))? else {
        return Ok(DigestBuilder::new(request).finish([Vec::new(), Vec::new()]));
    };
    let mut builder = DigestBuilder::new(request);
    let filter = super::all()?;
    let (kinds, attributes) = match values {
        true => (&Kind::ALL[..], &entries::ALL_ATTRIBUTES),
        false => (&[Kind::Entries][..], &["entryUUID", "entryCSN"]),
    };
    for kind in kinds.iter().copied() {
        let query =
            EntryQuery { base: &request.base, scope: Scope::Subtree, filter: &filter, attributes, kind };
        entries::each(session, &query, &mut |dn, attributes| {
            builder.add(entries::row(dn, attributes, values.then_some(&request.without)));
        })?;
    }
    let after = entries::context_csns(session, &request.base)?;
    Ok(builder.finish([before, after]))
}

/// The entryUUID that the servers show.
fn entry_uuid(entry: &DifferentEntry) -> Option<String> {
    (!entries::is_made_up(&entry.uuid)).then(|| entry.uuid.to_string())
}

/// Which of the entries that differed still do, as both servers show them now.
pub(super) fn still_different(
    before: &[DifferentEntry],
    shown: &[BTreeMap<Uuid, Shown>; 2],
) -> Vec<DifferentEntry> {
    let now = |entry: &DifferentEntry| {
        let [here, there] = shown.each_ref().map(|found| found.get(&entry.uuid));
        match (here, there) {
            (Some(here), Some(there)) if here.is_like(there) => None,
            // It need not be gone: its entryUUID may be there, and not to be read. What was seen counts.
            (None, None) if entries::is_made_up(&entry.uuid) => Some(*entry),
            // Both have deleted it meanwhile.
            (None, None) => None,
            _ => {
                let [here, there] = [here, there].map(|shown| shown.map(|shown| shown.csn));
                Some(DifferentEntry { uuid: entry.uuid, here, there })
            }
        }
    };
    before.iter().filter_map(now).collect()
}

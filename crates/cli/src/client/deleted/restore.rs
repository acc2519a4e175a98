//! `larix deleted restore`: deleted entries are added again, with their entryUUIDs and passwords.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use larix_client::{ClientError, Session};
use larix_engine::write::MANAGEABLE;
use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::extended::EndTransactionResponse;
use larix_proto::filter::escaped;
use larix_proto::ldif::LdifAttribute;
use larix_proto::{ControlBuf, Dn, LdapResult, MessageId, ModifyOperation, ResultCode, Scope, oid};
use larix_schema::definition::AttributeTypeDefinition;
use serde_json::json;

use super::super::json as output;
use super::super::replica::entries::{self, EntryQuery, Kind};
use super::super::session;
use super::super::transaction::Transaction;
use super::record::Deleted;
use super::select::{Selection, folded, parsed, values_of};

/// Entries that are looked for by their entryUUIDs in one search.
const TOGETHER: usize = 50;

/// The server's own record of who changed the entry, and when: the restore is the change.
const OF_THIS_CHANGE: [&str; 2] = ["modifiersName", "modifyTimestamp"];

#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    selection: Selection,
    /// Bring the one entry back under this name
    #[arg(long = "as", value_name = "DN", conflicts_with = "below")]
    name: Option<String>,
    /// Add the entries to the groups that their memberOf named, as values of this attribute of the groups: member
    #[arg(long, value_name = "ATTRIBUTE")]
    memberships: Option<String>,
    /// Leave an attribute out
    #[arg(long, value_name = "ATTRIBUTE")]
    without: Vec<String>,
    /// As new entries: without entryUUID, times, password histories, and what else takes the privilege `manage`
    #[arg(long)]
    plain: bool,
    /// Send one request after another, for more entries than a transaction takes
    #[arg(long)]
    one_by_one: bool,
}

/// A request, and what it does in words.
struct Step {
    summary: String,
    dn: String,
    request: Request,
}

enum Request {
    Add(Vec<LdifAttribute>),
    /// An attribute of a group, and the member.
    Join(String, String),
}

pub(super) fn run(args: &RestoreArgs, out: &mut dyn Write) -> Result<ExitCode, ClientError> {
    let selection = &args.selection;
    if selection.below.is_some() && selection.since.is_none() {
        return Err(ClientError::Usage(
            "--below brings back all that was deleted there, long ago, too: say since when, as in --since 1h"
                .to_owned(),
        ));
    }
    let mut session = session::open(&selection.common)?;
    let mut found = selection.find_wanted(&mut session)?;
    if let Some(name) = &args.name {
        let [one] = found.as_mut_slice() else {
            return Err(ClientError::Usage(format!(
                "--as {name}: it is a name for one entry, and there are several"
            )));
        };
        name.clone_into(&mut one.dn);
    }
    // What was deleted last comes first: superiors before what was below them, and what followed from a delete before its cause.
    found.reverse();
    let mut entries = Vec::new();
    for deleted in found {
        entries.push((deleted.entry()?, deleted));
    }
    if !args.plain {
        leave_out_those_that_are_back(&mut session, &mut entries)?;
    }
    let steps = steps(args, &mut session, entries)?;
    if !selection.common.dry_run {
        if steps.len() > 1 && !args.one_by_one {
            together(args, &mut session, &steps)?;
        } else {
            one_by_one(args, &mut session, &steps)?;
        }
    }
    for step in &steps {
        if selection.common.json {
            let kind = match &step.request {
                Request::Add(_) => "add",
                Request::Join(..) => "modify",
            };
            output::line(
                out,
                &json!({ "dn": step.dn, "operation": kind, "done": !selection.common.dry_run }),
            )?;
        } else {
            let would = if selection.common.dry_run { "would be " } else { "" };
            writeln!(out, "{would}{}", step.summary).map_err(ClientError::Output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the server is asked for, superiors first, then groups.
fn steps(
    args: &RestoreArgs,
    session: &mut Session,
    entries: Vec<(Vec<LdifAttribute>, Deleted)>,
) -> Result<Vec<Step>, ClientError> {
    let unmodifiable_types = unmodifiable_types(session, args.plain)?;
    let is_left_out = |name: &str| {
        let base = name.split(';').next().unwrap_or_default();
        unmodifiable_types.contains(&base.to_ascii_lowercase())
            || args.without.iter().any(|without| without.eq_ignore_ascii_case(name))
    };
    let (mut adds, mut joins) = (Vec::new(), Vec::new());
    for (mut attributes, deleted) in entries {
        if let Some(attribute) = &args.memberships {
            let groups = attributes.iter().find(|one| one.description.eq_ignore_ascii_case("memberOf"));
            for group in groups.into_iter().flat_map(|groups| &groups.values) {
                let group = String::from_utf8_lossy(group).into_owned();
                joins.push(Step {
                    summary: format!("added {} to {group}", deleted.dn),
                    dn: group,
                    request: Request::Join(attribute.clone(), deleted.dn.clone()),
                });
            }
        }
        attributes.retain(|attribute| !is_left_out(&attribute.description));
        if args.name.is_some() {
            name_values(&deleted.dn, &mut attributes)?;
        }
        adds.push(Step {
            summary: format!("restored {}", deleted.dn),
            dn: deleted.dn,
            request: Request::Add(attributes),
        });
    }
    adds.extend(joins);
    Ok(adds)
}

/// Gives the entry the values of its name.
fn name_values(dn: &str, attributes: &mut Vec<LdifAttribute>) -> Result<(), ClientError> {
    let parsed = Dn::parse(dn).map_err(|error| ClientError::Usage(format!("--as {dn}: {error}")))?;
    for ava in parsed.rdns().first().map(|rdn| rdn.avas()).unwrap_or_default() {
        let value = ava.value.to_vec();
        match attributes.iter_mut().find(|one| one.description.eq_ignore_ascii_case(ava.attribute)) {
            Some(own) if own.values.iter().any(|known| known.eq_ignore_ascii_case(&value)) => {}
            Some(own) => own.values.push(value),
            None => {
                attributes.push(LdifAttribute { description: ava.attribute.to_owned(), values: vec![value] })
            }
        }
    }
    Ok(())
}

/// The attributes, in lower case, that no client gives an entry, by the schema of this server.
fn unmodifiable_types(session: &mut Session, plain: bool) -> Result<HashSet<String>, ClientError> {
    let subschema = values_of(session, "", "subschemaSubentry")?;
    let subschema = subschema.first().map_or("cn=Subschema", String::as_str);
    let definitions = values_of(session, subschema, "attributeTypes")?;
    let mut unmodifiable = HashSet::new();
    for definition in definitions.iter().filter_map(|text| AttributeTypeDefinition::parse(text).ok()) {
        let is_any = |list: &[&str]| {
            list.iter().any(|name| definition.names.iter().any(|own| own.eq_ignore_ascii_case(name)))
        };
        let managed = !plain && is_any(&MANAGEABLE) && !is_any(&OF_THIS_CHANGE);
        if definition.no_user_modification && !managed {
            unmodifiable.extend(definition.names.iter().map(|name| name.to_ascii_lowercase()));
            unmodifiable.insert(definition.oid);
        }
    }
    if unmodifiable.is_empty() {
        return Err(ClientError::Usage(format!(
            "{subschema} shows no attributeTypes to you, so that it is not known what a client may add: the rules of the server \
             must let you read it"
        )));
    }
    Ok(unmodifiable)
}

/// Entries that exist again, under whatever name, are not made a second time.
fn leave_out_those_that_are_back(
    session: &mut Session,
    entries: &mut Vec<(Vec<LdifAttribute>, Deleted)>,
) -> Result<(), ClientError> {
    let uuids: Vec<String> = entries.iter().filter_map(|(_, deleted)| deleted.uuid.clone()).collect();
    let names: Vec<_> = entries.iter().map(|(_, deleted)| folded(&deleted.dn)).collect();
    let mut present: HashMap<String, String> = HashMap::new();
    for suffix in values_of(session, "", "namingContexts")? {
        // Another database does not have the entry, and one that does not answer must not stop the restore.
        let above = folded(&suffix);
        if !names.iter().any(|name| name.ends_with(&above)) {
            continue;
        }
        for uuids in uuids.chunks(TOGETHER) {
            let terms: String = uuids.iter().map(|uuid| format!("(entryUUID={})", escaped(uuid))).collect();
            let filter = parsed(&format!("(|{terms})"))?;
            let query = EntryQuery {
                base: &suffix,
                scope: Scope::Subtree,
                filter: &filter,
                attributes: &["entryUUID"],
                kind: Kind::Entries,
            };
            let searched = entries::each(session, &query, &mut |dn, attributes| {
                for value in attributes.iter().flat_map(|attribute| attribute.values.iter()) {
                    present.insert(String::from_utf8_lossy(value).to_ascii_lowercase(), dn.to_owned());
                }
            });
            match searched {
                // A suffix without an entry, or one that the client may not see.
                Err(ClientError::Refused { result, .. }) if result.code == ResultCode::NO_SUCH_OBJECT => {
                    break;
                }
                other => other?,
            }
        }
    }
    entries.retain(|(_, deleted)| {
        let now = deleted.uuid.as_ref().and_then(|uuid| present.get(&uuid.to_ascii_lowercase()));
        if let Some(now) = now {
            let named =
                if folded(now) == folded(&deleted.dn) { String::new() } else { format!(", as {now}") };
            eprintln!("larix: {} is there again{named}: it is left as it is", deleted.dn);
        }
        now.is_none()
    });
    if entries.is_empty() {
        return Err(ClientError::Usage("nothing is left to bring back".to_owned()));
    }
    Ok(())
}

/// Sends one request, and gives its number and its result.
fn send(
    args: &RestoreArgs,
    session: &mut Session,
    step: &Step,
    member: Option<&ControlBuf>,
) -> Result<(MessageId, LdapResult), ClientError> {
    let mut own: Vec<ControlBuf> = member.into_iter().cloned().collect();
    let control = match &step.request {
        Request::Add(_) if args.plain => None,
        Request::Add(_) => Some(oid::RELAX),
        Request::Join(..) => Some(oid::PERMISSIVE_MODIFY),
    };
    own.extend(control.map(|oid| ControlBuf { oid: oid.into(), critical: true, value: None }));
    let mut sent = MessageId(0);
    let reply = session.call(|out, id, common| {
        sent = id;
        let controls = [common, &own].concat();
        match &step.request {
            Request::Add(attributes) => {
                let attributes: Vec<_> = attributes
                    .iter()
                    .map(|one| ClientAttribute { description: &one.description, values: &one.values })
                    .collect();
                client::add(out, id, &step.dn, &attributes, &controls);
            }
            Request::Join(attribute, dn) => {
                let values = [dn.as_bytes()];
                let attribute = ClientAttribute { description: attribute, values: &values };
                let change = ClientChange { operation: ModifyOperation::Add, attribute };
                client::modify(out, id, &step.dn, &[change], &controls);
            }
        }
    })?;
    Ok((sent, reply.result))
}

fn one_by_one(args: &RestoreArgs, session: &mut Session, steps: &[Step]) -> Result<(), ClientError> {
    for (done, step) in steps.iter().enumerate() {
        let (_, result) = send(args, session, step, None)?;
        if result.code != ResultCode::SUCCESS {
            if steps.len() > 1 {
                eprintln!("larix: {done} of {} requests are done; this one is refused:", steps.len());
            }
            return Err(refused(step, result));
        }
    }
    Ok(())
}

/// All in one transaction (RFC 5805).
fn together(args: &RestoreArgs, session: &mut Session, steps: &[Step]) -> Result<(), ClientError> {
    let otherwise =
        "this server has no transactions: with --one-by-one what comes before a refused request stays done";
    let transaction = Transaction::start(session, otherwise)?;
    let member = transaction.member();
    let mut numbers = HashMap::new();
    for step in steps {
        let (id, result) = send(args, session, step, Some(&member))?;
        if result.code != ResultCode::SUCCESS {
            eprintln!("larix: nothing was restored");
            return Err(refused(step, result));
        }
        numbers.insert(id, step);
    }
    let ended = transaction.commit(session)?;
    if ended.result.code == ResultCode::SUCCESS {
        return Ok(());
    }
    eprintln!("larix: nothing was restored");
    let failed = EndTransactionResponse::decode(ended.value.as_deref()).ok().and_then(|answer| answer.failed);
    match failed.and_then(|id| numbers.get(&id)) {
        Some(step) => Err(refused(step, ended.result)),
        None => Err(ClientError::Refused { step: "end of the transaction", result: ended.result }),
    }
}

/// Says which request it was, and what helps.
fn refused(step: &Step, result: LdapResult) -> ClientError {
    let superior = Dn::parse(&step.dn).is_ok_and(|dn| dn.rdns().len() > 1);
    let what = match (&step.request, result.code) {
        (Request::Join(..), ResultCode::NO_SUCH_OBJECT) => {
            "the group is gone: restore it, too, or leave --memberships out"
        }
        (Request::Add(_), ResultCode::NO_SUCH_OBJECT) if superior => {
            "the entry above it is missing: restore that, too (--below DN --since TIME takes a whole tree), or give another name with \
             --as DN"
        }
        (Request::Add(_), ResultCode::ENTRY_ALREADY_EXISTS) => {
            "another entry has the name: rename that one, or give the entry another name with --as DN"
        }
        (Request::Add(_), ResultCode::INSUFFICIENT_ACCESS_RIGHTS) => {
            "restoring takes the rights to add the entry, and `manage` for what users cannot write; --plain adds it as a new one, \
             without its entryUUID"
        }
        (Request::Add(_), ResultCode::CONSTRAINT_VIOLATION | ResultCode::UNDEFINED_ATTRIBUTE_TYPE) => {
            "--without ATTRIBUTE leaves an attribute out"
        }
        (_, ResultCode::ADMIN_LIMIT_EXCEEDED) => {
            "a transaction takes no more (request-limits transaction.updates= and transaction.bytes=): use --one-by-one"
        }
        _ => "",
    };
    let error = ClientError::Refused { step: "restore", result };
    let advice = if what.is_empty() { step.dn.clone() } else { format!("{}: {what}", step.dn) };
    ClientError::Advised { error: Box::new(error), advice }
}

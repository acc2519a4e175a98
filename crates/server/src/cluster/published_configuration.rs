//! The configuration that the node that writes leaves in the engine, for nodes that join.

use larix_configuration::SharedLines;
use larix_engine::tables::{META, meta};
use larix_proto::ResultCode;
use larix_store::{CommitError, Durability, Snapshot, Store, Transaction, WriteSet};

use super::SharedStore;
use super::following::ConfigurationState;

/// The form of what is published. A node that finds a newer one does not read it, and does not replace it.
const FORM: u32 = 1;
const TITLE: &str = "larix node configuration ";
/// How often a commit is tried while others are first.
const TRIES: usize = 16;

/// A configuration as a node has published it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedConfiguration {
    /// Grows with each change.
    pub generation: u64,
    /// The version of the server that published it, and the URL of that node.
    pub version: String,
    pub node: String,
    pub lines: SharedLines,
}

/// Why it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Written by a later version.
    Newer {
        form: u32,
        version: String,
    },
    Damaged,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Newer { form, version } => write!(
                f,
                "the nodes' configuration in the engine is of form {form}, written by Larix {version}, and this version reads \
                 form {FORM}: install that version here, too"
            ),
            Self::Damaged => f.write_str(
                "the nodes' configuration in the engine cannot be read: restart the node that writes, which publishes it again",
            ),
        }
    }
}

impl PublishedConfiguration {
    fn encode(&self) -> Vec<u8> {
        let Self { generation, version, node, lines: SharedLines { head, database, root_dn } } = self;
        let root_dn = root_dn.as_ref().map(|dn| format!("rootdn {dn}\n")).unwrap_or_default();
        let text = format!(
            "{TITLE}{FORM}\nversion {version}\nnode {node}\ngeneration {generation}\n{root_dn}head {}\n\n{head}{database}",
            head.len()
        );
        text.into_bytes()
    }

    fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(value).map_err(|_| Unreadable::Damaged)?;
        let (front, body) = text.split_once("\n\n").ok_or(Unreadable::Damaged)?;
        let of = |word: &str| front.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        let form = front.strip_prefix(TITLE).and_then(|rest| rest.lines().next()?.parse().ok());
        let version = of("version").unwrap_or_default().to_owned();
        match form.ok_or(Unreadable::Damaged)? {
            FORM => {}
            form => return Err(Unreadable::Newer { form, version }),
        }
        let number = |word| of(word).and_then(|number| number.parse::<u64>().ok()).ok_or(Unreadable::Damaged);
        let head = usize::try_from(number("head")?).ok().and_then(|bytes| body.split_at_checked(bytes));
        let (head, database) = head.ok_or(Unreadable::Damaged)?;
        Ok(Self {
            generation: number("generation")?,
            version,
            node: of("node").unwrap_or_default().to_owned(),
            lines: SharedLines {
                head: head.to_owned(),
                database: database.to_owned(),
                root_dn: of("rootdn").map(str::to_owned),
            },
        })
    }
}

/// What a node has published, if any has.
pub(super) fn read<N: Snapshot>(
    snapshot: &N,
) -> Result<Option<Result<PublishedConfiguration, Unreadable>>, String> {
    let value = snapshot.get(META, meta::NODE_CONFIGURATION).map_err(|error| error.to_string())?;
    Ok(value.map(|value| PublishedConfiguration::decode(&value)))
}

/// What has been published last, by a question to the engine; none if it cannot be read.
pub(super) fn newest(store: &SharedStore) -> Option<PublishedConfiguration> {
    store.afresh(|| match read(&store.snapshot().ok()?) {
        Ok(Some(Ok(newest))) => Some(newest),
        _ => None,
    })
}

/// What came of publishing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Publishing {
    /// It is there already, with this generation.
    Same(u64),
    /// The generation, and which other node's it took the place of.
    Replaced { generation: u64, node: Option<String> },
}

/// Publishes the lines of the node that writes.
///
/// # Errors
/// What is there is of a later version, or nothing can be written now.
pub(super) fn publish(store: &SharedStore, node: &str, lines: &SharedLines) -> Result<Publishing, String> {
    for _ in 0..TRIES {
        let transaction = store.transaction().map_err(|error| error.to_string())?;
        let before = match read(&transaction)? {
            Some(Err(newer @ Unreadable::Newer { .. })) => return Err(newer.to_string()),
            Some(Ok(before)) => Some(before),
            Some(Err(Unreadable::Damaged)) | None => None,
        };
        if let Some(before) = before.as_ref().filter(|before| before.lines == *lines) {
            return Ok(Publishing::Same(before.generation));
        }
        let published = PublishedConfiguration {
            generation: before.as_ref().map_or(1, |before| before.generation.saturating_add(1)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: node.to_owned(),
            lines: lines.clone(),
        };
        let mut set = WriteSet::new();
        set.put(META, meta::NODE_CONFIGURATION, published.encode());
        match transaction.commit(&set, Durability::Sync) {
            Ok(_) => {
                let node = before.map(|before| before.node).filter(|before| before != node);
                return Ok(Publishing::Replaced { generation: published.generation, node });
            }
            Err(CommitError::Conflict) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("other commits were always first".to_owned())
}

/// Publishes what the nodes have in common behind a change that this one is to make: the lines before it and those behind it.
/// Gives the generation. Where a commit gets no answer, the next try sees what became of it: a change that the engine has is one that this
/// node takes over, so it must not be answered as if it was not made.
///
/// # Errors
/// The node does not have what the others have, or another one has changed it; nothing can be written now; it is unknown whether it was
/// written.
pub(super) fn publish_change<S: Store>(
    store: &S,
    node: &str,
    (before, after): (&SharedLines, &SharedLines),
    state: &ConfigurationState,
) -> Result<u64, (ResultCode, String)> {
    let mut lost = false;
    for _ in 0..TRIES {
        let transaction = store.transaction().map_err(|error| not_written(error.to_string(), lost))?;
        let found = match read(&transaction).map_err(|why| not_written(why, lost))? {
            Some(Err(newer @ Unreadable::Newer { .. })) => {
                return Err((ResultCode::UNWILLING_TO_PERFORM, newer.to_string()));
            }
            Some(Ok(found)) => Some(found),
            Some(Err(Unreadable::Damaged)) | None => None,
        };
        if let Some(found) = &found {
            if found.lines == *after {
                return Ok(found.generation);
            }
            if found.lines != *before && state.in_force != found.generation {
                let (code, why) = not_in_force(found, state);
                // It may lie below what another node has published since.
                return Err(if lost { not_written(why, lost) } else { (code, why) });
            }
        }
        let generation = found.map_or(1, |found| found.generation.saturating_add(1));
        let published = PublishedConfiguration {
            generation,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: node.to_owned(),
            lines: after.clone(),
        };
        let mut set = WriteSet::new();
        set.put(META, meta::NODE_CONFIGURATION, published.encode());
        match transaction.commit(&set, Durability::Sync) {
            Ok(_) => return Ok(generation),
            Err(CommitError::Conflict) => {}
            Err(CommitError::OutcomeUnknown(_)) => lost = true,
            Err(error) => return Err(not_written(error.to_string(), lost)),
        }
    }
    let why = "other commits were always first: try again".to_owned();
    Err(if lost { not_written(why, lost) } else { (ResultCode::BUSY, why) })
}

/// `lost`: a commit got no answer.
fn not_written(why: String, lost: bool) -> (ResultCode, String) {
    match lost {
        true => (
            ResultCode::OTHER,
            format!(
                "the engine did not answer, and it is unknown whether the change was made: read the configuration before you try \
                 again ({why})"
            ),
        ),
        false => (ResultCode::UNAVAILABLE, why),
    }
}

/// Why a node that does not have what another one has published changes nothing.
fn not_in_force(found: &PublishedConfiguration, state: &ConfigurationState) -> (ResultCode, String) {
    let PublishedConfiguration { generation, node, .. } = found;
    match &state.refused {
        Some(why) => (
            ResultCode::UNWILLING_TO_PERFORM,
            format!(
                "this node cannot take over generation {generation} of the nodes' configuration, from {node}: {why}"
            ),
        ),
        None => (
            ResultCode::BUSY,
            format!(
                "this node takes over generation {generation} of the nodes' configuration just now: try again"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::tables::TABLES;
    use larix_store::fault::{Fault, FaultPlan, FaultStore};

    use super::*;

    #[test]
    fn what_is_published_comes_back_and_what_is_newer_does_not() {
        let lines = SharedLines {
            head: "schema core\n\n# All\n".to_owned(),
            database: "\ndatabase kv\nsuffix \"dc=ü b\"\n".to_owned(),
            root_dn: Some("cn=Big Boss,dc=b".to_owned()),
        };
        for root_dn in [None, lines.root_dn.clone()] {
            let lines = SharedLines { root_dn, ..lines.clone() };
            let (version, node) = ("1.2".to_owned(), "ldap://n1".to_owned());
            let published = PublishedConfiguration { generation: 7, version, node, lines };
            let text = published.encode();
            assert_eq!(PublishedConfiguration::decode(&text), Ok(published));
            for cut in 0..text.len() {
                let cut = PublishedConfiguration::decode(&text[..cut]).map(|read| read.lines);
                assert_ne!(cut.as_ref(), Ok(&lines_of(&text)), "{cut:?}");
            }
            let newer =
                String::from_utf8(text).expect("text").replacen("configuration 1", "configuration 2", 1);
            let expected = Unreadable::Newer { form: 2, version: "1.2".to_owned() };
            assert_eq!(PublishedConfiguration::decode(newer.as_bytes()), Err(expected));
        }
        assert_eq!(PublishedConfiguration::decode(b"\xff"), Err(Unreadable::Damaged));
    }

    #[test]
    fn a_change_whose_commit_got_no_answer_is_made_once_or_not_called_refused() {
        let lines = |head: &str| SharedLines { head: head.to_owned(), ..SharedLines::default() };
        let (before, after) = (lines("sizelimit 1\n"), lines("sizelimit 2\n"));
        let publish = |plan: FaultPlan| {
            let engine = larix_store::shared::SharedStore::new(&TABLES).expect("an engine");
            let store = FaultStore::new(engine, plan);
            let state = ConfigurationState::default();
            let published = publish_change(&store, "ldap://n1", (&before, &after), &state);
            let found = read(&store.snapshot().expect("a snapshot")).expect("what is there");
            let found = found.map(|found| found.map(|found| (found.generation, found.lines)));
            (published, found)
        };
        let lost = |made| Fault::Lost { made, silent: 0 };
        for fault in [lost(true), lost(false), Fault::Late] {
            let (published, found) = publish(FaultPlan::new().at(1, fault));
            assert_eq!((published, found), (Ok(1), Some(Ok((1, after.clone())))), "{fault:?}");
        }
        for (plan, code) in [
            (FaultPlan::new().at(1, lost(false)).at(2, Fault::Unavailable), ResultCode::OTHER),
            (FaultPlan::new().at(1, Fault::Unavailable), ResultCode::UNAVAILABLE),
        ] {
            let (published, found) = publish(plan);
            let (answered, why) = published.expect_err("it is not there");
            assert_eq!((answered, why.contains("unknown"), found), (code, code == ResultCode::OTHER, None));
        }
    }

    fn lines_of(text: &[u8]) -> SharedLines {
        PublishedConfiguration::decode(text).expect("whole").lines
    }
}

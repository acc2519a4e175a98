//! Sessions with a provider that keeps no states of entries: what the consumer has to know before it asks for the
//! entries, when its log does not lead on, or for the log, from which not everything is taken
//! ([`second_hand`](super::second_hand)).
//!
//! A slapd merges the changes of logs that it follows, and its entryCSN says nothing of older ones that came late: asked for
//! what is news by a cookie, it leaves such entries out. So it is asked for all; and what it has otherwise is settled by how
//! far it had come before ([`ReplicaRules::provider_had`](larix_engine::replica::ReplicaRules)).

use larix_client::{ClientError, Session as ClientSession};
use larix_engine::csn::Csn;
use larix_engine::log::CsnVector;
use larix_proto::client::{self, Search};
use larix_proto::{ControlBuf, FilterBuf, LdapResult, Response, ResultCode, Scope, oid};

use super::Runner;

const CONTEXT_CSN: &str = "contextCSN";

impl Runner {
    /// How far a provider that keeps no states has come, if it is one and this server is a member that merges changes by states.
    /// `None`: a Larix, whose entries come with their states or are as old as they say.
    pub(super) fn ask_stateless(&self, connection: &mut ClientSession) -> Result<Option<CsnVector>, String> {
        // A shadow makes no changes by which it could settle anything.
        let is_member = self.task.rules(&self.schema(), true).multi_provider;
        if !(is_member && self.task.follows_log() && self.task.merges_records()) {
            return Ok(None);
        }
        let line = self.task.line();
        let peer = ControlBuf { oid: oid::SYNC_PEER.into(), critical: true, value: None };
        let as_peer = [line.controls.as_slice(), &[peer]].concat();
        let mut ask = |controls: &[ControlBuf]| {
            context_csn(connection, &line.base, controls).map_err(|error| error.to_string())
        };
        let (result, _) = ask(&as_peer)?;
        if result.code != ResultCode::UNAVAILABLE_CRITICAL_EXTENSION {
            return Ok(None);
        }
        // One that does not say how far it has come has nothing that could be judged.
        let (_, csns) = ask(&line.controls)?;
        Ok(Some(csns))
    }
}

/// What the entry says of how far its server has come.
fn context_csn(
    connection: &mut ClientSession,
    base: &str,
    controls: &[ControlBuf],
) -> Result<(LdapResult, CsnVector), ClientError> {
    let filter = FilterBuf::every_entry();
    let search = Search { attributes: &[CONTEXT_CSN], ..Search::new(base, Scope::Base, filter.as_filter()) };
    let id = connection.send(|out, id, _| client::search(out, id, &search, controls))?;
    let mut csns = CsnVector::default();
    loop {
        let message = connection.connection.receive()?;
        match &message.response {
            _ if message.id != id => {}
            Response::Entry(entry) => {
                let attributes = entry.attributes.iter();
                let values = attributes
                    .filter(|attribute| attribute.description.eq_ignore_ascii_case(CONTEXT_CSN))
                    .flat_map(|attribute| attribute.values);
                csns.extend(values.filter_map(|value| std::str::from_utf8(value).ok()?.parse::<Csn>().ok()));
            }
            Response::SearchDone(result) => return Ok((result.to_owned(), csns)),
            _ => {}
        }
    }
}

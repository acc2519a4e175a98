//! The places of entries, in a form with the same meaning on every server (`docs/adr/0042-places-by-entryuuid.md`).

use foldhash::HashMap;
use larix_schema::AttributeDescription;
use larix_store::Snapshot;
use uuid::Uuid;

use super::rows;
use crate::csn::Csn;
use crate::database::View;
use crate::entry::{EntryId, EntryReader, EntrySource, split_rdn};
use crate::fault::Fault;
use crate::log::{EntryPlace, LogRecord, LoggedChange, RecordForm};
use crate::record::RecordFlags;

/// The control that says where an entry stands: sixteen bytes of the superior's entryUUID, then the DN from there down.
pub const ENTRY_PLACE_OID: &str = "2.25.87610412117718157885716886434399491440.3.3";

/// The entryUUIDs of superiors that [`EntryPlaces`] remembers.
const SUPERIORS_MAX: usize = 1_024;

/// Tells the places of entries, one after the other: the superior's entryUUID is looked up once for its subordinates.
#[derive(Clone, Debug, Default)]
pub struct EntryPlaces {
    /// No other entry ever gets an id, and none another entryUUID, as long as the store loses no commit. Glue is not among them.
    superiors: HashMap<EntryId, Uuid>,
    /// The commit that was looked at last, and whether any entry stood elsewhere than its version says.
    elsewhere: Option<(u64, bool)>,
    /// Of the views that this was seen in.
    unbroken_since: u64,
}

impl EntryPlaces {
    /// The place that a change of the log gave its entry, as it is sent to other servers. `None`: it gave none, or its superior is
    /// here no more.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn of_record<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        record: &LogRecord,
    ) -> Result<Option<EntryPlace>, Fault> {
        self.follow(view.unbroken_since());
        let name = match (&record.form, &record.change) {
            (RecordForm::AsReceived { place, .. }, _) => return Ok(place.clone()),
            (RecordForm::AsDone, LoggedChange::Add(_)) => split_rdn(&record.dn).0,
            (RecordForm::AsDone, LoggedChange::ModifyDn { new_rdn, .. }) => new_rdn,
            _ => return Ok(None),
        };
        let (mut name, mut at) = (name.to_owned(), record.superior);
        while at != EntryId::ROOT {
            if let Some(superior) = self.superiors.get(&at) {
                return Ok(Some(EntryPlace { superior: *superior, name }));
            }
            let Some(stored) = view.record(at)? else { return Ok(None) };
            let above = view.reader(at, &stored)?;
            if !above.view.flags().has(RecordFlags::GLUE) {
                let Some(superior) = uuid_of(view, &above)? else { return Ok(None) };
                self.remember(at, superior);
                return Ok(Some(EntryPlace { superior, name }));
            }
            name.push(',');
            name.push_str(above.view.rdn());
            at = above.view.parent();
        }
        Ok(None)
    }

    /// Behind a break in the commits of a shared store another entry may have an id.
    fn follow(&mut self, unbroken_since: u64) {
        if self.unbroken_since != unbroken_since {
            *self = Self { unbroken_since, ..Self::default() };
        }
    }

    fn remember(&mut self, id: EntryId, superior: Uuid) {
        if self.superiors.len() >= SUPERIORS_MAX {
            self.superiors.clear();
        }
        self.superiors.insert(id, superior);
    }

    /// The place of this version of an entry, as it is sent to other servers. `None`: its superior is no entry.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn place_of<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        reader: &EntryReader<'_, N>,
    ) -> Result<Option<EntryPlace>, Fault> {
        self.follow(view.unbroken_since());
        let commit = view.snapshot.commit_counter();
        let elsewhere = match self.elsewhere {
            Some((known, elsewhere)) if known == commit => elsewhere,
            _ => super::has_pending_places(view.snapshot)?,
        };
        self.elsewhere = Some((commit, elsewhere));
        if elsewhere && let Some(pending) = pending_place_of(view, reader)? {
            return Ok(Some(pending));
        }
        if let Some(superior) = self.superiors.get(&reader.view.parent()) {
            return Ok(Some(EntryPlace { superior: *superior, name: reader.view.rdn().to_owned() }));
        }
        let found = standing(view, reader)?;
        if let Some((parent, place)) = &found
            && *parent == reader.view.parent()
        {
            self.remember(*parent, place.superior);
        }
        Ok(found.map(|(_, place)| place))
    }
}

/// The place that this version of an entry is to have, if it stands elsewhere.
fn pending_place_of<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
) -> Result<Option<EntryPlace>, Fault> {
    let Some(pending) = super::pending_place(view.snapshot, reader.view.id())? else { return Ok(None) };
    let csn = first(view, reader, "entryCSN")?.and_then(|text| text.parse::<Csn>().ok());
    let named = match uuid_of(view, reader)?.filter(|_| view.settings.keeps_states()) {
        Some(uuid) => rows::named_csn(view.snapshot, &uuid, csn)?,
        None => csn,
    };
    Ok((named == Some(pending.csn)).then_some(pending.place))
}

/// Where an entry stands here, and the id of the superior that the place names.
fn standing<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
) -> Result<Option<(EntryId, EntryPlace)>, Fault> {
    let mut name = reader.view.rdn().to_owned();
    let mut at = reader.view.parent();
    while at != EntryId::ROOT {
        let record = view.record(at)?.ok_or(Fault::Missing { entry: at, what: "the record" })?;
        let above = view.reader(at, &record)?;
        if !above.view.flags().has(RecordFlags::GLUE) {
            let place = |superior| (at, EntryPlace { superior, name });
            return Ok(uuid_of(view, &above)?.map(place));
        }
        name.push(',');
        name.push_str(above.view.rdn());
        at = above.view.parent();
    }
    Ok(None)
}

/// As [`standing`], by id.
pub(crate) fn stands<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<EntryPlace>, Fault> {
    let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
    Ok(standing(view, &view.reader(id, &record)?)?.map(|(_, place)| place))
}

fn uuid_of<N: Snapshot>(view: &View<'_, N>, reader: &EntryReader<'_, N>) -> Result<Option<Uuid>, Fault> {
    Ok(first(view, reader, "entryUUID")?.and_then(|text| Uuid::try_parse(&text).ok()))
}

fn first<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    attribute: &str,
) -> Result<Option<String>, Fault> {
    let Some(kind) = view.schema.attribute_type(attribute) else { return Ok(None) };
    let mut found = None;
    reader.visit_exact(&AttributeDescription::plain(kind.id), &mut |value| {
        found = std::str::from_utf8(value).ok().map(str::to_owned);
        false
    })?;
    Ok(found)
}

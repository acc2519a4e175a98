//! Entries: as stored ([`record`]), as written ([`owned`]), and what lives outside of the record ([`values`]).

pub mod encode;
pub(crate) mod members;
pub mod owned;
pub(crate) mod patch;
pub mod reader;
pub mod values;

pub use crate::codec::{Dictionaries, Dictionary, Record};
pub use crate::fault::RecordError;
pub use crate::ids::{AttributeNumber, EntryId};
pub use crate::record::{self, EntryView, ValuesView};
pub use encode::Placement;
pub use members::{Joined, Members};
pub use owned::{Entry, EntryAttribute, LargeValues, UnchangedValues, split_rdn};
pub use reader::{EntryReader, EntrySource, OwnedSource, Target};

//! What answers requests: a [`Backend`] for each database, chosen by the [`Router`], with the [`Interceptor`]s of overlays before it.
//!
//! Operations are values. A backend answers now or later; what comes later goes through a completion, or wakes a follower. Nothing here
//! names a socket, a connection or a configuration.

mod backend;
mod change_teller;
mod cursor;
mod deferred;
mod delay;
mod domain_scope;
mod figures;
mod glue;
mod glued_pages;
mod intercept;
pub mod memory_tree;
pub mod meta;
mod mounts;
mod operation;
mod over_glue;
mod relay;
mod renames;
mod replica_progress;
mod router;
mod rules_in_front;
mod shared_content;
mod tells_changes;

pub use backend::{Announcement, Backend, Below, Client, ClientHandle, Context, KeptClient, Mount, Routing};
pub use change_teller::{ChangeTeller, ChangedEntry, HEARD_MAX, HeardChanges};
pub use cursor::{
    AnswerFilter, AnsweredSearch, Cursor, CursorAround, Effort, End, FilteredSearch, First, OUTPUT_HIGH,
    StepOutcome, lowered, slice,
};
pub use deferred::{Alone, KeptContext, KeptSearch};
pub use delay::{DELAYED_LIMIT, Delayed, Delays};
pub use figures::{DatabaseFigures, StoreFigures};
pub use intercept::{Behind, BoundSession, InterceptedBackend, Interceptor, Next, Operations, Stack};
pub use meta::Meta;
pub use operation::{
    Bind, Changes, Compare, Done, ExtendedAnswer, ExtendedOperation, Identities, Later, OverlayOperation,
    PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply, Search, Secret, Verdict, answer_now,
    answered_by,
};
pub use over_glue::OverGlue;
pub use relay::Relay;
pub use renames::RenamesWithin;
pub use replica_progress::ReplicaProgress;
pub use router::{Router, Special};
pub use rules_in_front::{ReadRights, RulesInFront};
pub use shared_content::SharedContent;
pub use tells_changes::TellsChanges;

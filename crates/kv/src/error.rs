//! What goes wrong with an engine, and what that means to a reader, a writer and to one who opens a store.

use std::fmt;
use std::io;
use std::time::Duration;

use larix_store::{CommitError, ReadError, TableId};
#[cfg(feature = "postgresql")]
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::read_faults::{ReadFault, note};
use crate::tls::TlsFault;

/// Why a store on an engine could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The address cannot be used; the text says why.
    Address(String),
    /// What the engine holds under our names is not what this version writes.
    Damaged(String),
    /// Written by another version of the format.
    Format { found: i64, supported: i64 },
    /// A table is there as another kind than it is used for.
    Kind { table: String },
    /// Its setting `fsync` is off: commits would not survive a crash.
    NotDurable,
    /// There is no store in this schema, and the options forbid to make one.
    NotAStore { schema: String },
    /// The engine is too old.
    Old { found: String, engine: &'static str, oldest: &'static str },
    /// The engine let nobody in, or forbade what is needed.
    Refused(String),
    /// The name of a schema that cannot be used.
    Schema { name: String, bytes_max: usize },
    /// There is no TLS with the engine; the text names the value and the setting.
    Tls(String),
    /// Two tables of one name or number: a bug of the caller.
    Table { name: &'static str },
    /// The engine cannot be reached, or is too slow.
    Unavailable(String),
}

const NOT_DURABLE: &str =
    "the engine's setting fsync is off, so a crash would lose commits: turn it on in postgresql.conf";

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(why) => write!(f, "the address of the engine cannot be used: {why}"),
            Self::Damaged(what) => {
                write!(f, "what the engine holds is damaged: {what}; restore it from its backup")
            }
            Self::Format { found, supported } => write!(
                f,
                "the engine holds format {found}, but this version reads and writes format {supported}: run the version \
                 that wrote it"
            ),
            Self::Kind { table } => {
                write!(
                    f,
                    "the engine holds the table \"{table}\" as another kind: run the version that wrote it"
                )
            }
            Self::NotDurable => f.write_str(NOT_DURABLE),
            Self::NotAStore { schema } => {
                write!(
                    f,
                    "the engine holds no store in the schema \"{schema}\": start a server that makes it"
                )
            }
            Self::Old { found, engine, oldest } => {
                write!(f, "the engine is {engine} {found}, and {oldest} is the oldest that is used")
            }
            Self::Refused(why) => write!(f, "the engine refuses: {why}"),
            Self::Schema { name, bytes_max } => write!(
                f,
                "\"{name}\" cannot name a schema: use up to {bytes_max} lower-case letters, digits and underscores, a letter first"
            ),
            Self::Tls(why) => write!(f, "no TLS with the engine: {why}"),
            Self::Table { name } => write!(f, "table {name} is declared twice or numbered too high"),
            Self::Unavailable(why) => write!(f, "the engine cannot be reached: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// What a call to the engine came to, if not to an answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// PostgreSQL's own answer, or the end of a connection with it.
    #[cfg(feature = "postgresql")]
    PostgreSql { error: tokio_postgres::Error, tls: Option<TlsFault> },
    /// None of PostgreSQL's servers in the address lets this node in and takes writes. Nothing was sent to them.
    #[cfg(feature = "postgresql")]
    Servers(Vec<ServerFault>),
    /// etcd's own answer.
    #[cfg(feature = "etcd")]
    Etcd(Status),
    /// There is no connection to any of the endpoints, or it ended.
    #[cfg(feature = "etcd")]
    Connection { why: String, tls: Option<TlsFault>, was_sent: bool },
    /// Another commit was first.
    #[cfg(feature = "etcd")]
    Conflict,
    /// More than the engine takes.
    #[cfg(feature = "etcd")]
    TooLarge(String),
    /// No answer in time.
    Late(Duration),
    /// All connections were taken for that long.
    #[cfg(feature = "postgresql")]
    Busy { connections: usize, waited: Duration },
    /// The system has nothing left for one more connection.
    #[cfg(feature = "postgresql")]
    NoLoop(io::Error),
    /// The engine no longer waits for the disk: its setting `fsync` was turned off.
    #[cfg(feature = "postgresql")]
    NotDurable,
    /// What stands in front of the engine has several clients take turns on one connection.
    #[cfg(feature = "postgresql")]
    Shared,
    /// The engine has committed, and somebody has cancelled its wait for the standby.
    #[cfg(feature = "postgresql")]
    Unreplicated,
    /// The thread that talks to engines has ended.
    Ended,
    /// What came back is not what a store of ours answers.
    Lie(String),
    /// The engine does not have a commit that it acknowledged.
    Behind { known: u64 },
    /// What a view has read was changed before the engine was asked for more.
    Stale,
    /// The engine was to be asked, by a thread that reads at hand.
    NotAtHand,
    /// The connection of a view was lost, and what the view showed with it.
    Lost,
}

/// What connecting to one server came to.
#[cfg(feature = "postgresql")]
#[derive(Debug)]
pub(crate) struct ServerFault {
    /// Host and port.
    pub(crate) server: String,
    pub(crate) fault: Fault,
}

/// What etcd answers in place of a result.
#[cfg(feature = "etcd")]
#[derive(Clone, Debug)]
pub(crate) struct Status {
    /// As gRPC numbers them.
    pub(crate) code: u32,
    pub(crate) text: String,
    pub(crate) endpoint: String,
}

/// What a member says of itself that has no vote.
#[cfg(feature = "etcd")]
const LEARNER: &str = "not supported for learner";

#[cfg(feature = "etcd")]
impl Status {
    const INVALID_ARGUMENT: u32 = 3;
    const PERMISSION_DENIED: u32 = 7;
    const RESOURCE_EXHAUSTED: u32 = 8;
    const FAILED_PRECONDITION: u32 = 9;
    pub(crate) const UNAVAILABLE: u32 = 14;
    const UNAUTHENTICATED: u32 = 16;
    const UNIMPLEMENTED: u32 = 12;
    pub(crate) const NOT_FOUND: u32 = 5;
    pub(crate) const OUT_OF_RANGE: u32 = 11;

    /// Nothing was done, since the member belongs to no majority.
    pub(crate) fn lacks_leader(&self) -> bool {
        self.code == Self::UNAVAILABLE && self.text.contains("no leader")
    }

    /// The same, or since it is a learner, which follows the others until somebody promotes it.
    pub(crate) fn is_for_another_member(&self) -> bool {
        self.lacks_leader() || self.code == Self::UNAVAILABLE && self.text.contains(LEARNER)
    }

    /// Nothing was done, and another token will do.
    pub(crate) fn wants_login(&self) -> bool {
        self.code == Self::UNAUTHENTICATED && self.text.contains("token")
            // Users or roles have changed since a token was signed (`--auth-token jwt`).
            || self.code == Self::INVALID_ARGUMENT && self.text.contains("revision of auth store is old")
    }

    pub(crate) fn is_of_login(&self) -> bool {
        let of_user = ["authentication", "user name", "user ID", "auth"];
        [Self::PERMISSION_DENIED, Self::UNAUTHENTICATED].contains(&self.code)
            || [Self::INVALID_ARGUMENT, Self::FAILED_PRECONDITION].contains(&self.code)
                && of_user.iter().any(|word| self.text.contains(word))
    }

    fn verdict(&self) -> Verdict {
        if self.lacks_leader() || self.is_of_login() {
            return Verdict::Failed;
        }
        match self.code {
            Self::RESOURCE_EXHAUSTED if self.text.contains("space exceeded") => Verdict::Full,
            Self::INVALID_ARGUMENT
            | Self::RESOURCE_EXHAUSTED
            | Self::OUT_OF_RANGE
            | Self::UNIMPLEMENTED
            | Self::FAILED_PRECONDITION => Verdict::Failed,
            _ => Verdict::Unknown,
        }
    }

    fn is_unavailable(&self) -> bool {
        let passes = ["too many requests", "space exceeded"].iter().any(|words| self.text.contains(words));
        let is_too_much = self.code == Self::RESOURCE_EXHAUSTED && !passes;
        self.is_of_login()
            || !is_too_much && !matches!(self.code, Self::INVALID_ARGUMENT | Self::UNIMPLEMENTED)
    }

    /// What to do about it, where that is known.
    fn mend(&self) -> &'static str {
        let has = |words: &str| self.text.contains(words);
        if has(LEARNER) {
            return ": promote it (etcdctl member promote), or name other members in the address, too";
        }
        if has("too many operations") {
            return ": start etcd with --max-txn-ops=128 or more, or say the number as max-txn-ops=NUMBER in the address";
        }
        if has("request is too large") || has("larger than max") {
            return ": start etcd with --max-request-bytes=1572864 or more, or say the number as max-request-bytes=NUMBER in the \
                    address";
        }
        if has("space exceeded") {
            return ": compact and defragment etcd, raise its --quota-backend-bytes, and end the alarm with `etcdctl alarm disarm`";
        }
        if has("no leader") || has("leader changed") || has("timed out") {
            return ": a majority of etcd's members has to run and reach each other";
        }
        if has("authentication is not enabled") {
            return ": take user and password out of the address, or enable etcd's authentication";
        }
        if has("user name is empty") {
            return ": etcd wants a user: etcd://USER:PASSWORD@HOST:2379, or a client's certificate (cert and key)";
        }
        if has("invalid user ID or password") {
            return ": the user or the password in the address is wrong";
        }
        if self.code == Self::PERMISSION_DENIED {
            return ": grant the user's role readwrite on the prefix of the address (etcdctl role grant-permission --prefix=true)";
        }
        if self.code == Self::UNIMPLEMENTED {
            return ": is an etcd of version 3.4 or newer at this port?";
        }
        ""
    }
}

/// What a fault means for the sender of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Conflict,
    Full,
    /// The engine said no: nothing was committed.
    Failed,
    /// No connection or no answer: it may have been committed.
    Unknown,
}

impl Fault {
    /// Whether the engine lets this node in to nothing before somebody has changed a setting.
    #[cfg(feature = "postgresql")]
    fn is_refusal(&self) -> bool {
        match self {
            Self::PostgreSql { error, .. } => error.code().is_some_and(|state| {
                state.code().starts_with("28")
                    || [&SqlState::INVALID_CATALOG_NAME, &SqlState::INSUFFICIENT_PRIVILEGE].contains(&state)
                    || is_of_shared_connection(state)
            }),
            Self::Servers(faults) => faults.iter().any(|server| server.fault.is_refusal()),
            Self::Shared => true,
            _ => false,
        }
    }

    /// Whether the engine has no room for one more connection.
    #[cfg(feature = "postgresql")]
    pub(crate) fn is_of_too_many(&self) -> bool {
        match self {
            Self::PostgreSql { error, .. } => error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS),
            Self::Servers(faults) => faults.iter().any(|server| server.fault.is_of_too_many()),
            _ => false,
        }
    }

    /// Whether it was a connection to a server that takes no writes.
    #[cfg(feature = "postgresql")]
    fn is_of_standby(&self) -> bool {
        matches!(self, Self::PostgreSql { error, .. } if takes_no_writes(error))
    }

    /// Whether the connection is of no use any more.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            #[cfg(feature = "postgresql")]
            Self::PostgreSql { error, .. } => {
                error.is_closed()
                    // Another server may take writes now.
                    || error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
                    || error.code().is_some_and(is_of_shared_connection)
                    || error.as_db_error().is_none_or(is_fatal)
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(status) => status.code == Status::UNAVAILABLE,
            #[cfg(feature = "etcd")]
            Self::Connection { .. } => true,
            Self::Late(_) | Self::Ended => true,
            _ => false,
        }
    }

    fn is_unavailable(&self) -> bool {
        match self {
            #[cfg(feature = "postgresql")]
            Self::PostgreSql { error, .. } => match error.as_db_error() {
                None => true,
                Some(answer) => is_fatal(answer) || is_unavailable_in(answer.code()),
            },
            #[cfg(feature = "etcd")]
            Self::Etcd(status) => status.is_unavailable(),
            #[cfg(feature = "etcd")]
            Self::TooLarge(_) => false,
            Self::Lie(_) => false,
            _ => true,
        }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            #[cfg(feature = "postgresql")]
            Self::PostgreSql { error, .. } => of_sql(error),
            #[cfg(feature = "etcd")]
            Self::Etcd(status) => status.verdict(),
            #[cfg(feature = "etcd")]
            Self::Connection { was_sent: false, .. } => Verdict::Failed,
            #[cfg(feature = "etcd")]
            Self::Conflict => Verdict::Conflict,
            #[cfg(feature = "etcd")]
            Self::TooLarge(_) => Verdict::Failed,
            #[cfg(feature = "postgresql")]
            Self::Busy { .. } | Self::NoLoop(_) | Self::Servers(_) => Verdict::Failed,
            Self::Lie(_) | Self::Behind { .. } | Self::Lost | Self::Stale | Self::NotAtHand => {
                Verdict::Failed
            }
            _ => Verdict::Unknown,
        }
    }

    /// What it came to, if TLS is the reason.
    fn tls(&self) -> Option<&TlsFault> {
        match self {
            #[cfg(feature = "postgresql")]
            Self::PostgreSql { tls, .. } => tls.as_ref(),
            #[cfg(feature = "etcd")]
            Self::Connection { tls, .. } => tls.as_ref(),
            _ => None,
        }
    }

    /// The same where it does not pass by itself.
    fn tls_refusal(&self) -> Option<&TlsFault> {
        #[cfg(feature = "postgresql")]
        if let Self::Servers(faults) = self {
            return faults.iter().find_map(|server| server.fault.tls_refusal());
        }
        self.tls().filter(|fault| !fault.is_interruption)
    }

    /// As a text for the log and for clients: no value, no password.
    pub(crate) fn text(&self) -> String {
        if let Some(fault) = self.tls() {
            return format!("no TLS with the engine: {fault}");
        }
        match self {
            #[cfg(feature = "postgresql")]
            Self::PostgreSql { error, .. } => sql_text(error),
            #[cfg(feature = "postgresql")]
            Self::Servers(faults) => servers_text(faults),
            #[cfg(feature = "etcd")]
            Self::Etcd(status) => format!("{}: {}{}", status.endpoint, status.text, status.mend()),
            #[cfg(feature = "etcd")]
            Self::Connection { why, .. } | Self::TooLarge(why) => why.clone(),
            #[cfg(feature = "etcd")]
            Self::Conflict => "another commit was first".to_owned(),
            Self::Late(deadline) => format!("the engine did not answer within {} ms", deadline.as_millis()),
            #[cfg(feature = "postgresql")]
            Self::Busy { connections, waited } => format!(
                "all {connections} connections to the engine were in use for {} ms",
                waited.as_millis()
            ),
            #[cfg(feature = "postgresql")]
            Self::NoLoop(error) => format!("no more connections to the engine, the system says: {error}"),
            #[cfg(feature = "postgresql")]
            Self::NotDurable => NOT_DURABLE.to_owned(),
            #[cfg(feature = "postgresql")]
            Self::Shared => SHARED_CONNECTION.to_owned(),
            #[cfg(feature = "postgresql")]
            Self::Unreplicated => {
                "somebody has cancelled the engine's wait for its standby, which may lack the commit"
                    .to_owned()
            }
            Self::Ended => "the store is being closed".to_owned(),
            Self::Lie(what) => format!("the engine answers what no store of ours holds: {what}"),
            Self::Behind { known } => format!(
                "the engine does not hold commit {known} as it acknowledged it: it was restored, or lost commits when it failed \
                 over, or a server answers that another one has taken the place of; restart this server to go on with what is there"
            ),
            Self::Stale => "the state that was read has changed".to_owned(),
            Self::NotAtHand => "it is not in the cache, and this thread does not wait".to_owned(),
            Self::Lost => "the connection to the engine was lost".to_owned(),
        }
    }

    pub(crate) fn into_io(self) -> io::Error {
        let kind = match &self {
            Self::Late(_) => io::ErrorKind::TimedOut,
            Self::Lie(_) => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, self.text())
    }

    pub(crate) fn into_read(self) -> ReadError {
        if matches!(self, Self::Stale) {
            note(ReadFault::Stale);
            return ReadError::Stale;
        }
        if matches!(self, Self::NotAtHand) {
            note(ReadFault::NotAtHand);
            return ReadError::Stale;
        }
        note(if self.is_unavailable() { ReadFault::Unavailable } else { ReadFault::Broken });
        self.into_unread()
    }

    /// Of a question that is not about content: nothing that was read lacks anything because of it.
    pub(crate) fn into_unread(self) -> ReadError {
        if self.is_unavailable() {
            ReadError::Unavailable(self.into_io())
        } else {
            ReadError::Io(self.into_io())
        }
    }

    /// Of what came before a commit was sent.
    pub(crate) fn into_commit(self) -> CommitError {
        match self.verdict() {
            Verdict::Conflict => CommitError::Conflict,
            // With what to do about it.
            Verdict::Full => {
                CommitError::Io(io::Error::other(format!("{}; nothing was changed", self.text())))
            }
            Verdict::Failed | Verdict::Unknown if self.is_unavailable() => {
                CommitError::Unavailable(self.into_io())
            }
            Verdict::Failed | Verdict::Unknown => CommitError::Io(self.into_io()),
        }
    }

    pub(crate) fn into_open(self) -> OpenError {
        if let Some(fault) = self.tls_refusal() {
            return OpenError::Tls(fault.why.clone());
        }
        #[cfg(feature = "postgresql")]
        if self.is_refusal() {
            return OpenError::Refused(self.text());
        }
        #[cfg(feature = "etcd")]
        if let Self::Etcd(status) = &self
            && (status.is_of_login() || status.code == Status::UNIMPLEMENTED)
        {
            return OpenError::Refused(self.text());
        }
        match self {
            Self::Lie(_) => OpenError::Damaged(self.text()),
            _ if self.is_unavailable() => OpenError::Unavailable(self.text()),
            _ => OpenError::Damaged(self.text()),
        }
    }
}

#[cfg(feature = "postgresql")]
fn of_sql(error: &tokio_postgres::Error) -> Verdict {
    error.as_db_error().map_or(Verdict::Unknown, |answer| of_state(answer.code(), is_fatal(answer)))
}

#[cfg(feature = "postgresql")]
fn of_state(state: &SqlState, is_fatal: bool) -> Verdict {
    // A backend that is ended while it waits for its standby has committed already, and one that finds no room for the next file of the
    // write-ahead log may have the commit in the one before.
    if is_fatal || state.code().starts_with("08") || state.code().starts_with("57P") {
        return Verdict::Unknown;
    }
    if [&SqlState::UNIQUE_VIOLATION, &SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED]
        .contains(&state)
    {
        return Verdict::Conflict;
    }
    if state == &SqlState::DISK_FULL { Verdict::Full } else { Verdict::Failed }
}

/// What the engine says, and what is to be done.
#[cfg(feature = "postgresql")]
fn state_text(state: &SqlState, message: &str) -> String {
    let why = if state == &SqlState::UNDEFINED_TABLE {
        "the store in the engine is incomplete; restore it from its backup"
    } else if state == &SqlState::QUERY_CANCELED {
        "the engine is slower than the deadline, or waits for a synchronous standby that is away"
    } else if state == &SqlState::READ_ONLY_SQL_TRANSACTION {
        TAKES_NO_WRITES
    } else if state == &SqlState::INSUFFICIENT_PRIVILEGE {
        LACKS_RIGHTS
    } else if is_of_shared_connection(state) {
        SHARED_CONNECTION
    } else {
        return format!("{message} (SQLSTATE {})", state.code());
    };
    format!("{message}: {why}")
}

#[cfg(feature = "postgresql")]
const LACKS_RIGHTS: &str = "grant the server's role USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on its tables; \
    to make them it needs CREATE on the database";

#[cfg(feature = "postgresql")]
const SHARED_CONNECTION: &str = "what stands in front of PostgreSQL gives a connection to several clients in turn, as PgBouncer does with \
    pool_mode=transaction; set pool_mode=session, or name PostgreSQL's own port in the address";

/// Whether a prepared statement is not there, or is there before it was made: the connection has been somebody else's.
#[cfg(feature = "postgresql")]
fn is_of_shared_connection(state: &SqlState) -> bool {
    [&SqlState::INVALID_SQL_STATEMENT_NAME, &SqlState::DUPLICATE_PSTATEMENT].contains(&state)
}

/// Whether the engine says with it that it does not serve now, rather than that something is wrong with what it holds.
#[cfg(feature = "postgresql")]
fn is_unavailable_in(state: &SqlState) -> bool {
    ["08", "28", "40", "53", "57"].iter().any(|class| state.code().starts_with(class))
        || [
            &SqlState::LOCK_NOT_AVAILABLE,
            &SqlState::READ_ONLY_SQL_TRANSACTION,
            &SqlState::INSUFFICIENT_PRIVILEGE,
        ]
        .contains(&state)
        || is_of_shared_connection(state)
}

#[cfg(feature = "postgresql")]
fn sql_text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(answer) => state_text(answer.code(), answer.message()),
        None if takes_no_writes(error) => TAKES_NO_WRITES.to_owned(),
        None => {
            use std::error::Error as _;
            match error.source() {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }
        }
    }
}

#[cfg(feature = "postgresql")]
const TAKES_NO_WRITES: &str =
    "this server takes no writes: it is a standby, or its setting default_transaction_read_only is on";

/// Whether connecting was broken off because the server takes none.
#[cfg(feature = "postgresql")]
fn takes_no_writes(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    // One of the system, about a socket, has a number.
    source.is_some_and(|source| {
        source.kind() == io::ErrorKind::PermissionDenied && source.raw_os_error().is_none()
    })
}

/// What each server came to, and what is to be done.
#[cfg(feature = "postgresql")]
fn servers_text(faults: &[ServerFault]) -> String {
    let texts = faults.iter().map(|ServerFault { server, fault }| format!("{server}: {}", fault.text()));
    let text = texts.collect::<Vec<_>>().join("; ");
    match faults.iter().any(|server| server.fault.is_of_standby()) {
        true => format!("{text}; have one of the servers promoted, or name the primary in the address, too"),
        false => text,
    }
}

/// Whether the connection ends with it. The word in front of the message is in the engine's language, the one that is looked at is not. Some
/// that stand in front of an engine, as PgBouncer, leave that out: then it may end.
#[cfg(feature = "postgresql")]
fn is_fatal(answer: &DbError) -> bool {
    answer.parsed_severity().is_none_or(|severity| matches!(severity, Severity::Fatal | Severity::Panic))
}

/// A row that does not follow the format.
pub(crate) fn corrupt(table: TableId, what: &'static str) -> ReadError {
    note(ReadFault::Broken);
    ReadError::Corrupt { table, what }
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use super::*;

    #[test]
    fn an_engine_without_space_says_what_to_do() {
        let text = "etcdserver: mvcc: database space exceeded".to_owned();
        let fault = || Fault::Etcd(Status { code: 8, text: text.clone(), endpoint: "e1:2379".to_owned() });
        let error = fault().into_commit();
        assert!(matches!(&error, CommitError::Io(_)), "{error}");
        assert!(error.to_string().contains("etcdctl alarm disarm"), "{error}");
        // What it holds is whole: nobody restores it because of that.
        assert!(matches!(fault().into_read(), ReadError::Unavailable(_)));
        assert_eq!(crate::read_faults::take_read_fault(), Some(ReadFault::Unavailable));
        let error = fault().into_open();
        assert!(matches!(&error, OpenError::Unavailable(_)), "{error}");
    }

    #[test]
    fn another_member_is_asked_where_one_did_nothing() {
        for (text, expected, waits) in [
            ("etcdserver: no leader", true, true),
            ("etcdserver: rpc not supported for learner", true, false),
            // The change may be made.
            ("etcdserver: leader changed", false, false),
            ("etcdserver: request timed out", false, false),
        ] {
            let code = Status::UNAVAILABLE;
            let status = Status { code, text: text.to_owned(), endpoint: "e1:2379".to_owned() };
            assert_eq!((status.is_for_another_member(), status.lacks_leader()), (expected, waits), "{text}");
        }
    }

    #[test]
    fn another_token_is_asked_for_where_one_will_do() {
        for (code, text, expected) in [
            (16, "etcdserver: invalid auth token", true),
            (3, "etcdserver: revision of auth store is old", true),
            (3, "etcdserver: user name is empty", false),
            (3, "etcdserver: authentication failed, invalid user ID or password", false),
            (7, "etcdserver: permission denied", false),
            (14, "etcdserver: no leader", false),
        ] {
            let status = Status { code, text: text.to_owned(), endpoint: "e1:2379".to_owned() };
            assert_eq!(status.wants_login(), expected, "{text}");
        }
    }
}

#[cfg(all(test, feature = "postgresql"))]
mod postgresql_tests {
    use super::*;

    #[test]
    fn a_commit_is_not_made_only_where_the_engine_goes_on() {
        for (state, is_fatal, expected) in [
            (SqlState::UNIQUE_VIOLATION, false, Verdict::Conflict),
            (SqlState::T_R_SERIALIZATION_FAILURE, false, Verdict::Conflict),
            (SqlState::DISK_FULL, false, Verdict::Full),
            (SqlState::DISK_FULL, true, Verdict::Unknown),
            (SqlState::QUERY_CANCELED, false, Verdict::Failed),
            (SqlState::LOCK_NOT_AVAILABLE, false, Verdict::Failed),
            (SqlState::ADMIN_SHUTDOWN, true, Verdict::Unknown),
            (SqlState::CRASH_SHUTDOWN, false, Verdict::Unknown),
            (SqlState::INTERNAL_ERROR, true, Verdict::Unknown),
            (SqlState::CONNECTION_FAILURE, false, Verdict::Unknown),
        ] {
            assert_eq!(of_state(&state, is_fatal), expected, "{state:?} {is_fatal}");
        }
    }

    /// Nobody restores a backup because of a role, or of what stands in front of the engine.
    #[test]
    fn what_hinders_the_engine_is_no_damage() {
        for (state, is_unavailable, word) in [
            (SqlState::INVALID_SQL_STATEMENT_NAME, true, "pool_mode=session"),
            (SqlState::DUPLICATE_PSTATEMENT, true, "pool_mode=session"),
            (SqlState::READ_ONLY_SQL_TRANSACTION, true, "takes no writes"),
            (SqlState::INSUFFICIENT_PRIVILEGE, true, "grant"),
            (SqlState::T_R_SERIALIZATION_FAILURE, true, "SQLSTATE 40001"),
            (SqlState::UNDEFINED_TABLE, false, "backup"),
            (SqlState::DATA_CORRUPTED, false, "SQLSTATE XX001"),
            (SqlState::UNDEFINED_COLUMN, false, "SQLSTATE 42703"),
        ] {
            let text = state_text(&state, "no");
            assert!(text.starts_with("no") && text.contains(word), "{text}");
            assert_eq!(is_unavailable_in(&state), is_unavailable, "{state:?}");
        }
    }
}

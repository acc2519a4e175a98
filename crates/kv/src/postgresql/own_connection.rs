//! Whether connections are the node's own. Something in front of PostgreSQL may have several clients take turns on one connection, for each
//! transaction anew. Then a prepared statement may be another client's, settings get lost, and notifications do not come.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::address::{Address, NewConnection};
use crate::error::Fault;
use crate::runtime::AbortOnDrop;

/// The engine has a setting of any such name, for as long as a connection lasts.
const MARK: &str = "SELECT pg_catalog.set_config('larix.connection', $1, false)";
const MARKED: &str = "SELECT pg_catalog.current_setting('larix.connection', true)";

/// Marks two connections, and looks whether the first one still has its own mark.
///
/// # Errors
/// [`Fault::Shared`] where it has not; or the engine cannot be reached.
pub(super) async fn check(address: &Address) -> Result<(), Fault> {
    let (one, _open) = connect(address).await?;
    mark(&one, "one").await?;
    let (other, _open) = match connect(address).await {
        // Where there is room for no other one, nobody takes turns either.
        Err(fault) if fault.is_of_too_many() => return Ok(()),
        other => other?,
    };
    mark(&other, "other").await?;
    let rows = one.query_typed(MARKED, &[]).await?;
    let found = rows.first().map(|row| row.try_get::<_, Option<String>>(0)).transpose()?.flatten();
    if found.as_deref() == Some("one") { Ok(()) } else { Err(Fault::Shared) }
}

async fn connect(address: &Address) -> Result<(Client, AbortOnDrop), Fault> {
    let NewConnection { client, connection, .. } = address.connect().await?;
    let task = tokio::spawn(async move {
        // What is asked next sees its end.
        let _end = connection.await;
    });
    Ok((client, AbortOnDrop(Some(task.abort_handle()))))
}

async fn mark(client: &Client, mark: &str) -> Result<(), Fault> {
    client.query_typed(MARK, &[(&mark, Type::TEXT)]).await?;
    Ok(())
}

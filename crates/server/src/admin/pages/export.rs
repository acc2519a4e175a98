//! What a search found, or a subtree, as a file.

use larix_proto::Scope;
use larix_proto::ldif::Writer;

use crate::admin::client::ReceivedEntry;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::{export, names};

/// Entries that are asked for at once: with a picture each they fit into what is kept of an answer.
const PAGE: u32 = 50;
/// Bytes of a file.
const FILE_MAX: usize = 64 * 1024 * 1024;

/// What a file holds.
#[derive(Copy, Clone, Debug)]
pub(super) struct ExportRequest<'a> {
    pub(super) base: &'a str,
    pub(super) scope: Scope,
    pub(super) filter: &'a str,
    /// Empty: all that users may see, and for LDIF the operational ones with them.
    pub(super) attributes: &'a [&'a str],
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Ldif,
    Csv,
}

impl Format {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        match text {
            "ldif" => Ok(Self::Ldif),
            "csv" => Ok(Self::Csv),
            other => Err(Problem::Bad(format!("There is no format {other:?}: ldif and csv are known."))),
        }
    }

    /// What is asked for where no attribute was chosen.
    fn usual(self) -> &'static [&'static str] {
        match self {
            Self::Ldif => &["*", "+"],
            Self::Csv => &["*"],
        }
    }
}

/// A file with all of it, or nothing: a limit that leaves entries out is said, for a file that lacks entries looks like one that
/// has all.
pub(super) async fn file(visit: &Visit<'_>, request: ExportRequest<'_>, format: Format) -> PageResult {
    let attributes = if request.attributes.is_empty() { format.usual() } else { request.attributes };
    let writer = Writer::new(Some(Writer::COLUMNS));
    let (mut out, mut entries, mut bytes): (Vec<u8>, Vec<ReceivedEntry>, usize) = (Vec::new(), Vec::new(), 0);
    let mut cookie = Vec::new();
    let mut client = visit.session.client.lock().await;
    loop {
        let page = client
            .page(request.base, request.scope, request.filter, attributes, (PAGE, &cookie))
            .await
            .attempt(format!("Reading below {}", request.base))?;
        if page.limited {
            return Err(Problem::Bad(
                "A limit of this server leaves some of the entries out, so there is no file: narrow the search, or have \
                 larix cat write all of the database."
                    .to_owned(),
            ));
        }
        for entry in page.entries {
            match format {
                Format::Ldif => export::ldif(&writer, &mut out, &entry),
                Format::Csv => {
                    bytes += size(&entry);
                    entries.push(entry);
                }
            }
        }
        if out.len().max(bytes) > FILE_MAX {
            return Err(Problem::Bad(format!(
                "This is more than {} MiB: narrow the search, or have larix cat write all of the database.",
                FILE_MAX / 1024 / 1024
            )));
        }
        cookie = page.cookie;
        if cookie.is_empty() {
            break;
        }
    }
    drop(client);
    let name: String =
        names::called(request.base).chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let name = if name.is_empty() { "entries" } else { &name };
    let (content_type, ending, bytes) = match format {
        Format::Ldif => ("text/plain; charset=utf-8", "ldif", out),
        Format::Csv => {
            let schema = visit.admin.server.config().schema.clone();
            ("text/csv; charset=utf-8", "csv", export::csv(&schema, &entries, request.attributes))
        }
    };
    Ok(Reply::Bytes { content_type, file_name: Some(format!("{name}.{ending}")), bytes })
}

fn size(entry: &ReceivedEntry) -> usize {
    let values = |a: &crate::admin::client::ReceivedAttribute| a.values.iter().map(Vec::len).sum::<usize>();
    entry.dn.len() + entry.attributes.iter().map(|a| a.name.len() + values(a)).sum::<usize>()
}

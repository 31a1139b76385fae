//! What a topic holds, and what has ended in it, page by page.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use keylapse_console::{Entry, EntryState, JournalEntry};
use serde::{Deserialize, Serialize};

use crate::api::Fault;
use crate::api::ask::{self, From, Path, Payloads, Query};
use crate::time::ms_of;
use crate::web::Shared;

/// Entries of a page, if nothing is said.
const PAGE: usize = 50;
/// Bytes of each payload that are shown.
const SHOWN: usize = 4096;

/// Which entries, and how many.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    state: Option<String>,
    #[serde(default)]
    filter: Vec<String>,
    after: Option<String>,
    count: Option<usize>,
    #[serde(default)]
    payload: Payloads,
}

/// A page, by time.
#[derive(Debug, Serialize)]
pub(super) struct Entries {
    now_ms: u64,
    entries: Vec<Entry>,
    /// Where the next page begins. A page may be empty and not the last, where a filter leaves much out.
    next: Option<String>,
    looked_at: usize,
}

/// A page of the journal, newest first.
#[derive(Debug, Serialize)]
pub(super) struct Ended {
    entries: Vec<JournalEntry>,
    next: Option<String>,
}

pub(super) async fn page(
    State(shared): State<Shared>,
    Path(topic): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Entries>, Fault> {
    let (count, filter) = (ask::count(wanted.count, PAGE)?, ask::filter(&wanted.filter)?);
    let state = wanted.state.as_deref().map_or(Ok(EntryState::Waiting), str::parse)?;
    let after = wanted.after.as_deref().map(str::parse).transpose()?;
    let payload = wanted.payload.bytes(&shared, SHOWN)?;
    let topic = ask::topic(&shared, &topic).await?;
    let mut page = topic.filtered(state, &filter, after.as_ref(), count, payload).await?;
    Ok(Json(Entries {
        now_ms: ms_of(page.now),
        entries: std::mem::take(&mut page.entries),
        next: page.next.map(|next| next.to_string()),
        looked_at: page.looked_at,
    }))
}

pub(super) async fn journal(
    State(shared): State<Shared>,
    Path(topic): Path<String>,
    Query(From { after, count }): Query<From>,
) -> Result<Json<Ended>, Fault> {
    let count = ask::count(count, PAGE)?;
    let after = after.as_deref().map(str::parse).transpose()?;
    let topic = ask::topic(&shared, &topic).await?;
    if topic.journal_bounds().await?.is_none() {
        let why = "the topic keeps no journal: its listeners say Topic::journal(count, age)";
        return Err(Fault::new(StatusCode::NOT_FOUND, why));
    }
    let page = topic.journal(after.as_ref(), count).await?;
    Ok(Json(Ended { entries: page.entries, next: page.next.map(|next| next.to_string()) }))
}

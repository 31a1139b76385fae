//! Pages of a topic's entries and of its journal.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use keylapse_console::{Entry, EntryState, JournalEntry};
use serde::{Deserialize, Serialize};

use crate::api::ApiError;
use crate::api::ask::{self, PageQuery, Path, Payloads, Query};
use crate::time::ms_of;
use crate::web::SharedState;

/// Entries of a page, if the request has no `count`.
const DEFAULT_PAGE_ENTRIES: usize = 50;
/// Maximum bytes of each payload.
const SHOWN: usize = 4096;

/// Selects entries by state and filter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntriesQuery {
    state: Option<String>,
    #[serde(default)]
    filter: Vec<String>,
    after: Option<String>,
    count: Option<usize>,
    #[serde(default)]
    payload: Payloads,
}

/// A page of entries, in the order of their times.
#[derive(Debug, Serialize)]
pub(super) struct Entries {
    now_ms: u64,
    entries: Vec<Entry>,
    /// The cursor of the next page. With a filter, a page may be empty and not the last.
    next: Option<String>,
    looked_at: usize,
}

/// A page of the journal, newest first.
#[derive(Debug, Serialize)]
pub(super) struct JournalResponse {
    entries: Vec<JournalEntry>,
    next: Option<String>,
}

pub(super) async fn page(
    State(shared): State<SharedState>,
    Path(topic): Path<String>,
    Query(wanted): Query<EntriesQuery>,
) -> Result<Json<Entries>, ApiError> {
    let (count, filter) = (ask::count(wanted.count, DEFAULT_PAGE_ENTRIES)?, ask::filter(&wanted.filter)?);
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
    State(shared): State<SharedState>,
    Path(topic): Path<String>,
    Query(PageQuery { after, count }): Query<PageQuery>,
) -> Result<Json<JournalResponse>, ApiError> {
    let count = ask::count(count, DEFAULT_PAGE_ENTRIES)?;
    let after = after.as_deref().map(str::parse).transpose()?;
    let topic = ask::topic(&shared, &topic).await?;
    if topic.journal_bounds().await?.is_none() {
        let why =
            "the topic keeps no journal: set Topic::journal(count, age) in the programs of its listeners";
        return Err(ApiError::new(StatusCode::NOT_FOUND, why));
    }
    let page = topic.journal(after.as_ref(), count).await?;
    Ok(Json(JournalResponse { entries: page.entries, next: page.next.map(|next| next.to_string()) }))
}

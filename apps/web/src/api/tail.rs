//! Attempts as they start and end, as Server-Sent Events.
//!
//! `event: tail` is a start or an end, and `event: missed` stands for missed ones. The data is the JSON line of the command
//! line. A comment is sent while nothing happens, so that the server notices a closed connection.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Sse};
use futures::future::{Either, pending, select};
use futures::stream::unfold;
use keylapse_console::{Console, Missed, Tail, TailItem};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::ApiError;
use crate::api::ask::{Query, bad};
use crate::api::topics::registry;
use crate::guard::Caller;
use crate::serve::ServerShutdown;
use crate::web::SharedState;

/// Maximum topics of one tail.
const TOPICS: usize = 100;
/// Interval of comments while nothing happens.
const SSE_KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TailQuery {
    #[serde(default)]
    topic: Vec<String>,
}

/// The tail of one client. It ends when this is dropped with the connection.
struct TailStream {
    tail: Tail,
    console: Console,
    topics: Vec<String>,
    closing: Option<ServerShutdown>,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn tail(
    State(shared): State<SharedState>,
    Extension(who): Extension<Caller>,
    closing: Option<Extension<ServerShutdown>>,
    Query(TailQuery { topic: mut topics }): Query<TailQuery>,
) -> Result<impl IntoResponse, ApiError> {
    if topics.len() > TOPICS {
        return Err(bad(format!("at most {TOPICS} topics can be named")));
    }
    for topic in &topics {
        shared.check(&who, topic)?;
    }
    let place = shared.tails.clone().try_acquire_owned().map_err(|_| {
        let why =
            format!("{} live tails are open, which is the maximum: try again later", shared.limits.tails);
        ApiError::named(StatusCode::SERVICE_UNAVAILABLE, "too_many", why)
    })?;
    let console = shared.console.clone();
    if topics.is_empty() {
        let all = registry(&shared, &who).await?.topics;
        if all.is_empty() {
            return Err(ApiError::new(
                StatusCode::NOT_FOUND,
                "no topic is registered that this caller may read",
            ));
        }
        if !who.may_all() {
            topics = all.iter().map(|topic| topic.name().to_owned()).collect();
        }
    }
    let tail = console.tail(&topics).await.map_err(|error| ApiError::absent(&error))?;
    let closing = closing.map(|closing| closing.0);
    let onlooker = TailStream { tail, console, topics, closing, _place: place };
    let events = unfold(onlooker, async |mut onlooker| {
        let told = onlooker.next().await?;
        Some((Ok::<_, Infallible>(event(&told)), onlooker))
    });
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(SSE_KEEP_ALIVE));
    Ok(([(header::CACHE_CONTROL, "no-store")], events))
}

impl TailStream {
    /// Returns the next item. Returns `None` when this server shuts down or Redis cannot be reached. Clients reconnect then.
    async fn next(&mut self) -> Option<TailItem> {
        let closes = match &self.closing {
            Some(closing) => Either::Left(closing.clone().begins()),
            None => Either::Right(pending()),
        };
        tokio::pin!(closes);
        let next = Box::pin(self.tail.next());
        let told = match select(closes, next).await {
            Either::Left(_) => return None,
            Either::Right((told, _)) => told,
        };
        if told.is_some() {
            return told;
        }
        // The tail ended because a topic was repartitioned.
        self.tail = self.console.tail(&self.topics).await.ok()?;
        Some(TailItem::Missed(Missed::Disconnected))
    }
}

fn event(told: &TailItem) -> Event {
    let kind = if matches!(told, TailItem::Event(_)) { "tail" } else { "missed" };
    // All items can be written as JSON, so the default is never used.
    Event::default().event(kind).json_data(told).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures::stream::iter;

    use super::*;

    #[tokio::test]
    async fn what_was_missed_is_an_event_of_its_own() {
        let events = iter([Missed::Counted { count: 7 }, Missed::Disconnected].map(TailItem::Missed));
        let sent = Sse::new(futures::StreamExt::map(events, |told| Ok::<_, Infallible>(event(&told))));
        let sent = to_bytes(sent.into_response().into_body(), 1000).await.unwrap();
        let words = "event: missed\ndata: {\"missed\":\"counted\",\"count\":7}\n\n\
                     event: missed\ndata: {\"missed\":\"disconnected\"}\n\n";
        assert_eq!(sent, words);
    }
}

//! Starts and ends of attempts as they happen, as Server-Sent Events.
//!
//! Each is one event: `event: tail` with what happened, or `event: missed` where some were not heard; its data is the line
//! of JSON that the command line writes. A comment is sent while nothing happens, so that a client who has gone is noticed.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Sse};
use futures::future::{Either, pending, select};
use futures::stream::unfold;
use keylapse_console::{Console, Missed, Tail, Tailed};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::Fault;
use crate::api::ask::{Query, bad};
use crate::api::topics::registry;
use crate::guard::Who;
use crate::serve::Closing;
use crate::web::Shared;

/// Topics that can be named.
const TOPICS: usize = 100;
/// So often something is sent although nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    #[serde(default)]
    topic: Vec<String>,
}

/// One who looks on. The tail ends when this is dropped, as the connection is.
struct Onlooker {
    tail: Tail,
    console: Console,
    topics: Vec<String>,
    closing: Option<Closing>,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn tail(
    State(shared): State<Shared>,
    Extension(who): Extension<Who>,
    closing: Option<Extension<Closing>>,
    Query(Which { topic: mut topics }): Query<Which>,
) -> Result<impl IntoResponse, Fault> {
    if topics.len() > TOPICS {
        return Err(bad(format!("at most {TOPICS} topics can be named")));
    }
    for topic in &topics {
        shared.check(&who, topic)?;
    }
    let place = shared.tails.clone().try_acquire_owned().map_err(|_| {
        let why =
            format!("{} look on already, and there may be no more: try again later", shared.patience.tails);
        Fault::named(StatusCode::SERVICE_UNAVAILABLE, "too_many", why)
    })?;
    let console = shared.console.clone();
    if topics.is_empty() {
        let all = registry(&shared, &who).await?.topics;
        if all.is_empty() {
            return Err(Fault::new(StatusCode::NOT_FOUND, "no topic is registered that could be heard"));
        }
        if !who.may_all() {
            topics = all.iter().map(|topic| topic.name().to_owned()).collect();
        }
    }
    let tail = console.tail(&topics).await.map_err(|error| Fault::absent(&error))?;
    let closing = closing.map(|closing| closing.0);
    let onlooker = Onlooker { tail, console, topics, closing, _place: place };
    let events = unfold(onlooker, async |mut onlooker| {
        let told = onlooker.next().await?;
        Some((Ok::<_, Infallible>(event(&told)), onlooker))
    });
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    Ok(([(header::CACHE_CONTROL, "no-store")], events))
}

impl Onlooker {
    /// What comes next; none when the server is to end, or cannot be reached any more: clients ask anew then.
    async fn next(&mut self) -> Option<Tailed> {
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
        // A topic has another number of partitions now.
        self.tail = self.console.tail(&self.topics).await.ok()?;
        Some(Tailed::Missed(Missed::Disconnected))
    }
}

fn event(told: &Tailed) -> Event {
    let kind = if matches!(told, Tailed::Event(_)) { "tail" } else { "missed" };
    // Nothing of it can fail to be written as JSON.
    Event::default().event(kind).json_data(told).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures::stream::iter;

    use super::*;

    #[tokio::test]
    async fn what_was_missed_is_an_event_of_its_own() {
        let events = iter([Missed::Counted { count: 7 }, Missed::Disconnected].map(Tailed::Missed));
        let sent = Sse::new(futures::StreamExt::map(events, |told| Ok::<_, Infallible>(event(&told))));
        let sent = to_bytes(sent.into_response().into_body(), 1000).await.unwrap();
        let words = "event: missed\ndata: {\"missed\":\"counted\",\"count\":7}\n\n\
                     event: missed\ndata: {\"missed\":\"disconnected\"}\n\n";
        assert_eq!(sent, words);
    }
}

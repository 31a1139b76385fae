//! The page of the live tail. Without JavaScript it shows the journal of a topic.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use keylapse_console::{JournalEntry, TopicHandle, text};
use serde::Deserialize;

use super::entries;
use super::error_page::ErrorPage;
use super::frame::{Frame, PageRequest, Time, answer};

/// Maximum topics to choose from.
const TOPICS: usize = 500;
/// Maximum entries of the journal.
const ENTRIES: usize = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TailPageQuery {
    /// Empty for all topics.
    topic: String,
}

#[derive(Template)]
#[template(path = "tail.html")]
struct Page {
    frame: Frame,
    topic: String,
    topics: Vec<String>,
    source: String,
    command: String,
    keeps_journal: bool,
    ended: Vec<JournalRow>,
}

struct JournalRow {
    when: Time,
    outcome: &'static str,
    key: String,
    link: Option<String>,
    attempt: u32,
}

pub(super) async fn show(
    visit: PageRequest,
    Query(asked): Query<TailPageQuery>,
) -> Result<Response, ErrorPage> {
    if !asked.topic.is_empty() {
        visit.may(&asked.topic)?;
    }
    let shared = &visit.shared;
    let look = async {
        let registry = shared.samples.registry(&shared.console).await?;
        let mut journal = None;
        if !asked.topic.is_empty() {
            let topic = shared.console.topic(&asked.topic).await?;
            if topic.journal_bounds().await?.is_some() {
                journal = Some((topic.journal(None, ENTRIES).await?.entries, topic.overview().await?.now_ms));
            }
        }
        Ok((registry, journal))
    };
    let (registry, journal) = visit.ask(look).await?;
    let frame = visit.frame("tail").still();
    let topics = registry.topics.iter().map(TopicHandle::name).filter(|name| visit.who.may(name));
    let topics = topics.take(TOPICS).map(str::to_owned).collect();
    let source = frame.link("/api/v1/tail", &[("topic", &asked.topic)]);
    let named =
        if asked.topic.is_empty() { String::new() } else { format!(" {}", text::quoted(&asked.topic)) };
    let keeps_journal = journal.is_some();
    let (entries, now_ms) = journal.unwrap_or_default();
    let ended = entries.iter().map(|entry| ended(entry, &asked.topic, now_ms, &frame)).collect();
    let command = format!("keylapse tail{named}");
    Ok(answer(&Page { frame, topic: asked.topic, topics, source, command, keeps_journal, ended }))
}

fn ended(entry: &JournalEntry, topic: &str, now_ms: u64, frame: &Frame) -> JournalRow {
    JournalRow {
        when: Time::new(entry.ended_ms, now_ms),
        outcome: entry.outcome.as_str(),
        key: entries::key(&entry.key),
        link: frame.timer(topic, &text::escape(&entry.key)),
        attempt: entry.attempt,
    }
}

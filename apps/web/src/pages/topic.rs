//! The page of a topic: its status, and its entries in one state.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use keylapse_console::{
    Action, Cursor, EntryState, Filter, Page as Found, TopicHandle, TopicState, counted, show_count,
};
use serde::Deserialize;

use super::alarms::{AlarmGroup, groups};
use super::entries::{self, EntryRow};
use super::error_page::ErrorPage;
use super::frame::{Frame, PageRequest, answer};
use super::notice::{Notice, NoticeQuery};
use super::topics::Row;
use crate::parse;
use crate::time::ms_of;

const ENTRIES_PER_PAGE: usize = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TopicPageQuery {
    name: String,
    state: String,
    filter: String,
    after: String,
}

#[derive(Template)]
#[template(path = "topic.html")]
struct Page {
    frame: Frame,
    row: Row,
    alarms: Vec<AlarmGroup>,
    has_destinations: bool,
    state: EntryState,
    tabs: Vec<Tab>,
    filter: String,
    when: &'static str,
    lines: Vec<EntryRow>,
    verbs: &'static [Action],
    can_pause: bool,
    is_paused: bool,
    /// The heading if there are no entries.
    none: String,
    place: String,
    first: Option<String>,
    next: Option<String>,
}

struct Tab {
    state: EntryState,
    link: String,
    /// `None` if counting would be costly.
    count: Option<String>,
}

pub(super) async fn show(
    visit: PageRequest,
    Query(asked): Query<TopicPageQuery>,
    Query(said): Query<NoticeQuery>,
) -> Result<Response, ErrorPage> {
    visit.may(&asked.name)?;
    let (state, filter) = (state_of(&visit, &asked.state)?, filter_of(&visit, &asked.filter)?);
    let after = cursor_of(&visit, &asked.after)?;
    let shared = &visit.shared;
    let look = async {
        let topic = shared.console.topic(&asked.name).await?;
        let standing = shared.samples.topic(&shared.console, &topic).await?;
        let found = topic.filtered(state, &filter, after.as_ref(), ENTRIES_PER_PAGE, None).await?;
        Ok((topic, standing, found))
    };
    let (topic, standing, found) = visit.ask(look).await?;
    let frame = visit.frame("topics").aged(standing.age).saying(Notice::of(&said));
    let (row, alarms) = (Row::of(&standing, &frame), groups(&standing.status.alarms(), &frame));
    let has_destinations = !standing.status.destinations.is_empty();
    let held = &standing.status.overview;
    let count = |state| match state {
        EntryState::Quarantined => Some(held.quarantined),
        EntryState::Dead => Some(held.dead),
        EntryState::Tracked => Some(held.tracked),
        _ => None,
    };
    let tab = |state| Tab {
        state,
        link: at(&frame, &topic, state, &asked.filter, ""),
        count: count(state).map(show_count),
    };
    let is_there = |state: &EntryState| topic.is_attached() || *state != EntryState::Tracked;
    let tabs = EntryState::ALL.into_iter().filter(is_there).map(tab).collect();
    let now_ms = ms_of(found.now);
    let lines: Vec<_> = found.entries.iter().map(|entry| EntryRow::of(entry, now_ms, &frame)).collect();
    let next = found.next.as_ref().map(|next| at(&frame, &topic, state, &asked.filter, &next.to_string()));
    let first = after.map(|_| at(&frame, &topic, state, &asked.filter, ""));
    let is_paused = standing.status.state() == TopicState::Paused;
    let can_pause = !matches!(standing.status.state(), TopicState::Closed | TopicState::Unreadable);
    let (verbs, when) = (Action::of(state), entries::when(state));
    let (none, place) = (none(state, &found, &filter), place(&found, &filter));
    let filter = asked.filter;
    let page = Page {
        frame,
        row,
        alarms,
        has_destinations,
        state,
        tabs,
        filter,
        when,
        lines,
        verbs,
        can_pause,
        is_paused,
        none,
        place,
        first,
        next,
    };
    Ok(answer(&page))
}

pub(super) fn state_of(visit: &PageRequest, said: &str) -> Result<EntryState, ErrorPage> {
    if said.is_empty() {
        return Ok(EntryState::Waiting);
    }
    said.parse().map_err(|error| visit.trouble(&error))
}

pub(super) fn filter_of(visit: &PageRequest, said: &str) -> Result<Filter, ErrorPage> {
    let conditions = parse::conditions(said).map_err(|why| visit.refuse(why))?;
    Filter::parse(conditions).map_err(|error| visit.trouble(&error))
}

fn cursor_of(visit: &PageRequest, said: &str) -> Result<Option<Cursor>, ErrorPage> {
    if said.is_empty() {
        return Ok(None);
    }
    said.parse().map(Some).map_err(|error| visit.trouble(&error))
}

fn at(frame: &Frame, topic: &TopicHandle, state: EntryState, filter: &str, after: &str) -> String {
    let fields = [("name", topic.name()), ("state", state.as_str()), ("filter", filter), ("after", after)];
    frame.link("/topic", &fields)
}

fn none(state: EntryState, found: &Found, filter: &Filter) -> String {
    let what = state.label();
    match (filter.is_empty(), &found.next) {
        (true, _) => format!("No {what}s."),
        (false, None) => format!("No {what} matches the filter."),
        (false, Some(_)) => {
            let looked_at = counted(found.looked_at as u64, what);
            format!("None of {looked_at} matches the filter. There are more.")
        }
    }
}

fn place(found: &Found, filter: &Filter) -> String {
    let here = show_count(found.entries.len() as u64);
    let more = if found.next.is_some() { ", and there may be more" } else { "" };
    match filter.is_empty() {
        true => format!("{here} shown{more}"),
        false => format!("{here} of {} match{more}", show_count(found.looked_at as u64)),
    }
}

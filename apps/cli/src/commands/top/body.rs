//! The middle of each screen: topics, listeners, the entries of a topic, or the timeline of a key.

use keylapse::fleet::ListenerReport;
use keylapse_console::format::{brief, percent, rate, relative};
use keylapse_console::{Entry, EntryState, KeyExplanation, Overview, TimelineEvent, TopicState, text};
use ratatui::layout::Size;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::app::{App, ScreenState};
use super::grid::Kind::{Number, Text, Word};
use super::grid::{ALARM, Grid, LONGEST, NEVER, QUIET, WISH, named, width};
use super::worker::{ScreenData, ScreenSubject, TopicRow};
use crate::output::{count, counted, lateness, moment, or_none, short, size, stalled};

/// Bytes of a key that are shown.
const KEY: usize = 200;
/// The least height with room for three lines about a topic.
const TALL: u16 = 12;

pub(super) fn lines(app: &App, mut room: Size) -> Vec<Line<'static>> {
    let (view, data) = (&app.view, &app.view.data);
    let mut lines = Vec::new();
    if let (ScreenSubject::Entries(_), Some(topic)) = (&view.look.of, view.topic()) {
        lines.extend(facts(topic, room.width.into()));
        // A low screen has room for the most important line only.
        let shown = if room.height >= TALL { 3 } else { 1 };
        lines.truncate(shown.into());
        room.height = room.height.saturating_sub(shown);
    }
    lines.extend(match (&view.look.of, &data.why) {
        (ScreenSubject::Timer(key), Some(why)) => known(key, why, view.at, room),
        _ if view.len() == 0 => nothing(app, room),
        (ScreenSubject::Listeners, _) => listeners(&data.listeners).lines(view.at, room),
        (ScreenSubject::Entries(state), _) => entries(data, *state).lines(view.at, room),
        _ => topics(&data.topics).lines(view.at, room),
    });
    lines
}

/// Returns the text of a screen without entries.
fn nothing(app: &App, room: Size) -> Vec<Line<'static>> {
    let (view, columns) = (&app.view, usize::from(room.width).saturating_sub(1));
    let mut lines = Vec::new();
    if let ScreenSubject::Timer(key) = &view.look.of {
        lines = field("key", &shown(key), columns, 3);
    }
    let filter = &view.look.filter;
    let text = match &view.look.of {
        _ if view.seen.is_none() => "Loading…".to_owned(),
        ScreenSubject::Topics if filter.is_empty() => {
            let namespace = short(&app.setting.namespace, 60);
            format!(
                "No topic is registered in namespace {namespace} yet: programs register theirs when they first use them."
            )
        }
        ScreenSubject::Topics => format!("No topic's name contains {}.", short(filter, 60)),
        ScreenSubject::Entries(state) => none_of(state.label(), filter, view),
        _ => "No listener has reported within 15 s, so no timer runs.".to_owned(),
    };
    lines.extend(named("   ", Style::new(), &text, columns, room.height.into()));
    lines
}

fn none_of(what: &str, filter: &str, view: &ScreenState) -> String {
    if filter.is_empty() {
        return format!("No {what}s.");
    }
    if view.data.next.is_some() {
        let looked_at = counted(view.data.all as u64, what);
        return format!("None of {looked_at} matches; n checks the next ones.");
    }
    format!("No {what}s that match {}.", short(filter, KEY))
}

fn topics(topics: &[TopicRow]) -> Grid<'_, TopicRow> {
    let standing = |topic: &TopicRow| Span::styled(topic.standing.as_str(), style(topic.standing));
    let oldest = |held: &Overview| (held.undelivered > 0).then(|| brief(held.oldest_undelivered_ms));
    let running = |topic: &TopicRow| (topic.limit > 0).then(|| format!("{}/{}", topic.running, topic.limit));
    Grid::of(topics, |topic| topic.standing.is_alarm())
        .column((Text(16), 0, "TOPIC"), |topic| short(&topic.name, 100))
        .column((Word, 1, "STATE"), standing)
        .column((Number, 3, "TIMERS"), |topic| count(topic.held.timers))
        .column((Number, 2, "UNDELIVERED"), |topic| count(topic.held.undelivered))
        .column((Number, 4, "OLDEST"), |topic| or_none(oldest(&topic.held)))
        .column((Number, 14, "OVERDUE"), |topic| count(topic.held.overdue))
        .column((Number, 9, "DUE 1M"), |topic| count(topic.held.due_in_1m))
        .column((Number, 11, "DUE 1H"), |topic| count(topic.held.due_in_1h))
        .column((Number, 6, "RUNNING"), |topic| or_none(running(topic)))
        .column((Number, 7, "RATE/S"), |topic| or_none(topic.rate.map(rate)))
        .column((Number, 8, "FAILING"), |topic| or_none(topic.recent.failing().map(percent)))
        .column((Number, 12, "P50 LATE"), |topic| or_none(topic.recent.late_p50_us.map(lateness)))
        .column((Number, 10, "P99 LATE"), |topic| or_none(topic.recent.late_p99_us.map(lateness)))
        .column((Number, 5, "DEAD"), |topic| count(topic.held.dead))
        .column((Number, 13, "LISTENERS"), |topic| topic.listeners.to_string())
}

fn style(standing: TopicState) -> Style {
    match standing {
        TopicState::Fine => Style::new(),
        TopicState::Paused => WISH,
        _ => ALARM,
    }
}

fn listeners(reports: &[ListenerReport]) -> Grid<'_, ListenerReport> {
    let hears = |report: &ListenerReport| {
        let nodes = report.nodes.iter().map(|node| format!("{} {}", node.node, node.mode));
        short(&nodes.collect::<Vec<_>>().join(", "), 200)
    };
    let topics = |report: &ListenerReport| {
        let names: Vec<_> = report.topics.keys().map(String::as_str).collect();
        short(&names.join(" "), 400)
    };
    Grid::of(reports, |report| fault(report).is_some())
        .column((Text(12), 0, "HOST"), |report| short(&report.host, 60))
        .column((Number, 2, "PROCESS"), |report| report.pid.to_string())
        .column((Word, 5, "VERSION"), |report| short(&report.version, 20))
        .column((Number, 1, "RUNNING"), ListenerReport::capacity)
        .column((Text(16), 3, "EVENTS"), hears)
        .column((Text(12), 4, "TOPICS"), topics)
}

/// Returns why a listener may miss events, or claims nothing.
fn fault(report: &ListenerReport) -> Option<String> {
    let gaps: Vec<_> = report.nodes.iter().filter_map(|node| node.gap.as_deref()).collect();
    let gap = || format!("it may miss events: {}", short(&gaps.join(", "), 400));
    report.handlers_stalled_ms.map(stalled).or_else(|| (!gaps.is_empty()).then(gap))
}

fn entries(data: &ScreenData, state: EntryState) -> Grid<'_, Entry> {
    use EntryState::{Dead, Quarantined, Running, Tracked};
    let (when, reason, attempts, lost) = match state {
        Running => ("LEASE ENDS", NEVER, (3, "ATTEMPT"), 6),
        Quarantined => ("DUE", NEVER, (3, "ATTEMPT"), 2),
        Dead => ("DIED", 2, (4, "ATTEMPTS"), 6),
        Tracked => ("EXPIRES", NEVER, (NEVER, ""), NEVER),
        _ => ("DUE", NEVER, (3, "ATTEMPT"), 6),
    };
    // A tracked key is checked before it expires, so its deadline is shown instead.
    let at = |entry: &Entry| entry.deadline_ms.filter(|_| state == Tracked).unwrap_or(entry.at_ms);
    let of_timers = |rank| if state == Tracked { NEVER } else { rank };
    let now_ms = data.now_ms.unwrap_or_default();
    Grid::of(&data.entries, |_| false)
        .column((Text(24), 0, "KEY"), |entry| shown(&entry.key))
        .column((Word, 1, when), |entry| relative(at(entry), now_ms))
        .column((Word, 7, "AT"), |entry| moment(at(entry)))
        .column((Word, reason, "REASON"), reason_of)
        .column((Number, attempts.0, attempts.1), |entry| entry.attempt.to_string())
        .column((Number, lost, "LOST"), |entry| entry.lost_leases.to_string())
        .column((Number, of_timers(8), "PAYLOAD"), |entry| size(entry.payload_bytes))
        .column((Text(24), of_timers(5), "LAST ERROR"), |entry| short(error_of(entry), LONGEST))
}

fn reason_of(entry: &Entry) -> &'static str {
    entry.reason.map_or("", |reason| reason.as_str())
}

fn error_of(entry: &Entry) -> &str {
    entry.last_error().unwrap_or_default()
}

/// Returns a key as it is printed, up to `KEY` bytes.
fn shown(key: &[u8]) -> String {
    let head = &key[..key.len().min(KEY)];
    let cut = if head.len() < key.len() { "…" } else { "" };
    format!("{}{cut}", text::escape(head))
}

/// Returns the state of a topic in two lines and a blank one: as many facts as fit, the most important first.
fn facts(topic: &TopicRow, columns: usize) -> [Line<'static>; 3] {
    let (held, recent) = (&topic.held, &topic.recent);
    let undelivered = match held.undelivered {
        0 => "none undelivered".to_owned(),
        some => format!("{} undelivered, oldest {}", count(some), brief(held.oldest_undelivered_ms)),
    };
    let first = [
        counted(held.timers, "timer"),
        undelivered,
        format!("{} dead", count(held.dead)),
        format!("{}/{} running", topic.running, topic.limit),
        counted(topic.listeners as u64, "listener"),
    ];
    let second = [
        Some(format!("overdue {}", count(held.overdue))),
        Some(format!("due in 1m {}", count(held.due_in_1m))),
        Some(format!("in 1h {}", count(held.due_in_1h))),
        topic.rate.map(|per_second| format!("{}/s", rate(per_second))),
        recent.failing().map(|share| format!("failing {}", percent(share))),
        recent.late_p50_us.map(|us| format!("late p50 {}", lateness(us))),
        recent.late_p99_us.map(|us| format!("p99 {}", lateness(us))),
        Some(short(&topic.pattern, 200)),
    ];
    let standing = Span::styled(format!("   {}", topic.standing.as_str()), style(topic.standing));
    let first = joined(first, columns.saturating_sub(standing.width()));
    let second = joined(second.into_iter().flatten(), columns.saturating_sub(1));
    let second = Line::styled(format!(" {second}"), QUIET);
    [Line::from(vec![standing, Span::raw(first)]), second, Line::default()]
}

/// Joins facts until the line is full.
fn joined(facts: impl IntoIterator<Item = String>, columns: usize) -> String {
    let mut text = String::new();
    for fact in facts {
        if width(&text) + width(&fact) + 2 > columns {
            break;
        }
        text = format!("{text}  {fact}");
    }
    text
}

/// Returns the most important fact about the selected line.
pub(super) fn remark(app: &App) -> Option<(String, Style)> {
    let view = &app.view;
    let error = view.entry().map(error_of).filter(|error| !error.is_empty());
    match (&view.look.of, error) {
        (ScreenSubject::Timer(_), _) => None,
        (ScreenSubject::Listeners, _) => Some((fault(view.data.listeners.get(view.at)?)?, ALARM)),
        (_, Some(error)) => Some((short(error, 400), Style::new())),
        (_, None) => {
            let topic = view.topic().filter(|topic| !topic.said.is_empty())?;
            let standing = topic.standing;
            let style = if standing == TopicState::Fine { ALARM } else { style(standing) };
            Some((format!("{}: {}", topic.name, short(&topic.said, 400)), style))
        }
    }
}

/// Returns the state of a key's timer, and its timeline.
fn known(key: &[u8], why: &KeyExplanation, at: usize, room: Size) -> Vec<Line<'static>> {
    let (columns, height) = (usize::from(room.width).saturating_sub(1), usize::from(room.height));
    let mut lines = field("key", &shown(key), columns, 3);
    lines.extend(field("state", &state(why), columns, 1));
    lines.extend(field("next", &why.next, columns, 2));
    lines.extend(why.blocked_by.iter().flat_map(|reason| field("not now", reason, columns, 2)));
    lines.extend(why.served_by.iter().flat_map(|who| field("served by", who, columns, 1)));
    lines.push(Line::default());
    // A low screen drops the lines above the timeline first, so that the selected moment stays visible.
    let below = height.saturating_sub(lines.len()).max(height / 2);
    lines.truncate(height - below);
    let story = story(why, columns);
    let from = at.min(story.len().saturating_sub(1));
    lines.extend(story.into_iter().skip(from).take(below));
    lines
}

fn field(name: &str, value: &str, columns: usize, most: usize) -> Vec<Line<'static>> {
    named(&format!("   {name:<10}"), QUIET, value, columns, most)
}

fn state(why: &KeyExplanation) -> String {
    match (&why.timer, why.dead_letters.first()) {
        (Some(timer), _) => {
            let (state, payload) = (timer.state.as_str(), size(timer.payload_bytes));
            format!("{state}, attempt {}, payload {payload}", timer.attempt)
        }
        _ if why.tracked_key.is_some() => "tracked: the deadline of the key is known".to_owned(),
        (None, Some(letter)) => {
            format!("dead: {}, after {}", reason_of(letter), counted(letter.attempt.into(), "attempt"))
        }
        (None, None) => "nothing is armed under this key".to_owned(),
    }
}

/// Returns the timeline, the latest moment first, with a line for now between future and past.
fn story(why: &KeyExplanation, columns: usize) -> Vec<Line<'static>> {
    let (timeline, now_ms) = (&why.timeline, why.now_ms);
    let lines = |TimelineEvent { at_ms, event: what, .. }: &TimelineEvent| {
        let at_moment = if columns >= 80 { format!("{}  ", moment(*at_ms)) } else { String::new() };
        named(&format!("   {:<13}{at_moment}", relative(*at_ms, now_ms)), QUIET, what, columns, 4)
    };
    let (past, future) = timeline.split_at(timeline.partition_point(|moment| moment.at_ms <= now_ms));
    let mut story: Vec<_> = future.iter().rev().flat_map(lines).collect();
    if !future.is_empty() && !past.is_empty() {
        story.push(Line::styled(format!("   {:-<1$}", "now ", columns.min(60)), QUIET));
    }
    story.extend(past.iter().rev().flat_map(lines));
    if story.is_empty() {
        story.push(Line::styled("   No events are recorded.", QUIET));
    }
    story
}

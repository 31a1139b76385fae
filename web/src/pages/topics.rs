//! All topics, in a line each.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use keylapse::console::words::{brief, lateness, percent, rate, short};
use keylapse::console::{TopicStanding, UnreadableTopic, counted, show_count};
use serde::Deserialize;

use super::frame::{Frame, Visit, answer};
use super::samples::{Standing, TopicPage};
use super::trouble::Trouble;
use crate::web::Shared;

/// Topics of a page.
const TOPICS: usize = 100;
/// Characters of what topics have to contain; their names have no more.
const LONGEST: usize = 128;
/// How large a sparkline is drawn.
const WIDE: f64 = 96.0;
const HIGH: f64 = 20.0;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    /// What their names contain.
    filter: String,
    skip: usize,
}

#[derive(Template)]
#[template(path = "topics.html")]
struct Page {
    frame: Frame,
    filter: String,
    shown_filter: String,
    totals: Vec<(&'static str, String)>,
    rows: Vec<Row>,
    unreadable: Vec<UnreadableTopic>,
    place: String,
    earlier: Option<String>,
    later: Option<String>,
}

/// A topic, in a line.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) pattern: String,
    pub(super) is_attached: bool,
    pub(super) link: String,
    pub(super) state: &'static str,
    /// What somebody has to know before all else.
    pub(super) remark: String,
    pub(super) timers: String,
    pub(super) overdue: String,
    pub(super) is_overdue: bool,
    pub(super) oldest: String,
    pub(super) due_1m: String,
    pub(super) due_1h: String,
    pub(super) running: String,
    pub(super) rate: String,
    pub(super) line: Option<String>,
    pub(super) p50: String,
    pub(super) p99: String,
    pub(super) failing: String,
    pub(super) dead: String,
    pub(super) has_dead: bool,
    pub(super) listeners: String,
}

pub(super) async fn home(State(shared): State<Shared>) -> Redirect {
    Redirect::to(&shared.path("/topics"))
}

pub(super) async fn show(visit: Visit, Query(asked): Query<Asked>) -> Result<Response, Trouble> {
    let filter: String = asked.filter.trim().chars().take(LONGEST).collect();
    let shared = &visit.shared;
    let look = shared.samples.topics(&shared.console, &visit.who, &filter, asked.skip, TOPICS);
    let found = visit.ask(look).await?;
    let frame = visit.frame("topics");
    let skip = asked.skip.min(found.matching);
    let at = |skip: usize| frame.link("/topics", &[("filter", &filter), ("skip", &skip.to_string())]);
    let earlier = (skip > 0).then(|| at(skip.saturating_sub(TOPICS)));
    let later = (skip + TOPICS < found.matching).then(|| at(skip + TOPICS));
    let place = place(&found, skip);
    let totals = totals(&found);
    let rows = found.standings.iter().map(|standing| Row::of(standing, &frame)).collect();
    let unreadable = found.unreadable;
    let shown_filter = short(&filter, LONGEST);
    Ok(answer(&Page { filter, shown_filter, totals, rows, unreadable, place, earlier, later, frame })
        .into_response())
}

/// What there is in all of the topics of a page.
fn totals(found: &TopicPage) -> Vec<(&'static str, String)> {
    let sum = |of: fn(&Standing) -> u64| show_count(found.standings.iter().map(of).sum());
    let rate_of_all =
        found.standings.iter().filter_map(|standing| standing.rate).fold(0.0, |all, rate| all + rate);
    vec![
        ("Timers", sum(|standing| standing.status.overview.timers)),
        ("Overdue", sum(|standing| standing.status.overview.overdue)),
        ("Due in 1m", sum(|standing| standing.status.overview.due_in_1m)),
        ("Running", sum(|standing| standing.status.running as u64)),
        ("Attempts/s", rate(rate_of_all)),
        ("Dead", sum(|standing| standing.status.overview.dead)),
        ("Listeners", show_count(found.listeners as u64)),
    ]
}

fn place(found: &TopicPage, skip: usize) -> String {
    let here = found.standings.len() + found.unreadable.len();
    if here < found.matching {
        let (from, to) = (skip + usize::from(here > 0), skip + here);
        return format!("{from}–{to} of {}", counted(found.matching as u64, "topic"));
    }
    match found.all {
        all if all == found.matching => counted(all as u64, "topic"),
        all => format!("{} of {}", show_count(found.matching as u64), counted(all as u64, "topic")),
    }
}

impl Row {
    pub(super) fn of(standing: &Standing, frame: &Frame) -> Self {
        let (status, or_none) =
            (&standing.status, |text: Option<String>| text.unwrap_or_else(|| "–".to_owned()));
        let held = &status.overview;
        Self {
            name: status.topic.name().to_owned(),
            pattern: short(status.topic.pattern(), 200),
            is_attached: status.topic.is_attached(),
            link: frame.topic(status.topic.name()),
            state: status.standing().as_str(),
            remark: remark(standing),
            timers: show_count(held.timers),
            overdue: show_count(held.overdue),
            is_overdue: held.overdue > 0,
            oldest: or_none((held.overdue > 0).then(|| brief(held.oldest_overdue_ms))),
            due_1m: show_count(held.due_in_1m),
            due_1h: show_count(held.due_in_1h),
            running: or_none((status.limit > 0).then(|| format!("{}/{}", status.running, status.limit))),
            rate: or_none(standing.rate.map(rate)),
            line: line(&standing.rates),
            p50: or_none(status.last_5m.as_ref().and_then(|last| last.late_p50_us).map(lateness)),
            p99: or_none(status.last_5m.as_ref().and_then(|last| last.late_p99_us).map(lateness)),
            failing: or_none(status.failing().map(percent)),
            dead: show_count(held.dead),
            has_dead: held.dead > 0,
            listeners: show_count(status.listeners as u64),
        }
    }
}

fn remark(standing: &Standing) -> String {
    let status = &standing.status;
    let said =
        status.problem.as_ref().or(status.overview.closed.as_ref()).or(status.overview.paused.as_ref());
    let said = short(said.map_or("", String::as_str), 400);
    match status.standing() {
        TopicStanding::Fine => String::new(),
        TopicStanding::Paused => format!("paused: {said}"),
        TopicStanding::Unserved => "no listener serves it: nobody runs its timers".to_owned(),
        TopicStanding::Closed => format!("closed: {said}"),
        _ => format!("cannot be read: {said}"),
    }
}

/// The points of a sparkline, from the left to the right; none where there would be no line.
fn line(rates: &[f64]) -> Option<String> {
    if rates.len() < 2 {
        return None;
    }
    let most = rates.iter().copied().fold(1.0, f64::max);
    #[allow(clippy::cast_precision_loss)] // some hundred points
    let x = |at: usize| at as f64 * WIDE / (rates.len() - 1) as f64;
    let y = |rate: f64| HIGH - 1.0 - rate / most * (HIGH - 2.0);
    let points: Vec<_> =
        rates.iter().enumerate().map(|(at, rate)| format!("{:.1},{:.1}", x(at), y(*rate))).collect();
    Some(points.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_the_left_to_the_right_and_has_room() {
        assert_eq!(line(&[1.0]), None);
        assert_eq!(line(&[0.0, 10.0, 5.0]).unwrap(), "0.0,19.0 48.0,1.0 96.0,10.0");
        assert_eq!(line(&[0.0, 0.0]).unwrap(), "0.0,19.0 96.0,19.0");
    }
}

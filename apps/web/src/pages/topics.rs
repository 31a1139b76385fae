//! The page of all topics.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use keylapse_console::format::{brief, lateness, percent, rate, short};
use keylapse_console::{AlarmKind, AttemptSummary, TopicStatus, UnreadableTopic, counted, show_count};
use serde::Deserialize;

use super::alarms::{AlarmGroup, groups};
use super::error_page::ErrorPage;
use super::frame::{Frame, PageRequest, answer};
use super::samples::{TopicPage, TopicSample};
use crate::web::SharedState;

/// Maximum topics of a page.
const TOPICS: usize = 100;
/// Maximum characters of the text to search, as for names of topics.
const LONGEST: usize = 128;
/// Width and height of a sparkline.
const WIDE: f64 = 96.0;
const HIGH: f64 = 20.0;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TopicsPageQuery {
    /// The text that the names contain.
    filter: String,
    skip: usize,
}

#[derive(Template)]
#[template(path = "topics.html")]
struct Page {
    frame: Frame,
    filter: String,
    shown_filter: String,
    alarms: Vec<AlarmGroup>,
    totals: Vec<Total>,
    /// `true` if a topic is attached, so that the table has a column of tracked keys.
    tracks: bool,
    rows: Vec<Row>,
    unreadable: Vec<UnreadableTopic>,
    place: String,
    earlier: Option<String>,
    later: Option<String>,
}

/// A number above the table.
struct Total {
    name: &'static str,
    number: String,
    /// Another figure after the number.
    remark: String,
    /// The severity, as a class of the style: empty, `warn` or `bad`.
    class: &'static str,
}

/// The row of a topic.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) pattern: String,
    pub(super) is_attached: bool,
    pub(super) link: String,
    pub(super) state: &'static str,
    /// The state, as a class of the style.
    pub(super) state_class: String,
    /// The severity, as a class of the style: empty, `warn` or `bad`.
    pub(super) class: &'static str,
    /// The first alarm, if any.
    pub(super) remark: String,
    pub(super) timers: String,
    pub(super) tracked: String,
    pub(super) undelivered: String,
    pub(super) is_undelivered: bool,
    pub(super) oldest_undelivered: String,
    pub(super) overdue: String,
    pub(super) is_overdue: bool,
    pub(super) oldest: String,
    pub(super) due_1m: String,
    pub(super) due_1h: String,
    pub(super) running: String,
    pub(super) rate: String,
    pub(super) line: Option<String>,
    /// Lateness of the attempts in the last five minutes.
    pub(super) p50: String,
    pub(super) p99: String,
    pub(super) failing_5m: String,
    pub(super) failing_1h: String,
    pub(super) failing_class: &'static str,
    pub(super) dead: String,
    pub(super) has_dead: bool,
    pub(super) trimmed: String,
    pub(super) listeners: String,
}

pub(super) async fn home(State(shared): State<SharedState>) -> Redirect {
    Redirect::to(&shared.path("/topics"))
}

pub(super) async fn show(
    visit: PageRequest,
    Query(asked): Query<TopicsPageQuery>,
) -> Result<Response, ErrorPage> {
    let filter: String = asked.filter.trim().chars().take(LONGEST).collect();
    let shared = &visit.shared;
    let look = shared.samples.topics(&shared.console, &visit.who, &filter, asked.skip, TOPICS);
    let found = visit.ask(look).await?;
    let frame = visit.frame("topics").aged(found.age);
    let skip = asked.skip.min(found.matching);
    let at = |skip: usize| frame.link("/topics", &[("filter", &filter), ("skip", &skip.to_string())]);
    let earlier = (skip > 0).then(|| at(skip.saturating_sub(TOPICS)));
    let later = (skip + TOPICS < found.matching).then(|| at(skip + TOPICS));
    let place = place(&found, skip);
    let (alarms, totals) = (groups(&found.alarms(), &frame), totals(&found));
    let tracks = found.standings.iter().any(|standing| standing.status.topic.is_attached());
    let rows = found.standings.iter().map(|standing| Row::of(standing, &frame)).collect();
    let unreadable = found.unreadable;
    let shown_filter = short(&filter, LONGEST);
    let page =
        Page { filter, shown_filter, alarms, totals, tracks, rows, unreadable, place, earlier, later, frame };
    Ok(answer(&page).into_response())
}

/// Returns the sums over the topics of a page.
fn totals(found: &TopicPage) -> Vec<Total> {
    let all = || found.standings.iter().map(|standing| &*standing.status);
    let sum = |of: fn(&TopicStatus) -> u64| all().map(of).sum::<u64>();
    let total = |name, number: u64, remark, class| Total { name, number: show_count(number), remark, class };
    let plain = |name, number| total(name, number, String::new(), "");
    let undelivered = sum(|status| status.overview.undelivered);
    let oldest = all().map(|status| status.overview.oldest_undelivered_ms).max().unwrap_or(0);
    let oldest = if undelivered > 0 { format!("oldest {}", brief(oldest)) } else { String::new() };
    let rates = found.standings.iter().filter_map(|standing| standing.rate).fold(0.0, |all, rate| all + rate);
    let recent = sum_of(all().filter_map(|status| status.last_5m.as_ref()));
    let silent = found.fleet.silent_listeners.len() as u64;
    let is_silent = if silent > 0 { format!("{} silent", show_count(silent)) } else { String::new() };
    let mut totals = vec![plain("Timers", sum(|status| status.overview.timers))];
    if all().any(|status| status.topic.is_attached()) {
        totals.push(plain("Tracked keys", sum(|status| status.overview.tracked)));
    }
    totals.extend([
        total("Undelivered", undelivered, oldest, warns(undelivered > 0)),
        plain("Overdue", sum(|status| status.overview.overdue)),
        plain("Due in 1m", sum(|status| status.overview.due_in_1m)),
        plain("Running", sum(|status| status.running as u64)),
        Total { number: rate(rates), ..plain("Attempts/s", 0) },
        Total {
            number: or_none(recent.failing().map(percent)),
            class: failing(Some(&recent)),
            ..plain("Failing 5m", 0)
        },
        plain("Dead", sum(|status| status.overview.dead)),
        total("Listeners", found.fleet.listeners.len() as u64, is_silent, burns(silent > 0)),
    ]);
    totals
}

/// Adds up the attempts by their ends.
fn sum_of<'a>(all: impl Iterator<Item = &'a AttemptSummary>) -> AttemptSummary {
    let mut sum = AttemptSummary::default();
    for one in all {
        (sum.handled, sum.failed) = (sum.handled + one.handled, sum.failed + one.failed);
    }
    sum
}

fn warns(is: bool) -> &'static str {
    if is { "warn" } else { "" }
}

fn burns(is: bool) -> &'static str {
    if is { "bad" } else { "" }
}

/// Returns the severity of the share of failed attempts.
fn failing(recent: Option<&AttemptSummary>) -> &'static str {
    match recent.and_then(AttemptSummary::failing) {
        Some(0.5..) => "bad",
        Some(0.05..) => "warn",
        _ => "",
    }
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
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
    pub(super) fn of(standing: &TopicSample, frame: &Frame) -> Self {
        let status = &standing.status;
        let (held, last_5m) = (&status.overview, status.last_5m.as_ref());
        let share =
            |recent: Option<&AttemptSummary>| or_none(recent.and_then(AttemptSummary::failing).map(percent));
        let (alarms, state) = (status.alarms(), status.state().as_str());
        Self {
            name: status.topic.name().to_owned(),
            pattern: short(status.topic.pattern(), 200),
            is_attached: status.topic.is_attached(),
            link: frame.topic(status.topic.name()),
            state,
            state_class: state.replace(' ', "-"),
            class: match alarms.iter().all(|alarm| alarm.kind == AlarmKind::Paused) {
                true => warns(!alarms.is_empty()),
                false => "bad",
            },
            remark: alarms.first().map_or_else(String::new, |alarm| short(&alarm.message, 400)),
            timers: show_count(held.timers),
            tracked: or_none(status.topic.is_attached().then(|| show_count(held.tracked))),
            undelivered: show_count(held.undelivered),
            is_undelivered: held.undelivered > 0,
            oldest_undelivered: brief(held.oldest_undelivered_ms),
            overdue: show_count(held.overdue),
            is_overdue: held.overdue > 0,
            oldest: or_none((held.overdue > 0).then(|| brief(held.oldest_overdue_ms))),
            due_1m: show_count(held.due_in_1m),
            due_1h: show_count(held.due_in_1h),
            running: or_none((status.limit > 0).then(|| format!("{}/{}", status.running, status.limit))),
            rate: or_none(standing.rate.map(rate)),
            line: line(&standing.rates),
            p50: or_none(last_5m.and_then(|recent| recent.late_p50_us).map(lateness)),
            p99: or_none(last_5m.and_then(|recent| recent.late_p99_us).map(lateness)),
            failing_5m: share(last_5m),
            failing_1h: share(status.last_1h.as_ref()),
            failing_class: failing(last_5m),
            dead: show_count(held.dead),
            has_dead: held.dead > 0,
            trimmed: match held.trimmed {
                0 => String::new(),
                count => format!("{} trimmed", show_count(count)),
            },
            listeners: show_count(status.listeners as u64),
        }
    }
}

/// Returns the points of a sparkline, from left to right; `None` if there are fewer than two.
fn line(rates: &[f64]) -> Option<String> {
    if rates.len() < 2 {
        return None;
    }
    let most = rates.iter().copied().fold(1.0, f64::max);
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

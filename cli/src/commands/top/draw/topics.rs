//! The topics, and one topic in two lines.

use keylapse_console::TopicStanding;
use keylapse_console::words::rate;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::grid::{Cell, Column, Grid};
use super::theme::Theme;
use super::words::{brief, percent, width};
use crate::commands::top::model::TopicRow;
use crate::output::{count, counted, lateness, short};

pub(super) fn grid(topics: &[TopicRow], theme: Theme) -> Grid {
    let columns = vec![
        Column::text("TOPIC", 0, 16),
        Column::word("STATE", 1),
        Column::number("TIMERS", 3),
        Column::number("UNDELIVERED", 2),
        Column::number("OLDEST", 4),
        Column::number("OVERDUE", 14),
        Column::number("DUE 1M", 9),
        Column::number("DUE 1H", 11),
        Column::number("RUNNING", 6),
        Column::number("RATE/S", 7),
        Column::number("FAILING", 8),
        Column::number("P50 LATE", 12),
        Column::number("P99 LATE", 10),
        Column::number("DEAD", 5),
        Column::number("LISTENERS", 13),
    ];
    Grid {
        columns,
        rows: topics.iter().map(|topic| (topic.standing.is_alarm(), row(topic, theme))).collect(),
    }
}

fn row(topic: &TopicRow, theme: Theme) -> Vec<Cell> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let oldest = (topic.undelivered > 0).then(|| brief(topic.oldest_ms));
    let running = (topic.limit > 0).then(|| format!("{}/{}", topic.running, topic.limit));
    let numbers = [
        count(topic.timers),
        count(topic.undelivered),
        or_none(oldest),
        count(topic.overdue),
        count(topic.due_1m),
        count(topic.due_1h),
        or_none(running),
        or_none(topic.rate.map(rate)),
        or_none(topic.failing.map(percent)),
        or_none(topic.late_p50_us.map(lateness)),
        or_none(topic.late_p99_us.map(lateness)),
        count(topic.dead),
        topic.listeners.to_string(),
    ];
    let health = Cell::styled(topic.standing.as_str(), of(topic.standing, theme));
    [Cell::plain(short(&topic.name, 100)), health].into_iter().chain(numbers.map(Cell::number)).collect()
}

fn of(standing: TopicStanding, theme: Theme) -> Style {
    match standing {
        TopicStanding::Fine => Theme::plain(),
        TopicStanding::Paused => theme.wish(),
        _ => theme.alarm(),
    }
}

/// What somebody has to know of a topic before all else.
pub(super) fn remark(topic: &TopicRow, theme: Theme) -> Option<(String, Style)> {
    let style = if topic.standing == TopicStanding::Fine { theme.alarm() } else { of(topic.standing, theme) };
    (!topic.said.is_empty()).then(|| (format!("{}: {}", topic.name, short(&topic.said, 400)), style))
}

/// How a topic is, in one line and another: as many facts as there is room for, the most important first.
pub(super) fn facts(topic: &TopicRow, theme: Theme, columns: usize) -> [Line<'static>; 2] {
    let undelivered = match topic.undelivered {
        0 => "none undelivered".to_owned(),
        some => format!("{} undelivered, oldest {}", count(some), brief(topic.oldest_ms)),
    };
    let listeners = counted(topic.listeners as u64, "listener");
    let timers = counted(topic.timers, "timer");
    let running = format!("{}/{} running", topic.running, topic.limit);
    let first = [timers, undelivered, format!("{} dead", count(topic.dead)), running, listeners];
    let mut second =
        vec![format!("overdue {}", count(topic.overdue)), format!("due in 1m {}", count(topic.due_1m))];
    second.push(format!("in 1h {}", count(topic.due_1h)));
    second.extend(topic.rate.map(|per_second| format!("{}/s", rate(per_second))));
    second.extend(topic.failing.map(|share| format!("failing {}", percent(share))));
    second.extend(topic.late_p50_us.map(|us| format!("late p50 {}", lateness(us))));
    second.extend(topic.late_p99_us.map(|us| format!("p99 {}", lateness(us))));
    second.push(short(&topic.pattern, 200));
    let health = format!("   {}", topic.standing.as_str());
    let first = beside(first, columns.saturating_sub(width(&health)));
    let second = beside(second, columns.saturating_sub(1));
    let health = Span::styled(health, of(topic.standing, theme));
    [Line::from(vec![health, Span::raw(first)]), Line::styled(format!(" {second}"), Theme::quiet())]
}

/// Facts beside each other, as long as there is room.
fn beside(facts: impl IntoIterator<Item = String>, columns: usize) -> String {
    let mut text = String::new();
    for fact in facts {
        if width(&text) + width(&fact) + 2 > columns {
            break;
        }
        text.push_str("  ");
        text.push_str(&fact);
    }
    text
}

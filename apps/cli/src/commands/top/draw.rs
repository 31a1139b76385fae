//! Draws the screen from the state: two lines above, the body, and messages, questions and keys below.

use std::time::Duration;

use keylapse_console::EntryState;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span, Text};

use super::app::{App, Overlay, ScreenState};
use super::body;
use super::grid::{ALARM, CHOSEN, QUIET, STRONG, WISH, clip, named, width, wrap};
use super::worker::ScreenSubject;
use crate::output::{count, short, span, time_of_day};

/// The least columns and lines that the screen needs.
const LEAST: (u16, u16) = (40, 10);
/// The least height at which some lines stay blank.
const TALL: u16 = 16;
/// Below this width, the position is shown in a short form.
const NARROW: usize = 60;
/// Columns of a time of day and its gap.
const CLOCK: usize = 11;
/// The most lines of a message.
const MAX_MESSAGE_LINES: usize = 4;
/// The screen shows that the server has not answered for this long.
const SLOW: Duration = Duration::from_secs(2);

const KEYS: [(&str, &str); 19] = [
    ("j k, arrows", "another line; g the first, G the last"),
    ("Enter, l", "open the selected line"),
    ("Esc, h", "back"),
    ("Tab, 1 to 5", "topics and listeners; entries of a topic by state"),
    ("d", "dead letters"),
    ("n p", "next page, previous page"),
    ("/", "filter; an empty filter shows all"),
    ("r", "refresh now"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("Topics", "a part of the name, such as order"),
    ("Entries", "key:order:* attempt:>3 lost:>0 reason:exhausted error:~timeout older:1h newer:1h"),
    ("", "id:…; all conditions must match; \\x20 is a space within a key"),
    ("", ""),
    ("With --write", "each action asks first"),
    ("R", "run a timer now; replay a dead letter"),
    ("C", "cancel a timer"),
    ("D", "drop a dead letter for good"),
    ("P", "pause or resume the topic"),
];

pub(super) fn draw(app: &App, colours: bool, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("keylapse top needs {} columns and {} lines; q quits", LEAST.0, LEAST.1);
        let lines = wrap(&text, usize::from(area.width), usize::from(area.height));
        return frame.render_widget(Text::from_iter(lines), area);
    }
    let columns = usize::from(area.width);
    let foot = foot(app, area);
    let gap = u16::from(area.height >= TALL);
    let below = Constraint::Length(foot.len() as u16);
    let parts = [1, 1, gap].map(Constraint::Length).into_iter().chain([Constraint::Fill(1), below]);
    let [above, tabs, _, middle, below] = Layout::vertical(parts).areas(area);
    both_sides(status(app, columns), frame, above);
    both_sides(place(&app.view, columns), frame, tabs);
    let lines = match app.over {
        Some(Overlay::Help(from)) => help(from, middle),
        _ => body::lines(app, middle.as_size()),
    };
    frame.render_widget(Text::from(lines), middle);
    frame.render_widget(Text::from(foot), below);
    if !colours {
        frame.buffer_mut().content.iter_mut().for_each(|cell| _ = cell.set_fg(Color::Reset));
    }
}

fn both_sides((left, right): (Line<'_>, Line<'_>), frame: &mut Frame<'_>, area: Rect) {
    frame.render_widget(left, area);
    frame.render_widget(right.right_aligned(), area);
}

/// Returns the first line: server, namespace, mode, the server's time, and the age of the data.
fn status(app: &App, columns: usize) -> (Line<'static>, Line<'static>) {
    let mode = match app.setting.write {
        true => Span::styled("can write", WISH),
        false => Span::styled("read-only", QUIET),
    };
    let mut left = Line::from(vec![Span::styled(" keylapse", STRONG)]);
    let mut right = Line::from(vec![mode, Span::raw("  "), age(app), Span::raw(" ")]);
    let names = [(&app.setting.server, 8), (&app.setting.namespace, 1)];
    let needed: usize = names.iter().map(|(name, _)| width(name) + 2).sum();
    let needed = left.width() + needed + right.width() + 2;
    // The time matters least, so it is left out first. The age stays, as it shows whether the data are current.
    if let Some(ms) = app.server_ms().filter(|_| needed + CLOCK <= columns) {
        right.spans.insert(1, Span::raw(format!("  {}", time_of_day(ms))));
    }
    let room = columns.saturating_sub(right.width() + 2);
    for (name, least) in names {
        let name = clip(name, room.saturating_sub(left.width() + 2));
        if width(&name) >= least {
            left.push_span(format!("  {name}"));
        }
    }
    (left, right)
}

fn age(app: &App) -> Span<'static> {
    let since = |then: Duration| app.now.saturating_sub(then);
    let waits = app.asked.map_or(Duration::ZERO, since);
    let seconds = |time: Duration| span(time.as_secs() * 1000).replace("0ms", "0s");
    match app.view.seen.map(since).map(seconds) {
        Some(age) if app.error.is_some() => Span::styled(format!("{age} old"), ALARM),
        Some(age) if waits >= SLOW => Span::styled(format!("{age} old"), WISH),
        Some(age) => Span::raw(format!("{age} ago")),
        None if waits >= SLOW => Span::styled(format!("no answer for {}", seconds(waits)), WISH),
        None => Span::styled("loading…", QUIET),
    }
}

/// Returns the second line: the tabs, the number of the selected line, and the page.
fn place(view: &ScreenState, columns: usize) -> (Line<'static>, Line<'static>) {
    let right = format!("{} ", position(view, columns < NARROW));
    let room = columns.saturating_sub(width(&right) + 2);
    // A style of the whole line would apply to the tabs, too.
    (tabs(view, room), Line::from(Span::styled(right, QUIET)))
}

/// Returns the name of the topic, and the tabs with their digits. On a narrow screen, only the selected tab has its name.
fn tabs(view: &ScreenState, room: usize) -> Line<'static> {
    let tabs = view.tabs();
    let Some(chosen) = tabs.iter().position(|of| *of == view.look.of) else {
        return Line::styled(format!(" {}", clip(&view.look.topic, room)), STRONG);
    };
    let names: Vec<_> = tabs.iter().map(|of| tab(view, of)).collect();
    let all: usize = names.iter().map(|name| width(name) + 4).sum();
    let is_wide = width(&view.look.topic) + 2 + all <= room;
    let rest = if is_wide { all } else { 4 * names.len() + width(&names[chosen]) + 1 };
    let title = clip(&view.look.topic, room.saturating_sub(rest));
    let mut line = Line::from(vec![Span::styled(format!(" {title} "), STRONG)]);
    for (at, name) in names.iter().enumerate() {
        let name = if is_wide || at == chosen { format!(":{name}") } else { String::new() };
        let style = if at == chosen { CHOSEN } else { Style::new() };
        line.push_span(Span::styled(format!(" {}{name} ", at + 1), style));
    }
    line
}

/// Returns the name of a tab, with the number of entries of a state if the overview has it.
fn tab(view: &ScreenState, of: &ScreenSubject) -> String {
    let held = view.topic().map(|topic| &topic.held);
    let (name, number) = match of {
        ScreenSubject::Entries(state) => (
            state.as_str(),
            held.and_then(|held| match state {
                EntryState::Quarantined => Some(held.quarantined),
                EntryState::Dead => Some(held.dead),
                EntryState::Tracked => Some(held.tracked),
                _ => None,
            }),
        ),
        ScreenSubject::Listeners => ("listeners", None),
        _ => ("topics", None),
    };
    number.map_or_else(|| name.to_owned(), |number| format!("{name} {}", count(number)))
}

fn position(view: &ScreenState, is_narrow: bool) -> String {
    let at = view.len().min(view.at + 1);
    let filter = match view.look.filter.as_str() {
        "" => String::new(),
        _ if is_narrow => "/… ".to_owned(),
        filter => format!("/{}  ", clip(filter, 20)),
    };
    let data = &view.data;
    let (at, all, more) = match view.look.of {
        ScreenSubject::Entries(_) => {
            let (page, has_more) = (view.before.len() + 1, data.next.is_some());
            let is_shown = !is_narrow && (page > 1 || has_more);
            let page = if is_shown { format!("  page {page}") } else { String::new() };
            (at, view.len(), format!("{}{page}", if has_more { "+" } else { "" }))
        }
        _ if view.seen.is_none() => return String::new(),
        ScreenSubject::Topics => {
            let alarms = data.topics.iter().filter(|row| row.standing.is_alarm()).count();
            let alarms = if alarms > 0 { format!("  {alarms} !") } else { String::new() };
            ((view.look.start.skip + at).min(data.all), data.all, alarms)
        }
        ScreenSubject::Listeners => (at, view.len(), String::new()),
        ScreenSubject::Timer(_) => return String::new(),
    };
    format!("{filter}{} of {}{more}", count(at as u64), count(all as u64))
}

/// Returns the list of keys from this line on, or as much of its end as fits.
fn help(from: usize, area: Rect) -> Vec<Line<'static>> {
    let (columns, room) = (usize::from(area.width).saturating_sub(1), usize::from(area.height));
    let line = |(key, what): &(&str, &str)| named(&format!("   {key:<14}"), STRONG, what, columns, 9);
    let mut lines: Vec<_> = KEYS.iter().flat_map(line).collect();
    lines.drain(..from.min(lines.len().saturating_sub(room)));
    if lines.len() > room && room > 1 {
        lines[room - 1] = Line::styled("   …             j scrolls", QUIET);
    }
    lines
}

/// Returns the lines at the bottom: a question or message, and the keys.
fn foot(app: &App, area: Rect) -> Vec<Line<'static>> {
    let most = if area.height < TALL {
        MAX_MESSAGE_LINES.min(usize::from(area.height) / 4)
    } else {
        MAX_MESSAGE_LINES
    };
    let (text, style) = message(app).unwrap_or_default();
    let columns = usize::from(area.width).saturating_sub(1);
    let lines = named(" ", Style::new(), &text, columns, most.max(1)).into_iter();
    lines.map(|line| line.style(style)).chain([hints(app, usize::from(area.width))]).collect()
}

/// Returns the most urgent message and its style.
fn message(app: &App) -> Option<(String, Style)> {
    let shown = |text, style| Some((short(text, 400), style));
    match (&app.over, &app.notice, &app.error) {
        (Some(Overlay::Question(offer)), ..) => Some((format!("{} y/N", offer.question), WISH.patch(STRONG))),
        (Some(Overlay::Line(line)), ..) => Some((line.shown(), STRONG)),
        (_, Some(notice), _) => shown(&notice.text, if notice.is_bad { ALARM } else { STRONG }),
        (_, _, Some(error)) => shown(error, ALARM),
        _ if app.is_acting => Some(("in progress…".to_owned(), WISH)),
        (None, ..) => body::remark(app),
        (Some(Overlay::Help(_)), ..) => None,
    }
}

/// Returns as many keys as fit. Those that change something come first, as they are the hardest to remember.
fn hints(app: &App, columns: usize) -> Line<'static> {
    let keys = match (&app.over, &app.view.look.of) {
        (Some(Overlay::Question(_)), _) => "y:yes  any other key:no",
        (Some(Overlay::Line(_)), _) => "Enter:ok  Esc:discard",
        (Some(Overlay::Help(_)), _) => "j k:scroll  any other key:close",
        (None, ScreenSubject::Topics) => {
            "?:help  q:quit  Enter:open  /:filter  d:dead  Tab:listeners  n p:page"
        }
        (None, ScreenSubject::Listeners) => "?:help  q:quit  Tab:topics",
        (None, ScreenSubject::Entries(_)) => {
            "?:help  Esc:back  Enter:why  /:filter  Tab:state  n p:page  q:quit"
        }
        (None, ScreenSubject::Timer(_)) => "?:help  Esc:back  j k:scroll  q:quit",
    };
    let offers = app.offers().into_iter().filter(|_| app.over.is_none());
    let offers = offers.map(|offer| (offer.key.to_string(), offer.name));
    let keys = keys.split("  ").filter_map(|key| key.split_once(':'));
    let mut line = Line::raw(" ");
    for (key, name) in offers.chain(keys.map(|(key, name)| (key.to_owned(), name))) {
        if line.width() + width(&key) + width(name) + 3 > columns {
            break;
        }
        line.push_span(Span::styled(key, STRONG));
        line.push_span(Span::styled(format!(" {name}  "), QUIET));
    }
    line
}

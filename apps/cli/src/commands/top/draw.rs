//! The screen, as a function of the state: two lines above, the body, and messages, questions and keys below.

use std::time::Duration;

use keylapse_console::EntryState;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span, Text};

use super::app::{App, Over, View};
use super::body;
use super::desk::Of;
use super::grid::{ALARM, CHOSEN, QUIET, STRONG, WISH, clip, named, width, wrap};
use crate::output::{count, short, span, time_of_day};

/// What there has to be room for.
const LEAST: (u16, u16) = (40, 10);
/// From this height on, some lines are left free.
const TALL: u16 = 16;
/// Below this width, only what changes all the time is said of pages.
const NARROW: usize = 60;
/// Columns of a time of day with its gap.
const CLOCK: usize = 11;
/// Lines of a message, at most.
const MOST: usize = 4;
/// A server that has not answered for this long is worth a word.
const SLOW: Duration = Duration::from_secs(2);

const KEYS: [(&str, &str); 19] = [
    ("j k, arrows", "another line; g the first, G the last"),
    ("Enter, l", "open what is chosen"),
    ("Esc, h", "back"),
    ("Tab, 1 to 5", "topics and listeners; a topic's entries by state"),
    ("d", "dead letters"),
    ("n p", "the next page, the page before"),
    ("/", "filter; an empty one shows all"),
    ("r", "look again now"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("Topics", "part of the name, such as order"),
    ("Entries", "key:order:* attempt:>3 lost:>0 reason:exhausted error:~timeout older:1h newer:1h"),
    ("", "id:…; all that are named have to hold; a space within a key is \\x20"),
    ("", ""),
    ("With --write", "each asks first"),
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
        Some(Over::Help(from)) => help(from, middle),
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

/// The server, the namespace, whether one can act, the server's time, and the age of what is shown.
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
    // It is the least of all this: the age is what says whether to believe the rest.
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
        None => Span::styled("looking…", QUIET),
    }
}

/// The tabs; and the number of the chosen line, the page, and a sign that there are more.
fn place(view: &View, columns: usize) -> (Line<'static>, Line<'static>) {
    let right = format!("{} ", position(view, columns < NARROW));
    let room = columns.saturating_sub(width(&right) + 2);
    // A style of the line would be one of the tabs, too.
    (tabs(view, room), Line::from(Span::styled(right, QUIET)))
}

/// The topic's name, and the tabs with their digits; where there is little room, the others have nothing but those.
fn tabs(view: &View, room: usize) -> Line<'static> {
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

/// A tab's name; of a state with how many there are, where that is known at no cost.
fn tab(view: &View, of: &Of) -> String {
    let held = view.topic().map(|topic| &topic.held);
    let (name, number) = match of {
        Of::Entries(state) => (
            state.as_str(),
            held.and_then(|held| match state {
                EntryState::Quarantined => Some(held.quarantined),
                EntryState::Dead => Some(held.dead),
                EntryState::Enrolled => Some(held.enrolled),
                _ => None,
            }),
        ),
        Of::Listeners => ("listeners", None),
        _ => ("topics", None),
    };
    number.map_or_else(|| name.to_owned(), |number| format!("{name} {}", count(number)))
}

fn position(view: &View, is_narrow: bool) -> String {
    let at = view.len().min(view.at + 1);
    let filter = match view.look.filter.as_str() {
        "" => String::new(),
        _ if is_narrow => "/… ".to_owned(),
        filter => format!("/{}  ", clip(filter, 20)),
    };
    let data = &view.data;
    let (at, all, more) = match view.look.of {
        Of::Entries(_) => {
            let (page, has_more) = (view.before.len() + 1, data.next.is_some());
            let is_shown = !is_narrow && (page > 1 || has_more);
            let page = if is_shown { format!("  page {page}") } else { String::new() };
            (at, view.len(), format!("{}{page}", if has_more { "+" } else { "" }))
        }
        _ if view.seen.is_none() => return String::new(),
        Of::Topics => {
            let alarms = data.topics.iter().filter(|row| row.standing.is_alarm()).count();
            let alarms = if alarms > 0 { format!("  {alarms} !") } else { String::new() };
            ((view.look.start.skip + at).min(data.all), data.all, alarms)
        }
        Of::Listeners => (at, view.len(), String::new()),
        Of::Timer(_) => return String::new(),
    };
    format!("{filter}{} of {}{more}", count(at as u64), count(all as u64))
}

/// The list of keys from this line on, or as much of its end as there is room for.
fn help(from: usize, area: Rect) -> Vec<Line<'static>> {
    let (columns, room) = (usize::from(area.width).saturating_sub(1), usize::from(area.height));
    let line = |(key, what): &(&str, &str)| named(&format!("   {key:<14}"), STRONG, what, columns, 9);
    let mut lines: Vec<_> = KEYS.iter().flat_map(line).collect();
    lines.drain(..from.min(lines.len().saturating_sub(room)));
    if lines.len() > room && room > 1 {
        lines[room - 1] = Line::styled("   …             j goes on", QUIET);
    }
    lines
}

/// The lines below: what is asked or has to be said, and which keys do what.
fn foot(app: &App, area: Rect) -> Vec<Line<'static>> {
    let most = if area.height < TALL { MOST.min(usize::from(area.height) / 4) } else { MOST };
    let (text, style) = message(app).unwrap_or_default();
    let columns = usize::from(area.width).saturating_sub(1);
    let lines = named(" ", Style::new(), &text, columns, most.max(1)).into_iter();
    lines.map(|line| line.style(style)).chain([hints(app, usize::from(area.width))]).collect()
}

/// What has to be said now, with how it looks: the most urgent of all.
fn message(app: &App) -> Option<(String, Style)> {
    let shown = |text, style| Some((short(text, 400), style));
    match (&app.over, &app.notice, &app.error) {
        (Some(Over::Question(offer)), ..) => Some((format!("{} y/N", offer.question), WISH.patch(STRONG))),
        (Some(Over::Line(line)), ..) => Some((line.shown(), STRONG)),
        (_, Some(notice), _) => shown(&notice.text, if notice.is_bad { ALARM } else { STRONG }),
        (_, _, Some(error)) => shown(error, ALARM),
        _ if app.is_acting => Some(("being done…".to_owned(), WISH)),
        (None, ..) => body::remark(app),
        (Some(Over::Help(_)), ..) => None,
    }
}

/// The keys, as many as there is room for: the dangerous ones first, as nobody knows them by heart.
fn hints(app: &App, columns: usize) -> Line<'static> {
    let keys = match (&app.over, &app.view.look.of) {
        (Some(Over::Question(_)), _) => "y:do it  any other key:leave it",
        (Some(Over::Line(_)), _) => "Enter:ok  Esc:leave it",
        (Some(Over::Help(_)), _) => "j k:scroll  any other key:close",
        (None, Of::Topics) => "?:help  q:quit  Enter:open  /:filter  d:letters  Tab:listeners  n p:page",
        (None, Of::Listeners) => "?:help  q:quit  Tab:topics",
        (None, Of::Entries(_)) => "?:help  Esc:back  Enter:why  /:filter  Tab:state  n p:page  q:quit",
        (None, Of::Timer(_)) => "?:help  Esc:back  j k:scroll  q:quit",
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

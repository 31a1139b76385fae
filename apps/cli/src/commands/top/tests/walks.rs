//! Keys and answers, and the screens that follow.

use keylapse_console::{Action, EntryState};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{answer, app, at, data, press, screen, with_entries, with_topics};
use crate::commands::top::app::{App, Overlay, StatusMessage};
use crate::commands::top::worker::{
    ConfirmedAction, ConfirmedActionKind, ScreenAnswer, ScreenQuery, ScreenRequest, ScreenSubject, Start,
};

fn looked(request: Option<ScreenRequest>) -> ScreenQuery {
    match request {
        Some(ScreenRequest::Look { look, .. }) => look,
        other => panic!("no look: {other:?}"),
    }
}

fn is_refused(app: &App) -> bool {
    matches!(&app.over, Some(Overlay::Line(line)) if line.refused.is_some())
}

#[test]
fn each_screen_asks_only_for_what_it_shows() {
    let mut app = with_topics(false);
    let look = looked(press(&mut app, "jj\n"));
    assert_eq!((look.topic.as_str(), look.of), ("order.unpaid", ScreenSubject::Entries(EntryState::Waiting)));
    let asked = press(&mut app, "4");
    assert_eq!(looked(asked.clone()).of, ScreenSubject::Entries(EntryState::Dead));
    answer(&mut app, asked, data::dead());
    assert_eq!(looked(press(&mut app, "\n")).of, ScreenSubject::Timer(b"order:unpaid:7".to_vec()));
    assert_eq!(looked(press(&mut app, "\u{1b}")).of, ScreenSubject::Entries(EntryState::Dead));
    assert_eq!(looked(press(&mut app, "\u{1b}")).of, ScreenSubject::Topics);
    assert_eq!(looked(press(&mut app, "\t")).of, ScreenSubject::Listeners);
    assert_eq!(looked(press(&mut app, "1")).of, ScreenSubject::Topics);
    assert_eq!(looked(press(&mut app, "d")).of, ScreenSubject::Entries(EntryState::Dead));
}

#[test]
fn it_looks_as_often_as_it_was_told_and_never_twice_at_a_time() {
    let mut app = app(false);
    let asked = app.on_time(at(0));
    assert!(asked.is_some());
    assert_eq!(app.on_time(at(9)), None, "the first is still under way");
    assert_eq!(press(&mut app, "r"), None, "the running query is enough");
    answer(&mut app, asked, data::topics());
    let asked = app.on_time(at(60));
    answer(&mut app, asked, data::topics());
    assert_eq!(app.on_time(at(61)), None, "2 s are not over");
    assert!(app.wakes() <= at(62));
    assert!(app.on_time(at(62)).is_some());
}

#[test]
fn a_look_that_takes_long_is_not_repeated_at_once() {
    let mut app = app(false);
    let asked = app.on_time(at(0));
    app.on_time(at(3));
    answer(&mut app, asked, data::topics());
    assert_eq!(app.on_time(at(14)), None);
    let asked = app.on_time(at(15));
    let Some(ScreenRequest::Look { ticket, .. }) = asked else { panic!("four times 3 s are over") };
    app.on_time(at(20));
    app.on_data(ticket, Err("it is lost".to_owned()));
    assert!(app.on_time(at(22)).is_some(), "a lost server is asked again after the usual interval");
}

#[test]
fn nothing_is_said_of_entries_before_they_are_known() {
    let mut app = with_entries(false, "jj\n", data::waiting());
    let asked = press(&mut app, "4");
    assert!(screen(&app, 100, 24).contains("Loading…"));
    answer(&mut app, asked, data::none());
    assert!(screen(&app, 100, 24).contains("No dead letters."));
}

#[test]
fn esc_and_a_key_at_once_are_both_heard() {
    let mut app = with_entries(false, "jj\n", data::waiting());
    press(&mut app, "\n");
    let both = KeyEvent::new(KeyCode::Char('4'), KeyModifiers::ALT);
    assert_eq!(looked(app.on_key(both)).of, ScreenSubject::Entries(EntryState::Dead));
}

#[test]
fn an_answer_to_a_screen_that_was_left_counts_for_nothing() {
    let mut app = with_topics(false);
    let late = press(&mut app, "jj\n");
    let asked = press(&mut app, "\u{1b}");
    let Some(ScreenRequest::Look { ticket, .. }) = late else { panic!("no look") };
    app.on_data(ticket, Err("it is lost".to_owned()));
    assert_eq!(app.error, None);
    answer(&mut app, asked, data::topics());
    assert!(screen(&app, 100, 24).contains("mail.reminder"));
}

#[test]
fn the_chosen_line_stays_with_what_it_shows() {
    let mut app = with_topics(false);
    press(&mut app, "jj");
    let asked = press(&mut app, "r");
    let mut fewer = data::topics();
    fewer.topics.remove(0);
    answer(&mut app, asked, fewer);
    assert_eq!(app.view.at, 1);
    assert_eq!(app.view.topic().map(|topic| topic.name.as_str()), Some("order.unpaid"));
    press(&mut app, "G");
    assert_eq!(app.view.at, 3);
    press(&mut app, "jjj");
    assert_eq!(app.view.at, 3, "there is no line behind the last");
    press(&mut app, "gk");
    assert_eq!(app.view.at, 0);
}

#[test]
fn filters_are_checked_before_anything_is_asked_for() {
    let mut app = with_entries(false, "jj\n", data::waiting());
    assert_eq!(press(&mut app, "/attempt:many\n"), None);
    assert!(screen(&app, 100, 24).contains("attempt:many_"));
    assert!(is_refused(&app));
    let backspaces = "\u{1b}/attempt:>2 key:order:*\n";
    assert_eq!(looked(press(&mut app, backspaces)).filter, "attempt:>2 key:order:*");
    press(&mut app, "\u{1b}");
    let look = looked(press(&mut app, "/order\n"));
    assert_eq!((look.of, look.filter.as_str()), (ScreenSubject::Topics, "order"));
    assert_eq!(looked(press(&mut app, "\u{1b}")).filter, "", "at the first screen Esc shows all");
}

#[test]
fn pages_are_turned_by_cursors_and_back() {
    let mut page = data::waiting();
    let after = Some("1795599000000@0/order:unpaid:29".parse().unwrap());
    page.next = Some(Start { after, ..Start::default() });
    let mut app = with_entries(false, "jj\n", page.clone());
    assert!(screen(&app, 100, 24).contains("1 of 31+  page 1"));
    let asked = press(&mut app, "n");
    assert_eq!(Some(looked(asked.clone()).start), page.next);
    assert_eq!(press(&mut app, "n"), None, "the next page is not known yet");
    assert_eq!(app.notice, None, "and no message is shown");
    answer(&mut app, asked, data::none());
    assert_eq!(press(&mut app, "n"), None);
    assert_eq!(looked(press(&mut app, "p")).start, Start::default());
    assert_eq!(press(&mut app, "p"), None);
}

#[test]
fn a_letter_is_replayed_after_a_yes_and_the_screen_looks_again() {
    let mut app = with_entries(true, "jjd", data::dead());
    assert_eq!(press(&mut app, "R"), None);
    let asked = screen(&app, 100, 24);
    assert!(asked.contains("Replay 1 dead letter: order:unpaid:7 of order.unpaid?"), "{asked}");
    let letter = data::dead().entries.remove(0);
    let (action, key) = (Action::Replay, letter.key.to_vec());
    let deed = ConfirmedActionKind::Entry { action, key, letter: Some(Box::new(letter)) };
    let act = ConfirmedAction { topic: "order.unpaid".to_owned(), deed };
    assert_eq!(press(&mut app, "y"), Some(ScreenRequest::Act(act)));
    press(&mut app, "D");
    assert!(app.over.is_none(), "one thing at a time");
    let notice = StatusMessage { text: "order:unpaid:7: replayed".to_owned(), is_bad: false };
    let after = app.on_answer(at(2), ScreenAnswer::Act(notice));
    assert_eq!(looked(after).of, ScreenSubject::Entries(EntryState::Dead));
    assert!(screen(&app, 100, 24).contains("order:unpaid:7: replayed"));
}

#[test]
fn a_pause_asks_for_a_reason_first() {
    let mut app = with_topics(true);
    press(&mut app, "jjP\n");
    assert!(is_refused(&app), "a reason is wanted");
    press(&mut app, "the bank is closed\n");
    assert!(screen(&app, 100, 24).contains("Pause order.unpaid? Its 123,456 timers"));
    let deed = ConfirmedActionKind::Pause("the bank is closed".to_owned());
    let act = ConfirmedAction { topic: "order.unpaid".to_owned(), deed };
    assert_eq!(press(&mut app, "y"), Some(ScreenRequest::Act(act)));
}

//! Actions that are refused.

use keylapse_console::EntryState;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{answer, data, press, screen, with_entries, with_topics};
use crate::commands::top::worker::{ScreenData, ScreenRequest};

#[test]
fn read_only_offers_nothing_and_says_so() {
    let mut timer = with_entries(false, "jjd", data::dead());
    let asked = press(&mut timer, "\n");
    answer(&mut timer, asked, data::of_key(data::timer()));
    let waiting = with_entries(false, "jj\n", data::waiting());
    for mut app in [with_topics(false), waiting, with_entries(false, "jjd", data::dead()), timer] {
        for key in ["R", "D", "C", "P"] {
            assert_eq!(press(&mut app, key), None);
            assert!(app.over.is_none());
            assert!(screen(&app, 100, 24).contains("read-only: `keylapse top --write` allows actions"));
            assert_eq!(press(&mut app, "y"), None);
        }
        assert_eq!(app.offers(), []);
    }
}

#[test]
fn anything_but_y_declines() {
    for no in ["n", "\n", "\u{1b}", "R", "j", " "] {
        let mut app = with_entries(true, "jjd", data::dead());
        press(&mut app, "D");
        assert!(app.over.is_some());
        assert_eq!(press(&mut app, no), None);
        assert!(app.over.is_none(), "{no:?} declines");
        assert_eq!(press(&mut app, "y"), None, "a yes afterwards is too late");
    }
}

#[test]
fn actions_are_offered_only_where_they_can_work() {
    let offered = |state| {
        let entries = vec![data::entry(b"a", state, data::NOW)];
        let app = with_entries(true, "jj\n", ScreenData { entries, ..data::none() });
        app.offers().into_iter().map(|offer| format!("{} {}", offer.key, offer.name)).collect::<Vec<_>>()
    };
    assert_eq!(offered(EntryState::Waiting), ["R run now", "C cancel", "P pause"]);
    assert_eq!(offered(EntryState::Quarantined), ["R run now", "C cancel", "P pause"]);
    assert_eq!(offered(EntryState::Running), ["C cancel", "P pause"]);
    assert_eq!(offered(EntryState::Dead), ["R replay", "D drop", "P pause"]);
    assert_eq!(offered(EntryState::Tracked), ["P pause"]);
    let mut app = with_topics(true);
    assert_eq!(app.offers()[0].name, "resume", "of a topic that is paused");
    press(&mut app, "G");
    assert_eq!(app.offers(), [], "of one that cannot be read");
    press(&mut app, "P");
    assert!(screen(&app, 100, 24).contains("P has no effect"));
}

#[test]
fn a_question_is_about_what_was_chosen_however_the_screen_changes() {
    let mut app = with_entries(true, "jjd", data::dead());
    press(&mut app, "D");
    let asked = app.on_time(super::at(60));
    let mut fewer = data::dead();
    fewer.entries.remove(0);
    answer(&mut app, asked, fewer);
    let Some(ScreenRequest::Act(act)) = press(&mut app, "y") else { panic!("nothing is done") };
    assert!(format!("{act:?}").contains(&format!("{:?}", b"order:unpaid:7")), "{act:?}");
}

#[test]
fn control_c_quits_everywhere_and_q_where_nothing_is_typed() {
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for before in ["", "/", "?", "jjP"] {
        let mut app = with_topics(true);
        press(&mut app, before);
        app.on_key(control_c);
        assert!(app.is_over, "{before}");
    }
    let mut app = with_topics(false);
    press(&mut app, "/q");
    assert!(!app.is_over);
    press(&mut app, "\u{1b}q");
    assert!(app.is_over);
}

#[test]
fn passwords_are_not_shown() {
    for (url, shown) in [
        ("redis://127.0.0.1:6379/", "127.0.0.1:6379"),
        ("redis://app:p@s/s?w#rd@10.0.0.1:6379/2", "10.0.0.1:6379/2"),
        ("rediss://app:secret@redis.example:6380", "rediss://redis.example:6380"),
        ("redis+sentinel://app:secret@a:1,b:2/main?x=y", "redis+sentinel://a:1,b:2/main"),
        ("unix:///run/redis.sock?pass=a@b", "unix:///run/redis.sock"),
        ("localhost", "localhost"),
    ] {
        assert_eq!(crate::commands::top::server(url), shown);
    }
}

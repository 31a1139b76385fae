//! Snapshots of whole screens.

use insta::assert_snapshot;
use ratatui::style::Color;

use super::{answer, app, at, data, drawn, press, screen, with_entries, with_topics};
use crate::commands::top::app::App;
use crate::commands::top::worker::{ScreenData, ScreenRequest};

/// Takes snapshots of a screen at three sizes.
fn at_all_sizes(name: &str, app: &App) {
    for (width, height) in [(100, 24), (60, 15), (40, 10)] {
        assert_snapshot!(format!("{name}_{width}x{height}"), screen(app, width, height));
    }
}

fn with_timer(write: bool, timer: keylapse_console::KeyExplanation) -> App {
    let mut app = with_entries(write, "jjd", data::dead());
    let asked = press(&mut app, "\n");
    answer(&mut app, asked, data::of_key(timer));
    app
}

#[test]
fn topics() {
    let mut app = with_topics(true);
    press(&mut app, "j");
    at_all_sizes("topics", &app);
}

#[test]
fn waiting_timers() {
    at_all_sizes("waiting", &with_entries(false, "jj\n", data::waiting()));
}

#[test]
fn dead_letters_and_a_question() {
    let mut app = with_entries(true, "jjd", data::dead());
    press(&mut app, "j");
    at_all_sizes("dead", &app);
    press(&mut app, "R");
    at_all_sizes("question", &app);
}

#[test]
fn timers() {
    at_all_sizes("timer_dead", &with_timer(true, data::timer()));
    at_all_sizes("timer_retried", &with_timer(true, data::retried()));
}

#[test]
fn listeners() {
    let mut app = with_topics(false);
    let asked = press(&mut app, "\t");
    answer(&mut app, asked, data::of_listeners(data::listeners()));
    press(&mut app, "j");
    at_all_sizes("listeners", &app);
}

#[test]
fn help() {
    let mut app = with_topics(false);
    press(&mut app, "?");
    at_all_sizes("help", &app);
    press(&mut app, "jjj");
    assert!(!screen(&app, 40, 10).contains("another line"), "it has scrolled");
}

#[test]
fn filters() {
    let mut app = with_entries(false, "jj\n", data::waiting());
    press(&mut app, "/attempt:many\n");
    at_all_sizes("filter_refused", &app);
}

#[test]
fn nothing() {
    let mut app = app(false);
    let asked = app.on_time(at(0));
    assert_snapshot!("before_the_first_answer", screen(&app, 60, 15));
    answer(&mut app, asked, ScreenData::default());
    assert_snapshot!("no_topics", screen(&app, 60, 15));
    assert_snapshot!("no_letters", screen(&with_entries(false, "jjd", data::none()), 60, 15));
    let mut app = with_topics(false);
    let asked = press(&mut app, "\t");
    answer(&mut app, asked, data::of_listeners(Vec::new()));
    assert_snapshot!("no_listeners", screen(&app, 60, 15));
}

#[test]
fn a_server_that_is_lost() {
    let mut app = with_topics(false);
    let Some(ScreenRequest::Look { ticket, .. }) = app.on_time(at(3)) else { panic!("no look") };
    let error = "the server at 127.0.0.1:6379 cannot be reached: Connection refused (os error 111)";
    app.on_data(ticket, Err(error.to_owned()));
    let asked = app.on_time(at(75));
    at_all_sizes("lost", &app);
    answer(&mut app, asked, data::topics());
    let back = screen(&app, 100, 24);
    assert!(back.contains("0s ago") && !back.contains("refused"), "{back}");
}

#[test]
fn a_terminal_that_is_too_small() {
    assert_snapshot!("too_small", screen(&with_topics(false), 30, 5));
    // Nothing panics, whatever the size.
    for (width, height) in (0..130).step_by(7).flat_map(|width| (0..40).step_by(3).map(move |h| (width, h))) {
        for app in [with_topics(true), with_entries(true, "jj\n", data::waiting())] {
            screen(&app, width.max(1), height.max(1));
        }
        screen(&with_timer(true, data::retried()), width.max(1), height.max(1));
    }
}

#[test]
fn red_is_for_alarms_and_no_colour_is_no_colour() {
    let mut calm = data::topics();
    calm.topics.retain(|topic| !topic.standing.is_alarm());
    let mut app = with_topics(true);
    let reds = |app: &App, colours| {
        let buffer = drawn(app, colours, 100, 24).buffer().clone();
        buffer.content().iter().filter(|cell| cell.fg == Color::Red).count()
    };
    assert!(reds(&app, true) > 0);
    let plain = drawn(&app, false, 100, 24).buffer().clone();
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let asked = press(&mut app, "r");
    answer(&mut app, asked, calm);
    assert_eq!(reds(&app, true), 0);
}

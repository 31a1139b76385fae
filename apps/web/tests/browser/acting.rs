//! What can be done from the pages, with a script and without.

use std::time::Duration;

use keylapse_console::{Action, EntryState};
use keylapse_support::eventually;

use crate::browser::scene::{Do, Scene};
use keylapse_browser::{Chrome, WITHIN};

async fn browser(is_scripted: bool) -> Option<Chrome> {
    let mut chrome = Chrome::start().await?;
    chrome.without_script(!is_scripted).await;
    Some(chrome)
}

async fn state_of(scene: &Scene, key: &str) -> Option<EntryState> {
    let topic = scene.console().await.topic("order.unpaid").await.unwrap();
    topic.timer(format!("order:unpaid:{key}").as_bytes(), None).await.unwrap().map(|entry| entry.state)
}

async fn dead_letters_of_key(scene: &Scene, key: &str) -> usize {
    let topic = scene.console().await.topic("order.unpaid").await.unwrap();
    topic.dead_letters_of_key(format!("order:unpaid:{key}").as_bytes(), None).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_is_moved_run_and_cancelled() {
    for is_scripted in [true, false] {
        let Some(mut chrome) = browser(is_scripted).await else { return };
        let scene = Scene::empty().await;
        scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
        chrome.go(&scene.timer("a")).await;
        chrome.fill("textbox", "New deadline", "2h").await;
        chrome.click("button", "Reschedule").await;
        chrome.shows("Rescheduled.").await;
        if is_scripted {
            chrome.until("!location.search.includes('outcome')").await; // a reload shows no notice again
        }
        chrome.shows("in 1h59m").await;
        chrome.click("button", "Run now").await;
        chrome.shows("Due now.").await;
        chrome.click("button", "Cancel").await;
        chrome.shows("Cancelled: it will not run.").await;
        assert_eq!(state_of(&scene, "a").await, None);
        // What cannot work is not offered.
        for name in ["Cancel", "Run now", "Reschedule"] {
            assert!(!chrome.has("button", name).await, "{name}");
        }
        assert!(chrome.complaints().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_is_none_moves_nothing() {
    let Some(mut chrome) = browser(true).await else { return };
    let scene = Scene::empty().await;
    scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
    chrome.go(&scene.timer("a")).await;
    chrome.fill("textbox", "New deadline", "soon").await;
    chrome.click("button", "Reschedule").await;
    chrome.shows("write a span, such as 15m").await;
    assert_eq!(state_of(&scene, "a").await, Some(EntryState::Waiting));
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_replayed_and_dropped() {
    let Some(mut chrome) = browser(true).await else { return };
    let scene = Scene::empty().await;
    scene.arm(b"other", Duration::from_secs(3600), Do::Succeed).await;
    for (at, key) in (1..).zip(["a", "b", "c"]) {
        scene.bury(&format!("order:unpaid:{key}"), at, "timeout").await;
    }
    for (key, button, says) in [
        ("a", "Replay", "Replayed: its attempts start over."),
        ("b", "Replay as new", "Replayed: its attempts start over."),
        ("c", "Drop", "Dropped."),
    ] {
        chrome.go(&scene.timer(key)).await;
        chrome.click("button", button).await;
        chrome.shows(says).await;
        assert_eq!(dead_letters_of_key(&scene, key).await, 0, "{key}");
        assert_eq!(state_of(&scene, key).await.is_some(), key != "c");
    }
    // Somebody else was quicker.
    scene.bury("order:unpaid:d", 9, "timeout").await;
    chrome.go(&scene.timer("d")).await;
    let topic = scene.console().await.topic("order.unpaid").await.unwrap();
    let letter = topic.dead_letters_of_key(b"order:unpaid:d", None).await.unwrap().remove(0);
    assert!(topic.act(Action::Drop, &letter.key, Some(&letter)).await.unwrap().done);
    chrome.click("button", "Replay").await;
    chrome.shows("The dead letter is gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_paused_and_resumed() {
    let Some(mut chrome) = browser(false).await else { return };
    let scene = Scene::empty().await;
    scene.arm(b"a", Duration::from_secs(3600), Do::Succeed).await;
    chrome.go(&scene.url("/topic?name=order.unpaid")).await;
    chrome.eval("document.getElementById('pause').open = true").await;
    chrome.fill("textbox", "Reason", "the shop moves").await;
    // The field takes no more, and neither does what is posted without it.
    chrome.eval("document.querySelector('#pause [name=reason]').removeAttribute('maxlength')").await;
    chrome.eval("document.querySelector('#pause [name=reason]').value = 'a'.repeat(201)").await;
    chrome.click("button", "Pause").await;
    chrome.shows("write at most 200 bytes").await;
    chrome.go(&scene.url("/topic?name=order.unpaid")).await;
    chrome.eval("document.getElementById('pause').open = true").await;
    chrome.fill("textbox", "Reason", "the shop moves").await;
    chrome.click("button", "Pause").await;
    chrome.shows("Paused: running attempts continue").await;
    chrome.shows("paused: the shop moves").await;
    chrome.click("button", "Resume").await;
    chrome.shows("Resumed: overdue timers run now.").await;
    let topic = scene.console().await.topic("order.unpaid").await.unwrap();
    assert_eq!(topic.overview().await.unwrap().paused, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_counted_first_and_then_acted_upon() {
    let Some(mut chrome) = browser(true).await else { return };
    let mut scene = Scene::empty().await;
    scene.arm(b"other", Duration::from_secs(3600), Do::Succeed).await;
    for n in 0..7 {
        let error = if n < 5 { "timed out" } else { "refused" };
        scene.bury(&format!("order:unpaid:{n}"), n + 1, error).await;
    }
    chrome.go(&scene.url("/dead")).await;
    chrome.click("link", "timed out").await;
    chrome.shows("5 of 7 match").await;
    chrome.click("button", "Replay…").await;
    chrome.shows("5 dead letters of order.unpaid matching reason:exhausted error:~timed out newer:1h will be replayed.").await;
    // One comes meanwhile: nothing is done that was not agreed to.
    scene.bury("order:unpaid:8", 9, "timed out").await;
    chrome.click("button", "Replay 5").await;
    chrome.shows("6 found, 5 expected: nothing was done").await;
    assert_eq!(scene.schedule.dead_letter_counts(&scene.orders).await.unwrap().0, 8);
    chrome.click("button", "Replay 6").await;
    chrome.shows("6 done.").await;
    assert_eq!(scene.schedule.dead_letter_counts(&scene.orders).await.unwrap().0, 2);
    // And they run.
    scene.listen().await;
    eventually(WITHIN, "the replayed ones run", async || state_of(&scene, "0").await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_timers_are_moved_and_cancelled() {
    let Some(mut chrome) = browser(false).await else { return };
    let scene = Scene::empty().await;
    for n in 0..3 {
        scene.arm(format!("{n}").as_bytes(), Duration::from_secs(3600), Do::Succeed).await;
    }
    chrome.go(&scene.url("/topic?name=order.unpaid")).await;
    chrome.click("button", "Reschedule…").await;
    chrome.shows("3 waiting timers of order.unpaid will be moved.").await;
    chrome.fill("textbox", "New deadline", "3h").await;
    chrome.click("button", "Reschedule 3").await;
    chrome.shows("3 done.").await;
    chrome.shows("in 2h59m").await;
    chrome.click("button", "Cancel…").await;
    chrome.shows("this cannot be undone.").await;
    chrome.click("button", "Cancel 3").await;
    chrome.shows("No waiting timers.").await;
}

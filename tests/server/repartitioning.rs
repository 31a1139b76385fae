//! A topic gets another number of partitions: everything it holds is found where it belongs, whoever dies on the way.

mod contents;
mod load;
mod meanwhile;
mod refusals;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylapse::dead_letters::Replayed;
use keylapse::{Client, Done, ErrorKind, Failure, Lapse, Topic};
use keylapse_console::Console;
use keylapse_support::{Proxy, Then};

use self::contents::{Contents, fill};
use crate::server::console;
use crate::server::support::{Running, listener, server_and_schedule, until_dead};

const LONG: Duration = Duration::from_secs(3600);

fn orders() -> Topic<u32> {
    Topic::named("order", "app:order:{id}").unwrap().partitions(4)
}

/// Whether these are words of a call of a script with arguments.
fn is_script(words: &[bytes::Bytes]) -> bool {
    words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"EVALSHA"))
}

#[tokio::test]
async fn all_that_a_topic_holds_is_where_it_belongs_with_the_new_number() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    for (from, to) in [(4, 8), (8, 4), (4, 6), (6, 1), (1, 5), (5, 3)] {
        server.cmd(&["FLUSHALL"]).await;
        fill(&server, from, 400).await;
        let before = Contents::of(&server, from).await;
        let done = console.repartition(&orders(), to).await.unwrap();
        assert_eq!((done.from, done.to), (from, to));
        assert!(done.timers > 50 && done.dead_letters > 10, "{done:?}");
        let after = Contents::of(&server, to).await;
        before.assert_same(&after, &format!("{from} to {to}"));
        let again = console.repartition(&orders(), to).await.unwrap();
        assert_eq!((again.from, again.to, again.timers), (to, to, 0), "once more does no harm");
        before.assert_same(&Contents::of(&server, to).await, "once more");
        let listed: String =
            redis::from_redis_value(server.cmd(&["HGET", "keylapse:topics", "order"]).await).unwrap();
        assert!(listed.contains(&format!("\"partitions\":{to},")), "{listed}");
    }
}

/// So many scripts are run, and then the line is cut for good: with the last one's answer lost, or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_dies_anywhere_leaves_the_rest_to_the_next() {
    let (server, _) = server_and_schedule().await;
    let console = console(&server);
    for (from, to) in [(2, 4), (4, 2), (2, 3)] {
        let mut lives = 0;
        loop {
            server.cmd(&["FLUSHALL"]).await;
            fill(&server, from, 60).await;
            let before = Contents::of(&server, from).await;
            let proxy = Proxy::before(&server).await;
            let client = Client::new(&proxy.app_url()).unwrap().patience(Duration::from_millis(20));
            let (seen, dying) = (AtomicUsize::new(0), Console::new(client));
            let is_last = move |words: &[bytes::Bytes]| {
                is_script(words) && seen.fetch_add(1, Ordering::Relaxed) >= lives
            };
            proxy.lose_replies(usize::MAX, is_last, Then::Close);
            let died = dying.repartition(&orders(), to).await;
            drop(proxy);
            let ended = console.repartition(&orders(), to).await;
            ended.unwrap_or_else(|error| panic!("{from} to {to}, after {lives}: {error}"));
            before.assert_same(&Contents::of(&server, to).await, &format!("{from} to {to}, after {lives}"));
            if died.is_ok() {
                break;
            }
            lives += 1;
        }
        println!("{from} to {to}: {lives} scripts");
        assert!(lives > 20, "{lives}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_change_nothing_of_what_is_moved() {
    let (server, _) = server_and_schedule().await;
    fill(&server, 4, 1500).await;
    let before = Contents::of(&server, 4).await;
    let proxy = Proxy::before(&server).await;
    let seen = AtomicUsize::new(0);
    let every_third = move |words: &[bytes::Bytes]| {
        is_script(words) && seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(3)
    };
    proxy.lose_replies(40, every_third, Then::Close);
    let unlucky = Console::new(Client::new(&proxy.app_url()).unwrap());
    unlucky.repartition(&orders(), 8).await.unwrap();
    assert!(proxy.lost() >= 10, "{} answers were lost", proxy.lost());
    before.assert_same(&Contents::of(&server, 8).await, "all");
}

/// Several calls at a time, from other programs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_for_the_same_number_do_not_disturb_each_other() {
    let (server, _) = server_and_schedule().await;
    for (from, to) in [(4, 8), (8, 4)] {
        server.cmd(&["FLUSHALL"]).await;
        fill(&server, from, 600).await;
        let before = Contents::of(&server, from).await;
        let url = server.app_url();
        let calls: Vec<_> = (0..4)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move {
                    Console::connect(&*url).await.unwrap().repartition(&orders(), to).await
                })
            })
            .collect();
        let mut ended = 0;
        for call in calls {
            match call.await.unwrap() {
                Ok(_) => ended += 1,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Repartitioning | ErrorKind::InUse), "{error}");
                }
            }
        }
        assert!(ended > 0);
        before.assert_same(&Contents::of(&server, to).await, &format!("{from} to {to}"));
    }
}

/// What was tried before goes on counting, and a letter can be replayed.
#[tokio::test]
async fn attempts_and_dead_letters_go_on_where_they_were() {
    let (server, schedule) = server_and_schedule().await;
    let console = console(&server);
    let failing = |lapse: Lapse<u32>| {
        let dies = lapse.payload().is_multiple_of(2);
        std::future::ready(Err::<Done, _>(if dies {
            Failure::dead("no")
        } else {
            Failure::retry_after(Duration::from_secs(3), "later")
        }))
    };
    let running = Running::start(listener(&server).on(orders(), failing));
    for id in 0..40u32 {
        assert!(schedule.arm(&orders(), id, Duration::ZERO, &id).await.unwrap().is_armed());
    }
    running.until("all to have failed", |stats| stats.total().dead + stats.total().retried == 40).await;
    until_dead(&schedule, &orders(), 20).await;
    running.stop().await.unwrap();
    console.repartition(&orders(), 8).await.unwrap();
    let wider = orders().partitions(8);
    let letters = schedule.dead_letters(&wider).page(100).await.unwrap();
    assert_eq!(letters.len(), 20);
    for letter in &letters {
        assert_eq!(schedule.replay(letter).await.unwrap(), Replayed::Replayed);
    }
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noting = seen.clone();
    let handler = move |lapse: Lapse<u32>| {
        noting.lock().unwrap().push((*lapse.payload(), lapse.attempt()));
        std::future::ready(Ok::<_, Failure>(Done))
    };
    let running = Running::start(listener(&server).on(wider, handler));
    running.until("all to have run", |stats| stats.total().handled == 40).await;
    running.stop().await.unwrap();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    // A replayed letter starts over, a retry does not.
    assert_eq!(seen, (0..40).map(|id| (id, 1 + id % 2)).collect::<Vec<_>>());
}

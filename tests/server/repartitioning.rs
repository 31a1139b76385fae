//! A topic gets another number of partitions: everything it holds is found where it belongs, whoever dies on the way.

mod contents;
mod load;
mod meanwhile;
mod refusals;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylapse::{Client, ErrorKind, Topic};
use keylapse_console::Console;
use keylapse_support::{Proxy, Then};

use self::contents::{Contents, fill};
use crate::server::console;
use crate::server::support::server_and_schedule;

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
            let client = Client::new(&proxy.app_url()).unwrap().retry_for(Duration::from_millis(20));
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

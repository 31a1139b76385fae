//! What producers and listeners of either number see.

use keylapse::inside::ClientInside as _;
use std::time::Duration;

use keylapse::{Client, Done, ErrorKind, Failure, Lapse, Listener, Schedule};
use keylapse_connection::id::RepartitionId;
use keylapse_console::Console;
use keylapse_support::{Proxy, Server, eventually};
use keylapse_wire::{RepartitionChange, RepartitionStep, scripts};
use redis::{Value, cmd};

use super::contents::partition;
use super::{LONG, orders};
use crate::server::capture::Capture;
use crate::server::console;
use crate::server::support::{PATIENCE, Running, refusal, reporting, server_and_schedule};

/// Closes all partitions of four for eight, as a call does that then dies.
async fn close_all(server: &Server) {
    let store = Client::new(&server.app_url()).unwrap().store().clone();
    let id = RepartitionId::random();
    for how in [RepartitionStep::Pause, RepartitionStep::Close] {
        for index in 0..4 {
            let change = RepartitionChange { to: 8, own: id, id };
            assert!(
                store.repartition_step(&partition(index, 4), change, how).await.unwrap().done,
                "{index} {how:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_of_either_number_wait_and_then_only_the_new_one_is_let_in() {
    let (server, schedule) = server_and_schedule().await;
    assert!(schedule.arm(&orders(), 1, LONG, &1).await.unwrap().is_armed());
    close_all(&server).await;
    let at_once = Client::new(&server.app_url()).unwrap().retry_for(Duration::ZERO);
    for of in [4, 8] {
        let hasty = Schedule::new(at_once.clone());
        let refused = hasty.arm(&orders().partitions(of), 2, LONG, &1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Repartitioning, "{refused}");
        assert!(refused.is_transient() && !refused.needs_operator());
        assert!(refused.to_string().contains("call Console::repartition"), "{refused}");
    }
    let patient = |of| {
        let client = Client::new(&server.app_url()).unwrap().retry_for(PATIENCE);
        tokio::spawn(async move {
            let topic = orders().partitions(of);
            (Schedule::new(client).arm(&topic, of, LONG, &1).await, topic)
        })
    };
    let (old, new) = (patient(4), patient(8));
    // One that knows the topic already.
    let known = tokio::spawn(async move { schedule.cancel(&orders(), 1).await });
    Console::connect(&*server.app_url()).await.unwrap().repartition(&orders(), 8).await.unwrap();
    let (armed, wider) = new.await.unwrap();
    assert!(armed.unwrap().is_armed());
    for refused in [old.await.unwrap().0.map(drop), known.await.unwrap().map(drop)] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Partitions, "{refused}");
        assert!(
            refused.to_string().contains("8") && refused.to_string().contains("start this program"),
            "{refused}"
        );
    }
    let after = Schedule::connect(&server.app_url()).await.unwrap();
    assert!(
        after.look_up(&wider, 1).await.unwrap().is_some()
            && after.look_up(&wider, 8).await.unwrap().is_some()
    );
    assert!(after.look_up(&wider, 4).await.unwrap().is_none(), "what was refused is nowhere");
}

#[tokio::test]
async fn a_listener_of_the_old_number_says_so_and_loses_nothing_and_one_of_the_new_waits() {
    let (log, _guard) = Capture::start();
    let server = Server::start().await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let console = console(&server);
    let handler = || reporting(|lapse: Lapse<u32>| (*lapse.payload(), Ok::<_, Failure>(Done)));
    let (old_handler, mut old_ran) = handler();
    let proxy = Proxy::before(&server).await;
    let old = Running::start(Listener::builder(proxy.app_url()).on(orders(), old_handler));
    old.until_anchored().await;
    assert!(schedule.arm(&orders(), 1, Duration::ZERO, &1).await.unwrap().is_armed());
    assert_eq!(old_ran.next().await, 1);
    old.until("its end to be settled", |stats| stats.total().handled == 1).await;
    eventually(PATIENCE, "its record to go", async || {
        schedule.look_up(&orders(), 1).await.unwrap().is_none()
    })
    .await;
    close_all(&server).await;
    let (new_handler, mut new_ran) = handler();
    let wider = orders().partitions(8);
    let new = Running::start(Listener::builder(server.app_url()).on(wider.clone(), new_handler));
    eventually(PATIENCE, "the new listener to wait", async || {
        log.lines()
            .iter()
            .any(|line| line.contains("waiting for the server") && line.contains("is being repartitioned"))
    })
    .await;
    console.repartition(&orders(), 8).await.unwrap();
    new.until_anchored().await;
    for id in 0..20u32 {
        assert!(schedule.arm(&wider, id, Duration::ZERO, &id).await.unwrap().is_armed());
    }
    let mut ran = Vec::new();
    while ran.len() < 20 {
        ran.push(new_ran.next().await);
    }
    ran.sort_unstable();
    assert_eq!(ran, (0..20).collect::<Vec<_>>());
    assert_eq!(old_ran.try_next(), None, "the old one runs nothing");
    let said = || log.lines().into_iter().filter(|line| line.contains("has another number of partitions:"));
    eventually(PATIENCE, "the old one to say so", async || said().count() > 0).await;
    proxy.reset_counts();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let calls = proxy.requests().get("EVALSHA").copied().unwrap_or_default();
    assert!(calls < 100, "{calls} scripts in four seconds");
    let lines: Vec<_> = said().collect();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("ERROR") && line.contains("has 8 partitions, the caller 4"), "{line}");
    new.stop().await.unwrap();
    old.stop().await.unwrap();
    let refused = refusal(Listener::builder(server.app_url()).on(orders(), handler().0)).await;
    assert_eq!(refused.kind(), ErrorKind::Partitions);
    assert!(refused.to_string().contains(".partitions(8)"), "{refused}");
}

/// What every partition script of an earlier build begins with.
const EARLIER: &str = "local meta = redis.call('HMGET', KEYS[1], 'v', 'p', 'paused', 'kind')
if meta[1] ~= ARGV[1] then
  if meta[1] == 'destroying' then return redis.error_reply('DESTROYING') end
  return redis.error_reply('WIREVERSION ' .. KEYS[1] .. ' says ' .. meta[1] .. ', the caller ' .. ARGV[1])
end
return redis.call('SET', KEYS[1], 'broken')";

#[tokio::test]
async fn every_call_is_refused_while_it_is_closed_those_of_earlier_builds_too() {
    let (server, schedule) = server_and_schedule().await;
    assert!(schedule.arm(&orders(), 1, LONG, &1).await.unwrap().is_armed());
    close_all(&server).await;
    let version = keylapse_wire::names::WIRE_VERSION;
    let mut line = server.conn().await;
    let names = partition(0, 4);
    let mut call = async |text: &str| {
        let mut call = cmd("EVAL");
        call.arg(text).arg(16).arg(names.all()).arg(version).arg(4).arg(&names.wake);
        call.query_async::<Value>(&mut line).await.unwrap_err().code().unwrap_or_default().to_owned()
    };
    assert_eq!(call(EARLIER).await, "WIREVERSION");
    for script in scripts::all().filter(|script| script.text.contains("-- prelude.lua")) {
        assert_eq!(call(&script.text).await, "REPARTITIONING", "{}", script.name);
    }
}

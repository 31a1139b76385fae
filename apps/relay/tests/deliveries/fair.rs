//! Hosts of one topic, of which most are ill: at the defaults, the others are called as if they were alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::future::join_all;

use crate::{Heard, Receiver, Rig, Then};

const BAD: usize = 20;
/// Of each bad host: more than it has places.
const CROWD: usize = 30;
const CALLS: usize = 100;
/// Much more than a call takes, and much less than a bad host holds a place: on a machine that does nothing else.
const SOON: Duration = Duration::from_secs(3);

struct Scene {
    rig: Rig,
    good: Receiver,
    bad: Vec<Receiver>,
}

impl Scene {
    async fn new(bad: usize, then: Then) -> Self {
        let good = Receiver::start(|_, _| Then::Late(Duration::from_millis(5), 200)).await;
        let bad = join_all((0..bad).map(|_| {
            let then = then.clone();
            Receiver::start(move |_, _| then.clone())
        }))
        .await;
        let hosts: Vec<_> = bad.iter().chain([&good]).map(|host| format!("\"{}\"", host.host())).collect();
        let webhook = format!("allow-addresses = [\"127.0.0.1\"]\nhosts = [{}]", hosts.join(", "));
        Self { rig: Rig::of_timers("{payload.url}", "", &webhook).await, good, bad }
    }

    async fn arm(&self, id: String, to: &Receiver) {
        self.rig.arm(&id, format!("{{\"url\":\"{}\"}}", to.url())).await;
    }

    /// Each bad host has calls that it answers late or never, and others behind them.
    async fn burn(&self) {
        let all = self.bad.iter().enumerate();
        let crowd = all.flat_map(|(host, to)| (0..CROWD).map(move |id| (format!("bad{host}-{id}"), to)));
        join_all(crowd.map(async |(id, to)| self.arm(id, to).await)).await;
        join_all(self.bad.iter().map(|bad| bad.calls(1))).await;
    }

    /// How long the slowest of some calls of the good host took to arrive.
    async fn latest(&self) -> Duration {
        let (mut armed, before) = (HashMap::new(), self.good.count());
        for id in before..before + CALLS {
            armed.insert(format!("order:good{id}"), Instant::now());
            self.arm(format!("good{id}"), &self.good).await;
            // One after the other, as calls of a healthy host come, and not in a crowd.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let late = |call: &Heard| call.at - armed[call.json()["data"]["key"].as_str().unwrap_or_default()];
        self.good.calls(before + CALLS).await[before..].iter().map(late).max().unwrap_or_default()
    }
}

/// Returns how late the good host is called behind the crowd of hosts that do this.
async fn latest_beside(then: Then) -> Duration {
    let scene = Scene::new(BAD, then).await;
    scene.latest().await; // the good host has answered before
    scene.burn().await;
    scene.latest().await
}

/// The crowd alone takes time, which is longer on a busy machine: hosts that answer at once show how much.
async fn bad_hosts_delay_no_other(then: Then) {
    let usual = latest_beside(Then::status(200)).await;
    let beside = latest_beside(then).await;
    assert!(beside < SOON.max(3 * usual), "{beside:?}, and {usual:?} beside hosts that answer at once");
}

#[tokio::test]
async fn twenty_hosts_that_never_answer_delay_no_other() {
    bad_hosts_delay_no_other(Then::Hang).await;
}

#[tokio::test]
async fn twenty_hosts_that_answer_late_delay_no_other() {
    bad_hosts_delay_no_other(Then::Late(Duration::from_secs(10), 200)).await;
}

#[tokio::test]
async fn twenty_hosts_whose_heads_drip_delay_no_other() {
    bad_hosts_delay_no_other(Then::Drip("HTTP/1.1 200 ")).await;
}

#[tokio::test]
async fn twenty_hosts_whose_bodies_drip_delay_no_other() {
    bad_hosts_delay_no_other(Then::Drip("HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n")).await;
}

/// More than there are places.
#[tokio::test]
async fn two_hundred_hosts_that_never_answer_leave_places_to_one_that_does() {
    let scene = Scene::new(200, Then::Hang).await;
    scene.arm("good".to_owned(), &scene.good).await;
    scene.good.calls(1).await;
    join_all(scene.bad.iter().enumerate().map(async |(id, bad)| scene.arm(format!("bad{id}"), bad).await))
        .await;
    join_all(scene.bad[..50].iter().map(|bad| bad.calls(1))).await;
    let began = Instant::now();
    join_all((0..5).map(async |id| scene.arm(format!("good{id}"), &scene.good).await)).await;
    scene.good.calls(6).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// The head has said all.
#[tokio::test]
async fn a_body_that_drips_holds_no_place() {
    let drips = "HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n";
    let receiver = Receiver::start(move |_, _| Then::Drip(drips)).await;
    let rig = Rig::of_timers(&receiver.url(), "concurrency = 1", "allow-addresses = [\"127.0.0.1\"]").await;
    let began = Instant::now();
    for id in 0..20 {
        rig.arm(&id.to_string(), "1").await;
    }
    rig.none_left().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

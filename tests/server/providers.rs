//! Capabilities on services that offer a part of Redis, as docs/providers.md says it. `make test-providers` runs more of the
//! suite through each.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use keylapse::handler::LapseSource;
use keylapse::health::EventMode;
use keylapse::timers::MarkerKey;
use keylapse::{Attached, Backoff, Client, Done, Expired, Failure, Lapse, Listener, Schedule, Topic};
use keylapse_console::Console;
use keylapse_support::{Deadline, Provider, Reach, Server, skipped};
use tokio::time::timeout;

use crate::server::support::{Running, reporting, reports, show_log};

/// Longer than what works takes on a busy machine.
const WITHIN: Duration = Duration::from_secs(30);
/// Keys of other programs.
const KEYS: usize = 20;
/// The most timers that a service gets. Wake-ups work there if this many in a row run without a sweep.
const ARMED: u32 = 8;
const WOKEN: u32 = 4;
const PAGE: &str = "../docs/providers.md";
const BEGIN: &str = "<!-- what works -->\n";
const END: &str = "<!-- the end of it -->\n";

/// A service, and what a test is connected to there.
struct Service {
    name: &'static str,
    server: Server,
}

fn topic() -> Topic<u32> {
    Topic::new("app:provided:{id}")
        .unwrap()
        .partitions(3)
        .marker_keys(false)
        .retry(Backoff::fixed(Duration::ZERO))
}

fn yes(works: bool) -> String {
    if works { "yes" } else { "no" }.to_owned()
}

impl Service {
    async fn start(provider: &'static Provider) -> Self {
        let server = Server::builder().reach(Reach::through(provider)).start().await;
        Self { name: provider.name, server }
    }

    fn client(&self) -> Client {
        Client::new(&self.server.app_url()).unwrap()
    }

    async fn row(&self) -> String {
        let (managed, wake_ups) = self.managed().await.unwrap_or_else(|error| {
            println!("{}: {error}", self.name);
            (yes(false), yes(false))
        });
        let cells = [
            managed,
            self.marker_keys().await,
            wake_ups,
            self.partitions().await,
            self.attached().await,
            self.doctor().await,
        ];
        format!("| {} | {} |\n", self.name, cells.join(" | "))
    }

    /// Timers that fail once and run again, one that is cancelled, and the console; and whether the listener was told.
    async fn managed(&self) -> keylapse::Result<(String, String)> {
        let schedule = Schedule::connect(self.client()).await?;
        let (handler, mut reported) = reporting(|lapse: Lapse<u32>| {
            let end = if lapse.attempt() == 1 { Err(Failure::retry("once")) } else { Ok(Done) };
            ((*lapse.payload(), lapse.attempt(), lapse.source()), end)
        });
        let running = Running::start(Listener::builder(self.client()).on(topic(), handler));
        let _ = schedule.arm(&topic(), ["later"], Duration::from_secs(3600), &0).await?;
        let (mut ran, mut armed, mut in_a_row) = (0, 0, 0);
        // Until the listener has subscribed, sweeps find timers everywhere. Later a sweep may come first by chance.
        while armed < ARMED && in_a_row < WOKEN {
            armed += 1;
            let _ = schedule.arm(&topic(), [armed.to_string()], Duration::ZERO, &armed).await?;
            let twice = async { (reported.next().await, reported.next().await) };
            let Ok(((_, first, source), (_, second, _))) = timeout(WITHIN, twice).await else { break };
            ran += u32::from((first, second) == (1, 2));
            in_a_row = if source == LapseSource::Sweep { 0 } else { in_a_row + 1 };
        }
        let cancelled = schedule.cancel(&topic(), ["later"]).await?;
        let topics = Console::connect(self.client()).await?.topics().await?;
        running.stop().await?;
        let all = ran == armed && cancelled == keylapse::Cancelled::Cancelled && topics.len() == 1;
        Ok((yes(all), yes(in_a_row == WOKEN)))
    }

    async fn marker_keys(&self) -> String {
        let schedule = Schedule::new(self.client());
        let topic = Topic::<u32>::new("app:triggered:{id}").unwrap();
        let armed = schedule.arm(&topic, ["1"], Duration::from_secs(3600), &1).await;
        let Ok(armed) = armed else { return yes(false) };
        if let MarkerKey::Failed(error) = &armed.receipt().unwrap().marker {
            assert!(
                error.to_string().ends_with("switch them off (Topic::marker_keys)"),
                "{}: {error}",
                self.name
            );
        }
        yes(matches!(armed.receipt().unwrap().marker, MarkerKey::Set))
    }

    async fn partitions(&self) -> String {
        yes(Console::new(self.client()).repartition(&topic(), 5).await.is_ok())
    }

    async fn attached(&self) -> String {
        let (report, mut reported) = reports();
        let handler = move |lapse: Lapse<Expired<u32>>| {
            report.send(lapse.key().to_vec()).ok();
            std::future::ready(Ok::<_, Failure>(Done))
        };
        let attached = Attached::new(Topic::<u32>::new("app:others:{id}").unwrap());
        let attached = attached.scan_every(Duration::from_millis(200));
        let running = Running::start(Listener::builder(self.client()).attach(attached, handler));
        let deadline = Deadline::after(WITHIN / 2);
        while running.stats.mode() == EventMode::Starting && !deadline.is_over() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mode = running.stats.mode();
        // In many slots, and due at the same time.
        for n in 0..KEYS {
            self.server.cmd(&["SET", &format!("app:others:{n}"), "1", "PX", "3000"]).await;
        }
        let all = async {
            let mut found = BTreeSet::new();
            while found.len() < KEYS {
                found.insert(reported.next().await);
            }
        };
        let found = timeout(WITHIN, all).await.is_ok();
        drop(running);
        match (found, mode) {
            (false, _) => yes(false),
            (true, EventMode::ScanOnly | EventMode::Unsubscribed) => "by scanning".to_owned(),
            (true, _) => "by events".to_owned(),
        }
    }

    async fn doctor(&self) -> String {
        let diagnosis = Console::new(self.client()).doctor().await;
        let bad = diagnosis
            .findings
            .iter()
            .filter(|finding| finding.severity > keylapse_console::doctor::Severity::Warning);
        let mut codes: Vec<_> = bad.map(|finding| finding.code).collect();
        codes.dedup();
        if codes.is_empty() { "–".to_owned() } else { codes.join(", ") }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_works_on_each_service_is_what_the_page_says() {
    show_log();
    if Reach::of_this_run() != &Reach::default() {
        return skipped("each service is looked at in any run that is none of one");
    }
    let services = join_all(Provider::all().iter().map(Service::start)).await;
    let rows = join_all(services.iter().map(Service::row)).await;
    let mut table = String::from(
        "| imitated service | managed | marker keys | wake-ups | partitions | attached | doctor |\n",
    );
    let _ = writeln!(table, "| --- | --- | --- | --- | --- | --- | --- |");
    table.extend(rows);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (said, after) = rest.split_once(END).unwrap();
    if std::env::var_os("KEYLAPSE_BLESS").is_some() {
        std::fs::write(&page, [before, BEGIN, &table, END, after].concat()).unwrap();
    } else {
        assert_eq!(said, table, "docs/providers.md; KEYLAPSE_BLESS=1 writes it");
    }
}

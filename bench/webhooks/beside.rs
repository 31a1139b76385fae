//! One good host, alone and next to bad hosts of one topic, with default settings.

use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use keylapse_bench::{Fault, Server, Spread};

use crate::Options;
use crate::bad::{BadHosts, Kind};
use crate::receiver::{Came, Receiver};
use crate::relayed::{AHEAD, Relayed, came};

/// Calls to each bad host that are due before the first call to the good one, and calls to each bad host a second from
/// then on.
const CROWD: usize = 100;
const PER_SECOND: usize = 5;

pub(crate) async fn measure(options: &Options, hosts: usize) -> Result<(), Fault> {
    let mut alone = Vec::new();
    let mut with_bad: Vec<_> =
        Kind::value_variants().iter().map(|kind| (*kind, Vec::new(), Vec::new())).collect();
    for round in 1..=options.rounds {
        let came = scene(options, None).await?;
        println!("round {round}: alone, {came}");
        alone.push(came.p99_ms);
        for (kind, times, p99s) in &mut with_bad {
            let bad = BadHosts::start(*kind, hosts)?;
            let then = scene(options, Some(&bad)).await?;
            let ratio = then.p99_ms / came.p99_ms;
            println!("round {round}: with {hosts} {kind} hosts, {then}: {ratio:.1} times");
            times.push(ratio);
            p99s.push(then.p99_ms);
        }
    }
    let of =
        |figures: &[f64]| Spread::of(figures).map_or_else(|| "-".to_owned(), |spread| spread.to_string());
    let of_kinds: Vec<_> = with_bad
        .iter()
        .map(|(kind, times, p99s)| format!("{kind}_p99_ms={} {kind}_times={}", of(p99s), of(times)))
        .collect();
    println!(
        "alone_p99_ms={} {} hosts={hosts} rate={} {}",
        of(&alone),
        of_kinds.join(" "),
        options.rate,
        Server::at_hand()?
    );
    Ok(())
}

async fn scene(options: &Options, bad: Option<&BadHosts>) -> Result<Came, Fault> {
    let count = options.rate * options.seconds;
    let mut good = Receiver::start(&[count])?;
    let bad = bad.map_or(&[][..], |bad| &bad.urls[..]);
    let relayed = Relayed::start(&webhook(&good.url, bad)).await?;
    let from = SystemTime::now() + AHEAD;
    let mut all = Vec::new();
    let period = Duration::from_secs(1).div_f64(PER_SECOND as f64);
    for (host, url) in (0_u32..).zip(bad) {
        all.extend((0..CROWD).map(|_| (from - AHEAD / 3, payload(url))));
        // Hosts take turns: a burst of calls in one millisecond would measure processors, not fairness.
        let first = from + period * host / bad.len() as u32;
        all.extend((0..PER_SECOND * options.seconds).map(|at| (first + period * at as u32, payload(url))));
    }
    let pause = Duration::from_secs(1).div_f64(options.rate as f64);
    all.extend((0..count).map(|at| (from + pause * at as u32, payload(&good.url))));
    relayed.arm(all.into_iter()).await?;
    let came = came(&mut good)?;
    relayed.stop().await?;
    Ok(came)
}

fn payload(url: &str) -> String {
    format!("{{\"url\":\"{url}\"}}")
}

fn webhook(good: &str, bad: &[String]) -> String {
    let host = |url: &str| format!("\"{}\"", url.trim_start_matches("http://").trim_end_matches("/hook"));
    let hosts: Vec<_> = bad.iter().map(String::as_str).chain([good]).map(host).collect();
    format!("url = \"{{payload.url}}\"\nhosts = [{}]", hosts.join(", "))
}

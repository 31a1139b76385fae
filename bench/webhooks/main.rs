//! `keylapse-bench-webhooks`: compares the webhooks of `keylapse run` with calls of its HTTP client alone, in one run. The
//! receiver is a process of its own.

mod bad;
mod bare;
mod beside;
mod receiver;
mod relayed;

use std::process::ExitCode;

use clap::Parser;
use keylapse_bench::{Fault, Server, Spread};

use self::receiver::{Receiver, WORD};

/// Measures webhooks per second, and how late they are.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
pub(crate) struct Options {
    /// Make this many calls due at one time.
    #[arg(long, default_value_t = 10_000)]
    burst: usize,
    /// Make this many calls at a time.
    #[arg(long, default_value_t = 100)]
    concurrency: usize,
    /// Make this many calls due each second, where lateness is measured.
    #[arg(long, default_value_t = 200)]
    rate: usize,
    /// Measure lateness for this many seconds.
    #[arg(long, default_value_t = 10)]
    seconds: usize,
    /// Measure this many rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure only how late a good host is called, alone and next to this many bad hosts of each kind.
    #[arg(long, value_name = "HOSTS", num_args = 0..=1, default_missing_value = "20")]
    beside: Option<usize>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let done = match &words[..] {
        [_, word, counts @ ..] if word == WORD => receiver::play(counts),
        [_, word, words @ ..] if word == bad::WORD => bad::play(words),
        _ => measure(&Options::parse()),
    };
    if let Err(fault) = done {
        eprintln!("keylapse-bench-webhooks: {fault}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[tokio::main]
async fn measure(options: &Options) -> Result<(), Fault> {
    if let Some(hosts) = options.beside {
        return beside::measure(options, hosts).await;
    }
    let (mut bare, mut relayed, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut late, mut latest) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let mut receiver = Receiver::start(&[options.burst, options.burst, options.rate * options.seconds])?;
        let alone = bare::calls(options, &mut receiver).await?;
        let (burst, steady) = relayed::calls(options, &mut receiver).await?;
        println!(
            "round {round}: {:.0}/s without, {:.0}/s with keylapse; due together, they came {burst}; at {}/s, {steady}",
            alone.per_second, burst.per_second, options.rate
        );
        bare.push(alone.per_second);
        relayed.push(burst.per_second);
        ratios.push(burst.per_second / alone.per_second);
        late.push(steady.p50_ms);
        latest.push(steady.p99_ms);
    }
    let of =
        |figures: &[f64]| Spread::of(figures).map_or_else(|| "-".to_owned(), |spread| spread.to_string());
    println!(
        "webhooks_per_s={} bare_per_s={} ratio={} late_p50_ms={} late_p99_ms={} concurrency={} {}",
        of(&relayed),
        of(&bare),
        of(&ratios),
        of(&late),
        of(&latest),
        options.concurrency,
        Server::at_hand()?
    );
    Ok(())
}

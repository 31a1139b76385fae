//! Prints how late one to eight listeners are, and how often they come in vain.
//!
//! `cargo run -p keylapse-protocol --bin simulation --release`

use keylapse_protocol::simulation::{LISTENERS, RATES, Setup, simulate};

const SEED: u64 = 42;

/// Long enough for a few hundred timers, and for the listeners to settle down.
fn seconds(rate: f64) -> u64 {
    if rate < 1.0 { 1_000 } else { 60 }
}

fn main() {
    for leader_dies in [false, true] {
        println!("{}", if leader_dies { "\nthe leader dies half way" } else { "all live" });
        println!("listeners timers/s   timers   p50 ms   p99 ms   max ms claims/t  empty %");
        for rate in RATES {
            for listeners in LISTENERS.into_iter().filter(|listeners| *listeners > 1 || !leader_dies) {
                let tally =
                    simulate(Setup { listeners, rate, seconds: seconds(rate), seed: SEED, leader_dies });
                println!("{listeners:>9} {rate:>8} {tally}");
            }
        }
    }
}

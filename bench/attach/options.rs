//! What can be set.

use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use keylapse_bench::Fault;

/// Plays attached topics in three scenes, and prints a line for each.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
pub(crate) struct Options {
    /// Which scenes, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "sessions,hot,flood")]
    pub(crate) scenes: Vec<Scene>,

    /// Sessions: how many keys, bytes of each value, and refreshes a second; separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "60000x4096@56000,100000x200@90000")]
    pub(crate) sessions: Vec<Crowd>,
    /// Sessions: `notify-keyspace-events`; each crowd is played with each, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "KExg$,Ex")]
    pub(crate) flags: Vec<String>,
    /// Sessions: how long they are refreshed.
    #[arg(long, default_value = "60", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Sessions: how long they are refreshed with the same flags and no listener.
    #[arg(long, default_value = "20", value_parser = seconds)]
    pub(crate) alone: Duration,
    /// Sessions: the time to live that each refresh gives.
    #[arg(long, default_value_t = 20)]
    pub(crate) ttl: u64,
    /// Sessions: percent of the keys that get a deadline of one second, as a logout does.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) shortened: f64,
    /// Sessions: percent of the keys that are refreshed no more.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) left: f64,

    /// Hot: how many keys.
    #[arg(long, default_value_t = 3000)]
    pub(crate) hot_keys: u32,
    /// Hot: the keys' time to live, in ms.
    #[arg(long, default_value_t = 900)]
    pub(crate) hot_ttl: u64,
    /// Hot: how long after that each is written again, in ms.
    #[arg(long, default_value_t = 5)]
    pub(crate) hot_gap: u64,
    /// Hot: how many listeners.
    #[arg(long, default_value_t = 3)]
    pub(crate) hot_listeners: usize,
    /// Hot: `notify-keyspace-events`.
    #[arg(long, default_value = "KExg$")]
    pub(crate) hot_flags: String,
    /// Hot: for how many minutes.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) minutes: f64,

    /// Flood: how many keys are due in one second.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) flood_keys: u32,
    /// Flood: how many of them are written after the scan, and so never enrolled.
    #[arg(long, default_value_t = 250_000)]
    pub(crate) unenrolled: u32,
    /// Flood: `notify-keyspace-events`.
    #[arg(long, default_value = "Ex")]
    pub(crate) flood_flags: String,
    /// Flood: for how long keys are written and enrolled before they are due; else in proportion to them.
    #[arg(long, value_parser = seconds)]
    pub(crate) lead: Option<Duration>,
    /// Flood: how many managed timers show what rate is possible.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) managed: u32,

    /// How long handlers may take to start before an expiry counts as lost.
    #[arg(long, default_value = "60", value_parser = seconds)]
    pub(crate) patience: Duration,
    /// A listener that takes more memory is not written for any longer; at twice as much it is killed.
    #[arg(long, default_value_t = 3000.0)]
    pub(crate) rss_limit_mb: f64,
}

/// What to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scene {
    /// Sessions that each request extends.
    Sessions,
    /// Keys that expire again and again.
    Hot,
    /// A million keys due in one second.
    Flood,
}

/// Sessions of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Crowd {
    pub(crate) keys: u32,
    pub(crate) value_bytes: usize,
    /// Refreshes a second.
    pub(crate) rate: f64,
}

impl FromStr for Crowd {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let wrong = || format!("{text} is not like 60000x4096@56000");
        let (keys, rest) = text.split_once('x').ok_or_else(wrong)?;
        let (bytes, rate) = rest.split_once('@').ok_or_else(wrong)?;
        Ok(Self { keys: keys.parse()?, value_bytes: bytes.parse()?, rate: rate.parse()? })
    }
}

fn seconds(text: &str) -> Result<Duration, Fault> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

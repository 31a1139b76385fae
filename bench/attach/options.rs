//! The options of the command line.

use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use keylapse_bench::Fault;

/// Play attached topics in three scenes, and print a line for each.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
pub(crate) struct Options {
    /// Play these scenes, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "sessions,hot,flood")]
    pub(crate) scenes: Vec<Scene>,

    /// Sessions: number of keys, bytes of each value, and refreshes a second; separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "60000x4096@56000,100000x200@90000")]
    pub(crate) sessions: Vec<Crowd>,
    /// Sessions: values of `notify-keyspace-events`, separated by commas. Each crowd is played with each of them.
    #[arg(long, value_delimiter = ',', default_value = "KExg$,Ex")]
    pub(crate) flags: Vec<String>,
    /// Sessions: seconds of refreshes.
    #[arg(long, default_value = "60", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Sessions: seconds of refreshes with the same flags and without a listener.
    #[arg(long, default_value = "20", value_parser = seconds)]
    pub(crate) alone: Duration,
    /// Sessions: TTL that each refresh gives, in seconds.
    #[arg(long, default_value_t = 20)]
    pub(crate) ttl: u64,
    /// Sessions: percent of the keys that get a deadline of one second, as a logout does.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) shortened: f64,
    /// Sessions: percent of the keys that are not refreshed any more.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) left: f64,

    /// Hot: number of keys.
    #[arg(long, default_value_t = 3000)]
    pub(crate) hot_keys: u32,
    /// Hot: TTL of the keys, in ms.
    #[arg(long, default_value_t = 900)]
    pub(crate) hot_ttl: u64,
    /// Hot: time from the expiry of a key to its next write, in ms.
    #[arg(long, default_value_t = 5)]
    pub(crate) hot_gap: u64,
    /// Hot: number of listeners.
    #[arg(long, default_value_t = 3)]
    pub(crate) hot_listeners: usize,
    /// Hot: `notify-keyspace-events`.
    #[arg(long, default_value = "KExg$")]
    pub(crate) hot_flags: String,
    /// Hot: length in minutes.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) minutes: f64,

    /// Flood: number of keys that are due in one second.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) flood_keys: u32,
    /// Flood: number of keys that are written after the scan, and never enrolled.
    #[arg(long, default_value_t = 250_000)]
    pub(crate) unenrolled: u32,
    /// Flood: `notify-keyspace-events`.
    #[arg(long, default_value = "Ex")]
    pub(crate) flood_flags: String,
    /// Flood: seconds to write and enroll keys before they are due. By default, it depends on their number.
    #[arg(long, value_parser = seconds)]
    pub(crate) lead: Option<Duration>,
    /// Flood: number of managed timers, which show the possible rate.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) managed: u32,

    /// Seconds that a handler may take to start before an expiry counts as lost.
    #[arg(long, default_value = "60", value_parser = seconds)]
    pub(crate) patience: Duration,
    /// Stop writing for a listener that takes more memory than this; at twice as much, kill it.
    #[arg(long, default_value_t = 3000.0)]
    pub(crate) rss_limit_mb: f64,
}

/// The scenes.
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

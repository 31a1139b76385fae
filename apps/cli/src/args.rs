//! What several commands can be told in the same words.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use keylapse_console::{Cursor, EntryState, parse_span};

/// Where the server is, and how one gets into it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connect {
    /// redis://…, rediss://…, redis+sentinel://…, redis+cluster://… or unix:///…, with valkey in place of redis if you like.
    #[arg(
        short,
        long,
        global = true,
        env = "KEYLAPSE_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379/"
    )]
    pub(crate) url: String,
    /// The prefix of all of keylapse's names.
    #[arg(
        short,
        long,
        global = true,
        env = "KEYLAPSE_NAMESPACE",
        value_name = "PREFIX",
        default_value = "keylapse"
    )]
    pub(crate) namespace: String,
    /// The user.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// A file with the password.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The user at the sentinels.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) sentinel_user: Option<String>,
    /// A file with the password at the sentinels.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) sentinel_password_file: Option<PathBuf>,
    /// A file with the certificates of authorities to trust, in place of the system's.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// A file with a certificate of one's own.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The file with its key.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The name that the server's certificate has to be for.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tls_name: Option<String>,
    /// How long the server may take to answer one call, and how long a call is tried again.
    #[arg(long, global = true, value_name = "SPAN", default_value = "5s", value_parser = parse_timeout)]
    pub(crate) timeout: Duration,
}

/// How results are written.
#[derive(Args, Debug)]
pub(crate) struct Format {
    /// Write lines of JSON, one for each thing, in place of tables. docs/operate.md describes them.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours. NO_COLOR in the environment is heeded.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: clap::ColorChoice,
}

/// Which entries, in which portions.
#[derive(Args, Debug)]
pub(crate) struct Listing {
    /// The topic.
    pub(crate) topic: String,
    /// Conditions that all have to hold: key:order:*, id:…, attempt:>3, lost:>0, reason:exhausted, error:~timeout, older:1h, newer:1h.
    #[arg(value_name = "FILTER")]
    pub(crate) filters: Vec<String>,
    /// Begin behind where another page has ended.
    #[arg(long, value_name = "PLACE")]
    pub(crate) after: Option<Cursor>,
}

/// How much is done at once, and who is asked.
#[derive(Args, Debug)]
#[command(next_help_heading = "Many at a time")]
pub(crate) struct Bulk {
    /// Act upon no more than so many.
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    /// Act upon no more than so many a second, as in 100/s.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<u32>,
    /// Do all but the last step: what matches is counted, and left alone.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask; --expect says how many there have to be.
    #[arg(long, requires = "expect")]
    pub(crate) yes: bool,
    /// How many there have to be, or nothing is done.
    #[arg(long, value_name = "COUNT")]
    pub(crate) expect: Option<u64>,
}

fn parse_rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse() {
        Ok(rate) if rate > 0 => Ok(rate),
        _ => Err("a rate is a number of at least 1, as in 100/s".to_owned()),
    }
}

/// One key, or many that a filter picks out of a topic.
#[derive(Args, Debug)]
pub(crate) struct Targets {
    /// The key, written as it is shown; or, with --in, conditions such as key:order:*.
    #[arg(value_name = "KEY|FILTER")]
    pub(crate) what: Vec<String>,
    /// The topic of many.
    #[arg(long = "in", value_name = "TOPIC")]
    pub(crate) within: Option<String>,
    /// The topic of the one key, where several have patterns that match it.
    #[arg(long, value_name = "NAME", conflicts_with = "within")]
    pub(crate) topic: Option<String>,
    /// Which of the topic's entries: waiting, running or quarantined.
    #[arg(long, value_name = "STATE", default_value = "waiting", requires = "within")]
    pub(crate) state: EntryState,
    /// Begin behind where another run has ended.
    #[arg(long, value_name = "PLACE", requires = "within")]
    pub(crate) after: Option<Cursor>,
    #[command(flatten)]
    pub(crate) bulk: Bulk,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_span(text) {
        Ok(span) if span.is_zero() => Err("an answer takes more than no time".to_owned()),
        span => span.map_err(|error| error.to_string()),
    }
}

//! Options that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use keylapse_console::{Cursor, EntryState, parse_span};

/// The server, and how to log in to it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection and output")]
pub(crate) struct Connect {
    /// Connect to the server at this URL.
    ///
    /// The schemes are redis://, rediss://, redis+sentinel://, redis+cluster:// and unix://. `valkey` can replace `redis`.
    /// The default is redis://127.0.0.1:6379/.
    #[arg(
        short,
        long,
        global = true,
        env = "KEYLAPSE_URL",
        hide_env_values = true,
        hide_default_value = true,
        default_value = "redis://127.0.0.1:6379/"
    )]
    pub(crate) url: String,
    /// Use this prefix for all names of keylapse in Redis.
    #[arg(
        short,
        long,
        global = true,
        env = "KEYLAPSE_NAMESPACE",
        value_name = "PREFIX",
        hide_short_help = true,
        default_value = "keylapse"
    )]
    pub(crate) namespace: String,
    /// Log in to the server as this user.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Read the password from this file.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Log in to the sentinels as this user.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) sentinel_user: Option<String>,
    /// Read the password for the sentinels from this file.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) sentinel_password_file: Option<PathBuf>,
    /// Trust the CA certificates in this file instead of the system's.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Present the client certificate in this file.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Read the private key of the client certificate from this file.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Require this name in the server's certificate.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub(crate) tls_name: Option<String>,
    /// Wait this long for each answer, and retry each call for this long.
    #[arg(long, global = true, hide_short_help = true, value_name = "SPAN", default_value = "5s", value_parser = parse_timeout)]
    pub(crate) timeout: Duration,
}

/// The format of results.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection and output")]
pub(crate) struct Format {
    /// Print lines of JSON instead of tables.
    ///
    /// docs/json-lines.md describes the fields.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Use colours: `auto` turns them off for NO_COLOR and without a terminal.
    #[arg(long, global = true, hide_short_help = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: clap::ColorChoice,
}

/// The entries of a topic that match a filter.
#[derive(Args, Debug)]
pub(crate) struct ListingArgs {
    /// The name of the topic.
    pub(crate) topic: String,
    /// Select entries that match all conditions, such as key:order:* older:1h.
    ///
    /// The conditions are key:order:*, id:…, attempt:>3, lost:>0, reason:exhausted, error:~timeout, older:1h and newer:1h.
    #[arg(value_name = "FILTER")]
    pub(crate) filters: Vec<String>,
    /// Continue after the cursor that another page printed.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<Cursor>,
}

/// The limits of an action on many entries, and its confirmation.
#[derive(Args, Debug)]
#[command(next_help_heading = "Many at a time")]
pub(crate) struct BulkArgs {
    /// Act on at most this many entries.
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    /// Act on at most this many entries a second, such as 100/s.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: Option<u32>,
    /// Count the entries that match, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation. Requires --expect.
    #[arg(long, requires = "expect")]
    pub(crate) yes: bool,
    /// Change nothing unless exactly this many entries match.
    #[arg(long, value_name = "COUNT")]
    pub(crate) expect: Option<u64>,
}

fn parse_rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse() {
        Ok(rate) if rate > 0 => Ok(rate),
        _ => Err("a rate is a whole number of at least 1, such as 100/s".to_owned()),
    }
}

/// One key, or the entries of a topic that match a filter.
#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// The key as it is printed; with --in, conditions such as key:order:*.
    #[arg(value_name = "KEY|FILTER")]
    pub(crate) what: Vec<String>,
    /// Act on the entries of this topic that match the conditions.
    #[arg(long = "in", value_name = "TOPIC")]
    pub(crate) within: Option<String>,
    /// Choose the topic, if patterns of several topics match the key.
    #[arg(long, value_name = "NAME", conflicts_with = "within")]
    pub(crate) topic: Option<String>,
    /// Act on entries in this state: waiting, running or quarantined.
    #[arg(long, value_name = "STATE", default_value = "waiting", requires = "within")]
    pub(crate) state: EntryState,
    /// Continue after the cursor that another run printed.
    #[arg(long, value_name = "CURSOR", requires = "within")]
    pub(crate) after: Option<Cursor>,
    #[command(flatten)]
    pub(crate) bulk: BulkArgs,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_span(text) {
        Ok(span) if span.is_zero() => Err("a timeout must be longer than 0s".to_owned()),
        span => span.map_err(|error| error.to_string()),
    }
}

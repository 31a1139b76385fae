//! The log of long-running commands, on standard error.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

#[derive(clap::Args, Debug)]
pub(crate) struct Log {
    /// Log this level and more severe ones: error, warn, info or debug.
    #[arg(long, env = "KEYLAPSE_LOG", value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
    /// Write the log as lines of JSON.
    #[arg(long)]
    log_json: bool,
}

pub(crate) fn start(log: &Log) {
    let is_seen = std::io::stderr().is_terminal();
    let to =
        tracing_subscriber::fmt().with_max_level(log.log).with_writer(std::io::stderr).with_ansi(is_seen);
    if log.log_json {
        to.json().init();
    } else {
        to.init();
    }
}

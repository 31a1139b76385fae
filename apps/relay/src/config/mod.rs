//! Reads and checks `keylapse.toml`, and builds topics and deliveries from it.

mod bounds;
mod deliveries;
mod fault;
mod tables;
mod topics;
mod values;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use keylapse::{Attached, Topic};

use self::bounds::{if_within, time};
pub use self::fault::ConfigError;
use self::tables::{File, HeaderTable, TopicTable};
use crate::delivery::Delivery;
use crate::secret::everybody_reads;

/// The largest `concurrency` that a file can set.
const AT_ONCE: usize = 100_000;
const GRACE: Duration = Duration::from_secs(3600);

/// A configuration file that was read and checked.
#[derive(Debug)]
pub struct Config {
    pub(crate) concurrency: Option<usize>,
    pub(crate) grace: Option<Duration>,
    pub(crate) manage_notifications: bool,
    pub(crate) save_requests: bool,
    pub(crate) topics: Vec<RelayTopic>,
    exposed_headers: Vec<String>,
}

/// A topic and its delivery.
#[derive(Debug)]
pub(crate) struct RelayTopic {
    pub(crate) name: String,
    pub(crate) source: TopicSource,
    pub(crate) delivery: Delivery,
}

/// The origin of a topic's timers.
#[derive(Debug)]
pub(crate) enum TopicSource {
    /// Programs arm them through keylapse.
    Managed(Topic<Bytes>),
    /// Other programs write keys that expire.
    Attached(Attached<Bytes>),
}

impl Config {
    /// Reads a file and the secrets that it names.
    ///
    /// # Errors
    /// When the file or a secret cannot be read, or a setting can never work. The message names the line and the remedy.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| ConfigError::whole(format!("cannot read the file: {error}")))?;
        // The file was just read, so its mode can be read, too.
        let is_exposed = everybody_reads(path).unwrap_or_default();
        Self::of(&text, path.parent().unwrap_or(Path::new(".")), is_exposed)
    }

    /// Returns headers that seem to hold secrets, as `topic: header`. Their values are in a file that every user of this
    /// machine can read.
    pub fn exposed_headers(&self) -> &[String] {
        &self.exposed_headers
    }

    /// Reads a text. Relative paths in it start at this folder.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ConfigError> {
        Self::of(text, folder, false)
    }

    fn of(text: &str, folder: &Path, is_exposed: bool) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| ConfigError::of_toml(text, &error))?;
        if file.topics.is_empty() {
            return Err(ConfigError::whole("no topic is configured: write [topics.NAME]"));
        }
        let concurrency =
            if_within("concurrency", file.concurrency, 1..=AT_ONCE).map_err(ConfigError::whole)?;
        let grace = time("grace", file.grace, Duration::ZERO..=GRACE).map_err(ConfigError::whole)?;
        let tables = file.topics.iter().filter(|_| is_exposed);
        let exposed_headers =
            tables.flat_map(|(name, table)| inline_secrets(name, table.get_ref())).collect();
        let relayed = |(name, table): (String, _)| topics::relayed(&name, table, text, folder, concurrency);
        let topics = file.topics.into_iter().map(relayed);
        Ok(Self {
            concurrency,
            grace,
            manage_notifications: file.manage_notifications,
            save_requests: file.save_requests,
            topics: topics.collect::<Result<_, _>>()?,
            exposed_headers,
        })
    }
}

/// Parts of the names of headers that usually hold secrets.
const SECRETS: [&str; 7] = ["authorization", "api-key", "apikey", "cookie", "password", "secret", "token"];

/// Returns headers that seem to hold secrets and whose values are in the file itself.
fn inline_secrets(topic: &str, table: &TopicTable) -> Vec<String> {
    let Some(webhook) = &table.webhook else { return Vec::new() };
    let is_secret = |name: &str| SECRETS.iter().any(|part| name.to_ascii_lowercase().contains(part));
    let headers = webhook.get_ref().headers.iter();
    let inline = headers.filter(|(name, value)| is_secret(name) && matches!(value, HeaderTable::Text(_)));
    inline.map(|(name, _)| format!("{topic}: {name}")).collect()
}

#[cfg(test)]
mod documented;
#[cfg(test)]
#[cfg(unix)]
mod tests;

//! The tables of the file and their settings, before they are checked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use keylapse::attach::Treatment;
use serde::Deserialize;
use toml::Spanned;

use super::values::{Size, Span};
use crate::message::Form;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "the tables of a configuration")]
pub(super) struct File {
    pub(super) concurrency: Option<usize>,
    pub(super) grace: Option<Span>,
    #[serde(default)]
    pub(super) manage_notifications: bool,
    #[serde(default)]
    pub(super) save_requests: bool,
    pub(super) topics: BTreeMap<String, Spanned<TopicTable>>,
}

/// `[topics.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table, as in [topics.NAME]")]
pub(super) struct TopicTable {
    /// The pattern of keys that other programs write.
    pub(super) attach: Option<Spanned<String>>,
    /// The pattern of timers that are armed through keylapse.
    pub(super) pattern: Option<Spanned<String>>,
    pub(super) webhook: Option<Spanned<WebhookTable>>,
    pub(super) forward: Option<Spanned<ForwardTable>>,
    pub(super) exec: Option<Spanned<ExecTable>>,
    /// How messages encode values.
    pub(super) value_format: Option<Form>,

    pub(super) retry: Option<RetryTable>,
    pub(super) max_attempts: Option<u32>,
    pub(super) max_age: Option<Span>,
    pub(super) max_snoozes: Option<u16>,
    pub(super) lease: Option<Span>,
    pub(super) concurrency: Option<usize>,
    pub(super) partitions: Option<u32>,
    pub(super) dead_letters: Option<KeepTable>,
    pub(super) journal: Option<KeepTable>,

    pub(super) marker_keys: Option<bool>,

    pub(super) allow_any_prefix: Option<bool>,
    pub(super) keep_values: Option<Size>,
    pub(super) keep_fields: Option<Vec<String>>,
    pub(super) untracked: Option<Treatment>,
    pub(super) vanished: Option<Treatment>,
    pub(super) recovered: Option<Treatment>,
    pub(super) revision: Option<u32>,
    pub(super) cap: Option<usize>,
    pub(super) scan_rate: Option<u32>,
    pub(super) scan_every: Option<Span>,
}

/// The backoff schedule. One of the three forms is set.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table: { every = \"…\" }, { after = [\"…\"] } or { from = \"…\", to = \"…\" }"
)]
pub(super) struct RetryTable {
    /// The delay before every retry.
    pub(super) every: Option<Span>,
    /// The delay before each retry. Unless `max-attempts` is set, the timer is a dead letter after the last.
    pub(super) after: Option<Vec<Span>>,
    /// The first bound of random delays, which doubles with each retry.
    pub(super) from: Option<Span>,
    /// The last bound of random delays.
    pub(super) to: Option<Span>,
}

/// How many dead letters or journal entries are kept, and for how long.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table: { count = …, age = \"…\" }")]
pub(super) struct KeepTable {
    pub(super) count: u64,
    pub(super) age: Span,
    #[serde(default)]
    pub(super) pause_when_full: bool,
}

/// `[topics.NAME.webhook]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table, as in [topics.NAME.webhook]")]
pub(super) struct WebhookTable {
    pub(super) url: Spanned<String>,
    pub(super) hosts: Option<Spanned<Vec<String>>>,
    pub(super) secret: SecretTable,
    pub(super) previous_secret: Option<SecretTable>,
    pub(super) timeout: Option<Span>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, HeaderTable>,
    #[serde(default)]
    pub(super) allow_addresses: Vec<Spanned<String>>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) per_host: Option<usize>,
    pub(super) circuit: Option<CircuitTable>,
}

/// The value of a header.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "the value of a header is a string, { file = \"…\" } or { env = \"…\" }")]
pub(super) enum HeaderTable {
    Text(String),
    Elsewhere(SecretTable),
}

/// The source of a secret, which is never in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table: { file = \"…\" } or { env = \"…\" }"
)]
pub(super) struct SecretTable {
    pub(super) file: Option<PathBuf>,
    pub(super) env: Option<String>,
}

/// When a failing host is not called for a while.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table: { failures = …, open-for = \"…\" }"
)]
pub(super) struct CircuitTable {
    pub(super) failures: u32,
    pub(super) open_for: Span,
}

/// `[topics.NAME.forward]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table, as in [topics.NAME.forward]")]
pub(super) struct ForwardTable {
    pub(super) list: Option<String>,
    pub(super) stream: Option<String>,
    pub(super) max_length: Option<u64>,
    pub(super) deduplicate_for: Option<Span>,
}

/// `[topics.NAME.exec]`.
#[cfg_attr(not(unix), allow(dead_code))] // `exec` is refused there
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table, as in [topics.NAME.exec]")]
pub(super) struct ExecTable {
    pub(super) argv: Spanned<Vec<String>>,
    pub(super) directory: Option<PathBuf>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    pub(super) timeout: Option<Span>,
    pub(super) max_output: Option<Size>,
}

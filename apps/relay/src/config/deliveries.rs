//! Builds the delivery of a topic from its table `webhook`, `forward` or `exec`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use keylapse::forward::ForwardTo;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use toml::Spanned;

use super::AT_ONCE;
use super::bounds::{DAY, if_within, time, within};
use super::fault::ConfigError;
use super::tables::{
    CircuitTable, ExecTable, ForwardTable, HeaderTable, SecretTable, TopicTable, WebhookTable,
};
use super::topics::TableContext;
use crate::delivery::Delivery;
#[cfg(unix)]
use crate::exec::Exec;
use crate::forward::Forward;
use crate::message::Form;
use crate::secret::{Secret, SecretPlace};
use crate::webhook::{Allowed, Limits, Settings, Template, Webhook, tls};

const TIMEOUT: Duration = Duration::from_secs(15);
/// Deliveries of a topic that run at a time, unless the file sets `concurrency`.
const PER_TOPIC: usize = 100;
/// Calls at a time to each host of a template: fewer, so that a slow host leaves capacity to the others.
const PER_HOST_OF_MANY: usize = 20;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(600);
const CIRCUIT: Limits = Limits { failures: 10, wait: Duration::from_secs(30) };
/// Headers that keylapse or HTTP sets. A file cannot set them.
const OURS: [&str; 13] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];
/// The most headers that a file can add.
const HEADERS: usize = 32;
/// The most bytes of their names and values together.
const HEADER_BYTES: usize = 8 << 10;
#[cfg(unix)]
const OUTPUT: usize = 16 << 10;
#[cfg(unix)]
const MOST_OUTPUT: usize = 1 << 20;
const MOST_MEMBERS: u64 = 1_000_000_000;

pub(super) fn delivery(
    at: &TableContext<'_>,
    span: &Range<usize>,
    table: &mut TopicTable,
) -> Result<Delivery, ConfigError> {
    let form = table.value_format.unwrap_or_default();
    match (table.webhook.take(), table.forward.take(), table.exec.take()) {
        (Some(webhook), None, None) => webhook_of(at, webhook, table.concurrency, form)
            .map(|webhook| Delivery::Webhook(Box::new(webhook))),
        (None, Some(forward), None) => forward_of(at, forward, form).map(Delivery::Forward),
        (None, None, Some(_)) if table.value_format.is_some() => Err(at.refuse(
            span,
            "value-format is a setting of topics with .webhook or .forward: a program reads the bytes",
        )),
        (None, None, Some(exec)) => exec_of(at, exec),
        _ => {
            let name = at.name;
            let what = format!("write exactly one delivery: [topics.{name}.webhook], .forward or .exec");
            Err(at.refuse(span, what))
        }
    }
}

fn webhook_of(
    at: &TableContext<'_>,
    table: Spanned<WebhookTable>,
    at_once: Option<usize>,
    form: Form,
) -> Result<Webhook, ConfigError> {
    let (span, table) = (table.span(), table.into_inner());
    let refuse = |why: String| at.refuse(&span, why);
    let hosts = table.hosts.as_ref().map_or(&[][..], |hosts| hosts.get_ref());
    let template = Template::read(table.url.get_ref(), hosts);
    let template = template.map_err(|why| at.refuse(&table.url.span(), why))?;
    if template.is_fixed() && table.hosts.is_some() {
        return Err(refuse("`hosts` is only for a URL with {…} in it".to_owned()));
    }
    let secrets = std::iter::once(&table.secret).chain(&table.previous_secret);
    let secrets =
        secrets.map(|table| Secret::read(&place(at, table)?)).collect::<Result<_, _>>().map_err(refuse)?;
    let settings = Settings {
        allowed: Allowed::read(table.allow_addresses.iter().map(|one| one.get_ref().as_str()))
            .map_err(refuse)?,
        secrets,
        headers: headers(at, &table.headers).map_err(refuse)?,
        timeout: time("timeout", table.timeout, SHORTEST..=LONGEST).map_err(refuse)?.unwrap_or(TIMEOUT),
        per_host: per_host(&table, template.is_fixed(), at_once).map_err(refuse)?,
        at_once: at_once.unwrap_or(PER_TOPIC).min(at.at_once.unwrap_or(AT_ONCE)),
        circuit: table.circuit.as_ref().map_or(Ok(CIRCUIT), circuit).map_err(refuse)?,
        tls: tls::trusting(table.ca_file.map(|file| at.folder.join(file)).as_deref()).map_err(refuse)?,
        template,
        form,
    };
    Webhook::new(at.name, settings).map_err(refuse)
}

/// Returns how many calls to one host run at a time. The default for a fixed URL is the concurrency of the topic.
fn per_host(table: &WebhookTable, is_fixed: bool, at_once: Option<usize>) -> Result<usize, String> {
    let usual = if is_fixed { at_once.unwrap_or(PER_TOPIC) } else { PER_HOST_OF_MANY };
    Ok(if_within("per-host", table.per_host, 1..=AT_ONCE)?.unwrap_or(usual))
}

fn circuit(table: &CircuitTable) -> Result<Limits, String> {
    let failures = within("circuit.failures", table.failures, 1..=1_000_000)?;
    Ok(Limits { failures, wait: within("circuit.open-for", table.open_for.0, SHORTEST..=DAY)? })
}

fn place(at: &TableContext<'_>, table: &SecretTable) -> Result<SecretPlace, String> {
    match (&table.file, &table.env) {
        (Some(file), None) => Ok(SecretPlace::File(at.folder.join(file))),
        (None, Some(name)) => Ok(SecretPlace::Env(name.clone())),
        _ => Err("a secret is { file = \"…\" } or { env = \"…\" }".to_owned()),
    }
}

fn headers(at: &TableContext<'_>, table: &BTreeMap<String, HeaderTable>) -> Result<HeaderMap, String> {
    let (mut headers, mut bytes) = (HeaderMap::new(), 0);
    for (name, value) in table {
        let read: HeaderName = name.parse().map_err(|_| format!("invalid header name {name:?}"))?;
        if OURS.contains(&read.as_str()) {
            return Err(format!("keylapse sets the header {read} itself: remove it"));
        }
        let mut value = HeaderValue::from_str(&text(at, value)?)
            .map_err(|_| format!("invalid value of the header {read}"))?;
        // The value may be a token, which debug output must not show.
        value.set_sensitive(true);
        bytes += name.len() + value.len();
        headers.insert(read, value);
    }
    if table.len() > HEADERS || bytes > HEADER_BYTES {
        return Err("`headers` can have at most 32 headers, of 8 KiB together".to_owned());
    }
    Ok(headers)
}

fn text(at: &TableContext<'_>, value: &HeaderTable) -> Result<String, String> {
    match value {
        HeaderTable::Text(text) => Ok(text.clone()),
        HeaderTable::Elsewhere(table) => {
            let place = place(at, table)?;
            let text = place.read()?;
            if text.is_empty() { Err(format!("{place} is empty")) } else { Ok(text) }
        }
    }
}

fn forward_of(
    at: &TableContext<'_>,
    table: Spanned<ForwardTable>,
    form: Form,
) -> Result<Forward, ConfigError> {
    let (span, table) = (table.span(), table.into_inner());
    let refuse = |why: String| at.refuse(&span, why);
    let to = match (table.list, table.stream) {
        (Some(list), None) if !list.is_empty() => ForwardTo::list(list),
        (None, Some(stream)) if !stream.is_empty() => ForwardTo::stream(stream),
        _ => {
            return Err(refuse("write either `list` or `stream`: the key that receives messages".to_owned()));
        }
    };
    let room = if_within("max-length", table.max_length, 1..=MOST_MEMBERS).map_err(refuse)?;
    let deduplicate_for = time("deduplicate-for", table.deduplicate_for, Duration::from_secs(60)..=DAY * 366)
        .map_err(refuse)?;
    let to = to.max_length(room.unwrap_or_default());
    let to = match deduplicate_for {
        Some(time) => to.deduplicate_for(time),
        None => to,
    };
    Ok(Forward::new(to, form))
}

#[cfg(not(unix))]
fn exec_of(at: &TableContext<'_>, table: Spanned<ExecTable>) -> Result<Delivery, ConfigError> {
    Err(at.refuse(&table.span(), "programs run only on Unix"))
}

#[cfg(unix)]
fn exec_of(at: &TableContext<'_>, table: Spanned<ExecTable>) -> Result<Delivery, ConfigError> {
    let (span, table) = (table.span(), table.into_inner());
    let refuse = |why: String| at.refuse(&span, why);
    let argv = table.argv.get_ref();
    let is_whole = |word: &String| !word.contains('\0');
    if argv.first().is_none_or(String::is_empty) || !argv.iter().all(is_whole) {
        return Err(at.refuse(
            &table.argv.span(),
            "`argv` is a program and its arguments, as in [\"/usr/bin/php\", \"close.php\"]",
        ));
    }
    let is_variable = |(name, value): (&String, &String)| {
        !name.is_empty() && !name.contains(['=', '\0']) && is_whole(value)
    };
    if let Some((name, _)) = table.env.iter().find(|(name, value)| !is_variable((name, value))) {
        return Err(refuse(format!(
            "invalid environment variable {name:?}: a name has no `=`, and neither it nor the value has a NUL"
        )));
    }
    let timeout = time("timeout", table.timeout, SHORTEST..=DAY).map_err(refuse)?;
    let max_output = table.max_output.map_or(OUTPUT, |size| size.0);
    Ok(Delivery::Exec(Exec {
        argv: argv.clone(),
        directory: table.directory.map(|folder| at.folder.join(folder)),
        env: table.env,
        timeout: timeout.unwrap_or(Duration::from_secs(60)),
        max_output: within("max-output", max_output, 0..=MOST_OUTPUT).map_err(refuse)?,
    }))
}

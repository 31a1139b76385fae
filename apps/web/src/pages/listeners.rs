//! The page of listeners: their state, topics and event modes.

use askama::Template;
use axum::response::Response;
use keylapse::fleet::ListenerReport;
use keylapse_console::format::{brief, short};
use keylapse_console::{counted, show_count};

use super::error_page::ErrorPage;
use super::frame::{Frame, PageRequest, answer};

/// Maximum listeners, and maximum topics of each.
const LISTENERS: usize = 500;
const TOPICS: usize = 20;

#[derive(Template)]
#[template(path = "listeners.html")]
struct Page {
    frame: Frame,
    rows: Vec<Row>,
    all: String,
    more: String,
}

struct Row {
    /// Age of the last report, if the listener is silent.
    silent: Option<String>,
    is_stalled: bool,
    host: String,
    pid: u32,
    version: String,
    running: String,
    nodes: Vec<NodeRow>,
    topics: Vec<(String, String)>,
    more_topics: usize,
}

struct NodeRow {
    name: String,
    mode: String,
    /// Why the listener may miss events; empty if it does not.
    gap: String,
}

pub(super) async fn show(visit: PageRequest) -> Result<Response, ErrorPage> {
    let (fleet, age) = visit.ask(visit.shared.samples.fleet(&visit.shared.console)).await?;
    let frame = visit.frame("listeners").aged(age);
    let is_silent =
        |report: &&ListenerReport| fleet.silent_listeners.iter().any(|silent| silent.id == report.id);
    let reporting: Vec<_> = fleet.listeners.iter().filter(|report| !is_silent(report)).collect();
    // Silent listeners first, because they need attention.
    let silent = fleet.silent_listeners.iter().map(|report| (report, Some(brief(report.age_ms))));
    let all = silent.chain(reporting.iter().map(|report| (*report, None)));
    let rows = all.take(LISTENERS).map(|(report, silent)| row(report, silent, &visit, &frame)).collect();
    let count = fleet.silent_listeners.len() + reporting.len();
    let mut all = counted(count as u64, "listener");
    if !fleet.silent_listeners.is_empty() {
        all = format!("{all}, {} of them silent", show_count(fleet.silent_listeners.len() as u64));
    }
    let more = count.saturating_sub(LISTENERS);
    let more = if more > 0 { counted(more as u64, "more listener") } else { String::new() };
    Ok(answer(&Page { frame, rows, all, more }))
}

fn row(report: &ListenerReport, silent: Option<String>, visit: &PageRequest, frame: &Frame) -> Row {
    let names: Vec<_> = report.topics.keys().filter(|name| visit.who.may(name)).collect();
    let node = |node: &keylapse::fleet::NodeReport| NodeRow {
        name: short(&node.node, 120),
        mode: short(&node.mode, 40),
        gap: short(node.gap.as_deref().unwrap_or_default(), 300),
    };
    let topic = |name: &String| (short(name, 128), frame.topic(name));
    Row {
        silent,
        is_stalled: report.handlers_stalled_ms.is_some(),
        host: short(&report.host, 60),
        pid: report.pid,
        version: short(&report.version, 20),
        running: report.capacity(),
        nodes: report.nodes.iter().map(node).collect(),
        topics: names.iter().take(TOPICS).map(|name| topic(name)).collect(),
        more_topics: names.len().saturating_sub(TOPICS),
    }
}

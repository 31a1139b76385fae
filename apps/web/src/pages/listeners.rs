//! Who listens, to what, and how well it hears.

use askama::Template;
use axum::response::Response;
use keylapse::fleet::ListenerReport;
use keylapse_console::words::{brief, short};
use keylapse_console::{counted, show_count};

use super::frame::{Frame, Visit, answer};
use super::trouble::Trouble;

/// Listeners and topics of each that are shown.
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
    /// Since when it is silent.
    silent: Option<String>,
    is_stalled: bool,
    host: String,
    pid: u32,
    version: String,
    running: String,
    nodes: Vec<Node>,
    topics: Vec<(String, String)>,
    more_topics: usize,
}

struct Node {
    name: String,
    mode: String,
    /// Why it may miss something.
    gap: String,
}

pub(super) async fn show(visit: Visit) -> Result<Response, Trouble> {
    let (fleet, age) = visit.ask(visit.shared.samples.fleet(&visit.shared.console)).await?;
    let frame = visit.frame("listeners").aged(age);
    let is_silent = |report: &&ListenerReport| fleet.silent.iter().any(|silent| silent.id == report.id);
    let reporting: Vec<_> = fleet.listeners.iter().filter(|report| !is_silent(report)).collect();
    // Those first that somebody has to look at.
    let silent = fleet.silent.iter().map(|report| (report, Some(brief(report.age_ms))));
    let all = silent.chain(reporting.iter().map(|report| (*report, None)));
    let rows = all.take(LISTENERS).map(|(report, silent)| row(report, silent, &visit, &frame)).collect();
    let count = fleet.silent.len() + reporting.len();
    let mut all = counted(count as u64, "listener");
    if !fleet.silent.is_empty() {
        all = format!("{all}, {} of them silent", show_count(fleet.silent.len() as u64));
    }
    let more = count.saturating_sub(LISTENERS);
    let more = if more > 0 { counted(more as u64, "more listener") } else { String::new() };
    Ok(answer(&Page { frame, rows, all, more }))
}

fn row(report: &ListenerReport, silent: Option<String>, visit: &Visit, frame: &Frame) -> Row {
    let names: Vec<_> = report.topics.keys().filter(|name| visit.who.may(name)).collect();
    let node = |node: &keylapse::fleet::NodeReport| Node {
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
        running: report.places(),
        nodes: report.nodes.iter().map(node).collect(),
        topics: names.iter().take(TOPICS).map(|name| topic(name)).collect(),
        more_topics: names.len().saturating_sub(TOPICS),
    }
}

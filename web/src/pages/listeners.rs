//! Who listens, to what, and how well it hears.

use askama::Template;
use axum::response::Response;
use keylapse::ListenerReport;
use keylapse::console::counted;
use keylapse::console::words::short;

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
    let listeners = visit.ask(visit.shared.samples.listeners(&visit.shared.console)).await?;
    let frame = visit.frame("listeners");
    let rows = listeners.iter().take(LISTENERS).map(|report| row(report, &visit, &frame)).collect();
    let all = counted(listeners.len() as u64, "listener");
    let more = listeners.len().saturating_sub(LISTENERS);
    let more = if more > 0 { counted(more as u64, "more listener") } else { String::new() };
    Ok(answer(&Page { frame, rows, all, more }))
}

fn row(report: &ListenerReport, visit: &Visit, frame: &Frame) -> Row {
    let names: Vec<_> = report.topics.keys().filter(|name| visit.who.may(name)).collect();
    let node = |node: &keylapse::NodeReport| Node {
        name: short(&node.node, 120),
        mode: short(&node.mode, 40),
        gap: short(node.gap.as_deref().unwrap_or_default(), 300),
    };
    let topic = |name: &String| (short(name, 128), frame.topic(name));
    Row {
        host: short(&report.host, 60),
        pid: report.pid,
        version: short(&report.version, 20),
        running: report.places(),
        nodes: report.nodes.iter().map(node).collect(),
        topics: names.iter().take(TOPICS).map(|name| topic(name)).collect(),
        more_topics: names.len().saturating_sub(TOPICS),
    }
}

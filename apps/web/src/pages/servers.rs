//! The page of servers, with the findings of the doctor.

use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use keylapse_console::doctor::{Diagnosis, Finding, Severity};
use tokio::time::timeout;

use super::error_page::ErrorPage;
use super::frame::{Frame, PageRequest, answer};
use super::samples::Age;
use crate::doctor::answers;

const REFRESH_MS: u32 = 60_000;
const REFRESH_BROKEN_MS: u32 = 3000;
/// Longer than the doctor tries a server that is away.
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(20);
#[derive(Template)]
#[template(path = "servers.html")]
struct Page {
    frame: Frame,
    errors: usize,
    warnings: usize,
    answers: bool,
    servers: usize,
    groups: Vec<FindingGroup>,
}

/// The findings of a server, or of the topics.
struct FindingGroup {
    name: String,
    is_server: bool,
    bad: Vec<Finding>,
    good: Vec<Finding>,
}

pub(super) async fn show(visit: PageRequest) -> Result<Response, ErrorPage> {
    visit.may_all()?;
    let shared = &visit.shared;
    let look = timeout(DOCTOR_TIMEOUT, shared.doctor.look(&shared.console));
    let (diagnosis, read) =
        look.await.map_err(|_| ErrorPage::silent(visit.frame("servers"), DOCTOR_TIMEOUT))?;
    let answers = answers(&diagnosis);
    let refresh_ms = if answers { REFRESH_MS } else { REFRESH_BROKEN_MS };
    let frame = visit.frame("servers").every(refresh_ms).aged(Age { read, reports: None });
    let (errors, warnings) = (diagnosis.errors(), diagnosis.warnings());
    let groups = groups(&diagnosis);
    let servers = groups.iter().filter(|group| group.is_server).count();
    let page = Page { frame, errors, warnings, answers, servers, groups };
    let status = if answers { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, answer(&page)).into_response())
}

fn groups(diagnosis: &Diagnosis) -> Vec<FindingGroup> {
    let mut groups: Vec<FindingGroup> = Vec::new();
    for finding in &diagnosis.findings {
        let name = finding.node.as_deref().unwrap_or("Topics");
        if groups.last().is_none_or(|group| group.name != name) {
            let is_server = finding.node.is_some();
            groups.push(FindingGroup { name: name.to_owned(), is_server, bad: Vec::new(), good: Vec::new() });
        }
        let Some(group) = groups.last_mut() else { continue };
        match finding.severity {
            Severity::Info => group.good.push(finding.clone()),
            _ => group.bad.push(finding.clone()),
        }
    }
    // The worst first.
    groups.iter_mut().for_each(|group| group.bad.sort_by_key(|finding| std::cmp::Reverse(finding.severity)));
    groups
}

//! What is looked at on each server, one thing a file.

mod buffers;
mod canary;
mod clock;
mod database;
mod eviction;
mod flags;
mod lua;
mod measure;
mod persistence;
mod predicted;
mod reach;
mod replication;
mod rights;
mod role;
mod settings;
mod slots;
mod transport;
mod url;
mod version;
mod wake_ups;

use std::time::Duration;

use crate::error::Result;

use super::case::Case;
use super::codes;
use super::patient::Patient;

/// Goes over one server, up to where it answers no more.
pub(super) async fn examine(patient: Patient, measure: Option<Duration>) -> Case {
    let mut case = Case::new(patient);
    if reach::check(&mut case).await
        && let Err(error) = go_over(&mut case, measure).await
    {
        case.say(&codes::LOST, error.to_string());
    }
    case
}

/// Looks only at what the URL leads to, and whether that serves anybody.
pub(super) async fn glance(patient: Patient) -> Case {
    let mut case = Case::new(patient);
    if reach::check(&mut case).await
        && let Err(error) = serves(&mut case).await
    {
        case.say(&codes::UNREACHABLE, error.to_string());
    }
    case
}

/// Returns whether it is worth asking further: the first reason why not is all that is said.
async fn serves(case: &mut Case) -> Result<bool> {
    if !url::check(case).await {
        return Ok(false);
    }
    if case.info.number("loading") == Some(1) {
        let left = case.info.get("loading_eta_seconds").unwrap_or("some").to_owned();
        case.say(&codes::LOADING, format!("about {left} s are left, as it reckons"));
        return Ok(false);
    }
    Ok(slots::check(case).await?
        && version::check(case)
        && role::check(case)
        && database::check(case).await?)
}

async fn go_over(case: &mut Case, measure: Option<Duration>) -> Result<()> {
    case.serves = serves(case).await?;
    if !case.serves {
        return Ok(());
    }
    case.clocks = clock::read(case).await?;
    transport::check(case);
    settings::read(case).await?;
    flags::check(case);
    buffers::check(case);
    eviction::check(case);
    persistence::check(case);
    replication::check(case);
    predicted::check(case);
    lua::check(case).await?;
    let heard = canary::check(case).await?;
    rights::check(case).await?;
    if let (Some(window), Some(earshot)) = (measure, heard) {
        measure::check(case, earshot, window).await?;
    }
    clock::check(case).await
}

//! A topic as a whole: paused and resumed.

use axum::Form;
use axum::response::Response;
use keylapse::console::Became;
use serde::Deserialize;

use super::back;
use crate::act::{Act, Did};
use crate::asking::check_reason;
use crate::pages::frame::Visit;
use crate::pages::trouble::Trouble;

#[derive(Debug, Deserialize)]
pub(in crate::pages) struct Wanted {
    topic: String,
    verb: String,
    #[serde(default)]
    reason: String,
}

pub(in crate::pages) async fn topic(visit: Visit, Form(wanted): Form<Wanted>) -> Result<Response, Trouble> {
    visit.may(&wanted.topic)?;
    let (verb, became) = match wanted.verb.as_str() {
        "pause" => ("pause", Became::PAUSED),
        "resume" => ("resume", Became::RESUMED),
        _ => return Err(visit.refuse("verb is pause or resume")),
    };
    check_reason(wanted.reason.trim()).map_err(|why| visit.refuse(why))?;
    let name = wanted.topic.clone();
    let topic = visit.ask(visit.shared.console.topic(&name)).await?;
    let act = Act { verb, topic: topic.clone(), what: wanted.reason.clone() };
    let deed = async move {
        match verb {
            "pause" => topic.pause(wanted.reason.trim()).await?,
            _ => topic.resume().await?,
        }
        Ok(Did::one(became, ()))
    };
    visit.act(act, deed).await?;
    Ok(back(&visit, &name, "/topic", &[("name", &name)], became).await)
}

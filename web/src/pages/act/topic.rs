//! A topic as a whole: paused, resumed, and its hosts called.

use axum::Form;
use axum::response::Response;
use serde::Deserialize;

use super::back;
use crate::act::Act;
use crate::asking::{check_destination, check_reason};
use crate::pages::frame::Visit;
use crate::pages::trouble::Trouble;

#[derive(Debug, Deserialize)]
pub(in crate::pages) struct Wanted {
    topic: String,
    verb: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    destination: String,
}

pub(in crate::pages) async fn topic(visit: Visit, Form(wanted): Form<Wanted>) -> Result<Response, Trouble> {
    visit.may(&wanted.topic)?;
    let verb = match wanted.verb.as_str() {
        "pause" => "pause",
        "resume" => "resume",
        "try-now" => return try_now(&visit, wanted).await,
        _ => return Err(visit.refuse("verb is pause, resume or try-now")),
    };
    check_reason(wanted.reason.trim()).map_err(|why| visit.refuse(why))?;
    let name = wanted.topic.clone();
    let topic = visit.ask(visit.shared.console.topic(&name)).await?;
    let act = Act { verb, topic: topic.clone(), what: wanted.reason.clone() };
    let deed = async move {
        match verb {
            "pause" => topic.pause(wanted.reason.trim()).await,
            _ => topic.resume().await,
        }
    };
    let done = visit.act(act, deed).await?;
    Ok(back(&visit, "/topic", &[("name", &name)], &done).await)
}

/// A host that holds work back is called.
async fn try_now(visit: &Visit, wanted: Wanted) -> Result<Response, Trouble> {
    let Wanted { topic: name, destination, .. } = wanted;
    let shared = &visit.shared;
    let look = async {
        let topic = shared.console.topic(&name).await?;
        Ok((shared.samples.topic(&shared.console, &topic).await?.status, topic))
    };
    let (status, topic) = visit.ask(look).await?;
    check_destination(&status, &destination).map_err(|why| visit.refuse(why))?;
    let (act, console) = (Act::try_now(&topic, &destination), shared.console.clone());
    let deed = async move { console.try_now(topic.name(), &destination).await };
    let done = visit.act(act, deed).await?;
    Ok(back(visit, "/hosts", &[("topic", &name)], &done).await)
}

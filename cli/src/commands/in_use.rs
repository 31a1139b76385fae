//! Why a topic stays as it is, and what an operator can do: the library's own advice is for who writes a program.

use keylapse_console::{Console, KnownTopic};

use crate::exit::Failed;
use crate::output::{counted, short};

/// What is done to a topic once nothing is in the way.
#[derive(Clone, Copy)]
pub(super) enum End {
    Destroyed,
    Detached,
}

/// Who serves it, or what it holds, where the library has said that it is in use.
pub(super) async fn refusal(console: &Console, topic: &KnownTopic, end: End) -> Result<Failed, Failed> {
    let name = topic.name();
    let otherwise = match end {
        End::Destroyed => "or say --force".to_owned(),
        End::Detached => {
            format!("replay or drop letters, or remove all by `keylapse destroy {name} --force`")
        }
    };
    let listeners = console.listeners().await?;
    if let Some(one) = listeners.iter().find(|listener| listener.serves(name)) {
        let who = format!("{} (process {})", short(&one.host, 40), one.pid);
        return Ok(Failed::Findings(format!(
            "{name} is served by a listener on {who}: stop it, {otherwise}; one that was killed counts for 15 s"
        )));
    }
    let held = topic.overview().await?;
    let more = match end {
        End::Destroyed => (held.enrolled, "enrolled key"),
        End::Detached => (held.dead, "dead letter"),
    };
    let counts = [(held.timers, "timer"), more].into_iter();
    let there: Vec<_> =
        counts.filter(|(count, _)| *count > 0).map(|(count, what)| counted(count, what)).collect();
    let there = if there.is_empty() { "something a moment ago".to_owned() } else { there.join(" and ") };
    Ok(Failed::Findings(format!("{name} holds {there}: let timers end or cancel them, {otherwise}")))
}

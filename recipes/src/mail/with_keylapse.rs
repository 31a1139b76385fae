//! Mails of several kinds. The kind is part of the payload, so the compiler knows them all; how urgent
//! each is decides its topic, and each topic has a priority.

use std::time::{Duration, SystemTime};

use keylapse::{Backoff, Done, Lapse, Listener, Priority, Schedule, Topic, shutdown_signal};
use serde::{Deserialize, Serialize};

use crate::stage::World;

/// What is sent, as JSON such as `{"kind":"news","to":"ann@example.com"}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)] // as they say
pub enum Mail {
    Password { to: String },
    Receipt { to: String, cents: u64 },
    News { to: String },
}

impl Mail {
    /// Who waits for it.
    pub fn priority(&self) -> Priority {
        match self {
            Self::Password { .. } => Priority::High,
            Self::Receipt { .. } => Priority::Normal,
            Self::News { .. } => Priority::Low,
        }
    }
}

/// When all have due mails, 6 of 10 places go to high, 3 to normal, 1 to low: nobody starves. A mail of
/// a kind that this program does not know is put off for an hour, for a newer one to take it; then it is
/// a dead letter, with its payload.
pub fn mails(priority: Priority) -> keylapse::Result<Topic<Mail>> {
    let topic = match priority {
        Priority::High => Topic::new("mail:high:{id}")?,
        Priority::Low => Topic::new("mail:low:{id}")?,
        _ => Topic::new("mail:normal:{id}")?,
    };
    let retry = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60));
    Ok(topic.priority(priority).retry(retry).lease(Duration::from_secs(2)))
}

/// Sends a mail: now, or later. There is no other queue for those.
pub async fn send(schedule: &Schedule, id: &str, mail: &Mail, due: SystemTime) -> keylapse::Result<()> {
    schedule.arm(&mails(mail.priority())?, id, due, mail).await.map(drop)
}

/// Runs for each mail.
pub async fn deliver(lapse: Lapse<Mail>, world: World) -> anyhow::Result<Done> {
    let (to, subject) = match lapse.payload() {
        Mail::Password { to } => (to, "Your new password".to_owned()),
        Mail::Receipt { to, cents } => (to, format!("You have paid {cents} cents")),
        Mail::News { to } => (to, "What is new".to_owned()),
    };
    world.act(lapse.capture("id").unwrap_or_default(), &lapse.id()).await?;
    println!("{subject}: sent to {to}");
    Ok(Done)
}

/// Delivers mails, four at a time, until it is told to stop.
pub async fn work(url: &str, world: World) -> keylapse::Result<()> {
    let listener = Listener::builder(url).concurrency(4).state(world);
    let listener = listener.on(mails(Priority::High)?, deliver).on(mails(Priority::Normal)?, deliver);
    listener.on(mails(Priority::Low)?, deliver).build()?.run_until(shutdown_signal()).await
}

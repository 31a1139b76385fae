//! Mails of several kinds. The kind is part of the payload, so the compiler checks that all are handled.
//! Each kind has a priority, and each priority has a topic.

use std::time::{Duration, SystemTime};

use keylapse::{Backoff, Done, Lapse, Listener, Priority, Schedule, Topic, shutdown_signal};
use serde::{Deserialize, Serialize};

use crate::stage::World;

/// The payload of a mail, as JSON such as `{"kind":"news","to":"ann@example.com"}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)] // the names are enough
pub enum Mail {
    Password { to: String },
    Receipt { to: String, cents: u64 },
    News { to: String },
}

impl Mail {
    /// Returns the priority of this kind of mail.
    pub fn priority(&self) -> Priority {
        match self {
            Self::Password { .. } => Priority::High,
            Self::Receipt { .. } => Priority::Normal,
            Self::News { .. } => Priority::Low,
        }
    }
}

/// Returns the topic of a priority. If all three have due mails, 6 of 10 slots go to high, 3 to normal and
/// 1 to low, so no topic starves. A mail of an unknown kind is retried for an hour, so that a newer program
/// can deliver it. It then becomes a dead letter with its payload.
pub fn mails(priority: Priority) -> keylapse::Result<Topic<Mail>> {
    let topic = match priority {
        Priority::High => Topic::new("mail:high:{id}")?,
        Priority::Low => Topic::new("mail:low:{id}")?,
        _ => Topic::new("mail:normal:{id}")?,
    };
    let retry = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60));
    Ok(topic.priority(priority).retry(retry).lease(Duration::from_secs(2)))
}

/// Sends a mail that is delivered when it is due: immediately or later.
pub async fn send(schedule: &Schedule, id: &str, mail: &Mail, due: SystemTime) -> keylapse::Result<()> {
    schedule.arm(&mails(mail.priority())?, id, due, mail).await.map(drop)
}

/// Delivers a mail.
pub async fn deliver(lapse: Lapse<Mail>, world: World) -> anyhow::Result<Done> {
    let (to, subject) = match lapse.payload() {
        Mail::Password { to } => (to, "Your new password".to_owned()),
        Mail::Receipt { to, cents } => (to, format!("You have paid {cents} cents")),
        Mail::News { to } => (to, "News of the week".to_owned()),
    };
    world.act(lapse.capture("id").unwrap_or_default(), &lapse.id()).await?;
    println!("{subject}: sent to {to}");
    Ok(Done)
}

/// Delivers mails, four at a time, until SIGTERM or Ctrl-C.
pub async fn work(url: &str, world: World) -> keylapse::Result<()> {
    let listener = Listener::builder(url).concurrency(4).state(world);
    let listener = listener.on(mails(Priority::High)?, deliver).on(mails(Priority::Normal)?, deliver);
    listener.on(mails(Priority::Low)?, deliver).build()?.run_until(shutdown_signal()).await
}

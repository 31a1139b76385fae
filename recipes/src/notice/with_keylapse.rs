//! Merchants are told of payments by HTTP, again and again until they answer well. A notice is armed
//! under the key `app:trans:notice:<order>`, with everything that is needed to send it as its payload.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use keylapse::{Backoff, Done, Failure, Lapse, Listener, Schedule, Topic, shutdown_signal};

use super::webhook::{Notice, Sender};

/// The ladder of payment notices is `Backoff::payment_notice()`: after 15 s, 15 s, 30 s, 3 min, 10 min,
/// … 6 h, sixteen attempts in a little more than a day. Then the notice is a dead letter, and can be replayed.
pub fn notices(ladder: Backoff) -> keylapse::Result<Topic<Notice>> {
    Ok(Topic::new("app:trans:notice:{order}")?.retry(ladder).timeout(Duration::from_secs(20)))
}

/// Arms a notice: for now, or for later. The ladder is the listener's affair.
pub async fn announce(schedule: &Schedule, notice: &Notice, due: SystemTime) -> keylapse::Result<()> {
    let topic = notices(Backoff::payment_notice())?;
    let armed = schedule.arm(&topic, &notice.order, due, notice).await?;
    debug_assert!(armed.is_armed(), "an order is paid once");
    Ok(())
}

/// Tells a merchant. It may come to hear of a payment twice, as when its answer was too late; `id` is the
/// same for all attempts, and what it has booked under an id it does not book again.
pub async fn notify(lapse: Lapse<Notice>, sender: Sender) -> anyhow::Result<Done> {
    match post(&sender, lapse.payload(), &lapse.id()).await? {
        answer if answer.is_success() => Ok(Done),
        StatusCode::GONE => Err(Failure::dead("the merchant has closed").into_error().into()),
        answer => anyhow::bail!("the merchant answered {answer}"),
    }
}

/// Sends a notice, signed as Standard Webhooks 1.0 has it, so that nobody else can.
pub async fn post(sender: &Sender, notice: &Notice, id: &str) -> anyhow::Result<StatusCode> {
    let body = serde_json::to_vec(notice)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let request = sender.http.post(&notice.url).header("content-type", "application/json");
    let request = request.header("webhook-id", id).header("webhook-timestamp", now);
    let request = request.header("webhook-signature", sender.secret.sign(id, now, &body)?);
    Ok(request.body(body).send().await?.status())
}

/// Run as many as you like: each notice goes to one of them. If none is there for a while, notices are
/// late, not lost. Other keys that expire do not delay them, however many there are.
pub async fn listen(url: &str, sender: Sender, ladder: Backoff) -> keylapse::Result<()> {
    let listener = Listener::builder(url).state(sender).on(notices(ladder)?, notify).build()?;
    listener.run_until(shutdown_signal()).await
}

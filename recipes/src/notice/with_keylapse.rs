//! Sends notices of payments to merchants by HTTP, and retries until a merchant answers with success.
//!
//! A notice is armed under the key `app:trans:notice:<order>`. Its payload has all that is needed to send it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylapse::{Backoff, Done, Failure, Lapse, Listener, Schedule, Topic, shutdown_signal};
use reqwest::StatusCode;

use super::webhook::{Notice, Sender};

/// Creates the topic of the notices. `Backoff::payment_notice()` is the usual backoff schedule: 15 s, 15 s,
/// 30 s, 3 min, 10 min, … 6 h. It makes sixteen attempts in a little more than a day. If all of them fail,
/// the notice becomes a dead letter, which you can replay.
pub fn notices(backoff: Backoff) -> keylapse::Result<Topic<Notice>> {
    Ok(Topic::new("app:trans:notice:{order}")?.retry(backoff).timeout(Duration::from_secs(20)))
}

/// Arms a notice that is due now or later. Only the listener uses the backoff schedule.
pub async fn announce(schedule: &Schedule, notice: &Notice, due: SystemTime) -> keylapse::Result<()> {
    let topic = notices(Backoff::payment_notice())?;
    let armed = schedule.arm(&topic, &notice.order, due, notice).await?;
    debug_assert!(armed.is_armed(), "an order is paid once");
    Ok(())
}

/// Sends a notice to its merchant. The merchant may receive it twice, for example if its first answer came
/// too late. All attempts have one ID, and the merchant books each ID once.
pub async fn notify(lapse: Lapse<Notice>, sender: Sender) -> anyhow::Result<Done> {
    match post(&sender, lapse.payload(), &lapse.id()).await? {
        answer if answer.is_success() => Ok(Done),
        StatusCode::GONE => Err(Failure::dead("the merchant has closed").into_error().into()),
        answer => anyhow::bail!("the merchant answered {answer}"),
    }
}

/// Sends a notice with a signature as in Standard Webhooks 1.0. Without the secret, nobody can forge it.
pub async fn post(sender: &Sender, notice: &Notice, id: &str) -> anyhow::Result<StatusCode> {
    let body = serde_json::to_vec(notice)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let request = sender.http.post(&notice.url).header("content-type", "application/json");
    let request = request.header("webhook-id", id).header("webhook-timestamp", now);
    let request = request.header("webhook-signature", sender.secret.sign(id, now, &body)?);
    Ok(request.body(body).send().await?.status())
}

/// Runs a listener. You can run several: each notice goes to one of them. If none runs for a while, notices
/// are late, not lost. Other keys that expire do not delay them.
pub async fn listen(url: &str, sender: Sender, backoff: Backoff) -> keylapse::Result<()> {
    let listener = Listener::builder(url).state(sender).on(notices(backoff)?, notify).build()?;
    listener.run_until(shutdown_signal()).await
}

//! Flash cards: each is asked after ten seconds, then after one minute, six minutes, and so on up to a
//! day. The interval grows after each success.

use std::time::Duration;

use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};
use keylapse_console::Console;
use serde::{Deserialize, Serialize};

use crate::stage::World;

/// The interval before a card is asked for the first time.
pub const FIRST: Duration = Duration::from_secs(10);
/// The shortest interval after the first one.
const SHORTEST: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The payload: the state of a card between two rounds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Card {
    round: u32,
    interval: Duration,
}

/// The state of the handler.
#[derive(Clone, Debug)]
pub struct App {
    /// Arms the next round.
    pub schedule: Schedule,
    /// Asks a card.
    pub world: World,
}

/// Returns the topic of the cards. A failed attempt is retried after 1 s, 10 s and 60 s.
pub fn cards() -> keylapse::Result<Topic<Card>> {
    let backoff = Backoff::table([1, 10, 60].map(Duration::from_secs));
    Ok(Topic::new("card:ask:{card}")?.retry(backoff).lease(Duration::from_secs(2)))
}

/// Starts a card, which is asked after `interval`. An existing card starts again at round 1.
pub async fn learn(schedule: &Schedule, card: &str, interval: Duration) -> keylapse::Result<()> {
    schedule.arm(&cards()?, card, interval, &Card { round: 1, interval }).await.map(drop)
}

/// Stops asking a card.
pub async fn forget(schedule: &Schedule, card: &str) -> keylapse::Result<()> {
    schedule.cancel(&cards()?, card).await.map(drop)
}

/// Deletes all cards and returns their number. Without `forced`, a topic with timers is not deleted.
pub async fn destroy(console: &Console) -> keylapse::Result<u64> {
    Ok(console.destroy(&cards()?).forced().await?.timers)
}

/// Asks a card when it is due, and arms its key for the next round. The new timer takes effect when this
/// run succeeds. If the process dies first, this round runs again under the same ID, and no round is lost.
pub async fn ask(lapse: Lapse<Card>, app: App) -> anyhow::Result<Done> {
    let (card, Card { round, interval }) = (lapse.capture("card").unwrap_or_default(), lapse.payload());
    app.world.act(&format!("{card}.{round}"), &lapse.id()).await?;
    let interval = interval.saturating_mul(6).max(SHORTEST);
    if interval <= DAY {
        let next = Card { round: round + 1, interval };
        app.schedule.arm(&cards()?, card, interval, &next).await.map(drop)?;
    }
    Ok(Done)
}

/// Asks cards until SIGTERM or Ctrl-C. Any listener runs any timer, also one whose program has ended.
pub async fn listen(url: &str, world: World) -> keylapse::Result<()> {
    let app = App { schedule: Schedule::connect(url).await?, world };
    Listener::builder(url).state(app).on(cards()?, ask).build()?.run_until(shutdown_signal()).await
}

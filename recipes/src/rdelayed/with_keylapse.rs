//! Cards to be learned: each is asked after ten seconds, after a minute, after six, and so on up to a
//! day. The interval grows each time it went well.

use std::time::Duration;

use keylapse::{Backoff, Done, Lapse, Listener, Schedule, Topic, shutdown_signal};
use keylapse_console::Console;
use serde::{Deserialize, Serialize};

use crate::stage::World;

/// After which a card is asked for the first time.
pub const FIRST: Duration = Duration::from_secs(10);
/// A card that was asked at once, with no interval that could grow, goes on with this one.
const SHORTEST: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What is carried from round to round.
#[derive(Debug, Serialize, Deserialize)]
pub struct Card {
    round: u32,
    interval: Duration,
}

/// What the handler needs.
#[derive(Clone, Debug)]
pub struct App {
    /// Arms the next round.
    pub schedule: Schedule,
    /// Where cards are asked.
    pub world: World,
}

/// When asking fails, it is tried again after intervals of its own, which grow as well.
pub fn cards() -> keylapse::Result<Topic<Card>> {
    let ladder = Backoff::table([1, 10, 60].map(Duration::from_secs));
    Ok(Topic::new("card:ask:{card}")?.retry(ladder).lease(Duration::from_secs(2)))
}

/// A card is to be learned: it is asked after this interval. A card that is learned already begins anew.
pub async fn learn(schedule: &Schedule, card: &str, interval: Duration) -> keylapse::Result<()> {
    schedule.arm(&cards()?, card, interval, &Card { round: 1, interval }).await.map(drop)
}

/// A card need not be asked any more.
pub async fn forget(schedule: &Schedule, card: &str) -> keylapse::Result<()> {
    schedule.cancel(&cards()?, card).await.map(drop)
}

/// All cards are thrown away, also those that are about to be asked. Without `forced`, only a topic that holds none goes.
pub async fn destroy(console: &Console) -> keylapse::Result<u64> {
    Ok(console.destroy(&cards()?).forced().await?.timers)
}

/// Runs when a card is due, and arms its own key once more. That takes effect when this run has ended
/// well: if the process dies before, this round runs again, under the same id, and no round is lost.
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

/// Asks cards until it is told to stop. Any listener keeps the time for all, also for those that were
/// armed by programs which are gone.
pub async fn listen(url: &str, world: World) -> keylapse::Result<()> {
    let app = App { schedule: Schedule::connect(url).await?, world };
    Listener::builder(url).state(app).on(cards()?, ask).build()?.run_until(shutdown_signal()).await
}

//! What `--write` can do, each after a yes; and what is refused without it.

use keylapse_console::{Action, Entry, EntryState};
use keylapse_support::{Server, eventually};

use crate::top::shop::{bury, console, shop};
use crate::top::terminal::{Terminal, WITHIN};

/// What the server has of the orders.
struct Orders<'a>(&'a Server);

impl Orders<'_> {
    async fn entries(&self, state: EntryState) -> Vec<Entry> {
        let topic = console(self.0).await.topic("order.unpaid").await.unwrap();
        topic.page(state, None, 99).await.unwrap().entries
    }

    async fn letters(&self) -> usize {
        self.entries(EntryState::Dead).await.len()
    }

    /// Timers, how many of them are overdue, and whether it is paused.
    async fn overview(&self) -> (u64, u64, bool) {
        let topic = console(self.0).await.topic("order.unpaid").await.unwrap();
        let overview = topic.overview().await.unwrap();
        (overview.timers, overview.overdue, overview.paused.is_some())
    }
}

/// Asks, declines, asks again and agrees. Meanwhile the server has what it had.
async fn no_and_yes(
    terminal: &Terminal,
    key: &str,
    question: &str,
    unchanged: impl AsyncFn() -> bool,
    says: &[&str],
) {
    terminal.press(&[key], &[question, "y/N"]).await;
    terminal.press(&["n"], &["nothing was done"]).await;
    assert!(unchanged().await, "{key} was declined");
    terminal.press(&[key], &[question, "y/N"]).await;
    assert!(unchanged().await, "{key} asks first");
    terminal.press(&["y"], says).await;
}

#[tokio::test]
async fn each_dangerous_key_asks_and_does_nothing_after_a_no_and_acts_after_a_yes() {
    let Some(server) = shop().await else { return };
    bury(&server, "second", "00000000000000a8").await;
    let orders = Orders(&server);
    let terminal = Terminal::top(&server, "--write");
    terminal.shows(&["can write", "order.unpaid"]).await;
    terminal.press(&["j", "Enter"], &["order:unpaid:1 ", "C cancel"]).await;
    let untouched = async || orders.overview().await == (30, 0, false);
    let says = ["order:unpaid:1: cancelled", "1 of 29"];
    no_and_yes(&terminal, "C", "Cancel 1 timer: order:unpaid:1 of order.unpaid?", untouched, &says).await;
    assert_eq!(orders.overview().await, (29, 0, false));
    let untouched = async || orders.overview().await == (29, 0, false);
    let says = ["order:unpaid:2: due now", "1 undelivered"];
    no_and_yes(&terminal, "R", "Run 1 timer now: order:unpaid:2 of order.unpaid?", untouched, &says).await;
    eventually(WITHIN, "it is due", async || orders.overview().await == (29, 1, false)).await;

    terminal.press(&["d"], &["order:unpaid:dead", "order:unpaid:second", "R replay", "D drop"]).await;
    let untouched = async || orders.letters().await == 2;
    let question = "Replay 1 dead letter: order:unpaid:dead of order.unpaid?";
    let says = ["order:unpaid:dead: replayed", "2 undelivered", "1 of 1"];
    no_and_yes(&terminal, "R", question, untouched, &says).await;
    assert_eq!((orders.letters().await, orders.overview().await), (1, (30, 2, false)));
    let untouched = async || orders.letters().await == 1;
    let question = "Drop 1 dead letter for good: order:unpaid:second of order.unpaid?";
    let says = ["order:unpaid:second: dropped", "No dead letters."];
    no_and_yes(&terminal, "D", question, untouched, &says).await;
    assert_eq!((orders.letters().await, orders.overview().await), (0, (30, 2, false)));

    terminal.press(&["P"], &["reason to pause order.unpaid:"]).await;
    terminal.press(&["Escape", "P", "closed", "Enter"], &["Pause order.unpaid? Its 30 timers"]).await;
    terminal.press(&["n"], &["nothing was done"]).await;
    assert_eq!(orders.overview().await, (30, 2, false));
    terminal.press(&["P", "closed", "Enter"], &["y/N"]).await;
    terminal.press(&["y"], &["order.unpaid: paused:", "P resume"]).await;
    terminal.press(&["j"], &["order.unpaid: paused: closed"]).await;
    let untouched = async || orders.overview().await == (30, 2, true);
    let says = ["resumed: overdue timers run now", "P pause"];
    no_and_yes(
        &terminal,
        "P",
        "Resume order.unpaid? This runs 2 overdue timers immediately.",
        untouched,
        &says,
    )
    .await;
    assert_eq!(orders.overview().await, (30, 2, false));
}

/// Each has the letter on the screen, and is being asked, when the other one is quicker.
#[tokio::test]
async fn of_two_operators_at_one_letter_the_second_is_told() {
    let Some(server) = shop().await else { return };
    let orders = Orders(&server);
    let operators = [(); 2].map(|()| Terminal::top(&server, "--write"));
    for operator in &operators {
        operator.shows(&["order.unpaid"]).await;
        operator.press(&["j", "d"], &["order:unpaid:dead"]).await;
        operator.press(&["R"], &["Replay 1 dead letter: order:unpaid:dead", "y/N"]).await;
    }
    operators[0].press(&["y"], &["order:unpaid:dead: replayed"]).await;
    // It has looked again meanwhile, and asks still.
    operators[1].shows(&["4:dead 0", "y/N"]).await;
    operators[1].press(&["y"], &["order:unpaid:dead: the dead letter is gone"]).await;
    assert_eq!((orders.letters().await, orders.overview().await.0), (0, 31));

    bury(&server, "third", "00000000000000a9").await;
    let [operator, _] = &operators;
    operator.shows(&["order:unpaid:third"]).await;
    operator.press(&["D"], &["Drop 1 dead letter for good: order:unpaid:third", "y/N"]).await;
    let topic = console(&server).await.topic("order.unpaid").await.unwrap();
    let letter = orders.entries(EntryState::Dead).await.remove(0);
    assert!(topic.act(Action::Drop, &letter.key, Some(&letter)).await.unwrap().done);
    operator.press(&["y"], &["order:unpaid:third: the dead letter is gone", "No dead letters."]).await;
}

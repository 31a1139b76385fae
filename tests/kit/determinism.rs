//! The same test twice does the same.

use keylapse::{Failure, Lapse, Outcome};
use keylapse_testing::{HandlerRun, Notifications, TestBed};

use crate::kit::support::{arm, ms, reminders, secs};

/// Fails, snoozes and succeeds, by key and attempt.
async fn moody(lapse: Lapse<String>) -> Result<Outcome, Failure> {
    let id: u64 = lapse.capture("id").unwrap_or_default().parse()?;
    match (id % 3, lapse.attempt()) {
        (0, 1) => Err(Failure::retry("not yet")),
        (1, 1) => Err(Failure::retry_after(secs(id), "busy")),
        (2, _) if id.is_multiple_of(2) => {
            tokio::time::sleep(ms(700)).await;
            Ok(Outcome::Drop)
        }
        _ => Ok(Outcome::Done),
    }
}

/// Some lives under every fault, with two listeners of which one crashes.
async fn story() -> Vec<HandlerRun> {
    let bed = TestBed::new();
    let topic = reminders().partitions(3);
    let listen = async || bed.listen(|listener| listener.on(topic.clone(), moody)).await;
    let other = listen().await.expect("it can listen");
    listen().await.expect("so can another");
    bed.notifications().delay(ms(3)).duplicate(1).reorder(ms(50));
    for id in 0..30 {
        let armed = bed.schedule().arm(&topic, [id.to_string()], ms(id * 40), &String::new()).await;
        assert!(armed.expect("memory does not fail").is_armed());
    }
    bed.advance(ms(600)).await;
    bed.notifications().lose();
    other.crash().await;
    bed.advance(secs(5)).await;
    bed.notifications().heal();
    bed.until_finished().await;
    bed.all_runs()
}

/// Without what is random by nature: ids.
fn told(runs: &[HandlerRun]) -> Vec<String> {
    runs.iter().map(|run| format!("{run:?}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_times_the_same_order() {
    let first = told(&story().await);
    for time in 1..100 {
        assert_eq!(told(&story().await), first, "the {time}th time");
    }
}

#[tokio::test(start_paused = true)]
async fn timers_of_one_moment_run_in_the_order_of_arming() {
    let bed = crate::kit::support::bed().await;
    for id in ["z", "a", "m"] {
        arm(&bed, id, secs(1)).await;
    }
    bed.advance(secs(1)).await;
    let keys: Vec<_> = bed.all_runs().into_iter().map(|run| run.key).collect();
    assert_eq!(keys, ["reminder:z", "reminder:a", "reminder:m"]);
}

/// Two stories in which subscriptions go silent, end and come back.
async fn noisy_story() -> Vec<HandlerRun> {
    let bed = TestBed::new();
    let listener = async || bed.listen(|listener| listener.on(reminders(), moody)).await;
    listener().await.expect("it can listen");
    let faults: [fn(&Notifications); 2] = [|all| _ = all.silence(), |all| _ = all.disconnect()];
    for (round, fault) in faults.into_iter().enumerate() {
        fault(bed.notifications());
        for id in 0..10 {
            arm(&bed, &(30 * round + id).to_string(), ms(id as u64 * 770)).await;
        }
        bed.advance(secs(9)).await;
        bed.notifications().heal();
        bed.until_finished().await;
    }
    bed.all_runs()
}

#[tokio::test(start_paused = true)]
async fn subscriptions_end_and_come_back_at_the_same_moments() {
    let first = told(&noisy_story().await);
    for time in 1..20 {
        assert_eq!(told(&noisy_story().await), first, "the {time}th time");
    }
}

//! What a bed waits for, and what it says when it waits in vain.

use keylapse::{Done, Failure, Lapse, Outcome};
use keylapse_testing::{RunEnd, TestBed};

use crate::kit::support::{arm, bed_with_one, fail, listen, ms, reminders, secs, succeed};

async fn panics(lapse: Lapse<String>) -> Result<Done, Failure> {
    assert_eq!(lapse.payload(), "goodbye", "as the test says");
    Ok(Done)
}

async fn bed_of_panics(bed: TestBed) -> TestBed {
    listen(&bed, panics).await;
    arm(&bed, "a", secs(1)).await;
    bed
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the handler of reminder panicked at attempt 1 of \"reminder:a\"")]
async fn a_panic_in_a_handler_fails_the_test() {
    bed_of_panics(TestBed::new()).await.advance(secs(1)).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "noticed at the end of the test")]
async fn even_if_the_test_lets_time_pass_by_other_means() {
    let bed = bed_of_panics(TestBed::new()).await;
    tokio::time::sleep(secs(2)).await;
    drop(bed);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "as the test says")]
async fn whatever_was_waited_for() {
    let bed = bed_of_panics(TestBed::new()).await;
    bed.until(|_| false).await;
}

#[tokio::test(start_paused = true)]
async fn a_condition_may_ask_the_bed() {
    let bed = bed_with_one(succeed, secs(1)).await;
    bed.until(|runs| runs.len() == 1 && bed.runs(&reminders())[0].is_done()).await;
}

#[tokio::test(start_paused = true)]
async fn a_test_about_panics_reads_them_in_the_book() {
    let bed = bed_of_panics(TestBed::new().expect_panics()).await;
    bed.until_finished().await;
    let runs = bed.all_runs();
    assert_eq!(runs.len(), 3, "a panic is a failure, and is retried");
    let told =
        |end: &Option<RunEnd>| matches!(end, Some(RunEnd::Panicked(why)) if why.contains("as the test says"));
    assert!(runs.iter().all(|run| run.is_failed() && told(&run.end)), "{runs:#?}");
}

#[tokio::test(start_paused = true)]
async fn until_ran_answers_the_last_run() {
    let bed = bed_with_one(fail, secs(9)).await;
    let run = bed.until_ran(&reminders(), ["a"]).await;
    assert_eq!((run.attempt, run.began, run.end), (1, secs(9), Some(RunEnd::Failed("no 1".to_owned()))));
    bed.until(|runs| runs.iter().any(|run| run.attempt == 3)).await;
    assert_eq!(bed.until_ran(&reminders(), ["a"]).await.attempt, 3);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "waited two days for an attempt of \"reminder:b\" to end in vain")]
async fn waiting_in_vain_ends() {
    let bed = bed_with_one(succeed, secs(1)).await;
    bed.until_ran(&reminders(), ["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn passing_time_waits_for_what_handlers_hand_to_other_tasks() {
    let bed = TestBed::new();
    let relay = async |lapse: Lapse<String>| -> Result<Outcome, Failure> {
        for _ in 0..20 {
            tokio::spawn(tokio::task::yield_now()).await?;
        }
        Ok(if lapse.attempt() == 1 { Outcome::Done } else { Outcome::Drop })
    };
    listen(&bed, relay).await;
    arm(&bed, "a", ms(1)).await;
    bed.advance(ms(1)).await;
    assert!(bed.all_runs()[0].is_done());
}

#[test]
#[should_panic(expected = "write #[tokio::test(start_paused = true)]")]
fn a_bed_outside_of_tokio_says_what_it_needs() {
    drop(TestBed::new());
}

#[tokio::test]
#[should_panic(expected = "write #[tokio::test(start_paused = true)]")]
async fn a_bed_with_a_running_clock_says_what_it_needs() {
    drop(TestBed::new());
}

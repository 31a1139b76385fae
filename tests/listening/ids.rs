//! What a receiver goes by: one id for what has come due, through all that may happen to it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::listening::{arm, bed_with, fail, listen, one_timer, secs, stuck, topic};
use keylapse::Lapse;
use keylapse::dead_letters::Replayed;
use keylapse::{Done, Failure, Outcome};
use keylapse_testing::{HandlerRun, TestBed};

/// The ids of these runs, without repetitions: those to be passed on, and those of the runs.
fn ids(runs: &[HandlerRun]) -> (Vec<String>, HashSet<&str>) {
    let mut ids: Vec<_> = runs.iter().map(|run| run.id.clone()).collect();
    ids.dedup();
    (ids, runs.iter().map(|run| &run.attempt_id[..]).collect())
}

#[tokio::test(start_paused = true)]
async fn the_id_is_the_armings_through_retries_crashes_and_replays() {
    let bed = TestBed::counting();
    let crashing = listen(&bed, topic(), stuck).await;
    let armed = bed.schedule().arm(&topic(), ["1"], secs(1), &0).await.unwrap();
    bed.until(|runs| !runs.is_empty()).await;
    crashing.crash().await;
    let _listening = listen(&bed, topic(), fail).await;
    bed.until_finished().await;
    let letter = bed.schedule().dead_letters(&topic()).next().await.unwrap().unwrap();
    assert_eq!(bed.schedule().replay(&letter).await.unwrap(), Replayed::Replayed);
    bed.until_finished().await;
    let runs = bed.all_runs();
    assert_eq!(runs.len(), 1 + 3 + 3, "one crashed, twice three attempts");
    let (passed_on, runs) = ids(&runs);
    assert_eq!(passed_on, [armed.receipt().unwrap().id.to_string()]);
    assert_eq!(runs.len(), 7, "each run has one of its own");
    assert!(runs.iter().all(|id| id.starts_with(&passed_on[0])));
    let letter = bed.schedule().dead_letters(&topic()).next().await.unwrap().unwrap();
    assert_eq!(letter.arming.to_string(), passed_on[0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_replayed_as_new_has_an_id_of_its_own() {
    let (bed, _listening) = one_timer(topic(), fail, 0).await;
    bed.until_finished().await;
    let letter = bed.schedule().dead_letters(&topic()).next().await.unwrap().unwrap();
    assert_eq!(bed.schedule().replay_as_new(&letter).await.unwrap(), Replayed::Replayed);
    bed.until_finished().await;
    let (passed_on, runs) = (ids(&bed.all_runs()).0, bed.all_runs().len());
    assert_eq!((passed_on.len(), runs), (2, 6));
}

#[tokio::test(start_paused = true)]
async fn what_is_armed_anew_or_comes_again_has_an_id_of_its_own() {
    let again = |lapse: Lapse<u32>| async move {
        Ok::<_, Failure>(if *lapse.payload() == 1 { Outcome::Again(secs(1)) } else { Outcome::Done })
    };
    let (bed, _listening) = bed_with(topic(), again).await;
    arm(&bed, "1", secs(1), 0).await;
    bed.until_finished().await;
    arm(&bed, "1", secs(1), 1).await;
    bed.advance(secs(3)).await;
    let runs = bed.all_runs();
    assert!(runs.len() >= 3 && ids(&runs).0.len() == runs.len(), "{runs:#?}");
}

/// One that books, and answers too late, or that its gateway is broken.
#[tokio::test(start_paused = true)]
async fn a_merchant_who_goes_by_the_id_books_once_however_it_answers() {
    let booked = Arc::new(Mutex::new(HashSet::new()));
    let books = booked.clone();
    let merchant = move |lapse: Lapse<u32>| {
        let books = books.clone();
        async move {
            books.lock().unwrap().insert(lapse.id());
            match lapse.attempt() {
                1 => std::future::pending().await,
                2 => Err(Failure::retry("502 Bad Gateway")),
                _ => Ok(Done),
            }
        }
    };
    let (bed, _listening) = one_timer(topic(), merchant, 0).await;
    bed.until_finished().await;
    assert_eq!((bed.all_runs().len(), booked.lock().unwrap().len()), (3, 1));
}

//! A bed in real time, on a port.

use std::time::Duration;

use keylapse::{Done, Failure, Lapse, Schedule};
use keylapse_testing::TestBed;

use crate::kit::support::reminders;

#[tokio::test]
async fn clients_of_any_kind_find_a_bed_in_real_time_on_a_port() {
    let bed = TestBed::in_real_time();
    let handler = |_: Lapse<String>| std::future::ready(Ok::<_, Failure>(Done));
    bed.listen(|listener| listener.on(reminders(), handler)).await.unwrap();
    let url = bed.url().await.expect("there is a port");
    assert!(url.starts_with("redis://127.0.0.1:"), "{url}");
    let schedule = Schedule::connect(&url).await.expect("it answers");
    let armed = schedule.arm(&reminders(), "1", Duration::from_millis(50), &String::new()).await;
    assert!(armed.expect("it answers").is_armed());
    assert!(bed.until_ran(&reminders(), "1").await.is_done());

    let other = redis::Client::open(url).unwrap();
    let mut other = other.get_multiplexed_async_connection().await.expect("it answers");
    let pong: String = redis::cmd("PING").query_async(&mut other).await.unwrap();
    assert_eq!(pong, "PONG");
}

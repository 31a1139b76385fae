// says: `f64` does not name a timer
// says: pass the pattern's only capture as a string or an integer
use keylapse::{Schedule, Topic};

pub async fn cancel(schedule: Schedule, orders: Topic<u64>) {
    let _ = schedule.cancel(&orders, 4.2f64).await;
}

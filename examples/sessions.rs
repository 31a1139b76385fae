//! Sessions that another program keeps alive: each visit extends a key's time to live, and when it has
//! really run out the visitor is logged out.
//!
//!     REDIS_URL=redis://127.0.0.1/ cargo run --bin sessions
//!
//! Ada comes back three times, Brook does not, and Cleo logs out by herself. It ends when Ada's and
//! Brook's sessions have ended.
//!
//! The site knows nothing of keylapse. With notify-keyspace-events `Ex` a visit is not heard: the listener
//! finds the later deadline with the next scan, or when it looks at the key as the one that it knows is
//! over; and looks again then.
//!
//! There is no `write_back` here, and must not be. It writes a key back until the retry when a handler has
//! failed, and **a session whose key exists is valid**: who was logged out would be let in again. It is
//! the same with locks, which would be held again by nobody. Without it, a retry is known to keylapse
//! alone, and this handler is retried until the log-out is in the books.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keylapse::stats::AttachedStats;
use keylapse::{Attached, Done, Expired, Expiry, Failure, Lapse, Listener, Topic};
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult, cmd};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::sleep;

/// Half an hour on a real site.
const IDLE: Duration = Duration::from_secs(3);

/// What the site keeps of a session.
#[derive(Serialize, Deserialize)]
struct Session {
    user: String,
}

/// The site's sessions.
fn sessions() -> keylapse::Result<Attached<Session>> {
    // Often enough that each session is found while it lives: see docs/attach.md.
    Ok(Attached::new(Topic::new("session:{id}")?).keep_values(1024).scan_every(Duration::from_secs(1)))
}

/// Who was logged out.
#[derive(Default)]
struct Books {
    ended: Mutex<BTreeSet<String>>,
    changed: Notify,
}

impl Books {
    /// An insertion that changes nothing if it is repeated, as an attempt may be.
    fn log_out(&self, user: &str) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(user.to_owned());
        self.changed.notify_one();
    }

    async fn ended(&self, users: usize) {
        while self.ended.lock().unwrap_or_else(PoisonError::into_inner).len() < users {
            self.changed.notified().await;
        }
    }
}

async fn log_out(lapse: Lapse<Expired<Session>>, books: Arc<Books>) -> Result<Done, Failure> {
    let id = lapse.capture("id").unwrap_or_default();
    let expired = lapse.payload();
    let user = expired.value().map_or("somebody", |session| &session.user);
    match expired.expiry() {
        Expiry::Heard => println!("{user}: session {id} has ended ({:.0?} ago)", lapse.lateness()),
        // It has ended in any case: the key was gone. It may be that its visitor has logged out.
        other => println!("{user}: session {id} is gone ({other:?})"),
    }
    books.log_out(user);
    Ok(Done)
}

/// The site: a plain client, and no keylapse.
struct Site(MultiplexedConnection);

impl Site {
    async fn open(url: &str) -> RedisResult<Self> {
        Ok(Self(Client::open(url)?.get_multiplexed_async_connection().await?))
    }

    async fn log_in(&mut self, user: &str) -> RedisResult<()> {
        println!("{user}: logged in");
        let (key, value) = (format!("session:{user}-1"), format!(r#"{{"user":"{user}"}}"#));
        cmd("SET").arg(key).arg(value).arg("PX").arg(IDLE.as_millis() as u64).exec_async(&mut self.0).await
    }

    async fn visit(&mut self, user: &str) -> RedisResult<()> {
        println!("{user}: is here, and may stay away for {IDLE:?} more");
        cmd("PEXPIRE")
            .arg(format!("session:{user}-1"))
            .arg(IDLE.as_millis() as u64)
            .exec_async(&mut self.0)
            .await
    }

    async fn leave(&mut self, user: &str) -> RedisResult<()> {
        println!("{user}: logs out, of which the listener need not be told");
        cmd("DEL").arg(format!("session:{user}-1")).exec_async(&mut self.0).await
    }

    async fn play(&mut self) -> RedisResult<()> {
        for user in ["Ada", "Brook", "Cleo"] {
            self.log_in(user).await?;
        }
        for visits in 0..3 {
            sleep(IDLE / 2).await;
            self.visit("Ada").await?;
            if visits == 0 {
                self.leave("Cleo").await?;
            }
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let books = Arc::<Books>::default();
    let listener = Listener::builder(&url).state(books.clone()).attach(sessions()?, log_out).build()?;
    let stats = listener.stats();
    let mut site = Site::open(&url).await?;
    let (played, listened) = tokio::join!(site.play(), listener.run_until(books.ended(2)));
    played?;
    listened?;
    let AttachedStats { deleted, vanished, .. } = stats.attached("session").unwrap_or_default();
    println!("sessions that were deleted, and did not expire: {}", deleted + vanished);
    Ok(())
}

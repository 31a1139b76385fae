//! Logs a visitor out when the session's key expires. Another program writes the keys, and extends the TTL at each visit.
//!
//!     REDIS_URL=redis://127.0.0.1/ cargo run --bin sessions
//!
//! Ada comes back three times, Brook does not, and Cleo logs out herself. The program ends when Ada's and Brook's sessions
//! have ended.
//!
//! The site is unaware of keylapse. With notify-keyspace-events `Ex`, the listener receives no event for a visit. It finds
//! the later deadline with the next scan, or when it checks the key at the earlier one.
//!
//! This program must not use `write_back`. After a failed attempt, `write_back` writes the key back until the retry. **A session
//! whose key exists is valid**, and a visitor who was logged out would be logged in again. Locks are similar: they would
//! be held again by nobody. Without `write_back` only keylapse has the retry, which repeats until the logout is stored.

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

/// The value of a session's key.
#[derive(Serialize, Deserialize)]
struct Session {
    user: String,
}

/// The sessions, as an attached topic.
fn sessions() -> keylapse::Result<Attached<Session>> {
    // Scans are frequent, so that each session is found while its key exists: see docs/attach.md.
    Ok(Attached::new(Topic::new("session:{id}")?).keep_values(1024).scan_every(Duration::from_secs(1)))
}

/// The users who were logged out.
#[derive(Default)]
struct Books {
    ended: Mutex<BTreeSet<String>>,
    changed: Notify,
}

impl Books {
    /// Stores a logout. A repeated attempt changes nothing.
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
        Expiry::Announced => println!("{user}: session {id} has ended ({:.0?} ago)", lapse.lateness()),
        // The key was gone without an event, so the session has ended. The visitor may have logged out.
        other => println!("{user}: session {id} is gone ({other:?})"),
    }
    books.log_out(user);
    Ok(Done)
}

/// The site, a plain Redis client without keylapse.
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
        println!("{user}: visits; the session lasts {IDLE:?} more");
        cmd("PEXPIRE")
            .arg(format!("session:{user}-1"))
            .arg(IDLE.as_millis() as u64)
            .exec_async(&mut self.0)
            .await
    }

    async fn leave(&mut self, user: &str) -> RedisResult<()> {
        println!("{user}: logs out; the site only deletes the key");
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
    println!("sessions whose keys were deleted before they expired: {}", deleted + vanished);
    Ok(())
}

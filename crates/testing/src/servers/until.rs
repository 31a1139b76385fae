//! Waiting for what servers come to by themselves.

use std::time::{Duration, Instant};

use keylapse::{Error, ErrorKind, Result};

const POLL: Duration = Duration::from_millis(25);

/// Asks again and again until this is found. What fails may work next time: servers come and go. The
/// error says what was waited for, and why it was not there at the end.
pub(super) async fn until<T>(
    limit: Duration,
    what: &str,
    mut find: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        match find().await {
            Ok(found) => return Ok(found),
            Err(missing) if begun.elapsed() >= limit => {
                let message = format!("waited {limit:?} for {what} in vain; at last: {missing}");
                return Err(Error::new(ErrorKind::Timeout, message));
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

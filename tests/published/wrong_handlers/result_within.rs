// says: a handler cannot return `Result<u64, String>`
// says: a handler's result is a `Result<R, E>`: `R` is `Done`, `()` or `Outcome`
use keylapse::{Lapse, Listener, Topic};

async fn close(lapse: Lapse<u64>) -> Result<u64, String> {
    Ok(lapse.into_payload())
}

pub fn listen(orders: Topic<u64>) {
    let _ = Listener::builder("redis://127.0.0.1/").on(orders, close);
}

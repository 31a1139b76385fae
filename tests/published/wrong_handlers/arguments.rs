// says: this handler takes `u64`, and the lapses of its topic are `Lapse<u64>`
use keylapse::{Done, Listener, Topic};

async fn close(_: u64) -> Result<Done, String> {
    Ok(Done)
}

pub fn listen(orders: Topic<u64>) {
    let _ = Listener::builder("redis://127.0.0.1/").on(orders, close);
}

// says: this handler takes `Lapse<String>`, and the lapses of its topic are `Lapse<u64>`
// says: a handler takes a `Lapse` of the topic's own payload, `Lapse<u64>` here
use keylapse::{Done, Lapse, Listener, Topic};

async fn close(_: Lapse<String>) -> Result<Done, String> {
    Ok(Done)
}

pub fn listen(orders: Topic<u64>) {
    let _ = Listener::builder("redis://127.0.0.1/").on(orders, close);
}

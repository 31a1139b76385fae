// says: this handler takes `Lapse<u64>`, and the lapses of its topic are `Lapse<Expired<u64>>`
// says: of an attached topic, a `Lapse<Expired<T>>`
use keylapse::{Done, Lapse, Listener, Topic};

async fn close(_: Lapse<u64>) -> Result<Done, String> {
    Ok(Done)
}

pub fn listen(orders: Topic<u64>) {
    let _ = Listener::builder("redis://127.0.0.1/").attach(orders, close);
}

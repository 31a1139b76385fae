// says: cannot handle lapses that carry `u64`
// says: a handler takes `Lapse<u64>`, and after `.state(…)` on the builder it may take the state as its second argument
use keylapse::{Done, Lapse, Listener, Topic};

async fn close(_: Lapse<u64>, _: String) -> Result<Done, String> {
    Ok(Done)
}

pub fn listen(orders: Topic<u64>) {
    let _ = Listener::builder("redis://127.0.0.1/").state(42).on(orders, close);
}

use keylapse::{Done, Lapse, Listener, Schedule, Topic};

#[derive(Clone)]
pub struct App;

async fn close(_: Lapse<u64>) -> Result<Done, String> {
    Ok(Done)
}

async fn close_for(_: Lapse<u64>, _: App) -> Result<Done, String> {
    Ok(Done)
}

pub fn listen(orders: Topic<u64>) {
    let builder = Listener::builder("redis://127.0.0.1/").on(orders.clone(), close);
    let _ = builder.state(App).on(orders.clone(), close).on(orders, close_for);
}

pub async fn arm(schedule: Schedule, orders: Topic<u64>) {
    let _ = schedule.cancel(&orders, 42).await;
}

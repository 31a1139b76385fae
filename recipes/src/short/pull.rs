use futures::Stream;
use futures::channel::{mpsc, oneshot};
use futures::sink::SinkExt;
use keylapse::{Failure, Lapse, Outcome};

/// A claimed timer, and the sender of its result. A job that is dropped without a result is retried.
pub struct Job<T> {
    pub lapse: Lapse<T>,
    pub verdict: oneshot::Sender<Result<Outcome, Failure>>,
}

/// Returns a handler and the stream of its jobs. The stream holds at most one job per running handler. The lease of a
/// job is renewed until its result is received, or until the topic's `timeout`.
pub fn pull<T: Send + 'static>() -> (Puller<T>, impl Stream<Item = Job<T>>) {
    let (jobs, stream) = mpsc::channel(0);
    (Puller { jobs }, stream)
}

pub struct Puller<T> {
    jobs: mpsc::Sender<Job<T>>,
}

impl<T: Send + 'static> keylapse::handler::Handler<T> for Puller<T> {
    async fn call(&self, lapse: Lapse<T>) -> Result<Outcome, Failure> {
        let (verdict, received) = oneshot::channel();
        self.jobs.clone().send(Job { lapse, verdict }).await?;
        received.await?
    }
}

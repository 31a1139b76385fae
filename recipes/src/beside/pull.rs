use futures::Stream;
use futures::channel::{mpsc, oneshot};
use futures::sink::SinkExt;
use keylapse::{Failure, Lapse, Outcome};

/// A lapse, and where to say what became of it. Dropped unsaid, it is retried.
pub struct Job<T> {
    pub lapse: Lapse<T>,
    pub verdict: oneshot::Sender<Result<Outcome, Failure>>,
}

/// A handler, and the stream of what it is given. At most one job waits unseen; its lease is renewed until its
/// verdict is there, or the topic's `timeout` is over.
pub fn pull<T: Send + 'static>() -> (Puller<T>, impl Stream<Item = Job<T>>) {
    let (jobs, stream) = mpsc::channel(0);
    (Puller { jobs }, stream)
}

pub struct Puller<T> {
    jobs: mpsc::Sender<Job<T>>,
}

impl<T: Send + 'static> keylapse::handler::Handler<T> for Puller<T> {
    async fn call(&self, lapse: Lapse<T>) -> Result<Outcome, Failure> {
        let (verdict, said) = oneshot::channel();
        self.jobs.clone().send(Job { lapse, verdict }).await?;
        said.await?
    }
}

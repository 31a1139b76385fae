//! rsmq_async: the Redis Simple Message Queue, as a Rust library.
//!
//! A received message is hidden for the visibility timeout, and comes again unless it is deleted before. The library's own
//! worker helper takes one message after the other. This peer therefore runs several loops on the library's calls. Each
//! receives a batch, and deletes each message when its handler has ended. Batch calls and timeout:
//! <https://docs.rs/rsmq_async/18.0.0>.

use std::{process::ExitCode, time::Duration};

use futures::future::{join_all, try_join_all};
use peers::{Description, Handler, Job, Peer, Result, Settings, until};
use rsmq_async::{Rsmq, RsmqConnection, RsmqMessage};

const QUEUE: &str = "bench";
const BATCH: usize = 50;
const POLL: Duration = Duration::from_millis(10);
/// The library's default.
const HIDDEN: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Loops {
    client: redis::Client,
    rsmq: Rsmq,
}

impl Peer for Loops {
    const BULK: usize = 500;
    const WITHDRAWS: bool = true;

    fn describe() -> Description {
        Description {
            name: "rsmq_async",
            version: "18.0.0",
            language: "Rust",
            settings: "own loops, since its worker helper takes one message at a time: one for each 50 handlers, with \
                       a connection each, receive_message_batch(50), handlers side by side, delete_message for \
                       each; 10 ms of waiting when there is none; visibility timeout 30 s (default); delays \
                       rounded up to whole ms; bulk by 500, with one delay for all",
            survives_a_crash: true,
            leaves_out: "retry policy and dead letters in the loop; due times are whole ms by a clock read \
                         in whole ms, so a message can come up to 1 ms early",
        }
    }

    async fn connect(settings: &Settings) -> Result<Self> {
        let client = redis::Client::open(settings.url.as_str())?;
        let mut rsmq = open(&client).await?;
        match rsmq.create_queue(QUEUE, Some(HIDDEN), None, None).await {
            Ok(()) | Err(rsmq_async::RsmqError::QueueExists) => Ok(Self { client, rsmq }),
            Err(error) => Err(error.into()),
        }
    }

    async fn offer(&self, job: Job) -> Result<()> {
        let delay = delay(job.due);
        self.rsmq.clone().send_message(QUEUE, job.payload, Some(delay)).await?;
        Ok(())
    }

    async fn offer_bulk(&self, jobs: Vec<Job>) -> Result<()> {
        let delay = jobs.iter().map(|job| delay(job.due)).max();
        let payloads = jobs.into_iter().map(|job| job.payload).collect();
        self.rsmq.clone().send_message_batch::<String>(QUEUE, payloads, delay).await?;
        Ok(())
    }

    async fn offer_and_withdraw(&self, job: Job) -> Result<()> {
        let mut rsmq = self.rsmq.clone();
        let id = rsmq.send_message(QUEUE, job.payload, Some(delay(job.due))).await?;
        if rsmq.delete_message(QUEUE, &id).await? { Ok(()) } else { Err("the message was not there".into()) }
    }

    async fn work(&self, concurrency: usize, handler: Handler) -> Result<()> {
        let batch = concurrency.min(BATCH);
        let loops = (0..concurrency.div_ceil(BATCH)).map(|_| {
            let (client, handler) = (self.client.clone(), handler.clone());
            tokio::spawn(async move { receive(open(&client).await?, batch, handler).await })
        });
        for ended in try_join_all(loops).await? {
            ended?;
        }
        Ok(())
    }
}

async fn open(client: &redis::Client) -> Result<Rsmq> {
    let connection = client.get_multiplexed_async_connection().await?;
    Ok(Rsmq::new_with_connection(connection, false, None).await?)
}

/// Returns the delay in whole milliseconds, as the library counts.
fn delay(due: u64) -> Duration {
    let micros = until(due).as_micros() as u64;
    Duration::from_millis(micros.div_ceil(1_000))
}

async fn receive(mut rsmq: Rsmq, batch: usize, handler: Handler) -> Result<()> {
    loop {
        let messages = rsmq.receive_message_batch(QUEUE, None, batch as u32).await?;
        if messages.is_empty() {
            tokio::time::sleep(POLL).await;
            continue;
        }
        for ended in join_all(messages.into_iter().map(|message| handle(&rsmq, message, &handler))).await {
            ended?;
        }
    }
}

async fn handle(rsmq: &Rsmq, message: RsmqMessage, handler: &Handler) -> Result<()> {
    handler.handle_text(&message.message).await;
    rsmq.clone().delete_message(QUEUE, &message.id).await?;
    Ok(())
}

fn main() -> ExitCode {
    peers::main::<Loops>()
}

//! The common part of the Rust peers: the protocol of `bench/README.md`, without the systems. A system is a program under
//! `src/bin` that implements [`Peer`] and calls [`main`].

mod job;
mod measures;
mod offering;
mod record;
pub mod zset;

use std::{env, fmt::Display, future::Future, process::ExitCode};

use serde::Serialize;

pub use job::{Job, Order, Payload, now_ms, object, until};
pub use record::Handler;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// One system.
pub trait Peer: Clone + Send + Sync + 'static {
    /// How many jobs its bulk call takes at a time; 0 if it has none.
    const BULK: usize = 0;

    /// The most jobs of measures that time all jobs: more would take more than a few seconds.
    const AT_MOST: usize = usize::MAX;

    /// The highest rate at which it can start delayed jobs at all.
    const DELAYED_PER_S: u64 = u64::MAX;

    /// True if jobs that come due without a worker are lost.
    const LOSES_JOBS_WITHOUT_WORKER: bool = false;

    fn describe() -> Description;

    fn connect(settings: &Settings) -> impl Future<Output = Result<Self>> + Send;

    /// Offers one job, as a program usually would.
    fn offer(&self, job: Job) -> impl Future<Output = Result<()>> + Send;

    /// Offers at most [`Peer::BULK`] jobs, which are due together or are due already.
    fn offer_bulk(&self, jobs: Vec<Job>) -> impl Future<Output = Result<()>> + Send {
        async move {
            for job in jobs {
                self.offer(job).await?;
            }
            Ok(())
        }
    }

    /// True if an offered job can be withdrawn before it is due.
    const WITHDRAWS: bool = false;

    /// Offers one job and withdraws it. Called only if [`Peer::WITHDRAWS`].
    fn offer_and_withdraw(&self, _job: Job) -> impl Future<Output = Result<()>> + Send {
        async { Err("it withdraws nothing".into()) }
    }

    /// Called between offering a backlog and starting the worker, untimed.
    fn prepare_backlog(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Runs a worker with `concurrency` handlers at a time, or the nearest possible number, until dropped.
    fn work(&self, concurrency: usize, handler: Handler) -> impl Future<Output = Result<()>> + Send;
}

/// The description that `describe` prints.
#[derive(Debug, Serialize)]
pub struct Description {
    pub name: &'static str,
    pub version: &'static str,
    pub language: &'static str,
    pub settings: &'static str,
    pub survives_a_crash: bool,
    pub leaves_out: &'static str,
}

/// The settings of a run, from the environment.
#[derive(Debug, Clone)]
pub struct Settings {
    pub url: String,
    pub count: usize,
    pub concurrency: usize,
    pub rate: u64,
    pub order: Order,
    pub payload: String,
}

impl Settings {
    fn from_env() -> Result<Self> {
        Ok(Self {
            url: variable("BENCH_URL", "redis://127.0.0.1:6379".to_owned())?,
            count: variable("BENCH_COUNT", 1_000)?,
            concurrency: variable("BENCH_CONCURRENCY", 100)?,
            rate: variable("BENCH_RATE", 1_000)?,
            order: variable("BENCH_ORDER", Order::Due)?,
            payload: variable("BENCH_PAYLOAD", r#"{"merchant":"m-1","order":"o-1","amount":1}"#.to_owned())?,
        })
    }
}

fn variable<T>(name: &str, default: T) -> Result<T>
where
    T: std::str::FromStr,
    T::Err: Display,
{
    match env::var(name) {
        Ok(text) => text.parse().map_err(|error| format!("{name}={text}: {error}").into()),
        Err(_) => Ok(default),
    }
}

/// Runs the measure of the first argument, and prints the result as the last line.
pub fn main<P: Peer>() -> ExitCode {
    let measure = env::args().nth(1).unwrap_or_default();
    if measure == "describe" {
        println!("{}", serde_json::to_string(&P::describe()).expect("a description is JSON"));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(run::<P>(&measure)) {
        Ok(Some(result)) => {
            println!("{result}");
            // Workers may still wait for the server: the runtime must not wait for them.
            runtime.shutdown_background();
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::from(78),
        Err(error) => {
            eprintln!("{measure}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run<P: Peer>(measure: &str) -> Result<Option<serde_json::Value>> {
    let settings = Settings::from_env()?;
    let fewer = Settings { count: settings.count.min(P::AT_MOST), ..settings.clone() };
    let result = match measure {
        "throughput" => measures::throughput::<P>(&fewer).await?,
        "lateness" if settings.rate > P::DELAYED_PER_S => return Ok(None),
        "lateness" => measures::lateness::<P>(&settings).await?,
        "arm" => measures::arm::<P>(&fewer).await?,
        "arm_cancel" if P::WITHDRAWS => measures::arm_cancel::<P>(&fewer).await?,
        // A job that is due immediately expires as it is written, and no subscriber receives an event.
        "lives" if !P::LOSES_JOBS_WITHOUT_WORKER => measures::lives::<P>(&fewer).await?,
        "bytes" => measures::bytes::<P>(&fewer).await?,
        "idle" => measures::idle::<P>(&settings).await?,
        "kill" => measures::kill::<P>(&settings).await?,
        "kill_again" => measures::kill_again::<P>(&settings).await?,
        _ => return Ok(None),
    };
    Ok(Some(result))
}

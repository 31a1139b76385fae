//! `keylapse run`: delivers timers and expired keys as a configuration file describes, and arms timers over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;

use keylapse_console::Console;
use keylapse_relay::{Config, Relay, RelayHealth, describe_metrics};
use keylapse_web::{Readiness, Web};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::args::Connect;
use crate::exit::{CliError, Exit};
use crate::listen::{HttpSecurity, Listen};
use crate::output::Output;
use crate::{log, recorder, signals};

/// The advice for a header that seems to hold a secret.
const EXPOSED: &str = "every user of this machine can read this header in the file: \
                       write { file = \"…\" } or { env = \"…\" } as its value, or run chmod o= on the file";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Read this configuration file.
    #[arg(short, long, value_name = "FILE", default_value = "keylapse.toml")]
    config: PathBuf,
    /// Check the configuration file and exit, without a connection.
    #[arg(long)]
    check: bool,
    /// Serve an HTTP API at this address to arm and cancel timers.
    ///
    /// It also answers probes and has metrics. Without this option, `run` serves no HTTP.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Allow HTTP clients all topics of the namespace, not only the file's.
    #[arg(long, requires = "listen")]
    any_topic: bool,
    #[command(flatten)]
    http: Listen,
    #[command(flatten)]
    log: log::Log,
}

pub(crate) async fn run(connect: &Connect, args: &Args, out: &mut Output) -> Result<Exit, CliError> {
    let mut relay = Relay::new(connect.client()?);
    if args.check {
        let config = read(args)?;
        let exposed =
            config.exposed_headers().iter().map(|header| in_file(args, format!("{header}: {EXPOSED}")));
        exposed.for_each(|note| out.note(note));
        relay.check(config).map_err(|error| CliError::Usage(in_file(args, error)))?;
        out.print_line(in_file(args, "fine"))?;
        return Ok(Exit::Success);
    }
    log::start(&args.log);
    let (reload, stop) = (signals::to_reload(), keylapse::shutdown_signal());
    // The recorder comes before the file, so that the topics of the file have metrics from the start.
    let recorded = args.listen.map(|_| recorder::install()).transpose()?;
    // Errors of the file and of the HTTP options end the program before it claims a timer.
    let config = read_and_warn(args)?;
    let door = match args.listen.zip(recorded) {
        Some((address, recorded)) => {
            Some(HttpEndpoint::open(connect, args, address, relay.health(), recorded).await?)
        }
        None => None,
    };
    relay.apply(config).await.map_err(|error| CliError::Usage(in_file(args, error)))?;
    until(&mut relay, args, door.as_ref(), reload, stop).await?;
    info!("stopping: running deliveries finish, or their timers are released");
    relay.stop().await?;
    if let Some(door) = door {
        door.close().await;
    }
    Ok(Exit::Success)
}

/// Applies the file again at each SIGHUP, until the program is stopped.
async fn until(
    relay: &mut Relay,
    args: &Args,
    door: Option<&HttpEndpoint>,
    mut reload: signals::Reload,
    stop: impl Future<Output = ()>,
) -> Result<(), CliError> {
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return Ok(()),
            ended = relay.ended() => ended?,
            () = reload.asked() => {
                // Tokens come first: a revoked token must not be accepted while this waits for a server.
                if let Some(door) = door {
                    args.http.follow(&door.entrance);
                }
                tokio::select! {
                    () = &mut stop => return Ok(()),
                    () = follow(relay, args) => {}
                }
            }
        }
    }
}

/// Reads the file again and applies it. After an error, which is logged, the previous configuration stays in effect.
async fn follow(relay: &mut Relay, args: &Args) {
    let followed = async { Ok::<_, CliError>(relay.apply(read_and_warn(args)?).await?) };
    match followed.await {
        Ok(()) => info!(file = %args.config.display(), "the configuration file was reloaded"),
        Err(error) => {
            error!(%error, "the configuration file was not reloaded: the previous one stays in effect");
        }
    }
}

/// The HTTP API of this process.
struct HttpEndpoint {
    entrance: HttpSecurity,
    close: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl HttpEndpoint {
    async fn open(
        connect: &Connect,
        args: &Args,
        address: SocketAddr,
        health: RelayHealth,
        recorded: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self, CliError> {
        let entrance = args.http.read()?;
        let server = entrance.bind(address).await?;
        let web = Web::new(Console::new(connect.client()?), entrance.access.clone());
        let its = health.clone();
        let web = match args.any_topic {
            true => web.arming_only(),
            false => web.arming_only_of(move |topic| its.has_topic(topic)),
        };
        let web = web.process_metrics(recorded);
        describe_metrics();
        let web = web.ready(move || {
            let notes = health.faults();
            Readiness { ready: notes.is_empty(), notes }
        });
        let (close, closed) = oneshot::channel::<()>();
        // The server stops when `close` is dropped.
        let served = tokio::spawn(server.run(web.router(), async { drop(closed.await) }));
        Ok(Self { entrance, close, served })
    }

    async fn close(self) {
        drop(self.close);
        _ = self.served.await;
    }
}

fn read_and_warn(args: &Args) -> Result<Config, CliError> {
    let config = read(args)?;
    for header in config.exposed_headers() {
        warn!(file = %args.config.display(), header, "{EXPOSED}");
    }
    Ok(config)
}

fn read(args: &Args) -> Result<Config, CliError> {
    Config::read(&args.config).map_err(|error| CliError::Usage(in_file(args, error)))
}

fn in_file(args: &Args, what: impl std::fmt::Display) -> String {
    format!("{}: {what}", args.config.display())
}

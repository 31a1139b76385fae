//! `keylapse run`: relays what is due, as a file says, and arms timers for those who ask over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;

use keylapse_console::Console;
use keylapse_relay::{Config, Relay, RelayHealth, describe_metrics};
use keylapse_web::{Readiness, Web};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::args::Connect;
use crate::exit::{Exit, Failed};
use crate::listen::{Entrance, Listen};
use crate::output::Output;
use crate::{log, recorder, signals};

/// The advice for a header that seems to hold a secret.
const EXPOSED: &str = "everybody on this machine can read the file, and with it this header: \
                       write { file = \"…\" } or { env = \"…\" } as its value, or chmod o= the file";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The file that says what is relayed where.
    #[arg(short, long, value_name = "FILE", default_value = "keylapse.toml")]
    config: PathBuf,
    /// Read the file, say what is wrong with it, and end. Nothing is connected to.
    #[arg(long)]
    check: bool,
    /// Arm and cancel timers for those who ask over HTTP at this address, answer probes and show metrics. Without it nothing
    /// is listened at.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Arm and cancel over HTTP timers of each topic of the namespace, in place of those of the file's topics alone.
    #[arg(long, requires = "listen")]
    any_topic: bool,
    #[command(flatten)]
    http: Listen,
    #[command(flatten)]
    log: log::Log,
}

pub(crate) async fn run(connect: &Connect, args: &Args, out: &mut Output) -> Result<Exit, Failed> {
    let mut relay = Relay::new(connect.client()?);
    if args.check {
        let config = read(args)?;
        let exposed =
            config.exposed_headers().iter().map(|header| in_file(args, format!("{header}: {EXPOSED}")));
        exposed.for_each(|note| out.note(note));
        relay.check(config).map_err(|error| Failed::Usage(in_file(args, error)))?;
        out.say(in_file(args, "fine"))?;
        return Ok(Exit::Fine);
    }
    log::start(&args.log);
    let (reload, stop) = (signals::to_reload(), keylapse::shutdown_signal());
    // Before the file is read: what it names has metrics from the start.
    let recorded = args.listen.map(|_| recorder::install()).transpose()?;
    // Before anything is claimed: what is wrong with the command line ends it.
    let config = read_and_warn(args)?;
    let door = match args.listen.zip(recorded) {
        Some((address, recorded)) => {
            Some(Door::open(connect, args, address, relay.health(), recorded).await?)
        }
        None => None,
    };
    relay.follow(config).await.map_err(|error| Failed::Usage(in_file(args, error)))?;
    until(&mut relay, args, door.as_ref(), reload, stop).await?;
    info!("stopping: what runs is finished or handed back");
    relay.stop().await?;
    if let Some(door) = door {
        door.close().await;
    }
    Ok(Exit::Fine)
}

/// Follows the file, as often as somebody asks for it, until it is to stop.
async fn until(
    relay: &mut Relay,
    args: &Args,
    door: Option<&Door>,
    mut reload: signals::Reload,
    stop: impl Future<Output = ()>,
) -> Result<(), Failed> {
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return Ok(()),
            ended = relay.ended() => ended?,
            () = reload.asked() => {
                // At once: whose token is not to hold any more is not let in while a server is waited for.
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

/// What the file says now, if it can be done.
async fn follow(relay: &mut Relay, args: &Args) {
    let followed = async { Ok::<_, Failed>(relay.follow(read_and_warn(args)?).await?) };
    match followed.await {
        Ok(()) => info!(file = %args.config.display(), "the file was read again, and holds from now on"),
        Err(error) => error!(%error, "the file was read again, and is refused: all goes on as before"),
    }
}

/// Where others ask.
struct Door {
    entrance: Entrance,
    close: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Door {
    async fn open(
        connect: &Connect,
        args: &Args,
        address: SocketAddr,
        health: RelayHealth,
        recorded: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self, Failed> {
        let entrance = args.http.read()?;
        let server = entrance.bind(address).await?;
        let web = Web::new(Console::new(connect.client()?), entrance.access.clone());
        let its = health.clone();
        let web = match args.any_topic {
            true => web.arming_only(),
            false => web.arming_only_of(move |topic| its.has_topic(topic)),
        };
        let web = web.recorded(recorded);
        describe_metrics();
        let web = web.ready(move || {
            let notes = health.faults();
            Readiness { ready: notes.is_empty(), notes }
        });
        let (close, closed) = oneshot::channel::<()>();
        // It closes when it is told to, or this is dropped.
        let served = tokio::spawn(server.run(web.router(), async { drop(closed.await) }));
        Ok(Self { entrance, close, served })
    }

    async fn close(self) {
        drop(self.close);
        _ = self.served.await;
    }
}

fn read_and_warn(args: &Args) -> Result<Config, Failed> {
    let config = read(args)?;
    for header in config.exposed_headers() {
        warn!(file = %args.config.display(), header, "{EXPOSED}");
    }
    Ok(config)
}

fn read(args: &Args) -> Result<Config, Failed> {
    Config::read(&args.config).map_err(|error| Failed::Usage(in_file(args, error)))
}

fn in_file(args: &Args, what: impl std::fmt::Display) -> String {
    format!("{}: {what}", args.config.display())
}

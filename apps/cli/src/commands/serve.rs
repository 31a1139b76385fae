//! `keylapse serve`: serves a dashboard, an API and metrics over HTTP.

use std::net::SocketAddr;

use keylapse_console::Console;
use keylapse_web::Web;

use crate::args::Connect;
use crate::exit::{CliError, Exit};
use crate::listen::Listen;
use crate::{log, recorder, signals};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Listen at this address.
    ///
    /// An address that other machines can reach requires --token-file or --read-token-file.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117")]
    listen: SocketAddr,
    #[command(flatten)]
    http: Listen,
    /// Serve no route that changes anything.
    #[arg(long)]
    read_only: bool,
    /// Show payloads, which may hold secrets.
    #[arg(long)]
    show_payloads: bool,
    #[command(flatten)]
    log: log::Log,
}

pub(crate) async fn run(connect: &Connect, args: &Args) -> Result<Exit, CliError> {
    // The dashboard shows that a server cannot be reached, so it is not an error here.
    let console = Console::new(connect.client()?);
    log::start(&args.log);
    let (mut reload, stop) = (signals::to_reload(), keylapse::shutdown_signal());
    let entrance = args.http.read()?;
    let server = entrance.bind(args.listen).await?;
    let web = Web::new(console, entrance.access.clone())
        .read_only(args.read_only)
        .show_payloads(args.show_payloads);
    let web = web.process_metrics(recorder::install()?);
    let follow = async {
        loop {
            reload.asked().await;
            args.http.follow(&entrance);
        }
    };
    tokio::select! {
        () = server.run(web.router(), stop) => Ok(Exit::Success),
        never = follow => never,
    }
}

//! The command line: which commands there are, and who does what they say.

use clap::{CommandFactory, Parser, Subcommand};
use keylapse_console::Console;

use crate::args::{Connect, Format, Targets};
use crate::commands;
use crate::exit::{Exit, Failed};
use crate::output::Output;

/// Look at and act on timers that keylapse keeps in Redis or Valkey.
///
/// Exit codes: 0 all is well, 1 there are findings or nothing matched, 2 the command makes no sense or names what cannot be
/// read, 3 the server cannot be reached or refuses.
#[derive(Debug, Parser)]
#[command(name = "keylapse", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How all topics are: what they hold, what is overdue, who serves them.
    Status(commands::status::Args),
    /// The topics, with their patterns.
    Topics,
    /// Who listens, and to what.
    Listeners,
    /// The hosts that webhooks call, and by which of them work is held back; --try calls one now.
    Hosts(commands::listeners::HostsArgs),
    /// All of it on a screen that stays up to date.
    Top(commands::top::Args),
    /// What a topic holds, by time, page by page.
    Ls(commands::ls::Args),
    /// A key's timer, dead letters and enrolment, with all their fields.
    Show(commands::key::ShowArgs),
    /// Why a key's timer has run, will run, or does not run now.
    Why(commands::key::WhyArgs),
    /// What has ended in a topic that keeps a journal, the newest first.
    Journal(commands::journal::Args),
    /// Starts and ends of attempts, as they happen.
    Tail(commands::tail::Args),
    /// Arm a timer.
    Arm(commands::timers::ArmArgs),
    /// Withdraw a timer, or many.
    Cancel(Targets),
    /// Move a waiting timer to another time, or many.
    Reschedule(commands::timers::RescheduleArgs),
    /// Make a waiting timer due now, or many.
    RunNow(Targets),
    /// Replay or drop dead letters.
    Dead(commands::bulk::DeadArgs),
    /// Stop giving out a topic's timers; they can be armed all the same.
    Pause(commands::topic::PauseArgs),
    /// Give them out again; what has become due runs at once.
    Resume(commands::topic::TopicArgs),
    /// Give a topic another number of partitions.
    Partitions(commands::topic::PartitionsArgs),
    /// Remove a topic with all that it holds.
    Destroy(commands::topic::DestroyArgs),
    /// Forget an attached topic; the keys themselves are left alone.
    Detach(commands::topic::TopicArgs),
    /// What is amiss with the servers, and the line that mends it. Works before anything of keylapse's is there.
    Doctor(commands::doctor::Args),
    /// Whether topics are as they should be: for cron, probes and alarms.
    Check(commands::check::Args),
    /// Whether index and records of topics agree. Reads all of it, and writes nothing.
    Verify(commands::check::VerifyArgs),
    /// What attaching to keys that other programs write would mean. Writes nothing.
    Attach(commands::attach::Args),
    /// Write a topic's timers, or its dead letters, as lines of JSON.
    Export(commands::transfer::ExportArgs),
    /// Read such lines from the standard input, and install what is not there.
    Import,
    /// Call URLs, feed lists and streams, or run programs, whenever a key expires or a timer is due, as a file says.
    Run(commands::run::Args),
    /// Show all of it in a browser, and answer over HTTP: dashboard, API and metrics.
    Serve(commands::serve::Args),
    /// Ask a `run` or `serve` whether it can do its work: for images without a shell.
    Health(commands::health::Args),
    /// Write completions for a shell.
    Completions(commands::completions::Args),
    /// Write the manual as man pages into a folder.
    Man(commands::completions::ManArgs),
}

/// Does what the command line says.
pub(crate) async fn run(cli: Cli, out: &mut Output) -> Result<Exit, Failed> {
    let Cli { connect, command, .. } = cli;
    let console = || connect.console();
    let exit = match command {
        Command::Status(args) => commands::status::run(&console().await?, &args, out).await,
        Command::Topics => commands::status::topics(&console().await?, out).await,
        Command::Listeners => commands::listeners::run(&console().await?, out).await,
        Command::Hosts(args) => commands::listeners::hosts(&console().await?, &args, out).await,
        Command::Top(args) => commands::top::run(&connect, &args, out).await,
        Command::Ls(args) => commands::ls::run(&console().await?, &args, out).await,
        Command::Show(args) => commands::key::show(&console().await?, &args, out).await,
        Command::Why(args) => commands::key::why(&console().await?, &args, out).await,
        Command::Journal(args) => commands::journal::run(&console().await?, &args, out).await,
        Command::Tail(args) => commands::tail::run(&console().await?, &args, out).await,
        Command::Arm(args) => commands::timers::arm(&console().await?, &args, out).await,
        Command::Cancel(args) => commands::timers::cancel(&console().await?, &args, out).await,
        Command::Reschedule(args) => commands::timers::reschedule(&console().await?, &args, out).await,
        Command::RunNow(args) => commands::timers::run_now(&console().await?, &args, out).await,
        Command::Dead(args) => commands::bulk::dead(&console().await?, &args, out).await,
        Command::Pause(args) => commands::topic::pause(&console().await?, &args, out).await,
        Command::Resume(args) => commands::topic::resume(&console().await?, &args, out).await,
        Command::Partitions(args) => commands::topic::partitions(&console().await?, &args, out).await,
        Command::Destroy(args) => commands::topic::destroy(&console().await?, &args, out).await,
        Command::Detach(args) => commands::topic::detach(&console().await?, &args, out).await,
        // A server that cannot be reached is one of its findings.
        Command::Doctor(args) => commands::doctor::run(&Console::new(connect.client()?), &args, out).await,
        Command::Check(args) => commands::check::run(&console().await?, &args, out).await,
        Command::Verify(args) => commands::check::verify(&console().await?, &args, out).await,
        Command::Attach(args) => commands::attach::run(&console().await?, &args, out).await,
        Command::Export(args) => commands::transfer::export(&console().await?, &args, out).await,
        Command::Import => commands::transfer::import(&console().await?, out).await,
        Command::Run(args) => commands::run::run(&connect, &args, out).await,
        Command::Serve(args) => commands::serve::run(&connect, &args).await,
        Command::Health(args) => commands::health::run(&args, out).await,
        Command::Completions(args) => commands::completions::write(Cli::command(), &args, out),
        Command::Man(args) => commands::completions::write_man(Cli::command(), &args, out),
    };
    out.flush()?;
    exit
}

//! The command line, and the dispatch of its commands.

use clap::{CommandFactory, Parser, Subcommand};
use keylapse_console::Console;

use crate::args::{Connect, Format, TargetArgs};
use crate::commands;
use crate::exit::{CliError, Exit};
use crate::output::Output;

/// Show and control timers that keylapse keeps in Redis or Valkey.
///
/// The exit code is 0 for success. It is 1 if a problem was found or nothing matched. It is 2 if the command line is
/// invalid, or a file or address in it cannot be used. It is 3 if the server cannot be reached or refuses.
#[derive(Debug, Parser)]
#[command(name = "keylapse", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Show the state of topics: timers, listeners and alarms.
    Status(commands::status::Args),
    /// List topics with their patterns.
    Topics,
    /// List listeners, their topics, and the events that they receive.
    Listeners,
    /// List the destinations that handlers call, or try one now.
    Destinations(commands::listeners::DestinationsArgs),
    /// Show topics, listeners and timers on a live screen.
    Top(commands::top::Args),
    /// List timers, dead letters or tracked keys of a topic, by time.
    Ls(commands::ls::Args),
    /// Show the timer, the dead letters and the tracking of a key.
    Show(commands::key::ShowArgs),
    /// Explain why a key's timer has run, will run, or does not run now.
    Why(commands::key::WhyArgs),
    /// List timers that have ended, for a topic that keeps a journal.
    Journal(commands::journal::Args),
    /// Print starts and ends of attempts as they happen.
    Tail(commands::tail::Args),
    /// Arm a timer.
    Arm(commands::timers::ArmArgs),
    /// Cancel a timer, or many. They do not run.
    Cancel(TargetArgs),
    /// Move a waiting timer, or many, to another time.
    Reschedule(commands::timers::RescheduleArgs),
    /// Make a waiting timer, or many, due now.
    RunNow(TargetArgs),
    /// Replay or drop dead letters.
    Dead(commands::bulk::DeadArgs),
    /// Pause a topic. Its timers can be armed, but do not run.
    Pause(commands::topic::PauseArgs),
    /// Resume a paused topic. Overdue timers run immediately.
    Resume(commands::topic::TopicArgs),
    /// Change the number of partitions of a topic.
    Partitions(commands::topic::PartitionsArgs),
    /// Destroy a topic with its timers, dead letters and tracked keys.
    Destroy(commands::topic::DestroyArgs),
    /// Detach an attached topic. The keys of other programs stay.
    Detach(commands::topic::TopicArgs),
    /// Find problems of the servers, and print the line that fixes each.
    ///
    /// It works on a server that keylapse has never used.
    Doctor(commands::doctor::Args),
    /// Check topics against limits, for cron, probes and alerts.
    Check(commands::check::Args),
    /// Verify that the index and the records of topics agree.
    ///
    /// This reads all of them, and writes nothing.
    Verify(commands::check::VerifyArgs),
    /// Estimate the cost of attaching to keys that other programs write.
    ///
    /// This writes nothing.
    Attach(commands::attach::Args),
    /// Export timers or dead letters of a topic as lines of JSON.
    Export(commands::transfer::ExportArgs),
    /// Import exported lines from standard input. Existing timers stay.
    Import,
    /// Deliver timers and expired keys to URLs, queues or programs.
    ///
    /// A configuration file describes the deliveries. A queue is a list or a stream in Redis.
    Run(commands::run::Args),
    /// Serve a dashboard, an HTTP API and metrics.
    Serve(commands::serve::Args),
    /// Ask a `run` or `serve` over HTTP whether it is ready.
    ///
    /// This is for container images without a shell.
    Health(commands::health::Args),
    /// Print completions for a shell.
    Completions(commands::completions::Args),
    /// Write the manual as man pages into a folder.
    Man(commands::completions::ManArgs),
}

/// Runs the command.
pub(crate) async fn run(cli: Cli, out: &mut Output) -> Result<Exit, CliError> {
    let Cli { connect, command, .. } = cli;
    let console = || connect.console();
    let exit = match command {
        CliCommand::Status(args) => commands::status::run(&console().await?, &args, out).await,
        CliCommand::Topics => commands::status::topics(&console().await?, out).await,
        CliCommand::Listeners => commands::listeners::run(&console().await?, out).await,
        CliCommand::Destinations(args) => {
            commands::listeners::destinations(&console().await?, &args, out).await
        }
        CliCommand::Top(args) => commands::top::run(&connect, &args, out).await,
        CliCommand::Ls(args) => commands::ls::run(&console().await?, &args, out).await,
        CliCommand::Show(args) => commands::key::show(&console().await?, &args, out).await,
        CliCommand::Why(args) => commands::key::why(&console().await?, &args, out).await,
        CliCommand::Journal(args) => commands::journal::run(&console().await?, &args, out).await,
        CliCommand::Tail(args) => commands::tail::run(&console().await?, &args, out).await,
        CliCommand::Arm(args) => commands::timers::arm(&console().await?, &args, out).await,
        CliCommand::Cancel(args) => commands::timers::cancel(&console().await?, &args, out).await,
        CliCommand::Reschedule(args) => commands::timers::reschedule(&console().await?, &args, out).await,
        CliCommand::RunNow(args) => commands::timers::run_now(&console().await?, &args, out).await,
        CliCommand::Dead(args) => commands::bulk::dead(&console().await?, &args, out).await,
        CliCommand::Pause(args) => commands::topic::pause(&console().await?, &args, out).await,
        CliCommand::Resume(args) => commands::topic::resume(&console().await?, &args, out).await,
        CliCommand::Partitions(args) => commands::topic::partitions(&console().await?, &args, out).await,
        CliCommand::Destroy(args) => commands::topic::destroy(&console().await?, &args, out).await,
        CliCommand::Detach(args) => commands::topic::detach(&console().await?, &args, out).await,
        // The doctor reports a server that cannot be reached as a finding.
        CliCommand::Doctor(args) => commands::doctor::run(&Console::new(connect.client()?), &args, out).await,
        CliCommand::Check(args) => commands::check::run(&console().await?, &args, out).await,
        CliCommand::Verify(args) => commands::check::verify(&console().await?, &args, out).await,
        CliCommand::Attach(args) => commands::attach::run(&console().await?, &args, out).await,
        CliCommand::Export(args) => commands::transfer::export(&console().await?, &args, out).await,
        CliCommand::Import => commands::transfer::import(&console().await?, out).await,
        CliCommand::Run(args) => commands::run::run(&connect, &args, out).await,
        CliCommand::Serve(args) => commands::serve::run(&connect, &args).await,
        CliCommand::Health(args) => commands::health::run(&args, out).await,
        CliCommand::Completions(args) => commands::completions::write(Cli::command(), &args, out),
        CliCommand::Man(args) => commands::completions::write_man(Cli::command(), &args, out),
    };
    out.flush()?;
    exit
}

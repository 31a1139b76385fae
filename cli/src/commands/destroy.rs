//! `keylapse destroy` and `keylapse detach`: the end of a topic.

use keylapse::ErrorKind;
use keylapse_console::Console;

use crate::commands::did::say_of_topic;
use crate::commands::in_use::{self, End};
use crate::exit::{Exit, Failed};
use crate::output::{Output, counted};

#[derive(clap::Args, Debug)]
pub(crate) struct DestroyArgs {
    /// The topic.
    topic: String,
    /// Whoever listens, and whatever is armed.
    #[arg(long)]
    force: bool,
    /// The topic's name once more, in place of being asked for it.
    #[arg(long, value_name = "TOPIC")]
    confirm: Option<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct DetachArgs {
    /// The topic.
    topic: String,
}

pub(crate) async fn destroy(console: &Console, args: &DestroyArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    let held = topic.overview().await?;
    let typed = match &args.confirm {
        Some(name) => name.clone(),
        None if Output::can_ask() => {
            let (timers, dead) = (counted(held.timers, "timer"), counted(held.dead, "dead letter"));
            let enrolled = counted(held.enrolled, "enrolled key");
            out.note(format!("{timers}, {dead} and {enrolled} will be gone for good."));
            out.ask("Type the topic's name to go on:")?
        }
        None => return Err(Failed::Usage(format!("nobody can be asked: say --confirm {}", topic.name()))),
    };
    if typed != topic.name() {
        return Err(Failed::Findings("that is not its name: nothing was done".to_owned()));
    }
    let gone = match topic.destroy(args.force).await {
        Err(error) if error.kind() == ErrorKind::InUse => {
            return Err(in_use::refusal(console, &topic, End::Destroyed).await?);
        }
        gone => gone?,
    };
    let (timers, dead) = (counted(gone.timers, "timer"), counted(gone.dead_letters, "dead letter"));
    let says = format!("{timers}, {dead} and {} are gone", counted(gone.trigger_keys, "trigger key"));
    say_of_topic(&topic, "destroyed", &says, out)
}

pub(crate) async fn detach(console: &Console, args: &DetachArgs, out: &mut Output) -> Result<Exit, Failed> {
    let topic = console.topic(&args.topic).await?;
    let name = topic.name();
    if !topic.is_attached() {
        let advice = format!("{name} is no attached topic: `keylapse destroy {name}` removes it");
        return Err(Failed::Usage(advice));
    }
    let gone = match topic.detach().await {
        Err(error) if error.kind() == ErrorKind::InUse => {
            return Err(in_use::refusal(console, &topic, End::Detached).await?);
        }
        gone => gone?,
    };
    let says = format!("{} forgotten and left alone", counted(gone.enrolled, "key"));
    say_of_topic(&topic, "detached", &says, out)
}

//! One fault at a time: what each alone does to the lateness of timers.

use std::time::Duration;

use keylapse_support::{Direction, Then};

use super::{Interruption, LineFault, Plan, Planned, ProcessFault, ServerFault};

/// How often each happens in its run, and how long after the last.
const TIMES: u8 = 4;
const PAUSE: Duration = Duration::from_millis(900);

/// Each kind of fault with its name, alone and repeated. Those that last, last a second: half the usual lease
/// of a run.
pub fn catalogue() -> Vec<(String, Plan)> {
    let mut all = vec![("none".to_owned(), Plan::default())];
    all.extend(SERVER.map(|fault| {
        (format!("server: {fault:?}"), Plan { server: repeated(|_| fault), ..Plan::default() })
    }));
    all.extend(LINE.map(|what| {
        let line = repeated(|whose| LineFault { whose, what });
        (format!("line: {what:?}"), Plan { line, ..Plan::default() })
    }));
    all.extend(
        PROCESS.map(|(name, of)| {
            (format!("process: {name}"), Plan { process: repeated(of), ..Plan::default() })
        }),
    );
    all
}

const SERVER: [ServerFault; 17] = [
    ServerFault::Crash,
    ServerFault::Restart,
    ServerFault::Reload,
    ServerFault::Freeze(1000),
    ServerFault::Sleep(1000),
    ServerFault::Busy(1000),
    ServerFault::PauseAll(1000),
    ServerFault::PauseWrite(1000),
    ServerFault::ReadOnly(1000),
    ServerFault::NoReplicas(1000),
    ServerFault::Full(1000),
    ServerFault::KillSubscribers,
    ServerFault::KillClients,
    ServerFault::ForgetScripts(10),
    ServerFault::Mute(1000),
    ServerFault::Lazy(1000),
    ServerFault::Forge(2000),
];

const LINE: [Interruption; 11] = [
    Interruption::Cut,
    Interruption::Reset,
    Interruption::Stall(Direction::Requests, 1000),
    Interruption::Stall(Direction::Replies, 1000),
    Interruption::Delay(Direction::Both, 50, 1000),
    Interruption::Split(7, 1000),
    Interruption::Refuse(1000),
    Interruption::Tear(150, 1000),
    Interruption::Lose(3, Then::Close),
    Interruption::Lose(3, Then::Stall),
    Interruption::Lose(3, Then::Tear(5)),
];

type Strike = fn(u8) -> ProcessFault;

const PROCESS: [(&str, Strike); 5] = [
    ("KillListener", ProcessFault::KillListener),
    ("KillProducer", ProcessFault::KillProducer),
    ("StopListener(1000)", |which| ProcessFault::StopListener(which, 1000)),
    ("ReplaceListener", ProcessFault::ReplaceListener),
    ("BlockListener", ProcessFault::BlockListener),
];

fn repeated<F>(fault: impl Fn(u8) -> F) -> Vec<Planned<F>> {
    (0..TIMES).map(|which| Planned { after: PAUSE, fault: fault(which) }).collect()
}

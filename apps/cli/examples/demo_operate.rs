//! Plays an evening on call, on a server with its default configuration: `make demo SHOW=operate`.
//!
//! 1. The operator follows the advice of `keylapse doctor`.
//! 2. A listener closes a shop's orders while the bank does not answer. Some orders become dead letters.
//! 3. The listener is killed during its work. `keylapse why` explains why nothing runs.
//! 4. A second listener starts, and the operator replays the dead letters.
//!
//! The demo fails if an order was not closed, a replay failed, or a command ended with an unexpected exit code.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use keylapse::{Done, Failure, Lapse, Listener, Outcome, Schedule, Topic, shutdown_signal};
use keylapse_support::Program;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The shop's own set of the orders that it has closed.
const CLOSED: &str = "shop:closed";
/// The maximum wait for one step. Each step is faster, even on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(40);

fn orders() -> keylapse::Result<Topic<u64>> {
    // With a short lease, the second listener soon takes over the order that the killed listener ran.
    let orders = Topic::new("order:unpaid:{id}")?.max_attempts(3).lease(Duration::from_secs(2));
    Ok(orders.timeout(Duration::from_secs(60)))
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen", url, bank] => listen(url, bank == "silent").await,
        _ => play().await,
    }
}

/// Runs the shop's listener in its own process.
async fn listen(url: &str, silent: bool) -> Result<()> {
    let shop = keylapse_support::connect(url).await?;
    let close = move |lapse: Lapse<u64>| close(lapse, shop.clone(), silent);
    Ok(Listener::builder(url).on(orders()?, close).build()?.run_until(shutdown_signal()).await?)
}

async fn close(
    lapse: Lapse<u64>,
    mut shop: MultiplexedConnection,
    silent: bool,
) -> std::result::Result<Outcome, Failure> {
    let id = lapse.capture("id").unwrap_or_default();
    match lapse.payload() {
        // While the bank is silent, orders of kind 2 time out, and orders of kind 3 wait for a minute.
        2 if silent => {
            return Err(Failure::retry_after(Duration::from_millis(50), "timeout: the bank is silent"));
        }
        3 if silent => tokio::time::sleep(Duration::from_secs(60)).await,
        _ => {}
    }
    let _: () = shop.sadd(CLOSED, id).await.map_err(|error| Failure::retry(error.to_string()))?;
    Ok(Done.into())
}

/// Starts the shop's listener as a process that the demo can kill.
fn listener(url: &str, bank: &str) -> Result<Program> {
    println!(
        "\n# A listener starts. The bank {}.",
        if bank == "silent" { "does not answer" } else { "answers" }
    );
    Ok(Program::silent(Command::new(std::env::current_exe()?).args(["listen", url, bank]))?)
}

/// The operator on call, with the counts that the demo prints at its end.
struct OnCall {
    program: PathBuf,
    url: String,
    commands: u32,
    findings: u64,
    replayed: u64,
    failed: u64,
}

impl OnCall {
    /// Runs a command, prints it with its output, and counts an exit code other than `expected` as failed.
    fn run(&mut self, line: &str, expected: i32) -> Result<String> {
        println!("\n$ keylapse {line}");
        let Output { status, stdout, stderr } = self.command(line).output()?;
        let text = String::from_utf8_lossy(&stdout).into_owned();
        print!("{}{text}", String::from_utf8_lossy(&stderr));
        self.commands += 1;
        if status.code() != Some(expected) {
            println!("! this ended with {status}, expected {expected}");
            self.failed += 1;
        }
        Ok(text)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(line.split(' ')).env("KEYLAPSE_URL", &self.url).stdin(Stdio::null());
        command
    }

    /// Runs a command with `--json`, and returns its lines without printing them.
    fn lines(&self, line: &str) -> Result<Vec<Value>> {
        let json = self.command(&format!("--json {line}")).output()?.stdout;
        Ok(String::from_utf8_lossy(&json)
            .lines()
            .map(serde_json::from_str)
            .collect::<serde_json::Result<_>>()?)
    }

    /// Waits until `wanted` accepts this number of the topic's status.
    async fn until(&self, field: &str, wanted: impl Fn(u64) -> bool) -> Result<()> {
        let began = Instant::now();
        while !self.lines("status")?.first().and_then(|topic| topic[field].as_u64()).is_some_and(&wanted) {
            if began.elapsed() > STEP_TIMEOUT {
                return Err(format!("timeout: the topic's status has an unexpected number of {field}").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Follows the advice of `keylapse doctor` until it finds no errors.
    async fn follow_doctor(&mut self, server: &mut MultiplexedConnection) -> Result<()> {
        for visit in 0..5 {
            let found = self.lines("doctor")?;
            let bad =
                |severity: &str| found.iter().filter(|line| line["severity"] == severity).collect::<Vec<_>>();
            let errors = bad("error");
            if visit == 0 {
                self.findings += (errors.len() + bad("warning").len()) as u64;
            }
            self.run("doctor", i32::from(!errors.is_empty()))?;
            if errors.is_empty() {
                return Ok(());
            }
            for fix in errors.iter().filter_map(|error| error["fix"].as_str()) {
                println!("\n$ {fix}");
                // The demo sends the command on its own connection: redis-cli may not be installed.
                let words: Vec<_> = fix.split(' ').skip_while(|word| *word != "CONFIG").collect();
                let (name, words) = words.split_first().ok_or("the doctor's advice has no CONFIG command")?;
                let words = words.iter().map(|word| word.trim_matches(['\'', '"']));
                let mut command = redis::cmd(name);
                words.for_each(|word| _ = command.arg(word));
                println!("{}", command.query_async::<String>(server).await?);
            }
        }
        Err("`keylapse doctor` still finds errors after its advice was followed five times".into())
    }
}

async fn play() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let binary = std::env::var("KEYLAPSE_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let mut server = Command::new(binary);
    server.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]).arg("--dir").arg(folder.path());
    let _server = Program::silent(&mut server)?;
    let url = format!("redis://127.0.0.1:{port}/");
    let mut server = connected(&url).await?;
    let program = std::env::current_exe()?
        .parent()
        .and_then(|examples| examples.parent())
        .map(|folder| folder.join("keylapse"));
    let program = program
        .filter(|program| program.exists())
        .ok_or("`keylapse` is not built: run `make demo SHOW=operate`")?;
    println!("# A server with its default configuration.\n$ export KEYLAPSE_URL={url}");
    let mut on_call = OnCall { program, url: url.clone(), commands: 0, findings: 0, replayed: 0, failed: 0 };
    on_call.follow_doctor(&mut server).await?;

    let first = listener(&url, "silent")?;
    let armed = evening(&mut on_call, &url, first).await?;

    let second = listener(&url, "answers")?;
    on_call.until("listeners", |listeners| listeners == 1).await?;
    on_call.until("overdue", |overdue| overdue == 0).await?;
    replay(&mut on_call, &mut server).await?;
    on_call.until("timers", |timers| timers == 0).await?;
    on_call.run("status", 0)?;
    on_call.run("check --max-overdue 5s --max-dead 0 --min-listeners 1", 0)?;
    on_call.run("verify", 0)?;
    drop(second);

    let closed: BTreeSet<String> = server.smembers(CLOSED).await?;
    let lost = armed.difference(&closed).count();
    let OnCall { commands, findings, replayed, failed, .. } = on_call;
    println!("\ncommands={commands} findings={findings} replayed={replayed} lost={lost} failed={failed}");
    if lost > 0 || failed > 0 { Err("an order was lost, or a command failed".into()) } else { Ok(()) }
}

async fn connected(url: &str) -> Result<MultiplexedConnection> {
    let began = Instant::now();
    loop {
        match keylapse_support::connect(url).await {
            Ok(connection) => return Ok(connection),
            Err(error) if began.elapsed() > STEP_TIMEOUT => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Arms orders of which some fail, kills the listener, and returns the IDs of the orders.
async fn evening(on_call: &mut OnCall, url: &str, running: Program) -> Result<BTreeSet<String>> {
    let (schedule, orders) = (Schedule::connect(url).await?, orders()?);
    println!("\n# 20 orders are armed. The bank does not answer for 7: 6 time out, and 1 keeps waiting.");
    let now = Duration::from_millis(200);
    let soon = [(1..=13, 1), (14..=19, 2), (20..=20, 3)];
    let mut armed = BTreeSet::new();
    for (id, what) in soon.into_iter().flat_map(|(ids, what)| ids.map(move |id| (id, what))) {
        let _ = schedule.arm(&orders, id, now, &what).await?;
        armed.insert(id.to_string());
    }
    on_call.until("dead", |dead| dead == 6).await?;
    on_call.until("running", |running| running == 1).await?;
    on_call.run("status", 0)?;
    on_call.run("ls order.unpaid --state dead", 0)?;
    on_call.run("why order:unpaid:14", 0)?;

    println!("\n# 5 more are armed, and the listener is killed while it runs order 20.");
    for id in 21..=25 {
        let _ = schedule.arm(&orders, id, now, &1).await?;
        armed.insert(id.to_string());
    }
    running.kill();
    println!("# A listener that has sent no report for 15 s counts as gone.");
    on_call.until("listeners", |listeners| listeners == 0).await?;
    on_call.run("status", 0)?;
    on_call.run("why order:unpaid:20", 0)?;
    on_call.run("ls order.unpaid older:1s", 0)?;
    let check = "check --max-overdue 5s --max-dead 0 --min-listeners 1";
    on_call.run(check, 1)?;
    let breaches = on_call.lines(check)?.iter().filter(|line| line["type"] == "breach").count();
    on_call.findings += breaches as u64;
    Ok(armed)
}

/// Waits until `keylapse tail` has registered its watch on the topic.
async fn until_watched(server: &mut MultiplexedConnection) -> Result<()> {
    let began = Instant::now();
    while !server.hexists::<_, _, bool>("keylapse:{order.unpaid/0}:meta", "watched_until").await? {
        if began.elapsed() > STEP_TIMEOUT {
            return Err("timeout: `keylapse tail` has not registered its watch".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Replays the dead letters while `keylapse tail` watches.
async fn replay(on_call: &mut OnCall, server: &mut MultiplexedConnection) -> Result<()> {
    let dead = on_call.lines("ls order.unpaid --state dead")?.len();
    on_call.run("dead replay order.unpaid error:~timeout --dry-run", 0)?;
    let tail_line = format!("tail order.unpaid --limit {} --for 5s", 2 * dead);
    let watcher = on_call.command(&tail_line).stdout(Stdio::piped()).spawn()?;
    until_watched(server).await?;
    let text = on_call.run(&format!("dead replay order.unpaid error:~timeout --yes --expect {dead}"), 0)?;
    let last = text.lines().last().unwrap_or_default();
    let number = |name: &str| {
        last.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
    };
    on_call.replayed += number("done").ok_or("the last line of `keylapse dead replay` has no `done`")?;
    on_call.failed += number("failed").ok_or("the last line of `keylapse dead replay` has no `failed`")?;
    println!("\n$ keylapse {tail_line}   # in another terminal, during the replay");
    print!("{}", String::from_utf8_lossy(&watcher.wait_with_output()?.stdout));
    on_call.commands += 1;
    Ok(())
}

//! An evening on call, played on a server as it is when it was just installed: `make demo SHOW=operate`.
//!
//! A doctor's advice is followed. A shop's orders are closed by a listener while the bank is silent, so that some become
//! dead letters. The listener is killed in the middle of its work; the program says so, and why nothing runs. Another one
//! is started, and the letters are replayed. In the end each order has been closed, or this fails.

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

/// Where the shop writes down which orders it has closed: a key of its own.
const CLOSED: &str = "shop:closed";
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

fn orders() -> keylapse::Result<Topic<u64>> {
    // A lease is short here so that what a crashed listener held is soon seen to run elsewhere.
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

/// What that process does.
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
        // The bank is asked about these, and does not answer: by error, or by no end.
        2 if silent => {
            return Err(Failure::retry_after(Duration::from_millis(50), "timeout: the bank is silent"));
        }
        3 if silent => tokio::time::sleep(Duration::from_secs(60)).await,
        _ => {}
    }
    let _: () = shop.sadd(CLOSED, id).await.map_err(|error| Failure::retry(error.to_string()))?;
    Ok(Done.into())
}

/// The shop's listener: a process of its own, so that it can be killed.
fn listener(url: &str, bank: &str) -> Result<Program> {
    println!(
        "\n# A listener is started; the bank {}.",
        if bank == "silent" { "is silent" } else { "answers" }
    );
    Ok(Program::silent(Command::new(std::env::current_exe()?).args(["listen", url, bank]))?)
}

/// Who is on call, and what they have done.
struct OnCall {
    program: PathBuf,
    url: String,
    commands: u32,
    findings: u64,
    replayed: u64,
    failed: u64,
}

impl OnCall {
    /// Runs a command, shows it with what it says, and expects it to end so.
    fn run(&mut self, line: &str, expected: i32) -> Result<String> {
        println!("\n$ keylapse {line}");
        let Output { status, stdout, stderr } = self.command(line).output()?;
        let said = String::from_utf8_lossy(&stdout).into_owned();
        print!("{}{said}", String::from_utf8_lossy(&stderr));
        self.commands += 1;
        if status.code() != Some(expected) {
            println!("! this ended with {status}, and {expected} is expected");
            self.failed += 1;
        }
        Ok(said)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(line.split(' ')).env("KEYLAPSE_URL", &self.url).stdin(Stdio::null());
        command
    }

    /// What it says as lines of JSON, which is not shown.
    fn lines(&self, line: &str) -> Result<Vec<Value>> {
        let said = self.command(&format!("--json {line}")).output()?.stdout;
        Ok(String::from_utf8_lossy(&said)
            .lines()
            .map(serde_json::from_str)
            .collect::<serde_json::Result<_>>()?)
    }

    /// Waits until a number of the topic's status is what is wanted.
    async fn until(&self, field: &str, wanted: impl Fn(u64) -> bool) -> Result<()> {
        let began = Instant::now();
        while !self.lines("status")?.first().and_then(|topic| topic[field].as_u64()).is_some_and(&wanted) {
            if began.elapsed() > PATIENCE {
                return Err(format!("waited for {field} in vain").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Follows the doctor's advice until there are no errors.
    async fn see_the_doctor(&mut self, server: &mut MultiplexedConnection) -> Result<()> {
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
                // What it says is said to the server itself: redis-cli need not be installed.
                let words: Vec<_> = fix.split(' ').skip_while(|word| *word != "CONFIG").collect();
                let (name, words) = words.split_first().ok_or("advice that this demo cannot follow")?;
                let words = words.iter().map(|word| word.trim_matches(['\'', '"']));
                let mut command = redis::cmd(name);
                words.for_each(|word| _ = command.arg(word));
                println!("{}", command.query_async::<String>(server).await?);
            }
        }
        Err("there are errors though the doctor's advice was followed".into())
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
        .ok_or("build the program first: make demo SHOW=operate does")?;
    println!("# A server as it is when it was just installed.\n$ export KEYLAPSE_URL={url}");
    let mut on_call = OnCall { program, url: url.clone(), commands: 0, findings: 0, replayed: 0, failed: 0 };
    on_call.see_the_doctor(&mut server).await?;

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
    if lost > 0 || failed > 0 { Err("this is not as it should be".into()) } else { Ok(()) }
}

async fn connected(url: &str) -> Result<MultiplexedConnection> {
    let began = Instant::now();
    loop {
        match keylapse_support::connect(url).await {
            Ok(connection) => return Ok(connection),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Orders are armed, some fail, and the listener is killed. Answers which were armed.
async fn evening(on_call: &mut OnCall, url: &str, running: Program) -> Result<BTreeSet<String>> {
    let (schedule, orders) = (Schedule::connect(url).await?, orders()?);
    println!("\n# 20 orders are armed. Of 6 the bank is asked and does not answer; 1 waits for it for long.");
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
    println!("# What is not heard of for 15 s counts as gone.");
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

/// Waits until the server knows of somebody who looks on.
async fn looked_on(server: &mut MultiplexedConnection) -> Result<()> {
    let began = Instant::now();
    while !server.hexists::<_, _, bool>("keylapse:{order.unpaid/0}:meta", "tail").await? {
        if began.elapsed() > PATIENCE {
            return Err("nobody looks on".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What died is replayed, while somebody looks on.
async fn replay(on_call: &mut OnCall, server: &mut MultiplexedConnection) -> Result<()> {
    let dead = on_call.lines("ls order.unpaid --state dead")?.len();
    on_call.run("dead replay order.unpaid error:~timeout --dry-run", 0)?;
    let look = format!("tail order.unpaid --limit {} --for 5s", 2 * dead);
    let looking = on_call.command(&look).stdout(Stdio::piped()).spawn()?;
    looked_on(server).await?;
    let said = on_call.run(&format!("dead replay order.unpaid error:~timeout --yes --expect {dead}"), 0)?;
    let last = said.lines().last().unwrap_or_default();
    let number = |name: &str| {
        last.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
    };
    on_call.replayed += number("done").ok_or("no last line")?;
    on_call.failed += number("failed").ok_or("no last line")?;
    println!("\n$ keylapse {look}   # in another terminal, meanwhile");
    print!("{}", String::from_utf8_lossy(&looking.wait_with_output()?.stdout));
    on_call.commands += 1;
    Ok(())
}

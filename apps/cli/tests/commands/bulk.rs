//! Many at a time: counted, agreed upon, done.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylapse_support::eventually;

use crate::commands::scene::{Do, PATIENCE, Scene, run_at};

const HOUR: Duration = Duration::from_secs(3600);
const REPLAY: [&str; 3] = ["dead", "replay", "order.unpaid"];

async fn buried(letters: u64) -> Scene {
    let mut scene = Scene::new().await.listening().await;
    scene.bury(letters).await;
    scene.stop_listening().await;
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_until_the_number_is_said() {
    let scene = buried(5).await;
    let alone = scene.run(&REPLAY);
    assert!(alone.code == 2 && alone.err.contains("--yes --expect 5"), "{alone:?}");
    let wrong = scene.run(&[&REPLAY[..], &["--yes", "--expect", "4"]].concat());
    assert!(wrong.code == 1 && wrong.err.contains("5 found, 4 expected"), "{wrong:?}");
    assert_eq!(scene.run(&[&REPLAY[..], &["--yes"]].concat()).code, 2);
    assert_eq!((scene.status("dead"), scene.status("timers")), (5, 0));

    let right = scene.run(&[&REPLAY[..], &["--yes", "--expect", "5"]].concat());
    assert!(right.code == 0 && right.out.ends_with("matched=5 done=5 skipped=0 failed=0\n"), "{right:?}");
    assert_eq!((scene.status("dead"), scene.status("timers")), (0, 5));
    let none = scene.run(&[&REPLAY[..], &["--yes", "--expect", "0"]].concat());
    assert!(none.code == 1 && none.out.ends_with("matched=0 done=0 skipped=0 failed=0\n"), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_a_real_one_does_and_does_nothing() {
    let scene = buried(6).await;
    let filtered = [&REPLAY[..], &["key:order:unpaid:dead-[0-3]", "key:order:unpaid:dead-?"]].concat();
    let odd = scene.run(&[&filtered[..], &["--dry-run"]].concat());
    assert!(
        odd.out.ends_with("matched=0 done=0 skipped=0 failed=0\n"),
        "brackets stand for themselves: {odd:?}"
    );
    let by_limit = [&REPLAY[..], &["key:order:unpaid:dead-?", "--limit", "4"]].concat();
    let dry = scene.run(&[&by_limit[..], &["--dry-run"]].concat());
    assert!(dry.code == 0 && dry.out.ends_with("matched=4 done=0 skipped=0 failed=0\n"), "{dry:?}");
    assert_eq!((scene.status("dead"), scene.status("timers")), (6, 0));
    let real = scene.run(&[&by_limit[..], &["--yes", "--expect", "4"]].concat());
    assert!(real.out.ends_with("matched=4 done=4 skipped=0 failed=0\n"), "{real:?}");
    assert_eq!((scene.status("dead"), scene.status("timers")), (2, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_on_the_same_letters_do_each_once() {
    let scene = buried(40).await;
    let url = scene.server.plain_url();
    let operators: Vec<_> = (0..2)
        .map(|_| {
            let url = url.clone();
            let drop =
                ["--json", "dead", "drop", "order.unpaid", "--yes", "--expect", "40", "--rate", "200/s"];
            std::thread::spawn(move || run_at(&url, &drop, b""))
        })
        .collect();
    let reports: Vec<serde_json::Value> = operators
        .into_iter()
        .map(|operator| operator.join().expect("an operator"))
        .filter_map(|ran| serde_json::from_str(ran.out.trim()).ok())
        .collect();
    let sum = |field: &str| reports.iter().filter_map(|report| report[field].as_u64()).sum::<u64>();
    assert_eq!((sum("done"), sum("failed")), (40, 0), "{reports:?}");
    assert_eq!(scene.status("dead"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_that_move_behind_others_are_met_with_once() {
    let scene = Scene::partitioned(2).await;
    for n in 0..1200 {
        let arm = keylapse::NewArm::new(format!("{n}"), HOUR, Do::Succeed);
        let armed = scene.schedule.arm_many(&scene.orders, [arm]).await.expect("an arming");
        assert!(armed[0].is_ok());
    }
    let to_later = ["reschedule", "--in", "order.unpaid", "--to", "2h", "--yes", "--expect", "1200"];
    let moved = scene.run(&to_later);
    assert!(moved.out.ends_with("matched=1200 done=1200 skipped=0 failed=0\n"), "{moved:?}");
    assert_eq!((scene.status("due_in_1h"), scene.status("timers")), (0, 1200));
    let some = ["cancel", "--in", "order.unpaid", "key:order:unpaid:1*", "--yes", "--expect", "311"];
    let cancelled = scene.run(&some);
    assert!(cancelled.out.ends_with("matched=311 done=311 skipped=0 failed=0\n"), "{cancelled:?}");
    assert_eq!(scene.status("timers"), 889);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_refused_where_it_cannot_work() {
    let scene = buried(1).await;
    let running = scene.run(&["run-now", "--in", "order.unpaid", "--state", "running"]);
    assert!(running.code == 2 && running.err.contains("running"), "{running:?}");
    let dead = scene.run(&["cancel", "--in", "order.unpaid", "--state", "dead"]);
    assert_eq!(dead.code, 2, "{dead:?}");
    for rate in ["0", "0/s", "-1", "fast"] {
        assert_eq!(scene.run(&[&REPLAY[..], &["--rate", rate]].concat()).code, 2, "{rate}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_limit_leaves_out_stands_behind_where_it_ends() {
    let scene = buried(5).await;
    let first = scene.lines(&[&REPLAY[..], &["--dry-run", "--limit", "2"]].concat());
    let place = first[0]["cursor"].as_str().expect("a place");
    let rest = scene.lines(&[&REPLAY[..], &["--dry-run", "--after", place]].concat());
    assert_eq!((first[0]["matched"].as_u64(), rest[0]["matched"].as_u64()), (Some(2), Some(3)));
}

/// At 20 a second these take so long that there is time to stop it, however busy the machine is.
const TIMERS: u64 = 300;

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_it_and_it_says_where_to_go_on() {
    for signal in ["INT", "TERM"] {
        let scene = Scene::partitioned(2).await;
        for n in 0..TIMERS {
            scene.arm(format!("it's {n}").as_bytes(), HOUR, Do::Succeed).await;
        }
        let cancel = ["cancel", "--in", "order.unpaid", "--yes", "--expect"];
        let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        program.env("KEYLAPSE_URL", scene.server.plain_url()).args(cancel).args([
            &TIMERS.to_string(),
            "--rate",
            "20/s",
        ]);
        let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
        eventually(PATIENCE, "some that are done", async || scene.status("timers") < TIMERS - 5).await;
        let told = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(told.expect("a signal").success());
        let ended = child.wait_with_output().expect("its end");
        let (out, err) = (text(ended.stdout), text(ended.stderr));
        assert_eq!(ended.status.code(), Some(1), "{signal}: {out}{err}");
        let left = scene.status("timers");
        let done = TIMERS - left;
        let sum = format!("cancelled: {done}\nmatched={done} done={done} skipped=0 failed=0\n");
        assert!(left > 0 && out == sum, "{signal}, {left} left: {out}{err}");

        let rest = go_on(&scene, left, &err);
        assert!(rest.ends_with(&format!("matched={left} done={left} skipped=0 failed=0\n")), "{rest}");
        assert_eq!(scene.status("timers"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_server_is_lost_it_says_what_was_done_and_where_to_go_on() {
    let scene = Scene::new().await;
    for n in 0..TIMERS {
        scene.arm(format!("{n}").as_bytes(), HOUR, Do::Succeed).await;
    }
    let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
    program.env("KEYLAPSE_URL", scene.server.plain_url()).args(["--timeout", "1s", "cancel", "--in"]);
    program.args(["order.unpaid", "--yes", "--expect", &TIMERS.to_string(), "--rate", "20/s"]);
    let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
    eventually(PATIENCE, "some that are done", async || scene.status("timers") < TIMERS - 5).await;
    scene.server.stop();
    let ended = child.wait_with_output().expect("its end");
    let (out, err) = (text(ended.stdout), text(ended.stderr));
    scene.server.cont();
    assert_eq!(ended.status.code(), Some(3), "{out}{err}");
    assert!(err.contains("the server was lost: completed actions are kept"), "{err}");
    let sum = out.lines().last().expect("a sum").split([' ', '=']).collect::<Vec<_>>();
    let [_, matched, _, done, _, "0", _, failed] = sum[..] else { panic!("{out}") };
    let [matched, done, failed] =
        [matched, done, failed].map(|count| count.parse::<u64>().expect("a number"));
    assert!(matched == done + failed && done > 5 && failed > 0 && matched < TIMERS, "{out}");

    // What had no answer was executed once the server went on.
    eventually(PATIENCE, "what was under way", async || scene.status("timers") <= TIMERS - done).await;
    let left = scene.status("timers");
    let rest = go_on(&scene, left, &err);
    assert!(rest.ends_with(&format!("matched={left} done={left} skipped=0 failed=0\n")), "{rest}");
    assert_eq!(scene.status("timers"), 0);
}

/// Cancels what is left from the place that was told, as a shell does, and answers what was said.
fn go_on(scene: &Scene, left: u64, told: &str) -> String {
    let (_, place) = told.trim_end().split_once("there may be more: ").expect("a place");
    let program = env!("CARGO_BIN_EXE_keylapse");
    let line = format!("{program} cancel --in order.unpaid --yes --expect {left} {place}");
    let mut shell = Command::new("sh");
    let rest = shell.args(["-c", &line]).env("KEYLAPSE_URL", scene.server.plain_url()).output();
    text(rest.expect("a shell").stdout)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

const MANY: u64 = 1200;

async fn with_many_timers() -> Scene {
    let scene = Scene::new().await;
    let arms = (0..MANY).map(|n| keylapse::NewArm::new(format!("{n}"), HOUR, Do::Succeed));
    let armed = scene.schedule.arm_many(&scene.orders, arms).await.expect("armings");
    assert!(armed.iter().all(Result::is_ok));
    scene
}

/// There is no terminal.
#[tokio::test(flavor = "multi_thread")]
async fn many_at_a_time_say_now_and_then_how_far_they_are() {
    let scene = with_many_timers().await;
    let all = MANY.to_string();
    let cancelled =
        scene.run(&["cancel", "--in", "order.unpaid", "--yes", "--expect", &all, "--rate", "240/s"]);
    assert!(cancelled.code == 0 && cancelled.err.contains(" of 1,200 cancelled, 2"), "{cancelled:?}");
    assert!((1..3).contains(&cancelled.err.lines().count()), "it takes five seconds: {cancelled:?}");
}

/// The reader of the one, and the writer of the other, is slow.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_and_an_import_say_now_and_then_how_far_they_are() {
    let scene = with_many_timers().await;
    let exported = scene.run(&["export", "order.unpaid"]).out;
    assert_eq!(exported.lines().count() as u64, MANY);
    let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
    program.env("KEYLAPSE_URL", scene.server.plain_url()).arg("import").stdin(Stdio::piped());
    let mut program = Slow::new(&mut program);
    let mut input = program.child.stdin.take().expect("its input");
    program.says(" read, ", || _ = input.write_all(exported.as_bytes())).await;
    drop(input);
    assert!(program.child.wait().expect("its end").success());

    let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
    program.env("KEYLAPSE_URL", scene.server.plain_url()).args(["export", "order.unpaid"]);
    let mut program = Slow::new(program.stdin(Stdio::null()));
    let mut output = program.child.stdout.take().expect("its output");
    let mut page = vec![0; 2 << 10];
    program.says(" written, ", || _ = output.read(&mut page)).await;
}

/// A program whose standard error is kept.
struct Slow {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Slow {
    fn new(program: &mut Command) -> Self {
        let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
        let (mut err, said) =
            (child.stderr.take().expect("its standard error"), Arc::<Mutex<String>>::default());
        let kept = said.clone();
        std::thread::spawn(move || {
            let mut page = [0; 1024];
            while let Ok(size @ 1..) = err.read(&mut page) {
                kept.lock().expect("a lock").push_str(&String::from_utf8_lossy(&page[..size]));
            }
        });
        Self { child, said }
    }

    /// Takes one step after the other until it says this.
    async fn says(&self, what: &str, mut step: impl FnMut()) {
        let said = async || {
            step();
            // Slow input and output: progress is written only where a command takes seconds.
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.said.lock().expect("a lock").contains(what)
        };
        eventually(PATIENCE, what, said).await;
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

//! What goes wrong, and what others have written.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use keylapse::Topic;

use crate::commands::scene::{Do, Scene, run_at};

const HOUR: Duration = Duration::from_secs(3600);

/// The rights of a user who only reads, as docs/cli.md has them.
pub(crate) const LOOKER: &str = "on >secret %R~* -@all +@read +@connection +evalsha_ro +eval_ro +time";

/// Each command that speaks to a server, as somebody would say it.
const COMMANDS: [&[&str]; 18] = [
    &["status"],
    &["topics"],
    &["listeners"],
    &["ls", "order.unpaid"],
    &["show", "order:unpaid:1"],
    &["why", "order:unpaid:1"],
    &["arm", "order:unpaid:1", "--when", "1h"],
    &["cancel", "order:unpaid:1"],
    &["reschedule", "order:unpaid:1", "--to", "1h"],
    &["run-now", "order:unpaid:1"],
    &["dead", "replay", "order.unpaid", "--yes", "--expect", "1"],
    &["dead", "drop", "order.unpaid", "--yes", "--expect", "1"],
    &["pause", "order.unpaid", "--reason", "x"],
    &["resume", "order.unpaid"],
    &["partitions", "order.unpaid", "--to", "2"],
    &["check", "--max-dead", "0"],
    &["verify"],
    &["export", "order.unpaid"],
];

/// And those that would do more than a test of rights could bear, or need other rights.
const MORE: [&[&str]; 10] = [
    &["journal", "order.unpaid"],
    &["tail", "--for", "1m"],
    &["export", "order.unpaid", "--dead"],
    &["import"],
    &["cancel", "--in", "order.unpaid", "--yes", "--expect", "1"],
    &["reschedule", "--in", "order.unpaid", "--to", "1h", "--yes", "--expect", "1"],
    &["run-now", "--in", "order.unpaid", "--yes", "--expect", "1"],
    &["destroy", "order.unpaid", "--confirm", "order.unpaid"],
    &["detach", "order.unpaid"],
    &["attach", "--dry-run", "order:{id}", "--watch", "0"],
];

/// Commands that have tests of their own: they wait for a server, run until they are stopped, or need none.
const APART: [&str; 8] = ["top", "destinations", "doctor", "run", "serve", "health", "completions", "man"];

#[test]
fn each_command_stands_in_a_list() {
    let help = run_at("redis://127.0.0.1:1/", &["--help"], b"").out;
    let (_, commands) = help.split_once("\nLook:\n").expect("the commands");
    let (commands, _) = commands.split_once("\nOptions:\n").expect("their end");
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let tried: BTreeSet<_> = each_command().map(|command| command[0]).chain(APART).collect();
    assert_eq!(names.filter(|name| !name.is_empty()).collect::<BTreeSet<_>>(), tried);
}

fn each_command() -> impl Iterator<Item = &'static [&'static str]> {
    COMMANDS.into_iter().chain(MORE)
}

#[test]
fn a_server_that_is_not_there_is_said_in_one_line() {
    for command in each_command() {
        let ran = run_at("redis://127.0.0.1:1/", command, b"");
        assert!(ran.code == 3 && ran.out.is_empty(), "{command:?}: {ran:?}");
        assert!(ran.err.lines().count() == 1 && ran.err.contains("127.0.0.1:1"), "{command:?}: {ran:?}");
    }
}

/// It takes connections, and answers nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_given_up_in_time_and_said() {
    let scene = Scene::new().await;
    scene.arm(b"1", HOUR, Do::Succeed).await;
    let url = scene.server.plain_url();
    scene.server.stop();
    let run = |command: &'static [&'static str]| {
        let url = url.clone();
        let args = [&["--timeout", "300ms"], command].concat();
        (command, std::thread::spawn(move || run_at(&url, &args, b"")))
    };
    let doctor: &[&str] = &["doctor"];
    let programs: Vec<_> = each_command().chain([doctor]).map(run).collect();
    for (command, program) in programs {
        let ran = program.join().expect("the program");
        assert_eq!(ran.code, 3, "{command:?}: {ran:?}");
        let said = if command == doctor { &ran.out } else { &ran.err };
        assert!(said.contains("answer"), "{command:?}: {ran:?}");
    }
    scene.server.cont();
}

/// As on the first day; and with a namespace that nobody uses beside one that is full.
#[tokio::test(flavor = "multi_thread")]
async fn where_there_are_no_topics_each_command_says_so_and_makes_none() {
    let scene = Scene::new().await;
    let all_say_so = |access: &[&str]| {
        for command in each_command().filter(|command| !matches!(command[0], "listeners" | "tail" | "attach"))
        {
            let ran = scene.run(&[access, command].concat());
            let code = match command {
                ["status"] => 0,
                // The name of the topic is wrong.
                _ if command.contains(&"order.unpaid") => 2,
                _ => 1,
            };
            assert_eq!(ran.code, code, "{command:?}: {ran:?}");
            assert!(!ran.out.is_empty() || !ran.err.is_empty(), "{command:?}: {ran:?}");
            assert!(!ran.err.contains("panicked"), "{command:?}: {ran:?}");
        }
    };
    all_say_so(&[]);
    let status = scene.run(&["status"]);
    assert!(status.code == 0 && status.out.starts_with("No topic is registered"), "{status:?}");
    assert_eq!(scene.server.cmd(&["DBSIZE"]).await, redis::Value::Int(0));
    scene.arm(b"1", HOUR, Do::Succeed).await;
    all_say_so(&["--namespace", "other"]);
    assert_eq!(scene.status("timers"), 1, "what another namespace has is left alone");
    let keys: Vec<String> =
        redis::from_redis_value(scene.server.cmd(&["KEYS", "other*"]).await).expect("names");
    assert_eq!(keys, [""; 0]);
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused_before_anything_is_asked() {
    for bad in [
        &["nonsense"][..],
        &["ls"],
        &["status", "--frobnicate"],
        &["--url", "http://example.com", "status"],
        &["--timeout", "0", "status"],
        &["--namespace", "a b", "status"],
        &["--tls-cert", "x", "status"],
        &["ls", "a", "--state", "asleep"],
        &["ls", "a", "--after", "nonsense"],
    ] {
        let ran = run_at("redis://127.0.0.1:1/", bad, b"");
        assert!(ran.code == 2 && ran.out.is_empty() && !ran.err.is_empty(), "{bad:?}: {ran:?}");
    }
    for (asked, says) in [("--help", "Usage"), ("--version", "keylapse ")] {
        let ran = run_at("redis://127.0.0.1:1/", &[asked], b"");
        assert!(ran.code == 0 && ran.out.contains(says), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_read_can_look_and_is_refused_the_rest() {
    let mut scene = Scene::new().await.listening().await;
    scene.arm(b"1", HOUR, Do::Succeed).await;
    scene.bury(1).await;
    scene.stop_listening().await;
    let user: Vec<_> = ["ACL", "SETUSER", "reader"].into_iter().chain(LOOKER.split(' ')).collect();
    scene.server.cmd(&user).await;
    let url = scene.server.url_for("reader", "secret");
    for command in COMMANDS {
        let ran = run_at(&url, command, b"");
        match acts(command) {
            true => assert_eq!(ran.code, 3, "{command:?}: {ran:?}"),
            false => assert!(
                ran.code <= 1 && !ran.out.is_empty() || command[0] == "listeners",
                "{command:?}: {ran:?}"
            ),
        }
    }
    assert_eq!((scene.status("timers"), scene.status("dead")), (1, 1), "nothing was changed");
}

/// Returns whether it acts, on one entry or on some.
fn acts(command: &[&str]) -> bool {
    ["arm", "cancel", "reschedule", "run-now", "dead", "pause", "resume", "partitions"].contains(&command[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_failure_has_the_same_code_for_each_command() {
    let scene = Scene::new().await;
    let (at, doctor): (_, &[&str]) = (format!("127.0.0.1:{}", scene.server.port()), &["doctor"]);
    let away = "/there/is/none";
    let certificate = ["--tls-cert", away, "--tls-key", away];
    for (url, access, code) in [
        (format!("redis://keylapse:wrong@{at}/"), &[][..], 3),
        (format!("redis://{at}/99"), &[], 3),
        (format!("redis+cluster://{at}/"), &[], 3),
        (format!("rediss://{at}/"), &[], 3),
        (format!("redis:{at}"), &[], 2),
        (format!("redis://{at}/"), &["--password-file", away], 2),
        (format!("redis+sentinel://{at}/shop"), &["--sentinel-password-file", away], 2),
        (format!("rediss://{at}/"), &["--tls-ca", away], 2),
        (format!("rediss://{at}/"), &certificate, 2),
    ] {
        for command in each_command().chain([doctor]) {
            let ran = run_at(&url, &[access, command].concat(), b"");
            assert_eq!(ran.code, code, "{url} {access:?} {command:?}: {ran:?}");
            assert!(
                command == doctor || ran.out.is_empty() && !ran.err.is_empty(),
                "{url} {command:?}: {ran:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_refuses_all_that_act() {
    let mut scene = Scene::new().await.listening().await;
    scene.arm(b"1", HOUR, Do::Succeed).await;
    scene.bury(1).await;
    scene.stop_listening().await;
    scene.server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    for command in each_command().filter(|command| acts(command)) {
        let ran = scene.run(command);
        assert!(
            ran.code == 3 && format!("{}{}", ran.out, ran.err).contains("NOREPLICAS"),
            "{command:?}: {ran:?}"
        );
    }
    assert_eq!((scene.status("timers"), scene.status("dead")), (1, 1), "nothing was changed");
}

/// It waits for one that is away, and for nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_ends_where_the_server_refuses_and_where_its_file_is_wrong() {
    let scene = Scene::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (fine, wrong) = (folder.path().join("keylapse.toml"), folder.path().join("wrong.toml"));
    let topic = "[topics.orders]\npattern = \"order:{id}\"\n[topics.orders.forward]\nlist = \"jobs\"\n";
    std::fs::write(&fine, topic).expect("a file");
    std::fs::write(&wrong, topic.replace("list", "pile")).expect("a file");
    let at = format!("127.0.0.1:{}", scene.server.port());
    for (url, file, code) in [
        (format!("redis://keylapse:wrong@{at}/"), &fine, 3),
        (format!("redis://{at}/99"), &fine, 3),
        (format!("redis://{at}/"), &wrong, 2),
        (format!("redis://{at}/"), &folder.path().join("none.toml"), 2),
    ] {
        let ran = run_at(&url, &["run", "--config", file.to_str().expect("UTF-8")], b"");
        assert!(ran.code == code && !ran.err.is_empty(), "{url} {}: {ran:?}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_any_bytes_are_shown_as_what_can_be_typed() {
    let scene = Scene::new().await;
    let hostile: [&[u8]; 6] = [
        b"a\nb",
        b"\x1b[31mred\x1b]0;title\x07",
        b"\xff\xfe\x00",
        "кл\u{202e}юч".as_bytes(),
        b"back\\slash'\"",
        &[b'x'; 4000],
    ];
    for key in hostile {
        scene.arm(key, HOUR, Do::Succeed).await;
    }
    let listed = scene.run(&["ls", "order.unpaid"]);
    assert!(
        listed.out.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte) || byte >= 0x80),
        "{listed:?}"
    );
    assert!(!listed.out.contains('\u{202e}'));
    for line in scene.lines(&["ls", "order.unpaid"]) {
        let key = line["key"].as_str().expect("a key");
        assert!(key.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{key}");
        assert_eq!(scene.run(&["show", key]).code, 0, "{key}");
        assert_eq!(scene.run(&["cancel", key]).code, 0, "{key}");
    }
    assert_eq!(scene.status("timers"), 0);
}

/// No timer can have such a key. Somebody else may ask for one, or write one at our names.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_64_kib_are_refused_and_cut_where_others_have_written_them() {
    let scene = Scene::new().await;
    scene.arm(b"1", HOUR, Do::Succeed).await;
    let long = format!("order:unpaid:{}", "x".repeat(64 << 10));
    let armed = scene.run(&["arm", &long, "--when", "1h"]);
    assert!(armed.code == 2 && armed.err.len() < 1000, "{}", armed.err.len());
    for command in ["cancel", "run-now", "show", "why"] {
        let ran = scene.run(&[command, &long]);
        assert!((1..=2).contains(&ran.code) && !ran.err.contains("panicked"), "{command}: {ran:?}");
    }
    scene.server.cmd(&["ZADD", "keylapse:{order.unpaid/0}:due", "7", &long]).await;
    for state in ["waiting", "running", "dead", "quarantined"] {
        let listed = scene.run(&["ls", "order.unpaid", "--state", state]);
        assert!(listed.code <= 1 && listed.out.len() < 2000, "{state}: {}", listed.out.len());
    }
    for command in [&["status"][..], &["verify"], &["export", "order.unpaid"], &["check", "--max-dead", "0"]]
    {
        let ran = scene.run(command);
        assert!((0..=1).contains(&ran.code) && !ran.err.contains("panicked"), "{command:?}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_of_eight_mebibytes_do_not_hold_up_a_page() {
    let scene = Scene::new().await;
    let large =
        Topic::<String>::new("large:{id}").expect("a topic").payload_limit(keylapse::limits::MAX_PAYLOAD);
    for n in 0..4 {
        let payload = "x".repeat(keylapse::limits::MAX_PAYLOAD - 2);
        let armed = scene.schedule.arm(&large, n, HOUR, &payload).await.expect("an arming");
        assert!(armed.is_armed());
    }
    let lines = scene.lines(&["ls", "large", "--payloads"]);
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert_eq!(line["payload_bytes"], 8 << 20);
        assert_eq!(line["payload"].as_str().expect("a payload").len(), 4096);
    }
    let exported = scene.run(&["export", "large"]);
    assert_eq!(exported.out.lines().count(), 4);
    assert!(exported.out.len() > 32 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_written_at_our_names_is_said_and_no_panic() {
    let scene = Scene::new().await;
    scene.arm(b"1", HOUR, Do::Succeed).await;
    let registry = "keylapse:topics";
    for odd in
        ["x", "{}", "{\"name\":\"a b\",\"pattern\":\"x\",\"partitions\":1,\"marker_keys\":true}", "\u{1b}"]
    {
        scene.server.cmd(&["HSET", registry, &format!("odd-{odd}"), odd]).await;
    }
    scene.server.cmd(&["HSET", "keylapse:listeners", "odd", "{\"at\":1"]).await;
    assert_eq!(scene.lines(&["topics"]).len(), 5, "a topic, and four that cannot be read");
    scene.server.cmd(&["HSET", "keylapse:{order.unpaid/0}:meta", "v", "99"]).await;
    let newer = scene.run(&["status"]);
    assert!(newer.code == 0 && newer.out.contains("closed: wire version 99"), "{newer:?}");
    assert_eq!(scene.run(&["cancel", "order:unpaid:1"]).code, 3);
    scene.server.cmd(&["DEL", "keylapse:{order.unpaid/0}:due"]).await;
    scene.server.cmd(&["SET", "keylapse:{order.unpaid/0}:due", "x"]).await;
    let status = scene.run(&["status"]);
    assert!(
        status.code == 0 && status.out.contains("unreadable") && status.out.contains("WRONGTYPE"),
        "{status:?}"
    );
    let listed = scene.run(&["ls", "order.unpaid"]);
    assert!(listed.code == 3 && listed.err.contains("WRONGTYPE"), "{listed:?}");
    scene.server.cmd(&["DEL", registry]).await;
    scene.server.cmd(&["SET", registry, "x"]).await;
    assert_eq!(scene.run(&["topics"]).code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_has_read_enough_is_no_error() {
    let scene = Scene::new().await;
    let arms = (0..5000).map(|n| keylapse::NewArm::new(format!("{n}"), HOUR, Do::Succeed));
    let armed = scene.schedule.arm_many(&scene.orders, arms).await.expect("armings");
    assert!(armed.iter().all(Result::is_ok));
    let limit = ["ls", "order.unpaid", "--limit", "5000"];
    for command in [&[&["--json"][..], &limit].concat()[..], &limit, &["export", "order.unpaid"], &["status"]]
    {
        let mut program = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        program.env("KEYLAPSE_URL", scene.server.plain_url()).args(command);
        let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
        // Nobody reads: what it writes has nowhere to go.
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("its end");
        assert!(ended.status.success() && ended.stderr.is_empty(), "{command:?}: {ended:?}");
    }
}

#[test]
fn completions_and_man_pages_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = run_at("redis://127.0.0.1:1/", &["completions", shell], b"");
        assert!(ran.code == 0 && ran.out.contains("reschedule"), "{shell}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("its name");
    assert_eq!(run_at("redis://127.0.0.1:1/", &["man", path], b"").code, 0);
    let pages: Vec<_> = std::fs::read_dir(path).expect("pages").collect();
    assert!(pages.len() > 20, "{}", pages.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_that_cannot_be_read_are_shown_and_counted() {
    let scene = Scene::new().await;
    scene.arm(b"1", HOUR, Do::Succeed).await;
    let entry = |name: &str, pattern: &str, partitions: u32| {
        format!(
            "{{\"name\":\"{name}\",\"pattern\":\"{pattern}\",\"partitions\":{partitions},\"marker_keys\":true}}"
        )
    };
    for (name, written) in [
        ("newer", entry("newer", "a:{id:uuid7*}:{", 1)),
        ("half", entry("half", "a:{id}", 1)[..20].to_owned()),
        ("wide", entry("wide", "a:{id}", 5000)),
        ("other", entry("another", "a:{id}", 1)),
        ("\u{1b}[2J", "x".to_owned()),
    ] {
        scene.server.cmd(&["HSET", "keylapse:topics", name, &written]).await;
    }
    for command in ["topics", "status"] {
        let shown = scene.run(&[command]);
        assert_eq!(shown.code, 0, "{shown:?}");
        for name in ["newer", "half", "wide", "other", "\\x1b[2J"] {
            assert!(shown.out.contains(&format!("\n! {name}: it cannot be read: ")), "{name}: {shown:?}");
        }
        assert_eq!(shown.out.matches(" unreadable ").count(), 5, "{shown:?}");
        assert!(!shown.out.contains('\u{1b}'), "{shown:?}");
    }
    let checked = scene.run(&["check", "--max-dead", "0"]);
    assert!(checked.code == 1 && checked.out.ends_with("topics=6 alarms=6 breaches=0\n"), "{checked:?}");
    let named = scene.run(&["check", "half", "--max-dead", "0"]);
    assert!(named.code == 1 && named.out.starts_with("half: it cannot be read: "), "{named:?}");
    assert_eq!(scene.run(&["check", "order.unpaid", "--allow", "unserved"]).code, 0);
    assert_eq!(scene.run(&["verify"]).code, 1);
    let listed = scene.run(&["ls", "newer"]);
    assert!(listed.code == 3 && listed.err.contains("topic newer cannot be read: "), "{listed:?}");
    let doctor = scene.run(&["doctor"]).out;
    assert_eq!(doctor.matches("K607").count(), 5, "{doctor}");
}

//! Servers that are set up badly, too old, replicas, far away, or gone.

use std::time::Duration;

use keylapse::Client;
use keylapse_console::Console;
use keylapse_support::{Fsync, Proxy, Reach, Server, Then, command, eventually, skipped_on_a_cluster};

use super::impostor::{Impostor, bulk};
use super::{codes, diagnose, find, well};
use crate::server::support::PATIENCE;

/// Settings of a server, each with the code that it shows. What `well` makes shows none of them.
const SETTINGS: [(&str, &[(&str, &str)]); 18] = [
    ("K301", &[("notify-keyspace-events", "")]),
    ("K301", &[("notify-keyspace-events", "AK")]),
    ("K401", &[("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")]),
    ("K402", &[("maxmemory", "100mb"), ("maxmemory-policy", "volatile-ttl")]),
    ("K409", &[("maxmemory", "1kb")]),
    ("K112", &[("maxmemory", "1kb")]),
    ("K112", &[("min-replicas-to-write", "1")]),
    ("K111", &[("rename-command", "HELLO ")]),
    ("K403", &[("appendonly", "no")]),
    ("K404", &[("appendonly", "no"), ("save", "3600 1")]),
    ("K304", &[("client-output-buffer-limit", "pubsub 1mb 512kb 60")]),
    ("K304", &[("client-output-buffer-limit", "pubsub 32mb 1kb 60")]),
    ("K113", &[("client-output-buffer-limit", "normal 256kb 128kb 10")]),
    ("K114", &[("maxmemory-clients", "4mb")]),
    ("K114", &[("maxmemory", "100mb"), ("maxmemory-clients", "5%")]),
    ("K115", &[("proto-max-bulk-len", "1mb")]),
    ("K115", &[("client-query-buffer-limit", "1mb")]),
    ("K116", &[("timeout", "1")]),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_bad_setting_is_found() {
    for (code, settings) in SETTINGS {
        let server = settings.iter().fold(well(), |server, (name, value)| server.config(name, value));
        let server = server.start().await;
        let diagnosis = diagnose(&server.app_url()).await;
        let finding = find(&diagnosis, code);
        assert_eq!(finding.node, Some(server.door().to_string()), "{finding}");
        assert!(finding.fix.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_matter_only_where_memory_is_limited() {
    let server = well().config("maxmemory-policy", "allkeys-lru").start().await;
    let found = codes(&diagnose(&server.url()).await);
    assert!(!found.contains("K401") && found.contains("K400"), "{found:?}");
    let always = Server::builder().aof(Fsync::Always).start().await;
    assert!(!codes(&diagnose(&always.url()).await).contains("K405"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_with_a_time_to_live_predict_late_events() {
    let server = well().start().await;
    let many = "for n = 1, 20000 do redis.call('SET', 'app:{many}' .. n, '', 'PX', 3600000) end";
    server.cmd(&["EVAL", many, "0"]).await;
    let diagnosis = diagnose(&server.app_url()).await;
    assert_eq!(diagnosis.lateness.plain_late_predicted_max_s, Some(100.0));
    assert!(find(&diagnosis, "K501").fix.as_ref().unwrap().ends_with("CONFIG SET hz 100"));
    server.cmd(&["CONFIG", "SET", "hz", "500"]).await;
    let faster = diagnose(&server.app_url()).await;
    assert_eq!(faster.lateness.plain_late_predicted_max_s, Some(2.0));
    assert!(!codes(&faster).contains("K501"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_or_hangs_is_a_finding() {
    let mut server = well().start().await;
    server.stop();
    let client = Client::new(&server.url()).unwrap().answer_within(Duration::from_millis(300)).unwrap();
    assert_eq!(codes(&Console::new(client).doctor().await), ["K101"].into());
    server.cont();
    server.kill().await;
    let gone = diagnose(&server.url()).await;
    assert_eq!((codes(&gone), gone.errors()), (["K101"].into(), 1));
    server.restart().await;
    assert!(!codes(&diagnose(&server.url()).await).contains("K101"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_in_the_middle_is_a_finding() {
    let server = well().start().await;
    let proxy = Proxy::before(&server).await;
    for last in ["TIME", "CONFIG", "EVAL", "SET", "SSUBSCRIBE", "GET", "EXISTS"] {
        proxy.lose_reply(command(last), Then::Close);
        let found = codes(&diagnose(&proxy.app_url()).await);
        assert!(found.contains("K105") && found.contains("K100"), "{last}: {found:?}");
    }
    assert!(!codes(&diagnose(&proxy.app_url()).await).contains("K105"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_from_a_server_that_is_away() {
    let server = well().start().await;
    let diagnosis = diagnose(&server.url_for("keylapse", "wrong")).await;
    assert_eq!(
        find(&diagnosis, "K102").fix.as_deref().map(|fix| fix.contains("ACL SETUSER keylapse")),
        Some(true)
    );
    assert!(!codes(&diagnosis).contains("K101"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_may_lead_to_another_machine() {
    if skipped_on_a_cluster("nodes are known by their addresses") {
        return;
    }
    let server = well().start().await;
    // The resolver takes it for 127.0.0.1, and nobody else does.
    let plain = diagnose(&format!("redis://127.1:{}/", server.port())).await;
    assert!(find(&plain, "K109").fix.as_ref().unwrap().contains("rediss://127.1:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_looked_at_and_told_from_primaries() {
    // Neither over TLS nor as a cluster: servers reach each other as clients do here.
    let primary = well().reach(Reach::default()).start().await;
    let of_primary = format!("127.0.0.1 {}", primary.port());
    let replica = well()
        .reach(Reach::default())
        .config("replicaof", &of_primary)
        .config("notify-keyspace-events", "")
        .start()
        .await;
    let name = format!("127.0.0.1:{}", replica.port());
    let is_found =
        async || diagnose(&primary.plain_url()).await.findings.iter().any(|one| one.code == "K303");
    eventually(PATIENCE, "the primary to name its replica", is_found).await;
    let link = async || !codes(&diagnose(&primary.plain_url()).await).contains("K407");
    eventually(PATIENCE, "the replica to have everything", link).await;

    let diagnosis = diagnose(&primary.plain_url()).await;
    assert_eq!(find(&diagnosis, "K303").node, Some(name));
    assert!(
        codes(&diagnosis).contains("K408") && !codes(&diagnosis).contains("K104"),
        "{:#?}",
        diagnosis.findings
    );
    assert_eq!(diagnosis.errors(), 0, "{:#?}", diagnosis.findings);
    let given = diagnose(&replica.plain_url()).await;
    let fix = find(&given, "K104").fix.as_ref().unwrap();
    assert!(fix.contains(&format!("redis://127.0.0.1:{}/", primary.port())), "{fix}");
    assert_eq!(codes(&given), ["K100", "K104"].into(), "nothing else is said of it");

    replica.stop();
    primary.cmd(&["SET", "app:large", &"x".repeat(2 << 20)]).await;
    let client =
        Client::new(&primary.plain_url()).unwrap().answer_within(Duration::from_millis(300)).unwrap();
    let behind = Console::new(client).doctor().await;
    assert!(codes(&behind).is_superset(&["K407", "K106"].into()), "{:#?}", behind.findings);
    replica.cont();
}

/// INFO of a server that could be used.
const FINE: &str = "redis_version:7.2.4\r\nrole:master\r\naof_enabled:1\r\nrdb_last_bgsave_status:ok\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_lack_what_is_needed_are_found() {
    for (code, info, eval) in [
        ("K103", "redis_version:6.2.5\r\nrole:master\r\n".to_owned(), "-ERR Error compiling script\r\n"),
        ("K103", "dragonfly_version:1\r\n".to_owned(), "-ERR unknown command\r\n"),
        ("K110", FINE.to_owned(), "-ERR unknown command 'EVAL'\r\n"),
        ("K111", FINE.to_owned(), "*2\r\n:1\r\n:1\r\n"),
        ("K406", FINE.replace(":ok", ":err"), "*2\r\n:1\r\n:1\r\n"),
    ] {
        let subscribed = ">3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:expired\r\n:1\r\n";
        let info = bulk(&info);
        let answers = [("INFO", &[&*info][..]), ("EVAL", &[eval]), ("SUBSCRIBE", &[subscribed])];
        let impostor = Impostor::answering(&answers).await;
        let diagnosis = diagnose(&impostor.url()).await;
        find(&diagnosis, code);
        assert_eq!(codes(&diagnosis).contains("K103"), code == "K103", "{:#?}", diagnosis.findings);
        assert!(!codes(&diagnosis).contains("K105"), "{:#?}", diagnosis.findings);
    }
}

/// What a server says ends in a terminal, and in a shell.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_server_says_reaches_a_terminal_or_a_shell_as_it_is() {
    let begin =
        "redis_version:7.0.0\x1b[2J\r\nmaxmemory:1\r\nmaxmemory_policy:allkeys\x1b]0;\r\naof_enabled:0\r\n";
    let replica = "role:slave\r\nmaster_host:h;reboot\r\nmaster_port:1\r\nmaster_link_status:\x07down\r\n";
    let primary = "role:master\r\nslave0:ip=h;reboot,port=1,state=\x07wait,offset=0,lag=0\r\n";
    let flags = "K'; reboot #\x1b[2J";
    let settings = ["notify-keyspace-events", flags, "save", "\x1b[1m"].map(bulk).concat();
    let settings = format!("*4\r\n{settings}");
    let denied = "-ERR \x1b[31munknown command\r\n";
    for (role, all) in [(replica, &["K104"][..]), (primary, &["K301", "K401", "K404", "K407"])] {
        let info = bulk(&format!("{begin}{role}"));
        let answers = [("INFO", &[&*info][..]), ("CONFIG", &[&*settings]), ("SUBSCRIBE", &[denied])];
        let impostor = Impostor::answering(&answers).await;
        let diagnosis = diagnose(&impostor.url()).await;
        let all = all.iter().copied().collect();
        assert!(codes(&diagnosis).is_superset(&all), "{:#?}", diagnosis.findings);
        for finding in &diagnosis.findings {
            let shown = format!("{finding} {:?}", finding.fix.as_deref().unwrap_or_default());
            assert!(!finding.observed.contains(char::is_control), "{shown}");
            let fix = finding.fix.as_deref().unwrap_or_default();
            assert!(!fix.contains(char::is_control), "{shown}");
            let outside: String = fix.replace(r"'\''", "").split('\'').step_by(2).collect();
            assert!(!outside.contains("reboot"), "{shown}");
        }
    }
}

/// Lines for a machine name it, unless it is this one.
#[tokio::test(flavor = "multi_thread")]
async fn advice_for_a_machine_says_which_machine_it_is_for() {
    let clock = "timedatectl set-ntp true";
    for (host, mark, old, late) in [
        ("127.0.0.1", "", "on this machine", clock.to_owned()),
        // The resolver takes it for 127.0.0.1, and nobody else does.
        ("127.1", "", "on 127.1", format!("on 127.1: {clock}")),
        (
            "127.0.0.1",
            "process_id:1\r\n",
            "from a newer image",
            format!("on the machine that runs the container: {clock}"),
        ),
        ("127.1", "os:Amazon ElastiCache\r\n", "in the settings of the service", clock.to_owned()),
    ] {
        let times = &["{an hour ago}"][..];
        for (info, code, line) in
            [("redis_version:6.2.5\r\n".to_owned(), "K103", old), (FINE.to_owned(), "K107", &*late)]
        {
            let info = bulk(&format!("{info}{mark}"));
            // Who has no CONFIG is taken for a service.
            let answers = [("INFO", &[&*info][..]), ("TIME", times), ("CONFIG", &["*0\r\n"])];
            let impostor = Impostor::answering(&answers).await;
            let diagnosis = diagnose(&impostor.url().replace("127.0.0.1", host)).await;
            let fix = find(&diagnosis, code).fix.as_deref().unwrap();
            assert!(fix.ends_with(line) && (code == "K103" || fix == line), "{host} {mark}: {fix}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_too_old_has_no_other_finding() {
    let info = bulk("redis_version:6.2.5\r\nrole:master\r\n");
    let impostor = Impostor::answering(&[("INFO", &[&*info][..])]).await;
    assert_eq!(codes(&diagnose(&impostor.url()).await), ["K103"].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_differ_or_jump_are_found() {
    for (code, times) in [
        ("K107", &["{an hour ago}"][..]),
        ("K108", &["*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n", "*2\r\n$10\r\n1700009999\r\n$1\r\n0\r\n"]),
    ] {
        let impostor = Impostor::answering(&[("INFO", &[&*bulk(FINE)][..]), ("TIME", times)]).await;
        find(&diagnose(&impostor.url()).await, code);
    }
    let found = codes(&diagnose(&well().start().await.url()).await);
    assert!(!found.contains("K107") && !found.contains("K108"), "{found:?}");
}

/// As nobody can run `CONFIG SET` there.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_service_only_what_can_be_done_there_is_advised() {
    let unknown = "-ERR unknown command 'CONFIG', with args beginning with: 'GET'\r\n";
    let subscribed = ">3\r\n$9\r\nsubscribe\r\n$22\r\n__keyevent@0__:expired\r\n:1\r\n";
    let full = "maxmemory:100\r\nmaxmemory_policy:volatile-lru\r\nused_memory:99\r\n";
    for (marks, name) in [
        ("os:Amazon ElastiCache\r\n", "ElastiCache"),
        ("upstash_version:1.10.5\r\n", "Upstash"),
        ("", "a service that refuses CONFIG"),
    ] {
        let info = bulk(&format!("{FINE}{full}{marks}").replace("aof_enabled:1", "aof_enabled:0"));
        let answers = [("INFO", &[&*info][..]), ("CONFIG", &[unknown]), ("SUBSCRIBE", &[subscribed])];
        let impostor = Impostor::answering(&answers).await;
        let diagnosis = diagnose(&impostor.url()).await;
        assert_eq!(find(&diagnosis, "K117").observed, name);
        for code in ["K402", "K404", "K409"] {
            let fix = find(&diagnosis, code).fix.as_deref().unwrap();
            assert!(!fix.contains("CONFIG SET") && !fix.is_empty(), "{name} {code}: {fix}");
        }
    }
}

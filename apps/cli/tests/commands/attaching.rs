//! `attach --dry-run`.

use keylapse_support::{Server, eventually};

use crate::commands::scene::{PATIENCE, run_at};
use crate::commands::trouble::LOOKER;

#[tokio::test(flavor = "multi_thread")]
async fn what_attaching_would_mean_is_said_to_who_may_only_read() {
    let server = Server::start().await;
    let user: Vec<_> = ["ACL", "SETUSER", "reader"].into_iter().chain(LOOKER.split(' ')).collect();
    server.cmd(&user).await;
    for n in 0..30 {
        server.cmd(&["SET", &format!("order:unpaid:{n}"), "1999", "EX", "5000"]).await;
        server.cmd(&["SET", &format!("order:paid:{n}"), "1999", "EX", "5000"]).await;
    }
    server.cmd(&["HSET", "order:unpaid:hash", "a", "1"]).await;
    server.cmd(&["EXPIRE", "order:unpaid:hash", "200000"]).await;
    server.cmd(&["SET", "order:unpaid:forever", "1"]).await;
    server.cmd(&["SET", &format!("order:unpaid:{}", "x".repeat(5000)), "1", "EX", "100"]).await;
    let before = server.cmd(&["DBSIZE"]).await;

    let url = server.url_for("reader", "secret");
    let survey = ["--json", "attach", "--dry-run", "order:unpaid:{id}", "--watch", "0", "--cap", "20"];
    let ran = run_at(&url, &survey, b"");
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    let number = |field: &str| found[field].as_u64().expect("a number");
    assert_eq!((number("keys"), number("matching"), number("with_deadline")), (63, 32, 31));
    assert_eq!((number("too_long"), number("tracked")), (1, 20));
    assert_eq!(found["types"], serde_json::json!({"hash": 1, "string": 30}));
    assert_eq!((found["due_by_hour"][1].as_u64(), found["due_by_hour"][24].as_u64()), (Some(30), Some(1)));
    assert!(
        number("value_bytes") > 1000 && found["advice"].to_string().contains("than the cap allows"),
        "{found}"
    );
    assert_eq!(server.cmd(&["DBSIZE"]).await, before, "nothing was written");
    assert_eq!(run_at(&url, &["attach", "order:unpaid:{id}"], b"").code, 2, "--dry-run has to be said");
    assert_eq!(run_at(&url, &["attach", "--dry-run", "order:{"], b"").code, 2);
    assert_eq!(run_at(&url, &["attach", "--dry-run", "no:{id}", "--watch", "0"], b"").code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_keys_are_used_is_told_by_a_second_look() {
    for (used, word) in [("refreshed", "sessions"), ("deleted", "locks"), ("nothing", "no key changed")] {
        let server = Server::start().await;
        for n in 0..20 {
            server.cmd(&["SET", &format!("k:{n}"), "1", "EX", "5000"]).await;
        }
        let url = server.plain_url();
        let program = std::thread::spawn(move || {
            run_at(&url, &["attach", "--dry-run", "k:{id}", "--watch", "2s"], b"")
        });
        wait_until_asked(&server).await;
        for n in 0..20 {
            match used {
                "refreshed" => _ = server.cmd(&["EXPIRE", &format!("k:{n}"), "6000"]).await,
                "deleted" => _ = server.cmd(&["DEL", &format!("k:{n}")]).await,
                _ => {}
            }
        }
        let ran = program.join().expect("the program");
        assert!(ran.out.contains(word), "{used}: {ran:?}");
    }
}

/// Until the program has looked at the keys a first time.
async fn wait_until_asked(server: &Server) {
    eventually(PATIENCE, "twenty keys to be asked about", async || {
        let stats = server.cmd(&["INFO", "commandstats"]).await;
        let stats: String = redis::from_redis_value(stats).expect("statistics");
        stats.contains("cmdstat_pexpiretime:calls=20")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_ask_for_a_figure_is_told_which_and_what_it_takes() {
    let server = Server::start().await;
    for n in 0..300 {
        server.cmd(&["SET", &format!("app:order:{n}"), "1999", "EX", "5000"]).await;
    }
    let user: Vec<_> = ["ACL", "SETUSER", "reader"].into_iter().chain(LOOKER.split(' ')).collect();
    server.cmd(&[&user[..], &["-dbsize"]].concat()).await;
    let survey = |url: &str, json: &[&str]| {
        let ran =
            run_at(url, &[json, &["attach", "--dry-run", "app:order:{id}", "--watch", "0"]].concat(), b"");
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out
    };
    let lines =
        |url: &str| serde_json::from_str::<serde_json::Value>(&survey(url, &["--json"])).expect("JSON");

    let app = lines(&server.app_url());
    assert_eq!((app["keys"].as_u64(), app["with_deadline"].as_u64()), (Some(300), Some(300)));
    assert!(app["value_bytes"].is_null(), "{app}");
    assert_eq!(app["missing"], serde_json::json!([{"figure": "value_bytes", "right": "+memory|usage"}]));
    let shown = survey(&server.app_url(), &[]);
    assert!(shown.contains("- value_bytes is unknown: the user lacks the right +memory|usage\n"), "{shown}");

    let reader = lines(&server.url_for("reader", "secret"));
    assert!(reader["keys"].is_null() && reader["scan_ms"].is_null(), "{reader}");
    assert!(reader["value_bytes"].as_u64() > Some(0), "{reader}");
    assert_eq!(reader["missing"], serde_json::json!([{"figure": "keys", "right": "+dbsize"}]));
    let shown = survey(&server.url_for("reader", "secret"), &[]);
    assert!(shown.contains("keys=- matching=300 ") && shown.contains("scan_ms=-"), "{shown}");

    for (user, right) in [(keylapse_support::APP_USER, "+memory|usage"), ("reader", "+dbsize")] {
        server.cmd(&["ACL", "SETUSER", user, right]).await;
    }
    for url in [server.app_url(), server.url_for("reader", "secret")] {
        let all = lines(&url);
        assert_eq!(all["missing"], serde_json::json!([]), "{all}");
        assert_eq!(all["keys"].as_u64(), Some(300), "{all}");
    }
}

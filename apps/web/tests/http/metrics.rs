//! `/metrics`.

use keylapse_web::Web;

use crate::http::shop::Shop;
use crate::http::site::{READ_TOKEN, Site, guarded, nowhere};

#[tokio::test]
async fn topics_are_shown_whoever_serves_them_beside_what_the_process_records() {
    let shop = Shop::open().await;
    shop.bury(3).await;
    shop.arm(b"order:due", std::time::Duration::ZERO).await;
    shop.topic().await.pause("a \"test\"").await.expect("a pause");
    let access = guarded();
    let web =
        Web::new(shop.console.clone(), access.clone()).process_metrics(|| "of_this_process 1\n".to_owned());
    let site = Site::serve(web, &access).await;
    assert_eq!(site.get("/metrics").await.status, 401);
    let metrics = site.ask("GET", "/metrics", &[&format!("Authorization: Bearer {READ_TOKEN}")], "").await;
    assert!(metrics.status == 200 && metrics.head.contains("text/plain; version=0.0.4"), "{metrics:?}");
    for line in [
        "of_this_process 1",
        "keylapse_redis_up 1",
        "keylapse_listeners 0",
        "keylapse_topics_omitted 0",
        "keylapse_listeners_silent 0",
        "keylapse_listeners_stalled 0",
        r#"keylapse_topic_undelivered{topic="order"} 1"#,
        r#"keylapse_topic_destinations_held_back{topic="order"} 0"#,
        r#"keylapse_topic_trimmed_total{topic="order"} 0"#,
        r#"keylapse_topic_failing_ratio{topic="order"} 0"#,
        r#"keylapse_topic_alarm{topic="order",kind="held-back"} 0"#,
        r#"keylapse_topic_timers{topic="order",state="pending"} 1"#,
        r#"keylapse_topic_timers{topic="order",state="overdue"} 1"#,
        r#"keylapse_topic_timers{topic="order",state="dead"} 3"#,
        r#"keylapse_topic_paused{topic="order"} 1"#,
        r#"keylapse_topic_listeners{topic="order"} 0"#,
    ] {
        assert!(metrics.body.lines().any(|found| found == line), "{line} in {}", metrics.body);
    }
    let oldest = metrics
        .body
        .lines()
        .find_map(|line| line.strip_prefix("keylapse_topic_oldest_overdue_seconds{topic=\"order\"} "));
    assert!(oldest.expect("how late").parse::<f64>().expect("a number") > 0.0);
}

#[tokio::test]
async fn where_redis_is_gone_that_is_all_that_is_said() {
    let site = Site::open(&nowhere()).await;
    let metrics = site.get("/metrics").await;
    let samples: Vec<_> = metrics.body.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!((metrics.status, samples), (200, vec!["keylapse_redis_up 0"]));
}

#[tokio::test]
async fn many_who_ask_at_once_cost_the_server_one_look() {
    let shop = Shop::open().await;
    let site = Site::open(&shop.console).await;
    site.get("/metrics").await;
    shop.server.cmd(&["CONFIG", "RESETSTAT"]).await;
    futures::future::join_all((0..100).map(|_| site.get("/metrics"))).await;
    let stats = shop.server.cmd(&["INFO", "commandstats"]).await;
    let stats: String = redis::from_redis_value(stats).expect("statistics");
    let looks = stats.lines().filter(|line| line.starts_with("cmdstat_eval")).count();
    assert_eq!(looks, 0, "{stats}");
}

/// The board and the rules name what is there.
#[tokio::test]
async fn each_metric_of_board_and_rules_is_there() {
    let shop = Shop::open().await;
    let mut known = Site::open(&shop.console).await.get("/metrics").await.body;
    known.push_str(&read("src/stats/meter.rs"));
    let known = names(&known);
    let board: serde_json::Value = serde_json::from_str(&read("docs/grafana.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let queries: Vec<_> =
        panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten()).collect();
    assert!(queries.len() >= 10, "{} queries", queries.len());
    let queries: Vec<_> = queries.iter().map(|query| query["expr"].as_str().expect("a query")).collect();
    for text in [queries.join("\n"), read("docs/alerts.yml")] {
        for name in names(&text) {
            let base =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            assert!(known.contains(base), "{name} is not there");
        }
    }
}

/// Each name is explained, also of those that are 0.
#[tokio::test]
async fn each_metric_of_topics_stands_on_its_page() {
    let shop = Shop::open().await;
    let shown = Site::open(&shop.console).await.get("/metrics").await.body;
    let text = names(&read("docs/monitor.md"));
    let missing: Vec<_> = names(&shown).into_iter().filter(|name| !text.contains(name)).collect();
    assert!(missing.is_empty(), "docs/monitor.md lacks {missing:?}");
}

/// Returns a file of the repository.
fn read(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn names(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    words.filter(|word| word.starts_with("keylapse_")).map(str::to_owned).collect()
}

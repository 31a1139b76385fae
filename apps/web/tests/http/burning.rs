//! Where everything burns, programs read it: from the API and from the metrics.

use keylapse::Client;
use keylapse_console::Console;
use keylapse_support::{Server, eventually};
use keylapse_web::Web;
use serde_json::json;

use crate::burning::{BURNING, Fire, HOST, light};
use crate::http::audit::{hear, lines};
use crate::http::site::{FORM, READ_TOKEN, Site, TOKEN, guarded};
use crate::http::slow::PATIENCE;

async fn burning() -> (Server, Fire, Site) {
    let server = Server::start().await;
    let fire = light(&server).await;
    let console = Console::new(Client::new(&server.plain_url()).expect("a client"));
    let site = Site::open(&console).await;
    (server, fire, site)
}

#[tokio::test]
async fn each_answer_about_topics_has_its_alarms() {
    let (_server, _fire, site) = burning().await;
    let status = site.get("/api/v1/status").await.with(200);
    let kinds: Vec<_> = status["alarms"].as_array().unwrap().iter().map(|alarm| &alarm["kind"]).collect();
    for kind in BURNING {
        assert!(kinds.contains(&&json!(kind.as_str())), "{kind:?} in {kinds:?}");
    }
    assert_eq!(status["silent_listeners"][0]["host"], "old-host");
    assert!(status["silent_listeners"][0]["age_ms"].as_u64().unwrap() >= 60_000, "{status}");
    let checked = site.get("/api/v1/check").await.with(200);
    for kind in BURNING {
        let alarms = checked["alarms"].as_array().unwrap();
        assert!(alarms.iter().any(|alarm| alarm["kind"] == kind.as_str()), "{kind:?} in {checked}");
    }
    for (topic, is_served_by_it) in [("sms.sent", true), ("call.missed", false)] {
        let checked = site.get(&format!("/api/v1/check?topic={topic}")).await.with(200);
        let alarms = checked["alarms"].as_array().unwrap();
        assert_eq!(alarms.iter().any(|alarm| alarm["kind"] == "silent"), is_served_by_it, "{checked}");
    }
    let topic = site.get("/api/v1/topics/call.missed").await.with(200);
    assert_eq!(
        topic["alarms"][0],
        json!({
            "kind": "failing", "topic": "call.missed", "listener": null,
            "message": "4 of 4 attempts failed in the last five minutes",
        })
    );
    assert_eq!(
        (&topic["undelivered"], &topic["last_5m"]["failed"], &topic["last_1h"]["failed"]),
        (&json!(4), &json!(4), &json!(4))
    );
    assert!(topic["oldest_undelivered_ms"].as_u64().unwrap() > 0, "{topic}");
    let trimmed = site.get("/api/v1/topics/sms.sent").await.with(200);
    assert_eq!((&trimmed["trimmed"], &trimmed["alarms"][1]["kind"]), (&json!(2), &json!("trimmed")));
    let listeners = site.get("/api/v1/listeners").await.with(200);
    assert_eq!(
        (&listeners["silent_listeners"][0]["pid"], listeners["listeners"].as_array().unwrap().len()),
        (&json!(4711), 1)
    );
}

#[tokio::test]
async fn a_host_that_holds_work_back_is_listed_and_tried() {
    let (_server, fire, site) = burning().await;
    let path = "/api/v1/topics/order.unpaid/destinations";
    let listed = site.get(path).await.with(200);
    let (all, first) = (listed["destinations"].as_array().unwrap(), &listed["destinations"][0]);
    assert_eq!(
        (all.len(), &first["name"], &first["state"], &first["failures"]),
        (2, &json!(HOST), &json!("open"), &json!(10))
    );
    assert!(first["retry_in_ms"].as_u64().unwrap() <= 120_000, "{first}");
    let tried = format!("{path}/try");
    site.post(&tried, &json!({"destination": "other.example:443"}))
        .await
        .refused(404, "no listener of the topic reports");
    site.post(&tried, &json!({"host": HOST})).await.refused(422, "unknown field");
    assert_eq!(
        site.post(&tried, &json!({"destination": HOST})).await.with(200)["outcome"],
        "retry_requested"
    );
    eventually(PATIENCE, "the call", async || *fire.hosts.tried.lock().unwrap() == [HOST]).await;
}

/// A token that may only look tries nothing.
#[tokio::test]
async fn a_host_is_tried_by_those_who_may_act() {
    hear();
    let server = Server::start().await;
    let fire = light(&server).await;
    let access = guarded();
    let console = Console::new(Client::new(&server.plain_url()).expect("a client"));
    let site = Site::serve(Web::new(console, access.clone()), &access).await;
    let form = format!("topic=order.unpaid&verb=try-now&destination={HOST}");
    for (token, status) in [(READ_TOKEN, 403), (TOKEN, 303)] {
        let answer =
            site.ask("POST", "/topic/act", &[&format!("Authorization: Bearer {token}"), FORM], &form).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    eventually(PATIENCE, "the call", async || *fire.hosts.tried.lock().unwrap() == [HOST]).await;
    let by_token: Vec<_> =
        lines(r#"verb="try-now""#).into_iter().filter(|line| line.contains(r#"by="token""#)).collect();
    let [line] = &by_token[..] else { panic!("{by_token:?}") };
    for part in [HOST, r#"topic="order.unpaid""#, r#"outcome="retry_requested""#, "count=1"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[tokio::test]
async fn each_alarm_is_a_metric_and_so_is_its_figure() {
    let (_server, _fire, site) = burning().await;
    let metrics = site.get("/metrics").await.body;
    for line in [
        r#"keylapse_topic_undelivered{topic="call.missed"} 4"#,
        r#"keylapse_topic_destinations_held_back{topic="order.unpaid"} 1"#,
        r#"keylapse_topic_failing_ratio{topic="call.missed"} 1"#,
        r#"keylapse_topic_trimmed_total{topic="sms.sent"} 2"#,
        "# TYPE keylapse_topic_trimmed_total counter",
        "keylapse_listeners_silent 1",
        r#"keylapse_topic_alarm{topic="order.unpaid",kind="held-back"} 1"#,
        r#"keylapse_topic_alarm{topic="call.missed",kind="failing"} 1"#,
        r#"keylapse_topic_alarm{topic="sms.sent",kind="trimmed"} 1"#,
        r#"keylapse_topic_alarm{topic="mail.reminder",kind="paused"} 1"#,
        r#"keylapse_topic_alarm{topic="report.nightly",kind="unserved"} 1"#,
        r#"keylapse_topic_alarm{topic="report.nightly",kind="failing"} 0"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    let oldest = r#"keylapse_topic_oldest_undelivered_seconds{topic="mail.reminder"} "#;
    let oldest = metrics.lines().find_map(|line| line.strip_prefix(oldest)).expect("how long");
    assert!(oldest.parse::<f64>().expect("a number") > 0.0, "{oldest}");
}

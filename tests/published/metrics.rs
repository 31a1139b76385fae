//! An exporter shows each metric with its name and labels.

#[path = "../kit/support.rs"]
#[allow(dead_code)] // as that suite needs it
mod support;

use keylapse_testing::TestBed;
use metrics_exporter_prometheus::PrometheusBuilder;

use support::play;

#[tokio::test(start_paused = true)]
async fn each_metric_has_its_name_and_labels_and_none_has_a_key() {
    let recorder = PrometheusBuilder::new().set_buckets(&[0.01, 0.1, 1.0]).unwrap().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (bed, exporter) = (TestBed::new(), recorder.handle());
    play(&bed).await;
    let shown = exporter.render();
    for line in [
        r#"keylapse_lapses_total{topic="reminder",source="timer",outcome="done"} 1"#,
        r#"keylapse_lapses_total{topic="reminder",source="timer",outcome="error"} 3"#,
        r#"keylapse_lapses_total{topic="reminder",source="sweep",outcome="done"} 1"#,
        r#"keylapse_lateness_seconds_bucket{topic="reminder",source="timer",le="0.01"} 4"#,
        r#"keylapse_lateness_seconds_count{topic="reminder",source="sweep"} 1"#,
        r#"keylapse_handler_seconds_bucket{topic="reminder",le="0.01"} 0"#,
        r#"keylapse_handler_seconds_bucket{topic="reminder",le="0.1"} 5"#,
        r#"keylapse_retries_total{topic="reminder"} 2"#,
        r#"keylapse_dead_total{topic="reminder",reason="exhausted"} 1"#,
        r#"keylapse_leases_lost_total{topic="reminder"} 0"#,
        r#"keylapse_notifications_missed_total{topic="reminder"} 1"#,
        r#"keylapse_claims_total{topic="reminder",result="taken"} 4"#,
        "# HELP keylapse_lapses_total",
        "# TYPE keylapse_heartbeat_seconds histogram",
    ] {
        assert!(shown.contains(line), "{line}:\n{shown}");
    }
    let gap = |line: &&str| {
        line.starts_with("keylapse_gaps_total{node=") && line.contains("reason=\"disconnected\"")
    };
    assert!(shown.lines().any(|line| gap(&line)), "{shown}");
    assert!(shown.contains("keylapse_heartbeat_seconds_bucket{node="), "{shown}");
    for key in ["good", "bad", "tardy"] {
        assert!(!shown.contains(key), "{shown}");
    }
}

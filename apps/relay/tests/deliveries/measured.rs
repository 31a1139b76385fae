//! What is counted of deliveries.

use std::time::Duration;

use keylapse_support::eventually;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::rig::{SECRET, topic};
use crate::{Receiver, Rig, Then};

#[tokio::test]
async fn webhooks_are_counted_by_class_and_open_circuits_shown() {
    let recorded = PrometheusBuilder::new().install_recorder().unwrap();
    keylapse_relay::describe_metrics();
    let receiver = Receiver::start(|call, _| match call {
        1 => Then::status(500),
        // The connection was used before, so a new one is tried.
        2 | 3 => Then::Close,
        _ => Then::status(200),
    })
    .await;
    let text = format!(
        "[topics.measured]\npattern = \"order:{{id}}\"\nretry = {{ every = \"10ms\" }}\n[topics.measured.webhook]\nurl = \"{}\"\n\
         secret = {{ file = \"secret\" }}\nallow-addresses = [\"127.0.0.1\"]\ncircuit = {{ failures = 2, open-for = \"1s\" }}\n",
        receiver.url()
    );
    let rig = Rig::with_secrets(&text, &[("secret", SECRET)]).await;
    rig.arm_of(&topic("measured"), "1", "x").await;
    let says = async |line: &str| {
        eventually(Duration::from_secs(20), line, async || {
            recorded.render().lines().any(|found| found == line)
        })
        .await;
    };
    says("keylapse_webhook_circuits_open{topic=\"measured\"} 1").await;
    for class in ["server_error", "connection_lost", "circuit_open", "delivered"] {
        says(&format!("keylapse_webhooks_total{{topic=\"measured\",class=\"{class}\"}} 1")).await;
    }
    says("keylapse_webhook_circuits_open{topic=\"measured\"} 0").await;
    says("keylapse_webhook_seconds_count{topic=\"measured\"} 3").await;
    assert!(recorded.render().contains("# HELP keylapse_webhooks_total "));
}

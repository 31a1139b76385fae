//! The HTTP client without keylapse, with bodies and headers of equal size, and as many calls at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylapse_bench::Fault;
use reqwest::Client;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::JoinSet;

use crate::Options;
use crate::receiver::{Came, Receiver, now_ms};

/// A signature as long as that of this benchmark's webhooks.
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

pub(crate) async fn calls(options: &Options, receiver: &mut Receiver) -> Result<Came, Fault> {
    // The client is built with TLS and needs a provider, though these calls use plain HTTP.
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let tls = tls.with_safe_default_protocol_versions()?;
    let tls = tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let client = Client::builder().no_proxy().tls_backend_preconfigured(tls).build()?;
    let left = Arc::new(AtomicUsize::new(options.burst));
    let mut callers = JoinSet::new();
    let began = now_ms();
    for _ in 0..options.concurrency {
        let (client, url, left) = (client.clone(), receiver.url.clone(), Arc::clone(&left));
        callers.spawn(async move {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                client
                    .post(&url)
                    .header("content-type", "application/json")
                    .header("webhook-id", "0123456789abcdef")
                    .header("webhook-timestamp", "1790000000")
                    .header("webhook-signature", SIGNATURE)
                    .body(body(began))
                    .send()
                    .await?
                    .bytes()
                    .await?;
            }
            Ok::<_, reqwest::Error>(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    receiver.came()
}

fn body(began: f64) -> String {
    format!(
        "{{\"type\":\"timer.lapsed\",\"timestamp\":\"2026-11-25T20:00:00.000Z\",\"data\":{{\"topic\":\"orders\",\
         \"id\":\"0123456789abcdef\",\"key\":\"order:12345\",\"captures\":{{\"id\":\"12345\"}},\"attempt\":1,\
         \"deadline_ms\":{began:.0},\"value\":{{\"amount\":500}}}}}}"
    )
}

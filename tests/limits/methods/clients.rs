//! How a server is reached, and what a listener is given.

use std::time::Duration;

use keylapse::{Client, Done, Lapse, Listener, Schedule, Servers, Topic};
use keylapse_testing::TestBed;

use super::values::{DURATIONS, NUMBERS, SIZES, long, texts};
use super::{Case, or_refused, paused};

pub(super) const CASES: &[Case] = &[
    (&["Client::new"], || texts().iter().for_each(|text| drop(or_refused(Client::new(text))))),
    (&["Servers::at"], || servers(|text| Servers::at(&text))),
    (&["Servers::one"], || servers(|text| Servers::one(&text))),
    (&["Servers::unix"], || servers(Servers::unix)),
    (&["Servers::cluster"], || {
        servers(|text| Servers::cluster([text, "h".to_owned()]));
        or_refused(Client::try_from(Servers::cluster(vec!["h"; 100_000])));
    }),
    (&["Servers::sentinel"], || {
        servers(|text| Servers::sentinel(["h"], &text));
        servers(|text| Servers::sentinel([text], "m"));
    }),
    (&["Servers::user", "Servers::password", "Servers::password_file"], || {
        servers(|text| Servers::one("h").user(&text).password("p"));
        servers(|text| Servers::one("h").password(&text));
        servers(|text| Servers::one("h").password_file(text));
    }),
    (&["Servers::sentinel_user", "Servers::sentinel_password", "Servers::sentinel_password_file"], || {
        let watched = || Servers::sentinel(["h"], "m");
        servers(move |text| watched().sentinel_user(&text).sentinel_password("p"));
        servers(move |text| watched().sentinel_password(&text));
        servers(move |text| watched().sentinel_password_file(text));
    }),
    (&["Servers::database"], || {
        for number in NUMBERS {
            or_refused(Client::try_from(Servers::one("h").database(number)));
        }
    }),
    (&["Client::namespace"], || {
        for text in texts() {
            let client = Client::new("redis://h").unwrap();
            or_refused(client.namespace(&text));
        }
    }),
    (&["Client::retry_for"], || {
        used(|client, limit| Ok(client.retry_for(limit)));
        // A call without an answer is given up in the end, however long that was to take.
        for patience in DURATIONS {
            paused(async {
                let nowhere = Client::new("redis://127.0.0.1:1/").unwrap().retry_for(patience);
                let topic = Topic::<u32>::new("tried:{id}").unwrap();
                assert!(Schedule::new(nowhere).arm(&topic, "1", Duration::ZERO, &1).await.is_err());
            });
        }
    }),
    (&["Client::answer_within"], || used(Client::answer_within)),
    (&["ListenerBuilder::concurrency"], || {
        for attempts in SIZES {
            paused(listen(|builder| builder.concurrency(attempts)));
        }
    }),
    (&["ListenerBuilder::grace"], || {
        for grace in DURATIONS {
            paused(listen(|builder| builder.grace(grace)));
        }
    }),
    // Their files are read when a client is made of them.
    (&["Tls::ca_file", "Tls::client_certificate", "Tls::server_name"], tls),
];

#[cfg(feature = "tls")]
fn tls() {
    use keylapse::Tls;
    for text in texts() {
        or_refused(Client::try_from(Servers::one("h").tls(Tls::new().ca_file(&text))));
        or_refused(Client::try_from(Servers::one("h").tls(Tls::new().client_certificate(&text, &text))));
        or_refused(Client::try_from(Servers::one("h").tls(Tls::new().server_name(&text))));
    }
}

/// They are there with the feature alone.
#[cfg(not(feature = "tls"))]
fn tls() {}

/// Each text makes servers that are refused or can be used; nobody is there.
fn servers(make: impl Fn(String) -> Servers) {
    for text in texts() {
        let servers = make(text);
        assert!(!format!("{servers:?}").contains('\0'));
        or_refused(Client::try_from(servers));
    }
    or_refused(Client::try_from(make(long())));
}

/// A schedule works over each of these clients.
fn used(set: impl Fn(Client, Duration) -> keylapse::Result<Client>) {
    for limit in DURATIONS {
        paused(async {
            let bed = TestBed::new();
            let Some(client) = or_refused(set(bed.client(), limit)) else { return };
            let topic = Topic::<u32>::new("tried:{id}").unwrap();
            let armed = Schedule::new(client).arm(&topic, "1", Duration::ZERO, &1).await;
            // No answer comes within a nanosecond.
            assert!(armed.is_ok() || limit <= Duration::from_nanos(1), "{limit:?}: {armed:?}");
        });
    }
}

/// A listener runs a timer, and stops amid an attempt.
async fn listen(set: impl Fn(keylapse::ListenerBuilder) -> keylapse::ListenerBuilder) {
    let bed = TestBed::new();
    let topic = Topic::<u32>::new("tried:{id}").unwrap();
    let handle = |lapse: Lapse<u32>| async move {
        tokio::time::sleep(Duration::from_secs((*lapse.payload()).into())).await;
        Ok::<_, keylapse::Failure>(Done)
    };
    let listening =
        bed.listen(|builder: keylapse::ListenerBuilder| set(builder).on(topic.clone(), handle)).await;
    let Some(listening) = or_refused(listening) else {
        let refused = set(Listener::builder("redis://h")).on(topic, handle).build();
        return drop(or_refused(refused));
    };
    for seconds in [0, 20] {
        let _ = bed.schedule().arm(&topic, seconds, Duration::ZERO, &seconds).await.unwrap();
    }
    bed.until_ran(&topic, 0).await;
    bed.advance(Duration::from_secs(1)).await;
    listening.stop().await.unwrap();
}

//! Addresses and hosts that are not to be called.

use crate::{Receiver, Rig, Then};

const ONCE: &str = "max-attempts = 1";
const ALLOW: &str = "allow-addresses = [\"127.0.0.1\"]";

/// Written as addresses they are refused when the file is read.
#[tokio::test]
async fn names_that_lead_to_this_machine_are_refused() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let port = receiver.port();
    let rig = Rig::of_timers(&format!("http://localhost:{port}"), ONCE, "").await;
    rig.arm("1", "1").await;
    let said = format!("{:?}", rig.letters(1).await);
    assert!(said.contains("private to this machine"), "{said}");

    let rig = Rig::of_timers("{payload.url}", ONCE, &format!("hosts = [\"localhost:{port}\"]")).await;
    for (id, host, why) in [
        ("1", "localhost", "private to this machine"),
        ("2", "LocalHost", "private to this machine"),
        ("3", "127.0.0.1", "not among `hosts`"),
        ("4", "[::ffff:127.0.0.1]", "not among `hosts`"),
    ] {
        rig.arm(id, format!("{{\"url\":\"http://{host}:{port}/\"}}")).await;
        let letters = rig.letters(id.parse().unwrap()).await;
        assert!(format!("{letters:?}").contains(why), "{host}: {letters:?}");
    }
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn a_url_that_leads_elsewhere_is_refused() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let rig = Rig::of_timers("{payload.url}", ONCE, &format!("{ALLOW}\nhosts = [\"shop.example\"]")).await;
    rig.arm("1", r#"{"url":"http://127.0.0.1/"}"#).await;
    rig.arm("2", r#"{"url":"http://shop.example@127.0.0.1/"}"#).await;
    rig.arm("3", r#"{"url":"file:///etc/passwd"}"#).await;
    rig.arm("4", r#"{"uri":"http://shop.example/"}"#).await;
    let said = format!("{:?}", rig.letters(4).await);
    for why in ["not among `hosts`", "name or password", "only http: and https:", "no payload.url"] {
        assert!(said.contains(why), "{why}: {said}");
    }
    assert_eq!(receiver.count(), 0);
}

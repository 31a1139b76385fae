//! P2 for other languages: what docs/internals/wire.md says of fractions of a millisecond.

use keylapse_support::Server;
use keylapse_wire::names::{PartitionNames, WIRE_VERSION};
use keylapse_wire::scripts;
use redis::aio::MultiplexedConnection;
use redis::cmd;

async fn init(line: &mut MultiplexedConnection, at: &PartitionNames) {
    let mut init = cmd("EVAL");
    init.arg(&scripts::INIT.text).arg(1).arg(at.key("meta")).arg(WIRE_VERSION).arg(1);
    init.exec_async(line).await.unwrap();
}

/// The deadline that an arm answers, and the first whole millisecond at or after its time.
async fn arm(line: &mut MultiplexedConnection, at: &PartitionNames, (n, when): (u8, &str)) -> (u64, u64) {
    let mut arm = cmd("EVAL");
    arm.arg(&scripts::ARM.text).arg(7);
    for name in ["meta", "due", "quarantine", "timers", "timer_states", "queued", "tombstones"] {
        arm.arg(at.key(name));
    }
    arm.arg(WIRE_VERSION).arg(1).arg(&at.wake).arg("r00");
    arm.arg(format!("app:{n}:{when}")).arg(when).arg(&b"\x01idididid"[..]).arg("payload");
    // In one transaction with the script the server's clock stands still, or nearly so.
    let (answer, (secs, micros)): (Vec<u8>, (u64, u64)) =
        redis::pipe().atomic().add_command(arm).cmd("TIME").query_async(line).await.unwrap();
    let [code, _, deadline @ ..] = &answer[..] else { panic!("{answer:?}") };
    assert_eq!(*code, 0, "armed");
    let deadline = u64::from_be_bytes(deadline.try_into().expect("eight bytes, and no more to say"));
    (deadline, secs * 1000 + micros.div_ceil(1000))
}

#[tokio::test]
async fn fractions_of_a_millisecond_are_rounded_up() {
    let server = Server::start().await;
    let mut line = server.conn().await;
    let at = PartitionNames::new("keylapse", "app.rounding", 0, 1, false);
    init(&mut line, &at).await;
    for (when, deadline) in [
        ("4000000000000", 4_000_000_000_000),
        ("4000000000000.5", 4_000_000_000_001),
        ("4000000000000.25", 4_000_000_000_001),
    ] {
        assert_eq!(arm(&mut line, &at, (0, when)).await.0, deadline, "{when}");
    }
    for (when, delay) in [("+1000", 1000), ("+1000.5", 1001), ("+1000.001", 1001), ("+0.5", 1)] {
        // The time that was taken behind the script can be that of a later millisecond.
        let mut early = true;
        for n in 0..20 {
            let (deadline, now) = arm(&mut line, &at, (n, when)).await;
            assert!(deadline <= now + delay, "{when}: {deadline} by {now}");
            early &= deadline < now + delay;
        }
        assert!(!early, "{when}");
    }
}

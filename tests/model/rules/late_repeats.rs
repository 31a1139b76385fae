//! Repeats of unanswered calls that arrive after other calls.

use crate::model::rig::{LEASE, Rig, ms};

on_each_server! {
    a_late_repeat_of_a_claim_cuts_no_renewed_lease_short,
}

/// As one does that was held up on its way while the first call's answer was.
async fn a_late_repeat_of_a_claim_cuts_no_renewed_lease_short(rig: &mut Rig) {
    rig.arm_due(["a"]).await;
    let first = rig.claim_with(|call| call.lease_ms = LEASE / 3).await;
    assert!(rig.renew(&first.one()).await);
    let renewed = rig.look("a").await.expect("it runs").score;
    rig.pass(ms(1)).await;
    let repeat = keylapse_wire::Claim { repeat: true, ..first.call };
    assert_eq!(rig.claim_as(repeat).await.keys(), ["a"]);
    assert_eq!(rig.look("a").await.expect("it runs").score, renewed);
}

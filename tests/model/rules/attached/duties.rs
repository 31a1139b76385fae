//! Who scans, and who enrols what is written.

use super::*;

on_each_server! {
    Scene:
    one_listener_scans_and_a_second_one_enrols,
    whoever_hears_nothing_keeps_a_duty_for_those_who_do,
    only_whoever_has_a_duty_can_give_it_up_and_then_anybody_may_follow,
}

async fn one_listener_scans_and_a_second_one_enrols(scene: &mut Scene) {
    use Duty::{None, Scan, Track};
    let [a, b, c] = [b"slot---a", b"slot---b", b"slot---c"];
    for (slot, duty) in [(a, Scan), (b, Track), (c, None), (a, Scan), (b, Track)] {
        assert_eq!(scene.hold(slot, false).await, duty);
    }
    // Each says so again in its own time; whoever comes first takes what is free.
    scene.clock(FIRST + 500).await;
    assert_eq!(scene.hold(b, false).await, Track);
    scene.clock(FIRST + 999).await;
    assert_eq!(scene.hold(c, false).await, None);
    scene.clock(FIRST + 1000).await;
    assert_eq!(scene.hold(c, true).await, None, "patience");
    assert_eq!((scene.hold(b, false).await, scene.hold(c, false).await), (Scan, Track));
    assert_eq!(scene.hold(a, false).await, None);
    // As long again, and those who are patient may come, too.
    scene.clock(FIRST + 2999).await;
    assert_eq!(scene.hold(a, true).await, None);
    scene.clock(FIRST + 3000).await;
    assert_eq!((scene.hold(a, true).await, scene.hold(c, true).await), (Scan, Track));
}

async fn whoever_hears_nothing_keeps_a_duty_for_those_who_do(scene: &mut Scene) {
    use Duty::{None, Scan, Track};
    let [deaf, patient, b, c] = [b"slot---a", b"slot---p", b"slot---b", b"slot---c"];
    assert_eq!((scene.hold(deaf, true).await, scene.hold(b, false).await), (Scan, Track));
    // It stays, but against others who hear nothing either.
    for (slot, duty) in [(deaf, Scan), (patient, None), (deaf, Scan), (c, Scan), (deaf, None), (b, Track)] {
        assert_eq!(scene.hold(slot, slot == deaf || slot == patient).await, duty);
    }
}

async fn only_whoever_has_a_duty_can_give_it_up_and_then_anybody_may_follow(scene: &mut Scene) {
    use Duty::{None, Scan, Track};
    let [a, b, c] = [b"slot---a", b"slot---b", b"slot---c"];
    assert_eq!((scene.hold(a, false).await, scene.hold(b, false).await), (Scan, Track));
    for (slot, follows) in [(c, None), (b, Track), (a, Scan)] {
        let slot = SlotId::from_bytes(slot).expect("a slot");
        assert_eq!(scene.store.take_duty(&scene.at, slot, 0, false).await.expect("an answer"), None);
        assert_eq!(scene.hold(c, true).await, follows);
    }
}

//! Canaries: keys of a moment, which number the stream of expired keys.

use crate::model::rig::Rig;

on_each_server! {
    one_canary_lives_at_a_time,
    a_canary_names_the_one_before,
}

/// A number, and that of the one before; and whether the canary is new.
async fn release(rig: &Rig) -> (u64, u64, bool) {
    let (name, new) = rig.release_canary(60_000).await;
    let (number, before) = name.split_once(':').expect("two numbers");
    (number.parse().expect("a number"), before.parse().expect("a number"), new)
}

async fn one_canary_lives_at_a_time(rig: &mut Rig) {
    let (number, before, new) = release(rig).await;
    assert_eq!((before, new), (0, true));
    assert_eq!(release(rig).await, (number, before, false), "the first serves all");
}

async fn a_canary_names_the_one_before(rig: &mut Rig) {
    let mut last = 0;
    for _ in 0..3 {
        let (number, before, new) = release(rig).await;
        assert_eq!((before, new), (last, true));
        assert!(number > last);
        rig.drop_canary(&format!("{number}:{before}")).await;
        last = number;
    }
}

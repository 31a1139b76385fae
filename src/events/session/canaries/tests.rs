//! What is believed of canaries, real and forged.

use super::*;

/// The first that the server names, and the clock then.
const FIRST: u64 = 1_700_000_000_000;

struct Scene {
    chain: Chain,
    began: Instant,
    /// How long it plays already.
    elapsed: u64,
}

impl Scene {
    /// Without a word of the server's yet.
    fn begin() -> Self {
        Self { chain: Chain::default(), began: Instant::now(), elapsed: 0 }
    }

    /// With a chain that begins at `FIRST`.
    fn anchored() -> Self {
        let mut scene = Self::begin();
        scene.name(0, 1);
        assert_eq!(scene.hear(0, 1), Link::Believed);
        scene
    }

    fn now(&self) -> Instant {
        self.began + Duration::from_millis(self.elapsed)
    }

    /// The script is called and names this number, from `FIRST` on, whose predecessor lies so far before it.
    fn name(&mut self, number: i64, back: u64) {
        self.chain.name(numbers(number, back), self.now());
    }

    fn hear(&mut self, number: i64, back: u64) -> Link {
        self.chain.hear(numbers(number, back), self.now())
    }
}

fn numbers(number: i64, back: u64) -> Numbers {
    let number = FIRST.checked_add_signed(number).expect("a number");
    Numbers { number, before: number - back }
}

#[test]
fn before_the_server_has_told_of_one_no_canary_is_believed() {
    let mut scene = Scene::begin();
    assert_eq!(scene.hear(0, 1), Link::Broken);
    scene.name(0, 1);
    assert_eq!(scene.hear(0, 2), Link::Broken, "another name with that number");
    assert_eq!(scene.hear(0, 1), Link::Believed);
}

#[test]
fn others_make_canaries_too_and_each_follows_the_last() {
    let mut scene = Scene::anchored();
    for second in 1..=1000 {
        scene.elapsed = second * 1000;
        assert_eq!(scene.hear(i64::try_from(second * 1000).expect("it fits"), 1000), Link::Believed);
    }
}

#[test]
fn no_number_is_higher_than_the_clock_can_be() {
    for (elapsed, number, expected) in [
        (0, 5, Link::Believed),
        (0, 6, Link::Refused),
        (1000, 1006, Link::Believed),
        (1000, 1007, Link::Refused),
        (3_600_000, 3_600_100, Link::Believed),
        (3_600_000, 3_600_101, Link::Refused),
        (0, i64::MAX / 2, Link::Refused),
    ] {
        let mut scene = Scene::anchored();
        scene.elapsed = elapsed;
        let heard = Numbers { number: FIRST.saturating_add_signed(number), before: FIRST };
        assert_eq!(scene.chain.hear(heard, scene.now()), expected, "{number} after {elapsed} ms");
        assert!(scene.chain.is_whole(), "it changes nothing, or goes on");
    }
}

#[test]
fn a_number_that_is_not_higher_than_the_last_changes_nothing() {
    let mut scene = Scene::anchored();
    scene.elapsed = 2000;
    assert_eq!(scene.hear(1000, 1000), Link::Believed);
    for (number, back) in [(0, 1), (1000, 1000), (1000, 0), (999, 0), (-500, 1500)] {
        assert_eq!(scene.hear(number, back), Link::Refused);
    }
    assert_eq!(scene.hear(2000, 1000), Link::Believed);
}

#[test]
fn a_broken_chain_begins_anew_where_the_server_says_and_only_there() {
    let mut scene = Scene::anchored();
    scene.elapsed = 3000;
    assert_eq!(scene.hear(2000, 1000), Link::Broken);
    assert_eq!(scene.hear(2500, 2500), Link::Broken, "though it follows the last that was believed");
    assert_eq!(scene.hear(2600, 100), Link::Broken);
    scene.name(3000, 1000);
    assert_eq!(scene.hear(2900, 100), Link::Broken);
    assert_eq!(scene.hear(3000, 1000), Link::Believed);
    assert_eq!(scene.hear(3005, 5), Link::Believed);
}

#[test]
fn the_servers_word_is_believed_once() {
    let mut scene = Scene::anchored();
    scene.elapsed = 1000;
    assert_eq!(scene.hear(900, 100), Link::Broken);
    assert_eq!(scene.hear(0, 1), Link::Refused, "or its positions were given twice");
    scene.name(0, 1);
    assert_eq!(scene.hear(0, 1), Link::Refused, "the script says it again, while it lives");
}

#[test]
fn of_a_clock_that_was_set_back_only_the_server_tells() {
    let mut scene = Scene::anchored();
    scene.elapsed = 1000;
    assert_eq!(scene.hear(-5000, 1000), Link::Refused);
    scene.name(-5000, 1000);
    assert_eq!(scene.hear(-5000, 1000), Link::Believed);
    scene.elapsed = 2000;
    assert_eq!(scene.hear(-4000, 1000), Link::Believed);
    assert_eq!(scene.hear(2000, 6000), Link::Refused);
}

/// A forged number is a few ms ahead; were the real one behind it believed, that one's own would come again.
#[test]
fn whoever_was_led_ahead_by_a_forged_number_waits_until_the_clock_is_there() {
    let mut scene = Scene::anchored();
    scene.elapsed = 1000;
    assert_eq!(scene.hear(1005, 1005), Link::Believed, "forged");
    scene.name(1001, 1001);
    assert_eq!(scene.hear(1001, 1001), Link::Refused);
    scene.elapsed = 1050;
    scene.name(1050, 49);
    assert_eq!(scene.hear(1050, 49), Link::Believed);
}

#[test]
fn of_a_clock_that_was_set_forward_only_the_server_tells() {
    let mut scene = Scene::anchored();
    scene.elapsed = 1000;
    assert_eq!(scene.hear(86_400_000, 86_400_000), Link::Refused);
    scene.name(86_401_000, 1000);
    assert_eq!(scene.hear(86_401_000, 1000), Link::Believed);
}

//! Tests which heartbeats are accepted, real and forged ones.

use super::*;

/// The first number that the script names, and the server's clock then.
const FIRST: u64 = 1_700_000_000_000;

struct Scene {
    chain: Chain,
    began: Instant,
    /// The time since the start, in ms.
    elapsed: u64,
}

impl Scene {
    /// A chain for which the script has named no heartbeat yet.
    fn begin() -> Self {
        Self { chain: Chain::default(), began: Instant::now(), elapsed: 0 }
    }

    /// A chain that starts at `FIRST`.
    fn anchored() -> Self {
        let mut scene = Self::begin();
        scene.name(0, 1);
        assert_eq!(scene.receive(0, 1), CanaryStatus::Accepted);
        scene
    }

    fn now(&self) -> Instant {
        self.began + Duration::from_millis(self.elapsed)
    }

    /// Calls the script, which names `FIRST + number`. The previous number is lower by `back`.
    fn name(&mut self, number: i64, back: u64) {
        self.chain.set_named(numbers(number, back), self.now());
    }

    fn receive(&mut self, number: i64, back: u64) -> CanaryStatus {
        self.chain.apply_canary(numbers(number, back), self.now())
    }
}

fn numbers(number: i64, back: u64) -> CanaryNumbers {
    let number = FIRST.checked_add_signed(number).expect("a number");
    CanaryNumbers { number, before: number - back }
}

#[test]
fn before_the_script_has_named_a_heartbeat_none_is_accepted() {
    let mut scene = Scene::begin();
    assert_eq!(scene.receive(0, 1), CanaryStatus::Broken);
    scene.name(0, 1);
    assert_eq!(scene.receive(0, 2), CanaryStatus::Broken, "another name with that number");
    assert_eq!(scene.receive(0, 1), CanaryStatus::Accepted);
}

#[test]
fn others_make_canaries_too_and_each_follows_the_last() {
    let mut scene = Scene::anchored();
    for second in 1..=1000 {
        scene.elapsed = second * 1000;
        assert_eq!(
            scene.receive(i64::try_from(second * 1000).expect("it fits"), 1000),
            CanaryStatus::Accepted
        );
    }
}

#[test]
fn no_number_is_higher_than_the_clock_can_be() {
    for (elapsed, number, expected) in [
        (0, 5, CanaryStatus::Accepted),
        (0, 6, CanaryStatus::Refused),
        (1000, 1006, CanaryStatus::Accepted),
        (1000, 1007, CanaryStatus::Refused),
        (3_600_000, 3_600_100, CanaryStatus::Accepted),
        (3_600_000, 3_600_101, CanaryStatus::Refused),
        (0, i64::MAX / 2, CanaryStatus::Refused),
    ] {
        let mut scene = Scene::anchored();
        scene.elapsed = elapsed;
        let numbers = CanaryNumbers { number: FIRST.saturating_add_signed(number), before: FIRST };
        assert_eq!(scene.chain.apply_canary(numbers, scene.now()), expected, "{number} after {elapsed} ms");
        assert!(scene.chain.is_unbroken(), "the chain stays unbroken");
    }
}

#[test]
fn a_number_that_is_not_higher_than_the_last_changes_nothing() {
    let mut scene = Scene::anchored();
    scene.elapsed = 2000;
    assert_eq!(scene.receive(1000, 1000), CanaryStatus::Accepted);
    for (number, back) in [(0, 1), (1000, 1000), (1000, 0), (999, 0), (-500, 1500)] {
        assert_eq!(scene.receive(number, back), CanaryStatus::Refused);
    }
    assert_eq!(scene.receive(2000, 1000), CanaryStatus::Accepted);
}

#[test]
fn only_a_heartbeat_that_the_script_names_restores_a_broken_chain() {
    let mut scene = Scene::anchored();
    scene.elapsed = 3000;
    assert_eq!(scene.receive(2000, 1000), CanaryStatus::Broken);
    assert_eq!(scene.receive(2500, 2500), CanaryStatus::Broken, "though it follows the last accepted one");
    assert_eq!(scene.receive(2600, 100), CanaryStatus::Broken);
    scene.name(3000, 1000);
    assert_eq!(scene.receive(2900, 100), CanaryStatus::Broken);
    assert_eq!(scene.receive(3000, 1000), CanaryStatus::Accepted);
    assert_eq!(scene.receive(3005, 5), CanaryStatus::Accepted);
}

#[test]
fn a_named_heartbeat_is_accepted_once() {
    let mut scene = Scene::anchored();
    scene.elapsed = 1000;
    assert_eq!(scene.receive(900, 100), CanaryStatus::Broken);
    assert_eq!(scene.receive(0, 1), CanaryStatus::Refused, "otherwise its positions would be given twice");
    scene.name(0, 1);
    assert_eq!(scene.receive(0, 1), CanaryStatus::Refused, "the script names it again while the key exists");
}

#[test]
fn only_the_script_proves_that_the_clock_was_set_back() {
    let mut scene = Scene::anchored();
    scene.elapsed = 1000;
    assert_eq!(scene.receive(-5000, 1000), CanaryStatus::Refused);
    scene.name(-5000, 1000);
    assert_eq!(scene.receive(-5000, 1000), CanaryStatus::Accepted);
    scene.elapsed = 2000;
    assert_eq!(scene.receive(-4000, 1000), CanaryStatus::Accepted);
    assert_eq!(scene.receive(2000, 6000), CanaryStatus::Refused);
}

/// A forged number may be a few ms ahead. If the real number behind it were accepted, its positions would be given
/// twice.
#[test]
fn after_a_forged_number_the_chain_waits_until_the_clock_has_passed_it() {
    let mut scene = Scene::anchored();
    scene.elapsed = 1000;
    assert_eq!(scene.receive(1005, 1005), CanaryStatus::Accepted, "forged");
    scene.name(1001, 1001);
    assert_eq!(scene.receive(1001, 1001), CanaryStatus::Refused);
    scene.elapsed = 1050;
    scene.name(1050, 49);
    assert_eq!(scene.receive(1050, 49), CanaryStatus::Accepted);
}

#[test]
fn only_the_script_proves_that_the_clock_was_set_forward() {
    let mut scene = Scene::anchored();
    scene.elapsed = 1000;
    assert_eq!(scene.receive(86_400_000, 86_400_000), CanaryStatus::Refused);
    scene.name(86_401_000, 1000);
    assert_eq!(scene.receive(86_401_000, 1000), CanaryStatus::Accepted);
}

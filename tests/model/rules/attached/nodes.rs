//! Servers that have names: what each of them has announced, and keys that move from one to another.

use super::*;

on_each_server! {
    Scene:
    servers_that_use_the_same_numbers_announce_different_expiries,
    four_servers_are_remembered_and_the_room_of_a_key_is_bounded,
    what_was_read_on_another_server_is_later_only_if_it_was_asked_for_after_all_that_is_known,
    what_was_read_before_a_server_said_that_the_key_is_gone_is_refused_unless_it_was_asked_for_since,
    a_note_of_another_server_leaves_word_and_takes_the_value_along,
    what_has_ended_by_its_own_servers_clock_is_not_forged_though_the_partitions_is_behind,
    a_recovery_of_a_key_that_has_moved_takes_up_one_note_of_either_server,
    what_a_server_has_announced_that_was_replaced_fires_if_nothing_is_known_from_its_successor,
    what_was_heard_in_a_gap_ends_what_was_read_elsewhere_only_if_nothing_was_written_since,
}

fn node(name: &str) -> NodeId {
    NodeId::new(name.as_bytes()).expect("a name")
}

/// A position behind the first canary and so many ms, of this server.
fn on_node(name: &str, canary: u64, count: u32) -> Position {
    Position { node: node(name), canary: FIRST + canary, count }
}

fn anchored(at: Position) -> ExpiryIdentity {
    ExpiryIdentity::Anchored { at, since: at.canary }
}

impl Scene {
    async fn noted(&self, identity: ExpiryIdentity) -> RecordedExpiry {
        self.notes(&on(), &[AnnouncedExpiry { identity, ..self.note_of("a") }]).await[0]
    }

    /// Reads until when `a` lives there, asked for that long after the beginning, by the partition's clock.
    async fn read_on(&self, at: Position, asked: u64) -> TrackResult {
        self.read_then(at, stamp(0), asked).await
    }

    async fn read_then(&self, at: Position, stamp: ServerTime, asked: u64) -> TrackResult {
        let (key, copy) = (Bytes::from_static(b"a"), Bytes::from_static(b"\x02value"));
        let (deadline, asked) = (FIRST + 1000, ServerTime::from_ms(FIRST + asked));
        let read = DeadlineReading { key, deadline, at, stamp, requested_at: asked, copy };
        self.store.track_keys(&self.at, &on(), &[read]).await.expect("an answer").1[0]
    }

    /// A verdict of who has asked this server, and was so far in the stream of the one before.
    async fn judge_on(
        &self,
        watch: &TrackedKey,
        at: Position,
        before: Option<Position>,
        deed: CheckAction,
    ) -> bool {
        self.judged(CheckResult { watch: watch.clone(), at, stamp: stamp(0), before, deed }).await
    }

    async fn judged(&self, judged: CheckResult) -> bool {
        self.store.apply_checks(&self.at, &on(), &[judged]).await.expect("an answer").1[0]
    }
}

/// At this place, by who was told by the partition at that time.
fn gone(at: Position, asked: u64) -> KeyAbsence {
    KeyAbsence { at, stamp: stamp(1), requested_at: ServerTime::from_ms(FIRST + asked) }
}

async fn servers_that_use_the_same_numbers_announce_different_expiries(scene: &mut Scene) {
    let names = ["", "a", "b", &"x".repeat(40)];
    for name in &names[1..] {
        assert_eq!(scene.noted(anchored(on_node(name, 1000, 1))).await, RecordedExpiry::Lapse, "{name}");
    }
    for name in &names[1..] {
        assert_eq!(scene.noted(anchored(on_node(name, 1000, 1))).await, RecordedExpiry::Known, "{name}");
        assert_eq!(scene.noted(anchored(on_node(name, 1000, 2))).await, RecordedExpiry::Lapse, "{name}");
    }
    let in_gap = |name| ExpiryIdentity::Gap { node: node(name), canary: FIRST + 3000, back: 1, gone: None };
    for (name, noted) in [
        ("a", RecordedExpiry::Lapse),
        ("b", RecordedExpiry::Lapse),
        ("a", RecordedExpiry::Known),
        ("b", RecordedExpiry::Known),
    ] {
        assert_eq!(scene.noted(in_gap(name)).await, noted, "{name}");
    }
    // Notes of several servers go in one request, and are answered in its order.
    let note = |name, count| AnnouncedExpiry {
        identity: anchored(on_node(name, 4000, count)),
        ..scene.note_of("b")
    };
    let noted = scene.notes(&on(), &[note("a", 1), note("b", 1), note("a", 1), note("b", 2)]).await;
    assert_eq!(
        noted,
        [RecordedExpiry::Lapse, RecordedExpiry::Lapse, RecordedExpiry::Known, RecordedExpiry::Lapse]
    );
}

/// However often a slot moves back and forth.
async fn four_servers_are_remembered_and_the_room_of_a_key_is_bounded(scene: &mut Scene) {
    let name = |turn: u64| format!("{turn:020}");
    for turn in 0..40 {
        assert_eq!(scene.noted(anchored(on_node(&name(turn), 1000, 1))).await, RecordedExpiry::Lapse);
    }
    let size = scene.get("expiry_history", "a").await.len();
    assert_eq!(size, 10 + 4 * (1 + 20 + 4 + 39 + 20));
    for turn in 36..40 {
        assert_eq!(
            scene.noted(anchored(on_node(&name(turn), 1000, 1))).await,
            RecordedExpiry::Known,
            "{turn}"
        );
    }
    // Gaps and ranges of each are as few as those of one.
    for canary in 0..200 {
        let at = on_node(&name(canary % 4), 2000 + 10 * canary, 1);
        assert_eq!(scene.noted(anchored(at)).await, RecordedExpiry::Lapse);
        let gap = ExpiryIdentity::Gap { node: at.node, canary: at.canary, back: 1, gone: None };
        assert_eq!(scene.noted(gap).await, RecordedExpiry::Lapse);
    }
    let size = scene.get("expiry_history", "a").await.len();
    assert!(size <= 10 + 4 * (1 + 20 + 4 + 39 + 8 * 12 + 8 * 20), "{size} bytes");
}

async fn what_was_read_on_another_server_is_later_only_if_it_was_asked_for_after_all_that_is_known(
    scene: &mut Scene,
) {
    assert_eq!(scene.read_on(on_node("a", 5000, 0), 0).await, TrackResult::New);
    // Lower numbers say nothing; that it was asked for before the watch was written does.
    assert_eq!(scene.read_on(on_node("b", 1000, 0), 0).await, TrackResult::Stale);
    scene.clock(FIRST + 10).await;
    assert_eq!(scene.read_on(on_node("b", 1000, 0), 5).await, TrackResult::Known);
    scene.clock(FIRST + 2000).await;
    let watch = scene.watch("a").await;
    assert_eq!(
        (watch.at, watch.deadline, watch.announced_elsewhere),
        (on_node("b", 1000, 0), FIRST + 1000, false)
    );
    assert_eq!(scene.read_on(on_node("a", 6000, 0), 10).await, TrackResult::Stale);
    assert_eq!(scene.noted(anchored(on_node("b", 1000, 1))).await, RecordedExpiry::Lapse);
    // What the first had is not what there is, and its late writing does not come back.
    assert_eq!(scene.length("tracked").await, 0);
    assert_eq!(scene.read_on(on_node("a", 6000, 0), 1999).await, TrackResult::Stale);
    assert_eq!(scene.read_on(on_node("a", 6000, 0), 2001).await, TrackResult::New);
}

/// The server's clock need not be the partition's, and may be set back: what was asked for since is later all the same.
async fn what_was_read_before_a_server_said_that_the_key_is_gone_is_refused_unless_it_was_asked_for_since(
    scene: &mut Scene,
) {
    for (judged, read) in [(0, 0), (0, 5000), (5000, 0), (5000, 9000)] {
        let at = |canary: u64| match canary {
            0 => Position { node: node("a"), ..Position::default() },
            canary => on_node("a", canary, 0),
        };
        scene.begin().await;
        assert_eq!(scene.read_on(at(judged), 0).await, TrackResult::New);
        scene.clock(FIRST + 2000).await;
        let watch = scene.watch("a").await;
        // Its clock is an hour ahead.
        let hour = 3_600_000_000;
        let (at_judged, stamp_judged) = (at(judged), stamp(hour + 1_003_000));
        let verdict = CheckResult { watch, at: at_judged, stamp: stamp_judged, before: None, deed: fire() };
        assert!(scene.judged(verdict).await);
        let case = format!("behind {judged}, read behind {read}");
        assert_eq!(
            scene.read_then(at(read), stamp(hour + 999_000), 2000).await,
            TrackResult::Stale,
            "{case}"
        );
        if read >= judged {
            assert_eq!(scene.read_then(at(read), stamp(hour), 2001).await, TrackResult::New, "{case}");
        }
    }
}

async fn a_note_of_another_server_leaves_word_and_takes_the_value_along(scene: &mut Scene) {
    assert_eq!(scene.read_on(on_node("a", 5000, 0), 0).await, TrackResult::New);
    scene.clock(FIRST + 1500).await;
    assert_eq!(scene.noted(anchored(on_node("b", 1000, 1))).await, RecordedExpiry::Lapse);
    let read = 500_u64.to_be_bytes();
    let carried = payload(&scene.get("timers", "a").await);
    assert_eq!((carried[0], &carried[9..]), (2 + 16, &b"\x02value"[..]), "{carried:?} {read:?}");
    let watch = scene.watch("a").await;
    assert!(watch.announced_elsewhere, "{watch:?}");
    // A verdict on what it was before is void.
    let head = watch.head.len() - 10;
    let mut before = watch.clone();
    before.head = [&watch.head[..28], &[0], &watch.head[29..]].concat().into();
    assert!(head > 0 && !scene.judge_on(&before, on_node("b", 2000, 0), None, fire()).await);
    assert!(scene.judge_on(&watch, on_node("b", 2000, 0), None, CheckAction::Forget).await);
    assert_eq!(scene.length("tracked").await, 0);
}

/// Two clocks are not compared: canaries are numbered by that of the server which has the key.
async fn what_has_ended_by_its_own_servers_clock_is_not_forged_though_the_partitions_is_behind(
    scene: &mut Scene,
) {
    let ignores = with(|topic| topic.untracked = Treatment::Ignore);
    let gap = |canary| ExpiryIdentity::Gap {
        node: node("a"),
        canary: FIRST + canary,
        back: 1,
        gone: Some(KeyAbsence {
            stamp: ServerTime::from_ms(FIRST + canary),
            ..gone(on_node("a", canary, 0), 0)
        }),
    };
    for (identity, noted) in [
        // The next canary is not two seconds away, ...
        (anchored(Position { canary: FIRST - 1001, ..on_node("a", 0, 1) }), RecordedExpiry::Ignored),
        (anchored(Position { canary: FIRST - 1000, ..on_node("a", 0, 1) }), RecordedExpiry::Lapse),
        // ... and here it is known.
        (gap(999), RecordedExpiry::Ignored),
        (gap(1000), RecordedExpiry::Lapse),
    ] {
        scene.begin().await;
        let at = Position { canary: FIRST - 2000, ..on_node("a", 0, 0) };
        assert_eq!(scene.read_on(at, 0).await, TrackResult::New);
        scene.clock(FIRST + 100).await;
        let note = AnnouncedExpiry { identity, ..scene.note_of("a") };
        assert_eq!(scene.notes(&ignores, &[note]).await, [noted], "{identity:?}");
    }
}

async fn a_recovery_of_a_key_that_has_moved_takes_up_one_note_of_either_server(scene: &mut Scene) {
    for late in ["a", "b"] {
        scene.begin().await;
        assert_eq!(scene.read_on(on_node("a", 5000, 0), 0).await, TrackResult::New);
        scene.clock(FIRST + 1500).await;
        let watch = scene.watch("a").await;
        let before = Some(on_node("a", 7000, 0));
        assert!(scene.judge_on(&watch, on_node("b", 2000, 0), before, fire()).await);
        assert_eq!(scene.length("timers").await, 1);
        // Beyond what was known of the first, and behind the look at the second, is another expiry.
        assert_eq!(scene.noted(anchored(on_node("a", 8000, 1))).await, RecordedExpiry::Lapse);
        assert_eq!(scene.noted(anchored(on_node("b", 2000, 1))).await, RecordedExpiry::Lapse);
        let (one, other) = if late == "a" { (6000, 1000) } else { (1000, 6000) };
        let two = if late == "a" { "b" } else { "a" };
        assert_eq!(scene.noted(anchored(on_node(late, one, 1))).await, RecordedExpiry::Recovered, "{late}");
        assert_eq!(scene.noted(anchored(on_node(two, other, 1))).await, RecordedExpiry::Lapse, "{late}");
    }
}

async fn what_a_server_has_announced_that_was_replaced_fires_if_nothing_is_known_from_its_successor(
    scene: &mut Scene,
) {
    let replaced = || ExpiryIdentity::Replaced { by: node("a"), gone: gone(on_node("b", 2000, 0), 0) };
    assert_eq!(scene.noted(replaced()).await, RecordedExpiry::Lapse);
    assert_eq!(scene.noted(replaced()).await, RecordedExpiry::Known);
    assert_eq!(scene.noted(anchored(on_node("b", 1000, 1))).await, RecordedExpiry::Recovered);

    scene.begin().await;
    assert_eq!(scene.noted(anchored(on_node("b", 1000, 1))).await, RecordedExpiry::Lapse);
    assert_eq!(scene.noted(replaced()).await, RecordedExpiry::Known);

    // What is enrolled is looked at anyway.
    scene.begin().await;
    assert_eq!(scene.read_on(on_node("a", 5000, 0), 0).await, TrackResult::New);
    assert_eq!(scene.noted(replaced()).await, RecordedExpiry::Known);

    scene.begin().await;
    let ignores = with(|topic| topic.untracked = Treatment::Ignore);
    let note = AnnouncedExpiry { identity: replaced(), ..scene.note_of("a") };
    assert_eq!(scene.notes(&ignores, &[note]).await, [RecordedExpiry::Ignored]);
}

async fn what_was_heard_in_a_gap_ends_what_was_read_elsewhere_only_if_nothing_was_written_since(
    scene: &mut Scene,
) {
    for (asked, watches) in [(1, 0), (0, 1)] {
        scene.begin().await;
        assert_eq!(scene.read_on(on_node("a", 5000, 0), 0).await, TrackResult::New);
        scene.clock(FIRST + 1500).await;
        let found = Some(gone(on_node("b", 3000, 0), asked));
        let gap = ExpiryIdentity::Gap { node: node("b"), canary: FIRST + 3000, back: 1, gone: found };
        assert_eq!(scene.noted(gap).await, RecordedExpiry::Lapse);
        assert_eq!(scene.length("tracked").await, watches, "asked {asked}");
        if watches > 0 {
            assert!(scene.watch("a").await.announced_elsewhere);
        }
    }
}

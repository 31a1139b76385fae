//! The figures that matter most, in one line.

use crate::Measured;

/// Returns `handled_per_s=… fastest_peer=… …`, with `none` for a figure that was not measured.
pub fn last_line(results: &[Measured]) -> String {
    let handled = median(throughput(results).find(|one| one.system == "keylapse"), "per_s");
    let ceiling = median(throughput(results).find(|one| one.system == "ceiling"), "per_s");
    let peer = fastest(others_that_survive(throughput(results)), "per_s");
    let late = |foreign: bool, name| {
        let one = of(results, "lateness").find(|one| {
            let case = &one.case;
            let is_foreign = case.foreign() > 0;
            one.system == "keylapse"
                && case.number("rate") == 1000.0
                && case.number("behind") == 0.0
                && is_foreign == foreign
        });
        median(one, name)
    };
    let idle = of(results, "idle").find(|one| one.system == "keylapse");
    let bytes = of(results, "bytes").find(|one| one.system == "keylapse");
    let arms = |name| median(of(results, "arm").find(|one| one.system == "keylapse"), name);
    let (single, concurrent) = (arms("single_per_s"), arms("concurrent_per_s"));
    let queue = fastest(of(results, "arm").filter(|one| is_queue(one)), "concurrent_per_s");
    // The first size counts: every system runs it in all rounds.
    let lives = |one: &&Measured| {
        let first = of(results, "lives").next();
        first.is_some_and(|first| first.case.parameters == one.case.parameters)
    };
    let lived =
        median(of(results, "lives").filter(lives).find(|one| one.system == "keylapse"), "lives_per_s");
    let outlived = fastest(others_that_survive(of(results, "lives").filter(lives)), "lives_per_s");
    let words = [
        ("handled_per_s", shown(handled, 0)),
        ("fastest_peer", peer.map_or("none".to_owned(), |(name, _)| name.to_owned())),
        ("ratio_to_fastest_peer", shown(share(handled, peer.map(|(_, rate)| rate)), 2)),
        ("share_of_ceiling", shown(share(handled, ceiling), 2)),
        ("late_p50_ms", shown(late(false, "p50_ms"), 2)),
        ("late_p99_ms", shown(late(false, "p99_ms"), 2)),
        ("late_p99_ms_foreign", shown(late(true, "p99_ms"), 2)),
        ("early", shown(early(results), 0)),
        ("idle_requests_per_s", shown(median(idle, "requests_per_s"), 2)),
        ("bytes_per_timer", shown(median(bytes, "bytes"), 0)),
        ("arm_single_per_s", shown(single, 0)),
        ("arm_concurrent_per_s", shown(concurrent, 0)),
        ("arm_ratio_to_fastest_queue", shown(share(concurrent, queue.map(|(_, rate)| rate)), 2)),
        ("lives_per_s", shown(lived, 0)),
        ("lives_ratio", shown(share(lived, outlived.map(|(_, rate)| rate)), 2)),
    ];
    words.map(|(name, value)| format!("{name}={value}")).join(" ")
}

/// Returns the results of a measure.
fn of<'a>(results: &'a [Measured], measure: &'a str) -> impl Iterator<Item = &'a Measured> {
    results.iter().filter(move |measured| measured.case.measure == measure)
}

/// Returns the results of throughput with jobs in random order and without far-future timers.
fn throughput(results: &[Measured]) -> impl Iterator<Item = &Measured> {
    of(results, "throughput").filter(|one| {
        let parameters = &one.case.parameters;
        parameters.get("order").is_some_and(|order| order == "shuffled") && !parameters.contains_key("behind")
    })
}

/// Keeps systems that are not ours and lose nothing when a worker dies.
fn others_that_survive<'a>(all: impl Iterator<Item = &'a Measured>) -> impl Iterator<Item = &'a Measured> {
    all.filter(|one| !one.is_ours && one.described.survives_a_crash)
}

/// Returns whether the system is a library. The other peers are loops of a few commands, as people write them themselves.
fn is_queue(one: &Measured) -> bool {
    let is_a_loop = one.system.starts_with("zset_") || one.system == "subscriber";
    !one.is_ours && !is_a_loop
}

/// Returns the system with the highest rate, and that rate.
fn fastest<'a>(all: impl Iterator<Item = &'a Measured>, name: &str) -> Option<(&'a str, f64)> {
    let rates = all.filter_map(|one| Some((one.system.as_str(), median(Some(one), name)?)));
    rates.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// Returns how many handlers of keylapse started early, over all rounds.
fn early(results: &[Measured]) -> Option<f64> {
    let mut rounds = of(results, "lateness")
        .filter(|one| one.system.starts_with("keylapse"))
        .flat_map(|one| &one.rounds)
        .peekable();
    rounds.peek()?;
    Some(rounds.filter_map(|figures| figures.get("early")).sum())
}

fn median(measured: Option<&Measured>, name: &str) -> Option<f64> {
    Some(measured?.spread(name)?.median)
}

fn share(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    Some(part? / whole?)
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("none".to_owned(), |figure| format!("{figure:.digits$}"))
}

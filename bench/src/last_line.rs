//! The figures that matter most, in one line.

use crate::Measured;

/// `handled_per_s=… fastest_peer=… …`; what was not measured is `none`.
pub fn last_line(results: &[Measured]) -> String {
    let handled = median(throughput(results).find(|one| one.system == "keylapse"), "per_s");
    let ceiling = median(throughput(results).find(|one| one.system == "ceiling"), "per_s");
    let fastest = fastest_peer(results);
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
    let words = [
        ("handled_per_s", shown(handled, 0)),
        ("fastest_peer", fastest.map_or("none".to_owned(), |(name, _)| name.to_owned())),
        ("ratio_to_fastest_peer", shown(share(handled, fastest.map(|(_, rate)| rate)), 2)),
        ("share_of_ceiling", shown(share(handled, ceiling), 2)),
        ("late_p50_ms", shown(late(false, "p50_ms"), 2)),
        ("late_p99_ms", shown(late(false, "p99_ms"), 2)),
        ("late_p99_ms_foreign", shown(late(true, "p99_ms"), 2)),
        ("early", shown(early(results), 0)),
        ("idle_requests_per_s", shown(median(idle, "requests_per_s"), 2)),
        ("bytes_per_timer", shown(median(bytes, "bytes"), 0)),
    ];
    words.map(|(name, value)| format!("{name}={value}")).join(" ")
}

/// What was measured of a measure.
fn of<'a>(results: &'a [Measured], measure: &'a str) -> impl Iterator<Item = &'a Measured> {
    results.iter().filter(move |measured| measured.case.measure == measure)
}

/// All that was measured of throughput in one way: armed in random order, with nothing beside.
fn throughput(results: &[Measured]) -> impl Iterator<Item = &Measured> {
    of(results, "throughput").filter(|one| {
        let parameters = &one.case.parameters;
        parameters.get("order").is_some_and(|order| order == "shuffled") && !parameters.contains_key("behind")
    })
}

/// The fastest of the others that lose nothing when a worker dies.
fn fastest_peer(results: &[Measured]) -> Option<(&str, f64)> {
    let peers = throughput(results).filter(|one| !one.is_ours && one.described.survives_a_crash);
    let rates = peers.filter_map(|one| Some((one.system.as_str(), median(Some(one), "per_s")?)));
    rates.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// How many handlers of keylapse started early, over all rounds.
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

//! The Markdown of a run and its calculation, in docs/internals/benchmarks.md.

use crate::Fault;
use crate::scale::{Costs, Goal, Plan, Record, Row, busiest};
use crate::statistics::figure;

/// The lines of the tables: a name, and the figures whose sum is shown.
const MEASURED: [(&str, &[&str]); 20] = [
    ("armed each second", &["arm_per_s"]),
    ("overdue, handled each second", &["handled_per_s"]),
    ("late at the lower rate: p50, ms", &["calm_p50_ms"]),
    ("… p99", &["calm_p99_ms"]),
    ("late at the higher rate: p50, ms", &["timely_p50_ms"]),
    ("… p99", &["timely_p99_ms"]),
    ("started early", &["calm_early", "timely_early"]),
    ("idle: requests a second to the primary that gets the most", &["idle_requests_per_s"]),
    ("… ms of its processor a second", &["idle_server_ms_per_s"]),
    ("µs of the servers for a timer: to arm it", &["arm_server_us"]),
    ("… to fire it on time", &["timely_server_us"]),
    ("… if it is overdue", &["overdue_server_us"]),
    ("µs of the producer for a timer", &["arm_client_us"]),
    ("µs of the listener, on time", &["timely_client_us"]),
    ("… if it is overdue", &["overdue_client_us"]),
    ("requests for a timer, armed and fired", &["arm_requests", "timely_requests"]),
    ("commands, those in scripts included", &["arm_commands", "timely_commands"]),
    ("bytes to the servers", &["arm_bytes_in", "timely_bytes_in"]),
    ("bytes from them", &["arm_bytes_out", "timely_bytes_out"]),
    ("bytes of memory while it is armed", &["bytes_armed"]),
];
/// The name of an example topic.
const NAME: &str = "app.order";
/// How many partitions a topic may have.
const MAX_PARTITIONS: f64 = 1024.0;

/// Returns the Markdown of a run, and of the calculation for a goal.
///
/// # Errors
/// If a figure is missing.
pub fn page(record: &Record, goal: &Goal) -> Result<String, Fault> {
    let [without, with] = [Costs::of(record, false)?, Costs::of(record, true)?];
    let plans = [Plan::of(goal, &without), Plan::of(goal, &with)];
    let parts = [
        format!("### Without marker keys\n\n{}", table(record, false)),
        format!("### With marker keys\n\n{}", table(record, true)),
        format!("### Expiries and forks\n\n{}", expiries_and_forks(&without, &with)),
        source(record),
        format!("### The calculation\n\n{}\n\n{}", wanted(goal), calculated(&plans, &[without, with])),
        format!(
            "### Partitions on {} primaries\n\n{}",
            figure(plans[0].primaries()),
            uneven(&plans[0], goal)
        ),
    ];
    Ok(parts.map(|part| part.trim_end().to_owned()).join("\n\n") + "\n")
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn head(cells: &[&str]) -> String {
    // Words are aligned to the left, figures to the right.
    let is_words = |place: usize, name: &str| place == 0 || name == "how";
    let rule =
        cells.iter().enumerate().map(|(place, name)| if is_words(place, name) { "---" } else { "---:" });
    format!("| {} |\n| {} |\n", cells.join(" | "), rule.collect::<Vec<_>>().join(" | "))
}

fn table(record: &Record, marker_keys: bool) -> String {
    let rows: Vec<&Row> = record.rows(marker_keys).collect();
    let names = rows.iter().map(|row| match row.primaries {
        0 => "a server alone".to_owned(),
        1 => "1 primary".to_owned(),
        many => format!("{many} primaries"),
    });
    let names: Vec<String> = std::iter::once(String::new()).chain(names).collect();
    let lines = MEASURED.iter().map(|(what, figures)| {
        let cells = rows.iter().map(|row| cell(row, figures));
        self::row(&std::iter::once((*what).to_owned()).chain(cells).collect::<Vec<_>>())
    });
    head(&names.iter().map(String::as_str).collect::<Vec<_>>()) + &lines.collect::<String>()
}

/// Formats one figure with its spread, or the sum of several medians.
fn cell(row: &Row, figures: &[&str]) -> String {
    let shown = match figures {
        [one] => row.figures.get(*one).map(ToString::to_string),
        all => all.iter().map(|name| row.median(name)).sum::<Option<f64>>().map(figure),
    };
    shown.unwrap_or_else(|| "–".to_owned())
}

fn expiries_and_forks(without: &Costs, with: &Costs) -> String {
    let further = with.further;
    let lines = [
        ("a marker key expires: µs of each listener that receives the event", further.listener_us),
        ("… µs of the server for each listener", further.server_us),
        ("… bytes to each listener", further.bytes),
        ("a server forks: ms for each GiB, with marker keys", with.fork_ms_per_gib),
        ("… without", without.fork_ms_per_gib),
    ];
    let lines = lines.iter().map(|(what, value)| row(&[(*what).to_owned(), figure(*value)]));
    head(&["", "measured"]) + &lines.collect::<String>()
}

fn source(record: &Record) -> String {
    let Record { command, commit, server, processors, model, busy, size, .. } = record;
    format!(
        "*`{command}`: {server}, {processors} processors ({model}) that servers, producers and listeners share; \
         keylapse at {commit}; {busy}. {size}.*"
    )
}

fn wanted(goal: &Goal) -> String {
    format!(
        "Wanted: *r* = {} timers armed and fired a second, *a* = {} armed at a time. A primary may have *g* = {} GiB of \
         them, and no processor is busy for more than *u* = {} of the time.",
        figure(goal.timers_per_s),
        figure(goal.armed),
        figure(goal.gib_each),
        figure(goal.busy)
    )
}

/// A line: its name, its formula, and its value.
type Line = (&'static str, &'static str, fn(&Plan, &Costs) -> f64);

const GIVEN: [Line; 10] = [
    ("µs of a server for a timer", "*s* = armed + fired on time", |_, costs| costs.server_us),
    ("µs of a producer", "*p*", |_, costs| costs.producer_us),
    ("µs of a listener", "*l*", |_, costs| costs.listener_us),
    ("µs of a listener to receive an expiry", "*h*", |_, costs| costs.further.listener_us),
    ("µs of a server to send it to one listener", "*t*", |_, costs| costs.further.server_us),
    ("bytes to send it to one listener", "*e*", |_, costs| costs.further.bytes),
    ("bytes to and from the servers", "*b*", |_, costs| costs.bytes),
    ("bytes of memory", "*m*", |_, costs| costs.bytes_armed),
    ("idle requests a second", "*i*", |_, costs| costs.idle_requests_per_s),
    ("ms a GiB to fork", "*f*", |_, costs| costs.fork_ms_per_gib),
];
/// Lines that also have a value if no number of listeners is enough.
const WITHOUT_LISTENERS: [Line; 5] = [
    ("**timers a second at most, by listeners**", "10⁶·*u* ÷ *h*", |plan, _| plan.max_per_s),
    ("timers a second of one partition", "10⁶·*u* ÷ *s*", |plan, _| plan.max_of_a_partition),
    ("processors of producers", "*r*·*p* ÷ (10⁶·*u*)", |plan, _| plan.producers),
    ("memory of all timers, GiB", "*a*·*m* ÷ 2³⁰", |plan, _| plan.gib),
    ("primaries, by memory", "… ÷ *g*", |plan, _| plan.by_memory),
];
const WITH_LISTENERS: [Line; 8] = [
    ("**listeners**", "*L* = *r*·(*l* − *h*) ÷ (10⁶·*u* − *r*·*h*)", |plan, _| {
        plan.listeners.unwrap_or(f64::NAN)
    }),
    ("primaries, by processors", "*r*·(*s* + (*L* − 1)·*t*) ÷ (10⁶·*u*)", |plan, _| {
        plan.by_processor
    }),
    ("**primaries**", "*N* = the greater", |plan, _| plan.primaries()),
    ("MB a second, in all", "*r*·(*b* + (*L* − 1)·*e*) ÷ 10⁶", |plan, _| plan.mb_per_s),
    ("… of each primary", "… ÷ *N*", |plan, _| plan.mb_per_s / plan.primaries()),
    ("idle requests a second to each primary", "*L*·*i*", |plan, _| plan.idle_per_s),
    ("pause of a primary that forks, s", "memory ÷ *N*·*f* ÷ 1,000", |plan, _| plan.fork_s),
    ("a listener that does not read is disconnected after s", "32 MiB ÷ (*r* ÷ *N*·*e*)", |plan, _| {
        plan.buffer_s
    }),
];

fn calculated(plans: &[Plan; 2], costs: &[Costs; 2]) -> String {
    let of = |line: &Line, place: usize| line.2(&plans[place], &costs[place]);
    let plain =
        |line: &Line| row(&[line.0.to_owned(), line.1.to_owned(), shown(of(line, 0)), shown(of(line, 1))]);
    let with_listeners = |line: &Line| {
        let cell = |place: usize| {
            if plans[place].listeners.is_some() {
                shown(of(line, place))
            } else {
                "no number is enough".to_owned()
            }
        };
        row(&[line.0.to_owned(), line.1.to_owned(), cell(0), cell(1)])
    };
    let lines = GIVEN.iter().chain(&WITHOUT_LISTENERS).map(plain);
    let lines = lines.chain(WITH_LISTENERS.iter().map(with_listeners));
    head(&["", "how", "without marker keys", "with"]) + &lines.collect::<String>()
}

fn shown(value: f64) -> String {
    if value.is_infinite() { "not limited by this".to_owned() } else { figure(value) }
}

/// Returns the table of partitions on the plan's primaries, if no slots are moved.
fn uneven(plan: &Plan, goal: &Goal) -> String {
    let primaries = plan.primaries();
    let lines = [2.0, 4.0, 8.0, 16.0].map(|each| {
        let partitions = each * primaries;
        let times = busiest(NAME, partitions as u32, primaries as usize);
        let beyond =
            if partitions > MAX_PARTITIONS { " (a topic has 1,024 at most: several topics)" } else { "" };
        row(&[
            figure(each),
            format!("{}{beyond}", figure(partitions)),
            figure(times),
            format!("{} %", figure(100.0 * goal.busy * times)),
        ])
    });
    let names = [
        "partitions for each primary",
        "in all",
        "the busiest primary's load, in even shares",
        "it is busy for",
    ];
    head(&names) + &lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_spread_and_a_sum_has_none_and_what_is_missing_is_a_dash() {
        let spread = crate::Spread::of(&[1.0, 2.0, 3.0]).unwrap();
        let figures = [("a".to_owned(), spread), ("b".to_owned(), spread)].into();
        let row = Row { primaries: 1, marker_keys: true, listeners: 1, figures };
        assert_eq!(cell(&row, &["a"]), "2 [1-3]");
        assert_eq!(cell(&row, &["a", "b"]), "4");
        assert_eq!(cell(&row, &["a", "c"]), "–");
    }
}

//! Charts of the records.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde::Deserialize;

use crate::Fault;

const SIZE: (u32, u32) = (760, 420);
const FONT: (&str, u32) = ("sans-serif", 15);
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(0, 130, 80),
    RGBColor(140, 90, 200),
    RGBColor(200, 130, 0),
    RGBColor(90, 90, 90),
];

/// The colours on a dark page.
const DARK: &str = r##"<style>
@media (prefers-color-scheme: dark) {
[fill="#FFFFFF"] { fill: #161b24; } [stroke="#FFFFFF"] { stroke: #161b24; }
[fill="#000000"] { fill: #dfe6ee; } [stroke="#000000"] { stroke: #dfe6ee; }
[fill="#005AB5"] { fill: #4d9fff; } [stroke="#005AB5"] { stroke: #4d9fff; }
[stroke="#DC3220"] { stroke: #ff7a66; } [stroke="#008250"] { stroke: #3fc28a; } [stroke="#8C5AC8"] { stroke: #b794f0; }
[fill="#5A5A5A"] { fill: #9fb0c0; }
}
</style>
"##;

/// The fields of a record that a chart needs.
#[derive(Clone, Debug, Deserialize)]
struct Record {
    system: String,
    measure: String,
    parameters: BTreeMap<String, String>,
    figure: String,
    median: f64,
}

impl Record {
    fn number(&self, name: &str) -> f64 {
        self.parameters.get(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }
}

/// A line: its name and its points.
type Line = (String, Vec<(f64, f64)>);

/// A chart of lines, both axes logarithmic.
struct Chart {
    file: &'static str,
    title: &'static str,
    across: &'static str,
    up: &'static str,
    legend: SeriesLabelPosition,
    lines: Vec<Line>,
}

/// Draws each chart that has enough records as an SVG file in a folder, and returns the names of the files.
///
/// # Errors
/// If the records cannot be read or the files cannot be written.
pub fn draw(records: &[impl AsRef<Path>], folder: &Path) -> Result<Vec<String>, Fault> {
    let mut all: Vec<Record> = Vec::new();
    for path in records {
        // Other lines describe the machine and failed runs.
        all.extend(std::fs::read_to_string(path)?.lines().filter_map(|line| serde_json::from_str(line).ok()));
    }
    std::fs::create_dir_all(folder)?;
    let mut files = Vec::new();
    for chart in [lateness(&all), growth(&all), listeners(&all)] {
        if chart.lines.iter().any(|(_, points)| points.len() > 1) {
            line_chart(&chart, &folder.join(chart.file))?;
            files.push(chart.file.to_owned());
        }
    }
    let rates = throughput(&all);
    if rates.len() > 1 {
        bars("Overdue jobs handled each second", &rates, &folder.join("throughput.svg"))?;
        files.push("throughput.svg".to_owned());
    }
    files.iter().try_for_each(|file| add_dark_colours(&folder.join(file)))?;
    Ok(files)
}

/// Adds the colours of a dark page to a chart.
fn add_dark_colours(path: &Path) -> Result<(), Fault> {
    let chart = std::fs::read_to_string(path)?;
    let (head, rest) = chart.split_once(">\n").ok_or("no SVG element")?;
    Ok(std::fs::write(path, format!("{head}>\n{DARK}{rest}"))?)
}

/// Lateness over the rate: with nothing else, with foreign keys, and behind far-future timers.
fn lateness(all: &[Record]) -> Chart {
    let mut lines = Vec::new();
    let own = all.iter().filter(|one| one.measure == "lateness" && one.system == "keylapse");
    for one in own.filter(|one| one.figure == "p99_ms") {
        let name = match (one.number("foreign"), one.number("behind")) {
            (0.0, 0.0) => "nothing else".to_owned(),
            (foreign, 0.0) => format!("with {} foreign keys", crate::statistics::figure(foreign)),
            (_, behind) => format!("behind {} timers", crate::statistics::figure(behind)),
        };
        add(&mut lines, name, one, "rate");
    }
    Chart {
        file: "lateness.svg",
        title: "Lateness of keylapse, 99th percentile",
        across: "timers a second",
        up: "ms",
        legend: SeriesLabelPosition::UpperLeft,
        lines,
    }
}

/// Throughput over the number of far-future timers.
fn growth(all: &[Record]) -> Chart {
    let title = "Handled each second, before so many far-future timers";
    let wanted = |one: &Record| one.number("behind") > 0.0;
    Chart { across: "far-future timers", ..rates("growth.svg", title, "behind", all, wanted) }
}

/// The rate of each system over a parameter.
fn rates(
    file: &'static str,
    title: &'static str,
    across: &'static str,
    all: &[Record],
    wanted: impl Fn(&Record) -> bool,
) -> Chart {
    let mut lines = Vec::new();
    for one in all.iter().filter(|one| one.figure == "per_s" && wanted(one)) {
        add(&mut lines, one.system.clone(), one, across);
    }
    let legend = SeriesLabelPosition::LowerRight;
    Chart { file, title, across, up: "handled a second", legend, lines }
}

/// The total rate over the number of listeners.
fn listeners(all: &[Record]) -> Chart {
    let title = "Handled each second by several listeners, each a process";
    rates("listeners.svg", title, "listeners", all, |one| one.measure == "listeners")
}

fn add(lines: &mut Vec<Line>, name: String, one: &Record, across: &str) {
    let point = (one.number(across), one.median);
    match lines.iter_mut().find(|(known, _)| *known == name) {
        Some((_, points)) => points.push(point),
        None => lines.push((name, vec![point])),
    }
}

/// The rate of each system, the fastest first.
fn throughput(all: &[Record]) -> Vec<(String, f64)> {
    let mut rates: Vec<(String, f64)> = Vec::new();
    let plain = all.iter().filter(|one| one.measure == "throughput" && one.number("behind") == 0.0);
    for one in plain.filter(|one| one.figure == "per_s") {
        if !rates.iter().any(|(known, _)| *known == one.system) {
            rates.push((one.system.clone(), one.median));
        }
    }
    rates.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    rates
}

fn line_chart(chart: &Chart, path: &Path) -> Result<(), Fault> {
    let points = || chart.lines.iter().flat_map(|(_, points)| points);
    let (across, up) = (range(points().map(|(x, _)| *x)), range(points().map(|(_, y)| *y)));
    // The axis begins at zero unless it spans a decade.
    if up.1 / up.0 < 10.0 {
        return lines_on(chart, path, across, 0.0..up.1 * 1.1);
    }
    lines_on(chart, path, across, (up.0..up.1).log_scale())
}

fn lines_on<Y>(chart: &Chart, path: &Path, across: (f64, f64), up: Y) -> Result<(), Fault>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(owned)?;
    let mut on = ChartBuilder::on(&area)
        .caption(chart.title, FONT)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((across.0..across.1).log_scale(), up)
        .map_err(owned)?;
    on.configure_mesh()
        .x_desc(chart.across)
        .y_desc(chart.up)
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| short(*y))
        .light_line_style(WHITE)
        .draw()
        .map_err(owned)?;
    for ((name, points), colour) in chart.lines.iter().zip(COLOURS.iter().cycle()) {
        let mut points = points.clone();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let line = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
        let colour = *colour;
        on.draw_series(line)
            .map_err(owned)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    on.configure_series_labels()
        .position(chart.legend.clone())
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(owned)?;
    area.present().map_err(owned)
}

fn bars(title: &str, rates: &[(String, f64)], path: &Path) -> Result<(), Fault> {
    const LINE: i32 = 30;
    let height = 50 + LINE * i32::try_from(rates.len())?;
    let area = SVGBackend::new(path, (SIZE.0, height.cast_unsigned())).into_drawing_area();
    area.fill(&WHITE).map_err(owned)?;
    area.draw(&Text::new(title, (12, 12), FONT)).map_err(owned)?;
    let greatest = rates.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
    for (place, (name, rate)) in (0..).zip(rates) {
        let (top, left) = (40 + LINE * place, 190);
        let right = left + (rate / greatest * 460.0) as i32;
        let colour = if name.starts_with("keylapse") { COLOURS[0] } else { COLOURS[5] };
        area.draw(&Text::new(name.as_str(), (12, top + 4), FONT)).map_err(owned)?;
        area.draw(&Rectangle::new([(left, top), (right, top + 20)], colour.filled())).map_err(owned)?;
        let shown = crate::statistics::figure(*rate);
        area.draw(&Text::new(shown, (right + 6, top + 4), FONT)).map_err(owned)?;
    }
    area.present().map_err(owned)
}

/// Returns the least and the greatest value; half and twice the value if they are equal.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, greatest) = values
        .fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| (least.min(value), greatest.max(value)));
    if least < greatest {
        (least.max(1e-3), greatest)
    } else {
        (greatest.max(1e-3) / 2.0, greatest.max(1e-3) * 2.0)
    }
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}

/// Converts an error of plotters, which borrows from the chart.
fn owned(error: impl std::fmt::Display) -> Fault {
    error.to_string().into()
}

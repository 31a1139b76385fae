//! Gauges and counters in the text format of Prometheus.

use std::fmt::{Display, Write};

/// A page of them.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// Begins a gauge: what is added next is of it.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> Gauge<'_> {
        self.begin(name, "gauge", help)
    }

    /// The same of a number that only grows.
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> Gauge<'_> {
        self.begin(name, "counter", help)
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> Gauge<'_> {
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Gauge { page: self, name }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// One of them, whose samples are added.
pub(super) struct Gauge<'a> {
    page: &'a mut Page,
    name: &'static str,
}

impl Gauge<'_> {
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut self.page.0;
        text.push_str(self.name);
        for (place, (label, of)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            _ = write!(text, "{before}{label}=\"{}\"", escaped(of));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        _ = writeln!(text, "{end} {value}");
    }
}

/// A label's value, as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_label_ends_its_line_or_begins_another() {
        let mut page = Page::default();
        let mut gauge = page.gauge("keylapse_listeners", "Who listens.");
        gauge.add(&[], 3);
        gauge.add(&[("topic", "a\\\"b\nkeylapse_up 1"), ("state", "dead")], 0.5);
        let text = "# HELP keylapse_listeners Who listens.\n# TYPE keylapse_listeners gauge\nkeylapse_listeners 3\n\
                    keylapse_listeners{topic=\"a\\\\\\\"b\\nkeylapse_up 1\",state=\"dead\"} 0.5\n";
        assert_eq!(page.into_text(), text);
    }
}

//! Values with names and labels.

use std::fmt;

/// One value of a listener, as exporters want it: see [`Stats::samples`](crate::Stats::samples).
///
/// Shown as Prometheus reads it, `claims{topic="orders"} 3`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What it is.
    pub name: &'static str,
    /// Of what: names and values.
    pub labels: Vec<(&'static str, String)>,
    /// How much.
    pub value: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (place, (name, value)) in self.labels.iter().enumerate() {
            write!(f, "{}{name}={value:?}", if place == 0 { '{' } else { ',' })?;
        }
        write!(f, "{} {}", if self.labels.is_empty() { "" } else { "}" }, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_shown_as_prometheus_reads_them() {
        let sample = |labels| Sample { name: "claims", labels, value: 3.0 };
        assert_eq!(sample(vec![]).to_string(), "claims 3");
        let labels = vec![("topic", "a\"b".to_owned()), ("le", "0.5".to_owned())];
        assert_eq!(sample(labels).to_string(), r#"claims{topic="a\"b",le="0.5"} 3"#);
    }
}

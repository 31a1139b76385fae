//! Statistics of the rounds' figures.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The least, the middle and the greatest of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many there were.
    pub rounds: usize,
    /// The least.
    pub min: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of figures; none if there are no figures.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (upper, lower) = (sorted[sorted.len() / 2], sorted[(sorted.len() - 1) / 2]);
        Some(Self { rounds: sorted.len(), min, median: f64::midpoint(lower, upper), max })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            return write!(f, "{}", figure(self.median));
        }
        write!(f, "{} [{}-{}]", figure(self.median), figure(self.min), figure(self.max))
    }
}

/// Formats a figure: a whole number from 100 on, else three digits at most. Examples: 61,234, 12.3, 0.45.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => grouped(value.round() as i64),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = if number < 0 { "-".to_owned() } else { String::new() };
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even_counts() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(&[5.0, 7.0]), Some(Spread { rounds: 2, min: 5.0, median: 6.0, max: 7.0 }));
    }

    #[test]
    fn figures_have_the_digits_that_they_deserve() {
        for (value, shown) in [
            (1_234_567.8, "1,234,568"),
            (-1000.0, "-1,000"),
            (123.4, "123"),
            (12.34, "12.3"),
            (0.456, "0.46"),
            (0.0, "0"),
            (7.0, "7"),
        ] {
            assert_eq!(figure(value), shown);
        }
        assert_eq!(Spread::of(&[1.0, 2.0, 3.0]).unwrap().to_string(), "2 [1-3]");
    }
}

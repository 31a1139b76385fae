//! Numbers as people write them, and how many there are of what.

/// A number with commas: `12,345`.
pub fn show_count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many there are of what has this name: `1 timer`, `12,345 timers`. For names whose plural ends in a mere `s`.
pub fn counted(number: u64, name: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {name}{plural}", show_count(number))
}

/// Returns whether it is 0: what serde leaves out.
pub fn is_zero<N: Default + PartialEq>(count: &N) -> bool {
    *count == N::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_commas() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(show_count(number), text);
        }
    }

    #[test]
    fn one_is_no_plural() {
        for (number, text) in [(0, "0 keys"), (1, "1 key"), (2, "2 keys"), (1001, "1,001 keys")] {
            assert_eq!(counted(number, "key"), text);
        }
    }
}

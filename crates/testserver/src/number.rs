//! Numbers in the formats of Redis.

/// Parses an integer in the only form that Redis accepts: without plus sign, leading zeros and spaces.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [] => false,
        [b'0'] => digits.len() == text.len(),
        [first, ..] => *first != b'0' && digits.iter().all(u8::is_ascii_digit),
    };
    canonical.then_some(())?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a float as C's `strtod` does. The whole text must be a number, not NaN, and within the range.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(hex) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let value = u64::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+'))? as f64;
        return Some(if text.starts_with('-') { -value } else { value });
    }
    let value: f64 = text.parse().ok()?;
    let named = unsigned.starts_with(['i', 'I']);
    // A text with other digits than zero is no zero, but was rounded to it.
    let mantissa = unsigned.split(['e', 'E']).next().unwrap_or_default();
    let underflown = value == 0.0 && mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let overflown = value.is_infinite() && !named;
    (!value.is_nan() && !underflown && !overflown).then_some(value)
}

/// Truncates a float as the processor does. A number out of range becomes `i64::MIN`.
pub(crate) fn truncated(number: f64) -> i64 {
    let limit = -(i64::MIN as f64);
    if (-limit..limit).contains(&number) { number as i64 } else { i64::MIN }
}

/// Formats a float as C's `%.17g`, which loses no precision.
pub(crate) fn print(value: f64) -> String {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_nan() {
        return format!("{sign}nan");
    }
    if value.is_infinite() {
        return format!("{sign}inf");
    }
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{sign}{}", value.abs() as u64);
    }
    seventeen_digits(sign, value.abs())
}

fn seventeen_digits(sign: &str, value: f64) -> String {
    let scientific = format!("{value:.16e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..17).contains(&exponent) {
        let fixed = format!("{value:.*}", (16 - exponent).max(0) as usize);
        return format!("{sign}{}", trimmed(&fixed));
    }
    let direction = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{}e{direction}{:02}", trimmed(mantissa), exponent.abs())
}

fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_form() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("", None),
            ("-", None),
            ("1x", None),
        ] {
            assert_eq!(integer(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn floats_are_read_as_c_reads_them() {
        for (text, value) in [
            ("1", Some(1.0)),
            ("+.5", Some(0.5)),
            ("5.", Some(5.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("Infinity", Some(f64::INFINITY)),
            ("0x10", Some(16.0)),
            ("0e5", Some(0.0)),
            ("nan", None),
            ("1e400", None),
            ("1e-400", None),
            (" 1", None),
            ("", None),
            ("1,5", None),
        ] {
            assert_eq!(float(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn floats_are_printed_with_seventeen_digits() {
        for (value, text) in [
            (0.1, "0.10000000000000001"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e300, "1.0000000000000001e+300"),
            (1_700_000_000_000.001, "1700000000000.001"),
            (-0.0, "-0"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-inf"),
            (9_007_199_254_740_992.0, "9007199254740992"),
        ] {
            assert_eq!(print(value), text);
        }
    }
}

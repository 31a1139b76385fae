//! Bounds that several rooms keep to.

/// The longest key that can be armed, in bytes.
pub const MAX_KEY: usize = 4096;
/// The largest payload limit that a topic can set, in bytes.
pub const MAX_PAYLOAD: usize = 8 << 20;
/// The most arguments of a request, the command and its keys among them: ElastiCache Serverless takes no more.
pub const MAX_ARGUMENTS: usize = 3999;

/// How many go together in a call of so many bytes, by the largest of them: at least one, and at most `most`.
pub fn fit(bytes: usize, most: usize, largest: Option<usize>) -> usize {
    bytes.checked_div(largest.unwrap_or_default()).unwrap_or(most).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_as_many_as_fit_and_at_least_one() {
        for (largest, fitting) in
            [(None, 10), (Some(0), 10), (Some(1), 10), (Some(30), 3), (Some(100), 1), (Some(101), 1)]
        {
            assert_eq!(fit(100, 10, largest), fitting, "{largest:?}");
        }
    }
}

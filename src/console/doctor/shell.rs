//! Lines that can be pasted into a shell.

/// A name as a shell takes it.
pub(super) fn quoted(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@:".contains(&byte);
    if !name.is_empty() && name.bytes().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_for_a_shell() {
        for (name, shown) in [("keylapse", "keylapse"), ("a b", "'a b'"), ("a'b", r"'a'\''b'"), ("", "''")] {
            assert_eq!(quoted(name), shown);
        }
    }
}

//! In which of a cluster's 16,384 slots a key lies.
//!
//! CRC16 of the key or of its hash tag, as the
//! [cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/) has it.

/// How many there are.
pub const SLOTS: u16 = 16_384;

/// The slot of a key. What stands between its first `{` and the next `}` decides alone, unless that is nothing.
#[allow(unreachable_pub, reason = "the benchmark of several servers names it, too")]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// The part of a key that decides where it lies, where that is not the whole.
pub fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let from = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[from..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &key[from..from + length])
}

/// CRC-16/XMODEM: polynomial 0x1021, no reflection, from 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value is that of the specification, the slots are what `CLUSTER KEYSLOT` answers.
    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [("foo", 12_182), ("bar", 5061), ("", 0), ("{user1000}.following", 3443)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn the_first_tag_decides_unless_it_is_empty() {
        for (key, like) in [
            ("keylapse:{orders/0}:due", "orders/0"),
            ("a{b}{c}", "b"),
            ("a{{b}}c", "{b"),
            ("a{}{b}", "a{}{b}"),
            ("a{b", "a{b"),
            ("}a{b}", "b"),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot_of(like.as_bytes()), "{key}");
        }
    }
}

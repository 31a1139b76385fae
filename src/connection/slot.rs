//! In which slot of a cluster a key lies.

/// CRC16 (XMODEM) of the key, or of its hash tag: what stands between the first `{` and the next `}`, if anything does.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(hashed(key)) % 16_384
}

fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // The check value of CRC16/XMODEM, and what `CLUSTER KEYSLOT` answers.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in
            [("", 0), ("foo", 12_182), ("{foo}bar", 12_182), ("a{foo}{bar}", 12_182), ("somekey", 11_058)]
        {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        // An empty tag is none, nor is one that does not end.
        for key in ["{}foo", "foo{", "foo{bar", "{}{foo}"] {
            assert_eq!(slot_of(key.as_bytes()), crc16(key.as_bytes()) % 16_384, "{key}");
        }
    }
}

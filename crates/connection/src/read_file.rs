//! Small files that say how to log in: passwords, certificates, keys.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than any of them has. A path that leads elsewhere must not fill the memory.
const LARGEST: u64 = 4 << 20;

/// All of a file.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is over 4 MiB"));
    }
    Ok(bytes)
}

//! Lua's library `struct`, for unsigned integers in big-endian order.

use mlua::{Lua, Table, Value};

use super::libraries::{number, put, text};

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    put(lua, &library, "pack", pack)?;
    put(lua, &library, "unpack", unpack)?;
    Ok(library)
}

/// Returns the number of bytes of each item of a format.
fn sizes(format: &[u8], function: &str) -> Result<Vec<usize>, String> {
    let invalid = |option: u8| {
        Err(format!("bad argument #1 to '{function}' (invalid format option '{}')", char::from(option)))
    };
    let mut options = format.iter().copied().peekable();
    if let Some(first) = options.next().filter(|first| *first != b'>') {
        return invalid(first);
    }
    let mut sizes = Vec::new();
    while let Some(option) = options.next() {
        sizes.push(match option {
            b'B' => 1,
            b'I' => options.next_if(|digit| (b'1'..=b'8').contains(digit)).map_or(4, |digit| digit - b'0'),
            other => return invalid(other),
        });
    }
    Ok(sizes.into_iter().map(usize::from).collect())
}

fn pack(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    let mut out = Vec::new();
    for (at, size) in sizes(&text(lua, args, 0, "pack")?, "pack")?.into_iter().enumerate() {
        let value = integer(number(lua, args, at + 1, "pack")?);
        out.extend_from_slice(&value.to_be_bytes()[8 - size..]);
    }
    Ok(vec![Value::String(lua.create_string(out).map_err(|error| error.to_string())?)])
}

/// Converts a float to an integer as the processor does.
fn integer(number: f64) -> u64 {
    match number {
        _ if number < 0.0 || number.is_nan() => crate::number::truncated(number) as u64,
        18_446_744_073_709_551_616.0.. => 0,
        _ => number as u64,
    }
}

fn unpack(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    let (format, data) = (text(lua, args, 0, "unpack")?, text(lua, args, 1, "unpack")?);
    let from = if args.len() > 2 { number(lua, args, 2, "unpack")? } else { 1.0 };
    if from == 0.0 {
        return Err("bad argument #3 to 'unpack' (offset must be 1 or greater)".to_owned());
    }
    // In the original the offset has no sign, so a negative one is far behind the end.
    let (mut values, mut at) = (Vec::new(), if from < 1.0 { usize::MAX / 2 } else { from as usize - 1 });
    for size in sizes(&format, "unpack")? {
        let bytes = data.get(at..at + size).ok_or("bad argument #2 to 'unpack' (data string too short)")?;
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        values.push(Value::Number(value as f64));
        at += size;
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values)
}

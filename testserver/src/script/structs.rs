//! Lua's `struct`: numbers and strings in a fixed form.

use mlua::{Lua, Table, Value};

use super::libraries::{number, put, text};

/// An integer may have so many bytes.
const WIDEST: usize = 32;

#[derive(Clone, Copy)]
enum Item {
    Integer {
        size: usize,
        signed: bool,
    },
    Float,
    Double,
    /// So many bytes; without a number one, and 0 means those that the number before says.
    Chars(usize),
    /// Up to a zero byte.
    Text,
    Padding,
}

/// Reads a format, one item after the other.
struct Format<'a> {
    rest: &'a [u8],
    big: bool,
    function: &'static str,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8], function: &'static str) -> Self {
        Self { rest: text, big: false, function }
    }

    fn next(&mut self) -> Result<Option<Item>, String> {
        loop {
            let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
            self.rest = rest;
            let integer = |size, signed| Ok(Some(Item::Integer { size, signed }));
            match option {
                b'>' => self.big = true,
                b'<' | b'=' => self.big = false,
                b'!' => _ = self.count(),
                b' ' => {}
                b'B' | b'b' => return integer(1, option == b'b'),
                b'H' | b'h' => return integer(2, option == b'h'),
                b'L' | b'l' | b'T' => return integer(8, option == b'l'),
                b'I' | b'i' => return integer(self.width()?, option == b'i'),
                b'f' => return Ok(Some(Item::Float)),
                b'd' | b'n' => return Ok(Some(Item::Double)),
                b'c' => return Ok(Some(Item::Chars(self.count().unwrap_or(1)))),
                b's' => return Ok(Some(Item::Text)),
                b'x' => return Ok(Some(Item::Padding)),
                other => return Err(self.invalid(char::from(other))),
            }
        }
    }

    fn invalid(&self, option: char) -> String {
        format!("bad argument #1 to '{}' (invalid format option '{option}')", self.function)
    }

    fn count(&mut self) -> Option<usize> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    fn width(&mut self) -> Result<usize, String> {
        let size = self.count().unwrap_or(4);
        if size > WIDEST {
            return Err(format!("integral size {size} is larger than limit of {WIDEST}"));
        }
        Ok(size)
    }
}

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    put(lua, &library, "pack", pack)?;
    put(lua, &library, "unpack", unpack)?;
    put(lua, &library, "size", size)?;
    Ok(library)
}

fn pack(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    let text_of = text(lua, args, 0, "pack")?;
    let mut format = Format::new(&text_of, "pack");
    let (mut out, mut at) = (Vec::new(), 1);
    while let Some(item) = format.next()? {
        match item {
            Item::Padding => {
                out.push(0);
                continue;
            }
            Item::Integer { size, .. } => {
                integer(&mut out, number(lua, args, at, "pack")?, size, format.big);
            }
            Item::Float => {
                let bits = number(lua, args, at, "pack")? as f32;
                out.extend(if format.big { bits.to_be_bytes() } else { bits.to_le_bytes() });
            }
            Item::Double => {
                let bits = number(lua, args, at, "pack")?;
                out.extend(if format.big { bits.to_be_bytes() } else { bits.to_le_bytes() });
            }
            Item::Chars(count) => chars(&mut out, &text(lua, args, at, "pack")?, count, at)?,
            Item::Text => {
                out.extend(text(lua, args, at, "pack")?);
                out.push(0);
            }
        }
        at += 1;
    }
    Ok(vec![Value::String(lua.create_string(out).map_err(|error| error.to_string())?)])
}

fn chars(out: &mut Vec<u8>, bytes: &[u8], count: usize, at: usize) -> Result<(), String> {
    let count = if count == 0 { bytes.len() } else { count };
    let short = || format!("bad argument #{} to 'pack' (string too short)", at + 2);
    out.extend_from_slice(bytes.get(..count).ok_or_else(short)?);
    Ok(())
}

/// The lower bytes of the number, as the processor makes a whole one of it.
fn integer(out: &mut Vec<u8>, number: f64, size: usize, big: bool) {
    let signed = crate::number::truncated(number);
    let value = match number {
        _ if number < 0.0 || number.is_nan() => signed as u64,
        18_446_744_073_709_551_616.0.. => 0,
        _ => number as u64,
    };
    // Beyond eight bytes there is nothing left of it.
    let byte = |place: usize| if place < 8 { (value >> (8 * place)) as u8 } else { 0 };
    if big { out.extend((0..size).rev().map(byte)) } else { out.extend((0..size).map(byte)) }
}

fn unpack(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    let (text_of, data) = (text(lua, args, 0, "unpack")?, text(lua, args, 1, "unpack")?);
    let from = if args.len() > 2 { number(lua, args, 2, "unpack")? } else { 1.0 };
    if from == 0.0 {
        return Err("bad argument #3 to 'unpack' (offset must be 1 or greater)".to_owned());
    }
    let mut format = Format::new(&text_of, "unpack");
    // Below zero it is far behind the end, as the offset has no sign.
    let (mut values, mut at) = (Vec::new(), if from < 1.0 { usize::MAX / 2 } else { from as usize - 1 });
    while let Some(item) = format.next()? {
        let rest = data.get(at..).unwrap_or_default();
        let take = |count: usize| {
            rest.get(..count).ok_or_else(|| "bad argument #2 to 'unpack' (data string too short)".to_owned())
        };
        let (value, width) = match item {
            Item::Padding => (None, take(1)?.len()),
            Item::Integer { size, signed } => (Some(whole(take(size)?, signed, format.big)), size),
            Item::Float => (Some(Value::Number(f64::from(float(take(4)?, format.big)))), 4),
            Item::Double => (Some(Value::Number(double(take(8)?, format.big))), 8),
            Item::Chars(count) => {
                let count = if count == 0 { counted(&mut values)? } else { count };
                (Some(string(lua, take(count)?)?), count)
            }
            Item::Text => {
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or("unfinished string in data")?;
                (Some(string(lua, &rest[..end])?), end + 1)
            }
        };
        values.extend(value);
        at += width;
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values)
}

/// The number before says how many.
fn counted(values: &mut Vec<Value>) -> Result<usize, String> {
    let number = values.pop().and_then(|value| value.as_f64());
    let count = number.filter(|number| *number >= 0.0).map(|number| number as usize);
    count.ok_or_else(|| "format 'c0' needs a previous size".to_owned())
}

fn string(lua: &Lua, bytes: &[u8]) -> Result<Value, String> {
    lua.create_string(bytes).map(Value::String).map_err(|error| error.to_string())
}

/// Of more than eight bytes, the lower eight.
fn whole(bytes: &[u8], signed: bool, big: bool) -> Value {
    let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if big { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) };
    let unused = 64 - 8 * bytes.len().min(8) as u32;
    if signed && unused < 64 {
        return Value::Number(((value << unused) as i64 >> unused) as f64);
    }
    Value::Number(value as f64)
}

fn float(bytes: &[u8], big: bool) -> f32 {
    let bytes = <[u8; 4]>::try_from(bytes).unwrap_or_default();
    if big { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) }
}

fn double(bytes: &[u8], big: bool) -> f64 {
    let bytes = <[u8; 8]>::try_from(bytes).unwrap_or_default();
    if big { f64::from_be_bytes(bytes) } else { f64::from_le_bytes(bytes) }
}

fn size(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    let text_of = text(lua, args, 0, "size")?;
    let mut format = Format::new(&text_of, "size");
    let mut total = 0;
    while let Some(item) = format.next()? {
        total += match item {
            Item::Integer { size, .. } => size,
            Item::Float => 4,
            Item::Double => 8,
            Item::Chars(0) => return Err("variable-length format".to_owned()),
            Item::Chars(count) => count,
            Item::Text => {
                return Err("bad argument #1 to 'size' (option 's' has no fixed size)".to_owned());
            }
            Item::Padding => 1,
        };
    }
    Ok(vec![Value::Number(total as f64)])
}

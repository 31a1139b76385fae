//! Lua's `cmsgpack`: values as MessagePack.

use mlua::{Lua, Table, Value};

use super::libraries::{put, text};

/// Tables within tables deeper than this are nil.
const DEEPEST: usize = 16;

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    put(lua, &library, "pack", pack)?;
    put(lua, &library, "unpack", unpack)?;
    Ok(library)
}

fn pack(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    if args.is_empty() {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".to_owned());
    }
    let mut out = Vec::new();
    args.iter().try_for_each(|value| write(&mut out, value, 0)).map_err(|error| error.to_string())?;
    Ok(vec![Value::String(lua.create_string(out).map_err(|error| error.to_string())?)])
}

fn write(out: &mut Vec<u8>, value: &Value, depth: usize) -> mlua::Result<()> {
    match value {
        Value::Boolean(flag) => out.push(if *flag { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => integer(out, *number),
        Value::Number(number) => float(out, *number),
        Value::String(text) => string(out, &text.as_bytes()),
        Value::Table(table) if depth < DEEPEST => self::table(out, table, depth + 1)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn integer(out: &mut Vec<u8>, number: i64) {
    match number {
        0..128 => out.push(number as u8),
        128..256 => out.extend([0xcc, number as u8]),
        256..65_536 => tagged(out, 0xcd, &(number as u16).to_be_bytes()),
        65_536..4_294_967_296 => tagged(out, 0xce, &(number as u32).to_be_bytes()),
        4_294_967_296.. => tagged(out, 0xcf, &number.to_be_bytes()),
        -32..0 => out.push(number as u8),
        -128..-32 => out.extend([0xd0, number as u8]),
        -32_768..-128 => tagged(out, 0xd1, &(number as i16).to_be_bytes()),
        -2_147_483_648..-32_768 => tagged(out, 0xd2, &(number as i32).to_be_bytes()),
        _ => tagged(out, 0xd3, &number.to_be_bytes()),
    }
}

fn float(out: &mut Vec<u8>, number: f64) {
    if number == -0.0 {
        return integer(out, 0);
    }
    let single = number as f32;
    if f64::from(single) == number {
        tagged(out, 0xca, &single.to_be_bytes());
    } else {
        tagged(out, 0xcb, &number.to_be_bytes());
    }
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        length @ 0..32 => out.push(0xa0 | length as u8),
        length @ 32..256 => out.extend([0xd9, length as u8]),
        length @ 256..65_536 => tagged(out, 0xda, &(length as u16).to_be_bytes()),
        length => tagged(out, 0xdb, &(length as u32).to_be_bytes()),
    }
    out.extend_from_slice(bytes);
}

fn tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

/// A sequence where the keys are 1, 2, 3, …; pairs otherwise.
fn table(out: &mut Vec<u8>, table: &Table, depth: usize) -> mlua::Result<()> {
    let length = table.raw_len();
    let mut pairs = 0;
    let mut sequence = true;
    table.for_each(|key: Value, _: Value| {
        pairs += 1;
        sequence &= key.as_usize().is_some_and(|at| (1..=length).contains(&at));
        Ok(())
    })?;
    if sequence && pairs == length {
        head(out, length, [0x90, 0xdc, 0xdd]);
        return (1..=length).try_for_each(|at| write(out, &table.raw_get(at)?, depth));
    }
    head(out, pairs, [0x80, 0xde, 0xdf]);
    table.for_each(|key: Value, value: Value| {
        write(out, &key, depth)?;
        write(out, &value, depth)
    })
}

fn head(out: &mut Vec<u8>, length: usize, [short, medium, long]: [u8; 3]) {
    match length {
        0..16 => out.push(short | length as u8),
        16..65_536 => tagged(out, medium, &(length as u16).to_be_bytes()),
        _ => tagged(out, long, &(length as u32).to_be_bytes()),
    }
}

/// Everything that the bytes hold, one value after the other.
fn unpack(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    let data = text(lua, args, 0, "unpack")?;
    let (mut rest, mut values) = (&data[..], Vec::new());
    while !rest.is_empty() {
        values.push(read(lua, &mut rest, 0)?);
    }
    Ok(values)
}

fn read(lua: &Lua, rest: &mut &[u8], depth: usize) -> Result<Value, String> {
    let tag = take(rest, 1)?[0];
    Ok(match tag {
        0..0x80 => Value::Integer(i64::from(tag)),
        0x80..0x90 => map(lua, rest, usize::from(tag & 15), depth)?,
        0x90..0xa0 => array(lua, rest, usize::from(tag & 15), depth)?,
        0xa0..0xc0 => bytes(lua, rest, usize::from(tag & 31))?,
        0xc0 => Value::Nil,
        0xc2 => Value::Boolean(false),
        0xc3 => Value::Boolean(true),
        0xca => Value::Number(f64::from(f32::from_bits(unsigned(rest, 4)? as u32))),
        0xcb => Value::Number(f64::from_bits(unsigned(rest, 8)?)),
        0xcc..=0xcf => Value::Number(unsigned(rest, 1 << (tag - 0xcc))? as f64),
        0xd0..=0xd3 => {
            let width = 1 << (tag - 0xd0);
            let unused = 64 - 8 * width as u32;
            Value::Number(((unsigned(rest, width)? << unused) as i64 >> unused) as f64)
        }
        0xc4..=0xc6 => {
            counted(lua, rest, 1 << (tag - 0xc4), depth, |lua, rest, count, _| bytes(lua, rest, count))?
        }
        0xd9..=0xdb => {
            counted(lua, rest, 1 << (tag - 0xd9), depth, |lua, rest, count, _| bytes(lua, rest, count))?
        }
        0xdc | 0xdd => counted(lua, rest, 2 << (tag - 0xdc), depth, array)?,
        0xde | 0xdf => counted(lua, rest, 2 << (tag - 0xde), depth, map)?,
        0xe0.. => Value::Integer(i64::from(tag as i8)),
        _ => return Err("Bad data format in input.".to_owned()),
    })
}

type Read = fn(&Lua, &mut &[u8], usize, usize) -> Result<Value, String>;

fn counted(lua: &Lua, rest: &mut &[u8], width: usize, depth: usize, of: Read) -> Result<Value, String> {
    let count = usize::try_from(unsigned(rest, width)?).unwrap_or(usize::MAX);
    of(lua, rest, count, depth)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let taken = rest.get(..count).ok_or("Missing bytes in input.")?;
    *rest = &rest[count..];
    Ok(taken)
}

fn unsigned(rest: &mut &[u8], width: usize) -> Result<u64, String> {
    Ok(take(rest, width)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn bytes(lua: &Lua, rest: &mut &[u8], count: usize) -> Result<Value, String> {
    lua.create_string(take(rest, count)?).map(Value::String).map_err(|error| error.to_string())
}

fn array(lua: &Lua, rest: &mut &[u8], count: usize, depth: usize) -> Result<Value, String> {
    let table = nested(lua, depth)?;
    for at in 1..=count {
        let value = read(lua, rest, depth + 1)?;
        table.raw_seti(at, value).map_err(|error| error.to_string())?;
    }
    Ok(Value::Table(table))
}

fn map(lua: &Lua, rest: &mut &[u8], count: usize, depth: usize) -> Result<Value, String> {
    let table = nested(lua, depth)?;
    for _ in 0..count {
        let (key, value) = (read(lua, rest, depth + 1)?, read(lua, rest, depth + 1)?);
        table.raw_set(key, value).map_err(|error| error.to_string())?;
    }
    Ok(Value::Table(table))
}

/// Hostile bytes may nest as deep as they are long.
fn nested(lua: &Lua, depth: usize) -> Result<Table, String> {
    if depth > 1000 {
        return Err("Bad data format in input.".to_owned());
    }
    lua.create_table().map_err(|error| error.to_string())
}

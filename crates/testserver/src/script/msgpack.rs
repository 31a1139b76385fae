//! Lua's library `cmsgpack`, for strings and sequences of strings.

use mlua::{Lua, Table, Value};

use super::libraries::{put, text};

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
    for value in args {
        let Value::Table(table) = value else {
            string(&mut out, value)?;
            continue;
        };
        let length = table.raw_len();
        if table.pairs::<Value, Value>().count() != length {
            return Err("this cmsgpack packs only tables that are sequences".to_owned());
        }
        match length {
            0..16 => out.push(0x90 | length as u8),
            _ => sized(&mut out, length, &[(0xdc, 2), (0xdd, 4)]),
        }
        for at in 1..=length {
            string(&mut out, &table.raw_get(at).map_err(|error| error.to_string())?)?;
        }
    }
    Ok(vec![created(lua, &out)?])
}

fn string(out: &mut Vec<u8>, value: &Value) -> Result<(), String> {
    let Value::String(text) = value else {
        return Err(format!(
            "this cmsgpack packs only strings and sequences of strings, not {}",
            value.type_name()
        ));
    };
    match text.as_bytes().len() {
        length @ 0..32 => out.push(0xa0 | length as u8),
        length => sized(out, length, &[(0xd9, 1), (0xda, 2), (0xdb, 4)]),
    }
    out.extend_from_slice(&text.as_bytes());
    Ok(())
}

/// Writes the first tag whose length field is wide enough, and the length.
fn sized(out: &mut Vec<u8>, length: usize, tags: &[(u8, usize)]) {
    let bytes = length.to_be_bytes();
    let fits = |(_, width): &&(u8, usize)| bytes[..bytes.len() - width].iter().all(|byte| *byte == 0);
    if let Some((tag, width)) = tags.iter().find(fits) {
        out.push(*tag);
        out.extend_from_slice(&bytes[bytes.len() - width..]);
    }
}

/// Decodes all values, one after the other.
fn unpack(lua: &Lua, args: &[Value]) -> Result<Vec<Value>, String> {
    let data = text(lua, args, 0, "unpack")?;
    let (mut rest, mut values) = (&data[..], Vec::new());
    while !rest.is_empty() {
        let tag = take(&mut rest, 1)?[0];
        let items = match tag {
            0x90..0xa0 => usize::from(tag & 15),
            0xdc | 0xdd => unsigned(&mut rest, 2 << (tag - 0xdc))?,
            _ => {
                values.push(created(lua, read(&mut rest, tag)?)?);
                continue;
            }
        };
        let table = lua.create_table().map_err(|error| error.to_string())?;
        for at in 1..=items {
            let tag = take(&mut rest, 1)?[0];
            let item = created(lua, read(&mut rest, tag)?)?;
            table.raw_seti(at, item).map_err(|error| error.to_string())?;
        }
        values.push(Value::Table(table));
    }
    Ok(values)
}

fn read<'a>(rest: &mut &'a [u8], tag: u8) -> Result<&'a [u8], String> {
    let length = match tag {
        0xa0..0xc0 => usize::from(tag & 31),
        0xd9..=0xdb => unsigned(rest, 1 << (tag - 0xd9))?,
        _ => return Err("Bad data format in input.".to_owned()),
    };
    take(rest, length)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (taken, left) = rest.split_at_checked(count).ok_or("Missing bytes in input.")?;
    *rest = left;
    Ok(taken)
}

fn unsigned(rest: &mut &[u8], width: usize) -> Result<usize, String> {
    Ok(take(rest, width)?.iter().fold(0, |value, byte| value << 8 | usize::from(*byte)))
}

fn created(lua: &Lua, bytes: &[u8]) -> Result<Value, String> {
    lua.create_string(bytes).map(Value::String).map_err(|error| error.to_string())
}

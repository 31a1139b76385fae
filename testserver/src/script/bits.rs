//! Lua's `bit`: operations on the lower 32 bits, with signed results.

use mlua::{Lua, Table, Variadic};

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let bit = lua.create_table()?;
    let fold = |name: &str, first: i32, operation: fn(i32, i32) -> i32| -> mlua::Result<()> {
        let function = lua.create_function(move |_, words: Variadic<f64>| {
            Ok(words.iter().map(|word| bits(*word)).fold(first, operation))
        })?;
        bit.raw_set(name, function)
    };
    fold("band", -1, |a, b| a & b)?;
    fold("bor", 0, |a, b| a | b)?;
    fold("bxor", 0, |a, b| a ^ b)?;
    let shift = |name: &str, operation: fn(i32, u32) -> i32| -> mlua::Result<()> {
        let function = lua.create_function(move |_, (word, by): (f64, f64)| {
            Ok(operation(bits(word), bits(by) as u32 & 31))
        })?;
        bit.raw_set(name, function)
    };
    shift("lshift", |word, by| word << by)?;
    shift("rshift", |word, by| ((word as u32) >> by) as i32)?;
    shift("arshift", |word, by| word >> by)?;
    shift("rol", i32::rotate_left)?;
    shift("ror", i32::rotate_right)?;
    let single = |name: &str, operation: fn(i32) -> i32| -> mlua::Result<()> {
        bit.raw_set(name, lua.create_function(move |_, word: f64| Ok(operation(bits(word))))?)
    };
    single("tobit", |word| word)?;
    single("bnot", |word| !word)?;
    single("bswap", i32::swap_bytes)?;
    bit.raw_set(
        "tohex",
        lua.create_function(|_, (word, digits): (f64, Option<i64>)| Ok(hex(word, digits)))?,
    )?;
    Ok(bit)
}

/// The lower 32 bits of the nearest whole number.
fn bits(word: f64) -> i32 {
    word.round_ties_even().rem_euclid(4_294_967_296.0) as u32 as i32
}

fn hex(word: f64, digits: Option<i64>) -> String {
    let digits = digits.unwrap_or(8);
    let width = usize::try_from(digits.unsigned_abs().min(8)).unwrap_or(8);
    let all = format!("{:08x}", bits(word));
    let shown = &all[8 - width..];
    if digits < 0 { shown.to_uppercase() } else { shown.to_owned() }
}

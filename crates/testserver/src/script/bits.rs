//! Lua's `bit`: logic of the lower 32 bits, with a signed result. Of `bit`'s functions, those that scripts here need.

use mlua::{Lua, Table, Variadic};

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    add(lua, &library, "bxor", |all, word| all ^ word)?;
    add(lua, &library, "band", |all, word| all & word)?;
    add(lua, &library, "bor", |all, word| all | word)?;
    Ok(library)
}

/// A function of one word or more, from left to right.
fn add(lua: &Lua, library: &Table, name: &str, join: fn(i32, i32) -> i32) -> mlua::Result<()> {
    let function = move |_: &Lua, words: Variadic<f64>| {
        Ok(words.iter().map(|word| bits(*word)).reduce(join).unwrap_or_default())
    };
    library.raw_set(name, lua.create_function(function)?)
}

/// The lower 32 bits of the nearest whole number.
fn bits(word: f64) -> i32 {
    word.round_ties_even().rem_euclid(4_294_967_296.0) as u32 as i32
}

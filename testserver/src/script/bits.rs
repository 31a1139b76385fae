//! Lua's `bit`: exclusive or of the lower 32 bits, with a signed result.

use mlua::{Lua, Table, Variadic};

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let bxor = |_: &Lua, words: Variadic<f64>| Ok(words.iter().fold(0, |all, word| all ^ bits(*word)));
    library.raw_set("bxor", lua.create_function(bxor)?)?;
    Ok(library)
}

/// The lower 32 bits of the nearest whole number.
fn bits(word: f64) -> i32 {
    word.round_ties_even().rem_euclid(4_294_967_296.0) as u32 as i32
}

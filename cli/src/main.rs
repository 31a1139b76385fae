//! `keylapse`: one program for the person on call.

fn main() {}

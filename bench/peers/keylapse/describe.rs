//! The descriptions of the systems.

use serde_json::{Value, json};

use crate::System;
use crate::bare::Writes;

/// Returns the JSON that `run describe` prints.
pub(crate) fn describe(system: System) -> Value {
    let version = version();
    match system {
        System::Keylapse => json!({
            "name": "keylapse", "version": version, "language": "Rust",
            "settings": "one listener; as many attempts at a time as asked for; 10 ms ahead and a lease of 30 s \
                         (defaults); with a marker key for each timer (default)",
            "survives_a_crash": true, "leaves_out": "",
        }),
        System::WithoutMarkerKeys => json!({
            "name": "keylapse-no-markers", "version": version, "language": "Rust",
            "settings": "as keylapse, without a marker key for each timer",
            "survives_a_crash": true, "leaves_out": "keys whose expiry other programs can observe",
        }),
        System::Ceiling => json!({
            "name": "ceiling", "version": version, "language": "Rust + Lua",
            "settings": "keylapse's scripts for claim and ack, with batches of half of the attempts at a time, \
                         as a busy listener makes them; \
                         the next claim is sent with the acks of the last",
            "survives_a_crash": true,
            "leaves_out": "handlers, payloads as values, concurrency slots, leases, retries, marker keys: it is \
                           no system, but the most that these scripts allow",
        }),
        System::Floor => json!({
            "name": "floor", "version": version, "language": "Rust",
            "settings": "one thread that sleeps until each job is due and spawns a task on tokio's runtime: \
                         what this machine's timers and scheduler are late by themselves",
            "survives_a_crash": false,
            "leaves_out": "a server, and all that is kept: it is no system, but the least lateness there can be",
        }),
        System::Bare(writes) => bare(writes),
    }
}

/// Returns the description of a bare system.
fn bare(writes: Writes) -> Value {
    let (name, settings) = match writes {
        Writes::All => (
            "bare-script",
            "one EVALSHA with HSET (payload), ZADD and SET PXAT (a marker key) under keylapse's names; bulk is one \
             for 250 jobs, 8 in flight",
        ),
        Writes::WithoutMarkerKeys => (
            "bare-script-no-markers",
            "one EVALSHA with HSET (payload) and ZADD under keylapse's names; bulk is one for 250 jobs, 8 in flight",
        ),
        Writes::Member => {
            ("bare-zadd", "ZADD with the payload in the member; bulk is one with 250 members, 8 in flight")
        }
    };
    json!({
        "name": name, "version": version(), "language": "Rust",
        "settings": format!("redis-rs, one connection that all tasks share; {settings}"),
        "survives_a_crash": false,
        "leaves_out": "all but the writes, and a listener: it is no system, but the least that \
                       arming can cost",
    })
}

/// Returns the version of keylapse, which is not that of this package.
fn version() -> &'static str {
    let manifest = include_str!("../../../Cargo.toml");
    let quoted = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    quoted.map_or("", |quoted| quoted.trim_matches('"'))
}

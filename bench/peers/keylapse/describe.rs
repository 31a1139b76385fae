//! What each system says of itself.

use serde_json::{Value, json};

use crate::System;
use crate::bare::Writes;

/// What `run describe` prints.
pub(crate) fn describe(system: System) -> Value {
    let version = version();
    match system {
        System::Keylapse => json!({
            "name": "keylapse", "version": version, "language": "Rust",
            "settings": "one listener; as many attempts at a time as asked for; 10 ms ahead and a lease of 30 s \
                         (defaults); with a visible key for each timer (default)",
            "survives_a_crash": true, "leaves_out": "",
        }),
        System::WithoutTriggers => json!({
            "name": "keylapse-no-triggers", "version": version, "language": "Rust",
            "settings": "as keylapse, without a visible key for each timer",
            "survives_a_crash": true, "leaves_out": "keys that other programs can see and hear expire",
        }),
        System::Ceiling => json!({
            "name": "ceiling", "version": version, "language": "Rust + Lua",
            "settings": "keylapse's scripts for claim and ack, with batches of half of the attempts at a time, \
                         as a busy listener makes them; \
                         the next claim is on its way with the acks of the last",
            "survives_a_crash": true,
            "leaves_out": "handlers, payloads as values, places, leases, retries, visible keys: it is no system, \
                           but the most that these scripts allow",
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

/// What a bare system says.
fn bare(writes: Writes) -> Value {
    let (name, settings) = match writes {
        Writes::All => (
            "bare-script",
            "one EVALSHA with HSET (payload), ZADD and SET PXAT (a visible key) under keylapse's names; bulk is one \
             for 250 jobs, 8 on their way",
        ),
        Writes::WithoutTriggers => (
            "bare-script-no-triggers",
            "one EVALSHA with HSET (payload) and ZADD under keylapse's names; bulk is one for 250 jobs, 8 on their way",
        ),
        Writes::Member => {
            ("bare-zadd", "ZADD with the payload in the member; bulk is one with 250 members, 8 on their way")
        }
    };
    json!({
        "name": name, "version": version(), "language": "Rust",
        "settings": format!("redis-rs, one connection that all tasks share; {settings}"),
        "survives_a_crash": false,
        "leaves_out": "all but the writes, and whoever would handle the jobs: it is no system, but the least that \
                       arming can cost",
    })
}

/// keylapse's, which is not this package's.
fn version() -> &'static str {
    let manifest = include_str!("../../../Cargo.toml");
    let quoted = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    quoted.map_or("", |quoted| quoted.trim_matches('"'))
}

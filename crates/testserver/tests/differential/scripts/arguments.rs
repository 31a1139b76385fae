//! Arguments that each script could be given.

use crate::differential::random::Random;

/// What the callers of scripts know.
pub(crate) struct World {
    pub(crate) now_micros: u64,
    /// Keys that are watched, and the heads of their watches.
    pub(crate) heads: Vec<(Vec<u8>, Vec<u8>)>,
}

type Words = Vec<Vec<u8>>;

impl World {
    pub(crate) fn new() -> Self {
        Self { now_micros: 1_790_000_000_000_000, heads: Vec::new() }
    }

    /// Mostly a little time passes, to odd microseconds; sometimes hours.
    pub(crate) fn pass(&mut self, random: &mut Random) {
        self.now_micros += *random.one(&[0, 1, 37, 999, 1000, 5_003, 60_000_001, 600_000_000, 3_600_000_999]);
    }

    pub(crate) fn app_keys(&self) -> Words {
        ["app:1", "app:2", "app:3"].map(|key| key.as_bytes().to_vec()).into()
    }

    fn ms(&self) -> u64 {
        self.now_micros / 1000
    }
}

/// Those of timers are those of their trigger keys; two of them others write, too.
fn key(random: &mut Random) -> Vec<u8> {
    random.one(&["key1", "key2", "key3", "", "k\u{e9}y", "app:1", "app:2"]).as_bytes().to_vec()
}

fn token(random: &mut Random) -> Vec<u8> {
    format!("token00{}", random.below(4)).into_bytes()
}

fn id(random: &mut Random) -> Vec<u8> {
    format!("ident00{}", random.below(6)).into_bytes()
}

/// Characters of which each says yes or no; now and then too few, too many, or others.
fn flags<const N: usize>(random: &mut Random, letters: [&str; N]) -> Vec<u8> {
    let mut out: Vec<u8> = letters.iter().map(|choice| *random.one(choice.as_bytes())).collect();
    match random.below(30) {
        0 => out.truncate(N - 1),
        1 => out.push(b'1'),
        2 => out[random.below(N)] = *random.one(b"x\x00\xff 2"),
        3 => out.clear(),
        _ => {}
    }
    out
}

fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(|word| word.as_bytes().to_vec()).into()
}

fn when(world: &World, random: &mut Random) -> Vec<u8> {
    let text = match random.below(11) {
        0 => "+0".to_owned(),
        1 => "+1".to_owned(),
        2 => format!("+{}", random.below(100_000)),
        3 => "+0.5".to_owned(),
        4 => world.ms().to_string(),
        5 => (world.ms() + random.below(1000) as u64).to_string(),
        6 => format!("{}.25", world.ms() + 7),
        7 => (*random.one(&[
            "8796093022208",
            "8796093022207",
            "+9e15",
            "+-inf",
            "+ 7",
            "nan",
            "inf",
            "-inf",
            "x",
            "",
            "+",
            "-5",
            "0x10",
        ]))
        .to_owned(),
        // Far away by every clock, so that its trigger key stands.
        8 => (4_102_444_800_000 + random.below(3) as u64).to_string(),
        _ => "+900000".to_owned(),
    };
    text.into_bytes()
}

fn several(random: &mut Random, mut one: impl FnMut(&mut Random) -> Words) -> Words {
    let count = if random.once_in(60) { 900 } else { 1 + random.below(4) };
    (0..count).flat_map(|_| one(random)).collect()
}

fn page(world: &World, random: &mut Random) -> Words {
    let which = *random.one(&["due", "due", "quarantine", "dead", "checks", "x"]);
    let score = *random.one(&[world.ms(), world.ms() - 1, 0]);
    let mut all = words([which, &score.to_string(), *random.one(&["at", "behind", "after", "after"])]);
    all.push(key(random));
    all.extend(words([
        *random.one(&["10", "1", "0"]),
        *random.one(&["43", "0"]),
        *random.one(&["100000", "10", "0"]),
    ]));
    all
}

/// A timer or a letter that comes back.
fn imported(world: &World, random: &mut Random) -> Words {
    let (key, id, ms) = (key(random), id(random), world.ms());
    if random.once_in(3) {
        let name = [&id[..], &ms.to_be_bytes(), &key].concat();
        return vec![b"letter".to_vec(), name, random.bytes(40), Vec::new(), ms.to_string().into_bytes()];
    }
    let record = [&[1][..], &id, &ms.to_be_bytes(), b"payload"].concat();
    let state = [&[1; 2][..], &[0; 8], &[0, 0, 0, 2, 0, 0, 0], &ms.to_be_bytes()].concat();
    let state = if random.once_in(2) { state } else { Vec::new() };
    vec![b"timer".to_vec(), key, record, state, (ms + 500).to_string().into_bytes()]
}

/// Attempt, snoozes, history, as an end of an attempt has them.
fn end(random: &mut Random) -> Words {
    let body: &[u8] = match *random.one(&["retry", "snooze", "again", "dead", "release", "dead", "retry"]) {
        "retry" => &[b'r', 0, 0, 0, 2, 0, 1, b'h'],
        "snooze" => &[b's', 0, 0, 0, 1, 0, 2],
        "again" => b"aident009",
        "dead" => &[b'd', 101, b'h'],
        _ => b"-",
    };
    let name = match body[0] {
        b'r' => "retry",
        b's' => "snooze",
        b'a' => "again",
        b'd' => "dead",
        _ => "release",
    };
    let delay = random.one(&["0", "1", "500", "60000", "x"]).as_bytes().to_vec();
    vec![name.as_bytes().to_vec(), key(random), token(random), delay, body[1..].to_vec()]
}

fn place(world: &World, random: &mut Random) -> Words {
    if random.once_in(4) {
        return words(["0", "0"]);
    }
    let number = world.ms() - random.below(400_000) as u64;
    vec![number.to_string().into_bytes(), random.below(4).to_string().into_bytes()]
}

/// The arguments after the three that all partition scripts begin with.
fn own(name: &str, world: &World, random: &mut Random) -> Words {
    let flag = |random: &mut Random| random.one(&["0", "0", "1"]).as_bytes().to_vec();
    let mut out = Words::new();
    match name {
        "arm" => {
            out.push(flags(random, ["rra", "001", "011"]));
            out.extend(several(random, |random| {
                let by = if random.once_in(3) { id(random) } else { Vec::new() };
                let mut head = [random.one(&[b"\x01", b"\x01", b"\x81"]).to_vec(), id(random), by].concat();
                if random.once_in(40) {
                    head.truncate(random.below(9));
                }
                // That of the timer before; the first has none.
                let when = if random.once_in(4) { Vec::new() } else { when(world, random) };
                vec![key(random), when, head, random.bytes(40)]
            }));
        }
        "claim" => {
            out.push(random.one(&["due", "due", "quarantine"]).as_bytes().to_vec());
            out.push(random.one(&["slot1", "slot2", "slot3"]).as_bytes().to_vec());
            out.extend([token(random), flag(random)]);
            out.extend(words([*random.one(&["10", "1000", "1"]), *random.one(&["100000", "10", "0"])]));
            out.extend(words([*random.one(&["0", "50", "-13"]), *random.one(&["1", "30000"])]));
            out.extend(words([*random.one(&["1", "1000", "0"]), "600000", *random.one(&["trim", "pause"])]));
            out.extend(words([
                *random.one(&["0", "1"]),
                *random.one(&["50", "2"]),
                "2",
                *random.one(&["1", "0"]),
            ]));
        }
        "ack" => {
            out.push(flags(random, ["01"]));
            out.extend(several(random, |random| vec![key(random), token(random)]));
        }
        "settle" => {
            out.extend(words([*random.one(&["2", "1000"]), "600000", *random.one(&["trim", "pause"])]));
            out.push(flags(random, ["01"]));
            out.extend(several(random, end));
        }
        "renew" => {
            out.extend(words(["30000"]));
            out.extend(several(random, |random| vec![key(random), token(random)]));
        }
        "cancel" => {
            out.push(flags(random, ["001", "011"]));
            out.extend(several(random, |random| vec![key(random), id(random)]));
        }
        "reschedule" => {
            out.push(flags(random, ["011"]));
            out.extend(several(random, |random| vec![key(random), when(world, random)]));
        }
        "get_timer" => out.push(key(random)),
        "wake_followers" => out.extend(words([*random.one(&["", "", "slot1", "slot2"])])),
        "pause" => out.extend(words([*random.one(&["", "", "", "why"])])),
        "replay" => {
            let died = world.ms().to_be_bytes();
            out.extend([flag(random), [&id(random)[..], &died, &key(random)].concat(), id(random)]);
            out.push(if random.below(2) == 0 { Vec::new() } else { id(random) });
        }
        "delete_dead_letter" => out.push([&id(random)[..], &world.ms().to_be_bytes(), &key(random)].concat()),
        "repair" => {
            out.extend(words([
                *random.one(&["timers", "timer_states", "queued", "claimers", "tombstones", "x"]),
                "0",
                "100",
                "30000",
            ]));
        }
        "import" => {
            out.push(flags(random, ["01"]));
            out.extend(several(random, |random| imported(world, random)));
        }
        "renew_watch" => out.extend(words([*random.one(&["60000", "1000", "0", "1e9", "x"])])),
        "set_journal_limits" => {
            out.extend(words([*random.one(&["2", "2", "100", "0", "x"]), *random.one(&["600000", "1000"])]));
        }
        "sync_policy" => {
            out.extend(words([*random.one(&["1", "2", "x"]), *random.one(&["{}", "{\"v\":1}"])]));
        }
        "take_duty" => {
            out.extend(words([
                *random.one(&["slot1", "slot2", "slot3"]),
                *random.one(&["hold", "release"]),
                "5000",
            ]));
            out.push(flag(random));
        }
        "save_report" => {
            out = vec![random.one(&["a", "b"]).as_bytes().to_vec()];
            out.extend(words([*random.one(&["{\"id\":\"x\"}", ""]), *random.one(&["60000", "1"]), "0"]));
        }
        "list_reports" => out = words([*random.one(&["0", "0", "x"]), *random.one(&["100", "1", "0"])]),
        "take_checks" => {
            out.extend(words(["100", "1000", *random.one(&["0", "100"]), *random.one(&["slot1", "slot2"])]));
        }
        _ => return attached(name, world, random),
    }
    out
}

/// Those of a change of the number of partitions; mostly it is soon over.
fn moving(name: &str, random: &mut Random) -> Words {
    let by = |random: &mut Random| random.one(&["id000001", "id000001", "id000002"]).as_bytes().to_vec();
    match name {
        "repartition_step" => {
            let how = *random.one(&[
                "ask", "pause", "resume", "close", "share", "open", "clean_up", "clean_up", "clean_up",
            ]);
            let mut all = words(["1", *random.one(&["2", "2", "3"]), "wake", how]);
            all.extend(words([*random.one(&["3", "2", "1"]), *random.one(&["0", "1", "2"])]));
            all.extend([by(random), by(random)]);
            all.extend(words([*random.one(&["", "why"]), "4", *random.one(&["0", "7"])]));
            all
        }
        // In what order other things are gone through is each server's own affair.
        "list_names" => words(["tombstones", "0", *random.one(&["1000", "1000", "1"])]),
        "move_read" => {
            let mut all = words([
                *random.one(&["timers", "timers", "dead_letters", "tombstones", "x"]),
                *random.one(&["1", "50", "100000"]),
            ]);
            all.extend(several(random, |random| vec![key(random)]));
            all
        }
        "move_write" => {
            let mut all = vec![by(random)];
            all.extend(several(random, |random| {
                let place = random.one(&["1", "2", "3", "4", "5", "6"]).as_bytes().to_vec();
                vec![place, key(random), random.below(1_000_000).to_string().into_bytes()]
            }));
            all
        }
        _ => {
            let mut all = vec![by(random), random.one(&["timers", "dead_letters"]).as_bytes().to_vec()];
            all.extend(several(random, |random| vec![key(random)]));
            all
        }
    }
}

fn attached(name: &str, world: &World, random: &mut Random) -> Words {
    let mut out = place(world, random);
    out.truncate(1);
    out.push(random.one(&["0", "1"]).as_bytes().to_vec());
    let stamp = |random: &mut Random| (world.now_micros - random.below(1000) as u64).to_string().into_bytes();
    match name {
        "write_back_expired" => out.extend([key(random), world.ms().to_string().into_bytes()]),
        "record_expiries" => {
            out.push(random.one(&["fire", "ignore"]).as_bytes().to_vec());
            out.extend(several(random, |random| {
                let (at, since) = (place(world, random), place(world, random).remove(0));
                let gone = match world.heads.is_empty() || random.once_in(2) {
                    true => Vec::new(),
                    false => random.one(&world.heads).1[8..].to_vec(),
                };
                [vec![key(random)], at, vec![since, gone, id(random)]].concat()
            }));
        }
        "track_keys" => {
            out.extend(words([*random.one(&["1000", "1"]), *random.one(&["0", "250"])]));
            out.extend(several(random, |random| {
                let deadline = match random.below(4) {
                    0 => 0,
                    1 => world.ms() - 1,
                    _ => world.ms() + random.below(10_000) as u64,
                };
                let mut one = vec![key(random), deadline.to_string().into_bytes()];
                one.extend(place(world, random));
                one.extend([stamp(random), random.one(&[&b""[..], b"\x02value"]).to_vec()]);
                one
            }));
        }
        "apply_checks" => out.extend(several(random, |random| {
            let (key, head) = match world.heads.is_empty() {
                true => (key(random), Vec::new()),
                false => random.one(&world.heads).clone(),
            };
            let (what, last) =
                *random.one(&[("forget", "0"), ("fire", "1"), ("again", "1790000900000"), ("x", "")]);
            let mut one = vec![what.as_bytes().to_vec(), key, head];
            one.extend(place(world, random));
            one.extend([stamp(random), id(random), last.as_bytes().to_vec()]);
            one
        })),
        // A script that is given what another takes is answered alike, and proves nothing.
        _ => panic!("no arguments are known for {name}.lua"),
    }
    out
}

pub(crate) fn arguments(name: &str, world: &World, random: &mut Random) -> Words {
    match name {
        "canary" => words(["4000000000000"]),
        "peek" => Words::new(),
        "overview" => words([*random.one(&["0", "60000", "x"]), "3600000"]),
        "page" => page(world, random),
        "init" => words(["1", "2", *random.one(&["managed", "attached", "", "managed"])]),
        "close_partition" => {
            let how = *random.one(&["ask", "close", "detach", "open", "open", "open", "force", "first"]);
            let kind = *random.one(&["managed", "attached"]);
            words(["1", *random.one(&["2", "2", "2", "1"]), how, kind, *random.one(&["", "", "id000001"])])
        }
        "destroy" => {
            let mut all = words(["wake", *random.one(&["0", "1", "500"])]);
            all.extend(several(random, |random| vec![key(random)]));
            all
        }
        "repartition_step" | "list_names" | "move_read" | "move_write" | "move_delete" => {
            moving(name, random)
        }
        "read_keys" => {
            let mut all =
                words([*random.one(&["0", "4", "1000"]), "0", *random.one(&["0", "4102444800000"])]);
            let fields: [&[&str]; 3] = [&["none"], &["all"], &["named", "a", "f"]];
            all.extend(random.one(&fields).iter().map(|word| word.as_bytes().to_vec()));
            all
        }
        "set_marker" => (0..3)
            .flat_map(|_| {
                let at = *random.one(&["4102444800000", "4102444800001", "1000"]);
                words([at, *random.one(&["1", "9999", "0", "20000", "x"]), *random.one(&["0", "1"])])
            })
            .collect(),
        "forward" => words([
            *random.one(&["list", "stream"]),
            *random.one(&["0", "1", "2"]),
            *random.one(&["1000", "0"]),
            "id",
            "message",
        ]),
        "delete_marker" => words([*random.one(&["4102444800000", "4102444800001"])]),
        "write_back" => {
            words([*random.one(&["4102444800000", "1000"]), *random.one(&["string", "dump"]), "value"])
        }
        _ => {
            let mut all = words([*random.one(&["1", "1", "1", "1", "1", "1", "2"]), "2", "wake"]);
            all.extend(own(name, world, random));
            all
        }
    }
}

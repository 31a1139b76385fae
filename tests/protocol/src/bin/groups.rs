//! Prints what becomes of suspects by each scheme.
//!
//! `cargo run -p keylapse-protocol --bin groups --release`

use keylapse_protocol::simulation::groups::{ALONE, CHOSEN, HALF, HALVES, ROOT, Scene, Scheme, play};
use keylapse_protocol::simulation::scenes;

fn main() {
    let schemes: [(&str, Scheme); 8] = [
        ("alone, alone", ALONE),
        ("50, 25, 12, 6, 3, 1", HALVES),
        ("50, 1, 1", HALF),
        ("50, 7, 1", ROOT),
        ("50, 7, 1, one group after the other", Scheme { whole: true, ..ROOT }),
        ("50, 7, 1, calm 5 s", Scheme { calm: &[5_000, 5_000, 5_000], ..ROOT }),
        ("50, 7, 1, calm 10 s", Scheme { calm: &[10_000, 10_000, 10_000], ..ROOT }),
        ("50, 7, 1, calm 2, 2, 10 s", CHOSEN),
    ];
    let scenes: [(&str, Scene); 10] = [
        ("two crashes of 100 times 10 s", scenes::two_crashes()),
        ("two crashes of 100 of 0.5 to 90 s", scenes::two_crashes_of_mixed_work()),
        ("a pill that strikes at once among 100", scenes::a_pill(20)),
        ("a pill that strikes after 5 s among 100", scenes::a_pill(5_000)),
        ("247 and 25, lease 2 s", scenes::a_pill_each_second(2_000, 1)),
        ("247 and 25, lease 30 s", scenes::a_pill_each_second(30_000, 1)),
        ("247 and 25, lease 2 s, four listeners", scenes::a_pill_each_second(2_000, 4)),
        ("killed every 7 s for two minutes", scenes::a_crash_loop()),
        ("a pill every 10 s, one listener", scenes::a_pill_now_and_then()),
        ("a pill every 10 s, four", Scene { listeners: 4, ..scenes::a_pill_now_and_then() }),
    ];
    for (name, scene) in scenes {
        println!("\n{name}\n{:<36} ended s healthy crashes wronged    lost suspects", "groups");
        for (scheme, tried) in schemes {
            println!("{scheme:<36} {}", play(&scene, tried));
        }
    }
}

//! Patterns, texts and figures, which need no server.

use keylapse::destinations::{Destination, DestinationState};
use keylapse::pattern::Pattern;
use keylapse::pattern::Router;
use keylapse_console::{
    ActionResult, AlarmKind, Limits, MaxUndelivered, Rates, counted, format, parse_span, show_count,
    show_span, text,
};

use super::values::{COUNTS, DURATIONS, SHARES, SIZES, long, texts};
use super::{Case, or_refused};

pub(super) const CASES: &[Case] = &[
    (&["pattern::Pattern::new"], || {
        for text in texts() {
            let pattern = Pattern::new(&text);
            assert!(pattern.is_ok() || pattern.unwrap_err().to_string().len() < 4000);
        }
        for nested in ["{a:(((x+)+)+)+}", "{a:x{1,1000}}", "{a:(x{1000}){1000}}"] {
            let pattern = Pattern::new(nested);
            assert!(pattern.is_ok() || pattern.unwrap_err().to_string().len() < 4000);
        }
    }),
    (
        &[
            "pattern::Pattern::build",
            "pattern::Pattern::is_match",
            "pattern::Pattern::matches",
            "pattern::Router::route",
        ],
        || {
            for source in ["{rest..}", "a:{id}", "{a}:{b:x+}:{rest..}", "{a:(x+x+)+y}"] {
                let pattern = Pattern::new(source).unwrap();
                let mut router = Router::new();
                router.insert(pattern.clone(), ()).unwrap();
                for text in texts() {
                    for values in [vec![], vec![&text], vec![&text; 3], vec![&text; 1000]] {
                        let built = pattern.build(values);
                        assert!(built.is_ok() || built.unwrap_err().to_string().len() < 4000);
                    }
                    let matches = pattern.is_match(text.as_bytes());
                    assert_eq!(pattern.matches(text.as_bytes()).is_some(), matches);
                    assert_eq!(router.route(text.as_bytes()).is_some(), matches);
                }
            }
        },
    ),
    (&["console::parse_span"], || {
        let more = [
            "18446744073709551615d",
            "18446744073709551616ms",
            "99999999999999999999999h",
            "1h1h1h1h",
            "-1s",
            "1",
        ];
        for text in texts().iter().map(String::as_str).chain(more) {
            or_refused(parse_span(text));
        }
    }),
    (&["console::show_span"], || {
        for span in DURATIONS {
            assert!((2..40).contains(&show_span(span).len()));
        }
    }),
    (&["console::counted", "console::show_count"], || {
        for count in COUNTS {
            assert!(counted(count, "timer").contains("timer") && !show_count(count).is_empty());
        }
        counted(u64::MAX, &long());
    }),
    (&["console::text::escape", "console::text::quoted", "console::text::unescape"], || {
        for text in texts() {
            let escaped = text::escape(text.as_bytes());
            assert_eq!(text::unescape(&escaped).unwrap(), text.as_bytes());
            text::quoted(&text);
            or_refused(text::unescape(&text));
        }
        for odd in ["\\", "\\x", "\\xf", "\\xfg", "\\u{110000}"] {
            or_refused(text::unescape(odd));
        }
    }),
    (
        &[
            "console::format::brief",
            "console::format::lateness",
            "console::format::relative",
            "console::format::size",
        ],
        || {
            for count in COUNTS {
                let mut said = vec![format::brief(count), format::lateness(count), format::size(count)];
                said.extend(COUNTS.into_iter().map(|now| format::relative(count, now)));
                assert!(said.iter().all(|said| (1..40).contains(&said.len())), "{said:?}");
            }
        },
    ),
    (&["console::format::percent", "console::format::rate"], || {
        for share in SHARES {
            assert!(!format::percent(share).is_empty() && !format::rate(share).is_empty());
        }
    }),
    (&["console::format::short"], || {
        for text in texts() {
            for most in SIZES {
                assert!(format::short(&text, most).chars().count() <= most);
            }
        }
    }),
    (&["console::ActionResult::of_word"], || {
        assert!(texts().iter().all(|text| ActionResult::of_word(text).is_none()));
    }),
    (&["console::Rates::of"], || {
        let mut rates = Rates::default();
        for now in COUNTS.into_iter().chain(COUNTS) {
            for ended in COUNTS {
                assert!(rates.of(&ended.to_string(), now, ended).is_none_or(f64::is_finite));
                assert!(rates.of("all", now, ended).is_none_or(f64::is_finite));
            }
        }
        texts().iter().for_each(|text| _ = rates.of(text, 0, 0));
    }),
    (&["destinations::Destination::new"], || {
        for text in texts() {
            assert_eq!(Destination::new(text.clone(), DestinationState::Open).name, text);
        }
    }),
    // Looked at beside the figures of a topic.
    (
        &[
            "console::Limits::dead",
            "console::Limits::listeners",
            "console::Limits::overdue",
            "console::Limits::quarantined",
        ],
        || {
            for (count, size) in COUNTS.into_iter().zip(SIZES.into_iter().cycle()) {
                for span in DURATIONS {
                    let limits = Limits::default().dead(Some(count)).listeners(Some(size));
                    let limits = limits.overdue(Some(span)).quarantined(Some(count));
                    let limits = limits.undelivered(Some(MaxUndelivered::Count(count)));
                    _ = limits.undelivered(Some(MaxUndelivered::Age(span))).allow(AlarmKind::ALL.to_vec());
                }
            }
        },
    ),
];

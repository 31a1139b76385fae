//! Settings of a topic, a word and its value a line: each that a program could write down.

use std::time::{Duration, Instant};

use keylapse::inside::TopicInside;
use keylapse::{Backoff, Done, Error, ErrorKind, Failure, Listener, Priority, Topic};
use keylapse_wire::time::{MAX_DELAY, When};

use super::assert_fit_for_a_log;

/// A topic and what is done with it.
struct Case {
    topic: Topic<u64>,
    attempt: u32,
    delay: Duration,
    listener_concurrency: usize,
}

/// Either the topic is refused, with a message that names it and what is wrong, or it works.
pub(crate) fn topic_config(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let lines: Vec<_> = text.lines().filter_map(|line| line.split_once(' ')).take(30).collect();
    let last = |word| lines.iter().rev().find(|(first, _)| *first == word).map(|(_, value)| *value);
    let (name, pattern) = (last("name").unwrap_or("orders"), last("pattern").unwrap_or("app:order:{id}"));
    let topic = match Topic::named(name, pattern) {
        Ok(topic) => topic,
        Err(error) => return assert_refused(&error),
    };
    let mut case = Case { topic, attempt: 1, delay: Duration::ZERO, listener_concurrency: 1 };
    for (word, value) in lines {
        case = case.with(word, value);
    }
    let faults = case.faults();
    match case.topic.config().check("keylapse") {
        Ok(()) => {
            assert!(faults.is_empty(), "{faults:?} {:?}", case.topic);
            case.works();
        }
        Err(error) => {
            assert_refused(&error);
            let message = error.to_string();
            assert!(message.starts_with(&format!("topic {name}: ")), "{message}");
            assert!(faults.iter().any(|fault| message.contains(fault)), "{faults:?} {message}");
        }
    }
}

fn assert_refused(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_fit_for_a_log(&error.to_string(), 6000);
}

/// A number of any size; the nearest that there is.
fn number<N: TryFrom<u64>>(value: &str, most: N) -> N {
    value.parse::<u64>().ok().and_then(|number| number.try_into().ok()).unwrap_or(most)
}

/// In seconds, with a fraction.
fn duration(value: &str) -> Duration {
    value.parse().ok().and_then(|secs| Duration::try_from_secs_f64(secs).ok()).unwrap_or(Duration::MAX)
}

fn backoff(value: &str) -> Backoff {
    let mut words = value.split(' ');
    let kind = words.next().unwrap_or_default();
    let mut delays = words.map(duration).take(20);
    let mut next = || delays.next().unwrap_or_default();
    match kind {
        "fixed" => Backoff::fixed(next()),
        "exponential" => Backoff::exponential(next(), next()),
        "custom" => {
            let delay = next();
            Backoff::custom(move |attempt| delay.saturating_mul(attempt))
        }
        _ => Backoff::table(delays),
    }
}

impl Case {
    fn with(mut self, word: &str, value: &str) -> Self {
        let (topic, time) = (self.topic, duration(value));
        self.topic = match word {
            "retry" => topic.retry(backoff(value)),
            "max_attempts" => topic.max_attempts(number(value, u32::MAX)),
            "max_age" => topic.max_age(time),
            "max_snoozes" => topic.max_snoozes(number(value, u16::MAX)),
            "timeout" => topic.timeout(time),
            "lease" => topic.lease(time),
            "lookahead" => topic.lookahead(time),
            "concurrency" => topic.concurrency(number(value, usize::MAX)),
            "priority" => topic.priority(match value {
                "high" => Priority::High,
                "low" => Priority::Low,
                _ => Priority::Normal,
            }),
            "partitions" => topic.partitions(number(value, u32::MAX)),
            "payload_limit" => topic.payload_limit(number(value, usize::MAX)),
            "dead_letters" => topic.dead_letters(number(value, u64::MAX), Duration::from_secs(1)),
            "dead_letters_age" => topic.dead_letters(1, time),
            _ => topic,
        };
        match word {
            "attempt" => self.attempt = number(value, u32::MAX),
            "delay" => self.delay = time,
            "listener_concurrency" => self.listener_concurrency = number(value, usize::MAX),
            _ => {}
        }
        self
    }

    /// The settings that can never work, as the documentation has it.
    fn faults(&self) -> Vec<&'static str> {
        let config = self.topic.config();
        let lease = Duration::from_millis(300)..=Duration::from_secs(86_400);
        let rules = [
            ("pattern", !self.topic.pattern().literal_prefix().starts_with("keylapse:")),
            ("partitions", (1..=1024).contains(&config.partitions)),
            ("max_attempts", config.max_attempts != Some(0)),
            ("concurrency", config.concurrency > 0),
            ("timeout", config.timeout > Duration::ZERO),
            ("lease", lease.contains(&config.lease)),
            ("lookahead", config.lookahead <= Duration::from_secs(1) && config.lookahead < config.lease / 3),
            ("payload_limit", config.payload_limit <= 8 << 20),
            ("dead_letters", config.dead_letters.count > 0 && config.dead_letters.age_ms > 0),
        ];
        rules.into_iter().filter(|(_, holds)| !holds).map(|(name, _)| name).collect()
    }

    fn works(self) {
        let config = self.topic.config();
        assert!(config.attempts() > 0);
        assert!(config.partition_of(self.topic.name().as_bytes()) < config.partitions as usize);
        let wait = config.backoff.delay(self.attempt);
        assert!(wait <= MAX_DELAY && When::from(wait).resolve(MAX_DELAY).is_ok());
        assert_eq!(When::from(self.delay).resolve(MAX_DELAY).is_ok(), self.delay <= MAX_DELAY);
        let now = Instant::now();
        assert!(now.checked_add(config.lease + config.lookahead).is_some());
        self.listens();
    }

    /// A listener with a thousand partitions takes its time to build; a few are as good.
    fn listens(self) {
        if self.topic.config().partitions > 8 {
            return;
        }
        let handler = |_| std::future::ready(Ok::<_, Failure>(Done));
        let builder = Listener::builder("redis://127.0.0.1/").concurrency(self.listener_concurrency);
        let built = builder.on(self.topic, handler).build();
        assert_eq!(built.is_ok(), self.listener_concurrency > 0, "{built:?}");
    }
}

//! Values as they were written: to receivers, lists, streams and programs.

use keylapse_support::eventually;
use redis::from_redis_value;

use crate::delivered::ALLOW;
use crate::forwarded::Entry;
use crate::rig::PATIENCE;
use crate::{Receiver, Rig, Then};

/// JSON that a parser would write otherwise.
const VALUES: [&str; 7] = [
    "1234567890123456789012345",
    r#"{"amount":100000000000000000.01}"#,
    "1.10",
    "1e400",
    r#"{"b":1,"a":2,"b":3}"#,
    " {\"a\" :\t1}\n",
    r#""\ud800""#,
];

type Fields = &'static [(&'static str, &'static [u8])];

fn has(message: &[u8], value: &str) -> bool {
    let text = format!("\"value\":{value}");
    message.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn payloads_and_values_reach_receivers_as_they_were_written() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let timers = Rig::of_timers(&receiver.url(), "", ALLOW).await;
    let keys = Rig::of_keys(&receiver.url(), "keep-values = \"1KiB\"", ALLOW).await;
    keys.enrolling().await;
    for (number, value) in VALUES.iter().enumerate() {
        timers.arm(&number.to_string(), *value).await;
        keys.server.cmd(&["SET", &format!("order:{number}"), value, "EX", "1000"]).await;
    }
    for number in 0..VALUES.len() {
        keys.expire(&format!("order:{number}")).await;
    }
    let calls = receiver.calls(2 * VALUES.len()).await;
    for value in VALUES {
        let with_it = calls.iter().filter(|call| has(&call.body, value)).count();
        assert_eq!(with_it, 2, "{value}: {calls:?}");
    }
}

#[tokio::test]
async fn fields_of_hashes_reach_receivers_whatever_their_bytes() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let settings = "keep-values = \"1KiB\"\nkeep-fields = [\"a\", \"b\"]";
    let rig = Rig::of_keys(&receiver.url(), settings, ALLOW).await;
    rig.enrolling().await;
    let hashes: [(&str, Fields, &str); 3] = [
        (
            "order:text",
            &[("a", b"1.10"), ("b", b"x"), ("c", b"3")],
            r#""value_format":"fields","value":{"a":"1.10","b":"x"}"#,
        ),
        (
            "order:odd",
            &[("a", b"\xff"), ("b", b"1")],
            r#""fields_base64":{"YQ==":"/w==","Yg==":"MQ=="},"value":null"#,
        ),
        ("order:none", &[("c", b"3")], r#""value_format":"fields","value":{}"#),
    ];
    for (key, fields, _) in hashes {
        let mut conn = rig.server.conn().await;
        let () =
            redis::pipe().hset_multiple(key, fields).expire(key, 1000).query_async(&mut conn).await.unwrap();
        rig.expire(key).await;
    }
    let calls = receiver.calls(3).await;
    for (key, _, told) in hashes {
        let call = calls.iter().find(|call| call.json()["data"]["key"] == key).expect(key);
        let text = std::str::from_utf8(&call.body).unwrap();
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[tokio::test]
async fn captures_that_are_no_text_are_written_as_in_the_key() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let rig = Rig::of_keys(&receiver.url(), "", ALLOW).await;
    rig.enrolling().await;
    let mut conn = rig.server.conn().await;
    for key in [b"order:\xfe", b"order:\xff"] {
        let () = redis::cmd("SET").arg(key).arg("1").arg("PX").arg(300).query_async(&mut conn).await.unwrap();
    }
    for call in receiver.calls(2).await {
        let data = &call.json()["data"];
        let key = data["key"].as_str().unwrap();
        assert_eq!(data["captures"]["id"], *key.strip_prefix("order:").unwrap(), "{data}");
    }
}

#[tokio::test]
async fn payloads_reach_lists_and_streams_as_they_were_written() {
    for (to, read) in [("list", &["LRANGE", "jobs", "0", "-1"]), ("stream", &["XRANGE", "jobs", "-", "+"])] {
        let text = format!("[topics.orders]\npattern = \"order:{{id}}\"\nforward = {{ {to} = \"jobs\" }}\n");
        let rig = Rig::with_secrets(&text, &[]).await;
        for (number, value) in VALUES.iter().enumerate() {
            rig.arm(&number.to_string(), *value).await;
        }
        rig.none_left().await;
        let messages = match to {
            "list" => from_redis_value::<Vec<Vec<u8>>>(rig.server.cmd(read).await).unwrap(),
            _ => {
                let entries: Vec<Entry<Vec<u8>>> = from_redis_value(rig.server.cmd(read).await).unwrap();
                entries.into_iter().flat_map(|(_, fields)| fields).map(|(_, value)| value).collect()
            }
        };
        for value in VALUES {
            assert!(messages.iter().any(|message| has(message, value)), "{to}: {value}");
        }
    }
}

#[tokio::test]
async fn payloads_reach_programs_byte_for_byte() {
    let exec = "exec = { argv = [\"/bin/sh\", \"program\"], directory = \".\" }";
    let text = format!("[topics.orders]\npattern = \"order:{{id}}\"\n{exec}\n");
    let program = "cat > part.$KEYLAPSE_KEY; mv part.$KEYLAPSE_KEY told.$KEYLAPSE_KEY";
    let rig = Rig::with_secrets(&text, &[("program", program)]).await;
    let values: Vec<_> = VALUES.iter().map(|value| value.as_bytes()).chain([&b"\xff\0\n"[..], b""]).collect();
    for (number, value) in values.iter().enumerate() {
        rig.arm(&number.to_string(), *value).await;
    }
    for (number, value) in values.iter().enumerate() {
        let file = rig.folder().join(format!("told.order:{number}"));
        eventually(PATIENCE, "the program's input", async || file.exists()).await;
        assert_eq!(std::fs::read(&file).unwrap(), *value, "{}", value.escape_ascii());
    }
}

/// Listeners follow the policy with the highest revision, and refuse another one of the same revision.
#[tokio::test]
async fn a_higher_revision_changes_how_keys_are_treated() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let mut rig = Rig::of_keys(&receiver.url(), "", ALLOW).await;
    rig.enrolling().await;
    let refused = rig.change_keys(&receiver.url(), "keep-values = \"1KiB\"", ALLOW).await;
    assert_eq!(refused.expect_err("another policy").kind(), keylapse::ErrorKind::Conflict);
    let settings = "keep-values = \"1KiB\"\nrevision = 2";
    rig.change_keys(&receiver.url(), settings, ALLOW).await.expect("a higher revision");
    rig.server.cmd(&["SET", "order:kept", "\"a value\"", "EX", "1000"]).await;
    rig.expire("order:kept").await;
    assert!(has(&receiver.calls(1).await[0].body, "\"a value\""));
}

use std::ffi::OsString;

use proptest::prelude::*;

use super::*;
use crate::{Address, Endpoints as E};

/// Formats the parts of a parsed URL, without the environment.
fn shown(url: &str) -> String {
    let target = read(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let (kind, master) = match &target.endpoints {
        E::One(_) => ("one", ""),
        E::Cluster(_) => ("cluster", ""),
        E::Sentinel { master, .. } => ("sentinel", &**master),
    };
    let tls = if target.options.tls.is_some() { " tls" } else { "" };
    format!("{kind} {} {master}/{}{tls}", target.endpoints, target.options.db)
}

fn refusal(url: &str) -> String {
    let error = read(url).and_then(Target::checked).map(|_| panic!("{url} was read")).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
    error.to_string()
}

#[test]
fn one_server_is_read() {
    for (url, read) in [
        ("redis://127.0.0.1", "one 127.0.0.1:6379 /0"),
        ("redis://127.0.0.1/", "one 127.0.0.1:6379 /0"),
        ("redis://h:/3/", "one h:6379 /3"),
        (" redis://h\n", "one h:6379 /0"),
        ("REDIS://h", "one h:6379 /0"),
        ("redis://:p%40ss%25@[::1]:7000/1", "one [::1]:7000 /1"),
        ("redis://user:a%40b%3Ac%2Fd@h/2", "one h:6379 /2"),
        ("valkey://localhost", "one localhost:6379 /0"),
        ("rediss://h/1", "one h:6379 /1 tls"),
        ("valkeys://h:6380", "one h:6380 /0 tls"),
        ("redis://h?protocol=resp3", "one h:6379 /0"),
        ("unix:///tmp/redis.sock", "one /tmp/redis.sock /0"),
        ("unix:/tmp/redis.sock", "one /tmp/redis.sock /0"),
        ("redis+unix:///tmp/a%20b?db=2&user=u&pass=p", "one /tmp/a b /2"),
    ] {
        assert_eq!(shown(url), read, "{url}");
    }
}

#[test]
fn clusters_and_sentinels_are_read() {
    for (url, read) in [
        ("redis+cluster://h1:7000,h2:7001/", "cluster h1:7000,h2:7001 /0"),
        ("redis+cluster://h", "cluster h:6379 /0"),
        ("valkey+cluster://u:p@[::1]:1,[::2]/5", "cluster [::1]:1,[::2]:6379 /5"),
        ("rediss+cluster://h1,h2", "cluster h1:6379,h2:6379 /0 tls"),
        ("valkeys+cluster://h1,h2", "cluster h1:6379,h2:6379 /0 tls"),
        ("redis+sentinel://h1:1,h2/mymaster", "sentinel h1:1,h2:26379 mymaster/0"),
        ("redis+sentinel://h1,h2/my%2Fmaster/3", "sentinel h1:26379,h2:26379 my/master/3"),
        ("valkey+sentinel://u:p@h/m/", "sentinel h:26379 m/0"),
        ("rediss+sentinel://h/m", "sentinel h:26379 m/0 tls"),
        ("valkeys+sentinel://h/m/0", "sentinel h:26379 m/0 tls"),
    ] {
        assert_eq!(shown(url), read, "{url}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_by_the_part_at_fault() {
    for (url, part) in [
        ("", "scheme"),
        ("hunter2", "scheme"),
        ("http://hunter2", "scheme"),
        ("redis+hunter2://h", "scheme"),
        ("redis:hunter2", "`//`"),
        ("redis://", "host is empty"),
        ("redis://user:hunter2@", "host is empty"),
        ("redis://:hunter2@:1", "host is empty"),
        ("redis://:hunter2@h:port/x", "its port"),
        ("redis://:hunter2@h:0", "its port"),
        ("redis://:hunter2@h/x", "database"),
        ("redis://:hunter2@h/-1", "database"),
        ("redis://:hunter2@h/99999999999999999999", "database"),
        ("redis://:hunter2@h/1/2", "too many parts"),
        ("redis://:hunter2@h1,h2", "comma"),
        ("redis://:%ffhunter2@h", "not UTF-8"),
        ("redis://h?db=hunter2", "parameter `db`"),
        ("redis://h?password=hunter2", "parameter `password`"),
        ("redis://u:a?hunter2@h/", "its port"),
        ("redis://u:a?hunter2@h/", "%3F"),
        ("redis://u:a/hunter2@h/", "%2F"),
        ("redis://u?hunter2@h/", "number 1 after"),
        ("redis://h?protocol=hunter2", "`protocol`"),
        ("redis://h?protocol=resp3&hunter2=1", "number 2 after"),
        ("redis://h?sentinel_user=hunter2", "parameter `sentinel_user`"),
        ("rediss://:hunter2@h/#insecure", "`#`"),
        ("unix://tmp/hunter2", "absolute path"),
        ("unix:///tmp/h?tls=hunter2", "parameter `tls`"),
        ("redis+cluster://", "empty list"),
        ("redis+cluster://u:hunter2@/", "empty list"),
        ("redis+cluster://h1,,h2/", "host 2 of its list: its host is empty"),
        ("redis+cluster://h1,h2:hunter2/", "host 2 of its list: its port"),
        ("redis+cluster://h1,h2:0/", "host 2 of its list: its port"),
        ("redis+cluster://u:hunter2@h1,rediss://h2/", "scheme of its own"),
        ("rediss+cluster://h1:1,redis://u:hunter2@h2/", "scheme of its own"),
        ("redis+sentinel://:hunter2@h1,h2", "name of the master"),
        ("redis+sentinel://:hunter2@h1,h2/", "name of the master"),
        ("redis+sentinel://:hunter2@h/%20", "master's name"),
        ("redis+sentinel://:hunter2@h/m/x", "database"),
        ("redis+sentinel://h/m/0/hunter2", "too many parts"),
        ("redis+sentinel://h/m?sentinel_pass=hunter2", "number 1 after"),
    ] {
        let said = refusal(url);
        assert!(said.contains(part), "{url}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

/// An `@` or `:` in a password needs no escape; a `%` does.
#[test]
fn passwords_of_any_characters_are_read_as_they_were_meant() {
    for (written, meant) in [
        ("p%40ss%25", "p@ss%"),
        ("a@b", "a@b"),
        ("a:b", "a:b"),
        ("a,b", "a,b"),
        ("a+b", "a+b"),
        ("%2F%3F%23%5B%5D", "/?#[]"),
        ("%C3%A4", "ä"),
        ("100%25", "100%"),
    ] {
        for url in ["redis://user:{}@h", "redis+cluster://user:{}@h,h", "rediss+sentinel://user:{}@h/m"] {
            let target = read(&url.replace("{}", written)).unwrap();
            assert_eq!(target.options.login.password, Some(Password::Literal(meant.into())), "{written}");
            assert_eq!(target.options.login.user.as_deref(), Some("user"));
        }
    }
    let target = read("redis+sentinel://h/m?sentinel_user=s&sentinel_password=%2B%26").unwrap();
    assert_eq!(target.sentinel_options.login.password, Some(Password::Literal("+&".into())));
}

#[test]
fn passwords_are_never_shown() {
    let target = Target::parse(
        "redis+sentinel://user:hunter2@127.0.0.1:7000/m/3?sentinel_user=other&sentinel_password=hunter2",
    );
    let target = target.unwrap();
    let address = Address::at(target.endpoints.all()[0].clone(), target.options.clone());
    assert_eq!(format!("{address} {address:?}"), "127.0.0.1:7000/3 127.0.0.1:7000/3");
    let shown = format!("{target:?} {:?}", target.options);
    assert!(!shown.contains("hunter2") && !shown.contains("user"), "{shown}");
}

#[test]
fn no_path_or_host_breaks_a_log_line() {
    let long = format!("unix:///{}", "x".repeat(10_000));
    for (url, shown) in [
        ("unix:///tmp/\x1b[31m", "/tmp/\\u{1b}[31m"),
        ("unix:///tmp/%0Aforged", "/tmp/\\nforged"),
        ("redis://h%0A", "h%0A:6379"),
        (&long, &long[7..7 + 255]),
    ] {
        assert_eq!(read(url).unwrap().endpoints.to_string(), shown);
    }
}

/// Escapes every byte.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

proptest! {
    #[test]
    fn what_a_url_says_is_what_is_read(
        kind in 0_usize..3,
        tls: bool,
        valkey: bool,
        hosts in prop::collection::vec(("[a-z][a-z0-9.-]{0,9}|\\[::[1-9a-f]\\]", 1_u16..), 1..5),
        login in prop::option::of(("\\PC{1,9}", "\\PC{1,9}")),
        sentinel in prop::option::of(("\\PC{1,9}", "\\PC{1,9}")),
        master in "[A-Za-z0-9._/-]{1,9}",
        db in 0_u32..,
    ) {
        let hosts: Vec<_> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let hosts = if kind == 0 { hosts[0].clone() } else { hosts.join(",") };
        let scheme = [if valkey { "valkey" } else { "redis" }, if tls { "s" } else { "" }].concat();
        let scheme = [&scheme, ["", "+cluster", "+sentinel"][kind]].concat();
        let user = login.as_ref().map(|(user, word)| format!("{}:{}@", escaped(user), escaped(word)));
        let master = if kind == 2 { format!("{}/", escaped(&master)) } else { String::new() };
        let query = sentinel.as_ref().filter(|_| kind == 2).map(|(user, word)| {
            format!("?sentinel_user={}&sentinel_password={}", escaped(user), escaped(word))
        });
        let (user, query) = (user.unwrap_or_default(), query.unwrap_or_default());
        let target = read(&format!("{scheme}://{user}{hosts}/{master}{db}{query}")).unwrap();

        prop_assert_eq!(target.endpoints.to_string(), hosts);
        prop_assert_eq!((target.options.db, target.options.tls.is_some()), (i64::from(db), tls));
        for (said, read) in [(&login, &target.options.login), (&sentinel.filter(|_| kind == 2), &target.sentinel_options.login)] {
            prop_assert_eq!(read.user.as_deref(), said.as_ref().map(|(user, _)| &**user));
            let password = said.as_ref().map(|(_, word)| Password::Literal(word.as_str().into()));
            prop_assert_eq!(&read.password, &password);
        }
        let read = match target.endpoints {
            E::One(_) | E::Cluster(_) => String::new(),
            E::Sentinel { master, .. } => format!("{}/", escaped(&master)),
        };
        prop_assert_eq!(read, master);
    }
}

fn environment(name: &str) -> Option<OsString> {
    match name {
        SERVER_PASSWORD_VARIABLE => Some("of servers".into()),
        "KEYLAPSE_SENTINEL_PASSWORD_FILE" => Some("/of/sentinels".into()),
        _ => None,
    }
}

fn checked(url: &str) -> Target {
    read(url).unwrap().checked_within(&environment, true).unwrap()
}

fn said(password: &str) -> Option<Password> {
    Some(Password::Literal(password.into()))
}

#[test]
fn the_environment_gives_the_passwords_that_a_url_does_not_say() {
    let target = checked("redis+sentinel://user@h/m");
    assert_eq!(target.options.login.user.as_deref(), Some("user"));
    assert_eq!(target.options.login.password, said("of servers"));
    let of_sentinels = Password::file("/of/sentinels", "KEYLAPSE_SENTINEL_PASSWORD_FILE");
    assert_eq!(target.sentinel_options.login.password, Some(of_sentinels));
    assert_eq!(target.sentinel_options.login.user, None);

    let target = checked("redis+sentinel://user:p@h/m?sentinel_user=s&sentinel_password=q");
    assert_eq!(
        (&target.options.login.password, &target.sentinel_options.login.password),
        (&said("p"), &said("q"))
    );
    assert_eq!(target.sentinel_options.login.user.as_deref(), Some("s"));

    let target = checked("redis+cluster://h1,h2/");
    assert_eq!(target.options.login.password, said("of servers"));
    assert_eq!(target.sentinel_options.login.password, None);
    assert_eq!(checked("unix:///tmp/s").options.login.password, said("of servers"));
}

#[test]
fn two_passwords_in_the_environment_matter_only_where_they_are_asked_for() {
    let both = |_: &str| Some(OsString::from("x"));
    assert!(read("redis://h").unwrap().checked_within(&both, true).is_err());
    read("redis://:p@h").unwrap().checked_within(&both, true).unwrap();
}

#[test]
fn without_the_feature_tls_is_refused_by_the_name_of_the_feature() {
    for url in ["rediss://h", "valkeys+cluster://h", "rediss+sentinel://h/m"] {
        let error = read(url).unwrap().checked_within(&environment, false).unwrap_err().to_string();
        assert!(error.contains("feature `tls`") && error.contains("never falls back"), "{error}");
    }
    read("redis://h").unwrap().checked_within(&environment, false).unwrap();
}

#[test]
fn sentinels_get_neither_the_database_nor_the_login_of_the_servers() {
    let target = checked("rediss+sentinel://u:p@h/m/3");
    assert_eq!((target.options.db, target.sentinel_options.db), (3, 0));
    assert_eq!(target.sentinel_options.login.user, None);
    assert!(target.options.tls.is_some() && target.sentinel_options.tls.is_some());
    assert_ne!(target.sentinel_options.login.password, target.options.login.password);
}

#[test]
fn servers_are_shown_without_user_and_password() {
    for (url, shown) in [
        ("redis://ada:hunter2@h/", "h:6379"),
        ("redis://:hunter2@h:7000/5", "h:7000, database 5"),
        ("redis+cluster://ada:hunter2@h1:7000,h2:7001/", "h1:7000,h2:7001 (cluster)"),
        (
            "redis+sentinel://ada:hunter2@h1,h2/shop/2",
            "h1:26379,h2:26379 (master shop of sentinels), database 2",
        ),
    ] {
        assert_eq!(Target::parse(url).unwrap().to_string(), shown);
    }
}

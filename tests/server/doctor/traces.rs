//! The doctor leaves nothing behind, and touches nothing of others.

use std::collections::BTreeMap;
use std::time::Duration;

use keylapse::{Client, Schedule, Topic};
use keylapse_console::Console;
use keylapse_support::{Server, eventually};
use redis::{AsyncCommands, Value};

use super::{codes, diagnose, well};
use crate::server::support::PATIENCE;

/// Everything that there is, byte by byte, and until when.
async fn everything(server: &Server) -> BTreeMap<Vec<u8>, (Value, i64)> {
    let mut connection = server.conn().await;
    let keys: Vec<Vec<u8>> = connection.keys("*").await.unwrap();
    let mut all = BTreeMap::new();
    for key in keys {
        let dump = redis::cmd("DUMP").arg(&key).query_async(&mut connection).await.unwrap();
        let until = connection.pexpire_time(&key).await.unwrap();
        all.insert(key, (dump, until));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_an_examination() {
    let server = well().start().await;
    server.cmd(&["SET", "app:other", "value", "PX", "3600000"]).await;
    let schedule = Schedule::connect(&server.app_url()).await.unwrap();
    let topic = Topic::<u64>::new("app:trace:{id}").unwrap();
    let _ = schedule.arm(&topic, "1", Duration::from_secs(3600), &7).await.unwrap();
    let before = everything(&server).await;
    assert!(before.len() > 4);
    let console = Console::new(Client::new(&server.app_url()).unwrap());
    let diagnosis = console.doctor().measure(Duration::from_secs(1)).await;
    assert!(codes(&diagnosis).contains("K502"), "{:#?}", diagnosis.findings);
    let same = async || everything(&server).await == before;
    eventually(PATIENCE, "the database to be as it was", same).await;
}

/// An empty server stays one: there is no registry, and no meta. Rights are found out by trying here.
#[tokio::test(flavor = "multi_thread")]
async fn only_names_of_the_doctor_are_written_and_each_has_a_time_to_live() {
    let server = well().start().await;
    let narrow =
        ["ACL", "SETUSER", "narrow", "on", ">narrow", "+@all", "-acl", "&*", "%R~*", "~keylapse:doctor:*"];
    server.cmd(&narrow).await;
    let client = Client::new(&server.url_for("narrow", "narrow")).unwrap();
    let mut examined = Box::pin(async {
        let console = Console::new(client);
        let diagnosis = console.doctor().measure(Duration::from_secs(1)).await;
        assert_eq!(diagnosis.errors(), 0, "{:#?}", diagnosis.findings);
        assert!(codes(&diagnosis).contains("K502"), "{:#?}", diagnosis.findings);
    });
    // While it goes on, each key that there is has a deadline, and is the doctor's.
    loop {
        tokio::select! {
            biased;
            () = &mut examined => break,
            all = everything(&server) => {
                let lasting = all.iter().find(|(key, (_, until))| *until == -1 || !key.starts_with(b"keylapse:doctor:"));
                assert_eq!(lasting, None);
            }
        }
    }
    let nothing = async || everything(&server).await.is_empty();
    eventually(PATIENCE, "all of it to have expired", nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_kept_apart() {
    let server = well().start().await;
    let narrow = ["ACL", "SETUSER", "narrow", "on", ">narrow", "+@all", "&*", "~other:*"];
    server.cmd(&narrow).await;
    let url = server.url_for("narrow", "narrow");
    let client = Client::new(&url).unwrap().namespace("other").unwrap();
    assert_eq!(Console::new(client).doctor().await.errors(), 0);
    assert!(codes(&diagnose(&url).await).contains("K202"));
}

//! Secrets in headers, and their files.

use std::process::Command;

use crate::run::{Receiver, Scene, Then};

const EXPOSED: &str = "every user of this machine can read this header";

fn file(receiver: &Receiver, authorization: &str) -> String {
    format!(
        "[topics.orders]\npattern = \"order:{{id}}\"\n[topics.orders.webhook]\nurl = \"{}\"\nallow-addresses = [\"127.0.0.1\"]\n\
         secret = {{ file = \"secret\" }}\nheaders = {{ authorization = {authorization} }}\n",
        receiver.url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_whose_file_is_replaced_holds_once_the_files_are_read_again() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let scene = Scene::new().await;
    scene.write("token", "Bearer one\n");
    scene.write("keylapse.toml", &file(&receiver, "{ file = \"token\" }"));
    let program = scene.run();
    scene.arm(0..1).await;
    assert_eq!(receiver.calls(1).await[0].header("authorization"), "Bearer one");
    scene.write("token", "Bearer two\n");
    program.signal("HUP");
    program.has_said("the configuration file was reloaded", 1).await;
    program.has_said("keylapse::listener::run: stopped", 1).await;
    scene.arm(1..2).await;
    assert_eq!(receiver.calls(2).await[1].header("authorization"), "Bearer two");
    assert!(!program.lines().join("\n").contains("Bearer"), "{}", program.lines().join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_file_that_everybody_reads_is_warned_of_and_sent() {
    let receiver = Receiver::start(|_, _| Then::status(200)).await;
    let scene = Scene::new().await;
    scene.write("keylapse.toml", &file(&receiver, "\"Bearer hunter2\""));
    let check = || {
        let mut check = Command::new(env!("CARGO_BIN_EXE_keylapse"));
        let ended = check.args(["run", "--check", "-c"]).arg(scene.path("keylapse.toml")).output();
        let ended = ended.expect("the program");
        assert!(ended.status.success(), "{ended:?}");
        String::from_utf8(ended.stderr).expect("text")
    };
    assert_eq!(check(), "");
    scene.show_everybody("keylapse.toml");
    let warned = check();
    assert!(warned.contains("orders: authorization") && warned.contains(EXPOSED), "{warned}");
    assert!(!warned.contains("hunter2"), "{warned}");
    let program = scene.run();
    scene.arm(0..1).await;
    assert_eq!(receiver.calls(1).await[0].header("authorization"), "Bearer hunter2");
    let warned = program.says(EXPOSED).await;
    assert!(warned.contains("WARN") && warned.contains("orders: authorization"), "{warned}");
    program.signal("HUP");
    program.has_said(EXPOSED, 2).await;
}

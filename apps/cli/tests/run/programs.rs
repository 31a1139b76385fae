//! Programs that it runs, and what they say.

use crate::run::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_says_is_logged_with_where_it_was_said() {
    let scene = Scene::new().await;
    let script = "echo the output; echo the error >&2; exit 3";
    scene.write(
        "keylapse.toml",
        &format!("[topics.orders]\npattern = \"order:{{id}}\"\nexec = {{ argv = [\"/bin/sh\", \"-c\", \"{script}\"] }}\n"),
    );
    let program = scene.run();
    scene.arm(0..1).await;
    for (from, said) in [("stdout", "the output"), ("stderr", "the error")] {
        let line = program.says(said).await;
        assert!(line.contains("program output") && line.contains(&format!("from={from:?}")), "{line}");
    }
}

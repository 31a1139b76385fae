//! docs/configuration.md documents each setting.

use std::path::Path;

use super::Config;

/// Returns the settings of a table, as the error about an unknown setting lists them.
fn settings_of(table: &str) -> Vec<String> {
    let text = format!("[topics.a]\nattach = \"a:{{id}}\"\n{table}\nqqqq = 1\n");
    let error = Config::parse(&text, Path::new(".")).expect_err("it is unknown").to_string();
    let (_, names) = error.split_once("expected one of ").expect(&error);
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn each_setting_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(page).expect("the page");
    for (heading, table, least) in [
        ("### `[topics.NAME]`", "", 20),
        ("### `[topics.NAME.webhook]`", "[topics.a.webhook]", 8),
        ("### `[topics.NAME.forward]`", "[topics.a.forward]", 4),
        ("### `[topics.NAME.exec]`", "[topics.a.exec]", 5),
    ] {
        let section = page.split(heading).nth(1).expect(heading);
        let section = section.split("\n### ").next().unwrap_or_default();
        let settings = settings_of(table);
        assert!(settings.len() >= least, "{settings:?}");
        let is_missing = |name: &&String| !section.contains(&format!("| `{name}` |"));
        let missing: Vec<_> = settings
            .iter()
            .filter(is_missing)
            .filter(|name| !["webhook", "forward", "exec"].contains(&name.as_str()))
            .collect();
        assert!(missing.is_empty(), "{heading}: {missing:?}");
    }
}

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

/// Files that pages show are applied as they are. A secret of the environment is read from a file here.
#[test]
fn each_file_of_the_guide_is_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().expect("a folder");
    let secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    for name in ["secret", "secret-before", "token"] {
        let file = folder.path().join(name);
        std::fs::write(&file, secret).expect("a file");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("its owner");
    }
    let docs =
        std::fs::read_dir(root.join("docs")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut accepted = 0;
    for page in
        docs.chain([root.join("README.md")]).filter(|path| path.extension().is_some_and(|end| end == "md"))
    {
        let text = std::fs::read_to_string(&page).expect("a page");
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
            let Some(name) = block.split("[topics.").nth(1) else { continue };
            let block = block.replace("{ env = \"WEBHOOK_SECRET\" }", "{ file = \"secret\" }");
            if let Err(error) = Config::parse(&block, folder.path()) {
                panic!("{}: {error}\n[topics.{name}", page.display());
            }
            accepted += 1;
        }
    }
    assert!(accepted > 10, "{accepted} files");
}

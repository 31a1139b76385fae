//! The routes, `docs/openapi.json` and `docs/http-api.md` agree.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

fn read(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|fault| panic!("{}: {fault}", file.display()))
}

fn description() -> Value {
    serde_json::from_str(&read("openapi.json")).expect("JSON")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("an object: {value}"))
}

/// Returns the words between backticks.
fn code(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the query of a route as the page writes it, such as `?after=&count=`.
fn query(operation: &Value, components: &Value) -> String {
    let listed = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    let names = listed.iter().map(|parameter| match parameter["$ref"].as_str() {
        Some(name) => &components["parameters"][name.rsplit('/').next().unwrap_or(name)],
        None => parameter,
    });
    let names = names.filter(|parameter| parameter["in"] == "query");
    let names: Vec<_> = names.filter_map(|parameter| parameter["name"].as_str()).collect();
    if names.is_empty() { String::new() } else { format!("?{}=", names.join("=&")) }
}

#[test]
fn the_description_has_the_same_routes() {
    let description = description();
    let paths = object(&description["paths"]).keys();
    let described: BTreeSet<_> = paths.filter_map(|path| path.strip_prefix("/api/v1")).collect();
    let routes: BTreeSet<_> = super::table().into_iter().map(|(_, path, _)| path).collect();
    assert_eq!(described, routes);
}

#[test]
fn the_page_has_each_route_with_its_parameters_and_outcomes() {
    let (description, page) = (description(), read("http-api.md"));
    let mut missing = Vec::new();
    for (path, operations) in object(&description["paths"]) {
        for (method, operation) in object(operations) {
            let path = path.strip_prefix("/api/v1").unwrap_or(path);
            let query = query(operation, &description["components"]);
            let route = format!("| `{} {path}{query}` |", method.to_uppercase());
            let Some(row) = page.lines().find(|line| line.starts_with(&route)) else {
                missing.push(route);
                continue;
            };
            let responses = object(&operation["responses"]);
            // The other responses are the same for many routes, and the page has them in one table.
            let own = responses.iter().filter(|(_, response)| response.get("$ref").is_none());
            for (status, response) in own.filter(|_| path.starts_with("/topics/")) {
                let text = response["description"].as_str().unwrap_or_default();
                let absent = code(text).into_iter().filter(|outcome| !row.contains(&format!("`{outcome}`")));
                missing.extend(absent.map(|outcome| format!("{route} {outcome}")));
                if status != "200" && !row.contains(status.as_str()) {
                    missing.push(format!("{route} {status}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_page_has_each_status_of_an_error() {
    let (description, page) = (description(), read("http-api.md"));
    let operations =
        object(&description["paths"]).values().flat_map(|operations| object(operations).values());
    let statuses = operations.flat_map(|operation| object(&operation["responses"]).keys());
    let errors: BTreeSet<_> =
        statuses.filter(|status| !status.starts_with('2')).map(String::as_str).collect();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let on_page: BTreeSet<_> =
        rows.map(|(cell, _)| cell).filter(|cell| cell.parse::<u16>().is_ok()).collect();
    assert_eq!(on_page, errors);
}

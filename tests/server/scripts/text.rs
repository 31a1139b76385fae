//! Numbers do not become text on the way to Redis: Lua writes 14 digits, and a
//! score of this century has up to 17.

use regex::Regex;

use super::source::Source;

/// Variables that hold text.
const TEXT: [&str; 20] = [
    "NO_TOKEN",
    "token",
    "id",
    "key",
    "arming",
    "state",
    "record",
    "body",
    "first",
    "packed",
    "last",
    "name",
    "copy",
    "dump",
    "letter",
    "slot",
    "kept",
    "value",
    "old.value_read",
    "carried",
];
/// Tables of text.
const TABLES: [&str; 4] = ["KEYS", "ARGV", "meta", "found"];
/// Functions that answer text, or write numbers to the last digit; `table.concat` does neither, and is
/// for tables of packed text alone.
const FUNCTIONS: [&str; 6] = ["sub", "char", "struct.pack", "string.format", "cmsgpack.pack", "table.concat"];

#[test]
fn only_text_is_put_together() {
    for source in Source::all().into_values() {
        for (at, _) in source.code.match_indices("..") {
            let (left, right) = (source.code[..at].trim_end(), source.code[at + 2..].trim_start());
            let found = [last_operand(left), first_operand(right)];
            let line = left.lines().last().unwrap_or_default();
            assert!(
                found.iter().all(|operand| is_text(operand)),
                "{}.lua puts together {found:?}: {line}",
                source.name
            );
        }
    }
}

#[test]
fn no_number_is_written_but_in_full() {
    for source in Source::all().into_values() {
        for rounding in ["tostring", "cjson", "%d", "%s", "%g"] {
            assert!(!source.code.contains(rounding), "{}.lua uses {rounding}", source.name);
        }
        let formats = source.code.matches("string.format(").count();
        assert_eq!(source.code.matches("string.format('%.0f', ").count(), formats, "{}.lua", source.name);
    }
}

/// Each table that is put together has got its pieces from `struct.pack`.
#[test]
fn only_packed_text_is_put_into_tables_that_become_text() {
    let concat = Regex::new(r"table\.concat\((\w+)\)").expect("a pattern");
    for source in Source::all().into_values() {
        for found in concat.captures_iter(&source.code) {
            let table = &found[1];
            let filled = source.code.matches(&format!("{table}[#{table} + 1] = struct.pack(")).count();
            let writes = Regex::new(&format!(r"\b{table}(\[[^\]]+\]) = ")).expect("a pattern");
            // A field of the same name belongs to another table.
            let all =
                writes.find_iter(&source.code).filter(|write| !source.code[..write.start()].ends_with('.'));
            assert_eq!((filled > 0, all.count()), (true, filled), "{table} in {}.lua", source.name);
        }
        let known = concat.find_iter(&source.code).count();
        assert_eq!(source.code.matches("table.concat").count(), known, "{}.lua", source.name);
    }
}

fn is_text(operand: &str) -> bool {
    operand.starts_with(['\'', '"'])
        || TEXT.contains(&operand)
        || operand.split_once('[').is_some_and(|(table, _)| TABLES.contains(&table))
        || operand.split_once('(').is_some_and(|(function, choices)| match function {
            // A choice between texts.
            "" => choices.split(" or ").all(|choice| choice.trim_end_matches(')').ends_with('\'')),
            _ => FUNCTIONS.contains(&function),
        })
}

/// A name, with what is called or looked up in it; or a text.
fn first_operand(code: &str) -> &str {
    let quote = code.chars().next().filter(|first| matches!(first, '\'' | '"'));
    let end = match quote {
        Some(quote) => code[1..].find(quote).map(|at| at + 2),
        None => code.find(|letter: char| !is_name(letter)).map(|at| match code.as_bytes()[at] {
            b'(' | b'[' => at + 1,
            _ => at,
        }),
    };
    &code[..end.unwrap_or(code.len())]
}

fn last_operand(code: &str) -> &str {
    let start = match code.chars().last() {
        Some(quote @ ('\'' | '"')) => code[..code.len() - 1].rfind(quote),
        Some(')') => opening(code, '(', ')').map(|at| start_of_name(code, at)),
        Some(']') => opening(code, '[', ']').map(|at| start_of_name(code, at)),
        _ => Some(start_of_name(code, code.len())),
    };
    &code[start.unwrap_or(0)..]
}

fn opening(code: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0;
    code.char_indices()
        .rev()
        .find(|(_, letter)| {
            depth += i32::from(*letter == close) - i32::from(*letter == open);
            depth == 0
        })
        .map(|(at, _)| at)
}

fn start_of_name(code: &str, end: usize) -> usize {
    code[..end].rfind(|letter: char| !is_name(letter)).map_or(0, |at| at + 1)
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.')
}

#[test]
fn operands_are_told_apart() {
    assert_eq!(last_operand("x = f(sub(a, 1))"), "f(sub(a, 1))");
    assert_eq!(last_operand("g(x, ARGV[2 * i]"), "ARGV[2 * i]");
    assert_eq!(last_operand("return 'a b'"), "'a b'");
    assert_eq!(first_operand("char(lost) .. x"), "char(");
    assert_eq!(first_operand("now, y"), "now");
    assert!(
        is_text("(running and 'f' or 'c')")
            && !is_text("now")
            && !is_text("(now or 1)")
            && !is_text("math.ceil(")
    );
}

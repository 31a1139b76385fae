//! Numbers do not become text on the way to Redis: Lua writes 14 digits, and a
//! score of this century has up to 17.

use regex::Regex;

use crate::keys::arguments;
use crate::source::Source;

/// Variables that hold text, in every script.
const TEXT: [&str; 29] = [
    "NO_TOKEN",
    "node",
    "seen.node",
    "seen.value_read",
    "bytes",
    "text",
    "now_text",
    "NEVER",
    "wake_up_error",
    "refused",
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
    "prefix",
    "claimer",
    "kept",
    "value",
    "old.value_read",
    "carried",
];
/// Variables and tables that hold text in one script, and something else in others.
const OWN: [(&str, &str); 8] = [
    ("arm", "code"),
    ("arm", "head"),
    ("arm", "out"),
    ("cancel", "code"),
    ("page", "score"),
    ("tail_journal", "event"),
    ("reschedule", "codes"),
    ("reschedule", "marker"),
];
/// Tables of text.
const TABLES: [&str; 6] = ["KEYS", "ARGV", "meta", "found", "ids", "texts_of"];
/// Functions that answer text, or write numbers to the last digit; `table.concat` does neither, and is
/// for tables of packed text alone.
const FUNCTIONS: [&str; 13] = [
    "sub",
    "char",
    "struct.pack",
    "string.format",
    "cmsgpack.pack",
    "table.concat",
    "set_marker",
    "error_suffix",
    "padded",
    "with_size",
    "pack_trace",
    "pack_past",
    "pack_named",
];

#[test]
fn only_text_is_put_together() {
    for source in Source::all().into_values() {
        for (at, _) in source.code.match_indices("..") {
            let (left, right) = (source.code[..at].trim_end(), source.code[at + 2..].trim_start());
            let found = [last_operand(left), first_operand(right)];
            let line = left.lines().last().unwrap_or_default();
            assert!(
                found.iter().all(|operand| is_text(operand) || is_own_text(&source, operand)),
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
        // The second is for a timer's place within its millisecond, which has three digits.
        let known = ["string.format('%.0f', ", "string.format('.%03d', "];
        let known = known.iter().map(|known| source.code.matches(known).count()).sum::<usize>();
        assert_eq!(known, formats, "{}.lua", source.name);
    }
}

/// Each table that is put together holds texts that were packed, or written as such, and nothing else.
#[test]
fn only_packed_text_is_put_into_tables_that_become_text() {
    let concat = Regex::new(r"table\.concat\((\w+)\)").expect("a pattern");
    for source in Source::all().into_values() {
        for found in concat.captures_iter(&source.code) {
            let table = &found[1];
            let put = put_into(table, &source.code);
            for value in &put {
                assert!(is_text_alone(&source, value), "{}.lua puts {value} into {table}", source.name);
            }
            // A field of the same name belongs to another table.
            let writes =
                Regex::new(&format!(r"(?m)(?:^|[^.\w]){table}\[[^\]]+\][^=\n]* = ")).expect("a pattern");
            let lines = source.code.lines().filter(|line| writes.is_match(line));
            let read = lines.clone().filter(|line| !put_into(table, line).is_empty());
            assert_eq!(
                (put.is_empty(), read.count()),
                (false, lines.count()),
                "{table} in {}.lua",
                source.name
            );
        }
        let known = concat.find_iter(&source.code).count();
        assert_eq!(source.code.matches("table.concat").count(), known, "{}.lua", source.name);
        assert!(!source.code.contains("table.insert(out"), "{}.lua", source.name);
    }
}

/// What becomes part of a table: values of its fields, and those it is made with.
fn put_into(table: &str, code: &str) -> Vec<String> {
    let keyword = Regex::new(" (?:then|else|do) ").expect("a pattern");
    let statements = code.lines().flat_map(|line| keyword.split(line));
    let mut put = Vec::new();
    for statement in statements {
        let statement = statement.trim().trim_start_matches("local ").trim_end_matches(" end");
        let Some((targets, values)) = statement.split_once(" = ") else { continue };
        for (target, value) in arguments(targets).into_iter().zip(arguments(values)) {
            if target.strip_prefix(table).is_some_and(|index| index.starts_with('[')) {
                put.push(value);
            } else if let Some(made) = value.strip_prefix('{').filter(|_| target == table) {
                put.extend(arguments(made).into_iter().filter(|value| !value.is_empty()));
            }
        }
    }
    put
}

/// A text, a choice between texts, or several that are put together.
fn is_text_alone(source: &Source, value: &str) -> bool {
    match value.split_once(" and ").filter(|(condition, _)| !condition.contains([',', '\'', '('])) {
        Some((_, texts)) => texts.split(" or ").all(|text| is_text_alone(source, text)),
        None => operands(value).iter().all(|operand| is_text(operand) || is_own_text(source, operand)),
    }
}

/// Splits at the dots of its own level.
fn operands(value: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for piece in value.split("..") {
        let last = all.last_mut().expect("one at least");
        if last.is_empty() {
            *last = piece.trim().to_owned();
        } else if last.matches('(').count() > last.matches(')').count() {
            *last = format!("{last} .. {}", piece.trim());
        } else {
            all.push(piece.trim().to_owned());
        }
    }
    all
}

fn is_own_text(source: &Source, operand: &str) -> bool {
    let name = operand.split_once('[').map_or(operand, |(table, _)| table);
    OWN.contains(&(source.name.as_str(), name))
}

#[test]
fn what_is_put_into_a_table_is_read() {
    let code =
        "local out, n = {}, 0\nif a then out[1], out[2] = code .. '\\0', pack('>I8', x .. y) else n = 1 end
        out, b = { c and '\\0' or '\\1', 7 }, {}\nfor k in p do out[#out + 1] = at end\npast.out[1] = 2";
    let read = ["code .. '\\0'", "pack('>I8', x .. y)", "c and '\\0' or '\\1'", "7"];
    assert_eq!(put_into("out", code)[..4], read);
    let arm = &Source::all()["arm"];
    let is = |value| is_text_alone(arm, value);
    assert!(
        is("code .. '\\0'") && is("c and '\\0' or '\\1'") && is("'\\0' .. set_marker(keys[i], at, 1, true)")
    );
    assert!(!is("7") && !is("at") && !is("'a' .. at") && !is("c and at or '\\1'"));
    assert_eq!(operands("struct.pack('>I8', a .. b) .. c"), ["struct.pack('>I8', a .. b)", "c"]);
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
